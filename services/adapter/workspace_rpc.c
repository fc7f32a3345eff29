/* workspace_rpc.c - WorkspaceService's ExportWorkspace and ImportWorkspace: the table. */
#include "services/adapter/workspace.h"

bool workspace_is_moved(const struct berth_call *call)
{
    return berth_call_metadata_count(call, WORKSPACE_MOVED) > 0;
}

void workspace_free_lost(SkippedFile **lost, size_t n)
{
    for (size_t i = 0; i < n; i++)
        protobuf_c_message_free_unpacked(&lost[i]->base, NULL);
    free(lost);
}

bool workspace_lost(const struct adapter_carried *carried, SkippedFile ***ret, size_t *ret_n)
{
    SkippedFile **lost = calloc(carried->n_lost + 1, sizeof *lost);
    size_t n = 0;

    for (; lost && n < carried->n_lost; n++) {
        lost[n] = calloc(1, sizeof **lost);
        if (!lost[n])
            break;
        berth__data__v1__skipped_file__init(lost[n]);
        lost[n]->path = convert_escaped(carried->lost[n].path);
        lost[n]->reason = strdup(carried->lost[n].reason);
        if (!lost[n]->path || !lost[n]->reason) {
            n++;
            break;
        }
    }
    if (!lost || n < carried->n_lost ||
        (n > 0 && (!lost[n - 1]->path || !lost[n - 1]->reason))) {
        workspace_free_lost(lost, lost ? n : 0);
        return false;
    }
    *ret = lost;
    *ret_n = n;
    return true;
}

#define WORKSPACE(name) "/berth.data.v1.WorkspaceService/" name

const struct berth_method adapter_workspace_methods[] = {
    {WORKSPACE("ExportWorkspace"), &berth__data__v1__export_workspace_request__descriptor, NULL,
     workspace_open_export, BERTH_METHOD_PEER_ONLY},
    {WORKSPACE("ImportWorkspace"), &berth__data__v1__import_workspace_request__descriptor, NULL,
     workspace_open_import, BERTH_METHOD_PEER_ONLY | BERTH_METHOD_UNGUARDED},
};
const size_t n_adapter_workspace_methods = BERTH_COUNT(adapter_workspace_methods);

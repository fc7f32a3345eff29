/* sweep_snapshots.c - what snapshots hold, by their tags. Counted only, never judged: the
 * ledger of skills has the say over them. */
#include <stdlib.h>

#include "common/log/log.h"
#include "common/messages/messages.h"
#include "services/reaper/sweep.h"

typedef Berth__Backend__V1__ListSnapshotsRequest ListSnapshotsRequest;
typedef Berth__Backend__V1__ListSnapshotsResponse ListSnapshotsResponse;
typedef Berth__Common__V1__Snapshot Snapshot;

static const char *tag(const Snapshot *snapshot, const char *key)
{
    for (size_t i = 0; i < snapshot->n_metadata; i++)
        if (strcmp(snapshot->metadata[i]->key, key) == 0)
            return snapshot->metadata[i]->value;
    return "";
}

static void count(struct sweep *sweep, const struct sweep_group *group,
                  const Snapshot *snapshot)
{
    size_t at =
        sweep_target_at(sweep, tag(snapshot, "berth.tenant"), tag(snapshot, "berth.config"));
    char account[SWEEP_ACCOUNT_HEX];

    if (at == sweep->n_targets ||
        strcmp(tag(snapshot, "berth.deployment"), sweep->reaper->runtime->deployment) != 0)
        return;
    sweep_account_hex(account, &sweep->targets[at]->target->fingerprint);
    if (strcmp(account, group->account) == 0)
        sweep->snapshot_bytes[at] += snapshot->size_bytes;
}

static enum berth_code list_group(struct sweep *sweep, const struct sweep_group *group,
                                  struct berth_error *err)
{
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    ListSnapshotsRequest req = BERTH__BACKEND__V1__LIST_SNAPSHOTS_REQUEST__INIT;
    BERTH_AUTO(free) char *token = NULL;
    enum berth_code code = BERTH_OK;

    req.target = group->target->target;
    req.page = &page;
    page.page_size = SWEEP_PAGE;
    for (int pages = 0; !code && (pages == 0 || *token) && pages < SWEEP_PAGES_MAX; pages++) {
        ListSnapshotsResponse *resp = NULL;
        char *next;

        page.page_token = token ? token : (char *)"";
        code = reaper_adapter_call(sweep->reaper, group->target->target->backend,
                                   "/berth.backend.v1.SnapshotService/ListSnapshots", &req.base,
                                   &berth__backend__v1__list_snapshots_response__descriptor,
                                   &resp, err);
        if (code)
            return code;
        for (size_t i = 0; i < resp->n_snapshots; i++)
            count(sweep, group, resp->snapshots[i]);
        next = strdup(resp->next_page_token);
        berth_message_free(resp);
        if (!next || (*next && token && strcmp(next, token) == 0)) {
            free(next);
            return berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE,
                              "the list of snapshots does not end");
        }
        free(token);
        token = next;
    }
    return code;
}

void sweep_list_snapshots(struct sweep *sweep)
{
    sweep->snapshot_bytes = calloc(sweep->n_targets + 1, sizeof *sweep->snapshot_bytes);
    for (size_t i = 0; sweep->snapshot_bytes && i < sweep->n_groups; i++) {
        const struct sweep_group *group = &sweep->groups[i];
        struct berth_error why = {0};

        if (group->whole && group->snapshots && list_group(sweep, group, &why))
            berth_warn("no whole list of snapshots, counting those that were told", "backend",
                       group->target->target->backend, "error", why.text);
    }
}

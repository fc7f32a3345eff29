/* methods.c - which calls there are and what kind each is (design section 6 says which ENSURE).
 */
#include "services/dataplane/dataplane.h"

#define ENSURE BERTH__CONTROL__V1__RESOLVE_MODE__RESOLVE_MODE_ENSURE
#define EXISTING BERTH__CONTROL__V1__RESOLVE_MODE__RESOLVE_MODE_EXISTING
#define PROCESS "/berth.data.v1.ProcessService/"
#define FILES "/berth.data.v1.FileService/"
#define WORKSPACES "/berth.data.v1.WorkspaceService/"

/* METHOD(name, path, request, mode, flags) */
#define METHODS                                                                                \
    METHOD(run, PROCESS "Run", run_request, ENSURE, DP_TELLS_LOSS)                             \
    METHOD(exec, PROCESS "Exec", exec_request, ENSURE, DP_MANY_ANSWERS | DP_TELLS_LOSS)        \
    METHOD(attach, PROCESS "Attach", attach_request, EXISTING,                                 \
           DP_READ_ONLY | DP_NO_STALL | DP_MANY_ANSWERS)                                       \
    METHOD(send_input, PROCESS "SendInput", send_input_request, EXISTING, 0)                   \
    METHOD(signal, PROCESS "Signal", signal_request, EXISTING, 0)                              \
    METHOD(list_processes, PROCESS "ListProcesses", list_processes_request, EXISTING,          \
           DP_READ_ONLY)                                                                       \
    METHOD(stat, FILES "Stat", stat_request, EXISTING, DP_READ_ONLY)                           \
    METHOD(list_dir, FILES "ListDir", list_dir_request, EXISTING, DP_READ_ONLY)                \
    METHOD(make_dir, FILES "MakeDir", make_dir_request, ENSURE, DP_TELLS_LOSS)                 \
    METHOD(move, FILES "Move", move_request, ENSURE, DP_TELLS_LOSS)                            \
    METHOD(remove, FILES "Remove", remove_request, ENSURE, DP_TELLS_LOSS)                      \
    METHOD(read_file, FILES "ReadFile", read_file_request, EXISTING,                           \
           DP_READ_ONLY | DP_MANY_ANSWERS)                                                     \
    METHOD(write_file, FILES "WriteFile", write_file_request, ENSURE,                          \
           DP_CLIENT_STREAM | DP_TELLS_LOSS)                                                   \
    METHOD(export_workspace, WORKSPACES "ExportWorkspace", export_workspace_request, EXISTING, \
           DP_READ_ONLY | DP_MANY_ANSWERS)                                                     \
    METHOD(import_workspace, WORKSPACES "ImportWorkspace", import_workspace_request, ENSURE,   \
           DP_CLIENT_STREAM | DP_TELLS_LOSS)

/* The runtime hands over the service, not the method: one small function each. */
#define METHOD(name, path, type, mode, flags)                                                  \
    static const struct dp_method method_##name = {                                            \
        path, &berth__data__v1__##type##__descriptor,                                          \
        &berth__data__v1__##name##_response__descriptor, mode, flags};                         \
    static enum berth_code open_##name(void *service, struct berth_stream *stream,             \
                                       const struct berth_stream_ops **ret_ops,                \
                                       void **ret_ctx, struct berth_error *err)                \
    {                                                                                          \
        return dp_stream_open(service, &method_##name, stream, ret_ops, ret_ctx, err);         \
    }
METHODS
#undef METHOD

#define METHOD(name, path, type, mode, flags)                                                  \
    {path, &berth__data__v1__##type##__descriptor, NULL, open_##name, BERTH_METHOD_UNGUARDED},
const struct berth_method dataplane_methods[] = {
    METHODS{"/berth.data.v1.InternalService/MoveWorkspace",
            &berth__data__v1__move_workspace_request__descriptor, NULL, dp_move_open,
            BERTH_METHOD_PEER_ONLY}};
#undef METHOD
const size_t n_dataplane_methods = BERTH_COUNT(dataplane_methods);

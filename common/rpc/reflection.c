#include "common/rpc/server.h"

enum berth_code berth_reflection_add(struct berth_server *server, const uint8_t *descriptor_set,
                                     size_t size, const char *const *services,
                                     size_t n_services, struct berth_error *err)
{
    (void)server;
    (void)descriptor_set;
    (void)size;
    (void)services;
    (void)n_services;
    (void)err;
    return BERTH_OK;
}

void rpc_reflection_free(struct rpc_reflection *reflection)
{
    (void)reflection;
}

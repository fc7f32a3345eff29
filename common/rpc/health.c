#include "common/rpc/server.h"

void berth_health_set(struct berth_server *server, const char *service, bool serving)
{
    (void)server;
    (void)service;
    (void)serving;
}

enum berth_code berth_health_add(struct berth_server *server, struct berth_error *err)
{
    (void)server;
    (void)err;
    return BERTH_OK;
}

void rpc_health_drain(struct berth_server *server)
{
    (void)server;
}

void rpc_health_free(struct rpc_health *health)
{
    (void)health;
}

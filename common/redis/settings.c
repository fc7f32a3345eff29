#include "common/redis/settings.h"

enum { CONNECTIONS_MAX = 1024, REPLICAS_MAX = 16 };

enum berth_code berth_redis_open(const struct berth_redis_settings *settings,
                                 struct berth_redis **ret, struct berth_error *err)
{
    const struct berth_redis_options options = {
        .url = settings->url,
        .username = settings->user,
        .password = settings->password,
        .tls_ca = settings->tls_ca,
        .tls_cert = settings->tls_cert,
        .tls_key = settings->tls_key,
        .sentinel_username = settings->sentinel_user,
        .sentinel_password = settings->sentinel_password,
        .max_connections = (unsigned)settings->connections,
        .command_timeout_ms = settings->timeout_ms,
        .wait_replicas = (unsigned)settings->replicas,
    };

    if (settings->connections < 1 || settings->connections > CONNECTIONS_MAX)
        return berth_fail_field(err, "redis_connections", "must be 1 to %d", CONNECTIONS_MAX);
    if (settings->replicas < 0 || settings->replicas > REPLICAS_MAX)
        return berth_fail_field(err, "redis_replicas", "must be 0 to %d", REPLICAS_MAX);
    return berth_redis_new(&options, ret, err);
}

/* settings.h - where a service's Redis is and how it is used: the same settings everywhere. */
#pragma once

#include "common/config/config.h"
#include "common/redis/redis.h"

struct berth_redis_settings {
    char *url, *user, *password, *sentinel_user, *sentinel_password, *tls_ca, *tls_cert,
        *tls_key;
    int64_t connections, timeout_ms, replicas;
};

#define BERTH_REDIS_KEY(type, member, field, suffix, kind, value, doc)                         \
    {                                                                                          \
        "redis" suffix, BERTH_CONFIG_##kind, offsetof(type, member.field), value, doc          \
    }

/* Entries of a table of struct berth_config_key: of a struct berth_redis_settings `member` in
 * the service's settings `type`. */
#define BERTH_REDIS_KEYS(type, member, max_connections)                                        \
    BERTH_REDIS_KEY(                                                                           \
        type, member, url, "", STR, "redis://127.0.0.1:6379",                                  \
        "redis://host:port/db, unix:/path, or sentinel:name@host:port,host:port/db"),          \
        BERTH_REDIS_KEY(type, member, user, "_user", STR, "", "ACL user of Redis"),            \
        BERTH_REDIS_KEY(type, member, password, "_password", SECRET, "",                       \
                        "password of Redis; \"@/path\" reads a file"),                         \
        BERTH_REDIS_KEY(type, member, sentinel_user, "_sentinel_user", STR, "",                \
                        "ACL user of the Sentinels"),                                          \
        BERTH_REDIS_KEY(type, member, sentinel_password, "_sentinel_password", SECRET, "",     \
                        "password of the Sentinels"),                                          \
        BERTH_REDIS_KEY(type, member, tls_ca, "_tls_ca", STR, "",                              \
                        "authorities of Redis and Sentinels (PEM); empty: in the clear"),      \
        BERTH_REDIS_KEY(type, member, tls_cert, "_tls_cert", STR, "",                          \
                        "our certificate for Redis (PEM), where it wants one"),                \
        BERTH_REDIS_KEY(type, member, tls_key, "_tls_key", STR, "", "its private key (PEM)"),  \
        BERTH_REDIS_KEY(type, member, connections, "_connections", INT, max_connections,       \
                        "connections to Redis, at most"),                                      \
        BERTH_REDIS_KEY(type, member, timeout_ms, "_timeout", MS, "800ms",                     \
                        "of one command to Redis"),                                            \
        BERTH_REDIS_KEY(type, member, replicas, "_replicas", INT, "0",                         \
                        "replicas that must have what is written before it is answered")

/* Does not connect. Errors: FIELD_INVALID naming the setting. */
BERTH_MUST_CHECK enum berth_code berth_redis_open(const struct berth_redis_settings *settings,
                                                  struct berth_redis **ret,
                                                  struct berth_error *err);

/* adapters.h - the way to each adapter of the suite, for services that ask all of them: the
 * same settings everywhere, and one channel to each. */
#pragma once

#include "common/config/config.h"
#include "common/svc/svc.h"

struct berth_adapter_settings {
    char *local, *docker, *e2b, *cube;
};

/* Entries of a table of struct berth_config_key: of a struct berth_adapter_settings `member` in
 * the service's settings `type`. */
#define BERTH_ADAPTER_KEYS(type, member)                                                       \
    {"adapter_local", BERTH_CONFIG_STR, offsetof(type, member.local), "",                      \
     "target of the adapter of backend local; empty: its socket"},                             \
        {"adapter_docker", BERTH_CONFIG_STR, offsetof(type, member.docker), "",                \
         "of backend docker"},                                                                 \
        {"adapter_e2b", BERTH_CONFIG_STR, offsetof(type, member.e2b), "", "of backend e2b"},   \
    {                                                                                          \
        "adapter_cube", BERTH_CONFIG_STR, offsetof(type, member.cube), "", "of backend cube"   \
    }

enum { BERTH_ADAPTERS_MAX = 4 };

struct berth_adapters {
    struct {
        const char *backend;
        struct berth_channel *channel;
    } of[BERTH_ADAPTERS_MAX];
    size_t n;
};

/**
 * berth_adapters_open() - a channel to each; connects to none
 * @max_in_flight: calls at once on each; 0: as many as a channel takes
 * @ret: to be closed, also after a failure
 *
 * What cannot be reached is ADAPTER_UNAVAILABLE. Errors: FIELD_INVALID for a bad target.
 */
BERTH_MUST_CHECK enum berth_code
berth_adapters_open(const struct berth_runtime *runtime,
                    const struct berth_adapter_settings *settings, unsigned max_in_flight,
                    struct berth_adapters *ret, struct berth_error *err);
void berth_adapters_close(struct berth_adapters *adapters);
/* Borrowed; NULL: there is no such backend. */
struct berth_channel *berth_adapters_find(const struct berth_adapters *adapters,
                                          const char *backend);

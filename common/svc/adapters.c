#include "common/svc/adapters.h"

enum berth_code berth_adapters_open(const struct berth_runtime *runtime,
                                    const struct berth_adapter_settings *settings,
                                    unsigned max_in_flight, struct berth_adapters *ret,
                                    struct berth_error *err)
{
    const struct berth_channel_options options = {
        .unavailable = BERTH_REASON_ADAPTER_UNAVAILABLE, .max_in_flight = max_in_flight};
    const struct {
        const char *backend, *peer, *target;
    } all[BERTH_ADAPTERS_MAX] = {
        {"local", "adapter-local", settings->local},
        {"docker", "adapter-docker", settings->docker},
        {"e2b", "adapter-e2b", settings->e2b},
        {"cube", "adapter-cube", settings->cube},
    };
    enum berth_code code = BERTH_OK;

    ret->n = 0;
    for (size_t i = 0; !code && i < BERTH_COUNT(all); i++) {
        ret->of[i].backend = all[i].backend;
        code = berth_peer_channel(runtime, all[i].peer, all[i].target, &options,
                                  &ret->of[i].channel, err);
        ret->n += !code;
    }
    return code;
}

void berth_adapters_close(struct berth_adapters *adapters)
{
    for (size_t i = 0; i < adapters->n; i++)
        berth_channel_free(adapters->of[i].channel);
    adapters->n = 0;
}

struct berth_channel *berth_adapters_find(const struct berth_adapters *adapters,
                                          const char *backend)
{
    for (size_t i = 0; i < adapters->n; i++)
        if (strcmp(adapters->of[i].backend, backend) == 0)
            return adapters->of[i].channel;
    return NULL;
}

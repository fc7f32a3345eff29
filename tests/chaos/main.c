/* berth-chaos-cloud - the scripted backend of tests/chaos in the place of adapter-local. */
#include "common/svc/svc.h"
#include "tests/chaos/cloud.h"

struct settings {
    bool keyed;
    int64_t seed, trouble, lie;
    int64_t horizon, create;
    char *log, *calm;
    char *state_dir, *key_file; /* of adapter-local: not looked at */
};

#define KEY(field, type, value, doc)                                                           \
    {                                                                                          \
#field, BERTH_CONFIG_##type, offsetof(struct settings, field), value, doc              \
    }

static const struct berth_config_key keys[] = {
    KEY(keyed, BOOL, "false", "one sandbox per key, fenced"),
    KEY(seed, INT, "1", "what becomes of each call follows from it"),
    KEY(trouble, INT, "0", "of a thousand calls, how many go wrong"),
    KEY(lie, INT, "0", "1: creates land after the horizon; 2: nothing is deleted"),
    KEY(horizon, MS, "2s", "how long after not_after a create may land"),
    KEY(create, MS, "0ms", "how long a create takes"),
    KEY(log, STR, "/dev/null", "what it did"),
    KEY(calm, STR, "/nonexistent", "once this file is there nothing goes wrong any more"),
    KEY(state_dir, STR, "", "not looked at"),
    KEY(key_file, STR, "", "not looked at"),
};
#undef KEY

static enum berth_code start(const void *config, const struct berth_runtime *runtime,
                             void **ret_service, struct berth_error *err)
{
    const struct settings *c = config;
    const struct cloud_options options = {
        .seed = (uint64_t)c->seed,
        .keyed = c->keyed,
        .trouble = (unsigned)c->trouble,
        .horizon_ms = c->horizon,
        .create_ms = c->create,
        .lie = (enum cloud_lie)c->lie,
        .log_path = c->log,
        .calm_path = c->calm,
    };
    struct adapter_service *service = calloc(1, sizeof *service);
    enum berth_code code;

    if (!service)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    service->ops = &cloud_ops;
    service->runtime = runtime;
    code = cloud_new(&options, &service->adapter, err);
    if (code) {
        free(service);
        return code;
    }
    *ret_service = service;
    return BERTH_OK;
}

static enum berth_code ready(void *service, struct berth_error *err)
{
    const struct adapter_service *s = service;

    return s->ops->ready(s->adapter, err);
}

static void stop(void *service)
{
    struct adapter_service *s = service;

    cloud_free(s->adapter);
    free(s);
}

enum { METHODS_MAX = 64 };

int main(int argc, char **argv)
{
    static const char *const services[] = {"berth.backend.v1.BackendService",
                                           "berth.backend.v1.TemplateService"};
    static struct berth_method methods[METHODS_MAX];
    struct berth_service service = {
        .name = "adapter-local",
        .doc = "A backend that gets things wrong, for tests.",
        .port = 7410,
        .internal = true,
        .keys = keys,
        .n_keys = BERTH_COUNT(keys),
        .config_size = sizeof(struct settings),
        .methods = methods,
        .services = services,
        .n_services = BERTH_COUNT(services),
        .start = start,
        .ready = ready,
        .stop = stop,
    };

    for (size_t i = 0; i < n_adapter_backend_methods && service.n_methods < METHODS_MAX; i++)
        methods[service.n_methods++] = adapter_backend_methods[i];
    for (size_t i = 0; i < n_adapter_catalog_methods && service.n_methods < METHODS_MAX; i++)
        methods[service.n_methods++] = adapter_catalog_methods[i];
    return berth_service_main(&service, argc, argv);
}

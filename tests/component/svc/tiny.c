/* tiny - the smallest service, for the tests of common/svc. Internal when its name says so. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "common/svc/svc.h"

#include "berth/reaper/v1/reaper.pb-c.h"

struct tiny_config {
    char *ready_file, *hold_file, *secret;
    bool broken;
};

#define KEY(field, type, value, doc)                                                           \
    {                                                                                          \
#field, BERTH_CONFIG_##type, offsetof(struct tiny_config, field), value, doc           \
    }

static const struct berth_config_key keys[] = {
    KEY(ready_file, STR, "", "ready while this file is there; empty: always"),
    KEY(hold_file, STR, "", "GetSweep takes as long as this file is there"),
    KEY(secret, SECRET, "", "told to nobody"),
    KEY(broken, BOOL, "false", "fail to start"),
};
#undef KEY

static enum berth_code start(const void *config, const struct berth_runtime *runtime,
                             void **ret_service, struct berth_error *err)
{
    const struct tiny_config *c = config;

    if (c->broken)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "told to be broken");
    if (!runtime->loop || !runtime->server || !runtime->pool || !*runtime->deployment)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "an incomplete runtime");
    *ret_service = (void *)c;
    return BERTH_OK;
}

static enum berth_code ready(void *service, struct berth_error *err)
{
    const struct tiny_config *c = service;

    if (*c->ready_file && access(c->ready_file, F_OK) != 0)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "no ready file");
    return BERTH_OK;
}

static char *metrics(void *service)
{
    (void)service;
    return strdup("# TYPE tiny_own gauge\ntiny_own 42\n");
}

static void stop(void *service)
{
    (void)service;
    fprintf(stderr, "tiny stopped\n");
}

static enum berth_code get_sweep(void *service, struct berth_call *call,
                                 const ProtobufCMessage *req, ProtobufCMessage **ret_resp,
                                 struct berth_error *err)
{
    const struct tiny_config *c = service;
    Berth__Reaper__V1__GetSweepResponse *resp = calloc(1, sizeof *resp);

    (void)req;
    if (!resp)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth__reaper__v1__get_sweep_response__init(resp);
    while (*c->hold_file && access(c->hold_file, F_OK) == 0 && !berth_call_cancelled(call))
        poll(NULL, 0, 5);
    *ret_resp = &resp->base;
    return BERTH_OK;
}

static const struct berth_method methods[] = {
    {.path = "/berth.reaper.v1.ReaperService/GetSweep",
     .request = &berth__reaper__v1__get_sweep_request__descriptor,
     .unary = get_sweep},
};
static const char *const services[] = {"berth.reaper.v1.ReaperService"};

int main(int argc, char **argv)
{
    bool internal = strstr(argv[0], "internal") != NULL;
    const struct berth_service service = {
        .name = internal ? "internal" : "tiny",
        .doc = "a service for tests",
        .port = 47400,
        .internal = internal,
        .open = !internal,
        .keys = keys,
        .n_keys = BERTH_COUNT(keys),
        .config_size = sizeof(struct tiny_config),
        .methods = methods,
        .n_methods = BERTH_COUNT(methods),
        .services = services,
        .n_services = BERTH_COUNT(services),
        .start = start,
        .ready = ready,
        .metrics = metrics,
        .stop = stop,
    };

    return berth_service_main(&service, argc, argv);
}

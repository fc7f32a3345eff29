/* route.c - judge what a resolve answered. Pure. */
#include "services/dataplane/dataplane.h"

#include "common/fields/fields.h"
#include "common/messages/messages.h"

static enum berth_code decode_policy(const Berth__Control__V1__ResolveRouteResponse *resp,
                                     struct dp_policy *ret, struct berth_error *err)
{
    struct dp_policy policy = {.root = resp->maintenance || resp->root_commands};
    enum berth_code code = BERTH_OK;

    if (resp->command_timeout)
        code = berth_check_duration("command_timeout", resp->command_timeout->seconds,
                                    resp->command_timeout->nanos, BERTH_DATA_TIMEOUT_MAX_MS,
                                    &policy.timeout_ms, err);
    if (code == BERTH_OK && resp->command_timeout_max)
        code = berth_check_duration("command_timeout_max", resp->command_timeout_max->seconds,
                                    resp->command_timeout_max->nanos, BERTH_DATA_TIMEOUT_MAX_MS,
                                    &policy.timeout_max_ms, err);
    if (resp->maintenance) /* an installation has limits of its own */
        policy.timeout_max_ms = 0;
    if (code == BERTH_OK)
        *ret = policy;
    return code;
}

enum berth_code dp_route_decode(const struct dataplane *dp,
                                const Berth__Control__V1__ResolveRouteResponse *resp,
                                struct dp_route *ret, struct berth_error *err)
{
    const Berth__Common__V1__DataPlaneEndpoint *endpoint = resp->endpoint;
    struct dp_route route = {0};
    struct berth_error why = {0};

    if (!endpoint || endpoint->sandbox_id[0] == 0 || !endpoint->target)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                          "resolve answered without an endpoint");
    if (endpoint->kind != BERTH__COMMON__V1__DATA_PLANE_KIND__DATA_PLANE_KIND_ADAPTER)
        return berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                          "data plane kind %d is not served here", (int)endpoint->kind);
    for (size_t i = 0; i < dp->n_backends; i++) {
        if (strcmp(dp->backends[i].name, endpoint->target->backend) == 0)
            route.adapter = dp->backends[i].adapter;
    }
    if (!route.adapter)
        return berth_fail(err, BERTH_REASON_ADAPTER_UNAVAILABLE,
                          "no adapter for backend '%.24s'", endpoint->target->backend);
    if (decode_policy(resp, &route.policy, &why))
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "resolve answered: %s", why.text);

    route.packed_size = berth__common__v1__data_plane_endpoint__get_packed_size(endpoint);
    if (route.packed_size > DP_ROUTE_MAX)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "the endpoint is over %d bytes",
                          DP_ROUTE_MAX);
    route.packed = malloc(route.packed_size);
    route.sandbox_id = strdup(endpoint->sandbox_id);
    if (resp->loss)
        route.loss = berth_message_copy(resp->loss);
    if (!route.packed || !route.sandbox_id || (resp->loss && !route.loss)) {
        dp_route_deinit(&route);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    berth__common__v1__data_plane_endpoint__pack(endpoint, route.packed);
    *ret = route;
    return BERTH_OK;
}

void dp_route_deinit(struct dp_route *route)
{
    free(route->packed);
    free(route->sandbox_id);
    berth_message_free(route->loss);
    *route = (struct dp_route){0};
}

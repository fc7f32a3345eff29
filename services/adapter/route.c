/* route.c - which sandbox a data call is for. */
#include "services/adapter/data.h"

#include <stdio.h>

#include "berth/common/v1/common.pb-c.h"
#include "common/fields/fields.h"

#define ROUTE_KEY "berth-route-bin"

static enum berth_code check(const Berth__Common__V1__DataPlaneEndpoint *endpoint,
                             const char *backend, struct berth_error *err)
{
    enum berth_code code = berth_check_id(ROUTE_KEY ".sandbox_id", endpoint->sandbox_id, err);

    if (code)
        return code;
    if (endpoint->kind != BERTH__COMMON__V1__DATA_PLANE_KIND__DATA_PLANE_KIND_ADAPTER)
        return berth_fail_field(err, ROUTE_KEY ".kind", "ADAPTER");
    if (endpoint->target && endpoint->target->backend[0] != 0 &&
        strcmp(endpoint->target->backend, backend) != 0)
        return berth_fail_field(err, ROUTE_KEY ".target.backend", "%s", backend);
    return BERTH_OK;
}

enum berth_code adapter_route_read(const struct berth_call *call, const char *backend,
                                   struct adapter_route *ret, struct berth_error *err)
{
    size_t size = 0;
    const void *packed = berth_call_metadata(call, ROUTE_KEY, &size);
    ProtobufCMessage *message = NULL;
    Berth__Common__V1__DataPlaneEndpoint *endpoint;
    enum berth_code code;

    if (!packed)
        return berth_fail_field(err, ROUTE_KEY, "must be there");
    code = berth_decode(&berth__common__v1__data_plane_endpoint__descriptor, packed, size,
                        &message, err);
    if (code)
        return berth_wrap(err, code, ROUTE_KEY);
    endpoint = (Berth__Common__V1__DataPlaneEndpoint *)message;
    code = check(endpoint, backend, err);
    if (code == BERTH_OK) {
        snprintf(ret->sandbox_id, sizeof ret->sandbox_id, "%s", endpoint->sandbox_id);
        ret->fence = endpoint->fence;
    }
    protobuf_c_message_free_unpacked(message, NULL);
    return code;
}

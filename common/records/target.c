#include "common/records/target.h"

enum { LENGTH_SIZE = 8 };

enum berth_code berth_associated(const char *const *parts, size_t n_parts, uint8_t **ret,
                                 size_t *ret_size, struct berth_error *err)
{
    size_t size = 0, at = 0;
    uint8_t *data;

    for (size_t i = 0; i < n_parts; i++)
        size += LENGTH_SIZE + strlen(parts[i]);
    data = malloc(size + 1);
    if (!data)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (size_t i = 0; i < n_parts; i++) {
        uint64_t len = strlen(parts[i]);

        for (int byte = LENGTH_SIZE - 1; byte >= 0; byte--)
            data[at++] = (uint8_t)(len >> (8 * byte));
        memcpy(data + at, parts[i], len);
        at += len;
    }
    *ret = data;
    *ret_size = size;
    return BERTH_OK;
}

enum berth_code berth_target_associated(const Berth__Common__V1__BackendTarget *target,
                                        uint8_t **ret, size_t *ret_size,
                                        struct berth_error *err)
{
    const char *const parts[] = {target->tenant_id,
                                 target->config_id,
                                 target->backend,
                                 target->api_url,
                                 target->domain,
                                 target->proxy_url,
                                 target->allow_private ? "1" : "0"};

    return berth_associated(parts, BERTH_COUNT(parts), ret, ret_size, err);
}

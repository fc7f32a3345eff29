/* sweep.c - bundles that no image and no queued operation names, and old logs, go. What could
 * not be looked up whole is left alone. */
#include <stdio.h>

#include "common/fields/fields.h"
#include "common/log/log.h"
#include "common/records/deployment.h"
#include "common/time/time.h"
#include "services/skills/blobs.h"
#include "services/skills/image.h"
#include "services/skills/janitor.h"

#define BUNDLE_KEPT_MS ((int64_t)24 * 60 * 60 * 1000)

/* Bundles that are named, as keys. */
static bool note(json_t *named, const char *digest)
{
    return !digest || !*digest || json_object_set_new(named, digest, json_true()) == 0;
}

static enum berth_code note_list(json_t *named, const struct ledger *ledger, const char *row_id,
                                 struct berth_error *err)
{
    json_t *list = NULL;
    bool good = true;
    enum berth_code code = image_list(ledger, row_id, &list, err);

    for (size_t i = 0; !code && good && i < json_array_size(list); i++)
        good =
            note(named, json_string_value(json_object_get(json_array_get(list, i), "bundle")));
    json_decref(list);
    return code || good ? code : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static enum berth_code note_queue(struct skills *skills, json_t *named,
                                  const struct ledger *ledger, struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *queue = json_loads(ledger->queue, 0, NULL);
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < json_array_size(queue); i++) {
        const char *id = json_string_value(json_array_get(queue, i));
        struct operation operation = {0};

        code = operation_read(skills, ledger->tenant_id, id ? id : "", &operation, err);
        if (code == BERTH_NOT_FOUND) /* it has ended since */
            code = BERTH_OK;
        else if (!code && !note(named, operation.bundle))
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        operation_deinit(&operation);
    }
    return code;
}

static enum berth_code note_config(struct skills *skills, json_t *named, const char *tenant,
                                   const char *config_id, struct berth_error *err)
{
    struct ledger ledger = {0};
    enum berth_code code = ledger_read(skills->redis, tenant, config_id, &ledger, err);

    for (size_t i = 0; !code && i < ledger.n_lists; i++)
        code = note_list(named, &ledger, ledger.lists[i].row_id, err);
    if (!code)
        code = note_queue(skills, named, &ledger, err);
    ledger_deinit(&ledger);
    return code;
}

static bool is_named(void *arg, const char *digest)
{
    return json_object_get(arg, digest) != NULL;
}

static void sweep_tenant(void *arg, const char *tenant)
{
    struct skills *skills = arg;
    BERTH_AUTO(json_decref) json_t *named = json_object();
    BERTH_AUTO(berth_reply_free) struct berth_reply *configs = NULL;
    int64_t now_ms = berth_now_ms();
    struct berth_error err = {0};
    enum berth_code code = berth_check_id("tenant_id", tenant, &err);
    unsigned n;

    if (!code && !named)
        code = berth_fail(&err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (!code) /* else the list of configs may not be whole */
        code = berth_epoch_check(skills->redis, &err);
    if (!code)
        code = ledger_configs(skills->redis, tenant, &configs, &err);
    for (size_t i = 0; !code && i < configs->n_items; i++)
        code = note_config(skills, named, tenant, configs->items[i]->string, &err);
    if (code) {
        berth_debug("bundles were not swept, trying again later", "tenant", tenant, "error",
                    err.text);
        return;
    }
    n = skills_blobs_sweep(skills->blobs, tenant, now_ms - BUNDLE_KEPT_MS,
                           now_ms - OPERATION_KEPT_MS, is_named, named);
    if (n > 0)
        berth_info("bundles and logs that nobody needs are gone", "tenant", tenant);
}

void skills_sweep(struct skills *skills)
{
    if (skills->blobs && !skills_enter(skills, NULL))
        skills_blobs_tenants(skills->blobs, sweep_tenant, skills);
}

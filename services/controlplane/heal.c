#include "services/controlplane/heal.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/log/log.h"
#include "common/records/event.h"
#include "common/records/keys.h"
#include "services/controlplane/changes.h"
#include "services/controlplane/config_store.h"

enum { TRIES = 4 };

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static enum berth_code add_event(struct berth_cas *cas, const struct cp_config *config,
                                 const struct berth_image_pointer *image,
                                 const char *snapshot_id, struct berth_error *err)
{
    BERTH_AUTO(json_decref)
    json_t *attributes = json_pack("{s:s,s:o}", "snapshot_id", snapshot_id, "generation",
                                   json_sprintf("%" PRIu64, image->generation));
    const struct berth_event event = {.kind = "IMAGE_MISSING",
                                      .config_id = config->config_id,
                                      .attributes = attributes,
                                      .observed = true};

    return attributes ? berth_event_write(cas, config->tenant_id, &event, err) : no_memory(err);
}

/* What is wanted in it (row_id) stays, so that it can be built again. */
static enum berth_code let_go(struct cp *cp, const struct cp_config_read *read,
                              bool *ret_applied, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    const struct cp_config *config = read->config;
    struct berth_image_pointer image = config->doc.image;
    BERTH_AUTO(free) char *json = NULL;
    char key[BERTH_KEY_MAX], rev[17], next[24];
    const char *const keys[] = {berth_key_config(key, config->tenant_id, config->config_id)};
    enum berth_code code;

    image.snapshot_id[0] = 0;
    image.generation = config->doc.next_generation;
    json = berth_image_pointer_format(&image);
    if (!cas || !json)
        return no_memory(err);
    snprintf(next, sizeof next, "%" PRIu64, image.generation + 1);
    berth_cas_expect(cas, key, read->rev);
    berth_cas_write(cas, "HSET", key, "rev", berth_rev_new(rev), "image", json,
                    "next_generation", next, NULL);
    berth_cas_when_full(cas);
    code = add_event(cas, config, &image, config->doc.image.snapshot_id, err);
    if (!code)
        code = berth_records_run(cp->records, cas, keys, 1, ret_applied, err);
    cp_changed(cp, BERTH_CHANGE_CONFIG, config->tenant_id, config->config_id);
    return code;
}

/* The pointer is the one that failed, in the account that was asked. */
static bool is_still_it(const struct cp_config *now, const struct cp_config *asked,
                        const char *snapshot_id)
{
    return strcmp(now->doc.image.snapshot_id, snapshot_id) == 0 &&
           strcmp(now->doc.account, asked->doc.account) == 0 && berth_image_usable(&now->doc);
}

enum berth_code cp_heal_image(struct cp *cp, const struct cp_config *asked,
                              const char *snapshot_id, struct berth_error *err)
{
    for (int i = 0; i < TRIES; i++) {
        struct cp_config_read read;
        bool applied = false;
        enum berth_code code =
            cp_config_read(cp, asked->tenant_id, asked->config_id, &read, err);

        if (code)
            return code;
        if (!read.config)
            code = berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, NULL);
        else if (!is_still_it(read.config, asked, snapshot_id))
            applied = true; /* somebody was faster */
        else if (!(code = let_go(cp, &read, &applied, err)) && applied)
            berth_warn("the image of a config is gone at its backend: its sessions boot the "
                       "base template until it is built again",
                       "tenant", asked->tenant_id, "config", asked->config_id, "snapshot",
                       snapshot_id);
        cp_config_read_deinit(&read);
        if (code || applied)
            return code;
    }
    return berth_fail(err, BERTH_REASON_CONFLICT, NULL);
}

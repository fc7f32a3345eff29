#include "services/skills/catalog.h"

#include <stdio.h>

#include "berth/control/v1/control.pb-c.h"
#include "common/messages/messages.h"
#include "services/skills/image.h"
#include "services/skills/operation_impl.h"

typedef Berth__Common__V1__Image Image;
typedef Berth__Control__V1__GetSessionRequest GetSessionRequest;
typedef Berth__Control__V1__GetSessionResponse GetSessionResponse;
typedef Berth__Skills__V1__Skill Skill;

#define SKILL(name) BERTH__SKILLS__V1__SKILL_STATE__SKILL_STATE_##name

void catalog_image_deinit(struct catalog_image *image)
{
    json_decref(image->list);
    image->list = NULL;
}

/* --------------------------------------------------------------- which image it is */

static enum berth_code read_ledger(struct skills *skills, const char *tenant,
                                   const char *config_id, struct ledger *ret,
                                   struct berth_error *err)
{
    enum berth_code code = ledger_read(skills->redis, tenant, config_id, ret, err);

    if (code)
        return code;
    code = ledger_check_tenant(skills->redis, tenant, &ret->tenant, err);
    if (!code && !ret->config.exists)
        code = berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'", config_id);
    if (code)
        ledger_deinit(ret);
    return code;
}

static enum berth_code take_row(const struct ledger *ledger,
                                const struct berth_snapshot_row *row, uint64_t generation,
                                struct catalog_image *ret, struct berth_error *err)
{
    if (!row)
        return berth_fail(err, BERTH_REASON_SNAPSHOT_NOT_FOUND,
                          "generation %llu of config '%s' is not in the ledger any more",
                          (unsigned long long)generation, ledger->config_id);
    snprintf(ret->config_id, sizeof ret->config_id, "%s", ledger->config_id);
    ret->generation = row->generation;
    return image_list(ledger, row->row_id, &ret->list, err);
}

static enum berth_code take_nothing(const char *config_id, struct catalog_image *ret,
                                    struct berth_error *err)
{
    snprintf(ret->config_id, sizeof ret->config_id, "%s", config_id);
    ret->list = json_array();
    return ret->list ? BERTH_OK : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* A generation of a config; 0: a template. */
static enum berth_code take_generation(struct skills *skills, const char *tenant,
                                       const char *config_id, uint64_t generation,
                                       struct catalog_image *ret, struct berth_error *err)
{
    struct ledger ledger = {0};
    enum berth_code code;

    if (generation == 0)
        return take_nothing(config_id, ret, err);
    code = read_ledger(skills, tenant, config_id, &ledger, err);
    if (code)
        return code;
    code = take_row(&ledger, ledger_find_generation(&ledger, generation), generation, ret, err);
    ledger_deinit(&ledger);
    return code;
}

/* A snapshot that was asked for by its id: a skill image, or a user's, which holds what the
 * image held that its sandbox had booted. */
static enum berth_code take_snapshot(struct skills *skills, const char *tenant,
                                     const char *snapshot_id, struct catalog_image *ret,
                                     struct berth_error *err)
{
    char config_id[129], row_id[33];
    const struct berth_snapshot_row *row;
    struct ledger ledger = {0};
    enum berth_code code =
        ledger_locate(skills->redis, tenant, snapshot_id, config_id, row_id, err);

    if (!code)
        code = read_ledger(skills, tenant, config_id, &ledger, err);
    if (code)
        return code;
    row = ledger_find(&ledger, row_id);
    if (row && strcmp(row->origin, "user") == 0 && row->base_generation == 0)
        code = take_nothing(config_id, ret, err);
    else if (row && strcmp(row->origin, "user") == 0)
        code = take_row(&ledger, ledger_find_generation(&ledger, row->base_generation),
                        row->base_generation, ret, err);
    else
        code = take_row(&ledger, row, 0, ret, err);
    ledger_deinit(&ledger);
    return code;
}

static enum berth_code take_image(struct skills *skills, const char *tenant,
                                  const char *config_id, const Image *image,
                                  struct catalog_image *ret, struct berth_error *err)
{
    if (image->generation > 0)
        return take_generation(skills, tenant, config_id, image->generation, ret, err);
    if (image->source_case == BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID)
        return take_snapshot(skills, tenant, image->snapshot_id, ret, err);
    return take_nothing(config_id, ret, err);
}

enum berth_code catalog_of_config(struct skills *skills, const char *tenant,
                                  const char *config_id, struct catalog_image *ret,
                                  struct berth_error *err)
{
    struct catalog_image out = {0};
    struct ledger ledger = {0};
    enum berth_code code = read_ledger(skills, tenant, config_id, &ledger, err);

    if (code)
        return code;
    snprintf(out.config_id, sizeof out.config_id, "%s", config_id);
    out.generation = ledger.config.image.generation;
    code = image_wanted(&ledger, &out.list, err);
    ledger_deinit(&ledger);
    if (!code)
        *ret = out;
    return code;
}

/* What a session without a sandbox would boot: what its spec says, else the live image as far
 * as that can be booted. */
static enum berth_code take_next(struct skills *skills, const char *tenant,
                                 const char *config_id, const Image *wanted,
                                 struct catalog_image *ret, struct berth_error *err)
{
    struct ledger ledger = {0};
    bool usable;
    uint64_t generation;
    enum berth_code code;

    ret->not_bound = true;
    if (wanted && wanted->source_case != BERTH__COMMON__V1__IMAGE__SOURCE__NOT_SET)
        return take_image(skills, tenant, config_id, wanted, ret, err);
    code = read_ledger(skills, tenant, config_id, &ledger, err);
    if (code)
        return code;
    usable = berth_image_usable(&ledger.config);
    generation = ledger.config.image.generation;
    ledger_deinit(&ledger);
    return take_generation(skills, tenant, config_id, usable ? generation : 0, ret, err);
}

enum berth_code catalog_of_session(struct skills *skills, const struct berth_call *call,
                                   const char *tenant, const char *session_id,
                                   const char *only_config, struct catalog_image *ret,
                                   struct berth_error *err)
{
    GetSessionRequest req = BERTH__CONTROL__V1__GET_SESSION_REQUEST__INIT;
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    GetSessionResponse *resp = NULL;
    struct catalog_image out = {0};
    const Berth__Control__V1__Session *session;
    enum berth_code code;

    ref.tenant_id = (char *)tenant;
    ref.session_id = (char *)session_id;
    req.key_case = BERTH__CONTROL__V1__GET_SESSION_REQUEST__KEY_SESSION;
    req.session = &ref;
    code = skills_control_call(skills, call, "/berth.control.v1.SessionService/GetSession",
                               &req.base, &berth__control__v1__get_session_response__descriptor,
                               &resp, err);
    if (code)
        return code;
    session = resp->session;
    if (!session || !session->spec ||
        session->state == BERTH__COMMON__V1__SESSION_STATE__SESSION_STATE_DELETED ||
        (*only_config && strcmp(session->spec->config_id, only_config) != 0))
        code = berth_fail(err, BERTH_REASON_SESSION_NOT_FOUND, NULL);
    else if (session->sandbox && session->sandbox->image)
        code = take_image(skills, tenant, session->spec->config_id, session->sandbox->image,
                          &out, err);
    else
        code = take_next(skills, tenant, session->spec->config_id, session->spec->image, &out,
                         err);
    berth_message_free(resp);
    if (code)
        catalog_image_deinit(&out);
    else
        *ret = out;
    return code;
}

/* ------------------------------------------------------------------ what is in it */

static int compare(const void *a, const void *b)
{
    const struct catalog_skill *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static struct catalog_skill *find(struct catalog_skill *all, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}

/* Does the operation tell something of a skill that the image alone does not? */
static bool tells(const struct operation *operation)
{
    return *operation->skill_name &&
           (!operation_has_ended(operation) || operation->state == STATE(FAILED));
}

struct catalog_skill *catalog_merge(const json_t *list, const struct operation *operations,
                                    size_t n_operations, size_t *ret_n)
{
    struct catalog_skill *all = calloc(json_array_size(list) + n_operations + 1, sizeof *all);
    size_t n = 0;

    for (size_t i = 0; all && i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(entry, "name"));

        if (name)
            all[n++] = (struct catalog_skill){.name = name, .entry = entry};
    }
    /* Those that run and wait come first, and what failed before is no news then. */
    for (size_t i = 0; all && i < n_operations; i++) {
        const struct operation *operation = &operations[i];
        struct catalog_skill *skill;

        if (!tells(operation))
            continue;
        skill = find(all, n, operation->skill_name);
        if (!skill) {
            skill = &all[n++];
            skill->name = operation->skill_name;
        }
        if (!skill->operation || !operation_has_ended(operation))
            skill->operation = operation;
    }
    if (all)
        qsort(all, n, sizeof *all, compare);
    *ret_n = n;
    return all;
}

/* ------------------------------------------------------------------------- show */

static Berth__Skills__V1__SkillState state_of(const struct catalog_skill *skill)
{
    const struct operation *operation = skill->operation;

    if (!operation)
        return SKILL(READY);
    if (operation_has_ended(operation)) /* the image is as it was */
        return skill->entry ? SKILL(READY) : SKILL(FAILED);
    if (operation->kind == KIND(UNINSTALL))
        return SKILL(REMOVING);
    return skill->entry ? SKILL(READY) : SKILL(INSTALLING);
}

static bool show_bundle(const char *hex, Skill *out)
{
    uint8_t digest[32];

    if (strlen(hex) != 2 * sizeof digest)
        return true;
    for (size_t i = 0; i < sizeof digest; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], 0};

        digest[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return berth_set_bytes(&out->bundle_sha256, digest, sizeof digest);
}

/* One that is not in the image. */
static Skill *show_absent(const char *tenant, const char *config_id,
                          const struct operation *operation)
{
    Skill *out = berth_message_new(&berth__skills__v1__skill__descriptor);

    if (out && berth_set_string(&out->tenant_id, tenant) &&
        berth_set_string(&out->config_id, config_id) &&
        berth_set_string(&out->name, operation->skill_name) &&
        show_bundle(operation->bundle, out) &&
        (out->update_time =
             berth_timestamp(operation->end_ms ? operation->end_ms : operation->create_ms)))
        return out;
    return berth_message_free(out);
}

Skill *catalog_show(const char *tenant, const char *config_id,
                    const struct catalog_skill *skill)
{
    const struct operation *operation = skill->operation;
    Skill *out = skill->entry ? image_show(tenant, config_id, skill->entry)
                              : show_absent(tenant, config_id, operation);
    bool good = out != NULL;

    if (good)
        out->state = state_of(skill);
    if (good && operation)
        good = berth_set_string(&out->operation_id, operation->operation_id);
    if (good && operation && operation->state == STATE(FAILED))
        good = berth_set_string(&out->error,
                                operation->message[0] ? operation->message : operation->reason);
    return good ? out : berth_message_free(out);
}

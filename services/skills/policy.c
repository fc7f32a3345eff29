#include "services/skills/policy.h"

#include "berth/control/v1/config.pb-c.h"
#include "common/json/json.h"
#include "common/messages/messages.h"
#include "common/records/keys.h"
#include "common/records/message_json.h"

typedef Berth__Control__V1__SandboxConfig SandboxConfig;
typedef Berth__Control__V1__SkillPolicy SkillPolicy;

enum { SETTINGS_MAX = 4 << 20 };

void skills_policy_deinit(struct skills_policy *policy)
{
    berth_message_free(policy->settings);
    *policy = (struct skills_policy){0};
}

static const char *said(const char *text)
{
    return text && *text ? text : NULL;
}

/* settings is taken. */
static void take(struct skills_policy *policy, ProtobufCMessage *settings)
{
    const SkillPolicy *from = ((SandboxConfig *)settings)->skills;

    *policy = (struct skills_policy){.settings = settings};
    if (from)
        policy->plan = (struct plan_policy){
            .python_index_url = said(from->python_index_url),
            .npm_registry = said(from->npm_registry),
            .proxy = said(from->proxy_url),
            .no_proxy = said(from->no_proxy),
            .wheel_dir = said(from->wheel_dir),
            .npm_cache_dir = said(from->npm_cache_dir),
            .deny_apt = from->deny_apt,
        };
}

static enum berth_code parse(const struct berth_doc *doc, struct skills_policy *ret,
                             struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *root = NULL;
    ProtobufCMessage *settings = NULL;
    const char *text = berth_doc_get(doc, "settings");
    enum berth_code code = berth_json_parse(text, strlen(text), SETTINGS_MAX, &root, err);

    if (!code)
        code = berth_message_from_json(root, &berth__control__v1__sandbox_config__descriptor,
                                       &settings, err);
    if (code)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "%s: settings", doc->key);
    take(ret, settings);
    return BERTH_OK;
}

enum berth_code skills_policy_read(struct skills *skills, const char *tenant,
                                   const char *config_id, struct skills_policy *ret,
                                   struct berth_error *err)
{
    static const char *const fields[] = {"rev", "settings"};
    char key[BERTH_KEY_MAX];
    const struct berth_redis_get get = {.key = berth_key_config(key, tenant, config_id),
                                        .fields = fields,
                                        .n_fields = BERTH_COUNT(fields)};
    struct berth_doc doc;
    int64_t now_ms;
    enum berth_code code = berth_redis_read(skills->redis, &get, 1, &now_ms, &doc, err);

    if (code)
        return code;
    if (!doc.exists)
        code = berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'", config_id);
    else if (berth_doc_has(&doc, "settings"))
        code = parse(&doc, ret, err);
    else
        *ret = (struct skills_policy){0};
    berth_doc_deinit(&doc);
    return code;
}

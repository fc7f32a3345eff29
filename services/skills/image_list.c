/* image_list.c - lists of skills as they stand in the ledger. */
#include <stdio.h>

#include "common/ids/ids.h"
#include "common/json/json.h"
#include "common/messages/messages.h"
#include "services/skills/bundle/text.h"
#include "services/skills/image.h"

#define TYPE(name) (&berth__skills__v1__##name##__descriptor)

typedef Berth__Skills__V1__Finding Finding;
typedef Berth__Skills__V1__Skill Skill;

/* --------------------------------------------------------------------------- lists */

enum berth_code image_list(const struct ledger *ledger, const char *row_id, json_t **ret,
                           struct berth_error *err)
{
    const char *text = "[]";
    json_t *list;

    for (size_t i = 0; *row_id && i < ledger->n_lists; i++)
        if (strcmp(ledger->lists[i].row_id, row_id) == 0)
            text = ledger->lists[i].text;
    list = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_array(list)) {
        json_decref(list);
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                          "stored document: skills:%s is not a list", row_id);
    }
    *ret = list;
    return BERTH_OK;
}

enum berth_code image_wanted(const struct ledger *ledger, json_t **ret, struct berth_error *err)
{
    return image_list(ledger, ledger->config.image.row_id, ret, err);
}

static const char *name_of(const json_t *skill)
{
    const char *name = json_string_value(json_object_get(skill, "name"));

    return name ? name : "";
}

json_t *image_find(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(name_of(json_array_get(list, i)), name) == 0)
            return json_array_get(list, i);
    return NULL;
}

bool image_remove(json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(name_of(json_array_get(list, i)), name) == 0)
            return json_array_remove(list, i) == 0;
    return false;
}

bool image_put(json_t *list, json_t *skill)
{
    size_t i = 0;

    if (!skill)
        return false;
    (void)image_remove(list, name_of(skill));
    while (i < json_array_size(list) &&
           strcmp(name_of(json_array_get(list, i)), name_of(skill)) < 0)
        i++;
    return json_array_insert_new(list, i, skill) == 0;
}

enum berth_code image_format(const json_t *list, char **ret, struct berth_error *err)
{
    char *text;

    if (json_array_size(list) > LEDGER_SKILLS_MAX)
        return berth_fail(err, BERTH_REASON_QUOTA_EXCEEDED,
                          "an image holds at most %d skills, this would be %zu",
                          LEDGER_SKILLS_MAX, json_array_size(list));
    text = berth_json_format(list);
    if (!text)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (strlen(text) > LEDGER_LIST_BYTES_MAX) {
        free(text);
        return berth_fail(err, BERTH_REASON_QUOTA_EXCEEDED,
                          "the descriptions of an image's skills may be %d bytes together",
                          LEDGER_LIST_BYTES_MAX);
    }
    *ret = text;
    return BERTH_OK;
}

/* --------------------------------------------------------------------- one of them */

static bool set_new(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

/* Text of SKILL.md, harmless. */
static bool set_shown(json_t *object, const char *key, const char *text)
{
    BERTH_AUTO(free) char *shown = text_show(text, strlen(text), SIZE_MAX, true);

    return shown && set_new(object, key, json_string(shown));
}

static bool set_strings(json_t *object, const char *key, const struct skill_list *from)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < from->n; i++)
        if (json_array_append_new(array, json_string(from->items[i])) < 0) {
            json_decref(array);
            return false;
        }
    return set_new(object, key, array);
}

json_t *image_skill(const struct bundle_verdict *verdict, const json_t *warnings,
                    const char *operation_id, uint64_t generation, int64_t now_ms)
{
    const struct skill *skill = &verdict->skill;
    char path[sizeof PLAN_SKILLS_DIR + 1 + BUNDLE_NAME_MAX + 1], digest[65];
    json_t *out;

    snprintf(path, sizeof path, PLAN_SKILLS_DIR "/%s", skill->name);
    berth_hex(digest, verdict->digest, sizeof verdict->digest);
    out = json_pack("{s:s,s:s,s:s,s:I,s:s,s:I,s:b,s:b,s:b,s:I,s:I}", "name", skill->name,
                    "path", path, "bundle", digest, "generation", (json_int_t)generation,
                    "operation_id", operation_id, "update_ms", (json_int_t)now_ms,
                    "restricts_tools", skill->restricts_tools, "disable_model_invocation",
                    skill->disable_model_invocation, "hidden_from_users",
                    !skill->user_invocable, "n_files", (json_int_t)verdict->bundle.n_files,
                    "size_bytes", (json_int_t)verdict->bundle.total_bytes);
    if (out && set_shown(out, "version", skill->version ? skill->version : "") &&
        set_shown(out, "description", skill->description ? skill->description : "") &&
        set_strings(out, "allowed_tools", &skill->allowed_tools) &&
        set_strings(out, "env_names", &skill->env_names) &&
        set_new(out, "warnings", warnings ? json_deep_copy(warnings) : json_array()))
        return out;
    json_decref(out);
    return NULL;
}

json_t *image_findings(const struct findings *findings, bool only_warnings)
{
    static const int severities[FINDING_SEVERITIES] = {
        [FINDING_NOTE] = BERTH__SKILLS__V1__SEVERITY__SEVERITY_NOTE,
        [FINDING_WARNING] = BERTH__SKILLS__V1__SEVERITY__SEVERITY_WARNING,
        [FINDING_ERROR] = BERTH__SKILLS__V1__SEVERITY__SEVERITY_ERROR,
    };
    json_t *list = json_array();

    for (size_t i = 0; list && i < findings->n; i++) {
        const struct finding *finding = &findings->list[i];
        enum finding_severity severity = finding_severity(finding->code);

        if (only_warnings && severity != FINDING_WARNING)
            continue;
        if (json_array_append_new(
                list, json_pack("{s:s,s:i,s:s,s:i,s:s}", "code", finding_name(finding->code),
                                "severity", severities[severity], "file", finding->file, "line",
                                (int)finding->line, "message", finding->message)) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* ---------------------------------------------------------------------------- show */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static Finding *show_warning(const json_t *from)
{
    Finding *out = berth_message_new(TYPE(finding));

    if (!out)
        return NULL;
    out->severity = BERTH__SKILLS__V1__SEVERITY__SEVERITY_WARNING;
    out->line = (uint32_t)json_integer_value(json_object_get(from, "line"));
    if (berth_set_string(&out->code, text_of(from, "code")) &&
        berth_set_string(&out->file, text_of(from, "file")) &&
        berth_set_string(&out->message, text_of(from, "message")))
        return out;
    return berth_message_free(out);
}

static bool show_strings(const json_t *from, const char *key, size_t *n, char ***list)
{
    const json_t *array = json_object_get(from, key);

    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *text = json_string_value(json_array_get(array, i));

        if (text && !berth_add_string(n, list, text))
            return false;
    }
    return true;
}

static bool show_warnings(const json_t *from, Skill *out)
{
    const json_t *array = json_object_get(from, "warnings");

    for (size_t i = 0; i < json_array_size(array); i++)
        if (!berth_add_message(&out->n_warnings, &out->warnings,
                               show_warning(json_array_get(array, i))))
            return false;
    return true;
}

static bool show_digest(const json_t *from, Skill *out)
{
    const char *hex = text_of(from, "bundle");
    uint8_t digest[32];

    if (strlen(hex) != 2 * sizeof digest)
        return true;
    for (size_t i = 0; i < sizeof digest; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], 0};

        digest[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return berth_set_bytes(&out->bundle_sha256, digest, sizeof digest);
}

Skill *image_show(const char *tenant, const char *config_id, const json_t *skill)
{
    Skill *out = berth_message_new(TYPE(skill));

    if (!out)
        return NULL;
    out->state = BERTH__SKILLS__V1__SKILL_STATE__SKILL_STATE_READY;
    out->generation = (uint64_t)json_integer_value(json_object_get(skill, "generation"));
    out->restricts_tools = json_is_true(json_object_get(skill, "restricts_tools"));
    out->disable_model_invocation =
        json_is_true(json_object_get(skill, "disable_model_invocation"));
    out->hidden_from_users = json_is_true(json_object_get(skill, "hidden_from_users"));
    if (berth_set_string(&out->tenant_id, tenant) &&
        berth_set_string(&out->config_id, config_id) &&
        berth_set_string(&out->name, text_of(skill, "name")) &&
        berth_set_string(&out->version, text_of(skill, "version")) &&
        berth_set_string(&out->description, text_of(skill, "description")) &&
        berth_set_string(&out->path, text_of(skill, "path")) &&
        berth_set_string(&out->operation_id, text_of(skill, "operation_id")) &&
        (out->update_time =
             berth_timestamp(json_integer_value(json_object_get(skill, "update_ms")))) &&
        show_digest(skill, out) && show_warnings(skill, out) &&
        show_strings(skill, "allowed_tools", &out->n_allowed_tools, &out->allowed_tools) &&
        show_strings(skill, "env_names", &out->n_env_names, &out->env_names))
        return out;
    return berth_message_free(out);
}

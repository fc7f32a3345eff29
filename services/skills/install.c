/* install.c - InstallSkill: whether it may be, and what a judged bundle is answered: refused,
 * there already, or queued as an operation. */
#include <stdio.h>

#include "common/crypto/crypto.h"
#include "common/ids/ids.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/skills/blobs.h"
#include "services/skills/bundle/text.h"
#include "services/skills/chain.h"
#include "services/skills/operation_rpc.h"
#include "services/skills/upload.h"

#define INSTALLER_LIMIT_MS ((int64_t)60 * 60 * 1000) /* where none was said */
/* An installer's token outlives its time by this: it may have to wait for its turn. */
#define INSTALLER_WAIT_MS ((int64_t)60 * 60 * 1000)

#define TYPE(name) (&berth__skills__v1__##name##__descriptor)

typedef Berth__Skills__V1__Finding Finding;
typedef Berth__Skills__V1__InstallSkillOpen InstallSkillOpen;
typedef Berth__Skills__V1__InstallSkillResponse InstallSkillResponse;
typedef Berth__Skills__V1__PlannedCommand PlannedCommand;
typedef Berth__Skills__V1__Skill Skill;
typedef Berth__Skills__V1__SkillOperation SkillOperation;
typedef Berth__Skills__V1__SkillPlan SkillPlan;

static enum berth_code check_to_judge(struct skills *skills, const InstallSkillOpen *open,
                                      struct berth_error *err)
{
    struct ledger ledger = {0};
    enum berth_code code =
        ledger_read(skills->redis, open->tenant_id, open->config_id, &ledger, err);

    if (!code)
        code = ledger_check_tenant(skills->redis, open->tenant_id, &ledger.tenant, err);
    if (!code && !ledger.config.exists)
        code =
            berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'", open->config_id);
    ledger_deinit(&ledger);
    return code;
}

enum berth_code skills_install_check(struct skills *skills, const InstallSkillOpen *open,
                                     struct berth_error *err)
{
    struct ledger ledger = {0};
    enum berth_code code = skills_enter(skills, err);

    if (code || open->validate_only)
        return code ? code : check_to_judge(skills, open, err);
    if (!skills->blobs)
        return berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                          "blob_dir is not set: bundles are judged (validate_only), and not "
                          "installed");
    code = operation_check_config(skills, NULL, open->tenant_id, open->config_id, &ledger, err);
    ledger_deinit(&ledger);
    return code;
}

/* --------------------------------------------------------------------------- parts */

static Finding *show_finding(const struct finding *finding)
{
    static const Berth__Skills__V1__Severity severities[FINDING_SEVERITIES] = {
        [FINDING_NOTE] = BERTH__SKILLS__V1__SEVERITY__SEVERITY_NOTE,
        [FINDING_WARNING] = BERTH__SKILLS__V1__SEVERITY__SEVERITY_WARNING,
        [FINDING_ERROR] = BERTH__SKILLS__V1__SEVERITY__SEVERITY_ERROR,
    };
    Finding *out = berth_message_new(TYPE(finding));

    if (!out)
        return NULL;
    out->severity = severities[finding_severity(finding->code)];
    out->line = finding->line;
    if (berth_set_string(&out->code, finding_name(finding->code)) &&
        berth_set_string(&out->file, finding->file) &&
        berth_set_string(&out->message, finding->message))
        return out;
    return berth_message_free(out);
}

/* only_warnings: else all. False: no memory. */
static bool add_findings(const struct findings *findings, bool only_warnings, size_t *n,
                         Finding ***list)
{
    for (size_t i = 0; i < findings->n; i++) {
        const struct finding *finding = &findings->list[i];

        if (only_warnings && finding_severity(finding->code) != FINDING_WARNING)
            continue;
        if (!berth_add_message(n, list, show_finding(finding)))
            return false;
    }
    return true;
}

static bool add_strings(const struct skill_list *from, size_t *n, char ***list)
{
    for (size_t i = 0; i < from->n; i++)
        if (!berth_add_string(n, list, from->items[i]))
            return false;
    return true;
}

/* text of SKILL.md, harmless. */
static bool set_shown(char **slot, const char *text)
{
    BERTH_AUTO(free) char *shown = text_show(text, strlen(text), SIZE_MAX, true);

    return shown && berth_set_string(slot, shown);
}

static Skill *show_skill(const struct skills_bundle *bundle)
{
    const struct bundle_verdict *verdict = &bundle->verdict;
    const struct skill *skill = &verdict->skill;
    Skill *out = berth_message_new(TYPE(skill));
    char path[sizeof PLAN_SKILLS_DIR + 1 + BUNDLE_NAME_MAX + 1];

    if (!out)
        return NULL;
    snprintf(path, sizeof path, PLAN_SKILLS_DIR "/%s", skill->name);
    out->restricts_tools = skill->restricts_tools;
    out->disable_model_invocation = skill->disable_model_invocation;
    out->hidden_from_users = !skill->user_invocable;
    if (berth_set_string(&out->tenant_id, bundle->open->tenant_id) &&
        berth_set_string(&out->config_id, bundle->open->config_id) &&
        berth_set_string(&out->name, skill->name) && berth_set_string(&out->path, path) &&
        set_shown(&out->version, skill->version) &&
        set_shown(&out->description, skill->description ? skill->description : "") &&
        (!verdict->is_accepted ||
         berth_set_bytes(&out->bundle_sha256, verdict->digest, sizeof verdict->digest)) &&
        add_findings(&verdict->findings, true, &out->n_warnings, &out->warnings) &&
        add_strings(&skill->allowed_tools, &out->n_allowed_tools, &out->allowed_tools) &&
        add_strings(&skill->env_names, &out->n_env_names, &out->env_names))
        return out;
    return berth_message_free(out);
}

static PlannedCommand *show_command(const struct plan_command *command)
{
    PlannedCommand *out = berth_message_new(TYPE(planned_command));

    if (out && add_strings(&command->argv, &out->n_argv, &out->argv) &&
        berth_set_string(&out->directory, command->directory) &&
        berth_set_string(&out->manifest, command->manifest))
        return out;
    return berth_message_free(out);
}

static SkillPlan *show_plan(const struct bundle_verdict *verdict)
{
    SkillPlan *out = berth_message_new(TYPE(skill_plan));
    bool ok = out != NULL;

    for (size_t i = 0; ok && i < verdict->plan.n_commands; i++)
        ok = berth_add_message(&out->n_commands, &out->commands,
                               show_command(&verdict->plan.commands[i]));
    if (!ok || !add_strings(&verdict->skill.apt, &out->n_apt_packages, &out->apt_packages) ||
        !add_strings(&verdict->skill.self_test, &out->n_self_test, &out->self_test))
        return berth_message_free(out);
    out->n_files = (uint32_t)verdict->bundle.n_files;
    out->size_bytes = verdict->bundle.total_bytes;
    return out;
}

static Berth__Common__V1__ErrorInfo *show_refusal(void)
{
    Berth__Common__V1__ErrorInfo *out =
        berth_message_new(&berth__common__v1__error_info__descriptor);

    if (out && berth_set_string(&out->reason, berth_reason_name(BERTH_REASON_BUNDLE_INVALID)) &&
        berth_set_string(&out->domain, "berth"))
        return out;
    return berth_message_free(out);
}

/* Warnings are for who said that he would take them. */
static bool is_refused(const struct skills_bundle *bundle)
{
    const struct bundle_verdict *verdict = &bundle->verdict;

    return !verdict->is_accepted ||
           (!bundle->open->validate_only && !bundle->open->allow_warnings &&
            verdict->findings.counts[FINDING_WARNING] > 0);
}

/* One that is kept nowhere: it has no id. */
static SkillOperation *show_operation(const struct skills_bundle *bundle)
{
    const struct bundle_verdict *verdict = &bundle->verdict;
    SkillOperation *out = berth_message_new(TYPE(skill_operation));
    char message[100] = "nothing stands against it";

    if (!out)
        return NULL;
    if (!verdict->is_accepted)
        snprintf(message, sizeof message, "refused: %zu errors, %zu warnings",
                 verdict->findings.counts[FINDING_ERROR],
                 verdict->findings.counts[FINDING_WARNING]);
    else if (is_refused(bundle))
        snprintf(message, sizeof message, "refused: %zu warnings, and no allow_warnings",
                 verdict->findings.counts[FINDING_WARNING]);
    else if (!bundle->open->validate_only)
        snprintf(message, sizeof message, "the image holds this very bundle");
    else if (verdict->findings.counts[FINDING_WARNING] > 0)
        snprintf(message, sizeof message, "can be installed, with %zu warnings",
                 verdict->findings.counts[FINDING_WARNING]);
    out->unchanged = !is_refused(bundle) && !bundle->open->validate_only;
    out->kind = BERTH__SKILLS__V1__OPERATION_KIND__OPERATION_KIND_INSTALL;
    out->state = is_refused(bundle) ? BERTH__SKILLS__V1__OPERATION_STATE__OPERATION_STATE_FAILED
                                    : BERTH__SKILLS__V1__OPERATION_STATE__OPERATION_STATE_DONE;
    if (berth_set_string(&out->tenant_id, bundle->open->tenant_id) &&
        berth_set_string(&out->config_id, bundle->open->config_id) &&
        berth_set_string(&out->skill_name, verdict->skill.name) &&
        berth_set_string(&out->message, message) &&
        add_findings(&verdict->findings, false, &out->n_findings, &out->findings) &&
        (!is_refused(bundle) || (out->error = show_refusal())))
        return out;
    return berth_message_free(out);
}

/* ---------------------------------------------------------------------------- hand over */

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static json_t *environment(const InstallSkillOpen *open)
{
    json_t *env = json_object();

    for (size_t i = 0; env && i < open->n_env; i++)
        if (json_object_set_new(env, open->env[i]->key, json_string(open->env[i]->value)) < 0) {
            json_decref(env);
            return NULL;
        }
    return env;
}

static enum berth_code new_operation(const struct skills_bundle *bundle,
                                     struct operation *operation, struct berth_error *err)
{
    const InstallSkillOpen *open = bundle->open;

    *operation = (struct operation){
        .kind = BERTH__SKILLS__V1__OPERATION_KIND__OPERATION_KIND_INSTALL,
        .allow_warnings = open->allow_warnings,
        .external_installer = open->external_installer,
    };
    if (open->external_installer)
        operation->time_limit_ms = berth_duration_ms(open->time_limit, INSTALLER_LIMIT_MS);
    snprintf(operation->tenant_id, sizeof operation->tenant_id, "%s", open->tenant_id);
    snprintf(operation->config_id, sizeof operation->config_id, "%s", open->config_id);
    snprintf(operation->request_id, sizeof operation->request_id, "%s", open->request_id);
    snprintf(operation->created_by, sizeof operation->created_by, "%s", bundle->actor);
    snprintf(operation->skill_name, sizeof operation->skill_name, "%s",
             bundle->verdict.skill.name);
    berth_hex(operation->bundle, bundle->verdict.digest, sizeof bundle->verdict.digest);
    operation->findings = image_findings(&bundle->verdict.findings, false);
    return operation->findings ? BERTH_OK : no_memory(err);
}

/* The live image holds this very bundle, and nothing is under way that could change that. */
static enum berth_code look_for_it(struct skills *skills, const struct operation *operation,
                                   bool *ret_there, struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *wanted = NULL, *queue = NULL;
    struct ledger ledger = {0};
    const char *digest;
    enum berth_code code =
        ledger_read(skills->redis, operation->tenant_id, operation->config_id, &ledger, err);

    if (!code)
        code = image_wanted(&ledger, &wanted, err);
    if (!code) {
        queue = json_loads(ledger.queue, 0, NULL);
        digest = json_string_value(
            json_object_get(image_find(wanted, operation->skill_name), "bundle"));
        *ret_there = berth_image_usable(&ledger.config) && json_array_size(queue) == 0 &&
                     digest && strcmp(digest, operation->bundle) == 0;
    }
    ledger_deinit(&ledger);
    return code;
}

/* Kept first: what is queued can be carried out by anybody. */
static enum berth_code hand_over(struct skills *skills, const struct skills_bundle *bundle,
                                 struct operation *operation, const json_t *env,
                                 bool *ret_repeat, bool *ret_unchanged, struct berth_error *err)
{
    enum berth_code code = operation_repeat(skills, operation, env, ret_repeat, err);

    if (!code && !*ret_repeat)
        code = look_for_it(skills, operation, ret_unchanged, err);
    if (code || *ret_repeat || *ret_unchanged)
        return code;
    code = skills_blobs_put(skills->blobs, operation->tenant_id, &bundle->verdict.bundle,
                            bundle->verdict.skill.name, operation->bundle, err);
    return code ? code : operation_queue(skills, operation, env, ret_repeat, err);
}

static enum berth_code add_token(struct skills *skills, const struct operation *operation,
                                 InstallSkillResponse *out, struct berth_error *err)
{
    char secret[64] = "";
    int64_t expire_ms = berth_now_ms() + operation->time_limit_ms + INSTALLER_WAIT_MS;
    enum berth_code code =
        operation_make_token(skills, NULL, operation, expire_ms, secret, err);

    if (!code && !berth_set_string(&out->installer_token, secret))
        code = no_memory(err);
    berth_wipe(secret, sizeof secret);
    return code;
}

static void give_up(struct skills *skills, const struct operation *operation)
{
    struct operation cancelled = {0};

    (void)!operation_cancel(skills, operation->tenant_id, operation->operation_id, &cancelled,
                            NULL);
    operation_deinit(&cancelled);
}

static enum berth_code install(struct skills *skills, const struct skills_bundle *bundle,
                               InstallSkillResponse *out, struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *env = environment(bundle->open);
    bool is_repeat = false, unchanged = false;
    struct operation operation;
    enum berth_code code = new_operation(bundle, &operation, err);

    if (!code && !env)
        code = no_memory(err);
    if (!code)
        code = hand_over(skills, bundle, &operation, env, &is_repeat, &unchanged, err);
    if (!code && operation.external_installer && !is_repeat && !unchanged) {
        code = add_token(skills, &operation, out, err);
        if (code) /* nobody could ever finish it */
            give_up(skills, &operation);
    }
    if (!code)
        out->operation = unchanged ? show_operation(bundle) : operation_show(&operation);
    operation_deinit(&operation);
    return code || out->operation ? code : no_memory(err);
}

enum berth_code skills_install_answer(struct skills *skills, const struct skills_bundle *bundle,
                                      InstallSkillResponse **ret, struct berth_error *err)
{
    InstallSkillResponse *out = berth_message_new(TYPE(install_skill_response));
    enum berth_code code = BERTH_OK;

    if (!out || (bundle->verdict.skill.name && !(out->skill = show_skill(bundle))) ||
        (bundle->verdict.is_accepted && !(out->plan = show_plan(&bundle->verdict))))
        code = no_memory(err);
    else if (bundle->open->validate_only || is_refused(bundle))
        code = (out->operation = show_operation(bundle)) ? BERTH_OK : no_memory(err);
    else
        code = install(skills, bundle, out, err);
    if (code)
        berth_message_free(out);
    else
        *ret = out;
    return code;
}

const struct berth_method skills_install_methods[] = {
    {"/berth.skills.v1.SkillService/InstallSkill", TYPE(install_skill_request),
     .open = skills_open_install},
};
const size_t skills_n_install_methods = BERTH_COUNT(skills_install_methods);

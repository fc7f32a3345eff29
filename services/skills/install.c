/* install.c - InstallSkill: whether it may be, and what a judged bundle is answered. */
#include <stdio.h>

#include "common/messages/messages.h"
#include "services/skills/bundle/text.h"
#include "services/skills/ledger.h"
#include "services/skills/upload.h"

#define TYPE(name) (&berth__skills__v1__##name##__descriptor)

typedef Berth__Skills__V1__Finding Finding;
typedef Berth__Skills__V1__InstallSkillOpen InstallSkillOpen;
typedef Berth__Skills__V1__InstallSkillResponse InstallSkillResponse;
typedef Berth__Skills__V1__PlannedCommand PlannedCommand;
typedef Berth__Skills__V1__Skill Skill;
typedef Berth__Skills__V1__SkillOperation SkillOperation;
typedef Berth__Skills__V1__SkillPlan SkillPlan;

enum berth_code skills_install_check(struct skills *skills, const InstallSkillOpen *open,
                                     struct berth_error *err)
{
    struct ledger ledger = {0};
    enum berth_code code = skills_enter(skills, err);

    if (!code)
        code = ledger_read(skills->redis, open->tenant_id, open->config_id, &ledger, err);
    if (!code)
        code = ledger_check_tenant(skills->redis, open->tenant_id, &ledger.tenant, err);
    if (!code && !ledger.config.exists)
        code =
            berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'", open->config_id);
    ledger_deinit(&ledger);
    if (!code && !open->validate_only)
        code = berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                          "bundles are judged (validate_only); installing is not served yet");
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
    else if (verdict->findings.counts[FINDING_WARNING] > 0)
        snprintf(message, sizeof message, "can be installed, with %zu warnings",
                 verdict->findings.counts[FINDING_WARNING]);
    out->kind = BERTH__SKILLS__V1__OPERATION_KIND__OPERATION_KIND_INSTALL;
    out->state = verdict->is_accepted
                     ? BERTH__SKILLS__V1__OPERATION_STATE__OPERATION_STATE_DONE
                     : BERTH__SKILLS__V1__OPERATION_STATE__OPERATION_STATE_FAILED;
    if (berth_set_string(&out->tenant_id, bundle->open->tenant_id) &&
        berth_set_string(&out->config_id, bundle->open->config_id) &&
        berth_set_string(&out->skill_name, verdict->skill.name) &&
        berth_set_string(&out->message, message) &&
        add_findings(&verdict->findings, false, &out->n_findings, &out->findings) &&
        (verdict->is_accepted || (out->error = show_refusal())))
        return out;
    return berth_message_free(out);
}

enum berth_code skills_install_answer(struct skills *skills, const struct skills_bundle *bundle,
                                      InstallSkillResponse **ret, struct berth_error *err)
{
    InstallSkillResponse *out = berth_message_new(TYPE(install_skill_response));

    (void)skills;
    if (out && (out->operation = show_operation(bundle)) &&
        (!bundle->verdict.skill.name || (out->skill = show_skill(bundle))) &&
        (!bundle->verdict.is_accepted || (out->plan = show_plan(&bundle->verdict)))) {
        *ret = out;
        return BERTH_OK;
    }
    berth_message_free(out);
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

const struct berth_method skills_install_methods[] = {
    {"/berth.skills.v1.SkillService/InstallSkill", TYPE(install_skill_request),
     .open = skills_open_install},
};
const size_t skills_n_install_methods = BERTH_COUNT(skills_install_methods);

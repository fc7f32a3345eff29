/* chain_plan.c - what an attempt sets out to do, decided on one reading of the ledger. */
#include <stdio.h>

#include "common/ids/ids.h"
#include "common/messages/messages.h"
#include "services/skills/blobs.h"
#include "services/skills/chain_run.h"
#include "services/skills/policy.h"

void chain_plan_deinit(struct chain_plan *plan)
{
    for (size_t i = 0; i < plan->n_skills; i++) {
        bundle_verdict_deinit(&plan->skills[i].verdict);
        closep(&plan->skills[i].tar_fd);
        closep(&plan->skills[i].spool_fd);
    }
    free(plan->skills);
    json_decref(plan->list);
    *plan = (struct chain_plan){0};
}

/* ------------------------------------------------------------------- skills to put in */

static enum berth_code add_skill(struct chain_run *run, const char *name, const char *digest,
                                 bool is_new, struct berth_error *err)
{
    struct chain_plan *plan = &run->plan;
    struct chain_skill *skill = &plan->skills[plan->n_skills];
    struct berth_error why = {0};
    enum berth_code code;

    *skill = (struct chain_skill){.is_new = is_new, .tar_fd = -1, .spool_fd = -1};
    snprintf(skill->name, sizeof skill->name, "%s", name);
    snprintf(skill->digest, sizeof skill->digest, "%s", digest);
    plan->n_skills++;
    if (!run->skills->blobs)
        return berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                          "blob_dir is not set: no bundles are kept");
    code = skills_blobs_open(run->skills->blobs, run->grant.operation.tenant_id, digest,
                             &skill->tar_fd, &skill->tar_size, &why);
    if (why.reason == BERTH_REASON_FILE_NOT_FOUND)
        return berth_fail(err, BERTH_REASON_FILE_NOT_FOUND,
                          "the bundle of skill '%s' is not in the blob store: install it again",
                          name);
    if (code && err)
        *err = why;
    return code;
}

static void say_external_lost(struct chain_run *run, const char *name)
{
    char text[256];

    snprintf(text, sizeof text,
             "an external installer prepared skill '%s': only its bundle was put in anew, and "
             "the dependencies that the bundle declares; what else was done for it is gone",
             name);
    chain_find(run, "EXTERNAL_WORK_LOST", BERTH__SKILLS__V1__SEVERITY__SEVERITY_WARNING, text);
}

/* All that is wanted (but the new one) where it is built from the base, then the new one. */
static enum berth_code add_skills(struct chain_run *run, struct berth_error *err)
{
    const struct operation *operation = &run->grant.operation;
    struct chain_plan *plan = &run->plan;
    size_t n = json_array_size(plan->list);
    enum berth_code code = BERTH_OK;

    plan->skills = calloc(n + 1, sizeof *plan->skills);
    if (!plan->skills)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (size_t i = 0; !code && plan->from_base && i < n; i++) {
        const json_t *skill = json_array_get(plan->list, i);
        const char *name = json_string_value(json_object_get(skill, "name"));
        const char *digest = json_string_value(json_object_get(skill, "bundle"));

        if (!name || !digest)
            return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "a list of skills is damaged");
        if (json_is_true(json_object_get(skill, "external")))
            say_external_lost(run, name);
        code = add_skill(run, name, digest, false, err);
    }
    if (!code && operation->kind == KIND(INSTALL))
        code = add_skill(run, operation->skill_name, operation->bundle, true, err);
    return code;
}

enum berth_code chain_judge(struct chain_run *run, struct chain_skill *skill,
                            struct berth_error *err)
{
    const struct bundle_source source = {
        .fd = skill->tar_fd, .size = skill->tar_size, .format = BUNDLE_FORMAT_TAR};
    const struct operation *operation = &run->grant.operation;
    struct skills_policy policy = {0};
    char digest[65];
    enum berth_code code = bundle_spool_open(run->skills->spool, &skill->spool_fd, err);

    if (!code)
        code = skills_policy_read(run->skills, operation->tenant_id, operation->config_id,
                                  &policy, err);
    if (!code)
        code = bundle_judge(&source, skill->spool_fd, &policy.plan, NULL, &skill->verdict, err);
    skills_policy_deinit(&policy);
    if (code)
        return code;
    if (!skill->verdict.is_accepted) {
        chain_add_findings(run, &skill->verdict.findings);
        return berth_fail(err, BERTH_REASON_BUNDLE_INVALID,
                          "the bundle of skill '%s' is refused", skill->name);
    }
    berth_hex(digest, skill->verdict.digest, sizeof skill->verdict.digest);
    if (strcmp(digest, skill->digest) != 0 ||
        strcmp(skill->verdict.skill.name, skill->name) != 0)
        return berth_fail(err, BERTH_REASON_FILE_CHANGED,
                          "the stored bundle of skill '%s' is not what it was: install it "
                          "again",
                          skill->name);
    return BERTH_OK;
}

enum berth_code chain_fit(struct chain_run *run, struct chain_skill *skill,
                          const struct plan_host *host, struct berth_error *err)
{
    const struct operation *operation = &run->grant.operation;
    struct findings again = {0}; /* all told before */
    struct skills_policy policy = {0};
    enum berth_code code;

    if (!host->has_uv)
        return BERTH_OK; /* as it was judged */
    plan_deinit(&skill->verdict.plan);
    code = skills_policy_read(run->skills, operation->tenant_id, operation->config_id, &policy,
                              err);
    if (!code)
        code = plan_make(&skill->verdict.bundle, &skill->verdict.skill, &policy.plan, host,
                         &again, &skill->verdict.plan, err);
    skills_policy_deinit(&policy);
    findings_deinit(&again);
    return code;
}

/* ---------------------------------------------------------------------------- what */

/* Why the image that is there is not built on; "": it is, or there is none. */
static void say_why_from_base(struct chain_run *run, const struct ledger *ledger)
{
    const struct berth_image_pointer *image = &ledger->config.image;
    const int warning = BERTH__SKILLS__V1__SEVERITY__SEVERITY_WARNING;

    if (!image->row_id[0] || run->grant.operation.kind == KIND(REBUILD))
        return;
    if (!image->snapshot_id[0])
        chain_find(run, "IMAGE_MISSING", warning,
                   "the image was not there any more at its backend: it was built anew from "
                   "the base template, with all its skills");
    else if (!berth_image_usable(&ledger->config))
        chain_find(run, "IMAGE_OTHER_ACCOUNT", warning,
                   "the image lives in another account than the config has now: it was built "
                   "anew from the base template, with all its skills");
    else
        chain_find(run, "IMAGE_GROWN", BERTH__SKILLS__V1__SEVERITY__SEVERITY_NOTE,
                   "the image's layers had grown past the limit: it was built anew from the "
                   "base template, with all its skills");
}

static const struct berth_snapshot_row *live_row(const struct ledger *ledger)
{
    for (size_t i = 0; i < ledger->n_rows; i++)
        if (strcmp(ledger->rows[i].row_id, ledger->config.image.row_id) == 0)
            return &ledger->rows[i];
    return NULL;
}

static bool choose_base(struct chain_run *run, const struct ledger *ledger)
{
    const struct berth_snapshot_row *live = live_row(ledger);

    return run->grant.operation.kind == KIND(REBUILD) || !berth_image_usable(&ledger->config) ||
           (live && image_is_bloated(live, &run->options->growth));
}

static enum berth_code plan_again(struct chain_run *run, const struct ledger *ledger,
                                  struct berth_error *err)
{
    const struct operation *operation = &run->grant.operation;
    const struct berth_snapshot_row *row = NULL;
    Berth__Common__V1__BackendTarget *target = NULL;
    struct skills_found found = {0};
    enum berth_code code;

    for (size_t i = 0; i < ledger->n_rows; i++)
        if (ledger->rows[i].generation == operation->from_generation &&
            strcmp(ledger->rows[i].origin, "skills") == 0 && ledger->rows[i].snapshot_id[0])
            row = &ledger->rows[i];
    if (!row || (strcmp(row->state, "active") != 0 && strcmp(row->state, "superseded") != 0))
        return berth_fail(err, BERTH_REASON_SNAPSHOT_NOT_FOUND,
                          "there is no snapshot of generation %llu (any more)",
                          (unsigned long long)operation->from_generation);
    if (strcmp(row->account, ledger->config.account) != 0)
        return berth_fail(err, BERTH_REASON_IMAGE_OWNER_MISMATCH,
                          "that generation lives in another account than the config has now");
    snprintf(run->plan.again, sizeof run->plan.again, "%s", row->row_id);
    run->plan.way = CHAIN_AGAIN;
    if (berth_image_usable(&ledger->config) &&
        strcmp(row->snapshot_id, ledger->config.image.snapshot_id) == 0)
        run->plan.way = CHAIN_UNCHANGED;
    code = skills_target(run->skills, operation->tenant_id, operation->config_id, &target, err);
    if (!code)
        code = skills_find_by_name(run->skills, target, row->planned_name, &found, err);
    if (!code && strcmp(found.snapshot_id, row->snapshot_id) != 0)
        code = berth_fail(err, BERTH_REASON_SNAPSHOT_NOT_FOUND,
                          "the snapshot of generation %llu is not there any more at its "
                          "backend",
                          (unsigned long long)operation->from_generation);
    berth_message_free(target);
    return code;
}

/* The list as it is to be; what is put in beside it is counted separately. */
static void plan_list(struct chain_run *run, bool usable)
{
    const struct operation *operation = &run->grant.operation;
    struct chain_plan *plan = &run->plan;
    const json_t *there = image_find(plan->list, operation->skill_name);
    const char *bundle = json_string_value(json_object_get(there, "bundle"));

    switch (operation->kind) {
    case KIND(INSTALL):
        if (usable && bundle && strcmp(bundle, operation->bundle) == 0)
            plan->way = CHAIN_UNCHANGED;
        (void)image_remove(plan->list, operation->skill_name);
        return;
    case KIND(UNINSTALL):
        if (!image_remove(plan->list, operation->skill_name)) {
            plan->way = CHAIN_UNCHANGED; /* it was on its way, and overtaken */
            return;
        }
        plan->remove = plan->from_base ? NULL : operation->skill_name;
        break;
    default:
        break;
    }
    if (json_array_size(plan->list) == 0)
        plan->way = plan->booted.row_id[0] ? CHAIN_CLEAR : CHAIN_UNCHANGED;
}

enum berth_code chain_make_plan(struct chain_run *run, const struct ledger *ledger,
                                struct berth_error *err)
{
    const struct berth_config_doc *config = &ledger->config;
    const struct berth_snapshot_row *live = live_row(ledger);
    struct chain_plan *plan = &run->plan;
    enum berth_code code;

    if (!config->exists || strcmp(config->state, "active") != 0)
        return berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, NULL);
    if (!config->account[0])
        return berth_fail(err, BERTH_REASON_FINGERPRINT_EMPTY, NULL);
    *plan = (struct chain_plan){.booted = config->image, .way = CHAIN_BUILD};
    snprintf(plan->account, sizeof plan->account, "%s", config->account);
    snprintf(plan->template_id, sizeof plan->template_id, "%s",
             config->template_id[0] ? config->template_id : config->image.base_template_id);
    if (run->grant.operation.kind == KIND(ROLLBACK))
        return plan_again(run, ledger, err);
    plan->from_base = choose_base(run, ledger);
    plan->below_bytes = live && !plan->from_base ? live->image_bytes : 0;
    code = image_wanted(ledger, &plan->list, err);
    if (!code)
        plan_list(run, berth_image_usable(config));
    if (!code && plan->way == CHAIN_BUILD) {
        if (plan->from_base)
            say_why_from_base(run, ledger);
        code = add_skills(run, err);
    }
    return code;
}

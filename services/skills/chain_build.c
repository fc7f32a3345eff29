/* chain_build.c - from a sandbox to an active row: what is done in the maintenance session, in
 * order. Nothing that sessions use is touched. */
#include <stdio.h>

#include "common/ids/ids.h"
#include "common/time/time.h"
#include "services/skills/chain_run.h"

enum { POLL_MS = 1000 };

/* The ids of this attempt, written down before anything is made under them. */
static enum berth_code choose_ids(struct chain_run *run, struct berth_error *err)
{
    struct operation *operation = &run->grant.operation;

    pthread_mutex_lock(&run->mutex);
    if (!operation->row_id[0]) /* else of an external installer, who knows them */
        berth_id_base36(operation->row_id, LEDGER_ROW_ID_LEN);
    snprintf(operation->session_id, sizeof operation->session_id, "sk.%s", operation->row_id);
    pthread_mutex_unlock(&run->mutex);
    return chain_step(run, STEP(LOCKED), 5, err);
}

/* A bundle that is no good costs no sandbox. */
static enum berth_code judge(struct chain_run *run, struct berth_error *err)
{
    struct chain_plan *plan = &run->plan;
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < plan->n_skills; i++) {
        code = chain_judge(run, &plan->skills[i], err);
        if (!code)
            code = chain_check(run, err);
    }
    return code;
}

static enum berth_code open_sandbox(struct chain_run *run, struct berth_error *err)
{
    const struct chain_plan *plan = &run->plan;
    enum berth_code code = chain_open_work(run, err);

    if (code)
        return code;
    if (!plan->from_base && work_generation(run->work) != plan->booted.generation)
        return berth_fail(err, BERTH_REASON_GENERATION_MOVED,
                          "the sandbox booted generation %llu, not %llu",
                          (unsigned long long)work_generation(run->work),
                          (unsigned long long)plan->booted.generation);
    if (plan->from_base)
        chain_say(run, "sandbox %s from template %s", work_sandbox(run->work),
                  plan->template_id);
    else
        chain_say(run, "sandbox %s from the image of generation %llu", work_sandbox(run->work),
                  (unsigned long long)plan->booted.generation);
    return chain_step(run, STEP(SANDBOX_READY), 15, err);
}

static enum berth_code upload(struct chain_run *run, struct berth_error *err)
{
    struct chain_plan *plan = &run->plan;
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < plan->n_skills; i++) {
        struct chain_skill *skill = &plan->skills[i];

        code = chain_fit(run, skill, work_host(run->work), err);
        if (!code)
            code = work_upload(run->work, skill->name, skill->tar_fd, skill->tar_size, err);
        if (!code)
            chain_say(run, "skill %s: %zu files, %llu bytes", skill->name,
                      skill->verdict.bundle.n_files,
                      (unsigned long long)skill->verdict.bundle.total_bytes);
        if (!code)
            code = chain_check(run, err);
    }
    if (!code && plan->remove)
        code = work_remove(run->work, plan->remove, err);
    return code ? code : chain_step(run, STEP(UPLOADED), 30, err);
}

/* What went wrong did so for another skill than the operation's. */
static void name_skill(const char *name, struct berth_error *err)
{
    char text[sizeof err->text];

    if (!err)
        return;
    snprintf(text, sizeof text, "%s", err->text);
    snprintf(err->text, sizeof err->text, "skill '%.64s': %.300s", name, text);
}

/* An external installer sees to those of its own skill. */
static enum berth_code install(struct chain_run *run, struct berth_error *err)
{
    const struct chain_plan *plan = &run->plan;
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < plan->n_skills; i++) {
        const struct chain_skill *skill = &plan->skills[i];

        if (skill->is_new && run->grant.operation.external_installer)
            continue;
        code = work_dependencies(run->work, &skill->verdict.plan, err);
        if (code && !skill->is_new)
            name_skill(skill->name, err);
    }
    return code ? code : chain_step(run, STEP(DEPENDENCIES), 60, err);
}

static enum berth_code judge_word(const struct operation *operation, struct berth_error *err)
{
    if (operation->finished_ok)
        return BERTH_OK;
    return berth_fail(err, BERTH_REASON_GATE_FAILED, "the external installer gave up: %s",
                      operation->finish_message);
}

/* Until FinishInstallation was said. */
static enum berth_code wait_for_installer(struct chain_run *run, struct berth_error *err)
{
    struct operation *operation = &run->grant.operation;
    int64_t limit_ms =
        operation->time_limit_ms ? operation->time_limit_ms : run->options->timeout_ms;
    int64_t end_tick = berth_tick_ms() + limit_ms;
    bool finished = false;
    enum berth_code code = BERTH_OK;

    chain_say(run, "waiting for the external installer in session %s", operation->session_id);
    while (!code && !finished) {
        code = chain_step(run, STEP(EXTERNAL_INSTALLER), 62, err);
        pthread_mutex_lock(&run->mutex);
        finished = operation->finished;
        if (!finished) {
            struct timespec until;

            clock_gettime(CLOCK_MONOTONIC, &until);
            until.tv_sec += POLL_MS / 1000;
            (void)pthread_cond_timedwait(&run->wake, &run->mutex, &until);
        }
        pthread_mutex_unlock(&run->mutex);
        if (!code && !finished && berth_tick_ms() > end_tick)
            code = berth_fail(err, BERTH_REASON_DEADLINE,
                              "the external installer did not finish within its time");
    }
    return code ? code : judge_word(operation, err);
}

static enum berth_code verify(struct chain_run *run, struct berth_error *err)
{
    const struct chain_plan *plan = &run->plan;
    struct findings findings = {0};
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < plan->n_skills; i++)
        code = work_verify(run->work, &plan->skills[i].verdict, &findings, err);
    findings_close(&findings);
    chain_add_findings(run, &findings);
    if (!code && findings_refuse(&findings))
        code = berth_fail(err, BERTH_REASON_GATE_FAILED,
                          "%zu errors were found in what was installed",
                          findings.counts[FINDING_ERROR]);
    findings_deinit(&findings);
    return code ? code : chain_step(run, STEP(VERIFIED), 80, err);
}

enum berth_code chain_build(struct chain_run *run, struct berth_error *err)
{
    uint64_t skills_bytes = 0;
    enum berth_code code = choose_ids(run, err);

    if (!code)
        code = judge(run, err);
    if (!code)
        code = open_sandbox(run, err);
    if (!code)
        code = upload(run, err);
    if (!code)
        code = install(run, err);
    if (!code && run->grant.operation.external_installer)
        code = wait_for_installer(run, err);
    if (!code)
        code = work_seal(run->work, err);
    if (!code)
        code = chain_step(run, STEP(SEALED), 70, err);
    if (!code)
        code = verify(run, err);
    if (!code)
        code = work_clean(run->work, &skills_bytes, err);
    if (!code)
        code = chain_step(run, STEP(CLEANED), 86, err);
    return code ? code : chain_snapshot(run, skills_bytes, err);
}

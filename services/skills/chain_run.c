/* chain_run.c - one start of one operation: kept alive, carried out, ended. */
#include "services/skills/chain_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "common/log/log.h"
#include "common/time/time.h"
#include "services/skills/blobs.h"
#include "services/skills/chain_fault.h"

enum {
    ATTEMPTS_MAX = 3, /* of one start, each with a sandbox of its own */
    STARTS_MAX = 10,  /* of one operation, each of a process that did not end it */
    BEATS_PER_LEASE = 3,
    RETRY_MS = 500,
    END_TRIES_MS = 60000,
    LINE_MAX_BYTES = 600,
};

skills_fault_fn skills_fault;

/* -------------------------------------------------------------------------- wait */

static struct timespec after(int64_t ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return until;
}

/* The lock is believed for a little less than it lasts: the clocks run apart. */
static bool is_overdue(const struct chain_run *run)
{
    int64_t lease_ms = run->skills->build_lease_ms;

    return berth_tick_ms() - run->grant.sent_tick > lease_ms - lease_ms / 12;
}

/* ------------------------------------------------------------------------- alive */

/* With the mutex held. A store that is away for a moment loses nothing. */
static void beat(struct chain_run *run)
{
    struct berth_error err = {0};
    enum berth_code code = operation_beat(run->skills, &run->grant, &err);

    if (code && (err.reason == BERTH_REASON_LOCK_LOST || is_overdue(run)))
        atomic_store(&run->lost, true);
    if (code)
        berth_warn("an operation could not give its sign of life", "operation",
                   run->grant.operation.operation_id, "error", err.text);
    if (run->grant.operation.cancel && !run->flipped)
        atomic_store(&run->cancelled, true);
}

static void *keep_beating(void *arg)
{
    struct chain_run *run = arg;
    int64_t every_ms = run->skills->build_lease_ms / BEATS_PER_LEASE;

    pthread_mutex_lock(&run->mutex);
    while (!run->ends) {
        struct timespec until = after(every_ms);

        (void)pthread_cond_timedwait(&run->wake, &run->mutex, &until);
        if (!run->ends && !atomic_load(&run->lost))
            beat(run);
    }
    pthread_mutex_unlock(&run->mutex);
    return NULL;
}

static bool is_stopped(void *arg)
{
    const struct chain_run *run = arg;

    return atomic_load(&run->lost) || atomic_load(&run->cancelled) ||
           atomic_load(run->stopping) || berth_tick_ms() > run->end_tick;
}

enum berth_code chain_check(struct chain_run *run, struct berth_error *err)
{
    if (atomic_load(&run->lost))
        return berth_fail(err, BERTH_REASON_LOCK_LOST, "the operation is another's now");
    if (atomic_load(&run->cancelled))
        return berth_fail(err, BERTH_REASON_CANCELLED, "it was given up on request");
    if (atomic_load(run->stopping))
        return berth_fail(err, BERTH_REASON_DRAINING, NULL);
    if (berth_tick_ms() > run->end_tick)
        return berth_fail(err, BERTH_REASON_DEADLINE, "the operation took longer than it may");
    return BERTH_OK;
}

enum berth_code chain_step(struct chain_run *run, int step, unsigned percent,
                           struct berth_error *err)
{
    pthread_mutex_lock(&run->mutex);
    run->grant.operation.step = step;
    run->grant.operation.percent = percent;
    beat(run);
    pthread_mutex_unlock(&run->mutex);
    chain_fault(step);
    return run->flipped ? BERTH_OK : chain_check(run, err);
}

/* -------------------------------------------------------------------------- said */

static void on_said(void *arg, const void *data, size_t size)
{
    struct chain_run *run = arg;
    const struct operation *operation = &run->grant.operation;

    pthread_mutex_lock(&run->mutex);
    operation_say(run->skills, &run->grant, data, size);
    pthread_mutex_unlock(&run->mutex);
    if (run->skills->blobs)
        skills_log_add(run->skills->blobs, operation->tenant_id, operation->operation_id, data,
                       size);
}

void chain_say(struct chain_run *run, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    va_list args;
    int len;

    va_start(args, fmt);
    len = vsnprintf(line, sizeof line - 1, fmt, args);
    va_end(args);
    if (len < 0)
        return;
    if (len > (int)sizeof line - 2)
        len = (int)sizeof line - 2;
    line[len++] = '\n';
    on_said(run, line, (size_t)len);
}

static void add_finding(struct chain_run *run, json_t *finding)
{
    struct operation *operation = &run->grant.operation;

    pthread_mutex_lock(&run->mutex);
    if (!operation->findings)
        operation->findings = json_array();
    for (size_t i = 0; i < json_array_size(operation->findings); i++)
        if (json_equal(json_array_get(operation->findings, i), finding)) {
            json_decref(finding); /* of an attempt before */
            finding = NULL;
        }
    if (json_array_size(operation->findings) < OPERATION_FINDINGS_MAX)
        json_array_append_new(operation->findings, finding); /* NULL is refused */
    else
        json_decref(finding);
    pthread_mutex_unlock(&run->mutex);
}

void chain_find(struct chain_run *run, const char *code, int severity, const char *message)
{
    add_finding(run, json_pack("{s:s,s:i,s:s,s:i,s:s}", "code", code, "severity", severity,
                               "file", "", "line", 0, "message", message));
}

void chain_add_findings(struct chain_run *run, const struct findings *findings)
{
    BERTH_AUTO(json_decref) json_t *list = image_findings(findings, false);

    for (size_t i = 0; i < json_array_size(list); i++)
        add_finding(run, json_incref(json_array_get(list, i)));
}

/* ----------------------------------------------------------------------- carry out */

static enum berth_code read_ledger(struct chain_run *run, struct ledger *ret,
                                   struct berth_error *err)
{
    const struct operation *operation = &run->grant.operation;

    return ledger_read(run->skills->redis, operation->tenant_id, operation->config_id, ret,
                       err);
}

/* The row of this operation is active; what it was made from is still live. */
static enum berth_code flip_row(struct chain_run *run, const struct ledger *ledger,
                                struct berth_error *err)
{
    const struct operation *operation = &run->grant.operation;
    const struct berth_snapshot_row *row = NULL;
    struct image_flip flip = {.again = "", .created_by = operation->created_by};

    for (size_t i = 0; i < ledger->n_rows; i++)
        if (strcmp(ledger->rows[i].row_id, operation->row_id) == 0)
            row = &ledger->rows[i];
    if (!row)
        return berth_fail(err, BERTH_REASON_CONFLICT, "its row of the ledger is gone");
    flip.claim = (struct image_claim){.operation_id = operation->operation_id,
                                      .owner = operation->owner,
                                      .booted = &ledger->config.image,
                                      .account = row->account,
                                      .row_id = row->row_id};
    flip.base_template_id = row->parent_snapshot_id[0] ? "" : ledger->config.template_id;
    return chain_flip(run, &flip, err);
}

static enum berth_code flip_plan(struct chain_run *run, struct berth_error *err)
{
    const struct operation *operation = &run->grant.operation;
    const struct chain_plan *plan = &run->plan;
    const struct image_flip flip = {
        .claim = {.operation_id = operation->operation_id,
                  .owner = operation->owner,
                  .booted = &plan->booted,
                  .account = plan->account,
                  .row_id = plan->way == CHAIN_BUILD ? operation->row_id : ""},
        .again = plan->way == CHAIN_AGAIN ? plan->again : "",
        .base_template_id = plan->from_base ? plan->template_id : "",
        .created_by = operation->created_by,
    };

    return chain_flip(run, &flip, err);
}

/* What an earlier start, or attempt, has left behind. */
static enum berth_code clear_away(struct chain_run *run, struct ledger *ledger,
                                  struct berth_error *err)
{
    struct operation *operation = &run->grant.operation;
    const struct berth_snapshot_row *row = ledger_find(ledger, operation->row_id);
    enum berth_code code = BERTH_OK;

    if (operation->external_installer && operation->starts <= 1)
        return BERTH_OK; /* its session's id is known outside, and not used yet */
    if (row && strcmp(row->state, "active") == 0)
        chain_drop_row(run, row->row_id);
    if (operation->session_id[0])
        code = chain_delete_session(run, operation->session_id, err);
    pthread_mutex_lock(&run->mutex);
    operation->row_id[0] = operation->session_id[0] = operation->snapshot_id[0] = 0;
    operation->generation = 0;
    pthread_mutex_unlock(&run->mutex);
    return code;
}

static enum berth_code begin_anew(struct chain_run *run, struct ledger *ledger,
                                  struct berth_error *err)
{
    enum berth_code code = clear_away(run, ledger, err);

    chain_plan_deinit(&run->plan);
    if (!code)
        code = chain_make_plan(run, ledger, err);
    if (code)
        return code;
    switch (run->plan.way) {
    case CHAIN_UNCHANGED:
        pthread_mutex_lock(&run->mutex);
        run->grant.operation.unchanged = true;
        pthread_mutex_unlock(&run->mutex);
        return BERTH_OK;
    case CHAIN_BUILD:
        code = chain_build(run, err);
        break;
    case CHAIN_CLEAR:
    case CHAIN_AGAIN:
        break;
    }
    return code ? code : flip_plan(run, err);
}

static enum berth_code settle(struct chain_run *run, struct ledger *ledger,
                              struct berth_error *err)
{
    struct ledger now = {0};
    bool active = false;
    enum berth_code code = chain_settle(run, ledger, &active, err);

    if (!code)
        code = read_ledger(run, &now, err);
    if (!code)
        code = active ? flip_row(run, &now, err) : begin_anew(run, &now, err);
    ledger_deinit(&now);
    return code;
}

static enum berth_code attempt(struct chain_run *run, struct berth_error *err)
{
    struct operation *operation = &run->grant.operation;
    struct ledger ledger = {0};
    enum berth_code code = read_ledger(run, &ledger, err);

    if (!code)
        code = chain_check(run, err);
    if (!code && !ledger.config.exists)
        code = berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, NULL);
    if (!code) {
        switch (image_judge_start(&ledger, operation->operation_id, operation->row_id)) {
        case IMAGE_START_ENDED:
            chain_note_flip(run, &ledger.config.image);
            break;
        case IMAGE_START_FLIP:
            code = flip_row(run, &ledger, err);
            break;
        case IMAGE_START_SETTLE:
            code = settle(run, &ledger, err);
            break;
        case IMAGE_START_ANEW:
            code = begin_anew(run, &ledger, err);
            break;
        }
    }
    ledger_deinit(&ledger);
    return code;
}

/* Worth another attempt, with a new sandbox? */
static bool is_passing(enum berth_code code, const struct berth_error *err)
{
    return code == BERTH_UNAVAILABLE || code == BERTH_UNKNOWN ||
           (code == BERTH_ABORTED && err->reason != BERTH_REASON_LOCK_LOST);
}

static void rest(struct chain_run *run, int64_t ms)
{
    int64_t end_tick = berth_tick_ms() + ms;

    pthread_mutex_lock(&run->mutex);
    while (berth_tick_ms() < end_tick && !is_stopped(run)) {
        struct timespec until = after(20);

        (void)pthread_cond_timedwait(&run->wake, &run->mutex, &until);
    }
    pthread_mutex_unlock(&run->mutex);
}

static enum berth_code check_starts(const struct chain_run *run, struct berth_error *err)
{
    const struct operation *operation = &run->grant.operation;

    if (operation->starts > STARTS_MAX)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                          "it was begun %u times, and never came to an end",
                          operation->starts - 1);
    if (operation->external_installer && operation->starts > 1)
        return berth_fail(err, BERTH_REASON_GATE_FAILED,
                          "the session that the external installer worked in is lost");
    return BERTH_OK;
}

static enum berth_code carry_out(struct chain_run *run, struct berth_error *err)
{
    enum berth_code code = chain_step(run, STEP(LOCKED), 2, err);

    if (!code)
        code = check_starts(run, err);
    if (code)
        return code;
    for (int i = 1;; i++) {
        code = attempt(run, err);
        if (!code || i == ATTEMPTS_MAX || run->grant.operation.external_installer ||
            !is_passing(code, err) || is_stopped(run))
            return code;
        chain_say(run, "attempt %d: %s; beginning anew", i, err->text);
        run->work = work_close(run->work, true);
        rest(run, i * RETRY_MS);
    }
}

/* ----------------------------------------------------------------------------- end */

static void set_result(struct chain_run *run, enum berth_code code,
                       const struct berth_error *err)
{
    struct operation *operation = &run->grant.operation;

    if (!code) {
        operation->state = STATE(DONE);
        operation->percent = 100;
        return;
    }
    operation->state = code == BERTH_CANCELLED ? STATE(CANCELLED) : STATE(FAILED);
    if (code != BERTH_CANCELLED)
        snprintf(operation->reason, sizeof operation->reason, "%s",
                 berth_reason_name(err->reason));
    snprintf(operation->message, sizeof operation->message, "%s", err->text);
}

/* In the end it is written, or another's. */
static void end(struct chain_run *run)
{
    int64_t end_tick = berth_tick_ms() + END_TRIES_MS;
    struct berth_error err = {0};
    enum berth_code code;

    chain_fault(FAULT_END);
    while ((code = operation_end(run->skills, &run->grant, &err)) &&
           err.reason != BERTH_REASON_LOCK_LOST && berth_tick_ms() < end_tick &&
           !atomic_load(run->stopping)) {
        struct timespec pause = {.tv_nsec = 200 * 1000000};

        nanosleep(&pause, NULL);
    }
    if (code)
        berth_warn("an operation's end was not written, it is looked at again", "operation",
                   run->grant.operation.operation_id, "error", err.text);
}

/* Ours, or that of an earlier start. */
static void close_session(struct chain_run *run)
{
    const struct operation *operation = &run->grant.operation;
    struct berth_error err = {0};

    if (run->work)
        run->work = work_close(run->work, true);
    else if (operation->session_id[0] && chain_delete_session(run, operation->session_id, &err))
        berth_warn("a maintenance session is left to the reaper", "session",
                   operation->session_id, "error", err.text);
}

/* Behind the flip: what is left undone here is bookkeeping, and told. */
static void finish(struct chain_run *run)
{
    struct operation *operation = &run->grant.operation;

    (void)!chain_step(run, STEP(FLIPPED), 96, NULL);
    chain_mark_stale(run);
    (void)!chain_step(run, STEP(MARKED_STALE), 98, NULL);
    close_session(run);
    pthread_mutex_lock(&run->mutex);
    operation->session_id[0] = 0;
    pthread_mutex_unlock(&run->mutex);
    (void)!chain_step(run, STEP(SANDBOX_DESTROYED), 100, NULL);
}

static void stop_beating(struct chain_run *run)
{
    if (!run->is_beating)
        return;
    pthread_mutex_lock(&run->mutex);
    run->ends = true;
    pthread_cond_broadcast(&run->wake);
    pthread_mutex_unlock(&run->mutex);
    pthread_join(run->beater, NULL);
    run->is_beating = false;
}

/* A step that was stopped cannot tell by what. */
static enum berth_code tell_why(const struct chain_run *run, enum berth_code code,
                                struct berth_error *err)
{
    struct berth_error why = {0};
    enum berth_code real =
        code == BERTH_CANCELLED ? chain_check((struct chain_run *)run, &why) : BERTH_OK;

    if (real)
        *err = why;
    return real ? real : code;
}

static void conclude(struct chain_run *run, enum berth_code code, struct berth_error *err)
{
    struct operation *operation = &run->grant.operation;
    bool leaves;

    code = tell_why(run, code, err);
    /* At the end of the process the next start goes on, or takes the sandbox away: that may
     * take long. */
    leaves = code && (atomic_load(run->stopping) || err->reason == BERTH_REASON_DRAINING ||
                      code == BERTH_UNKNOWN);
    if (code && code != BERTH_CANCELLED)
        berth_info("an operation did not get through", "operation", operation->operation_id,
                   "error", err->text);
    if (!code && run->flipped)
        finish(run);
    if (leaves || atomic_load(&run->lost))
        run->work = work_close(run->work, !atomic_load(run->stopping));
    else
        close_session(run);
    stop_beating(run);
    if (atomic_load(&run->lost))
        return;
    if (leaves) {
        operation_leave(run->skills, &run->grant);
        return;
    }
    operation->session_id[0] = 0;
    set_result(run, code, err);
    end(run);
}

void chain_run(struct skills *skills, const struct skills_chain_options *options,
               const atomic_bool *stopping, struct operation_grant *grant)
{
    struct chain_run run = {
        .skills = skills, .options = options, .stopping = stopping, .grant = *grant};
    struct berth_error err = {0};
    pthread_condattr_t attr;
    enum berth_code code = BERTH_OK;

    run.end_tick = berth_tick_ms() + options->timeout_ms + grant->operation.time_limit_ms;
    pthread_mutex_init(&run.mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&run.wake, &attr);
    pthread_condattr_destroy(&attr);
    run.is_beating = pthread_create(&run.beater, NULL, keep_beating, &run) == 0;
    if (!run.is_beating)
        code = berth_fail(&err, BERTH_REASON_OVERLOADED, "no thread to keep it alive");
    if (!code)
        code = carry_out(&run, &err);
    conclude(&run, code, &err);
    chain_plan_deinit(&run.plan);
    pthread_cond_destroy(&run.wake);
    pthread_mutex_destroy(&run.mutex);
    *grant = run.grant;
}

enum berth_code chain_open_work(struct chain_run *run, struct berth_error *err)
{
    const struct operation *operation = &run->grant.operation;
    const struct work_wish wish = {
        .tenant_id = operation->tenant_id,
        .config_id = operation->config_id,
        .session_id = operation->session_id,
        .template_id = run->plan.from_base ? run->plan.template_id : NULL,
        .env = run->grant.env,
        .step_timeout_ms = run->options->step_timeout_ms,
        .say = on_said,
        .stopped = is_stopped,
        .arg = run,
    };

    return work_open(run->skills, &wish, &run->work, err);
}

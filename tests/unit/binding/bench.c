#include "tests/unit/binding/bench.h"

#include <stdio.h>

static const struct binding_limits limits = {
    .lock_ms = LOCK,
    .turn_ms = TURN,
    .turn_min_ms = MINUTE,
    .turn_max_ms = 24 * 60 * MINUTE,
    .use_ms = 2 * MINUTE,
    .tombstone_ms = 24 * 60 * MINUTE,
};

void bench_init(struct bench *bench)
{
    *bench = (struct bench){.now_ms = NOW,
                            .session_id = "s1",
                            .tenant = {.exists = true, .default_config = "c1"},
                            .config = {.exists = true,
                                       .rev = "00000000000000c1",
                                       .state = "active",
                                       .account = ACCOUNT,
                                       .template_id = "base",
                                       .keyed_create = true,
                                       .next_generation = 1},
                            .config_id = "c1"};
}

void bench_deinit(struct bench *bench)
{
    for (int i = 0; i < BINDING_N_PARTS; i++)
        free(bench->value[i]);
    *bench = (struct bench){0};
}

void bench_flip(struct bench *bench, uint64_t generation)
{
    bench->config.image.generation = generation;
    bench->config.image.rebuild_before = generation;
    bench->config.next_generation = generation + 1;
    snprintf(bench->config.image.snapshot_id, sizeof bench->config.image.snapshot_id, "snap-%d",
             (int)generation);
    snprintf(bench->config.image.account, sizeof bench->config.image.account, "%s",
             bench->config.account);
}

/* The hash as Redis would give it. */
static void raw_of(struct bench *bench, struct berth_doc *raw)
{
    struct berth_doc_field *fields = calloc(BINDING_N_PARTS + 1, sizeof *fields);
    size_t n = 0;

    ck_assert_ptr_nonnull(fields);
    *raw = (struct berth_doc){.key = strdup("berth:{t1}:s/s1"), .exists = bench->exists};
    raw->fields = fields;
    if (bench->exists) {
        fields[n].name = strdup("rev");
        fields[n].value = strdup(bench->rev);
        fields[n++].size = strlen(bench->rev);
    }
    for (int i = 0; i < BINDING_N_PARTS; i++) {
        if (!bench->value[i])
            continue;
        fields[n].name = strdup(binding_part_name((enum binding_part)i));
        fields[n].value = malloc(bench->size[i] + 1);
        memcpy(fields[n].value, bench->value[i], bench->size[i]);
        fields[n].value[bench->size[i]] = '\0';
        fields[n++].size = bench->size[i];
    }
    raw->n_fields = n;
}

void bench_doc(struct bench *bench, struct binding_doc *doc)
{
    struct berth_doc raw;
    struct berth_error err = {0};

    raw_of(bench, &raw);
    ck_assert_msg(binding_doc_decode(&raw, doc, &err) == BERTH_OK, "%s", err.text);
    berth_doc_deinit(&raw);
}

void bench_read(struct bench *bench, struct binding_view *view)
{
    *view = (struct binding_view){.session_id = bench->session_id,
                                  .limits = &limits,
                                  .now_ms = bench->now_ms,
                                  .quarantine = bench->quarantine,
                                  .unsure = bench->unsure,
                                  .lost_ms = bench->lost_ms,
                                  .tenant = bench->tenant,
                                  .config = bench->config};
    memcpy(view->config_id, bench->config_id, sizeof view->config_id);
    bench_doc(bench, &view->doc);
    view->due_ms = binding_due_ms(&view->doc);
}

bool bench_write(struct bench *bench, struct binding_view *view, struct binding_plan *plan)
{
    bool same = strcmp(view->doc.rev, bench->rev) == 0;
    size_t used = strlen(bench->events);

    if (same && view->doc.dirty) {
        for (int i = 0; i < BINDING_N_PARTS; i++) {
            if (!(view->doc.dirty & 1U << i))
                continue;
            free(bench->value[i]);
            bench->value[i] = NULL;
            ck_assert_int_eq(binding_doc_encode(&view->doc, (enum binding_part)i,
                                                &bench->value[i], &bench->size[i], NULL),
                             BERTH_OK);
        }
        bench->exists = true;
        snprintf(bench->rev, sizeof bench->rev, "%016x", ++bench->n_revs);
        bench->indexed = (bench->indexed || plan->index_add) && !plan->index_remove;
        bench->expires = (bench->expires && !plan->persist) || plan->expire;
        for (size_t i = 0; i < plan->n_events; i++)
            used += (size_t)snprintf(bench->events + used, sizeof bench->events - used, "%s ",
                                     plan->events[i].kind);
    }
    binding_plan_deinit(plan);
    return same;
}

/* ---------------------------------------------------------------------- requests */

struct binding_want bench_want(enum binding_want_kind kind, const char *attempt)
{
    return (struct binding_want){.kind = kind,
                                 .owner = "test",
                                 .attempt = attempt,
                                 .turn_token = "",
                                 .failed_sandbox_id = "",
                                 .created_by = "",
                                 .reap_sandbox_id = "",
                                 .reap_account = ACCOUNT,
                                 .new_alias = "aaaaaaaaaaaaaaaaaaaa"};
}

struct binding_change bench_change(enum binding_change_kind kind, const char *attempt,
                                   uint64_t fence)
{
    return (struct binding_change){.kind = kind,
                                   .token = attempt,
                                   .fence = fence,
                                   .sandbox_id = "",
                                   .attempt = "",
                                   .turn_token = ""};
}

struct binding_bound bench_bound(const char *sandbox_id, uint64_t generation)
{
    struct binding_bound bound = {.backend = "local",
                                  .config_id = "c1",
                                  .account = ACCOUNT,
                                  .template_id = "base",
                                  .generation = generation,
                                  .origin = BINDING_CREATED,
                                  .power = BINDING_RUNNING,
                                  .endpoint = (uint8_t *)"sealed",
                                  .endpoint_size = 6};

    snprintf(bound.sandbox_id, sizeof bound.sandbox_id, "%s", sandbox_id);
    return bound;
}

/* ------------------------------------------------------------------------- steps */

/* Everything any rule needs. */
struct step {
    enum { ACQUIRE, COMMIT, ABORT, RENEW_LOCK, BEGIN, RENEW_TURN, END, USE, TOLD } what;
    struct binding_want want;
    struct binding_change change;
    const char *id, *sandbox_id;
    uint64_t fence;
    bool end;
    enum berth_reason refused;
};

static enum berth_code run_rule(struct step *step, struct binding_view *view,
                                struct binding_plan *plan, struct berth_error *err)
{
    switch (step->what) {
    case ACQUIRE:
        return binding_acquire(view, &step->want, plan, err);
    case COMMIT:
        return binding_commit(view, &step->change, plan, &step->refused, err);
    case ABORT:
        return binding_abort(view, step->id, step->fence, plan, err);
    case RENEW_LOCK:
        return binding_renew_lock(view, step->id, step->fence, plan, err);
    case BEGIN:
        return binding_begin_turn(view, step->id, 0, SECRET, plan, err);
    case RENEW_TURN:
        return binding_renew_turn(view, step->id, plan, err);
    case END:
        return binding_end_turn(view, step->id, plan, err);
    case TOLD:
        return binding_loss_told(view, step->fence, err);
    default:
        return binding_renew_use(view, step->id, step->sandbox_id, step->end, plan, err);
    }
}

static struct outcome run(struct bench *bench, struct step step)
{
    struct outcome outcome = {0};
    struct binding_view view;
    struct binding_plan plan = {0};
    struct berth_error err = {0};
    enum berth_code code;

    bench_read(bench, &view);
    code = run_rule(&step, &view, &plan, &err);
    if (!code)
        code = binding_finish(&view, &plan, false, &err);
    if (code) {
        outcome.reason = err.reason;
        binding_plan_deinit(&plan);
        binding_doc_deinit(&view.doc);
        return outcome;
    }
    outcome.decision = plan.decision;
    outcome.durable = plan.durable;
    outcome.needs_whole = plan.needs_whole;
    outcome.expire_ms = plan.expire_ms;
    outcome.lost = plan.lost;
    outcome.replaced = plan.replaced;
    outcome.refused = step.refused;
    outcome.wrote = view.doc.dirty != 0;
    memcpy(outcome.token, plan.turn_token, sizeof outcome.token);
    ck_assert(bench_write(bench, &view, &plan));
    outcome.fence = view.doc.lock.fence;
    outcome.protected = binding_protected(&view);
    outcome.stale = binding_stale(&view);
    outcome.turn_running = binding_turn_running(&view);
    outcome.n_intents = view.doc.n_intents;
    outcome.n_tokens = view.doc.n_tokens;
    outcome.due_ms = binding_due_ms(&view.doc);
    snprintf(outcome.bound, sizeof outcome.bound, "%s", view.doc.bound.sandbox_id);
    binding_doc_deinit(&view.doc);
    return outcome;
}

struct outcome bench_acquire(struct bench *bench, struct binding_want want)
{
    return run(bench, (struct step){.what = ACQUIRE, .want = want});
}

struct outcome bench_commit(struct bench *bench, struct binding_change change)
{
    return run(bench, (struct step){.what = COMMIT, .change = change});
}

struct outcome bench_abort(struct bench *bench, const char *attempt, uint64_t fence)
{
    return run(bench, (struct step){.what = ABORT, .id = attempt, .fence = fence});
}

struct outcome bench_renew_lock(struct bench *bench, const char *attempt, uint64_t fence)
{
    return run(bench, (struct step){.what = RENEW_LOCK, .id = attempt, .fence = fence});
}

struct outcome bench_begin(struct bench *bench, const char *turn_id)
{
    return run(bench, (struct step){.what = BEGIN, .id = turn_id});
}

struct outcome bench_renew_turn(struct bench *bench, const char *token)
{
    return run(bench, (struct step){.what = RENEW_TURN, .id = token});
}

struct outcome bench_end(struct bench *bench, const char *token)
{
    return run(bench, (struct step){.what = END, .id = token});
}

struct outcome bench_use(struct bench *bench, const char *token, const char *sandbox_id,
                         bool end)
{
    return run(bench,
               (struct step){.what = USE, .id = token, .sandbox_id = sandbox_id, .end = end});
}

struct outcome bench_told(struct bench *bench, uint64_t number)
{
    return run(bench, (struct step){.what = TOLD, .fence = number});
}

struct outcome bench_ensure(struct bench *bench, const char *attempt, const char *turn_token)
{
    struct binding_want want = bench_want(BINDING_WANT_ENSURE, attempt);

    want.turn_token = turn_token;
    return bench_acquire(bench, want);
}

static void bind(struct bench *bench, const char *attempt, const char *sandbox_id,
                 uint64_t generation, enum binding_origin origin)
{
    struct outcome got = bench_ensure(bench, attempt, "");
    struct binding_change change = bench_change(BINDING_CHANGE_BIND, attempt, got.fence);

    ck_reason(got.reason, "");
    ck_assert_int_eq(got.decision, BINDING_ADOPT_OR_CREATE);
    change.bound = bench_bound(sandbox_id, generation);
    change.bound.origin = origin;
    ck_reason(bench_commit(bench, change).reason, "");
}

void bench_create(struct bench *bench, const char *attempt, const char *sandbox_id,
                  uint64_t generation)
{
    bind(bench, attempt, sandbox_id, generation, BINDING_CREATED);
}

void bench_adopt(struct bench *bench, const char *attempt, const char *sandbox_id,
                 uint64_t generation)
{
    bind(bench, attempt, sandbox_id, generation, BINDING_ADOPTED);
}

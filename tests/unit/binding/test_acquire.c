#include "tests/unit/binding/bench.h"

#include <stdio.h>

/* Write a session into a state: 0 none, 1 active and bound to sb1, 2 deleting, 3 a tombstone,
 * 4 active with nothing bound. */
static void put_state(struct bench *bench, int state)
{
    struct binding_change change;
    struct outcome got;

    if (state == 0)
        return;
    bench_create(bench, ATTEMPT("1"), "sb1", 0);
    if (state == 4) {
        struct binding_want want = bench_want(BINDING_WANT_EXISTING, ATTEMPT("2"));

        want.failed_sandbox_id = "sb1";
        got = bench_acquire(bench, want);
        change = bench_change(BINDING_CHANGE_GONE, ATTEMPT("2"), got.fence);
        change.sandbox_id = "sb1";
        ck_reason(bench_commit(bench, change).reason, "");
    }
    if (state != 2 && state != 3)
        return;
    got = bench_acquire(bench, bench_want(BINDING_WANT_DELETE, ATTEMPT("2")));
    ck_reason(got.reason, "");
    if (state == 2) {
        ck_reason(bench_abort(bench, ATTEMPT("2"), got.fence).reason, "");
        return;
    }
    change = bench_change(BINDING_CHANGE_GONE, ATTEMPT("2"), got.fence);
    change.sandbox_id = "sb1";
    change.keep_lock = true;
    ck_reason(bench_commit(bench, change).reason, "");
    change = bench_change(BINDING_CHANGE_DELETE_SESSION, ATTEMPT("2"), got.fence);
    ck_reason(bench_commit(bench, change).reason, "");
}

#define WAIT BINDING_DECIDE_WAIT
/* Each row: state, want, answer: a reason, or "" and a decision. */
static const struct {
    int state;
    enum binding_want_kind want;
    const char *reason;
    enum binding_decision decision;
} state_rows[] = {
    {0, BINDING_WANT_ENSURE, "", BINDING_ADOPT_OR_CREATE},
    {0, BINDING_WANT_EXISTING, "SESSION_NOT_FOUND", 0},
    {0, BINDING_WANT_PAUSE, "SESSION_NOT_FOUND", 0},
    {0, BINDING_WANT_RESUME, "SESSION_NOT_FOUND", 0},
    {0, BINDING_WANT_DELETE, "SESSION_NOT_FOUND", 0},
    {0, BINDING_WANT_REAP, "", BINDING_NONE},
    {1, BINDING_WANT_ENSURE, "", BINDING_USE},
    {1, BINDING_WANT_EXISTING, "", BINDING_USE},
    {1, BINDING_WANT_PAUSE, "", BINDING_PAUSE},
    {1, BINDING_WANT_RESUME, "", BINDING_VERIFY},
    {1, BINDING_WANT_DELETE, "", BINDING_DELETE},
    {1, BINDING_WANT_REAP, "", BINDING_NONE},
    {2, BINDING_WANT_ENSURE, "SESSION_DELETED", 0},
    {2, BINDING_WANT_EXISTING, "SESSION_DELETED", 0},
    {2, BINDING_WANT_PAUSE, "SESSION_DELETED", 0},
    {2, BINDING_WANT_RESUME, "SESSION_DELETED", 0},
    {2, BINDING_WANT_DELETE, "", BINDING_DELETE},
    {2, BINDING_WANT_REAP, "", BINDING_DELETE},
    {3, BINDING_WANT_ENSURE, "SESSION_DELETED", 0},
    {3, BINDING_WANT_EXISTING, "SESSION_NOT_FOUND", 0},
    {3, BINDING_WANT_PAUSE, "SESSION_NOT_FOUND", 0},
    {3, BINDING_WANT_RESUME, "SESSION_NOT_FOUND", 0},
    {3, BINDING_WANT_DELETE, "SESSION_NOT_FOUND", 0},
    {3, BINDING_WANT_REAP, "", BINDING_DELETE},
    {4, BINDING_WANT_ENSURE, "", BINDING_ADOPT_OR_CREATE},
    {4, BINDING_WANT_EXISTING, "", BINDING_NONE},
    {4, BINDING_WANT_PAUSE, "", BINDING_NONE},
    {4, BINDING_WANT_RESUME, "", BINDING_NONE},
    {4, BINDING_WANT_DELETE, "", BINDING_DELETE},
    {4, BINDING_WANT_REAP, "", BINDING_NONE},
};

/* What each want gets in each state of a session. */
START_TEST(acquire__state_and_want__decided)
{
    struct bench bench;
    struct binding_want want = bench_want(state_rows[_i].want, ATTEMPT("9"));
    struct outcome got;

    bench_init(&bench);
    put_state(&bench, state_rows[_i].state);
    want.reap_sandbox_id = "sb1";
    got = bench_acquire(&bench, want);
    ck_reason(got.reason, state_rows[_i].reason);
    if (!got.reason)
        ck_assert_int_eq(got.decision, state_rows[_i].decision);
    /* Exactly what has to hold a lock holds one. */
    if (!got.reason && got.decision != BINDING_USE && got.decision != BINDING_NONE) {
        ck_assert(got.wrote && got.durable);
        ck_assert_uint_gt(got.fence, NOW);
    }
    bench_deinit(&bench);
}
END_TEST

/* Each row: a bound session that is stale, protected, failed, paused; want; decision. */
static const struct {
    bool stale, named, failed;
    enum binding_power power;
    enum binding_want_kind want;
    enum binding_decision decision;
} bound_rows[] = {
    {false, false, false, BINDING_RUNNING, BINDING_WANT_ENSURE, BINDING_USE},
    {true, false, false, BINDING_RUNNING, BINDING_WANT_ENSURE, BINDING_REBUILD},
    {true, true, false, BINDING_RUNNING, BINDING_WANT_ENSURE, BINDING_USE},
    {true, true, true, BINDING_RUNNING, BINDING_WANT_ENSURE, BINDING_VERIFY},
    {true, false, true, BINDING_RUNNING, BINDING_WANT_ENSURE, BINDING_REBUILD},
    {false, false, true, BINDING_RUNNING, BINDING_WANT_ENSURE, BINDING_VERIFY},
    {false, false, false, BINDING_PAUSED, BINDING_WANT_ENSURE, BINDING_VERIFY},
    {false, false, false, BINDING_PAUSING, BINDING_WANT_ENSURE, BINDING_VERIFY},
    {true, false, false, BINDING_PAUSED, BINDING_WANT_ENSURE, BINDING_REBUILD},
    {true, true, false, BINDING_PAUSED, BINDING_WANT_ENSURE, BINDING_VERIFY},
    {true, false, false, BINDING_RUNNING, BINDING_WANT_EXISTING, BINDING_USE},
    {true, false, true, BINDING_RUNNING, BINDING_WANT_EXISTING, BINDING_VERIFY},
    {false, false, false, BINDING_PAUSED, BINDING_WANT_EXISTING, BINDING_VERIFY},
    {true, false, false, BINDING_RUNNING, BINDING_WANT_RESUME, BINDING_VERIFY},
    {true, false, false, BINDING_RUNNING, BINDING_WANT_PAUSE, BINDING_PAUSE},
};

/* A use token is the means of protection here: it neither fails a pause nor is spent. */
START_TEST(acquire__bound__decided_by_stale_protected_failed_power)
{
    struct bench bench;
    struct binding_want want = bench_want(bound_rows[_i].want, ATTEMPT("9"));
    struct binding_change patch;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    if (bound_rows[_i].power != BINDING_RUNNING) {
        got = bench_acquire(&bench, bench_want(BINDING_WANT_RESUME, ATTEMPT("2")));
        patch = bench_change(BINDING_CHANGE_PATCH, ATTEMPT("2"), got.fence);
        patch.bound = bench_bound("sb1", 0);
        patch.bound.power = bound_rows[_i].power;
        ck_reason(bench_commit(&bench, patch).reason, "");
    }
    if (bound_rows[_i].named)
        ck_reason(bench_use(&bench, "use1", "sb1", false).reason, "");
    if (bound_rows[_i].stale)
        bench_flip(&bench, 5);
    if (bound_rows[_i].failed)
        want.failed_sandbox_id = "sb1";
    got = bench_acquire(&bench, want);
    ck_reason(got.reason, "");
    ck_assert_int_eq(got.decision, bound_rows[_i].decision);
    /* A rebuild's grant condemns nothing yet: the holder has to export first. */
    if (got.decision == BINDING_REBUILD)
        ck_assert_uint_eq(got.n_intents, 0);
    bench_deinit(&bench);
}
END_TEST

/* The warm path: nothing to change, nothing written, also while another holds the lock. */
START_TEST(acquire__warm__no_write)
{
    struct bench bench;
    struct outcome got;
    char rev[17];

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    memcpy(rev, bench.rev, sizeof rev);
    got = bench_ensure(&bench, ATTEMPT("2"), "");
    ck_assert_int_eq(got.decision, BINDING_USE);
    ck_assert(!got.wrote);
    got = bench_acquire(&bench, bench_want(BINDING_WANT_RESUME, ATTEMPT("3")));
    ck_assert_int_eq(got.decision, BINDING_VERIFY);
    got = bench_ensure(&bench, ATTEMPT("4"), "");
    ck_assert_int_eq(got.decision, BINDING_USE);
    ck_assert(!got.wrote);
    bench_deinit(&bench);
}
END_TEST

/* A grant writes lock, fence and, where create is keyed, the create intent at once. */
START_TEST(acquire__new_session__record_lock_and_intent_in_one)
{
    struct bench bench;
    struct binding_doc doc;
    struct outcome got;

    bench_init(&bench);
    got = bench_ensure(&bench, ATTEMPT("a"), "");
    ck_assert_int_eq(got.decision, BINDING_ADOPT_OR_CREATE);
    ck_assert(got.durable && got.needs_whole && bench.indexed && !bench.expires);
    bench_doc(&bench, &doc);
    ck_assert_int_eq(doc.session.state, BINDING_STATE_ACTIVE);
    ck_assert_str_eq(doc.session.config_id, "c1");
    ck_assert_str_eq(doc.session.spec->config_id, "c1");
    ck_assert_str_eq(doc.session.alias, "aaaaaaaaaaaaaaaaaaaa");
    ck_assert_str_eq(doc.lock.token, ATTEMPT("a"));
    ck_assert_int_eq(doc.lock.until_ms, NOW + LOCK);
    ck_assert_uint_eq(doc.fence, NOW + 1);
    ck_assert_uint_eq(doc.n_intents, 1);
    ck_assert_int_eq(doc.intents[0].kind, BINDING_INTENT_CREATE);
    ck_assert_str_eq(doc.intents[0].attempt, ATTEMPT("a"));
    ck_assert_str_eq(doc.intents[0].account, ACCOUNT);
    ck_assert_int_eq(doc.intents[0].not_after_ms, NOW + LOCK);
    ck_assert_int_eq(got.due_ms, NOW + LOCK);
    binding_doc_deinit(&doc);
    bench_deinit(&bench);
}
END_TEST

/* Not keyed: the intent is the holder's to write, right before it sends. */
START_TEST(acquire__not_keyed__no_create_intent_yet)
{
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench.config.keyed_create = false;
    got = bench_ensure(&bench, ATTEMPT("a"), "");
    ck_assert_int_eq(got.decision, BINDING_ADOPT_OR_CREATE);
    ck_assert_uint_eq(got.n_intents, 0);
    bench_deinit(&bench);
}
END_TEST

/* A config of the tenant could not be listed since the index was lost: who has no record may
 * have a sandbox there, and waits; who has one goes on. */
START_TEST(acquire__tenant_not_all_listed__only_what_has_a_record)
{
    struct bench bench;

    bench_init(&bench);
    bench.tenant.recovering = true;
    ck_reason(bench_acquire(&bench, bench_want(BINDING_WANT_ENSURE, ATTEMPT("1"))).reason,
              "INDEX_RECOVERING");
    ck_assert(!bench.exists);
    bench.tenant.recovering = false;
    put_state(&bench, 1);
    bench.tenant.recovering = true;
    ck_assert_int_eq(
        bench_acquire(&bench, bench_want(BINDING_WANT_ENSURE, ATTEMPT("2"))).decision,
        BINDING_USE);
    bench_deinit(&bench);
}
END_TEST

/* Tenant and config of a session to be. Each row: what is wrong, the answer. */
static const struct {
    const char *what, *reason;
} new_rows[] = {
    {"tenant", "TENANT_NOT_FOUND"},
    {"disabled", "TENANT_DISABLED"},
    {"no config", "CONFIG_NOT_FOUND"},
    {"config gone", "CONFIG_NOT_FOUND"},
    {"deleting", "CONFIG_NOT_FOUND"},
    {"cordoned", "CONFIG_CORDONED"},
    {"cordon over", ""},
    {"quarantine", "QUARANTINE"},
    {"turn unknown", "TURN_EXPIRED"},
};

START_TEST(acquire__new_session__tenant_and_config_judged)
{
    const char *what = new_rows[_i].what;
    struct bench bench;

    bench_init(&bench);
    if (strcmp(what, "tenant") == 0)
        bench.tenant.exists = false;
    if (strcmp(what, "disabled") == 0)
        bench.tenant.disabled = true;
    if (strcmp(what, "no config") == 0)
        bench.config_id[0] = '\0';
    if (strcmp(what, "config gone") == 0)
        bench.config.exists = false;
    if (strcmp(what, "deleting") == 0)
        snprintf(bench.config.state, sizeof bench.config.state, "deleting");
    if (strcmp(what, "cordoned") == 0)
        bench.config.cordon_until_ms = NOW + 1;
    if (strcmp(what, "cordon over") == 0)
        bench.config.cordon_until_ms = NOW;
    bench.quarantine = strcmp(what, "quarantine") == 0;
    ck_reason(
        bench_ensure(&bench, ATTEMPT("a"), strcmp(what, "turn unknown") == 0 ? "t." SECRET : "")
            .reason,
        new_rows[_i].reason);
    ck_assert_int_eq(bench.exists, !new_rows[_i].reason[0]);
    bench_deinit(&bench);
}
END_TEST

/* A cordon and a config that is going away leave the sessions there are alone. */
START_TEST(acquire__cordoned__old_session_used)
{
    struct bench bench;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    bench.config.cordon_until_ms = INT64_MAX;
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("2"), "").decision, BINDING_USE);
    bench.config.exists = false;
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("2"), "").decision, BINDING_USE);
    bench_deinit(&bench);
}
END_TEST

/* A disabled tenant's sessions can still be paused, deleted and reaped. */
START_TEST(acquire__tenant_disabled__only_what_frees)
{
    struct bench bench;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    bench.tenant.disabled = true;
    ck_reason(bench_ensure(&bench, ATTEMPT("2"), "").reason, "TENANT_DISABLED");
    ck_reason(bench_acquire(&bench, bench_want(BINDING_WANT_EXISTING, ATTEMPT("2"))).reason,
              "TENANT_DISABLED");
    ck_reason(bench_acquire(&bench, bench_want(BINDING_WANT_RESUME, ATTEMPT("2"))).reason,
              "TENANT_DISABLED");
    ck_assert_int_eq(
        bench_acquire(&bench, bench_want(BINDING_WANT_DELETE, ATTEMPT("2"))).decision,
        BINDING_DELETE);
    bench_deinit(&bench);
}
END_TEST

/* must_be_new meets a record; recreate meets a tombstone. */
START_TEST(acquire__must_be_new_and_recreate__as_asked)
{
    struct binding_want want = bench_want(BINDING_WANT_ENSURE, ATTEMPT("9"));
    struct binding_doc doc;
    struct bench bench;
    struct outcome got;
    uint64_t fence;

    bench_init(&bench);
    put_state(&bench, 1);
    want.must_be_new = true;
    ck_reason(bench_acquire(&bench, want).reason, "SESSION_EXISTS");
    bench_deinit(&bench);

    bench_init(&bench);
    put_state(&bench, 3);
    ck_assert(bench.expires && !bench.indexed);
    bench_doc(&bench, &doc);
    fence = doc.fence;
    ck_assert_ptr_null(doc.session.spec);
    ck_assert_str_eq(doc.session.config_id, "");
    binding_doc_deinit(&doc);
    ck_reason(bench_acquire(&bench, want).reason, "SESSION_DELETED");
    want.recreate = true;
    got = bench_acquire(&bench, want);
    ck_assert_int_eq(got.decision, BINDING_ADOPT_OR_CREATE);
    /* The fence goes on where the tombstone kept it. */
    ck_assert_uint_gt(got.fence, fence);
    ck_assert(!bench.expires && bench.indexed);
    bench_deinit(&bench);
}
END_TEST

/* A lock that lives is waited for; at its end it is taken, with a higher fence. */
START_TEST(acquire__locked__waits_until_the_end_exactly)
{
    struct bench bench;
    struct outcome first, got;

    bench_init(&bench);
    first = bench_ensure(&bench, ATTEMPT("a"), "");
    bench.now_ms = NOW + LOCK - 1;
    got = bench_ensure(&bench, ATTEMPT("b"), "");
    ck_assert_int_eq(got.decision, BINDING_DECIDE_WAIT);
    ck_assert(!got.wrote);
    bench.now_ms = NOW + LOCK;
    got = bench_ensure(&bench, ATTEMPT("b"), "");
    ck_assert_int_eq(got.decision, BINDING_ADOPT_OR_CREATE);
    ck_assert_uint_gt(got.fence, first.fence);
    /* The create of the first stays an intent: it may still land. */
    ck_assert_uint_eq(got.n_intents, 2);
    bench_deinit(&bench);
}
END_TEST

/* What needs nothing that the holder might change does not wait for it. */
START_TEST(acquire__locked__existing_waits_only_when_nothing_is_bound)
{
    struct bench bench;

    bench_init(&bench);
    (void)bench_ensure(&bench, ATTEMPT("a"), "");
    ck_assert_int_eq(
        bench_acquire(&bench, bench_want(BINDING_WANT_EXISTING, ATTEMPT("b"))).decision,
        BINDING_DECIDE_WAIT);
    bench.now_ms += LOCK;
    ck_assert_int_eq(
        bench_acquire(&bench, bench_want(BINDING_WANT_EXISTING, ATTEMPT("b"))).decision,
        BINDING_NONE);
    bench_deinit(&bench);
}
END_TEST

/* Fences: above the stored one, above Redis' time, above what the caller saw, also when the
 * clock goes back. Each row: clock step, seen, least fence. */
static const struct {
    int64_t step;
    uint64_t seen;
} fence_rows[] = {{0, 0}, {-8 * 60 * MINUTE, 0}, {8 * 60 * MINUTE, 0}, {0, 3 * (uint64_t)NOW}};

START_TEST(acquire__fence__never_goes_back)
{
    struct binding_want want = bench_want(BINDING_WANT_RESUME, ATTEMPT("2"));
    struct bench bench;
    struct binding_doc doc;
    uint64_t before;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    bench_doc(&bench, &doc);
    before = doc.fence;
    binding_doc_deinit(&doc);
    bench.now_ms += fence_rows[_i].step;
    want.seen_fence = fence_rows[_i].seen;
    got = bench_acquire(&bench, want);
    ck_assert_uint_gt(got.fence, before);
    ck_assert_uint_gt(got.fence, (uint64_t)bench.now_ms);
    ck_assert_uint_gt(got.fence, fence_rows[_i].seen);
    bench_deinit(&bench);
}
END_TEST

/* The reaper: each row is a situation and whether the sandbox may be condemned. */
static const struct {
    const char *what, *id, *account;
    enum binding_decision decision;
} reap_rows[] = {
    {"bound, no activity given", "sb1", ACCOUNT, BINDING_NONE},
    {"bound, idle", "sb1", ACCOUNT, BINDING_DELETE},
    {"bound, active since", "sb1", ACCOUNT, BINDING_NONE},
    {"bound, idle, used", "sb1", ACCOUNT, BINDING_NONE},
    {"bound, idle, turn begun", "sb1", ACCOUNT, BINDING_NONE},
    {"duplicate", "sb2", ACCOUNT, BINDING_DELETE},
    {"duplicate of another account", "sb2", OTHER_ACCOUNT, BINDING_NONE},
    {"condemned", "sb1", ACCOUNT, BINDING_DELETE},
    {"nothing bound", "sb2", ACCOUNT, BINDING_NONE},
};

START_TEST(acquire__reap__only_on_evidence)
{
    const char *what = reap_rows[_i].what;
    struct binding_want want = bench_want(BINDING_WANT_REAP, ATTEMPT("9"));
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    put_state(&bench, strcmp(what, "nothing bound") == 0 ? 4 : 1);
    if (strstr(what, "turn begun"))
        ck_reason(bench_begin(&bench, "t").reason, "");
    bench.now_ms += 10 * MINUTE;
    if (strstr(what, "used"))
        ck_reason(bench_use(&bench, "u", "sb1", false).reason, "");
    want.reap_sandbox_id = reap_rows[_i].id;
    want.reap_account = reap_rows[_i].account;
    if (strstr(what, "idle"))
        want.unless_active_after_ms = bench.now_ms;
    if (strstr(what, "since"))
        want.unless_active_after_ms = NOW - 1;
    if (strcmp(what, "condemned") == 0) {
        want.unless_active_after_ms = bench.now_ms;
        got = bench_acquire(&bench, want);
        ck_assert_int_eq(got.decision, BINDING_DELETE);
        ck_reason(bench_abort(&bench, ATTEMPT("9"), got.fence).reason, "");
        want.unless_active_after_ms = 0;
        want.attempt = ATTEMPT("8");
    }
    got = bench_acquire(&bench, want);
    ck_reason(got.reason, "");
    ck_assert_int_eq(got.decision, reap_rows[_i].decision);
    ck_assert_uint_eq(got.n_intents, got.decision == BINDING_DELETE ? 1 : 0);
    bench_deinit(&bench);
}
END_TEST

/* In quarantine: use, look, pause, resume and delete go on; the rest does not. */
static const struct {
    const char *what, *reason;
    enum binding_decision decision;
} quarantine_rows[] = {
    {"use", "", BINDING_USE},       {"stale", "", BINDING_USE},
    {"failed", "", BINDING_VERIFY}, {"pause", "", BINDING_PAUSE},
    {"resume", "", BINDING_VERIFY}, {"delete", "", BINDING_DELETE},
    {"unbound", "QUARANTINE", 0},   {"duplicate", "QUARANTINE", 0},
    {"idle", "", BINDING_NONE},
};

START_TEST(acquire__quarantine__nothing_made_or_torn_down)
{
    const char *what = quarantine_rows[_i].what;
    struct binding_want want = bench_want(BINDING_WANT_ENSURE, ATTEMPT("9"));
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    put_state(&bench, strcmp(what, "unbound") == 0 ? 4 : 1);
    bench.quarantine = true;
    if (strcmp(what, "stale") == 0)
        bench_flip(&bench, 7);
    if (strcmp(what, "failed") == 0)
        want.failed_sandbox_id = "sb1";
    if (strcmp(what, "pause") == 0)
        want.kind = BINDING_WANT_PAUSE;
    if (strcmp(what, "resume") == 0)
        want.kind = BINDING_WANT_RESUME;
    if (strcmp(what, "delete") == 0)
        want.kind = BINDING_WANT_DELETE;
    if (strcmp(what, "duplicate") == 0 || strcmp(what, "idle") == 0) {
        want.kind = BINDING_WANT_REAP;
        want.reap_sandbox_id = strcmp(what, "idle") == 0 ? "sb1" : "sb2";
        want.unless_active_after_ms = bench.now_ms + 1;
    }
    got = bench_acquire(&bench, want);
    ck_reason(got.reason, quarantine_rows[_i].reason);
    if (!got.reason)
        ck_assert_int_eq(got.decision, quarantine_rows[_i].decision);
    bench_deinit(&bench);
}
END_TEST

/* What a create boots. Each row: the config's image, the session's own, the answer. */
static const struct {
    const char *snapshot, *account, *own_template, *own_snapshot;
    const char *boots;
    uint64_t generation;
} image_rows[] = {
    {"", "", "", "", "base", 4},
    {"snap", ACCOUNT, "", "", "snap", 4},
    {"snap", OTHER_ACCOUNT, "", "", "base", 4},
    {"snap", ACCOUNT, "mine", "", "mine", 0},
    {"snap", ACCOUNT, "", "mysnap", "mysnap", 0},
};

START_TEST(boot_image__config_and_own__chosen)
{
    Berth__Common__V1__SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Common__V1__Image own = BERTH__COMMON__V1__IMAGE__INIT;
    struct binding_want want = bench_want(BINDING_WANT_ENSURE, ATTEMPT("1"));
    struct binding_image image;
    struct binding_view view;
    struct bench bench;

    bench_init(&bench);
    bench.config.image.generation = 4;
    snprintf(bench.config.image.snapshot_id, sizeof bench.config.image.snapshot_id, "%s",
             image_rows[_i].snapshot);
    snprintf(bench.config.image.account, sizeof bench.config.image.account, "%s",
             image_rows[_i].account);
    if (image_rows[_i].own_template[0]) {
        own.source_case = BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID;
        own.template_id = (char *)image_rows[_i].own_template;
        spec.image = &own;
    } else if (image_rows[_i].own_snapshot[0]) {
        own.source_case = BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID;
        own.snapshot_id = (char *)image_rows[_i].own_snapshot;
        spec.image = &own;
    }
    want.spec_if_new = &spec;
    ck_reason(bench_acquire(&bench, want).reason, "");
    bench_read(&bench, &view);
    binding_boot_image(&view, &image);
    ck_assert_str_eq(image.snapshot_id ? image.snapshot_id : image.template_id,
                     image_rows[_i].boots);
    ck_assert_uint_eq(image.generation, image_rows[_i].generation);
    binding_doc_deinit(&view.doc);
    bench_deinit(&bench);
}
END_TEST

/* A session with an image of its own, and an installer's, are never stale. */
START_TEST(stale__own_image_or_maintenance__never)
{
    Berth__Common__V1__SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Common__V1__Image own = BERTH__COMMON__V1__IMAGE__INIT;
    struct binding_want want = bench_want(BINDING_WANT_ENSURE, ATTEMPT("1"));
    struct binding_change bind;
    struct bench bench;
    struct outcome got;

    own.source_case = BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID;
    own.template_id = (char *)"mine";
    bench_init(&bench);
    if (_i == 0)
        spec.image = &own;
    else
        bench.session_id = "sk.row1";
    want.spec_if_new = &spec;
    got = bench_acquire(&bench, want);
    bind = bench_change(BINDING_CHANGE_BIND, ATTEMPT("1"), got.fence);
    bind.bound = bench_bound("sb1", 0);
    ck_reason(bench_commit(&bench, bind).reason, "");
    bench_flip(&bench, 9);
    got = bench_ensure(&bench, ATTEMPT("2"), "");
    ck_assert(!got.stale);
    ck_assert_int_eq(got.decision, BINDING_USE);
    bench_deinit(&bench);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/acquire");
    TCase *tc = tcase_create("acquire");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(tc, acquire__state_and_want__decided, 0, (int)BERTH_COUNT(state_rows));
    tcase_add_loop_test(tc, acquire__bound__decided_by_stale_protected_failed_power, 0,
                        (int)BERTH_COUNT(bound_rows));
    tcase_add_test(tc, acquire__warm__no_write);
    tcase_add_test(tc, acquire__new_session__record_lock_and_intent_in_one);
    tcase_add_test(tc, acquire__not_keyed__no_create_intent_yet);
    tcase_add_test(tc, acquire__tenant_not_all_listed__only_what_has_a_record);
    tcase_add_loop_test(tc, acquire__new_session__tenant_and_config_judged, 0,
                        (int)BERTH_COUNT(new_rows));
    tcase_add_test(tc, acquire__cordoned__old_session_used);
    tcase_add_test(tc, acquire__tenant_disabled__only_what_frees);
    tcase_add_test(tc, acquire__must_be_new_and_recreate__as_asked);
    tcase_add_test(tc, acquire__locked__waits_until_the_end_exactly);
    tcase_add_test(tc, acquire__locked__existing_waits_only_when_nothing_is_bound);
    tcase_add_loop_test(tc, acquire__fence__never_goes_back, 0, (int)BERTH_COUNT(fence_rows));
    tcase_add_loop_test(tc, acquire__reap__only_on_evidence, 0, (int)BERTH_COUNT(reap_rows));
    tcase_add_loop_test(tc, acquire__quarantine__nothing_made_or_torn_down, 0,
                        (int)BERTH_COUNT(quarantine_rows));
    tcase_add_loop_test(tc, boot_image__config_and_own__chosen, 0,
                        (int)BERTH_COUNT(image_rows));
    tcase_add_loop_test(tc, stale__own_image_or_maintenance__never, 0, 2);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

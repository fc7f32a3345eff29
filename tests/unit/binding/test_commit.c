#include "tests/unit/binding/bench.h"

#include <stdio.h>

static struct outcome grant(struct bench *bench, enum binding_want_kind kind,
                            const char *attempt)
{
    struct outcome got = bench_acquire(bench, bench_want(kind, attempt));

    ck_reason(got.reason, "");
    return got;
}

static struct binding_change gone(const char *attempt, uint64_t fence, const char *sandbox_id)
{
    struct binding_change change = bench_change(BINDING_CHANGE_GONE, attempt, fence);

    change.sandbox_id = sandbox_id;
    change.keep_lock = true;
    return change;
}

static struct binding_change intend(enum binding_intent_kind kind, const char *attempt,
                                    uint64_t fence, const char *sandbox_id)
{
    struct binding_change change = bench_change(BINDING_CHANGE_INTEND, attempt, fence);

    change.intent.kind = kind;
    snprintf(change.intent.sandbox_id, sizeof change.intent.sandbox_id, "%s", sandbox_id);
    change.keep_lock = true;
    return change;
}

/* A whole create: bound, its intent gone, the lock back, the event told. */
START_TEST(commit__bind__bound_settled_released)
{
    struct binding_doc doc;
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("a"), "sb1", 3);
    bench_doc(&bench, &doc);
    ck_assert_str_eq(doc.bound.sandbox_id, "sb1");
    ck_assert_uint_eq(doc.bound.generation, 3);
    ck_assert_uint_eq(doc.bound.fence, doc.lock.fence);
    ck_assert_int_eq(doc.bound.create_ms, NOW);
    ck_assert_uint_eq(doc.bound.endpoint_size, 6);
    ck_assert_uint_eq(doc.n_intents, 0);
    ck_assert_int_eq(doc.lock.done, BINDING_DONE_BIND);
    ck_assert_int_eq(binding_due_ms(&doc), 0);
    binding_doc_deinit(&doc);
    ck_assert_str_eq(bench.events, "CREATED ");
    got = bench_acquire(&bench, bench_want(BINDING_WANT_RESUME, ATTEMPT("b")));
    ck_assert_int_eq(got.decision, BINDING_VERIFY);
    bench_deinit(&bench);
}
END_TEST

/* Each row: what the lock looks like when the Commit comes, and the answer. */
static const struct {
    const char *what, *reason;
} lock_rows[] = {
    {"mine", ""},
    {"expired", ""},
    {"other token", "LOCK_LOST"},
    {"other fence", "LOCK_LOST"},
    {"taken over", "LOCK_LOST"},
    {"aborted", "LOCK_LOST"},
    {"repeat", ""},
    {"repeat, other change", "LOCK_LOST"},
};

START_TEST(commit__lock__proven_by_token_and_fence)
{
    const char *what = lock_rows[_i].what;
    struct binding_change change;
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    got = bench_ensure(&bench, ATTEMPT("a"), "");
    change = bench_change(BINDING_CHANGE_BIND, ATTEMPT("a"), got.fence);
    change.bound = bench_bound("sb1", 0);
    if (strcmp(what, "expired") == 0)
        bench.now_ms += 10 * LOCK;
    if (strcmp(what, "other token") == 0)
        change.token = ATTEMPT("b");
    if (strcmp(what, "other fence") == 0)
        change.fence++;
    if (strcmp(what, "taken over") == 0) {
        bench.now_ms += LOCK;
        ck_reason(bench_ensure(&bench, ATTEMPT("b"), "").reason, "");
    }
    if (strcmp(what, "aborted") == 0)
        ck_reason(bench_abort(&bench, ATTEMPT("a"), got.fence).reason, "");
    if (strncmp(what, "repeat", 6) == 0)
        ck_reason(bench_commit(&bench, change).reason, "");
    if (strcmp(what, "repeat, other change") == 0)
        change.kind = BINDING_CHANGE_PATCH;
    got = bench_commit(&bench, change);
    ck_reason(got.reason, lock_rows[_i].reason);
    if (!got.reason)
        ck_assert_str_eq(got.bound, "sb1");
    /* Nothing changes, but a write that was not confirmed is confirmed by this one. */
    if (strcmp(what, "repeat") == 0) {
        ck_assert(got.wrote && got.durable);
        ck_assert_str_eq(bench.events, "CREATED ");
    }
    bench_deinit(&bench);
}
END_TEST

/* Bind refuses what must not be bound. */
START_TEST(commit__bind_beside_another__conflict)
{
    struct binding_change change;
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    got = grant(&bench, BINDING_WANT_RESUME, ATTEMPT("2"));
    change = bench_change(BINDING_CHANGE_BIND, ATTEMPT("2"), got.fence);
    change.bound = bench_bound("sb2", 0);
    ck_reason(bench_commit(&bench, change).reason, "CONFLICT");
    change.bound = bench_bound("sb1", 0);
    snprintf(change.bound.config_id, sizeof change.bound.config_id, "c2");
    ck_reason(bench_commit(&bench, change).reason, "FIELD_INVALID");
    bench_deinit(&bench);
}
END_TEST

/* Gone under another account proves nothing; under its own it frees binding and intents. */
START_TEST(commit__gone__only_under_its_account)
{
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    got = grant(&bench, BINDING_WANT_RESUME, ATTEMPT("2"));
    snprintf(bench.config.account, sizeof bench.config.account, "%s", OTHER_ACCOUNT);
    ck_reason(bench_commit(&bench, gone(ATTEMPT("2"), got.fence, "sb1")).reason,
              "ACCOUNT_CHANGED");
    bench.config.exists = false;
    ck_reason(bench_commit(&bench, gone(ATTEMPT("2"), got.fence, "sb1")).reason,
              "CONFIG_NOT_FOUND");
    bench.config.exists = true;
    snprintf(bench.config.account, sizeof bench.config.account, "%s", ACCOUNT);
    got = bench_commit(&bench, gone(ATTEMPT("2"), got.fence, "sb1"));
    ck_reason(got.reason, "");
    ck_assert_str_eq(got.bound, "");
    ck_assert_ptr_nonnull(strstr(bench.events, "LOST "));
    /* Once more: it is gone already. */
    ck_reason(bench_commit(&bench, gone(ATTEMPT("2"), got.fence, "sb1")).reason, "");
    bench_deinit(&bench);
}
END_TEST

/* Lost and made anew within one grant is told as REPLACED, to turns that go on with it. */
START_TEST(commit__gone_then_bind__replaced_and_turns_follow)
{
    struct binding_want want = bench_want(BINDING_WANT_ENSURE, ATTEMPT("2"));
    struct binding_change change;
    struct binding_doc doc;
    struct bench bench;
    struct outcome got, turn;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    turn = bench_begin(&bench, "t");
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("f"), turn.token).decision, BINDING_USE);
    ck_reason(bench_use(&bench, "u", "sb1", false).reason, "");
    want.turn_token = turn.token;
    want.failed_sandbox_id = "sb1";
    got = bench_acquire(&bench, want);
    ck_assert_int_eq(got.decision, BINDING_VERIFY);
    ck_reason(bench_commit(&bench, gone(ATTEMPT("2"), got.fence, "sb1")).reason, "");
    ck_reason(
        bench_commit(&bench, intend(BINDING_INTENT_CREATE, ATTEMPT("2"), got.fence, "")).reason,
        "");
    change = bench_change(BINDING_CHANGE_BIND, ATTEMPT("2"), got.fence);
    change.bound = bench_bound("sb2", 0);
    change.turn_token = turn.token;
    ck_reason(bench_commit(&bench, change).reason, "");
    ck_assert_ptr_nonnull(strstr(bench.events, "LOST REPLACED "));
    bench_doc(&bench, &doc);
    ck_assert_uint_eq(doc.n_intents, 0);
    /* The turn uses the new one; the stream's use of the old one is over. */
    ck_assert_uint_eq(doc.n_tokens, 1);
    ck_assert_str_eq(doc.tokens[0].sandbox_id, "sb2");
    binding_doc_deinit(&doc);
    bench_deinit(&bench);
}
END_TEST

/* A patch changes what it names and keeps the rest. */
START_TEST(commit__patch__endpoint_end_power)
{
    struct binding_change change;
    struct binding_doc doc;
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 4);
    got = grant(&bench, BINDING_WANT_PAUSE, ATTEMPT("2"));
    ck_assert_uint_eq(got.n_intents, 1);
    change = bench_change(BINDING_CHANGE_PATCH, ATTEMPT("2"), got.fence);
    snprintf(change.bound.sandbox_id, sizeof change.bound.sandbox_id, "sb1");
    change.bound.power = BINDING_PAUSED;
    ck_reason(bench_commit(&bench, change).reason, "");
    bench_doc(&bench, &doc);
    ck_assert_int_eq(doc.bound.power, BINDING_PAUSED);
    ck_assert_uint_eq(doc.bound.endpoint_size, 6);
    ck_assert_uint_eq(doc.bound.generation, 4);
    ck_assert_uint_eq(doc.bound.fence, got.fence);
    ck_assert_uint_eq(doc.n_intents, 0);
    binding_doc_deinit(&doc);
    got = grant(&bench, BINDING_WANT_RESUME, ATTEMPT("3"));
    change = bench_change(BINDING_CHANGE_PATCH, ATTEMPT("3"), got.fence);
    change.bound = bench_bound("sb1", 0);
    change.bound.end_ms = NOW + 5;
    ck_reason(bench_commit(&bench, change).reason, "");
    ck_assert_str_eq(bench.events, "CREATED PAUSED RESUMED ");
    /* Not the bound one. */
    got = grant(&bench, BINDING_WANT_RESUME, ATTEMPT("4"));
    change = bench_change(BINDING_CHANGE_PATCH, ATTEMPT("4"), got.fence);
    change.bound = bench_bound("sb2", 0);
    ck_reason(bench_commit(&bench, change).reason, "CONFLICT");
    bench_deinit(&bench);
}
END_TEST

/* A look for ENSURE spends the turn; one for EXISTING, a resume and a pause do not. */
static const struct {
    enum binding_want_kind want;
    enum binding_power power;
    bool spent;
} spend_rows[] = {
    {BINDING_WANT_ENSURE, BINDING_RUNNING, true},
    {BINDING_WANT_EXISTING, BINDING_RUNNING, false},
    {BINDING_WANT_RESUME, BINDING_RUNNING, false},
    {BINDING_WANT_PAUSE, BINDING_PAUSED, false},
};

START_TEST(commit__patch__spends_for_ensure_only)
{
    struct binding_want want = bench_want(spend_rows[_i].want, ATTEMPT("2"));
    struct binding_change change;
    struct binding_doc doc;
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 4);
    ck_reason(bench_begin(&bench, "t").reason, "");
    want.failed_sandbox_id = "sb1";
    got = bench_acquire(&bench, want);
    change = bench_change(BINDING_CHANGE_PATCH, ATTEMPT("2"), got.fence);
    change.bound = bench_bound("sb1", 0);
    change.bound.power = spend_rows[_i].power;
    ck_reason(bench_commit(&bench, change).reason, "");
    bench_doc(&bench, &doc);
    ck_assert_str_eq(doc.tokens[0].sandbox_id, spend_rows[_i].spent ? "sb1" : "");
    binding_doc_deinit(&doc);
    bench_deinit(&bench);
}
END_TEST

/* Condemning: each row is a situation, the sandbox, the answer. */
static const struct {
    const char *what, *id, *reason;
} condemn_rows[] = {
    {"look", "sb1", "CONFLICT"},
    {"look", "sb9", ""},
    {"look, used", "sb9", ""},
    {"rebuild", "sb1", ""},
    {"rebuild, used", "sb1", "CONFLICT"},
    {"rebuild, rolled back", "sb1", "CONFLICT"},
    {"rebuild, quarantine", "sb1", "CONFLICT"},
};

START_TEST(commit__condemn__only_what_may_go)
{
    const char *what = condemn_rows[_i].what;
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 1);
    if (strncmp(what, "rebuild", 7) == 0) {
        bench_flip(&bench, 2);
        got = grant(&bench, BINDING_WANT_ENSURE, ATTEMPT("2"));
        ck_assert_int_eq(got.decision, BINDING_REBUILD);
    } else {
        got = grant(&bench, BINDING_WANT_RESUME, ATTEMPT("2"));
    }
    if (strstr(what, "used"))
        ck_reason(bench_use(&bench, "u", "sb1", false).reason, "");
    if (strstr(what, "rolled back"))
        bench.config.image.rebuild_before = 0;
    bench.quarantine = strstr(what, "quarantine") != NULL;
    got = bench_commit(
        &bench, intend(BINDING_INTENT_DELETE, ATTEMPT("2"), got.fence, condemn_rows[_i].id));
    ck_reason(got.reason, condemn_rows[_i].reason);
    if (!got.reason) {
        ck_assert_uint_eq(got.n_intents, 1);
        ck_assert(got.durable);
    }
    bench_deinit(&bench);
}
END_TEST

/* A create intent: the lock's own attempt, a lock that may create, out of quarantine. */
START_TEST(commit__intend_create__judged)
{
    struct binding_change change;
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench.config.keyed_create = false;
    got = bench_ensure(&bench, ATTEMPT("a"), "");
    change = intend(BINDING_INTENT_CREATE, ATTEMPT("a"), got.fence, "");
    snprintf(change.intent.attempt, sizeof change.intent.attempt, "%s", ATTEMPT("b"));
    ck_reason(bench_commit(&bench, change).reason, "FIELD_INVALID");
    change.intent.attempt[0] = '\0';
    bench.quarantine = true;
    ck_reason(bench_commit(&bench, change).reason, "QUARANTINE");
    bench.quarantine = false;
    got = bench_commit(&bench, change);
    ck_reason(got.reason, "");
    ck_assert_uint_eq(got.n_intents, 1);
    ck_assert(got.needs_whole);
    /* Once more, later: the same intent, with the later end. */
    change.intent.not_after_ms = NOW + 5 * LOCK;
    ck_assert_uint_eq(bench_commit(&bench, change).n_intents, 1);
    bench_deinit(&bench);

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    got = grant(&bench, BINDING_WANT_RESUME, ATTEMPT("2"));
    ck_reason(bench_commit(&bench, gone(ATTEMPT("2"), got.fence, "sb1")).reason, "");
    ck_reason(
        bench_commit(&bench, intend(BINDING_INTENT_CREATE, ATTEMPT("2"), got.fence, "")).reason,
        "CONFLICT");
    bench_deinit(&bench);
}
END_TEST

/* Settled: the create intent of that attempt goes, others stay. */
START_TEST(commit__settled__that_attempt_only)
{
    struct binding_change change;
    struct binding_doc doc;
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    got = bench_ensure(&bench, ATTEMPT("a"), "");
    bench.now_ms += LOCK;
    got = bench_ensure(&bench, ATTEMPT("b"), "");
    ck_assert_uint_eq(got.n_intents, 2);
    change = bench_change(BINDING_CHANGE_SETTLED, ATTEMPT("b"), got.fence);
    change.attempt = ATTEMPT("a");
    change.keep_lock = true;
    ck_reason(bench_commit(&bench, change).reason, "");
    bench_doc(&bench, &doc);
    ck_assert_uint_eq(doc.n_intents, 1);
    ck_assert_str_eq(doc.intents[0].attempt, ATTEMPT("b"));
    binding_doc_deinit(&doc);
    /* A definite refusal: the own one goes, the lock with it. */
    change.attempt = ATTEMPT("b");
    change.keep_lock = false;
    got = bench_commit(&bench, change);
    ck_assert_uint_eq(got.n_intents, 0);
    ck_assert_int_eq(got.due_ms, 0);
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("c"), "").decision, BINDING_ADOPT_OR_CREATE);
    bench_deinit(&bench);
}
END_TEST

/* A tombstone: only of what is being deleted and known to be gone. */
START_TEST(commit__delete_session__only_when_all_is_gone)
{
    struct binding_change change;
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    ck_reason(bench_begin(&bench, "t").reason, "");
    got = grant(&bench, BINDING_WANT_RESUME, ATTEMPT("2"));
    change = bench_change(BINDING_CHANGE_DELETE_SESSION, ATTEMPT("2"), got.fence);
    ck_reason(bench_commit(&bench, change).reason, "CONFLICT");
    ck_reason(bench_abort(&bench, ATTEMPT("2"), got.fence).reason, "");

    got = grant(&bench, BINDING_WANT_DELETE, ATTEMPT("3"));
    ck_assert_uint_eq(got.n_intents, 1);
    change = bench_change(BINDING_CHANGE_DELETE_SESSION, ATTEMPT("3"), got.fence);
    ck_reason(bench_commit(&bench, change).reason, "CONFLICT");
    ck_reason(bench_commit(&bench, gone(ATTEMPT("3"), got.fence, "sb1")).reason, "");
    got = bench_commit(&bench, change);
    ck_reason(got.reason, "");
    ck_assert_uint_eq(got.n_tokens, 0);
    ck_assert_int_eq(got.due_ms, 0);
    ck_assert(bench.expires && !bench.indexed);
    ck_assert_ptr_nonnull(strstr(bench.events, "SESSION_DELETED "));
    ck_assert_ptr_null(bench.value[BINDING_PART_BINDING]);
    ck_assert_ptr_null(bench.value[BINDING_PART_TURNS]);
    ck_assert_ptr_null(bench.value[BINDING_PART_ENDPOINT]);
    /* Its answer was lost. */
    ck_reason(bench_commit(&bench, change).reason, "");
    bench_deinit(&bench);
}
END_TEST

/* A condemned duplicate that is not known to be gone: no tombstone yet, or it would be
 * forgotten. */
START_TEST(commit__delete_session_with_condemned_duplicate__refused_until_gone)
{
    struct binding_want reap = bench_want(BINDING_WANT_REAP, ATTEMPT("2"));
    struct binding_change change;
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    reap.reap_sandbox_id = "dup";
    reap.reap_account = ACCOUNT;
    got = bench_acquire(&bench, reap);
    ck_assert_int_eq(got.decision, BINDING_DELETE);
    ck_reason(bench_abort(&bench, ATTEMPT("2"), got.fence).reason, "");

    got = grant(&bench, BINDING_WANT_DELETE, ATTEMPT("3"));
    change = bench_change(BINDING_CHANGE_DELETE_SESSION, ATTEMPT("3"), got.fence);
    ck_reason(bench_commit(&bench, gone(ATTEMPT("3"), got.fence, "sb1")).reason, "");
    ck_reason(bench_commit(&bench, change).reason, "CONFLICT");
    ck_reason(bench_commit(&bench, gone(ATTEMPT("3"), got.fence, "dup")).reason, "");
    ck_reason(bench_commit(&bench, change).reason, "");
    bench_deinit(&bench);
}
END_TEST

/* A create that may still land keeps the tombstone from expiring, and due; settled, it goes. */
START_TEST(commit__delete_session_with_unsettled_create__kept_until_settled)
{
    struct binding_want want = bench_want(BINDING_WANT_REAP, ATTEMPT("d"));
    struct binding_change change;
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    got = bench_ensure(&bench, ATTEMPT("a"), "");
    bench.now_ms += LOCK;
    got = grant(&bench, BINDING_WANT_DELETE, ATTEMPT("b"));
    change = bench_change(BINDING_CHANGE_DELETE_SESSION, ATTEMPT("b"), got.fence);
    got = bench_commit(&bench, change);
    ck_reason(got.reason, "");
    ck_assert(!bench.expires);
    ck_assert_int_ne(got.due_ms, 0);
    want.reap_sandbox_id = "late";
    got = bench_acquire(&bench, want);
    ck_assert_int_eq(got.decision, BINDING_DELETE);
    change = bench_change(BINDING_CHANGE_SETTLED, ATTEMPT("d"), got.fence);
    change.attempt = ATTEMPT("a");
    change.keep_lock = true;
    ck_reason(bench_commit(&bench, change).reason, "");
    ck_assert(!bench.expires);
    change = gone(ATTEMPT("d"), got.fence, "late");
    change.keep_lock = false;
    got = bench_commit(&bench, change);
    ck_reason(got.reason, "");
    ck_assert(bench.expires);
    ck_assert_int_eq(got.due_ms, 0);
    bench_deinit(&bench);
}
END_TEST

/* Abort gives back one's own lock and nothing else, as often as it is said. */
START_TEST(abort__any_lock__only_ones_own)
{
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    ck_reason(bench_abort(&bench, ATTEMPT("a"), 1).reason, "");
    got = bench_ensure(&bench, ATTEMPT("a"), "");
    ck_assert(!bench_abort(&bench, ATTEMPT("b"), got.fence).wrote);
    ck_assert(!bench_abort(&bench, ATTEMPT("a"), got.fence - 1).wrote);
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("c"), "").decision, BINDING_DECIDE_WAIT);
    ck_assert(bench_abort(&bench, ATTEMPT("a"), got.fence).wrote);
    ck_assert(!bench_abort(&bench, ATTEMPT("a"), got.fence).wrote);
    got = bench_ensure(&bench, ATTEMPT("c"), "");
    ck_assert_int_eq(got.decision, BINDING_ADOPT_OR_CREATE);
    /* The intent of a stays: its create may still land. */
    ck_assert_uint_eq(got.n_intents, 2);
    bench_deinit(&bench);
}
END_TEST

/* Renewal: each row is what happened before, and the answer. */
static const struct {
    const char *what, *reason;
} renew_rows[] = {
    {"live", ""},
    {"expired", ""},
    {"taken over", "LOCK_LOST"},
    {"aborted", "LOCK_LOST"},
    {"committed", "LOCK_LOST"},
    {"no session", "LOCK_LOST"},
};

START_TEST(renew_lock__what_happened__stands_or_lost)
{
    const char *what = renew_rows[_i].what;
    struct binding_change change;
    struct binding_doc doc;
    struct bench bench;
    struct outcome got = {.fence = 1};

    bench_init(&bench);
    if (strcmp(what, "no session") != 0)
        got = bench_ensure(&bench, ATTEMPT("a"), "");
    if (strcmp(what, "expired") == 0)
        bench.now_ms += 3 * LOCK;
    if (strcmp(what, "taken over") == 0) {
        bench.now_ms += LOCK;
        (void)bench_ensure(&bench, ATTEMPT("b"), "");
    }
    if (strcmp(what, "aborted") == 0)
        (void)bench_abort(&bench, ATTEMPT("a"), got.fence);
    if (strcmp(what, "committed") == 0) {
        change = bench_change(BINDING_CHANGE_BIND, ATTEMPT("a"), got.fence);
        change.bound = bench_bound("sb1", 0);
        ck_reason(bench_commit(&bench, change).reason, "");
    }
    bench.now_ms += 10;
    got = bench_renew_lock(&bench, ATTEMPT("a"), got.fence);
    ck_reason(got.reason, renew_rows[_i].reason);
    if (!got.reason) {
        bench_doc(&bench, &doc);
        ck_assert_int_eq(doc.lock.until_ms, bench.now_ms + LOCK);
        /* A create may be sent until then. */
        ck_assert_int_eq(doc.intents[0].not_after_ms, bench.now_ms + LOCK);
        binding_doc_deinit(&doc);
    }
    bench_deinit(&bench);
}
END_TEST

/* The same endpoint under another key: in the place of those bytes alone, whoever holds the
 * lock, and with the rev that every other writer compares. */
START_TEST(reseal__what_is_stored__compared_and_replaced)
{
    struct binding_view view, old;
    struct binding_plan plan = {0};
    struct binding_doc doc;
    struct bench bench;
    char before[16];

    bench_init(&bench);
    bench_read(&bench, &view);
    ck_assert_int_eq(binding_reseal(&view, "x", 1, "y", 1, NULL), BERTH_NOT_FOUND);
    binding_doc_deinit(&view.doc);
    bench_create(&bench, ATTEMPT("1"), "sb1", 4);
    grant(&bench, BINDING_WANT_PAUSE, ATTEMPT("2")); /* somebody has the lock */
    bench_doc(&bench, &doc);
    ck_assert_uint_eq(doc.bound.endpoint_size, 6);
    memcpy(before, doc.bound.endpoint, 6);
    binding_doc_deinit(&doc);

    bench_read(&bench, &view);
    ck_assert_int_eq(binding_reseal(&view, before, 5, "new", 3, NULL), BERTH_ABORTED);
    ck_assert_int_eq(binding_reseal(&view, "other!", 6, "new", 3, NULL), BERTH_ABORTED);
    ck_assert_int_eq(view.doc.dirty, 0);
    bench_read(&bench, &old);
    ck_assert_int_eq(binding_reseal(&view, before, 6, "new", 3, NULL), BERTH_OK);
    ck_assert(bench_write(&bench, &view, &plan));
    ck_assert_int_eq(binding_reseal(&old, before, 6, "late", 4, NULL), BERTH_OK);
    ck_assert(!bench_write(&bench, &old, &plan)); /* the rev is another one by now */
    binding_doc_deinit(&view.doc);
    binding_doc_deinit(&old.doc);
    bench_doc(&bench, &doc);
    ck_assert_uint_eq(doc.bound.endpoint_size, 3);
    ck_assert_str_eq(doc.bound.sandbox_id, "sb1");
    ck_assert_uint_eq(doc.n_intents, 1);
    ck_assert_str_eq(doc.lock.token, ATTEMPT("2"));
    binding_doc_deinit(&doc);
    bench_deinit(&bench);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/commit");
    TCase *tc = tcase_create("commit");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tc, commit__bind__bound_settled_released);
    tcase_add_loop_test(tc, commit__lock__proven_by_token_and_fence, 0,
                        (int)BERTH_COUNT(lock_rows));
    tcase_add_test(tc, commit__bind_beside_another__conflict);
    tcase_add_test(tc, commit__gone__only_under_its_account);
    tcase_add_test(tc, commit__gone_then_bind__replaced_and_turns_follow);
    tcase_add_test(tc, commit__patch__endpoint_end_power);
    tcase_add_loop_test(tc, commit__patch__spends_for_ensure_only, 0,
                        (int)BERTH_COUNT(spend_rows));
    tcase_add_loop_test(tc, commit__condemn__only_what_may_go, 0,
                        (int)BERTH_COUNT(condemn_rows));
    tcase_add_test(tc, commit__intend_create__judged);
    tcase_add_test(tc, commit__settled__that_attempt_only);
    tcase_add_test(tc, commit__delete_session__only_when_all_is_gone);
    tcase_add_test(tc, commit__delete_session_with_condemned_duplicate__refused_until_gone);
    tcase_add_test(tc, commit__delete_session_with_unsettled_create__kept_until_settled);
    tcase_add_test(tc, abort__any_lock__only_ones_own);
    tcase_add_test(tc, reseal__what_is_stored__compared_and_replaced);
    tcase_add_loop_test(tc, renew_lock__what_happened__stands_or_lost, 0,
                        (int)BERTH_COUNT(renew_rows));
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

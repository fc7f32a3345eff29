/* test_findings.c - the interleavings that break the obvious designs (protocol.md, F1-F28), as
 * far as binding decides them. Each is named by what would break. */
#include "tests/unit/binding/bench.h"

#include <stdio.h>

/* One side of a race: it has read and decided, and has yet to write. */
struct pending {
    struct binding_view view;
    struct binding_plan plan;
};

static enum binding_decision decide(struct bench *bench, struct binding_want want,
                                    struct pending *ret)
{
    *ret = (struct pending){0};
    bench_read(bench, &ret->view);
    ck_assert_int_eq(binding_acquire(&ret->view, &want, &ret->plan, NULL), BERTH_OK);
    return ret->plan.decision;
}

static bool land(struct bench *bench, struct pending *pending)
{
    bool applied = bench_write(bench, &pending->view, &pending->plan);

    binding_doc_deinit(&pending->view.doc);
    return applied;
}

static struct outcome intend_delete(struct bench *bench, const char *attempt, uint64_t fence,
                                    const char *sandbox_id)
{
    struct binding_change change = bench_change(BINDING_CHANGE_INTEND, attempt, fence);

    change.intent.kind = BINDING_INTENT_DELETE;
    snprintf(change.intent.sandbox_id, sizeof change.intent.sandbox_id, "%s", sandbox_id);
    change.keep_lock = true;
    return bench_commit(bench, change);
}

static struct outcome bind(struct bench *bench, const char *attempt, uint64_t fence,
                           const char *sandbox_id, uint64_t generation, const char *turn_token)
{
    struct binding_change change = bench_change(BINDING_CHANGE_BIND, attempt, fence);

    change.bound = bench_bound(sandbox_id, generation);
    change.turn_token = turn_token;
    return bench_commit(bench, change);
}

static struct outcome gone(struct bench *bench, const char *attempt, uint64_t fence,
                           const char *sandbox_id, bool keep_lock)
{
    struct binding_change change = bench_change(BINDING_CHANGE_GONE, attempt, fence);

    change.sandbox_id = sandbox_id;
    change.keep_lock = keep_lock;
    return bench_commit(bench, change);
}

/* F1: two live sandboxes. The next holder inherits the create that may still land, and the
 * first cannot bind what it made too late. */
START_TEST(f01__create_outlives_its_lock__inherited_and_not_bound)
{
    struct bench bench;
    struct outcome a, b;

    bench_init(&bench);
    a = bench_ensure(&bench, ATTEMPT("a"), "");
    bench.now_ms += LOCK;
    b = bench_ensure(&bench, ATTEMPT("b"), "");
    ck_assert_int_eq(b.decision, BINDING_ADOPT_OR_CREATE);
    ck_assert_uint_eq(b.n_intents, 2);
    ck_reason(bind(&bench, ATTEMPT("a"), a.fence, "s2", 0, "").reason, "LOCK_LOST");
    ck_reason(bind(&bench, ATTEMPT("b"), b.fence, "s1", 0, "").reason, "");
    bench_deinit(&bench);
}
END_TEST

/* F1: a create whose outcome is not known, given up: the intent stays for the next. */
START_TEST(f01__create_times_out_and_aborts__intent_stays)
{
    struct bench bench;
    struct outcome a;

    bench_init(&bench);
    a = bench_ensure(&bench, ATTEMPT("a"), "");
    ck_assert_uint_eq(bench_abort(&bench, ATTEMPT("a"), a.fence).n_intents, 1);
    ck_assert_uint_eq(bench_ensure(&bench, ATTEMPT("b"), "").n_intents, 2);
    bench_deinit(&bench);
}
END_TEST

/* F2: teardown mid-turn. What the reaper has condemned is adopted by nobody, though its lock is
 * long over and its delete still on the way. */
START_TEST(f02__condemned_by_reaper__never_adopted)
{
    struct binding_want reap = bench_want(BINDING_WANT_REAP, ATTEMPT("c"));
    struct bench bench;
    struct outcome a, got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "s1", 0);
    reap.reap_sandbox_id = "s2";
    got = bench_acquire(&bench, reap);
    ck_assert_int_eq(got.decision, BINDING_DELETE);
    bench.now_ms += LOCK;
    a = bench_acquire(&bench, bench_want(BINDING_WANT_ENSURE, ATTEMPT("f")));
    ck_assert_int_eq(a.decision, BINDING_USE);
    /* s1 is lost, s2 is found by its tags. */
    reap = bench_want(BINDING_WANT_ENSURE, ATTEMPT("a"));
    reap.failed_sandbox_id = "s1";
    a = bench_acquire(&bench, reap);
    ck_reason(gone(&bench, ATTEMPT("a"), a.fence, "s1", true).reason, "");
    ck_reason(bind(&bench, ATTEMPT("a"), a.fence, "s2", 0, "").reason, "CONFLICT");
    bench_deinit(&bench);
}
END_TEST

/* F2: rebuild decided and condemned, then an admin rolls back: not stale any more, and still
 * never used. */
START_TEST(f02__rolled_back_after_condemning__not_used)
{
    struct bench bench;
    struct outcome b, got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "s1", 1);
    bench_flip(&bench, 2);
    b = bench_ensure(&bench, ATTEMPT("b"), "");
    ck_reason(intend_delete(&bench, ATTEMPT("b"), b.fence, "s1").reason, "");
    bench.config.image.rebuild_before = 0;
    got = bench_ensure(&bench, ATTEMPT("a"), "");
    ck_assert_int_eq(got.decision, BINDING_DECIDE_WAIT);
    bench.now_ms += LOCK;
    got = bench_ensure(&bench, ATTEMPT("a"), "");
    ck_assert_int_eq(got.decision, BINDING_ADOPT_OR_CREATE);
    ck_reason(bind(&bench, ATTEMPT("a"), got.fence, "s1", 1, "").reason, "CONFLICT");
    ck_assert_int_eq(
        bench_acquire(&bench, bench_want(BINDING_WANT_EXISTING, ATTEMPT("d"))).decision,
        BINDING_DECIDE_WAIT);
    bench_deinit(&bench);
}
END_TEST

/* F3, F6: an emptied store does not make fences begin anew. */
START_TEST(f03__store_emptied__fences_go_on)
{
    struct bench bench;
    uint64_t before;

    bench_init(&bench);
    before = bench_ensure(&bench, ATTEMPT("a"), "").fence;
    bench_deinit(&bench);
    bench_init(&bench);
    bench.now_ms = NOW + 1000;
    ck_assert_uint_gt(bench_ensure(&bench, ATTEMPT("b"), "").fence, before);
    bench_deinit(&bench);
}
END_TEST

/* F4: after a loss adoption would tear running turns down. An adopted binding counts as used
 * for one turn lease, and a turn that only its caller knows is believed. */
START_TEST(f04__adopted_old_image__kept_and_turn_believed)
{
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench_flip(&bench, 5);
    bench_adopt(&bench, ATTEMPT("1"), "s1", 1);
    got = bench_ensure(&bench, ATTEMPT("2"), "lost." SECRET);
    ck_assert_int_eq(got.decision, BINDING_USE);
    ck_assert(got.stale && got.protected && got.wrote && got.n_tokens == 1);
    /* Adoption is over, the turn is known now. */
    bench.now_ms += TURN - 1;
    got = bench_renew_turn(&bench, "lost." SECRET);
    ck_reason(got.reason, "");
    bench.now_ms += 1;
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("3"), "").decision, BINDING_USE);
    ck_reason(bench_ensure(&bench, ATTEMPT("3"), "other." SECRET).reason, "TURN_EXPIRED");
    ck_reason(bench_end(&bench, "lost." SECRET).reason, "");
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("3"), "").decision, BINDING_REBUILD);
    bench_deinit(&bench);
}
END_TEST

/* F5: the reaper takes an emptied store for an empty owner list. No record, and a record whose
 * adopter has yet to commit, are no evidence. */
START_TEST(f05__no_record_or_no_binding__nothing_reaped)
{
    struct binding_want reap = bench_want(BINDING_WANT_REAP, ATTEMPT("c"));
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    reap.reap_sandbox_id = "s1";
    got = bench_acquire(&bench, reap);
    ck_assert_int_eq(got.decision, BINDING_NONE);
    ck_assert(!bench.exists);
    (void)bench_ensure(&bench, ATTEMPT("a"), "");
    ck_assert_int_eq(bench_acquire(&bench, reap).decision, BINDING_DECIDE_WAIT);
    bench.now_ms += LOCK;
    ck_assert_int_eq(bench_acquire(&bench, reap).decision, BINDING_NONE);
    bench_deinit(&bench);
}
END_TEST

/* F7: "proven gone" under another account loses the sandbox and the files. */
START_TEST(f07__not_found_under_another_account__frees_nothing)
{
    struct binding_want want = bench_want(BINDING_WANT_ENSURE, ATTEMPT("a"));
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "s1", 0);
    snprintf(bench.config.account, sizeof bench.config.account, "%s", OTHER_ACCOUNT);
    want.failed_sandbox_id = "s1";
    got = bench_acquire(&bench, want);
    ck_reason(gone(&bench, ATTEMPT("a"), got.fence, "s1", true).reason, "ACCOUNT_CHANGED");
    ck_reason(bench_abort(&bench, ATTEMPT("a"), got.fence).reason, "");
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("b"), "").decision, BINDING_USE);
    bench_deinit(&bench);
}
END_TEST

/* F8: B decided to rebuild; a turn's first resolve names the sandbox before B writes. */
START_TEST(f08__turn_spends_between_read_and_grant__grant_refused)
{
    struct pending b;
    struct bench bench;
    struct outcome turn;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "s1", 1);
    turn = bench_begin(&bench, "t");
    bench_flip(&bench, 2);
    ck_assert_int_eq(decide(&bench, bench_want(BINDING_WANT_ENSURE, ATTEMPT("b")), &b),
                     BINDING_REBUILD);
    bench.config.image.rebuild_before = 1; /* A read before the mark */
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("a"), turn.token).decision, BINDING_USE);
    bench_flip(&bench, 2);
    ck_assert(!land(&bench, &b));
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("b"), "").decision, BINDING_USE);
    bench_deinit(&bench);
}
END_TEST

/* F8: B saw the turn run out; its late renewal comes first. And the other way round. */
START_TEST(f08__turn_renewed_between_read_and_grant__one_of_them_refused)
{
    struct pending b;
    struct bench bench;
    struct outcome turn;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "s1", 1);
    turn = bench_begin(&bench, "t");
    (void)bench_ensure(&bench, ATTEMPT("a"), turn.token);
    bench_flip(&bench, 2);
    bench.now_ms += TURN;
    ck_assert_int_eq(decide(&bench, bench_want(BINDING_WANT_ENSURE, ATTEMPT("b")), &b),
                     BINDING_REBUILD);
    ck_reason(bench_renew_turn(&bench, turn.token).reason, "");
    ck_assert(!land(&bench, &b));
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("b"), "").decision, BINDING_USE);

    bench.now_ms += TURN;
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("c"), "").decision, BINDING_REBUILD);
    ck_reason(bench_renew_turn(&bench, turn.token).reason, "TURN_EXPIRED");
    ck_reason(bench_ensure(&bench, ATTEMPT("d"), turn.token).reason, "TURN_EXPIRED");
    bench_deinit(&bench);
}
END_TEST

/* F9: failover forgets an acknowledged BeginTurn: in quarantine nothing is rebuilt, and the
 * turn registers itself again. */
START_TEST(f09__turn_forgotten_by_failover__not_rebuilt)
{
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "s1", 1);
    bench_flip(&bench, 2);
    bench.quarantine = true;
    got = bench_ensure(&bench, ATTEMPT("a"), "");
    ck_assert_int_eq(got.decision, BINDING_USE);
    got = bench_renew_turn(&bench, "t." SECRET);
    ck_reason(got.reason, "");
    bench.quarantine = false;
    got = bench_ensure(&bench, ATTEMPT("b"), "");
    ck_assert_int_eq(got.decision, BINDING_USE);
    ck_assert(got.protected);
    bench_deinit(&bench);
}
END_TEST

/* F9: failover forgets a grant. The holder puts it back, in quarantine only, unless somebody
 * was granted the lock since; and such a lock may not create. */
static const struct {
    const char *what, *reason;
} forgotten_rows[] = {
    {"quarantine", ""}, {"no quarantine", "LOCK_LOST"}, {"granted since", "LOCK_LOST"}};

START_TEST(f09__grant_forgotten_by_failover__put_back_if_nobody_else)
{
    const char *what = forgotten_rows[_i].what;
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "s1", 1);
    bench.now_ms += 10;
    bench.quarantine = strcmp(what, "no quarantine") != 0;
    if (strcmp(what, "granted since") == 0) {
        bench.now_ms += 10;
        got = bench_acquire(&bench, bench_want(BINDING_WANT_RESUME, ATTEMPT("b")));
        ck_assert_int_eq(got.decision, BINDING_VERIFY);
    }
    /* A's grant, fence NOW + 11, was forgotten. */
    got = bench_renew_lock(&bench, ATTEMPT("a"), NOW + 11);
    ck_reason(got.reason, forgotten_rows[_i].reason);
    if (!got.reason) {
        ck_assert_uint_eq(got.fence, NOW + 11);
        ck_assert_int_eq(
            bench_acquire(&bench, bench_want(BINDING_WANT_RESUME, ATTEMPT("c"))).decision,
            BINDING_DECIDE_WAIT);
        ck_reason(intend_delete(&bench, ATTEMPT("a"), NOW + 11, "s1").reason, "CONFLICT");
    }
    bench_deinit(&bench);
}
END_TEST

/* F10: the same fence on both sides does not make it my lock. */
START_TEST(f10__same_fence_other_token__lost)
{
    struct bench bench;
    struct outcome b;

    bench_init(&bench);
    b = bench_ensure(&bench, ATTEMPT("b"), "");
    ck_reason(bind(&bench, ATTEMPT("a"), b.fence, "s1", 0, "").reason, "LOCK_LOST");
    ck_reason(bench_renew_lock(&bench, ATTEMPT("a"), b.fence).reason, "LOCK_LOST");
    bench_deinit(&bench);
}
END_TEST

/* F11: a write that timed out lands after the re-read: not if the re-read is a write first. */
START_TEST(f11__late_write_after_settling__refused)
{
    struct pending late;
    struct bench bench;
    struct outcome a;

    bench_init(&bench);
    a = bench_ensure(&bench, ATTEMPT("a"), "");
    (void)decide(&bench, bench_want(BINDING_WANT_DELETE, ATTEMPT("d")), &late);
    ck_reason(bench_renew_lock(&bench, ATTEMPT("a"), a.fence).reason, "");
    ck_assert(!land(&bench, &late));
    bench_deinit(&bench);
}
END_TEST

/* F13: lost rebuild. Created from the old image while the pointer flips, and never marked:
 * stale all the same, at the next turn. */
START_TEST(f13__flip_during_create__still_stale)
{
    struct bench bench;
    struct outcome a, got;

    bench_init(&bench);
    bench_flip(&bench, 1);
    a = bench_ensure(&bench, ATTEMPT("a"), "");
    bench_flip(&bench, 2);
    ck_reason(bind(&bench, ATTEMPT("a"), a.fence, "s1", 1, "").reason, "");
    got = bench_ensure(&bench, ATTEMPT("b"), "");
    ck_assert(got.stale);
    ck_assert_int_eq(got.decision, BINDING_REBUILD);
    bench_deinit(&bench);
}
END_TEST

/* F14: a pause outlives its lock; a turn begins. What may be frozen is looked at first. */
START_TEST(f14__pause_outlives_its_lock__looked_at_before_use)
{
    struct bench bench;
    struct outcome turn, got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "s1", 0);
    got = bench_acquire(&bench, bench_want(BINDING_WANT_PAUSE, ATTEMPT("e")));
    ck_assert_int_eq(got.decision, BINDING_PAUSE);
    turn = bench_begin(&bench, "t");
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("a"), turn.token).decision,
                     BINDING_DECIDE_WAIT);
    bench.now_ms += LOCK;
    got = bench_ensure(&bench, ATTEMPT("a"), turn.token);
    ck_assert_int_eq(got.decision, BINDING_VERIFY);
    ck_assert_uint_eq(got.n_intents, 1);
    bench_deinit(&bench);
}
END_TEST

/* F14: no pause under a running turn; under a stream, yes; a turn without a sandbox is none. */
START_TEST(f14__pause_under_turn__refused)
{
    struct bench bench;
    struct outcome turn;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "s1", 0);
    ck_reason(bench_use(&bench, "u", "s1", false).reason, "");
    turn = bench_begin(&bench, "t");
    ck_assert_int_eq(
        bench_acquire(&bench, bench_want(BINDING_WANT_PAUSE, ATTEMPT("e"))).decision,
        BINDING_PAUSE);
    bench_deinit(&bench);

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "s1", 0);
    turn = bench_begin(&bench, "t");
    (void)bench_ensure(&bench, ATTEMPT("2"), turn.token);
    ck_reason(bench_acquire(&bench, bench_want(BINDING_WANT_PAUSE, ATTEMPT("e"))).reason,
              "TURN_RUNNING");
    bench_deinit(&bench);
}
END_TEST

/* F16: "spend" as its own step: a lost spend would arm the turn for a rebuild in its middle.
 * The Commit that binds writes the sandbox into the turn, so that an install keeps it. */
START_TEST(f16__bind_for_a_turn__spent_in_the_same_write)
{
    struct bench bench;
    struct outcome turn, got;

    bench_init(&bench);
    got = bench_ensure(&bench, ATTEMPT("a"), "");
    ck_reason(bind(&bench, ATTEMPT("a"), got.fence, "s0", 0, "").reason, "");
    turn = bench_begin(&bench, "t");
    bench_flip(&bench, 1);
    got = bench_ensure(&bench, ATTEMPT("b"), turn.token);
    ck_assert_int_eq(got.decision, BINDING_REBUILD);
    ck_reason(intend_delete(&bench, ATTEMPT("b"), got.fence, "s0").reason, "");
    ck_reason(gone(&bench, ATTEMPT("b"), got.fence, "s0", true).reason, "");
    got = bind(&bench, ATTEMPT("b"), got.fence, "s1", 1, turn.token);
    ck_reason(got.reason, "");
    ck_assert(got.protected);
    bench_flip(&bench, 2);
    got = bench_ensure(&bench, ATTEMPT("c"), turn.token);
    ck_assert_int_eq(got.decision, BINDING_USE);
    ck_assert(!got.wrote);
    /* The next turn gets it. */
    ck_reason(bench_end(&bench, turn.token).reason, "");
    turn = bench_begin(&bench, "t2");
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("d"), turn.token).decision, BINDING_REBUILD);
    bench_deinit(&bench);
}
END_TEST

/* F17: adoption deletes none of the candidates. */
START_TEST(f17__adopted_beside_duplicates__nothing_condemned)
{
    struct binding_doc doc;
    struct bench bench;

    bench_init(&bench);
    bench_adopt(&bench, ATTEMPT("1"), "s1", 0);
    bench_doc(&bench, &doc);
    ck_assert_uint_eq(doc.n_intents, 0);
    ck_assert_int_eq(doc.bound.adopt_ms, NOW);
    binding_doc_deinit(&doc);
    bench_deinit(&bench);
}
END_TEST

/* F19: a stream without a turn is killed by any install: its use token keeps the sandbox. */
START_TEST(f19__stream_without_turn__not_rebuilt)
{
    struct bench bench;
    struct outcome b;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "s1", 0);
    bench_flip(&bench, 1);
    b = bench_ensure(&bench, ATTEMPT("b"), "");
    ck_assert_int_eq(b.decision, BINDING_REBUILD);
    /* The stream began after the grant: the condemning write still sees it. */
    ck_reason(bench_use(&bench, "u", "s1", false).reason, "");
    ck_reason(intend_delete(&bench, ATTEMPT("b"), b.fence, "s1").reason, "CONFLICT");
    ck_reason(bench_abort(&bench, ATTEMPT("b"), b.fence).reason, "");
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("c"), "").decision, BINDING_USE);
    bench_deinit(&bench);
}
END_TEST

/* F23: DeleteSession between check and Commit would leave a bound sandbox of a deleted session.
 * It does not wait for the create; the create's Commit condemns; nothing new begins. */
START_TEST(f23__delete_during_create__condemned_not_bound)
{
    struct bench bench;
    struct outcome a, d, got;
    struct binding_change change;

    bench_init(&bench);
    a = bench_ensure(&bench, ATTEMPT("a"), "");
    d = bench_acquire(&bench, bench_want(BINDING_WANT_DELETE, ATTEMPT("d")));
    ck_assert_int_eq(d.decision, BINDING_DECIDE_WAIT);
    ck_assert(d.wrote && d.durable);
    ck_assert_int_eq(d.due_ms, NOW);
    ck_reason(bench_begin(&bench, "t").reason, "SESSION_DELETED");
    ck_reason(bench_ensure(&bench, ATTEMPT("f"), "").reason, "SESSION_DELETED");
    got = bind(&bench, ATTEMPT("a"), a.fence, "s1", 0, "");
    ck_reason(got.reason, "");
    ck_reason(got.refused, "SESSION_DELETED");
    ck_assert_str_eq(got.bound, "");
    ck_assert_uint_eq(got.n_intents, 1);
    /* The holder deletes it, or whoever comes next. */
    ck_reason(bench_abort(&bench, ATTEMPT("a"), a.fence).reason, "");
    d = bench_acquire(&bench, bench_want(BINDING_WANT_DELETE, ATTEMPT("d")));
    ck_assert_int_eq(d.decision, BINDING_DELETE);
    ck_assert_uint_eq(d.n_intents, 1);
    ck_reason(gone(&bench, ATTEMPT("d"), d.fence, "s1", true).reason, "");
    change = bench_change(BINDING_CHANGE_DELETE_SESSION, ATTEMPT("d"), d.fence);
    ck_reason(bench_commit(&bench, change).reason, "");
    ck_assert(bench.expires);
    bench_deinit(&bench);
}
END_TEST

/* F25: the clock goes back eight hours: a lock and a turn do not last eight hours more. */
START_TEST(f25__clock_set_back__leases_cut)
{
    struct bench bench;
    struct outcome turn, got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "s1", 1);
    turn = bench_begin(&bench, "t");
    (void)bench_ensure(&bench, ATTEMPT("2"), turn.token);
    (void)bench_acquire(&bench, bench_want(BINDING_WANT_RESUME, ATTEMPT("a")));
    bench.now_ms -= 8 * 60 * MINUTE;
    got = bench_acquire(&bench, bench_want(BINDING_WANT_RESUME, ATTEMPT("b")));
    ck_assert_int_eq(got.decision, BINDING_DECIDE_WAIT);
    ck_assert(got.wrote);
    ck_assert_int_eq(got.due_ms, bench.now_ms + TURN);
    bench.now_ms += LOCK;
    got = bench_acquire(&bench, bench_want(BINDING_WANT_RESUME, ATTEMPT("b")));
    ck_assert_int_eq(got.decision, BINDING_VERIFY);
    bench.now_ms += TURN - LOCK;
    bench_flip(&bench, 2);
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("c"), "").decision, BINDING_REBUILD);
    bench_deinit(&bench);
}
END_TEST

/* F25: an adoption seen in the future protects for one lease from now, not until then. */
START_TEST(f25__adopted_in_the_future__protection_cut)
{
    struct bench bench;

    bench_init(&bench);
    bench_adopt(&bench, ATTEMPT("1"), "s1", 0);
    bench_flip(&bench, 3);
    bench.now_ms -= 8 * 60 * MINUTE;
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("2"), "").decision, BINDING_USE);
    bench.now_ms += TURN;
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("3"), "").decision, BINDING_REBUILD);
    bench_deinit(&bench);
}
END_TEST

/* F26: Acquire's lost answer would hold the lock for nobody. The same attempt gets it again. */
START_TEST(f26__answer_lost__same_grant_again)
{
    struct bench bench;
    struct outcome a, again;

    bench_init(&bench);
    a = bench_ensure(&bench, ATTEMPT("a"), "");
    again = bench_ensure(&bench, ATTEMPT("a"), "");
    ck_assert_int_eq(again.decision, a.decision);
    ck_assert_uint_eq(again.fence, a.fence);
    ck_assert_uint_eq(again.n_intents, 1);
    ck_assert(again.wrote && again.durable);
    /* Even when it has run out, as long as nobody else took it: with a whole lease. */
    bench.now_ms += 2 * LOCK;
    again = bench_ensure(&bench, ATTEMPT("a"), "");
    ck_assert_uint_eq(again.fence, a.fence);
    ck_assert(again.wrote);
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("b"), "").decision, BINDING_DECIDE_WAIT);
    /* A late copy of the request after all is over does not take the lock for nobody. */
    ck_reason(bench_abort(&bench, ATTEMPT("a"), a.fence).reason, "");
    ck_reason(bench_ensure(&bench, ATTEMPT("a"), "").reason, "LOCK_LOST");
    bench_deinit(&bench);
}
END_TEST

/* F27: the second report of s1's failure would needlessly look at s2. */
START_TEST(f27__failure_of_another_sandbox__not_counted)
{
    struct binding_want want = bench_want(BINDING_WANT_ENSURE, ATTEMPT("b"));
    struct bench bench;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "s2", 0);
    want.failed_sandbox_id = "s1";
    ck_assert_int_eq(bench_acquire(&bench, want).decision, BINDING_USE);
    want.failed_sandbox_id = "s2";
    ck_assert_int_eq(bench_acquire(&bench, want).decision, BINDING_VERIFY);
    bench_deinit(&bench);
}
END_TEST

/* F28: compensation after the lock is lost would delete what somebody adopted. It cannot be
 * written. */
START_TEST(f28__compensation_without_lock__cannot_condemn)
{
    struct bench bench;
    struct outcome a, b;

    bench_init(&bench);
    a = bench_ensure(&bench, ATTEMPT("a"), "");
    bench.now_ms += LOCK;
    b = bench_ensure(&bench, ATTEMPT("b"), "");
    ck_reason(bind(&bench, ATTEMPT("b"), b.fence, "s1", 0, "").reason, "");
    ck_reason(intend_delete(&bench, ATTEMPT("a"), a.fence, "s1").reason, "LOCK_LOST");
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("c"), "").decision, BINDING_USE);
    bench_deinit(&bench);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/findings");
    TCase *tc = tcase_create("findings");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tc, f01__create_outlives_its_lock__inherited_and_not_bound);
    tcase_add_test(tc, f01__create_times_out_and_aborts__intent_stays);
    tcase_add_test(tc, f02__condemned_by_reaper__never_adopted);
    tcase_add_test(tc, f02__rolled_back_after_condemning__not_used);
    tcase_add_test(tc, f03__store_emptied__fences_go_on);
    tcase_add_test(tc, f04__adopted_old_image__kept_and_turn_believed);
    tcase_add_test(tc, f05__no_record_or_no_binding__nothing_reaped);
    tcase_add_test(tc, f07__not_found_under_another_account__frees_nothing);
    tcase_add_test(tc, f08__turn_spends_between_read_and_grant__grant_refused);
    tcase_add_test(tc, f08__turn_renewed_between_read_and_grant__one_of_them_refused);
    tcase_add_test(tc, f09__turn_forgotten_by_failover__not_rebuilt);
    tcase_add_loop_test(tc, f09__grant_forgotten_by_failover__put_back_if_nobody_else, 0,
                        (int)BERTH_COUNT(forgotten_rows));
    tcase_add_test(tc, f10__same_fence_other_token__lost);
    tcase_add_test(tc, f11__late_write_after_settling__refused);
    tcase_add_test(tc, f13__flip_during_create__still_stale);
    tcase_add_test(tc, f14__pause_outlives_its_lock__looked_at_before_use);
    tcase_add_test(tc, f14__pause_under_turn__refused);
    tcase_add_test(tc, f16__bind_for_a_turn__spent_in_the_same_write);
    tcase_add_test(tc, f17__adopted_beside_duplicates__nothing_condemned);
    tcase_add_test(tc, f19__stream_without_turn__not_rebuilt);
    tcase_add_test(tc, f23__delete_during_create__condemned_not_bound);
    tcase_add_test(tc, f25__clock_set_back__leases_cut);
    tcase_add_test(tc, f25__adopted_in_the_future__protection_cut);
    tcase_add_test(tc, f26__answer_lost__same_grant_again);
    tcase_add_test(tc, f27__failure_of_another_sandbox__not_counted);
    tcase_add_test(tc, f28__compensation_without_lock__cannot_condemn);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

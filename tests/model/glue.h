/* glue.h - the C half of session.pml: what it asks of the rules, and what is read from their
 * answers. Inside the checker; `now` is its state. */

#include "tests/model/words.h"

/* Names for what SPIN prints of a broken assertion. */
enum {
    invariant_1 = 0,
    invariant_2 = 0,
    invariant_3 = 0,
    invariant_5 = 0,
    invariant_7 = 0,
    invariant_8 = 0
};

/* ----------------------------------------------------------------- what is modelled */

/* One run: words NAME=NUMBER of the environment variable MODEL, 0 where not named. */
static struct {
    int keyed, fenced;  /* the backend */
    int start;          /* 0: no record, 1: nothing bound, 2: sandbox 1 bound, generation 1,
                           3: sandbox 2 bound, and 1 left over by a create that was lost,
                           4: nothing bound, and 1 and 2 left over */
    int a, b, r;        /* rounds of the two control planes and the reaper */
    int wants;          /* of B: set of enum binding_want_kind */
    int idle;           /* the reaper has the idle policy, too: 1 pause, 2 kill, 4 delete */
    int looks;          /* it looks at the bound one (1), pauses those beside it (2), does
                           nothing else (4) */
    int pauses;         /* the backend can pause what is found beside the one to adopt */
    int inbound;        /* what lets calls into a sandbox is lost where it is adopted; B begins
                           turns, too */
    int hand;           /* sandboxes that are paused, resumed, ended by hand */
    int turns, use;     /* turns of A; A holds use tokens, too */
    int flips, back;    /* of the image; the last one goes back to generation 1 */
    int expire;         /* locks that run out while they are believed */
    int late, lost;     /* calls given up while they are on their way; calls dropped */
    int crash, unknown; /* crashes of holders; commits whose answer is lost */
    int failover, wipe; /* of the store */
    int renew, dies, lie; /* turn deadlines that pass; sandbox that dies; bare 404s */
    int split;            /* reading and writing of Acquire apart */
    int twice;            /* a second sandbox is no surprise */
    /* Rules that are broken. */
    int no_condemn, no_fence, no_key, no_turns_compared, counter, bare_404, delete_others,
        spend_later, no_quarantine, no_unsure, no_horizon, fence_from_zero, no_epoch,
        forget_sent, no_wait, renew_all, old_list, send_unbelieved, blind_acquire, blind_commit,
        blind_begin;
} cfg;

static const struct {
    const char *name;
    int *value;
} cfg_names[] = {
#define CFG(name)                                                                              \
    {                                                                                          \
#name, &cfg.name                                                                       \
    }
    CFG(keyed),
    CFG(fenced),
    CFG(start),
    CFG(a),
    CFG(b),
    CFG(r),
    CFG(wants),
    CFG(idle),
    CFG(looks),
    CFG(pauses),
    CFG(inbound),
    CFG(hand),
    CFG(turns),
    CFG(use),
    CFG(flips),
    CFG(back),
    CFG(expire),
    CFG(late),
    CFG(lost),
    CFG(crash),
    CFG(unknown),
    CFG(failover),
    CFG(wipe),
    CFG(renew),
    CFG(dies),
    CFG(lie),
    CFG(split),
    CFG(twice),
    CFG(no_condemn),
    CFG(no_fence),
    CFG(no_key),
    CFG(no_turns_compared),
    CFG(counter),
    CFG(bare_404),
    CFG(delete_others),
    CFG(spend_later),
    CFG(no_quarantine),
    CFG(no_unsure),
    CFG(no_horizon),
    CFG(fence_from_zero),
    CFG(no_epoch),
    CFG(forget_sent),
    CFG(no_wait),
    CFG(renew_all),
    CFG(old_list),
    CFG(send_unbelieved),
    CFG(blind_acquire),
    CFG(blind_commit),
    CFG(blind_begin),
#undef CFG
};

static void read_config(void)
{
    const char *at = getenv("MODEL");

    while (at && *at) {
        size_t len = strcspn(at, "= "), i = 0;
        char *end;

        for (; i < sizeof cfg_names / sizeof *cfg_names; i++)
            if (strlen(cfg_names[i].name) == len && !memcmp(cfg_names[i].name, at, len))
                break;
        if (i == sizeof cfg_names / sizeof *cfg_names || at[len] != '=') {
            fprintf(stderr, "model: what is '%s'?\n", at);
            exit(2);
        }
        *cfg_names[i].value = (int)strtol(at + len + 1, &end, 10);
        at = end + strspn(end, " ");
    }
}

/* ------------------------------------------------------------------ compare and set */

/* A write took place: everybody who has read and not written yet compares in vain, unless revs
 * are a counter and repeat after a failover. */
static void store(union model_doc after, union model_answer answer, int c)
{
    now.doc = after;
    if (cfg.split)
        now.rev++;
    if (cfg.failover)
        now.unconfirmed[c] = answer.durable && !cfg.no_wait;
}

static union model_op new_op(int kind)
{
    union model_op op = {.all = 0};

    op.kind = kind;
    op.keyed = cfg.keyed;
    op.rebuild_before = now.rebuild_before;
    op.quarantine = now.quarantine && !cfg.no_quarantine;
    op.unsure = now.unsure && !cfg.no_unsure;
    op.now = cfg.fence_from_zero ? 0 : now.gFence;
    op.blind = kind == MODEL_ACQUIRE      ? cfg.blind_acquire
               : kind < MODEL_ABORT       ? cfg.blind_commit
               : kind == MODEL_OTHER_TURN ? cfg.blind_begin
                                          : 0;
    if (kind != MODEL_ACQUIRE && kind != MODEL_INTEND && kind != MODEL_OTHER_TURN)
        op.blind &= ~BLIND_TOKENS;
    return op;
}

static void read_all(int c)
{
    now.snap[c] = now.doc;
    now.snap_rev[c] = now.rev;
    now.snap_stale[c] = now.rebuild_before;
    now.snap_quarantine[c] = now.quarantine;
    now.snap_unsure[c] = now.unsure;
}

static void forget_read(int c)
{
    now.snap[c].all = 0;
    now.snap_rev[c] = now.snap_stale[c] = 0;
    now.snap_quarantine[c] = now.snap_unsure[c] = 0;
}

/* Is what was read still what is stored, as far as it is compared? */
static int same_as_read(int c)
{
    return cfg.no_turns_compared ? model_same_but_turns(now.doc, now.snap[c])
                                 : now.rev == now.snap_rev[c];
}

static union model_answer do_op(union model_op op, int c)
{
    union model_doc after = now.doc;
    union model_answer answer = model_rule(&after, op);

    if (!answer.reason && answer.needs_whole && !now.epoch && !cfg.no_epoch)
        answer.reason = BERTH_REASON_INDEX_RECOVERING;
    if (!answer.reason && cfg.no_condemn)
        after.condemned = 0;
    if (!answer.reason && answer.dirty)
        store(after, answer, c);
    return answer;
}

/* No delete or pause from before a loss can land any more: the backend's call_horizon. */
static int calls_settled(void)
{
    for (int i = 0; i < SLOTS; i++)
        if (now.call[i] == DELETE || now.call[i] == PAUSE)
            return 0;
    return cfg.no_horizon || (!now.h[0].believed && !now.h[1].believed);
}

/* After a loss: may the recovery pass adopt? */
static int may_recover(void)
{
    return cfg.fenced || calls_settled();
}

/* ----------------------------------------------------------------------- Acquire */

struct acquired {
    int decision; /* or REFUSED */
    int again;    /* it was compared in vain */
    int wrote;
    int evidence; /* there is some that the sandbox may go */
    int s;        /* USE: this one */
};

/* The caller's turn is over: it was told so. */
static void end_turn(void)
{
    now.gTurn = now.gLive = now.gUse = now.gFrozen = 0;
}

static union model_op want_op(int c, int want, int s, int failed)
{
    union model_op op = new_op(MODEL_ACQUIRE);

    op.want = want;
    op.attempt = now.grants + 1;
    op.turn = c == 0 && now.gTurn;
    if (op.turn)
        op.blind &= ~BLIND_TOKENS;
    op.s = want >= REAP ? s : 0;
    op.idle = want == REAP || want == IDLE || want == FINISH;
    op.failed = failed;
    op.recreate = want == ENSURE;
    if (cfg.split) {
        op.rebuild_before = now.snap_stale[c];
        op.quarantine = now.snap_quarantine[c];
        op.unsure = now.snap_unsure[c];
    }
    return op;
}

/* Decide on what was read, and write if that is still what is stored. */
static struct acquired acquire(int c, int want, int s, int failed, int idle_kills)
{
    union model_op op = want_op(c, want, s, failed);
    union model_doc read = cfg.split ? now.snap[c] : now.doc, after = read;
    union model_answer answer = model_rule(&after, op);
    union model_doc seen = after; /* by the caller, too */
    struct acquired ret = {.decision = answer.decision, .s = after.bound};

    ret.evidence = read.state > 1 || read.bound || (read.condemned >> s & 1);
    if (answer.reason == BERTH_REASON_TURN_EXPIRED)
        end_turn();
    if (answer.reason || (answer.needs_whole && !now.epoch && !cfg.no_epoch) ||
        (want == ADOPT && !now.epoch && !may_recover())) {
        ret.decision = REFUSED;
        return ret;
    }
    if (!answer.dirty || (cfg.spend_later && ret.decision == USE))
        return ret;
    if (cfg.split && !same_as_read(c)) {
        ret.again = 1;
        return ret;
    }
    if (cfg.no_condemn)
        after.condemned = 0;
    ret.wrote = 1;
    read = now.doc;
    model_merge(&read, after, answer.dirty);
    store(read, answer, c);
    if (ret.decision >= VERIFY) {
        now.h[c] = model_grant(seen, ret.decision, want, failed, now.generation, op.turn);
        now.b[c] = model_grant_beside(seen, want, s);
        now.b[c].pauses = cfg.pauses;
        if (!cfg.pauses) /* matters only with two to choose from */
            now.b[c].turn = now.b[c].use = 0;
        if (want == IDLE && idle_kills)
            now.h[c].want = TO_KILL;
        now.grants++;
    }
    return ret;
}

/* ------------------------------------------------------------------------ commits */

enum { DONE, LOST, DENIED, DOOMED, CONFLICT };

static int commit(int c, union model_op op)
{
    union model_answer answer;

    op.attempt = now.h[c].attempt;
    op.fence = now.h[c].fence;
    op.turn = now.h[c].turn;
    answer = do_op(op, c);
    if (answer.reason)
        return answer.reason == BERTH_REASON_LOCK_LOST  ? LOST
               : answer.reason == BERTH_REASON_CONFLICT ? CONFLICT
                                                        : DENIED;
    return answer.refused ? DOOMED : DONE;
}

static int commit_bind(int c, int s, int adopted)
{
    union model_op op = new_op(MODEL_BIND);
    int result;

    op.s = s;
    op.gen = now.sgen[s];
    op.adopted = adopted;
    op.unreachable = adopted && cfg.inbound;
    op.settle = now.sattempt[s];
    result = commit(c, op);
    if (result == DOOMED) {
        now.h[c].condemned |= 1U << s & 15;
        now.h[c].sent = 0;
        now.h[c].doomed = 1;
    }
    return result;
}

static int commit_intend(int c, int kind, int s)
{
    union model_op op = new_op(MODEL_INTEND);
    int result;

    op.intent = kind;
    op.s = s;
    op.keep = 1;
    if (cfg.split && kind == 2) {
        /* Judged by what was read; binding reads again where it compares in vain. */
        union model_doc stored = now.doc;
        int same = same_as_read(c);

        if (same)
            now.doc = now.snap[c];
        result = commit(c, op);
        if (same && result == DONE) {
            model_merge(&stored, now.doc, MODEL_INTENTS);
            now.doc = stored;
        } else if (same) {
            now.doc = stored;
        }
    } else {
        result = commit(c, op);
    }
    if (result == DONE && kind == 1)
        now.h[c].creates |= 1U << now.h[c].attempt & 255;
    if (result == DONE && kind == 2)
        now.h[c].condemned |= 1U << s & 15;
    if (result == DONE && kind == 3)
        now.h[c].pausing |= 1U << s & 15;
    return result;
}

static int commit_gone(int c, int s)
{
    union model_op op = new_op(MODEL_GONE);
    int result;

    op.s = s;
    op.keep = 1;
    result = commit(c, op);
    if (result == DONE)
        model_note_gone(&now.h[c], s);
    return result;
}

static void forget(int c)
{
    now.h[c].all = 0;
    now.b[c].all = 0;
}

static int commit_patch(int c, int s, int power)
{
    union model_op op = new_op(MODEL_PATCH);

    op.s = s;
    op.power = power;
    return commit(c, op);
}

/* What a commit says of the power after this step; 0: nothing. */
static int patch_power(int c, int step)
{
    switch (step) {
    case DO_PAUSE:
    case DO_REST:
        return 3;
    case DO_NOTE:
        return now.h[c].seen == 2 ? 3 : 1;
    case DO_KEEP:
    case DO_TELL_OTHER:
        return 0;
    default:
        return 1;
    }
}

static int commit_settled(int c, int attempt)
{
    union model_op op = new_op(MODEL_SETTLED);
    int result;

    op.settle = attempt;
    op.keep = 1;
    result = commit(c, op);
    if (result == DONE)
        now.h[c].creates &= ~(1U << attempt) & 255;
    return result;
}

static int commit_tombstone(int c)
{
    return commit(c, new_op(MODEL_TOMBSTONE));
}

/* The lock is given back, and the intent of a create that was not sent with it. */
static void release(int c)
{
    union model_op op = new_op(now.h[c].sent && !cfg.forget_sent ? MODEL_ABORT : MODEL_SETTLED);

    op.settle = now.h[c].attempt;
    (void)commit(c, op);
    forget(c);
}

/* -------------------------------------------------------------------------- turns */

/* False: refused; the client's turn is over where it was told so. */
static int turn_op(int kind, int s)
{
    union model_op op = new_op(kind);
    union model_answer answer;

    op.s = s;
    answer = do_op(op, 0);
    if (cfg.renew_all && answer.reason && kind == MODEL_RENEW_TURN) {
        now.doc.turn = now.doc.turn_live = 1;
        now.doc.turn_uses = now.gUse;
        return 1;
    }
    if (answer.reason == BERTH_REASON_TURN_EXPIRED && kind == MODEL_RENEW_TURN)
        end_turn();
    return answer.reason == 0;
}

static int other_turn(int c)
{
    return do_op(new_op(MODEL_OTHER_TURN), c).reason == 0 ? DONE : DENIED;
}

/* In quarantine a holder that believes in its lock may have to put it there again. */
static int renewable(int c)
{
    return now.h[c].believed && !(now.doc.lock_set && now.doc.lock_attempt == now.h[c].attempt);
}

static void renew_lock(int c)
{
    union model_op op = new_op(MODEL_RENEW_LOCK);

    op.attempt = now.h[c].attempt;
    op.fence = now.h[c].fence;
    if (do_op(op, c).reason)
        now.h[c].believed = 0;
}

/* ------------------------------------------------------------------------ the plan */

/* Creates that may still land: on their way, or of somebody who believes in his lock. */
static unsigned unsettled(int c)
{
    unsigned set = 0;

    for (int i = 0; i < SLOTS; i++)
        if (now.call[i] == CREATE)
            set |= 1U << now.call_attempt[i];
    for (int i = 0; i < 3; i++)
        if (i != c && now.h[i].believed)
            set |= 1U << now.h[i].attempt;
    return cfg.no_horizon ? 0 : set;
}

static union model_step plan(int c)
{
    unsigned attempts = 0, fences = 0;

    for (int s = 1; s <= MODEL_SANDBOXES; s++) {
        attempts |= (unsigned)now.sattempt[s] << 4 * s;
        fences |= (cfg.fenced ? (unsigned)now.sfence[s] : 0) << 4 * s;
    }
    return model_plan(now.h[c], now.b[c], attempts, fences, unsettled(c), cfg.keyed);
}

static unsigned list(void)
{
    unsigned found = 0;

    for (int s = 1; s <= MODEL_SANDBOXES; s++)
        if (now.st[s] == RUNS || now.st[s] == SLEEPS)
            found |= 1U << s;
    return found;
}

static unsigned running(void)
{
    unsigned found = 0;

    for (int s = 1; s <= MODEL_SANDBOXES; s++)
        if (now.st[s] == RUNS)
            found |= 1U << s;
    return found;
}

/* A list, whole. */
static void look_around(int c)
{
    now.h[c].found = list();
    now.h[c].listed = 1;
    now.h[c].open = cfg.old_list ? 0 : unsettled(c) & 255;
    now.b[c].runs = cfg.pauses ? running() : 0;
}

static int n_live(void)
{
    return __builtin_popcount(list());
}

/* ---------------------------------------------------------------------- the backend */

static int judge_create(int i)
{
    int s = now.key_s;

    if (!cfg.keyed || cfg.no_key)
        return MODEL_MAKE;
    return model_judge_create(now.key_fence, s, s ? now.sattempt[s] : 0, now.key_deleted,
                              s && (now.st[s] == RUNS || now.st[s] == SLEEPS),
                              s ? now.sfence[s] : 0, now.call_fence[i], now.call_attempt[i]);
}

/* May the turn's and the stream's sandbox be taken for known to everybody again? */
static int called(void)
{
    return (!now.gLive || now.gCalled) && (!now.gStream || now.gStreamCalled);
}

/* Holders from before a failover have their lock again, or have given it up. */
static int holders_known(void)
{
    for (int c = 0; c < 3; c++)
        if (now.h[c].believed &&
            !(now.doc.lock_set && now.doc.lock_attempt == now.h[c].attempt))
            return 0;
    return 1;
}

/* The lock in the document is believed in by nobody, and has not run out yet. */
static int lock_left_alone(void)
{
    if (!now.doc.lock_set || !now.doc.lock_live)
        return 0;
    for (int c = 0; c < 3; c++)
        if (now.h[c].believed && now.h[c].attempt == now.doc.lock_attempt)
            return 0;
    return 1;
}

static int fence_passes(int s, int fence)
{
    return !cfg.fenced || cfg.no_fence || model_fence_passes(now.sfence[s], fence);
}

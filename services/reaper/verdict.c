#include "services/reaper/verdict.h"

#include <stddef.h>

/* A command tells of itself after 5 s; what is younger than this may still be running. */
enum { USE_UNTOLD_MS = 10000 };

static struct reaper_verdict keep(enum reaper_why why)
{
    return (struct reaper_verdict){.why = why};
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What nobody owns must be old, too: its owner may be about to say so. */
static struct reaper_verdict once_old(const struct reaper_facts *facts,
                                      const struct reaper_limits *limits, enum reaper_why why,
                                      enum reaper_act act, int64_t hold_ms)
{
    if (!facts->create_ms)
        return keep(REAPER_KEEP_UNKNOWN_AGE);
    return (struct reaper_verdict){.why = why,
                                   .act = act,
                                   .hold_ms = hold_ms,
                                   .ripe_ms = facts->create_ms + limits->grace_ms};
}

int reaper_plight(enum reaper_why why)
{
    return why == REAPER_ADOPT || why == REAPER_SESSION_DELETED || why == REAPER_CONDEMNED
               ? 1
               : (int)why;
}

/* A limit that passes at end_ms, by Redis' clock. By our own it must have been coming for a
 * while by then, so that a clock that jumped ends nothing. */
struct limit {
    int64_t end_ms, hold_ms;
    bool coming; /* from where on hold_ms is counted */
};

static struct limit limit_at(int64_t since_ms, int64_t limit_ms,
                             const struct reaper_limits *limits, int64_t now_ms)
{
    struct limit limit = {.end_ms = since_ms + limit_ms,
                          .hold_ms = min_i64(limit_ms, limits->grace_ms)};

    limit.coming = limit_ms && since_ms && now_ms >= limit.end_ms - limit.hold_ms;
    return limit;
}

static struct reaper_verdict expire(enum reaper_why why, enum reaper_act act,
                                    const struct limit *limit, int64_t unused_since_ms)
{
    return (struct reaper_verdict){.why = why,
                                   .act = act,
                                   .hold_ms = limit->hold_ms,
                                   .ripe_ms = limit->end_ms,
                                   .unless_active_after_ms = unused_since_ms};
}

static struct reaper_verdict judge_bound(const struct reaper_facts *facts,
                                         const struct reaper_limits *limits, int64_t now_ms)
{
    const struct reaper_policy *policy = &facts->policy;
    int64_t active_ms = max_i64(facts->active_ms, facts->create_ms);
    int64_t call_ms = facts->call_ms ? facts->call_ms : active_ms;
    int64_t idle_ms = policy->idle_ms ? max_i64(policy->idle_ms, USE_UNTOLD_MS) : 0;
    /* It was used, then idle, then paused; or paused on somebody's word, which is use. */
    int64_t paused_ms = policy->max_paused_ms ? policy->max_paused_ms + policy->idle_ms : 0;
    struct limit life = limit_at(facts->create_ms, policy->max_lifetime_ms, limits, now_ms);
    struct limit rest = facts->paused ? limit_at(active_ms, paused_ms, limits, now_ms)
                                      : limit_at(active_ms, idle_ms, limits, now_ms);

    if (facts->in_use || policy->timer || !active_ms)
        return keep(REAPER_KEEP_BOUND);
    if (life.coming && (now_ms >= life.end_ms || !rest.coming)) {
        struct reaper_verdict verdict =
            expire(REAPER_MAX_LIFETIME, REAPER_ACT_IDLE_KILL, &life, now_ms - USE_UNTOLD_MS);

        /* What was left running keeps it awake, not alive. */
        verdict.calls_only = true;
        return now_ms - call_ms < USE_UNTOLD_MS ? keep(REAPER_KEEP_BOUND) : verdict;
    }
    if (!rest.coming)
        return keep(REAPER_KEEP_BOUND);
    if (facts->paused)
        return expire(REAPER_MAX_PAUSED, REAPER_ACT_FINISH_DELETE, &rest,
                      now_ms - policy->max_paused_ms);
    return expire(REAPER_IDLE, policy->kill ? REAPER_ACT_IDLE_KILL : REAPER_ACT_IDLE_PAUSE,
                  &rest, now_ms - idle_ms);
}

static struct reaper_verdict judge_active(const struct reaper_facts *facts,
                                          const struct reaper_limits *limits, int64_t now_ms)
{
    int64_t grace_ms = limits->grace_ms;

    if (facts->bound && !facts->same_account)
        return keep(REAPER_OLD_TARGET);
    if (facts->condemned)
        return once_old(facts, limits, REAPER_CONDEMNED, REAPER_ACT_REAP, grace_ms);
    if (facts->bound_here)
        return judge_bound(facts, limits, now_ms);
    if (facts->bound)
        return once_old(facts, limits, REAPER_DUPLICATE, REAPER_ACT_REAP,
                        max_i64(grace_ms, limits->duplicate_grace_ms));
    if (facts->elsewhere)
        return keep(REAPER_OLD_TARGET);
    if (facts->ended)
        return keep(REAPER_KEEP_ENDED);
    return once_old(facts, limits, REAPER_ADOPT, REAPER_ACT_ADOPT, grace_ms);
}

struct reaper_verdict reaper_judge(const struct reaper_facts *facts,
                                   const struct reaper_limits *limits, int64_t now_ms)
{
    switch (facts->tags) {
    case REAPER_TAGS_NONE:
        return keep(REAPER_KEEP_UNTAGGED);
    case REAPER_TAGS_FOREIGN:
        return keep(REAPER_KEEP_FOREIGN);
    case REAPER_TAGS_LATER:
        return keep(REAPER_KEEP_UNREADABLE);
    case REAPER_TAGS_OLD_ACCOUNT:
        return keep(REAPER_OLD_TARGET);
    case REAPER_TAGS_OURS:
        break;
    }
    switch (facts->session) {
    case REAPER_UNREADABLE:
        return keep(REAPER_KEEP_UNREADABLE);
    case REAPER_DELETING:
    case REAPER_DELETED:
        return once_old(facts, limits, REAPER_SESSION_DELETED,
                        facts->session == REAPER_DELETED ? REAPER_ACT_REAP
                                                         : REAPER_ACT_FINISH_DELETE,
                        limits->grace_ms);
    case REAPER_NO_RECORD:
    case REAPER_ACTIVE:
        break;
    }
    return judge_active(facts, limits, now_ms);
}

struct reaper_verdict reaper_meanwhile(const struct reaper_facts *facts,
                                       const struct reaper_limits *limits)
{
    if (facts->tags != REAPER_TAGS_OURS || facts->session != REAPER_ACTIVE || !facts->bound ||
        facts->bound_here || !facts->same_account || facts->condemned || !facts->runs ||
        !facts->policy.can_pause)
        return keep(REAPER_KEEP_YOUNG);
    return once_old(facts, limits, REAPER_DUPLICATE, REAPER_ACT_STILL, limits->grace_ms);
}

int64_t reaper_end_ms(const struct reaper_facts *facts)
{
    const struct reaper_policy *policy = &facts->policy;
    int64_t active_ms = max_i64(facts->active_ms, facts->create_ms), end_ms = facts->end_ms;

    if (policy->timer || facts->in_use || !active_ms)
        return end_ms;
    if (policy->idle_ms && (!end_ms || active_ms + policy->idle_ms < end_ms))
        end_ms = active_ms + policy->idle_ms;
    if (policy->max_lifetime_ms && facts->create_ms &&
        (!end_ms || facts->create_ms + policy->max_lifetime_ms < end_ms))
        end_ms = facts->create_ms + policy->max_lifetime_ms;
    return end_ms;
}

bool reaper_must_look(const struct reaper_facts *facts, int64_t now_ms)
{
    int64_t end_ms = reaper_end_ms(facts);

    if (facts->tags != REAPER_TAGS_OURS || facts->session != REAPER_ACTIVE ||
        !facts->bound_here || facts->condemned || facts->pausing)
        return false;
    if (facts->ended || (facts->sleeps && !facts->paused) || (facts->runs && facts->paused))
        return true;
    return facts->runs && end_ms && facts->policy.warn_ms && facts->told_ms != end_ms &&
           now_ms >= end_ms - facts->policy.warn_ms;
}

struct reaper_verdict reaper_judge_due(const struct reaper_due *due)
{
    struct reaper_verdict verdict = {.why = REAPER_UNSETTLED};

    switch (due->session) {
    case REAPER_DELETING:
        verdict.why = REAPER_SESSION_DELETED;
        verdict.act = REAPER_ACT_FINISH_DELETE;
        return verdict;
    case REAPER_DELETED:
        verdict.act = due->deletes ? REAPER_ACT_REAP : REAPER_ACT_NONE;
        return verdict;
    case REAPER_ACTIVE:
        break;
    default:
        return keep(REAPER_KEEP_UNREADABLE);
    }
    if (due->bound && due->deletes)
        verdict.act = REAPER_ACT_REAP;
    else if (due->creates || due->deletes)
        verdict.act = REAPER_ACT_ADOPT;
    else if (due->bound && due->pauses)
        verdict.act = REAPER_ACT_IDLE_PAUSE;
    else
        return keep(REAPER_KEEP_BOUND);
    return verdict;
}

const char *reaper_why_name(enum reaper_why why)
{
    static const char *const names[REAPER_N_WHY] = {
        [REAPER_CONDEMNED] = "condemned",
        [REAPER_DUPLICATE] = "duplicate",
        [REAPER_SESSION_DELETED] = "session_deleted",
        [REAPER_OLD_TARGET] = "old_target",
        [REAPER_IDLE] = "idle",
        [REAPER_MAX_PAUSED] = "max_paused",
        [REAPER_MAX_LIFETIME] = "max_lifetime",
        [REAPER_KEEP_BOUND] = "bound",
        [REAPER_KEEP_YOUNG] = "young",
        [REAPER_KEEP_UNKNOWN_AGE] = "unknown_age",
        [REAPER_KEEP_FOREIGN] = "foreign",
        [REAPER_KEEP_UNREADABLE] = "unreadable",
        [REAPER_ADOPT] = "adopt",
        [REAPER_KEEP_UNTAGGED] = "untagged",
        [REAPER_KEEP_ENDED] = "ended",
        [REAPER_UNSETTLED] = "unsettled",
        [REAPER_OBSERVE] = "observe",
    };

    return (unsigned)why < REAPER_N_WHY && names[why] ? names[why] : "unknown";
}

/* settle.c - a write whose outcome is not known. It may still be on its way, so that reading
 * proves nothing: first it is made impossible. */
#include <stdio.h>

#include "common/redis/internal.h"
#include "common/time/time.h"

#define STUB_MS "3600000"

/* What is to be settled: the document whose rev is changed (anchor) and the one whose new rev
 * tells (witness); often the same. */
struct question {
    const struct redis_cas_key *anchor, *witness;
    const char *touch_rev;
    int64_t until_tick;
};

static bool tells(const struct redis_cas_key *key)
{
    return key->expected && (key->new_rev[0] || key->deleted);
}

/* An anchor that was there before, the witness where it can be. False: nothing to hold on to.
 */
static bool find_question(const struct berth_cas *cas, struct question *ret)
{
    const struct redis_cas_key *keys, *there = NULL, *both = NULL;
    size_t n = redis_cas_keys(cas, &keys);

    *ret = (struct question){0};
    for (size_t i = n; i-- > 0;) {
        const struct redis_cas_key *key = &keys[i];

        if (tells(key))
            ret->witness = key;
        if (key->expected && key->old_rev[0])
            there = key;
        if (key->expected && key->old_rev[0] && tells(key))
            both = key;
    }
    if (both)
        ret->witness = both;
    ret->anchor = both ? both : there ? there : ret->witness;
    return ret->witness != NULL;
}

/* *ret_rev: of the anchor as it is when it was not the old one any more. */
static enum berth_code touch(struct berth_redis *redis, const struct question *question,
                             bool *ret_applied, char ret_rev[17], struct berth_error *err)
{
    const struct redis_cas_key *anchor = question->anchor;
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    const char *rev = question->touch_rev;
    struct berth_doc doc = {0};
    enum berth_code code;

    berth_cas_expect(cas, anchor->name, anchor->old_rev);
    berth_cas_write(cas, "HSET", anchor->name, "rev", rev, (char *)NULL);
    if (!anchor->old_rev[0])
        berth_cas_write(cas, "PEXPIRE", anchor->name, STUB_MS, (char *)NULL);
    berth_cas_when_full(cas);
    code = redis_cas_run(redis, cas, false, question->until_tick, ret_applied, NULL, &doc, err);
    if (code)
        return code;
    /* It may have been an attempt of before, whose answer was lost as well. */
    *ret_applied = *ret_applied || strcmp(berth_doc_get(&doc, "rev"), rev) == 0;
    snprintf(ret_rev, 17, "%s", *ret_applied ? rev : berth_doc_get(&doc, "rev"));
    berth_doc_deinit(&doc);
    return BERTH_OK;
}

static enum berth_code read_rev(struct berth_redis *redis, const char *key, char ret_rev[17],
                                struct berth_error *err)
{
    static const char *const fields[] = {"rev"};
    const struct berth_redis_get get = {.key = key, .fields = fields, .n_fields = 1};
    struct berth_doc doc = {0};
    int64_t now_ms;
    enum berth_code code = berth_redis_read(redis, &get, 1, &now_ms, &doc, err);

    if (code)
        return code;
    snprintf(ret_rev, 17, "%s", berth_doc_get(&doc, "rev"));
    berth_doc_deinit(&doc);
    return BERTH_OK;
}

static enum berth_outcome judge(const struct redis_cas_key *witness, const char *rev)
{
    if (witness->deleted ? !rev[0] : strcmp(rev, witness->new_rev) == 0)
        return BERTH_OUTCOME_APPLIED;
    return strcmp(rev, witness->old_rev) == 0 ? BERTH_OUTCOME_REFUSED : BERTH_OUTCOME_OVERTAKEN;
}

/* A replica that has this write has the one before. */
static enum berth_code confirm(struct berth_redis *redis, const struct question *question,
                               const char *anchor_rev, struct berth_error *err)
{
    const struct redis_cas_key *witness = question->witness;
    const char *name = witness->deleted ? question->anchor->name : witness->name;
    const char *rev = witness->deleted ? anchor_rev : witness->new_rev;
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    char another[17];
    bool applied = false;
    enum berth_code code;

    berth_cas_expect(cas, name, rev);
    if (rev[0]) {
        berth_cas_write(cas, "HSET", name, "rev", rev, (char *)NULL);
    } else { /* what was deleted is gone: come and go once more */
        berth_cas_write(cas, "HSET", name, "rev", berth_rev_new(another), (char *)NULL);
        berth_cas_write(cas, "DEL", name, (char *)NULL);
    }
    berth_cas_when_full(cas);
    code = redis_cas_run(redis, cas, true, question->until_tick, &applied, NULL, NULL, err);
    if (!code && !applied)
        code = berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN,
                          "redis: written, and written over before a replica had it");
    return code;
}

static enum berth_code settle(struct berth_redis *redis, const struct question *question,
                              bool durable, enum berth_outcome *ret, struct berth_error *err)
{
    bool applied = false, same = question->anchor == question->witness;
    char anchor_rev[17], rev[17];
    enum berth_code code = touch(redis, question, &applied, anchor_rev, err);

    if (code)
        return code;
    if (same && applied) {
        *ret = BERTH_OUTCOME_REFUSED;
        return BERTH_OK;
    }
    if (same)
        memcpy(rev, anchor_rev, sizeof rev);
    else
        code = read_rev(redis, question->witness->name, rev, err);
    if (code)
        return code;
    *ret = judge(question->witness, rev);
    if (*ret == BERTH_OUTCOME_APPLIED && durable && redis_wait_replicas(redis) > 0)
        code = confirm(redis, question, anchor_rev, err);
    return code;
}

enum berth_code berth_cas_settle(struct berth_redis *redis, struct berth_cas *cas, bool durable,
                                 enum berth_outcome *ret, struct berth_error *err)
{
    struct question question;
    struct berth_error why = {0};
    int64_t now = berth_tick_ms(), ms = redis_command_ms(redis);
    enum berth_code code;

    if (!find_question(cas, &question))
        return berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN, NULL);
    question.touch_rev = redis_cas_touch_rev(cas);
    /* Whoever waits has waited for the write already: in all little more than one command. */
    question.until_tick = redis_cas_start_tick(cas) + ms;
    if (question.until_tick < now + ms / 4)
        question.until_tick = now + ms / 4;
    code = settle(redis, &question, durable, ret, &why);
    if (code)
        return berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN, "redis: a write not settled: %s",
                          why.text);
    return BERTH_OK;
}

enum berth_code berth_cas_run_settled(struct berth_redis *redis, struct berth_cas *cas,
                                      bool durable, bool *ret_applied, int64_t *ret_now_ms,
                                      struct berth_error *err)
{
    enum berth_outcome outcome = BERTH_OUTCOME_REFUSED;
    struct berth_error why = {0};
    enum berth_code code =
        berth_cas_run(redis, cas, durable, ret_applied, ret_now_ms, NULL, &why);

    if (code && why.reason == BERTH_REASON_OUTCOME_UNKNOWN) {
        code = berth_cas_settle(redis, cas, durable, &outcome, &why);
        if (!code && outcome == BERTH_OUTCOME_OVERTAKEN)
            code =
                berth_fail(&why, BERTH_REASON_OUTCOME_UNKNOWN,
                           "redis: not known whether it was written, and written over since");
        *ret_applied = !code && outcome == BERTH_OUTCOME_APPLIED;
    }
    if (code && err)
        *err = why;
    return code;
}

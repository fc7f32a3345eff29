/* rules.c - documents in and out of the rules of services/binding, and the table. */
#include "tests/model/rules.h"

#include <stdio.h>

#include "services/binding/core.h"

enum { LEASE = 10, TURN = 20, TABLE_MIN = 1 << 16 };

#define TURN_TOKEN "t.aaaaaaaaaaaaaaaaaaaaaa"
#define OTHER_TOKEN "o.aaaaaaaaaaaaaaaaaaaaaa"
#define USE_TOKEN "u"
#define ACCOUNT "aa"

static const struct binding_limits limits = {.lock_ms = LEASE,
                                             .turn_ms = TURN,
                                             .turn_min_ms = 1,
                                             .turn_max_ms = TURN,
                                             .use_ms = LEASE,
                                             .tombstone_ms = TURN};

/* A rule that cannot be asked makes every answer worthless. */
static void must(enum berth_code code)
{
    if (code) {
        fprintf(stderr, "model: out of memory\n");
        exit(EXIT_FAILURE);
    }
}

static void name_sandbox(char ret[3], unsigned s)
{
    snprintf(ret, 3, s ? "s%u" : "", s);
}

static unsigned sandbox_of(const char *name)
{
    return name[0] ? (unsigned)(name[1] - '0') : 0;
}

static void name_attempt(char ret[3], unsigned attempt)
{
    snprintf(ret, 3, attempt ? "%02x" : "", attempt);
}

static unsigned attempt_of(const char *name)
{
    return name[0] ? (unsigned)strtoul(name, NULL, 16) : 0;
}

/* --------------------------------------------------------- in and out of documents */

static void add_intent(struct binding_doc *doc, enum binding_intent_kind kind, unsigned s,
                       unsigned attempt)
{
    struct binding_intent *intent;

    must(binding_doc_add_intent(doc, &intent, NULL));
    intent->kind = kind;
    intent->not_after_ms = -1; /* the model itself says what may still land */
    name_sandbox(intent->sandbox_id, s);
    name_attempt(intent->attempt, attempt);
    snprintf(intent->account, sizeof intent->account, ACCOUNT);
}

static void add_token(struct binding_doc *doc, enum binding_token_kind kind, const char *text,
                      unsigned s, int64_t deadline_ms)
{
    struct binding_token *token;

    must(binding_doc_add_token(doc, &token, NULL));
    token->kind = kind;
    token->lease_ms = kind == BINDING_TURN ? TURN : LEASE;
    token->deadline_ms = deadline_ms;
    snprintf(token->token, sizeof token->token, "%s", text);
    name_sandbox(token->sandbox_id, s);
}

static void unpack(union model_doc from, int64_t now_ms, struct binding_doc *doc)
{
    *doc = (struct binding_doc){.rev = "0", .fence = from.fence, .active_ms = now_ms};
    doc->session.state = (enum binding_state)from.state;
    snprintf(doc->session.config_id, sizeof doc->session.config_id, "c");
    snprintf(doc->session.alias, sizeof doc->session.alias, "aaaaaaaaaaaaaaaaaaaa");
    if (from.bound) {
        doc->bound.set = true;
        doc->bound.generation = from.gen;
        doc->bound.power = (enum binding_power)from.power;
        doc->bound.inbound_lost = from.unreachable;
        doc->bound.origin = from.young ? BINDING_ADOPTED : BINDING_CREATED;
        doc->bound.adopt_ms = from.young ? now_ms : 0;
        name_sandbox(doc->bound.sandbox_id, from.bound);
        snprintf(doc->bound.account, sizeof doc->bound.account, ACCOUNT);
        snprintf(doc->bound.config_id, sizeof doc->bound.config_id, "c");
    }
    if (from.lock_set) {
        doc->lock = (struct binding_lock){.set = true,
                                          .done = (enum binding_done)from.lock_done,
                                          .op = (enum binding_decision)from.lock_op,
                                          .want = (enum binding_want_kind)from.lock_want,
                                          .fence = from.lock_fence,
                                          .lease_ms = LEASE,
                                          .until_ms = now_ms + (from.lock_live ? LEASE : -1)};
        name_attempt(doc->lock.token, from.lock_attempt);
    }
    for (unsigned s = 1; s <= MODEL_SANDBOXES; s++) {
        if (from.condemned & 1U << s)
            add_intent(doc, BINDING_INTENT_DELETE, s, 0);
        if (from.pausing & 1U << s)
            add_intent(doc, BINDING_INTENT_PAUSE, s, 0);
    }
    for (unsigned attempt = 1; attempt <= MODEL_ATTEMPTS; attempt++)
        if (from.creates & 1U << attempt)
            add_intent(doc, BINDING_INTENT_CREATE, 0, attempt);
    if (from.turn)
        add_token(doc, BINDING_TURN, TURN_TOKEN, from.turn_uses,
                  now_ms + (from.turn_live ? TURN : -1));
    if (from.use)
        add_token(doc, BINDING_USE_TOKEN, USE_TOKEN, from.use_uses,
                  now_ms + (from.use_live ? LEASE : -1));
    doc->dirty = 0;
}

static void pack_lists(const struct binding_doc *doc, int64_t now_ms, union model_doc *ret)
{
    for (size_t i = 0; i < doc->n_intents; i++) {
        const struct binding_intent *intent = &doc->intents[i];

        if (intent->kind == BINDING_INTENT_CREATE)
            ret->creates |= 1U << attempt_of(intent->attempt) & 0xff;
        else if (intent->kind == BINDING_INTENT_DELETE)
            ret->condemned |= 1U << sandbox_of(intent->sandbox_id) & 0xf;
        else
            ret->pausing |= 1U << sandbox_of(intent->sandbox_id) & 0xf;
    }
    for (size_t i = 0; i < doc->n_tokens; i++) {
        const struct binding_token *token = &doc->tokens[i];
        bool live = binding_token_live(token, now_ms);

        if (token->kind == BINDING_TURN) {
            ret->turn = 1;
            ret->turn_live = live;
            ret->turn_uses = sandbox_of(token->sandbox_id) & 3;
        } else {
            ret->use = 1;
            ret->use_live = live;
            ret->use_uses = sandbox_of(token->sandbox_id) & 3;
        }
    }
}

static union model_doc pack(const struct binding_doc *doc, int64_t now_ms)
{
    union model_doc ret = {.all = 0};

    ret.state = doc->session.state & 3;
    ret.fence = doc->fence & 0xf;
    if (doc->bound.set) {
        ret.bound = sandbox_of(doc->bound.sandbox_id) & 3;
        ret.power = doc->bound.power & 3;
        ret.gen = doc->bound.generation & 3;
        ret.unreachable = doc->bound.inbound_lost;
        ret.young = doc->bound.origin == BINDING_ADOPTED &&
                    now_ms < doc->bound.adopt_ms + limits.turn_ms;
    }
    if (doc->lock.set) {
        ret.lock_set = 1;
        ret.lock_live = !doc->lock.done && doc->lock.until_ms > now_ms;
        ret.lock_attempt = attempt_of(doc->lock.token) & 0xf;
        ret.lock_fence = doc->lock.fence & 0xf;
        ret.lock_done = doc->lock.done & 7;
        /* What was done under a lock that has been given back is not asked any more. */
        ret.lock_op = doc->lock.done ? 0 : doc->lock.op & 7;
        ret.lock_want = doc->lock.done ? 0 : doc->lock.want & 15;
    }
    pack_lists(doc, now_ms, &ret);
    return ret;
}

/* ----------------------------------------------------------------------- the rules */

static enum berth_code acquire(struct binding_view *view, union model_op op,
                               struct binding_plan *plan, struct berth_error *err)
{
    char attempt[3], failed[3], s[3];
    struct binding_want want = {.kind = (enum binding_want_kind)op.want,
                                .owner = "model",
                                .attempt = attempt,
                                .turn_token = op.turn ? TURN_TOKEN : "",
                                .failed_sandbox_id = failed,
                                .created_by = "",
                                .reap_sandbox_id = s,
                                .reap_account = ACCOUNT,
                                .unless_active_after_ms = op.idle ? view->now_ms + 1 : 0,
                                .recreate = op.recreate,
                                .new_alias = "aaaaaaaaaaaaaaaaaaaa"};

    name_attempt(attempt, op.attempt);
    name_sandbox(failed, op.failed);
    name_sandbox(s, op.s);
    return binding_acquire(view, &want, plan, err);
}

static enum berth_code commit(struct binding_view *view, union model_op op,
                              struct binding_plan *plan, enum berth_reason *ret_refused,
                              struct berth_error *err)
{
    static const enum binding_change_kind kinds[] = {
        [MODEL_BIND] = BINDING_CHANGE_BIND,
        [MODEL_GONE] = BINDING_CHANGE_GONE,
        [MODEL_PATCH] = BINDING_CHANGE_PATCH,
        [MODEL_INTEND] = BINDING_CHANGE_INTEND,
        [MODEL_SETTLED] = BINDING_CHANGE_SETTLED,
        [MODEL_TOMBSTONE] = BINDING_CHANGE_DELETE_SESSION,
    };
    char token[3], s[3], settle[3];
    struct binding_change change = {.kind = kinds[op.kind],
                                    .token = token,
                                    .fence = op.fence,
                                    .sandbox_id = s,
                                    .attempt = settle,
                                    .keep_lock = op.keep,
                                    .turn_token = op.turn ? TURN_TOKEN : ""};

    name_attempt(token, op.attempt);
    name_sandbox(s, op.s);
    name_attempt(settle, op.settle);
    change.bound.generation = op.gen;
    change.bound.power = (enum binding_power)op.power;
    change.bound.origin = op.adopted ? BINDING_ADOPTED : BINDING_CREATED;
    change.bound.inbound_lost = op.unreachable;
    snprintf(change.bound.config_id, sizeof change.bound.config_id, "c");
    snprintf(change.bound.account, sizeof change.bound.account, ACCOUNT);
    snprintf(change.bound.sandbox_id, sizeof change.bound.sandbox_id, "%s", s);
    /* A created one says its attempt, which is the lock's; an adopted one that of its tag. */
    snprintf(change.bound.attempt, sizeof change.bound.attempt, "%s", settle);
    change.intent.kind = (enum binding_intent_kind)op.intent;
    if (op.intent != BINDING_INTENT_CREATE)
        snprintf(change.intent.sandbox_id, sizeof change.intent.sandbox_id, "%s", s);
    return binding_commit(view, &change, plan, ret_refused, err);
}

static enum berth_code other_turn(struct binding_view *view, struct binding_plan *plan,
                                  struct berth_error *err)
{
    enum berth_code code =
        binding_begin_turn(view, "o", 0, strchr(TURN_TOKEN, '.') + 1, plan, err);

    return code ? code : binding_end_turn(view, OTHER_TOKEN, plan, err);
}

static enum berth_code apply(struct binding_view *view, union model_op op,
                             struct binding_plan *plan, enum berth_reason *ret_refused,
                             struct berth_error *err)
{
    char token[3], s[3];

    name_attempt(token, op.attempt);
    name_sandbox(s, op.s);
    switch ((enum model_kind)op.kind) {
    case MODEL_ACQUIRE:
        return acquire(view, op, plan, err);
    case MODEL_ABORT:
        return binding_abort(view, token, op.fence, plan, err);
    case MODEL_RENEW_LOCK:
        return binding_renew_lock(view, token, op.fence, plan, err);
    case MODEL_BEGIN_TURN:
        return binding_begin_turn(view, "t", 0, strchr(TURN_TOKEN, '.') + 1, plan, err);
    case MODEL_OTHER_TURN:
        return other_turn(view, plan, err);
    case MODEL_RENEW_TURN:
        return binding_renew_turn(view, TURN_TOKEN, plan, err);
    case MODEL_END_TURN:
        return binding_end_turn(view, TURN_TOKEN, plan, err);
    case MODEL_RENEW_USE:
    case MODEL_END_USE:
        return binding_renew_use(view, USE_TOKEN, s, op.kind == MODEL_END_USE, plan, err);
    default:
        return commit(view, op, plan, ret_refused, err);
    }
}

static void fill_config(struct binding_view *view, union model_op op)
{
    snprintf(view->config_id, sizeof view->config_id, "c");
    view->tenant.exists = true;
    view->config.exists = true;
    view->config.keyed_create = op.keyed;
    view->config.image.rebuild_before = op.rebuild_before;
    snprintf(view->config.state, sizeof view->config.state, "active");
    snprintf(view->config.account, sizeof view->config.account, ACCOUNT);
}

static union model_answer ask(union model_doc *doc, union model_op op)
{
    struct binding_view view = {.session_id = "s",
                                .limits = &limits,
                                .now_ms = op.now,
                                .quarantine = op.quarantine,
                                .unsure = op.unsure};
    struct binding_plan plan = {0};
    struct berth_error err = {0};
    enum berth_reason refused = BERTH_REASON_NONE;
    union model_answer ret = {.all = 0};
    enum berth_code code;

    fill_config(&view, op);
    unpack(*doc, view.now_ms, &view.doc);
    code = apply(&view, op, &plan, &refused, &err);
    if (!code)
        code = binding_finish(&view, &plan, false, &err);
    if (code) {
        ret.reason = err.reason & 0xff;
    } else {
        ret.decision = plan.decision & 0xf;
        ret.durable = plan.durable;
        ret.needs_whole = plan.needs_whole;
        ret.refused = refused != BERTH_REASON_NONE;
        ret.dirty = view.doc.dirty & 0x3ff;
        *doc = pack(&view.doc, view.now_ms);
    }
    binding_plan_deinit(&plan);
    binding_doc_deinit(&view.doc);
    return ret;
}

/* ------------------------------------------------------- what a broken rule leaves out */

static union model_answer ask_blind(union model_doc *doc, union model_op op)
{
    const union model_doc none = {.all = 0};
    union model_doc seen = *doc;
    unsigned hidden = 0;
    union model_answer ret;

    if (op.blind & BLIND_CONDEMNED)
        seen.condemned = 0;
    if (op.blind & BLIND_TOKENS)
        model_merge(&seen, none, 1U << BINDING_PART_TURNS);
    if (op.blind & BLIND_YOUNG)
        seen.young = 0;
    if (op.blind & BLIND_STATE && seen.state == BINDING_STATE_DELETING)
        seen.state = BINDING_STATE_ACTIVE;
    if (op.blind & BLIND_LOCK && seen.lock_set) {
        op.attempt = seen.lock_attempt;
        op.fence = seen.lock_fence;
    }
    if (op.blind & BLIND_BOUND && !seen.bound && op.s)
        seen.condemned |= 1U << op.s & 0xf;
    if (op.blind & BLIND_BESIDE && op.want == BINDING_WANT_STILL && seen.bound == op.s)
        seen.bound = op.s % MODEL_SANDBOXES + 1;
    ret = ask(&seen, op);
    if (ret.reason)
        return ret;
    if (op.blind & BLIND_BESIDE && !(ret.dirty & 1U << BINDING_PART_BINDING))
        hidden |= 1U << BINDING_PART_BINDING;
    /* What was hidden is still there, unless the rule has written it. */
    if (op.blind & BLIND_TOKENS &&
        (op.kind == MODEL_OTHER_TURN || !(ret.dirty & 1U << BINDING_PART_TURNS)))
        hidden |= 1U << BINDING_PART_TURNS;
    if (op.blind & BLIND_STATE && !(ret.dirty & 1U << BINDING_PART_SESSION))
        hidden |= 1U << BINDING_PART_SESSION;
    if (op.blind & BLIND_YOUNG && seen.bound == doc->bound)
        seen.young = doc->young;
    if (op.blind & BLIND_CONDEMNED)
        seen.condemned |= doc->condemned;
    model_merge(&seen, *doc, hidden);
    *doc = seen;
    return ret;
}

/* ----------------------------------------------------------------------- the table */

struct entry {
    uint64_t doc, op, doc_after, answer;
};

static struct entry *table;
static size_t table_size, table_used;

/* The entry, or the free place for it. op is never 0. */
static struct entry *find(uint64_t doc, uint64_t op)
{
    uint64_t hash = (doc ^ op * 0x9e3779b97f4a7c15U) * 0xff51afd7ed558ccdU;

    hash ^= hash >> 32;
    for (size_t i = hash & (table_size - 1);; i = (i + 1) & (table_size - 1))
        if (!table[i].op || (table[i].op == op && table[i].doc == doc))
            return &table[i];
}

static void grow(void)
{
    struct entry *old = table;
    size_t old_size = table_size;

    table_size = old_size ? 2 * old_size : TABLE_MIN;
    table = calloc(table_size, sizeof *table);
    must(table ? BERTH_OK : BERTH_RESOURCE_EXHAUSTED);
    for (size_t i = 0; i < old_size; i++)
        if (old[i].op)
            *find(old[i].doc, old[i].op) = old[i];
    free(old);
}

union model_answer model_rule(union model_doc *doc, union model_op op)
{
    union model_answer answer;
    struct entry *entry;

    if (2 * table_used >= table_size)
        grow();
    entry = find(doc->all, op.all);
    if (!entry->op) {
        union model_doc after = *doc;

        answer = op.blind ? ask_blind(&after, op) : ask(&after, op);
        *entry = (struct entry){doc->all, op.all, after.all, answer.all};
        table_used++;
    }
    doc->all = entry->doc_after;
    answer.all = entry->answer;
    return answer;
}

/* --------------------------------------------------------------- compare and set */

const unsigned MODEL_INTENTS = 1U << BINDING_PART_INTENTS;

/* The bits of each part. */
static union model_doc mask_of(unsigned parts)
{
    static const union model_doc session = {.state = 3};
    static const union model_doc fence = {.fence = 15};
    static const union model_doc lock = {.lock_set = 1,
                                         .lock_live = 1,
                                         .lock_attempt = 15,
                                         .lock_fence = 15,
                                         .lock_op = 7,
                                         .lock_want = 15,
                                         .lock_done = 7};
    static const union model_doc bound = {
        .bound = 3, .power = 3, .young = 1, .gen = 3, .unreachable = 1};
    static const union model_doc intents = {.condemned = 15, .pausing = 15, .creates = 255};
    static const union model_doc turns = {
        .turn = 1, .turn_live = 1, .turn_uses = 3, .use = 1, .use_live = 1, .use_uses = 3};
    union model_doc mask = {.all = 0};

    if (parts & 1U << BINDING_PART_SESSION)
        mask.all |= session.all;
    if (parts & 1U << BINDING_PART_FENCE)
        mask.all |= fence.all;
    if (parts & 1U << BINDING_PART_LOCK)
        mask.all |= lock.all;
    if (parts & 1U << BINDING_PART_BINDING)
        mask.all |= bound.all;
    if (parts & 1U << BINDING_PART_INTENTS)
        mask.all |= intents.all;
    if (parts & 1U << BINDING_PART_TURNS)
        mask.all |= turns.all;
    return mask;
}

void model_merge(union model_doc *doc, union model_doc from, unsigned dirty)
{
    union model_doc mask = mask_of(dirty);

    doc->all = (doc->all & ~mask.all) | (from.all & mask.all);
}

int model_same_but_turns(union model_doc a, union model_doc b)
{
    return ((a.all ^ b.all) & ~mask_of(1U << BINDING_PART_TURNS).all) == 0;
}

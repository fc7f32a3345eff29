/* core_turn.c - turns and uses: tokens that keep a sandbox from being torn down. None of it
 * takes the lock: a turn must not wait for a create. */
#include "services/binding/core.h"

#include <stdio.h>

enum { ACTIVITY_MS = 60 * 1000 }; /* activity alone is written no more often than this */

static void mark_active(struct binding_view *view)
{
    view->doc.active_ms = view->now_ms;
    binding_doc_touch(&view->doc, BINDING_PART_TURNS);
}

static enum berth_code expired(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_TURN_EXPIRED, NULL);
}

size_t binding_turn_id_len(const char *token)
{
    const char *dot = strrchr(token, '.');

    if (!dot || dot == token || strlen(dot + 1) != BINDING_SECRET_LEN ||
        strspn(dot + 1, "abcdefghijklmnopqrstuvwxyz0123456789") != BINDING_SECRET_LEN)
        return 0;
    return (size_t)(dot - token);
}

static enum berth_code turn_event(struct binding_plan *plan, const char *kind,
                                  const struct binding_token *token, struct berth_error *err)
{
    json_t *attributes =
        json_pack("{s:s%}", "turn_id", token->token, binding_turn_id_len(token->token));

    return binding_plan_event(plan, kind, token->sandbox_id, attributes, err);
}

/* Late, but nothing was torn down: its sandbox is still the bound one, no rebuild is on, and no
 * pause is on its way that was sent while nobody used it. */
static bool may_revive(const struct binding_view *view, const struct binding_token *token)
{
    const struct binding_doc *doc = &view->doc;

    return doc->bound.set && strcmp(doc->bound.sandbox_id, token->sandbox_id) == 0 &&
           doc->bound.power != BINDING_PAUSING &&
           !(binding_locked(view, NULL) && doc->lock.op == BINDING_REBUILD);
}

enum berth_code binding_check_turn(struct binding_view *view, const char *turn_token,
                                   struct binding_token **ret_token, struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    struct binding_token *token = binding_find_token(doc, turn_token, BINDING_TURN);

    if (!token) {
        /* Nor is one believed whose sandbox is going: it expired, and was dropped. */
        if (!binding_young(view) || !binding_turn_id_len(turn_token) ||
            binding_condemned(doc, doc->bound.sandbox_id))
            return expired(err);
        *ret_token = NULL;
        return BERTH_OK;
    }
    if (token->sandbox_id[0]) {
        if (binding_condemned(doc, token->sandbox_id))
            return expired(err);
        if (doc->bound.set && strcmp(doc->bound.sandbox_id, token->sandbox_id) != 0)
            return expired(err);
    }
    if (!binding_token_live(token, view->now_ms)) {
        if (!may_revive(view, token))
            return expired(err);
        token->deadline_ms = view->now_ms + token->lease_ms;
        binding_doc_touch(doc, BINDING_PART_TURNS);
    }
    *ret_token = token;
    return BERTH_OK;
}

enum berth_code binding_believe_turn(struct binding_view *view, const char *turn_token,
                                     struct binding_token **ret_token, struct berth_error *err)
{
    struct binding_token *token;
    enum berth_code code = binding_doc_add_token(&view->doc, &token, err);

    if (code)
        return code;
    token->kind = BINDING_TURN;
    token->lease_ms = view->limits->turn_ms;
    token->deadline_ms = view->now_ms + token->lease_ms;
    snprintf(token->token, sizeof token->token, "%s", turn_token);
    snprintf(token->sandbox_id, sizeof token->sandbox_id, "%s", view->doc.bound.sandbox_id);
    *ret_token = token;
    return BERTH_OK;
}

void binding_name_tokens(struct binding_view *view, const char *turn_token,
                         const char *sandbox_id)
{
    struct binding_doc *doc = &view->doc;

    for (size_t i = 0; i < doc->n_tokens; i++) {
        struct binding_token *token = &doc->tokens[i];
        bool mine = turn_token[0] ? strcmp(token->token, turn_token) == 0
                                  : token->sandbox_id[0] == '\0';

        if (token->kind != BINDING_TURN || !mine || !binding_token_live(token, view->now_ms) ||
            strcmp(token->sandbox_id, sandbox_id) == 0)
            continue;
        snprintf(token->sandbox_id, sizeof token->sandbox_id, "%s", sandbox_id);
        binding_doc_touch(doc, BINDING_PART_TURNS);
    }
}

static struct binding_token *find_turn_id(struct binding_doc *doc, const char *turn_id)
{
    size_t len = strlen(turn_id);

    for (size_t i = 0; i < doc->n_tokens; i++) {
        struct binding_token *token = &doc->tokens[i];

        if (token->kind == BINDING_TURN && binding_turn_id_len(token->token) == len &&
            memcmp(token->token, turn_id, len) == 0)
            return token;
    }
    return NULL;
}

static int64_t bounded_lease(const struct binding_limits *limits, int64_t lease_ms)
{
    if (lease_ms == 0)
        return limits->turn_ms;
    if (lease_ms < limits->turn_min_ms)
        return limits->turn_min_ms;
    return lease_ms > limits->turn_max_ms ? limits->turn_max_ms : lease_ms;
}

/* Nothing reaches it from outside any more (F18), and nobody is at work in it or at it: the
 * turn that begins has another one. */
static enum berth_code condemn_unreachable(struct binding_view *view, struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    struct binding_intent *intent;
    enum berth_code code;

    if (!doc->bound.set || !doc->bound.inbound_lost ||
        binding_condemned(doc, doc->bound.sandbox_id) || binding_protected(view) ||
        binding_turn_running(view) || binding_locked(view, NULL))
        return BERTH_OK;
    code = binding_doc_add_intent(doc, &intent, err);
    if (code)
        return code;
    intent->kind = BINDING_INTENT_DELETE;
    intent->why = BINDING_WHY_INBOUND_LOST;
    intent->fence = doc->bound.fence;
    intent->not_after_ms = view->now_ms;
    snprintf(intent->sandbox_id, sizeof intent->sandbox_id, "%s", doc->bound.sandbox_id);
    snprintf(intent->account, sizeof intent->account, "%s", doc->bound.account);
    return BERTH_OK;
}

enum berth_code binding_begin_turn(struct binding_view *view, const char *turn_id,
                                   int64_t lease_ms, const char *secret,
                                   struct binding_plan *plan, struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    struct binding_token *token, *revived;
    enum berth_code code;

    if (!view->tenant.exists)
        return berth_fail(err, BERTH_REASON_TENANT_NOT_FOUND, NULL);
    if (view->tenant.disabled)
        return berth_fail(err, BERTH_REASON_TENANT_DISABLED, NULL);
    code = binding_check_active(view, err);
    if (code)
        return code;
    binding_cut(view);
    code = condemn_unreachable(view, err);
    if (code)
        return code;

    token = find_turn_id(doc, turn_id);
    if (token && !binding_token_live(token, view->now_ms) &&
        binding_check_turn(view, token->token, &revived, NULL) != BERTH_OK) {
        /* Ended by time, and it cannot be taken up again: a turn of that name begins anew. */
        code = turn_event(plan, "TURN_EXPIRED", token, err);
        binding_doc_remove_token(doc, (size_t)(token - doc->tokens));
        token = NULL;
    }
    if (!code && !token) {
        code = binding_doc_add_token(doc, &token, err);
        if (code)
            return code;
        token->kind = BINDING_TURN;
        snprintf(token->token, sizeof token->token, "%s.%s", turn_id, secret);
        code = turn_event(plan, "TURN_BEGUN", token, err);
        plan->begins = true;
    }
    if (code)
        return code;
    token->lease_ms = bounded_lease(view->limits, lease_ms);
    token->deadline_ms = view->now_ms + token->lease_ms;
    mark_active(view);
    plan->durable = true;
    plan->expire_ms = token->deadline_ms;
    snprintf(plan->turn_token, sizeof plan->turn_token, "%s", token->token);
    return BERTH_OK;
}

bool binding_believe_use(const struct binding_view *view, struct binding_token *token)
{
    const struct binding_bound *bound = &view->doc.bound;

    if (token->sandbox_id[0] || !binding_young(view) || !bound->set ||
        binding_condemned(&view->doc, bound->sandbox_id))
        return false;
    snprintf(token->sandbox_id, sizeof token->sandbox_id, "%s", bound->sandbox_id);
    return true;
}

enum berth_code binding_renew_turn(struct binding_view *view, const char *turn_token,
                                   struct binding_plan *plan, struct berth_error *err)
{
    struct binding_token *token = NULL;
    enum berth_code code = binding_check_active(view, err);

    if (code)
        return code;
    binding_cut(view);
    code = binding_check_turn(view, turn_token, &token, err);
    if (!code && !token)
        code = binding_believe_turn(view, turn_token, &token, err);
    if (code)
        return code;
    (void)binding_believe_use(view, token);
    token->deadline_ms = view->now_ms + token->lease_ms;
    plan->expire_ms = token->deadline_ms;
    mark_active(view);
    return BERTH_OK;
}

enum berth_code binding_end_turn(struct binding_view *view, const char *turn_token,
                                 struct binding_plan *plan, struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    struct binding_token *token;
    enum berth_code code;

    if (doc->session.state == BINDING_STATE_NONE)
        return berth_fail(err, BERTH_REASON_SESSION_NOT_FOUND, NULL);
    binding_cut(view);
    token = binding_find_token(doc, turn_token, BINDING_TURN);
    if (!token)
        return BERTH_OK;
    code = turn_event(plan, "TURN_ENDED", token, err);
    if (code)
        return code;
    binding_doc_remove_token(doc, (size_t)(token - doc->tokens));
    mark_active(view);
    return BERTH_OK;
}

static enum berth_code end_use(struct binding_view *view, const char *use_token,
                               struct binding_plan *plan)
{
    struct binding_token *token = binding_find_token(&view->doc, use_token, BINDING_USE_TOKEN);

    plan->expire_ms = view->now_ms;
    if (view->doc.session.state == BINDING_STATE_DELETED)
        return BERTH_OK;
    if (token)
        binding_doc_remove_token(&view->doc, (size_t)(token - view->doc.tokens));
    if (token || view->now_ms - view->doc.active_ms >= ACTIVITY_MS)
        mark_active(view);
    return BERTH_OK;
}

enum berth_code binding_renew_use(struct binding_view *view, const char *use_token,
                                  const char *sandbox_id, bool end, struct binding_plan *plan,
                                  struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    struct binding_token *token;
    enum berth_code code;

    if (end && doc->session.state != BINDING_STATE_NONE) {
        binding_cut(view);
        return end_use(view, use_token, plan);
    }
    code = binding_check_active(view, err);
    if (code)
        return code;
    binding_cut(view);
    if (!doc->bound.set || strcmp(doc->bound.sandbox_id, sandbox_id) != 0 ||
        binding_condemned(doc, sandbox_id))
        return expired(err);
    token = binding_find_token(doc, use_token, BINDING_USE_TOKEN);
    if (!token) {
        code = binding_doc_add_token(doc, &token, err);
        if (code)
            return code;
        token->kind = BINDING_USE_TOKEN;
        snprintf(token->token, sizeof token->token, "%s", use_token);
    }
    snprintf(token->sandbox_id, sizeof token->sandbox_id, "%s", sandbox_id);
    token->lease_ms = view->limits->use_ms;
    token->deadline_ms = view->now_ms + token->lease_ms;
    plan->expire_ms = token->deadline_ms;
    mark_active(view);
    return BERTH_OK;
}

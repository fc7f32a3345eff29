#include "services/binding/core.h"

#include <stdio.h>

void binding_plan_deinit(struct binding_plan *plan)
{
    for (size_t i = 0; i < plan->n_events; i++)
        json_decref(plan->events[i].attributes);
    free(plan->events);
    *plan = (struct binding_plan){0};
}

enum berth_code binding_plan_event(struct binding_plan *plan, const char *kind,
                                   const char *sandbox_id, json_t *attributes,
                                   struct berth_error *err)
{
    struct binding_event *grown;

    grown = realloc(plan->events, (plan->n_events + 1) * sizeof *grown);
    if (!grown) {
        json_decref(attributes);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    plan->events = grown;
    grown[plan->n_events] = (struct binding_event){.kind = kind, .attributes = attributes};
    snprintf(grown[plan->n_events].sandbox_id, sizeof grown->sandbox_id, "%s", sandbox_id);
    plan->n_events++;
    return BERTH_OK;
}

enum berth_code binding_plan_found(struct binding_plan *plan, const char *kind,
                                   const char *sandbox_id, struct berth_error *err)
{
    enum berth_code code =
        binding_plan_event(plan, kind, sandbox_id, json_pack("{s:s}", "by", "backend"), err);

    if (!code)
        plan->events[plan->n_events - 1].observed = true;
    return code;
}

void binding_cut(struct binding_view *view)
{
    struct binding_doc *doc = &view->doc;
    int64_t now = view->now_ms;

    if (doc->lock.set && !doc->lock.done && doc->lock.until_ms > now + doc->lock.lease_ms) {
        doc->lock.until_ms = now + doc->lock.lease_ms;
        binding_doc_touch(doc, BINDING_PART_LOCK);
    }
    for (size_t i = 0; i < doc->n_tokens; i++) {
        struct binding_token *token = &doc->tokens[i];

        if (token->deadline_ms > now + token->lease_ms) {
            token->deadline_ms = now + token->lease_ms;
            binding_doc_touch(doc, BINDING_PART_TURNS);
        }
    }
    if (doc->bound.set && doc->bound.adopt_ms > now) {
        doc->bound.adopt_ms = now;
        binding_doc_touch(doc, BINDING_PART_BINDING);
    }
    if (doc->active_ms > now) {
        doc->active_ms = now;
        binding_doc_touch(doc, BINDING_PART_TURNS);
    }
}

bool binding_is_maintenance(const char *session_id)
{
    return strncmp(session_id, "sk.", 3) == 0;
}

bool binding_condemned(const struct binding_doc *doc, const char *sandbox_id)
{
    for (size_t i = 0; i < doc->n_intents; i++)
        if (doc->intents[i].kind == BINDING_INTENT_DELETE &&
            strcmp(doc->intents[i].sandbox_id, sandbox_id) == 0)
            return true;
    return false;
}

bool binding_token_live(const struct binding_token *token, int64_t now_ms)
{
    return token->deadline_ms > now_ms;
}

bool binding_named(const struct binding_view *view, const char *sandbox_id, int kind)
{
    for (size_t i = 0; i < view->doc.n_tokens; i++) {
        const struct binding_token *token = &view->doc.tokens[i];

        if ((kind == 0 || (int)token->kind == kind) &&
            binding_token_live(token, view->now_ms) &&
            strcmp(token->sandbox_id, sandbox_id) == 0)
            return true;
    }
    return false;
}

static void add_once(const char **list, size_t *n, size_t max, const char *id)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(list[i], id) == 0)
            return;
    if (*n < max && *id)
        list[(*n)++] = id;
}

size_t binding_named_ones(const struct binding_view *view, const char *turn_token,
                          const char **ret, size_t max)
{
    const struct binding_doc *doc = &view->doc;
    size_t n = 0;

    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < doc->n_tokens; i++) {
            const struct binding_token *token = &doc->tokens[i];
            bool turn = token->kind == BINDING_TURN;
            bool mine = turn && strcmp(token->token, turn_token) == 0;

            if (binding_token_live(token, view->now_ms) && pass == (mine ? 0 : turn ? 1 : 2))
                add_once(ret, &n, max, token->sandbox_id);
        }
    return n;
}

static bool adopted_lately(const struct binding_view *view)
{
    const struct binding_bound *bound = &view->doc.bound;

    return bound->set && bound->origin == BINDING_ADOPTED &&
           view->now_ms < bound->adopt_ms + view->limits->turn_ms;
}

int64_t binding_calls_out_ms(const struct binding_view *view)
{
    int64_t lost_ms =
        view->lost_ms > view->tenant.lost_ms ? view->lost_ms : view->tenant.lost_ms;
    int64_t until_ms = lost_ms + view->limits->lock_ms + view->config.create_horizon_ms;

    if (!lost_ms || view->config.fenced || view->now_ms > until_ms)
        return 0;
    return until_ms - view->now_ms + 1;
}

enum berth_code binding_check_calls_out(const struct binding_view *view,
                                        struct berth_error *err)
{
    int64_t left_ms = binding_calls_out_ms(view);
    enum berth_code code;

    if (!left_ms)
        return BERTH_OK;
    code = berth_fail(err, BERTH_REASON_CREATE_UNSETTLED,
                      "calls of before the loss may still take effect");
    if (err)
        err->retry_after_ms = left_ms;
    return code;
}

bool binding_young(const struct binding_view *view)
{
    return view->quarantine || view->unsure || adopted_lately(view);
}

bool binding_protected(const struct binding_view *view)
{
    return view->doc.bound.set &&
           (binding_young(view) || binding_named(view, view->doc.bound.sandbox_id, 0));
}

bool binding_has_own_image(const struct binding_doc *doc)
{
    return doc->session.spec && doc->session.spec->image &&
           doc->session.spec->image->source_case != BERTH__COMMON__V1__IMAGE__SOURCE__NOT_SET;
}

bool binding_cordoned(const struct binding_view *view)
{
    return view->now_ms < view->config.cordon_until_ms;
}

bool binding_stale(const struct binding_view *view)
{
    return view->doc.bound.set && view->config.exists && !binding_has_own_image(&view->doc) &&
           !binding_is_maintenance(view->session_id) &&
           view->doc.bound.generation < view->config.image.rebuild_before;
}

bool binding_turn_running(const struct binding_view *view)
{
    for (size_t i = 0; i < view->doc.n_tokens; i++)
        if (view->doc.tokens[i].kind == BINDING_TURN &&
            binding_token_live(&view->doc.tokens[i], view->now_ms))
            return true;
    return false;
}

bool binding_locked(const struct binding_view *view, const char *token)
{
    const struct binding_lock *lock = &view->doc.lock;

    return lock->set && !lock->done && lock->until_ms > view->now_ms &&
           (!token || strcmp(lock->token, token) != 0);
}

struct binding_token *binding_find_token(struct binding_doc *doc, const char *token, int kind)
{
    for (size_t i = 0; i < doc->n_tokens; i++)
        if ((int)doc->tokens[i].kind == kind && strcmp(doc->tokens[i].token, token) == 0)
            return &doc->tokens[i];
    return NULL;
}

int64_t binding_due_ms(const struct binding_doc *doc)
{
    enum { AT_ONCE = 1 };
    int64_t due = 0;

    if (doc->session.state == BINDING_STATE_NONE)
        return 0;
    if (doc->session.state == BINDING_STATE_DELETING)
        due = doc->session.deleting_ms;
    if (doc->n_intents) {
        int64_t at = doc->lock.set && !doc->lock.done ? doc->lock.until_ms : AT_ONCE;

        due = !due || at < due ? at : due;
    }
    for (size_t i = 0; i < doc->n_tokens; i++) {
        int64_t at = doc->tokens[i].deadline_ms;

        due = !due || at < due ? at : due;
    }
    return due;
}

void binding_boot_image(const struct binding_view *view, struct binding_image *ret)
{
    const struct berth_config_doc *config = &view->config;
    const Berth__Common__V1__SessionSpec *spec = view->doc.session.spec;
    struct binding_image image = {0};

    if (binding_has_own_image(&view->doc)) {
        if (spec->image->source_case == BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID)
            image.snapshot_id = spec->image->snapshot_id;
        else
            image.template_id = spec->image->template_id;
        *ret = image;
        return;
    }
    /* What boots today counts as of today's generation, or a config whose image cannot be used
     * would have its sessions rebuilt for ever. */
    image.generation = config->image.generation;
    if (berth_image_usable(config))
        image.snapshot_id = config->image.snapshot_id;
    else
        image.template_id =
            config->template_id[0] ? config->template_id : config->image.base_template_id;
    *ret = image;
}

enum berth_code binding_check_active(const struct binding_view *view, struct berth_error *err)
{
    switch (view->doc.session.state) {
    case BINDING_STATE_ACTIVE:
        return BERTH_OK;
    case BINDING_STATE_DELETING:
        return berth_fail(err, BERTH_REASON_SESSION_DELETED, "the session is being deleted");
    default:
        return berth_fail(err, BERTH_REASON_SESSION_NOT_FOUND, NULL);
    }
}

enum berth_code binding_finish(struct binding_view *view, struct binding_plan *plan, bool force,
                               struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    enum berth_code code = BERTH_OK;

    if (!doc->dirty && !force)
        return BERTH_OK;
    for (size_t i = doc->n_tokens; !code && i-- > 0;) {
        const struct binding_token *token = &doc->tokens[i];

        if (binding_token_live(token, view->now_ms))
            continue;
        if (token->kind == BINDING_TURN) {
            json_t *attributes = json_pack("{s:s%}", "turn_id", token->token,
                                           (int)(strrchr(token->token, '.')
                                                     ? strrchr(token->token, '.') - token->token
                                                     : 0));

            code = binding_plan_event(plan, "TURN_EXPIRED", token->sandbox_id, attributes, err);
        }
        binding_doc_remove_token(doc, i);
    }
    if (doc->dirty && doc->session.state == BINDING_STATE_DELETED) {
        plan->expire = doc->n_intents == 0;
        plan->persist = !plan->expire;
        /* Settled: whoever makes the session anew chooses its config. */
        if (plan->expire && doc->session.config_id[0]) {
            doc->session.config_id[0] = '\0';
            binding_doc_touch(doc, BINDING_PART_CONFIG);
        }
    }
    return code;
}

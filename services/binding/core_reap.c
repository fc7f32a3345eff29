/* core_reap.c - what the reaper's calls may do to a session, as small predicates: the evidence
 * that Acquire re-checks under the lock. Nothing here is true because something is absent. */
#include "services/binding/core.h"

/* The bound one, seen in the account it was made in, and not condemned. */
static bool is_bound_one(const struct binding_view *view, const struct binding_want *want)
{
    const struct binding_bound *bound = &view->doc.bound;

    return bound->set && strcmp(bound->sandbox_id, want->reap_sandbox_id) == 0 &&
           bound->account[0] && strcmp(bound->account, want->reap_account) == 0 &&
           !binding_condemned(&view->doc, bound->sandbox_id);
}

bool binding_unused_since(const struct binding_view *view, int64_t since_ms)
{
    return since_ms && view->doc.active_ms <= since_ms && !binding_protected(view) &&
           !binding_turn_running(view);
}

bool binding_may_adopt(const struct binding_view *view)
{
    const struct binding_doc *doc = &view->doc;

    if (doc->session.state == BINDING_STATE_NONE)
        return true;
    if (doc->session.state != BINDING_STATE_ACTIVE)
        return false;
    if (!doc->bound.set || binding_condemned(doc, doc->bound.sandbox_id))
        return true;
    for (size_t i = 0; i < doc->n_intents; i++)
        if (doc->intents[i].kind == BINDING_INTENT_CREATE)
            return true;
    return false;
}

bool binding_may_idle(const struct binding_view *view, const struct binding_want *want)
{
    if (view->doc.session.state != BINDING_STATE_ACTIVE || !is_bound_one(view, want))
        return false;
    if (view->doc.bound.power == BINDING_PAUSING) /* a pause that was begun, and left */
        return !binding_protected(view) && !binding_turn_running(view);
    return binding_unused_since(view, want->unless_active_after_ms);
}

bool binding_may_observe(const struct binding_view *view, const struct binding_want *want)
{
    return view->doc.session.state == BINDING_STATE_ACTIVE && is_bound_one(view, want) &&
           view->doc.bound.power != BINDING_PAUSING;
}

bool binding_may_still(const struct binding_view *view, const struct binding_want *want)
{
    const struct binding_bound *bound = &view->doc.bound;
    const char *id = want->reap_sandbox_id;

    return view->doc.session.state == BINDING_STATE_ACTIVE && bound->set &&
           strcmp(bound->sandbox_id, id) != 0 && bound->account[0] &&
           strcmp(bound->account, want->reap_account) == 0 &&
           !binding_condemned(&view->doc, bound->sandbox_id) &&
           !binding_condemned(&view->doc, id) && !binding_named(view, id, 0);
}

bool binding_may_finish(const struct binding_view *view, const struct binding_want *want)
{
    if (view->doc.session.state == BINDING_STATE_DELETING)
        return true;
    return view->doc.session.state == BINDING_STATE_ACTIVE && is_bound_one(view, want) &&
           view->doc.bound.power == BINDING_PAUSED &&
           binding_unused_since(view, want->unless_active_after_ms);
}

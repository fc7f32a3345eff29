/* core_session.c - the record itself, and the flip's event. */
#include "services/binding/core.h"

#include <stdio.h>

enum berth_code binding_update_session(struct binding_view *view, uint64_t version,
                                       const Berth__Common__V1__SessionSpec *spec,
                                       struct binding_plan *plan, struct berth_error *err)
{
    struct binding_session *s = &view->doc.session;
    enum berth_code code = binding_check_active(view, err);

    if (code)
        return code;
    if (version && version != s->version)
        return berth_fail(err, BERTH_REASON_ETAG_MISMATCH, "version is %llu, not %llu",
                          (unsigned long long)s->version, (unsigned long long)version);
    if (spec->config_id[0] && strcmp(spec->config_id, s->config_id) != 0)
        return berth_fail(err, BERTH_REASON_CONFIG_PINNED, "the session is pinned to '%s'",
                          s->config_id);
    binding_cut(view);
    code = binding_doc_set_spec(&view->doc, spec, s->config_id, err);
    if (code)
        return code;
    s->version++;
    plan->begins = true;
    return BERTH_OK;
}

enum berth_code binding_reseal(struct binding_view *view, const void *before,
                               size_t before_size, const void *sealed, size_t size,
                               struct berth_error *err)
{
    const struct binding_bound *bound = &view->doc.bound;

    if (view->doc.session.state == BINDING_STATE_NONE)
        return berth_fail(err, BERTH_REASON_SESSION_NOT_FOUND, NULL);
    if (!bound->set || bound->endpoint_size != before_size ||
        memcmp(bound->endpoint, before, before_size) != 0)
        return berth_fail(err, BERTH_REASON_CONFLICT, "another endpoint is stored by now");
    binding_cut(view);
    return binding_doc_set_endpoint(&view->doc, sealed, size, err);
}

enum berth_code binding_mark_stale(struct binding_view *view, uint64_t generation,
                                   struct binding_plan *plan, struct berth_error *err)
{
    struct binding_bound *bound = &view->doc.bound;
    json_t *attributes;
    enum berth_code code;

    if (view->doc.session.state != BINDING_STATE_ACTIVE || !bound->set ||
        bound->generation >= generation || bound->marked_generation >= generation ||
        binding_is_maintenance(view->session_id) || binding_has_own_image(&view->doc))
        return BERTH_OK;
    attributes = json_pack(
        "{s:o,s:o}", "generation", json_sprintf("%llu", (unsigned long long)bound->generation),
        "wanted_generation", json_sprintf("%llu", (unsigned long long)generation));
    code = binding_plan_event(plan, "STALE", bound->sandbox_id, attributes, err);
    if (code)
        return code;
    bound->marked_generation = generation;
    binding_doc_touch(&view->doc, BINDING_PART_BINDING);
    return BERTH_OK;
}

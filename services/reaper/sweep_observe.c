/* sweep_observe.c - what backends and their operators did by themselves: the lists against what
 * the bindings say, read after them. Nothing is concluded here: the control plane looks at the
 * sandbox under its session's lock, and writes down what it finds. */
#include "services/reaper/sweep.h"

#include <stdio.h>

#include "common/messages/messages.h"

typedef Berth__Binding__V1__Binding Binding;
typedef Berth__Binding__V1__BoundSession BoundSession;
typedef Berth__Common__V1__SessionRef SessionRef;

enum { MISSING_MAX = 1 << 17 };

/* The account it lives in, if that was listed to the end; n_groups: it was not. */
static unsigned find_group(const struct sweep *sweep, const Binding *binding)
{
    char account[SWEEP_ACCOUNT_HEX];
    unsigned i = 0;

    sweep_account_hex(account, &binding->account);
    for (; i < sweep->n_groups; i++)
        if (strcmp(sweep->groups[i].account, account) == 0 &&
            strcmp(sweep->groups[i].target->target->backend, binding->backend) == 0)
            return sweep->groups[i].whole ? i : (unsigned)sweep->n_groups;
    return i;
}

static char *join(const char *const *parts, size_t n, const char **ret_parts)
{
    size_t size = 0;
    char *text, *at;

    for (size_t i = 0; i < n; i++)
        size += strlen(parts[i]) + 1;
    text = at = malloc(size);
    for (size_t i = 0; text && i < n; i++) {
        size_t len = strlen(parts[i]) + 1;

        memcpy(at, parts[i], len);
        ret_parts[i] = at;
        at += len;
    }
    return text;
}

enum berth_code sweep_note_missing(struct sweep *sweep, const SessionRef *ref,
                                   const BoundSession *row, struct berth_error *err)
{
    const Binding *binding = row->binding;
    struct sweep_missing *missing;
    const char *parts[4];
    unsigned group;

    if (!binding || binding->power == BERTH__BINDING__V1__POWER__POWER_PAUSING ||
        row->session->state != BERTH__COMMON__V1__SESSION_STATE__SESSION_STATE_ACTIVE ||
        (*sweep->request.config_id &&
         strcmp(sweep->request.config_id, binding->config_id) != 0) ||
        berth_timestamp_ms(binding->create_time, 0) >= sweep->now_ms || /* after the list */
        sweep->n_missing == MISSING_MAX)
        return BERTH_OK;
    group = find_group(sweep, binding);
    if (group == sweep->n_groups)
        return BERTH_OK;
    if (sweep->n_missing == sweep->missing_room) {
        size_t room = sweep->missing_room ? 2 * sweep->missing_room : 16;
        struct sweep_missing *grown = realloc(sweep->missing, room * sizeof *grown);

        if (!grown)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        sweep->missing = grown;
        sweep->missing_room = room;
    }
    missing = &sweep->missing[sweep->n_missing];
    missing->id = join((const char *[]){binding->sandbox_id, ref->tenant_id, ref->session_id,
                                        binding->config_id},
                       4, parts);
    if (!missing->id)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    missing->tenant = parts[1];
    missing->session = parts[2];
    missing->config = parts[3];
    missing->group = group;
    sweep->n_missing++;
    return BERTH_OK;
}

static enum berth_code look(struct sweep *sweep, struct sweep_act *act, unsigned group,
                            struct berth_error *err)
{
    if (!sweep_may_go_on(sweep))
        return BERTH_OK;
    act->account = &sweep->groups[group].target->target->fingerprint;
    act->verdict = (struct reaper_verdict){.why = REAPER_OBSERVE, .act = REAPER_ACT_OBSERVE};
    return sweep_do(sweep, act, err);
}

enum berth_code sweep_observe(struct sweep *sweep, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < sweep->n_missing; i++) {
        const struct sweep_missing *missing = &sweep->missing[i];
        struct sweep_act act = {.tenant = missing->tenant,
                                .session = missing->session,
                                .config = missing->config,
                                .sandbox_id = missing->id,
                                .age_ms = -1};

        code = look(sweep, &act, missing->group, err);
    }
    for (size_t i = 0; !code && i < sweep->n_boxes; i++) {
        const struct sweep_box *box = &sweep->boxes[i];
        struct sweep_act act = {.tenant = box->tenant,
                                .session = box->session,
                                .config = box->config,
                                .sandbox_id = box->id,
                                .age_ms = -1};

        if (!reaper_must_look(&box->facts, sweep->now_ms))
            continue;
        if (box->facts.runs && box->facts.policy.warn_ms)
            act.ends_soon_ms = reaper_end_ms(&box->facts);
        if (act.ends_soon_ms && sweep->now_ms < act.ends_soon_ms - box->facts.policy.warn_ms)
            act.ends_soon_ms = 0;
        code = look(sweep, &act, box->group, err);
    }
    return code;
}

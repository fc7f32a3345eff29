/* sweep_act.c - doing what was decided, by the control plane's hand, and telling of it. */
#include <stdio.h>

#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/reaper/sweep.h"

typedef Berth__Binding__V1__GetBindingResponse GetBindingResponse;
typedef Berth__Binding__V1__ListDueResponse ListDueResponse;
typedef Berth__Control__V1__ConfigTarget ConfigTarget;
typedef Berth__Control__V1__SettleSessionRequest SettleSessionRequest;
typedef Berth__Control__V1__SettleSessionResponse SettleSessionResponse;
typedef Berth__Reaper__V1__SweepItem SweepItem;

bool sweep_may_go_on(struct sweep *sweep)
{
    return !reaper_is_stopping(sweep->reaper) &&
           reaper_leader_term(sweep->reaper->leader) == sweep->term;
}

/* -------------------------------------------------------------------- telling */

static SweepItem *new_item(const struct sweep_act *act, bool acted, const char *error)
{
    SweepItem *item = berth_message_new(&berth__reaper__v1__sweep_item__descriptor);
    bool ok = item && berth_set_string(&item->config_id, act->config) &&
              berth_set_string(&item->error, error);

    if (ok && *act->sandbox_id) {
        item->sandbox_id = strdup(act->sandbox_id);
        ok = item->sandbox_id != NULL;
        if (ok)
            item->what_case = BERTH__REAPER__V1__SWEEP_ITEM__WHAT_SANDBOX_ID;
    }
    if (ok && *act->session) {
        item->session = berth_message_new(&berth__common__v1__session_ref__descriptor);
        ok = item->session && berth_set_string(&item->session->tenant_id, act->tenant) &&
             berth_set_string(&item->session->session_id, act->session);
    }
    if (ok && act->age_ms >= 0)
        ok = (item->age = berth_duration(act->age_ms)) != NULL;
    if (!ok)
        return berth_message_free(item);
    item->verdict = (Berth__Reaper__V1__Verdict)act->verdict.why;
    item->acted = acted;
    return item;
}

/* What does not fit is not told; it was done all the same. */
static enum berth_code tell(struct sweep *sweep, const struct sweep_act *act, bool acted,
                            const char *error, struct berth_error *err)
{
    SweepItem *item;

    if (sweep->n_items == sweep->items_max)
        return BERTH_OK;
    if (sweep->n_items == sweep->items_room) {
        size_t room = sweep->items_room ? 2 * sweep->items_room : 64;
        SweepItem **grown = realloc(sweep->items, room * sizeof *grown);

        if (!grown)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        sweep->items = grown;
        sweep->items_room = room;
    }
    item = new_item(act, acted, error);
    if (!item)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    sweep->items[sweep->n_items++] = item;
    return BERTH_OK;
}

static void count_done(struct sweep *sweep, const struct sweep_act *act)
{
    struct reaper *reaper = sweep->reaper;

    pthread_mutex_lock(&reaper->counting);
    switch (act->verdict.act) {
    case REAPER_ACT_ADOPT:
        sweep->told->adopted++;
        reaper->counts.adopted++;
        break;
    case REAPER_ACT_IDLE_PAUSE:
        sweep->told->paused++;
        reaper->counts.paused++;
        break;
    case REAPER_ACT_STILL:
        sweep->told->paused++;
        reaper->counts.stilled++;
        break;
    case REAPER_ACT_OBSERVE:
        sweep->told->observed++;
        reaper->counts.observed++;
        break;
    default:
        sweep->told->deleted++;
        reaper->counts.deleted[act->verdict.why]++;
        break;
    }
    pthread_mutex_unlock(&reaper->counting);
}

static void count_failed(struct sweep *sweep, const struct sweep_act *act)
{
    struct reaper *reaper = sweep->reaper;

    pthread_mutex_lock(&reaper->counting);
    sweep->told->failed++;
    reaper->counts.failed[act->verdict.why]++;
    pthread_mutex_unlock(&reaper->counting);
}

/* ---------------------------------------------------------------------- doing */

static const char *done_text(enum reaper_act act)
{
    static const char *const texts[] = {
        [REAPER_ACT_NONE] = "nothing done",
        [REAPER_ACT_ADOPT] = "sandbox bound to the session of its tags",
        [REAPER_ACT_REAP] = "sandbox deleted",
        [REAPER_ACT_IDLE_PAUSE] = "idle sandbox paused",
        [REAPER_ACT_IDLE_KILL] = "idle sandbox deleted",
        [REAPER_ACT_FINISH_DELETE] = "session deleted",
        [REAPER_ACT_OBSERVE] = "what the backend did is written down",
        [REAPER_ACT_STILL] = "second sandbox of a session paused",
    };

    return texts[act];
}

static enum berth_code settle(struct sweep *sweep, const struct sweep_act *act, int *ret_result,
                              struct berth_error *err)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Google__Protobuf__Timestamp after = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Google__Protobuf__Timestamp end = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    SettleSessionRequest req = BERTH__CONTROL__V1__SETTLE_SESSION_REQUEST__INIT;
    SettleSessionResponse *resp = NULL;
    enum berth_code code;

    ref.tenant_id = (char *)act->tenant;
    ref.session_id = (char *)act->session;
    req.session = &ref;
    req.action = (Berth__Control__V1__SettleAction)act->verdict.act;
    req.config_id = (char *)act->config;
    req.sandbox_id = (char *)act->sandbox_id;
    req.account = *act->account;
    req.reason = (char *)reaper_why_name(act->verdict.why);
    req.calls_only = act->verdict.calls_only;
    if (act->verdict.unless_active_after_ms) {
        after.seconds = act->verdict.unless_active_after_ms / 1000;
        after.nanos = (int32_t)(act->verdict.unless_active_after_ms % 1000 * 1000000);
        req.unless_active_after = &after;
    }
    if (act->ends_soon_ms) {
        end.seconds = act->ends_soon_ms / 1000;
        end.nanos = (int32_t)(act->ends_soon_ms % 1000 * 1000000);
        req.ends_soon_time = &end;
    }
    code = reaper_call(sweep->reaper->controlplane,
                       "/berth.control.v1.InternalService/SettleSession", &req.base,
                       &berth__control__v1__settle_session_response__descriptor,
                       sweep->reaper->act_timeout_ms, &resp, err);
    if (!code)
        *ret_result = (int)resp->result;
    berth_message_free(resp);
    return code;
}

/* Somebody is at it, or it is too early: no failure. */
static bool is_later(enum berth_reason reason)
{
    return reason == BERTH_REASON_LOCK_WAIT || reason == BERTH_REASON_QUARANTINE ||
           reason == BERTH_REASON_CREATE_UNSETTLED || reason == BERTH_REASON_LOCK_LOST;
}

static void log_act(const struct sweep_act *act, const char *what, const char *error)
{
    berth_log(*error ? BERTH_LOG_WARN : BERTH_LOG_INFO, what, "reason",
              reaper_why_name(act->verdict.why), "tenant", act->tenant, "session", act->session,
              "config", act->config, "sandbox", act->sandbox_id,
              *error ? "error" : (char *)NULL, error, (char *)NULL);
}

enum berth_code sweep_do(struct sweep *sweep, const struct sweep_act *act,
                         struct berth_error *err)
{
    struct berth_error why = {0};
    int result = 0;
    bool done;

    if (!act->verdict.act)
        return sweep->request.with_kept || act->verdict.why == REAPER_KEEP_UNTAGGED
                   ? tell(sweep, act, false, "", err)
                   : BERTH_OK;
    if (sweep->request.dry)
        return tell(sweep, act, true, "", err);
    if (sweep->left == 0)
        return tell(sweep, act, false, "the budget of this sweep is spent", err);
    sweep->left--;
    if (settle(sweep, act, &result, &why)) {
        if (!is_later(why.reason)) {
            count_failed(sweep, act);
            log_act(act, "not done, trying again", why.text);
        }
        return tell(sweep, act, false, why.text, err);
    }
    done = result == BERTH__CONTROL__V1__SETTLE_RESULT__SETTLE_RESULT_DONE;
    if (done) {
        count_done(sweep, act);
        log_act(act, done_text(act->verdict.act), "");
    }
    return tell(sweep, act, done, "", err);
}

/* ------------------------------------------------------------------ what is due */

/* Tombstones keep no config: any of the tenant that has the account will do. */
static const ConfigTarget *due_target(const struct sweep *sweep, const char *tenant,
                                      const GetBindingResponse *got)
{
    const ProtobufCBinaryData *account = got->n_intents ? &got->intents[0]->account : NULL;

    if (got->session->spec)
        return sweep_find_target(sweep, tenant, got->session->spec->config_id);
    for (size_t i = 0; account && i < sweep->n_targets; i++) {
        const Berth__Common__V1__BackendTarget *target = sweep->targets[i]->target;

        if (strcmp(target->tenant_id, tenant) == 0 && account->len > 0 &&
            target->fingerprint.len == account->len &&
            memcmp(target->fingerprint.data, account->data, account->len) == 0)
            return sweep->targets[i];
    }
    return NULL;
}

static const char *read_due(const GetBindingResponse *got, struct reaper_due *ret)
{
    const char *sandbox_id = "";

    *ret = (struct reaper_due){.bound = got->binding != NULL};
    switch (got->session->state) {
    case BERTH__COMMON__V1__SESSION_STATE__SESSION_STATE_ACTIVE:
        ret->session = REAPER_ACTIVE;
        break;
    case BERTH__COMMON__V1__SESSION_STATE__SESSION_STATE_DELETING:
        ret->session = REAPER_DELETING;
        break;
    case BERTH__COMMON__V1__SESSION_STATE__SESSION_STATE_DELETED:
        ret->session = REAPER_DELETED;
        break;
    default:
        break;
    }
    for (size_t i = 0; i < got->n_intents; i++) {
        const Berth__Binding__V1__Intent *intent = got->intents[i];

        ret->creates |= intent->kind == BERTH__BINDING__V1__INTENT_KIND__INTENT_KIND_CREATE;
        ret->pauses |= intent->kind == BERTH__BINDING__V1__INTENT_KIND__INTENT_KIND_PAUSE;
        if (intent->kind == BERTH__BINDING__V1__INTENT_KIND__INTENT_KIND_DELETE) {
            ret->deletes = true;
            sandbox_id = intent->sandbox_id;
        }
    }
    if (!ret->deletes && got->binding)
        sandbox_id = got->binding->sandbox_id;
    return sandbox_id;
}

static enum berth_code settle_due(struct sweep *sweep, const char *tenant, const char *session,
                                  struct berth_error *err)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Binding__V1__GetBindingRequest req = BERTH__BINDING__V1__GET_BINDING_REQUEST__INIT;
    GetBindingResponse *got = NULL;
    struct sweep_act act = {
        .tenant = tenant, .session = session, .sandbox_id = "", .age_ms = -1};
    struct reaper_due due;
    const ConfigTarget *target;
    enum berth_code code = BERTH_OK;

    ref.tenant_id = (char *)tenant;
    ref.session_id = (char *)session;
    req.session = &ref;
    if (reaper_call(sweep->reaper->binding, "/berth.binding.v1.BindingService/GetBinding",
                    &req.base, &berth__binding__v1__get_binding_response__descriptor,
                    REAPER_CALL_TIMEOUT_MS, &got, NULL))
        return BERTH_OK; /* gone meanwhile, or not to be read: the next sweep */
    target = got->session ? due_target(sweep, tenant, got) : NULL;
    if (target) {
        act.sandbox_id = read_due(got, &due);
        act.config = target->target->config_id;
        act.account = &target->target->fingerprint;
        act.verdict = reaper_judge_due(&due);
        if (act.verdict.act == REAPER_ACT_ADOPT || act.verdict.act == REAPER_ACT_FINISH_DELETE)
            act.sandbox_id = "";
        if (act.verdict.act)
            code = sweep_do(sweep, &act, err);
    }
    berth_message_free(got);
    return code;
}

static enum berth_code due_of_tenant(struct sweep *sweep, const char *tenant,
                                     struct berth_error *err)
{
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    Berth__Binding__V1__ListDueRequest req = BERTH__BINDING__V1__LIST_DUE_REQUEST__INIT;
    BERTH_AUTO(free) char *token = NULL;
    enum berth_code code = BERTH_OK;

    req.tenant_id = (char *)tenant;
    req.page = &page;
    page.page_size = SWEEP_PAGE;
    for (int pages = 0; !code && pages < SWEEP_PAGES_MAX && (pages == 0 || *token); pages++) {
        ListDueResponse *resp = NULL;
        struct berth_error why = {0};

        page.page_token = token ? token : (char *)"";
        if (reaper_call(sweep->reaper->binding, "/berth.binding.v1.BindingService/ListDue",
                        &req.base, &berth__binding__v1__list_due_response__descriptor,
                        REAPER_CALL_TIMEOUT_MS, &resp, &why)) {
            berth_warn("what is due cannot be read, trying again", "tenant", tenant, "error",
                       why.text);
            return BERTH_OK;
        }
        for (size_t i = 0; !code && i < resp->n_sessions && sweep_may_go_on(sweep); i++)
            code = settle_due(sweep, tenant, resp->sessions[i]->session_id, err);
        free(token);
        token = strdup(resp->next_page_token);
        berth_message_free(resp);
        if (!token)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        if (sweep->left == 0 || !sweep_may_go_on(sweep))
            break;
    }
    return code;
}

enum berth_code sweep_due(struct sweep *sweep, struct berth_error *err)
{
    const char *last = "";
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < sweep->n_targets; i++) {
        const char *tenant = sweep->targets[i]->target->tenant_id;

        if (strcmp(tenant, last) != 0)
            code = due_of_tenant(sweep, tenant, err);
        last = tenant;
    }
    return code;
}

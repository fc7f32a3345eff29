/* work.c - the session, its turn and its sandbox: begun, known again, given up. */
#include <stdarg.h>
#include <stdio.h>

#include "common/ids/ids.h"
#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/skills/work/command.h"

#define SESSIONS "/berth.control.v1.SessionService/"

enum {
    OPEN_MAX_MS = 3 * 60 * 1000,
    LEASE_MS = 10 * 60 * 1000,
    RENEW_EVERY_MS = LEASE_MS / 5,
    DELETE_MAX_MS = 30000,
    END_MAX_MS = 3000, /* it ends by its lease all the same */
    BEGIN_MAX_MS = 60000,
    KNOWN_MAX = 64 << 10,
};

typedef Berth__Control__V1__ResolveSessionResponse ResolveSessionResponse;

void work_say(struct work *work, const char *fmt, ...)
{
    BERTH_AUTO(free) char *text = NULL;
    va_list args;
    int len;

    if (!work->wish.say)
        return;
    va_start(args, fmt);
    len = vasprintf(&text, fmt, args);
    va_end(args);
    if (len < 0) {
        text = NULL;
        return;
    }
    text[len] = '\n'; /* in place of the NUL: it is sent with its size */
    work->wish.say(work->wish.arg, text, (size_t)len + 1);
}

/* ------------------------------------------------------------------------- opening */

static enum berth_code resolve(struct work *work, const char *template_id, int64_t end_tick,
                               ResolveSessionResponse **ret, struct berth_error *err)
{
    Berth__Control__V1__ResolveSessionRequest req =
        BERTH__CONTROL__V1__RESOLVE_SESSION_REQUEST__INIT;
    Berth__Common__V1__SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Common__V1__Image image = BERTH__COMMON__V1__IMAGE__INIT;

    /* Network, environment and limits are the config's: absent means inherited, and the control
     * plane makes both switches explicit. */
    spec.config_id = work->config_id;
    if (template_id) {
        image.source_case = BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID;
        image.template_id = (char *)template_id;
        spec.image = &image;
    }
    req.session = &work->ref;
    req.spec = &spec;
    if (work->turn_token)
        req.turn_token = work->turn_token;
    return flow_call(&work->patience, work->skills->controlplane, SESSIONS "ResolveSession",
                     &req.base, &berth__control__v1__resolve_session_response__descriptor,
                     end_tick, ret, err);
}

static enum berth_code begin_turn(struct work *work, int64_t end_tick, struct berth_error *err)
{
    Berth__Control__V1__BeginTurnRequest req = BERTH__CONTROL__V1__BEGIN_TURN_REQUEST__INIT;
    Berth__Control__V1__BeginTurnResponse *resp = NULL;
    Google__Protobuf__Duration lease = GOOGLE__PROTOBUF__DURATION__INIT;
    enum berth_code code;

    lease.seconds = LEASE_MS / 1000;
    req.session = &work->ref;
    req.turn_id = work->id;
    req.lease = &lease;
    code =
        flow_call(&work->patience, work->skills->controlplane, SESSIONS "BeginTurn", &req.base,
                  &berth__control__v1__begin_turn_response__descriptor, end_tick, &resp, err);
    if (code)
        return code;
    work->turn_token = strdup(resp->turn_token);
    berth_message_free(resp);
    if (work->turn_token)
        work->keeper =
            work_keeper_new(work->skills, &work->ref, work->turn_token, RENEW_EVERY_MS);
    return work->keeper ? BERTH_OK : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* The sandbox that the turn has from here on. */
static enum berth_code know_sandbox(struct work *work, const ResolveSessionResponse *resp,
                                    struct berth_error *err)
{
    const Berth__Common__V1__Sandbox *sandbox = resp->session ? resp->session->sandbox : NULL;

    if (!sandbox || !*sandbox->sandbox_id)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                          "a maintenance session was resolved without a sandbox");
    work->sandbox_id = strdup(sandbox->sandbox_id);
    work->generation = sandbox->image ? sandbox->image->generation : 0;
    return work->sandbox_id ? BERTH_OK : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* Run begin.sh. */
static enum berth_code settle_in(struct work *work, struct berth_error *err)
{
    static const char uv[] = "uv\n", no_uv[] = "no-uv\n";
    const struct command command = {
        .is_bare = true, .capture_max = KNOWN_MAX, .timeout_ms = BEGIN_MAX_MS};
    struct command_end end = {0};
    enum berth_code code =
        command_run_script(work, &command, work_begin_sh, &end, err, (char *)NULL);
    const char *known = end.captured ? end.captured : "";
    char how[160];

    if (!code && !command_is_done(&end))
        code = berth_fail(err, BERTH_REASON_GATE_FAILED,
                          "the maintenance sandbox cannot be worked in: the first command %s: "
                          "%.150s",
                          command_tell(&end, how, sizeof how), end.tail);
    if (!code && strncmp(known, uv, sizeof uv - 1) == 0) {
        work->host.has_uv = true;
        known += sizeof uv - 1;
    } else if (!code && strncmp(known, no_uv, sizeof no_uv - 1) == 0) {
        known += sizeof no_uv - 1;
    } else if (!code) {
        code = berth_fail(err, BERTH_REASON_GATE_FAILED,
                          "the maintenance sandbox answers in no form that is known");
    }
    if (!code) {
        work->known = strdup(known);
        if (!work->known)
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    command_end_deinit(&end);
    return code;
}

static enum berth_code open_it(struct work *work, const char *template_id,
                               struct berth_error *err)
{
    int64_t end_tick = berth_tick_ms() + OPEN_MAX_MS;
    ResolveSessionResponse *resp = NULL;
    enum berth_code code = resolve(work, template_id, end_tick, &resp, err);

    resp = berth_message_free(resp);
    if (!code)
        code = begin_turn(work, end_tick, err);
    if (!code)
        code = resolve(work, template_id, end_tick, &resp, err);
    if (!code)
        code = know_sandbox(work, resp, err);
    berth_message_free(resp);
    return code ? code : settle_in(work, err);
}

enum berth_code work_open(struct skills *skills, const struct work_wish *wish,
                          struct work **ret, struct berth_error *err)
{
    struct work *work = calloc(1, sizeof *work);
    enum berth_code code;

    if (!work)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    work->skills = skills;
    work->wish = *wish;
    work->tenant_id = strdup(wish->tenant_id);
    work->config_id = strdup(wish->config_id);
    work->session_id = strdup(wish->session_id);
    work->env = wish->env ? json_deep_copy(wish->env) : NULL;
    work->wish.tenant_id = work->wish.config_id = work->wish.session_id = NULL;
    work->wish.template_id = NULL;
    work->wish.env = NULL;
    work->patience = (struct flow_patience){
        .loop = skills->runtime->loop, .stopped = wish->stopped, .arg = wish->arg};
    berth__common__v1__session_ref__init(&work->ref);
    work->ref.tenant_id = work->tenant_id;
    work->ref.session_id = work->session_id;
    berth_id_hex(work->id, (WORK_ID_SIZE - 1) / 2);
    if (!work->tenant_id || !work->config_id || !work->session_id || (wish->env && !work->env))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    else
        code = open_it(work, wish->template_id, err);
    if (code) {
        work_close(work, true);
        return code;
    }
    *ret = work;
    return BERTH_OK;
}

const char *work_sandbox(const struct work *work)
{
    return work->sandbox_id;
}

uint64_t work_generation(const struct work *work)
{
    return work->generation;
}

const struct plan_host *work_host(const struct work *work)
{
    return &work->host;
}

/* ------------------------------------------------------------------------- closing */

static void end_turn(struct work *work, const struct flow_patience *patience, int64_t end_tick)
{
    Berth__Control__V1__EndTurnRequest req = BERTH__CONTROL__V1__END_TURN_REQUEST__INIT;
    Berth__Control__V1__EndTurnResponse *resp = NULL;
    struct berth_error err = {0};

    req.session = &work->ref;
    req.turn_token = work->turn_token;
    if (flow_call(patience, work->skills->controlplane, SESSIONS "EndTurn", &req.base,
                  &berth__control__v1__end_turn_response__descriptor, end_tick, &resp, &err))
        berth_warn("a maintenance session's turn ends by its lease", "session",
                   work->session_id, "error", err.text);
    berth_message_free(resp);
}

static void delete_session(struct work *work, const struct flow_patience *patience,
                           int64_t end_tick)
{
    Berth__Control__V1__DeleteSessionRequest req =
        BERTH__CONTROL__V1__DELETE_SESSION_REQUEST__INIT;
    Berth__Control__V1__DeleteSessionResponse *resp = NULL;
    struct berth_error err = {0};

    req.session = &work->ref;
    if (flow_call(patience, work->skills->controlplane, SESSIONS "DeleteSession", &req.base,
                  &berth__control__v1__delete_session_response__descriptor, end_tick, &resp,
                  &err) &&
        err.reason != BERTH_REASON_SESSION_NOT_FOUND)
        berth_warn("a maintenance session is left to the reaper", "session", work->session_id,
                   "error", err.text);
    berth_message_free(resp);
}

struct work *work_close(struct work *work, bool destroy)
{
    if (!work)
        return NULL;
    work->keeper = work_keeper_free(work->keeper);
    if (work->tenant_id && work->session_id) {
        /* Also of one that was stopped. */
        const struct flow_patience patience = {.loop = work->patience.loop};

        if (destroy)
            delete_session(work, &patience, berth_tick_ms() + DELETE_MAX_MS);
        else if (work->turn_token)
            end_turn(work, &patience, berth_tick_ms() + END_MAX_MS);
    }
    free(work->known);
    free(work->sandbox_id);
    free(work->turn_token);
    free(work->tenant_id);
    free(work->config_id);
    free(work->session_id);
    json_decref(work->env);
    free(work);
    return NULL;
}

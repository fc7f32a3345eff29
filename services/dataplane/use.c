/* use.c - use tokens: the word to the control plane that a sandbox is in use by a stream, so
 * that it is not rebuilt, reaped or put to sleep under it. Renewed while the stream lives,
 * given back at its end; a lost one ends by itself (two minutes). Calls in flight are bounded;
 * what is due waits in line. A failing control plane stops no stream. */
#include "services/dataplane/dataplane.h"

#include "common/ids/ids.h"
#include "common/log/log.h"
#include "common/time/time.h"

enum { TOKEN_CHARS = 32, CALL_TIMEOUT_MS = 10000, RETRY_MS = 5000 };

struct dp_use {
    struct dataplane *dp;
    struct dp_use *prev, *next;
    struct dp_use *due_next;
    char *tenant_id, *session_id, *sandbox_id;
    char token[TOKEN_CHARS + 1];
    int64_t next_tick_ms;  /* of the next renewal */
    bool in_line;          /* waits for its turn to be sent */
    struct dp_unary *call; /* in flight, or NULL */
    bool sent;             /* at least once */
    bool ended;            /* the stream is over */
    bool end_sent;         /* the call in flight is the last */
};

static void use_send(struct dp_use *use);

static void use_free(struct dp_use *use)
{
    struct dataplane *dp = use->dp;

    if (use->prev)
        use->prev->next = use->next;
    else
        dp->uses = use->next;
    if (use->next)
        use->next->prev = use->prev;
    free(use->tenant_id);
    free(use->session_id);
    free(use->sandbox_id);
    free(use);
    dp_check_drained(dp);
}

/* Send what is due, as far as calls are free. */
static void send_due(struct dataplane *dp)
{
    while (dp->due && dp->n_use_calls < DP_USE_CALLS_MAX) {
        struct dp_use *use = dp->due;

        dp->due = use->due_next;
        if (!dp->due)
            dp->due_end = &dp->due;
        use->due_next = NULL;
        use->in_line = false;
        if (use->ended && !use->sent)
            use_free(use);
        else
            use_send(use);
    }
}

static void get_in_line(struct dp_use *use)
{
    struct dataplane *dp = use->dp;

    if (use->in_line || use->call)
        return;
    use->in_line = true;
    *dp->due_end = use;
    dp->due_end = &use->due_next;
}

/* Up to a tenth earlier, so that streams begun together do not renew together. */
static int64_t renew_in_ms(const struct dataplane *dp)
{
    uint16_t random;

    berth_random(&random, sizeof random);
    return dp->options.use_renew_ms - dp->options.use_renew_ms * random / (10 * 65536LL);
}

static void note_failure(struct dataplane *dp, const struct berth_status *status,
                         const struct berth_error *err)
{
    atomic_fetch_add_explicit(&dp->counters.use_failures, 1, memory_order_relaxed);
    if (!dp->use_failing)
        berth_warn("use tokens are not renewed, streams go on", "status",
                   berth_code_name(status ? status->code : err->code), "text",
                   status ? status->message : err->text);
    dp->use_failing = true;
}

static void use_answered(void *arg, enum berth_code code, ProtobufCMessage *resp,
                         const struct berth_status *status, const struct berth_error *err)
{
    struct dp_use *use = arg;
    struct dataplane *dp = use->dp;

    if (resp)
        protobuf_c_message_free_unpacked(resp, NULL);
    dp->n_use_calls--;
    use->call = NULL;
    if (code) {
        note_failure(dp, status, err);
        use->next_tick_ms =
            berth_tick_ms() +
            (RETRY_MS < dp->options.use_renew_ms ? RETRY_MS : dp->options.use_renew_ms);
    } else {
        dp->use_failing = false;
        use->next_tick_ms = berth_tick_ms() + renew_in_ms(dp);
    }
    if (use->end_sent)
        use_free(use); /* a token that could not be given back ends by itself */
    else if (use->ended)
        get_in_line(use);
    send_due(dp);
}

static void use_send(struct dp_use *use)
{
    struct dataplane *dp = use->dp;
    Berth__Common__V1__SessionRef session = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__RenewUseRequest req = BERTH__CONTROL__V1__RENEW_USE_REQUEST__INIT;
    struct berth_call_options options = {.timeout_ms = CALL_TIMEOUT_MS};
    struct berth_error err = {0};

    session.tenant_id = use->tenant_id;
    session.session_id = use->session_id;
    req.session = &session;
    req.use_token = use->token;
    req.sandbox_id = use->sandbox_id;
    req.end = use->ended;
    use->end_sent = use->ended;
    use->sent = true;
    use->call = dp_unary_start(
        dp, dp->controlplane, "/berth.control.v1.InternalService/RenewUse", &req.base,
        &berth__control__v1__renew_use_response__descriptor, &options, use_answered, use, &err);
    if (!use->call) {
        note_failure(dp, NULL, &err);
        use->next_tick_ms = berth_tick_ms() + RETRY_MS;
        if (use->end_sent)
            use_free(use);
        return;
    }
    dp->n_use_calls++;
    atomic_fetch_add_explicit(&dp->counters.uses, 1, memory_order_relaxed);
}

struct dp_use *dp_use_begin(struct dataplane *dp, const Berth__Common__V1__SessionRef *session,
                            const char *sandbox_id)
{
    struct dp_use *use = calloc(1, sizeof *use);

    if (!use)
        return NULL;
    use->dp = dp;
    use->tenant_id = strdup(session->tenant_id);
    use->session_id = strdup(session->session_id);
    use->sandbox_id = strdup(sandbox_id);
    if (!use->tenant_id || !use->session_id || !use->sandbox_id) {
        free(use->tenant_id);
        free(use->session_id);
        free(use->sandbox_id);
        free(use);
        return NULL;
    }
    berth_id_base36(use->token, TOKEN_CHARS);
    use->next = dp->uses;
    if (use->next)
        use->next->prev = use;
    dp->uses = use;
    get_in_line(use);
    send_due(dp);
    return use;
}

void dp_use_end(struct dp_use *use)
{
    if (!use)
        return;
    use->ended = true;
    get_in_line(use);
    send_due(use->dp);
}

void dp_uses_sweep(struct dataplane *dp, int64_t tick_ms)
{
    for (struct dp_use *use = dp->uses; use; use = use->next) {
        if (tick_ms >= use->next_tick_ms)
            get_in_line(use);
    }
    send_due(dp);
}

void dp_uses_abandon(struct dataplane *dp)
{
    dp->due = NULL;
    dp->due_end = &dp->due;
    while (dp->uses) {
        if (dp->uses->call)
            dp_unary_cancel(dp->uses->call);
        use_free(dp->uses);
    }
    dp->n_use_calls = 0;
}

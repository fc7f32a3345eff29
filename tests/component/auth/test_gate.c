/* test_gate.c - the gate on a real server, its look-ups answered by the test: nobody gets in
 * unseen, nobody waits on a worker, and what is old is not used. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "berth/control/v1/control.pb-c.h"
#include "common/auth/auth.h"
#include "common/messages/messages.h"
#include "common/time/time.h"

#define GET_TENANT "/berth.control.v1.TenantService/GetTenant"
#define WATCH "/berth.control.v1.EventService/WatchEvents"
#define NO_RULE "/berth.control.v1.TenantService/NoRule"

enum { LOOKS = 4096, WAIT_MS = 10000, MAX_AGE_MS = 300, REFRESH_MS = 100 };

struct asked {
    char id[BERTH_TOKEN_ID_SIZE];
    struct berth_auth_look *look; /* NULL: answered */
};

static struct {
    struct berth_loop *loop;
    struct berth_server *server;
    struct berth_auth *auth;
    struct berth_channel *channel;
    pthread_mutex_t mutex;
    atomic_bool at_once; /* answered by the look itself, with principal */
    _Atomic(enum berth_reason) failing;
    struct berth_principal principal; /* changed and answered with under mutex */
    atomic_bool absent;
    struct asked asked[LOOKS];
    unsigned n_asked;
    atomic_uint n_served;
    char actor[BERTH_ACTOR_SIZE];
} rig = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static char secret[BERTH_TOKEN_SIZE];

/* ------------------------------------------------------------------------ rig */

static void answer(struct berth_auth_look *look)
{
    enum berth_reason failing = rig.failing;
    struct berth_principal principal;
    struct berth_error err = {0};
    enum berth_code code = BERTH_OK;

    pthread_mutex_lock(&rig.mutex);
    principal = rig.principal;
    pthread_mutex_unlock(&rig.mutex);
    if (failing)
        code = berth_fail(&err, failing, NULL);
    berth_auth_found(look, code, code || rig.absent ? NULL : &principal, &err);
}

static void set_rate(unsigned calls_per_second)
{
    pthread_mutex_lock(&rig.mutex);
    rig.principal.calls_per_second = calls_per_second;
    pthread_mutex_unlock(&rig.mutex);
}

static void look_up(void *arg, const char *token_id, struct berth_auth_look *look)
{
    bool at_once;

    (void)arg;
    pthread_mutex_lock(&rig.mutex);
    at_once = rig.at_once;
    ck_assert_uint_lt(rig.n_asked, LOOKS);
    snprintf(rig.asked[rig.n_asked].id, BERTH_TOKEN_ID_SIZE, "%s", token_id);
    rig.asked[rig.n_asked++].look = at_once ? NULL : look;
    pthread_mutex_unlock(&rig.mutex);
    if (at_once)
        answer(look);
}

static unsigned n_asked(void)
{
    unsigned n;

    pthread_mutex_lock(&rig.mutex);
    n = rig.n_asked;
    pthread_mutex_unlock(&rig.mutex);
    return n;
}

static void wait_asked(unsigned n)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    while (n_asked() < n) {
        ck_assert_msg(berth_tick_ms() < end_tick, "%u of %u look-ups", n_asked(), n);
        usleep(500);
    }
}

static void answer_asked(unsigned i)
{
    struct berth_auth_look *look;

    pthread_mutex_lock(&rig.mutex);
    look = BERTH_STEAL(rig.asked[i].look);
    pthread_mutex_unlock(&rig.mutex);
    ck_assert_ptr_nonnull(look);
    answer(look);
}

static enum berth_code serve(void *service, struct berth_call *call,
                             const ProtobufCMessage *req, ProtobufCMessage **ret_resp,
                             struct berth_error *err)
{
    (void)service;
    (void)req;
    berth_actor(call, rig.actor);
    atomic_fetch_add(&rig.n_served, 1);
    *ret_resp = berth_message_new(&berth__control__v1__get_tenant_response__descriptor);
    return *ret_resp ? BERTH_OK : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* A stream that says nothing, or as much as there is room for. */
static struct {
    bool floods;
    atomic_bool begun, cancelled, closed;
} watched;

static void flood(void *ctx, struct berth_stream *stream)
{
    static const char zeros[1 << 16];

    (void)ctx;
    if (watched.floods)
        (void)berth_stream_write(stream, berth_buf_new(zeros, sizeof zeros));
}

static void watch_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    berth_buf_unref(msg);
    if (!msg)
        return;
    atomic_store(&watched.begun, true);
    flood(ctx, stream);
}

static void watch_cancelled(void *ctx, struct berth_stream *stream)
{
    (void)ctx;
    atomic_store(&watched.cancelled, true);
    ck_assert(berth_call_cancelled(berth_stream_call(stream)));
    berth_stream_finish(stream, BERTH_CANCELLED, NULL);
}

static void watch_closed(void *ctx, struct berth_stream *stream,
                         const struct berth_status *status)
{
    (void)ctx;
    (void)stream;
    (void)status;
    atomic_store(&watched.closed, true);
}

static enum berth_code watch(void *service, struct berth_stream *stream,
                             const struct berth_stream_ops **ret_ops, void **ret_ctx,
                             struct berth_error *err)
{
    static const struct berth_stream_ops ops = {.message = watch_message,
                                                .written = flood,
                                                .closed = watch_closed,
                                                .cancelled = watch_cancelled};

    (void)service;
    (void)err;
    *ret_ops = &ops;
    *ret_ctx = NULL;
    berth_stream_read(stream);
    return BERTH_OK;
}

static const struct berth_method methods[] = {
    {WATCH, &berth__control__v1__watch_events_request__descriptor, .open = watch},
    {GET_TENANT, &berth__control__v1__get_tenant_request__descriptor, .unary = serve},
    {NO_RULE, &berth__control__v1__get_tenant_request__descriptor, .unary = serve},
};

static void open_server(void)
{
    struct berth_auth_options auth = {
        .look = look_up, .max_age_ms = MAX_AGE_MS, .refresh_age_ms = REFRESH_MS};
    struct berth_server_options options = {.n_workers = 2};
    char address[64];
    int port;

    berth_rpc_init();
    rig.n_asked = 0;
    rig.at_once = rig.absent = false;
    rig.failing = 0;
    atomic_store(&rig.n_served, 0);
    rig.principal = (struct berth_principal){.tenant_id = "t1", .scope = BERTH_SCOPE_READ};
    berth_token_make(false, secret, &rig.principal.token);
    ck_assert_int_eq(berth_loop_new(&rig.loop, NULL), BERTH_OK);
    ck_assert_int_eq(berth_loop_start(rig.loop, "loop", NULL), BERTH_OK);
    options.loop = auth.loop = rig.loop;
    ck_assert_int_eq(berth_server_new(&options, &rig.server, NULL), BERTH_OK);
    ck_assert_int_eq(berth_auth_new(&auth, &rig.auth, NULL), BERTH_OK);
    berth_server_set_gate(rig.server, berth_auth_gate(rig.auth));
    ck_assert(berth_server_has_gate(rig.server));
    ck_assert_int_eq(berth_server_add(rig.server, methods, BERTH_COUNT(methods), NULL, NULL),
                     BERTH_OK);
    ck_assert_int_eq(berth_server_listen(rig.server, "127.0.0.1:0", &port, NULL), BERTH_OK);
    ck_assert_int_eq(berth_server_start(rig.server, NULL), BERTH_OK);
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    ck_assert_int_eq(berth_channel_new(address, NULL, &rig.channel, NULL), BERTH_OK);
}

static void close_server(void)
{
    berth_channel_free(rig.channel);
    berth_server_stop(rig.server, 0);
    berth_auth_free(rig.auth);
    berth_loop_stop(rig.loop);
    berth_server_free(rig.server);
    berth_loop_free(rig.loop);
    berth_rpc_done();
}

static enum berth_reason call_with(const char *path, const char *header, const char *tenant,
                                   unsigned n_headers, struct berth_error *ret_err)
{
    const struct berth_metadata one = {
        .key = "authorization", .value = header, .size = header ? strlen(header) : 0};
    const struct berth_metadata metadata[] = {one, one};
    const struct berth_call_options options = {
        .timeout_ms = WAIT_MS, .metadata = metadata, .n_metadata = header ? n_headers : 0};
    Berth__Control__V1__GetTenantRequest req = BERTH__CONTROL__V1__GET_TENANT_REQUEST__INIT;
    ProtobufCMessage *resp = NULL;
    struct berth_error err = {0};

    req.tenant_id = (char *)tenant;
    if (berth_channel_call(rig.channel, path, &req.base,
                           &berth__control__v1__get_tenant_response__descriptor, &options,
                           &resp, &err) == BERTH_OK)
        berth_message_free(resp);
    if (ret_err)
        *ret_err = err;
    return err.reason;
}

static const char *bearer(const char *token)
{
    static _Thread_local char text[96];

    snprintf(text, sizeof text, "Bearer %s", token);
    return text;
}

static enum berth_reason get(const char *token)
{
    return call_with(GET_TENANT, token ? bearer(token) : NULL, "t1", 1, NULL);
}

struct beside {
    pthread_t thread;
    const char *token;
    enum berth_reason reason;
};

static void *run_beside(void *arg)
{
    struct beside *call = arg;

    call->reason = get(call->token);
    return NULL;
}

static void begin(struct beside *call, const char *token)
{
    call->token = token;
    ck_assert_int_eq(pthread_create(&call->thread, NULL, run_beside, call), 0);
}

static enum berth_reason end(struct beside *call)
{
    pthread_join(call->thread, NULL);
    return call->reason;
}

/* ---------------------------------------------------------------------- tests */

/* No token, a malformed one, an unknown one, a wrong secret and two headers read the same, and
 * reach no handler. */
START_TEST(enter__no_good_token__same_refusal)
{
    char wrong[BERTH_TOKEN_SIZE], other[BERTH_TOKEN_SIZE];
    struct berth_token ignored;
    struct berth_error err, first;

    rig.at_once = true;
    memcpy(wrong, secret, sizeof wrong);
    wrong[60] = 0;
    wrong[56] = wrong[56] == 'a' ? 'b' : 'a';
    berth_token_make(false, other, &ignored);
    ck_assert_int_eq(call_with(GET_TENANT, NULL, "t1", 0, &first), BERTH_REASON_TOKEN_INVALID);
    ck_assert_int_eq(first.code, BERTH_UNAUTHENTICATED);
    ck_assert_int_eq(call_with(GET_TENANT, "Bearer x", "t1", 1, &err),
                     BERTH_REASON_TOKEN_INVALID);
    ck_assert_str_eq(err.text, first.text);
    ck_assert_int_eq(call_with(GET_TENANT, bearer(wrong), "t1", 1, &err),
                     BERTH_REASON_TOKEN_INVALID);
    ck_assert_str_eq(err.text, first.text);
    ck_assert_int_eq(call_with(GET_TENANT, bearer(secret), "t1", 2, &err),
                     BERTH_REASON_TOKEN_INVALID);
    ck_assert_str_eq(err.text, first.text);
    rig.absent = true;
    ck_assert_int_eq(call_with(GET_TENANT, bearer(other), "t1", 1, &err),
                     BERTH_REASON_TOKEN_INVALID);
    ck_assert_str_eq(err.text, first.text);
    ck_assert_uint_eq(atomic_load(&rig.n_served), 0);
    rig.absent = false;
    ck_assert_int_eq(get(secret), BERTH_REASON_NONE);
    ck_assert_uint_eq(atomic_load(&rig.n_served), 1);
    ck_assert_int_eq(strncmp(rig.actor, "token/", 6), 0);
}
END_TEST

/* A method without a rule is refused, whatever the token. */
START_TEST(enter__method_without_rule__refused)
{
    rig.at_once = true;
    rig.principal.deployment = true;
    rig.principal.tenant_id[0] = 0;
    rig.principal.scope = BERTH_SCOPE_ADMIN;
    ck_assert_int_eq(get(secret), BERTH_REASON_NONE);
    ck_assert_int_eq(call_with(NO_RULE, bearer(secret), "t1", 1, NULL),
                     BERTH_REASON_SCOPE_MISSING);
    ck_assert_uint_eq(atomic_load(&rig.n_served), 1);
}
END_TEST

/* Calls with an unknown token wait for one look-up together, and hold no worker meanwhile. */
START_TEST(enter__unknown_token__parked_and_asked_once)
{
    enum { N = 40 };
    static struct beside calls[N], other;
    static char guess[BERTH_TOKEN_SIZE];
    struct berth_token ignored;

    for (unsigned i = 0; i < N; i++)
        begin(&calls[i], secret);
    wait_asked(1);
    /* Another token is not held up by these, of which there are more than workers. */
    berth_token_make(false, guess, &ignored);
    begin(&other, guess);
    wait_asked(2);
    ck_assert_uint_eq(n_asked(), 2);
    rig.at_once = true; /* who comes later than REFRESH_MS has it looked up again */
    answer_asked(0);
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(end(&calls[i]), BERTH_REASON_NONE);
    answer_asked(1);
    ck_assert_int_eq(end(&other), BERTH_REASON_TOKEN_INVALID); /* another secret */
}
END_TEST

/* In use, a token is looked up again in the background: no call waits for that. */
START_TEST(enter__warm_token__refreshed_beside)
{
    int64_t end_tick;
    unsigned n;

    rig.at_once = true;
    ck_assert_int_eq(get(secret), BERTH_REASON_NONE);
    ck_assert_uint_eq(n_asked(), 1);
    pthread_mutex_lock(&rig.mutex);
    rig.at_once = false;
    pthread_mutex_unlock(&rig.mutex);
    end_tick = berth_tick_ms() + WAIT_MS;
    while (n_asked() < 2) { /* ends within REFRESH_MS */
        ck_assert_int_eq(get(secret), BERTH_REASON_NONE);
        ck_assert_int_lt(berth_tick_ms(), end_tick);
    }
    answer_asked(1);
    n = atomic_load(&rig.n_served);
    ck_assert_uint_gt(n, 1);
}
END_TEST

/* What was revoked is refused as soon as that is known, and at the latest when it is too old.
 */
START_TEST(enter__revoked__refused)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    rig.at_once = true;
    ck_assert_int_eq(get(secret), BERTH_REASON_NONE);
    rig.absent = true;
    while (get(secret) == BERTH_REASON_NONE)
        ck_assert_int_lt(berth_tick_ms(), end_tick);
    ck_assert_int_lt(berth_tick_ms(), end_tick - WAIT_MS + MAX_AGE_MS + 2000);
    ck_assert_int_eq(get(secret), BERTH_REASON_TOKEN_INVALID);
}
END_TEST

/* A tenant's calls per second are kept; what is over may come again soon. */
START_TEST(enter__over_the_tenants_rate__refused_for_a_while)
{
    enum { PER_S = 5, CALLS = 40 };
    int64_t begin_tick = berth_tick_ms();
    unsigned n = 0;

    rig.at_once = true;
    set_rate(PER_S);
    for (int i = 0; i < CALLS; i++) {
        enum berth_reason reason = get(secret);

        n += reason == BERTH_REASON_NONE;
        ck_assert(reason == BERTH_REASON_NONE || reason == BERTH_REASON_QUOTA_EXCEEDED);
    }
    ck_assert_uint_ge(n, PER_S);
    ck_assert_uint_le(n, PER_S + 1 + (unsigned)((berth_tick_ms() - begin_tick) * PER_S / 1000));
    while (get(secret) != BERTH_REASON_NONE)
        ck_assert_int_lt(berth_tick_ms(), begin_tick + WAIT_MS);
    set_rate(0);
    berth_auth_forget(rig.auth, rig.principal.token.id);
    for (int i = 0; i < CALLS; i++)
        ck_assert_int_eq(get(secret), BERTH_REASON_NONE);
}
END_TEST

/* Without a store a token is good for as long as it may be old, then the store's absence is
 * told; never that the token is bad. */
START_TEST(enter__store_away__used_until_old)
{
    int64_t begin_tick = berth_tick_ms();
    enum berth_reason reason;

    rig.at_once = true;
    ck_assert_int_eq(get(secret), BERTH_REASON_NONE);
    rig.failing = BERTH_REASON_STORE_UNAVAILABLE;
    while ((reason = get(secret)) == BERTH_REASON_NONE)
        ck_assert_int_lt(berth_tick_ms(), begin_tick + WAIT_MS);
    ck_assert_int_eq(reason, BERTH_REASON_STORE_UNAVAILABLE);
    ck_assert_int_ge(berth_tick_ms(), begin_tick + MAX_AGE_MS);
    rig.failing = 0;
    ck_assert_int_eq(get(secret), BERTH_REASON_NONE);
}
END_TEST

/* After a change of our own the next call asks again. */
START_TEST(forget__known_token__asked_again)
{
    rig.at_once = true;
    ck_assert_int_eq(get(secret), BERTH_REASON_NONE);
    rig.absent = true;
    berth_auth_forget(rig.auth, rig.principal.token.id);
    ck_assert_int_eq(get(secret), BERTH_REASON_TOKEN_INVALID);
    ck_assert_uint_eq(n_asked(), 2);
    ck_assert_int_eq(get(secret), BERTH_REASON_TOKEN_INVALID); /* remembered, too */
    ck_assert_uint_eq(n_asked(), 2);
    ck_assert_uint_eq(berth_auth_looks(rig.auth), 2);
}
END_TEST

/* The end of a token counts also between two look-ups. */
START_TEST(enter__expired_while_known__refused)
{
    rig.at_once = true;
    rig.principal.expire_ms = berth_now_ms() + 150;
    ck_assert_int_eq(get(secret), BERTH_REASON_NONE);
    while (berth_now_ms() < rig.principal.expire_ms)
        usleep(1000);
    ck_assert_int_eq(get(secret), BERTH_REASON_TOKEN_INVALID);
}
END_TEST

/* Another tenant's request is refused before the handler. */
START_TEST(judge__other_tenant__handler_not_reached)
{
    rig.at_once = true;
    ck_assert_int_eq(call_with(GET_TENANT, bearer(secret), "t2", 1, NULL),
                     BERTH_REASON_TENANT_NOT_FOUND);
    ck_assert_uint_eq(atomic_load(&rig.n_served), 0);
}
END_TEST

/* More guesses than entries: memory stays bounded, and a known token goes on being known. */
START_TEST(enter__flood_of_unknown_tokens__known_one_stays)
{
    char guess[BERTH_TOKEN_SIZE];
    struct berth_token ignored;
    unsigned before;

    rig.at_once = true;
    ck_assert_int_eq(get(secret), BERTH_REASON_NONE);
    rig.absent = true;
    for (int i = 0; i < 3000; i++) {
        berth_token_make(i % 2, guess, &ignored);
        ck_assert_int_eq(get(guess), BERTH_REASON_TOKEN_INVALID);
        if (i % 50 == 0) { /* it does not age meanwhile */
            rig.absent = false;
            ck_assert_int_eq(get(secret), BERTH_REASON_NONE);
            rig.absent = true;
        }
    }
    rig.absent = false;
    before = n_asked();
    ck_assert_int_eq(get(secret), BERTH_REASON_NONE);
    ck_assert_uint_le(n_asked() - before, 1);
}
END_TEST

/* ------------------------------------------------------------------- streams */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct berth_stream *stream;
    bool reads, over;
    enum berth_reason reason;
} listener = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static void heard(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    (void)ctx;
    berth_buf_unref(msg);
    if (msg && listener.reads)
        berth_stream_read(stream);
}

static void listened(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct berth_error err = {0};

    (void)ctx;
    (void)stream;
    (void)berth_status_to_error(status, &err);
    pthread_mutex_lock(&listener.mutex);
    listener.over = true;
    listener.reason = err.reason;
    pthread_cond_signal(&listener.cond);
    pthread_mutex_unlock(&listener.mutex);
}

static void listen_on(void *arg)
{
    static const struct berth_stream_ops ops = {.message = heard, .closed = listened};
    Berth__Control__V1__WatchEventsRequest req = BERTH__CONTROL__V1__WATCH_EVENTS_REQUEST__INIT;
    const char *header = bearer(arg);
    const struct berth_metadata token = {
        .key = "authorization", .value = header, .size = strlen(header)};
    const struct berth_call_options options = {.metadata = &token, .n_metadata = 1};

    req.tenant_id = (char *)"t1";
    listener.stream = berth_channel_stream(rig.channel, WATCH, &options, rig.loop, &ops, NULL);
    (void)berth_stream_write_last(listener.stream, berth_buf_pack(&req.base));
    if (listener.reads)
        berth_stream_read(listener.stream);
}

static void open_stream(bool floods)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    rig.at_once = true;
    watched.floods = floods;
    watched.begun = watched.cancelled = watched.closed = false;
    listener.over = false;
    listener.reads = !floods;
    berth_loop_post(rig.loop, listen_on, secret);
    while (!atomic_load(&watched.begun)) {
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        usleep(500);
    }
}

static void stop_listening(void *arg)
{
    (void)arg;
    berth_stream_cancel(listener.stream);
}

static bool is_over(void)
{
    bool over;

    pthread_mutex_lock(&listener.mutex);
    over = listener.over;
    pthread_mutex_unlock(&listener.mutex);
    return over;
}

static enum berth_reason stream_end(void)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    while (!is_over() || !atomic_load(&watched.closed)) {
        ck_assert_msg(berth_tick_ms() < end_tick, "the stream goes on");
        usleep(500);
    }
    return listener.reason;
}

static void set_principal(bool disabled, int64_t expire_ms)
{
    pthread_mutex_lock(&rig.mutex);
    rig.principal.tenant_disabled = disabled;
    rig.principal.expire_ms = expire_ms;
    pthread_mutex_unlock(&rig.mutex);
}

/* A stream stands with a good token, looked up while it does and nothing calls; and it ends,
 * its handler told, once the token is revoked, over, or its tenant disabled. */
START_TEST(stream__token_ends__ends_with_it)
{
    static const enum berth_reason reasons[] = {
        BERTH_REASON_TOKEN_INVALID, BERTH_REASON_TOKEN_INVALID, BERTH_REASON_TENANT_DISABLED};

    open_stream(false);
    wait_asked(4);
    ck_assert(!is_over());
    if (_i == 0)
        rig.absent = true;
    else
        set_principal(_i == 2, _i == 1 ? berth_now_ms() + 50 : 0);
    ck_assert_int_eq(stream_end(), reasons[_i]);
    ck_assert(atomic_load(&watched.cancelled));
    ck_assert_int_eq(get(secret), reasons[_i]);
}
END_TEST

/* While nobody can say what has become of a token, its streams go on. */
START_TEST(stream__store_away__goes_on_until_told)
{
    unsigned asked;

    open_stream(false);
    rig.failing = BERTH_REASON_STORE_UNAVAILABLE;
    asked = n_asked();
    wait_asked(asked + 6); /* each fails; the last word is older than MAX_AGE_MS by then */
    ck_assert(!is_over());
    rig.absent = true;
    rig.failing = 0;
    ck_assert_int_eq(stream_end(), BERTH_REASON_TOKEN_INVALID);
}
END_TEST

/* A caller that reads nothing does not keep what it has lost. */
START_TEST(stream__caller_does_not_read__ends_all_the_same)
{
    open_stream(true);
    rig.absent = true;
    for (int64_t end_tick = berth_tick_ms() + WAIT_MS; !atomic_load(&watched.closed);
         usleep(500))
        ck_assert_msg(berth_tick_ms() < end_tick, "the stream goes on");
    ck_assert(atomic_load(&watched.cancelled));
    berth_loop_post(rig.loop, stop_listening, NULL);
    (void)stream_end();
}
END_TEST

/* Streams of a token hold its entry, whatever else makes room; with their end it is as others.
 */
START_TEST(stream__flood_of_unknown_tokens__ends_with_its_token)
{
    char guess[BERTH_TOKEN_SIZE];
    struct berth_token ignored;

    open_stream(false);
    for (int i = 0; i < 1500; i++) {
        berth_token_make(false, guess, &ignored);
        ck_assert_int_eq(get(guess), BERTH_REASON_TOKEN_INVALID);
    }
    ck_assert(!is_over());
    rig.absent = true;
    berth_auth_forget_tenant(rig.auth, NULL);
    ck_assert_int_eq(stream_end(), BERTH_REASON_TOKEN_INVALID);
    rig.absent = false;
    berth_auth_forget_tenant(rig.auth, NULL);
    ck_assert_int_eq(get(secret), BERTH_REASON_NONE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("auth/gate");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, open_server, close_server);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, enter__no_good_token__same_refusal);
    tcase_add_test(all, enter__method_without_rule__refused);
    tcase_add_test(all, enter__unknown_token__parked_and_asked_once);
    tcase_add_test(all, enter__warm_token__refreshed_beside);
    tcase_add_test(all, enter__revoked__refused);
    tcase_add_test(all, enter__over_the_tenants_rate__refused_for_a_while);
    tcase_add_test(all, enter__store_away__used_until_old);
    tcase_add_test(all, forget__known_token__asked_again);
    tcase_add_test(all, enter__expired_while_known__refused);
    tcase_add_test(all, judge__other_tenant__handler_not_reached);
    tcase_add_test(all, enter__flood_of_unknown_tokens__known_one_stays);
    tcase_add_loop_test(all, stream__token_ends__ends_with_it, 0, 3);
    tcase_add_test(all, stream__store_away__goes_on_until_told);
    tcase_add_test(all, stream__caller_does_not_read__ends_all_the_same);
    tcase_add_test(all, stream__flood_of_unknown_tokens__ends_with_its_token);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}

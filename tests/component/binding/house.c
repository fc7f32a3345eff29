#include "tests/component/binding/house.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/log/log.h"
#include "common/records/keys.h"
#include "common/time/time.h"

#define REV "00000000000000aa"
#define ACCOUNT "00000000000000000000000000000000000000000000000000000000000000aa"

enum { PATIENT_MS = 10000 };

static void open_replica(struct house *house, int i, const struct house_options *o)
{
    const struct berth_redis_options redis = {
        .url = o->url     ? o->url
               : o->proxy ? o->proxy->url
                          : house->server.url,
        /* Patient by default: the machine may be busy. */
        .command_timeout_ms = o->command_ms ? o->command_ms : PATIENT_MS,
        .connect_timeout_ms = o->command_ms ? 0 : PATIENT_MS,
        .wait_replicas = o->wait_replicas,
    };
    const struct berth_server_options server = {.peers_only = true};
    struct berth_server_options with_loop = server;
    struct binding_options binding = {
        .store = {.deployment = "test",
                  .limits = {.lock_ms = o->lock_ms ? o->lock_ms : 60000,
                             .turn_ms = 1800000,
                             .turn_min_ms = o->turn_min_ms ? o->turn_min_ms : 60000,
                             .turn_max_ms = 86400000,
                             .use_ms = 120000,
                             .tombstone_ms = o->tombstone_ms ? o->tombstone_ms : 86400000},
                  .quarantine_ms = o->quarantine_ms ? o->quarantine_ms : 60000},
        .max_wait_ms = 600000,
        .max_waiters = o->max_waiters ? o->max_waiters : 8192,
    };
    struct berth_error err = {0};

    ck_assert_int_eq(berth_redis_new(&redis, &house->replica[i].redis, &err), BERTH_OK);
    ck_assert_int_eq(berth_loop_new(&house->replica[i].loop, &err), BERTH_OK);
    ck_assert_int_eq(berth_loop_start(house->replica[i].loop, "loop", &err), BERTH_OK);
    with_loop.loop = house->replica[i].loop;
    ck_assert_int_eq(berth_server_new(&with_loop, &house->replica[i].server, &err), BERTH_OK);
    binding.store.redis = house->replica[i].redis;
    binding.server = house->replica[i].server;
    binding.pool = berth_server_pool(house->replica[i].server);
    ck_assert_int_eq(binding_new(&binding, &house->replica[i].binding, &err), BERTH_OK);
    ck_assert_int_eq(berth_server_add(house->replica[i].server, binding_methods,
                                      n_binding_methods, house->replica[i].binding, &err),
                     BERTH_OK);
    snprintf(house->replica[i].address, sizeof house->replica[i].address, "unix:%s/b%d.sock",
             house->server.folder, i);
    ck_assert_msg(berth_server_listen(house->replica[i].server, house->replica[i].address, NULL,
                                      &err) == BERTH_OK,
                  "%s", err.text);
    ck_assert_int_eq(berth_server_start(house->replica[i].server, &err), BERTH_OK);
    ck_assert_int_eq(
        berth_channel_new(house->replica[i].address, NULL, &house->replica[i].channel, &err),
        BERTH_OK);
}

void house_open(struct house *house, const struct house_options *options)
{
    static const struct house_options none;

    if (!options)
        options = &none;
    *house = (struct house){0};
    berth_log_setup("test", BERTH_LOG_ERROR);
    berth_rpc_init();
    if (options->outside)
        house->server = *options->outside;
    else
        redis_server_start(&house->server, &options->redis);
    house->redis =
        redis_server_client(&house->server, &(struct berth_redis_options){.url = options->url});
    house_ask(house, "SET", BERTH_KEY_DEPLOYMENT, "test", NULL);
    house_ask(house, "SET", BERTH_KEY_EPOCH, "1", NULL);
    house_ask(house, "HSET", "berth:{t1}:t", "rev", REV, "disabled", "0", "default_config",
              "c1", "tenant", "{}", NULL);
    house_ask(house, "HSET", "berth:{t1}:c/c1", "rev", REV, "state", "active", "account",
              ACCOUNT, "template", "base", "keyed", "1", NULL);
    house_ask(house, "ZADD", "berth:{t1}:i/configs", "0", "c1", NULL);
    house->proxy = options->proxy;
    if (house->proxy)
        proxy_start(house->proxy, house->server.folder, house->server.url + strlen("unix:"));
    for (int i = 0; i < REPLICAS; i++)
        open_replica(house, i, options);
}

void house_close(struct house *house)
{
    for (int i = 0; i < REPLICAS; i++) {
        berth_channel_free(house->replica[i].channel);
        berth_server_stop(house->replica[i].server, 1000);
        berth_server_free(house->replica[i].server);
        binding_free(house->replica[i].binding);
        berth_loop_free(house->replica[i].loop);
        berth_redis_free(house->replica[i].redis);
    }
    if (house->proxy)
        proxy_stop(house->proxy);
    berth_redis_free(house->redis);
    redis_server_stop(&house->server);
    berth_rpc_done();
}

const char *house_ask(struct house *house, ...)
{
    static _Thread_local char text[1 << 16];
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    const char *argv[32], *word;
    struct berth_error err = {0};
    size_t n = 0;
    va_list args;

    va_start(args, house);
    while ((word = va_arg(args, const char *)) && n < BERTH_COUNT(argv))
        argv[n++] = word;
    va_end(args);
    ck_assert_msg(berth_redis_call(house->redis, n, argv, NULL, &reply, &err) == BERTH_OK, "%s",
                  err.text);
    text[0] = '\0';
    if (reply->type == BERTH_REPLY_INTEGER)
        snprintf(text, sizeof text, "%lld", (long long)reply->integer);
    else if (reply->type == BERTH_REPLY_STRING)
        snprintf(text, sizeof text, "%s", reply->string);
    return text;
}

const char *house_field(struct house *house, const char *session, const char *field)
{
    char key[BERTH_KEY_MAX];

    return house_ask(house, "HGET", berth_key_session(key, "t1", session), field, NULL);
}

enum berth_reason house_call(struct house *house, int replica, const char *path,
                             const ProtobufCMessage *req,
                             const ProtobufCMessageDescriptor *resp_type, int64_t timeout_ms,
                             void *ret_resp)
{
    const struct berth_call_options options = {.timeout_ms = timeout_ms ? timeout_ms : WAIT_MS};
    ProtobufCMessage *resp = NULL;
    struct berth_error err = {0};
    enum berth_code code;

    code = berth_channel_call(house->replica[replica].channel, path, req, resp_type, &options,
                              &resp, &err);
    if (code)
        return err.reason ? err.reason : BERTH_REASON_INTERNAL_BUG;
    if (ret_resp)
        memcpy(ret_resp, &resp, sizeof resp);
    else
        protobuf_c_message_free_unpacked(resp, NULL);
    return BERTH_REASON_NONE;
}

/* ------------------------------------------------------------------------ Acquire */

static void fill_ref(Berth__Common__V1__SessionRef *ref, const char *session)
{
    berth__common__v1__session_ref__init(ref);
    ref->tenant_id = (char *)"t1";
    ref->session_id = (char *)session;
}

void house_fill_acquire(struct want want, struct acquire_parts *parts, AcquireRequest *req)
{
    fill_ref(&parts->ref, want.session);
    berth__common__v1__session_spec__init(&parts->spec);
    memset(parts->attempt, 0, sizeof parts->attempt);
    memcpy(parts->attempt, &want.attempt, sizeof want.attempt);
    berth__binding__v1__acquire_request__init(req);
    req->session = &parts->ref;
    req->want = (Berth__Binding__V1__Want)(want.kind ? want.kind : BINDING_WANT_ENSURE);
    req->owner = (char *)"test";
    req->attempt.data = parts->attempt;
    req->attempt.len = sizeof parts->attempt;
    if (want.turn_token)
        req->turn_token = (char *)want.turn_token;
    if (want.failed)
        req->failed_sandbox_id = (char *)want.failed;
    req->must_be_new = want.must_be_new;
    req->recreate = want.recreate;
}

static void take_grant(const AcquireResponse *resp, struct grant *ret)
{
    ret->decision = (int)resp->decision;
    ret->n_intents = resp->n_intents;
    ret->protected = resp->protected_;
    ret->stale = resp->stale;
    ret->turn_running = resp->turn_running;
    ret->keyed = resp->keyed_create;
    if (resp->lock) {
        ck_assert_uint_eq(resp->lock->token.len, sizeof ret->token);
        memcpy(ret->token, resp->lock->token.data, sizeof ret->token);
        ret->fence = resp->lock->fence;
        ret->lease_ms = resp->lock->lease->seconds * 1000 + resp->lock->lease->nanos / 1000000;
    }
    if (resp->binding)
        snprintf(ret->bound, sizeof ret->bound, "%s", resp->binding->sandbox_id);
    if (resp->session)
        snprintf(ret->alias, sizeof ret->alias, "%s", resp->session->alias);
    if (resp->boot_image)
        snprintf(ret->boots, sizeof ret->boots, "%s", resp->boot_image->template_id);
}

struct grant house_acquire(struct house *house, int replica, struct want want)
{
    struct acquire_parts parts;
    AcquireRequest req;
    AcquireResponse *resp = NULL;
    struct grant grant = {0};

    house_fill_acquire(want, &parts, &req);
    grant.reason =
        house_call(house, replica, METHOD("Acquire"), &req.base,
                   &berth__binding__v1__acquire_response__descriptor, want.timeout_ms, &resp);
    if (!grant.reason) {
        take_grant(resp, &grant);
        protobuf_c_message_free_unpacked(&resp->base, NULL);
    }
    return grant;
}

/* ------------------------------------------------------------------ under the lock */

struct lock_parts {
    Berth__Common__V1__SessionRef ref;
    Berth__Binding__V1__Lock lock;
};

static void fill_lock(struct lock_parts *parts, const char *session, const struct grant *grant)
{
    fill_ref(&parts->ref, session);
    berth__binding__v1__lock__init(&parts->lock);
    parts->lock.token.data = (uint8_t *)grant->token;
    parts->lock.token.len = sizeof grant->token;
    parts->lock.fence = grant->fence;
}

static enum berth_reason commit(struct house *house, int replica, const char *session,
                                const struct grant *grant, CommitRequest *req)
{
    struct lock_parts parts;

    fill_lock(&parts, session, grant);
    req->session = &parts.ref;
    req->lock = &parts.lock;
    return house_call(house, replica, METHOD("Commit"), &req->base,
                      &berth__binding__v1__commit_response__descriptor, 0, NULL);
}

enum berth_reason house_bind(struct house *house, int replica, const char *session,
                             const struct grant *grant, const char *sandbox_id)
{
    Berth__Binding__V1__Binding bound = BERTH__BINDING__V1__BINDING__INIT;
    CommitRequest req = BERTH__BINDING__V1__COMMIT_REQUEST__INIT;
    uint8_t account[32] = {[31] = 0xaa};

    bound.backend = (char *)"local";
    bound.config_id = (char *)"c1";
    bound.sandbox_id = (char *)sandbox_id;
    bound.origin = BERTH__BINDING__V1__ORIGIN__ORIGIN_CREATED;
    bound.account.data = account;
    bound.account.len = sizeof account;
    bound.sealed_endpoint.data = (uint8_t *)"sealed";
    bound.sealed_endpoint.len = 6;
    req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_BIND;
    req.bind = &bound;
    return commit(house, replica, session, grant, &req);
}

enum berth_reason house_gone(struct house *house, int replica, const char *session,
                             const struct grant *grant, const char *sandbox_id, bool keep_lock)
{
    CommitRequest req = BERTH__BINDING__V1__COMMIT_REQUEST__INIT;

    req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_GONE_SANDBOX_ID;
    req.gone_sandbox_id = (char *)sandbox_id;
    req.keep_lock = keep_lock;
    return commit(house, replica, session, grant, &req);
}

enum berth_reason house_tombstone(struct house *house, int replica, const char *session,
                                  const struct grant *grant)
{
    CommitRequest req = BERTH__BINDING__V1__COMMIT_REQUEST__INIT;

    req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_DELETE_SESSION;
    req.delete_session = true;
    return commit(house, replica, session, grant, &req);
}

enum berth_reason house_abort(struct house *house, int replica, const char *session,
                              const struct grant *grant)
{
    Berth__Binding__V1__AbortRequest req = BERTH__BINDING__V1__ABORT_REQUEST__INIT;
    struct lock_parts parts;

    fill_lock(&parts, session, grant);
    req.session = &parts.ref;
    req.lock = &parts.lock;
    return house_call(house, replica, METHOD("Abort"), &req.base,
                      &berth__binding__v1__abort_response__descriptor, 0, NULL);
}

enum berth_reason house_renew_lock(struct house *house, int replica, const char *session,
                                   const struct grant *grant, int64_t *ret_lease_ms)
{
    Berth__Binding__V1__RenewLockRequest req = BERTH__BINDING__V1__RENEW_LOCK_REQUEST__INIT;
    Berth__Binding__V1__RenewLockResponse *resp = NULL;
    struct lock_parts parts;
    enum berth_reason reason;

    fill_lock(&parts, session, grant);
    req.session = &parts.ref;
    req.lock = &parts.lock;
    reason = house_call(house, replica, METHOD("RenewLock"), &req.base,
                        &berth__binding__v1__renew_lock_response__descriptor, 0, &resp);
    if (reason)
        return reason;
    if (ret_lease_ms)
        *ret_lease_ms = resp->lock->lease->seconds * 1000 + resp->lock->lease->nanos / 1000000;
    protobuf_c_message_free_unpacked(&resp->base, NULL);
    return BERTH_REASON_NONE;
}

enum berth_reason house_begin(struct house *house, int replica, const char *session,
                              const char *turn_id, char *token)
{
    Berth__Binding__V1__BeginTurnRequest req = BERTH__BINDING__V1__BEGIN_TURN_REQUEST__INIT;
    Berth__Binding__V1__BeginTurnResponse *resp = NULL;
    Berth__Common__V1__SessionRef ref;
    enum berth_reason reason;

    fill_ref(&ref, session);
    req.session = &ref;
    req.turn_id = (char *)turn_id;
    reason = house_call(house, replica, METHOD("BeginTurn"), &req.base,
                        &berth__binding__v1__begin_turn_response__descriptor, 0, &resp);
    if (reason)
        return reason;
    snprintf(token, 160, "%s", resp->turn_token);
    protobuf_c_message_free_unpacked(&resp->base, NULL);
    return BERTH_REASON_NONE;
}

void house_make(struct house *house, const char *session, const char *sandbox_id)
{
    struct grant grant = house_acquire(house, 0, (struct want){session, .attempt = 1});

    ck_reason(grant.reason, "");
    ck_assert_int_eq(grant.decision, BINDING_ADOPT_OR_CREATE);
    ck_reason(house_bind(house, 0, session, &grant, sandbox_id), "");
}

/* redis.c - running one command or script on a connection of the pool. */
#include "common/redis/redis.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/redis/internal.h"
#include "common/time/time.h"

enum {
    ATTEMPTS = 2, /* a second one only where nothing was sent, or nothing can have changed */
    COMMANDS_MAX = 2
};

/* --------------------------------------------------------------------- commands */

/* The reply's own error, if it is one: mapped, and the connection judged. */
static enum berth_code judge(struct redis_conn *conn, const struct berth_reply *reply,
                             struct berth_error *err)
{
    const char *error = redis_reply_error(reply);

    if (!error)
        return BERTH_OK;
    switch (redis_advice(error)) {
    case REDIS_STAY:
        break;
    case REDIS_DOUBT:
        conn->doubted = true;
        break;
    case REDIS_LEAVE:
    case REDIS_ASK_ANOTHER:
        conn->broken = true;
        break;
    }
    return redis_map_error(error, err);
}

/* The answer was that somebody else is to be asked. */
static bool is_misdirected(const struct berth_reply *reply)
{
    const char *error = reply ? redis_reply_error(reply) : NULL;

    return error && redis_advice(error) == REDIS_ASK_ANOTHER;
}

static int64_t call_deadline(const struct berth_redis *redis)
{
    return berth_tick_ms() + redis_command_ms(redis);
}

enum berth_code berth_redis_call(struct berth_redis *redis, size_t argc,
                                 const char *const *argv, const size_t *sizes,
                                 struct berth_reply **ret, struct berth_error *err)
{
    const struct redis_command command = {argc, argv, sizes};
    int64_t until_tick = call_deadline(redis);
    struct berth_reply *reply = NULL;
    enum berth_code code;
    bool sent = false;

    for (int attempt = 1;; attempt++) {
        struct redis_conn *conn = NULL;

        code = redis_take(redis, until_tick, &conn, err);
        if (code)
            return code;
        code = redis_conn_exchange(conn, &command, 1, until_tick, &reply, &sent, err);
        if (!code)
            code = judge(conn, reply, err);
        redis_put(redis, conn);
        if (code != BERTH_UNAVAILABLE || attempt == ATTEMPTS ||
            (sent && !is_misdirected(reply)))
            break;
        reply = berth_reply_free(reply);
    }
    if (code)
        berth_reply_free(reply);
    else
        *ret = reply;
    return code;
}

enum berth_code berth_redis_ping(struct berth_redis *redis, struct berth_error *err)
{
    const char *argv[] = {"PING"};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    struct berth_error why = {0};
    enum berth_code code = berth_redis_call(redis, 1, argv, NULL, &reply, &why);

    return code ? berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "%s", why.text) : BERTH_OK;
}

/* ---------------------------------------------------------------------- scripts */

struct eval {
    const struct redis_order *order;
    const char **argv; /* owned; EVALSHA and the SHA in front, the rest borrowed */
    size_t *sizes;
    size_t argc;
    struct berth_reply *replies[COMMANDS_MAX]; /* the script's, WAIT's */
    bool sent;
};

static void drop_replies(struct eval *eval)
{
    for (size_t i = 0; i < COMMANDS_MAX; i++)
        eval->replies[i] = berth_reply_free(eval->replies[i]);
}

static enum berth_code send_eval(struct redis_conn *conn, struct eval *eval, int64_t until_tick,
                                 struct berth_error *err)
{
    static const char *const names[] = {"EVALSHA_RO", "EVALSHA", "EVALSHA"};
    int64_t wait_ms = (until_tick - berth_tick_ms()) / 2;
    char n[12], timeout[24];
    const char *wait[] = {"WAIT", n, timeout};
    struct redis_command commands[COMMANDS_MAX];

    snprintf(n, sizeof n, "%u", eval->order->wait_replicas);
    snprintf(timeout, sizeof timeout, "%" PRId64, wait_ms > 0 ? wait_ms : 1); /* 0: for ever */
    eval->argv[0] = names[eval->order->script];
    eval->sizes[0] = strlen(names[eval->order->script]);
    eval->argv[1] = conn->sha[eval->order->script];
    eval->sizes[1] = 40;
    commands[0] = (struct redis_command){eval->argc, eval->argv, eval->sizes};
    commands[1] = (struct redis_command){3, wait, NULL};
    return redis_conn_exchange(conn, commands, eval->order->wait_replicas > 0 ? 2 : 1,
                               until_tick, eval->replies, &eval->sent, err);
}

static bool is_noscript(const struct berth_reply *reply)
{
    const char *error = redis_reply_error(reply);

    return error && strncmp(error, "NOSCRIPT", 8) == 0;
}

static enum berth_code run_eval(struct redis_conn *conn, struct eval *eval, int64_t until_tick,
                                struct berth_error *err)
{
    enum berth_code code = send_eval(conn, eval, until_tick, err);

    if (!code &&
        is_noscript(eval->replies[0])) { /* flushed, or another server: load it again */
        drop_replies(eval);
        eval->sent = false;
        code = redis_load_script(conn, eval->order->script, until_tick, err);
        if (code == BERTH_UNKNOWN)
            code = berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "redis: no answer in time");
        if (!code)
            code = send_eval(conn, eval, until_tick, err);
    }
    if (!code)
        code = judge(conn, eval->replies[0], err);
    return code;
}

static int64_t replicas_of(const struct eval *eval)
{
    const struct berth_reply *reply = eval->replies[1];

    return reply && reply->type == BERTH_REPLY_INTEGER ? reply->integer : 0;
}

static enum berth_code try_eval(struct berth_redis *redis, struct eval *eval,
                                int64_t until_tick, struct berth_error *err)
{
    struct redis_conn *conn = NULL;
    enum berth_code code = redis_take(redis, until_tick, &conn, err);

    if (code)
        return code;
    if (eval->order->only_on && conn->server != eval->order->only_on) {
        redis_put(redis, conn);
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE,
                          "redis: the store is another server than a moment ago");
    }
    code = run_eval(conn, eval, until_tick, err);
    if (!code && eval->order->wait_replicas > 0 &&
        replicas_of(eval) < eval->order->wait_replicas)
        conn->doubted = true;
    redis_put(redis, conn);
    return code;
}

static bool fill_argv(struct eval *eval, const struct redis_words *args)
{
    enum { HEAD = 2 };

    eval->argc = HEAD + args->n;
    eval->argv = calloc(eval->argc, sizeof *eval->argv);
    eval->sizes = calloc(eval->argc, sizeof *eval->sizes);
    if (!eval->argv || !eval->sizes)
        return false;
    for (size_t i = 0; i < args->n; i++) {
        eval->argv[HEAD + i] = args->argv[i];
        eval->sizes[HEAD + i] = args->sizes[i];
    }
    return true;
}

enum berth_code redis_eval(struct berth_redis *redis, const struct redis_order *order,
                           int64_t *ret_replicas, struct berth_reply **ret,
                           struct berth_error *err)
{
    struct eval eval = {.order = order};
    bool reads = order->script == REDIS_SCRIPT_READ;
    int64_t until_tick = order->until_tick ? order->until_tick : call_deadline(redis);
    enum berth_code code = BERTH_OK;

    if (!fill_argv(&eval, order->args))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (int attempt = 1; !code; attempt++) {
        bool again;

        code = try_eval(redis, &eval, until_tick, err);
        /* Lost on the way, not answered with an error. Reading twice changes nothing. */
        again = !eval.replies[0] &&
                ((code == BERTH_UNAVAILABLE && !eval.sent) || (code == BERTH_UNKNOWN && reads));
        again = again || is_misdirected(eval.replies[0]);
        if (!again || attempt == ATTEMPTS || berth_tick_ms() >= until_tick)
            break;
        drop_replies(&eval);
        eval.sent = false;
        code = BERTH_OK;
    }
    if (code == BERTH_UNKNOWN && reads)
        code = berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "redis: no answer to a read");
    if (!code && ret_replicas)
        *ret_replicas = replicas_of(&eval);
    if (!code)
        *ret = BERTH_STEAL(eval.replies[0]);
    drop_replies(&eval);
    free(eval.argv);
    free(eval.sizes);
    return code;
}

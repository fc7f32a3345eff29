/* redis.c - the pool of connections, and running one command or script on one of them. */
#include "common/redis/redis.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "common/ids/ids.h"
#include "common/redis/internal.h"
#include "common/time/time.h"

enum {
    CONNECTIONS_DEFAULT = 16,
    CONNECT_TIMEOUT_MS = 300,
    COMMAND_TIMEOUT_MS = 800,
    BACK_OFF_FIRST_MS = 50,
    BACK_OFF_MAX_MS = 2000,
    ATTEMPTS = 2, /* a second one only where nothing was sent, or nothing can have changed */
    COMMANDS_MAX = 2
};

struct berth_redis {
    struct redis_address address;
    char *username, *password;
    unsigned max_connections, wait_replicas;
    int64_t connect_timeout_ms, command_timeout_ms;

    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    struct redis_conn *idle; /* the last used first */
    unsigned n_open;         /* idle, in use and being opened */
    uint64_t n_made;         /* opened so far */
    unsigned failures;       /* to connect, in a row */
    bool probing;            /* after a failure: one tries, the others fail at once */
    int64_t retry_tick;
    struct berth_error why; /* of the last failure to connect */
};

static void init_sync(struct berth_redis *redis)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&redis->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&redis->changed, &attr);
    pthread_condattr_destroy(&attr);
}

/* "" counts as not given: that is what an unset setting looks like. */
static bool copy_given(const char *text, char **ret)
{
    *ret = text && *text ? strdup(text) : NULL;
    return *ret || !text || !*text;
}

enum berth_code berth_redis_new(const struct berth_redis_options *options,
                                struct berth_redis **ret, struct berth_error *err)
{
    BERTH_AUTO(berth_redis_free) struct berth_redis *redis = calloc(1, sizeof *redis);
    enum berth_code code;

    if (!redis)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    init_sync(redis);
    code = redis_parse_url(options->url, &redis->address, err);
    if (code)
        return code;
    if (!copy_given(options->username, &redis->username) ||
        !copy_given(options->password, &redis->password))
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    redis->max_connections =
        options->max_connections ? options->max_connections : CONNECTIONS_DEFAULT;
    redis->connect_timeout_ms =
        options->connect_timeout_ms > 0 ? options->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    redis->command_timeout_ms =
        options->command_timeout_ms > 0 ? options->command_timeout_ms : COMMAND_TIMEOUT_MS;
    redis->wait_replicas = options->wait_replicas;
    *ret = BERTH_STEAL(redis);
    return BERTH_OK;
}

static void close_all(struct redis_conn *list)
{
    while (list) {
        struct redis_conn *next = list->next;

        redis_conn_close(list);
        list = next;
    }
}

struct berth_redis *berth_redis_free(struct berth_redis *redis)
{
    if (!redis)
        return NULL;
    close_all(redis->idle);
    pthread_cond_destroy(&redis->changed);
    pthread_mutex_destroy(&redis->mutex);
    if (redis->password)
        explicit_bzero(redis->password, strlen(redis->password));
    free(redis->password);
    free(redis->username);
    free(redis);
    return NULL;
}

uint64_t berth_redis_connections(struct berth_redis *redis)
{
    uint64_t made;

    pthread_mutex_lock(&redis->mutex);
    made = redis->n_made;
    pthread_mutex_unlock(&redis->mutex);
    return made;
}

unsigned redis_wait_replicas(const struct berth_redis *redis)
{
    return redis->wait_replicas;
}

/* ------------------------------------------------------------------------ pool */

/* 50 ms, 100, 200, ... 2 s, less up to a quarter, so that processes do not march in step. */
static int64_t back_off_ms(unsigned failures)
{
    int64_t ms = failures > 6 ? BACK_OFF_MAX_MS : (int64_t)BACK_OFF_FIRST_MS << (failures - 1);
    uint16_t random;

    berth_random(&random, sizeof random);
    if (ms > BACK_OFF_MAX_MS)
        ms = BACK_OFF_MAX_MS;
    return ms - ms * random / (4 * 65536);
}

static enum berth_code open_one(struct berth_redis *redis, int64_t until_tick,
                                struct redis_conn **ret, struct berth_error *err)
{
    const struct redis_login login = {&redis->address, redis->username, redis->password};
    int64_t connect_tick = berth_tick_ms() + redis->connect_timeout_ms;
    struct berth_error why = {0};
    enum berth_code code;

    code = redis_conn_open(&login, connect_tick < until_tick ? connect_tick : until_tick, ret,
                           &why);
    pthread_mutex_lock(&redis->mutex);
    redis->probing = false;
    if (code) {
        redis->n_open--;
        redis->failures++;
        redis->why = why;
        redis->retry_tick = berth_tick_ms() + back_off_ms(redis->failures);
    } else {
        redis->failures = 0;
        redis->n_made++;
    }
    pthread_cond_broadcast(&redis->changed);
    pthread_mutex_unlock(&redis->mutex);
    if (code && err)
        *err = why;
    return code;
}

/* False: the deadline has passed. Called with the mutex held. */
static bool wait_changed(struct berth_redis *redis, int64_t until_tick)
{
    struct timespec until = {.tv_sec = until_tick / 1000,
                             .tv_nsec = until_tick % 1000 * 1000000};

    return pthread_cond_timedwait(&redis->changed, &redis->mutex, &until) == 0 ||
           berth_tick_ms() < until_tick;
}

/* A connection for this thread alone; give it back with put(). */
static enum berth_code take(struct berth_redis *redis, int64_t until_tick,
                            struct redis_conn **ret, struct berth_error *err)
{
    struct redis_conn *conn, *stale = NULL;
    bool open = false, in_time = true;
    enum berth_code code = BERTH_OK;

    pthread_mutex_lock(&redis->mutex);
    for (;;) {
        while ((conn = redis->idle)) {
            redis->idle = conn->next;
            if (!redis_conn_is_stale(conn))
                break;
            conn->next = stale;
            stale = conn;
            redis->n_open--;
        }
        if (conn)
            break;
        if (redis->failures > 0 && (redis->probing || berth_tick_ms() < redis->retry_tick)) {
            code = berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "%s", redis->why.text);
            break;
        }
        if (!in_time) {
            code = berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE,
                              "redis: all %u connections stayed busy", redis->max_connections);
            break;
        }
        open = redis->n_open < redis->max_connections;
        if (open) {
            redis->n_open++;
            redis->probing = redis->failures > 0;
            break;
        }
        in_time = wait_changed(redis, until_tick);
    }
    pthread_mutex_unlock(&redis->mutex);
    close_all(stale);
    if (open)
        return open_one(redis, until_tick, ret, err);
    if (!code)
        *ret = conn;
    return code;
}

static void put(struct berth_redis *redis, struct redis_conn *conn)
{
    bool broken = conn->broken;

    pthread_mutex_lock(&redis->mutex);
    if (broken) {
        redis->n_open--;
    } else {
        conn->next = redis->idle;
        redis->idle = conn;
    }
    pthread_cond_signal(&redis->changed);
    pthread_mutex_unlock(&redis->mutex);
    if (broken)
        redis_conn_close(conn);
}

/* --------------------------------------------------------------------- commands */

/* The reply's own error, if it is one: mapped, and the connection judged. */
static enum berth_code judge(struct redis_conn *conn, const struct berth_reply *reply,
                             struct berth_error *err)
{
    const char *error = redis_reply_error(reply);

    if (!error)
        return BERTH_OK;
    conn->broken = conn->broken || redis_error_is_final(error);
    return redis_map_error(error, err);
}

static int64_t call_deadline(const struct berth_redis *redis)
{
    return berth_tick_ms() + redis->command_timeout_ms;
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

        code = take(redis, until_tick, &conn, err);
        if (code)
            return code;
        code = redis_conn_exchange(conn, &command, 1, until_tick, &reply, &sent, err);
        if (!code)
            code = judge(conn, reply, err);
        put(redis, conn);
        if (code != BERTH_UNAVAILABLE || reply || sent || attempt == ATTEMPTS)
            break;
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
    enum redis_script script;
    const char **argv; /* owned; EVALSHA and the SHA in front, the rest borrowed */
    size_t *sizes;
    size_t argc;
    unsigned wait_replicas;
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
    static const char *const names[] = {"EVALSHA_RO", "EVALSHA"};
    int64_t wait_ms = (until_tick - berth_tick_ms()) / 2;
    char n[12], timeout[24];
    const char *wait[] = {"WAIT", n, timeout};
    struct redis_command commands[COMMANDS_MAX];

    snprintf(n, sizeof n, "%u", eval->wait_replicas);
    snprintf(timeout, sizeof timeout, "%" PRId64, wait_ms > 0 ? wait_ms : 1); /* 0: for ever */
    eval->argv[0] = names[eval->script];
    eval->sizes[0] = strlen(names[eval->script]);
    eval->argv[1] = conn->sha[eval->script];
    eval->sizes[1] = 40;
    commands[0] = (struct redis_command){eval->argc, eval->argv, eval->sizes};
    commands[1] = (struct redis_command){3, wait, NULL};
    return redis_conn_exchange(conn, commands, eval->wait_replicas > 0 ? 2 : 1, until_tick,
                               eval->replies, &eval->sent, err);
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
        code = redis_load_script(conn, eval->script, until_tick, err);
        if (code == BERTH_UNKNOWN)
            code = berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "redis: no answer in time");
        if (!code)
            code = send_eval(conn, eval, until_tick, err);
    }
    if (!code)
        code = judge(conn, eval->replies[0], err);
    return code;
}

static enum berth_code try_eval(struct berth_redis *redis, struct eval *eval,
                                int64_t until_tick, struct berth_error *err)
{
    struct redis_conn *conn = NULL;
    enum berth_code code = take(redis, until_tick, &conn, err);

    if (code)
        return code;
    code = run_eval(conn, eval, until_tick, err);
    put(redis, conn);
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

enum berth_code redis_eval(struct berth_redis *redis, enum redis_script script,
                           const struct redis_words *args, unsigned wait_replicas,
                           int64_t *ret_replicas, struct berth_reply **ret,
                           struct berth_error *err)
{
    struct eval eval = {.script = script, .wait_replicas = wait_replicas};
    int64_t until_tick = call_deadline(redis);
    enum berth_code code = BERTH_OK;

    if (!fill_argv(&eval, args))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (int attempt = 1; !code; attempt++) {
        bool lost;

        code = try_eval(redis, &eval, until_tick, err);
        /* Lost on the way, not answered with an error. Reading twice changes nothing. */
        lost = !eval.replies[0] && ((code == BERTH_UNAVAILABLE && !eval.sent) ||
                                    (code == BERTH_UNKNOWN && script == REDIS_SCRIPT_READ));
        if (!lost || attempt == ATTEMPTS || berth_tick_ms() >= until_tick)
            break;
        code = BERTH_OK;
    }
    if (code == BERTH_UNKNOWN && script == REDIS_SCRIPT_READ)
        code = berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "redis: no answer to a read");
    if (!code && wait_replicas > 0 && eval.replies[1]->type == BERTH_REPLY_INTEGER)
        *ret_replicas = eval.replies[1]->integer;
    if (!code)
        *ret = BERTH_STEAL(eval.replies[0]);
    drop_replies(&eval);
    free(eval.argv);
    free(eval.sizes);
    return code;
}

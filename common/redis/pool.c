/* pool.c - the connections: how many, to which server, and when to try again. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "common/ids/ids.h"
#include "common/log/log.h"
#include "common/redis/internal.h"
#include "common/time/time.h"

enum {
    CONNECTIONS_DEFAULT = 16,
    CONNECT_TIMEOUT_MS = 300,
    COMMAND_TIMEOUT_MS = 800,
    BACK_OFF_FIRST_MS = 50,
    BACK_OFF_MAX_MS = 2000,
    WATCH_MS = 1000 /* between questions to the Sentinels */
};

struct berth_redis {
    struct redis_source source;
    char *username, *password;
    char *sentinel_username, *sentinel_password;
    char *tls_ca, *tls_cert, *tls_key;
    struct redis_tls_files tls_files; /* borrowed from them */
    unsigned max_connections, wait_replicas;
    int64_t connect_timeout_ms, command_timeout_ms;
    bool any_role;
    pthread_t watcher; /* with Sentinels */
    bool watching;

    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    pthread_cond_t ending; /* of the watcher */
    bool stopping;
    struct redis_conn *idle; /* the last used first */
    unsigned n_open;         /* idle, in use and being opened */
    unsigned generation;     /* connections of an older one are not used any more */
    unsigned failures;       /* to connect, in a row */
    bool probing;            /* after a failure: one tries, the others fail at once */
    int64_t retry_tick;
    struct berth_error why;    /* of the last failure to connect */
    struct redis_identity who; /* the server of the newest connection */
    uint64_t n_servers;
    struct redis_address master; /* with Sentinels */
    bool master_known;
    size_t first_sentinel;
};

/* ----------------------------------------------------------------- the master */

static const struct redis_tls_files *tls(const struct berth_redis *redis)
{
    return redis->tls_files.ca ? &redis->tls_files : NULL;
}

static bool has_sentinels(const struct berth_redis *redis)
{
    return redis->source.master[0] != '\0';
}

static enum berth_code ask_sentinels(struct berth_redis *redis, int64_t until_tick,
                                     struct redis_address *ret, struct berth_error *err)
{
    struct redis_sentinels sentinels = {&redis->source, redis->sentinel_username,
                                        redis->sentinel_password, tls(redis), 0};
    enum berth_code code;

    pthread_mutex_lock(&redis->mutex);
    sentinels.first = redis->first_sentinel;
    pthread_mutex_unlock(&redis->mutex);
    code = redis_ask_sentinels(&sentinels, until_tick, ret, err);
    pthread_mutex_lock(&redis->mutex);
    redis->first_sentinel = sentinels.first;
    pthread_mutex_unlock(&redis->mutex);
    return code;
}

static bool same_address(const struct redis_address *a, const struct redis_address *b)
{
    return strcmp(a->host, b->host) == 0 && strcmp(a->port, b->port) == 0;
}

/* With the mutex held: what is open is left, and who waits for a better time need not. */
static void leave_server(struct berth_redis *redis)
{
    redis->generation++;
    redis->master_known = false;
    redis->retry_tick = 0;
    pthread_cond_broadcast(&redis->changed);
}

/* False: the deadline has passed. Called with the mutex held. */
static bool wait_for(struct berth_redis *redis, pthread_cond_t *cond, int64_t until_tick)
{
    struct timespec until = {.tv_sec = until_tick / 1000,
                             .tv_nsec = until_tick % 1000 * 1000000};

    return pthread_cond_timedwait(cond, &redis->mutex, &until) == 0 ||
           berth_tick_ms() < until_tick;
}

/* A master that the Sentinels have replaced without its noticing goes on answering. */
static void *watch_sentinels(void *arg)
{
    struct berth_redis *redis = arg;
    int64_t next_tick = berth_tick_ms() + WATCH_MS;

    pthread_mutex_lock(&redis->mutex);
    while (!redis->stopping) {
        struct redis_address now;
        enum berth_code code;

        if (berth_tick_ms() < next_tick) {
            wait_for(redis, &redis->ending, next_tick);
            continue;
        }
        pthread_mutex_unlock(&redis->mutex);
        code = ask_sentinels(redis, berth_tick_ms() + redis->connect_timeout_ms, &now, NULL);
        pthread_mutex_lock(&redis->mutex);
        if (!code && !same_address(&now, &redis->master)) {
            leave_server(redis);
            redis->master = now;
            redis->master_known = true;
        }
        next_tick = berth_tick_ms() + WATCH_MS;
    }
    pthread_mutex_unlock(&redis->mutex);
    return NULL;
}

static enum berth_code find_master(struct berth_redis *redis, int64_t until_tick,
                                   struct redis_address *ret, bool *ret_guessed,
                                   struct berth_error *err)
{
    enum berth_code code;

    *ret_guessed = false;
    if (!has_sentinels(redis)) {
        *ret = redis->source.at[0];
        return BERTH_OK;
    }
    pthread_mutex_lock(&redis->mutex);
    *ret_guessed = redis->master_known;
    *ret = redis->master;
    pthread_mutex_unlock(&redis->mutex);
    if (*ret_guessed)
        return BERTH_OK;
    code = ask_sentinels(redis, until_tick, ret, err);
    if (code)
        return code;
    pthread_mutex_lock(&redis->mutex);
    redis->master = *ret;
    redis->master_known = true;
    pthread_mutex_unlock(&redis->mutex);
    return BERTH_OK;
}

static void forget_master(struct berth_redis *redis)
{
    pthread_mutex_lock(&redis->mutex);
    redis->master_known = false;
    pthread_mutex_unlock(&redis->mutex);
}

static enum berth_code open_at(struct berth_redis *redis, const struct redis_address *address,
                               int64_t until_tick, struct redis_conn **ret,
                               struct berth_error *err)
{
    const struct redis_login login = {address, redis->username, redis->password, tls(redis)};
    struct redis_conn *conn = NULL;
    enum berth_code code = redis_conn_open(&login, until_tick, &conn, err);

    if (code)
        return code;
    if (!redis->any_role && !conn->who.is_master) {
        redis_conn_close(conn);
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE,
                          "redis at %s: it is a replica, and may be behind", address->shown);
    }
    *ret = conn;
    return BERTH_OK;
}

/* With the mutex held: whose connection is this? */
static void note_server(struct berth_redis *redis, struct redis_conn *conn)
{
    if (redis->n_servers == 0 || redis_identity_differs(&redis->who, &conn->who)) {
        if (redis->n_servers++ > 0)
            redis->generation++;
    }
    redis->who = conn->who;
    conn->generation = redis->generation;
    conn->server = redis->n_servers;
}

static enum berth_code connect_once(struct berth_redis *redis, int64_t until_tick,
                                    struct redis_conn **ret, struct berth_error *err)
{
    struct redis_address address;
    bool guessed = true;
    enum berth_code code = BERTH_OK;

    /* An address of before may be out of date: then once more, and ask. */
    for (int attempt = 0; attempt < 2; attempt++) {
        code = find_master(redis, until_tick, &address, &guessed, err);
        if (!code)
            code = open_at(redis, &address, until_tick, ret, err);
        if (!code)
            return BERTH_OK;
        forget_master(redis);
        if (!guessed)
            break;
    }
    return code;
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
    int64_t connect_tick = berth_tick_ms() + redis->connect_timeout_ms;
    struct berth_error why = {0};
    enum berth_code code;

    code =
        connect_once(redis, connect_tick < until_tick ? connect_tick : until_tick, ret, &why);
    pthread_mutex_lock(&redis->mutex);
    redis->probing = false;
    if (code) {
        redis->n_open--;
        redis->failures++;
        redis->why = why;
        redis->retry_tick = berth_tick_ms() + back_off_ms(redis->failures);
    } else {
        redis->failures = 0;
        note_server(redis, *ret);
    }
    pthread_cond_broadcast(&redis->changed);
    pthread_mutex_unlock(&redis->mutex);
    if (code && err)
        *err = why;
    return code;
}

static void close_all(struct redis_conn *list)
{
    while (list) {
        struct redis_conn *next = list->next;

        redis_conn_close(list);
        list = next;
    }
}

enum berth_code redis_take(struct berth_redis *redis, int64_t until_tick,
                           struct redis_conn **ret, struct berth_error *err)
{
    struct redis_conn *conn, *stale = NULL;
    bool open = false, in_time = true;
    enum berth_code code = BERTH_OK;

    pthread_mutex_lock(&redis->mutex);
    for (;;) {
        while ((conn = redis->idle)) {
            redis->idle = conn->next;
            if (conn->generation == redis->generation && !redis_conn_is_stale(conn))
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
        in_time = wait_for(redis, &redis->changed, until_tick);
    }
    pthread_mutex_unlock(&redis->mutex);
    close_all(stale);
    if (open)
        return open_one(redis, until_tick, ret, err);
    if (!code)
        *ret = conn;
    return code;
}

void redis_put(struct berth_redis *redis, struct redis_conn *conn)
{
    bool broken;

    pthread_mutex_lock(&redis->mutex);
    if (conn->doubted && has_sentinels(redis))
        conn->broken = true;
    broken = conn->broken || conn->generation != redis->generation;
    if (conn->broken && conn->generation == redis->generation)
        redis->master_known = false;
    if (broken) {
        redis->n_open--;
    } else {
        conn->doubted = false;
        conn->next = redis->idle;
        redis->idle = conn;
    }
    pthread_cond_signal(&redis->changed);
    pthread_mutex_unlock(&redis->mutex);
    if (broken)
        redis_conn_close(conn);
}

uint64_t berth_redis_servers(struct berth_redis *redis)
{
    uint64_t n;

    pthread_mutex_lock(&redis->mutex);
    n = redis->n_servers;
    pthread_mutex_unlock(&redis->mutex);
    return n;
}

bool berth_redis_server(struct berth_redis *redis, char ret_run_id[BERTH_REDIS_RUN_ID_SIZE])
{
    bool was_replica;

    pthread_mutex_lock(&redis->mutex);
    memcpy(ret_run_id, redis->who.run_id, BERTH_REDIS_RUN_ID_SIZE);
    was_replica = redis->who.was_replica;
    pthread_mutex_unlock(&redis->mutex);
    return was_replica;
}

unsigned redis_wait_replicas(const struct berth_redis *redis)
{
    return redis->wait_replicas;
}

int64_t redis_command_ms(const struct berth_redis *redis)
{
    return redis->command_timeout_ms;
}

/* ------------------------------------------------------------------------ life */

static void init_sync(struct berth_redis *redis)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&redis->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&redis->changed, &attr);
    pthread_cond_init(&redis->ending, &attr);
    pthread_condattr_destroy(&attr);
}

/* "" counts as not given: that is what an unset setting looks like. */
static bool copy_given(const char *text, char **ret)
{
    *ret = text && *text ? strdup(text) : NULL;
    return *ret || !text || !*text;
}

static int64_t or_default(int64_t given, int64_t fallback)
{
    return given > 0 ? given : fallback;
}

static enum berth_code start_watching(struct berth_redis *redis, struct berth_error *err)
{
    if (pthread_create(&redis->watcher, NULL, watch_sentinels, redis) != 0)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, "no thread to ask the Sentinels");
    pthread_setname_np(redis->watcher, "redis-sentinels");
    redis->watching = true;
    return BERTH_OK;
}

enum berth_code berth_redis_new(const struct berth_redis_options *options,
                                struct berth_redis **ret, struct berth_error *err)
{
    BERTH_AUTO(berth_redis_free) struct berth_redis *redis = calloc(1, sizeof *redis);
    enum berth_code code;

    if (!redis)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    init_sync(redis);
    code = redis_parse_url(options->url, &redis->source, err);
    if (code)
        return code;
    if (!copy_given(options->username, &redis->username) ||
        !copy_given(options->password, &redis->password) ||
        !copy_given(options->sentinel_username, &redis->sentinel_username) ||
        !copy_given(options->sentinel_password, &redis->sentinel_password) ||
        !copy_given(options->tls_ca, &redis->tls_ca) ||
        !copy_given(options->tls_cert, &redis->tls_cert) ||
        !copy_given(options->tls_key, &redis->tls_key))
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (!redis->tls_cert != !redis->tls_key || (redis->tls_cert && !redis->tls_ca))
        return berth_fail(err, BERTH_REASON_FIELD_INVALID,
                          "redis tls: a certificate needs its key and a file of authorities");
    redis->tls_files = (struct redis_tls_files){redis->tls_ca, redis->tls_cert, redis->tls_key};
    redis->max_connections =
        options->max_connections ? options->max_connections : CONNECTIONS_DEFAULT;
    redis->connect_timeout_ms = or_default(options->connect_timeout_ms, CONNECT_TIMEOUT_MS);
    redis->command_timeout_ms = or_default(options->command_timeout_ms, COMMAND_TIMEOUT_MS);
    redis->wait_replicas = options->wait_replicas;
    redis->any_role = options->any_role;
    if (has_sentinels(redis))
        code = start_watching(redis, err);
    if (code)
        return code;
    *ret = BERTH_STEAL(redis);
    return BERTH_OK;
}

static void free_secret(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

struct berth_redis *berth_redis_free(struct berth_redis *redis)
{
    if (!redis)
        return NULL;
    if (redis->watching) {
        pthread_mutex_lock(&redis->mutex);
        redis->stopping = true;
        pthread_cond_signal(&redis->ending);
        pthread_mutex_unlock(&redis->mutex);
        pthread_join(redis->watcher, NULL);
    }
    close_all(redis->idle);
    pthread_cond_destroy(&redis->changed);
    pthread_cond_destroy(&redis->ending);
    pthread_mutex_destroy(&redis->mutex);
    free_secret(redis->password);
    free_secret(redis->sentinel_password);
    free(redis->username);
    free(redis->sentinel_username);
    free(redis->tls_ca);
    free(redis->tls_cert);
    free(redis->tls_key);
    free(redis);
    return NULL;
}

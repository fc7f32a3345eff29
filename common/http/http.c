/* http.c - the engine, its clients, and calls that wait. */
#include "common/http/http.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>

#include "common/http/internal.h"

enum {
    RESOLVERS = 4,
    NAMES_QUEUED_MAX = 1024,
    IDLE_CONNECTIONS_MAX = 32,
    POLL_MS = 50, /* between two looks at request->cancelled */
};

static CURLcode global_result;

static void init_once(void)
{
    global_result = curl_global_init(CURL_GLOBAL_DEFAULT);
}

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* -------------------------------------------------------------------------- engine */

enum berth_code berth_http_new(struct berth_loop *loop, struct berth_http **ret,
                               struct berth_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct berth_http *http = calloc(1, sizeof *http);
    enum berth_code code = BERTH_OK;

    if (!http)
        return no_memory(err);
    pthread_once(&once, init_once);
    if (global_result)
        code = berth_fail(err, BERTH_REASON_INTERNAL_BUG, "libcurl: %s",
                          curl_easy_strerror(global_result));
    pthread_mutex_init(&http->mutex, NULL);
    pthread_cond_init(&http->none_left, NULL);
    http->loop = loop;
    http->own_loop = !loop;
    if (!code && !loop)
        code = berth_loop_new(&http->loop, err);
    if (!code && !loop)
        code = berth_loop_start(http->loop, "http", err);
    if (!code)
        code = berth_pool_new("http-names", RESOLVERS, NAMES_QUEUED_MAX, &http->resolvers, err);
    if (code) {
        (void)berth_http_free(http);
        return code;
    }
    *ret = http;
    return BERTH_OK;
}

struct berth_http *berth_http_free(struct berth_http *http)
{
    if (!http)
        return NULL;
    pthread_mutex_lock(&http->mutex);
    while (http->n_clients > 0)
        pthread_cond_wait(&http->none_left, &http->mutex);
    pthread_mutex_unlock(&http->mutex);
    http->resolvers = berth_pool_free(http->resolvers);
    if (http->own_loop)
        http->loop = berth_loop_free(http->loop);
    pthread_cond_destroy(&http->none_left);
    pthread_mutex_destroy(&http->mutex);
    free(http);
    return NULL;
}

/* ------------------------------------------------------------------ libcurl's events */

struct watched {
    struct berth_http_client *client;
    curl_socket_t fd;
    struct berth_watch *watch;
};

void http_client_act(struct berth_http_client *client, curl_socket_t fd, int events)
{
    int running, left;
    CURLMsg *message;

    (void)curl_multi_socket_action(client->multi, fd, events, &running);
    while ((message = curl_multi_info_read(client->multi, &left))) {
        struct berth_http_exchange *exchange = NULL;

        if (message->msg != CURLMSG_DONE)
            continue;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &exchange);
        http_exchange_finish(exchange, message->data.result);
    }
}

static void on_ready(void *arg, uint32_t events)
{
    const struct watched *watched = arg;
    int flags = 0;

    if (events & (EPOLLIN | EPOLLHUP))
        flags |= CURL_CSELECT_IN;
    if (events & EPOLLOUT)
        flags |= CURL_CSELECT_OUT;
    if (events & EPOLLERR)
        flags |= CURL_CSELECT_ERR;
    http_client_act(watched->client, watched->fd, flags);
}

static uint32_t events_of(int what)
{
    return (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
}

static void unwatch(struct berth_http_client *client, struct watched *watched)
{
    if (!watched)
        return;
    (void)berth_loop_unwatch(watched->watch);
    (void)curl_multi_assign(client->multi, watched->fd, NULL);
    free(watched);
}

/* -1 makes the transfer fail. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *client_arg, void *socket_arg)
{
    struct berth_http_client *client = client_arg;
    struct watched *watched = socket_arg;

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        unwatch(client, watched);
        return 0;
    }
    if (watched) {
        berth_watch_set(watched->watch, events_of(what));
        return 0;
    }
    watched = calloc(1, sizeof *watched);
    if (!watched)
        return -1;
    watched->client = client;
    watched->fd = fd;
    if (berth_loop_watch(client->http->loop, fd, events_of(what), on_ready, watched,
                         &watched->watch, NULL) != BERTH_OK) {
        free(watched);
        return -1;
    }
    (void)curl_multi_assign(client->multi, fd, watched);
    return 0;
}

static void on_time(void *arg)
{
    struct berth_http_client *client = arg;

    client->timer = NULL;
    http_client_act(client, CURL_SOCKET_TIMEOUT, 0);
}

static int on_timer(CURLM *multi, long after_ms, void *arg)
{
    struct berth_http_client *client = arg;

    (void)multi;
    client->timer = berth_timer_cancel(client->timer);
    if (after_ms < 0)
        return 0;
    client->timer = berth_loop_timer(client->http->loop, after_ms, on_time, client);
    return client->timer ? 0 : -1;
}

/* -------------------------------------------------------------------------- client */

void http_client_ref(struct berth_http_client *client)
{
    atomic_fetch_add(&client->refs, 1);
}

static void count_client(struct berth_http *http, int by)
{
    pthread_mutex_lock(&http->mutex);
    http->n_clients += (unsigned)by;
    if (http->n_clients == 0)
        pthread_cond_signal(&http->none_left);
    pthread_mutex_unlock(&http->mutex);
}

static void destroy(void *arg)
{
    struct berth_http_client *client = arg;
    struct berth_http *http = client->http;

    if (client->multi) {
        curl_multi_cleanup(client->multi); /* may still set its timer, and unwatch */
        (void)berth_timer_cancel(client->timer);
    }
    free(client->socket_path);
    free(client->ca_pem);
    free(client->cert_pem);
    if (client->key_pem)
        explicit_bzero(client->key_pem, strlen(client->key_pem));
    free(client->key_pem);
    free(client);
    count_client(http, -1);
}

struct berth_http_client *berth_http_client_free(struct berth_http_client *client)
{
    if (client && atomic_fetch_sub(&client->refs, 1) == 1)
        berth_loop_post_entry(client->http->loop, &client->post, destroy, client);
    return NULL;
}

static bool is_set(const char *text)
{
    return text && *text;
}

static bool keep(char **slot, const char *text)
{
    if (is_set(text))
        *slot = strdup(text);
    return !is_set(text) || *slot;
}

static enum berth_code parse_ways(struct berth_http_client *client,
                                  const struct berth_http_target *target,
                                  struct berth_error *err)
{
    struct berth_url_rules rules = {.schemes = BERTH_URL_HTTP | BERTH_URL_HTTPS,
                                    .base = true,
                                    .allow_private = target->allow_private};
    enum berth_code code = BERTH_OK;

    client->has_gateway = is_set(target->gateway_url);
    client->has_proxy = is_set(target->proxy_url);
    if (client->has_gateway + client->has_proxy + is_set(target->socket_path) > 1)
        return berth_fail_field(err, "proxy_url", "must be empty where there is a gateway");
    if (client->has_gateway)
        code =
            berth_url_parse("gateway_url", target->gateway_url, &rules, &client->gateway, err);
    rules.schemes |= BERTH_URL_SOCKS5;
    if (!code && client->has_proxy)
        code = berth_url_parse("proxy_url", target->proxy_url, &rules, &client->proxy, err);
    client->proxy.rest = client->gateway.rest = ""; /* was borrowed */
    return code;
}

static enum berth_code keep_trust(struct berth_http_client *client,
                                  const struct berth_http_target *target,
                                  struct berth_error *err)
{
    if (is_set(target->cert_pem) != is_set(target->key_pem))
        return berth_fail_field(err, "client_key_pem",
                                "must be given with client_cert_pem, and only with it");
    if (!keep(&client->socket_path, target->socket_path) ||
        !keep(&client->ca_pem, target->ca_pem) || !keep(&client->cert_pem, target->cert_pem) ||
        !keep(&client->key_pem, target->key_pem))
        return no_memory(err);
    return BERTH_OK;
}

static enum berth_code open_multi(struct berth_http_client *client, unsigned max_connections,
                                  struct berth_error *err)
{
    CURLM *multi = client->multi = curl_multi_init();

    if (!multi || curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket) ||
        curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, client) ||
        curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer) ||
        curl_multi_setopt(multi, CURLMOPT_TIMERDATA, client) ||
        curl_multi_setopt(multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING) ||
        curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)IDLE_CONNECTIONS_MAX) ||
        curl_multi_setopt(multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)max_connections))
        return no_memory(err);
    return BERTH_OK;
}

enum berth_code berth_http_client_new(struct berth_http *http,
                                      const struct berth_http_target *target,
                                      struct berth_http_client **ret, struct berth_error *err)
{
    struct berth_http_client *client = calloc(1, sizeof *client);
    enum berth_code code;

    if (!client)
        return no_memory(err);
    client->http = http;
    count_client(http, 1);
    atomic_init(&client->refs, 1);
    client->allow_private = target->allow_private;
    client->connect_ms = target->connect_ms > 0 ? target->connect_ms : BERTH_HTTP_CONNECT_MS;
    code = parse_ways(client, target, err);
    if (!code)
        code = keep_trust(client, target, err);
    if (!code)
        code = open_multi(client, target->max_connections, err);
    if (code) {
        destroy(client); /* no transfer was ever added: nothing of the loop is in it */
        return code;
    }
    *ret = client;
    return BERTH_OK;
}

/* ------------------------------------------------------------------ calls that wait */

struct waiting {
    struct berth_http_client *client;
    const struct berth_http_request *request;
    struct berth_post start, cancel;
    struct berth_http_exchange *exchange; /* of the loop thread: NULL when done */

    pthread_mutex_t mutex; /* the rest */
    pthread_cond_t changed;
    struct berth_http_response response;
    enum berth_code code;
    struct berth_error err;
    bool done;
    bool cancel_queued; /* the entry is in use */
};

static void settle(struct waiting *waiting, struct berth_http_response *response,
                   const struct berth_error *err)
{
    pthread_mutex_lock(&waiting->mutex);
    if (err) {
        waiting->code = err->code;
        waiting->err = *err;
    } else if (response) {
        waiting->response = *response;
        *response = (struct berth_http_response){0};
    }
    waiting->done = true;
    pthread_cond_signal(&waiting->changed);
    pthread_mutex_unlock(&waiting->mutex);
}

static void on_done(void *arg, struct berth_http_response *response,
                    const struct berth_error *err)
{
    struct waiting *waiting = arg;

    waiting->exchange = NULL;
    settle(waiting, response, err);
}

static void run_start(void *arg)
{
    struct waiting *waiting = arg;
    struct berth_error err;

    if (berth_http_start(waiting->client, waiting->request, on_done, waiting,
                         &waiting->exchange, &err) != BERTH_OK)
        settle(waiting, NULL, &err);
}

static void run_cancel(void *arg)
{
    struct waiting *waiting = arg;

    if (waiting->exchange)
        berth_http_cancel(waiting->exchange);
    pthread_mutex_lock(&waiting->mutex);
    waiting->cancel_queued = false;
    pthread_cond_signal(&waiting->changed);
    pthread_mutex_unlock(&waiting->mutex);
}

static struct timespec soon(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += POLL_MS * 1000000L;
    if (at.tv_nsec >= 1000000000L) {
        at.tv_nsec -= 1000000000L;
        at.tv_sec++;
    }
    return at;
}

/* With the mutex held, which is let go meanwhile. */
static bool is_cancelled(struct waiting *waiting)
{
    bool cancelled;

    pthread_mutex_unlock(&waiting->mutex);
    cancelled = waiting->request->cancelled(waiting->request->arg);
    pthread_mutex_lock(&waiting->mutex);
    return cancelled;
}

static void await(struct waiting *waiting)
{
    bool ask = waiting->request->cancelled != NULL;

    pthread_mutex_lock(&waiting->mutex);
    while (!waiting->done || waiting->cancel_queued) {
        struct timespec until = soon();

        if (!ask) {
            pthread_cond_wait(&waiting->changed, &waiting->mutex);
            continue;
        }
        if (pthread_cond_timedwait(&waiting->changed, &waiting->mutex, &until) != ETIMEDOUT ||
            !is_cancelled(waiting))
            continue;
        ask = false;
        waiting->cancel_queued = true;
        berth_loop_post_entry(waiting->client->http->loop, &waiting->cancel, run_cancel,
                              waiting);
    }
    pthread_mutex_unlock(&waiting->mutex);
}

enum berth_code berth_http_call(struct berth_http_client *client,
                                const struct berth_http_request *request,
                                struct berth_http_response *ret_response,
                                struct berth_error *err)
{
    struct waiting waiting = {.client = client, .request = request};
    pthread_condattr_t attr;

    assert(!berth_loop_is_current(client->http->loop));
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&waiting.changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&waiting.mutex, NULL);
    berth_loop_post_entry(client->http->loop, &waiting.start, run_start, &waiting);
    await(&waiting);
    pthread_mutex_destroy(&waiting.mutex);
    pthread_cond_destroy(&waiting.changed);
    if (!waiting.code)
        *ret_response = waiting.response;
    else if (err)
        *err = waiting.err;
    return waiting.code;
}

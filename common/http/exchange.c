/* exchange.c - one call from its URL to its answer. On the loop thread. */
#include <assert.h>
#include <stdio.h>

#include "common/http/internal.h"

enum { METHOD_MAX = 32 };

void http_exchange_fail(struct berth_http_exchange *exchange, enum berth_reason reason,
                        const char *why)
{
    if (!exchange->code)
        exchange->code = why ? berth_fail(&exchange->err, reason, "%s", why)
                             : berth_fail(&exchange->err, reason, NULL);
}

static void drop_lookup(struct http_lookup *lookup)
{
    if (!lookup)
        return;
    if (lookup->delivered)
        free(lookup);
    else
        lookup->exchange = NULL; /* freed when it comes back */
}

static void unref(struct berth_http_exchange *exchange)
{
    if (--exchange->refs > 0)
        return;
    for (unsigned i = 0; i < HTTP_N_PEERS; i++)
        drop_lookup(exchange->lookups[i]);
    (void)berth_timer_cancel(exchange->deadline);
    (void)berth_timer_cancel(exchange->names_deadline);
    if (exchange->easy)
        curl_easy_cleanup(exchange->easy);
    curl_slist_free_all(exchange->headers);
    curl_slist_free_all(exchange->pins);
    curl_slist_free_all(exchange->connect_to);
    berth_http_response_deinit(&exchange->response);
    (void)berth_http_client_free(exchange->client);
    free(exchange);
}

void http_exchange_finish(struct berth_http_exchange *exchange, CURLcode result)
{
    struct berth_error err;
    enum berth_code code;

    if (exchange->finished)
        return;
    exchange->finished = true;
    if (exchange->added)
        curl_multi_remove_handle(exchange->client->multi, exchange->easy);
    exchange->deadline = berth_timer_cancel(exchange->deadline);
    exchange->names_deadline = berth_timer_cancel(exchange->names_deadline);
    code = http_outcome(exchange, result, &err);
    exchange->done(exchange->done_arg, &exchange->response, code ? &err : NULL);
    unref(exchange);
}

/* ------------------------------------------------------------------------- timers */

static void past_deadline(void *arg)
{
    struct berth_http_exchange *exchange = arg;

    exchange->deadline = NULL;
    http_exchange_fail(exchange,
                       exchange->sent ? BERTH_REASON_BACKEND_TIMEOUT
                                      : BERTH_REASON_BACKEND_UNAVAILABLE,
                       exchange->sent ? "no whole answer in time" : "no connection in time");
    http_exchange_finish(exchange, CURLE_OPERATION_TIMEDOUT);
}

/* libcurl's own connect time-out begins when the names are known. */
static void names_too_slow(void *arg)
{
    struct berth_http_exchange *exchange = arg;

    exchange->names_deadline = NULL;
    http_exchange_fail(exchange, BERTH_REASON_BACKEND_UNAVAILABLE,
                       "the name was not looked up in time");
    http_exchange_finish(exchange, CURLE_OPERATION_TIMEDOUT);
}

static enum berth_code start_timers(struct berth_http_exchange *exchange,
                                    struct berth_error *err)
{
    struct berth_loop *loop = exchange->client->http->loop;
    int64_t total_ms =
        exchange->request.total_ms ? exchange->request.total_ms : BERTH_HTTP_TOTAL_MS;

    if (total_ms > 0) {
        exchange->deadline = berth_loop_timer(loop, total_ms, past_deadline, exchange);
        if (!exchange->deadline)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    if (exchange->n_waiting > 0) {
        exchange->names_deadline =
            berth_loop_timer(loop, exchange->client->connect_ms, names_too_slow, exchange);
        if (!exchange->names_deadline)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    return BERTH_OK;
}

/* -------------------------------------------------------------------------- start */

static enum berth_code go(struct berth_http_exchange *exchange, struct berth_error *err)
{
    enum berth_code code = http_set_pins(exchange, err);
    CURLMcode result;

    if (code)
        return code;
    result = curl_multi_add_handle(exchange->client->multi, exchange->easy);
    if (result)
        return berth_fail(err,
                          result == CURLM_OUT_OF_MEMORY ? BERTH_REASON_OUT_OF_MEMORY
                                                        : BERTH_REASON_INTERNAL_BUG,
                          "libcurl: %s", curl_multi_strerror(result));
    exchange->added = true;
    return BERTH_OK;
}

void http_exchange_looked_up(struct http_lookup *lookup)
{
    struct berth_http_exchange *exchange = lookup->exchange;
    enum berth_code code = lookup->code;
    struct berth_error err = lookup->err;

    lookup->delivered = true;
    if (exchange->finished)
        return;
    exchange->n_waiting--;
    if (!code && exchange->n_waiting > 0)
        return;
    if (!code) {
        exchange->names_deadline = berth_timer_cancel(exchange->names_deadline);
        code = go(exchange, &err);
    }
    if (!code)
        return;
    exchange->code = code;
    exchange->err = err;
    http_exchange_finish(exchange, CURLE_OK);
}

static enum berth_code look_up(struct berth_http_exchange *exchange, enum http_peer peer,
                               const char *field, const struct berth_url *url,
                               struct berth_error *err)
{
    enum berth_code code;

    if (url->is_address)
        return BERTH_OK; /* judged with its URL */
    code = http_lookup_start(exchange, field, url->host, &exchange->lookups[peer], err);
    exchange->n_waiting += !code;
    return code;
}

static enum berth_code look_up_all(struct berth_http_exchange *exchange,
                                   struct berth_error *err)
{
    const struct berth_http_client *client = exchange->client;
    enum berth_code code = BERTH_OK;

    if (client->socket_path)
        return BERTH_OK;
    if (client->has_gateway)
        return look_up(exchange, HTTP_VIA, "gateway_url", &client->gateway, err);
    code = look_up(exchange, HTTP_TARGET, "url", &exchange->url, err);
    if (!code && client->has_proxy)
        code = look_up(exchange, HTTP_VIA, "proxy_url", &client->proxy, err);
    return code;
}

static bool method_valid(const char *method)
{
    size_t len = strlen(method);

    return len > 0 && len <= METHOD_MAX && strspn(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == len;
}

static enum berth_code prepare(struct berth_http_exchange *exchange, struct berth_error *err)
{
    const struct berth_url_rules rules = {
        .schemes = BERTH_URL_HTTP | BERTH_URL_HTTPS,
        .allow_private = exchange->client->allow_private || exchange->client->socket_path,
    };
    enum berth_code code;

    if (!method_valid(exchange->request.method))
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "not an HTTP method");
    code = berth_url_parse("url", exchange->request.url, &rules, &exchange->url, err);
    if (code)
        return code;
    exchange->easy = curl_easy_init();
    if (!exchange->easy)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = http_set_options(exchange, err);
    if (!code)
        code = look_up_all(exchange, err);
    if (!code)
        code = start_timers(exchange, err);
    if (!code && exchange->n_waiting == 0)
        code = go(exchange, err);
    return code;
}

enum berth_code berth_http_start(struct berth_http_client *client,
                                 const struct berth_http_request *request,
                                 berth_http_done_fn done, void *arg,
                                 struct berth_http_exchange **ret, struct berth_error *err)
{
    struct berth_http_exchange *exchange = calloc(1, sizeof *exchange);
    enum berth_code code;

    assert(berth_loop_is_current(client->http->loop));
    if (!exchange)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    http_client_ref(client);
    exchange->client = client;
    exchange->request = *request;
    exchange->done = done;
    exchange->done_arg = arg;
    exchange->refs = 1;
    code = prepare(exchange, err);
    if (code) {
        unref(exchange);
        return code;
    }
    *ret = exchange;
    return BERTH_OK;
}

/* --------------------------------------------------------------- cancel and resume */

static void run_cancel(void *arg)
{
    struct berth_http_exchange *exchange = arg;

    http_exchange_finish(exchange, CURLE_ABORTED_BY_CALLBACK);
    unref(exchange);
}

/* Later, because libcurl may be on the stack. */
void berth_http_cancel(struct berth_http_exchange *exchange)
{
    if (exchange->finished || exchange->muted)
        return;
    exchange->muted = true;
    http_exchange_fail(exchange, BERTH_REASON_CANCELLED, NULL);
    exchange->refs++;
    berth_loop_post_entry(exchange->client->http->loop, &exchange->cancel_post, run_cancel,
                          exchange);
}

static void run_resume(void *arg)
{
    struct berth_http_exchange *exchange = arg;
    CURLcode result = CURLE_OK;

    exchange->resuming = false;
    if (!exchange->finished && exchange->added && exchange->paused) {
        exchange->paused = false;
        result = curl_easy_pause(exchange->easy, CURLPAUSE_CONT);
        if (result)
            http_exchange_finish(exchange, result);
    }
    unref(exchange);
}

void berth_http_resume(struct berth_http_exchange *exchange)
{
    if (exchange->finished || exchange->resuming)
        return;
    exchange->resuming = true;
    exchange->refs++;
    berth_loop_post_entry(exchange->client->http->loop, &exchange->resume_post, run_resume,
                          exchange);
}

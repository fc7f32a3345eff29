/* response.c - an answer as it comes in, with its limits, and what results and statuses mean.
 */
#include <stdio.h>
#include <strings.h>

#include "common/http/internal.h"

enum { RETRY_AFTER_MAX_S = 3600, BODY_MIN = 4096 };

void berth_http_response_deinit(struct berth_http_response *response)
{
    for (size_t i = 0; i < response->n_headers; i++)
        free((char *)response->headers[i].name); /* the value is behind it */
    free(response->headers);
    free(response->body);
    *response = (struct berth_http_response){0};
}

const char *berth_http_header(const struct berth_http_response *response, const char *name)
{
    for (size_t i = 0; i < response->n_headers; i++)
        if (strcasecmp(response->headers[i].name, name) == 0)
            return response->headers[i].value;
    return NULL;
}

/* ------------------------------------------------------------------------- head */

static bool keep_header(struct berth_http_response *response, const char *line, size_t len)
{
    const char *colon = memchr(line, ':', len);
    struct berth_http_header *longer;
    char *copy, *value;

    if (!colon || colon == line || response->n_headers == BERTH_HTTP_HEADERS_MAX)
        return true; /* no header, or one too many: passed over */
    longer = realloc(response->headers, (response->n_headers + 1) * sizeof *longer);
    if (!longer)
        return false;
    response->headers = longer;
    copy = malloc(len + 1);
    if (!copy)
        return false;
    memcpy(copy, line, len);
    copy[len] = 0;
    copy[colon - line] = 0;
    value = copy + (colon - line) + 1;
    value += strspn(value, " \t");
    longer[response->n_headers++] = (struct berth_http_header){copy, value};
    return true;
}

static size_t head_ends(struct berth_http_exchange *exchange, size_t size)
{
    long status = 0;

    (void)curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
    exchange->response.status = (int)status;
    if (status < 200 && status != 101)
        return size; /* another head follows */
    exchange->head_done = true;
    if (exchange->request.head && !exchange->muted &&
        exchange->request.head(exchange->request.arg, &exchange->response) != BERTH_HTTP_GO) {
        http_exchange_fail(exchange, BERTH_REASON_CANCELLED,
                           "stopped at the head of the answer");
        return 0;
    }
    return size;
}

size_t http_take_head(char *data, size_t one, size_t size, void *arg)
{
    struct berth_http_exchange *exchange = arg;
    size_t len = size;

    (void)one; /* always 1 */
    exchange->head_bytes += size;
    if (exchange->head_bytes > BERTH_HTTP_HEAD_MAX) {
        http_exchange_fail(exchange, BERTH_REASON_MESSAGE_TOO_LARGE,
                           "the head of the answer is too long");
        return 0;
    }
    while (len > 0 && (data[len - 1] == '\r' || data[len - 1] == '\n'))
        len--;
    if (exchange->head_done)
        return size; /* trailers */
    if (len == 0)
        return head_ends(exchange, size);
    if (len >= 5 && memcmp(data, "HTTP/", 5) == 0) {
        berth_http_response_deinit(&exchange->response);
        return size;
    }
    if (!keep_header(&exchange->response, data, len)) {
        http_exchange_fail(exchange, BERTH_REASON_OUT_OF_MEMORY, NULL);
        return 0;
    }
    return size;
}

/* ------------------------------------------------------------------------- body */

static bool make_room(struct berth_http_exchange *exchange, size_t size)
{
    size_t room = exchange->body_room ? exchange->body_room : BODY_MIN;
    char *longer;

    while (room < size)
        room *= 2;
    if (room == exchange->body_room)
        return true;
    longer = realloc(exchange->response.body, room);
    if (!longer)
        return false;
    exchange->response.body = longer;
    exchange->body_room = room;
    return true;
}

static size_t keep_body(struct berth_http_exchange *exchange, const char *data, size_t size)
{
    struct berth_http_response *response = &exchange->response;
    size_t max =
        exchange->request.max_body_size ? exchange->request.max_body_size : BERTH_HTTP_BODY_MAX;

    if (size > max || response->body_size > max - size) {
        http_exchange_fail(exchange, BERTH_REASON_MESSAGE_TOO_LARGE, "the answer is too large");
        return 0;
    }
    if (!make_room(exchange, response->body_size + size + 1)) {
        http_exchange_fail(exchange, BERTH_REASON_OUT_OF_MEMORY, NULL);
        return 0;
    }
    memcpy(response->body + response->body_size, data, size);
    response->body_size += size;
    response->body[response->body_size] = 0;
    return size;
}

size_t http_take_body(char *data, size_t one, size_t size, void *arg)
{
    struct berth_http_exchange *exchange = arg;

    (void)one;
    if (exchange->muted)
        return 0;
    if (!exchange->request.sink)
        return keep_body(exchange, data, size);
    switch (exchange->request.sink(exchange->request.arg, data, size)) {
    case BERTH_HTTP_GO:
        return size;
    case BERTH_HTTP_PAUSE:
        exchange->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    default:
        http_exchange_fail(exchange, BERTH_REASON_CANCELLED, "stopped in the answer");
        return 0;
    }
}

size_t http_give_body(char *buf, size_t one, size_t size, void *arg)
{
    struct berth_http_exchange *exchange = arg;
    size_t given = 0;

    (void)one;
    if (exchange->muted)
        return CURL_READFUNC_ABORT;
    switch (exchange->request.source(exchange->request.arg, buf, size, &given)) {
    case BERTH_HTTP_GO:
        return given;
    case BERTH_HTTP_PAUSE:
        exchange->paused = true;
        return CURL_READFUNC_PAUSE;
    default:
        http_exchange_fail(exchange, BERTH_REASON_CANCELLED, "stopped in the request");
        return CURL_READFUNC_ABORT;
    }
}

/* ---------------------------------------------------------------------- meanings */

bool http_repeatable(const struct berth_http_request *request)
{
    return request->repeatable || strcmp(request->method, "GET") == 0 ||
           strcmp(request->method, "HEAD") == 0 || strcmp(request->method, "OPTIONS") == 0;
}

/* In libcurl's words only where these can hold nothing of the request. */
static const char *why(const struct berth_http_exchange *exchange, CURLcode result)
{
    switch (result) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
        return *exchange->error_text ? exchange->error_text : curl_easy_strerror(result);
    case CURLE_ABORTED_BY_CALLBACK:
        return "stopped";
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL: /* HTTP/0.9 */
        return "the answer is no HTTP/1.1";
    case CURLE_OUT_OF_MEMORY:
        return exchange->sent ? "a line of the answer is too long, or out of memory"
                              : curl_easy_strerror(result);
    default:
        return curl_easy_strerror(result);
    }
}

static enum berth_reason reason_of(const struct berth_http_exchange *exchange, CURLcode result)
{
    if (!exchange->sent)
        return result == CURLE_OUT_OF_MEMORY ? BERTH_REASON_OUT_OF_MEMORY
                                             : BERTH_REASON_BACKEND_UNAVAILABLE;
    if (result == CURLE_OPERATION_TIMEDOUT)
        return BERTH_REASON_BACKEND_TIMEOUT;
    return http_repeatable(&exchange->request) ? BERTH_REASON_BACKEND_UNAVAILABLE
                                               : BERTH_REASON_OUTCOME_UNKNOWN;
}

enum berth_code http_outcome(const struct berth_http_exchange *exchange, CURLcode result,
                             struct berth_error *err)
{
    const char *method = exchange->request.method;
    char origin[BERTH_ORIGIN_SIZE];

    (void)berth_url_origin(origin, &exchange->url);
    if (exchange->code) {
        *err = exchange->err;
        if (exchange->sent && err->reason == BERTH_REASON_MESSAGE_TOO_LARGE &&
            !http_repeatable(&exchange->request))
            berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN, "%s", exchange->err.text);
        err->http_status = exchange->response.status;
        return berth_wrap(err, err->code, "%s %s", method, origin);
    }
    if (result == CURLE_OK)
        return BERTH_OK;
    berth_fail(err, reason_of(exchange, result), "%s %s: %s", method, origin,
               why(exchange, result));
    err->http_status = exchange->response.status;
    return err->code;
}

static enum berth_reason reason_of_status(int status, bool repeatable)
{
    switch (status) {
    case 400:
    case 422:
        return BERTH_REASON_FIELD_INVALID;
    case 401:
    case 403:
        return BERTH_REASON_BACKEND_AUTHENTICATION;
    case 408:
    case 504:
        return BERTH_REASON_BACKEND_TIMEOUT;
    case 429:
        return BERTH_REASON_BACKEND_CAPACITY;
    case 501:
        return BERTH_REASON_CAPABILITY_MISSING;
    default:
        return status >= 500 && status != 503 && !repeatable ? BERTH_REASON_OUTCOME_UNKNOWN
                                                             : BERTH_REASON_BACKEND_UNAVAILABLE;
    }
}

/* Whole seconds; the form with a date is for browsers. */
static int64_t retry_after_ms(const struct berth_http_response *response)
{
    const char *text = berth_http_header(response, "Retry-After");
    int64_t seconds = 0;

    for (; text && *text >= '0' && *text <= '9' && seconds <= RETRY_AFTER_MAX_S; text++)
        seconds = seconds * 10 + (*text - '0');
    if (seconds > RETRY_AFTER_MAX_S)
        seconds = RETRY_AFTER_MAX_S;
    return seconds * 1000;
}

enum berth_code berth_http_check_status(const struct berth_http_response *resp,
                                        const char *operation, bool repeatable,
                                        struct berth_error *err)
{
    enum berth_code code;

    if (resp->status >= 200 && resp->status < 300)
        return BERTH_OK;
    code = berth_fail(
        err, reason_of_status(resp->status, repeatable), "%s: the backend answered %d%s",
        operation, resp->status,
        resp->status >= 300 && resp->status < 400 ? ", a redirect, which is not followed" : "");
    if (err) {
        err->http_status = resp->status;
        err->retry_after_ms = retry_after_ms(resp);
    }
    return code;
}

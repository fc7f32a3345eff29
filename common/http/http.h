/* http.h - calls to other people's HTTP servers, whose addresses a tenant may have chosen.
 *
 * A call goes through these, in order; what one lets slip the next one stops:
 *  1. url.h judges the URL, and of proxy and gateway (where a client is made and at each call)
 *  2. the name is looked up once, every answer is judged, one refused answer refuses them all,
 *     and the connection is pinned to what was judged: libcurl looks nothing up
 *  3. each address is judged again when its socket is opened, and once more before a request
 *     is written to a connection, a pooled one too (pools are never shared between clients)
 * Redirects are answers like any other and never followed. The environment's proxies are not
 * used; a configured one is told the judged address, never a name. HTTP/1.1 only; TLS 1.2 at
 * least, always verified.
 *
 * All transfers of a struct berth_http run on one loop thread, names on a few more. Calls may
 * be made from any other thread and wait (berth_http_call), or be started on the loop thread
 * itself with callbacks (berth_http_start). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/errors/errors.h"
#include "common/loop/loop.h"

enum {
    BERTH_HTTP_CONNECT_MS = 10 * 1000,     /* defaults */
    BERTH_HTTP_TOTAL_MS = 60 * 1000,       /* */
    BERTH_HTTP_IDLE_MS = 30 * 1000,        /* */
    BERTH_HTTP_BODY_MAX = 8 * 1024 * 1024, /* */
    BERTH_HTTP_HEAD_MAX = 64 * 1024,       /* bytes of all heads of an answer, 1xx included */
    BERTH_HTTP_HEADERS_MAX = 128,
};
#define BERTH_HTTP_NO_LIMIT ((int64_t)-1)

/* ---------------------------------------------------------------------- engine */

struct berth_http;

/* loop: borrowed, outlives it; NULL: a loop and a thread of its own. */
BERTH_MUST_CHECK enum berth_code
berth_http_new(struct berth_loop *loop, struct berth_http **ret, struct berth_error *err);
/* After its clients. Waits for names that are being looked up. Not from the loop; NULL is fine.
 */
struct berth_http *berth_http_free(struct berth_http *http);
BERTH_DEFINE_AUTO(struct berth_http *, berth_http_free)

/* ---------------------------------------------------------------------- client */

/* One account or endpoint: who may be dialled, who is trusted, and connections of its own. */
struct berth_http_client;

struct berth_http_target { /* all strings borrowed during the call; NULL and "" mean none */
    bool allow_private;    /* the config's own switch */
    const char *proxy_url; /* http, https, socks5: tunnels; never given a name to look up */
    /* Dial there, whatever host a URL names (which is then not looked up); the URL's scheme is
     * the one spoken. Not with proxy_url. */
    const char *gateway_url;
    const char *socket_path; /* a unix socket of this host instead; never a tenant's say */
    const char *ca_pem;      /* the only anchors; none: the system's */
    const char *cert_pem, *key_pem; /* client certificate */
    int64_t connect_ms;             /* name, TCP, proxy and TLS together; 0: the default */
    unsigned max_connections;       /* further calls wait for one; 0: no limit */
};

/* Errors: FIELD_INVALID, ENDPOINT_REFUSED (proxy_url, gateway_url). */
BERTH_MUST_CHECK enum berth_code berth_http_client_new(struct berth_http *http,
                                                       const struct berth_http_target *target,
                                                       struct berth_http_client **ret,
                                                       struct berth_error *err);
/* From any thread. Calls under way go on, and keep it that long. NULL is fine. */
struct berth_http_client *berth_http_client_free(struct berth_http_client *client);
BERTH_DEFINE_AUTO(struct berth_http_client *, berth_http_client_free)

/* ----------------------------------------------------------------- request, answer */

struct berth_http_header {
    const char *name, *value;
};

struct berth_http_response {
    int status;                        /* 100..999 */
    struct berth_http_header *headers; /* as they came, owned */
    size_t n_headers;
    char *body; /* owned, with a NUL behind it; NULL where a sink took it */
    size_t body_size;
};

void berth_http_response_deinit(struct berth_http_response *response);
/* The first one of that name, in any letter case; NULL: none. */
const char *berth_http_header(const struct berth_http_response *response, const char *name);

enum berth_http_flow {
    BERTH_HTTP_GO,
    BERTH_HTTP_PAUSE, /* nothing was taken or given; again after berth_http_resume() */
    BERTH_HTTP_STOP,  /* the call ends as CANCELLED */
};

/* On the loop thread, and may not block it. */
typedef enum berth_http_flow (*berth_http_head_fn)(void *arg,
                                                   const struct berth_http_response *head);
typedef enum berth_http_flow (*berth_http_sink_fn)(void *arg, const void *data, size_t size);
/* Fill buf; *ret_size 0: that was all. */
typedef enum berth_http_flow (*berth_http_source_fn)(void *arg, void *buf, size_t size,
                                                     size_t *ret_size);

struct berth_http_request { /* all borrowed until the call is done */
    const char *method;     /* "GET" */
    const char *url;        /* http or https; percent-encoded */
    const struct berth_http_header *headers;
    size_t n_headers; /* without Content-Length, Transfer-Encoding, Connection */
    const void *body;
    size_t body_size;
    berth_http_source_fn source; /* instead of body */
    int64_t source_size;         /* BERTH_HTTP_NO_LIMIT: unknown, sent in chunks */
    berth_http_head_fn head;     /* may be NULL */
    berth_http_sink_fn sink;     /* NULL: into response.body, up to max_body_size */
    void *arg;
    size_t max_body_size;      /* 0: the default; not for a sink */
    int64_t total_ms, idle_ms; /* 0: the defaults; BERTH_HTTP_NO_LIMIT */
    /* Twice is as good as once: a lost answer is BACKEND_UNAVAILABLE instead of
     * OUTCOME_UNKNOWN. GET, HEAD and OPTIONS always are. */
    bool repeatable;
    /* Asked now and then while berth_http_call() waits; true ends the call as CANCELLED. */
    bool (*cancelled)(void *arg);
};

/**
 * berth_http_call() - ask and wait
 * @ret_response: whatever the status says, 3xx included; set on success only;
 *                berth_http_response_deinit() it
 *
 * From any thread but the loop's.
 *
 * Errors: ENDPOINT_REFUSED, FIELD_INVALID ("url"): not dialled. BACKEND_UNAVAILABLE: nothing
 * was sent, or the request is repeatable. BACKEND_TIMEOUT, OUTCOME_UNKNOWN: it may have been
 * done. MESSAGE_TOO_LARGE: the answer (of a repeatable request). CANCELLED. Texts hold method,
 * scheme, host and port, nothing else of URL, headers and bodies.
 */
BERTH_MUST_CHECK enum berth_code berth_http_call(struct berth_http_client *client,
                                                 const struct berth_http_request *request,
                                                 struct berth_http_response *ret_response,
                                                 struct berth_error *err);

struct berth_http_exchange; /* a started call; valid until its done has been called */

/* Exactly once per started call, on the loop thread. err: NULL where there is an answer.
 * response: borrowed; may be emptied (BERTH_STEAL its parts). */
typedef void (*berth_http_done_fn)(void *arg, struct berth_http_response *response,
                                   const struct berth_error *err);

/* On the loop thread. done is not called before this returned, and not if it fails. */
BERTH_MUST_CHECK enum berth_code berth_http_start(struct berth_http_client *client,
                                                  const struct berth_http_request *request,
                                                  berth_http_done_fn done, void *arg,
                                                  struct berth_http_exchange **ret,
                                                  struct berth_error *err);
/* On the loop thread, also from callbacks. Only done comes after this, as CANCELLED, soon. */
void berth_http_cancel(struct berth_http_exchange *exchange);
/* On the loop thread: go on after BERTH_HTTP_PAUSE, soon. */
void berth_http_resume(struct berth_http_exchange *exchange);

/* A neutral error for a status that is none of the caller's own (who knows what 404 and 409
 * mean there and looks first): 401, 403 BACKEND_AUTHENTICATION; 408, 504 BACKEND_TIMEOUT; 429
 * BACKEND_CAPACITY; 501 CAPABILITY_MISSING; 400, 422 FIELD_INVALID; 3xx, 404, 502, 503 and
 * other 5xx BACKEND_UNAVAILABLE, 5xx but 503 of a request that is not repeatable
 * OUTCOME_UNKNOWN. With http_status and retry_after_ms. BERTH_OK for 2xx. */
BERTH_MUST_CHECK enum berth_code berth_http_check_status(const struct berth_http_response *resp,
                                                         const char *operation, bool repeatable,
                                                         struct berth_error *err);

/* internal.h - the parts of common/http among themselves. All but http_lookup's work and what
 * is atomic belongs to the loop thread. */
#pragma once

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/http/http.h"
#include "common/http/url.h"
#include "common/pool/pool.h"

enum { HTTP_ANSWERS_MAX = 16 };

struct berth_http {
    struct berth_loop *loop;
    bool own_loop;
    struct berth_pool *resolvers;
    pthread_mutex_t mutex; /* of n_clients */
    pthread_cond_t none_left;
    unsigned n_clients; /* not destroyed yet */
};

struct berth_http_client {
    struct berth_http *http;
    atomic_uint refs; /* the owner's, and one of each exchange */
    CURLM *multi;
    struct berth_timer *timer; /* libcurl's */
    struct berth_post post;    /* to be destroyed */

    bool allow_private;
    bool has_proxy, has_gateway;
    struct berth_url proxy, gateway;
    char *socket_path;
    char *ca_pem, *cert_pem, *key_pem;
    int64_t connect_ms;
};

/* ------------------------------------------------------------------------- names */

/* One name being looked up, with what it has been judged to. */
struct http_lookup {
    struct berth_work work;
    struct berth_post post;
    struct berth_loop *loop;
    struct berth_http_exchange *exchange; /* NULL: nobody waits any more */
    const char *field;
    char host[BERTH_HOST_MAX + 1];
    bool allow_private;
    struct berth_address answers[HTTP_ANSWERS_MAX];
    size_t n_answers;
    enum berth_code code;
    struct berth_error err;
    bool delivered; /* the exchange owns it from then on */
};

/* Calls http_exchange_looked_up() on the loop, later. Errors: OVERLOADED, OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code http_lookup_start(struct berth_http_exchange *exchange,
                                                   const char *field, const char *host,
                                                   struct http_lookup **ret,
                                                   struct berth_error *err);

/* ---------------------------------------------------------------------- one call */

enum http_peer { HTTP_TARGET, HTTP_VIA, HTTP_N_PEERS }; /* VIA: proxy or gateway */

struct berth_http_exchange {
    struct berth_http_client *client;
    struct berth_http_request request;
    berth_http_done_fn done;
    void *done_arg;
    struct berth_url url;
    CURL *easy;
    struct curl_slist *headers, *pins, *connect_to;
    char error_text[CURL_ERROR_SIZE]; /* libcurl's; looked at for TLS only */
    struct http_lookup *lookups[HTTP_N_PEERS];
    unsigned n_waiting; /* of lookups */
    bool added;         /* to the multi handle */
    bool sent;          /* the request may have left */
    bool head_done;     /* the final one */
    bool muted;         /* cancelled: nothing is called any more but done */
    bool paused, resuming, finished;
    unsigned refs; /* one until it has finished, one per queued post */
    size_t head_bytes;
    size_t body_room;
    struct berth_timer *deadline, *names_deadline;
    struct berth_post cancel_post, resume_post;
    struct berth_http_response response;
    enum berth_code code; /* set by a callback that stopped it */
    struct berth_error err;
};

bool http_repeatable(const struct berth_http_request *request);
void http_exchange_looked_up(struct http_lookup *lookup);
/* Ends it: takes it from the multi handle and calls done. */
void http_exchange_finish(struct berth_http_exchange *exchange, CURLcode result);
/* Why a callback stops the transfer; the first one counts. */
void http_exchange_fail(struct berth_http_exchange *exchange, enum berth_reason reason,
                        const char *why);

/* ------------------------------------------------------------------------ libcurl */

/* Every option of the handle but the pins. Errors: OUT_OF_MEMORY, INTERNAL_BUG. */
BERTH_MUST_CHECK enum berth_code http_set_options(struct berth_http_exchange *exchange,
                                                  struct berth_error *err);
/* Tie the names to the addresses that were judged. */
BERTH_MUST_CHECK enum berth_code http_set_pins(struct berth_http_exchange *exchange,
                                               struct berth_error *err);
/* CURLOPT_OPENSOCKETFUNCTION, CURLOPT_PREREQFUNCTION. */
curl_socket_t http_open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address);
int http_before_request(void *arg, char *peer_ip, char *local_ip, int peer_port,
                        int local_port);

/* CURLOPT_HEADERFUNCTION, CURLOPT_WRITEFUNCTION, CURLOPT_READFUNCTION. */
size_t http_take_head(char *data, size_t one, size_t size, void *arg);
size_t http_take_body(char *data, size_t one, size_t size, void *arg);
size_t http_give_body(char *buf, size_t one, size_t size, void *arg);

/* What libcurl's result means to us. */
enum berth_code http_outcome(const struct berth_http_exchange *exchange, CURLcode result,
                             struct berth_error *err);

void http_client_ref(struct berth_http_client *client);
/* Runs what is due, and finishes what has ended. */
void http_client_act(struct berth_http_client *client, curl_socket_t fd, int events);

/* resolve.c - names are looked up here and nowhere else: once per call, each answer judged. */
#include <netdb.h>
#include <stdio.h>

#include "common/http/internal.h"

static void keep(struct http_lookup *lookup, const struct addrinfo *list)
{
    for (const struct addrinfo *at = list; at && !lookup->code; at = at->ai_next) {
        struct berth_address address;

        if (!berth_address_from_sockaddr(at->ai_addr, &address))
            continue;
        lookup->code =
            berth_address_check(lookup->field, &address, lookup->allow_private, &lookup->err);
        if (lookup->n_answers < HTTP_ANSWERS_MAX)
            lookup->answers[lookup->n_answers++] = address;
    }
}

static void deliver(void *arg)
{
    struct http_lookup *lookup = arg;

    if (lookup->exchange)
        http_exchange_looked_up(lookup);
    else
        free(lookup);
}

/* On a thread of the pool. */
static void look_up(void *arg)
{
    struct http_lookup *lookup = arg;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int error = getaddrinfo(lookup->host, NULL, &hints, &list);

    if (error) {
        lookup->code = berth_fail(&lookup->err, BERTH_REASON_BACKEND_UNAVAILABLE,
                                  "cannot look up '%s': %s", lookup->host, gai_strerror(error));
    } else {
        keep(lookup, list);
        freeaddrinfo(list);
        if (!lookup->code && lookup->n_answers == 0)
            lookup->code = berth_fail(&lookup->err, BERTH_REASON_BACKEND_UNAVAILABLE,
                                      "'%s' has no address", lookup->host);
    }
    berth_loop_post_entry(lookup->loop, &lookup->post, deliver, lookup);
}

enum berth_code http_lookup_start(struct berth_http_exchange *exchange, const char *field,
                                  const char *host, struct http_lookup **ret,
                                  struct berth_error *err)
{
    struct berth_http_client *client = exchange->client;
    struct http_lookup *lookup = calloc(1, sizeof *lookup);
    enum berth_code code;

    if (!lookup)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    lookup->loop = client->http->loop;
    lookup->exchange = exchange;
    lookup->field = field;
    lookup->allow_private = client->allow_private;
    snprintf(lookup->host, sizeof lookup->host, "%s", host);
    code =
        berth_pool_submit_entry(client->http->resolvers, &lookup->work, look_up, lookup, err);
    if (code) {
        free(lookup);
        return code;
    }
    *ret = lookup;
    return BERTH_OK;
}

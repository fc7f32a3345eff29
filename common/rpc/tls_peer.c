/* tls_peer.c - who is at the other end of a connection, by its certificate. */
#include <strings.h>

#include "common/rpc/tls.h"

enum { NAME_MAX_LEN = 255 };

enum berth_code rpc_peer_sans_init(struct rpc_peer_sans *sans, const char *const *names,
                                   size_t n, struct berth_error *err)
{
    *sans = (struct rpc_peer_sans){.names = calloc(n + 1, sizeof(char *))};
    if (!sans->names)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (; sans->n < n; sans->n++) {
        sans->names[sans->n] = strdup(names[sans->n]);
        if (!sans->names[sans->n])
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    return BERTH_OK;
}

void rpc_peer_sans_deinit(struct rpc_peer_sans *sans)
{
    for (size_t i = 0; i < sans->n; i++)
        free(sans->names[i]);
    free(sans->names);
    *sans = (struct rpc_peer_sans){0};
}

/* A name that can be shown and compared as text. */
static bool is_plain(const grpc_auth_property *property)
{
    if (property->value_length == 0 || property->value_length > NAME_MAX_LEN)
        return false;
    for (size_t i = 0; i < property->value_length; i++)
        if (property->value[i] <= ' ' || property->value[i] > '~')
            return false;
    return true;
}

bool rpc_peer_sans_has(const struct rpc_peer_sans *sans, const char *name, bool is_uri)
{
    for (size_t i = 0; i < sans->n; i++) {
        const char *listed = sans->names[i];

        if ((strstr(listed, "://") != NULL) == is_uri &&
            (is_uri ? strcmp(listed, name) : strcasecmp(listed, name)) == 0)
            return true;
    }
    return false;
}

/* The first name of this kind, or the first that is listed; borrowed from context. */
static const char *find_name(const grpc_auth_context *context, const char *kind, bool is_uri,
                             const struct rpc_peer_sans *sans, bool *ret_listed)
{
    grpc_auth_property_iterator at = grpc_auth_context_find_properties_by_name(context, kind);
    const grpc_auth_property *property;
    const char *first = NULL;

    while ((property = grpc_auth_property_iterator_next(&at))) {
        if (!is_plain(property))
            continue;
        if (rpc_peer_sans_has(sans, property->value, is_uri)) {
            *ret_listed = true;
            return property->value;
        }
        if (!first)
            first = property->value;
    }
    return first;
}

char *rpc_tls_caller(grpc_call *core, const struct rpc_peer_sans *sans, bool *ret_peer)
{
    grpc_auth_context *context = grpc_call_auth_context(core);
    const char *uri, *dns;
    bool uri_listed = false, dns_listed = false;
    char *name = NULL;

    if (context && grpc_auth_context_peer_is_authenticated(context)) {
        uri = find_name(context, GRPC_PEER_URI_PROPERTY_NAME, true, sans, &uri_listed);
        dns = find_name(context, GRPC_PEER_DNS_PROPERTY_NAME, false, sans, &dns_listed);
        if (!uri || (dns_listed && !uri_listed))
            uri = dns;
        name = uri ? strdup(uri) : NULL;
    }
    *ret_peer = uri_listed || dns_listed;
    grpc_auth_context_release(context);
    return name;
}

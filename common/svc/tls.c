#include "common/svc/tls.h"

#include "common/svc/address.h"

/* field must be set because of what else is. */
static enum berth_code lacks(struct berth_error *err, const char *field, const char *because)
{
    return berth_fail_field(err, field, "must be set where %s is", because);
}

static bool is_san(const char *text, size_t len)
{
    if (len == 0 || len > SVC_SAN_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~' || text[i] == '*')
            return false;
    return true;
}

/* "a.example,spiffe://berth/b"; "" is none. */
static enum berth_code split_sans(struct svc_settings *settings, struct berth_error *err)
{
    char *at = strdup(settings->peer_sans);

    settings->san_text = at;
    if (!at)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    while (*at) {
        size_t len = strcspn(at, ",");
        bool last = !at[len];

        if (!is_san(at, len) || settings->n_sans == SVC_PEERS_MAX || (!last && !at[len + 1]))
            return berth_fail_field(err, "peer_sans",
                                    "must be at most %d DNS names or URIs with commas between, "
                                    "without spaces and wildcards",
                                    SVC_PEERS_MAX);
        at[len] = 0;
        settings->sans[settings->n_sans++] = at;
        at += last ? len : len + 1;
    }
    return BERTH_OK;
}

/* An internal service is for peers, so over TCP it has to know them. */
static enum berth_code check_internal(const struct berth_service *service,
                                      const struct svc_settings *settings,
                                      struct berth_error *err)
{
    if (!service->internal || !*settings->listen || settings->insecure_dev)
        return BERTH_OK;
    if (!*settings->tls_ca || settings->n_sans == 0)
        return berth_fail_field(err, "listen",
                                "%s is internal and serves its unix socket only; TCP needs "
                                "tls_cert, tls_key, tls_ca and peer_sans (insecure_dev lifts "
                                "that on loopback, for development)",
                                service->name);
    return BERTH_OK;
}

enum berth_code svc_check_tls(const struct berth_service *service,
                              struct svc_settings *settings, struct berth_error *err)
{
    bool cert = *settings->tls_cert, key = *settings->tls_key, ca = *settings->tls_ca;
    enum berth_code code;

    if (cert && !key)
        return lacks(err, "tls_key", "tls_cert");
    if (key && !cert)
        return lacks(err, "tls_cert", "tls_key");
    if (ca && !cert)
        return lacks(err, "tls_cert", "tls_ca");
    if (*settings->peer_sans && !ca)
        return lacks(err, "tls_ca", "peer_sans");
    if (settings->tls_require_client && !ca)
        return lacks(err, "tls_ca", "tls_require_client");
    code = split_sans(settings, err);
    if (!code)
        code = check_internal(service, settings, err);
    if (ca)
        settings->tls_clients = service->internal || settings->tls_require_client
                                    ? BERTH_TLS_CLIENTS_MUST_SHOW
                                    : BERTH_TLS_CLIENTS_MAY_SHOW;
    return code;
}

enum berth_code svc_check_beyond(const struct svc_settings *settings, struct berth_error *err)
{
    if (settings->insecure_dev)
        return berth_fail_field(err, "listen",
                                "must be on this machine where insecure_dev is on: everybody "
                                "would be a service of the suite");
    return BERTH_OK;
}

enum berth_code svc_open_tls(const struct svc_settings *settings, struct berth_tls **ret,
                             struct berth_error *err)
{
    const struct berth_tls_options options = {
        .cert = settings->tls_cert, .key = settings->tls_key, .authorities = settings->tls_ca};

    *ret = NULL;
    return *settings->tls_cert ? berth_tls_new(&options, ret, err) : BERTH_OK;
}

#include "common/rpc/tls_sight.h"

#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/rpc/core.h"
#include "common/rpc/frames.h"
#include "common/time/time.h"

enum { SERVERS_MAX = 16, NAME_MAX_LEN = 255 };

/* A server's authorities, as far as they have been read. */
struct server {
    struct berth_tls *tls;
    const struct rpc_peer_sans *sans;
    X509_STORE *store; /* NULL: to be made */
};

/* Of one connection. The core reads and writes it under one lock. */
struct sight {
    struct rpc_scan scan;
    unsigned epoch; /* at which its certificate was judged */
    bool is_peer;   /* of a service of the suite: not judged by its frames */
    bool cut;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of servers */
static struct server servers[SERVERS_MAX];
static size_t n_servers;
static atomic_uint epoch = 1;
static int sight_index = -1;

static int (*real_read)(SSL *ssl, void *buf, int size);
static int (*real_write)(SSL *ssl, const void *buf, int size);

/* -------------------------------------------------------------------- servers */

static void drop_store(struct server *server)
{
    X509_STORE_free(server->store);
    server->store = NULL;
}

bool rpc_tls_sight_add(struct berth_tls *tls, const struct rpc_peer_sans *sans)
{
    bool added;

    pthread_mutex_lock(&mutex);
    added = n_servers < SERVERS_MAX;
    if (added)
        servers[n_servers++] = (struct server){.tls = tls, .sans = sans};
    pthread_mutex_unlock(&mutex);
    return added;
}

void rpc_tls_sight_remove(const struct berth_tls *tls, const struct rpc_peer_sans *sans)
{
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < n_servers; i++) {
        if (servers[i].tls != tls || servers[i].sans != sans)
            continue;
        drop_store(&servers[i]);
        servers[i] = servers[--n_servers];
        break;
    }
    pthread_mutex_unlock(&mutex);
}

void rpc_tls_sight_changed(void)
{
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < n_servers; i++)
        drop_store(&servers[i]);
    atomic_fetch_add(&epoch, 1);
    pthread_mutex_unlock(&mutex);
}

/* NULL: no memory, and nobody is turned away for that. */
static X509_STORE *make_store(struct berth_tls *tls)
{
    BERTH_AUTO(free) char *pem = rpc_tls_authorities(tls);
    BIO *bio = pem ? BIO_new_mem_buf(pem, -1) : NULL;
    X509_STORE *store = bio ? X509_STORE_new() : NULL;
    X509 *certificate;

    while (store && (certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
        (void)X509_STORE_add_cert(store, certificate);
        X509_free(certificate);
    }
    ERR_clear_error();
    BIO_free(bio);
    return store;
}

/* ----------------------------------------------------------------- who is there */

/* Its time is not judged: what has expired meanwhile may end what it has begun. */
static bool verifies(X509_STORE *store, X509 *certificate, STACK_OF(X509) * chain)
{
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    bool good = true; /* no memory */

    if (ctx && X509_STORE_CTX_init(ctx, store, certificate, chain)) {
        X509_STORE_CTX_set_default(ctx, "ssl_client");
        X509_STORE_CTX_set_flags(ctx, X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_NO_CHECK_TIME);
        good = X509_verify_cert(ctx) == 1;
    }
    X509_STORE_CTX_free(ctx);
    ERR_clear_error();
    return good;
}

static bool has_listed_name(const struct rpc_peer_sans *sans, X509 *certificate)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    bool listed = false;

    for (int i = 0; i < sk_GENERAL_NAME_num(names) && !listed; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        char text[NAME_MAX_LEN + 1] = "";
        const ASN1_IA5STRING *value = name->d.ia5;
        int len;

        if (name->type != GEN_DNS && name->type != GEN_URI)
            continue;
        len = ASN1_STRING_length(value);
        if (len <= 0 || len > NAME_MAX_LEN ||
            memchr(ASN1_STRING_get0_data(value), 0, (size_t)len))
            continue;
        memcpy(text, ASN1_STRING_get0_data(value), (size_t)len);
        listed = rpc_peer_sans_has(sans, text, name->type == GEN_URI);
    }
    GENERAL_NAMES_free(names);
    return listed;
}

/* Does a server still take this certificate? And is it a service's? */
static bool is_accepted(X509 *certificate, STACK_OF(X509) * chain, bool *ret_peer)
{
    bool accepted = false;

    *ret_peer = false;
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < n_servers; i++) {
        struct server *server = &servers[i];

        if (!rpc_tls_has_ca(server->tls))
            continue;
        if (!server->store)
            server->store = make_store(server->tls);
        if (server->store && !verifies(server->store, certificate, chain))
            continue;
        accepted = true;
        *ret_peer = *ret_peer || has_listed_name(server->sans, certificate);
    }
    pthread_mutex_unlock(&mutex);
    return accepted;
}

/* False: what lets it in has been taken away. */
static bool may_stay(SSL *ssl, struct sight *sight)
{
    unsigned now = atomic_load_explicit(&epoch, memory_order_acquire);
    X509 *certificate;

    if (sight->epoch == now)
        return true;
    certificate = SSL_get0_peer_certificate(ssl);
    if (certificate && !is_accepted(certificate, SSL_get_peer_cert_chain(ssl), &sight->is_peer))
        return false;
    sight->epoch = now;
    return true;
}

/* -------------------------------------------------------------------- the look */

static void free_sight(void *parent, void *sight, CRYPTO_EX_DATA *data, int index, long arg,
                       void *argp)
{
    (void)parent, (void)data, (void)index, (void)arg, (void)argp;
    free(sight);
}

static void find_real(void)
{
    void *found[] = {dlsym(RTLD_NEXT, "SSL_read"), dlsym(RTLD_NEXT, "SSL_write")};

    memcpy(&real_read, &found[0], sizeof found[0]);
    memcpy(&real_write, &found[1], sizeof found[1]);
    if (!real_read || !real_write)
        abort(); /* there is no libssl: nobody can have called */
    sight_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, free_sight);
}

/* Of a connection to a server of ours; NULL: of another, or no memory. */
static struct sight *sight_of(SSL *ssl)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct sight *sight;

    pthread_once(&once, find_real);
    if (!SSL_is_server(ssl) || sight_index < 0)
        return NULL;
    sight = SSL_get_ex_data(ssl, sight_index);
    if (sight)
        return sight;
    sight = calloc(1, sizeof *sight);
    if (!sight)
        return NULL;
    sight->scan.skip = RPC_PREFACE_SIZE;
    if (SSL_set_ex_data(ssl, sight_index, sight))
        return sight;
    free(sight);
    return NULL;
}

/* The core takes it for a broken line, and closes the connection. */
static int cut(struct sight *sight, const char *why)
{
    if (!sight->cut)
        rpc_frames_note_cut(why);
    sight->cut = true;
    ERR_clear_error();
    ERR_raise(ERR_LIB_SSL, ERR_R_INTERNAL_ERROR);
    return -1;
}

static int look_and_read(SSL *ssl, struct sight *sight, void *buf, int size)
{
    const char *why;
    int n;

    if (sight->cut)
        return cut(sight, NULL);
    n = real_read(ssl, buf, size);
    if (n <= 0)
        return n;
    if (!may_stay(ssl, sight))
        return cut(sight, "its certificate is not accepted any more");
    why =
        sight->is_peer ? NULL : rpc_frames_scan(&sight->scan, buf, (size_t)n, berth_tick_ms());
    return why ? cut(sight, why) : n;
}

static int look_and_write(SSL *ssl, struct sight *sight, const void *buf, int size)
{
    if (sight->cut)
        return cut(sight, NULL);
    if (SSL_is_init_finished(ssl) && !may_stay(ssl, sight))
        return cut(sight, "its certificate is not accepted any more");
    return real_write(ssl, buf, size);
}

/* The core reads and writes on a connection under one lock of its own. */
int SSL_read(SSL *ssl, void *buf, int size)
{
    struct sight *sight = sight_of(ssl);
    int n;

    if (!sight)
        return real_read(ssl, buf, size);
    RPC_TSAN_ACQUIRE(sight);
    n = look_and_read(ssl, sight, buf, size);
    RPC_TSAN_RELEASE(sight);
    return n;
}

int SSL_write(SSL *ssl, const void *buf, int size)
{
    struct sight *sight = sight_of(ssl);
    int n;

    if (!sight)
        return real_write(ssl, buf, size);
    RPC_TSAN_ACQUIRE(sight);
    n = look_and_write(ssl, sight, buf, size);
    RPC_TSAN_RELEASE(sight);
    return n;
}

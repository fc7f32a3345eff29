#include "common/rpc/tls_accept.h"

#include <stdio.h>

#include "common/log/log.h"

#define DOOR "external:berth-tls"

/* An object of grpc_core::TcpServerFdHandler (src/core/lib/iomgr/tcp_server.h), as the C++ ABI
 * of all our platforms lays out a class with a virtual destructor and one virtual function:
 *
 *     virtual ~TcpServerFdHandler();
 *     virtual void Handle(int listener_fd, int fd, grpc_byte_buffer *pending_data) = 0;
 *
 * It has been so since 2019, and belongs to the core's listener. Other versions of the core
 * than ABI_VERSION have not been tried and are refused. */
struct rpc_fd_handler {
    const struct {
        void (*destroy)(struct rpc_fd_handler *handler);
        void (*free)(struct rpc_fd_handler *handler);
        void (*handle)(struct rpc_fd_handler *handler, int listener_fd, int fd,
                       grpc_byte_buffer *pending_data);
    } * methods;
};

static const char ABI_VERSION[] = "29.";

enum berth_code rpc_tls_door_init(struct rpc_tls_door *door, struct berth_tls *tls,
                                  enum berth_tls_clients clients, struct berth_error *err)
{
    *door = (struct rpc_tls_door){.clients = clients};
    if (!tls)
        return BERTH_OK;
    if (!rpc_tls_has_cert(tls))
        return berth_fail(err, BERTH_REASON_FIELD_INVALID,
                          "a server with TLS needs a certificate");
    if (clients != BERTH_TLS_CLIENTS_ANY && !rpc_tls_has_ca(tls))
        return berth_fail(err, BERTH_REASON_FIELD_INVALID,
                          "certificates of clients need authorities to be verified by");
    door->tls = rpc_tls_ref(tls);
    return BERTH_OK;
}

static void *same_pointer(void *pointer)
{
    return pointer;
}

static void keep_pointer(void *pointer)
{
    (void)pointer;
}

static int compare_pointers(void *a, void *b)
{
    return (uintptr_t)a < (uintptr_t)b ? -1 : (uintptr_t)a > (uintptr_t)b;
}

grpc_arg rpc_tls_door_arg(struct rpc_tls_door *door)
{
    static const grpc_arg_pointer_vtable vtable = {same_pointer, keep_pointer,
                                                   compare_pointers};
    grpc_arg arg = {.type = GRPC_ARG_POINTER, .key = (char *)(uintptr_t)DOOR};

    arg.value.pointer.p = &door->handler; /* filled in by the core */
    arg.value.pointer.vtable = &vtable;
    return arg;
}

/* Asked by the core before each handshake. */
static grpc_ssl_certificate_config_reload_status fetch(void *arg,
                                                       grpc_ssl_server_certificate_config **ret)
{
    struct rpc_tls_door *door = arg;

    if (door->generation == rpc_tls_generation(door->tls))
        return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    *ret = rpc_tls_server_config(door->tls, &door->generation);
    return *ret ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW
                : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
}

static grpc_ssl_client_certificate_request_type request_type(enum berth_tls_clients clients)
{
    switch (clients) {
    case BERTH_TLS_CLIENTS_MAY_SHOW:
        return GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
    case BERTH_TLS_CLIENTS_MUST_SHOW:
        return GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
    default:
        return GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    }
}

enum berth_code rpc_tls_door_open(struct rpc_tls_door *door, grpc_server *server,
                                  struct berth_error *err)
{
    grpc_server_credentials *credentials;

    if (!door->tls)
        return BERTH_OK;
    if (strncmp(grpc_version_string(), ABI_VERSION, strlen(ABI_VERSION)) != 0)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                          "TLS was tried with gRPC core %s* only, and this is %s", ABI_VERSION,
                          grpc_version_string());
    credentials = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            request_type(door->clients), fetch, door));
    (void)grpc_server_add_http2_port(server, DOOR, credentials); /* has no port to tell */
    grpc_server_credentials_release(credentials);
    if (!door->handler)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                          "gRPC core does not take the certificate");
    return BERTH_OK;
}

void rpc_tls_door_take(struct rpc_tls_door *door, int fd)
{
    enum { NO_LISTENER = -1 };

    door->handler->methods->handle(door->handler, NO_LISTENER, fd, NULL);
}

void rpc_tls_door_deinit(struct rpc_tls_door *door)
{
    berth_tls_free(door->tls);
    *door = (struct rpc_tls_door){0};
}

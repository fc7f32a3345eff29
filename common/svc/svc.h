/* svc.h - the life of a Berth process: settings, sockets, health, metrics, signals, drain. */
#pragma once

#include "common/config/config.h"
#include "common/errors/errors.h"
#include "common/loop/loop.h"
#include "common/pool/pool.h"
#include "common/rpc/rpc.h"

/* What a running service may use. Borrowed from start() to the end of stop(). */
struct berth_runtime {
    struct berth_loop *loop;
    struct berth_server *server;
    struct berth_pool *pool; /* workers; bulkheads keep 8 of them free of backend calls */
    unsigned n_workers;      /* of pool */
    const char *deployment;  /* the operator's deployment id, 1..64 of [a-z0-9-] */
    const char *run_dir;     /* where the suite's unix sockets are */
    struct berth_tls *tls;   /* our certificate, if any */
    bool mutual_tls;         /* and the authorities of other services' */
    bool insecure_dev;
};

/* An option of its own that does something else than serve, prints what it did, and ends. */
struct berth_command {
    const char *option; /* "--export" */
    const char *value;  /* what follows it, for --help: "FILE" */
    const char *doc;
    enum berth_code (*run)(const void *config, const char *deployment, const char *value,
                           struct berth_error *err);
};

struct berth_service {
    const char *name; /* "binding": binary berth-binding, socket <run_dir>/binding.sock */
    const char *doc;  /* one line for --help */
    int port;         /* default TCP port of a public service; metrics are on port + 100, also
                         where it is internal. 0: neither */
    bool internal;    /* peers only, on the unix socket, and with mutual TLS on TCP */
    bool open;        /* public, and without a gate on its server: for tests */
    const struct berth_config_key *keys; /* besides the common ones that svc adds: listen,
                                            run_dir, deployment, metrics_listen, log_level,
                                            insecure_dev, peer_uids, peer_sans, tls_*, workers,
                                            drain */
    size_t n_keys;
    size_t config_size; /* of the service's own settings struct */
    const struct berth_method *methods;
    size_t n_methods;
    const char *const *services; /* full names, for health and reflection */
    size_t n_services;

    /* Build the service. *ret_service is handed to every handler and to stop(). Called before
     * the first call is accepted. A public one gives its server a gate here. */
    enum berth_code (*start)(const void *config, const struct berth_runtime *runtime,
                             void **ret_service, struct berth_error *err);
    /* Optional. Asked about once a second, on a thread of its own, may block up to a second:
     * can calls be served (Redis and peers there)? Not BERTH_OK: NOT_SERVING, and the text is
     * logged at each change. */
    enum berth_code (*ready)(void *service, struct berth_error *err);
    /* Optional. More lines of Prometheus text, appended to what svc itself gives; owned string.
     * Called on the thread of the metrics. */
    char *(*metrics)(void *service);
    /* Optional. SIGHUP: read again what may change while running. A failure is logged, and
     * changes nothing. On the main thread; a SIGTERM waits for its end. */
    enum berth_code (*reload)(void *service, struct berth_error *err);
    /* All calls have ended. */
    void (*stop)(void *service);
    /* Optional. What --init does instead of serving: prepare an empty store for the deployment.
     */
    enum berth_code (*init)(const void *config, const char *deployment,
                            struct berth_error *err);
    const struct berth_command *commands; /* optional */
    size_t n_commands;
};

/* Parses argv (--help, --version, --config FILE, --check, --print-settings, --<key>=<value>),
 * loads the settings, serves until SIGTERM or SIGINT, drains. Returns the exit status of main.
 */
int berth_service_main(const struct berth_service *service, int argc, char **argv);

/* A channel to another service of the suite: target "" means <run_dir>/<peer>.sock. To
 * "host:port" it uses mutual TLS where that is set up; without it only loopback is allowed
 * (FIELD_INVALID). */
BERTH_MUST_CHECK enum berth_code berth_peer_channel(const struct berth_runtime *runtime,
                                                    const char *peer, const char *target,
                                                    const struct berth_channel_options *options,
                                                    struct berth_channel **ret,
                                                    struct berth_error *err);

/* svc.c - from main() to the end. Parts are built in order and taken down in reverse; the
 * server stops before the service does, so that no handler outlives what it uses. */
#include "common/svc/svc.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "common/log/log.h"
#include "common/svc/address.h"
#include "common/svc/metrics.h"
#include "common/svc/readiness.h"
#include "common/svc/settings.h"
#include "common/svc/tls.h"

enum { EXIT_USAGE = 2, POOL_QUEUE = 4096 };

/* proto/descriptors.S.in */
extern const uint8_t berth_descriptors[], berth_descriptors_end[];

struct process {
    const struct svc_setup *setup;
    const struct berth_service *service;
    struct berth_runtime runtime;
    void *state; /* of the service; valid when started */
    bool started;
    struct svc_readiness *readiness;
    struct svc_metrics *metrics;
};

/* ------------------------------------------------------------------------ environment */

static void raise_file_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files); /* the old limit serves, too */
    }
}

/* No core of us is ever written, and nobody but root looks into our memory or environment.
 * Children that we exec have their own say again; the limit's hard end stays for them. */
static void forbid_cores(void)
{
    struct rlimit cores;

    prctl(PR_SET_DUMPABLE, 0);
    if (getrlimit(RLIMIT_CORE, &cores) == 0) {
        cores.rlim_cur = 0;
        setrlimit(RLIMIT_CORE, &cores); /* not dumpable: none is written all the same */
    }
}

/* Before the first thread: all inherit it, and only main() takes the signals. */
static void block_signals(sigset_t *ret_set)
{
    sigemptyset(ret_set);
    sigaddset(ret_set, SIGTERM);
    sigaddset(ret_set, SIGINT);
    sigaddset(ret_set, SIGHUP);
    sigprocmask(SIG_BLOCK, ret_set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static enum berth_code make_run_dir(const char *path, struct berth_error *err)
{
    struct stat st;

    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return berth_fail_field(err, "run_dir", "cannot make %s: %s", path, strerror(errno));
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return berth_fail_field(err, "run_dir", "%s is not a folder", path);
    if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return berth_fail_field(err, "run_dir",
                                "%s belongs to another user or others may write it: they could "
                                "stand in for our sockets",
                                path);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------------ start */

static enum berth_code make_runtime(struct process *process, struct berth_error *err)
{
    const struct svc_settings *settings = process->setup->settings;
    struct berth_runtime *runtime = &process->runtime;
    struct berth_server_options options = {
        .n_workers = (unsigned)settings->workers,
        .peers_only = process->service->internal,
        .peer_uids = settings->uids,
        .n_peer_uids = settings->n_uids,
        .tls_clients = settings->tls_clients,
        .peer_sans = settings->sans,
        .n_peer_sans = settings->n_sans,
        .insecure_dev = settings->insecure_dev,
    };
    enum berth_code code;

    runtime->deployment = settings->deployment;
    runtime->run_dir = settings->run_dir;
    runtime->n_workers = (unsigned)settings->workers;
    runtime->insecure_dev = settings->insecure_dev;
    runtime->mutual_tls = *settings->tls_ca;
    code = make_run_dir(settings->run_dir, err);
    if (!code)
        code = svc_open_tls(settings, &runtime->tls, err);
    if (!code)
        code = berth_loop_new(&runtime->loop, err);
    if (!code)
        code = berth_loop_start(runtime->loop, "loop", err);
    if (!code)
        code = berth_pool_new("pool", (unsigned)settings->workers, POOL_QUEUE, &runtime->pool,
                              err);
    options.loop = runtime->loop;
    options.tls = runtime->tls;
    return code ? code : berth_server_new(&options, &runtime->server, err);
}

static enum berth_code fill_server(struct process *process, struct berth_error *err)
{
    const struct berth_service *service = process->service;
    struct berth_server *server = process->runtime.server;
    enum berth_code code;

    code = berth_server_add(server, service->methods, service->n_methods, process->state, err);
    if (!code)
        code = berth_health_add(server, err);
    if (!code)
        code = berth_reflection_add(server, berth_descriptors,
                                    (size_t)(berth_descriptors_end - berth_descriptors),
                                    service->services, service->n_services, err);
    for (size_t i = 0; i < service->n_services && !code; i++)
        berth_health_set(server, service->services[i],
                         false); /* until ready() has been asked */
    return code;
}

static enum berth_code listen_beside(struct process *process, struct berth_error *err)
{
    const struct svc_settings *settings = process->setup->settings;
    struct berth_server *server = process->runtime.server;

    if (!*settings->listen)
        return BERTH_OK;
    if (process->runtime.tls && !svc_is_unix(settings->listen))
        return berth_server_listen_tls(server, settings->listen, NULL, err);
    return berth_server_listen(server, settings->listen, NULL, err);
}

static enum berth_code open_doors(struct process *process, struct berth_error *err)
{
    const struct svc_settings *settings = process->setup->settings;
    struct svc_metrics_source source = {
        .service = process->service,
        .state = process->state,
        .server = process->runtime.server,
        .deployment = settings->deployment,
    };
    enum berth_code code;

    code = berth_server_listen(process->runtime.server, settings->socket, NULL, err);
    if (!code)
        code = listen_beside(process, err);
    if (!code && *settings->metrics_listen)
        code = svc_metrics_new(settings->metrics_listen, &source, &process->metrics, err);
    if (!code)
        code = berth_server_start(process->runtime.server, err);
    if (code)
        return code;
    berth_health_set(process->runtime.server, "", true);
    return svc_readiness_new(process->service, process->state, process->runtime.server,
                             &process->readiness, err);
}

static enum berth_code start(struct process *process, struct berth_error *err)
{
    const struct svc_settings *settings = process->setup->settings;
    enum berth_code code = make_runtime(process, err);

    if (!code)
        code = process->service->start(svc_own_settings(process->setup), &process->runtime,
                                       &process->state, err);
    process->started = !code;
    if (!code && !process->service->internal && !process->service->open &&
        !berth_server_has_gate(process->runtime.server))
        code = berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                          "a public service without tokens does not start");
    if (!code)
        code = fill_server(process, err);
    if (!code)
        code = open_doors(process, err);
    if (code)
        return code;
    berth_info("ready", "version", BERTH_VERSION, "deployment", settings->deployment, "socket",
               settings->socket, "listen", settings->listen, "tls",
               process->runtime.tls ? settings->tls_cert : "", "metrics",
               settings->metrics_listen);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------------- stop */

static void stop(struct process *process, int64_t drain_ms)
{
    const struct berth_service *service = process->service;
    struct berth_runtime *runtime = &process->runtime;

    process->readiness = svc_readiness_free(process->readiness);
    if (runtime->server) {
        berth_health_set(runtime->server, "", false);
        for (size_t i = 0; i < service->n_services; i++)
            berth_health_set(runtime->server, service->services[i], false);
        berth_server_stop(runtime->server, drain_ms);
    }
    process->metrics = svc_metrics_free(process->metrics);
    if (process->started && service->stop)
        service->stop(process->state);
    if (runtime->loop)
        berth_loop_stop(runtime->loop); /* what was posted to it may still name the server */
    runtime->server = berth_server_free(runtime->server);
    runtime->pool = berth_pool_free(runtime->pool);
    runtime->loop = berth_loop_free(runtime->loop);
    runtime->tls = berth_tls_free(runtime->tls);
}

static void reload(struct process *process)
{
    struct berth_error err = {0};

    if (process->runtime.tls)
        berth_tls_reload(process->runtime.tls); /* tells by itself */
    if (!process->service->reload && !process->runtime.tls)
        berth_info("nothing to read again", "signal", "SIGHUP");
    else if (process->service->reload && process->service->reload(process->state, &err))
        berth_log_error("not read again, going on with what was read before", "reason",
                        berth_reason_name(err.reason), "error", err.text);
    else if (process->service->reload)
        berth_info("read again", "signal", "SIGHUP");
}

static int wait_for_signal(struct process *process, const sigset_t *set)
{
    int number = 0;

    while (sigwait(set, &number) != 0 || number == SIGHUP)
        if (number == SIGHUP)
            reload(process);
    /* A second signal ends the process at once. */
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGHUP, SIG_IGN);
    sigprocmask(SIG_UNBLOCK, set, NULL);
    return number;
}

static int serve(const struct svc_setup *setup)
{
    const struct svc_settings *settings = setup->settings;
    struct process process = {.setup = setup, .service = setup->service};
    struct berth_error err = {0};
    sigset_t signals;
    int status = EXIT_SUCCESS, number;

    berth_log_setup(setup->service->name, settings->level);
    raise_file_limit();
    forbid_cores();
    block_signals(&signals);
    if (settings->insecure_dev)
        berth_warn("insecure_dev is on: every caller counts as a service of the suite");
    berth_rpc_init();
    if (start(&process, &err) != BERTH_OK) {
        berth_log_error("cannot start", "reason", berth_reason_name(err.reason), "error",
                        err.text);
        status = EXIT_FAILURE;
        stop(&process, 0);
    } else {
        number = wait_for_signal(&process, &signals);
        berth_info("draining", "signal", number == SIGTERM ? "SIGTERM" : "SIGINT", "drain_ms",
                   BERTH_I64(settings->drain));
        stop(&process, settings->drain);
        berth_info("stopped");
    }
    berth_rpc_done();
    return status;
}

/* ------------------------------------------------------------------------------- main */

static int complain(const struct berth_service *service, const struct berth_error *err)
{
    fprintf(stderr, "berth-%s: %s\n", service->name, err->text);
    return EXIT_USAGE;
}

static int check(const struct svc_setup *setup)
{
    struct berth_error err = {0};
    struct berth_tls *tls;

    if (svc_open_tls(setup->settings, &tls, &err) != BERTH_OK)
        return complain(setup->service, &err);
    berth_tls_free(tls);
    printf("the settings are valid\n");
    return EXIT_SUCCESS;
}

static int act(struct svc_setup *setup)
{
    struct berth_error err = {0};
    BERTH_AUTO(free) char *text = NULL;

    if (setup->action == SVC_HELP) {
        svc_print_help(setup);
        return EXIT_SUCCESS;
    }
    if (setup->action == SVC_VERSION) {
        printf("berth-%s %s\n", setup->service->name, BERTH_VERSION);
        return EXIT_SUCCESS;
    }
    if (svc_setup_load(setup, &err) != BERTH_OK)
        return complain(setup->service, &err);
    if (setup->action == SVC_CHECK)
        return check(setup);
    if (setup->action == SVC_PRINT) {
        text = berth_config_describe(setup->keys, setup->n_keys, setup->settings);
        printf("%s", text ? text : "");
        return EXIT_SUCCESS;
    }
    if (setup->action == SVC_INIT) {
        berth_log_setup(setup->service->name, setup->settings->level);
        if (setup->service->init(svc_own_settings(setup), setup->settings->deployment, &err))
            return complain(setup->service, &err);
        printf("the store is ready for deployment %s\n", setup->settings->deployment);
        return EXIT_SUCCESS;
    }
    if (setup->action == SVC_COMMAND) {
        berth_log_setup(setup->service->name, setup->settings->level);
        if (setup->command->run(svc_own_settings(setup), setup->settings->deployment,
                                setup->command_value, &err))
            return complain(setup->service, &err);
        return EXIT_SUCCESS;
    }
    return serve(setup);
}

int berth_service_main(const struct berth_service *service, int argc, char **argv)
{
    struct svc_setup setup;
    struct berth_error err = {0};
    int status;

    if (svc_setup_init(&setup, service, argc, argv, &err) != BERTH_OK)
        status = complain(service, &err);
    else
        status = act(&setup);
    svc_setup_deinit(&setup);
    return status;
}

enum berth_code berth_peer_channel(const struct berth_runtime *runtime, const char *peer,
                                   const char *target,
                                   const struct berth_channel_options *options,
                                   struct berth_channel **ret, struct berth_error *err)
{
    struct berth_channel_options mine = options ? *options : (struct berth_channel_options){0};
    char socket[SVC_PATH_MAX + 64];

    if (target && *target) {
        if (!svc_is_unix(target) && runtime->mutual_tls)
            mine.tls = runtime->tls;
        else if (!svc_is_on_this_machine(target) && !runtime->insecure_dev)
            return berth_fail_field(err, "tls_ca",
                                    "must be set with tls_cert and tls_key, since the address "
                                    "of %s, %s, is not on this machine",
                                    peer, target);
        return berth_channel_new(target, &mine, ret, err);
    }
    if (snprintf(socket, sizeof socket, "unix:%s/%s.sock", runtime->run_dir, peer) >=
        (int)sizeof socket)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "peer name too long");
    return berth_channel_new(socket, options, ret, err);
}

#include "common/svc/settings.h"

#include <stdio.h>

#include "common/svc/address.h"
#include "common/svc/tls.h"

enum {
    WORKERS_MAX = 1024,
    DEPLOYMENT_MAX = 64,
    METRICS_OFFSET = 100, /* metrics port = gRPC port + 100 */
    ALIGNMENT = 16
};

#define KEY(field, type, value, doc)                                                           \
    {                                                                                          \
#field, BERTH_CONFIG_##type, offsetof(struct svc_settings, field), value, doc          \
    }

static const struct berth_config_key common_keys[] = {
    KEY(listen, STR, "",
        "address to serve gRPC on besides the unix socket: unix:/path, or a numeric address "
        "with a port, which beyond loopback needs TLS; empty: none"),
    KEY(metrics_listen, STR, "",
        "loopback address to serve Prometheus metrics on by HTTP; empty: none"),
    KEY(run_dir, STR, "/run/berth", "folder of the suite's unix sockets, made when absent"),
    KEY(deployment, STR, "dev", "id of this deployment: 1 to 64 characters of [a-z0-9-]"),
    KEY(log_level, STR, "info", "lowest level written: debug, info, warn or error"),
    KEY(peer_uids, STR, "",
        "uids, separated by commas, that count as services of the suite besides root and our "
        "own"),
    KEY(tls_cert, STR, "",
        "file with our certificate and those between it and its authority (PEM). With it "
        "listen "
        "is served with TLS 1.2 and 1.3; unix sockets stay as they are. Changed files are "
        "taken "
        "up within 5 s or at SIGHUP"),
    KEY(tls_key, STR, "", "file with the private key of tls_cert (PEM, not encrypted)"),
    KEY(tls_ca, STR, "",
        "file with the authorities (PEM) of other services' certificates and of clients'. With "
        "it our own connections to host:port use mutual TLS, and clients may show a "
        "certificate; to an internal service they must"),
    KEY(tls_require_client, BOOL, "false",
        "a public service, too, serves TLS only to clients with a certificate of tls_ca"),
    KEY(peer_sans, STR, "",
        "names in certificates, separated by commas, that count as services of the suite: DNS "
        "names or URIs (spiffe://berth/dataplane), whole; read at the start only, unlike "
        "certificates"),
    KEY(insecure_dev, BOOL, "false",
        "everybody is a peer; internal services may listen on loopback TCP without TLS. Never "
        "in production"),
    KEY(workers, INT, "32",
        "threads that serve calls, 9 to 1024; they start as they are needed"),
    KEY(drain, MS, "10s", "time that calls in progress get to end after SIGTERM, at most 1h"),
};
#undef KEY

static size_t own_offset(void)
{
    return (sizeof(struct svc_settings) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

const void *svc_own_settings(const struct svc_setup *setup)
{
    return (const char *)setup->settings + own_offset();
}

static enum berth_code build_keys(struct svc_setup *setup, struct berth_error *err)
{
    const struct berth_service *service = setup->service;
    struct berth_config_key *keys;

    setup->n_keys = BERTH_COUNT(common_keys) + service->n_keys;
    setup->keys = keys = calloc(setup->n_keys, sizeof *keys);
    if (!keys)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    memcpy(keys, common_keys, sizeof common_keys);
    if (service->port > 0 && !service->internal)
        snprintf(setup->default_listen, sizeof setup->default_listen, "127.0.0.1:%d",
                 service->port);
    if (service->port > 0)
        snprintf(setup->default_metrics, sizeof setup->default_metrics, "127.0.0.1:%d",
                 service->port + METRICS_OFFSET);
    keys[0].value = setup->default_listen;
    keys[1].value = setup->default_metrics;
    keys += BERTH_COUNT(common_keys);
    for (size_t i = 0; i < service->n_keys; i++) {
        keys[i] = service->keys[i];
        keys[i].offset += own_offset();
    }
    return BERTH_OK;
}

/* ----------------------------------------------------------------------- command line */

/* "insecure-dev" alone means true. */
static bool is_switch(const struct svc_setup *setup, const char *name)
{
    for (size_t i = 0; i < setup->n_keys; i++) {
        const char *key = setup->keys[i].name, *given = name;

        while (*key && *key == (*given == '-' ? '_' : *given))
            key++, given++;
        if (!*key && !*given)
            return setup->keys[i].type == BERTH_CONFIG_BOOL;
    }
    return false;
}

static enum berth_code add_override(struct svc_setup *setup, const char *text,
                                    struct berth_error *err)
{
    const char *tail = is_switch(setup, text) ? "=true" : "";
    size_t size = strlen(text) + strlen(tail) + 1;
    char *copy = malloc(size);

    if (!copy)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    snprintf(copy, size, "%s%s", text, tail);
    setup->overrides[setup->n_overrides++] = copy;
    return BERTH_OK;
}

static enum berth_code read_option(struct svc_setup *setup, const char *option,
                                   const char *next, int *ret_used, struct berth_error *err)
{
    static const struct {
        const char *name;
        enum svc_action action;
    } actions[] = {{"--help", SVC_HELP},
                   {"-h", SVC_HELP},
                   {"--version", SVC_VERSION},
                   {"--check", SVC_CHECK},
                   {"--print-settings", SVC_PRINT},
                   {"--init", SVC_INIT}};

    *ret_used = 1;
    for (size_t i = 0; i < BERTH_COUNT(actions); i++) {
        if (strcmp(option, actions[i].name) == 0 &&
            (actions[i].action != SVC_INIT || setup->service->init)) {
            setup->action = actions[i].action;
            return BERTH_OK;
        }
    }
    if (strncmp(option, "--config=", 9) == 0) {
        setup->config_path = option + 9;
        return BERTH_OK;
    }
    if (strcmp(option, "--config") == 0 && next) {
        setup->config_path = next;
        *ret_used = 2;
        return BERTH_OK;
    }
    for (size_t i = 0; i < setup->service->n_commands; i++) {
        if (strcmp(option, setup->service->commands[i].option) != 0)
            continue;
        if (!next)
            return berth_fail(err, BERTH_REASON_FIELD_INVALID, "%s: %s is missing", option,
                              setup->service->commands[i].value);
        setup->action = SVC_COMMAND;
        setup->command = &setup->service->commands[i];
        setup->command_value = next;
        *ret_used = 2;
        return BERTH_OK;
    }
    if (strncmp(option, "--", 2) != 0 || !option[2])
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "%s: not an option; see --help",
                          option);
    return add_override(setup, option + 2, err);
}

enum berth_code svc_setup_init(struct svc_setup *setup, const struct berth_service *service,
                               int argc, char **argv, struct berth_error *err)
{
    enum berth_code code;

    *setup = (struct svc_setup){.service = service};
    setup->overrides = calloc((size_t)argc + 1, sizeof *setup->overrides);
    if (!setup->overrides)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = build_keys(setup, err);
    for (int i = 1; i < argc && !code;) {
        int used = 1;

        code = read_option(setup, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &used, err);
        i += used;
    }
    return code;
}

/* ----------------------------------------------------------------------------- checks */

static enum berth_code check_deployment(const char *text, struct berth_error *err)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");

    if (len == 0 || len > DEPLOYMENT_MAX || text[len])
        return berth_fail_field(err, "deployment", "must be 1 to %d characters of [a-z0-9-]",
                                DEPLOYMENT_MAX);
    return BERTH_OK;
}

static enum berth_code check_level(struct svc_settings *settings, struct berth_error *err)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};

    for (size_t i = 0; i < BERTH_COUNT(names); i++) {
        if (strcmp(settings->log_level, names[i]) == 0) {
            settings->level = (enum berth_log_level)i;
            return BERTH_OK;
        }
    }
    return berth_fail_field(err, "log_level", "must be debug, info, warn or error");
}

/* "1000,1001"; "" is none. */
static enum berth_code check_uids(struct svc_settings *settings, struct berth_error *err)
{
    const char *at = settings->peer_uids;

    while (*at) {
        size_t len = strspn(at, "0123456789");
        unsigned long uid = len > 0 && len <= 10 ? strtoul(at, NULL, 10) : UINT32_MAX;

        if (uid >= UINT32_MAX || settings->n_uids == SVC_PEERS_MAX ||
            (at[len] && (at[len] != ',' || !at[len + 1])))
            return berth_fail_field(
                err, "peer_uids", "must be at most %d uids with commas between", SVC_PEERS_MAX);
        settings->uids[settings->n_uids++] = (unsigned)uid;
        at += len + (at[len] == ',');
    }
    return BERTH_OK;
}

static enum berth_code check_addresses(const struct berth_service *service,
                                       struct svc_settings *settings, struct berth_error *err)
{
    struct sockaddr_storage ignored;
    enum berth_code code = svc_check_tls(service, settings, err);

    if (!code && *settings->listen)
        code = svc_check_listen("listen", settings->listen, *settings->tls_cert, err);
    if (!code && *settings->listen && !svc_is_on_this_machine(settings->listen))
        code = svc_check_beyond(settings, err);
    if (!code && *settings->metrics_listen)
        code = svc_parse_loopback("metrics_listen", settings->metrics_listen, &ignored, err);
    return code;
}

static enum berth_code check(const struct berth_service *service, struct svc_settings *settings,
                             struct berth_error *err)
{
    enum berth_code code = check_deployment(settings->deployment, err);

    if (!code)
        code = check_level(settings, err);
    if (!code)
        code = check_uids(settings, err);
    if (!code)
        code = check_addresses(service, settings, err);
    if (code)
        return code;
    if (settings->workers < 9 || settings->workers > WORKERS_MAX)
        return berth_fail_field(err, "workers", "must be 9 to %d", WORKERS_MAX);
    if (settings->drain > 3600000)
        return berth_fail_field(err, "drain", "must be at most 1h");
    if (settings->run_dir[0] != '/' || strlen(settings->run_dir) >= SVC_PATH_MAX)
        return berth_fail_field(err, "run_dir",
                                "must be an absolute path of at most %d characters",
                                SVC_PATH_MAX - 1);
    snprintf(settings->socket, sizeof settings->socket, "unix:%s/%s.sock", settings->run_dir,
             service->name);
    return BERTH_OK;
}

enum berth_code svc_setup_load(struct svc_setup *setup, struct berth_error *err)
{
    enum berth_code code;

    setup->settings = calloc(1, own_offset() + setup->service->config_size);
    if (!setup->settings)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = berth_config_load(setup->keys, setup->n_keys, setup->config_path,
                             (const char *const *)setup->overrides, setup->n_overrides,
                             setup->settings, err);
    return code ? code : check(setup->service, setup->settings, err);
}

void svc_setup_deinit(struct svc_setup *setup)
{
    if (setup->settings) {
        free(setup->settings->san_text);
        berth_config_deinit(setup->keys, setup->n_keys, setup->settings);
    }
    free(setup->settings);
    free(setup->keys);
    for (size_t i = 0; i < setup->n_overrides; i++)
        free(setup->overrides[i]);
    free(setup->overrides);
    *setup = (struct svc_setup){0};
}

/* Owned; NULL: no memory. */
static char *describe_commands(const struct berth_service *service)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);

    if (!file)
        return NULL;
    for (size_t i = 0; i < service->n_commands; i++) {
        const struct berth_command *command = &service->commands[i];
        int len = fprintf(file, "  %s %s", command->option, command->value);

        fprintf(file, "%*s%s and exit\n", len < 22 ? 23 - len : 1, "", command->doc);
    }
    if (fclose(file) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

void svc_print_help(const struct svc_setup *setup)
{
    BERTH_AUTO(free) char *text = berth_config_describe(setup->keys, setup->n_keys, NULL);
    BERTH_AUTO(free) char *commands = describe_commands(setup->service);

    printf("berth-%s - %s\n\n"
           "usage: berth-%s [--config FILE] [--<setting>=<value> ...]\n\n"
           "  --config FILE        settings as one JSON object\n"
           "  --check              check the settings and exit\n"
           "  --print-settings     print the settings in force, secrets as set or unset, and "
           "exit\n"
           "%s%s"
           "  --version            print the version and exit\n"
           "  --help               this text\n\n"
           "Settings. Later sources win: the default, the file, BERTH_<SETTING> in the "
           "environment, the\n"
           "command line. A secret given as @/path is read from that file.\n%s",
           setup->service->name, setup->service->doc ? setup->service->doc : "",
           setup->service->name,
           setup->service->init ? "  --init               prepare an empty store for the "
                                  "deployment and exit\n"
                                : "",
           commands ? commands : "", text ? text : "");
}

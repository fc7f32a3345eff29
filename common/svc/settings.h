/* settings.h - the settings every process has, and its command line; for common/svc only. */
#pragma once

#include "common/log/log.h"
#include "common/svc/svc.h"

enum {
    SVC_PEERS_MAX = 32,
    SVC_SAN_MAX = 255,
    SVC_PATH_MAX = 88
}; /* a socket's path may have 107 characters */

/* Common settings as loaded; the service's own follow behind it in the same block. */
struct svc_settings {
    char *listen, *run_dir, *deployment, *metrics_listen, *log_level, *peer_uids;
    char *tls_cert, *tls_key, *tls_ca, *peer_sans;
    bool tls_require_client, insecure_dev;
    int64_t workers, drain;

    /* Derived when all was checked. */
    enum berth_log_level level;
    unsigned uids[SVC_PEERS_MAX];
    size_t n_uids;
    char *san_text; /* peer_sans with ends in place of commas; sans point into it */
    const char *sans[SVC_PEERS_MAX];
    size_t n_sans;
    enum berth_tls_clients tls_clients;
    char socket[SVC_PATH_MAX + 32]; /* "unix:<run_dir>/<name>.sock" */
};

/* What the command line asks for besides serving. */
enum svc_action {
    SVC_SERVE,
    SVC_HELP,
    SVC_VERSION,
    SVC_CHECK,
    SVC_PRINT,
    SVC_INIT,
    SVC_COMMAND
};

/* The command line, the whole table of keys, and what was loaded by it. */
struct svc_setup {
    const struct berth_service *service;
    enum svc_action action;
    const struct berth_command *command; /* with SVC_COMMAND, and what follows it */
    const char *command_value;
    const char *config_path; /* NULL: none */
    char **overrides;        /* owned, as berth_config_load wants them */
    size_t n_overrides;
    struct berth_config_key *keys; /* common ones first */
    size_t n_keys;
    char default_listen[32], default_metrics[32];
    struct svc_settings
        *settings; /* one block with the service's own struct; NULL: not loaded */
};

/* Errors: FIELD_INVALID for an option that does not exist, OUT_OF_MEMORY. */
enum berth_code svc_setup_init(struct svc_setup *setup, const struct berth_service *service,
                               int argc, char **argv, struct berth_error *err);
/* Loads and checks. Errors: FIELD_INVALID naming the setting. */
enum berth_code svc_setup_load(struct svc_setup *setup, struct berth_error *err);
void svc_setup_deinit(struct svc_setup *setup);

/* The service's own settings struct. */
const void *svc_own_settings(const struct svc_setup *setup);

/* Text of --help. */
void svc_print_help(const struct svc_setup *setup);

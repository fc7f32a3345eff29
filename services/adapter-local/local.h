/* local.h - the local backend behind the adapter's table: the store is read here, everything
 * that changes it is asked of the spawner. */
#pragma once

#include "services/adapter/adapter.h"

/* Settings, borrowed for the length of local_new(). */
struct local_options {
    const char *state_dir;
    const char *template_dirs; /* by ':' */
    const char *network_cidr;
    const char *resolvers; /* by blanks; "" = the host's */
    const char *slots_dir;
    const char *spawner, *supervisor;  /* programs; "" = beside our own */
    int64_t measure_ms;                /* at most once in it, what sandboxes have written */
    int64_t ended_keep_ms;             /* so long the files of one that has ended are kept */
    struct adapter_resources defaults; /* limits of a sandbox that names none */
};

/* Starts the spawner, which probes the host. Errors: CAPABILITY_MISSING naming the step that
 * the host refuses; FIELD_INVALID naming the setting. */
BERTH_MUST_CHECK enum berth_code local_new(const struct local_options *options,
                                           struct adapter **ret, struct berth_error *err);
struct adapter *local_free(struct adapter *adapter);
BERTH_DEFINE_AUTO(struct adapter *, local_free)

extern const struct adapter_ops local_ops;

/* Prometheus text; owned. NULL: out of memory. */
char *local_metrics(struct adapter *adapter);

/* local_impl.h - what the parts of the local backend share. */
#pragma once

#include <jansson.h>

#include "services/adapter-local/local.h"
#include "services/adapter-local/spawn_client.h"
#include "services/adapter-local/spawner/cgroup.h"
#include "services/adapter-local/spawner/store.h"

struct adapter {
    struct store store;
    struct spawn_client *spawner;
    struct cgroup_host host; /* unified "": not found */
    char cgroup_name[32];    /* of the store */
    struct adapter_resources defaults, max;
};

/* A request about one sandbox; NULL: out of memory. */
json_t *local_about(const char *id, const struct adapter_grant *grant);
/* Take value as a member of request; frees both and gives NULL where there is no memory. */
json_t *local_with(json_t *request, const char *key, json_t *value);

/* local_catalog.c: members of the table. */
enum berth_code local_snapshot(struct adapter *local, const char *id, const char *name,
                               const struct adapter_pairs *metadata,
                               const struct adapter_grant *grant, int64_t deadline_ms,
                               struct adapter_snapshot *ret, struct berth_error *err);
enum berth_code local_list_snapshots(struct adapter *local, int64_t deadline_ms,
                                     struct adapter_snapshot **ret, size_t *ret_n,
                                     bool *ret_complete, struct berth_error *err);
enum berth_code local_delete_snapshot(struct adapter *local, const char *id,
                                      const struct adapter_grant *grant, int64_t deadline_ms,
                                      struct adapter_removed *ret, struct berth_error *err);
enum berth_code local_list_templates(struct adapter *local, int64_t deadline_ms,
                                     struct adapter_template **ret, size_t *ret_n,
                                     struct berth_error *err);
enum berth_code local_build_template(struct adapter *local, const char *name,
                                     adapter_progress_fn progress, void *arg,
                                     int64_t deadline_ms, struct adapter_template *ret,
                                     struct berth_error *err);
enum berth_code local_delete_template(struct adapter *local, const char *id,
                                      int64_t deadline_ms, bool *ret_existed,
                                      struct berth_error *err);

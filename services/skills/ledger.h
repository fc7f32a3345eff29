/* ledger.h - the snapshot ledger: rows in c/<config>, and the index i/snapshot (snapshot id ->
 * "<config>/<row>"), each change one compare-and-set with its event. What the ledger does not
 * name is never deleted; several rows may name one snapshot (an image that was published
 * again), which goes with the last of them. Blocking. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "common/errors/errors.h"
#include "common/journal/records.h"
#include "common/records/config_doc.h"
#include "common/records/tenant_doc.h"
#include "common/redis/redis.h"

enum {
    LEDGER_NAME_SIZE = 64,
    LEDGER_ROW_ID_LEN = 16,
    LEDGER_SKILLS_MAX = 100,           /* in one image */
    LEDGER_LIST_BYTES_MAX = 512 << 10, /* of the list of them, as JSON */
};

/* What a skill image holds: field skills:<row_id>, a JSON array (image.h). */
struct ledger_list {
    char row_id[33];
    char *text; /* owned */
};

/* A config with its rows, as read in one trip with its tenant. */
struct ledger {
    char tenant_id[129], config_id[129];
    struct berth_tenant_doc tenant;
    struct berth_config_doc config; /* !exists: there is none */
    struct berth_snapshot_row *rows;
    size_t n_rows;
    struct ledger_list *lists;
    size_t n_lists;
    char *lock;     /* owned: the field as it stands (operation.h); "": none */
    char *queue;    /* likewise */
    int64_t now_ms; /* Redis' clock at the read */
};
void ledger_deinit(struct ledger *ledger);

/* Errors: TENANT_NOT_FOUND, INDEX_RECOVERING, STORE_UNAVAILABLE, INTERNAL_BUG. */
BERTH_MUST_CHECK enum berth_code ledger_read(struct berth_redis *redis, const char *tenant,
                                             const char *config_id, struct ledger *ret,
                                             struct berth_error *err);
/* The row; borrowed; NULL: not there. */
struct berth_snapshot_row *ledger_find(struct ledger *ledger, const char *row_id);
/* The row of a generation, whatever its state; borrowed; NULL: not there (any more). */
struct berth_snapshot_row *ledger_find_generation(struct ledger *ledger, uint64_t generation);
/* Does another row, neither deleted nor abandoned, name the same snapshot? Then it stays. */
bool ledger_is_shared(const struct ledger *ledger, const struct berth_snapshot_row *row);

/* Is it the image that sessions boot, or the one that is wanted and missing? It stays. */
bool ledger_is_live(const struct ledger *ledger, const struct berth_snapshot_row *row);

/* Is the row `building` and whoever built it gone: no sign of life for lease_ms? */
bool ledger_is_orphan(const struct ledger *ledger, const struct berth_snapshot_row *row,
                      int64_t lease_ms);
/* Nothing of the build can take effect any more, whatever became of the calls for it. */
bool ledger_is_settled(const struct ledger *ledger, const struct berth_snapshot_row *row);

/* What happens to one row. */
enum ledger_change {
    LEDGER_BUILD,   /* a new one, building */
    LEDGER_PUBLISH, /* active, with its snapshot id: bootable from here on */
    LEDGER_KEEP,    /* any other change of its fields */
    LEDGER_REMOVE,  /* the row and its place in the index go */
};

/* Snapshots of a tenant, those being made included, as far as they count against its limit. */
struct ledger_quota {
    char rev[17]; /* of the document that changes with every new one */
    uint64_t n;
};
/* Errors: STORE_UNAVAILABLE, INTERNAL_BUG. */
BERTH_MUST_CHECK enum berth_code ledger_count(struct berth_redis *redis, const char *tenant,
                                              struct ledger_quota *ret,
                                              struct berth_error *err);

/**
 * ledger_write() - write one row over the ledger as read
 * @quota: LEDGER_BUILD of a tenant with a limit: as counted; NULL: there is none
 * @ret_applied: false: somebody wrote in between; read again
 *
 * Errors: STORE_UNAVAILABLE, OUTCOME_UNKNOWN, OUT_OF_MEMORY.
 */
BERTH_MUST_CHECK enum berth_code
ledger_write(struct berth_records *records, const struct ledger *ledger,
             const struct berth_snapshot_row *row, enum ledger_change change,
             const struct ledger_quota *quota, bool *ret_applied, struct berth_error *err);

/* The same of a LEDGER_BUILD of a skill image, with its list; row->generation must be the
 * ledger's next one, which is used up. */
BERTH_MUST_CHECK enum berth_code ledger_build_image(struct berth_records *records,
                                                    const struct ledger *ledger,
                                                    const struct berth_snapshot_row *row,
                                                    const char *list,
                                                    const struct ledger_quota *quota,
                                                    bool *ret_applied, struct berth_error *err);

/* "<config>" and "<row>" of a snapshot of the tenant. Errors: SNAPSHOT_NOT_FOUND,
 * TENANT_NOT_FOUND, TENANT_DISABLED, STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code ledger_locate(struct berth_redis *redis, const char *tenant,
                                               const char *snapshot_id, char ret_config[129],
                                               char ret_row[33], struct berth_error *err);

/* The tenant's config ids in order; strings in the reply. */
BERTH_MUST_CHECK enum berth_code ledger_configs(struct berth_redis *redis, const char *tenant,
                                                struct berth_reply **ret,
                                                struct berth_error *err);

/* Errors: TENANT_NOT_FOUND, INDEX_RECOVERING, TENANT_DISABLED. */
BERTH_MUST_CHECK enum berth_code ledger_check_tenant(struct berth_redis *redis,
                                                     const char *tenant_id,
                                                     const struct berth_tenant_doc *tenant,
                                                     struct berth_error *err);

/* berth-us-<16 hex of SHA-256(tenant, config)>-<row>, and of a skill image
 * berth-sk-<same>-g<generation>-<row>: lower case, below 64 characters. */
void ledger_planned_name(char buf[LEDGER_NAME_SIZE], const char *tenant, const char *config_id,
                         const char *row_id);
void ledger_image_name(char buf[LEDGER_NAME_SIZE], const char *tenant, const char *config_id,
                       uint64_t generation, const char *row_id);

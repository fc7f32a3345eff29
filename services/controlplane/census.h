/* census.h - which records are sealed under which key. Blocking. */
#pragma once

#include "services/controlplane/controlplane.h"

enum { CP_CENSUS_ROWS_MAX = 32 };

/* Records by the id of their key. */
struct cp_census {
    size_t n_rows;
    struct cp_census_row {
        char key_id[BERTH_KEY_ID_SIZE]; /* "?": more keys than there is room for */
        size_t configs;
        char example[272]; /* one of them: "tenant/config" */
    } rows[CP_CENSUS_ROWS_MAX];
};

void cp_census_add(struct cp_census *census, const char *key_id, const char *tenant,
                   const char *config_id);

/* Called for each config that has sealed credentials. False: end the walk. */
typedef bool (*cp_census_fn)(void *arg, const char *tenant, const char *config_id,
                             const char *key_id);

/* Every config of every tenant. Errors: STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code cp_census_walk(struct cp *cp, cp_census_fn fn, void *arg,
                                                struct berth_error *err);
BERTH_MUST_CHECK enum berth_code cp_census_take(struct cp *cp, struct cp_census *ret,
                                                struct berth_error *err);

/* Errors: FIELD_INVALID naming a key that something is sealed under and keyring does not have,
 * and what. */
BERTH_MUST_CHECK enum berth_code cp_census_check(const struct cp_census *census,
                                                 const struct berth_keyring *keyring,
                                                 struct berth_error *err);

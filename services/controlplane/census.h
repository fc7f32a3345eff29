/* census.h - which records are sealed under which key. Blocking. */
#pragma once

#include "services/controlplane/controlplane.h"

enum { CP_CENSUS_ROWS_MAX = 32 };

/* What is sealed: credentials of configs, endpoints of sessions, entries of journals. */
enum cp_sealed { CP_SEALED_CONFIG, CP_SEALED_ENDPOINT, CP_SEALED_JOURNAL, CP_N_SEALED };

/* Records by the id of their key. */
struct cp_census {
    size_t n_rows;
    struct cp_census_row {
        char key_id[BERTH_KEY_ID_SIZE]; /* "?": more keys than there is room for */
        size_t n[CP_N_SEALED];
        char example[288]; /* one of them: "config tenant/id" */
    } rows[CP_CENSUS_ROWS_MAX];
};

void cp_census_add(struct cp_census *census, enum cp_sealed what, const char *key_id,
                   const char *tenant, const char *id);

/* Called for each sealed record; id is a config's or a session's; or for each key of a journal,
 * tenant being whose it is. False: end the walk. */
typedef bool (*cp_census_fn)(void *arg, enum cp_sealed what, const char *tenant, const char *id,
                             const char *key_id);

/* Every config of every tenant; with sessions, every session too, as binding lists them; and
 * every journal, as its writer says.
 * Errors: STORE_UNAVAILABLE, PEER_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code cp_census_walk(struct cp *cp, bool sessions, cp_census_fn fn,
                                                void *arg, struct berth_error *err);
BERTH_MUST_CHECK enum berth_code cp_census_take(struct cp *cp, bool sessions,
                                                struct cp_census *ret, struct berth_error *err);

/* Errors: FIELD_INVALID naming a key that something is sealed under and keyring does not have,
 * and what. */
BERTH_MUST_CHECK enum berth_code cp_census_check(const struct cp_census *census,
                                                 const struct berth_keyring *keyring,
                                                 struct berth_error *err);

/* keys.h - the suite's keys while the control plane runs. A thread of its own looks every
 * second whether the key file has changed, counts which records are sealed under which key, and
 * seals anew under the first one what is not. */
#pragma once

#include "services/controlplane/controlplane.h"

struct cp_keys;

/* Loads the keys into cp->keyring; source's strings are borrowed to the end. Errors:
 * FIELD_INVALID. */
BERTH_MUST_CHECK enum berth_code cp_keys_new(struct cp *cp,
                                             const struct berth_key_source *source,
                                             struct cp_keys **ret, struct berth_error *err);
/* Ends the thread. NULL is fine. */
struct cp_keys *cp_keys_free(struct cp_keys *keys);

/* A config is sealed under a key that is not there: FIELD_INVALID naming both. (Endpoints of
 * sessions are counted later, by the thread, when binding is there.) Asks Redis until
 * it was answered once. Errors: STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code cp_keys_check(struct cp_keys *keys, struct berth_error *err);

BERTH_MUST_CHECK enum berth_code cp_keys_run(struct cp_keys *keys, struct berth_error *err);

/* SIGHUP: read the keys again. Nothing changes on failure. Errors: FIELD_INVALID for keys that
 * cannot be read, that leave out one which something is sealed under, or that give an id
 * another key; STORE_UNAVAILABLE where that cannot be told. */
BERTH_MUST_CHECK enum berth_code cp_keys_reload(struct cp_keys *keys, struct berth_error *err);

/* Lines of Prometheus text: keys, and records per key as last counted. Owned; NULL: no memory.
 */
char *cp_keys_metrics(struct cp_keys *keys);

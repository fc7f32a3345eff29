/* snapshot_make.h - making one snapshot: use token, ledger row, the backend's call,
 * publication. Blocking: on a worker, for as long as the backend takes. */
#pragma once

#include "services/skills/ledger.h"
#include "services/skills/skills.h"

struct snapshot_wish {
    const Berth__Common__V1__SessionRef *session;
    const char *display_name; /* "" : none */
    const char *request_id;   /* "" : none */
    const char *only_config;  /* the session is of this one; "": of any */
    const char *actor;        /* created_by */
};

/* *ret_row: the active row, and the config it stands in. A repeat of a request_id within 24
 * hours gets the first answer. Errors: those of ResolveRoute; CAPABILITY_MISSING;
 * CONFIG_NOT_FOUND; REQUEST_ID_REUSED; CONFLICT (the same request is being carried out); the
 * adapter's; OUTCOME_UNKNOWN. */
BERTH_MUST_CHECK enum berth_code snapshot_make(struct skills *skills, struct berth_call *call,
                                               const struct snapshot_wish *wish,
                                               char ret_config[129],
                                               struct berth_snapshot_row *ret_row,
                                               struct berth_error *err);

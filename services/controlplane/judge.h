/* judge.h - may a new session of this config ask for this? What needs the config, the backend's
 * capabilities or the ledger; the rules of the single fields are in checks.h. */
#pragma once

#include "berth/common/v1/common.pb-c.h"
#include "services/controlplane/controlplane.h"

/* Does the spec ask for anything but a config? */
bool cp_spec_asks(const Berth__Common__V1__SessionSpec *spec);

/* Is what was asked for (NULL: nothing) another spec than the one the session has? Its config
 * is not looked at: one that differs is refused. */
bool cp_spec_differs(const Berth__Common__V1__SessionSpec *asked,
                     const Berth__Common__V1__SessionSpec *has);

/* spec->config_id empty: the tenant's default. A config that is not there is not judged:
 * binding says so, or that the session is pinned elsewhere. Errors: NETWORK_POLICY_INVALID,
 * CAPABILITY_MISSING, VOLUME_NOT_FOUND, FIELD_INVALID, SNAPSHOT_NOT_FOUND,
 * IMAGE_OWNER_MISMATCH, STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code cp_judge_spec(struct cp *cp, const char *tenant,
                                               const Berth__Common__V1__SessionSpec *spec,
                                               struct berth_error *err);

/* The same, of a config at hand, without the image. Pure. */
BERTH_MUST_CHECK enum berth_code cp_judge_wishes(const struct cp_config *config,
                                                 const Berth__Common__V1__SessionSpec *spec,
                                                 struct berth_error *err);

/* heal.h - the skill image of a config is not there any more at its backend. */
#pragma once

#include "services/controlplane/controlplane.h"

/**
 * cp_heal_image() - a create was told that there is no such snapshot
 * @snapshot_id: that it was to boot from, as the config's image
 *
 * Where it is the pointer still, and the config's account still the one that was asked, the
 * pointer lets go of it: from then on sessions boot the base template, under a generation of
 * its own, until the image is built again. Sandboxes that run are left as they are. A pointer
 * that has moved meanwhile is left alone. BERTH_OK: worth asking binding again.
 *
 * Errors: STORE_UNAVAILABLE, OUTCOME_UNKNOWN, CONFLICT; CONFIG_NOT_FOUND.
 */
BERTH_MUST_CHECK enum berth_code cp_heal_image(struct cp *cp, const struct cp_config *asked,
                                               const char *snapshot_id,
                                               struct berth_error *err);

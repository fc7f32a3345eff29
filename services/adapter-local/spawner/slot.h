/* slot.h - numbers that no two running sandboxes of this host share, whatever store they belong
 * to. A slot fixes the range of host uids and the network of a sandbox. It is held by a lock on
 * a file, so that it is free again when the supervisor is gone, however it went. */
#pragma once

#include <stdbool.h>

#include "common/errors/errors.h"

/**
 * slot_take() - take a free slot
 * @dir:      directory of the host's lock files; made when it is not there
 * @n_slots:  slots are 0..n_slots - 1
 * @ret_slot: the slot
 * @ret_fd:   holds it until the last copy is closed
 *
 * Errors: BACKEND_CAPACITY when all are taken.
 */
BERTH_MUST_CHECK enum berth_code slot_take(const char *dir, unsigned n_slots, int *ret_slot,
                                           int *ret_fd, struct berth_error *err);
/* Hold this slot where nobody does: true, and *ret_fd holds it. */
bool slot_try(const char *dir, unsigned slot, int *ret_fd);
/* Remove the file of a slot that nobody holds any more. */
void slot_forget(const char *dir, int slot);

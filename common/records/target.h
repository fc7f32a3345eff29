/* target.h - what the sealed credentials of a BackendTarget are bound to, computed in one
 * place: the control plane seals with it, adapters open with it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/errors/errors.h"

#include "berth/common/v1/common.pb-c.h"

/* Associated data for berth_seal() and berth_open_sealed(): tenant, config, backend, api_url,
 * domain, proxy_url and "1" or "0" for allow_private, each preceded by its length as 8
 * big-endian bytes. *ret is owned. Under it the credentials are a packed
 * berth.control.v1.Credentials. Errors: OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code
berth_target_associated(const Berth__Common__V1__BackendTarget *target, uint8_t **ret,
                        size_t *ret_size, struct berth_error *err);

/* The same form of any parts: what else the suite seals is bound to, too. */
BERTH_MUST_CHECK enum berth_code berth_associated(const char *const *parts, size_t n_parts,
                                                  uint8_t **ret, size_t *ret_size,
                                                  struct berth_error *err);

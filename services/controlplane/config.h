/* config.h - a tenant's config as the control plane keeps it: the hash c/<config> and back. The
 * fields that skills owns (image, next_generation, lock, fence, row:<id>) are read, never
 * written.
 *
 * HASH fields of the control plane: rev; settings (JSON of SandboxConfig without credentials
 * and without what other fields say); state; account; keyed; fenced; create_horizon_ms;
 * template; credentials (sealed bytes); secrets (JSON: fingerprint and members of the
 * credentials); info (JSON of the adapter's GetInfoResponse); cordon_until_ms (binding's word
 * for the cordon); rollout. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "berth/backend/v1/backend.pb-c.h"
#include "berth/control/v1/control.pb-c.h"
#include "common/crypto/crypto.h"
#include "common/errors/errors.h"
#include "common/records/config_doc.h"
#include "common/redis/redis.h"

enum { CP_ETAG_SIZE = 17, CP_MARK_SIZE = 17 };

/* Immutable once made; shared by reference. */
struct cp_config {
    unsigned refs;
    char tenant_id[129];
    char config_id[129];
    struct berth_config_doc doc;
    Berth__Control__V1__SandboxConfig
        *settings; /* with etag and times; no credentials, no image */
    Berth__Backend__V1__GetInfoResponse *info; /* capabilities is not NULL */
    Berth__Common__V1__BackendTarget *target;
    char secrets_mark[CP_MARK_SIZE]; /* "": no credentials are set */
    unsigned secrets_members;        /* bit i: member i of the credentials is set */
    int64_t read_ms; /* when it was read, by the store's clock; 0: not from there */
    unsigned
        live_snapshots; /* rows building, active or superseded; only where rows were read */
    size_t operations;  /* of skills, in the queue; the same */
};

struct cp_config *cp_config_ref(struct cp_config *config);
struct cp_config *cp_config_unref(struct cp_config *config); /* NULL is fine; returns NULL */
BERTH_DEFINE_AUTO(struct cp_config *, cp_config_unref)

/* The fields to ask Redis for where the rows are not wanted. */
extern const char *const cp_config_fields[];
extern const size_t cp_n_config_fields;

/* Errors: CONFIG_NOT_FOUND where there is no document; INTERNAL_BUG where it does not validate.
 */
BERTH_MUST_CHECK enum berth_code cp_config_decode(const struct berth_doc *doc,
                                                  const char *tenant, const char *config_id,
                                                  struct cp_config **ret,
                                                  struct berth_error *err);

/* Write rev and every field of the control plane. state: "active" or "deleting".
 * Errors: OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code cp_config_write(struct berth_cas *cas,
                                                 const struct cp_config *config,
                                                 const char *state, struct berth_error *err);

/* What the public API shows: no secret. Owned. NULL: no memory. */
Berth__Control__V1__SandboxConfig *cp_config_show(const struct cp_config *config);

/* The target of a config from its settings; sealed (taken from, copied) may be empty. account:
 * 32 bytes or NULL. Owned; NULL: no memory. */
Berth__Common__V1__BackendTarget *
cp_config_make_target(const Berth__Control__V1__SandboxConfig *settings,
                      const ProtobufCBinaryData *sealed, const uint8_t *account);

/* The fingerprint of an account (design section 8).
 * Errors: FINGERPRINT_EMPTY when the adapter names no account. */
BERTH_MUST_CHECK enum berth_code cp_config_account(const char *backend, const char *api_url,
                                                   const char *account_id, uint8_t ret[32],
                                                   struct berth_error *err);

/* Seal credentials for a target; *ret_sealed is owned, empty where no credential is set. */
BERTH_MUST_CHECK enum berth_code
cp_config_seal(const struct berth_keyring *keyring,
               const Berth__Common__V1__BackendTarget *target,
               const Berth__Control__V1__Credentials *credentials,
               ProtobufCBinaryData *ret_sealed, struct berth_error *err);
/* And open them again; *ret is owned (wiped by cp_credentials_free()), never NULL on success.
 */
BERTH_MUST_CHECK enum berth_code cp_config_open(const struct berth_keyring *keyring,
                                                const Berth__Common__V1__BackendTarget *target,
                                                Berth__Control__V1__Credentials **ret,
                                                struct berth_error *err);
/* What may be shown of credentials: a keyed fingerprint of the tenant's, and which members are
 * set. */
BERTH_MUST_CHECK enum berth_code
cp_config_mark(const struct berth_keyring *keyring, struct cp_config *config,
               const Berth__Control__V1__Credentials *credentials, struct berth_error *err);
void *cp_credentials_free(Berth__Control__V1__Credentials *credentials);

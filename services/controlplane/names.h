/* names.h - names that the control plane makes: the session's key at the backend, the reserved
 * tags of a sandbox, a config's id from its name. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "berth/backend/v1/backend.pb-c.h"

enum { CP_UNIQUE_KEY_SIZE = 33, CP_CONFIG_ID_SIZE = 129, CP_ACCOUNT_HEX_SIZE = 65 };

#define CP_TAG_DEPLOYMENT "berth.deployment"
#define CP_TAG_TENANT "berth.tenant"
#define CP_TAG_SESSION "berth.session"
#define CP_TAG_CONFIG "berth.config"
#define CP_TAG_FENCE "berth.fence"
#define CP_TAG_ATTEMPT "berth.attempt"
#define CP_TAG_GENERATION "berth.generation"
#define CP_TAG_VERSION "1"

/* 32 hex digits of SHA-256 over deployment, tenant and session: one sandbox per key where
 * create is keyed. */
void cp_unique_key(char buf[CP_UNIQUE_KEY_SIZE], const char *deployment, const char *tenant,
                   const char *session);

/* Is this one of the installer's own sessions ("sk.")? */
bool cp_is_maintenance(const char *session_id);

/* Everything the tags say. Borrowed strings. */
struct cp_tags {
    const char *deployment, *tenant, *session, *config, *backend;
    const char *account_hex;
    uint64_t generation, fence;
    const uint8_t *attempt;
    size_t attempt_size;
    int64_t create_ms;
};

/* Write the reserved tags over what the caller put there, and users' labels as "u.<key>".
 * False: no memory. */
bool cp_set_tags(Berth__Backend__V1__CreateSandboxRequest *req, const struct cp_tags *tags,
                 const Berth__Common__V1__SessionSpec *spec);

/* A tag of a sandbox as listed; "" when absent. Borrowed. */
const char *cp_tag(const Berth__Common__V1__Sandbox *sandbox, const char *key);
/* Bytes of a hex tag: true when it is exactly size of them. */
bool cp_tag_bytes(const Berth__Common__V1__Sandbox *sandbox, const char *key, uint8_t *ret,
                  size_t size);
uint64_t cp_tag_number(const Berth__Common__V1__Sandbox *sandbox, const char *key);

/* "My Config!" -> "my-config": letters, digits, '.', '_' and '-' stay (in lower case), runs of
 * anything else become one '-'. False: nothing is left. */
bool cp_config_slug(char buf[CP_CONFIG_ID_SIZE], const char *name);

/* Hex of a binary fingerprint; "" where it is not 32 bytes. */
const char *cp_account_hex(char buf[CP_ACCOUNT_HEX_SIZE], const ProtobufCBinaryData *account);
/* And back; false: not 64 hex digits. */
bool cp_hex_bytes(const char *hex, uint8_t *ret, size_t size);

#include "services/controlplane/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/base.h"
#include "common/crypto/crypto.h"
#include "common/ids/ids.h"
#include "common/messages/messages.h"

typedef Berth__Backend__V1__CreateSandboxRequest CreateSandboxRequest;

void cp_unique_key(char buf[CP_UNIQUE_KEY_SIZE], const char *deployment, const char *tenant,
                   const char *session)
{
    const char *const parts[] = {deployment, tenant, session};
    uint8_t digest[32];

    berth_fingerprint(parts, BERTH_COUNT(parts), digest);
    berth_hex(buf, digest, (CP_UNIQUE_KEY_SIZE - 1) / 2);
}

bool cp_is_maintenance(const char *session_id)
{
    return strncmp(session_id, "sk.", 3) == 0;
}

static bool set_tag(CreateSandboxRequest *req, const char *key, const char *value)
{
    return berth_set_map(
        &req->n_metadata, &req->metadata,
        &berth__backend__v1__create_sandbox_request__metadata_entry__descriptor, key, value);
}

static bool set_tag_number(CreateSandboxRequest *req, const char *key, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRIu64, value);
    return set_tag(req, key, text);
}

static bool set_labels(CreateSandboxRequest *req, const Berth__Common__V1__SessionSpec *spec)
{
    char key[BERTH_COUNT("u.") + 128];

    for (size_t i = 0; spec && i < spec->n_labels; i++) {
        snprintf(key, sizeof key, "u.%s", spec->labels[i]->key);
        if (!set_tag(req, key, spec->labels[i]->value))
            return false;
    }
    return true;
}

bool cp_set_tags(CreateSandboxRequest *req, const struct cp_tags *tags,
                 const Berth__Common__V1__SessionSpec *spec)
{
    char attempt[2 * 64 + 1] = "";

    if (tags->attempt_size <= 64)
        berth_hex(attempt, tags->attempt, tags->attempt_size);
    return set_labels(req, spec) && set_tag(req, CP_TAG_DEPLOYMENT, tags->deployment) &&
           set_tag(req, CP_TAG_TENANT, tags->tenant) &&
           set_tag(req, CP_TAG_SESSION, tags->session) &&
           set_tag(req, CP_TAG_CONFIG, tags->config) &&
           set_tag(req, "berth.backend", tags->backend) &&
           set_tag(req, "berth.account", tags->account_hex) &&
           set_tag(req, "berth.v", CP_TAG_VERSION) &&
           set_tag_number(req, CP_TAG_GENERATION, tags->generation) &&
           set_tag_number(req, CP_TAG_FENCE, tags->fence) &&
           set_tag(req, CP_TAG_ATTEMPT, attempt) &&
           set_tag_number(req, "berth.created", (uint64_t)tags->create_ms) &&
           set_tag(req, "berth.kind",
                   cp_is_maintenance(tags->session) ? "maintenance" : "session");
}

const char *cp_tag(const Berth__Common__V1__Sandbox *sandbox, const char *key)
{
    for (size_t i = 0; i < sandbox->n_metadata; i++)
        if (strcmp(sandbox->metadata[i]->key, key) == 0)
            return sandbox->metadata[i]->value;
    return "";
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool cp_hex_bytes(const char *hex, uint8_t *ret, size_t size)
{
    if (strlen(hex) != 2 * size || strspn(hex, "0123456789abcdef") != 2 * size)
        return false;
    for (size_t i = 0; i < size; i++)
        ret[i] = (uint8_t)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
    return true;
}

bool cp_tag_bytes(const Berth__Common__V1__Sandbox *sandbox, const char *key, uint8_t *ret,
                  size_t size)
{
    return cp_hex_bytes(cp_tag(sandbox, key), ret, size);
}

uint64_t cp_tag_number(const Berth__Common__V1__Sandbox *sandbox, const char *key)
{
    const char *text = cp_tag(sandbox, key);
    size_t len = strlen(text);

    if (len == 0 || len > 19 || strspn(text, "0123456789") != len)
        return 0;
    return strtoull(text, NULL, 10);
}

bool cp_config_slug(char buf[CP_CONFIG_ID_SIZE], const char *name)
{
    size_t len = 0;

    for (; *name && len < CP_CONFIG_ID_SIZE - 1; name++) {
        char c = *name >= 'A' && *name <= 'Z' ? (char)(*name - 'A' + 'a') : *name;

        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_')
            buf[len++] = c;
        else if (len > 0 && buf[len - 1] != '-')
            buf[len++] = '-';
    }
    while (len > 0 && buf[len - 1] == '-')
        len--;
    buf[len] = 0;
    return len > 0 && strcmp(buf, ".") != 0 && strcmp(buf, "..") != 0;
}

const char *cp_account_hex(char buf[CP_ACCOUNT_HEX_SIZE], const ProtobufCBinaryData *account)
{
    buf[0] = 0;
    if (account->len == (CP_ACCOUNT_HEX_SIZE - 1) / 2)
        berth_hex(buf, account->data, account->len);
    return buf;
}

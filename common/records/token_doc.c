#include "common/records/token_doc.h"

#include <stdio.h>

#include "common/ids/ids.h"
#include "common/json/json.h"

enum { JSON_MAX = 4096, SCOPE_LAST = 4 };

static enum berth_code read_hash(const json_t *root, uint8_t ret[32], struct berth_error *err)
{
    char text[65];
    enum berth_code code = berth_json_get_str(root, "sha256", text, sizeof text, NULL, err);

    if (code)
        return code;
    if (strlen(text) != 64 || strspn(text, "0123456789abcdef") != 64)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "sha256: not 64 hex digits");
    for (size_t i = 0; i < 32; i++) {
        char pair[3] = {text[2 * i], text[2 * i + 1], 0};

        ret[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return BERTH_OK;
}

static enum berth_code read_scopes(const json_t *root, struct berth_token_doc *out,
                                   struct berth_error *err)
{
    const json_t *list = json_object_get(root, "scopes");
    size_t n = json_array_size(list);

    if (n == 0 || n > BERTH_TOKEN_SCOPES_MAX)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "scopes: not 1 to %d",
                          BERTH_TOKEN_SCOPES_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *scope = json_array_get(list, i);
        json_int_t value = json_is_integer(scope) ? json_integer_value(scope) : 0;

        if (value < 1 || value > SCOPE_LAST)
            return berth_fail(err, BERTH_REASON_FIELD_INVALID, "scopes: not a scope");
        out->scopes[i] = (int)value;
    }
    out->n_scopes = (unsigned)n;
    return BERTH_OK;
}

static enum berth_code read_json(const char *json, struct berth_token_doc *out,
                                 struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *root = NULL;
    enum berth_code code = berth_json_parse(json, strlen(json), JSON_MAX, &root, err);

    if (!code)
        code = read_hash(root, out->hash, err);
    if (!code)
        code = read_scopes(root, out, err);
    if (!code)
        code = berth_json_get_str(root, "session", out->session_id, sizeof out->session_id, "",
                                  err);
    if (!code)
        code =
            berth_json_get_str(root, "config", out->config_id, sizeof out->config_id, "", err);
    if (!code)
        code = berth_json_get_int(root, "create_ms", 0, INT64_MAX, 0, &out->create_ms, err);
    if (!code)
        code = berth_json_get_int(root, "expire_ms", 0, INT64_MAX, 0, &out->expire_ms, err);
    if (!code)
        code = berth_json_get_str(root, "created_by", out->created_by, sizeof out->created_by,
                                  "", err);
    return code;
}

enum berth_code berth_token_doc_parse(const char *token_id, const char *json,
                                      struct berth_token_doc *ret, struct berth_error *err)
{
    struct berth_token_doc out = {0};
    struct berth_error why = {0};

    if (strlen(token_id) != sizeof out.token_id - 1)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "token: a bad id");
    memcpy(out.token_id, token_id, sizeof out.token_id);
    if (read_json(json, &out, &why))
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "token %s: %s", token_id, why.text);
    *ret = out;
    return BERTH_OK;
}

char *berth_token_doc_format(const struct berth_token_doc *token)
{
    BERTH_AUTO(json_decref) json_t *root = NULL;
    json_t *scopes = json_array();
    char hash[65];

    for (unsigned i = 0; scopes && i < token->n_scopes; i++)
        json_array_append_new(scopes, json_integer(token->scopes[i]));
    root = json_pack("{s:s,s:o,s:s,s:s,s:I,s:I,s:s}", "sha256",
                     berth_hex(hash, token->hash, sizeof token->hash), "scopes", scopes,
                     "session", token->session_id, "config", token->config_id, "create_ms",
                     (json_int_t)token->create_ms, "expire_ms", (json_int_t)token->expire_ms,
                     "created_by", token->created_by);
    return root ? berth_json_format(root) : NULL;
}

#include "services/controlplane/requests.h"

#include <stdio.h>

#include "common/ids/ids.h"
#include "common/json/json.h"
#include "common/records/message_json.h"

#define KEPT_MS "86400000" /* 24 hours */

enum { ANSWER_MAX = 4 << 20 };

/* Members in order of their names, maps included: the same request is the same text, whatever
 * order a client's library sends maps in. */
static enum berth_code digest_of(const struct berth_keyring *keyring, const char *key_id,
                                 const char *method, const ProtobufCMessage *message,
                                 char ret[65], struct berth_error *err)
{
    json_t *json = berth_message_to_json(message);
    char *text = json ? berth_json_format(json) : NULL;
    uint8_t mac[32];
    bool there = false;

    json_decref(json);
    if (text) {
        there = berth_keyring_mac(keyring, key_id, method, text, strlen(text), mac);
        berth_wipe(text, strlen(text));
        free(text);
    }
    if (!text)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (!there) /* that key is gone: nobody can tell any more, and nothing is done twice */
        return berth_fail(err, BERTH_REASON_REQUEST_ID_REUSED, NULL);
    berth_hex(ret, mac, sizeof mac);
    return BERTH_OK;
}

static enum berth_code compare(struct cp *cp, const struct berth_doc *doc, const char *method,
                               const ProtobufCMessage *message,
                               const ProtobufCMessageDescriptor *type,
                               ProtobufCMessage **ret_answer, struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *json = NULL;
    const char *text = berth_doc_get(doc, "answer");
    char digest[65];
    struct berth_error why;
    enum berth_code code =
        digest_of(cp->keyring, berth_doc_get(doc, "key_id"), method, message, digest, err);

    if (code)
        return code;
    if (strcmp(berth_doc_get(doc, "method"), method) != 0 ||
        strcmp(berth_doc_get(doc, "digest"), digest) != 0)
        return berth_fail(err, BERTH_REASON_REQUEST_ID_REUSED, NULL);
    if (berth_json_parse(text, strlen(text), ANSWER_MAX, &json, &why) ||
        berth_message_from_json(json, type, ret_answer, &why))
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "%s: answer: %s", doc->key, why.text);
    return BERTH_OK;
}

enum berth_code cp_request_begin(struct cp *cp, const char *tenant, const char *method,
                                 const char *request_id, const ProtobufCMessage *message,
                                 const ProtobufCMessageDescriptor *type, struct cp_request *ret,
                                 ProtobufCMessage **ret_answer, struct berth_error *err)
{
    char ids[BERTH_KEYS_MAX][BERTH_KEY_ID_SIZE], name[33];
    struct cp_request request = {.method = method};
    struct berth_redis_get get = {.key = request.key};
    uint8_t hash[32];
    struct berth_doc doc;
    int64_t now_ms;
    enum berth_code code;

    *ret_answer = NULL;
    if (!*request_id) {
        *ret = request;
        return BERTH_OK;
    }
    berth_sha256_once(request_id, strlen(request_id), hash);
    berth_hex(name, hash, 16);
    berth_key_request(request.key, tenant, name);
    code = berth_redis_read(cp->redis, &get, 1, &now_ms, &doc, err);
    if (code)
        return code;
    if (doc.exists)
        code = compare(cp, &doc, method, message, type, ret_answer, err);
    berth_doc_deinit(&doc);
    if (code || *ret_answer)
        return code;
    (void)berth_keyring_ids(cp->keyring, ids);
    memcpy(request.key_id, ids[0], sizeof request.key_id);
    code = digest_of(cp->keyring, request.key_id, method, message, request.digest, err);
    if (!code)
        *ret = request;
    return code;
}

enum berth_code cp_request_write(struct berth_cas *cas, const struct cp_request *request,
                                 const ProtobufCMessage *answer, struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *json = NULL;
    BERTH_AUTO(free) char *text = NULL;
    char rev[17];

    if (!request->key[0])
        return BERTH_OK;
    json = berth_message_to_json(answer);
    text = json ? berth_json_format(json) : NULL;
    if (!text)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_cas_expect(cas, request->key, "");
    berth_cas_write(cas, "HSET", request->key, "rev", berth_rev_new(rev), "method",
                    request->method, "key_id", request->key_id, "digest", request->digest,
                    "answer", text, NULL);
    berth_cas_write(cas, "PEXPIRE", request->key, KEPT_MS, NULL);
    return BERTH_OK;
}

#include "services/controlplane/inbound.h"

#include <stdio.h>

#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/records/keys.h"

typedef Berth__Binding__V1__Binding Binding;
typedef Berth__Common__V1__SessionRef SessionRef;

const char *cp_inbound_token(const Berth__Common__V1__DataPlaneEndpoint *endpoint)
{
    return endpoint->envd ? endpoint->envd->traffic_token : endpoint->traffic_token;
}

enum berth_code cp_inbound_keep(struct cp *cp, const SessionRef *ref, const char *sandbox_id,
                                const Berth__Common__V1__DataPlaneEndpoint *endpoint,
                                const ProtobufCBinaryData *sealed, uint64_t fence,
                                struct berth_error *err)
{
    char key[BERTH_KEY_MAX], rev[17];
    struct berth_doc_field fields[] = {
        {(char *)"rev", rev, sizeof rev - 1},
        {(char *)"sandbox", (char *)sandbox_id, strlen(sandbox_id)},
        {(char *)"endpoint", (char *)sealed->data, sealed->len},
    };
    const struct berth_doc doc = {
        .exists = true, .n_fields = BERTH_COUNT(fields), .fields = fields};

    if (!endpoint || !*cp_inbound_token(endpoint))
        return BERTH_OK;
    berth_rev_new(rev);
    return berth_records_keep(cp->records,
                              berth_key_inbound(key, ref->tenant_id, ref->session_id), &doc,
                              (int64_t)fence, err);
}

void cp_inbound_drop(struct cp *cp, const SessionRef *ref, uint64_t fence)
{
    char key[BERTH_KEY_MAX];
    struct berth_error err = {0};

    if (berth_records_keep(cp->records, berth_key_inbound(key, ref->tenant_id, ref->session_id),
                           NULL, (int64_t)fence, &err))
        berth_warn("a token of a sandbox that is gone stays in the journal", "session",
                   ref->session_id, "error", err.text);
}

static const struct berth_doc_field *find_field(const struct berth_doc *doc, const char *name)
{
    for (size_t i = 0; i < doc->n_fields; i++)
        if (strcmp(doc->fields[i].name, name) == 0)
            return &doc->fields[i];
    return NULL;
}

static Binding *make(const char *sandbox_id, const struct berth_doc_field *sealed)
{
    Binding *binding = berth_message_new(&berth__binding__v1__binding__descriptor);

    if (binding && berth_set_string(&binding->sandbox_id, sandbox_id) &&
        berth_set_bytes(&binding->sealed_endpoint, sealed->value, sealed->size))
        return binding;
    return berth_message_free(binding);
}

enum berth_code cp_inbound_find(struct cp *cp, const SessionRef *ref, const char *sandbox_id,
                                Binding **ret, struct berth_error *err)
{
    char key[BERTH_KEY_MAX];
    const struct berth_redis_get get = {
        .key = berth_key_inbound(key, ref->tenant_id, ref->session_id)};
    const struct berth_doc_field *sealed;
    struct berth_doc doc;
    int64_t now_ms;
    enum berth_code code = berth_redis_read(cp->redis, &get, 1, &now_ms, &doc, err);

    *ret = NULL;
    if (code)
        return code;
    sealed = find_field(&doc, "endpoint");
    if (sealed && strcmp(berth_doc_get(&doc, "sandbox"), sandbox_id) == 0 &&
        !(*ret = make(sandbox_id, sealed)))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_doc_deinit(&doc);
    return code;
}

/* operation_doc.c - operations as text: the document's JSON, the queue, the lock. */
#include <limits.h>
#include <stddef.h>

#include "common/json/json.h"
#include "services/skills/operation_impl.h"

enum { DOC_MAX = 4 << 20, IDS_MAX = 64 << 10, LOCK_MAX = 4096 };

enum member_type { MEMBER_TEXT, MEMBER_BOOL, MEMBER_INT, MEMBER_INT64 };

struct member {
    const char *name;
    enum member_type type;
    size_t offset, size;
};

#define MEMBER(kind, field)                                                                    \
    {                                                                                          \
#field, MEMBER_##kind, offsetof(struct operation, field),                              \
            sizeof(((struct operation *)0)->field)                                             \
    }

/* Numbers are never negative. */
static const struct member members[] = {
    MEMBER(TEXT, operation_id),   MEMBER(TEXT, tenant_id),
    MEMBER(TEXT, config_id),      MEMBER(INT, kind),
    MEMBER(INT, state),           MEMBER(INT, step),
    MEMBER(INT, percent),         MEMBER(TEXT, skill_name),
    MEMBER(TEXT, bundle),         MEMBER(INT64, from_generation),
    MEMBER(TEXT, request_id),     MEMBER(TEXT, created_by),
    MEMBER(BOOL, allow_warnings), MEMBER(BOOL, external_installer),
    MEMBER(BOOL, finished),       MEMBER(BOOL, finished_ok),
    MEMBER(TEXT, finish_message), MEMBER(INT64, time_limit_ms),
    MEMBER(BOOL, cancel),         MEMBER(INT, starts),
    MEMBER(TEXT, owner),          MEMBER(TEXT, row_id),
    MEMBER(INT64, generation),    MEMBER(TEXT, snapshot_id),
    MEMBER(TEXT, session_id),     MEMBER(BOOL, unchanged),
    MEMBER(INT, sessions_marked), MEMBER(INT, sessions_not_marked),
    MEMBER(TEXT, reason),         MEMBER(TEXT, message),
    MEMBER(INT64, create_ms),     MEMBER(INT64, beat_ms),
    MEMBER(INT64, end_ms),
};

void operation_deinit(struct operation *operation)
{
    json_decref(operation->findings);
    operation->findings = NULL;
}

static json_t *write_member(const struct member *member, const char *place)
{
    int64_t wide;
    int narrow;
    bool flag;

    switch (member->type) {
    case MEMBER_TEXT:
        return *place ? json_string(place) : json_null();
    case MEMBER_BOOL:
        memcpy(&flag, place, sizeof flag);
        return json_boolean(flag);
    case MEMBER_INT:
        memcpy(&narrow, place, sizeof narrow);
        return json_integer(narrow);
    case MEMBER_INT64:
        memcpy(&wide, place, sizeof wide);
        return json_integer(wide);
    }
    return NULL;
}

char *operation_format(const struct operation *operation)
{
    BERTH_AUTO(json_decref) json_t *json = json_object();
    bool good = json != NULL;

    for (size_t i = 0; i < BERTH_COUNT(members) && good; i++) {
        json_t *value = write_member(&members[i], (const char *)operation + members[i].offset);

        good = json_object_set_new(json, members[i].name, value) == 0;
    }
    if (good && operation->findings)
        good = json_object_set(json, "findings", operation->findings) == 0;
    return good ? berth_json_format(json) : NULL;
}

static enum berth_code read_member(const json_t *json, const struct member *member, char *place,
                                   struct berth_error *err)
{
    int64_t wide = 0;
    bool flag = false;
    enum berth_code code;
    int narrow;

    switch (member->type) {
    case MEMBER_TEXT:
        return berth_json_get_str(json, member->name, place, member->size, "", err);
    case MEMBER_BOOL:
        code = berth_json_get_bool(json, member->name, false, &flag, err);
        memcpy(place, &flag, sizeof flag);
        return code;
    case MEMBER_INT:
        code = berth_json_get_int(json, member->name, 0, INT_MAX, 0, &wide, err);
        narrow = (int)wide;
        memcpy(place, &narrow, sizeof narrow);
        return code;
    case MEMBER_INT64:
        code = berth_json_get_int(json, member->name, 0, INT64_MAX, 0, &wide, err);
        memcpy(place, &wide, sizeof wide);
        return code;
    }
    return BERTH_OK;
}

/* The text is ours: what is wrong with it is a bug, or somebody else's hand. */
static enum berth_code blame(struct berth_error *err, enum berth_code code,
                             const struct berth_error *why)
{
    if (code == BERTH_INVALID_ARGUMENT)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "stored operation: %s", why->text);
    if (err)
        *err = *why;
    return code;
}

enum berth_code operation_parse(const char *text, size_t size, struct operation *ret,
                                struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *json = NULL;
    struct berth_error why = {0};
    struct operation out = {0};
    enum berth_code code = berth_json_parse(text, size, DOC_MAX, &json, &why);
    json_t *findings;

    for (size_t i = 0; !code && i < BERTH_COUNT(members); i++)
        code = read_member(json, &members[i], (char *)&out + members[i].offset, &why);
    if (code)
        return blame(err, code, &why);
    findings = json_object_get(json, "findings");
    if (json_is_array(findings))
        out.findings = json_incref(findings);
    *ret = out;
    return BERTH_OK;
}

enum berth_code operation_parse_ids(const char *text, json_t **ret, struct berth_error *err)
{
    json_t *ids = *text ? json_loads(text, 0, NULL) : json_array();
    bool good = json_is_array(ids) && strlen(text) <= IDS_MAX;

    for (size_t i = 0; good && i < json_array_size(ids); i++) {
        const char *id = json_string_value(json_array_get(ids, i));

        good = id && *id && strlen(id) < OPERATION_ID_SIZE;
    }
    if (!good) {
        json_decref(ids);
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "stored queue: does not validate");
    }
    *ret = ids;
    return BERTH_OK;
}

enum berth_code operation_parse_lock(const char *text, struct operation_place *ret,
                                     struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *json = NULL;
    struct berth_error why = {0};
    enum berth_code code;

    if (!*text)
        return BERTH_OK;
    code = berth_json_parse(text, strlen(text), LOCK_MAX, &json, &why);
    if (!code)
        code = berth_json_get_str(json, "op", ret->lock.op, sizeof ret->lock.op, NULL, &why);
    if (!code)
        code = berth_json_get_str(json, "owner", ret->lock.owner, sizeof ret->lock.owner, NULL,
                                  &why);
    if (!code)
        code = berth_json_get_int(json, "until_ms", 1, INT64_MAX, 1, &ret->lock.until_ms, &why);
    return code ? blame(err, code, &why) : BERTH_OK;
}

char *operation_format_lock(const char *op, const char *owner, int64_t until_ms)
{
    BERTH_AUTO(json_decref)
    json_t *json =
        json_pack("{s:s,s:s,s:I}", "op", op, "owner", owner, "until_ms", (json_int_t)until_ms);

    return json ? berth_json_format(json) : NULL;
}

json_t *operation_ids_without(const json_t *ids, const char *id)
{
    json_t *out = json_array();

    for (size_t i = 0; out && i < json_array_size(ids); i++) {
        json_t *one = json_array_get(ids, i);

        if (strcmp(json_string_value(one), id) != 0 && json_array_append(out, one) < 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

bool operation_holds(const struct operation_grant *grant, const char *lock)
{
    struct operation_place place = {0};

    return !operation_parse_lock(lock, &place, NULL) &&
           strcmp(place.lock.op, grant->operation.operation_id) == 0 &&
           strcmp(place.lock.owner, grant->operation.owner) == 0;
}

#include "common/records/config_doc.h"

#include <inttypes.h>

#include "common/json/json.h"

enum { RECORD_JSON_MAX = 64 << 10, REV_LEN = 16, FINGERPRINT_LEN = 64 };

/* The document is ours: what is wrong with it is a bug, or somebody else's hand. */
static enum berth_code invalid(struct berth_error *err, const char *what, const char *rule)
{
    return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "stored document: %s: %s", what, rule);
}

static enum berth_code blame(struct berth_error *err, enum berth_code code, const char *what)
{
    char text[sizeof err->text] = "";

    if (code != BERTH_INVALID_ARGUMENT)
        return code;
    if (err)
        memcpy(text, err->text, sizeof text);
    return invalid(err, what, text);
}

static bool is_hex(const char *text, size_t len)
{
    return strlen(text) == len && strspn(text, "0123456789abcdef") == len;
}

static bool is_one_of(const char *text, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(text, names[i]) == 0)
            return true;
    return false;
}

static bool is_account(const char *text)
{
    return !*text || is_hex(text, FINGERPRINT_LEN);
}

/* A decimal field of the hash; absent: the default. */
static bool read_number(const struct berth_doc *doc, const char *field, int64_t absent,
                        int64_t *ret)
{
    const char *text = berth_doc_get(doc, field);
    size_t len = strlen(text);

    if (!berth_doc_has(doc, field)) {
        *ret = absent;
        return true;
    }
    if (len == 0 || len > 18 || strspn(text, "0123456789") != len)
        return false;
    *ret = strtoll(text, NULL, 10);
    return true;
}

static bool read_text(const struct berth_doc *doc, const char *field, char *buf, size_t size)
{
    const char *text = berth_doc_get(doc, field);
    size_t len = strlen(text);

    if (len >= size)
        return false;
    memcpy(buf, text, len + 1);
    return true;
}

/* ------------------------------------------------------------------- JSON members */

enum member_type { MEMBER_TEXT, MEMBER_NUMBER };

struct member {
    const char *name;
    enum member_type type;
    size_t offset, size; /* size: of a text */
};

static enum berth_code read_members(const json_t *json, const struct member *members, size_t n,
                                    void *out, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; i < n && !code; i++) {
        char *place = (char *)out + members[i].offset;
        int64_t number = 0;

        if (members[i].type == MEMBER_TEXT) {
            code = berth_json_get_str(json, members[i].name, place, members[i].size, "", err);
        } else {
            code = berth_json_get_int(json, members[i].name, 0, INT64_MAX, 0, &number, err);
            memcpy(place, &number, sizeof number);
        }
    }
    return code;
}

static char *write_members(const struct member *members, size_t n, const void *in)
{
    BERTH_AUTO(json_decref) json_t *json = json_object();
    bool good = json != NULL;

    for (size_t i = 0; i < n && good; i++) {
        const char *place = (const char *)in + members[i].offset;
        json_t *value;

        if (members[i].type == MEMBER_TEXT) {
            value = json_string(place);
        } else {
            int64_t number;

            memcpy(&number, place, sizeof number);
            value = json_integer(number);
        }
        good = json_object_set_new(json, members[i].name, value) == 0;
    }
    return good ? berth_json_format(json) : NULL;
}

#define TEXT(type, field)                                                                      \
    {                                                                                          \
#field, MEMBER_TEXT, offsetof(type, field), sizeof(((type *)0)->field)                 \
    }
#define NUMBER(type, field)                                                                    \
    {                                                                                          \
#field, MEMBER_NUMBER, offsetof(type, field), 0                                        \
    }

/* ------------------------------------------------------------------------- image */

static const struct member image_members[] = {
    TEXT(struct berth_image_pointer, snapshot_id),
    NUMBER(struct berth_image_pointer, generation),
    NUMBER(struct berth_image_pointer, rebuild_before),
    TEXT(struct berth_image_pointer, account),
    TEXT(struct berth_image_pointer, base_template_id),
    NUMBER(struct berth_image_pointer, build_ms),
    TEXT(struct berth_image_pointer, row_id),
    TEXT(struct berth_image_pointer, operation_id),
};

static enum berth_code parse_image(const char *text, struct berth_image_pointer *ret,
                                   struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *json = NULL;
    enum berth_code code;

    if (!*text)
        return BERTH_OK;
    code = berth_json_parse(text, strlen(text), RECORD_JSON_MAX, &json, err);
    if (!code)
        code = read_members(json, image_members, BERTH_COUNT(image_members), ret, err);
    if (code)
        return blame(err, code, "image");
    if (!is_account(ret->account))
        return invalid(err, "image", "the account is not a fingerprint");
    return BERTH_OK;
}

char *berth_image_pointer_format(const struct berth_image_pointer *image)
{
    return write_members(image_members, BERTH_COUNT(image_members), image);
}

/* ------------------------------------------------------------------------ config */

static const char *const states[] = {"active", "deleting"};
static const char *const switches[] = {"", "0", "1"};

enum berth_code berth_config_doc_parse(const struct berth_doc *doc,
                                       struct berth_config_doc *ret, struct berth_error *err)
{
    struct berth_config_doc config = {.exists = doc->exists, .next_generation = 1};
    const char *keyed = berth_doc_get(doc, "keyed");
    const char *fenced = berth_doc_get(doc, "fenced");
    int64_t next;
    enum berth_code code;

    if (!doc->exists) {
        *ret = config;
        return BERTH_OK;
    }
    if (!read_text(doc, "rev", config.rev, sizeof config.rev) || !is_hex(config.rev, REV_LEN))
        return invalid(err, "rev", "not 16 hex digits");
    if (!read_text(doc, "state", config.state, sizeof config.state) ||
        !is_one_of(config.state, states, BERTH_COUNT(states)))
        return invalid(err, "state", "not one of the known states");
    if (!read_text(doc, "account", config.account, sizeof config.account) ||
        !is_account(config.account))
        return invalid(err, "account", "not a fingerprint");
    if (!read_text(doc, "template", config.template_id, sizeof config.template_id))
        return invalid(err, "template", "too long");
    if (!is_one_of(keyed, switches, BERTH_COUNT(switches)))
        return invalid(err, "keyed", "neither 0 nor 1");
    if (!is_one_of(fenced, switches, BERTH_COUNT(switches)))
        return invalid(err, "fenced", "neither 0 nor 1");
    if (!read_number(doc, "create_horizon_ms", 0, &config.create_horizon_ms))
        return invalid(err, "create_horizon_ms", "not a number");
    if (!read_number(doc, "cordon_until_ms", 0, &config.cordon_until_ms))
        return invalid(err, "cordon_until_ms", "not a number");
    if (!read_number(doc, "next_generation", 1, &next) || next < 1)
        return invalid(err, "next_generation", "not a number of at least 1");
    config.keyed_create = strcmp(keyed, "1") == 0;
    config.fenced = strcmp(*fenced ? fenced : keyed, "1") == 0;
    config.new_sessions_only = strcmp(berth_doc_get(doc, "rollout"), "new_sessions") == 0;
    config.next_generation = (uint64_t)next;
    code = parse_image(berth_doc_get(doc, "image"), &config.image, err);
    if (code)
        return code;
    *ret = config;
    return BERTH_OK;
}

bool berth_image_usable(const struct berth_config_doc *config)
{
    return config->image.snapshot_id[0] && config->account[0] &&
           strcmp(config->image.account, config->account) == 0;
}

/* --------------------------------------------------------------------- snapshot row */

static const struct member row_members[] = {
    TEXT(struct berth_snapshot_row, row_id),
    TEXT(struct berth_snapshot_row, snapshot_id),
    TEXT(struct berth_snapshot_row, origin),
    TEXT(struct berth_snapshot_row, state),
    NUMBER(struct berth_snapshot_row, generation),
    NUMBER(struct berth_snapshot_row, base_generation),
    TEXT(struct berth_snapshot_row, planned_name),
    TEXT(struct berth_snapshot_row, parent_snapshot_id),
    TEXT(struct berth_snapshot_row, account),
    TEXT(struct berth_snapshot_row, display_name),
    TEXT(struct berth_snapshot_row, source_session),
    TEXT(struct berth_snapshot_row, created_by),
    TEXT(struct berth_snapshot_row, request_id),
    NUMBER(struct berth_snapshot_row, size_bytes),
    NUMBER(struct berth_snapshot_row, create_ms),
    NUMBER(struct berth_snapshot_row, supersede_ms),
    NUMBER(struct berth_snapshot_row, not_after_ms),
    TEXT(struct berth_snapshot_row, owner),
    NUMBER(struct berth_snapshot_row, beat_ms),
    TEXT(struct berth_snapshot_row, source_sandbox),
    TEXT(struct berth_snapshot_row, operation_id),
    NUMBER(struct berth_snapshot_row, image_bytes),
    NUMBER(struct berth_snapshot_row, skills_bytes),
};
static const char *const origins[] = {"skills", "user"};
static const char *const row_states[] = {"building", "active", "superseded", "deleted",
                                         "abandoned"};

enum berth_code berth_snapshot_row_parse(const char *text, struct berth_snapshot_row *ret,
                                         struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *json = NULL;
    struct berth_snapshot_row row = {0};
    enum berth_code code;

    code = berth_json_parse(text, strlen(text), RECORD_JSON_MAX, &json, err);
    if (!code)
        code = read_members(json, row_members, BERTH_COUNT(row_members), &row, err);
    if (code)
        return blame(err, code, "snapshot row");
    if (!row.row_id[0])
        return invalid(err, "snapshot row", "no row_id");
    if (!is_one_of(row.origin, origins, BERTH_COUNT(origins)))
        return invalid(err, "snapshot row", "origin is not one of the known ones");
    if (!is_one_of(row.state, row_states, BERTH_COUNT(row_states)))
        return invalid(err, "snapshot row", "state is not one of the known ones");
    if (!is_account(row.account))
        return invalid(err, "snapshot row", "the account is not a fingerprint");
    *ret = row;
    return BERTH_OK;
}

char *berth_snapshot_row_format(const struct berth_snapshot_row *row)
{
    return write_members(row_members, BERTH_COUNT(row_members), row);
}

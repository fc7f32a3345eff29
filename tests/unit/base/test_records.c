#include <stdio.h>

#include "common/records/config_doc.h"
#include "common/records/keys.h"
#include "common/records/tenant_doc.h"
#include "tests/unit/base/main.h"

#define REV "0123456789abcdef"
#define ACCOUNT "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define OTHER_ACCOUNT "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

/* ---------------------------------------------------------------------------- keys */

/* The keys of the design, letter by letter: a change of them loses what is stored. */
START_TEST(berth_key__each__as_designed)
{
    char buf[BERTH_KEY_MAX];

    ck_assert_str_eq(berth_key_session(buf, "t", "s.1"), "berth:{t}:s/s.1");
    ck_assert_str_eq(berth_key_session_prefix(buf, "t"), "berth:{t}:s/");
    ck_assert_str_eq(berth_key_config(buf, "t", "c"), "berth:{t}:c/c");
    ck_assert_str_eq(berth_key_config_prefix(buf, "t"), "berth:{t}:c/");
    ck_assert_str_eq(berth_key_index_config(buf, "t", "c"), "berth:{t}:i/c/c");
    ck_assert_str_eq(berth_key_due(buf, "t"), "berth:{t}:i/due");
    ck_assert_str_eq(berth_key_alias(buf, "t"), "berth:{t}:i/alias");
    ck_assert_str_eq(berth_key_snapshot_index(buf, "t"), "berth:{t}:i/snapshot");
    ck_assert_str_eq(berth_key_events(buf, "t"), "berth:{t}:ev");
    ck_assert_str_eq(berth_key_tenant(buf, "t"), "berth:{t}:t");
    ck_assert_str_eq(berth_key_operation(buf, "t", "o"), "berth:{t}:op/o");
}
END_TEST

/* The longest ids fit whole, and all keys of a tenant lie in one slot. */
START_TEST(berth_key__longest_ids__whole_and_one_slot)
{
    char id[129], session[BERTH_KEY_MAX], index[BERTH_KEY_MAX];

    memset(id, 'x', 128);
    id[128] = 0;
    ck_assert_uint_eq(strlen(berth_key_session(session, id, id)), strlen("berth:{}:s/") + 256);
    ck_assert_uint_eq(strlen(berth_key_index_config(index, id, id)),
                      strlen("berth:{}:i/c/") + 256);
    ck_assert_uint_eq(berth_redis_slot(session), berth_redis_slot(index));
    ck_assert_uint_eq(berth_redis_slot(session), berth_redis_slot(id));
}
END_TEST

/* -------------------------------------------------------------------------- config */

enum { FIELDS_MAX = 16 };

struct doc_of {
    struct berth_doc doc;
    struct berth_doc_field fields[FIELDS_MAX];
};

/* "rev=...|state=..." into a document whose strings belong to text. */
static const struct berth_doc *make_doc(struct doc_of *of, char *text)
{
    char *save = NULL;

    *of = (struct doc_of){.doc = {.exists = true, .key = "berth:{t}:c/1"}};
    of->doc.fields = of->fields;
    for (char *part = strtok_r(text, "|", &save); part; part = strtok_r(NULL, "|", &save)) {
        struct berth_doc_field *field = &of->fields[of->doc.n_fields++];

        field->name = part;
        field->value = strchr(part, '=');
        *field->value++ = 0;
        field->size = strlen(field->value);
    }
    return &of->doc;
}

#define LEAST "rev=" REV "|state=active"

static const struct {
    const char *text;
    bool good;
} config_rows[] = {
    {LEAST, true},
    {LEAST "|unknown=x|settings={}", true},
    {"rev=" REV "|state=deleting", true},
    {LEAST "|account=" ACCOUNT
           "|template=base|keyed=1|create_horizon_ms=5000|next_generation=3",
     true},
    {LEAST "|account=|template=|image=", true},
    {LEAST "|image={}", true},
    {LEAST "|image={\"snapshot_id\":null,\"later\":[1]}", true},
    {"rev=" REV, false},
    {"state=active", false},
    {"rev=|state=active", false},
    {"rev=0123456789abcde|state=active", false},
    {"rev=0123456789abcdef0|state=active", false},
    {"rev=0123456789ABCDEF|state=active", false},
    {"rev=" REV "|state=", false},
    {"rev=" REV "|state=Active", false},
    {"rev=" REV "|state=activeactiveactiveactive", false},
    {LEAST "|account=abc", false},
    {LEAST "|account=" ACCOUNT "a", false},
    {LEAST "|account=xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
    {LEAST "|keyed=true", false},
    {LEAST "|keyed=2", false},
    {LEAST "|fenced=yes", false},
    {LEAST "|create_horizon_ms=", false},
    {LEAST "|create_horizon_ms=-1", false},
    {LEAST "|create_horizon_ms=1.5", false},
    {LEAST "|create_horizon_ms= 1", false},
    {LEAST "|create_horizon_ms=9999999999999999999", false},
    {LEAST "|next_generation=0", false},
    {LEAST "|next_generation=x", false},
    {LEAST "|image=x", false},
    {LEAST "|image=[]", false},
    {LEAST "|image={\"generation\":-1}", false},
    {LEAST "|image={\"generation\":\"1\"}", false},
    {LEAST "|image={\"generation\":99999999999999999999}", false},
    {LEAST "|image={\"snapshot_id\":5}", false},
    {LEAST "|image={\"account\":\"abc\"}", false},
    {LEAST "|image={\"build_ms\":1,\"build_ms\":2}", false},
};

/* A document that does not validate is an error, never an absent one; the output is left alone.
 */
START_TEST(berth_config_doc_parse__rows)
{
    struct berth_config_doc config = {.create_horizon_ms = 42};
    struct berth_error err = {0};
    char *text = strdup(config_rows[_i].text);
    struct doc_of of;
    enum berth_code code = berth_config_doc_parse(make_doc(&of, text), &config, &err);

    ck_assert_int_eq(code, config_rows[_i].good ? BERTH_OK : BERTH_INTERNAL);
    if (code) {
        ck_assert_int_eq(err.reason, BERTH_REASON_INTERNAL_BUG);
        ck_assert_int_eq(config.create_horizon_ms, 42);
    } else {
        ck_assert(config.exists);
        ck_assert_str_eq(config.rev, REV);
        ck_assert_uint_ge(config.next_generation, 1);
    }
    free(text);
}
END_TEST

/* Documents of before there was the field: who keys creates fences, too. */
static const struct {
    char text[64];
    bool fenced;
} fenced_rows[] = {
    {LEAST "|keyed=1", true},           {LEAST "|keyed=0", false},         {LEAST, false},
    {LEAST "|keyed=1|fenced=0", false}, {LEAST "|keyed=0|fenced=1", true},
};

START_TEST(berth_config_doc_parse__fenced__as_keyed_where_not_said)
{
    char *text = strdup(fenced_rows[_i].text);
    struct berth_config_doc config;
    struct doc_of of;

    ck_assert_int_eq(berth_config_doc_parse(make_doc(&of, text), &config, NULL), BERTH_OK);
    ck_assert_int_eq(config.fenced, fenced_rows[_i].fenced);
    free(text);
}
END_TEST

/* Every field lands where it belongs. */
START_TEST(berth_config_doc_parse__full__all_read)
{
    char text[] = LEAST "|account=" ACCOUNT "|template=base|keyed=1|create_horizon_ms=5000"
                        "|next_generation=3|image={\"snapshot_id\":\"snap\",\"generation\":2,"
                        "\"rebuild_before\":1,\"account\":\"" ACCOUNT
                        "\",\"base_template_id\":\"b\",\"build_ms\":77}";
    struct berth_config_doc config;
    struct doc_of of;

    ck_assert_int_eq(berth_config_doc_parse(make_doc(&of, text), &config, NULL), BERTH_OK);
    ck_assert_str_eq(config.state, "active");
    ck_assert_str_eq(config.account, ACCOUNT);
    ck_assert_str_eq(config.template_id, "base");
    ck_assert(config.keyed_create);
    ck_assert_int_eq(config.create_horizon_ms, 5000);
    ck_assert_uint_eq(config.next_generation, 3);
    ck_assert_str_eq(config.image.snapshot_id, "snap");
    ck_assert_uint_eq(config.image.generation, 2);
    ck_assert_uint_eq(config.image.rebuild_before, 1);
    ck_assert_str_eq(config.image.base_template_id, "b");
    ck_assert_int_eq(config.image.build_ms, 77);
}
END_TEST

/* No document: not there, and nothing else is said. */
START_TEST(berth_config_doc_parse__absent__not_exists)
{
    struct berth_doc doc = {0};
    struct berth_config_doc config = {.exists = true, .account = "x"};

    ck_assert_int_eq(berth_config_doc_parse(&doc, &config, NULL), BERTH_OK);
    ck_assert(!config.exists);
    ck_assert_str_eq(config.account, "");
    ck_assert(!berth_image_usable(&config));
}
END_TEST

static const struct {
    const char *snapshot, *image_account, *account;
    bool usable;
} usable_rows[] = {
    {"snap", ACCOUNT, ACCOUNT, true}, {"snap", ACCOUNT, OTHER_ACCOUNT, false},
    {"snap", ACCOUNT, "", false},     {"snap", "", ACCOUNT, false},
    {"snap", "", "", false}, /* two empty fingerprints are not the same account */
    {"", ACCOUNT, ACCOUNT, false},
};

/* An image of another account, or of none, is never booted. */
START_TEST(berth_image_usable__rows)
{
    struct berth_config_doc config = {.exists = true};

    snprintf(config.account, sizeof config.account, "%s", usable_rows[_i].account);
    snprintf(config.image.account, sizeof config.image.account, "%s",
             usable_rows[_i].image_account);
    snprintf(config.image.snapshot_id, sizeof config.image.snapshot_id, "%s",
             usable_rows[_i].snapshot);
    ck_assert_int_eq(berth_image_usable(&config), usable_rows[_i].usable);
}
END_TEST

/* Written and read back: the same, with the longest texts and the largest numbers. */
START_TEST(berth_image_pointer_format__read_back__same)
{
    struct berth_image_pointer image = {.generation = INT64_MAX,
                                        .rebuild_before = 1,
                                        .build_ms = INT64_MAX,
                                        .account = ACCOUNT};
    struct berth_config_doc config;
    struct doc_of of;
    char *json, *again, *text;

    memset(image.snapshot_id, 's', sizeof image.snapshot_id - 1);
    memset(image.base_template_id, '"', sizeof image.base_template_id - 1);
    json = berth_image_pointer_format(&image);
    ck_assert_int_gt(asprintf(&text, "%s|image=%s", LEAST, json), 0);
    ck_assert_int_eq(berth_config_doc_parse(make_doc(&of, text), &config, NULL), BERTH_OK);
    again = berth_image_pointer_format(&config.image);
    ck_assert_str_eq(again, json);
    ck_assert_uint_eq(config.image.generation, INT64_MAX);
    free(again);
    free(json);
    free(text);
}
END_TEST

/* ---------------------------------------------------------------------- snapshot row */

/* Written and read back: the same. */
START_TEST(berth_snapshot_row_format__read_back__same)
{
    struct berth_snapshot_row row = {.row_id = "r1",
                                     .origin = "user",
                                     .state = "building",
                                     .generation = 5,
                                     .account = ACCOUNT,
                                     .display_name = "a \"name\" \xc3\xa9 \\",
                                     .source_session = "s",
                                     .created_by = "me",
                                     .request_id = "q",
                                     .size_bytes = INT64_MAX,
                                     .create_ms = 1,
                                     .supersede_ms = 2,
                                     .not_after_ms = 3,
                                     .planned_name = "berth-us",
                                     .snapshot_id = "",
                                     .parent_snapshot_id = "p"};
    struct berth_snapshot_row again = {0};
    char *json = berth_snapshot_row_format(&row), *text;

    ck_assert_int_eq(berth_snapshot_row_parse(json, &again, NULL), BERTH_OK);
    text = berth_snapshot_row_format(&again);
    ck_assert_str_eq(text, json);
    ck_assert_str_eq(again.display_name, row.display_name);
    ck_assert_uint_eq(again.size_bytes, INT64_MAX);
    ck_assert_int_eq(again.not_after_ms, 3);
    free(text);
    free(json);
    row.display_name[0] = (char)0xff; /* a document that nobody could read is not written */
    ck_assert_ptr_null(berth_snapshot_row_format(&row));
}
END_TEST

#define ROW "\"row_id\":\"r\",\"origin\":\"user\",\"state\":\"active\""

static const struct {
    const char *json;
    bool good;
} row_rows[] = {
    {"{" ROW "}", true},
    {"{" ROW ",\"later\":{}}", true},
    {"{\"row_id\":\"r\",\"origin\":\"skills\",\"state\":\"abandoned\"}", true},
    {"{}", false},
    {"", false},
    {"[]", false},
    {"{\"origin\":\"user\",\"state\":\"active\"}", false},
    {"{\"row_id\":\"\",\"origin\":\"user\",\"state\":\"active\"}", false},
    {"{\"row_id\":\"r\",\"origin\":\"other\",\"state\":\"active\"}", false},
    {"{\"row_id\":\"r\",\"origin\":\"user\",\"state\":\"gone\"}", false},
    {"{\"row_id\":\"r\",\"origin\":\"user\"}", false},
    {"{" ROW ",\"size_bytes\":-1}", false},
    {"{" ROW ",\"generation\":1.5}", false},
    {"{" ROW ",\"account\":\"x\"}", false},
    {"{" ROW ",\"row_id\":\"again\"}", false},
    {"{\"row_id\":\"0123456789012345678901234567890123\",\"origin\":\"user\",\"state\":"
     "\"active\"}",
     false},
};

START_TEST(berth_snapshot_row_parse__rows)
{
    struct berth_snapshot_row row = {.size_bytes = 42};
    struct berth_error err = {0};
    enum berth_code code = berth_snapshot_row_parse(row_rows[_i].json, &row, &err);

    ck_assert_int_eq(code, row_rows[_i].good ? BERTH_OK : BERTH_INTERNAL);
    if (code)
        ck_assert_uint_eq(row.size_bytes, 42);
}
END_TEST

/* --------------------------------------------------------------------------- tenant */

#define TENANT "rev=" REV "|disabled=0"

static const struct {
    const char *text;
    bool good;
} tenant_rows[] = {
    {TENANT "|tenant={}", true},
    {TENANT "|tenant={\"quotas\":{\"sessions\":4294967295}}|default_config=c", true},
    {TENANT, false},
    {"rev=" REV "|tenant={}", false},
    {"disabled=0|tenant={}", false},
    {"rev=short|disabled=0|tenant={}", false},
    {"rev=" REV "|disabled=no|tenant={}", false},
    {TENANT "|tenant={\"quotas\":{\"sessions\":4294967296}}", false},
    {TENANT "|tenant={\"quotas\":{\"sessions\":-1}}", false},
    {TENANT "|tenant={\"quotas\":[]}", false},
    {TENANT "|tenant={\"create_ms\":\"1\"}", false},
    {TENANT "|tenant=x", false},
};

START_TEST(berth_tenant_doc_parse__rows)
{
    struct berth_tenant_doc tenant = {.create_ms = 42};
    char *text = strdup(tenant_rows[_i].text);
    struct doc_of of;
    enum berth_code code = berth_tenant_doc_parse(make_doc(&of, text), &tenant, NULL);

    ck_assert_int_eq(code, tenant_rows[_i].good ? BERTH_OK : BERTH_INTERNAL);
    if (code)
        ck_assert_int_eq(tenant.create_ms, 42);
    free(text);
}
END_TEST

/* Written and read back: the same. */
START_TEST(berth_tenant_doc_format__read_back__same)
{
    struct berth_tenant_doc tenant = {.exists = true,
                                      .rev = REV,
                                      .disabled = true,
                                      .default_config = "c",
                                      .quotas = {1, 2, 3, INT64_MAX, 5, UINT32_MAX},
                                      .create_ms = 6,
                                      .update_ms = 7,
                                      .create_request_id = "q"};
    struct berth_tenant_doc again = {0};
    char *json = berth_tenant_doc_format(&tenant), *text;
    struct doc_of of;

    ck_assert_int_gt(asprintf(&text, "rev=%s|disabled=1|default_config=c|tenant=%s", REV, json),
                     0);
    ck_assert_int_eq(berth_tenant_doc_parse(make_doc(&of, text), &again, NULL), BERTH_OK);
    ck_assert_str_eq(again.create_request_id, "q");
    ck_assert(again.disabled);
    ck_assert_int_eq(again.update_ms, 7);
    ck_assert_uint_eq(again.quotas.stored_bytes, INT64_MAX);
    ck_assert_uint_eq(again.quotas.requests_per_second, UINT32_MAX);
    free(json);
    free(text);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("records");

    tcase_add_test(tcase, berth_key__each__as_designed);
    tcase_add_test(tcase, berth_key__longest_ids__whole_and_one_slot);
    tcase_add_loop_test(tcase, berth_config_doc_parse__rows, 0, (int)BERTH_COUNT(config_rows));
    tcase_add_loop_test(tcase, berth_config_doc_parse__fenced__as_keyed_where_not_said, 0,
                        (int)BERTH_COUNT(fenced_rows));
    tcase_add_test(tcase, berth_config_doc_parse__full__all_read);
    tcase_add_test(tcase, berth_config_doc_parse__absent__not_exists);
    tcase_add_loop_test(tcase, berth_image_usable__rows, 0, (int)BERTH_COUNT(usable_rows));
    tcase_add_test(tcase, berth_image_pointer_format__read_back__same);
    tcase_add_test(tcase, berth_snapshot_row_format__read_back__same);
    tcase_add_loop_test(tcase, berth_snapshot_row_parse__rows, 0, (int)BERTH_COUNT(row_rows));
    tcase_add_loop_test(tcase, berth_tenant_doc_parse__rows, 0, (int)BERTH_COUNT(tenant_rows));
    tcase_add_test(tcase, berth_tenant_doc_format__read_back__same);
    return run_case("common/records", tcase);
}

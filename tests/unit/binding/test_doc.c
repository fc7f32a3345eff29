#include <check.h>
#include <stdio.h>

#include "services/binding/doc.h"

#define REV "0123456789abcdef"
#define TOKEN "00000000000000000000000000000001"
#define SESSION                                                                                \
    "{\"major\":1,\"state\":\"active\",\"alias\":\"aaaaaaaaaaaaaaaaaaaa\",\"spec\":{},"        \
    "\"version\":1}"
#define LOCK                                                                                   \
    "{\"token\":\"" TOKEN "\",\"op\":\"verify\",\"want\":\"ensure\",\"fence\":7,"              \
    "\"until_ms\":9}"
#define BINDING                                                                                \
    "{\"sandbox_id\":\"s1\",\"backend\":\"local\",\"config_id\":\"c1\",\"fence\":7,"           \
    "\"origin\":\"created\",\"power\":\"running\"}"
#define INTENTS "{\"list\":[{\"kind\":\"delete\",\"sandbox_id\":\"s1\",\"fence\":7}]}"
#define TURNS                                                                                  \
    "{\"active_ms\":3,\"list\":[{\"kind\":\"turn\",\"token\":\"t.x\",\"deadline_ms\":5}]}"

#define CARRY                                                                                  \
    "{\"blob_id\":\"b1\",\"sandbox_id\":\"s0\",\"into\":\"s1\",\"cause\":\"rebuilt\","         \
    "\"lost_count\":3,\"export_ms\":8}"
#define LOSS                                                                                   \
    "{\"cause\":\"gone\",\"memory\":true,\"workspace\":true,\"packages\":true,"                \
    "\"sandbox_id\":\"s0\",\"number\":2,\"lost_ms\":8,\"told_ms\":9}"

/* A hash from name, value, ..., NULL. */
static void make(struct berth_doc *doc, const char *const *pairs)
{
    *doc = (struct berth_doc){.key = strdup("berth:{t}:s/s"), .exists = true};
    doc->fields = calloc(16, sizeof *doc->fields);
    ck_assert_ptr_nonnull(doc->fields);
    for (; *pairs; pairs += 2) {
        doc->fields[doc->n_fields].name = strdup(pairs[0]);
        doc->fields[doc->n_fields].value = strdup(pairs[1]);
        doc->fields[doc->n_fields++].size = strlen(pairs[1]);
    }
}

static void decode(const char *const *pairs, struct binding_doc *ret)
{
    struct berth_doc raw;
    struct berth_error err = {0};

    make(&raw, pairs);
    ck_assert_msg(binding_doc_decode(&raw, ret, &err) == BERTH_OK, "%s", err.text);
    berth_doc_deinit(&raw);
}

static const char *const whole[] = {
    "rev",      REV,    "config", "c1",      "session", SESSION,   "fence", "7",     "seq",
    "4",        "lock", LOCK,     "binding", BINDING,   "intents", INTENTS, "turns", TURNS,
    "endpoint", "xyz",  "loss",   LOSS,      "carry",   CARRY,     NULL};

/* All of it is read, and an absent hash is an absent document. */
START_TEST(doc_decode__whole__read)
{
    const struct berth_doc none = {.key = (char *)"k"};
    struct binding_doc doc;

    decode(whole, &doc);
    ck_assert_str_eq(doc.rev, REV);
    ck_assert_int_eq(doc.session.state, BINDING_STATE_ACTIVE);
    ck_assert_str_eq(doc.session.config_id, "c1");
    ck_assert_uint_eq(doc.fence, 7);
    ck_assert_uint_eq(doc.seq, 4);
    ck_assert_int_eq(doc.lock.op, BINDING_VERIFY);
    ck_assert_str_eq(doc.bound.sandbox_id, "s1");
    ck_assert_uint_eq(doc.bound.endpoint_size, 3);
    ck_assert_uint_eq(doc.n_intents, 1);
    ck_assert_uint_eq(doc.n_tokens, 1);
    ck_assert_int_eq(doc.active_ms, 3);
    ck_assert_int_eq(doc.loss.cause, BINDING_LOSS_GONE);
    ck_assert_str_eq(doc.loss.sandbox_id, "s0");
    ck_assert_uint_eq(doc.loss.number, 2);
    ck_assert_int_eq(doc.loss.told_ms, 9);
    ck_assert(doc.loss.memory && doc.loss.workspace && doc.loss.packages && !doc.loss.open);
    ck_assert_str_eq(doc.carry.blob_id, "b1");
    ck_assert_str_eq(doc.carry.sandbox_id, "s0");
    ck_assert_str_eq(doc.carry.into, "s1");
    ck_assert_int_eq(doc.carry.cause, BINDING_LOSS_REBUILT);
    ck_assert_uint_eq(doc.carry.lost_count, 3);
    ck_assert_int_eq(doc.carry.export_ms, 8);
    ck_assert_uint_eq(doc.dirty, 0);
    binding_doc_deinit(&doc);
    ck_assert_int_eq(binding_doc_decode(&none, &doc, NULL), BERTH_OK);
    ck_assert_str_eq(doc.rev, "");
    ck_assert_int_eq(doc.session.state, BINDING_STATE_NONE);
    binding_doc_deinit(&doc);
}
END_TEST

/* What was written and read again is written the same. */
START_TEST(doc_encode__decoded__same_again)
{
    struct binding_doc doc, again;

    decode(whole, &doc);
    for (int round = 0; round < 2; round++) {
        const char *pairs[2 * BINDING_N_PARTS + 3] = {"rev", REV};
        char *text[BINDING_N_PARTS];
        size_t n = 2, size;

        for (int i = 0; i < BINDING_N_PARTS; i++) {
            ck_assert_int_eq(
                binding_doc_encode(&doc, (enum binding_part)i, &text[i], &size, NULL),
                BERTH_OK);
            ck_assert_ptr_nonnull(text[i]);
            pairs[n++] = binding_part_name((enum binding_part)i);
            pairs[n++] = text[i];
        }
        pairs[n] = NULL;
        decode(pairs, &again);
        for (int i = 0; i < BINDING_N_PARTS; i++) {
            char *other;

            ck_assert_int_eq(
                binding_doc_encode(&again, (enum binding_part)i, &other, &size, NULL),
                BERTH_OK);
            ck_assert_str_eq(other, text[i]);
            free(other);
            free(text[i]);
        }
        binding_doc_deinit(&doc);
        doc = again;
    }
    binding_doc_deinit(&doc);
}
END_TEST

/* Members that a later version of ours wrote stay, in every part. */
static const struct {
    enum binding_part part;
    const char *value;
} unknown_rows[] = {
    {BINDING_PART_SESSION, "{\"state\":\"active\",\"alias\":\"a\",\"spec\":{\"later\":1},"
                           "\"later\":{\"x\":[1,2]},\"version\":1}"},
    {BINDING_PART_LOCK, "{\"token\":\"" TOKEN "\",\"op\":\"pause\",\"want\":\"pause\","
                        "\"fence\":7,\"later\":\"x\"}"},
    {BINDING_PART_BINDING, "{\"sandbox_id\":\"s1\",\"backend\":\"local\",\"config_id\":\"c1\","
                           "\"fence\":7,\"origin\":\"adopted\",\"power\":\"paused\","
                           "\"later\":true}"},
    {BINDING_PART_INTENTS, "{\"list\":[{\"kind\":\"pause\",\"sandbox_id\":\"s1\",\"fence\":7,"
                           "\"later\":1}],\"later\":2}"},
    {BINDING_PART_TURNS, "{\"list\":[{\"kind\":\"use\",\"token\":\"u\",\"later\":1}],"
                         "\"later\":2}"},
    {BINDING_PART_LOSS, "{\"cause\":\"memory\",\"memory\":true,\"sandbox_id\":\"s0\","
                        "\"number\":1,\"later\":[]}"},
    {BINDING_PART_CARRY, "{\"blob_id\":\"b\",\"sandbox_id\":\"s0\",\"cause\":\"reaped\","
                         "\"later\":1}"},
};

static int count(const char *text, const char *word)
{
    int n = 0;

    while ((text = strstr(text, word))) {
        n++;
        text++;
    }
    return n;
}

START_TEST(doc_encode__unknown_members__kept)
{
    const char *pairs[BERTH_COUNT(whole)];
    struct binding_doc doc;
    char *text;
    size_t size;

    memcpy(pairs, whole, sizeof whole);
    for (size_t i = 0; pairs[i]; i += 2)
        if (strcmp(pairs[i], binding_part_name(unknown_rows[_i].part)) == 0)
            pairs[i + 1] = unknown_rows[_i].value;
    decode(pairs, &doc);
    ck_assert_int_eq(binding_doc_encode(&doc, unknown_rows[_i].part, &text, &size, NULL),
                     BERTH_OK);
    ck_assert_int_eq(count(text, "\"later\""), count(unknown_rows[_i].value, "\"later\""));
    free(text);
    binding_doc_deinit(&doc);
}
END_TEST

/* Each row: a field, a value that does not validate. An error, never an absent document. */
static const struct {
    const char *field, *value;
} broken_rows[] = {
    {"rev", "0123456789abcde"},
    {"rev", "0123456789ABCDEF"},
    {"fence", "-1"},
    {"fence", ""},
    {"fence", "1x"},
    {"fence", "9223372036854775808"},
    {"fence", "6"}, /* below the lock's */
    {"seq", "x"},
    {"session", ""},
    {"session", "[]"},
    {"session", "{}"},
    {"session", "{\"state\":\"gone\",\"alias\":\"a\",\"spec\":{}}"},
    {"session", "{\"state\":\"active\",\"alias\":\"a\"}"},
    {"session", "{\"state\":\"active\",\"alias\":\"a\",\"spec\":[]}"},
    {"session", "{\"state\":\"active\",\"alias\":\"a\",\"spec\":{\"env\":3}}"},
    {"session", "{\"state\":\"active\",\"spec\":{}}"},
    {"session", "{\"major\":2,\"state\":\"active\",\"alias\":\"a\",\"spec\":{}}"},
    {"session", "{\"state\":\"deleted\",\"alias\":\"a\"}"}, /* with a binding */
    {"lock", "{}"},
    {"lock", "{\"token\":\"00\",\"op\":\"verify\",\"want\":\"ensure\",\"fence\":7}"},
    {"lock", "{\"token\":\"" TOKEN "\",\"op\":\"x\",\"want\":\"ensure\",\"fence\":7}"},
    {"lock", "{\"token\":\"" TOKEN "\",\"op\":\"verify\",\"want\":\"ensure\",\"fence\":0}"},
    {"lock", "{\"token\":\"" TOKEN "\",\"op\":\"verify\",\"want\":\"ensure\",\"fence\":7,"
             "\"lease_ms\":86400001}"},
    {"binding", "{}"},
    {"binding", "{\"sandbox_id\":\"\",\"backend\":\"local\",\"config_id\":\"c1\",\"fence\":7,"
                "\"origin\":\"created\",\"power\":\"running\"}"},
    {"binding", "{\"sandbox_id\":\"s\",\"backend\":\"local\",\"config_id\":\"c2\",\"fence\":7,"
                "\"origin\":\"created\",\"power\":\"running\"}"},
    {"binding", "{\"sandbox_id\":\"s\",\"backend\":\"local\",\"config_id\":\"c1\",\"fence\":7,"
                "\"origin\":\"created\",\"power\":\"running\",\"account\":\"abc\"}"},
    {"binding", "{\"sandbox_id\":\"s\",\"backend\":\"local\",\"config_id\":\"c1\",\"fence\":7,"
                "\"origin\":\"created\",\"power\":\"running\",\"template_id\":\"a\","
                "\"snapshot_id\":\"b\"}"},
    {"intents", "{\"list\":{}}"},
    {"intents", "{\"list\":[1]}"},
    {"intents", "{\"list\":[{\"kind\":\"delete\",\"fence\":7}]}"},
    {"intents", "{\"list\":[{\"kind\":\"create\",\"fence\":7}]}"},
    {"turns", "{\"list\":[{\"kind\":\"turn\"}]}"},
    {"turns", "{\"list\":[{\"kind\":\"turn\",\"token\":\"\"}]}"},
    {"turns", "{\"active_ms\":-1}"},
    {"loss", "{}"},
    {"loss", "{\"cause\":\"stolen\",\"memory\":true,\"sandbox_id\":\"s\",\"number\":1}"},
    {"loss", "{\"cause\":\"gone\",\"sandbox_id\":\"s\",\"number\":1}"}, /* of nothing */
    {"loss", "{\"cause\":\"gone\",\"memory\":true,\"number\":1}"},
    {"loss", "{\"cause\":\"gone\",\"memory\":true,\"sandbox_id\":\"s\",\"number\":0}"},
    {"loss", "{\"cause\":\"gone\",\"memory\":1,\"sandbox_id\":\"s\",\"number\":1}"},
    {"loss", "{\"cause\":\"gone\",\"memory\":true,\"sandbox_id\":\"s\",\"number\":1,"
             "\"open\":\"yes\"}"},
    {"turns", "{\"list\":[{\"kind\":\"turn\",\"token\":\"t\",\"token\":\"u\"}]}"},
};

START_TEST(doc_decode__broken__error_naming_key)
{
    const char *pairs[BERTH_COUNT(whole)];
    struct berth_doc raw;
    struct binding_doc doc = {.fence = 42};
    struct berth_error err = {0};

    memcpy(pairs, whole, sizeof whole);
    for (size_t i = 0; pairs[i]; i += 2)
        if (strcmp(pairs[i], broken_rows[_i].field) == 0)
            pairs[i + 1] = broken_rows[_i].value;
    make(&raw, pairs);
    ck_assert_int_eq(binding_doc_decode(&raw, &doc, &err), BERTH_INTERNAL);
    ck_assert_int_eq(err.reason, BERTH_REASON_INTERNAL_BUG);
    ck_assert_ptr_nonnull(strstr(err.text, "berth:{t}:s/s"));
    ck_assert_uint_eq(doc.fence, 42);
    berth_doc_deinit(&raw);
}
END_TEST

/* A rev without a record is what a settled write leaves; a binding without one is broken. */
START_TEST(doc_decode__rev_alone__no_record)
{
    static const char *const stub[] = {"rev", REV, NULL};
    static const char *const bad[] = {"rev", REV, "binding", BINDING, NULL};
    struct berth_doc raw;
    struct binding_doc doc;

    decode(stub, &doc);
    ck_assert_int_eq(doc.session.state, BINDING_STATE_NONE);
    ck_assert_str_eq(doc.rev, REV);
    binding_doc_deinit(&doc);
    make(&raw, bad);
    ck_assert_int_eq(binding_doc_decode(&raw, &doc, NULL), BERTH_INTERNAL);
    berth_doc_deinit(&raw);
}
END_TEST

/* An older version may have bound beside marks that it kept without knowing them. */
START_TEST(doc_decode__marks_beside_a_binding__taken_back)
{
    const char *pairs[BERTH_COUNT(whole)];
    struct binding_doc doc;

    memcpy(pairs, whole, sizeof whole);
    for (size_t i = 0; pairs[i]; i += 2) {
        if (strcmp(pairs[i], "session") == 0)
            pairs[i + 1] = "{\"state\":\"active\",\"alias\":\"a\",\"spec\":{},"
                           "\"version\":1,\"never_bound\":true}";
        if (strcmp(pairs[i], "loss") == 0)
            pairs[i + 1] = "{\"cause\":\"gone\",\"memory\":true,\"sandbox_id\":\"s0\","
                           "\"number\":1,\"open\":\"gone\"}";
    }
    decode(pairs, &doc);
    ck_assert(doc.bound.set && !doc.session.never_bound && !doc.loss.open && doc.loss.set);
    binding_doc_deinit(&doc);
}
END_TEST

/* Lists have an end. */
START_TEST(doc_add__too_many__quota)
{
    struct binding_doc doc = {0};
    struct binding_intent *intent;
    struct berth_error err = {0};

    for (int i = 0; i < BINDING_INTENTS_MAX; i++)
        ck_assert_int_eq(binding_doc_add_intent(&doc, &intent, NULL), BERTH_OK);
    ck_assert_int_eq(binding_doc_add_intent(&doc, &intent, &err), BERTH_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_QUOTA_EXCEEDED);
    binding_doc_remove_intent(&doc, 0);
    ck_assert_int_eq(binding_doc_add_intent(&doc, &intent, NULL), BERTH_OK);
    binding_doc_deinit(&doc);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/doc");
    TCase *tc = tcase_create("doc");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tc, doc_decode__whole__read);
    tcase_add_test(tc, doc_encode__decoded__same_again);
    tcase_add_loop_test(tc, doc_encode__unknown_members__kept, 0,
                        (int)BERTH_COUNT(unknown_rows));
    tcase_add_loop_test(tc, doc_decode__broken__error_naming_key, 0,
                        (int)BERTH_COUNT(broken_rows));
    tcase_add_test(tc, doc_decode__rev_alone__no_record);
    tcase_add_test(tc, doc_decode__marks_beside_a_binding__taken_back);
    tcase_add_test(tc, doc_add__too_many__quota);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

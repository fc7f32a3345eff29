/* The guard in front of protobuf-c: limits, one by one. Malformed input of every other kind is
 * in tests/corpus/protobuf. */
#include <check.h>

#include "berth/testing/v1/echo.pb-c.h"
#include "common/rpc/rpc.h"

#define TYPE &berth__testing__v1__echo_request__descriptor

typedef Berth__Testing__V1__EchoRequest EchoRequest;

enum {
    TEXT = 1 << 3 | 2,
    NESTED = 7 << 3 | 2,
    ITEMS = 8 << 3 | 2,
    CHILDREN = 10 << 3 | 2,
    BIG = 8 << 20,
};

static uint8_t *bytes;
static size_t size;

static void setup(void)
{
    bytes = malloc(BIG);
    ck_assert_ptr_nonnull(bytes);
    size = 0;
}

static void teardown(void)
{
    free(bytes);
}

static void put(uint8_t byte)
{
    ck_assert_uint_lt(size, BIG);
    bytes[size++] = byte;
}

static void put_length(size_t length)
{
    for (; length > 0x7f; length >>= 7)
        put((uint8_t)(length | 0x80));
    put((uint8_t)length);
}

/* Wrap what there is into one more field. */
static void wrap(uint8_t key)
{
    size_t inner = size, head;

    size = BIG / 2;
    put(key);
    put_length(inner);
    head = size - BIG / 2;
    memmove(bytes + head, bytes, inner);
    memcpy(bytes, bytes + BIG / 2, head);
    size = head + inner;
}

static enum berth_code decode(struct berth_error *err)
{
    ProtobufCMessage *message = NULL;
    enum berth_code code;

    *err = (struct berth_error){0};
    code = berth_decode(TYPE, bytes, size, &message, err);
    if (code)
        ck_assert_ptr_null(message);
    else
        protobuf_c_message_free_unpacked(message, NULL);
    return code;
}

/* 64 messages inside of each other pass, 65 do not, and no number of them overflows a stack. */
static const struct {
    unsigned n_wraps;
    bool ok;
} depth_rows[] = {{0, true}, {63, true}, {64, false}, {1000, false}, {100000, false}};

START_TEST(berth_decode__depth__limit_64)
{
    struct berth_error err;

    for (unsigned i = 0; i < depth_rows[_i].n_wraps; i++)
        if (depth_rows[_i].n_wraps <= 1000)
            wrap(NESTED);
    if (depth_rows[_i].n_wraps > 1000) { /* lengths need not fit for the depth to count */
        for (unsigned i = 0; i < depth_rows[_i].n_wraps; i++) {
            put(NESTED);
            put_length(BIG / 8);
        }
        memset(bytes + size, 0, BIG / 4);
        size += BIG / 4;
    }
    ck_assert_int_eq(decode(&err), depth_rows[_i].ok ? BERTH_OK : BERTH_INVALID_ARGUMENT);
    if (!depth_rows[_i].ok)
        ck_assert_int_eq(err.reason, BERTH_REASON_FIELD_INVALID);
}
END_TEST

/* 65536 values in a message pass, one more does not. */
START_TEST(berth_decode__records__limit_65536)
{
    struct berth_error err;

    for (unsigned i = 0; i < BERTH_RPC_FIELDS_MAX; i++) {
        put(ITEMS);
        put_length(24);
        for (int k = 0; k < 24; k++)
            put('x');
    }
    ck_assert_msg(!decode(&err), "%s", err.text);
    put(ITEMS);
    put(0);
    ck_assert_int_eq(decode(&err), BERTH_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_MESSAGE_TOO_LARGE);
}
END_TEST

/* A message may take 16 times its size in memory and 256 KiB, no more: small ones that unfold
 * are refused, ordinary lists of short strings are not. */
START_TEST(berth_decode__unfolding__refused)
{
    struct berth_error err;

    for (unsigned i = 0; i < 1000; i++) {
        put(ITEMS);
        put(1);
        put('x');
    }
    ck_assert_msg(!decode(&err), "%s", err.text);
    size = 0;
    for (unsigned i = 0; i < 30000; i++) {
        put(CHILDREN);
        put(0);
    }
    ck_assert_int_eq(decode(&err), BERTH_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_MESSAGE_TOO_LARGE);
}
END_TEST

/* The same submessage over and over is merged each time, which costs more and more: refused. */
START_TEST(berth_decode__endless_merging__refused)
{
    struct berth_error err;

    for (unsigned i = 0; i < 20000; i++) {
        put(NESTED);
        put(3);
        put(ITEMS);
        put(1);
        put('x');
    }
    ck_assert_int_eq(decode(&err), BERTH_RESOURCE_EXHAUSTED);
}
END_TEST

/* Each row: text, and whether it is UTF-8 without NUL. */
static const struct {
    const char *text;
    size_t len;
    bool ok;
} text_rows[] = {
    {"", 0, true},
    {"plain", 5, true},
    {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, true},
    {"\xf4\x8f\xbf\xbf", 4, true},         /* U+10FFFF */
    {"\xed\x9f\xbf\xee\x80\x80", 6, true}, /* either side of the surrogates */
    {"a\0b", 3, false},
    {"\0", 1, false},
    {"\x80", 1, false},
    {"\xff", 1, false},
    {"\xc0\xaf", 2, false},         /* overlong */
    {"\xe0\x80\xaf", 3, false},     /* overlong */
    {"\xf0\x80\x80\xaf", 4, false}, /* overlong */
    {"\xed\xa0\x80", 3, false},     /* surrogate */
    {"\xf4\x90\x80\x80", 4, false}, /* beyond U+10FFFF */
    {"\xf8\x88\x80\x80\x80", 5, false},
    {"abc\xe2\x82", 5, false}, /* cut */
    {"\xe2(\xa1", 3, false},
};

START_TEST(berth_decode__text__utf8_without_nul)
{
    struct berth_error err;

    memcpy(bytes, text_rows[_i].text, text_rows[_i].len);
    size = text_rows[_i].len;
    wrap(TEXT);
    ck_assert_int_eq(decode(&err), text_rows[_i].ok ? BERTH_OK : BERTH_INVALID_ARGUMENT);
    if (!text_rows[_i].ok) {
        ck_assert_str_eq(err.field, "text");
        ck_assert_int_eq(err.reason, BERTH_REASON_FIELD_INVALID);
    }
}
END_TEST

/* The path to a bad text is named, however deep. */
START_TEST(berth_decode__bad_text_inside__path_named)
{
    struct berth_error err;

    put(0xff);
    wrap(ITEMS);
    wrap(CHILDREN);
    wrap(NESTED);
    ck_assert_int_eq(decode(&err), BERTH_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "nested.children.items");
}
END_TEST

/* Bytes of a buffer that came in pieces are looked at as one. */
START_TEST(berth_buf__packed__same_bytes)
{
    EchoRequest request = BERTH__TESTING__V1__ECHO_REQUEST__INIT;
    struct berth_buf *buf, *copy;
    struct iovec pieces[2];
    ProtobufCMessage *message;
    struct berth_error err;

    request.text = (char *)"some text";
    berth_rpc_init();
    buf = berth_buf_pack(&request.base);
    ck_assert_ptr_nonnull(buf);
    ck_assert_uint_eq(berth_buf_size(buf), 11);
    ck_assert_uint_eq(berth_buf_pieces(buf, 0, pieces, 2), 1);
    ck_assert_uint_eq(pieces[0].iov_len, 11);
    ck_assert_ptr_eq(pieces[0].iov_base, berth_buf_data(buf));
    ck_assert_uint_eq(berth_buf_pieces(buf, 0, pieces, 0), 0);
    ck_assert_uint_eq(berth_buf_pieces(buf, 1, pieces, 2), 0);
    copy = berth_buf_new(berth_buf_data(buf), berth_buf_size(buf));
    ck_assert_ptr_eq(berth_buf_ref(buf), buf);
    berth_buf_unref(buf);
    ck_assert(!berth_buf_decode(TYPE, copy, &message, &err));
    ck_assert_str_eq(((EchoRequest *)message)->text, "some text");
    protobuf_c_message_free_unpacked(message, NULL);
    ck_assert_ptr_null(berth_buf_unref(buf));
    ck_assert_ptr_null(berth_buf_unref(copy));
    ck_assert_ptr_null(berth_buf_unref(NULL));
    berth_rpc_done();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/rpc guard");
    TCase *tcase = tcase_create("guard");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, berth_decode__depth__limit_64, 0, (int)BERTH_COUNT(depth_rows));
    tcase_add_test(tcase, berth_decode__records__limit_65536);
    tcase_add_test(tcase, berth_decode__unfolding__refused);
    tcase_add_test(tcase, berth_decode__endless_merging__refused);
    tcase_add_loop_test(tcase, berth_decode__text__utf8_without_nul, 0,
                        (int)BERTH_COUNT(text_rows));
    tcase_add_test(tcase, berth_decode__bad_text_inside__path_named);
    tcase_add_test(tcase, berth_buf__packed__same_bytes);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

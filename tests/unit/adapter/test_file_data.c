#include <check.h>

#include "berth/data/v1/data.pb-c.h"
#include "services/adapter/file_rpc.h"

static const size_t sizes[] = {0, 1, 127, 128, 16383, 16384, 1 << 20, (3 << 20) + 5};

/* Header and data are what protobuf-c packs, and are read back as they are, at every width of
 * the length. */
START_TEST(file_header_before__each_width__as_packed)
{
    size_t size = sizes[_i], packed_size, header;
    uint8_t *bytes = malloc(FILE_HEADER_MAX + size), *data = bytes + FILE_HEADER_MAX, *packed;
    Berth__Data__V1__ReadFileResponse resp = BERTH__DATA__V1__READ_FILE_RESPONSE__INIT;

    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)(i * 7);
    resp.message_case = BERTH__DATA__V1__READ_FILE_RESPONSE__MESSAGE_DATA;
    resp.data = (ProtobufCBinaryData){size, data};
    packed_size = berth__data__v1__read_file_response__get_packed_size(&resp);
    packed = malloc(packed_size);
    berth__data__v1__read_file_response__pack(&resp, packed);
    header = file_header_before(data, size);
    ck_assert_uint_eq(header + size, packed_size);
    ck_assert_mem_eq(data - header, packed, packed_size);
    ck_assert_uint_eq(file_header_size(packed, packed_size, packed_size), header);
    if (packed_size > FILE_HEADER_MAX) /* the head is enough */
        ck_assert_uint_eq(file_header_size(packed, FILE_HEADER_MAX, packed_size), header);
    free(packed);
    free(bytes);
}
END_TEST

/* Each row: bytes that are something else, or not whole; they are left to the decoder. */
static const struct {
    uint8_t bytes[8];
    size_t size;
} other_rows[] = {
    {{0}, 0},
    {{0x12}, 1},
    {{0x12, 1}, 2},                                        /* too short */
    {{0x12, 0, 0x12}, 3},                                  /* too long */
    {{0x12, 1, 'a', 0x12, 1, 'b'}, 6},                     /* twice */
    {{0x1a, 1, 'a'}, 3},                                   /* done */
    {{0x0a, 1, 'a'}, 3},                                   /* open */
    {{0x10, 1}, 2},                                        /* another wire type */
    {{0x12, 0x80}, 2},                                     /* the length is not whole */
    {{0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f}, 8}, /* nor sane */
    {{0x12, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}, 8}, /* nor minimal */
};

START_TEST(file_header_size__anything_else__none)
{
    const uint8_t *bytes = other_rows[_i].bytes;
    size_t size = other_rows[_i].size;

    ck_assert_uint_eq(file_header_size(bytes, size, size), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("adapter/file_data");
    TCase *file = tcase_create("file_data");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(file, file_header_before__each_width__as_packed, 0,
                        (int)BERTH_COUNT(sizes));
    tcase_add_loop_test(file, file_header_size__anything_else__none, 0,
                        (int)BERTH_COUNT(other_rows));
    suite_add_tcase(suite, file);

    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

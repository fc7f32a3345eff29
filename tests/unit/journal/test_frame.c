/* The bytes of a journal, without a file and without a key. */
#include "tests/unit/base/main.h"

#include "common/journal/frame.h"

enum { FILE_MAX = 4096 };

static struct {
    uint8_t data[FILE_MAX];
    size_t size;
    size_t starts[16], n;
} file;

/* Sealed is plain text here, but for a byte that vouches for it. */
static uint8_t sum(const uint8_t *data, size_t size, uint64_t sequence)
{
    uint8_t value = 0;

    for (int i = 0; i < 8; i++)
        value = (uint8_t)(value * 31 + (uint8_t)(sequence >> (8 * i)));
    for (size_t i = 0; i < size; i++)
        value = (uint8_t)(value * 31 + data[i]);
    return value;
}

static void add_frame(uint64_t sequence, const char *key, int64_t time_ms)
{
    const struct journal_entry entry = {
        .time_ms = time_ms, .key = key, .key_size = strlen(key), .deleted = true};
    uint8_t *plain;
    size_t size;

    plain = journal_entry_write(&entry, &size);
    ck_assert_ptr_nonnull(plain);
    file.starts[file.n++] = file.size;
    journal_frame_head_write(file.data + file.size, size + 1, sequence);
    memcpy(file.data + file.size + JOURNAL_FRAME_HEAD, plain, size);
    file.data[file.size + JOURNAL_FRAME_HEAD + size] = sum(plain, size, sequence);
    file.size += JOURNAL_FRAME_HEAD + size + 1;
    free(plain);
}

static enum journal_opened open_plain(void *arg, const struct journal_frame *frame,
                                      uint8_t **ret, size_t *ret_size)
{
    size_t size = frame->sealed_size - 1;

    (void)arg;
    if (sum(frame->sealed, size, frame->sequence) != frame->sealed[size])
        return JOURNAL_CHANGED;
    *ret = malloc(size + 1);
    ck_assert_ptr_nonnull(*ret);
    memcpy(*ret, frame->sealed, size);
    *ret_size = size;
    return JOURNAL_OPENED;
}

/* Keys in the order they were seen. */
static bool note(void *arg, const struct journal_frame *frame,
                 const struct journal_entry *entry)
{
    char *seen = arg;

    (void)frame;
    strncat(seen, entry->key, entry->key_size);
    return true;
}

static struct journal_scan scan(char seen[64], bool skip)
{
    const struct journal_reader reader = {seen, open_plain, note};
    struct journal_scan out;

    seen[0] = 0;
    journal_scan(file.data, file.size, 5, &reader, skip, &out);
    return out;
}

static void fill(void)
{
    const struct journal_head head = {.base = 5, .deployment = "test"};

    memset(&file, 0, sizeof file);
    journal_head_write(file.data, &head);
    file.size = JOURNAL_HEAD_SIZE;
    add_frame(6, "a", 1);
    add_frame(7, "b", 2);
    add_frame(8, "c", 3);
}

/* What was written is read, in order. */
START_TEST(journal_scan__whole__every_entry)
{
    char seen[64];
    struct journal_scan out = scan(seen, false);

    ck_assert_int_eq(out.state, JOURNAL_WHOLE);
    ck_assert_str_eq(seen, "abc");
    ck_assert_uint_eq(out.end, file.size);
    ck_assert_uint_eq(out.sequence, 8);
}
END_TEST

/* Whatever the last frame was cut to: a torn tail, and all before it stands. */
START_TEST(journal_scan__cut_anywhere_in_the_last_frame__torn)
{
    size_t whole = file.size;
    char seen[64];

    for (size_t size = file.starts[2] + 1; size < whole; size++) {
        struct journal_scan out;

        file.size = size;
        out = scan(seen, false);
        ck_assert_int_eq(out.state, JOURNAL_TORN);
        ck_assert_uint_eq(out.end, file.starts[2]);
        ck_assert_str_eq(seen, "ab");
    }
}
END_TEST

/* Any byte of a frame in the middle changed: damage at its offset, never a tail to be cut. */
START_TEST(journal_scan__any_byte_in_the_middle__damage_named)
{
    char seen[64];

    for (size_t at = file.starts[1]; at < file.starts[2]; at++) {
        struct journal_scan out;

        file.data[at] ^= 0x40;
        out = scan(seen, false);
        ck_assert_int_eq(out.state, JOURNAL_DAMAGED);
        ck_assert_uint_eq(out.at, file.starts[1]);
        ck_assert_uint_eq(out.end, file.starts[1]);
        out = scan(seen, true);
        ck_assert_int_eq(out.state, JOURNAL_WHOLE);
        ck_assert_uint_eq(out.n_damages, 1);
        ck_assert_uint_eq(out.lost_bytes, file.starts[2] - file.starts[1]);
        ck_assert_str_eq(seen, "ac");
        file.data[at] ^= 0x40;
    }
}
END_TEST

/* A frame that was taken out, or stands where another stood, is damage. */
START_TEST(journal_scan__frame_taken_out__damage)
{
    char seen[64];
    struct journal_scan out;
    size_t gap = file.starts[2] - file.starts[1];

    memmove(file.data + file.starts[1], file.data + file.starts[2], file.size - file.starts[2]);
    file.size -= gap;
    out = scan(seen, false);
    ck_assert_int_eq(out.state, JOURNAL_DAMAGED);
    ck_assert_uint_eq(out.at, file.starts[1]);
    fill();
    memmove(file.data + file.starts[2], file.data + file.starts[1], gap);
    out = scan(seen, false);
    ck_assert_int_eq(out.state, JOURNAL_DAMAGED);
    ck_assert_uint_eq(out.at, file.starts[2]);
    ck_assert_str_eq(seen, "ab");
}
END_TEST

/* A crash may leave the last frame as long as it was to be, with zeros for what was not
 * written; any other byte in it is not one of a crash, and it may have been answered for. */
START_TEST(journal_scan__last_frame_whole_but_wrong__torn_only_with_zeros_at_its_end)
{
    char seen[64];
    struct journal_scan out;

    memset(file.data + file.size - 20, 0, 20);
    out = scan(seen, false);
    ck_assert_int_eq(out.state, JOURNAL_TORN);
    ck_assert_uint_eq(out.end, file.starts[2]);
    for (size_t at = file.starts[2] + JOURNAL_FRAME_HEAD; at < file.size; at++) {
        fill();
        file.data[at] ^= 1;
        out = scan(seen, false);
        if (out.state == JOURNAL_LOCKED) /* the id of its key was hit */
            continue;
        ck_assert_int_eq(out.state, JOURNAL_DAMAGED);
        ck_assert_uint_eq(out.at, file.starts[2]);
        ck_assert_uint_eq(out.lost_bytes, file.size - file.starts[2]);
        out = scan(seen, true);
        ck_assert_uint_eq(out.n_damages, 1);
        ck_assert_uint_eq(out.end, file.starts[2]);
        ck_assert_str_eq(seen, "ab");
    }
}
END_TEST

/* An entry comes back as it was; nothing that is not one does. */
START_TEST(journal_entry__written__read_back)
{
    const struct journal_entry entry = {.time_ms = 1764566400000,
                                        .key = "berth:{t}:t",
                                        .key_size = 11,
                                        .doc = (const uint8_t *)"\0\0\0\0",
                                        .doc_size = 4};
    struct journal_entry back;
    size_t size;
    uint8_t *plain = journal_entry_write(&entry, &size);

    ck_assert(journal_entry_read(plain, size, &back));
    ck_assert_int_eq(back.time_ms, entry.time_ms);
    ck_assert(back.key_size == 11 && memcmp(back.key, entry.key, 11) == 0);
    ck_assert(back.doc_size == 4 && !back.deleted);
    ck_assert(!journal_entry_read(plain, 22, &back)); /* the key is cut */
    plain[1] = 1;
    ck_assert(!journal_entry_read(plain, size, &back)); /* deleted, and a document */
    plain[1] = 2;
    ck_assert(!journal_entry_read(plain, size, &back));
    free(plain);
}
END_TEST

static bool is_b(const char *field)
{
    return strcmp(field, "b") == 0;
}

/* A hash comes back as it was, whatever its values hold; every prefix of it is refused. */
START_TEST(journal_doc__written__read_back)
{
    struct berth_doc_field fields[] = {
        {"rev", "0123", 4}, {"b", "left out", 8}, {"credentials", "\0\1\xff", 3}, {"", "", 0}};
    const struct berth_doc doc = {.exists = true, .n_fields = 4, .fields = fields};
    struct berth_doc back = {0};
    size_t size;
    uint8_t *data = journal_doc_write(&doc, is_b, &size);

    ck_assert_int_eq(journal_doc_read(data, size, &back, NULL), BERTH_OK);
    ck_assert_uint_eq(back.n_fields, 3);
    ck_assert_str_eq(berth_doc_get(&back, "rev"), "0123");
    ck_assert(back.fields[1].size == 3 && memcmp(back.fields[1].value, "\0\1\xff", 3) == 0);
    ck_assert(!berth_doc_has(&back, "b"));
    berth_doc_deinit(&back);
    for (size_t cut = 0; cut < size; cut++)
        ck_assert_int_eq(journal_doc_read(data, cut, &back, NULL), BERTH_INTERNAL);
    free(data);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("journal_frame");

    tcase_add_checked_fixture(tcase, fill, NULL);
    tcase_add_test(tcase, journal_scan__whole__every_entry);
    tcase_add_test(tcase, journal_scan__cut_anywhere_in_the_last_frame__torn);
    tcase_add_test(tcase,
                   journal_scan__last_frame_whole_but_wrong__torn_only_with_zeros_at_its_end);
    tcase_add_test(tcase, journal_scan__any_byte_in_the_middle__damage_named);
    tcase_add_test(tcase, journal_scan__frame_taken_out__damage);
    tcase_add_test(tcase, journal_entry__written__read_back);
    tcase_add_test(tcase, journal_doc__written__read_back);
    return run_case("journal/frame", tcase);
}

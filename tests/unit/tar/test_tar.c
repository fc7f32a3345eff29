/* test_tar.c - what is written is read the same, whatever the pieces it comes in; what is not a
 * tar is refused. */
#include <check.h>
#include <stdio.h>

#include "common/tar/tar.h"

enum { SEEN_MAX = 8 };

/* What a reader told. */
struct seen {
    enum tar_kind kind;
    char path[1024], target[1024];
    uint64_t size, n_bytes, last_offset;
    uint32_t mode, mtime_ns;
    int64_t mtime_s;
    size_t n_xattrs, n_parts;
    char xattr[64];
    bool ended;
};
static struct seen seen[SEEN_MAX];
static size_t n_seen;
static bool spoilt; /* the content may be anything */

static enum berth_code on_begin(void *ctx, const struct tar_entry *entry,
                                struct berth_error *err)
{
    struct seen *at = &seen[n_seen];

    (void)ctx;
    (void)err;
    ck_assert_uint_lt(n_seen, SEEN_MAX);
    *at = (struct seen){.kind = entry->kind,
                        .size = entry->size,
                        .mode = entry->mode,
                        .mtime_s = entry->mtime_s,
                        .mtime_ns = entry->mtime_ns,
                        .n_xattrs = entry->n_xattrs,
                        .n_parts = entry->n_parts};
    snprintf(at->path, sizeof at->path, "%s", entry->path);
    snprintf(at->target, sizeof at->target, "%s", entry->target);
    if (entry->n_xattrs > 0)
        snprintf(at->xattr, sizeof at->xattr, "%s=%.*s", entry->xattrs[0].name,
                 (int)entry->xattrs[0].size, (const char *)entry->xattrs[0].value);
    return BERTH_OK;
}

static enum berth_code on_data(void *ctx, uint64_t offset, const uint8_t *data, size_t size,
                               struct berth_error *err)
{
    (void)ctx;
    (void)err;
    for (size_t i = 0; !spoilt && i < size; i++)
        ck_assert_uint_eq(data[i], (offset + i) % 251);
    seen[n_seen].n_bytes += size;
    seen[n_seen].last_offset = offset + size;
    return BERTH_OK;
}

static enum berth_code on_end(void *ctx, struct berth_error *err)
{
    (void)ctx;
    (void)err;
    seen[n_seen++].ended = true;
    return BERTH_OK;
}

static const struct tar_sink sink = {on_begin, on_data, on_end};

static enum berth_code read_tar(const uint8_t *tar, size_t size, size_t piece)
{
    BERTH_AUTO(tar_reader_free) struct tar_reader *reader = tar_reader_new(&sink, NULL);
    enum berth_code code = BERTH_OK;

    n_seen = 0;
    for (size_t at = 0; code == BERTH_OK && at < size; at += piece)
        code = tar_reader_feed(reader, tar + at, size - at < piece ? size - at : piece, NULL);
    return code ? code : tar_reader_end(reader, NULL);
}

/* ------------------------------------------------------------------------- a tar */

static uint8_t tar[1 << 20];
static size_t tar_size;

static void add(const struct tar_entry *entry)
{
    uint8_t *head;
    size_t size, stored = 0;
    const struct tar_part all = {0, entry->size};
    const struct tar_part *parts = entry->sparse ? entry->parts : &all;

    ck_assert_int_eq(tar_head(entry, &head, &size, NULL), BERTH_OK);
    memcpy(tar + tar_size, head, size);
    tar_size += size;
    free(head);
    for (size_t i = 0; entry->kind == TAR_FILE && i < (entry->sparse ? entry->n_parts : 1); i++)
        for (uint64_t at = 0; at < parts[i].size; at++, stored++)
            tar[tar_size++] = (uint8_t)((parts[i].offset + at) % 251);
    memset(tar + tar_size, 0, tar_padding(stored));
    tar_size += tar_padding(stored);
}

static char long_path[901], long_target[801];
static const struct tar_xattr xattrs[] = {{"user.a", (const uint8_t *)"v=\n1", 4}};
static const struct tar_part parts[] = {{100, 5}, {1LL << 39, 600}, {(1LL << 40) - 3, 2}};

static void make_tar(void)
{
    memset(long_path, 'p', sizeof long_path - 1);
    memset(long_target, 't', sizeof long_target - 1);
    tar_size = 0;
    add(&(struct tar_entry){TAR_DIR, ".", "", .mode = 01755, .mtime_s = 5});
    add(&(struct tar_entry){TAR_FILE, "f", "", 1000, 0640, .mtime_s = -2, .mtime_ns = 750000000,
                            .xattrs = xattrs, .n_xattrs = 1});
    add(&(struct tar_entry){TAR_FILE, long_path, "", 512, 0644, 1LL << 34, 1});
    add(&(struct tar_entry){TAR_SYMLINK, "l", long_target, .mode = 0777});
    add(&(struct tar_entry){TAR_HARDLINK, "h", "f", .mode = 0644});
    add(&(struct tar_entry){TAR_FILE, "s\xff", "", 1LL << 40, 0600, .sparse = true,
                            .parts = parts, .n_parts = 3});
    add(&(struct tar_entry){TAR_FILE, "hole", "", 4096, 0600, .sparse = true});
    memset(tar + tar_size, 0, TAR_END_SIZE);
    tar_size += TAR_END_SIZE;
}

static void check_seen(void)
{
    ck_assert_uint_eq(n_seen, 7);
    for (size_t i = 0; i < n_seen; i++)
        ck_assert(seen[i].ended);
    ck_assert_int_eq(seen[0].kind, TAR_DIR);
    ck_assert_uint_eq(seen[0].mode, 01755);
    ck_assert_uint_eq(seen[1].n_bytes, 1000);
    ck_assert_int_eq(seen[1].mtime_s, -2);
    ck_assert_uint_eq(seen[1].mtime_ns, 750000000);
    ck_assert_str_eq(seen[1].xattr, "user.a=v=\n1");
    ck_assert_str_eq(seen[2].path, long_path);
    ck_assert_int_eq(seen[2].mtime_s, 1LL << 34);
    ck_assert_uint_eq(seen[2].mtime_ns, 1);
    ck_assert_uint_eq(seen[2].n_xattrs, 0);
    ck_assert_str_eq(seen[3].target, long_target);
    ck_assert_int_eq(seen[4].kind, TAR_HARDLINK);
    ck_assert_str_eq(seen[4].target, "f");
    ck_assert_str_eq(seen[5].path, "s\xff");
    ck_assert_uint_eq(seen[5].size, 1LL << 40);
    ck_assert_uint_eq(seen[5].n_bytes, 607);
    ck_assert_uint_eq(seen[5].n_parts, 3);
    ck_assert_uint_eq(seen[5].last_offset, (1LL << 40) - 1);
    ck_assert_uint_eq(seen[6].size, 4096);
    ck_assert_uint_eq(seen[6].n_bytes, 0);
}

/* Whatever the pieces. */
START_TEST(read__written__same)
{
    static const size_t pieces[] = {1, 7, 511, 512, 513, 1 << 20};

    make_tar();
    for (size_t i = 0; i < BERTH_COUNT(pieces); i++) {
        ck_assert_int_eq(read_tar(tar, tar_size, pieces[i]), BERTH_OK);
        check_seen();
    }
}
END_TEST

/* Cut off anywhere but between two entries it is not a tar, nor is nothing. */
START_TEST(read__cut_off__refused)
{
    make_tar();
    ck_assert_int_eq(read_tar(tar, 0, 1), BERTH_INVALID_ARGUMENT);
    for (size_t size = 1; size < tar_size - TAR_END_SIZE; size += 37)
        if (read_tar(tar, size, 1 << 20) == BERTH_OK)
            ck_assert_uint_eq(size % TAR_BLOCK, 0);
    ck_assert_int_eq(read_tar(tar, tar_size - TAR_END_SIZE, 1 << 20), BERTH_OK);
}
END_TEST

/* One bad byte in a head: refused, or read as something; never out of bounds (sanitizers). */
START_TEST(read__spoilt__refused_or_read)
{
    make_tar();
    spoilt = true;
    for (size_t at = 0; at < tar_size; at += 3) {
        uint8_t was = tar[at];

        tar[at] ^= 0x55;
        (void)read_tar(tar, tar_size, 700);
        tar[at] = was;
    }
    memset(tar, 'x', 2048);
    ck_assert_int_eq(read_tar(tar, 2048, 512), BERTH_INVALID_ARGUMENT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tar");
    TCase *tcase = tcase_create("tar");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tcase, read__written__same);
    tcase_add_test(tcase, read__cut_off__refused);
    tcase_add_test(tcase, read__spoilt__refused_or_read);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

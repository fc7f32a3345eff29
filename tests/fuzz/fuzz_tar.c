/* A workspace as a tar: accepted when it is read to its end. Read in pieces of two sizes, which
 * must make no difference. */
#include "common/tar/tar.h"
#include "tests/fuzz/fuzz.h"

struct sum {
    uint64_t value, size, end;
    bool open;
};

static void mix(struct sum *sum, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        sum->value = (sum->value ^ ((const uint8_t *)data)[i]) * 1099511628211ULL;
}

static enum berth_code on_begin(void *ctx, const struct tar_entry *entry,
                                struct berth_error *err)
{
    struct sum *sum = ctx;

    (void)err;
    if (sum->open || entry->mode > 07777 || strlen(entry->path) > TAR_PATH_MAX)
        abort();
    sum->open = true;
    sum->size = entry->size;
    sum->end = 0;
    mix(sum, entry->path, strlen(entry->path));
    mix(sum, entry->target, strlen(entry->target));
    for (size_t i = 0; i < entry->n_xattrs; i++) {
        mix(sum, entry->xattrs[i].name, strlen(entry->xattrs[i].name));
        mix(sum, entry->xattrs[i].value, entry->xattrs[i].size);
    }
    return BERTH_OK;
}

static enum berth_code on_data(void *ctx, uint64_t offset, const uint8_t *data, size_t size,
                               struct berth_error *err)
{
    struct sum *sum = ctx;

    (void)err;
    /* In order, and inside of the file. */
    if (!sum->open || offset < sum->end || offset > sum->size || size > sum->size - offset)
        abort();
    sum->end = offset + size;
    mix(sum, data, size);
    return BERTH_OK;
}

static enum berth_code on_end(void *ctx, struct berth_error *err)
{
    struct sum *sum = ctx;

    (void)err;
    if (!sum->open)
        abort();
    sum->open = false;
    return BERTH_OK;
}

static const struct tar_sink sink = {on_begin, on_data, on_end};

static bool read_tar(const uint8_t *data, size_t size, size_t piece, struct sum *sum)
{
    BERTH_AUTO(tar_reader_free) struct tar_reader *reader = tar_reader_new(&sink, sum);
    enum berth_code code = reader ? BERTH_OK : BERTH_RESOURCE_EXHAUSTED;

    for (size_t at = 0; code == BERTH_OK && at < size; at += piece)
        code = tar_reader_feed(reader, data + at, size - at < piece ? size - at : piece, NULL);
    return code == BERTH_OK && tar_reader_end(reader, NULL) == BERTH_OK;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct sum whole = {0}, pieces = {0};
    bool good = read_tar(data, size, size ? size : 1, &whole);

    if (good != read_tar(data, size, 97, &pieces) || (good && whole.value != pieces.value))
        abort();
    return good;
}

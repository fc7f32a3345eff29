/* read.c - a tar as it comes in, piece by piece. Known are ustar, pax headers, GNU's long names
 * and sizes, and sparse files as written here. Old sparse forms are TAR_OTHER. */
#include "common/tar/format.h"
#include "common/tar/tar.h"

#define XATTR_KEY "SCHILY.xattr."

enum state { AT_HEADER, IN_META, IN_MAP, IN_DATA, IN_PADDING, AT_END };

struct tar_reader {
    const struct tar_sink *sink;
    void *ctx;
    enum state state;
    bool failed;
    bool begun; /* there was a byte */
    bool zeros; /* the block before was one of zeros */
    struct tar_header header;
    size_t header_size;

    /* An extended header, or the map of a sparse file, while it comes in. */
    char meta_type;
    char *meta; /* owned */
    size_t meta_size, meta_room;

    /* The entry that comes next. */
    char *path, *target; /* owned; NULL: not said */
    bool has_size, has_mtime, sparse;
    uint64_t size, real_size;
    int64_t mtime_s;
    uint32_t mtime_ns;
    char *xattr_bytes; /* owned: names with their NUL, and values */
    size_t xattr_size;
    struct tar_xattr xattrs[TAR_XATTRS_MAX];
    size_t n_xattrs;
    struct tar_part *parts; /* owned */
    size_t n_parts;

    enum tar_kind kind;
    uint64_t left;    /* bytes of content to come */
    size_t padding;   /* zeros behind it */
    size_t part;      /* of parts, where the content is */
    uint64_t part_at; /* bytes of it that were there */
    uint64_t at;      /* offset in a file that is not sparse */
};

static enum berth_code bad(struct berth_error *err, const char *why)
{
    return berth_fail_field(err, "tar", "%s", why);
}

static void forget_entry(struct tar_reader *r)
{
    free(r->path);
    free(r->target);
    free(r->xattr_bytes);
    free(r->parts);
    r->path = r->target = r->xattr_bytes = NULL;
    r->parts = NULL;
    r->has_size = r->has_mtime = r->sparse = false;
    r->size = r->real_size = 0;
    r->xattr_size = r->n_xattrs = r->n_parts = 0;
    r->mtime_s = 0;
    r->mtime_ns = 0;
}

struct tar_reader *tar_reader_new(const struct tar_sink *sink, void *ctx)
{
    struct tar_reader *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->sink = sink;
    r->ctx = ctx;
    return r;
}

struct tar_reader *tar_reader_free(struct tar_reader *r)
{
    if (!r)
        return NULL;
    forget_entry(r);
    free(r->meta);
    free(r);
    return NULL;
}

/* ----------------------------------------------------------------------- numbers */

/* Octal, or GNU's binary form for what is larger. */
static bool read_number(const char *field, size_t size, uint64_t *ret)
{
    uint64_t value = 0;
    size_t i = 0;

    if ((uint8_t)field[0] == 0x80) {
        for (i = 1; i < size; i++) {
            if (value >> 56)
                return false;
            value = value << 8 | (uint8_t)field[i];
        }
        *ret = value;
        return value <= INT64_MAX;
    }
    while (i < size && field[i] == ' ')
        i++;
    for (; i < size && field[i] >= '0' && field[i] <= '7'; i++) {
        if (value >> 60)
            return false;
        value = value << 3 | (uint64_t)(field[i] - '0');
    }
    for (; i < size; i++)
        if (field[i] != ' ' && field[i] != 0)
            return false;
    *ret = value;
    return value <= INT64_MAX;
}

/* Decimal digits up to end or stop; *at is moved behind them. */
static bool read_decimal(const char **at, const char *end, uint64_t *ret)
{
    uint64_t value = 0;
    const char *begin = *at;

    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++) {
        if (value > (INT64_MAX - 9) / 10)
            return false;
        value = 10 * value + (uint64_t)(**at - '0');
    }
    *ret = value;
    return *at > begin;
}

static bool whole_decimal(const char *value, size_t size, uint64_t *ret)
{
    const char *at = value;

    return read_decimal(&at, value + size, ret) && at == value + size;
}

static bool read_time(const char *value, size_t size, int64_t *ret_s, uint32_t *ret_ns)
{
    const char *at = value, *end = value + size;
    bool negative = size > 0 && *at == '-';
    uint64_t s;
    uint32_t ns = 0, unit = 100000000;

    at += negative;
    if (!read_decimal(&at, end, &s))
        return false;
    if (at < end && *at == '.')
        for (at++; at < end && *at >= '0' && *at <= '9'; at++, unit /= 10)
            ns += unit * (uint32_t)(*at - '0');
    if (at != end)
        return false;
    *ret_s = negative ? -(int64_t)s : (int64_t)s;
    if (negative && ns > 0) {
        (*ret_s)--;
        ns = 1000000000 - ns;
    }
    *ret_ns = ns;
    return true;
}

/* --------------------------------------------------------------- extended headers */

static enum berth_code set_string(char **slot, const char *value, size_t size,
                                  struct berth_error *err)
{
    char *copy;

    if (size > TAR_PATH_MAX)
        return bad(err, "a name is too long");
    if (memchr(value, 0, size))
        return bad(err, "a name with a NUL");
    copy = strndup(value, size);
    if (!copy)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    free(*slot);
    *slot = copy;
    return BERTH_OK;
}

static enum berth_code add_xattr(struct tar_reader *r, const char *name, size_t name_size,
                                 const char *value, size_t size, struct berth_error *err)
{
    struct tar_xattr *xattr = &r->xattrs[r->n_xattrs];

    if (name_size < 6 || memcmp(name, "user.", 5) != 0 || memchr(name, 0, name_size))
        return BERTH_OK; /* of the kernel, or of somebody else's machine */
    if (r->n_xattrs == TAR_XATTRS_MAX || name_size + 1 + size > TAR_XATTR_BYTES - r->xattr_size)
        return bad(err, "too many attributes");
    if (!r->xattr_bytes)
        r->xattr_bytes = malloc(TAR_XATTR_BYTES);
    if (!r->xattr_bytes)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    xattr->name = r->xattr_bytes + r->xattr_size;
    memcpy(r->xattr_bytes + r->xattr_size, name, name_size);
    r->xattr_bytes[r->xattr_size + name_size] = 0;
    r->xattr_size += name_size + 1;
    xattr->value = (const uint8_t *)r->xattr_bytes + r->xattr_size;
    xattr->size = size;
    if (size > 0)
        memcpy(r->xattr_bytes + r->xattr_size, value, size);
    r->xattr_size += size;
    r->n_xattrs++;
    return BERTH_OK;
}

static bool is(const char *key, size_t size, const char *name)
{
    return size == strlen(name) && memcmp(key, name, size) == 0;
}

static enum berth_code take_record(struct tar_reader *r, const char *key, size_t key_size,
                                   const char *value, size_t size, struct berth_error *err)
{
    const size_t prefix = strlen(XATTR_KEY);
    uint64_t number;

    if (is(key, key_size, "path"))
        return r->sparse ? BERTH_OK : set_string(&r->path, value, size, err);
    if (is(key, key_size, "linkpath"))
        return set_string(&r->target, value, size, err);
    if (is(key, key_size, "GNU.sparse.name"))
        return set_string(&r->path, value, size, err);
    if (is(key, key_size, "mtime")) {
        r->has_mtime = read_time(value, size, &r->mtime_s, &r->mtime_ns);
        return r->has_mtime ? BERTH_OK : bad(err, "a time that is none");
    }
    if (is(key, key_size, "size")) {
        r->has_size = whole_decimal(value, size, &r->size);
        return r->has_size ? BERTH_OK : bad(err, "a size that is none");
    }
    if (is(key, key_size, "GNU.sparse.realsize"))
        return whole_decimal(value, size, &r->real_size) ? BERTH_OK
                                                         : bad(err, "a size that is none");
    if (is(key, key_size, "GNU.sparse.major")) {
        if (!whole_decimal(value, size, &number) || number != 1)
            return bad(err, "a sparse file of another version");
        r->sparse = true;
        return BERTH_OK;
    }
    if (is(key, key_size, "GNU.sparse.map") || is(key, key_size, "GNU.sparse.numblocks"))
        return bad(err, "a sparse file of an old version");
    if (key_size > prefix && memcmp(key, XATTR_KEY, prefix) == 0)
        return add_xattr(r, key + prefix, key_size - prefix, value, size, err);
    return BERTH_OK;
}

static enum berth_code take_pax(struct tar_reader *r, struct berth_error *err)
{
    const char *at = r->meta, *end = at + r->meta_size;

    while (at < end) {
        const char *begin = at, *key, *equals;
        uint64_t len;
        enum berth_code code;

        if (!read_decimal(&at, end, &len) || at == end || *at != ' ' ||
            len > (uint64_t)(end - begin) || begin + len <= at + 1 || begin[len - 1] != '\n')
            return bad(err, "an extended header that cannot be read");
        key = at + 1;
        at = begin + len;
        equals = memchr(key, '=', (size_t)(at - key));
        if (!equals)
            return bad(err, "an extended header that cannot be read");
        code = take_record(r, key, (size_t)(equals - key), equals + 1,
                           (size_t)(at - 1 - (equals + 1)), err);
        if (code)
            return code;
    }
    return BERTH_OK;
}

/* ------------------------------------------------------------------------- entries */

static enum berth_code begin_entry(struct tar_reader *r, struct berth_error *err)
{
    uint64_t mode, mtime;
    struct tar_entry entry = {.kind = r->kind,
                              .path = r->path,
                              .target = r->target ? r->target : "",
                              .size = r->sparse ? r->real_size : r->size,
                              .mtime_s = r->mtime_s,
                              .mtime_ns = r->mtime_ns,
                              .xattrs = r->xattrs,
                              .n_xattrs = r->n_xattrs,
                              .sparse = r->sparse,
                              .parts = r->parts,
                              .n_parts = r->n_parts};

    if (!read_number(r->header.mode, sizeof r->header.mode, &mode) ||
        !read_number(r->header.mtime, sizeof r->header.mtime, &mtime))
        return bad(err, "a header that cannot be read");
    entry.mode = mode & 07777;
    if (!r->has_mtime)
        entry.mtime_s = (int64_t)mtime;
    if (r->kind != TAR_FILE)
        entry.size = 0;
    r->part = 0;
    r->part_at = r->at = 0;
    return r->sink->begin(r->ctx, &entry, err);
}

static enum berth_code end_entry(struct tar_reader *r, struct berth_error *err)
{
    enum berth_code code = r->sink->end(r->ctx, err);

    forget_entry(r);
    r->state = r->padding > 0 ? IN_PADDING : AT_HEADER;
    return code;
}

/* Offset and size of each piece, as decimal lines; what is stored must be what they are. */
static enum berth_code take_map(struct tar_reader *r, const char *at, const char *end,
                                struct berth_error *err)
{
    uint64_t n, sum = 0, last = 0;

    if (!read_decimal(&at, end, &n) || at == end || *at++ != '\n' || n > TAR_PARTS_MAX + 1)
        return bad(err, "a map of a sparse file that cannot be read");
    r->parts = calloc(n + 1, sizeof *r->parts);
    if (!r->parts)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (uint64_t i = 0; i < n; i++) {
        struct tar_part part;

        if (!read_decimal(&at, end, &part.offset) || at == end || *at++ != '\n' ||
            !read_decimal(&at, end, &part.size) || at == end || *at++ != '\n' ||
            part.offset < last || part.offset > r->real_size ||
            part.size > r->real_size - part.offset)
            return bad(err, "a map of a sparse file that cannot be read");
        last = part.offset + part.size;
        sum += part.size;
        if (part.size > 0)
            r->parts[r->n_parts++] = part;
    }
    return sum == r->left ? BERTH_OK : bad(err, "a sparse file that is not as its map says");
}

/* How many lines the map has is in its first one; it ends with a block. */
static bool map_is_whole(const struct tar_reader *r)
{
    const char *at = r->meta, *end = at + r->meta_size;
    uint64_t n;

    if (!read_decimal(&at, end, &n) || at == end)
        return r->meta_size >= TAR_BLOCK; /* none at all: take_map() says so */
    at++;
    for (uint64_t lines = 0; lines < 2 * n; lines++) {
        at = memchr(at, '\n', (size_t)(end - at));
        if (!at)
            return false;
        at++;
    }
    return true;
}

static enum berth_code content_follows(struct tar_reader *r, struct berth_error *err)
{
    enum berth_code code;

    r->state = IN_DATA;
    code = begin_entry(r, err);
    if (code || r->left > 0)
        return code;
    return end_entry(r, err);
}

static enum tar_kind kind_of(char type)
{
    switch (type) {
    case '0':
    case 0:
    case '7':
        return TAR_FILE;
    case '1':
        return TAR_HARDLINK;
    case '2':
        return TAR_SYMLINK;
    case '5':
        return TAR_DIR;
    default:
        return TAR_OTHER;
    }
}

/* The names of the header itself, where nothing longer was said. */
static enum berth_code take_names(struct tar_reader *r, struct berth_error *err)
{
    const struct tar_header *h = &r->header;
    enum berth_code code = BERTH_OK;
    char joined[sizeof h->prefix + 1 + sizeof h->name];
    size_t size = 0;

    if (!r->target)
        code = set_string(&r->target, h->link, strnlen(h->link, sizeof h->link), err);
    if (code || r->path)
        return code;
    if (memcmp(h->magic, "ustar", 6) == 0 && h->prefix[0]) {
        size = strnlen(h->prefix, sizeof h->prefix);
        memcpy(joined, h->prefix, size);
        joined[size++] = '/';
    }
    memcpy(joined + size, h->name, strnlen(h->name, sizeof h->name));
    return set_string(&r->path, joined, size + strnlen(h->name, sizeof h->name), err);
}

static enum berth_code begin_meta(struct tar_reader *r, char type, uint64_t size,
                                  struct berth_error *err)
{
    if (size > TAR_META_MAX)
        return bad(err, "an extended header is too long");
    r->meta_type = type;
    r->meta_size = 0;
    r->left = size;
    r->padding = tar_padding(size);
    r->state = IN_META;
    return BERTH_OK;
}

static enum berth_code take_meta(struct tar_reader *r, struct berth_error *err)
{
    r->state = r->padding > 0 ? IN_PADDING : AT_HEADER;
    switch (r->meta_type) {
    case 'x':
        return take_pax(r, err);
    case 'L':
        if (r->meta_size == 0)
            return bad(err, "a name is empty");
        return set_string(&r->path, r->meta, strnlen(r->meta, r->meta_size), err);
    case 'K':
        if (r->meta_size == 0)
            return bad(err, "a name is empty");
        return set_string(&r->target, r->meta, strnlen(r->meta, r->meta_size), err);
    default: /* 'g': of all that follow; nothing in it matters here */
        return BERTH_OK;
    }
}

static bool all_zeros(const struct tar_header *header)
{
    static const struct tar_header zeros;

    return memcmp(header, &zeros, sizeof zeros) == 0;
}

static enum berth_code take_header(struct tar_reader *r, struct berth_error *err)
{
    const struct tar_header *h = &r->header;
    uint64_t sum, size;
    enum berth_code code;

    r->header_size = 0;
    if (all_zeros(h)) {
        if (r->path || r->n_xattrs > 0)
            return bad(err, "an extended header without its entry");
        if (r->zeros)
            r->state = AT_END;
        r->zeros = true;
        return BERTH_OK;
    }
    r->zeros = false;
    if (!read_number(h->checksum, sizeof h->checksum, &sum) || sum != tar_checksum(h) ||
        !read_number(h->size, sizeof h->size, &size))
        return bad(err, "not a header of a tar");
    if (h->type == 'x' || h->type == 'g' || h->type == 'L' || h->type == 'K') {
        code = begin_meta(r, h->type, size, err);
        return code || r->left > 0 ? code : take_meta(r, err);
    }
    if (!r->has_size)
        r->size = size;
    r->kind = kind_of(h->type);
    code = take_names(r, err);
    if (code)
        return code;
    /* Old tars name a directory by the '/' at its end. */
    if (r->kind == TAR_FILE && r->path[0] && r->path[strlen(r->path) - 1] == '/')
        r->kind = TAR_DIR;
    /* Links may name a size and bring nothing; a directory's is of no use. */
    r->left = r->kind == TAR_FILE || r->kind == TAR_OTHER ? r->size : 0;
    if (h->type == '3' || h->type == '4' || h->type == '6')
        r->left = 0;
    r->padding = tar_padding(r->left);
    r->sparse = r->sparse && r->kind == TAR_FILE;
    if (!r->sparse)
        return content_follows(r, err);
    if (r->left % TAR_BLOCK && r->left < TAR_BLOCK)
        return bad(err, "a sparse file without its map");
    r->meta_size = 0;
    r->state = IN_MAP;
    return BERTH_OK;
}

/* --------------------------------------------------------------------------- feed */

static enum berth_code keep_meta(struct tar_reader *r, const uint8_t *data, size_t size,
                                 struct berth_error *err)
{
    if (size > r->meta_room - r->meta_size) {
        size_t room = 2 * (r->meta_size + size);
        char *grown =
            r->meta_size + size > TAR_META_MAX + TAR_BLOCK ? NULL : realloc(r->meta, room);

        if (!grown)
            return bad(err, "an extended header is too long");
        r->meta = grown;
        r->meta_room = room;
    }
    memcpy(r->meta + r->meta_size, data, size);
    r->meta_size += size;
    r->left -= size;
    return BERTH_OK;
}

/* As much of the content as lies in one piece. Returns how much that was. */
static size_t give_data(struct tar_reader *r, const uint8_t *data, size_t size,
                        enum berth_code *ret_code, struct berth_error *err)
{
    uint64_t offset = r->at;

    if (r->sparse) {
        const struct tar_part *part = &r->parts[r->part];

        if (size > part->size - r->part_at)
            size = (size_t)(part->size - r->part_at);
        offset = part->offset + r->part_at;
        r->part_at += size;
        if (r->part_at == part->size) {
            r->part++;
            r->part_at = 0;
        }
    }
    r->at += size;
    r->left -= size;
    *ret_code = r->kind == TAR_FILE ? r->sink->data(r->ctx, offset, data, size, err) : BERTH_OK;
    if (*ret_code == BERTH_OK && r->left == 0)
        *ret_code = end_entry(r, err);
    return size;
}

static size_t least(size_t a, uint64_t b)
{
    return a < b ? a : (size_t)b;
}

static size_t feed_some(struct tar_reader *r, const uint8_t *data, size_t size,
                        enum berth_code *ret_code, struct berth_error *err)
{
    size_t n = size;

    switch (r->state) {
    case AT_HEADER:
        n = least(n, TAR_BLOCK - r->header_size);
        memcpy((uint8_t *)&r->header + r->header_size, data, n);
        r->header_size += n;
        if (r->header_size == TAR_BLOCK)
            *ret_code = take_header(r, err);
        return n;
    case IN_META:
        n = least(n, r->left);
        *ret_code = keep_meta(r, data, n, err);
        if (*ret_code == BERTH_OK && r->left == 0)
            *ret_code = take_meta(r, err);
        return n;
    case IN_MAP:
        n = least(least(n, TAR_BLOCK - r->meta_size % TAR_BLOCK), r->left);
        if (n == 0) {
            *ret_code = bad(err, "a map of a sparse file that cannot be read");
            return size;
        }
        *ret_code = keep_meta(r, data, n, err);
        if (*ret_code == BERTH_OK && r->meta_size % TAR_BLOCK == 0 && map_is_whole(r)) {
            *ret_code = take_map(r, r->meta, r->meta + r->meta_size, err);
            if (*ret_code == BERTH_OK)
                *ret_code = content_follows(r, err);
        }
        return n;
    case IN_DATA:
        return give_data(r, data, least(n, r->left), ret_code, err);
    case IN_PADDING:
        n = least(n, r->padding);
        r->padding -= n;
        if (r->padding == 0)
            r->state = AT_HEADER;
        return n;
    case AT_END: /* what is behind the end is nobody's */
        return n;
    }
    return n;
}

enum berth_code tar_reader_feed(struct tar_reader *r, const uint8_t *data, size_t size,
                                struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    if (r->failed)
        return bad(err, "it has failed before");
    r->begun = r->begun || size > 0;
    while (size > 0 && code == BERTH_OK) {
        size_t n = feed_some(r, data, size, &code, err);

        data += n;
        size -= n;
    }
    r->failed = code != BERTH_OK;
    return code;
}

enum berth_code tar_reader_end(struct tar_reader *r, struct berth_error *err)
{
    if (!r->begun)
        return bad(err, "it is empty");
    if (r->failed || (r->state != AT_END && (r->state != AT_HEADER || r->header_size > 0 ||
                                             r->path || r->n_xattrs > 0)))
        return bad(err, "it is cut off");
    return BERTH_OK;
}

#include "common/journal/frame.h"

static const char head_magic[JOURNAL_MAGIC_SIZE + 1] = "berth-journal 1\n";
static const uint8_t frame_magic[4] = {0xb1, 'J', 'R', 'N'};

enum { VERSION = 1, FLAG_DELETED = 1, ENTRY_HEAD = 12, PLAIN_MAX = 16 << 20 };

/* --------------------------------------------------------------------- numbers */

static void put(uint8_t *to, uint64_t value, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        to[i] = (uint8_t)(value >> (8 * (n_bytes - 1 - i)));
}

static uint64_t take(const uint8_t *from, size_t n_bytes)
{
    uint64_t value = 0;

    for (size_t i = 0; i < n_bytes; i++)
        value = value << 8 | from[i];
    return value;
}

/* ------------------------------------------------------------------------ head */

void journal_head_write(uint8_t ret[JOURNAL_HEAD_SIZE], const struct journal_head *head)
{
    size_t len = strnlen(head->deployment, JOURNAL_DEPLOYMENT_SIZE);

    memset(ret, 0, JOURNAL_HEAD_SIZE);
    memcpy(ret, head_magic, JOURNAL_MAGIC_SIZE);
    memcpy(ret + JOURNAL_MAGIC_SIZE, head->id, JOURNAL_ID_SIZE);
    put(ret + JOURNAL_MAGIC_SIZE + JOURNAL_ID_SIZE, head->base, JOURNAL_BASE_SIZE);
    memcpy(ret + JOURNAL_HEAD_SIZE - JOURNAL_DEPLOYMENT_SIZE, head->deployment, len);
}

bool journal_head_read(const uint8_t *data, size_t size, struct journal_head *ret)
{
    const char *deployment;
    size_t len;

    if (size < JOURNAL_HEAD_SIZE || memcmp(data, head_magic, JOURNAL_MAGIC_SIZE) != 0)
        return false;
    deployment = (const char *)data + JOURNAL_HEAD_SIZE - JOURNAL_DEPLOYMENT_SIZE;
    len = strnlen(deployment, JOURNAL_DEPLOYMENT_SIZE);
    for (size_t i = len; i < JOURNAL_DEPLOYMENT_SIZE; i++)
        if (deployment[i])
            return false;
    memcpy(ret->id, data + JOURNAL_MAGIC_SIZE, JOURNAL_ID_SIZE);
    ret->base = take(data + JOURNAL_MAGIC_SIZE + JOURNAL_ID_SIZE, JOURNAL_BASE_SIZE);
    memcpy(ret->deployment, deployment, len);
    ret->deployment[len] = 0;
    return true;
}

/* ----------------------------------------------------------------------- entry */

uint8_t *journal_entry_write(const struct journal_entry *entry, size_t *ret_size)
{
    size_t size = ENTRY_HEAD + entry->key_size + entry->doc_size;
    uint8_t *plain;

    if (entry->key_size == 0 || entry->key_size > JOURNAL_KEY_MAX ||
        entry->doc_size > PLAIN_MAX - ENTRY_HEAD - JOURNAL_KEY_MAX)
        return NULL;
    plain = malloc(size);
    if (!plain)
        return NULL;
    plain[0] = VERSION;
    plain[1] = entry->deleted ? FLAG_DELETED : 0;
    put(plain + 2, (uint64_t)entry->time_ms, 8);
    put(plain + 10, entry->key_size, 2);
    memcpy(plain + ENTRY_HEAD, entry->key, entry->key_size);
    if (entry->doc_size > 0)
        memcpy(plain + ENTRY_HEAD + entry->key_size, entry->doc, entry->doc_size);
    *ret_size = size;
    return plain;
}

bool journal_entry_read(const uint8_t *plain, size_t size, struct journal_entry *ret)
{
    size_t key_size;

    if (size < ENTRY_HEAD || plain[0] != VERSION || (plain[1] & ~FLAG_DELETED))
        return false;
    key_size = (size_t)take(plain + 10, 2);
    if (key_size == 0 || key_size > JOURNAL_KEY_MAX || size - ENTRY_HEAD < key_size ||
        memchr(plain + ENTRY_HEAD, 0, key_size))
        return false;
    *ret = (struct journal_entry){
        .deleted = plain[1] & FLAG_DELETED,
        .time_ms = (int64_t)take(plain + 2, 8),
        .key = (const char *)plain + ENTRY_HEAD,
        .key_size = key_size,
        .doc = plain + ENTRY_HEAD + key_size,
        .doc_size = size - ENTRY_HEAD - key_size,
    };
    return ret->time_ms >= 0 && (!ret->deleted || ret->doc_size == 0);
}

/* -------------------------------------------------------------------- document */

static bool left_out(const struct berth_doc_field *field, bool (*skip)(const char *field))
{
    return skip && skip(field->name);
}

uint8_t *journal_doc_write(const struct berth_doc *doc, bool (*skip)(const char *field),
                           size_t *ret_size)
{
    size_t size = 4, n = 0;
    uint8_t *data, *at;

    for (size_t i = 0; i < doc->n_fields; i++) {
        size_t len = strlen(doc->fields[i].name);

        if (left_out(&doc->fields[i], skip))
            continue;
        if (len > UINT16_MAX || doc->fields[i].size > PLAIN_MAX)
            return NULL;
        size += 2 + len + 4 + doc->fields[i].size;
        n++;
    }
    if (n > JOURNAL_FIELDS_MAX || size > PLAIN_MAX)
        return NULL;
    data = malloc(size);
    if (!data)
        return NULL;
    put(data, n, 4);
    at = data + 4;
    for (size_t i = 0; i < doc->n_fields; i++) {
        const struct berth_doc_field *field = &doc->fields[i];
        size_t len = strlen(field->name);

        if (left_out(field, skip))
            continue;
        put(at, len, 2);
        memcpy(at + 2, field->name, len);
        at += 2 + len;
        put(at, field->size, 4);
        memcpy(at + 4, field->value, field->size);
        at += 4 + field->size;
    }
    *ret_size = size;
    return data;
}

/* The length of what follows at *at, which is moved behind the length; false: there is not so
 * much. */
static bool take_length(const uint8_t *data, size_t size, size_t n_bytes, size_t *at,
                        size_t *ret)
{
    if (size - *at < n_bytes)
        return false;
    *ret = (size_t)take(data + *at, n_bytes);
    *at += n_bytes;
    return *ret <= size - *at;
}

static char *copy(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (text) {
        memcpy(text, data, size);
        text[size] = 0;
    }
    return text;
}

static enum berth_code bad_doc(struct berth_doc *doc, struct berth_error *err)
{
    berth_doc_deinit(doc);
    return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "a document of the journal is not one");
}

enum berth_code journal_doc_read(const uint8_t *data, size_t size, struct berth_doc *ret,
                                 struct berth_error *err)
{
    struct berth_doc doc = {.exists = true};
    size_t n = size < 4 ? SIZE_MAX : (size_t)take(data, 4), at = 4;

    /* A field takes at least six bytes: nothing is asked for that is not there. */
    if (n > JOURNAL_FIELDS_MAX || n > (size - 4) / 6)
        return bad_doc(&doc, err);
    doc.fields = calloc(n + 1, sizeof *doc.fields);
    if (!doc.fields)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (size_t i = 0; i < n; i++) {
        struct berth_doc_field *field = &doc.fields[i];
        size_t len;

        if (!take_length(data, size, 2, &at, &len) || memchr(data + at, 0, len))
            return bad_doc(&doc, err);
        doc.n_fields = i + 1;
        field->name = copy(data + at, len);
        at += len;
        if (!take_length(data, size, 4, &at, &field->size))
            return bad_doc(&doc, err);
        field->value = copy(data + at, field->size);
        at += field->size;
        if (!field->name || !field->value) {
            berth_doc_deinit(&doc);
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        }
    }
    if (at != size)
        return bad_doc(&doc, err);
    *ret = doc;
    return BERTH_OK;
}

/* ------------------------------------------------------------------------ scan */

void journal_frame_head_write(uint8_t ret[JOURNAL_FRAME_HEAD], size_t sealed_size,
                              uint64_t sequence)
{
    memcpy(ret, frame_magic, sizeof frame_magic);
    put(ret + 4, sealed_size, 4);
    put(ret + 8, sequence, 8);
}

/* What looks like a frame at offset. */
static bool read_frame(const uint8_t *data, size_t size, size_t offset,
                       struct journal_frame *ret)
{
    size_t len;

    if (size - offset < JOURNAL_FRAME_HEAD ||
        memcmp(data + offset, frame_magic, sizeof frame_magic) != 0)
        return false;
    len = (size_t)take(data + offset + 4, 4);
    if (len == 0 || len > JOURNAL_SEALED_MAX || len > size - offset - JOURNAL_FRAME_HEAD)
        return false;
    *ret = (struct journal_frame){
        .offset = offset,
        .sequence = take(data + offset + 8, 8),
        .sealed = data + offset + JOURNAL_FRAME_HEAD,
        .sealed_size = len,
    };
    return true;
}

struct scan {
    const uint8_t *data;
    size_t size;
    const struct journal_reader *reader;
    struct journal_scan *out;
};

/* A frame at offset that its seal vouches for: its entry is handed on. */
static enum journal_opened try_frame(struct scan *s, size_t offset, bool any_later,
                                     struct journal_frame *frame)
{
    uint64_t next = s->out->sequence + 1;
    struct journal_entry entry;
    uint8_t *plain = NULL;
    size_t plain_size = 0;
    enum journal_opened opened = JOURNAL_CHANGED;

    if (!read_frame(s->data, s->size, offset, frame) ||
        (any_later ? frame->sequence < next : frame->sequence != next))
        return JOURNAL_CHANGED;
    opened = s->reader->open(s->reader->arg, frame, &plain, &plain_size);
    if (opened == JOURNAL_OPENED && !journal_entry_read(plain, plain_size, &entry))
        opened = JOURNAL_CHANGED;
    if (opened == JOURNAL_OPENED && !s->reader->entry(s->reader->arg, frame, &entry))
        opened = JOURNAL_NO_MEMORY;
    free(plain);
    return opened;
}

static void accept(struct scan *s, const struct journal_frame *frame)
{
    s->out->sequence = frame->sequence;
    s->out->end = frame->offset + JOURNAL_FRAME_HEAD + frame->sealed_size;
    s->out->n_frames++;
}

/* The next good frame from here on, which may be here if some are missing before it; false:
 * there is none, so these bytes are a torn tail. */
static bool find_next(struct scan *s, size_t from, struct journal_frame *frame)
{
    for (size_t at = from; s->size - at >= JOURNAL_FRAME_HEAD; at++) {
        const uint8_t *hit =
            memmem(s->data + at, s->size - at, frame_magic, sizeof frame_magic);

        if (!hit)
            return false;
        at = (size_t)(hit - s->data);
        if (try_frame(s, at, true, frame) == JOURNAL_OPENED)
            return true;
    }
    return false;
}

/* Was what begins here never written out? A crash leaves a frame short, or zeros where its end
 * should be. One that is all there and that nobody vouches for is another thing: it may have
 * been answered for, and been damaged since, or its key was swapped for another of that id. */
static bool is_torn(const struct scan *s, size_t at)
{
    static const uint8_t zeros[16]; /* the tag of AES-GCM stands last */
    struct journal_frame frame;
    size_t n;

    if (!read_frame(s->data, s->size, at, &frame))
        return true;
    n = frame.sealed_size < sizeof zeros ? frame.sealed_size : sizeof zeros;
    return memcmp(frame.sealed + frame.sealed_size - n, zeros, n) == 0;
}

static void stop(struct scan *s, enum journal_state state, size_t at)
{
    s->out->state = state;
    s->out->at = at;
}

void journal_scan(const uint8_t *data, size_t size, uint64_t base,
                  const struct journal_reader *reader, bool skip, struct journal_scan *ret)
{
    struct scan s = {data, size, reader, ret};
    size_t at = JOURNAL_HEAD_SIZE;
    struct journal_frame frame;

    *ret = (struct journal_scan){.state = JOURNAL_WHOLE, .end = at, .sequence = base};
    while (at < size) {
        switch (try_frame(&s, at, false, &frame)) {
        case JOURNAL_OPENED:
            break;
        case JOURNAL_NO_KEY:
            stop(&s, JOURNAL_LOCKED, at);
            return;
        case JOURNAL_NO_MEMORY:
            stop(&s, JOURNAL_FAILED, at);
            return;
        case JOURNAL_CHANGED:
            if (!find_next(&s, at, &frame)) {
                bool torn = is_torn(&s, at);

                ret->n_damages += !torn;
                ret->lost_bytes += torn ? 0 : size - at;
                stop(&s, torn || skip ? JOURNAL_TORN : JOURNAL_DAMAGED, at);
                return;
            }
            ret->n_damages++;
            ret->lost_bytes += frame.offset - at;
            if (!skip) {
                stop(&s, JOURNAL_DAMAGED, at);
                return;
            }
            break;
        }
        accept(&s, &frame);
        at = ret->end;
    }
}

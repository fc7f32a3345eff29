/* guard.c - what stands between bytes from outside and protobuf-c.
 *
 * protobuf-c recurses without a limit, copies strings without looking at them, and can be made
 * to allocate many times the size of its input. The scan walks the wire format once,
 * iteratively and guided by the schema; unpacking then runs on a budget. */
#include <stdbool.h>

#include "common/rpc/buf.h"

enum {
    ALLOCATION_OVERHEAD = 16,        /* counted for each allocation */
    BUDGET_FACTOR = 16,              /* times the size of the message, plus */
    BUDGET_FLOOR_BYTES = 256 * 1024, /* for small messages */
    VARINT_BYTES_MAX = 10,
    FIELD_NUMBER_MAX = 0x1fffffff,
    WIRE_VARINT = 0,
    WIRE_64_BIT = 1,
    WIRE_BYTES = 2,
    WIRE_32_BIT = 5,
};

struct level { /* one message being scanned, inside of the one below it */
    const ProtobufCMessageDescriptor *type;
    const uint8_t *end;
    const char *name; /* of the field that holds it; NULL: the outermost */
};

static bool read_varint(const uint8_t **at, const uint8_t *end, uint64_t *ret)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < VARINT_BYTES_MAX && *at < end; i++) {
        uint8_t byte = *(*at)++;

        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80)) {
            *ret = value;
            return true;
        }
    }
    return false;
}

/* The number of bytes of one well-formed character that is not NUL; 0: there is none. */
static size_t utf8_char(const uint8_t *s, size_t size)
{
    uint32_t point, least;
    size_t n;

    if (s[0] < 0x80)
        return s[0] != 0;
    if ((s[0] & 0xe0) == 0xc0) {
        n = 2;
        point = s[0] & 0x1f;
        least = 0x80;
    } else if ((s[0] & 0xf0) == 0xe0) {
        n = 3;
        point = s[0] & 0x0f;
        least = 0x800;
    } else if ((s[0] & 0xf8) == 0xf0) {
        n = 4;
        point = s[0] & 0x07;
        least = 0x10000;
    } else {
        return 0;
    }
    if (size < n)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        point = point << 6 | (s[i] & 0x3f);
    }
    return point < least || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff) ? 0 : n;
}

static bool text_ok(const uint8_t *s, size_t size)
{
    for (size_t n; size > 0; s += n, size -= n) {
        n = utf8_char(s, size);
        if (n == 0)
            return false;
    }
    return true;
}

static enum berth_code fail_malformed(struct berth_error *err,
                                      const ProtobufCMessageDescriptor *type)
{
    return berth_fail(err, BERTH_REASON_FIELD_INVALID, "not a well-formed %s", type->name);
}

/* FIELD_INVALID naming the whole path, "session.tenant_id". */
static enum berth_code fail_text(struct berth_error *err, const struct level *levels,
                                 unsigned depth, const char *name)
{
    char path[sizeof err->field] = "";
    size_t len = 0;

    for (unsigned i = 1; i <= depth + 1; i++) {
        const char *part = i <= depth ? levels[i].name : name;
        size_t part_len = strlen(part);

        if (len + part_len + 2 > sizeof path)
            break;
        if (len)
            path[len++] = '.';
        memcpy(path + len, part, part_len + 1);
        len += part_len;
    }
    return berth_fail_field(err, path, "UTF-8 text without NUL characters");
}

enum berth_code rpc_guard_scan(const ProtobufCMessageDescriptor *type, const uint8_t *data,
                               size_t size, struct berth_error *err)
{
    struct level levels[BERTH_RPC_DEPTH_MAX] = {{.type = type, .end = data + size}};
    unsigned depth = 0;
    size_t n_records = 0;
    const uint8_t *at = data;

    for (;;) {
        const struct level *level = &levels[depth];
        const ProtobufCFieldDescriptor *field;
        uint64_t key, value;

        if (at == level->end) {
            if (depth == 0)
                return BERTH_OK;
            depth--;
            continue;
        }
        if (++n_records > BERTH_RPC_FIELDS_MAX)
            return berth_fail(err, BERTH_REASON_MESSAGE_TOO_LARGE,
                              "%s: more than %d values in one message", type->name,
                              BERTH_RPC_FIELDS_MAX);
        if (!read_varint(&at, level->end, &key) || key >> 3 == 0 || key >> 3 > FIELD_NUMBER_MAX)
            return fail_malformed(err, type);
        switch (key & 7) {
        case WIRE_VARINT:
            if (!read_varint(&at, level->end, &value))
                return fail_malformed(err, type);
            continue;
        case WIRE_64_BIT:
            if (level->end - at < 8)
                return fail_malformed(err, type);
            at += 8;
            continue;
        case WIRE_32_BIT:
            if (level->end - at < 4)
                return fail_malformed(err, type);
            at += 4;
            continue;
        case WIRE_BYTES:
            break;
        default: /* groups: protobuf-c does not know them either */
            return fail_malformed(err, type);
        }
        if (!read_varint(&at, level->end, &value) || value > (uint64_t)(level->end - at))
            return fail_malformed(err, type);
        field = protobuf_c_message_descriptor_get_field(level->type, (unsigned)(key >> 3));
        if (field && field->type == PROTOBUF_C_TYPE_MESSAGE) {
            if (depth + 1 == BERTH_RPC_DEPTH_MAX)
                return berth_fail(err, BERTH_REASON_FIELD_INVALID,
                                  "%s: messages nested deeper than %d", type->name,
                                  BERTH_RPC_DEPTH_MAX);
            levels[++depth] = (struct level){
                .type = field->descriptor,
                .end = at + value,
                .name = field->name,
            };
            continue;
        }
        if (field && field->type == PROTOBUF_C_TYPE_STRING && !text_ok(at, (size_t)value))
            return fail_text(err, levels, depth, field->name);
        at += value;
    }
}

struct budget {
    size_t left;
    bool used_up, no_memory;
};

/* Freeing gives nothing back: what a message may cause to be copied is bounded, too. */
static void *budget_alloc(void *arg, size_t size)
{
    struct budget *budget = arg;
    void *memory;

    if (size + ALLOCATION_OVERHEAD > budget->left) {
        budget->used_up = true;
        return NULL;
    }
    memory = malloc(size ? size : 1);
    if (memory)
        budget->left -= size + ALLOCATION_OVERHEAD;
    else
        budget->no_memory = true;
    return memory;
}

static void budget_free(void *arg, void *memory)
{
    (void)arg;
    free(memory);
}

enum berth_code rpc_guard_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data,
                                 size_t size, ProtobufCMessage **ret, struct berth_error *err)
{
    struct budget budget = {.left = BUDGET_FACTOR * size + BUDGET_FLOOR_BYTES};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
    ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, size, data);

    if (message) {
        *ret = message;
        return BERTH_OK;
    }
    if (budget.no_memory)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (budget.used_up)
        return berth_fail(err, BERTH_REASON_MESSAGE_TOO_LARGE,
                          "%s: would take too much memory for its size", type->name);
    return fail_malformed(err, type);
}

enum berth_code berth_decode(const ProtobufCMessageDescriptor *type, const void *data,
                             size_t size, ProtobufCMessage **ret, struct berth_error *err)
{
    enum berth_code code = rpc_guard_scan(type, data, size, err);

    if (code)
        return code;
    return rpc_guard_unpack(type, data, size, ret, err);
}

#include "common/rpc/buf.h"

#include <stdatomic.h>

struct berth_buf {
    atomic_uint refs;
    size_t size;
    grpc_slice_buffer slices;
    _Atomic(uint8_t *) flat; /* a contiguous copy, made when somebody wants to look */
    _Atomic(const ProtobufCMessageDescriptor *) scanned; /* passed the guard as this type */
};

static struct berth_buf *buf_alloc(void)
{
    struct berth_buf *buf = calloc(1, sizeof *buf);

    if (!buf)
        return NULL;
    atomic_init(&buf->refs, 1);
    grpc_slice_buffer_init(&buf->slices);
    return buf;
}

static struct berth_buf *buf_of_slice(grpc_slice slice)
{
    struct berth_buf *buf = buf_alloc();

    if (!buf) {
        grpc_slice_unref(slice);
        return NULL;
    }
    buf->size = GRPC_SLICE_LENGTH(slice);
    grpc_slice_buffer_add(&buf->slices, slice);
    return buf;
}

struct berth_buf *berth_buf_new(const void *data, size_t size)
{
    return buf_of_slice(grpc_slice_from_copied_buffer(data, size));
}

struct berth_buf *berth_buf_pack(const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    grpc_slice slice = grpc_slice_malloc(size);

    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    return buf_of_slice(slice);
}

struct berth_buf *berth_buf_take(void *data, size_t offset, size_t size)
{
    return buf_of_slice(
        grpc_slice_new_with_user_data((uint8_t *)data + offset, size, free, data));
}

struct berth_buf *rpc_buf_take(grpc_byte_buffer *bytes)
{
    struct berth_buf *buf = buf_alloc();

    if (buf) {
        grpc_byte_buffer_reader reader;
        grpc_slice slice;

        if (grpc_byte_buffer_reader_init(&reader, bytes)) {
            while (grpc_byte_buffer_reader_next(&reader, &slice)) {
                buf->size += GRPC_SLICE_LENGTH(slice);
                grpc_slice_buffer_add(&buf->slices, slice);
            }
            grpc_byte_buffer_reader_destroy(&reader);
        }
    }
    grpc_byte_buffer_destroy(bytes);
    return buf;
}

grpc_byte_buffer *rpc_buf_bytes(const struct berth_buf *buf)
{
    return grpc_raw_byte_buffer_create(buf->slices.slices, buf->slices.count);
}

struct berth_buf *berth_buf_ref(struct berth_buf *buf)
{
    atomic_fetch_add_explicit(&buf->refs, 1, memory_order_relaxed);
    return buf;
}

struct berth_buf *berth_buf_unref(struct berth_buf *buf)
{
    if (!buf || atomic_fetch_sub_explicit(&buf->refs, 1, memory_order_acq_rel) != 1)
        return NULL;
    grpc_slice_buffer_destroy(&buf->slices);
    free(atomic_load(&buf->flat));
    free(buf);
    return NULL;
}

size_t berth_buf_size(const struct berth_buf *buf)
{
    return buf->size;
}

size_t berth_buf_pieces(const struct berth_buf *buf, size_t first, struct iovec *ret,
                        size_t max)
{
    size_t n = 0;

    for (; n < max && first + n < buf->slices.count; n++) {
        grpc_slice *slice = &buf->slices.slices[first + n];

        ret[n] = (struct iovec){GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice)};
    }
    return n;
}

const uint8_t *berth_buf_data(struct berth_buf *buf)
{
    uint8_t *flat = atomic_load(&buf->flat), *none = NULL, *at;

    if (buf->slices.count == 1)
        return GRPC_SLICE_START_PTR(buf->slices.slices[0]);
    if (flat)
        return flat;
    flat = malloc(buf->size ? buf->size : 1);
    if (!flat)
        return NULL;
    at = flat;
    for (size_t i = 0; i < buf->slices.count; i++) {
        memcpy(at, GRPC_SLICE_START_PTR(buf->slices.slices[i]),
               GRPC_SLICE_LENGTH(buf->slices.slices[i]));
        at += GRPC_SLICE_LENGTH(buf->slices.slices[i]);
    }
    if (!atomic_compare_exchange_strong(&buf->flat, &none, flat)) {
        free(flat); /* another thread was first */
        flat = none;
    }
    return flat;
}

enum berth_code rpc_buf_check(const ProtobufCMessageDescriptor *type, struct berth_buf *buf,
                              struct berth_error *err)
{
    const uint8_t *data = berth_buf_data(buf);
    enum berth_code code;

    if (atomic_load(&buf->scanned) == type)
        return BERTH_OK;
    if (!data)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = rpc_guard_scan(type, data, buf->size, err);
    if (!code)
        atomic_store(&buf->scanned, type);
    return code;
}

enum berth_code berth_buf_decode(const ProtobufCMessageDescriptor *type, struct berth_buf *buf,
                                 ProtobufCMessage **ret, struct berth_error *err)
{
    enum berth_code code = rpc_buf_check(type, buf, err);

    if (code)
        return code;
    return rpc_guard_unpack(type, berth_buf_data(buf), buf->size, ret, err);
}

/* wire_read.c - whole frames out of a non-blocking socket, with memory for one frame only. */
#include "services/adapter-local/spawner/wire.h"

#include <endian.h>
#include <errno.h>

enum {
    BUF_MIN = 4096,      /* small frames come several at a time */
    BUF_KEPT = 16 << 10, /* a larger buffer goes back between frames */
};

/* The largest payload a type may have. 0: unknown type. */
static size_t payload_max(uint8_t type)
{
    switch (type) {
    case WIRE_START:
        return WIRE_PAYLOAD_MAX;
    case WIRE_INPUT:
        return WIRE_DATA_MAX + WIRE_JSON_MAX + 4;
    case WIRE_OUTPUT:
        return WIRE_OUTPUT_MAX + 9;
    case WIRE_ATTACH:
    case WIRE_SIGNAL:
    case WIRE_LIST:
    case WIRE_CANCEL:
    case WIRE_ERROR:
    case WIRE_STARTED:
    case WIRE_TRUNCATED:
    case WIRE_EXITED:
    case WIRE_HEARTBEAT:
    case WIRE_INPUT_DONE:
    case WIRE_SIGNAL_DONE:
    case WIRE_PROCESS:
    case WIRE_LIST_DONE:
        return WIRE_JSON_MAX + 4;
    default:
        return 0;
    }
}

/* Size of the frame that begins at the front, header included; 0: header not there yet;
 * SIZE_MAX: not our protocol. */
static size_t frame_size(const uint8_t *at, size_t have)
{
    uint32_t payload_size;

    if (have < WIRE_HEADER_SIZE)
        return 0;
    memcpy(&payload_size, at + 4, sizeof payload_size);
    payload_size = le32toh(payload_size);
    if (at[0] != WIRE_VERSION || at[2] != 0 || at[3] != 0 || payload_max(at[1]) == 0 ||
        payload_size > payload_max(at[1]))
        return SIZE_MAX;
    return WIRE_HEADER_SIZE + payload_size;
}

/* Room for at least size bytes; what is there stays. */
static bool make_room(struct wire_reader *reader, size_t size)
{
    uint8_t *bigger;

    if (size < BUF_MIN)
        size = BUF_MIN;
    if (reader->size >= size)
        return true;
    bigger = realloc(reader->buf, size);
    if (!bigger)
        return false;
    reader->buf = bigger;
    reader->size = size;
    return true;
}

/* Forget the frame given out last. */
static void drop_used(struct wire_reader *reader)
{
    reader->have -= reader->used;
    if (reader->have > 0)
        memmove(reader->buf, reader->buf + reader->used, reader->have);
    reader->used = 0;
    if (reader->have == 0 && reader->size > BUF_KEPT)
        wire_reader_deinit(reader);
}

enum wire_read wire_read(struct wire_reader *reader, int fd, enum wire_type *ret_type,
                         const uint8_t **ret_payload, size_t *ret_size)
{
    drop_used(reader);
    for (;;) {
        size_t size = frame_size(reader->buf, reader->have);
        ssize_t got;

        if (size == SIZE_MAX)
            return WIRE_READ_BROKEN;
        if (size > 0 && reader->have >= size) {
            *ret_type = (enum wire_type)reader->buf[1];
            *ret_payload = reader->buf + WIRE_HEADER_SIZE;
            *ret_size = size - WIRE_HEADER_SIZE;
            reader->used = size;
            return WIRE_READ_FRAME;
        }
        /* Up to the end of this frame and the header of the next, so that little is moved. */
        if (!make_room(reader, size + WIRE_HEADER_SIZE))
            return WIRE_READ_BROKEN;
        got = read(fd, reader->buf + reader->have, reader->size - reader->have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return WIRE_READ_AGAIN;
        if (got == 0 && reader->have == 0)
            return WIRE_READ_END;
        if (got <= 0)
            return WIRE_READ_BROKEN;
        reader->have += (size_t)got;
    }
}

bool wire_reader_ready(const struct wire_reader *reader)
{
    size_t have = reader->have - reader->used;
    size_t size = have > 0 ? frame_size(reader->buf + reader->used, have) : 0;

    return size == SIZE_MAX || (size > 0 && have >= size);
}

void wire_reader_deinit(struct wire_reader *reader)
{
    free(reader->buf);
    *reader = (struct wire_reader){0};
}

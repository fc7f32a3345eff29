/* The frames between adapter and supervisor: accepted when the bytes are whole frames, each of
 * which decodes. */
#include <sys/mman.h>

#include "services/adapter-local/spawner/wire.h"
#include "tests/fuzz/fuzz.h"

static void check_strings(const struct wire_strings *strings)
{
    const char *at = strings->bytes;

    for (uint32_t i = 0; i < strings->n; i++)
        at += strlen(at) + 1;
    if (at != strings->bytes + strings->size)
        abort();
}

static enum berth_code decode(enum wire_type type, const uint8_t *payload, size_t size)
{
    static union {
        struct wire_start start;
        struct wire_attach attach;
        struct wire_input input;
        struct wire_signal signal;
        struct wire_started started;
        struct wire_output output;
        struct wire_truncated truncated;
        struct wire_exited exited;
        struct wire_heartbeat heartbeat;
        struct wire_process process;
        uint64_t number;
        bool flag;
    } got;
    struct berth_error err = {0};
    enum berth_code code;

    switch (type) {
    case WIRE_START:
        code = wire_decode_start(payload, size, &got.start, &err);
        if (code == BERTH_OK) {
            check_strings(&got.start.args);
            check_strings(&got.start.env);
        }
        return code;
    case WIRE_ATTACH:
        return wire_decode_attach(payload, size, &got.attach, &err);
    case WIRE_INPUT:
        return wire_decode_input(payload, size, &got.input, &err);
    case WIRE_SIGNAL:
        return wire_decode_signal(payload, size, &got.signal, &err);
    case WIRE_STARTED:
        return wire_decode_started(payload, size, &got.started, &err);
    case WIRE_OUTPUT:
        return wire_decode_output(payload, size, &got.output, &err);
    case WIRE_TRUNCATED:
        return wire_decode_truncated(payload, size, &got.truncated, &err);
    case WIRE_EXITED:
        code = wire_decode_exited(payload, size, &got.exited, &err);
        if (code == BERTH_OK && got.exited.reason == WIRE_REASON_NONE)
            abort();
        return code;
    case WIRE_HEARTBEAT:
        return wire_decode_heartbeat(payload, size, &got.heartbeat, &err);
    case WIRE_INPUT_DONE:
        return wire_decode_input_done(payload, size, &got.number, &err);
    case WIRE_SIGNAL_DONE:
        return wire_decode_signal_done(payload, size, &got.flag, &err);
    case WIRE_PROCESS:
        code = wire_decode_process(payload, size, &got.process, &err);
        if (code == BERTH_OK)
            check_strings(&got.process.args);
        return code;
    case WIRE_ERROR:
        return wire_decode_error(payload, size, &err) == BERTH_INTERNAL ? BERTH_INTERNAL
                                                                        : BERTH_OK;
    default:
        return size == 0 ? BERTH_OK : BERTH_INVALID_ARGUMENT;
    }
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct wire_reader reader = {0};
    const uint8_t *payload;
    enum wire_type type;
    enum wire_read got;
    size_t payload_size;
    bool good = true;
    int fd = memfd_create("frames", MFD_CLOEXEC);

    if (fd < 0 || write(fd, data, size) != (ssize_t)size || lseek(fd, 0, SEEK_SET) != 0)
        abort();
    while ((got = wire_read(&reader, fd, &type, &payload, &payload_size)) == WIRE_READ_FRAME)
        good = good && decode(type, payload, payload_size) == BERTH_OK;
    wire_reader_deinit(&reader);
    close(fd);
    return good && got == WIRE_READ_END;
}

#include "common/rpc/trace.h"

#include <stdint.h>
#include <string.h>

#include "common/ids/ids.h"

enum {
    LEN = RPC_TRACEPARENT_SIZE - 1,
    TRACE_AT = 3,
    TRACE_LEN = 32,
    SPAN_AT = 36,
    SPAN_LEN = 16,
    DRAWN_SIZE = 512,
};

static bool hex_not_zero(const char *text, size_t len)
{
    bool not_zero = false;

    for (size_t i = 0; i < len; i++) {
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
            return false;
        not_zero = not_zero || text[i] != '0';
    }
    return not_zero;
}

static bool well_formed(const char *text, size_t size)
{
    return size == LEN && memcmp(text, "00-", 3) == 0 && text[SPAN_AT - 1] == '-' &&
           text[SPAN_AT + SPAN_LEN] == '-' && hex_not_zero(text + TRACE_AT, TRACE_LEN) &&
           hex_not_zero(text + SPAN_AT, SPAN_LEN) &&
           (hex_not_zero(text + LEN - 2, 2) || memcmp(text + LEN - 2, "00", 2) == 0);
}

/* Ids are no secrets: one trip to the kernel for many of them. */
static void draw(uint8_t *ret, size_t size)
{
    static _Thread_local uint8_t drawn[DRAWN_SIZE];
    static _Thread_local size_t n_left;

    if (n_left < size) {
        berth_random(drawn, sizeof drawn);
        n_left = sizeof drawn;
    }
    n_left -= size;
    memcpy(ret, drawn + n_left, size);
}

void rpc_trace_begin(const char *given, size_t given_size,
                     char traceparent[RPC_TRACEPARENT_SIZE],
                     char request_id[RPC_REQUEST_ID_SIZE])
{
    uint8_t random[8 + 16 + 8];

    if (given && well_formed(given, given_size)) {
        memcpy(traceparent, given, LEN);
        traceparent[LEN] = 0;
        draw(random, 8);
        berth_hex(request_id, random, 8);
        return;
    }
    draw(random, sizeof random);
    berth_hex(request_id, random, 8);
    random[8] |= 1; /* neither may be all zero */
    random[24] |= 1;
    memcpy(traceparent, "00-", TRACE_AT);
    berth_hex(traceparent + TRACE_AT, random + 8, TRACE_LEN / 2);
    traceparent[SPAN_AT - 1] = '-';
    berth_hex(traceparent + SPAN_AT, random + 24, SPAN_LEN / 2);
    memcpy(traceparent + SPAN_AT + SPAN_LEN, "-01", 4);
}

const char *rpc_trace_id(const char *traceparent, char buf[33])
{
    memcpy(buf, traceparent + TRACE_AT, TRACE_LEN);
    buf[TRACE_LEN] = 0;
    return buf;
}

#include "common/rpc/trace.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/ids/ids.h"

enum {
    LEN = RPC_TRACEPARENT_SIZE - 1,
    TRACE_AT = 3,
    TRACE_LEN = 32,
    SPAN_AT = 36,
    SPAN_LEN = 16
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

void rpc_trace_begin(const char *given, size_t given_size,
                     char traceparent[RPC_TRACEPARENT_SIZE],
                     char request_id[RPC_REQUEST_ID_SIZE])
{
    uint8_t random[8 + 16 + 8];
    char trace[33], span[17];

    if (given && well_formed(given, given_size)) {
        memcpy(traceparent, given, LEN);
        traceparent[LEN] = 0;
        berth_random(random, 8);
        berth_hex(request_id, random, 8);
        return;
    }
    berth_random(random, sizeof random);
    berth_hex(request_id, random, 8);
    random[8] |= 1; /* neither may be all zero */
    random[24] |= 1;
    berth_hex(trace, random + 8, 16);
    berth_hex(span, random + 24, 8);
    snprintf(traceparent, RPC_TRACEPARENT_SIZE, "00-%s-%s-01", trace, span);
}

const char *rpc_trace_id(const char *traceparent, char buf[33])
{
    memcpy(buf, traceparent + TRACE_AT, TRACE_LEN);
    buf[TRACE_LEN] = 0;
    return buf;
}

/* relay.h - the yardsticks of the bench: an echo, a source and a sink, and a bare relay of
 * them, all on common/rpc. */
#pragma once

#include "common/rpc/rpc.h"

/* An ordinary unary method: decoded, on the pool, encoded. The message is a SessionRef. */
#define BENCH_ECHO "/berth.bench.v1.Yardstick/Echo"
/* Request: two little-endian uint32, messages and bytes of each. Streams them. */
#define BENCH_SOURCE "/berth.bench.v1.Yardstick/Source"
/* Takes messages to the half-close, then answers one empty message. */
#define BENCH_SINK "/berth.bench.v1.Yardstick/Sink"

extern const struct berth_method bench_yardsticks[];
extern const size_t n_bench_yardsticks;
/* The echo alone, not on the pool. */
extern const struct berth_method bench_quick_echo;

/* Files of an adapter; the route goes along. */
#define BENCH_READ_FILE "/berth.data.v1.FileService/ReadFile"
#define BENCH_WRITE_FILE "/berth.data.v1.FileService/WriteFile"

/* All of these, passed on undecoded to the channel given as service: each way one message
 * on its way and one held, as the data plane does. */
extern const struct berth_method bench_relays[];
extern const size_t n_bench_relays;

/* frames.h - a look at the frames of HTTP/2 that come in, before the core does.
 *
 * The core (1.51) has no limit for what costs the sender a few bytes and the receiver a whole
 * call: 100,000 streams opened and reset at once took 1.2 GiB and ten seconds in which nobody
 * was answered. Nor does it end a block of headers that goes on for ever. It reads its sockets
 * by recvmsg(), which frames.c defines in its place: the bytes are the kernel's, and a
 * connection that goes too far is cut there. What comes by TLS is seen once it is decrypted
 * (tls_sight.h).
 *
 * Judged are connections of non-peers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RPC_RESETS_BURST = 1024, /* calls that one connection may cancel at once, */
    RPC_RESETS_PER_S = 500,  /* and over time */
    RPC_RESETS_ALL_BURST = 8192,
    RPC_RESETS_ALL_PER_S =
        5000, /* of all connections; over it, those with more than their due */
    RPC_RESETS_DUE = 64,
    RPC_CONTROL_BURST = 20000, /* pings, settings and empty frames of one connection */
    RPC_CONTROL_PER_S = 10000,
};

/* Thousandths of tokens; full at first use. */
struct rpc_bucket {
    int64_t level, tick_ms;
};

/* How far into the frames of one connection we are. All zero but skip at its begin. */
struct rpc_scan {
    uint8_t header[9];
    size_t have; /* bytes of the header */
    size_t skip; /* bytes of the payload, or the preface, still to come */
    size_t block;
    struct rpc_bucket resets, control;
};

enum { RPC_PREFACE_SIZE = 24 };

/* The next bytes of it. Why it is to be cut; NULL: it goes on. */
const char *rpc_frames_scan(struct rpc_scan *scan, const void *data, size_t size,
                            int64_t now_ms);
/* Counts and logs that one is cut. */
void rpc_frames_note_cut(const char *why);

/* A connection is about to be given to the core. */
void rpc_frames_begin(int fd, bool judged);

/* Calls in progress on it. begun returns what ended wants: the number of the connection, which
 * may have ended before, with its descriptor used again. */
unsigned rpc_frames_call_begun(int fd);
void rpc_frames_call_ended(int fd, unsigned generation);

/* When it last sent anything; INT64_MAX while it has calls in progress or is not judged. */
int64_t rpc_frames_idle_since_ms(int fd);

/* Connections cut so far. */
uint64_t rpc_frames_cut(void);

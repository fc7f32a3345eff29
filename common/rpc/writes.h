/* writes.h - many small writes to one connection, sent as one.
 *
 * The core (1.51) writes each answer and each request to its socket by itself, and a packet is
 * what costs most in a call: on loopback the write includes all of the receiver's half of TCP.
 * The thread that serves the sockets therefore lets the kernel hold them (MSG_MORE) until it
 * has nothing else to do, or RPC_WRITES_HELD_MAX are held: with too many at once the two ends
 * would take turns instead of working at the same time. The first write after something was
 * read goes out at once, unless the last time there were several: a single call never waits.
 *
 * The core writes by sendmsg(), which writes.c defines in its place; the bytes are always the
 * kernel's. Other threads' writes go out at once, with what is held. */
#pragma once

#include <stdbool.h>

enum { RPC_WRITES_HELD_MAX = 5 };

/* All of the calling thread. */
void rpc_writes_gather(bool gather); /* hold writes from here on; whoever does must flush */
bool rpc_writes_held(void);
void rpc_writes_flush(void);
void rpc_writes_heard(int fd); /* something was read from it */

/* relay.h - a server that passes every method of the EchoService on, frames undecoded. */
#pragma once

#include "common/rpc/rpc.h"

struct relay {
    struct berth_channel *upstream;
    struct berth_server *server;
    struct berth_loop *loop;
    char address[160];
};

/* Listens on loopback TCP. Fails the test when it cannot. */
void relay_start(struct relay *relay, const char *upstream);
void relay_stop(struct relay *relay);

/* cases.h - the cases of gRPC's interoperability tests, as a client. */
#pragma once

#include "common/rpc/rpc.h"

struct interop_client {
    struct berth_channel *channel;
    struct berth_loop *loop;
    char why[1024]; /* of the last failure */
};

struct interop_case {
    const char *name;
    bool (*run)(struct interop_client *client); /* false: see why */
};

extern const struct interop_case interop_cases[];
extern const size_t n_interop_cases;

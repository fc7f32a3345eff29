/* service.h - grpc.testing.TestService on common/rpc, as gRPC's interoperability tests want it.
 */
#pragma once

#include "common/rpc/rpc.h"
#include "grpc/testing/test.pb-c.h"

#define INTEROP_PATH(method) "/grpc.testing.TestService/" method

/* All of TestService but UnimplementedCall, which nobody serves. */
extern const struct berth_method interop_methods[];
extern const size_t n_interop_methods;

/* A message of these types from size zero bytes; malloc'd as by unpack. NULL: no memory. */
Grpc__Testing__Payload *interop_payload(size_t size);

#define INTEROP_INITIAL_KEY "x-grpc-test-echo-initial"
#define INTEROP_TRAILING_KEY "x-grpc-test-echo-trailing-bin"

/* paths.h - method paths that last. The core's header compressor remembers the path of a call
 * by reference, recognises it at later calls, and so wants one address per path for good. */
#pragma once

#include "common/rpc/core.h"

/* The slice of a path, which need not outlive the call. The caller unrefs the result. */
grpc_slice rpc_path_slice(const char *path);

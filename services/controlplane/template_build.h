/* template_build.h - BuildTemplate: a stream from the adapter handed on with its progress. */
#pragma once

#include "common/rpc/rpc.h"

/* The evented handler. */
enum berth_code cp_build_template(void *service, struct berth_stream *stream,
                                  const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                  struct berth_error *err);

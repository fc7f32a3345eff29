/* build_rpc.h - TemplateService.BuildTemplate: a long job on a worker, its progress as a
 * stream. */
#pragma once

#include "common/rpc/rpc.h"

enum berth_code build_template_open(void *service, struct berth_stream *stream,
                                    const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                    struct berth_error *err);

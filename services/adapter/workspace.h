/* workspace.h - what the files of WorkspaceService share. */
#pragma once

#include "services/adapter/adapter.h"
#include "services/adapter/convert.h"
#include "services/adapter/file_rpc.h"

/* Set by the data plane where it moves a workspace by itself (MoveWorkspace). */
#define WORKSPACE_MOVED "berth-workspace-moved"

typedef Berth__Data__V1__SkippedFile SkippedFile;

bool workspace_is_moved(const struct berth_call *call);
/* What stayed behind, as messages; *ret is owned: workspace_free_lost(). False: no memory. */
bool workspace_lost(const struct adapter_carried *carried, SkippedFile ***ret, size_t *ret_n);
void workspace_free_lost(SkippedFile **lost, size_t n);

/* workspace_out.c, workspace_in.c: the streams. */
enum berth_code workspace_open_export(void *service, struct berth_stream *stream,
                                      const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                      struct berth_error *err);
enum berth_code workspace_open_import(void *service, struct berth_stream *stream,
                                      const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                      struct berth_error *err);

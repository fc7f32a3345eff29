/* catalog_rpc.c - SnapshotService and the unary half of TemplateService, over any backend. */
#include "services/adapter/adapter.h"
#include "services/adapter/build_rpc.h"
#include "services/adapter/decode.h"
#include "services/adapter/edge.h"
#include "services/adapter/encode.h"

#include "berth/backend/v1/backend.pb-c.h"
#include "common/fields/fields.h"

typedef Berth__Backend__V1__CreateSnapshotRequest CreateSnapshotRequest;
typedef Berth__Backend__V1__CreateSnapshotResponse CreateSnapshotResponse;
typedef Berth__Backend__V1__ListSnapshotsRequest ListSnapshotsRequest;
typedef Berth__Backend__V1__ListSnapshotsResponse ListSnapshotsResponse;
typedef Berth__Backend__V1__DeleteSnapshotRequest DeleteSnapshotRequest;
typedef Berth__Backend__V1__DeleteSnapshotResponse DeleteSnapshotResponse;
typedef Berth__Backend__V1__ListTemplatesRequest ListTemplatesRequest;
typedef Berth__Backend__V1__ListTemplatesResponse ListTemplatesResponse;
typedef Berth__Backend__V1__GetTemplateRequest GetTemplateRequest;
typedef Berth__Backend__V1__GetTemplateResponse GetTemplateResponse;
typedef Berth__Backend__V1__DeleteTemplateRequest DeleteTemplateRequest;
typedef Berth__Backend__V1__DeleteTemplateResponse DeleteTemplateResponse;

/* ------------------------------------------------------------------- snapshots */

static enum berth_code create_snapshot(void *service, struct berth_call *call,
                                       const ProtobufCMessage *message,
                                       ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct adapter_service *s = service;
    const CreateSnapshotRequest *req = (const CreateSnapshotRequest *)message;
    struct adapter_pairs metadata = {0};
    struct adapter_snapshot snapshot;
    struct adapter_grant grant;
    CreateSnapshotResponse *resp;
    enum berth_code code = edge_check_sandbox(s, req->target, req->sandbox_id, err);

    if (!code)
        code = decode_snapshot_name("name", req->name, err);
    if (!code)
        code = decode_grant(req->fence, req->not_after_time, &grant, err);
    if (!code && !s->ops->snapshot)
        code = decode_missing(err, "sandbox_id", "snapshots");
    if (!code)
        code = decode_snapshot_metadata(req, &metadata, err);
    if (!code)
        code = s->ops->snapshot(s->adapter, req->sandbox_id, req->name, &metadata, &grant,
                                edge_deadline(call, EDGE_COPY_MS), &snapshot, err);
    decode_pairs_deinit(&metadata);
    if (code)
        return edge_failed(s, req->sandbox_id, code, err);

    resp = calloc(1, sizeof *resp);
    if (resp) {
        berth__backend__v1__create_snapshot_response__init(resp);
        resp->snapshot = encode_snapshot(&snapshot);
    }
    adapter_snapshot_deinit(&snapshot);
    return edge_answer_whole(resp ? &resp->base : NULL, resp && resp->snapshot, ret_resp, err);
}

static bool passes(const ListSnapshotsRequest *req, const char *after,
                   const struct adapter_snapshot *snapshot)
{
    return strcmp(snapshot->id, after) > 0 &&
           (!req->source_sandbox_id[0] ||
            strcmp(req->source_sandbox_id, snapshot->source_sandbox_id) == 0) &&
           strncmp(snapshot->name, req->name_prefix, strlen(req->name_prefix)) == 0;
}

static enum berth_code encode_snapshots(const ListSnapshotsRequest *req, const char *after,
                                        const struct adapter_snapshot *list, size_t n,
                                        uint32_t size, bool complete,
                                        ProtobufCMessage **ret_resp, struct berth_error *err)
{
    ListSnapshotsResponse *resp = calloc(1, sizeof *resp);
    bool whole = resp != NULL;
    size_t last = 0;

    if (resp) {
        berth__backend__v1__list_snapshots_response__init(resp);
        resp->complete = complete;
        resp->snapshots = calloc(size, sizeof *resp->snapshots);
        whole = resp->snapshots != NULL;
    }
    for (size_t i = 0; whole && i < n; i++) {
        if (!passes(req, after, &list[i]))
            continue;
        if (resp->n_snapshots == size) {
            whole = encode_string(&resp->next_page_token, list[last].id);
            break;
        }
        resp->snapshots[resp->n_snapshots] = encode_snapshot(&list[i]);
        whole = resp->snapshots[resp->n_snapshots] != NULL;
        resp->n_snapshots += whole;
        last = i;
    }
    return edge_answer_whole(resp ? &resp->base : NULL, whole, ret_resp, err);
}

static enum berth_code list_snapshots(void *service, struct berth_call *call,
                                      const ProtobufCMessage *message,
                                      ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct adapter_service *s = service;
    const ListSnapshotsRequest *req = (const ListSnapshotsRequest *)message;
    struct adapter_snapshot *list = NULL;
    const char *after = "";
    bool complete = false;
    uint32_t size;
    size_t n = 0;
    enum berth_code code = decode_target(req->target, s->ops->backend, err);

    if (!code)
        code = berth_check_id_or_empty("source_sandbox_id", req->source_sandbox_id, err);
    if (!code)
        code = berth_check_id_or_empty("name_prefix", req->name_prefix, err);
    if (!code)
        code = edge_check_page(req->page, &size, &after, err);
    if (!code && !s->ops->list_snapshots)
        code = decode_missing(err, "target", "snapshots");
    if (!code)
        code = s->ops->list_snapshots(s->adapter, edge_deadline(call, EDGE_CALL_MS), &list, &n,
                                      &complete, err);
    if (!code)
        code = encode_snapshots(req, after, list, n, size, complete, ret_resp, err);
    for (size_t i = 0; i < n; i++)
        adapter_snapshot_deinit(&list[i]);
    free(list);
    return code ? edge_failed(s, "", code, err) : BERTH_OK;
}

static enum berth_code delete_snapshot(void *service, struct berth_call *call,
                                       const ProtobufCMessage *message,
                                       ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct adapter_service *s = service;
    const DeleteSnapshotRequest *req = (const DeleteSnapshotRequest *)message;
    struct adapter_grant grant;
    DeleteSnapshotResponse *resp;
    struct adapter_removed removed = {0};
    enum berth_code code = decode_target(req->target, s->ops->backend, err);

    if (!code)
        code = berth_check_id("snapshot_id", req->snapshot_id, err);
    if (!code)
        code = decode_grant(req->fence, req->not_after_time, &grant, err);
    if (!code && !s->ops->delete_snapshot)
        code = decode_missing(err, "target", "snapshots");
    if (!code)
        code = s->ops->delete_snapshot(s->adapter, req->snapshot_id, &grant,
                                       edge_deadline(call, EDGE_CALL_MS), &removed, err);
    if (code)
        return edge_failed(s, "", code, err);

    resp = calloc(1, sizeof *resp);
    if (resp) {
        berth__backend__v1__delete_snapshot_response__init(resp);
        resp->existed = removed.existed;
        resp->in_use = removed.in_use;
    }
    return edge_answer(resp ? &resp->base : NULL, ret_resp, err);
}

/* ------------------------------------------------------------------- templates */

static enum berth_code encode_templates(const struct adapter_template *list, size_t n,
                                        uint32_t size, const char *after,
                                        ProtobufCMessage **ret_resp, struct berth_error *err)
{
    ListTemplatesResponse *resp = calloc(1, sizeof *resp);
    bool whole = resp != NULL;
    size_t last = 0;

    if (resp) {
        berth__backend__v1__list_templates_response__init(resp);
        resp->templates = calloc(size, sizeof *resp->templates);
        whole = resp->templates != NULL;
    }
    for (size_t i = 0; whole && i < n; i++) {
        if (strcmp(list[i].id, after) <= 0)
            continue;
        if (resp->n_templates == size) {
            whole = encode_string(&resp->next_page_token, list[last].id);
            break;
        }
        resp->templates[resp->n_templates] = encode_template(&list[i]);
        whole = resp->templates[resp->n_templates] != NULL;
        resp->n_templates += whole;
        last = i;
    }
    return edge_answer_whole(resp ? &resp->base : NULL, whole, ret_resp, err);
}

static enum berth_code list_templates(void *service, struct berth_call *call,
                                      const ProtobufCMessage *message,
                                      ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct adapter_service *s = service;
    const ListTemplatesRequest *req = (const ListTemplatesRequest *)message;
    struct adapter_template *list = NULL;
    const char *after = "";
    uint32_t size;
    size_t n = 0;
    enum berth_code code = decode_target(req->target, s->ops->backend, err);

    if (!code)
        code = edge_check_page(req->page, &size, &after, err);
    if (!code)
        code = s->ops->list_templates(s->adapter, edge_deadline(call, EDGE_CALL_MS), &list, &n,
                                      err);
    if (!code)
        code = encode_templates(list, n, size, after, ret_resp, err);
    free(list);
    return code ? edge_failed(s, "", code, err) : BERTH_OK;
}

static enum berth_code get_template(void *service, struct berth_call *call,
                                    const ProtobufCMessage *message,
                                    ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct adapter_service *s = service;
    const GetTemplateRequest *req = (const GetTemplateRequest *)message;
    struct adapter_template *list = NULL;
    GetTemplateResponse *resp;
    size_t n = 0, at = 0;
    enum berth_code code = decode_target(req->target, s->ops->backend, err);

    if (!code)
        code = berth_check_id("template_id", req->template_id, err);
    if (!code)
        code = s->ops->list_templates(s->adapter, edge_deadline(call, EDGE_CALL_MS), &list, &n,
                                      err);
    while (!code && at < n && strcmp(list[at].id, req->template_id) != 0)
        at++;
    if (!code && at == n)
        code = berth_fail(err, BERTH_REASON_TEMPLATE_NOT_FOUND, NULL);
    if (code) {
        free(list);
        return edge_failed(s, "", code, err);
    }
    resp = calloc(1, sizeof *resp);
    if (resp) {
        berth__backend__v1__get_template_response__init(resp);
        resp->template_ = encode_template(&list[at]);
    }
    free(list);
    return edge_answer_whole(resp ? &resp->base : NULL, resp && resp->template_, ret_resp, err);
}

static enum berth_code delete_template(void *service, struct berth_call *call,
                                       const ProtobufCMessage *message,
                                       ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct adapter_service *s = service;
    const DeleteTemplateRequest *req = (const DeleteTemplateRequest *)message;
    DeleteTemplateResponse *resp;
    bool existed = false;
    enum berth_code code = decode_target(req->target, s->ops->backend, err);

    if (!code)
        code = berth_check_id("template_id", req->template_id, err);
    if (!code && !s->ops->delete_template)
        code = decode_missing(err, "template_id", "templates_build");
    if (!code)
        code = s->ops->delete_template(s->adapter, req->template_id,
                                       edge_deadline(call, EDGE_CALL_MS), &existed, err);
    if (code)
        return edge_failed(s, "", code, err);

    resp = calloc(1, sizeof *resp);
    if (resp) {
        berth__backend__v1__delete_template_response__init(resp);
        resp->existed = existed;
    }
    return edge_answer(resp ? &resp->base : NULL, ret_resp, err);
}

#define METHOD(name, type, fn)                                                                 \
    {                                                                                          \
        .path = "/berth.backend.v1." name,                                                     \
        .request = &berth__backend__v1__##type##__descriptor, .unary = fn                      \
    }

const struct berth_method adapter_catalog_methods[] = {
    METHOD("SnapshotService/CreateSnapshot", create_snapshot_request, create_snapshot),
    METHOD("SnapshotService/ListSnapshots", list_snapshots_request, list_snapshots),
    METHOD("SnapshotService/DeleteSnapshot", delete_snapshot_request, delete_snapshot),
    METHOD("TemplateService/ListTemplates", list_templates_request, list_templates),
    METHOD("TemplateService/GetTemplate", get_template_request, get_template),
    METHOD("TemplateService/DeleteTemplate", delete_template_request, delete_template),
    {.path = "/berth.backend.v1.TemplateService/BuildTemplate",
     .request = &berth__backend__v1__build_template_request__descriptor,
     .open = build_template_open},
};
const size_t n_adapter_catalog_methods = BERTH_COUNT(adapter_catalog_methods);

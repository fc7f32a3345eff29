/* fake_catalog.c - the fake adapter's snapshots and templates. */
#include <check.h>
#include <stdio.h>

#include "common/messages/messages.h"
#include "tests/component/controlplane/fake_internal.h"

/* ----------------------------------------------------------------- snapshots */

static Berth__Common__V1__Snapshot *show_snapshot(struct fake_adapter *fake, size_t at)
{
    Berth__Common__V1__Snapshot *out =
        berth_message_new(&berth__common__v1__snapshot__descriptor);
    const struct fake_sandbox *box = fake_find(fake, fake->snapshots[at].source);

    out->state = BERTH__COMMON__V1__SNAPSHOT_STATE__SNAPSHOT_STATE_READY;
    out->size_bytes = 4096;
    ck_assert(berth_set_string(&out->snapshot_id, fake->snapshots[at].id) &&
              berth_add_string(&out->n_names, &out->names, fake->snapshots[at].name));
    for (size_t i = 0; box && i < box->n_tags; i++)
        ck_assert(berth_set_map(&out->n_metadata, &out->metadata,
                                &berth__common__v1__snapshot__metadata_entry__descriptor,
                                box->tags[i][0], box->tags[i][1]));
    return out;
}

/* The snapshot of this name; n_snapshots: a new one. */
static size_t place_snapshot(struct fake_adapter *fake, const char *name, const char *source)
{
    size_t at = 0;

    while (at < fake->n_snapshots &&
           !(fake->snapshots[at].used && strcmp(fake->snapshots[at].name, name) == 0))
        at++;
    if (at < fake->n_snapshots)
        return at;
    ck_assert_uint_lt(at, FAKE_SNAPSHOTS_MAX);
    fake->n_snapshots++;
    fake->snapshots[at].used = true;
    snprintf(fake->snapshots[at].id, sizeof fake->snapshots[at].id, "snap-%zu", at + 1);
    snprintf(fake->snapshots[at].name, sizeof fake->snapshots[at].name, "%s", name);
    snprintf(fake->snapshots[at].source, sizeof fake->snapshots[at].source, "%s", source);
    return at;
}

void fake_add_snapshot(struct fake_adapter *fake, const char *name, const char *sandbox_id)
{
    pthread_mutex_lock(&fake->mutex);
    (void)place_snapshot(fake, name, sandbox_id);
    pthread_mutex_unlock(&fake->mutex);
}

HANDLER(create_snapshot)
{
    struct fake_adapter *fake = service;
    const Berth__Backend__V1__CreateSnapshotRequest *req =
        (const Berth__Backend__V1__CreateSnapshotRequest *)message;
    Berth__Backend__V1__CreateSnapshotResponse *out = NULL;
    struct fake_script script;
    enum berth_code code = BERTH_OK;

    (void)call;
    pthread_mutex_lock(&fake->mutex);
    script = fake_begin(fake, FAKE_SNAPSHOT, req->sandbox_id, req->fence, req->not_after_time);
    if (script.act == FAKE_REFUSE)
        code = berth_fail(err, script.reason, "as the test says");
    else if (!fake_find(fake, req->sandbox_id))
        code = fake_not_found(req->sandbox_id, err);
    if (!code) {
        size_t at = place_snapshot(fake, req->name, req->sandbox_id);

        out = NEW(create_snapshot_response);
        out->snapshot = show_snapshot(fake, at);
        code = fake_end(fake, &script, err);
    }
    pthread_mutex_unlock(&fake->mutex);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

HANDLER(list_snapshots)
{
    struct fake_adapter *fake = service;
    const Berth__Backend__V1__ListSnapshotsRequest *req =
        (const Berth__Backend__V1__ListSnapshotsRequest *)message;
    Berth__Backend__V1__ListSnapshotsResponse *out = NEW(list_snapshots_response);
    struct fake_script script;
    enum berth_code code = BERTH_OK;

    (void)call;
    pthread_mutex_lock(&fake->mutex);
    script = fake_begin(fake, FAKE_LIST_SNAPSHOTS, "", 0, NULL);
    if (script.act == FAKE_REFUSE)
        code = berth_fail(err, script.reason, "as the test says");
    out->complete = true;
    for (size_t i = 0; !code && i < fake->n_snapshots; i++)
        if (fake->snapshots[i].used &&
            strncmp(fake->snapshots[i].name, req->name_prefix, strlen(req->name_prefix)) == 0)
            ck_assert(
                berth_add_message(&out->n_snapshots, &out->snapshots, show_snapshot(fake, i)));
    pthread_mutex_unlock(&fake->mutex);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

static bool fake_stands_on(const struct fake_adapter *fake, const char *snapshot_id)
{
    for (size_t i = 0; i < fake->n_sandboxes; i++)
        if (fake->sandboxes[i].used && strcmp(fake->sandboxes[i].snapshot_id, snapshot_id) == 0)
            return true;
    return false;
}

HANDLER(delete_snapshot)
{
    struct fake_adapter *fake = service;
    const Berth__Backend__V1__DeleteSnapshotRequest *req =
        (const Berth__Backend__V1__DeleteSnapshotRequest *)message;
    Berth__Backend__V1__DeleteSnapshotResponse *out = NULL;
    struct fake_script script;
    enum berth_code code = BERTH_OK;

    (void)call;
    pthread_mutex_lock(&fake->mutex);
    script = fake_begin(fake, FAKE_DELETE_SNAPSHOT, req->snapshot_id, req->fence,
                        req->not_after_time);
    if (script.act == FAKE_REFUSE)
        code = berth_fail(err, script.reason, "as the test says");
    if (!code) {
        out = NEW(delete_snapshot_response);
        for (size_t i = 0; i < fake->n_snapshots; i++) {
            if (fake->snapshots[i].used &&
                strcmp(fake->snapshots[i].id, req->snapshot_id) == 0) {
                fake->snapshots[i].used = false;
                out->existed = true;
                out->in_use = fake_stands_on(fake, req->snapshot_id);
            }
        }
        code = fake_end(fake, &script, err);
    }
    pthread_mutex_unlock(&fake->mutex);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

/* ----------------------------------------------------------------- templates */

HANDLER(get_template)
{
    struct fake_adapter *fake = service;
    const Berth__Backend__V1__GetTemplateRequest *req =
        (const Berth__Backend__V1__GetTemplateRequest *)message;
    Berth__Backend__V1__GetTemplateResponse *out;

    (void)call;
    pthread_mutex_lock(&fake->mutex);
    (void)fake_begin(fake, FAKE_TEMPLATE, req->template_id, 0, NULL);
    pthread_mutex_unlock(&fake->mutex);
    if (strcmp(req->template_id, "base") != 0)
        return berth_fail(err, BERTH_REASON_TEMPLATE_NOT_FOUND, NULL);
    out = NEW(get_template_response);
    out->template_ = berth_message_new(&berth__common__v1__template__descriptor);
    out->template_->state = BERTH__COMMON__V1__TEMPLATE_STATE__TEMPLATE_STATE_READY;
    ck_assert(berth_set_string(&out->template_->template_id, req->template_id));
    *ret_resp = &out->base;
    return BERTH_OK;
}

/* A build in three steps. */
struct fake_build {
    unsigned step;
};

static void build_write(struct fake_build *build, struct berth_stream *stream)
{
    static const char *const steps[] = {"unpack", "install", "seal"};
    Berth__Backend__V1__BuildTemplateResponse *out;

    if (build->step == BERTH_COUNT(steps)) {
        berth_stream_finish(stream, BERTH_OK, NULL);
        return;
    }
    out = NEW(build_template_response);
    out->percent = 33 * (build->step + 1);
    ck_assert(berth_set_string(&out->step, steps[build->step++]));
    (void)berth_stream_write(stream, berth_buf_pack(&out->base));
    berth_message_free(out);
}

static void build_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    if (msg)
        build_write(ctx, stream);
    berth_buf_unref(msg);
}

static void build_written(void *ctx, struct berth_stream *stream)
{
    build_write(ctx, stream);
}

static void build_closed(void *ctx, struct berth_stream *stream,
                         const struct berth_status *status)
{
    (void)stream;
    (void)status;
    free(ctx);
}

static enum berth_code build_open(void *service, struct berth_stream *stream,
                                  const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                  struct berth_error *err)
{
    static const struct berth_stream_ops ops = {
        .message = build_message, .written = build_written, .closed = build_closed};

    (void)service;
    (void)err;
    *ret_ops = &ops;
    *ret_ctx = calloc(1, sizeof(struct fake_build));
    berth_stream_read(stream);
    return BERTH_OK;
}

const struct berth_method fake_catalog_methods[] = {
    METHOD("SnapshotService", "CreateSnapshot", create_snapshot, create_snapshot),
    METHOD("SnapshotService", "ListSnapshots", list_snapshots, list_snapshots),
    METHOD("SnapshotService", "DeleteSnapshot", delete_snapshot, delete_snapshot),
    METHOD("TemplateService", "GetTemplate", get_template, get_template),
    {"/berth.backend.v1.TemplateService/BuildTemplate",
     &berth__backend__v1__build_template_request__descriptor, .open = build_open},
};
const size_t fake_n_catalog_methods = BERTH_COUNT(fake_catalog_methods);

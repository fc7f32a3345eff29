#include "services/controlplane/template_build.h"

#include <stdio.h>

#include "berth/backend/v1/backend.pb-c.h"
#include "berth/control/v1/control.pb-c.h"
#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "services/controlplane/backend.h"
#include "services/controlplane/checks.h"
#include "services/controlplane/config_ops.h"

typedef Berth__Control__V1__BuildTemplateRequest BuildTemplateRequest;

enum { PACKAGES_MAX = 512, COMMANDS_MAX = 64, COMMAND_MAX = 16 * 1024, DNS_SERVERS_MAX = 8 };

/* One build: the caller's stream and the adapter's. Lives on the loop thread, but for
 * `prepare`, which looks things up on a worker while the loop leaves the build alone. Freed
 * when both streams are closed and nothing is on a worker. */
struct build {
    struct cp *cp;
    struct berth_loop *loop;
    struct berth_stream *caller;  /* NULL: closed */
    struct berth_stream *adapter; /* NULL: not open, or closed */
    ProtobufCMessage *request;
    bool preparing, finished;

    /* Of `prepare`. */
    enum berth_code code;
    struct berth_error err;
    struct cp_config *config;
    struct berth_channel *to;
};

static void free_if_over(struct build *build)
{
    if (build->caller || build->adapter || build->preparing)
        return;
    berth_message_free(build->request);
    cp_config_unref(build->config);
    free(build);
}

static void finish(struct build *build, enum berth_code code, const struct berth_error *err)
{
    if (build->caller && !build->finished) {
        build->finished = true;
        berth_stream_finish(build->caller, code, err);
    }
}

/* ---------------------------------------------------------------- the adapter */

/* Both sides have the same fields at the same numbers, so a message goes on as it came. */
static void on_progress(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct build *build = ctx;

    (void)stream;
    if (!msg)
        return; /* .closed follows */
    if (!build->caller || build->finished)
        berth_buf_unref(msg);
    else
        (void)berth_stream_write(build->caller, msg);
}

static void on_adapter_closed(void *ctx, struct berth_stream *stream,
                              const struct berth_status *status)
{
    struct build *build = ctx;
    struct berth_error err = {0};

    (void)stream;
    build->adapter = NULL;
    if (status->code)
        (void)berth_status_to_error(status, &err);
    finish(build, status->code, &err);
    free_if_over(build);
}

static const struct berth_stream_ops adapter_ops = {
    .message = on_progress,
    .closed = on_adapter_closed,
};

static void open_adapter(struct build *build)
{
    const BuildTemplateRequest *req = (const BuildTemplateRequest *)build->request;
    Berth__Backend__V1__BuildTemplateRequest ask =
        BERTH__BACKEND__V1__BUILD_TEMPLATE_REQUEST__INIT;
    const struct berth_call_options options = {.parent = berth_stream_call(build->caller)};
    struct berth_buf *msg;

    ask.target = build->config->target;
    ask.name = req->name;
    ask.recipe = req->recipe;
    msg = berth_buf_pack(&ask.base);
    if (msg)
        build->adapter =
            berth_channel_stream(build->to, "/berth.backend.v1.TemplateService/BuildTemplate",
                                 &options, build->loop, &adapter_ops, build);
    if (!build->adapter) {
        (void)berth_fail(&build->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        finish(build, build->err.code, &build->err);
        berth_buf_unref(msg);
        return;
    }
    (void)berth_stream_write(build->adapter, msg);
    berth_stream_half_close(build->adapter);
    berth_stream_read(build->adapter);
}

/* -------------------------------------------------------------------- prepare */

static enum berth_code check_list(const char *field, char *const *items, size_t n, size_t max,
                                  size_t max_len, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    if (n > max)
        return berth_fail_field(err, field, "must have at most %zu entries", max);
    for (size_t i = 0; !code && i < n; i++)
        if (!*items[i] || strlen(items[i]) > max_len)
            code = berth_fail_field(err, field, "entries must have 1 to %zu bytes", max_len);
    return code;
}

static enum berth_code check_recipe(const Berth__Common__V1__TemplateRecipe *recipe,
                                    struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    if (!recipe)
        return BERTH_OK;
    if (recipe->source_case == BERTH__COMMON__V1__TEMPLATE_RECIPE__SOURCE_IMAGE_REFERENCE)
        code = berth_check_text("recipe.image_reference", recipe->image_reference, 1, 512, err);
    else if (recipe->source_case == BERTH__COMMON__V1__TEMPLATE_RECIPE__SOURCE_FROM_TEMPLATE_ID)
        code =
            cp_check_image_id("recipe.from_template_id", recipe->from_template_id, false, err);
    else if (recipe->source_case == BERTH__COMMON__V1__TEMPLATE_RECIPE__SOURCE_PACKAGES_SUITE)
        code = berth_check_id("recipe.packages_suite", recipe->packages_suite, err);
    if (!code)
        code = check_list("recipe.packages", recipe->packages, recipe->n_packages, PACKAGES_MAX,
                          128, err);
    if (!code)
        code = check_list("recipe.run", recipe->run, recipe->n_run, COMMANDS_MAX, COMMAND_MAX,
                          err);
    if (!code)
        code = check_list("recipe.dns_servers", recipe->dns_servers, recipe->n_dns_servers,
                          DNS_SERVERS_MAX, 64, err);
    return code ? code : cp_check_resources("recipe.resources", recipe->resources, err);
}

static enum berth_code check_build(const BuildTemplateRequest *req, struct berth_error *err)
{
    enum berth_code code = cp_check_config_ref(req->tenant_id, req->config_id, err);

    if (!code)
        code = cp_check_image_id("name", req->name, false, err);
    if (!code)
        code = cp_check_request_id(req->request_id, err);
    return code ? code : check_recipe(req->recipe, err);
}

static void prepared(void *arg)
{
    struct build *build = arg;

    build->preparing = false;
    if (build->code)
        finish(build, build->code, &build->err);
    else if (build->caller && !build->finished)
        open_adapter(build);
    free_if_over(build);
}

/* On a worker: tenant and config may have to be read. */
static void prepare(void *arg)
{
    struct build *build = arg;
    const BuildTemplateRequest *req = (const BuildTemplateRequest *)build->request;

    build->code = check_build(req, &build->err);
    if (!build->code)
        build->code = cp_enter_tenant(build->cp, req->tenant_id, false, &build->err);
    if (!build->code)
        build->code = cp_cache_config(build->cp->cache, req->tenant_id, req->config_id,
                                      &build->config, &build->err);
    if (!build->code)
        build->code =
            cp_adapter_find(build->cp, build->config->target->backend, &build->to, &build->err);
    berth_loop_post(build->loop, prepared, build);
}

/* ----------------------------------------------------------------- the caller */

static void on_request(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct build *build = ctx;
    struct berth_error err = {0};
    enum berth_code code;

    if (!msg) {
        if (!build->request)
            finish(build, berth_fail_field(&build->err, "tenant_id", "there was no request"),
                   &build->err);
        return;
    }
    build->code = berth_buf_decode(&berth__control__v1__build_template_request__descriptor, msg,
                                   &build->request, &build->err);
    berth_buf_unref(msg);
    if (build->code) {
        finish(build, build->code, &build->err);
        return;
    }
    /* From here to prepared() the worker owns code, err, config and to. */
    build->preparing = true;
    code = berth_pool_submit(build->cp->runtime->pool, prepare, build, &err);
    if (code) {
        build->preparing = false;
        finish(build, code, &err);
        return;
    }
    berth_stream_read(stream); /* the half-close */
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    struct build *build = ctx;

    (void)stream;
    if (build->adapter)
        berth_stream_read(build->adapter);
}

static void on_cancelled(void *ctx, struct berth_stream *stream)
{
    struct build *build = ctx;
    struct berth_error err;

    (void)stream;
    if (build->adapter)
        berth_stream_cancel(build->adapter);
    (void)berth_fail(&err, BERTH_REASON_CANCELLED, NULL);
    finish(build, err.code, &err);
}

static void on_caller_closed(void *ctx, struct berth_stream *stream,
                             const struct berth_status *status)
{
    struct build *build = ctx;

    (void)stream;
    (void)status;
    build->caller = NULL;
    if (build->adapter)
        berth_stream_cancel(build->adapter);
    free_if_over(build);
}

static const struct berth_stream_ops caller_ops = {
    .message = on_request,
    .written = on_written,
    .closed = on_caller_closed,
    .cancelled = on_cancelled,
};

enum berth_code cp_build_template(void *service, struct berth_stream *stream,
                                  const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                  struct berth_error *err)
{
    struct build *build = calloc(1, sizeof *build);

    if (!build)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    build->cp = service;
    build->loop = berth_stream_loop(stream);
    build->caller = stream;
    *ret_ops = &caller_ops;
    *ret_ctx = build;
    berth_stream_read(stream);
    return BERTH_OK;
}

#include "tests/component/controlplane/fake_adapter.h"

#include <check.h>
#include <stdio.h>

#include "common/messages/messages.h"
#include "common/time/time.h"
#include "tests/component/controlplane/fake_internal.h"

enum { WAIT_MS = 20000 };

typedef Berth__Backend__V1__CreateSandboxRequest CreateSandboxRequest;
typedef Berth__Common__V1__Sandbox Sandbox;

/* ------------------------------------------------------------------- scripts */

static void hold(struct fake_adapter *fake)
{
    unsigned generation = fake->releases;

    fake->n_held++;
    pthread_cond_broadcast(&fake->changed);
    while (fake->releases == generation)
        pthread_cond_wait(&fake->changed, &fake->mutex);
    fake->n_held--;
}

/* Called with the mutex held: logs the call and takes what the script says. */
struct fake_script fake_begin(struct fake_adapter *fake, enum fake_method method,
                              const char *sandbox_id, uint64_t fence,
                              const Google__Protobuf__Timestamp *not_after)
{
    struct fake_script *next = &fake->scripts[method], now = {.act = FAKE_OBEY};

    if (fake->n_calls < FAKE_CALLS_MAX) {
        struct fake_call *call = &fake->calls[fake->n_calls++];

        *call = (struct fake_call){
            .method = method, .fence = fence, .not_after_ms = berth_timestamp_ms(not_after, 0)};
        snprintf(call->sandbox_id, sizeof call->sandbox_id, "%s", sandbox_id);
    }
    if (next->times > 0) {
        now = *next;
        next->times--;
    }
    if (now.act == FAKE_HOLD) {
        hold(fake);
        if (now.reason)
            now.act = FAKE_REFUSE;
    }
    return now;
}

/* Called with the mutex held: how the call ends once it was done. */
enum berth_code fake_end(struct fake_adapter *fake, const struct fake_script *script,
                         struct berth_error *err)
{
    if (script->act == FAKE_HOLD_AFTER)
        hold(fake);
    if (script->act == FAKE_LOSE || script->act == FAKE_LATE)
        return berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN, "the answer is lost");
    return BERTH_OK;
}

/* ----------------------------------------------------------------- sandboxes */

struct fake_sandbox *fake_find(struct fake_adapter *fake, const char *id)
{
    for (size_t i = 0; i < fake->n_sandboxes; i++)
        if (fake->sandboxes[i].used && strcmp(fake->sandboxes[i].id, id) == 0)
            return &fake->sandboxes[i];
    return NULL;
}

static struct fake_sandbox *find_key(struct fake_adapter *fake, const char *key)
{
    for (size_t i = 0; i < fake->n_sandboxes; i++)
        if (fake->sandboxes[i].used && strcmp(fake->sandboxes[i].key, key) == 0 &&
            fake->sandboxes[i].state !=
                BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_TERMINAL)
            return &fake->sandboxes[i];
    return NULL;
}

const char *fake_tag(const struct fake_sandbox *sandbox, const char *key)
{
    for (size_t i = 0; i < sandbox->n_tags; i++)
        if (strcmp(sandbox->tags[i][0], key) == 0)
            return sandbox->tags[i][1];
    return "";
}

static Sandbox *show(const struct fake_adapter *fake, const struct fake_sandbox *from)
{
    Sandbox *out = berth_message_new(&berth__common__v1__sandbox__descriptor);
    bool ok = true;

    out->state = (Berth__Common__V1__SandboxState)from->state;
    out->create_time = berth_timestamp(from->create_ms);
    if (from->end_ms)
        out->end_time = berth_timestamp(from->end_ms);
    if (from->last_active_ms)
        out->last_active_time = berth_timestamp(from->last_active_ms);
    if (from->last_call_ms)
        out->last_call_time = berth_timestamp(from->last_call_ms);
    out->fence = fake->not_fenced ? 0 : from->fence;
    out->disk_used_bytes = from->disk_bytes;
    if (from->warn_ms) {
        out->timeouts = berth_message_new(&berth__common__v1__timeout_policy__descriptor);
        out->timeouts->warn_before = berth_duration(from->warn_ms);
    }
    out->image = berth_message_new(&berth__common__v1__image__descriptor);
    out->image->generation = from->generation;
    if (from->snapshot_id[0]) {
        out->image->source_case = BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID;
        out->image->snapshot_id = strdup(from->snapshot_id);
    } else {
        out->image->source_case = BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID;
        out->image->template_id = strdup(from->template_id);
    }
    ok = berth_set_string(&out->sandbox_id, from->id) &&
         berth_set_string(&out->backend, "local");
    for (size_t i = 0; ok && i < from->n_tags && !fake->forget_tags; i++)
        ok = berth_set_map(&out->n_metadata, &out->metadata,
                           &berth__common__v1__sandbox__metadata_entry__descriptor,
                           from->tags[i][0], from->tags[i][1]);
    ck_assert(ok);
    return out;
}

static Berth__Common__V1__DataPlaneEndpoint *endpoint(const struct fake_sandbox *from)
{
    Berth__Common__V1__DataPlaneEndpoint *out =
        berth_message_new(&berth__common__v1__data_plane_endpoint__descriptor);
    char token[48];

    out->kind = BERTH__COMMON__V1__DATA_PLANE_KIND__DATA_PLANE_KIND_ADAPTER;
    snprintf(token, sizeof token, "traffic-%s", from->id);
    ck_assert(berth_set_string(&out->sandbox_id, from->id) &&
              berth_set_string(&out->traffic_token, token));
    return out;
}

enum berth_code fake_not_found(const char *id, struct berth_error *err)
{
    enum berth_code code = berth_fail(err, BERTH_REASON_SANDBOX_NOT_FOUND, NULL);

    BERTH_ERROR_SET(err, sandbox_id, id);
    return code;
}

static void copy_tags(const CreateSandboxRequest *req, struct fake_sandbox *box)
{
    for (size_t i = 0; i < req->n_metadata && box->n_tags < FAKE_TAGS_MAX; i++, box->n_tags++) {
        snprintf(box->tags[box->n_tags][0], 160, "%s", req->metadata[i]->key);
        snprintf(box->tags[box->n_tags][1], 160, "%s", req->metadata[i]->value);
    }
    for (size_t i = 0; i < req->n_env && box->n_env < FAKE_TAGS_MAX; i++, box->n_env++) {
        snprintf(box->env[box->n_env][0], 160, "%s", req->env[i]->key);
        snprintf(box->env[box->n_env][1], 160, "%s", req->env[i]->value);
    }
}

static struct fake_sandbox *make(struct fake_adapter *fake, const CreateSandboxRequest *req)
{
    struct fake_sandbox *box;

    ck_assert_uint_lt(fake->n_sandboxes, FAKE_SANDBOXES_MAX);
    box = &fake->sandboxes[fake->n_sandboxes++];
    *box = (struct fake_sandbox){.used = true, .fence = req->fence};
    box->state = BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_RUNNING;
    box->create_ms = berth_now_ms();
    box->egress = (int)req->network->egress;
    box->inbound = (int)req->network->inbound;
    box->on_idle = (int)req->timeouts->on_idle;
    box->auto_resume = (int)req->timeouts->auto_resume;
    box->idle_ms = berth_duration_ms(req->timeouts->idle, -1);
    box->generation = req->image->generation;
    if (req->image->source_case == BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID)
        snprintf(box->snapshot_id, sizeof box->snapshot_id, "%s", req->image->snapshot_id);
    else
        snprintf(box->template_id, sizeof box->template_id, "%s", req->image->template_id);
    snprintf(box->id, sizeof box->id, "box-%zu", fake->n_sandboxes);
    snprintf(box->key, sizeof box->key, "%s", req->unique_key);
    copy_tags(req, box);
    return box;
}

static enum berth_code create_or_find(struct fake_adapter *fake,
                                      const CreateSandboxRequest *req,
                                      struct fake_sandbox **ret, struct berth_error *err)
{
    struct fake_sandbox *there = fake->keyed ? find_key(fake, req->unique_key) : NULL;
    char attempt[65] = "";

    ck_assert_uint_le(req->attempt.len, 32);
    for (size_t i = 0; i < req->attempt.len; i++)
        snprintf(attempt + 2 * i, 3, "%02x", req->attempt.data[i]);
    if (there && strcmp(fake_tag(there, "berth.attempt"), attempt) != 0) {
        enum berth_code code = berth_fail(err, BERTH_REASON_SANDBOX_EXISTS, NULL);

        BERTH_ERROR_SET(err, sandbox_id, there->id);
        return code;
    }
    *ret = there ? there : make(fake, req);
    return BERTH_OK;
}

/* ------------------------------------------------------------------ handlers */

HANDLER(get_info)
{
    struct fake_adapter *fake = service;
    Berth__Backend__V1__GetInfoResponse *out = NEW(get_info_response);
    Berth__Common__V1__Capabilities *caps;
    struct fake_script script;
    enum berth_code code;

    (void)call;
    (void)message;
    pthread_mutex_lock(&fake->mutex);
    script = fake_begin(fake, FAKE_GET_INFO, "", 0, NULL);
    caps = out->capabilities = berth_message_new(&berth__common__v1__capabilities__descriptor);
    caps->commands = caps->files = true;
    caps->keyed_create = fake->keyed;
    caps->metadata_filter = true;
    caps->timeout_model = fake->timer ? BERTH__COMMON__V1__TIMEOUT_MODEL__TIMEOUT_MODEL_FIXED
                                      : BERTH__COMMON__V1__TIMEOUT_MODEL__TIMEOUT_MODEL_NONE;
    caps->network = berth_message_new(&berth__common__v1__network_capability__descriptor);
    caps->network->egress_switch = caps->network->inbound_switch = true;
    if (!fake->no_pause) {
        caps->pause = berth_message_new(&berth__common__v1__pause_capability__descriptor);
        caps->pause->supported = caps->pause->keeps_memory = true;
    }
    if (!fake->no_snapshots) {
        caps->snapshots =
            berth_message_new(&berth__common__v1__snapshot_capability__descriptor);
        caps->snapshots->supported = true;
    }
    out->data_plane = BERTH__COMMON__V1__DATA_PLANE_KIND__DATA_PLANE_KIND_ADAPTER;
    out->fenced = !fake->not_fenced;
    out->create_horizon = berth_duration(fake->create_horizon_ms);
    ck_assert(berth_set_string(&out->backend, "local") &&
              berth_set_string(&out->account_id, fake->account_id));
    code = script.act == FAKE_REFUSE ? berth_fail(err, script.reason, NULL)
                                     : fake_end(fake, &script, err);
    pthread_mutex_unlock(&fake->mutex);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

HANDLER(create)
{
    struct fake_adapter *fake = service;
    const CreateSandboxRequest *req = (const CreateSandboxRequest *)message;
    Berth__Backend__V1__CreateSandboxResponse *out = NULL;
    struct fake_sandbox *box = NULL;
    struct fake_script script;
    enum berth_code code;

    (void)call;
    pthread_mutex_lock(&fake->mutex);
    script = fake_begin(fake, FAKE_CREATE, req->unique_key, req->fence, req->not_after_time);
    if (script.act == FAKE_REFUSE) {
        code = berth_fail(err, script.reason, "as the test says");
    } else if (script.act == FAKE_LATE) {
        fake->late = berth_message_copy(req);
        code = fake_end(fake, &script, err);
    } else {
        code = create_or_find(fake, req, &box, err);
        if (!code) {
            out = NEW(create_sandbox_response);
            out->sandbox = show(fake, box);
            out->endpoint = endpoint(box);
            code = fake_end(fake, &script, err);
        }
    }
    pthread_mutex_unlock(&fake->mutex);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

/* The fence of a call that changes something. Called with the mutex held. */
static enum berth_code pass_fence(struct fake_sandbox *box, uint64_t fence,
                                  struct berth_error *err)
{
    if (fence < box->fence)
        return berth_fail(err, BERTH_REASON_FENCE_STALE, NULL);
    box->fence = fence;
    return BERTH_OK;
}

HANDLER(connect_sandbox)
{
    struct fake_adapter *fake = service;
    const Berth__Backend__V1__ConnectSandboxRequest *req =
        (const Berth__Backend__V1__ConnectSandboxRequest *)message;
    Berth__Backend__V1__ConnectSandboxResponse *out = NULL;
    struct fake_script script;
    struct fake_sandbox *box;
    enum berth_code code = BERTH_OK;

    (void)call;
    pthread_mutex_lock(&fake->mutex);
    script = fake_begin(fake, FAKE_CONNECT, req->sandbox_id, req->fence, req->not_after_time);
    snprintf(fake->last_token, sizeof fake->last_token, "%s", req->traffic_token);
    box = fake_find(fake, req->sandbox_id);
    if (script.act == FAKE_REFUSE)
        code = berth_fail(err, script.reason, "as the test says");
    else if (!box)
        code = fake_not_found(req->sandbox_id, err);
    else
        code = pass_fence(box, req->fence, err);
    if (!code) {
        out = NEW(connect_sandbox_response);
        out->resumed = box->state == BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_PAUSED;
        box->state = BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_RUNNING;
        out->sandbox = show(fake, box);
        out->endpoint = endpoint(box);
        out->inbound_token_lost = fake->token_lost;
        code = fake_end(fake, &script, err);
    }
    pthread_mutex_unlock(&fake->mutex);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

HANDLER(get_sandbox)
{
    struct fake_adapter *fake = service;
    const Berth__Backend__V1__GetSandboxRequest *req =
        (const Berth__Backend__V1__GetSandboxRequest *)message;
    Berth__Backend__V1__GetSandboxResponse *out = NULL;
    struct fake_script script;
    struct fake_sandbox *box;
    enum berth_code code = BERTH_OK;

    (void)call;
    pthread_mutex_lock(&fake->mutex);
    script = fake_begin(fake, FAKE_GET, req->sandbox_id, 0, NULL);
    box = fake_find(fake, req->sandbox_id);
    if (script.act == FAKE_REFUSE)
        code = berth_fail(err, script.reason, "as the test says");
    else if (!box)
        code = fake_not_found(req->sandbox_id, err);
    if (!code) {
        out = NEW(get_sandbox_response);
        out->sandbox = show(fake, box);
        code = fake_end(fake, &script, err);
    }
    pthread_mutex_unlock(&fake->mutex);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

static bool matches(const struct fake_sandbox *box,
                    const Berth__Backend__V1__ListSandboxesRequest *req)
{
    for (size_t i = 0; i < req->n_metadata; i++)
        if (strcmp(fake_tag(box, req->metadata[i]->key), req->metadata[i]->value) != 0)
            return false;
    return true;
}

static Sandbox *show_ghost(struct fake_adapter *fake, size_t number)
{
    struct fake_sandbox ghost = fake->sandboxes[0];

    snprintf(ghost.id, sizeof ghost.id, "ghost-%zu", number);
    ghost.create_ms -= 3600 * 1000;
    for (size_t i = 0; i < ghost.n_tags; i++)
        if (strcmp(ghost.tags[i][0], "berth.session") == 0)
            snprintf(ghost.tags[i][1], sizeof ghost.tags[i][1], "ghost-%zu", number);
    return show(fake, &ghost);
}

/* Called with the mutex held. A page token is the index of the next one. */
static void list_page(struct fake_adapter *fake,
                      const Berth__Backend__V1__ListSandboxesRequest *req,
                      Berth__Backend__V1__ListSandboxesResponse *out)
{
    size_t all = fake->n_sandboxes + fake->ghosts;
    size_t i = req->page ? strtoul(req->page->page_token, NULL, 10) : 0;
    char token[24];

    for (; i < all && (!fake->list_page || out->n_sandboxes < fake->list_page); i++) {
        bool ghost = i >= fake->n_sandboxes;

        if (!ghost && (!fake->sandboxes[i].used || fake->forget_tags ||
                       !matches(&fake->sandboxes[i], req)))
            continue;
        if (ghost && req->n_metadata)
            continue;
        ck_assert(
            berth_add_message(&out->n_sandboxes, &out->sandboxes,
                              ghost ? show_ghost(fake, i) : show(fake, &fake->sandboxes[i])));
    }
    snprintf(token, sizeof token, "%zu", fake->list_stuck ? 1 : i);
    if (i < all || fake->list_stuck)
        ck_assert(berth_set_string(&out->next_page_token, token));
}

HANDLER(list_sandboxes)
{
    struct fake_adapter *fake = service;
    const Berth__Backend__V1__ListSandboxesRequest *req =
        (const Berth__Backend__V1__ListSandboxesRequest *)message;
    Berth__Backend__V1__ListSandboxesResponse *out = NEW(list_sandboxes_response);
    struct fake_script script;
    enum berth_code code = BERTH_OK;

    (void)call;
    pthread_mutex_lock(&fake->mutex);
    script = fake_begin(fake, FAKE_LIST, "", 0, NULL);
    if (script.act == FAKE_REFUSE)
        code = berth_fail(err, script.reason, "as the test says");
    out->complete = !fake->incomplete;
    if (!code)
        list_page(fake, req, out);
    if (!code)
        code = fake_end(fake, &script, err);
    pthread_mutex_unlock(&fake->mutex);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

HANDLER(pause_sandbox)
{
    struct fake_adapter *fake = service;
    const Berth__Backend__V1__PauseSandboxRequest *req =
        (const Berth__Backend__V1__PauseSandboxRequest *)message;
    Berth__Backend__V1__PauseSandboxResponse *out = NULL;
    struct fake_script script;
    struct fake_sandbox *box;
    enum berth_code code = BERTH_OK;

    (void)call;
    pthread_mutex_lock(&fake->mutex);
    script = fake_begin(fake, FAKE_PAUSE, req->sandbox_id, req->fence, req->not_after_time);
    box = fake_find(fake, req->sandbox_id);
    if (script.act == FAKE_REFUSE)
        code = berth_fail(err, script.reason, "as the test says");
    else if (!box)
        code = fake_not_found(req->sandbox_id, err);
    else
        code = pass_fence(box, req->fence, err);
    if (!code) {
        box->state = BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_PAUSED;
        out = NEW(pause_sandbox_response);
        out->sandbox = show(fake, box);
        code = fake_end(fake, &script, err);
    }
    pthread_mutex_unlock(&fake->mutex);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

HANDLER(set_timeout)
{
    struct fake_adapter *fake = service;
    const Berth__Backend__V1__SetTimeoutRequest *req =
        (const Berth__Backend__V1__SetTimeoutRequest *)message;
    Berth__Backend__V1__SetTimeoutResponse *out = NULL;
    struct fake_script script;
    struct fake_sandbox *box;
    enum berth_code code = BERTH_OK;

    (void)call;
    pthread_mutex_lock(&fake->mutex);
    script =
        fake_begin(fake, FAKE_SET_TIMEOUT, req->sandbox_id, req->fence, req->not_after_time);
    box = fake_find(fake, req->sandbox_id);
    code = box ? pass_fence(box, req->fence, err) : fake_not_found(req->sandbox_id, err);
    if (!code) {
        int64_t end_ms = berth_now_ms() + berth_duration_ms(req->timeouts->idle, 0);

        if (!req->extend_only || end_ms > box->end_ms)
            box->end_ms = end_ms;
        out = NEW(set_timeout_response);
        out->sandbox = show(fake, box);
        code = fake_end(fake, &script, err);
    }
    pthread_mutex_unlock(&fake->mutex);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

HANDLER(delete_sandbox)
{
    struct fake_adapter *fake = service;
    const Berth__Backend__V1__DeleteSandboxRequest *req =
        (const Berth__Backend__V1__DeleteSandboxRequest *)message;
    Berth__Backend__V1__DeleteSandboxResponse *out = NULL;
    struct fake_script script;
    struct fake_sandbox *box;
    enum berth_code code = BERTH_OK;

    (void)call;
    pthread_mutex_lock(&fake->mutex);
    script = fake_begin(fake, FAKE_DELETE, req->sandbox_id, req->fence, req->not_after_time);
    box = fake_find(fake, req->sandbox_id);
    if (script.act == FAKE_REFUSE)
        code = berth_fail(err, script.reason, "as the test says");
    else if (box)
        code = pass_fence(box, req->fence, err);
    if (!code) {
        out = NEW(delete_sandbox_response);
        out->existed = box != NULL;
        if (box)
            box->used = false;
        code = fake_end(fake, &script, err);
    }
    pthread_mutex_unlock(&fake->mutex);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

/* ---------------------------------------------------------------------- life */

static const struct berth_method methods[] = {
    METHOD("BackendService", "GetInfo", get_info, get_info),
    METHOD("BackendService", "CreateSandbox", create_sandbox, create),
    METHOD("BackendService", "ConnectSandbox", connect_sandbox, connect_sandbox),
    METHOD("BackendService", "GetSandbox", get_sandbox, get_sandbox),
    METHOD("BackendService", "ListSandboxes", list_sandboxes, list_sandboxes),
    METHOD("BackendService", "PauseSandbox", pause_sandbox, pause_sandbox),
    METHOD("BackendService", "DeleteSandbox", delete_sandbox, delete_sandbox),
    METHOD("BackendService", "SetTimeout", set_timeout, set_timeout),
};

void fake_start(struct fake_adapter *fake)
{
    const struct berth_server_options options = {
        .loop = fake->loop, .n_workers = 64, .peers_only = true};

    ck_assert_int_eq(berth_server_new(&options, &fake->server, NULL), BERTH_OK);
    ck_assert_int_eq(berth_server_add(fake->server, methods, BERTH_COUNT(methods), fake, NULL),
                     BERTH_OK);
    ck_assert_int_eq(berth_server_add(fake->server, fake_catalog_methods,
                                      fake_n_catalog_methods, fake, NULL),
                     BERTH_OK);
    ck_assert_int_eq(berth_server_listen(fake->server, fake->target, NULL, NULL), BERTH_OK);
    ck_assert_int_eq(berth_server_start(fake->server, NULL), BERTH_OK);
}

void fake_stop(struct fake_adapter *fake)
{
    fake_release(fake);
    fake->server = berth_server_free(fake->server);
}

struct fake_adapter *fake_new(const char *socket)
{
    struct fake_adapter *fake = calloc(1, sizeof *fake);

    ck_assert_ptr_nonnull(fake);
    fake->keyed = true;
    snprintf(fake->account_id, sizeof fake->account_id, "store-1");
    snprintf(fake->target, sizeof fake->target, "unix:%s", socket);
    pthread_mutex_init(&fake->mutex, NULL);
    pthread_cond_init(&fake->changed, NULL);
    ck_assert_int_eq(berth_loop_new(&fake->loop, NULL), BERTH_OK);
    ck_assert_int_eq(berth_loop_start(fake->loop, "fake", NULL), BERTH_OK);
    fake_start(fake);
    return fake;
}

struct fake_adapter *fake_free(struct fake_adapter *fake)
{
    if (fake->server)
        fake_stop(fake);
    berth_loop_free(fake->loop);
    berth_message_free(fake->late);
    pthread_mutex_destroy(&fake->mutex);
    pthread_cond_destroy(&fake->changed);
    free(fake);
    return NULL;
}

/* --------------------------------------------------------------- the test's hand */

void fake_script(struct fake_adapter *fake, enum fake_method method, enum fake_act act,
                 enum berth_reason reason, unsigned times)
{
    pthread_mutex_lock(&fake->mutex);
    fake->scripts[method] = (struct fake_script){.act = act, .reason = reason, .times = times};
    pthread_mutex_unlock(&fake->mutex);
}

void fake_wait_held(struct fake_adapter *fake, unsigned n)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    unsigned held;

    do {
        pthread_mutex_lock(&fake->mutex);
        held = fake->n_held;
        pthread_mutex_unlock(&fake->mutex);
        ck_assert_msg(berth_tick_ms() < end_tick, "%u of %u calls came", held, n);
        usleep(1000);
    } while (held < n);
}

void fake_release(struct fake_adapter *fake)
{
    pthread_mutex_lock(&fake->mutex);
    fake->releases++;
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->mutex);
}

void fake_land(struct fake_adapter *fake)
{
    struct fake_sandbox *ignored;

    pthread_mutex_lock(&fake->mutex);
    ck_assert_ptr_nonnull(fake->late);
    (void)create_or_find(fake, fake->late, &ignored, NULL);
    fake->late = berth_message_free(fake->late);
    pthread_mutex_unlock(&fake->mutex);
}

size_t fake_alive(struct fake_adapter *fake)
{
    size_t n = 0;

    pthread_mutex_lock(&fake->mutex);
    for (size_t i = 0; i < fake->n_sandboxes; i++)
        n += fake->sandboxes[i].used;
    pthread_mutex_unlock(&fake->mutex);
    return n;
}

size_t fake_count(struct fake_adapter *fake, enum fake_method method)
{
    size_t n = 0;

    pthread_mutex_lock(&fake->mutex);
    for (size_t i = 0; i < fake->n_calls; i++)
        n += fake->calls[i].method == method;
    pthread_mutex_unlock(&fake->mutex);
    return n;
}

void fake_forget_calls(struct fake_adapter *fake)
{
    pthread_mutex_lock(&fake->mutex);
    fake->n_calls = 0;
    pthread_mutex_unlock(&fake->mutex);
}

struct fake_sandbox *fake_only(struct fake_adapter *fake)
{
    struct fake_sandbox *only = NULL;
    size_t n = 0;

    pthread_mutex_lock(&fake->mutex);
    for (size_t i = 0; i < fake->n_sandboxes; i++) {
        if (fake->sandboxes[i].used) {
            only = &fake->sandboxes[i];
            n++;
        }
    }
    pthread_mutex_unlock(&fake->mutex);
    return n == 1 ? only : NULL;
}

void fake_kill(struct fake_adapter *fake, const char *id)
{
    pthread_mutex_lock(&fake->mutex);
    ck_assert_ptr_nonnull(fake_find(fake, id));
    fake_find(fake, id)->used = false;
    pthread_mutex_unlock(&fake->mutex);
}

void fake_set_state(struct fake_adapter *fake, const char *id, int state)
{
    pthread_mutex_lock(&fake->mutex);
    ck_assert_ptr_nonnull(fake_find(fake, id));
    fake_find(fake, id)->state = state;
    pthread_mutex_unlock(&fake->mutex);
}

void fake_clone(struct fake_adapter *fake, const char *id)
{
    struct fake_sandbox *copy;

    pthread_mutex_lock(&fake->mutex);
    ck_assert_uint_lt(fake->n_sandboxes, FAKE_SANDBOXES_MAX);
    copy = &fake->sandboxes[fake->n_sandboxes++];
    *copy = *fake_find(fake, id);
    copy->create_ms += 1000;
    snprintf(copy->id, sizeof copy->id, "box-%zu", fake->n_sandboxes);
    pthread_mutex_unlock(&fake->mutex);
}

size_t fake_snapshots_alive(struct fake_adapter *fake)
{
    size_t n = 0;

    pthread_mutex_lock(&fake->mutex);
    for (size_t i = 0; i < fake->n_snapshots; i++)
        n += fake->snapshots[i].used;
    pthread_mutex_unlock(&fake->mutex);
    return n;
}

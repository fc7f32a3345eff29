/* channel.c - channels, and what all calls on them share. */
#include "common/rpc/channel.h"

#include <grpc/grpc_security.h>
#include <limits.h>
#include <stdio.h>

#include "common/log/log.h"
#include "common/rpc/paths.h"
#include "common/time/time.h"

enum {
    LOOK_MS = 200, /* how long a state is taken as it was seen */
    RECONNECT_FIRST_MS = 100,
    RECONNECT_MAX_MS = 1000,
    CONNECT_TIMEOUT_MS = 1000,
    /* For peers on other machines that vanish without a word. Our servers allow 10 s. */
    KEEPALIVE_MS = 20000,
    KEEPALIVE_TIMEOUT_MS = 10000,
    /* Longer than a call can wait for a connection: it is given CONNECT_TIMEOUT_MS and fails
     * with it, and so does a name that cannot be resolved in time. */
    RETIRED_MS = 60000,
    WARN_EVERY_MS = 5000,
};

static grpc_arg int_arg(const char *key, int value)
{
    grpc_arg arg = {.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key};

    arg.value.integer = value;
    return arg;
}

/* credentials are taken; NULL: plaintext. */
static grpc_channel *make_core(const char *target, grpc_channel_credentials *credentials,
                               const char *server_name)
{
    grpc_arg name_arg = {.type = GRPC_ARG_STRING,
                         .key = (char *)(uintptr_t)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG};
    grpc_arg args[] = {
        int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, BERTH_RPC_MESSAGE_MAX),
        int_arg(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, BERTH_RPC_MESSAGE_MAX),
        int_arg(GRPC_ARG_MAX_METADATA_SIZE, BERTH_RPC_METADATA_MAX),
        int_arg(GRPC_ARG_HTTP2_BDP_PROBE, 0),
        int_arg(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, RPC_STREAM_WINDOW),
        int_arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, RECONNECT_FIRST_MS),
        int_arg(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, CONNECT_TIMEOUT_MS),
        int_arg(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, RECONNECT_MAX_MS),
        int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS),
        int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS),
        int_arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0), /* as many as keepalive wants */
        /* We retry ourselves. With the core's retries a stream that has sent more than their
         * buffer holds never ends after it is cancelled. */
        int_arg(GRPC_ARG_ENABLE_RETRIES, 0), int_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
        int_arg(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
        int_arg(GRPC_ARG_ENABLE_CHANNELZ, 0),
        int_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1), /* a channel is a connection */
        name_arg,                                       /* the last one: not always there */
    };
    grpc_channel_args channel_args = {BERTH_COUNT(args) - (server_name ? 0 : 1), args};
    grpc_channel *core;

    args[BERTH_COUNT(args) - 1].value.string = (char *)(uintptr_t)server_name;
    if (!credentials)
        credentials = grpc_insecure_credentials_create();
    core = grpc_channel_create(target, credentials, &channel_args);
    grpc_channel_credentials_release(credentials);
    return core;
}

/* In a form that differs from how the core names a connection ("unix:/path",
 * "ipv4:127.0.0.1:7403"), for rpc_call_was_sent(). Owned; NULL: out of memory. */
static char *spell_target(const char *target)
{
    char cwd[PATH_MAX] = "", *spelt = NULL;
    const char *path;

    if (strncmp(target, "unix:", 5) != 0)
        return strdup(strncmp(target, "ipv4:", 5) == 0 ? target + 5 : target);
    if (strncmp(target, "unix:///", 8) == 0)
        return strdup(target);
    path = target + 5;
    if (*path != '/' && !getcwd(cwd, sizeof cwd))
        return NULL;
    return asprintf(&spelt, "unix://%s%s%s", cwd, *cwd ? "/" : "", path) < 0 ? NULL : spelt;
}

static enum berth_code init_tls(struct berth_channel *channel,
                                const struct berth_channel_options *options,
                                struct berth_error *err)
{
    if (!options || !options->tls)
        return BERTH_OK;
    if (!rpc_tls_has_ca(options->tls))
        return berth_fail(err, BERTH_REASON_FIELD_INVALID,
                          "a channel with TLS needs authorities to verify its server by");
    if (options->server_name && !(channel->server_name = strdup(options->server_name)))
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    channel->tls = rpc_tls_ref(options->tls);
    return BERTH_OK;
}

enum berth_code berth_channel_new(const char *target,
                                  const struct berth_channel_options *options,
                                  struct berth_channel **ret, struct berth_error *err)
{
    struct berth_channel *channel = calloc(1, sizeof *channel);
    enum berth_code code;

    if (!channel)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    atomic_init(&channel->refs, 1);
    pthread_mutex_init(&channel->mutex, NULL);
    channel->unavailable =
        options && options->unavailable ? options->unavailable : BERTH_REASON_PEER_UNAVAILABLE;
    channel->max_in_flight = options ? options->max_in_flight : 0;
    channel->target = spell_target(target);
    code = channel->target ? init_tls(channel, options, err)
                           : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (code) {
        berth_channel_free(channel);
        return code;
    }
    channel->core = make_core(
        channel->target,
        channel->tls ? rpc_tls_channel_credentials(channel->tls, &channel->generation) : NULL,
        channel->server_name);
    *ret = channel;
    return BERTH_OK;
}

struct berth_channel *rpc_channel_ref(struct berth_channel *channel)
{
    atomic_fetch_add(&channel->refs, 1);
    return channel;
}

struct berth_channel *berth_channel_free(struct berth_channel *channel)
{
    if (!channel || atomic_fetch_sub(&channel->refs, 1) != 1)
        return NULL;
    if (channel->core)
        grpc_channel_destroy(channel->core);
    while (channel->retired) {
        struct rpc_retired *old = channel->retired;

        channel->retired = old->next;
        grpc_channel_destroy(old->core);
        free(old);
    }
    berth_tls_free(channel->tls);
    pthread_mutex_destroy(&channel->mutex);
    free(channel->server_name);
    free(channel->target);
    free(channel);
    return NULL;
}

const char *rpc_channel_unsent(struct berth_channel *channel, const char *why)
{
    int_fast64_t now = berth_tick_ms(), due = atomic_load(&channel->warn_tick);

    if (now >= due &&
        atomic_compare_exchange_strong(&channel->warn_tick, &due, now + WARN_EVERY_MS))
        berth_warn("a peer cannot be reached", "peer", channel->target, "error", why);
    return berth_reason_text(channel->unavailable);
}

/* With the mutex held. Calls that wait for a connection end as "Channel Destroyed" with their
 * channel, of which nobody could say whether anything was done: so it goes when there can be
 * none left. Those that have a connection keep it. */
static void drop_retired(struct berth_channel *channel, int64_t until_tick_ms)
{
    struct rpc_retired **slot = &channel->retired, *old, *next;

    while (*slot && (*slot)->tick_ms > until_tick_ms)
        slot = &(*slot)->next;
    old = *slot;
    *slot = NULL;
    for (; old; old = next) {
        next = old->next;
        grpc_channel_destroy(old->core);
        free(old);
    }
}

/* With the mutex held. Where there is no memory the next call tries again. */
static void renew_core(struct berth_channel *channel)
{
    struct rpc_retired *old = calloc(1, sizeof *old);

    if (!old)
        return;
    *old = (struct rpc_retired){channel->retired, channel->core, berth_tick_ms()};
    channel->retired = old;
    channel->core = make_core(channel->target,
                              rpc_tls_channel_credentials(channel->tls, &channel->generation),
                              channel->server_name);
}

/* The core's channel, until unlock_core(). One with TLS is made anew when there are other
 * certificates. */
static grpc_channel *lock_core(struct berth_channel *channel)
{
    if (!channel->tls)
        return channel->core;
    pthread_mutex_lock(&channel->mutex);
    if (channel->generation != rpc_tls_generation(channel->tls))
        renew_core(channel);
    if (channel->retired)
        drop_retired(channel, berth_tick_ms() - RETIRED_MS);
    return channel->core;
}

static void unlock_core(struct berth_channel *channel)
{
    if (channel->tls)
        pthread_mutex_unlock(&channel->mutex);
}

bool berth_channel_ready(struct berth_channel *channel, int64_t wait_ms)
{
    int64_t end_ms = berth_tick_ms() + wait_ms, left_ms = wait_ms;
    struct rpc_pluck_queue *queue = rpc_pluck_take();
    bool ready = false;

    while (queue) {
        grpc_channel *core = lock_core(channel);
        grpc_connectivity_state state = grpc_channel_check_connectivity_state(core, 1);

        ready = state == GRPC_CHANNEL_READY;
        /* A connection that was made and lost between two looks leaves the state as it was, and
         * then it is only this call that tries again: so look again, changed or not. */
        if (!ready && left_ms > 0)
            grpc_channel_watch_connectivity_state(
                core, state, rpc_deadline(left_ms < LOOK_MS ? left_ms : LOOK_MS), queue->core,
                queue);
        unlock_core(channel);
        if (ready || left_ms <= 0)
            break;
        (void)grpc_completion_queue_pluck(queue->core, queue,
                                          gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        left_ms = end_ms - berth_tick_ms();
    }
    if (queue)
        rpc_pluck_give(queue);
    return ready;
}

/* ---------------------------------------------------------- parts of a call */

static bool ends_in_bin(const char *key)
{
    size_t len = strlen(key);

    return len > 4 && strcmp(key + len - 4, "-bin") == 0;
}

enum berth_code rpc_call_metadata_add(struct rpc_call_metadata *metadata,
                                      const struct berth_metadata *from,
                                      struct berth_error *err)
{
    grpc_metadata *entry = &metadata->entries[metadata->n];

    if (metadata->n == BERTH_COUNT(metadata->entries))
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "more than %d entries of metadata",
                          RPC_CALL_METADATA_MAX);
    *entry = (grpc_metadata){.key = grpc_slice_from_copied_string(from->key),
                             .value = grpc_slice_from_copied_buffer(from->value, from->size)};
    if (grpc_header_key_is_legal(entry->key) &&
        (ends_in_bin(from->key) || grpc_header_nonbin_value_is_legal(entry->value))) {
        metadata->n++;
        return BERTH_OK;
    }
    grpc_slice_unref(entry->key);
    grpc_slice_unref(entry->value);
    return berth_fail(err, BERTH_REASON_FIELD_INVALID, "metadata '%.64s' is not valid",
                      from->key);
}

enum berth_code rpc_call_metadata_init(struct rpc_call_metadata *metadata,
                                       const struct berth_call_options *options,
                                       struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    metadata->n = 0;
    if (options && options->n_metadata > RPC_CALL_METADATA_MAX)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "more than %d entries of metadata",
                          RPC_CALL_METADATA_MAX);
    for (size_t i = 0; options && i < options->n_metadata && !code; i++)
        code = rpc_call_metadata_add(metadata, &options->metadata[i], err);
    if (!code && options && options->parent) {
        const char *traceparent = berth_call_traceparent(options->parent);
        const struct berth_metadata entry = {"traceparent", traceparent, strlen(traceparent)};

        code = rpc_call_metadata_add(metadata, &entry, err);
    }
    if (code)
        rpc_call_metadata_deinit(metadata);
    return code;
}

const void *rpc_metadata_find(const grpc_metadata_array *metadata, const char *key,
                              size_t *ret_size)
{
    for (size_t i = 0; i < metadata->count; i++) {
        const grpc_metadata *entry = &metadata->metadata[i];

        if (rpc_slice_is(entry->key, key)) {
            *ret_size = GRPC_SLICE_LENGTH(entry->value);
            return GRPC_SLICE_START_PTR(entry->value);
        }
    }
    return NULL;
}

void rpc_call_metadata_deinit(struct rpc_call_metadata *metadata)
{
    for (size_t i = 0; i < metadata->n; i++) {
        grpc_slice_unref(metadata->entries[i].key);
        grpc_slice_unref(metadata->entries[i].value);
    }
    metadata->n = 0;
}

int64_t rpc_call_timeout_ms(const struct berth_call_options *options, int64_t default_ms)
{
    int64_t timeout_ms = options && options->timeout_ms ? options->timeout_ms : default_ms;

    if (options && options->parent) {
        int64_t left_ms = berth_call_left_ms(options->parent);

        if (left_ms < timeout_ms)
            timeout_ms = left_ms;
    }
    return timeout_ms > 0 ? timeout_ms : 0;
}

grpc_call *rpc_channel_create_call(struct berth_channel *channel, grpc_completion_queue *queue,
                                   const char *path, gpr_timespec deadline)
{
    grpc_slice method = rpc_path_slice(path);
    grpc_call *call = grpc_channel_create_call(
        lock_core(channel), NULL, GRPC_PROPAGATE_DEFAULTS, queue, method, NULL, deadline, NULL);

    unlock_core(channel);
    grpc_slice_unref(method);
    return call;
}

/* The core names the target until the call has a connection, and then the connection. */
bool rpc_call_was_sent(const struct berth_channel *channel, grpc_call *call)
{
    char *peer = grpc_call_get_peer(call);
    bool sent = strcmp(peer, channel->target) != 0;

    gpr_free(peer);
    return sent;
}

/* rounds.c - tracks of blocking calls, taken in turns so that all see the same machine.
 *
 * A track is {"name", "timed": [call], "after": [call]}; a call is {"target", "path", "request"
 * (hex), "metadata" {key: hex}} or {"redis": url, "get": key}. Twelve '@' in a request become a
 * number that is new in each round. Each round runs each track once, the first one changing. */
#include <stdio.h>

#include "berth/common/v1/common.pb-c.h"
#include "common/redis/redis.h"
#include "common/time/time.h"
#include "google/protobuf/empty.pb-c.h"
#include "tests/bench/load.h"

enum { TRACKS_MAX = 8, CALLS_MAX = 8, MARK = 12 };
static const char mark[MARK + 1] = "@@@@@@@@@@@@";

struct call {
    struct berth_redis *redis; /* NULL: a call */
    const char *key;
    struct berth_channel *channel;
    const char *path;
    uint8_t *request;
    size_t size;
    struct load_metadata metadata;
};

struct track {
    const char *name;
    struct call timed[CALLS_MAX], after[CALLS_MAX];
    size_t n_timed, n_after;
    json_t *micros;
};

static void call_init(struct call *call, const json_t *plan)
{
    struct berth_error err = {0};

    memset(call, 0, sizeof *call);
    if (json_object_get(plan, "redis")) {
        const struct berth_redis_options options = {.url = load_text(plan, "redis")};

        if (berth_redis_new(&options, &call->redis, &err))
            load_fail("%s", err.text);
        call->key = load_text(plan, "get");
        return;
    }
    call->channel = load_channel(load_text(plan, "target"));
    call->path = load_text(plan, "path");
    call->request = load_bytes(plan, "request", &call->size);
    load_metadata_init(&call->metadata, plan);
}

static size_t calls_init(struct call *calls, const json_t *plans)
{
    size_t n = json_array_size(plans);

    if (n > CALLS_MAX)
        load_fail("more than %d calls in a track", CALLS_MAX);
    for (size_t i = 0; i < n; i++)
        call_init(&calls[i], json_array_get(plans, i));
    return n;
}

static void calls_deinit(struct call *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        berth_redis_free(calls[i].redis);
        free(calls[i].request);
        load_metadata_deinit(&calls[i].metadata);
    }
}

static void redis_get(struct call *call)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    const char *const words[] = {"GET", call->key};
    struct berth_error err = {0};

    if (berth_redis_call(call->redis, 2, words, NULL, &reply, &err))
        load_fail("GET: %s", err.text);
}

static ProtobufCMessage *request_of(struct call *call, uint64_t number)
{
    ProtobufCMessage *message = NULL;
    uint8_t *bytes = malloc(call->size + 1), *at;
    char digits[MARK + 1];

    if (!bytes)
        load_fail("out of memory");
    memcpy(bytes, call->request, call->size);
    snprintf(digits, sizeof digits, "%012llu", (unsigned long long)(number % 1000000000000ULL));
    for (at = bytes; (at = memmem(at, (size_t)(bytes + call->size - at), mark, MARK));
         at += MARK)
        memcpy(at, digits, MARK);
    if (berth_decode(&LOAD_ANY, bytes, call->size, &message, NULL))
        load_fail("%s: the request is no message", call->path);
    free(bytes);
    return message;
}

static void run_calls(struct call *calls, size_t n, uint64_t number, json_t *ret_micros)
{
    ProtobufCMessage *requests[CALLS_MAX] = {NULL}, *response;
    struct berth_error err = {0};
    int64_t begin_ns;

    for (size_t i = 0; i < n; i++) {
        if (!calls[i].redis)
            requests[i] = request_of(&calls[i], number);
    }
    begin_ns = berth_tick_ns();
    for (size_t i = 0; i < n; i++) {
        const struct berth_call_options options = {.timeout_ms = 120000,
                                                   .metadata = calls[i].metadata.entries,
                                                   .n_metadata = calls[i].metadata.n};

        if (calls[i].redis) {
            redis_get(&calls[i]);
            continue;
        }
        if (berth_channel_call(calls[i].channel, calls[i].path, requests[i], &LOAD_ANY,
                               &options, &response, &err))
            load_fail("%s: %s / %s: %s", calls[i].path, berth_code_name(err.code),
                      berth_reason_name(err.reason), err.text);
        protobuf_c_message_free_unpacked(response, NULL);
    }
    if (ret_micros)
        json_array_append_new(ret_micros,
                              json_real((double)(berth_tick_ns() - begin_ns) / 1000.0));
    for (size_t i = 0; i < n; i++) {
        if (requests[i])
            protobuf_c_message_free_unpacked(requests[i], NULL);
    }
}

json_t *load_rounds(const json_t *plan)
{
    const json_t *plans = json_object_get(plan, "tracks");
    size_t n_tracks = json_array_size(plans);
    int64_t n = load_number(plan, "n"), warm = load_number(plan, "warm");
    uint64_t number = (uint64_t)berth_now_ms() * 1000;
    struct track *tracks = calloc(TRACKS_MAX, sizeof *tracks);
    json_t *result = json_object();

    if (!tracks || n_tracks > TRACKS_MAX)
        load_fail("more than %d tracks", TRACKS_MAX);
    for (size_t i = 0; i < n_tracks; i++) {
        const json_t *one = json_array_get(plans, i);

        tracks[i].name = load_text(one, "name");
        tracks[i].n_timed = calls_init(tracks[i].timed, json_object_get(one, "timed"));
        tracks[i].n_after = calls_init(tracks[i].after, json_object_get(one, "after"));
        tracks[i].micros = json_array();
    }
    for (int64_t round = -warm; round < n; round++) {
        for (size_t k = 0; k < n_tracks; k++) {
            struct track *track = &tracks[(k + (size_t)(round + warm)) % n_tracks];

            number++;
            run_calls(track->timed, track->n_timed, number, round < 0 ? NULL : track->micros);
            run_calls(track->after, track->n_after, number, NULL);
        }
    }
    for (size_t i = 0; i < n_tracks; i++) {
        json_object_set_new(result, tracks[i].name, tracks[i].micros);
        calls_deinit(tracks[i].timed, tracks[i].n_timed);
        calls_deinit(tracks[i].after, tracks[i].n_after);
    }
    free(tracks);
    return result;
}

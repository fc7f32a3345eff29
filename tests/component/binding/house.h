/* house.h - a redis-server and one or two berth-binding services in this process, each behind a
 * unix socket of its own, with a tenant "t1" and an active config "c1" (keyed create). */
#pragma once

#include <check.h>

#include "common/rpc/rpc.h"
#include "services/binding/binding.h"
#include "tests/lib/redis_proxy.h"
#include "tests/lib/redis_server.h"

#include "berth/binding/v1/binding.pb-c.h"

typedef Berth__Binding__V1__AcquireRequest AcquireRequest;
typedef Berth__Binding__V1__AcquireResponse AcquireResponse;
typedef Berth__Binding__V1__CommitRequest CommitRequest;

enum { REPLICAS = 2, WAIT_MS = 20000 };

struct house_options {
    struct redis_server_options redis;
    const struct redis_server *outside; /* taken over in place of one of its own; or NULL */
    const char *url;       /* of the store, for the services and the test's client; or NULL */
    struct proxy *proxy;   /* between services and Redis, for as long as the house; or NULL */
    int64_t lock_ms;       /* 0: 60 s */
    int64_t turn_min_ms;   /* 0: a minute */
    int64_t tombstone_ms;  /* 0: 24 h */
    int64_t quarantine_ms; /* 0: 60 s */
    int64_t command_ms;    /* 0: patient; what a service has is 800 */
    unsigned wait_replicas;
    size_t max_waiters; /* 0: 8192 */
};

struct house {
    struct redis_server server;
    struct proxy *proxy;
    struct berth_redis *redis; /* the test's own client */
    struct {
        struct berth_redis *redis;
        struct berth_loop *loop;
        struct berth_server *server;
        struct binding *binding;
        struct berth_channel *channel;
        char address[160];
    } replica[REPLICAS];
};

void house_open(struct house *house, const struct house_options *options);
void house_close(struct house *house);

/* Reply of one command, freed: its string (static until the next call) or "" . */
const char *house_ask(struct house *house, ...) __attribute__((sentinel));
/* A session's field in Redis; "" when absent. */
const char *house_field(struct house *house, const char *session, const char *field);

/* A path as house_call() wants it: gRPC core may look at it long after the call. */
#define METHOD(name) ("/berth.binding.v1.BindingService/" name)
/* One call; the reason, NONE when it went well. resp (may be NULL) is to be freed with
 * protobuf_c_message_free_unpacked. */
enum berth_reason house_call(struct house *house, int replica, const char *path,
                             const ProtobufCMessage *req,
                             const ProtobufCMessageDescriptor *resp_type, int64_t timeout_ms,
                             void *ret_resp);

/* An Acquire by a session id and an attempt number. */
struct grant {
    enum berth_reason reason;
    int decision;
    uint64_t fence;
    int64_t lease_ms;
    uint8_t token[16];
    size_t n_intents;
    bool protected, stale, turn_running, keyed;
    char bound[129];
    char alias[21];
    char boots[129];
};
struct want {
    const char *session;
    int kind; /* of enum binding_want_kind */
    unsigned attempt;
    const char *turn_token, *failed;
    int64_t timeout_ms; /* 0: WAIT_MS */
    bool must_be_new, recreate;
};
struct grant house_acquire(struct house *house, int replica, struct want want);
/* Fills a request; what it points to lives as long as the two given. */
struct acquire_parts {
    Berth__Common__V1__SessionRef ref;
    Berth__Common__V1__SessionSpec spec;
    uint8_t attempt[16];
};
void house_fill_acquire(struct want want, struct acquire_parts *parts, AcquireRequest *req);

enum berth_reason house_bind(struct house *house, int replica, const char *session,
                             const struct grant *grant, const char *sandbox_id);
enum berth_reason house_gone(struct house *house, int replica, const char *session,
                             const struct grant *grant, const char *sandbox_id, bool keep_lock);
enum berth_reason house_tombstone(struct house *house, int replica, const char *session,
                                  const struct grant *grant);
enum berth_reason house_abort(struct house *house, int replica, const char *session,
                              const struct grant *grant);
enum berth_reason house_renew_lock(struct house *house, int replica, const char *session,
                                   const struct grant *grant, int64_t *ret_lease_ms);
/* token (of 160) is filled. */
enum berth_reason house_begin(struct house *house, int replica, const char *session,
                              const char *turn_id, char *token);

/* A session with a sandbox; aborts the test when it does not come to be. */
void house_make(struct house *house, const char *session, const char *sandbox_id);

#define ck_reason(got, name) ck_assert_str_eq(berth_reason_name(got), name)
/* Poll until what is said is true. */
#define await(condition)                                                                       \
    do {                                                                                       \
        int64_t until_tick_ = berth_tick_ms() + WAIT_MS;                                       \
        bool true_ = (condition);                                                              \
        while (!true_ && berth_tick_ms() < until_tick_) {                                      \
            usleep(500);                                                                       \
            true_ = (condition);                                                               \
        }                                                                                      \
        ck_assert_msg(true_, "never: %s", #condition);                                         \
    } while (0)

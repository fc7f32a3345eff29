/* rig.h - a real data plane between a fake control plane, a fake adapter that can misbehave,
 * and a caller whose every step the test decides. All in one process, over unix sockets. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "berth/control/v1/control.pb-c.h"
#include "berth/data/v1/data.pb-c.h"
#include "common/errors/errors.h"
#include "common/rpc/rpc.h"
#include "services/dataplane/dataplane.h"

#define RUN "/berth.data.v1.ProcessService/Run"
#define EXEC "/berth.data.v1.ProcessService/Exec"
#define ATTACH "/berth.data.v1.ProcessService/Attach"
#define LIST_PROCESSES "/berth.data.v1.ProcessService/ListProcesses"
#define SIGNAL "/berth.data.v1.ProcessService/Signal"
#define STAT "/berth.data.v1.FileService/Stat"
#define READ_FILE "/berth.data.v1.FileService/ReadFile"
#define MAKE_DIR "/berth.data.v1.FileService/MakeDir"
#define MOVE "/berth.data.v1.FileService/Move"
#define REMOVE "/berth.data.v1.FileService/Remove"
#define WRITE_FILE "/berth.data.v1.FileService/WriteFile"

enum { WAIT_MS = 10000, LOG_MAX = 64, STEPS_MAX = 8, CHUNK = 64 << 10 };

/* Poll until the condition holds; the deadline is for a broken build only. */
#define WAIT_UNTIL(condition)                                                                  \
    do {                                                                                       \
        int64_t wait_end = berth_tick_ms() + WAIT_MS;                                          \
        while (!(condition)) {                                                                 \
            ck_assert_msg(berth_tick_ms() < wait_end, "never: %s", #condition);                \
            usleep(500);                                                                       \
        }                                                                                      \
    } while (0)

/* What the adapter does with a call. */
enum act {
    ACT_ANSWER, /* n messages of size bytes each, then the status */
    ACT_STALL,  /* reads the first message, then nothing */
    ACT_FLOOD,  /* messages of CHUNK without end, as fast as they are taken */
    ACT_COLLECT /* reads to the half-close, then one message and the status */
};

struct step {
    enum act act;
    unsigned n;                      /* ACT_ANSWER */
    size_t size;                     /* of each */
    enum berth_reason reason;        /* 0: OK */
    const char *sandbox_id;          /* in the error */
    int bare_code;                   /* a status without details instead; 0: no */
    bool stay;                       /* ACT_ANSWER: no status after the messages */
    const ProtobufCMessage *message; /* the first one, instead of bytes; or NULL */
};

/* What the control plane answers. */
struct resolve_step {
    enum berth_reason reason; /* 0: a route */
    const char *sandbox_id;   /* NULL: "sb-1" */
    const char *backend;      /* NULL: "local" */
    int kind;                 /* 0: ADAPTER */
    int64_t timeout_ms, timeout_max_ms;
    bool root, maintenance, wait; /* wait: until rig->release */
    uint64_t loss;                /* number of what was lost; 0: nothing */
};

struct adapter_call {
    char path[64], sandbox_id[64], tenant[64];
    uint64_t fence;
    struct berth_buf *first;
};

struct rig {
    char dir[64];
    struct berth_loop *dp_loop, *fake_loop, *caller_loop;
    struct berth_server *control, *adapter, *front;
    struct dataplane *dp;
    struct berth_channel *channel;
    struct dataplane_options options;

    pthread_mutex_t mutex;        /* for all below */
    struct step steps[STEPS_MAX]; /* the last one goes on for ever */
    unsigned n_steps;
    struct resolve_step resolves[STEPS_MAX];
    unsigned n_resolves;
    bool release;

    struct adapter_call calls[LOG_MAX];
    unsigned n_calls, n_cancelled, n_open, n_half_closed;
    uint64_t adapter_in, adapter_out; /* bytes taken and given by the adapter's streams */
    uint64_t in_sum;                  /* of the bytes, with their place */
    unsigned n_resolved;
    char failed_sandbox_id[64], turn_token[64];
    int mode;
    unsigned n_renew, n_end;
    char use_token[2][64], use_sandbox_id[64];
    unsigned n_tokens; /* different ones */
    enum berth_reason renew_reason;
    unsigned n_told; /* LossTold */
    uint64_t told;   /* the last number */
    enum berth_reason told_reason;
    bool hold_told; /* until rig->release */
};

/* options: 0 members get defaults fit for a test. */
struct rig *rig_new(const struct dataplane_options *options);
void rig_free(struct rig *rig);
void rig_adapter_start(struct rig *rig);
void rig_adapter_kill(struct rig *rig);
void rig_control_start(struct rig *rig);
void rig_control_kill(struct rig *rig);
uint64_t rig_get(struct rig *rig, const uint64_t *value);
unsigned rig_count(struct rig *rig, const unsigned *value);

/* One call, seen from the caller. */
struct caller {
    struct rig *rig;
    struct berth_stream *stream; /* caller_loop's */
    /* under rig->mutex */
    bool auto_read, flood;
    struct berth_buf *messages[LOG_MAX];
    unsigned n_messages; /* all; LOG_MAX are kept */
    uint64_t bytes, sum;
    uint64_t sent_bytes;
    unsigned n_sent;
    struct berth_buf *queue[LOG_MAX];
    unsigned n_queued;
    bool half_close, ended, given_up;
    struct berth_status status;
    char text[512];
    uint8_t details[2048];
};

/* first is taken. half_close: nothing follows. auto_read: takes what comes at once. */
struct caller *caller_new(struct rig *rig, const char *path, struct berth_buf *first,
                          bool half_close, bool auto_read, int64_t timeout_ms);
void caller_send(struct caller *caller, struct berth_buf *msg);
void caller_half_close(struct caller *caller);
void caller_flood(struct caller *caller);    /* send CHUNKs for ever */
void caller_read_all(struct caller *caller); /* from now on */
void caller_cancel(struct caller *caller);
bool caller_ended(struct caller *caller);
/* Waits for the end; the status as an error (reason etc.). */
enum berth_code caller_wait(struct caller *caller, struct berth_error *err);
struct caller *caller_free(struct caller *caller); /* cancels if need be */

/* First messages. */
struct berth_buf *a_run(const char *exec_id);
struct berth_buf *an_exec(const char *exec_id);
/* Detached; timeout_s 0: none. */
struct berth_buf *a_detached(const char *exec_id, int64_t timeout_s);
struct berth_buf *a_stat(void);
struct berth_buf *a_read(void);
struct berth_buf *a_write(void);
struct berth_buf *some_bytes(size_t size, unsigned seed);
uint64_t sum_of(uint64_t sum, const uint8_t *data, size_t size);

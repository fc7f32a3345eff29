/* fake_adapter.h - berth.backend.v1 in this process over a unix socket: a backend in memory
 * that does as it is told, or misbehaves as the test says. Thread-safe. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/rpc/rpc.h"

#include "berth/backend/v1/backend.pb-c.h"

enum {
    FAKE_SANDBOXES_MAX = 4096,
    FAKE_SNAPSHOTS_MAX = 64,
    FAKE_CALLS_MAX = 16384,
    FAKE_TAGS_MAX = 64,
};

enum fake_method {
    FAKE_GET_INFO,
    FAKE_CREATE,
    FAKE_CONNECT,
    FAKE_GET,
    FAKE_LIST,
    FAKE_PAUSE,
    FAKE_DELETE,
    FAKE_SNAPSHOT,
    FAKE_LIST_SNAPSHOTS,
    FAKE_DELETE_SNAPSHOT,
    FAKE_TEMPLATE,
    FAKE_SET_TIMEOUT,
    FAKE_N_METHODS
};

/* What the next calls of one method do. */
enum fake_act {
    FAKE_OBEY,
    FAKE_REFUSE,     /* answers reason, does nothing */
    FAKE_LOSE,       /* does it, and answers OUTCOME_UNKNOWN */
    FAKE_LATE,       /* answers OUTCOME_UNKNOWN; does it at fake_land() */
    FAKE_HOLD,       /* waits for fake_release(), then does it; with a reason refuses it */
    FAKE_HOLD_AFTER, /* does it, then waits for fake_release() before it answers */
};

struct fake_script {
    enum fake_act act;
    enum berth_reason reason;
    unsigned times; /* of the next calls; then FAKE_OBEY */
};

struct fake_sandbox {
    char id[32];
    char key[65];
    uint64_t fence;
    int state; /* SandboxState */
    bool used; /* a slot in use: not deleted */
    char template_id[129], snapshot_id[129];
    uint64_t generation;
    int64_t create_ms, last_active_ms, last_call_ms, end_ms;
    uint64_t disk_bytes;
    int64_t idle_ms, warn_ms; /* warn_ms: said in lists, where it is not 0 */
    int egress, inbound, on_idle, auto_resume;
    size_t n_tags;
    char tags[FAKE_TAGS_MAX][2][160];
    size_t n_env;
    char env[FAKE_TAGS_MAX][2][160];
};

struct fake_call {
    enum fake_method method;
    char sandbox_id[129];
    uint64_t fence;
    int64_t not_after_ms; /* 0: none */
};

struct fake_adapter {
    char target[128]; /* "unix:..." */
    struct berth_loop *loop;
    struct berth_server *server;

    pthread_mutex_t mutex; /* for all below */
    pthread_cond_t changed;
    bool keyed, not_fenced, no_pause, no_snapshots, incomplete, forget_tags;
    bool timer;       /* the backend ends sandboxes by itself */
    size_t list_page; /* sandboxes of one page; 0: all */
    bool list_stuck;  /* the same page token again and again */
    size_t ghosts;    /* in lists only: of "ghost-<n>" of tenant t1, an hour old, with tags as
                         the first sandbox has them */
    char account_id[64];
    char last_token[64]; /* that the last connect brought along */
    bool token_lost;     /* connects say so */
    int64_t create_horizon_ms;
    struct fake_script scripts[FAKE_N_METHODS];
    unsigned n_held;   /* calls that wait for fake_release() */
    unsigned releases; /* generation: waiting calls leave when it moves */
    struct fake_sandbox sandboxes[FAKE_SANDBOXES_MAX];
    size_t n_sandboxes; /* made so far, gone ones included */
    struct {
        char id[32], name[72], source[32];
        bool used;
    } snapshots[FAKE_SNAPSHOTS_MAX];
    size_t n_snapshots;
    struct fake_call calls[FAKE_CALLS_MAX];
    size_t n_calls;
    Berth__Backend__V1__CreateSandboxRequest *late; /* of FAKE_LATE */
};

/* socket: path of the unix socket. */
struct fake_adapter *fake_new(const char *socket);
struct fake_adapter *fake_free(struct fake_adapter *fake);
/* The adapter goes away, and comes back with everything it had. */
void fake_stop(struct fake_adapter *fake);
void fake_start(struct fake_adapter *fake);

void fake_script(struct fake_adapter *fake, enum fake_method method, enum fake_act act,
                 enum berth_reason reason, unsigned times);
/* Waits until n calls are held. */
void fake_wait_held(struct fake_adapter *fake, unsigned n);
void fake_release(struct fake_adapter *fake);
/* The late create takes effect now. */
void fake_land(struct fake_adapter *fake);

size_t fake_alive(struct fake_adapter *fake);
size_t fake_count(struct fake_adapter *fake, enum fake_method method);
void fake_forget_calls(struct fake_adapter *fake);
/* The only one that is alive; NULL: none, or several. Borrowed. */
struct fake_sandbox *fake_only(struct fake_adapter *fake);
struct fake_sandbox *fake_find(struct fake_adapter *fake, const char *id);
const char *fake_tag(const struct fake_sandbox *sandbox, const char *key);
/* Somebody else did it: the sandbox is gone, or in another state. */
void fake_kill(struct fake_adapter *fake, const char *id);
void fake_set_state(struct fake_adapter *fake, const char *id, int state);
/* One that nobody asked for: a copy of another with an id of its own. */
void fake_clone(struct fake_adapter *fake, const char *id);
/* One of a sandbox, of 4096 bytes; all snapshots have its tags. */
void fake_add_snapshot(struct fake_adapter *fake, const char *name, const char *sandbox_id);
size_t fake_snapshots_alive(struct fake_adapter *fake);

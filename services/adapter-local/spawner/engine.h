/* engine.h - the commands of one sandbox: started, watched, kept for a while when they have
 * ended. One thread, one loop; everything here runs on it. Shared by the files of the engine:
 *
 * engine.c  the table of commands, what is kept and for how long, dead children
 * exec.c    the life of one command
 * output.c  what it prints: pipes, rings, readers
 * feed.c    what it is fed
 * serve.c   connections of the adapter */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/errors/errors.h"
#include "common/loop/loop.h"
#include "services/adapter-local/spawner/launch.h"
#include "services/adapter-local/spawner/ring.h"
#include "services/adapter-local/spawner/supervisor.h"
#include "services/adapter-local/spawner/tree.h"
#include "services/adapter-local/spawner/wire.h"

/* Every bound of the engine; tests make them smaller. */
struct engine_limits {
    unsigned running_max;     /* commands at once, with those whose children hold a stream */
    unsigned kept_max;        /* results of ended commands */
    int64_t kept_ms;          /* how long a result is kept */
    size_t ring_bytes;        /* output kept per command */
    size_t ring_bytes_min;    /* the same when there are many */
    size_t rings_bytes;       /* output kept of all commands together */
    size_t unread_bytes;      /* per stream: a reader this far behind holds the command back */
    size_t input_bytes;       /* stdin waiting, of all commands together */
    unsigned inputs_max;      /* SendInput calls waiting on one command */
    unsigned lingering_max;   /* ended commands with children still running */
    unsigned connections_max; /* of the adapter */
    int64_t grace_ms;         /* after the end of a command its children may hold a stream */
    int64_t orphan_ms;        /* a cancelled command may be taken over by a repeat */
    int64_t heartbeat_ms;     /* on silent streams */
    int64_t request_ms;       /* a connection must have said what it wants */
    int64_t tick_ms;          /* between upkeeps */
};
extern const struct engine_limits engine_default_limits;

enum exec_state {
    EXEC_SPAWNING, /* launched, execve() not seen yet */
    EXEC_RUNNING,
    EXEC_ENDING, /* the main process has ended; what it printed is being fetched */
    EXEC_DONE,   /* the result stands */
};

struct exec;
struct engine;

/* Somebody who wants the events of a command. Embedded in a connection. */
struct exec_reader {
    struct exec *exec; /* NULL: not attached */
    struct exec_reader *next;
    uint64_t cursor;              /* number of the next event wanted */
    uint64_t pos[WIRE_N_STREAMS]; /* bytes of each stream it has, or was told are missing */
    bool started_sent, attached;
    bool cap_told[WIRE_N_STREAMS];
    void (*wake)(struct exec_reader *reader); /* there may be something new */
};

/* Data of one SendInput call on its way into a command. Embedded in a connection. */
struct feed_request {
    struct exec *exec; /* NULL: not waiting */
    struct feed_request *next;
    uint8_t *data; /* owned */
    size_t size;
    uint64_t offset;
    bool unchecked, end_of_file, begun;
    size_t done; /* bytes of data that are in, or were before */
    /* It is out of the queue when called. */
    void (*finished)(struct feed_request *request, enum berth_code code, uint64_t next_offset,
                     const struct berth_error *err);
};

struct exec_stream {
    int fd; /* read end; -1: end of file was seen */
    struct berth_watch *watch;
    struct ring ring;
    uint64_t must_read; /* bytes that were in the pipe when the command ended */
    struct exec *exec;
};

struct exec_feed {
    int fd; /* write end; -1: closed */
    struct berth_watch *watch;
    bool keep_open;
    bool broken;  /* the command closed its end */
    uint64_t fed; /* bytes it has taken */
    uint8_t *initial;
    size_t initial_size;
    struct feed_request *first, **last;
    unsigned n_waiting;
};

/* A place a reader left off, so that "dropped" can be counted when it comes back. */
enum { EXEC_MARKS = 4 };
struct exec_mark {
    uint64_t seq, pos[WIRE_N_STREAMS];
};

struct exec {
    struct engine *engine;
    struct exec *next, *prev; /* by age, oldest first */
    struct exec *bucket_next; /* same hash of id */
    char *id;
    char digest[WIRE_DIGEST_SIZE];
    char *cwd;
    char *shown; /* the arguments' first WIRE_SHOWN_MAX bytes, each with its NUL */
    struct wire_strings shown_args;
    bool root, shell, detach, collect;
    int64_t timeout_ms;
    uint64_t max_output;

    enum exec_state state;
    struct tree tree;
    int status_fd;
    struct berth_watch *status_watch;
    pid_t pid; /* 0: not there any more */
    uint32_t inner_pid;
    bool started; /* execve() has succeeded */
    bool reaped;
    int status; /* of wait(), when reaped */
    struct launch_record failure;
    int64_t start_ms, start_tick_ns;
    int64_t frozen_before_ms; /* engine_frozen_ms() at the start */
    int64_t oom_before;
    int64_t cpu_us; /* of the main process, when reaped */
    enum wire_reason kill_reason;
    bool grace_over;

    struct exec_stream out[WIRE_N_STREAMS];
    struct exec_stream *last_out; /* whose chunk is the newest event */
    uint64_t next_seq;
    size_t held; /* bytes of both rings, as counted in engine->held */
    struct exec_reader *readers;
    struct exec_mark marks[EXEC_MARKS];
    unsigned n_marks;
    bool abandoned; /* its caller gave up, and */
    bool unclaimed; /* it was killed for that */

    struct exec_feed feed;
    struct berth_timer *timeout, *grace, *orphan;
    struct berth_timer *empty; /* EXEC_DONE: then its cgroup is looked at */

    struct wire_exited exited; /* EXEC_DONE */
    int64_t done_tick_ms;
};

enum {
    ENGINE_BUCKETS = 1024,
    ENGINE_SPARES = 4, /* trees that wait for another command */
};

struct engine {
    const struct supervisor_env *env;
    const struct engine_limits *limits;
    struct berth_loop *loop;

    struct exec *oldest, *newest;
    struct exec *buckets[ENGINE_BUCKETS];
    uint64_t n_trees; /* made so far */
    struct tree spare[ENGINE_SPARES];
    unsigned n_spare;
    unsigned n_running; /* everything before EXEC_DONE, and draining */
    unsigned n_kept;
    size_t held;                       /* bytes of all rings */
    size_t input_bytes;                /* of all feeds */
    char (*lingering)[TREE_NAME_SIZE]; /* cgroups to be removed when they are empty */
    unsigned n_lingering, cap_lingering;

    int null_fd;      /* /dev/null, for reading */
    int own_pids_fd;  /* our own process namespace */
    sigset_t ignored; /* signals, by us and those that started us */
    int sigchld_fd;
    struct berth_watch *sigchld_watch;
    struct box_files box;
    int events_fd; /* cgroup.events of the sandbox, for waiting: who reads it has been told */
    struct berth_watch *events_watch;
    bool frozen;
    int64_t frozen_since_ms, frozen_total_ms;
    int64_t touched_tick_ms;
    int64_t oom_told; /* kills for lack of memory that are accounted for */
    struct berth_timer *tick;
    bool init_gone;
    void (*ended)(void *arg); /* the sandbox's init has ended */
    void *ended_arg;

    uint8_t scratch[64 << 10]; /* what was just read from a pipe: all that it holds */
};

/* ------------------------------------------------------------------ engine.c */

/* limits and env are borrowed. ended is called once, on the loop. */
BERTH_MUST_CHECK enum berth_code engine_new(const struct supervisor_env *env,
                                            const struct engine_limits *limits,
                                            void (*ended)(void *arg), void *arg,
                                            struct engine **ret, struct berth_error *err);
/* Kills nothing: the sandbox is gone, or its processes go on without us. */
struct engine *engine_free(struct engine *engine);
BERTH_DEFINE_AUTO(struct engine *, engine_free)

struct exec *engine_find(const struct engine *engine, const struct wire_ref *ref);
bool engine_paused(const struct engine *engine);
/* Milliseconds the sandbox has been paused since the supervisor started. */
int64_t engine_frozen_ms(const struct engine *engine);
/* Somebody uses the sandbox. */
void engine_touch(struct engine *engine);
/* Run engine upkeep every few seconds from now on. */
void engine_need_tick(struct engine *engine);
/* Put into the table, or take out and free. */
void engine_add(struct engine *engine, struct exec *exec);
void engine_remove(struct engine *engine, struct exec *exec);
/* One more is coming: drop the oldest results if there are too many. Old ones go by the tick.
 */
void engine_make_room(struct engine *engine);
/* Too much output is kept: forget that of ended commands, the oldest first. */
void engine_squeeze(struct engine *engine);
/* A cgroup for a command: one that served before, or a new one. 0 or an errno. */
int engine_take_tree(struct engine *engine, struct tree *ret);
/* One that nobody is in any more; taken. */
void engine_give_tree(struct engine *engine, struct tree *tree);
/* A cgroup that could not be removed yet. */
void engine_linger(struct engine *engine, const char *name);

/* -------------------------------------------------------------------- exec.c */

/* Start a command; *ret is owned by the engine.
 * Errors: OVERLOADED (running_max), OUT_OF_MEMORY, BACKEND_CAPACITY (no descriptor, process or
 * cgroup to be had), SANDBOX_TERMINAL. Nothing is started then. */
BERTH_MUST_CHECK enum berth_code exec_start(struct engine *engine,
                                            const struct wire_start *start, struct exec **ret,
                                            struct berth_error *err);
/* The main process has been waited for. */
void exec_reaped(struct exec *exec, int status, const struct rusage *usage);
/* Returns true if there was a process to signal. */
bool exec_signal(struct exec *exec, int signal, bool leader_only);
/* The caller of START has given up: end the command unless somebody takes it over. */
void exec_abandon(struct exec *exec);
void exec_readers_changed(struct exec *exec);
/* ENDING: is everything there for the result? Then it stands, and the state is DONE. */
void exec_settle(struct exec *exec);
/* Let go of the process tree of an ended command when nobody is in it any more. */
void exec_tidy(struct exec *exec);
void exec_describe(const struct exec *exec, struct wire_process *ret);
void exec_free(struct exec *exec);

/* ------------------------------------------------------------------ output.c */

/* Both pipes; ret_child_fds gets the write ends for the child. 0 or an errno. */
int output_open(struct exec *exec, int ret_child_fds[WIRE_N_STREAMS]);
/* Watch the pipes that may be read now, and no others. */
void output_watch(struct exec *exec);
/* The main process has ended: fetch what lies in the pipes. */
void output_end(struct exec *exec);
bool output_finished(const struct exec *exec);
bool output_held_open(const struct exec *exec);
/* Close the pipes and forget what was kept; the counts stay. */
void output_close(struct exec *exec);
/* Bring the rings within the limits and tell the engine what they hold. */
void output_trim(struct exec *exec);
void output_wake(struct exec *exec);

enum reader_event_kind {
    READER_NOTHING,
    READER_STARTED,
    READER_OUTPUT,
    READER_TRUNCATED,
    READER_EXITED
};
struct reader_event {
    enum reader_event_kind kind;
    enum wire_stream stream;
    const struct ring_chunk *chunk; /* OUTPUT: borrowed until reader_done() or detach */
    struct wire_truncated truncated;
};

/* after_seq 0: from the start. Errors: SEQ_EXPIRED when it lies ahead. */
BERTH_MUST_CHECK enum berth_code reader_attach(struct exec_reader *reader, struct exec *exec,
                                               uint64_t after_seq, bool attached,
                                               struct berth_error *err);
/* Afterwards the exec may be gone. */
void reader_detach(struct exec_reader *reader);
struct reader_event reader_next(struct exec_reader *reader);
/* The event has been sent. */
void reader_done(struct exec_reader *reader, const struct reader_event *event);

/* -------------------------------------------------------------------- feed.c */

/* *ret_child_fd: what becomes the command's stdin; owned by the caller unless it is
 * engine->null_fd. 0 or an errno. */
int feed_open(struct exec *exec, const struct wire_start *start, int *ret_child_fd);
void feed_pump(struct exec *exec);
/* Takes input->data by copy. finished may be called inside.
 * Errors: OVERLOADED, OUT_OF_MEMORY, FIELD_INVALID (a gap), STDIN_CLOSED, PROCESS_NOT_FOUND. */
BERTH_MUST_CHECK enum berth_code feed_add(struct exec *exec, const struct wire_input *input,
                                          struct feed_request *request,
                                          struct berth_error *err);
void feed_cancel(struct feed_request *request);
/* The command has ended. */
void feed_close(struct exec *exec);

/* ------------------------------------------------------------------- serve.c */

struct server;
/* Serve env->listen_fd on the engine's loop. */
BERTH_MUST_CHECK enum berth_code server_new(struct engine *engine, struct server **ret,
                                            struct berth_error *err);
struct server *server_free(struct server *server);
BERTH_DEFINE_AUTO(struct server *, server_free)
bool server_idle(const struct server *server);

/* --------------------------------------------------------------------- serve.c */

/* supervisor_serve() with other bounds. */
BERTH_MUST_CHECK enum berth_code engine_serve(const struct supervisor_env *env,
                                              const struct engine_limits *limits,
                                              struct berth_error *err);

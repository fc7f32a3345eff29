/* data.h - commands and files of a sandbox, as a backend with data plane ADAPTER provides them
 * to the ProcessService and FileService of this folder. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "berth/data/v1/data.pb-c.h"
#include "common/errors/errors.h"
#include "common/rpc/rpc.h"

struct adapter;

/* Where a data call goes: metadata berth-route-bin. */
enum { ADAPTER_ROUTE_ID_SIZE = 129 };
struct adapter_route {
    char sandbox_id[ADAPTER_ROUTE_ID_SIZE];
    uint64_t fence; /* of the binding the caller goes by */
};

/* Errors: FIELD_INVALID (missing, not a DataPlaneEndpoint, of another backend). */
BERTH_MUST_CHECK enum berth_code adapter_route_read(const struct berth_call *call,
                                                    const char *backend,
                                                    struct adapter_route *ret,
                                                    struct berth_error *err);

/* ------------------------------------------------------------------- commands */

enum adapter_ask_kind {
    ADAPTER_ASK_START,  /* STARTED, OUTPUT, TRUNCATED, HEARTBEAT ... EXITED */
    ADAPTER_ASK_ATTACH, /* the same */
    ADAPTER_ASK_INPUT,  /* INPUT_DONE */
    ADAPTER_ASK_SIGNAL, /* SIGNAL_DONE */
    ADAPTER_ASK_LIST    /* PROCESS ..., LIST_DONE */
};

/* One request about commands. Everything is checked, and borrowed until ask() returns. */
struct adapter_ask {
    enum adapter_ask_kind kind;
    /* START */
    const Berth__Data__V1__Command *command; /* with exec_id, cwd and account filled in */
    char digest[65];                         /* hex: another one is another command */
    int64_t timeout_ms;                      /* 0 = none */
    bool keep_stdin_open, detach;
    uint64_t max_output; /* bytes per stream; 0 = no limit */
    /* Not 0: no events before the end is known; of each stream head and tail of about this many
     * bytes, with TRUNCATED between them. */
    uint64_t collect;
    /* ATTACH, INPUT, SIGNAL: by exec_id, or where that is "" by pid */
    const char *exec_id;
    uint32_t pid;
    uint64_t after_seq; /* ATTACH */
    /* START: the first stdin. INPUT: what is fed. */
    const uint8_t *data;
    size_t size;
    uint64_t offset; /* INPUT */
    bool unchecked, end_of_file;
    int signal; /* SIGNAL */
    bool leader_only;
};

enum adapter_stream_kind { ADAPTER_STDOUT, ADAPTER_STDERR };

struct adapter_exited {
    Berth__Data__V1__ExitReason reason;
    int exit_code, signal;
    int64_t wall_us, cpu_us;
    uint64_t stdout_bytes, stderr_bytes;
    bool stream_held_open;
    const char *message;
};

struct adapter_process {
    const char *exec_id, *cwd;
    uint32_t pid;
    bool shell, root, detached;
    const char *const *args; /* cut where they are long */
    size_t n_args;
    int64_t start_ms, timeout_ms;
    uint64_t last_seq;
    const struct adapter_exited *exited; /* NULL while it runs */
};

enum adapter_event_kind {
    ADAPTER_EVENT_STARTED,
    ADAPTER_EVENT_OUTPUT,
    ADAPTER_EVENT_TRUNCATED,
    ADAPTER_EVENT_EXITED, /* the last */
    ADAPTER_EVENT_HEARTBEAT,
    ADAPTER_EVENT_INPUT_DONE,  /* the last */
    ADAPTER_EVENT_SIGNAL_DONE, /* the last */
    ADAPTER_EVENT_PROCESS,
    ADAPTER_EVENT_LIST_DONE /* the last */
};

/* Borrowed for the length of the callback. */
struct adapter_event {
    enum adapter_event_kind kind;
    uint64_t seq;
    /* STARTED */
    const char *exec_id;
    uint32_t pid;
    int64_t start_ms;
    bool attached;
    /* OUTPUT, TRUNCATED */
    enum adapter_stream_kind stream;
    const uint8_t *data;
    size_t size;
    uint64_t from_seq, dropped;
    int64_t now_ms;                        /* HEARTBEAT */
    const struct adapter_exited *exited;   /* EXITED */
    uint64_t next_offset;                  /* INPUT_DONE */
    bool existed;                          /* SIGNAL_DONE */
    const struct adapter_process *process; /* PROCESS */
};

/* Called on the loop: from within next(), or later; never from within ask(). close() may be
 * called from within. */
struct adapter_sink {
    void (*event)(void *ctx, const struct adapter_event *event);
    /* Instead of any further event. A connection that broke after something may have taken
     * effect is OUTCOME_UNKNOWN. */
    void (*failed)(void *ctx, enum berth_code code, const struct berth_error *err);
};

struct adapter_request; /* a request in progress, of the backend */

/* All on the loop thread; nothing blocks. */
struct adapter_process_ops {
    /* Errors: SANDBOX_NOT_FOUND, SANDBOX_TERMINAL, OUT_OF_MEMORY, ...; most come by failed().
     */
    enum berth_code (*ask)(struct adapter *adapter, struct berth_loop *loop,
                           const struct adapter_route *route, const struct adapter_ask *ask,
                           const struct adapter_sink *sink, void *ctx,
                           struct adapter_request **ret, struct berth_error *err);
    /* One more event, please. The first is asked for as well. */
    void (*next)(struct adapter_request *request);
    /* No callback comes after this; the request is gone. given_up: the caller does not want the
     * outcome any more, so a command that is not detached is ended. */
    void (*close)(struct adapter_request *request, bool given_up);
};

/* ---------------------------------------------------------------------- files */

/* One file, owned strings. */
struct adapter_file {
    char *path;        /* as bytes, absolute in the sandbox */
    char *link_target; /* NULL: no link */
    int type;          /* FileType */
    uint64_t size_bytes;
    uint32_t mode, uid, gid;
    int64_t modify_ns;
    char etag[33]; /* "" where there is none */
    bool has_sha256;
    uint8_t sha256[32];
};
void adapter_file_deinit(struct adapter_file *file);

/* May it go on? Long operations ask now and then. */
struct adapter_patience {
    bool (*over)(void *arg);
    void *arg;
};

struct adapter_list {
    struct adapter_file *files; /* owned */
    size_t n;
    char *next; /* owned; where the next page begins, NULL: the last page */
};
void adapter_list_deinit(struct adapter_list *list);

struct adapter_write_open {
    const char *path;
    uint32_t mode; /* 0: as the file has, or 0644 */
    uint64_t size_bytes;
    bool create_only;
    const char *if_etag; /* "" = any */
};

struct adapter_reader; /* an open file of ReadFile */
struct adapter_writer; /* a file of WriteFile that has not taken its name yet */

/* Any thread; may block; paths are absolute and clean. Errors: those named at FileService. */
struct adapter_file_ops {
    enum berth_code (*stat)(struct adapter *adapter, const struct adapter_route *route,
                            const char *path, bool with_sha256,
                            const struct adapter_patience *patience, struct adapter_file *ret,
                            struct berth_error *err);
    /* after: "" or what a page before gave as next. */
    enum berth_code (*list)(struct adapter *adapter, const struct adapter_route *route,
                            const char *path, unsigned depth, const char *after, unsigned max,
                            const struct adapter_patience *patience, struct adapter_list *ret,
                            struct berth_error *err);
    enum berth_code (*make_dir)(struct adapter *adapter, const struct adapter_route *route,
                                const char *path, struct adapter_file *ret, bool *ret_created,
                                struct berth_error *err);
    enum berth_code (*move)(struct adapter *adapter, const struct adapter_route *route,
                            const char *source, const char *target, bool overwrite,
                            struct adapter_file *ret, struct berth_error *err);
    enum berth_code (*remove)(struct adapter *adapter, const struct adapter_route *route,
                              const char *path, bool recursive,
                              const struct adapter_patience *patience, bool *ret_existed,
                              struct berth_error *err);

    /* length 0: to the end the file has now. */
    enum berth_code (*open_read)(struct adapter *adapter, const struct adapter_route *route,
                                 const char *path, uint64_t offset, uint64_t length,
                                 const char *if_etag, struct adapter_reader **ret,
                                 struct adapter_file *ret_file, struct berth_error *err);
    /* *ret_size 0: all of it was read. Errors: FILE_CHANGED when it is shorter than it was. */
    enum berth_code (*read)(struct adapter_reader *reader, uint8_t *buf, size_t size,
                            size_t *ret_size, struct berth_error *err);
    void (*close_read)(struct adapter_reader *reader);

    enum berth_code (*open_write)(struct adapter *adapter, const struct adapter_route *route,
                                  const struct adapter_write_open *open,
                                  struct adapter_writer **ret, struct berth_error *err);
    /* All of the pieces, in order; the array is the callee's to change. */
    enum berth_code (*write)(struct adapter_writer *writer, struct iovec *pieces, int n_pieces,
                             struct berth_error *err);
    /* The file takes its name. The writer is gone only after close_write(). */
    enum berth_code (*commit)(struct adapter_writer *writer, struct adapter_file *ret,
                              struct berth_error *err);
    /* Without commit() before: nothing is left of it. */
    void (*close_write)(struct adapter_writer *writer);
};

/* ------------------------------------------------------------------ workspaces */

enum {
    ADAPTER_WORKSPACE_FILES_MAX = 1000000, /* entries of one workspace */
    ADAPTER_LOST_MAX = 64,                 /* of what could not be carried, named */
};

/* What became of a workspace on its way. */
struct adapter_carried {
    uint64_t files, size_bytes; /* entries, and bytes of regular files */
    struct adapter_lost {
        char *path;         /* owned, as bytes, below the workspace */
        const char *reason; /* static */
    } lost[ADAPTER_LOST_MAX];
    size_t n_lost;
    uint64_t lost_count; /* all of it, named or not */
};
void adapter_carried_deinit(struct adapter_carried *carried);
/* path was not carried. */
void adapter_carried_lose(struct adapter_carried *carried, const char *path,
                          const char *reason);

struct adapter_pack;   /* a workspace on its way out, as a tar */
struct adapter_unpack; /* and in */

/* Any thread; may block. moved: from one sandbox of a session to the next, by the suite itself:
 * the fence is held against what the sandbox has seen, read-only places are filled, and of two
 * that move into the same sandbox only the later one goes on. */
struct adapter_workspace_ops {
    enum berth_code (*open_pack)(struct adapter *adapter, const struct adapter_route *route,
                                 struct adapter_pack **ret, struct berth_error *err);
    /* *ret_size 0: all of it was read. Errors: QUOTA_EXCEEDED (too many files). */
    enum berth_code (*read_pack)(struct adapter_pack *pack, uint8_t *buf, size_t size,
                                 size_t *ret_size, struct berth_error *err);
    const struct adapter_carried *(*packed)(const struct adapter_pack *pack);
    void (*close_pack)(struct adapter_pack *pack);

    /* Errors: FENCE_STALE, CONFLICT (another import is going on, and this one is not moved). */
    enum berth_code (*open_unpack)(struct adapter *adapter, const struct adapter_route *route,
                                   bool moved, struct adapter_unpack **ret,
                                   struct berth_error *err);
    /* Errors: FIELD_INVALID (not a tar), DISK_FULL, QUOTA_EXCEEDED, CONFLICT (a later move). */
    enum berth_code (*write_unpack)(struct adapter_unpack *unpack, const uint8_t *data,
                                    size_t size, struct berth_error *err);
    /* All of it came. Errors: as above; FIELD_INVALID where it was cut off. */
    enum berth_code (*end_unpack)(struct adapter_unpack *unpack, struct berth_error *err);
    const struct adapter_carried *(*unpacked)(const struct adapter_unpack *unpack);
    /* What was unpacked stays; a file half written does not. */
    void (*close_unpack)(struct adapter_unpack *unpack);
};

/* ------------------------------------------------------------------- services */

/* ProcessService without Terminal, FileService without WatchDir. service: struct
 * adapter_service. Peers only. */
extern const struct berth_method adapter_process_methods[];
extern const size_t n_adapter_process_methods;
extern const struct berth_method adapter_file_methods[];
extern const size_t n_adapter_file_methods;
/* ExportWorkspace and ImportWorkspace of WorkspaceService. */
extern const struct berth_method adapter_workspace_methods[];
extern const size_t n_adapter_workspace_methods;

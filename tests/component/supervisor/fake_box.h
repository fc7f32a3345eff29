/* fake_box.h - a sandbox of bare namespaces over the host's own files, with a supervisor, so
 * that the command engine is tested without the spawner; and a blocking client of its socket.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "services/adapter-local/spawner/engine.h"

struct fake_box {
    pid_t supervisor, init;
    char cgroup[160]; /* its directory in the unified hierarchy */
    char memory[160]; /* and in v1's memory; "" where there is none */
    char dir[64];     /* with sup.sock */
};

enum { FAKE_BOX_UID_BASE = 700000 };

/* Sanitizers keep what was freed: memory says nothing then. */
#ifdef __SANITIZE_ADDRESS__
enum { MEMORY_COUNTS = 0 };
#else
enum { MEMORY_COUNTS = 1 };
#endif

/* Exits with 77 where the host cannot. limits NULL: the default ones. memory_bytes 0: no limit.
 */
void fake_box_open(struct fake_box *box, const struct engine_limits *limits,
                   uint64_t memory_bytes);
/* Kills all of it and checks that nothing is left. */
void fake_box_close(struct fake_box *box);
/* The same after the test itself killed the supervisor by SIGKILL. */
void fake_box_bury(struct fake_box *box);
void fake_box_freeze(struct fake_box *box, bool freeze);
/* Processes in the box, init included. */
int fake_box_count(const struct fake_box *box);
/* Descriptors the supervisor has open. */
int fake_box_fds(const struct fake_box *box);
long fake_box_rss_kib(const struct fake_box *box);

/* A connection, blocking, with a deadline of CLIENT_WAIT_MS for every answer. */
enum { CLIENT_WAIT_MS = 20000 };
struct client {
    int fd;
    struct wire_reader reader;
};
void client_open(struct client *client, const struct fake_box *box);
void client_close(struct client *client);
void client_send(struct client *client, struct wire_frame frame); /* taken */
/* The next frame; payload borrowed until the next call. Fails the test when there is none. */
enum wire_type client_next(struct client *client, const uint8_t **ret_payload,
                           size_t *ret_size);

/* A command, with everything set that must be. */
struct wire_start command(const char *exec_id, const char *shell);
/* The same without a shell: words separated by single spaces. */
struct wire_start program(const char *exec_id, const char *words);
void client_start(struct client *client, const struct wire_start *start);
void client_attach(struct client *client, const char *exec_id, uint64_t after_seq);

/* What a stream of events added up to. */
struct outcome {
    bool has_started, has_exited, failed;
    struct wire_started started;
    struct wire_exited exited;
    struct berth_error err;     /* when failed */
    char *data[WIRE_N_STREAMS]; /* owned, with a NUL */
    size_t size[WIRE_N_STREAMS];
    uint64_t dropped[WIRE_N_STREAMS];
    unsigned n_truncated, n_heartbeats, n_output;
    uint64_t last_seq;
};
/* Read one event into outcome. Returns its type. */
enum wire_type client_event(struct client *client, struct outcome *outcome);
/* Until EXITED or ERROR. */
void client_drain(struct client *client, struct outcome *outcome);
void outcome_free(struct outcome *outcome);
/* Start and drain on a connection of its own. */
struct outcome run(const struct fake_box *box, const struct wire_start *start);
/* The answer of SendInput: next offset, or the reason as a negative number. */
int64_t send_input(const struct fake_box *box, const char *exec_id, uint64_t offset,
                   const char *data, size_t size, bool end_of_file);
/* Wait, without attaching, until a command has ended. */
void wait_ended(const struct fake_box *box, const char *exec_id);
bool send_signal(const struct fake_box *box, const char *exec_id, int signal, bool leader_only);

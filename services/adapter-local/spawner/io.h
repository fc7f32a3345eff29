/* io.h - small file operations and child programs, as the store and the sandbox set-up need
 * them. Names are relative to a directory descriptor; nothing here follows a symlink in the
 * last component. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/errors/errors.h"

/* An error for a failed system call: errno decides between DISK_FULL, OUT_OF_MEMORY,
 * BACKEND_CAPACITY and INTERNAL_BUG; the text is "<what>: <strerror>". */
enum berth_code io_fail(struct berth_error *err, const char *fmt, ...) BERTH_PRINTF(2, 3);

/* Whole content of a small file, NUL-terminated; longer than size - 1: EFBIG. -1 with errno. */
ssize_t io_read(int dir_fd, const char *name, char *buf, size_t size);
/* The same for one that may be large: *ret is owned, NUL-terminated. More than max bytes:
 * EFBIG. */
ssize_t io_read_whole(int dir_fd, const char *name, size_t max, char **ret);
/* Write text to an existing file in one write (cgroup, proc). 0 or -1 with errno. */
int io_write(int dir_fd, const char *name, const char *text);
/* Replace name by rename; durable: fsync the data first. */
BERTH_MUST_CHECK enum berth_code io_replace(int dir_fd, const char *name, const char *data,
                                            size_t size, bool durable, struct berth_error *err);
/* The two halves of it: all but the rename, which io_publish() does. One draft of a name at a
 * time in each process. */
BERTH_MUST_CHECK enum berth_code io_draft(int dir_fd, const char *name, const char *data,
                                          size_t size, bool durable, struct berth_error *err);
BERTH_MUST_CHECK enum berth_code io_publish(int dir_fd, const char *name,
                                            struct berth_error *err);

/* Open an existing directory, or make it with mode first. O_CLOEXEC. -1 with errno. */
int io_open_dir(int dir_fd, const char *name);
int io_make_dir(int dir_fd, const char *name, mode_t mode);

/* Make the file `lock` in a directory, held (flock) from the moment it can be seen. Its
 * descriptor, or -1 with errno (EEXIST). */
int io_make_lock(int dir_fd);
/* Take flock(LOCK_EX) on fd until tick deadline_ms. Errors: BACKEND_TIMEOUT. */
BERTH_MUST_CHECK enum berth_code io_lock(int fd, int64_t deadline_ms, const char *what,
                                         struct berth_error *err);

/* Delete a tree, however it was made (no permission stands in root's way; mounts are not
 * crossed). The name may be absent. 0 or -1 with errno. */
int io_remove_tree(int dir_fd, const char *name);
/* Bytes on disk (st_blocks) of all files of a tree; mounts are not crossed. -1 with errno. */
int64_t io_tree_bytes(int dir_fd, const char *name);

/* Start time of a process in clock ticks since boot; 0: no such process, or a zombie. */
uint64_t io_process_start(pid_t pid);

/* Set by a signal handler: io_run() ends its program and fails with CANCELLED. */
extern volatile sig_atomic_t io_cancelled;

/* One line of a program's output, without its newline; borrowed. False: kill the program. */
typedef bool (*io_line_fn)(void *arg, const char *line);

/* Run a program (argv[0] looked up in PATH; env NULL: ours), stdin from /dev/null, stdout and
 * stderr read line by line. It is the leader of its own process group, which is killed at the
 * deadline. Errors: BACKEND_TIMEOUT, CANCELLED (line said so), INTERNAL_BUG with the last line
 * when it cannot be started or its exit status is not 0. */
BERTH_MUST_CHECK enum berth_code io_run(const char *const *argv, char *const *env,
                                        int64_t deadline_ms, io_line_fn line, void *arg,
                                        struct berth_error *err);

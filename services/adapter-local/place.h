/* place.h - a sandbox's files from the host, without trusting the sandbox: paths are resolved
 * below its root by one openat2(), as its user, and nothing is opened before its kind is known.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "services/adapter-local/target.h"
#include "services/adapter/data.h"

/* The calling thread's file accesses are those of the sandbox's user from enter to leave. */
struct place {
    const struct local_root *root;
};
/* Errors: INTERNAL_BUG when the identity cannot be taken. */
BERTH_MUST_CHECK enum berth_code place_enter(const struct local_root *root, struct place *ret,
                                             struct berth_error *err);
void place_leave(struct place *place);
static inline void place_leavep(struct place *place)
{
    place_leave(place);
}

/* An O_PATH descriptor of what path (absolute, clean) names; owned. follow: the last
 * component's link, too. Whatever the kind, but never of procfs, sysfs and their like. Errors:
 * FILE_NOT_FOUND, NOT_A_DIRECTORY, FILE_ACCESS_DENIED, NOT_A_FILE (a loop of links), OVERLOADED
 * (names were moved all the time). */
BERTH_MUST_CHECK enum berth_code place_find(const struct place *place, const char *path,
                                            bool follow, int *ret_fd, struct berth_error *err);
/* The directory that holds the last component of path, and that component. Errors: as
 * place_find(); FILE_ACCESS_DENIED for "/". */
BERTH_MUST_CHECK enum berth_code place_parent(const struct place *place, const char *path,
                                              int *ret_dir_fd, const char **ret_name,
                                              struct berth_error *err);
/* A directory, made with those above it where they are missing (mode 0755). */
BERTH_MUST_CHECK enum berth_code place_make_dirs(const struct place *place, const char *path,
                                                 int *ret_dir_fd, bool *ret_created,
                                                 struct berth_error *err);

/* Open what an O_PATH descriptor names. It must be of the kind the flags are for. */
int place_reopen(int path_fd, int flags);
/* FILE_ACCESS_DENIED on procfs, sysfs, cgroups and others that are no storage. */
BERTH_MUST_CHECK enum berth_code place_check_storage(int fd, struct berth_error *err);

/* May FileService change something here? dir_fd: the directory the change is made in; moved_fd:
 * what is moved or removed, or -1. Errors: PATH_READ_ONLY. */
BERTH_MUST_CHECK enum berth_code place_check_writable(const struct place *place,
                                                      const char *path, int dir_fd,
                                                      int moved_fd, struct berth_error *err);

/* Describe an O_PATH (or other) descriptor; path is what the caller calls it. */
BERTH_MUST_CHECK enum berth_code place_describe(const struct place *place, int fd,
                                                const char *path, struct adapter_file *ret,
                                                struct berth_error *err);
/* SHA-256 of a regular file's content. Errors: DEADLINE, CANCELLED by patience. */
BERTH_MUST_CHECK enum berth_code place_hash(int path_fd,
                                            const struct adapter_patience *patience,
                                            uint8_t ret[32], struct berth_error *err);
void place_etag(const struct stat *st, char ret[33]);

/* A failed file call on path. */
enum berth_code place_fail(struct berth_error *err, int error_number, const char *path);
/* DEADLINE if the caller's patience is over. */
BERTH_MUST_CHECK enum berth_code place_patience(const struct adapter_patience *patience,
                                                struct berth_error *err);

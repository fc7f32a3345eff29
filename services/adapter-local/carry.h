/* carry.h - a workspace out of a sandbox and into one, as a tar, without trusting either: every
 * name is opened below the directory that was opened before it, never through a link, a mount
 * or a FIFO, as the sandbox's user. */
#pragma once

#include <fcntl.h>

#include "common/tar/tar.h"
#include "services/adapter-local/files.h"

#define CARRY_DIR "/workspace"

enum {
    CARRY_LEVELS_MAX = 512, /* directories below one another; one descriptor each */
    CARRY_CALLS_MAX = 32,   /* workspaces on their way at once */
};

/* name (one component) below dir_fd, by openat2(): no link, no other file system. -1 and errno.
 */
int carry_open(int dir_fd, const char *name, uint64_t flags, mode_t mode);
/* CARRY_DIR could not be opened: there is none, or it is closed to the session's user. */
enum berth_code carry_no_workspace(int why, struct berth_error *err);
/* One more, unless there are CARRY_CALLS_MAX. Errors: OVERLOADED. */
BERTH_MUST_CHECK enum berth_code carry_begin(struct berth_error *err);
void carry_end(void);

extern const struct adapter_workspace_ops local_workspace_ops;

/* pack.c: */
enum berth_code local_open_pack(struct adapter *adapter, const struct adapter_route *route,
                                struct adapter_pack **ret, struct berth_error *err);
enum berth_code local_read_pack(struct adapter_pack *pack, uint8_t *buf, size_t size,
                                size_t *ret_size, struct berth_error *err);
const struct adapter_carried *local_packed(const struct adapter_pack *pack);
void local_close_pack(struct adapter_pack *pack);

/* unpack.c: */
enum berth_code local_open_unpack(struct adapter *adapter, const struct adapter_route *route,
                                  bool moved, struct adapter_unpack **ret,
                                  struct berth_error *err);
enum berth_code local_write_unpack(struct adapter_unpack *unpack, const uint8_t *data,
                                   size_t size, struct berth_error *err);
enum berth_code local_end_unpack(struct adapter_unpack *unpack, struct berth_error *err);
const struct adapter_carried *local_unpacked(const struct adapter_unpack *unpack);
void local_close_unpack(struct adapter_unpack *unpack);

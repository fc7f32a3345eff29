#include "services/adapter-local/spawner/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "common/ids/ids.h"
#include "services/adapter-local/spawner/io.h"

/* 1: taken, 0: somebody has it, -1 with errno. */
static int try_slot(int dir_fd, unsigned slot, int *ret_fd)
{
    struct stat held, now;
    char name[16];
    int fd;

    snprintf(name, sizeof name, "%u", slot);
    fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -1;
    /* slot_forget() may have removed the file between our open and our lock. */
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &held) < 0 ||
        fstatat(dir_fd, name, &now, AT_SYMLINK_NOFOLLOW) < 0 || held.st_ino != now.st_ino) {
        close(fd);
        return 0;
    }
    *ret_fd = fd;
    return 1;
}

enum berth_code slot_take(const char *dir, unsigned n_slots, int *ret_slot, int *ret_fd,
                          struct berth_error *err)
{
    BERTH_AUTO(close) int dir_fd = -1;
    unsigned start;

    for (const char *slash = strchr(dir + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        char part[512];

        snprintf(part, sizeof part, "%.*s", (int)(slash - dir), dir);
        (void)mkdir(part, 0755);
    }
    dir_fd = io_make_dir(AT_FDCWD, dir, 0700);
    if (dir_fd < 0)
        return io_fail(err, "make %s", dir);
    berth_random(&start, sizeof start);
    for (unsigned i = 0; i < n_slots; i++) {
        unsigned slot = (start % n_slots + i) % n_slots;
        int result = try_slot(dir_fd, slot, ret_fd);

        if (result < 0)
            return io_fail(err, "take slot %u", slot);
        if (result > 0) {
            *ret_slot = (int)slot;
            return BERTH_OK;
        }
    }
    return berth_fail(err, BERTH_REASON_BACKEND_CAPACITY,
                      "all %u slots of this host are taken (network_cidr is too small)",
                      n_slots);
}

bool slot_try(const char *dir, unsigned slot, int *ret_fd)
{
    BERTH_AUTO(close) int dir_fd = io_open_dir(AT_FDCWD, dir);

    return dir_fd >= 0 && try_slot(dir_fd, slot, ret_fd) > 0;
}

void slot_forget(const char *dir, int slot)
{
    BERTH_AUTO(close) int dir_fd = io_open_dir(AT_FDCWD, dir);
    BERTH_AUTO(close) int fd = -1;
    char name[16];

    if (dir_fd < 0 || slot < 0 || try_slot(dir_fd, (unsigned)slot, &fd) <= 0)
        return;
    snprintf(name, sizeof name, "%d", slot);
    (void)unlinkat(dir_fd, name, 0);
}

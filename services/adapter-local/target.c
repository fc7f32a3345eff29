#include "services/adapter-local/target.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "services/adapter-local/local_impl.h"
#include "services/adapter-local/spawner/rules.h"

static enum berth_code not_found(const char *id, struct berth_error *err)
{
    enum berth_code code = berth_fail(err, BERTH_REASON_SANDBOX_NOT_FOUND, NULL);

    BERTH_ERROR_SET(err, sandbox_id, id);
    return code;
}

enum berth_code local_open_dir(struct adapter *local, const char *id, int *ret_dir_fd,
                               struct berth_error *err)
{
    int fd = store_id_ok(id) ? openat(local->store.sandboxes_fd, id,
                                      O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)
                             : -1;

    if (fd < 0)
        return not_found(id, err);
    *ret_dir_fd = fd;
    return BERTH_OK;
}

enum berth_code local_why_silent(struct adapter *local, const char *id, struct berth_error *err)
{
    struct record record;
    enum berth_code code = record_load(&local->store, id, &record, err);
    bool alive, creating;

    if (code) {
        BERTH_ERROR_SET(err, sandbox_id, id);
        return code;
    }
    alive = record_alive(&local->store, &record);
    creating = record.state == RECORD_CREATING;
    record_deinit(&record);
    if (creating)
        code = berth_fail(err, BERTH_REASON_SANDBOX_TRANSITIONING, NULL);
    else if (alive)
        code = berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE,
                          "the sandbox's supervisor does not answer");
    else
        code = berth_fail(err, BERTH_REASON_SANDBOX_TERMINAL, NULL);
    BERTH_ERROR_SET(err, sandbox_id, id);
    return code;
}

static void note_use(struct adapter *local, const char *id)
{
    int dir_fd =
        openat(local->store.sandboxes_fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (dir_fd < 0)
        return;
    (void)utimensat(dir_fd, "active", NULL, AT_SYMLINK_NOFOLLOW);
    close(dir_fd);
}

enum berth_code local_open_root(struct adapter *local, const char *id, struct local_root *ret,
                                struct berth_error *err)
{
    struct record record = {0};
    char path[64];
    int fd = -1;
    enum berth_code code = record_load(&local->store, id, &record, err);

    if (code) {
        BERTH_ERROR_SET(err, sandbox_id, id);
        return code;
    }
    snprintf(path, sizeof path, "/proc/%ld/root", (long)record.init_pid);
    if (record_alive(&local->store, &record))
        fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    /* Its pid may have passed to another process between the look and the open. */
    if (fd >= 0 && !record_alive(&local->store, &record)) {
        close(fd);
        fd = -1;
    }
    if (fd >= 0)
        *ret = (struct local_root){
            .fd = fd, .uid_base = STORE_UID_BASE + (unsigned)record.slot * STORE_UID_COUNT};
    record_deinit(&record);
    if (fd < 0)
        return local_why_silent(local, id, err);
    note_use(local, id);
    return BERTH_OK;
}

enum berth_code local_check_fence(struct adapter *local, const char *id, uint64_t fence,
                                  struct berth_error *err)
{
    struct record record;
    enum berth_code code = record_load(&local->store, id, &record, err);

    if (!code) {
        if (!rules_fence_passes(record.fence, fence))
            code = berth_fail(err, BERTH_REASON_FENCE_STALE, NULL);
        record_deinit(&record);
    }
    if (code)
        BERTH_ERROR_SET(err, sandbox_id, id);
    return code;
}

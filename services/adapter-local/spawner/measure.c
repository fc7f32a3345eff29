/* measure.c - what sandboxes have written over their images. Nobody waits for it: a child of
 * the spawner walks through their layers beside everything else, and what it found lies beside
 * each of them until the next time. */
#include <fcntl.h>
#include <sys/stat.h>

#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/spawner.h"

/* One that rests, or has ended, is as it was then: its record was written after it stopped. */
static bool is_final(int dir_fd, const struct record *record)
{
    struct stored stored;
    struct stat st;

    return (record->paused || record->ended) && stored_load(dir_fd, &stored) &&
           fstatat(dir_fd, "meta.json", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           stored.begin_ms > (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
}

/* No lock is taken: one that is deleted meanwhile is written to where it lies, or nowhere. */
static void measure(const struct spawner *spawner, const char *id)
{
    BERTH_AUTO(close) int dir_fd = io_open_dir(spawner->store.sandboxes_fd, id);
    struct stored stored = {.begin_ms = berth_now_ms()};
    struct record record;
    bool known;
    int64_t bytes;

    if (dir_fd < 0 || record_load(&spawner->store, id, &record, NULL))
        return;
    known = record.state != RECORD_READY || is_final(dir_fd, &record);
    record_deinit(&record);
    bytes = known ? -1 : io_tree_bytes(dir_fd, "upper");
    if (bytes < 0)
        return;
    stored.bytes = (uint64_t)bytes;
    (void)!stored_save(dir_fd, &stored, NULL);
}

void spawner_measure(const struct spawner *spawner)
{
    char **ids = NULL;
    size_t n = 0;

    if (store_list(spawner->store.sandboxes_fd, &ids, &n, NULL))
        return;
    for (size_t i = 0; i < n; i++)
        measure(spawner, ids[i]);
    store_list_free(ids, n);
}

/* Archives as strangers pack them. What is accepted lies inside its own folder, each path once
 * on any file system, within the limits; and its normalised tar is the same bundle again. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "services/skills/bundle/judge.h"
#include "services/skills/bundle/tar.h"
#include "services/skills/bundle/text.h"
#include "tests/fuzz/fuzz.h"

enum { ROOM = 4 << 20 };

static const struct bundle_limits limits = {.total_bytes = 1 << 20,
                                            .file_bytes = 1 << 18,
                                            .n_entries = 200,
                                            .ratio = 100,
                                            .free_bytes = 1 << 16};

static void need(bool promise)
{
    if (!promise)
        abort();
}

static int empty_spool(int *fd)
{
    if (*fd < 0)
        *fd = memfd_create("spool", MFD_CLOEXEC);
    need(*fd >= 0 && ftruncate(*fd, 0) == 0);
    return *fd;
}

static void check_paths(const struct bundle *bundle)
{
    uint64_t total = 0;

    for (size_t i = 0; i < bundle->n_entries; i++) {
        const struct bundle_entry *entry = &bundle->entries[i];
        char clean[BUNDLE_PATH_MAX + 1];
        enum finding_code why;

        need(path_clean(entry->path, clean, &why) && strcmp(clean, entry->path) == 0);
        need(*clean && !path_is_litter(clean) && !path_is_environment(clean));
        need(i == 0 || strcmp(bundle->entries[i - 1].path, entry->path) < 0);
        need(entry->size <= limits.file_bytes);
        total += entry->size;
    }
    need(bundle->n_entries <= limits.n_entries && total <= limits.total_bytes);
    need(total == bundle->total_bytes);
    need(bundle_find(bundle, "SKILL.md") != NULL);
}

struct sink {
    uint8_t *data;
    size_t size;
};

static enum berth_code collect(void *arg, const void *data, size_t size,
                               struct berth_error *err)
{
    struct sink *sink = arg;

    (void)err;
    need(sink->size + size <= ROOM);
    memcpy(sink->data + sink->size, data, size);
    sink->size += size;
    return BERTH_OK;
}

static enum berth_code judge(const void *data, size_t size, int spool_fd,
                             struct bundle_verdict *ret)
{
    const struct bundle_source source = {
        .fd = -1, .data = data, .size = size, .limits = &limits};
    struct berth_error err;

    return bundle_judge(&source, spool_fd, NULL, NULL, ret, &err);
}

static void check_again(const struct bundle_verdict *verdict)
{
    static int spool_fd = -1;
    static uint8_t room[ROOM];
    struct sink sink = {.data = room};
    struct bundle_verdict again = {0};
    struct bundle_limits wide = limits;
    struct berth_error err;

    /* Without a prefix, which may lead beyond the limits of a path. */
    need(bundle_write_tar(&verdict->bundle, "", collect, &sink, &err) == BERTH_OK);
    wide.n_entries = bundle_limits.n_entries;
    wide.ratio = bundle_limits.ratio;
    {
        const struct bundle_source source = {
            .fd = -1, .data = room, .size = sink.size, .limits = &wide};

        need(bundle_judge(&source, empty_spool(&spool_fd), NULL, NULL, &again, &err) ==
             BERTH_OK);
    }
    need(again.is_accepted);
    need(memcmp(again.digest, verdict->digest, sizeof again.digest) == 0);
    bundle_verdict_deinit(&again);
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    static int spool_fd = -1;
    struct bundle_verdict verdict = {0};
    struct stat spooled;
    bool accepted;

    need(judge(data, size, empty_spool(&spool_fd), &verdict) == BERTH_OK);
    need(fstat(spool_fd, &spooled) == 0 &&
         (uint64_t)spooled.st_size <= limits.total_bytes + limits.file_bytes);
    accepted = verdict.is_accepted;
    if (accepted) {
        check_paths(&verdict.bundle);
        check_again(&verdict);
    }
    bundle_verdict_deinit(&verdict);
    return accepted;
}

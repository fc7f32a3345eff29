#include "services/skills/bundle/bundle.h"

#include <errno.h>

#include "common/crypto/crypto.h"

void bundle_deinit(struct bundle *bundle)
{
    for (size_t i = 0; i < bundle->n_entries; i++)
        free(bundle->entries[i].path);
    free(bundle->entries);
    free(bundle->folder);
    *bundle = (struct bundle){.spool_fd = -1};
}

const struct bundle_entry *bundle_find(const struct bundle *bundle, const char *path)
{
    size_t low = 0, high = bundle->n_entries;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(bundle->entries[middle].path, path);

        if (order == 0)
            return &bundle->entries[middle];
        if (order > 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

enum berth_code bundle_load(const struct bundle *bundle, const struct bundle_entry *entry,
                            char **ret, struct berth_error *err)
{
    BERTH_AUTO(free) char *text = malloc((size_t)entry->size + 1);
    size_t done = 0;

    if (!text)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    while (done < entry->size) {
        ssize_t n = pread(bundle->spool_fd, text + done, (size_t)entry->size - done,
                          (off_t)(entry->offset + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "read the spool: %s",
                              n < 0 ? strerror(errno) : "it is too short");
        done += (size_t)n;
    }
    text[done] = 0;
    *ret = BERTH_STEAL(text);
    return BERTH_OK;
}

bool bundle_is_empty_directory(const struct bundle *bundle, size_t i)
{
    const struct bundle_entry *entry = &bundle->entries[i];
    size_t len = strlen(entry->path);

    if (!entry->is_directory)
        return false;
    /* "a-b" sorts between "a" and "a/b". */
    for (size_t k = i + 1; k < bundle->n_entries; k++) {
        const char *next = bundle->entries[k].path;

        if (strncmp(next, entry->path, len) != 0)
            return true;
        if (next[len] == '/')
            return false;
        if (next[len] > '/')
            return true;
    }
    return true;
}

static void add_field(struct berth_sha256 *hash, const void *data, uint64_t size)
{
    uint8_t prefix[8];

    for (int i = 0; i < 8; i++)
        prefix[i] = (uint8_t)(size >> (56 - 8 * i));
    berth_sha256_add(hash, prefix, sizeof prefix);
    berth_sha256_add(hash, data, (size_t)size);
}

enum berth_code bundle_digest(const struct bundle *bundle, uint8_t ret[32],
                              struct berth_error *err)
{
    static const char version[] = "berth-bundle-1";
    BERTH_AUTO(berth_sha256_free) struct berth_sha256 *hash = berth_sha256_new();

    if (!hash)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    add_field(hash, version, sizeof version - 1);
    for (size_t i = 0; i < bundle->n_entries; i++) {
        const struct bundle_entry *entry = &bundle->entries[i];

        if (entry->is_directory && !bundle_is_empty_directory(bundle, i))
            continue;
        add_field(hash, entry->is_directory ? "d" : entry->is_executable ? "x" : "f", 1);
        add_field(hash, entry->path, strlen(entry->path));
        add_field(hash, entry->sha256, entry->is_directory ? 0 : sizeof entry->sha256);
    }
    berth_sha256_end(hash, ret);
    return BERTH_OK;
}

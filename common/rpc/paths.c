#include "common/rpc/paths.h"

#include <stdatomic.h>

/* Paths are few: one per method that the process calls. A table that is full costs speed only.
 */
enum { N_PATHS_MAX = 512 };

static _Atomic(char *) paths[N_PATHS_MAX]; /* open addressing; entries are never removed */

static size_t hash(const char *path)
{
    uint32_t value = 2166136261u; /* FNV-1a */

    for (; *path; path++)
        value = (value ^ (uint8_t)*path) * 16777619u;
    return value;
}

grpc_slice rpc_path_slice(const char *path)
{
    char *copy = NULL;

    for (size_t i = 0, at = hash(path); i < N_PATHS_MAX; i++, at++) {
        _Atomic(char *) *slot = &paths[at % N_PATHS_MAX];
        char *known = atomic_load(slot);

        if (!known) {
            if (!copy)
                copy = strdup(path);
            if (!copy)
                break;
            if (atomic_compare_exchange_strong(slot, &known, copy))
                return grpc_slice_from_static_string(copy);
        }
        if (strcmp(known, path) == 0) {
            free(copy);
            return grpc_slice_from_static_string(known);
        }
    }
    free(copy);
    return grpc_slice_from_copied_string(path);
}

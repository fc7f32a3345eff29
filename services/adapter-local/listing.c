/* listing.c - ListDir in pages that need no state between them: entries come sorted, a page
 * ends after some entry, and the next begins behind it. Memory is bounded by the page, not by
 * the directory. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "services/adapter-local/files.h"

enum {
    PATH_SIZE = 4097,
    BATCH_MAX = 1001,      /* names looked at together; more than one page has */
    BYTES_MAX = 2 << 20,   /* of one page, as they may be on the wire */
    ENTRY_BYTES = 256,     /* of one entry besides its names */
    ESCAPED_FACTOR = 5,    /* a name that is not UTF-8: whole, and four characters per byte */
    PATIENCE_EVERY = 1024, /* names */
};

struct listing {
    const struct place *place;
    const struct adapter_patience *patience;
    const char *base; /* the directory asked for */
    struct adapter_list list;
    size_t max, bytes;
    bool full, more;
    char last[PATH_SIZE]; /* path below base of the entry listed last */
};

/* The smallest names above a mark, sorted; owned strings. */
struct batch {
    char **names;
    size_t n, max;
    bool complete; /* there are no more */
};

static void batch_deinit(struct batch *batch)
{
    for (size_t i = 0; i < batch->n; i++)
        free(batch->names[i]);
    free(batch->names);
    *batch = (struct batch){0};
}

static void sift_down(char **heap, size_t n, size_t i)
{
    for (;;) {
        size_t largest = i, left = 2 * i + 1;

        if (left < n && strcmp(heap[left], heap[largest]) > 0)
            largest = left;
        if (left + 1 < n && strcmp(heap[left + 1], heap[largest]) > 0)
            largest = left + 1;
        if (largest == i)
            return;
        char *swap = heap[i];
        heap[i] = heap[largest];
        heap[largest] = swap;
        i = largest;
    }
}

static void sift_up(char **heap, size_t i)
{
    while (i > 0 && strcmp(heap[i], heap[(i - 1) / 2]) > 0) {
        char *swap = heap[i];

        heap[i] = heap[(i - 1) / 2];
        heap[(i - 1) / 2] = swap;
        i = (i - 1) / 2;
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Keep name if it is among the smallest so far: a heap with the largest on top. */
static bool keep(struct batch *batch, const char *name)
{
    char *copy;

    if (batch->n == batch->max) {
        batch->complete = false;
        if (strcmp(name, batch->names[0]) >= 0)
            return true;
    }
    copy = strdup(name);
    if (!copy)
        return false;
    if (batch->n == batch->max) {
        free(batch->names[0]);
        batch->names[0] = copy;
        sift_down(batch->names, batch->n, 0);
    } else {
        batch->names[batch->n] = copy;
        sift_up(batch->names, batch->n++);
    }
    return true;
}

/* Names above mark (at or above it with inclusive). */
static enum berth_code read_names(struct listing *listing, int dir_fd, const char *mark,
                                  bool inclusive, struct batch *ret, struct berth_error *err)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    enum berth_code code = BERTH_OK;
    struct dirent *entry;
    unsigned n = 0;

    if (!dir) {
        code = place_fail(err, errno, listing->base);
        closep(&fd);
        return code;
    }
    ret->max = listing->max - listing->list.n + 1;
    if (ret->max > BATCH_MAX)
        ret->max = BATCH_MAX;
    ret->complete = true;
    ret->names = calloc(ret->max, sizeof *ret->names);
    if (!ret->names)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    while (code == BERTH_OK && (entry = readdir(dir))) {
        int order = strcmp(entry->d_name, mark);

        if (++n % PATIENCE_EVERY == 0)
            code = place_patience(listing->patience, err);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || order < 0 ||
            (order == 0 && !inclusive))
            continue;
        if (code == BERTH_OK && !keep(ret, entry->d_name))
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    closedir(dir);
    if (code)
        batch_deinit(ret);
    else if (ret->n > 1)
        qsort(ret->names, ret->n, sizeof *ret->names, by_name);
    return code;
}

static enum berth_code add_entry(struct listing *listing, int fd, const char *below,
                                 struct berth_error *err)
{
    char path[PATH_SIZE];
    struct adapter_file *file = &listing->list.files[listing->list.n];
    const char *slash = strcmp(listing->base, "/") == 0 ? "" : "/";
    size_t size;
    enum berth_code code;

    if (snprintf(path, sizeof path, "%s%s%s", strcmp(slash, "") == 0 ? "" : listing->base, "/",
                 below) >= (int)sizeof path)
        return BERTH_OK; /* deeper than a path can say */
    code = place_describe(listing->place, fd, path, file, err);
    if (code)
        return code;
    size = ENTRY_BYTES + ESCAPED_FACTOR * strlen(path) +
           (file->link_target ? 4 * strlen(file->link_target) : 0);
    if (listing->list.n > 0 && listing->bytes + size > BYTES_MAX) {
        adapter_file_deinit(file);
        listing->full = listing->more = true;
        return BERTH_OK;
    }
    listing->bytes += size;
    listing->list.n++;
    snprintf(listing->last, sizeof listing->last, "%s", below);
    return BERTH_OK;
}

/* There is room for it: see list_in(). */
static void add_slash(char *path)
{
    size_t len = strlen(path);

    path[len] = '/';
    path[len + 1] = 0;
}

/* List what is in dir_fd; below: its path below base with a '/' at the end, or "". after: path
 * in it behind which to begin, or "". */
static enum berth_code list_in(struct listing *listing, int dir_fd, const char *below,
                               unsigned depth, const char *after, struct berth_error *err)
{
    size_t first_len = strcspn(after, "/");
    const char *rest = after[first_len] == '/' ? after + first_len + 1 : "";
    char mark[256], path[PATH_SIZE];
    bool inclusive = after[0] != 0; /* it was listed, but maybe not all that is in it */
    enum berth_code code = BERTH_OK;
    bool complete = false;

    snprintf(mark, sizeof mark, "%.*s", (int)first_len, after);
    while (code == BERTH_OK && !complete && !listing->full) {
        struct batch batch = {0};

        code = read_names(listing, dir_fd, mark, inclusive, &batch, err);
        complete = batch.complete;
        for (size_t i = 0; code == BERTH_OK && i < batch.n && !listing->full; i++) {
            const char *name = batch.names[i];
            bool resumed = inclusive && strcmp(name, mark) == 0;
            BERTH_AUTO(close) int fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
            struct stat st;

            if (fd < 0 || fstat(fd, &st) < 0)
                continue; /* gone meanwhile */
            if (snprintf(path, sizeof path, "%s%s", below, name) >= (int)sizeof path - 1)
                continue;
            if (!resumed && listing->list.n == listing->max) {
                listing->full = listing->more = true;
                break;
            }
            if (!resumed)
                code = add_entry(listing, fd, path, err);
            if (code || listing->full || depth < 2 || !S_ISDIR(st.st_mode) ||
                place_check_storage(fd, NULL) != BERTH_OK)
                continue;
            add_slash(path);
            code = list_in(listing, fd, path, depth - 1, resumed ? rest : "", err);
            if (code == BERTH_PERMISSION_DENIED || code == BERTH_NOT_FOUND)
                code = BERTH_OK; /* listed; closed to its user, or gone meanwhile */
        }
        if (batch.n > 0)
            snprintf(mark, sizeof mark, "%s", batch.names[batch.n - 1]);
        inclusive = false;
        batch_deinit(&batch);
    }
    return code;
}

enum berth_code local_list(struct adapter *adapter, const struct adapter_route *route,
                           const char *path, unsigned depth, const char *after, unsigned max,
                           const struct adapter_patience *patience, struct adapter_list *ret,
                           struct berth_error *err)
{
    BERTH_AUTO(local_visit_end) struct local_visit visit = {0};
    BERTH_AUTO(close) int fd = -1;
    BERTH_AUTO(free) struct listing *listing = calloc(1, sizeof *listing);
    struct stat st;
    enum berth_code code;

    if (!listing)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *listing =
        (struct listing){.place = &visit.place, .patience = patience, .base = path, .max = max};
    listing->list.files = calloc(max, sizeof *listing->list.files);
    if (!listing->list.files)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = local_visit_begin(adapter, route, &visit, err);
    if (code == BERTH_OK)
        code = place_find(&visit.place, path, true, &fd, err);
    if (code == BERTH_OK && (fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode)))
        code = place_fail(err, ENOTDIR, path);
    if (code == BERTH_OK)
        code = list_in(listing, fd, "", depth, after, err);
    if (code == BERTH_OK && listing->more) {
        listing->list.next = strdup(listing->last);
        if (!listing->list.next)
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    if (code) {
        adapter_list_deinit(&listing->list);
        return code;
    }
    *ret = listing->list;
    return BERTH_OK;
}

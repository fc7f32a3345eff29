/* catalog.c - the records of snapshots and templates. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "common/json/json.h"
#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/store.h"

enum { META_MAX = 256 * 1024 };

static enum berth_code read_meta(int dir_fd, json_t **ret, struct berth_error *err)
{
    BERTH_AUTO(free) char *text = NULL;
    ssize_t size = io_read_whole(dir_fd, "meta.json", META_MAX, &text);

    if (size < 0)
        return io_fail(err, "read meta.json");
    return berth_json_parse(text, (size_t)size, META_MAX, ret, err);
}

static enum berth_code write_meta(int dir_fd, json_t *root, struct berth_error *err)
{
    BERTH_AUTO(free) char *text = root ? berth_json_format(root) : NULL;

    if (!text)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    return io_replace(dir_fd, "meta.json", text, strlen(text), true, err);
}

void snapshot_record_deinit(struct snapshot_record *record)
{
    adapter_snapshot_deinit(&record->info);
    for (size_t i = 0; i < record->n_layers; i++)
        free(record->layers[i]);
    *record = (struct snapshot_record){0};
}

static enum berth_code decode_snapshot(const json_t *root, struct snapshot_record *r,
                                       struct berth_error *err)
{
    const json_t *layers = json_object_get(root, "layers");
    int64_t fence, size;
    enum berth_code code;
    const json_t *value;
    size_t i;

    code = berth_json_get_str(root, "name", r->info.name, sizeof r->info.name, "", err);
    if (!code)
        code = berth_json_get_str(root, "source_sandbox_id", r->info.source_sandbox_id,
                                  sizeof r->info.source_sandbox_id, "", err);
    if (!code)
        code = berth_json_get_int(root, "size_bytes", 0, INT64_MAX, 0, &size, err);
    if (!code)
        code = berth_json_get_int(root, "create_ms", 0, INT64_MAX, 0, &r->info.create_ms, err);
    if (!code)
        code = berth_json_get_int(root, "fence", INT64_MIN, INT64_MAX, 0, &fence, err);
    if (!code)
        code = berth_json_get_bool(root, "deleted", false, &r->deleted, err);
    if (!code)
        code =
            adapter_pairs_from_json(json_object_get(root, "metadata"), &r->info.metadata, err);
    if (code)
        return code;
    r->info.size_bytes = (uint64_t)size;
    r->info.state = 2; /* SNAPSHOT_STATE_READY: a directory of this name is whole */
    r->fence = (uint64_t)fence;
    json_array_foreach(layers, i, value)
    {
        if (i == STORE_LAYERS_MAX || !json_is_string(value))
            return berth_fail(err, BERTH_REASON_FIELD_INVALID, "layers");
        r->layers[i] = strdup(json_string_value(value));
        if (!r->layers[i])
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        r->n_layers = i + 1;
    }
    return BERTH_OK;
}

enum berth_code snapshot_load(const struct store *store, const char *id,
                              struct snapshot_record *ret, struct berth_error *err)
{
    BERTH_AUTO(close) int dir_fd = store_id_ok(id) ? io_open_dir(store->snapshots_fd, id) : -1;
    BERTH_AUTO(json_decref) json_t *root = NULL;
    struct snapshot_record record = {0};
    enum berth_code code;

    if (dir_fd < 0)
        return berth_fail(err, BERTH_REASON_SNAPSHOT_NOT_FOUND, NULL);
    code = read_meta(dir_fd, &root, err);
    if (!code)
        code = decode_snapshot(root, &record, err);
    if (code) {
        snapshot_record_deinit(&record);
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                          "the record of snapshot %s is damaged", id);
    }
    snprintf(record.info.id, sizeof record.info.id, "%s", id);
    *ret = record;
    return BERTH_OK;
}

enum berth_code snapshot_save(int dir_fd, const struct snapshot_record *record,
                              struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *root = NULL;
    json_t *layers = json_array();

    for (size_t i = 0; layers && i < record->n_layers; i++)
        (void)json_array_append_new(layers, json_string(record->layers[i]));
    root = json_pack("{s:s, s:s, s:I, s:I, s:I, s:b, s:o, s:o}", "name", record->info.name,
                     "source_sandbox_id", record->info.source_sandbox_id, "size_bytes",
                     (json_int_t)record->info.size_bytes, "create_ms",
                     (json_int_t)record->info.create_ms, "fence", (json_int_t)record->fence,
                     "deleted", record->deleted, "metadata",
                     adapter_pairs_to_json(&record->info.metadata), "layers", layers);
    return write_meta(dir_fd, root, err);
}

/* ---------------------------------------------------------------- templates */

/* From one directory. place "" : the store's own. */
static enum berth_code load_from(int parent_fd, const char *place, const char *id,
                                 struct adapter_template *ret, char layer[STORE_PATH_MAX],
                                 struct berth_error *err)
{
    BERTH_AUTO(close) int dir_fd = io_open_dir(parent_fd, id);
    BERTH_AUTO(json_decref) json_t *root = NULL;
    struct adapter_template info = {.state = 2}; /* TEMPLATE_STATE_READY */
    enum berth_code code;
    int64_t size;

    if (dir_fd < 0 || faccessat(dir_fd, "rootfs", F_OK, AT_SYMLINK_NOFOLLOW) < 0 ||
        faccessat(dir_fd, "meta.json", F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return berth_fail(err, BERTH_REASON_TEMPLATE_NOT_FOUND, NULL);
    code = read_meta(dir_fd, &root, err);
    if (!code)
        code = berth_json_get_int(root, "size_bytes", 0, INT64_MAX, 0, &size, err);
    if (!code)
        code = berth_json_get_int(root, "create_ms", 0, INT64_MAX, 0, &info.create_ms, err);
    if (!code)
        code = berth_json_get_str(root, "message", info.message, sizeof info.message, "", err);
    if (code)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                          "the record of template %s is damaged", id);
    info.size_bytes = (uint64_t)size;
    snprintf(info.id, sizeof info.id, "%s", id);
    if (snprintf(layer, STORE_PATH_MAX, "%s/%s/rootfs", *place ? place : "templates", id) >=
        STORE_PATH_MAX)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "the path of template %s is too long",
                          id);
    *ret = info;
    return BERTH_OK;
}

enum berth_code template_load(const struct store *store, const char *id,
                              struct adapter_template *ret, char ret_layer[STORE_PATH_MAX],
                              struct berth_error *err)
{
    enum berth_code code;

    if (!store_id_ok(id))
        return berth_fail(err, BERTH_REASON_TEMPLATE_NOT_FOUND, NULL);
    code = load_from(store->templates_fd, "", id, ret, ret_layer, err);
    for (size_t i = 0; code == BERTH_NOT_FOUND && i < store->n_template_dirs; i++) {
        const char *place = store->template_dirs[i];
        BERTH_AUTO(close) int fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd >= 0)
            code = load_from(fd, place, id, ret, ret_layer, err);
    }
    return code;
}

enum berth_code template_save(int dir_fd, const struct adapter_template *info,
                              struct berth_error *err)
{
    BERTH_AUTO(json_decref)
    json_t *root =
        json_pack("{s:I, s:I, s:s}", "size_bytes", (json_int_t)info->size_bytes, "create_ms",
                  (json_int_t)info->create_ms, "message", info->message);

    return write_meta(dir_fd, root, err);
}

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct adapter_template *)a)->id,
                  ((const struct adapter_template *)b)->id);
}

/* Add what a directory holds; a name that is there already hides the later one. */
static enum berth_code collect(const struct store *store, int fd,
                               struct adapter_template **list, size_t *n,
                               struct berth_error *err)
{
    char **names = NULL;
    size_t n_names = 0;
    enum berth_code code = store_list(fd, &names, &n_names, err);

    for (size_t i = 0; !code && i < n_names; i++) {
        struct adapter_template info, *more;
        char layer[STORE_PATH_MAX];
        bool known = false;

        for (size_t k = 0; k < *n && !known; k++)
            known = strcmp((*list)[k].id, names[i]) == 0;
        if (known || template_load(store, names[i], &info, layer, NULL))
            continue;
        more = realloc(*list, (*n + 1) * sizeof **list);
        if (!more) {
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
            break;
        }
        *list = more;
        more[(*n)++] = info;
    }
    store_list_free(names, n_names);
    return code;
}

enum berth_code template_list(const struct store *store, struct adapter_template **ret,
                              size_t *ret_n, struct berth_error *err)
{
    struct adapter_template *list = NULL;
    size_t n = 0;
    enum berth_code code = collect(store, store->templates_fd, &list, &n, err);

    for (size_t i = 0; !code && i < store->n_template_dirs; i++) {
        BERTH_AUTO(close)
        int fd = open(store->template_dirs[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd >= 0)
            code = collect(store, fd, &list, &n, err);
    }
    if (code) {
        free(list);
        return code;
    }
    if (n)
        qsort(list, n, sizeof *list, by_id);
    *ret = list;
    *ret_n = n;
    return BERTH_OK;
}

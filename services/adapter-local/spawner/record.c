/* record.c - sandboxes/<id>/meta.json, stored, and keys/<key>.json. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/json/json.h"
#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/store.h"

enum { BLOCK_SIZE = 4096 };

void record_deinit(struct record *record)
{
    adapter_pairs_deinit(&record->metadata);
    adapter_pairs_deinit(&record->env);
    for (size_t i = 0; i < record->n_layers; i++)
        free(record->layers[i]);
    *record = (struct record){0};
}

/* Takes each value; false: no memory, or one of them was NULL. */
static bool put(json_t *root, const char *key, json_t *value)
{
    return json_object_set_new(root, key, value) == 0;
}

static json_t *strings(char *const *list, size_t n)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < n; i++)
        if (json_array_append_new(array, json_string(list[i])) < 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

/* A file that was renamed into place but not synced is whole or torn after a power cut: empty,
 * or zeros where the text was. JSON has no zeros. */
static bool is_torn(const char *text, size_t size)
{
    return size == 0 || memchr(text, 0, size);
}

enum berth_code record_draft(const struct store *store, const struct record *record,
                             bool durable, struct berth_error *err)
{
    BERTH_AUTO(close) int dir_fd = io_open_dir(store->sandboxes_fd, record->id);
    BERTH_AUTO(json_decref) json_t *root = json_object();
    BERTH_AUTO(free) char *text = NULL;

    if (dir_fd < 0)
        return io_fail(err, "open sandbox %s", record->id);
    if (!put(root, "id", json_string(record->id)) ||
        !put(root, "key", json_string(record->key)) ||
        !put(root, "attempt", json_string(record->attempt)) ||
        !put(root, "fence", json_integer((json_int_t)record->fence)) ||
        !put(root, "state", json_integer(record->state)) ||
        !put(root, "paused", json_boolean(record->paused)) ||
        !put(root, "ended", json_boolean(record->ended)) ||
        !put(root, "create_ms", json_integer(record->create_ms)) ||
        !put(root, "image", adapter_image_to_json(&record->image)) ||
        !put(root, "metadata", adapter_pairs_to_json(&record->metadata)) ||
        !put(root, "env", adapter_pairs_to_json(&record->env)) ||
        !put(root, "network", adapter_network_to_json(&record->network)) ||
        !put(root, "timeouts", adapter_timeouts_to_json(&record->timeouts)) ||
        !put(root, "resources", adapter_resources_to_json(&record->resources)) ||
        !put(root, "layers", strings(record->layers, record->n_layers)) ||
        !put(root, "cidr", json_string(record->cidr)) ||
        !put(root, "resolvers", json_string(record->resolvers)) ||
        !put(root, "slot", json_integer(record->slot)) ||
        !put(root, "boot", json_string(record->boot)) ||
        !put(root, "supervisor_pid", json_integer(record->supervisor_pid)) ||
        !put(root, "supervisor_start", json_integer((json_int_t)record->supervisor_start)) ||
        !put(root, "init_pid", json_integer(record->init_pid)) ||
        !put(root, "init_start", json_integer((json_int_t)record->init_start)))
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    text = berth_json_format(root);
    if (!text)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    /* More than a block could come back as its first half. */
    durable = durable || strlen(text) > BLOCK_SIZE;
    return io_draft(dir_fd, "meta.json", text, strlen(text), durable, err);
}

enum berth_code record_publish(const struct store *store, const struct record *record,
                               struct berth_error *err)
{
    BERTH_AUTO(close) int dir_fd = io_open_dir(store->sandboxes_fd, record->id);

    return dir_fd < 0 ? io_fail(err, "open sandbox %s", record->id)
                      : io_publish(dir_fd, "meta.json", err);
}

enum berth_code record_save(const struct store *store, const struct record *record,
                            bool durable, struct berth_error *err)
{
    enum berth_code code = record_draft(store, record, durable, err);

    return code ? code : record_publish(store, record, err);
}

static enum berth_code read_layers(const json_t *root, char **ret, size_t *ret_n,
                                   struct berth_error *err)
{
    const json_t *array = json_object_get(root, "layers");
    const json_t *value;
    size_t i;

    if (json_array_size(array) > STORE_LAYERS_MAX)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "layers: too many");
    json_array_foreach(array, i, value)
    {
        const char *layer = json_string_value(value);

        if (!layer || !*layer)
            return berth_fail(err, BERTH_REASON_FIELD_INVALID, "layers: not strings");
        ret[i] = strdup(layer);
        if (!ret[i])
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        *ret_n = i + 1;
    }
    return BERTH_OK;
}

static enum berth_code decode(const json_t *root, struct record *r, struct berth_error *err)
{
    int64_t fence, state, slot, supervisor, supervisor_start, init, init_start;
    const struct {
        const char *key;
        char *buf;
        size_t size;
    } texts[] = {{"id", r->id, sizeof r->id},
                 {"key", r->key, sizeof r->key},
                 {"attempt", r->attempt, sizeof r->attempt},
                 {"cidr", r->cidr, sizeof r->cidr},
                 {"resolvers", r->resolvers, sizeof r->resolvers},
                 {"boot", r->boot, sizeof r->boot}};
    const struct {
        const char *key;
        int64_t min, max, *ret;
    } numbers[] = {{"fence", INT64_MIN, INT64_MAX, &fence},
                   {"state", RECORD_CREATING, RECORD_DELETING, &state},
                   {"create_ms", 0, INT64_MAX, &r->create_ms},
                   {"slot", 0, UINT16_MAX, &slot},
                   {"supervisor_pid", 0, INT32_MAX, &supervisor},
                   {"supervisor_start", 0, INT64_MAX, &supervisor_start},
                   {"init_pid", 0, INT32_MAX, &init},
                   {"init_start", 0, INT64_MAX, &init_start}};
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < BERTH_COUNT(texts); i++)
        code = berth_json_get_str(root, texts[i].key, texts[i].buf, texts[i].size, "", err);
    for (size_t i = 0; !code && i < BERTH_COUNT(numbers); i++)
        code = berth_json_get_int(root, numbers[i].key, numbers[i].min, numbers[i].max,
                                  numbers[i].min < 0 ? 0 : numbers[i].min, numbers[i].ret, err);
    if (!code)
        code = berth_json_get_bool(root, "paused", false, &r->paused, err);
    if (!code)
        code = berth_json_get_bool(root, "ended", false, &r->ended, err);
    if (!code)
        code = adapter_image_from_json(json_object_get(root, "image"), &r->image, err);
    if (!code)
        code = adapter_pairs_from_json(json_object_get(root, "metadata"), &r->metadata, err);
    if (!code)
        code = adapter_pairs_from_json(json_object_get(root, "env"), &r->env, err);
    if (!code)
        code = adapter_network_from_json(json_object_get(root, "network"), &r->network, err);
    if (!code)
        code = adapter_timeouts_from_json(json_object_get(root, "timeouts"), &r->timeouts, err);
    if (!code)
        code =
            adapter_resources_from_json(json_object_get(root, "resources"), &r->resources, err);
    if (!code)
        code = read_layers(root, r->layers, &r->n_layers, err);
    if (code)
        return code;
    r->fence = (uint64_t)fence;
    r->state = (enum record_state)state;
    r->slot = (int)slot;
    r->supervisor_pid = (pid_t)supervisor;
    r->supervisor_start = (uint64_t)supervisor_start;
    r->init_pid = (pid_t)init;
    r->init_start = (uint64_t)init_start;
    return BERTH_OK;
}

enum berth_code record_load(const struct store *store, const char *id, struct record *ret,
                            struct berth_error *err)
{
    BERTH_AUTO(close) int dir_fd = -1;
    BERTH_AUTO(json_decref) json_t *root = NULL;
    BERTH_AUTO(free) char *text = NULL;
    struct record record = {0};
    enum berth_code code;
    ssize_t size;

    dir_fd = store_id_ok(id) ? io_open_dir(store->sandboxes_fd, id) : -1;
    if (dir_fd < 0)
        return berth_fail(err, BERTH_REASON_SANDBOX_NOT_FOUND, NULL);
    size = io_read_whole(dir_fd, "meta.json", STORE_META_MAX, &text);
    if (size < 0 && errno == ENOENT)
        return berth_fail(err, BERTH_REASON_SANDBOX_NOT_FOUND, NULL);
    if (size < 0)
        return io_fail(err, "read the record of sandbox %s", id);
    /* The power was cut in the first seconds of its life. Nothing is left that ran. */
    if (is_torn(text, (size_t)size))
        return berth_fail(err, BERTH_REASON_SANDBOX_NOT_FOUND, NULL);
    code = berth_json_parse(text, (size_t)size, STORE_META_MAX, &root, err);
    if (!code)
        code = decode(root, &record, err);
    if (!code && strcmp(record.id, id) != 0)
        code = berth_fail(err, BERTH_REASON_FIELD_INVALID, "it names sandbox %s", record.id);
    if (code) {
        record_deinit(&record);
        if (err && code == BERTH_INVALID_ARGUMENT) {
            err->code = code = BERTH_INTERNAL;
            err->reason = BERTH_REASON_INTERNAL_BUG;
        }
        return berth_wrap(err, code, "record of sandbox %s", id);
    }
    *ret = record;
    return BERTH_OK;
}

bool record_alive(const struct store *store, const struct record *record)
{
    return record->state == RECORD_READY && !record->ended && record->supervisor_start &&
           strcmp(record->boot, store->boot) == 0 &&
           io_process_start(record->supervisor_pid) == record->supervisor_start &&
           io_process_start(record->init_pid) == record->init_start;
}

static const char *mark_name(const char *id, char buf[ADAPTER_ID_SIZE + 16])
{
    snprintf(buf, ADAPTER_ID_SIZE + 16, "%s/freezing", id);
    return buf;
}

void record_mark_freeze(const struct store *store, const char *id, bool on)
{
    char name[ADAPTER_ID_SIZE + 16];
    int fd;

    if (!on) {
        (void)unlinkat(store->sandboxes_fd, mark_name(id, name), 0);
        return;
    }
    fd = openat(store->sandboxes_fd, mark_name(id, name),
                O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0)
        close(fd);
}

bool record_freeze_marked(const struct store *store, const char *id)
{
    char name[ADAPTER_ID_SIZE + 16];

    return faccessat(store->sandboxes_fd, mark_name(id, name), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool stored_load(int dir_fd, struct stored *ret)
{
    char text[64];

    return io_read(dir_fd, "stored", text, sizeof text) > 0 &&
           sscanf(text, "%" SCNu64 " %" SCNd64, &ret->bytes, &ret->begin_ms) == 2;
}

enum berth_code stored_save(int dir_fd, const struct stored *stored, struct berth_error *err)
{
    char text[64];
    int len = snprintf(text, sizeof text, "%" PRIu64 " %" PRId64 "\n", stored->bytes,
                       stored->begin_ms);

    return io_replace(dir_fd, "stored", text, (size_t)len, false, err);
}

enum berth_code record_describe(const struct store *store, const struct record *record,
                                struct adapter_sandbox *ret, struct berth_error *err)
{
    BERTH_AUTO(close) int dir_fd = io_open_dir(store->sandboxes_fd, record->id);
    struct adapter_sandbox sandbox = {
        .state = ADAPTER_TERMINAL,
        .image = record->image,
        .create_ms = record->create_ms,
        .last_active_ms = record->create_ms,
        .last_call_ms = record->create_ms,
        .timeouts = record->timeouts,
        .network = record->network,
        .resources = record->resources,
        .fence = record->fence,
    };
    const char *raw = "ended";
    struct stored stored;
    struct stat st;

    if (record->state == RECORD_CREATING) {
        sandbox.state = ADAPTER_TRANSITIONING;
        raw = "creating";
    } else if (record->state == RECORD_DELETING) {
        raw = "deleting";
    } else if (record_alive(store, record)) {
        sandbox.state = record->paused ? ADAPTER_PAUSED : ADAPTER_RUNNING;
        raw = record->paused ? "frozen" : "running";
    }
    snprintf(sandbox.id, sizeof sandbox.id, "%s", record->id);
    snprintf(sandbox.raw_state, sizeof sandbox.raw_state, "%s", raw);
    if (dir_fd >= 0 && fstatat(dir_fd, "active", &st, AT_SYMLINK_NOFOLLOW) == 0) {
        sandbox.last_active_ms =
            (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
        sandbox.last_call_ms = (int64_t)st.st_atim.tv_sec * 1000 + st.st_atim.tv_nsec / 1000000;
    }
    if (dir_fd >= 0 && stored_load(dir_fd, &stored))
        sandbox.disk_used_bytes = stored.bytes;
    for (size_t i = 0; i < record->metadata.n; i++) {
        enum berth_code code = adapter_pairs_add(&sandbox.metadata, record->metadata.keys[i],
                                                 record->metadata.values[i], err);
        if (code) {
            adapter_sandbox_deinit(&sandbox);
            return code;
        }
    }
    *ret = sandbox;
    return BERTH_OK;
}

static enum berth_code read_key(int fd, struct key_record *ret, struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *root = NULL;
    struct key_record record = {0};
    char text[2048];
    ssize_t size = pread(fd, text, sizeof text - 1, 0);
    enum berth_code code;
    int64_t fence;

    if (size < 0)
        return io_fail(err, "read a key");
    /* New, or torn by a power cut before the create that wrote it was answered. */
    if (is_torn(text, (size_t)size)) {
        *ret = record;
        return BERTH_OK;
    }
    code = berth_json_parse(text, (size_t)size, sizeof text, &root, err);
    if (!code)
        code = berth_json_get_int(root, "fence", INT64_MIN, INT64_MAX, 0, &fence, err);
    if (!code)
        code = berth_json_get_int(root, "delete_ms", 0, INT64_MAX, 0, &record.delete_ms, err);
    if (!code)
        code =
            berth_json_get_str(root, "attempt", record.attempt, sizeof record.attempt, "", err);
    if (!code)
        code = berth_json_get_str(root, "sandbox_id", record.sandbox_id,
                                  sizeof record.sandbox_id, "", err);
    if (code)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "a key's record is damaged");
    record.fence = (uint64_t)fence;
    *ret = record;
    return BERTH_OK;
}

enum berth_code key_lock(const struct store *store, const char *key, int64_t deadline_ms,
                         struct key_lock *ret, struct berth_error *err)
{
    struct key_lock lock = {.fd = -1};
    enum berth_code code;
    struct stat held, now;

    snprintf(lock.name, sizeof lock.name, "%s.json", key);
    for (;;) {
        lock.fd =
            openat(store->keys_fd, lock.name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (lock.fd < 0)
            return io_fail(err, "open key %s", key);
        code = io_lock(lock.fd, deadline_ms, "the session's key", err);
        if (code) {
            key_unlock(&lock);
            return code;
        }
        /* key_save() replaces the file: only a lock on the present one counts. */
        if (fstat(lock.fd, &held) == 0 &&
            fstatat(store->keys_fd, lock.name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
            held.st_ino == now.st_ino)
            break;
        key_unlock(&lock);
    }
    code = read_key(lock.fd, &lock.record, err);
    if (code) {
        key_unlock(&lock);
        return berth_wrap(err, code, "key %s", key);
    }
    *ret = lock;
    return BERTH_OK;
}

static enum berth_code write_key(const struct store *store, struct key_lock *lock, bool durable,
                                 struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *root = NULL;
    BERTH_AUTO(free) char *text = NULL;
    char temporary[sizeof lock->name + 16];
    int fd;

    root = json_pack("{s:I, s:s, s:s, s:I}", "fence", (json_int_t)lock->record.fence, "attempt",
                     lock->record.attempt, "sandbox_id", lock->record.sandbox_id, "delete_ms",
                     (json_int_t)lock->record.delete_ms);
    text = root ? berth_json_format(root) : NULL;
    if (!text)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    snprintf(temporary, sizeof temporary, ".%s.%ld", lock->name, (long)getpid());
    fd = openat(store->keys_fd, temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                0600);
    if (fd < 0)
        return io_fail(err, "write %s", lock->name);
    /* Locked before anybody can see it, so that the lock never lapses. */
    if (io_lock(fd, berth_tick_ms(), "a new file", err) ||
        write(fd, text, strlen(text)) != (ssize_t)strlen(text) || (durable && fsync(fd) < 0) ||
        renameat(store->keys_fd, temporary, store->keys_fd, lock->name) < 0) {
        enum berth_code code = io_fail(err, "write %s", lock->name);

        close(fd);
        unlinkat(store->keys_fd, temporary, 0);
        return code;
    }
    close(lock->fd);
    lock->fd = fd;
    return BERTH_OK;
}

enum berth_code key_save(const struct store *store, struct key_lock *lock,
                         struct berth_error *err)
{
    return write_key(store, lock, true, err);
}

enum berth_code key_put(const struct store *store, struct key_lock *lock,
                        struct berth_error *err)
{
    return write_key(store, lock, false, err);
}

enum berth_code key_sync(const struct key_lock *lock, struct berth_error *err)
{
    return fsync(lock->fd) < 0 ? io_fail(err, "write %s", lock->name) : BERTH_OK;
}

void key_unlock(struct key_lock *lock)
{
    if (lock->fd >= 0)
        close(lock->fd);
    lock->fd = -1;
}

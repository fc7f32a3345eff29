/* lifecycle.c - connect, pause, settings and delete of one sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/json/json.h"
#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/nft.h"
#include "services/adapter-local/spawner/spawner.h"

enum { FREEZE_MS = 5000 };

enum berth_code operation_grant(const struct operation *op, uint64_t *ret_fence,
                                struct berth_error *err)
{
    int64_t fence, not_after_ms;
    enum berth_code code =
        berth_json_get_int(op->request, "fence", INT64_MIN, INT64_MAX, 0, &fence, err);

    if (!code)
        code = berth_json_get_int(op->request, "not_after_ms", 0, INT64_MAX, 0, &not_after_ms,
                                  err);
    if (code)
        return code;
    if (rules_too_late(not_after_ms, berth_now_ms()))
        return berth_fail(err, BERTH_REASON_DEADLINE,
                          "not_after_time has passed; nothing was done");
    *ret_fence = (uint64_t)fence;
    return BERTH_OK;
}

/* A sandbox locked for a change, its fence raised in memory. */
struct held {
    struct record_lock lock;
    struct record record;
    bool fence_raised;
};

static void release(struct held *held)
{
    record_deinit(&held->record);
    record_unlock(&held->lock);
}

static enum berth_code read_id(const struct operation *op, char id[ADAPTER_ID_SIZE],
                               struct berth_error *err)
{
    return berth_json_get_str(op->request, "sandbox_id", id, ADAPTER_ID_SIZE, "", err);
}

/* Lock, load, compare fences; with alive, the sandbox must run (or be paused), too. */
static enum berth_code hold(const struct spawner *spawner, const struct operation *op,
                            struct held *ret, struct berth_error *err)
{
    struct held held = {.lock = {-1, -1}};
    char id[ADAPTER_ID_SIZE] = "";
    enum berth_code code = read_id(op, id, err);
    uint64_t fence;

    if (!code)
        code = record_lock(&spawner->store, id, op->deadline_ms, &held.lock, err);
    if (!code)
        code = record_load(&spawner->store, id, &held.record, err);
    if (!code)
        code = operation_grant(op, &fence, err);
    if (!code && !rules_fence_passes(held.record.fence, fence))
        code = berth_fail(err, BERTH_REASON_FENCE_STALE, NULL);
    if (!code && !record_alive(&spawner->store, &held.record))
        code = berth_fail(err, BERTH_REASON_SANDBOX_TERMINAL, NULL);
    if (code) {
        BERTH_ERROR_SET(err, sandbox_id, id);
        release(&held);
        return code;
    }
    held.fence_raised = fence > held.record.fence;
    held.record.fence = fence;
    *ret = held;
    return BERTH_OK;
}

static struct cgroup group_of(const struct spawner *spawner, const struct record *record)
{
    return (struct cgroup){
        .host = &spawner->host, .store = spawner->cgroup_name, .id = record->id};
}

static int64_t freeze_deadline(const struct operation *op)
{
    int64_t own = berth_tick_ms() + FREEZE_MS;

    return own < op->deadline_ms ? own : op->deadline_ms;
}

/* Fences must not go back even after a power cut; a pause means nothing then. */
static enum berth_code save(const struct spawner *spawner, const struct held *held,
                            struct berth_error *err)
{
    return record_save(&spawner->store, &held->record, held->fence_raised, err);
}

enum berth_code spawner_connect(const struct spawner *spawner, struct operation *op,
                                struct berth_error *err)
{
    const json_t *timeouts = json_object_get(op->request, "timeouts");
    struct held held;
    struct cgroup group;
    enum berth_code code = hold(spawner, op, &held, err);
    bool resumed, changed;

    if (code)
        return code;
    group = group_of(spawner, &held.record);
    resumed = held.record.paused || cgroup_is_frozen(&group);
    changed = held.record.paused || held.fence_raised || timeouts;
    if (timeouts)
        code = adapter_timeouts_from_json(timeouts, &held.record.timeouts, err);
    /* First the word, then the deed: a crash in between is put right by the sweep. */
    if (resumed)
        record_mark_freeze(&spawner->store, held.record.id, true);
    held.record.paused = false;
    if (!code && changed)
        code = save(spawner, &held, err);
    if (!code && resumed)
        code = cgroup_freeze(&group, false, freeze_deadline(op), err);
    if (!code && resumed)
        record_mark_freeze(&spawner->store, held.record.id, false);
    if (!code && json_object_set_new(op->answer, "resumed", json_boolean(resumed)) < 0)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    release(&held);
    return code;
}

enum berth_code spawner_pause(const struct spawner *spawner, struct operation *op,
                              struct berth_error *err)
{
    struct held held;
    struct cgroup group;
    enum berth_code code = hold(spawner, op, &held, err);

    if (code)
        return code;
    group = group_of(spawner, &held.record);
    record_mark_freeze(&spawner->store, held.record.id, true);
    if (!held.record.paused)
        code = cgroup_freeze(&group, true, freeze_deadline(op), err);
    if (!code && (!held.record.paused || held.fence_raised)) {
        held.record.paused = true;
        code = save(spawner, &held, err);
    }
    if (!code)
        record_mark_freeze(&spawner->store, held.record.id, false);
    release(&held);
    return code;
}

enum berth_code spawner_set_timeout(const struct spawner *spawner, struct operation *op,
                                    struct berth_error *err)
{
    struct held held;
    enum berth_code code = hold(spawner, op, &held, err);

    if (code)
        return code;
    code = adapter_timeouts_from_json(json_object_get(op->request, "timeouts"),
                                      &held.record.timeouts, err);
    if (!code)
        code = save(spawner, &held, err);
    release(&held);
    return code;
}

static enum berth_code switch_egress(const struct record *record, bool online, const char *link,
                                     struct berth_error *err)
{
    BERTH_AUTO(close) int net_fd = -1;
    struct net_cidr cidr;
    struct net_pair pair;
    char path[64];
    enum berth_code code;

    if (!online)
        return net_link_down(link, err);
    snprintf(path, sizeof path, "/proc/%ld/ns/net", (long)record->init_pid);
    net_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (net_fd < 0)
        return io_fail(err, "open the sandbox's network");
    code = net_parse_cidr(record->cidr, &cidr, err);
    if (code)
        return code;
    net_pair_of(&cidr, (unsigned)record->slot, &pair);
    code = net_link_up(link, net_fd, &pair, err);
    if (!code)
        net_link_await(link, net_fd);
    return code;
}

enum berth_code spawner_set_network(const struct spawner *spawner, struct operation *op,
                                    struct berth_error *err)
{
    struct adapter_network want;
    struct held held;
    char link[16];
    enum berth_code code = hold(spawner, op, &held, err);

    if (code)
        return code;
    store_link_name(&spawner->store, held.record.slot, link);
    code = adapter_network_from_json(json_object_get(op->request, "network"), &want, err);
    /* Closing comes into force before it is written down, opening after: a crash in between
     * leaves the stricter one. */
    if (!code && want.inbound != ADAPTER_OPEN)
        code = nft_set_inbound(spawner->table, link, false, err);
    if (!code && want.egress != ADAPTER_OPEN)
        code = switch_egress(&held.record, false, link, err);
    if (!code) {
        bool link_up = held.record.network.egress == ADAPTER_OPEN;

        held.record.network = want;
        code = save(spawner, &held, err);
        if (!code && want.egress == ADAPTER_OPEN && (!link_up || !net_link_exists(link)))
            code = switch_egress(&held.record, true, link, err);
        if (!code && want.inbound == ADAPTER_OPEN)
            code = nft_set_inbound(spawner->table, link, true, err);
    }
    release(&held);
    return code;
}

/* ------------------------------------------------------------------- delete */

static enum berth_code check_idle(int dir_fd, int64_t unless_active_after_ms,
                                  struct berth_error *err)
{
    struct stat st;

    if (unless_active_after_ms && fstatat(dir_fd, "active", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000 >
            unless_active_after_ms)
        return berth_fail(err, BERTH_REASON_CONFLICT, "the sandbox has been active since");
    return BERTH_OK;
}

static enum berth_code forget_key(const struct spawner *spawner, struct key_lock *key,
                                  const struct record *record, struct berth_error *err)
{
    if (key->fd < 0 || strcmp(key->record.sandbox_id, record->id) != 0)
        return BERTH_OK;
    if (record->fence > key->record.fence)
        key->record.fence = record->fence;
    key->record.delete_ms = berth_now_ms();
    return key_save(&spawner->store, key, err);
}

/* With both locks held. record.id "" : meta.json cannot be read, nothing can be compared. */
static enum berth_code delete_locked(const struct spawner *spawner, const struct operation *op,
                                     const char *id, int dir_fd, struct record *record,
                                     struct key_lock *key, struct berth_error *err)
{
    int64_t unless_active_after_ms;
    enum berth_code code;
    uint64_t fence;

    code = operation_grant(op, &fence, err);
    if (!code)
        code = berth_json_get_int(op->request, "unless_active_after_ms", 0, INT64_MAX, 0,
                                  &unless_active_after_ms, err);
    if (!code && record->id[0] && !rules_fence_passes(record->fence, fence))
        code = berth_fail(err, BERTH_REASON_FENCE_STALE, NULL);
    /* Once begun, a delete is finished whatever the sandbox does. */
    if (!code && record->id[0] && record->state != RECORD_DELETING)
        code = check_idle(dir_fd, unless_active_after_ms, err);
    if (!code && record->id[0]) {
        record->state = RECORD_DELETING;
        record->fence = fence;
        code = record_save(&spawner->store, record, true, err);
    }
    if (!code)
        code = host_release(spawner, id, record->id[0] ? record->slot : -1,
                            record->network.inbound == ADAPTER_OPEN, op->deadline_ms, err);
    if (!code && record->id[0] && strcmp(record->boot, spawner->store.boot) == 0)
        host_await_gone(record);
    if (!code && record->id[0])
        code = forget_key(spawner, key, record, err);
    if (!code)
        code = store_trash(&spawner->store, spawner->store.sandboxes_fd, id, err);
    return code;
}

enum berth_code spawner_delete(const struct spawner *spawner, struct operation *op,
                               struct berth_error *err)
{
    struct record_lock lock = {-1, -1};
    struct key_lock key = {.fd = -1};
    struct record record = {0};
    char id[ADAPTER_ID_SIZE] = "", name[ADAPTER_KEY_SIZE];
    enum berth_code code = read_id(op, id, err);
    bool existed = true;

    if (code)
        return code;
    /* Key before sandbox, as in create; which key it is stands in the record and never changes.
     */
    if (record_load(&spawner->store, id, &record, NULL) == BERTH_OK) {
        snprintf(name, sizeof name, "%s", record.key);
        record_deinit(&record);
        code = key_lock(&spawner->store, name, op->deadline_ms, &key, err);
    }
    if (!code)
        code = record_lock(&spawner->store, id, op->deadline_ms, &lock, err);
    if (code == BERTH_NOT_FOUND) {
        existed = false;
        code = BERTH_OK;
    } else if (!code) {
        if (record_load(&spawner->store, id, &record, NULL))
            record = (struct record){0};
        code = delete_locked(spawner, op, id, lock.dir_fd, &record, &key, err);
    }
    if (code)
        BERTH_ERROR_SET(err, sandbox_id, id);
    else if (json_object_set_new(op->answer, "existed", json_boolean(existed)) < 0)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    record_deinit(&record);
    record_unlock(&lock);
    key_unlock(&key);
    op->afterwards = spawner_empty_trash;
    return code;
}

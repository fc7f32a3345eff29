/* usage_store.c - what was used so far, kept in Redis: a bill must not begin anew with a
 * process or another leader. Best effort: what cannot be written now is written by the next
 * sweep. */
#include <inttypes.h>
#include <stdio.h>

#include "common/log/log.h"
#include "common/records/keys.h"
#include "services/reaper/sweep.h"
#include "services/reaper/usage.h"

enum { FIELD_SIZE = 2 * 128 + 2, VALUE_SIZE = 96 };

static const char *const hgetall[] = {"HGETALL", BERTH_KEY_USAGE};

/* Of an earlier version: without snapshots. */
static bool parse(const char *text, struct reaper_used *ret)
{
    ret->snapshot_kib_s = 0;
    return sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &ret->running_ms,
                  &ret->paused_ms, &ret->stored_kib_s, &ret->snapshot_kib_s) >= 3;
}

/* A config that is not there any more is not told of for ever. */
static void forget(struct sweep *sweep, const char *field)
{
    const char *const argv[] = {"HDEL", BERTH_KEY_USAGE, field};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;

    (void)!berth_redis_call(sweep->reaper->redis, BERTH_COUNT(argv), argv, NULL, &reply, NULL);
}

/* field: cut in two. */
static void load(struct sweep *sweep, char *field, const char *value)
{
    struct reaper_usage *usage = sweep->reaper->usage;
    char *slash = strchr(field, '/');
    struct reaper_used used;

    if (!slash || !parse(value, &used))
        return;
    *slash = 0;
    if (strcmp(field, REAPER_USAGE_OTHER) != 0 && !sweep_find_target(sweep, field, slash + 1)) {
        *slash = '/';
        forget(sweep, field);
        return;
    }
    reaper_usage_load(usage, field, slash + 1, &used);
}

bool sweep_load_usage(struct sweep *sweep, int64_t max_ms)
{
    struct reaper *reaper = sweep->reaper;
    BERTH_AUTO(berth_reply_free) struct berth_reply *all = NULL;
    struct berth_error err = {0};
    int64_t at_ms = 0, since_ms;

    if (berth_redis_call(reaper->redis, BERTH_COUNT(hgetall), hgetall, NULL, &all, &err)) {
        berth_warn("what was used so far cannot be read, trying again", "error", err.text);
        return false;
    }
    for (size_t i = 0; i + 1 < all->n_items; i += 2)
        if (strcmp(all->items[i]->string, "at") == 0)
            at_ms = strtoll(all->items[i + 1]->string, NULL, 10);
    since_ms = at_ms && sweep->now_ms > at_ms ? sweep->now_ms - at_ms : 0;
    reaper_usage_restart(reaper->usage,
                         sweep->tick_ms - (since_ms < max_ms ? since_ms : max_ms));
    for (size_t i = 0; i < sweep->n_targets; i++)
        reaper_usage_keep(reaper->usage, sweep->targets[i]->target->tenant_id,
                          sweep->targets[i]->target->config_id);
    for (size_t i = 0; i + 1 < all->n_items; i += 2)
        load(sweep, all->items[i]->string, all->items[i + 1]->string);
    return true;
}

void sweep_save_usage(struct sweep *sweep)
{
    const struct reaper *reaper = sweep->reaper;
    size_t room = 2 * (REAPER_USAGE_MAX + 2) + 2, argc = 4, n = 0;
    BERTH_AUTO(free) const char **argv = calloc(room, sizeof *argv);
    BERTH_AUTO(free) char(*words)[FIELD_SIZE + VALUE_SIZE] = calloc(room / 2, sizeof *words);
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    const char *tenant, *config;
    struct berth_error err = {0};
    struct reaper_used used;
    char at[24];

    if (!argv || !words)
        return;
    snprintf(at, sizeof at, "%" PRId64, sweep->now_ms);
    argv[0] = "HSET";
    argv[1] = BERTH_KEY_USAGE;
    argv[2] = "at";
    argv[3] = at;
    for (; argc + 2 <= room && reaper_usage_line(reaper->usage, n, &tenant, &config, &used);
         n++) {
        char *field = words[n], *value = words[n] + FIELD_SIZE;

        if (!used.running_ms && !used.paused_ms && !used.snapshot_kib_s)
            continue;
        snprintf(field, FIELD_SIZE, "%s/%s", tenant, config);
        snprintf(value, VALUE_SIZE, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64,
                 used.running_ms, used.paused_ms, used.stored_kib_s, used.snapshot_kib_s);
        argv[argc++] = field;
        argv[argc++] = value;
    }
    if (berth_redis_call(reaper->redis, argc, argv, NULL, &reply, &err))
        berth_warn("what was used so far cannot be kept, trying again", "error", err.text);
}

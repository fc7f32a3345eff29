#include "services/reaper/usage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT "Kept in Redis over restarts and changes of the leader, which alone tells it."

struct line {
    char *tenant, *config;
    struct reaper_used used;
    uint64_t n_running, n_paused, n_stored, n_snapshots; /* of the last look */
    bool kept;
};

struct reaper_usage {
    struct line *lines; /* by tenant and config */
    size_t n_lines, room;
    struct line other; /* of all that have no line of their own */
    bool overflows;    /* there are such */
    bool looked;
    int64_t last_tick;
    uint64_t elapsed_ms;
};

struct reaper_usage *reaper_usage_new(void)
{
    struct reaper_usage *usage = calloc(1, sizeof *usage);

    if (usage)
        usage->other = (struct line){.tenant = (char *)REAPER_USAGE_OTHER,
                                     .config = (char *)REAPER_USAGE_OTHER};
    return usage;
}

static void line_deinit(struct line *line)
{
    free(line->tenant);
    free(line->config);
}

struct reaper_usage *reaper_usage_free(struct reaper_usage *usage)
{
    if (!usage)
        return NULL;
    for (size_t i = 0; i < usage->n_lines; i++)
        line_deinit(&usage->lines[i]);
    free(usage->lines);
    free(usage);
    return NULL;
}

void reaper_usage_begin(struct reaper_usage *usage, int64_t tick_ms, int64_t max_ms)
{
    int64_t elapsed_ms = usage->looked ? tick_ms - usage->last_tick : 0;

    usage->elapsed_ms = (uint64_t)(elapsed_ms < max_ms ? elapsed_ms : max_ms);
    usage->last_tick = tick_ms;
    usage->looked = true;
    usage->overflows = false;
    for (size_t i = 0; i <= usage->n_lines; i++) {
        struct line *line = i < usage->n_lines ? &usage->lines[i] : &usage->other;

        line->kept = false;
        line->n_running = line->n_paused = line->n_stored = line->n_snapshots = 0;
    }
}

void reaper_usage_restart(struct reaper_usage *usage, int64_t tick_ms)
{
    for (size_t i = 0; i < usage->n_lines; i++)
        line_deinit(&usage->lines[i]);
    usage->n_lines = 0;
    usage->other.used = (struct reaper_used){0};
    usage->last_tick = tick_ms;
    usage->looked = true;
}

/* The line, or where it would be. */
static size_t find(const struct reaper_usage *usage, const char *tenant, const char *config,
                   bool *ret_found)
{
    size_t low = 0, high = usage->n_lines;

    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct line *line = &usage->lines[middle];
        int order = strcmp(line->tenant, tenant);

        if (order == 0)
            order = strcmp(line->config, config);
        if (order == 0) {
            *ret_found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_found = false;
    return low;
}

void reaper_usage_keep(struct reaper_usage *usage, const char *tenant, const char *config)
{
    struct line line = {.kept = true};
    bool found;
    size_t at = find(usage, tenant, config, &found);

    if (found) {
        usage->lines[at].kept = true;
        return;
    }
    if (usage->n_lines == REAPER_USAGE_MAX) {
        usage->overflows = true;
        return;
    }
    if (usage->n_lines == usage->room) {
        size_t room = usage->room ? 2 * usage->room : 16;
        struct line *grown = realloc(usage->lines, room * sizeof *grown);

        if (!grown)
            return; /* counted from a later look on */
        usage->lines = grown;
        usage->room = room;
    }
    line.tenant = strdup(tenant);
    line.config = strdup(config);
    if (!line.tenant || !line.config) {
        line_deinit(&line);
        return;
    }
    memmove(&usage->lines[at + 1], &usage->lines[at], (usage->n_lines - at) * sizeof line);
    usage->lines[at] = line;
    usage->n_lines++;
}

static struct line *line_of(struct reaper_usage *usage, const char *tenant, const char *config)
{
    bool found;
    size_t at = find(usage, tenant, config, &found);

    if (found)
        return &usage->lines[at];
    return usage->overflows || strcmp(tenant, REAPER_USAGE_OTHER) == 0 ? &usage->other : NULL;
}

void reaper_usage_load(struct reaper_usage *usage, const char *tenant, const char *config,
                       const struct reaper_used *used)
{
    struct line *line = line_of(usage, tenant, config);

    if (!line)
        return;
    line->used.running_ms += used->running_ms;
    line->used.paused_ms += used->paused_ms;
    line->used.stored_kib_s += used->stored_kib_s;
    line->used.snapshot_kib_s += used->snapshot_kib_s;
}

bool reaper_usage_line(const struct reaper_usage *usage, size_t at, const char **ret_tenant,
                       const char **ret_config, struct reaper_used *ret)
{
    const struct line *line = at < usage->n_lines ? &usage->lines[at] : &usage->other;

    if (at > usage->n_lines)
        return false;
    *ret_tenant = line->tenant;
    *ret_config = line->config;
    *ret = line->used;
    return true;
}

void reaper_usage_add(struct reaper_usage *usage, const char *tenant, const char *config,
                      bool paused, uint64_t disk_bytes)
{
    struct line *line = line_of(usage, tenant, config);

    if (!line)
        return;
    line->n_stored += disk_bytes;
    line->used.stored_kib_s += disk_bytes / 1024 * usage->elapsed_ms / 1000;
    if (paused) {
        line->n_paused++;
        line->used.paused_ms += usage->elapsed_ms;
    } else {
        line->n_running++;
        line->used.running_ms += usage->elapsed_ms;
    }
}

void reaper_usage_add_snapshots(struct reaper_usage *usage, const char *tenant,
                                const char *config, uint64_t bytes)
{
    struct line *line = line_of(usage, tenant, config);

    if (!line)
        return;
    line->n_snapshots += bytes;
    line->used.snapshot_kib_s += bytes / 1024 * usage->elapsed_ms / 1000;
}

void reaper_usage_end(struct reaper_usage *usage)
{
    size_t n = 0;

    for (size_t i = 0; i < usage->n_lines; i++) {
        if (usage->lines[i].kept)
            usage->lines[n++] = usage->lines[i];
        else
            line_deinit(&usage->lines[i]);
    }
    usage->n_lines = n;
}

static void put_family(FILE *out, const struct reaper_usage *usage, const char *name,
                       const char *type, const char *help,
                       void (*value)(FILE *out, const struct line *line))
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
    for (size_t i = 0; i < usage->n_lines + usage->overflows; i++) {
        const struct line *line = i < usage->n_lines ? &usage->lines[i] : &usage->other;

        fprintf(out, "%s{tenant=\"%s\",config=\"%s\"} ", name, line->tenant, line->config);
        value(out, line);
    }
}

static void put_seconds(FILE *out, uint64_t ms)
{
    fprintf(out, "%" PRIu64 ".%03u\n", ms / 1000, (unsigned)(ms % 1000));
}

static void running_seconds(FILE *out, const struct line *line)
{
    put_seconds(out, line->used.running_ms);
}

static void paused_seconds(FILE *out, const struct line *line)
{
    put_seconds(out, line->used.paused_ms);
}

static void running(FILE *out, const struct line *line)
{
    fprintf(out, "%" PRIu64 "\n", line->n_running);
}

static void paused(FILE *out, const struct line *line)
{
    fprintf(out, "%" PRIu64 "\n", line->n_paused);
}

static void stored(FILE *out, const struct line *line)
{
    fprintf(out, "%" PRIu64 "\n", line->n_stored);
}

static void stored_seconds(FILE *out, const struct line *line)
{
    fprintf(out, "%.0f\n", (double)line->used.stored_kib_s * 1024);
}

static void snapshots(FILE *out, const struct line *line)
{
    fprintf(out, "%" PRIu64 "\n", line->n_snapshots);
}

static void snapshot_seconds(FILE *out, const struct line *line)
{
    fprintf(out, "%.0f\n", (double)line->used.snapshot_kib_s * 1024);
}

char *reaper_usage_metrics(const struct reaper_usage *usage)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    put_family(out, usage, "berth_sandbox_running_seconds_total", "counter",
               "Seconds that sandboxes ran, sampled by sweeps. " KEPT, running_seconds);
    put_family(out, usage, "berth_sandbox_paused_seconds_total", "counter",
               "Seconds that sandboxes were paused, sampled by sweeps. " KEPT, paused_seconds);
    put_family(out, usage, "berth_sandbox_stored_byte_seconds_total", "counter",
               "Bytes stored by sandboxes times seconds, sampled by sweeps. " KEPT,
               stored_seconds);
    put_family(out, usage, "berth_snapshot_stored_byte_seconds_total", "counter",
               "Bytes of snapshots times seconds, sampled by sweeps. " KEPT, snapshot_seconds);
    put_family(out, usage, "berth_sandboxes_running", "gauge",
               "Sandboxes that ran at the last sweep.", running);
    put_family(out, usage, "berth_sandboxes_paused", "gauge",
               "Sandboxes that were paused at the last sweep.", paused);
    put_family(
        out, usage, "berth_sandbox_stored_bytes", "gauge",
        "What sandboxes had written over their images at the last sweep, as far as their "
        "backends know.",
        stored);
    put_family(out, usage, "berth_snapshot_stored_bytes", "gauge",
               "What snapshots took at the last sweep, as far as their backends know.",
               snapshots);
    if (fclose(out)) {
        free(text);
        return NULL;
    }
    return text;
}

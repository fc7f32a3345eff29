/* usage.h - what runs, rests and is stored, for each tenant and config, added up from one look
 * to the next. Configs beyond the first thousand are one line, "(other)". Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REAPER_USAGE_MAX = 1000 };
#define REAPER_USAGE_OTHER "(other)" /* no id has parentheses */

struct reaper_usage;

/* Added up so far. */
struct reaper_used {
    uint64_t running_ms, paused_ms;
    uint64_t stored_kib_s, snapshot_kib_s; /* KiB times seconds */
};

/* NULL: no memory. */
struct reaper_usage *reaper_usage_new(void);
struct reaper_usage *reaper_usage_free(struct reaper_usage *usage);
/* A look: what is found stands for the time since the last one, at most max_ms. */
void reaper_usage_begin(struct reaper_usage *usage, int64_t tick_ms, int64_t max_ms);
/* As if the last look had been at tick_ms, and no other before it. */
void reaper_usage_restart(struct reaper_usage *usage, int64_t tick_ms);
/* What was added up before, by this process or another one. Between begin and end, for a config
 * that is there. */
void reaper_usage_load(struct reaper_usage *usage, const char *tenant, const char *config,
                       const struct reaper_used *used);
/* The at-th line, "(other)" last; false: there are no more. Borrowed. */
bool reaper_usage_line(const struct reaper_usage *usage, size_t at, const char **ret_tenant,
                       const char **ret_config, struct reaper_used *ret);
/* The config is there, whether or not it has sandboxes. */
void reaper_usage_keep(struct reaper_usage *usage, const char *tenant, const char *config);
void reaper_usage_add(struct reaper_usage *usage, const char *tenant, const char *config,
                      bool paused, uint64_t disk_bytes);
/* What its snapshots hold. */
void reaper_usage_add_snapshots(struct reaper_usage *usage, const char *tenant,
                                const char *config, uint64_t bytes);
/* Configs that are not there any more are forgotten. */
void reaper_usage_end(struct reaper_usage *usage);
/* Prometheus text; owned; NULL: no memory. */
char *reaper_usage_metrics(const struct reaper_usage *usage);

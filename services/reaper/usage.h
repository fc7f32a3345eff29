/* usage.h - what runs, rests and is stored, for each tenant and config, added up from one look
 * to the next. Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reaper_usage;

/* NULL: no memory. */
struct reaper_usage *reaper_usage_new(void);
struct reaper_usage *reaper_usage_free(struct reaper_usage *usage);
/* A look: what is found stands for the time since the last one, at most max_ms. */
void reaper_usage_begin(struct reaper_usage *usage, int64_t tick_ms, int64_t max_ms);
/* The config is there, whether or not it has sandboxes. */
void reaper_usage_keep(struct reaper_usage *usage, const char *tenant, const char *config);
void reaper_usage_add(struct reaper_usage *usage, const char *tenant, const char *config,
                      bool paused, uint64_t disk_bytes);
/* Configs that are not there any more are forgotten. */
void reaper_usage_end(struct reaper_usage *usage);
/* Prometheus text; owned; NULL: no memory. */
char *reaper_usage_metrics(const struct reaper_usage *usage);

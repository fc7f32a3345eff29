/* seen.h - since when, by our own monotonic clock, a sandbox has been seen in the same plight
 * without a break. Bounded; what does not fit is never seen for long, so nothing is done to it.
 * One thread at a time. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct reaper_seen;

/* NULL: no memory. */
struct reaper_seen *reaper_seen_new(size_t max);
struct reaper_seen *reaper_seen_free(struct reaper_seen *seen);
/* Everything is seen for the first time from here on. */
void reaper_seen_forget(struct reaper_seen *seen);
/* For how long `who` has been in `plight`, this look included; the first time: 0. */
int64_t reaper_seen_for(struct reaper_seen *seen, const char *who, int plight, int64_t tick_ms);
/* The same without noting it; -1: not seen in it. */
int64_t reaper_seen_look(const struct reaper_seen *seen, const char *who, int plight,
                         int64_t tick_ms);
/* A whole look at everything is over: whatever was not seen in it is forgotten. */
void reaper_seen_turn(struct reaper_seen *seen);
size_t reaper_seen_count(const struct reaper_seen *seen);

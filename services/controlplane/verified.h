/* verified.h - when this replica last saw a bound sandbox run (F30: kept in memory, losing it
 * costs one look). A fixed table; a collision forgets. Thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/base.h"

struct cp_verified;

struct cp_verified *cp_verified_new(void); /* NULL: no memory */
struct cp_verified *cp_verified_free(struct cp_verified *verified);
BERTH_DEFINE_AUTO(struct cp_verified *, cp_verified_free)

/* The sandbox was seen running (or in the state that what names) at tick_ms. what: "" or a word
 * that keeps other notes apart. */
void cp_verified_note(struct cp_verified *verified, const char *what, const char *tenant,
                      const char *session, const char *sandbox_id, int64_t tick_ms);
/* Noted at since_tick_ms or later. */
bool cp_verified_since(struct cp_verified *verified, const char *what, const char *tenant,
                       const char *session, const char *sandbox_id, int64_t since_tick_ms);

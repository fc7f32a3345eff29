/* janitor.h - finishes what builds and deletes left behind: once in a while it looks through
 * the ledger, and only at what the ledger names. Builds whose time is over are abandoned; what
 * an abandoned build left at the backend is deleted by its planned name, then the row goes;
 * deletes that did not end are carried on. Safe to repeat, and to run in every replica. */
#pragma once

#include "services/skills/skills.h"

/* Every interval_ms, from interval_ms after now. */
BERTH_MUST_CHECK enum berth_code skills_janitor_new(struct skills *skills, int64_t interval_ms,
                                                    struct skills_janitor **ret,
                                                    struct berth_error *err);
/* Waits for the round under way. NULL is fine; returns NULL. */
struct skills_janitor *skills_janitor_free(struct skills_janitor *janitor);

/* sweep.c: once; the janitor does it once an hour. */
void skills_sweep(struct skills *skills);

/* spawn_client.h - the adapter's end of berth-local-spawner: starts it, asks it, starts it
 * again when it dies. Operations can be repeated, so one that was in progress then is asked
 * again. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/errors/errors.h"

struct spawn_client;

/**
 * spawn_client_new() - start the spawner and have it open the store
 * @program: path of berth-local-spawner
 * @open:    members of its "open" message (message.h); taken
 *
 * Blocks until the host was probed. Errors: CAPABILITY_MISSING (a step of the probe),
 * FIELD_INVALID, INTERNAL_BUG.
 */
BERTH_MUST_CHECK enum berth_code spawn_client_new(const char *program, json_t *open,
                                                  struct spawn_client **ret,
                                                  struct berth_error *err);
/* The spawner ends; what it does just now is finished by its children. NULL is fine. */
struct spawn_client *spawn_client_free(struct spawn_client *client);
BERTH_DEFINE_AUTO(struct spawn_client *, spawn_client_free)

/* uuid of the store. Borrowed. */
const char *spawn_client_store(const struct spawn_client *client);

/* Is it there? Errors: BACKEND_UNAVAILABLE and why. */
BERTH_MUST_CHECK enum berth_code spawn_client_ready(struct spawn_client *client,
                                                    struct berth_error *err);

/* Progress of an operation, on the caller's thread. False: cancel it. */
typedef bool (*spawn_progress_fn)(void *arg, const char *step, unsigned percent,
                                  const char *message);

/**
 * spawn_client_call() - do one operation
 * @op:          name
 * @request:     its members; taken, also on failure
 * @deadline_ms: tick
 * @progress:    may be NULL
 * @ret_answer:  owned; may be NULL when nothing but success matters
 *
 * From any thread. Errors: the operation's; BACKEND_TIMEOUT; BACKEND_UNAVAILABLE (nothing was
 * done); OUTCOME_UNKNOWN (no spawner can be started to ask again).
 */
BERTH_MUST_CHECK enum berth_code spawn_client_call(struct spawn_client *client, const char *op,
                                                   json_t *request, int64_t deadline_ms,
                                                   spawn_progress_fn progress, void *arg,
                                                   json_t **ret_answer,
                                                   struct berth_error *err);

/* How often it had to be started again. */
unsigned spawn_client_restarts(struct spawn_client *client);

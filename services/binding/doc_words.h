/* doc_words.h - the words that stand in a session document for field names and enums; for doc.c
 * and doc_write.c only. */
#pragma once

#include "services/binding/doc.h"

static const char *const part_names[BINDING_N_PARTS] = {
    [BINDING_PART_CONFIG] = "config",     [BINDING_PART_SESSION] = "session",
    [BINDING_PART_FENCE] = "fence",       [BINDING_PART_SEQ] = "seq",
    [BINDING_PART_LOCK] = "lock",         [BINDING_PART_BINDING] = "binding",
    [BINDING_PART_ENDPOINT] = "endpoint", [BINDING_PART_INTENTS] = "intents",
    [BINDING_PART_TURNS] = "turns",       [BINDING_PART_LOSS] = "loss",
    [BINDING_PART_CARRY] = "carry",
};

/* Words that stand in the JSON for an enum; NULL ends a list, index is the number. */
static const char *const state_words[] = {"", "active", "deleting", "deleted", NULL};
static const char *const origin_words[] = {"", "created", "adopted", NULL};
static const char *const power_words[] = {"", "running", "pausing", "paused", NULL};
static const char *const intent_words[] = {"", "create", "delete", "pause", NULL};
static const char *const why_words[] = {"", "rebuilt", "idle", "reaped", "inbound_lost", NULL};
static const char *const token_words[] = {"", "turn", "use", NULL};
static const char *const loss_words[] = {"", "memory", "rebuilt", "reaped", "gone", NULL};
static const char *const op_words[] = {"",       "use",   "none",   "verify", "rebuild",
                                       "create", "pause", "delete", NULL};
static const char *const want_words[] = {"",        "ensure", "existing", "pause", "resume",
                                         "delete",  "reap",   "adopt",    "idle",  "finish",
                                         "observe", "still",  NULL};
static const char *const done_words[] = {"no",     "abort",   "bind",   "gone", "patch",
                                         "intend", "settled", "delete", NULL};

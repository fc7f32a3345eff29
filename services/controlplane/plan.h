/* plan.h - what the holder of a session's lock does next (protocol section 3, HOLDER). Pure:
 * the grant and what was seen since go in, one step comes out. The executor (holder.c) carries
 * the step out, writes down what it saw, and asks again.
 *
 * Crash safety follows from this shape: a new holder starts from what binding kept (binding,
 * intents) and nothing else, and gets the steps that are still missing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/errors/errors.h"

enum {
    PLAN_ATTEMPT_SIZE = 16,
    PLAN_ID_SIZE = 129,
    PLAN_INTENTS_MAX = 64,
    PLAN_CANDIDATES_MAX = 64,
};

enum plan_want {
    PLAN_ENSURE,
    PLAN_EXISTING,
    PLAN_PAUSE,
    PLAN_RESUME,
    PLAN_DELETE,
    /* The reaper's. */
    PLAN_ADOPT, /* settle, adopt; never create */
    PLAN_REAP,  /* delete what is condemned */
    PLAN_IDLE_PAUSE,
    PLAN_IDLE_KILL,
    PLAN_OBSERVE, /* look at the bound one, write down what its backend did to it */
    PLAN_STILL,   /* pause other_id, which runs beside the bound one */
};

/* What binding decided; the rest of its decisions come without a lock. */
enum plan_decision {
    PLAN_DO_VERIFY,
    PLAN_DO_REBUILD,
    PLAN_DO_CREATE,
    PLAN_DO_PAUSE,
    PLAN_DO_DELETE
};

enum plan_intent_kind { PLAN_INTENT_CREATE, PLAN_INTENT_DELETE, PLAN_INTENT_PAUSE };

/* A backend call that was, or may have been, sent. */
struct plan_intent {
    enum plan_intent_kind kind;
    uint8_t attempt[PLAN_ATTEMPT_SIZE]; /* create */
    char sandbox_id[PLAN_ID_SIZE];      /* delete, pause */
    bool same_account;                  /* as the config has now */
    int64_t not_after_ms;
};

/* A sandbox found by its tags. */
struct plan_candidate {
    char sandbox_id[PLAN_ID_SIZE];
    uint8_t attempt[PLAN_ATTEMPT_SIZE]; /* zero: its tag is not one */
    int64_t create_ms;
    uint64_t fence; /* of the last call that came for it, where its adapter keeps it; or 0 */
    unsigned named; /* a live turn or use names it: 1 the caller's own turn, then later ones;
                       0: none does */
    bool last;      /* the last one known to have been bound */
    bool runs;      /* the backend's word */
    bool stilled;   /* or it was tried */
};

/* What GetSandbox or ConnectSandbox said of the bound one. */
enum plan_seen {
    PLAN_UNSEEN,
    PLAN_SEEN_RUNNING,
    PLAN_SEEN_PAUSED,
    PLAN_SEEN_TRANSITIONING,
    PLAN_SEEN_UNKNOWN,
    PLAN_SEEN_GONE, /* SANDBOX_NOT_FOUND, SANDBOX_TERMINAL or state TERMINAL */
};

struct plan_state {
    /* The grant. */
    enum plan_want want;
    enum plan_decision decision;
    uint8_t attempt[PLAN_ATTEMPT_SIZE]; /* mine */
    bool keyed;                         /* one sandbox per session key at the backend */
    int64_t create_horizon_ms; /* not keyed: how long after not_after a create may land */
    int64_t now_ms;            /* Redis' time, or a little before it */

    /* The config. */
    bool must_carry; /* the workspace goes along when a sandbox is replaced */
    bool can_carry;  /* there is who can do that */
    bool cordoned;   /* nothing new is created */
    bool auto_resume;

    /* What is bound. */
    bool bound;
    char sandbox_id[PLAN_ID_SIZE];
    bool same_account;
    bool paused;  /* binding's word */
    bool running; /* binding's word, and nobody has seen it fail */
    enum plan_seen seen;
    bool stilled; /* idle: no call reaches it any more, and nobody has used it of late */
    bool used;    /* idle: somebody has */
    bool exported, export_failed; /* its workspace, by this holder */
    bool ends_soon;               /* observe: to be told, if it runs */
    bool can_pause;               /* the backend can */
    bool other_stilled;           /* still: done */
    char other_id[PLAN_ID_SIZE];  /* still: that one */

    struct plan_intent intents[PLAN_INTENTS_MAX];
    size_t n_intents;
    bool more_deletes, more_creates; /* there are intents that did not fit */

    /* Sandboxes by tags. */
    bool must_list;  /* look before a create even where it is keyed */
    bool listed;     /* wholly */
    int64_t list_ms; /* the same clock when that list was begun */
    struct plan_candidate candidates[PLAN_CANDIDATES_MAX];
    size_t n_candidates;
};

enum plan_step_kind {
    PLAN_STEP_FAIL,          /* release the lock and answer `reason` */
    PLAN_STEP_NOTHING_BOUND, /* release; the session has no sandbox */
    PLAN_STEP_KEEP,          /* rebuild put off: commit the bound one as it is, say so */
    PLAN_STEP_CONDEMN,       /* write the delete intent for sandbox_id */
    PLAN_STEP_DELETE,        /* delete the condemned sandbox_id, then commit it as gone */
    PLAN_STEP_LIST,          /* list by tags, whole */
    PLAN_STEP_SETTLE,        /* take the create intent of `attempt` away */
    PLAN_STEP_GET,           /* look at the bound one */
    PLAN_STEP_GONE,          /* commit the bound one as gone */
    PLAN_STEP_CONNECT,       /* connect the bound one, commit it as running, release */
    PLAN_STEP_ADOPT,         /* connect sandbox_id, commit it as bound, release */
    PLAN_STEP_INTEND_CREATE, /* write my create intent */
    PLAN_STEP_CREATE,        /* create, commit it as bound, release */
    PLAN_STEP_INTEND_PAUSE,  /* write the pause intent and `pausing` */
    PLAN_STEP_PAUSE,         /* pause, commit `paused`, release */
    PLAN_STEP_TOMBSTONE,     /* commit the session as deleted, release */
    PLAN_STEP_STILL,         /* idle: pause the bound one if it can be, look when it was used */
    PLAN_STEP_REST,          /* idle: commit it as paused, release */
    PLAN_STEP_REAPED,        /* release; what was to go is gone */
    PLAN_STEP_EXPORT,        /* pause the bound one if it can be, export its workspace */
    PLAN_STEP_NOTE,          /* observe: commit the bound one as it was seen, release */
    PLAN_STEP_STILL_OTHER,   /* pause sandbox_id, which is not bound; beside an adoption it may
                                fail */
    PLAN_STEP_TELL_OTHER,    /* still: commit the event of it, release */
};

struct plan_step {
    enum plan_step_kind kind;
    char sandbox_id[PLAN_ID_SIZE];
    uint8_t attempt[PLAN_ATTEMPT_SIZE];
    bool landed; /* SETTLE: the attempt is among the candidates */
    enum berth_reason reason;
    int64_t retry_after_ms; /* with CREATE_UNSETTLED */
};

/* Total: every state gives a step. */
struct plan_step plan_next(const struct plan_state *state);

/* The executor's notes. Each is a no-op where there is nothing to note. */
void plan_note_intent(struct plan_state *state, const struct plan_intent *intent);
void plan_note_stilled(struct plan_state *state, const char *sandbox_id);
void plan_note_settled(struct plan_state *state, const uint8_t attempt[PLAN_ATTEMPT_SIZE]);
/* sandbox_id is gone: intents that name it, the binding to it and the candidate go. */
void plan_note_gone(struct plan_state *state, const char *sandbox_id);
/* The name of a step, for logs and tests. Static. */
const char *plan_step_name(enum plan_step_kind kind);

/* rules.h - the rules of services/binding, services/controlplane/plan and the local adapter as
 * one table that session.pml asks: (document, operation) -> (document, answer).
 *
 * Nothing of it is written by hand: an entry is made by unpacking the document into what the C
 * rule takes, calling the rule, and packing what it left; it is then kept, since the checker
 * asks the same millions of times. So the model has the service's rules and no copy of them.
 *
 * Time: the document says of each deadline only whether it has passed. Sandboxes are 1..3,
 * attempts and fences 1..15 (attempts that may create: 1..7); 0 is none. */
#pragma once

#include <stdint.h>

enum { MODEL_SANDBOXES = 3, MODEL_ATTEMPTS = 7 };

/* A session's document. Sets have bit (1 << number). */
union model_doc {
    uint64_t all;
    struct {
        uint64_t state : 2; /* enum binding_state */
        uint64_t bound : 2;
        uint64_t power : 2;       /* enum binding_power */
        uint64_t young : 1;       /* adopted less than a turn lease ago */
        uint64_t gen : 2;         /* generation of the bound one */
        uint64_t unreachable : 1; /* what lets calls into it is lost */
        uint64_t fence : 4;
        uint64_t lock_set : 1;
        uint64_t lock_live : 1;
        uint64_t lock_attempt : 4;
        uint64_t lock_fence : 4;
        uint64_t lock_op : 3;   /* enum binding_decision */
        uint64_t lock_want : 4; /* enum binding_want_kind */
        uint64_t lock_done : 3; /* enum binding_done */
        uint64_t condemned : 4; /* sandboxes with a delete intent */
        uint64_t pausing : 4;   /* sandboxes with a pause intent */
        uint64_t creates : 8;   /* attempts with a create intent */
        uint64_t turn : 1;      /* the one turn: known here */
        uint64_t turn_live : 1;
        uint64_t turn_uses : 2;
        uint64_t use : 1; /* the one use token */
        uint64_t use_live : 1;
        uint64_t use_uses : 2;
    };
};

enum model_kind {
    MODEL_ACQUIRE = 1,
    MODEL_BIND,
    MODEL_GONE,
    MODEL_PATCH,
    MODEL_INTEND,
    MODEL_SETTLED,
    MODEL_TOMBSTONE,
    MODEL_ABORT,
    MODEL_RENEW_LOCK,
    MODEL_BEGIN_TURN,
    MODEL_RENEW_TURN,
    MODEL_END_TURN,
    MODEL_RENEW_USE,
    MODEL_END_USE,
    MODEL_OTHER_TURN, /* somebody else's turn begins and ends */
};

/* What a broken rule does not look at (`blind`); the checker must then find a counterexample.
 */
enum {
    BLIND_CONDEMNED = 1, /* delete intents */
    BLIND_TOKENS = 2,    /* turns and uses */
    BLIND_LOCK = 4,      /* whose lock it is */
    BLIND_STATE = 8,     /* that the session is being deleted */
    BLIND_YOUNG = 16,    /* that the binding was adopted lately */
    BLIND_BOUND = 32,    /* nothing bound counts as evidence for the reaper */
    BLIND_BESIDE = 64,   /* STILL: that it is the bound one */
};

union model_op {
    uint64_t all;
    struct {
        uint64_t kind : 4;    /* enum model_kind */
        uint64_t want : 4;    /* enum binding_want_kind */
        uint64_t attempt : 4; /* the caller's */
        uint64_t fence : 4;   /* the caller's lock has it */
        uint64_t turn : 1;    /* comes with the turn's token */
        uint64_t failed : 2;  /* sandbox that was seen to fail */
        uint64_t s : 2;       /* sandbox that it is about */
        uint64_t gen : 2;     /* of that one */
        uint64_t adopted : 1;
        uint64_t unreachable : 1;
        uint64_t power : 2;
        uint64_t keep : 1;   /* keep the lock */
        uint64_t intent : 2; /* enum binding_intent_kind */
        uint64_t settle : 4; /* attempt */
        uint64_t idle : 1;   /* REAP may take a bound one that is idle */
        uint64_t recreate : 1;
        uint64_t rebuild_before : 2;
        uint64_t quarantine : 1;
        uint64_t unsure : 1;
        uint64_t keyed : 1;
        uint64_t now : 4; /* fences are above it */
        uint64_t blind : 7;
    };
};

union model_answer {
    uint64_t all;
    struct {
        uint64_t reason : 8;   /* enum berth_reason; 0: done */
        uint64_t decision : 4; /* of ACQUIRE: enum binding_decision */
        uint64_t durable : 1;
        uint64_t needs_whole : 1;
        uint64_t refused : 1; /* of BIND: the session is being deleted, so it was condemned */
        uint64_t dirty : 10;  /* parts of the document that were written */
    };
};

/* The rule of an operation, applied. A refusal leaves the document as it is. */
union model_answer model_rule(union model_doc *doc, union model_op op);
/* The parts named by `dirty` of from, put into doc: what a compare-and-set writes. */
void model_merge(union model_doc *doc, union model_doc from, unsigned dirty);
extern const unsigned MODEL_INTENTS; /* the part of the intents */
/* The same, turns left out? */
int model_same_but_turns(union model_doc a, union model_doc b);

/* What the holder of a lock knows: struct plan_state, and what became of its calls. */
union model_holder {
    uint64_t all;
    struct {
        uint64_t want : 4;     /* enum plan_want */
        uint64_t decision : 3; /* enum plan_decision */
        uint64_t attempt : 4;
        uint64_t fence : 4;
        uint64_t believed : 1; /* that the lock is still its own */
        uint64_t bound : 2;
        uint64_t paused : 1;
        uint64_t running : 1;
        uint64_t seen : 3; /* enum plan_seen */
        uint64_t stilled : 1;
        uint64_t used : 1;
        uint64_t condemned : 4;
        uint64_t pausing : 4;
        uint64_t creates : 8;
        uint64_t must_list : 1;
        uint64_t listed : 1;
        uint64_t found : 4;  /* sandboxes on the list */
        uint64_t open : 8;   /* attempts that could still create when it was made */
        uint64_t sent : 1;   /* a create, and it was not refused */
        uint64_t doomed : 1; /* only deletes what is condemned, then fails */
        uint64_t gen : 2;    /* of the image that it would boot */
        uint64_t turn : 1;   /* works for the turn */
        uint64_t failed : 2;
        uint64_t exists : 2; /* SANDBOX_EXISTS so far */
    };
};

/* And of the sandboxes beside the bound one. */
union model_beside {
    uint16_t all;
    struct {
        uint16_t turn : 2;    /* named by a live turn when the lock was granted */
        uint16_t use : 2;     /* and by a use */
        uint16_t runs : 4;    /* set of those on the list that ran then */
        uint16_t stilled : 4; /* set of those that were paused, or could not be */
        uint16_t other : 2;   /* STILL: this one */
        uint16_t pauses : 1;  /* the backend can pause */
    };
};

union model_step {
    uint64_t all;
    struct {
        uint64_t kind : 5; /* enum plan_step_kind */
        uint64_t s : 2;
        uint64_t attempt : 4;
    };
};

/* The grant that `doc` holds for decision, as the holder reads it. */
union model_holder model_grant(union model_doc doc, unsigned decision, unsigned want,
                               unsigned failed, unsigned gen, unsigned turn);
union model_beside model_grant_beside(union model_doc doc, unsigned want, unsigned s);
/* plan_next(). attempts, fences: 4 bits for each sandbox, by its number; unsettled: creates of
 * these attempts may still land. */
union model_step model_plan(union model_holder holder, union model_beside beside,
                            unsigned attempts, unsigned fences, unsigned unsettled,
                            unsigned keyed);
void model_note_gone(union model_holder *holder, unsigned s);

/* The local adapter: rules_judge_create() and rules_fence_passes(). */
enum model_verdict { MODEL_MAKE, MODEL_EXISTS, MODEL_REPLACE, MODEL_STALE, MODEL_NEVER };
enum model_verdict model_judge_create(unsigned key_fence, unsigned key_s, unsigned key_attempt,
                                      unsigned key_deleted, unsigned alive, unsigned s_fence,
                                      unsigned fence, unsigned attempt);
int model_fence_passes(unsigned stored, unsigned asked);

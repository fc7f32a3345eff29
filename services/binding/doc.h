/* doc.h - the session document: the hash berth:{<tenant>}:s/<session> as own structs, and back.
 *
 * HASH fields: rev; config (the pinned config's id, so that one server-side read can go on to
 * it); session, lock, binding, intents, turns, loss, carry (JSON objects); fence, seq
 * (decimal); endpoint (sealed bytes). Members and fields that this version does not know are
 * kept. What does not validate is an error, never "absent". A hash with a rev but no session is
 * a document without a record: what is left of a write whose outcome had to be settled. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/errors/errors.h"
#include "common/redis/redis.h"

#include "berth/common/v1/common.pb-c.h"

enum {
    BINDING_MAJOR = 1,            /* a document of a higher one is an error */
    BINDING_SANDBOX_ID_MAX = 128, /* bytes of a backend's id */
    BINDING_TURN_ID_MAX = 128,
    BINDING_SECRET_LEN = 22, /* base36 characters behind the dot of a turn token */
    BINDING_TOKEN_MAX = BINDING_TURN_ID_MAX + 1 + BINDING_SECRET_LEN,
    BINDING_ATTEMPT_SIZE = 16, /* bytes of an attempt, which is the lock token */
    BINDING_ACCOUNT_MAX = 32,  /* bytes of an account's fingerprint */
    BINDING_ALIAS_LEN = 20,
    BINDING_TEXT_MAX = 4 * 128,        /* bytes of owner and created_by: 128 characters */
    BINDING_ENDPOINT_MAX = 256 * 1024, /* sealed bytes */
    BINDING_SPEC_MAX = 128 * 1024,     /* bytes of a packed SessionSpec */
    BINDING_INTENTS_MAX = 64,
    BINDING_TOKENS_MAX = 512, /* turns and uses of one session */
};

/* Numbers as in berth.common.v1.SessionState. */
enum binding_state {
    BINDING_STATE_NONE = 0, /* no record */
    BINDING_STATE_ACTIVE = 1,
    BINDING_STATE_DELETING = 2,
    BINDING_STATE_DELETED = 3, /* a tombstone */
};

/* Numbers as in berth.binding.v1.Decision; WAIT never leaves the process. */
enum binding_decision {
    BINDING_DECIDE_WAIT = 0,
    BINDING_USE = 1,
    BINDING_NONE = 2,
    BINDING_VERIFY = 3,
    BINDING_REBUILD = 4,
    BINDING_ADOPT_OR_CREATE = 5,
    BINDING_PAUSE = 6,
    BINDING_DELETE = 7,
};

/* Numbers as in berth.binding.v1.Want. */
enum binding_want_kind {
    BINDING_WANT_ENSURE = 1,
    BINDING_WANT_EXISTING = 2,
    BINDING_WANT_PAUSE = 3,
    BINDING_WANT_RESUME = 4,
    BINDING_WANT_DELETE = 5,
    BINDING_WANT_REAP = 6,
    BINDING_WANT_ADOPT = 7,
    BINDING_WANT_IDLE = 8,
    BINDING_WANT_FINISH = 9,
    BINDING_WANT_OBSERVE = 10,
    BINDING_WANT_STILL = 11,
};

/* What ended a lock; kept with it, so that a lost answer can be asked for again. */
enum binding_done {
    BINDING_DONE_NOT = 0,
    BINDING_DONE_ABORT = 1,
    BINDING_DONE_BIND = 2,
    BINDING_DONE_GONE = 3,
    BINDING_DONE_PATCH = 4,
    BINDING_DONE_INTEND = 5,
    BINDING_DONE_SETTLED = 6,
    BINDING_DONE_DELETED = 7,
};

enum binding_origin { BINDING_CREATED = 1, BINDING_ADOPTED = 2 };
enum binding_power { BINDING_RUNNING = 1, BINDING_PAUSING = 2, BINDING_PAUSED = 3 };
enum binding_intent_kind {
    BINDING_INTENT_CREATE = 1,
    BINDING_INTENT_DELETE = 2,
    BINDING_INTENT_PAUSE = 3,
};
/* Why a sandbox was condemned. */
enum binding_why {
    BINDING_WHY_NOT_SAID =
        0, /* it goes with its session, or was written by an earlier version */
    BINDING_WHY_REBUILT = 1,
    BINDING_WHY_IDLE = 2,
    BINDING_WHY_REAPED = 3,
    BINDING_WHY_INBOUND_LOST = 4,
};
enum binding_token_kind { BINDING_TURN = 1, BINDING_USE_TOKEN = 2 };

/* Numbers as in berth.binding.v1.LossCause; the higher the graver. */
enum binding_loss_cause {
    BINDING_LOSS_NONE = 0,
    BINDING_LOSS_MEMORY = 1, /* resumed without it */
    BINDING_LOSS_REBUILT = 2,
    BINDING_LOSS_REAPED = 3,
    BINDING_LOSS_GONE = 4,
};

struct binding_session {
    enum binding_state state;
    char config_id[129];
    char created_by[BINDING_TEXT_MAX + 1];
    char alias[BINDING_ALIAS_LEN + 1];
    int64_t create_ms;
    int64_t deleting_ms;                  /* when state left ACTIVE; 0: never */
    uint64_t version;                     /* of the spec, from 1 */
    bool never_bound;                     /* it never had a sandbox */
    Berth__Common__V1__SessionSpec *spec; /* owned; NULL in a tombstone */
    bool spec_changed;                    /* since the document was read */
    json_t *json;                         /* as read; owned, or NULL */
};

struct binding_lock {
    bool set;
    enum binding_done done; /* not NOT: given back; token and fence tell a repeat */
    char token[2 * BINDING_ATTEMPT_SIZE + 1]; /* hex */
    char owner[BINDING_TEXT_MAX + 1];
    enum binding_decision op;
    enum binding_want_kind want;
    uint64_t fence;
    int64_t until_ms;
    int64_t lease_ms;
    json_t *json;
};

struct binding_bound {
    bool set;
    char sandbox_id[BINDING_SANDBOX_ID_MAX + 1];
    char backend[33];
    char config_id[129];
    char account[2 * BINDING_ACCOUNT_MAX + 1];  /* hex */
    char attempt[2 * BINDING_ATTEMPT_SIZE + 1]; /* hex; "": not known (adopted) */
    char template_id[129];                      /* at most one of these two is not "" */
    char snapshot_id[129];
    uint64_t generation;
    uint64_t marked_generation; /* that its STALE event named, the last; 0: it has had none */
    uint64_t fence;
    int64_t create_ms;
    int64_t adopt_ms; /* 0: not adopted */
    int64_t end_ms;   /* 0: no end known */
    int64_t told_ms;  /* the end that was told to be near; 0: none */
    enum binding_origin origin;
    enum binding_power power;
    bool inbound_lost; /* what lets calls in is not known any more */
    uint8_t *endpoint; /* sealed; owned */
    size_t endpoint_size;
    json_t *json;
};

struct binding_intent {
    enum binding_intent_kind kind;
    enum binding_why why; /* DELETE */
    char attempt[2 * BINDING_ATTEMPT_SIZE + 1];
    char sandbox_id[BINDING_SANDBOX_ID_MAX + 1];
    char account[2 * BINDING_ACCOUNT_MAX + 1];
    uint64_t fence;
    int64_t not_after_ms;
    json_t *json;
};

struct binding_token {
    enum binding_token_kind kind;
    char token[BINDING_TOKEN_MAX + 1];
    int64_t deadline_ms;
    int64_t lease_ms;
    char sandbox_id[BINDING_SANDBOX_ID_MAX + 1]; /* "": not used one yet */
    json_t *json;
};

/* What the session lost unasked, last; pending until a client was told. */
struct binding_loss {
    bool set;
    enum binding_loss_cause cause; /* the gravest of what is pending */
    bool memory, workspace, packages;
    uint64_t entries;             /* of workspaces that were carried: so many were not */
    enum binding_loss_cause open; /* why nothing is bound; NONE: another one is, or the same */
    char sandbox_id[BINDING_SANDBOX_ID_MAX + 1];
    uint64_t number; /* losses of this session so far */
    int64_t lost_ms;
    int64_t told_ms; /* 0: pending */
    json_t *json;
};

enum { BINDING_NAMES_MAX = 256 }; /* characters of UTF-8 */

/* A workspace on its way between two sandboxes of the session. */
struct binding_carry {
    bool set;
    char blob_id[129];
    char sandbox_id[BINDING_SANDBOX_ID_MAX + 1]; /* it was exported from */
    char into[BINDING_SANDBOX_ID_MAX + 1];       /* unpacked into; "": it waits */
    enum binding_loss_cause cause;               /* why that one went: REBUILT or REAPED */
    uint64_t lost_count;
    char lost_names[4 * BINDING_NAMES_MAX + 1]; /* the first few of them */
    int64_t export_ms;
    json_t *json;
};

enum binding_part {
    BINDING_PART_CONFIG,
    BINDING_PART_SESSION,
    BINDING_PART_FENCE,
    BINDING_PART_SEQ,
    BINDING_PART_LOCK,
    BINDING_PART_BINDING,
    BINDING_PART_ENDPOINT,
    BINDING_PART_INTENTS,
    BINDING_PART_TURNS,
    BINDING_PART_LOSS,
    BINDING_PART_CARRY,
    BINDING_N_PARTS
};

struct binding_doc {
    char rev[17];      /* "": no key */
    unsigned dirty;    /* 1 << binding_part: to be written */
    uint64_t fence;    /* of the last grant; never falls */
    uint64_t seq;      /* events of this session so far */
    int64_t active_ms; /* last sign of use that was written */
    struct binding_session session;
    struct binding_lock lock;
    struct binding_bound bound;
    struct binding_loss loss;
    struct binding_carry carry;
    struct binding_intent *intents;
    size_t n_intents;
    struct binding_token *tokens;
    size_t n_tokens;
    json_t *turns_json;
    json_t *intents_json;
};

/**
 * binding_doc_decode() - read and check a session's hash
 * @ret: to be deinit'ed; left alone on failure
 *
 * Errors: INTERNAL_BUG naming key and field when it does not validate; OUT_OF_MEMORY.
 */
BERTH_MUST_CHECK enum berth_code binding_doc_decode(const struct berth_doc *raw,
                                                    struct binding_doc *ret,
                                                    struct berth_error *err);
void binding_doc_deinit(struct binding_doc *doc);

/* Name of the hash field of a part. Static string. */
const char *binding_part_name(enum binding_part part);

/* The value to write for one part. *ret_text is owned; NULL: the field is to be removed.
 * Errors: OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code binding_doc_encode(const struct binding_doc *doc,
                                                    enum binding_part part, char **ret_text,
                                                    size_t *ret_size, struct berth_error *err);

static inline void binding_doc_touch(struct binding_doc *doc, enum binding_part part)
{
    doc->dirty |= 1U << part;
}

/* Append a zeroed one; borrowed until the next change of the list. Marks the part.
 * Errors: QUOTA_EXCEEDED when the list is full; OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code binding_doc_add_intent(struct binding_doc *doc,
                                                        struct binding_intent **ret,
                                                        struct berth_error *err);
BERTH_MUST_CHECK enum berth_code binding_doc_add_token(struct binding_doc *doc,
                                                       struct binding_token **ret,
                                                       struct berth_error *err);
void binding_doc_remove_intent(struct binding_doc *doc, size_t index);
void binding_doc_remove_token(struct binding_doc *doc, size_t index);
/* Nothing bound any more. */
void binding_doc_unbind(struct binding_doc *doc);
/* Static string; "" for NONE. */
const char *binding_loss_word(enum binding_loss_cause cause);
/* Nothing to tell any more. */
void binding_doc_drop_loss(struct binding_doc *doc);
/* No workspace is kept any more. */
void binding_doc_drop_carry(struct binding_doc *doc);
/* Take over a copy of spec, with config_id for its own. Errors: OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code
binding_doc_set_spec(struct binding_doc *doc, const Berth__Common__V1__SessionSpec *spec,
                     const char *config_id, struct berth_error *err);
void binding_doc_drop_spec(struct binding_doc *doc);
/* Take over a copy of size bytes; 0: none. Errors: OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code binding_doc_set_endpoint(struct binding_doc *doc,
                                                          const void *data, size_t size,
                                                          struct berth_error *err);

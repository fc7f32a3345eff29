/* core.h - the rules of sessions, bindings, locks and turns. Pure: (documents, Redis' time) ->
 * (decision, writes). No clock, no Redis, no randomness.
 *
 * A rule gets what was read in one trip (struct binding_view) and edits view->doc in place; the
 * parts it touched and struct binding_plan are the writes. A rule that fails has promised
 * nothing: the view is then thrown away. Every write compares the session's rev, so all of a
 * session's documents stand in every compare-and-set. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/errors/errors.h"
#include "common/records/config_doc.h"
#include "services/binding/doc.h"

struct binding_limits {
    int64_t lock_ms; /* lease of a lock */
    int64_t turn_ms; /* lease of a turn that names none; also how long an adopted binding
                        counts as used */
    int64_t turn_min_ms;
    int64_t turn_max_ms;
    int64_t use_ms; /* lease of a use token */
    int64_t tombstone_ms;
};

struct binding_tenant {
    bool exists;
    bool disabled;
    char default_config[129];
    bool recovering;       /* a config of it was not listed since the index was lost: who has no
                              record may have a sandbox there */
    int64_t lost_ms;       /* with recovering: when the index was lost, by Redis' time */
    uint32_t max_sessions; /* 0: as many as they like */
};

/* What an operation is decided on. */
struct binding_view {
    const char *session_id; /* borrowed */
    const struct binding_limits *limits;
    int64_t now_ms;  /* Redis' time of the read */
    bool quarantine; /* the store failed over, or its clock jumped, a moment ago */
    bool unsure;     /* and running turns that it forgot may not have called since */
    int64_t lost_ms; /* Redis' time of the last failover that was seen; 0: none was */
    struct binding_tenant tenant;
    char config_id[129];            /* what config was read for; "": none */
    struct berth_config_doc config; /* of the record, or of the session to be */
    struct binding_doc doc;
    int64_t due_ms; /* as the index i/due has it */
};

struct binding_event {
    const char *kind; /* EventKind without its prefix; borrowed for as long as the plan */
    char sandbox_id[BINDING_SANDBOX_ID_MAX + 1];
    json_t *attributes; /* object of strings; owned, or NULL */
    bool observed;      /* it happened before it was seen */
};

/* What a rule wants done besides the parts of the document it touched. */
struct binding_plan {
    enum binding_decision decision;
    bool durable;     /* wait for a replica */
    bool needs_whole; /* only while the index is whole and out of quarantine */
    bool begins;      /* something new: a store that is full may refuse it */
    bool pins_config; /* compare the config's rev, too */
    bool reindex;     /* i/due is written whether it seems to change or not */
    bool index_add;   /* into i/c/<config> and i/alias */
    bool index_remove;
    bool expire;                           /* a tombstone from here on */
    bool persist;                          /* not a tombstone any more */
    char alias_old[BINDING_ALIAS_LEN + 1]; /* with index_remove */
    char config_old[129];
    struct binding_event *events;
    size_t n_events;
    enum binding_loss_cause lost;           /* noted by this write; NONE: nothing */
    enum binding_loss_cause replaced;       /* what this write bound stands in for a loss */
    char turn_token[BINDING_TOKEN_MAX + 1]; /* answer of begin */
    int64_t expire_ms;                      /* answer of begin, renew, use */
};
void binding_plan_deinit(struct binding_plan *plan);

/* ------------------------------------------------------------------- judging */

/* Cut what ends later than its lease allows (a clock was set back). Each rule begins with it.
 */
void binding_cut(struct binding_view *view);
bool binding_is_maintenance(const char *session_id);
bool binding_condemned(const struct binding_doc *doc, const char *sandbox_id);
bool binding_token_live(const struct binding_token *token, int64_t now_ms);
/* Some live token of this kind (0: any) names the sandbox. */
bool binding_named(const struct binding_view *view, const char *sandbox_id, int kind);
/* Sandboxes that live turns and uses name, each once: that of turn_token ("": none) first, then
 * those of other turns, then of uses. Borrowed from view; at most max of them. */
size_t binding_named_ones(const struct binding_view *view, const char *turn_token,
                          const char **ret, size_t max);
/* The config of the session takes nothing new: the one judgement of a cordon, by the store's
 * clock. */
bool binding_cordoned(const struct binding_view *view);
/* The bound sandbox must not be torn down now. */
bool binding_protected(const struct binding_view *view);
bool binding_stale(const struct binding_view *view);
/* It brought its own image, so it was not built from the config's. */
bool binding_has_own_image(const struct binding_doc *doc);
bool binding_turn_running(const struct binding_view *view);
/* How long calls from before the last loss of writes may still take effect at a backend that
 * does not know their fences: what they made or delete is not known any more. 0: none can. */
int64_t binding_calls_out_ms(const struct binding_view *view);
/* Who creates or adopts waits for that. Errors: CREATE_UNSETTLED. */
BERTH_MUST_CHECK enum berth_code binding_check_calls_out(const struct binding_view *view,
                                                         struct berth_error *err);
/* State just recovered: a turn that is not known is believed. */
bool binding_young(const struct binding_view *view);
/* A lock that stands, of anybody but token (NULL: of anybody). */
bool binding_locked(const struct binding_view *view, const char *token);
/* Characters of the turn's id in its token; 0: not the form of a token. */
size_t binding_turn_id_len(const char *token);
struct binding_token *binding_find_token(struct binding_doc *doc, const char *token, int kind);
/* When somebody should look at the session; 0: never. */
int64_t binding_due_ms(const struct binding_doc *doc);

/* What a create boots now. */
struct binding_image {
    const char *template_id; /* one of the two, borrowed from view; the other NULL */
    const char *snapshot_id;
    uint64_t generation;
};
void binding_boot_image(const struct binding_view *view, struct binding_image *ret);

/* ------------------------------------------------------------------- Acquire */

struct binding_want {
    enum binding_want_kind kind;
    const char *owner;
    const char *attempt;    /* hex */
    const char *turn_token; /* "": none */
    const char *failed_sandbox_id;
    const Berth__Common__V1__SessionSpec *spec_if_new; /* or NULL */
    const char *created_by;
    const char *reap_sandbox_id;
    const char *reap_account;       /* hex: where reap_sandbox_id was seen */
    int64_t unless_active_after_ms; /* 0: not given */
    uint64_t seen_fence;            /* highest tag seen on a sandbox of the session */
    bool must_be_new;
    bool must_exist;
    bool recreate;
    const char *new_alias; /* for a record made here */
};

/**
 * binding_acquire() - what the caller may do with the session now
 *
 * plan->decision WAIT: somebody else holds the lock; look again later (there may be something
 * to write all the same). A decision that needs a lock has granted it: view->doc.lock.
 *
 * Errors: TENANT_NOT_FOUND, TENANT_DISABLED, SESSION_NOT_FOUND, SESSION_DELETED,
 * SESSION_EXISTS, CONFIG_NOT_FOUND, CONFIG_CORDONED, TURN_EXPIRED, TURN_RUNNING, QUARANTINE,
 * LOCK_LOST (the attempt has ended), CREATE_UNSETTLED, QUOTA_EXCEEDED, OUT_OF_MEMORY.
 */
BERTH_MUST_CHECK enum berth_code binding_acquire(struct binding_view *view,
                                                 const struct binding_want *want,
                                                 struct binding_plan *plan,
                                                 struct berth_error *err);

/* ------------------------------------------------------------ the reaper's evidence */

/* Nobody has used the session after since_ms (0: never true), nor uses it now. */
bool binding_unused_since(const struct binding_view *view, int64_t since_ms);
/* ADOPT: nothing usable is bound and nobody deletes it, or a create is not settled. */
bool binding_may_adopt(const struct binding_view *view);
/* IDLE: the bound sandbox, which nobody has used since, or whose pause was left half done. */
bool binding_may_idle(const struct binding_view *view, const struct binding_want *want);
/* OBSERVE: the bound sandbox, with no pause left half done. */
bool binding_may_observe(const struct binding_view *view, const struct binding_want *want);
/* STILL: one beside the bound one, of its account, that nobody uses. */
bool binding_may_still(const struct binding_view *view, const struct binding_want *want);
/* FINISH: the session is being deleted, or is paused and was not used since. */
bool binding_may_finish(const struct binding_view *view, const struct binding_want *want);

/* -------------------------------------------------------- under the lock: Commit */

enum binding_change_kind {
    BINDING_CHANGE_BIND = 1,
    BINDING_CHANGE_GONE,
    BINDING_CHANGE_PATCH,
    BINDING_CHANGE_INTEND,
    BINDING_CHANGE_SETTLED,
    BINDING_CHANGE_DELETE_SESSION,
};

struct binding_draft {
    const char *kind;
    json_t *attributes; /* borrowed; or NULL */
};

/* Numbers as in berth.binding.v1.CarryOutcome. */
enum binding_carry_outcome {
    BINDING_CARRY_NONE = 0,
    BINDING_CARRY_UNPACKED = 1,
    BINDING_CARRY_GONE = 2,
};

struct binding_change {
    enum binding_change_kind kind;
    const char *token; /* hex */
    uint64_t fence;
    struct binding_bound bound;   /* BIND, PATCH: as asked for; endpoint borrowed */
    struct binding_intent intent; /* INTEND */
    const char *sandbox_id;       /* GONE */
    const char *attempt;          /* SETTLED, hex */
    bool landed;                  /* SETTLED: it was seen at the backend */
    bool keep_lock;
    bool memory_lost;       /* BIND, PATCH: it was connected without its memory */
    bool was_paused;        /* PATCH: it was connected, and had been paused */
    int64_t ends_soon_ms;   /* PATCH: it ends then, soon; 0: not said */
    const char *turn_token; /* "": none */
    const char
        *carry_blob_id; /* INTEND: the workspace of what is condemned; NULL: stays in it */
    uint64_t carry_lost_count;                /* INTEND, BIND: left behind on the way */
    const char *carry_lost_names;             /* the first few of them; NULL: none */
    enum binding_carry_outcome carry_outcome; /* BIND */
    const struct binding_draft *drafts;
    size_t n_drafts;
};

/**
 * binding_commit() - write what a holder did or is about to do
 *
 * A bind into a session that is being deleted condemns the sandbox instead: *ret_refused is
 * then SESSION_DELETED, what was decided has to be written all the same, and the lock stays.
 *
 * Errors: LOCK_LOST, CONFLICT, ACCOUNT_CHANGED, CONFIG_NOT_FOUND, TURN_RUNNING, QUARANTINE,
 * FIELD_INVALID, CREATE_UNSETTLED, QUOTA_EXCEEDED, OUT_OF_MEMORY.
 */
BERTH_MUST_CHECK enum berth_code binding_commit(struct binding_view *view,
                                                const struct binding_change *change,
                                                struct binding_plan *plan,
                                                enum berth_reason *ret_refused,
                                                struct berth_error *err);
/* Gives the lock back; intents stay. Not an error when it is not the caller's any more. */
BERTH_MUST_CHECK enum berth_code binding_abort(struct binding_view *view, const char *token,
                                               uint64_t fence, struct binding_plan *plan,
                                               struct berth_error *err);
/* Errors: LOCK_LOST. */
BERTH_MUST_CHECK enum berth_code binding_renew_lock(struct binding_view *view,
                                                    const char *token, uint64_t fence,
                                                    struct binding_plan *plan,
                                                    struct berth_error *err);

/* --------------------------------------------------------------- turns and uses */

/* lease_ms 0: the default. secret: 22 characters for a token made here.
 * Errors: TENANT_NOT_FOUND, TENANT_DISABLED, SESSION_NOT_FOUND, SESSION_DELETED,
 * QUOTA_EXCEEDED. */
BERTH_MUST_CHECK enum berth_code
binding_begin_turn(struct binding_view *view, const char *turn_id, int64_t lease_ms,
                   const char *secret, struct binding_plan *plan, struct berth_error *err);
/* Errors: SESSION_NOT_FOUND, SESSION_DELETED, TURN_EXPIRED. */
BERTH_MUST_CHECK enum berth_code binding_renew_turn(struct binding_view *view,
                                                    const char *turn_token,
                                                    struct binding_plan *plan,
                                                    struct berth_error *err);
/* Errors: SESSION_NOT_FOUND. */
BERTH_MUST_CHECK enum berth_code binding_end_turn(struct binding_view *view,
                                                  const char *turn_token,
                                                  struct binding_plan *plan,
                                                  struct berth_error *err);
/* Errors: SESSION_NOT_FOUND, SESSION_DELETED, TURN_EXPIRED (the sandbox is not the bound one,
 * or is condemned), QUOTA_EXCEEDED. */
BERTH_MUST_CHECK enum berth_code
binding_renew_use(struct binding_view *view, const char *use_token, const char *sandbox_id,
                  bool end, struct binding_plan *plan, struct berth_error *err);
/* The check that a resolve and a renewal share: is token one whose turn still stands?
 * *ret_token NULL: not known here, but believed (binding_young). Errors: TURN_EXPIRED. */
BERTH_MUST_CHECK enum berth_code binding_check_turn(struct binding_view *view,
                                                    const char *turn_token,
                                                    struct binding_token **ret_token,
                                                    struct berth_error *err);
/* What a turn uses may have been forgotten, with the write that named it: while that can be it
 * is believed to use what is bound. True: it is named now. */
bool binding_believe_use(const struct binding_view *view, struct binding_token *token);
/* Register a believed token again, as one that has used what is bound. */
BERTH_MUST_CHECK enum berth_code binding_believe_turn(struct binding_view *view,
                                                      const char *turn_token,
                                                      struct binding_token **ret_token,
                                                      struct berth_error *err);
/* The turn (or, without a token, each running turn that has not used one yet) uses sandbox_id.
 */
void binding_name_tokens(struct binding_view *view, const char *turn_token,
                         const char *sandbox_id);

/* ------------------------------------------------------------------------ losses */

/* Something is to be told. */
bool binding_loss_pending(const struct binding_doc *doc);
/* The session has lost sandbox_id, or (MEMORY) what ran in it. Added to what is pending.
 * carried: but not its workspace, or only what was left behind. */
void binding_loss_note(struct binding_view *view, enum binding_loss_cause cause,
                       const char *sandbox_id, bool carried, struct binding_plan *plan);
/* Another sandbox stands in for the one that was lost. Still to be told. */
void binding_loss_close(struct binding_doc *doc);
/* A client was told of the loss of this number. Errors: SESSION_NOT_FOUND. */
BERTH_MUST_CHECK enum berth_code binding_loss_told(struct binding_view *view, uint64_t number,
                                                   struct berth_error *err);

/* -------------------------------------------------------------------- workspaces */

/* One waits: what is bound next must have it. */
bool binding_carry_waits(const struct binding_doc *doc);
/* sandbox_id, which is condemned, has been exported. Errors: CONFLICT. */
BERTH_MUST_CHECK enum berth_code binding_carry_out(struct binding_view *view,
                                                   const char *sandbox_id,
                                                   const struct binding_change *change,
                                                   struct berth_error *err);
/* sandbox_id is bound now: is the workspace that waits in it? Errors: CONFLICT (not said). */
BERTH_MUST_CHECK enum berth_code binding_carry_in(struct binding_view *view,
                                                  const char *sandbox_id,
                                                  const struct binding_change *change,
                                                  struct binding_plan *plan,
                                                  struct berth_error *err);
/* sandbox_id is gone. True: its workspace, as it was last, waits. One that was unpacked into it
 * and is still kept waits again, too, though it is not that any more. */
bool binding_carry_keeps(struct binding_view *view, const char *sandbox_id);
/* That it was unpacked is written once more, so that it is confirmed: what says so may have
 * been read before that, and a failover forget it. Errors: SESSION_NOT_FOUND, CONFLICT (it
 * waits). */
BERTH_MUST_CHECK enum berth_code binding_carry_confirm(struct binding_view *view,
                                                       const char *blob_id,
                                                       struct binding_plan *plan,
                                                       struct berth_error *err);
/* Not needed any more. Errors: SESSION_NOT_FOUND. */
BERTH_MUST_CHECK enum berth_code
binding_carry_forget(struct binding_view *view, const char *blob_id, struct berth_error *err);

/* -------------------------------------------------------------------- the rest */

/* version 0: whatever it is. Errors: SESSION_NOT_FOUND, SESSION_DELETED, ETAG_MISMATCH,
 * CONFIG_PINNED, OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code
binding_update_session(struct binding_view *view, uint64_t version,
                       const Berth__Common__V1__SessionSpec *spec, struct binding_plan *plan,
                       struct berth_error *err);
/* The same endpoint under another key. Not under the lock: nothing is decided by it, and it is
 * compared with what is stored. Errors: SESSION_NOT_FOUND, CONFLICT, OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code binding_reseal(struct binding_view *view, const void *before,
                                                size_t before_size, const void *sealed,
                                                size_t size, struct berth_error *err);
/* The STALE event, if the bound one is of a lower generation, and its only event; once for each
 * generation. */
BERTH_MUST_CHECK enum berth_code binding_mark_stale(struct binding_view *view,
                                                    uint64_t generation,
                                                    struct binding_plan *plan,
                                                    struct berth_error *err);

/* Tidy what is about to be written anyway: expired tokens go, with their events. With force
 * also when nothing else is to be written. */
BERTH_MUST_CHECK enum berth_code binding_finish(struct binding_view *view,
                                                struct binding_plan *plan, bool force,
                                                struct berth_error *err);

/* For the rules: one more event. attributes is taken (NULL: none). */
BERTH_MUST_CHECK enum berth_code binding_plan_event(struct binding_plan *plan, const char *kind,
                                                    const char *sandbox_id, json_t *attributes,
                                                    struct berth_error *err);
/* The same, of what the backend did by itself, or its operator, and we only found. */
BERTH_MUST_CHECK enum berth_code binding_plan_found(struct binding_plan *plan, const char *kind,
                                                    const char *sandbox_id,
                                                    struct berth_error *err);
/* For the rules: the record as a caller may act on it. Errors: SESSION_NOT_FOUND,
 * SESSION_DELETED. */
BERTH_MUST_CHECK enum berth_code binding_check_active(const struct binding_view *view,
                                                      struct berth_error *err);

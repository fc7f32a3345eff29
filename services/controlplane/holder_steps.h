/* holder_steps.h - the steps of holder.c, each a call to the adapter, a commit, or both, and
 * the note of what came of it. For holder.c only. */
#pragma once

#include "services/controlplane/holder.h"

#define CP_STEP BERTH_MUST_CHECK enum berth_code

CP_STEP cp_step_keep(struct cp_holder *h, struct berth_error *err);
CP_STEP cp_step_condemn(struct cp_holder *h, const char *sandbox_id, struct berth_error *err);
CP_STEP cp_step_delete(struct cp_holder *h, const char *sandbox_id, struct berth_error *err);
CP_STEP cp_step_list(struct cp_holder *h, struct berth_error *err);
CP_STEP cp_step_settle(struct cp_holder *h, const uint8_t *attempt, bool landed,
                       struct berth_error *err);
CP_STEP cp_step_get(struct cp_holder *h, struct berth_error *err);
CP_STEP cp_step_gone(struct cp_holder *h, const char *sandbox_id, struct berth_error *err);
CP_STEP cp_step_connect(struct cp_holder *h, bool *ret_done, struct berth_error *err);
CP_STEP cp_step_adopt(struct cp_holder *h, const char *sandbox_id, bool *ret_done,
                      struct berth_error *err);
CP_STEP cp_step_intend(struct cp_holder *h, enum plan_intent_kind kind, const char *sandbox_id,
                       struct berth_error *err);
CP_STEP cp_step_create(struct cp_holder *h, bool *ret_done, struct berth_error *err);
CP_STEP cp_step_pause(struct cp_holder *h, bool *ret_done, struct berth_error *err);
CP_STEP cp_step_tombstone(struct cp_holder *h, struct berth_error *err);
CP_STEP cp_step_still(struct cp_holder *h, struct berth_error *err);
CP_STEP cp_step_rest(struct cp_holder *h, struct berth_error *err);
CP_STEP cp_step_export(struct cp_holder *h, struct berth_error *err);

/* holder_steps.c: pauses the bound one; seen GONE where it is. */
CP_STEP cp_pause_sandbox(struct cp_holder *h, struct berth_error *err);
/* holder_carry.c: what is kept of a session that is being deleted goes, if it can; else with
 * its age. */
void cp_carry_discard(struct cp_holder *h);
/* holder_carry.c: the workspace that waits: as binding said, or of this very run. NULL: none.
 */
const char *cp_carry_blob(const struct cp_holder *h);
/* holder_carry.c: the workspace that waits is unpacked into a sandbox that is not bound yet.
 * made_under: the fence of the call that created it; 0: not known. After the index was lost
 * also one that nobody knows to wait, if it was exported before the sandbox was made. *ret: a
 * CarryOutcome. Errors: it waits on. */
CP_STEP cp_carry_in(struct cp_holder *h, const Berth__Common__V1__DataPlaneEndpoint *endpoint,
                    uint64_t made_under, int *ret, struct berth_error *err);
/* holder_look.c */
/* The event of what was found beside the sandbox that is bound now; owned; NULL: nothing was.
 * Errors: OUT_OF_MEMORY. */
CP_STEP cp_draft_duplicates(const struct cp_holder *h, const char *bound_id,
                            Berth__Binding__V1__EventDraft **ret, struct berth_error *err);
CP_STEP cp_step_note(struct cp_holder *h, struct berth_error *err);
CP_STEP cp_step_still_other(struct cp_holder *h, const char *sandbox_id,
                            struct berth_error *err);
CP_STEP cp_step_tell_other(struct cp_holder *h, const char *sandbox_id,
                           struct berth_error *err);

/* holder_steps.c: what the steps are made of. */
CP_STEP cp_holder_commit(struct cp_holder *h, Berth__Binding__V1__CommitRequest *req,
                         bool keep_lock, Berth__Binding__V1__Binding **ret_bound,
                         struct berth_error *err);
/* Pauses it. *ret_gone: it is not there any more, and no error. */
CP_STEP cp_holder_pause(struct cp_holder *h, const char *sandbox_id, bool *ret_gone,
                        struct berth_error *err);

/* Until when a call that changes something may take effect: well before the lock may be lost.
 * False: it must not be sent any more. */
bool cp_begin_call(struct cp_holder *h, int64_t *ret_left_ms,
                   Google__Protobuf__Timestamp *not_after, struct berth_error *err);
/* A call to the config's backend, within timeout_ms. */
CP_STEP cp_adapter_call(struct cp_holder *h, const char *path, const ProtobufCMessage *req,
                        const ProtobufCMessageDescriptor *resp_type, int64_t timeout_ms,
                        void *ret, struct berth_error *err);
/* Is the error about the sandbox that was asked for, and says that it is gone? */
bool cp_says_gone(const struct berth_error *err, const char *sandbox_id);
/* That of a call under this grant. */
struct plan_intent cp_new_intent(struct cp_holder *h, enum plan_intent_kind kind,
                                 const char *sandbox_id);

/* Redis' time, or a little before it: the clock that intents end by. */
int64_t cp_holder_now_ms(const struct cp_holder *h);

/* holder_list.c: those that were found already. */
void cp_take_candidates(struct cp_holder *h);
/* holder_list.c: the sandboxes of the session by their tags, all pages.
 * Errors: BACKEND_UNAVAILABLE where the list is not whole. */
CP_STEP cp_list_candidates(struct cp_holder *h, struct berth_error *err);

/* holder_create.c: the create call of this grant, everything explicit. Owned.
 * Errors: OUT_OF_MEMORY, INTERNAL_BUG. */
CP_STEP cp_make_create(const struct cp_holder *h,
                       Berth__Backend__V1__CreateSandboxRequest **ret, struct berth_error *err);
/* holder_create.c: the create was told that there is no such snapshot. The config's image is
 * let go of, and binding asked again (CONFLICT); what a session brought itself is its own
 * affair (SNAPSHOT_NOT_FOUND). */
CP_STEP cp_note_missing(struct cp_holder *h, const struct berth_error *why,
                        struct berth_error *err);

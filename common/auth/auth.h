/* auth.h - the gate of a public service: whose token a call shows, kept for at most 5 s, and
 * what that token may do (rules.h). What a new call would be refused with ends the streams,
 * too, that were let in before: the tokens of those are looked up as if they were in use (in
 * time for about 1,000 tokens with open streams). A warm call costs a hash and a look into a
 * table; a token that is in use is looked up again in the background, so that no call waits for
 * it. Calls with an unknown one are parked meanwhile, and no worker with them. Thread-safe,
 * bounded. */
#pragma once

#include "common/auth/rules.h"
#include "common/rpc/rpc.h"

struct berth_auth;
struct berth_auth_look; /* one look-up in progress */

enum { BERTH_ACTOR_SIZE = 129 };

struct berth_auth_options {
    /* Find out whose token this is. From any thread; must not block. It is answered by
     * berth_auth_found(), once, from any thread, perhaps before it returns. */
    void (*look)(void *arg, const char *token_id, struct berth_auth_look *look);
    void *arg;
    struct berth_loop *loop; /* of the server, borrowed, running until _free(): streams end with
                                their token. NULL: they go on */
    int64_t max_age_ms;      /* 0: 5 s */
    int64_t refresh_age_ms;  /* 0: half of max_age_ms */
};

BERTH_MUST_CHECK enum berth_code berth_auth_new(const struct berth_auth_options *options,
                                                struct berth_auth **ret,
                                                struct berth_error *err);
/* Waits for look-ups under way. No call may be left that it let in. NULL is fine. */
struct berth_auth *berth_auth_free(struct berth_auth *auth);
BERTH_DEFINE_AUTO(struct berth_auth *, berth_auth_free)

/* What was found: BERTH_OK with found (borrowed) or NULL for no such token; or why it cannot be
 * told (err borrowed). */
void berth_auth_found(struct berth_auth_look *look, enum berth_code code,
                      const struct berth_principal *found, const struct berth_error *err);

/* Look it up anew at its next use: after a change of our own. */
void berth_auth_forget(struct berth_auth *auth, const char *token_id);
/* All tokens of a tenant; NULL: all there are. */
void berth_auth_forget_tenant(struct berth_auth *auth, const char *tenant_id);

/* For berth_server_set_gate(); borrowed, valid until berth_auth_free(). */
const struct berth_gate *berth_auth_gate(struct berth_auth *auth);

/* Whose token the call showed; borrowed until it ends. NULL: a service of the suite, which may
 * do everything. Only calls that came through the gate. */
const struct berth_principal *berth_principal_of(const struct berth_call *call);

/* The config that the caller is bound to; "": none. */
const char *berth_config_bound(const struct berth_call *call);

/* For created_by: "token/<id>", or "peer/<name>" ("peer/uid:0", "peer/spiffe://..."). */
const char *berth_actor(const struct berth_call *call, char buf[BERTH_ACTOR_SIZE]);

/* Look-ups begun so far. */
uint64_t berth_auth_looks(struct berth_auth *auth);

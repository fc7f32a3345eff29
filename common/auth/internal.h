/* internal.h - the gate as auth.c and streams.c see it. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "common/auth/auth.h"
#include "common/auth/rate.h"

enum { AUTH_BUCKETS = 1024, AUTH_LOOKS_MAX = 256 /* look-ups at once */ };

/* A principal that entries and calls share. */
struct auth_known {
    atomic_uint refs;
    struct berth_principal principal;
};
struct auth_known *auth_known_ref(struct auth_known *known);
void auth_known_unref(struct auth_known *known); /* NULL is fine */

/* What is kept with a call that was let in. */
struct auth_guest {
    struct berth_auth *auth;
    const struct berth_rule *rule;
    struct auth_known *known; /* as it was let in */
    /* Of a stream that goes on, with the mutex; entry NULL: none. */
    struct auth_entry *entry;
    struct auth_guest *prev, *next;
    struct berth_call *call;
    unsigned cut; /* the tick that ended it; 0: none has */
};

struct auth_waiter;

struct auth_entry {
    struct auth_entry *next;
    char id[BERTH_TOKEN_ID_SIZE];
    int64_t loaded_tick;      /* INT64_MIN: never, or to be looked up anew */
    struct auth_known *known; /* NULL: no such token */
    bool looking;             /* it stays until that is answered */
    bool forget;              /* what is being looked up may be old */
    struct auth_waiter *waiters;
    struct auth_guest *guests; /* it stays as long as there are any */
    struct auth_entry *held_prev, *held_next;
};

struct berth_auth {
    struct berth_auth_options options;
    struct berth_rate *rate;
    struct berth_gate gate;
    struct berth_timer *timer; /* of the loop thread */
    pthread_mutex_t mutex;     /* all below */
    pthread_cond_t quiet;
    unsigned n_looks, n_parked, n_entries, n_unknown, sweep;
    uint64_t n_begun;
    bool ticking; /* the timer runs */
    unsigned n_ticks;
    struct auth_entry *held; /* those with guests */
    struct auth_entry *buckets[AUTH_BUCKETS];
};

struct berth_auth_look {
    struct berth_auth *auth;
    char id[BERTH_TOKEN_ID_SIZE];
    int64_t tick; /* when it began: the age counts from there */
    struct berth_auth_look *next;
};

/* auth.c, with the mutex held. */
struct auth_entry *auth_find(struct berth_auth *auth, const char *id);
struct auth_entry *auth_add(struct berth_auth *auth, const char *id); /* NULL: no memory */
struct berth_auth_look *auth_new_look(struct berth_auth *auth, const char *id);
/* Without it: it may be answered at once. */
void auth_begin_look(struct berth_auth *auth, struct berth_auth_look *look);

/* streams.c. A stream that was let in goes on, from its first message on. Loop thread. */
void auth_streams_add(struct auth_guest *guest, struct berth_call *call);
void auth_streams_remove(struct auth_guest *guest); /* any thread */
/* Looks up what streams stand for and is older than refresh_age_ms. */
void auth_streams_refresh(struct berth_auth *auth);
void auth_streams_stop(struct berth_auth *auth);

/* streams.c - calls that go on: each is held against the rule again while it does, and ends
 * with what a new one would be refused with. Its token is looked up every half of the time that
 * one may be kept, and at once where a change was told; where nobody can say, the last word
 * counts. */
#include "common/auth/internal.h"

#include <limits.h>

#include "common/crypto/crypto.h"
#include "common/time/time.h"

enum { TICKS_PER_REFRESH = 4, CUT_MAX = 16 /* at a time */ };

struct cut {
    struct berth_call *call;
    enum berth_code code;
    struct berth_error err;
};

static void tick(void *arg);

/* On the loop thread. Without memory the next stream tries again. */
static void start_timer(struct berth_auth *auth)
{
    auth->timer = berth_loop_timer(
        auth->options.loop, auth->options.refresh_age_ms / TICKS_PER_REFRESH + 1, tick, auth);
    auth->ticking = auth->timer != NULL;
}

/* The entry may have made room for another one meanwhile. */
static struct auth_entry *hold(struct berth_auth *auth, struct auth_guest *guest)
{
    const char *id = guest->known->principal.token.id;
    struct auth_entry *entry = auth_find(auth, id);

    if (!entry && (entry = auth_add(auth, id))) {
        entry->known = auth_known_ref(guest->known);
        entry->looking = false;
    }
    if (entry && !entry->guests) {
        entry->held_prev = NULL;
        entry->held_next = auth->held;
        if (auth->held)
            auth->held->held_prev = entry;
        auth->held = entry;
    }
    return entry;
}

void auth_streams_add(struct auth_guest *guest, struct berth_call *call)
{
    struct berth_auth *auth = guest->auth;

    pthread_mutex_lock(&auth->mutex);
    guest->entry = guest->entry ? guest->entry : hold(auth, guest);
    if (guest->entry && !guest->call) {
        guest->call = call;
        guest->next = guest->entry->guests;
        if (guest->next)
            guest->next->prev = guest;
        guest->entry->guests = guest;
        if (!auth->ticking)
            start_timer(auth);
    }
    pthread_mutex_unlock(&auth->mutex);
}

void auth_streams_remove(struct auth_guest *guest)
{
    struct berth_auth *auth = guest->auth;
    struct auth_entry *entry;

    pthread_mutex_lock(&auth->mutex);
    entry = guest->entry;
    if (entry && guest->prev)
        guest->prev->next = guest->next;
    else if (entry)
        entry->guests = guest->next;
    if (entry && guest->next)
        guest->next->prev = guest->prev;
    if (entry && !entry->guests) {
        if (entry->held_prev)
            entry->held_prev->held_next = entry->held_next;
        else
            auth->held = entry->held_next;
        if (entry->held_next)
            entry->held_next->held_prev = entry->held_prev;
    }
    pthread_mutex_unlock(&auth->mutex);
}

void auth_streams_refresh(struct berth_auth *auth)
{
    int64_t before = berth_tick_ms() - auth->options.refresh_age_ms;
    struct berth_auth_look *looks = NULL;

    pthread_mutex_lock(&auth->mutex);
    for (struct auth_entry *entry = auth->held; entry; entry = entry->held_next) {
        struct berth_auth_look *look = NULL;

        if (!entry->looking && entry->loaded_tick < before)
            look = auth_new_look(auth, entry->id); /* none: at the next tick */
        if (look) {
            auth->n_unknown -= !entry->known;
            entry->looking = true;
            look->next = looks;
            looks = look;
        }
    }
    pthread_mutex_unlock(&auth->mutex);
    while (looks) {
        struct berth_auth_look *look = looks;

        looks = look->next;
        auth_begin_look(auth, look);
    }
}

/* What a new call with this token would hear now. */
static enum berth_code judge(const struct auth_entry *entry, const struct auth_guest *guest,
                             struct berth_error *err)
{
    const struct auth_known *known =
        entry->loaded_tick == INT64_MIN ? guest->known : entry->known;

    if (!known ||
        !berth_equal_secret(known->principal.token.hash, guest->known->principal.token.hash,
                            sizeof known->principal.token.hash))
        return berth_token_refuse(err);
    return berth_rule_admit(guest->rule, &known->principal, berth_now_ms(), err);
}

/* On the loop thread, where streams end: what is open stays so until we are through. What the
 * tick before has ended and is still there is taken again. */
static unsigned collect(struct berth_auth *auth, struct cut *cuts)
{
    unsigned n = 0;

    pthread_mutex_lock(&auth->mutex);
    for (struct auth_entry *entry = auth->held; entry; entry = entry->held_next)
        for (struct auth_guest *guest = entry->guests; guest && n < CUT_MAX;
             guest = guest->next) {
            struct cut *cut = &cuts[n];

            if (guest->cut == auth->n_ticks || !berth_call_is_open(guest->call))
                continue;
            cut->code = judge(entry, guest, &cut->err);
            if (!cut->code)
                continue;
            guest->cut = auth->n_ticks;
            cut->call = berth_call_ref(guest->call);
            n++;
        }
    pthread_mutex_unlock(&auth->mutex);
    return n;
}

static void tick(void *arg)
{
    struct berth_auth *auth = arg;
    struct cut cuts[CUT_MAX];
    unsigned n;

    auth_streams_refresh(auth);
    pthread_mutex_lock(&auth->mutex);
    auth->n_ticks += auth->n_ticks == UINT_MAX ? 2 : 1; /* never 0 */
    pthread_mutex_unlock(&auth->mutex);
    do {
        n = collect(auth, cuts);
        for (unsigned i = 0; i < n; i++) {
            berth_call_cut(cuts[i].call, cuts[i].code, &cuts[i].err);
            berth_call_unref(cuts[i].call);
        }
    } while (n == CUT_MAX);
    pthread_mutex_lock(&auth->mutex);
    auth->timer = NULL;
    auth->ticking = false;
    if (auth->held)
        start_timer(auth);
    pthread_mutex_unlock(&auth->mutex);
}

static void stop(void *arg)
{
    struct berth_auth *auth = arg;

    auth->timer = berth_timer_cancel(auth->timer);
    pthread_mutex_lock(&auth->mutex);
    auth->ticking = false;
    pthread_cond_broadcast(&auth->quiet);
    pthread_mutex_unlock(&auth->mutex);
}

void auth_streams_stop(struct berth_auth *auth)
{
    pthread_mutex_lock(&auth->mutex);
    if (auth->ticking)
        berth_loop_post(auth->options.loop, stop, auth);
    while (auth->ticking)
        pthread_cond_wait(&auth->quiet, &auth->mutex);
    pthread_mutex_unlock(&auth->mutex);
}

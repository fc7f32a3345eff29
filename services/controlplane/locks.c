#include "services/controlplane/locks.h"

#include <pthread.h>

#include "common/messages/messages.h"
#include "common/time/time.h"

typedef Berth__Binding__V1__RenewLockRequest RenewLockRequest;

enum { LOOK_MS = 250, LEASE_DEFAULT_MS = 60000, RENEW_TIMEOUT_MS = 5000 };

struct cp_lock {
    struct cp_locks *locks;
    struct cp_lock *next;
    unsigned refs; /* the holder, and a renewal on its way */
    Berth__Common__V1__SessionRef *ref;
    Berth__Binding__V1__Lock *grant;
    int64_t lease_ms;
    int64_t believed_tick; /* until then */
    int64_t renew_tick;    /* next renewal */
    int64_t sent_tick;     /* of the renewal on its way */
    bool lost, renewing;
};

struct cp_locks {
    struct berth_loop *loop;
    struct berth_pool *pool;
    struct berth_channel *channel;
    pthread_mutex_t mutex; /* guards all below, and every lock */
    pthread_cond_t quiet;
    struct cp_lock *held;
    unsigned n_alive; /* locks not freed yet */
    bool ticking;     /* a timer is set, or about to be */
    bool stopping;
};

/* ------------------------------------------------------------------- renewal */

static void unref_locked(struct cp_lock *lock)
{
    struct cp_locks *locks = lock->locks;

    if (--lock->refs > 0)
        return;
    berth_message_free(lock->ref);
    berth_message_free(lock->grant);
    free(lock);
    if (--locks->n_alive == 0)
        pthread_cond_broadcast(&locks->quiet);
}

static int64_t believed_until(const struct cp_lock *lock, int64_t sent_tick)
{
    return sent_tick + lock->lease_ms - lock->lease_ms / CP_LOCK_MARGIN;
}

static void renewed(void *arg, enum berth_code code, ProtobufCMessage *resp,
                    const struct berth_error *err)
{
    struct cp_lock *lock = arg;
    struct cp_locks *locks = lock->locks;

    (void)err;
    berth_message_free(resp);
    pthread_mutex_lock(&locks->mutex);
    lock->renewing = false;
    if (!code)
        lock->believed_tick = believed_until(lock, lock->sent_tick);
    else if (code == BERTH_ABORTED) /* LOCK_LOST */
        lock->lost = true;
    else /* not known: what was believed stands, and is asked for again soon */
        lock->renew_tick = berth_tick_ms() + LOOK_MS;
    unref_locked(lock);
    pthread_mutex_unlock(&locks->mutex);
}

/* Called with the mutex held. */
static void renew(struct cp_locks *locks, struct cp_lock *lock, int64_t tick)
{
    struct berth_call_options options = {.timeout_ms = RENEW_TIMEOUT_MS};
    RenewLockRequest req = BERTH__BINDING__V1__RENEW_LOCK_REQUEST__INIT;

    req.session = lock->ref;
    req.lock = lock->grant;
    lock->renewing = true;
    lock->sent_tick = tick;
    lock->renew_tick = tick + lock->lease_ms / 3;
    lock->refs++;
    berth_channel_call_async(locks->channel, "/berth.binding.v1.BindingService/RenewLock",
                             &req.base, &berth__binding__v1__renew_lock_response__descriptor,
                             &options, locks->pool, renewed, lock);
}

static void look(void *arg)
{
    struct cp_locks *locks = arg;
    int64_t tick = berth_tick_ms();

    pthread_mutex_lock(&locks->mutex);
    for (struct cp_lock *lock = locks->held; lock; lock = lock->next)
        if (!lock->renewing && !lock->lost && tick >= lock->renew_tick)
            renew(locks, lock, tick);
    locks->ticking = locks->held && !locks->stopping;
    if (locks->ticking && !berth_loop_timer(locks->loop, LOOK_MS, look, locks))
        locks->ticking = false; /* the next hold starts it again */
    pthread_cond_broadcast(&locks->quiet);
    pthread_mutex_unlock(&locks->mutex);
}

/* ----------------------------------------------------------------------- life */

enum berth_code cp_locks_new(struct berth_loop *loop, struct berth_pool *pool,
                             struct berth_channel *channel, struct cp_locks **ret,
                             struct berth_error *err)
{
    struct cp_locks *locks = calloc(1, sizeof *locks);
    pthread_mutexattr_t recursive;

    if (!locks)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    locks->loop = loop;
    locks->pool = pool;
    locks->channel = channel;
    /* Recursive: without memory a call is answered where it is made, inside renew(). */
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&locks->mutex, &recursive);
    pthread_mutexattr_destroy(&recursive);
    pthread_cond_init(&locks->quiet, NULL);
    *ret = locks;
    return BERTH_OK;
}

struct cp_locks *cp_locks_free(struct cp_locks *locks)
{
    if (!locks)
        return NULL;
    pthread_mutex_lock(&locks->mutex);
    locks->stopping = true;
    while (locks->n_alive > 0 || locks->ticking)
        pthread_cond_wait(&locks->quiet, &locks->mutex);
    pthread_mutex_unlock(&locks->mutex);
    pthread_mutex_destroy(&locks->mutex);
    pthread_cond_destroy(&locks->quiet);
    free(locks);
    return NULL;
}

struct cp_lock *cp_lock_hold(struct cp_locks *locks, const Berth__Common__V1__SessionRef *ref,
                             const Berth__Binding__V1__Lock *grant, int64_t sent_tick)
{
    struct cp_lock *lock = calloc(1, sizeof *lock);
    bool start = false;

    if (!lock)
        return NULL;
    lock->locks = locks;
    lock->refs = 1;
    lock->ref = berth_message_copy(ref);
    lock->grant = berth_message_copy(grant);
    if (!lock->ref || !lock->grant) {
        berth_message_free(lock->ref);
        berth_message_free(lock->grant);
        free(lock);
        return NULL;
    }
    lock->lease_ms = berth_duration_ms(grant->lease, LEASE_DEFAULT_MS);
    lock->believed_tick = believed_until(lock, sent_tick);
    lock->renew_tick = sent_tick + lock->lease_ms / 3;

    pthread_mutex_lock(&locks->mutex);
    lock->next = locks->held;
    locks->held = lock;
    locks->n_alive++;
    if (!locks->ticking)
        start = locks->ticking = true;
    pthread_mutex_unlock(&locks->mutex);
    if (start)
        berth_loop_post(locks->loop, look, locks);
    return lock;
}

void cp_lock_drop(struct cp_lock *lock)
{
    struct cp_locks *locks;
    struct cp_lock **at;

    if (!lock)
        return;
    locks = lock->locks;
    pthread_mutex_lock(&locks->mutex);
    for (at = &locks->held; *at != lock; at = &(*at)->next)
        ;
    *at = lock->next;
    unref_locked(lock);
    pthread_mutex_unlock(&locks->mutex);
}

int64_t cp_lock_left_ms(const struct cp_lock *lock)
{
    struct cp_locks *locks = lock->locks;
    int64_t left_ms;

    pthread_mutex_lock(&locks->mutex);
    left_ms = lock->lost ? 0 : lock->believed_tick - berth_tick_ms();
    pthread_mutex_unlock(&locks->mutex);
    return left_ms > 0 ? left_ms : 0;
}

const Berth__Common__V1__SessionRef *cp_lock_ref(const struct cp_lock *lock)
{
    return lock->ref;
}

const Berth__Binding__V1__Lock *cp_lock_grant(const struct cp_lock *lock)
{
    return lock->grant;
}

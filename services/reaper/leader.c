#include "services/reaper/leader.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/log/log.h"
#include "common/records/deployment.h"
#include "common/records/keys.h"
#include "common/time/time.h"

enum { MARGIN = 6 }; /* this part of the lease is not believed: clocks run apart */

struct reaper_leader {
    struct berth_redis *redis;
    const char *deployment;
    char self[65];
    int64_t lease_ms;
    pthread_t thread;
    bool started;
    pthread_mutex_t trying; /* one try at a time */
    pthread_mutex_t mutex;  /* guards what is below */
    pthread_cond_t wake;
    bool stopping;
    char rev[17]; /* of the lease as we wrote it; "": not ours */
    char other[65];
    int64_t believed_tick;
    uint64_t term, last_term;
};

static void set_leading(struct reaper_leader *leader, const char *rev, int64_t sent_tick)
{
    bool began;

    pthread_mutex_lock(&leader->mutex);
    began = !leader->term || berth_tick_ms() >= leader->believed_tick;
    if (began)
        leader->term = ++leader->last_term;
    leader->believed_tick = sent_tick + leader->lease_ms - leader->lease_ms / MARGIN;
    snprintf(leader->rev, sizeof leader->rev, "%s", rev);
    snprintf(leader->other, sizeof leader->other, "%s", leader->self);
    pthread_mutex_unlock(&leader->mutex);
    if (began)
        berth_info("leading: sweeping from here on", "replica", leader->self);
}

static void set_following(struct reaper_leader *leader, const char *name)
{
    bool ended;

    pthread_mutex_lock(&leader->mutex);
    ended = leader->term != 0;
    leader->term = 0;
    leader->rev[0] = '\0';
    snprintf(leader->other, sizeof leader->other, "%s", name);
    pthread_mutex_unlock(&leader->mutex);
    if (ended)
        berth_info("another replica leads, sweeping no more", "leader", name);
}

/* Take the lease where nobody has it, or make ours last longer. */
static void try_once(struct reaper_leader *leader)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    struct berth_doc doc = {0};
    struct berth_error err = {0};
    char old[17], rev[17], ttl[24];
    int64_t sent_tick = berth_tick_ms();
    bool applied = false;

    pthread_mutex_lock(&leader->mutex);
    snprintf(old, sizeof old, "%s", leader->rev);
    pthread_mutex_unlock(&leader->mutex);
    /* An emptied store is to be found empty by who recovers it. */
    if (!cas || berth_deployment_check(leader->redis, leader->deployment, &err))
        return;
    berth_rev_new(rev);
    snprintf(ttl, sizeof ttl, "%lld", (long long)leader->lease_ms);
    berth_cas_expect(cas, BERTH_KEY_REAPER, old);
    berth_cas_write(cas, "HSET", BERTH_KEY_REAPER, "rev", rev, "name", leader->self,
                    (char *)NULL);
    berth_cas_write(cas, "PEXPIRE", BERTH_KEY_REAPER, ttl, (char *)NULL);
    if (berth_cas_run(leader->redis, cas, false, &applied, NULL, &doc, &err))
        return; /* what was believed ends by itself */
    if (applied)
        set_leading(leader, rev, sent_tick);
    else if (old[0] && !berth_doc_get(&doc, "rev")[0])
        set_following(leader, ""); /* it ran out: the next try takes it anew */
    else if (strcmp(berth_doc_get(&doc, "name"), leader->self) == 0) {
        /* Ours, by a write whose answer was lost. */
        pthread_mutex_lock(&leader->mutex);
        snprintf(leader->rev, sizeof leader->rev, "%s", berth_doc_get(&doc, "rev"));
        pthread_mutex_unlock(&leader->mutex);
    } else {
        set_following(leader, berth_doc_get(&doc, "name"));
    }
    berth_doc_deinit(&doc);
}

static void *run(void *arg)
{
    struct reaper_leader *leader = arg;

    pthread_mutex_lock(&leader->mutex);
    while (!leader->stopping) {
        struct timespec until;
        int64_t wait_ms = leader->lease_ms / 4;
        int status = 0;

        pthread_mutex_unlock(&leader->mutex);
        (void)reaper_leader_try(leader);
        pthread_mutex_lock(&leader->mutex);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += wait_ms / 1000;
        until.tv_nsec += wait_ms % 1000 * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        while (!leader->stopping && status == 0)
            status = pthread_cond_timedwait(&leader->wake, &leader->mutex, &until);
    }
    pthread_mutex_unlock(&leader->mutex);
    return NULL;
}

static void give_back(struct reaper_leader *leader)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    struct berth_doc doc = {0};
    bool applied;

    if (!cas || !leader->rev[0])
        return;
    berth_cas_expect(cas, BERTH_KEY_REAPER, leader->rev);
    berth_cas_write(cas, "DEL", BERTH_KEY_REAPER, (char *)NULL);
    if (berth_cas_run(leader->redis, cas, false, &applied, NULL, &doc, NULL) == BERTH_OK)
        berth_doc_deinit(&doc);
}

enum berth_code reaper_leader_new(struct berth_redis *redis, const char *deployment,
                                  const char *name, int64_t lease_ms,
                                  struct reaper_leader **ret, struct berth_error *err)
{
    struct reaper_leader *leader = calloc(1, sizeof *leader);
    pthread_condattr_t attr;

    if (!leader)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    leader->redis = redis;
    leader->deployment = deployment;
    leader->lease_ms = lease_ms;
    snprintf(leader->self, sizeof leader->self, "%s", name);
    pthread_mutex_init(&leader->mutex, NULL);
    pthread_mutex_init(&leader->trying, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&leader->wake, &attr);
    pthread_condattr_destroy(&attr);
    leader->started = pthread_create(&leader->thread, NULL, run, leader) == 0;
    if (!leader->started) {
        reaper_leader_free(leader);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, "no thread for the lease");
    }
    *ret = leader;
    return BERTH_OK;
}

struct reaper_leader *reaper_leader_free(struct reaper_leader *leader)
{
    if (!leader)
        return NULL;
    pthread_mutex_lock(&leader->mutex);
    leader->stopping = true;
    pthread_cond_signal(&leader->wake);
    pthread_mutex_unlock(&leader->mutex);
    if (leader->started) {
        pthread_join(leader->thread, NULL);
        give_back(leader);
    }
    pthread_cond_destroy(&leader->wake);
    pthread_mutex_destroy(&leader->trying);
    pthread_mutex_destroy(&leader->mutex);
    free(leader);
    return NULL;
}

uint64_t reaper_leader_term(struct reaper_leader *leader)
{
    uint64_t term;

    pthread_mutex_lock(&leader->mutex);
    term = berth_tick_ms() < leader->believed_tick ? leader->term : 0;
    pthread_mutex_unlock(&leader->mutex);
    return term;
}

uint64_t reaper_leader_try(struct reaper_leader *leader)
{
    pthread_mutex_lock(&leader->trying);
    try_once(leader);
    pthread_mutex_unlock(&leader->trying);
    return reaper_leader_term(leader);
}

const char *reaper_leader_name(struct reaper_leader *leader, char buf[65])
{
    pthread_mutex_lock(&leader->mutex);
    snprintf(buf, 65, "%s", leader->other);
    pthread_mutex_unlock(&leader->mutex);
    return buf;
}

const char *reaper_leader_self(const struct reaper_leader *leader)
{
    return leader->self;
}

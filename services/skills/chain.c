#include "services/skills/chain.h"

#include <stdio.h>
#include <time.h>

#include "common/log/log.h"
#include "services/skills/chain_run.h"

enum { JOBS_MAX = 1000 }; /* configs that wait for a thread; the janitor knows the rest */

/* A config that somebody sees to, or is about to. */
struct job {
    struct job *next;
    struct skills_chain *chain;
    char tenant_id[129], config_id[129];
    bool again; /* somebody kicked since it was looked at */
    struct berth_work work;
};

struct skills_chain {
    struct skills *skills;
    struct skills_chain_options options;
    struct berth_pool *pool;
    pthread_mutex_t mutex;
    struct job *jobs;
    size_t n_jobs;
    atomic_bool stopping;
    bool is_watching;
    pthread_t watch;
    pthread_cond_t wake;
};

/* True: the next one of the queue may be there by now. */
static bool run_one(struct skills_chain *chain, const struct job *job)
{
    struct operation_grant grant = {0};
    struct berth_error err = {0};
    bool taken = false;

    if (atomic_load(&chain->stopping) || skills_enter(chain->skills, &err))
        return false;
    if (operation_take(chain->skills, job->tenant_id, job->config_id, &grant, &taken, &err))
        berth_warn("a config's queue was not looked at, trying again later", "tenant",
                   job->tenant_id, "config", job->config_id, "error", err.text);
    if (!taken)
        return false;
    chain_run(chain->skills, &chain->options, &chain->stopping, &grant);
    operation_grant_deinit(&grant);
    return true;
}

/* Nobody kicked since: it is done with. */
static bool leave(struct job *job)
{
    struct skills_chain *chain = job->chain;
    struct job **slot;
    bool again;

    pthread_mutex_lock(&chain->mutex);
    again = job->again && !atomic_load(&chain->stopping);
    job->again = false;
    for (slot = &chain->jobs; !again && *slot; slot = &(*slot)->next)
        if (*slot == job) {
            *slot = job->next;
            chain->n_jobs--;
            break;
        }
    pthread_mutex_unlock(&chain->mutex);
    if (!again)
        free(job);
    return !again;
}

/* One operation; then the other configs have their turn. */
static void on_thread(void *arg)
{
    struct job *job = arg;
    struct skills_chain *chain = job->chain;
    bool more = run_one(chain, job) && !atomic_load(&chain->stopping);

    if (more || !leave(job))
        berth_pool_submit_entry_must(chain->pool, &job->work, on_thread, job);
}

static struct job *find(const struct skills_chain *chain, const char *tenant,
                        const char *config_id)
{
    for (struct job *job = chain->jobs; job; job = job->next)
        if (strcmp(job->tenant_id, tenant) == 0 && strcmp(job->config_id, config_id) == 0)
            return job;
    return NULL;
}

void skills_chain_kick(struct skills *skills, const char *tenant, const char *config_id)
{
    struct skills_chain *chain = skills->chain;
    struct job *job;

    if (!chain || atomic_load(&chain->stopping))
        return;
    pthread_mutex_lock(&chain->mutex);
    job = find(chain, tenant, config_id);
    if (job) {
        job->again = true;
    } else if (chain->n_jobs < JOBS_MAX && (job = calloc(1, sizeof *job))) {
        job->chain = chain;
        snprintf(job->tenant_id, sizeof job->tenant_id, "%s", tenant);
        snprintf(job->config_id, sizeof job->config_id, "%s", config_id);
        job->next = chain->jobs;
        chain->jobs = job;
        chain->n_jobs++;
        berth_pool_submit_entry_must(chain->pool, &job->work, on_thread, job);
    }
    pthread_mutex_unlock(&chain->mutex);
}

/* ------------------------------------------------------------------- left behind */

static void on_waiting(void *arg, const char *tenant, const char *config_id)
{
    skills_chain_kick(arg, tenant, config_id);
}

/* At once, and then as often as the lock of a process that is gone runs out. */
static void *watch(void *arg)
{
    struct skills_chain *chain = arg;
    int64_t every_ms = chain->skills->build_lease_ms;

    while (!atomic_load(&chain->stopping)) {
        struct berth_error err = {0};
        struct timespec until;

        if (skills_enter(chain->skills, &err) ||
            operation_each_waiting(chain->skills, on_waiting, chain->skills, &err))
            berth_debug("queues were not looked through", "error", err.text);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += every_ms / 1000;
        until.tv_nsec += every_ms % 1000 * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_lock(&chain->mutex);
        if (!atomic_load(&chain->stopping))
            (void)pthread_cond_timedwait(&chain->wake, &chain->mutex, &until);
        pthread_mutex_unlock(&chain->mutex);
    }
    return NULL;
}

enum berth_code skills_chain_start(struct skills_chain *chain, struct berth_error *err)
{
    chain->is_watching = pthread_create(&chain->watch, NULL, watch, chain) == 0;
    return chain->is_watching ? BERTH_OK
                              : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY,
                                           "no thread to look after operations");
}

enum berth_code skills_chain_new(struct skills *skills,
                                 const struct skills_chain_options *options,
                                 struct skills_chain **ret, struct berth_error *err)
{
    struct skills_chain *chain = calloc(1, sizeof *chain);
    pthread_condattr_t attr;
    enum berth_code code;

    if (!chain)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    chain->skills = skills;
    chain->options = *options;
    code = berth_pool_new("chain", options->max_running, JOBS_MAX, &chain->pool, err);
    if (code) {
        free(chain);
        return code;
    }
    pthread_mutex_init(&chain->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&chain->wake, &attr);
    pthread_condattr_destroy(&attr);
    *ret = chain;
    return BERTH_OK;
}

struct skills_chain *skills_chain_free(struct skills_chain *chain)
{
    if (!chain)
        return NULL;
    atomic_store(&chain->stopping, true);
    pthread_mutex_lock(&chain->mutex);
    pthread_cond_broadcast(&chain->wake);
    pthread_mutex_unlock(&chain->mutex);
    if (chain->is_watching)
        pthread_join(chain->watch, NULL);
    berth_pool_free(chain->pool);
    pthread_cond_destroy(&chain->wake);
    pthread_mutex_destroy(&chain->mutex);
    free(chain);
    return NULL;
}

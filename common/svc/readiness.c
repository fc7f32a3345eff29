#include "common/svc/readiness.h"

#include <pthread.h>
#include <time.h>

#include "common/log/log.h"

enum { PERIOD_SECONDS = 1 };

struct svc_readiness {
    const struct berth_service *service;
    void *state;
    struct berth_server *server;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stopped; /* monotonic clock */
    bool stop;
};

static void set_all(const struct svc_readiness *readiness, bool serving)
{
    for (size_t i = 0; i < readiness->service->n_services; i++)
        berth_health_set(readiness->server, readiness->service->services[i], serving);
}

/* False: it is time to end. */
static bool wait_period(struct svc_readiness *readiness)
{
    struct timespec until;
    bool stop;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PERIOD_SECONDS;
    pthread_mutex_lock(&readiness->mutex);
    while (!readiness->stop &&
           pthread_cond_timedwait(&readiness->stopped, &readiness->mutex, &until) == 0)
        ;
    stop = readiness->stop;
    pthread_mutex_unlock(&readiness->mutex);
    return !stop;
}

static void *run(void *arg)
{
    struct svc_readiness *readiness = arg;
    bool was_known = false, was_ready = false;
    enum berth_reason reason = BERTH_REASON_NONE;

    do {
        struct berth_error err = {0};
        bool ready = readiness->service->ready(readiness->state, &err) == BERTH_OK;

        if (was_known && ready == was_ready && (ready || err.reason == reason))
            continue;
        set_all(readiness, ready);
        if (ready)
            berth_info("serving");
        else
            berth_warn("not serving, asking again every second", "reason",
                       berth_reason_name(err.reason), "error", err.text);
        was_known = true;
        was_ready = ready;
        reason = err.reason;
    } while (wait_period(readiness));
    return NULL;
}

enum berth_code svc_readiness_new(const struct berth_service *service, void *state,
                                  struct berth_server *server, struct svc_readiness **ret,
                                  struct berth_error *err)
{
    struct svc_readiness *readiness = calloc(1, sizeof *readiness);
    pthread_condattr_t attr;

    if (!readiness)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *readiness = (struct svc_readiness){.service = service, .state = state, .server = server};
    pthread_mutex_init(&readiness->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&readiness->stopped, &attr);
    pthread_condattr_destroy(&attr);
    if (!service->ready) {
        set_all(readiness, true);
    } else if (pthread_create(&readiness->thread, NULL, run, readiness) != 0) {
        readiness->service = NULL;
        svc_readiness_free(readiness);
        return berth_fail(err, BERTH_REASON_OVERLOADED, "no thread for readiness");
    } else {
        pthread_setname_np(readiness->thread, "readiness");
    }
    *ret = readiness;
    return BERTH_OK;
}

struct svc_readiness *svc_readiness_free(struct svc_readiness *readiness)
{
    if (!readiness)
        return NULL;
    pthread_mutex_lock(&readiness->mutex);
    readiness->stop = true;
    pthread_cond_signal(&readiness->stopped);
    pthread_mutex_unlock(&readiness->mutex);
    if (readiness->service && readiness->service->ready)
        pthread_join(readiness->thread, NULL);
    pthread_cond_destroy(&readiness->stopped);
    pthread_mutex_destroy(&readiness->mutex);
    free(readiness);
    return NULL;
}

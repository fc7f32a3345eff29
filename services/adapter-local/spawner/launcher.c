#include "services/adapter-local/spawner/launcher.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include "services/adapter-local/spawner/supervisor.h"

enum { STACK_SIZE = 256 * 1024 };

/* What lies between the two is handed over by the semaphores. */
struct launcher {
    sem_t wanted, done;
    long (*fn)(void *arg);
    void *arg;
    long result;
    int number; /* errno fn left */
};

static void await(sem_t *semaphore)
{
    while (sem_wait(semaphore) < 0 && errno == EINTR)
        ;
}

static void *run(void *arg)
{
    struct launcher *launcher = arg;

    for (;;) {
        await(&launcher->wanted);
        errno = 0;
        launcher->result = launcher->fn(launcher->arg);
        launcher->number = errno;
        sem_post(&launcher->done);
    }
    return NULL;
}

enum berth_code launcher_new(struct launcher **ret, struct berth_error *err)
{
    struct launcher *launcher = calloc(1, sizeof *launcher);
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;
    int result;

    if (!launcher)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    sem_init(&launcher->wanted, 0, 0);
    sem_init(&launcher->done, 0, 0);
    /* Signals are for the other threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    result = pthread_create(&thread, &attr, run, launcher);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result) {
        free(launcher);
        return berth_fail(err, BERTH_REASON_BACKEND_CAPACITY, "start a thread: %s",
                          strerror(result));
    }
    *ret = launcher;
    return BERTH_OK;
}

void launcher_begin(struct launcher *launcher, long (*fn)(void *arg), void *arg)
{
    launcher->fn = fn;
    launcher->arg = arg;
    sem_post(&launcher->wanted);
}

long launcher_end(struct launcher *launcher)
{
    await(&launcher->done);
    errno = launcher->number;
    return launcher->result;
}

long launcher_run(struct launcher *launcher, long (*fn)(void *arg), void *arg)
{
    launcher_begin(launcher, fn, arg);
    return launcher_end(launcher);
}

long supervisor_in_box(const struct supervisor_env *env, long (*fn)(void *arg), void *arg)
{
    return env->launcher ? launcher_run(env->launcher, fn, arg) : fn(arg);
}

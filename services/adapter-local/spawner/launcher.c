#include "services/adapter-local/spawner/launcher.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "services/adapter-local/spawner/supervisor.h"

enum { STACK_SIZE = 256 * 1024, GROUPS_MAX = 8 };

struct launcher {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int tasks_fd[GROUPS_MAX];
    size_t n;
    bool joined;
    int failure; /* errno of joining */

    long (*fn)(void *arg); /* NULL: nothing to do */
    void *arg;
    bool done;
    long result;
    int number; /* errno fn left */
};

static void join(struct launcher *launcher)
{
    int failure = 0;

    for (size_t i = 0; i < launcher->n; i++)
        if (write(launcher->tasks_fd[i], "0", 1) < 0 && !failure)
            failure = errno;
    pthread_mutex_lock(&launcher->lock);
    launcher->failure = failure;
    launcher->joined = true;
    pthread_cond_broadcast(&launcher->changed);
    pthread_mutex_unlock(&launcher->lock);
}

static void *run(void *arg)
{
    struct launcher *launcher = arg;

    join(launcher);
    pthread_mutex_lock(&launcher->lock);
    for (;;) {
        while (!launcher->fn)
            pthread_cond_wait(&launcher->changed, &launcher->lock);
        pthread_mutex_unlock(&launcher->lock);
        errno = 0;
        launcher->result = launcher->fn(launcher->arg);
        launcher->number = errno;
        pthread_mutex_lock(&launcher->lock);
        launcher->fn = NULL;
        launcher->done = true;
        pthread_cond_broadcast(&launcher->changed);
    }
    return NULL;
}

enum berth_code launcher_new(const int *tasks_fd, size_t n, struct launcher **ret,
                             struct berth_error *err)
{
    struct launcher *launcher = calloc(1, sizeof *launcher);
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;
    int result;

    if (!launcher)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    pthread_mutex_init(&launcher->lock, NULL);
    pthread_cond_init(&launcher->changed, NULL);
    for (size_t i = 0; i < n && i < GROUPS_MAX; i++)
        launcher->tasks_fd[launcher->n++] = tasks_fd[i];
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

long launcher_run(struct launcher *launcher, long (*fn)(void *arg), void *arg)
{
    long result;
    int number;

    pthread_mutex_lock(&launcher->lock);
    while (!launcher->joined)
        pthread_cond_wait(&launcher->changed, &launcher->lock);
    if (launcher->failure) {
        number = launcher->failure;
        pthread_mutex_unlock(&launcher->lock);
        errno = number;
        return -1;
    }
    launcher->fn = fn;
    launcher->arg = arg;
    launcher->done = false;
    pthread_cond_broadcast(&launcher->changed);
    while (!launcher->done)
        pthread_cond_wait(&launcher->changed, &launcher->lock);
    result = launcher->result;
    number = launcher->number;
    pthread_mutex_unlock(&launcher->lock);
    errno = number;
    return result;
}

long supervisor_in_box(const struct supervisor_env *env, long (*fn)(void *arg), void *arg)
{
    return env->launcher ? launcher_run(env->launcher, fn, arg) : fn(arg);
}

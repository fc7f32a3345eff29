/* tls.c - the certificates in use, and the thread that looks whether there are others. */
#include "common/rpc/tls.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "common/log/log.h"
#include "common/rpc/tls_files.h"
#include "common/rpc/tls_sight.h"
#include "common/time/time.h"

enum { POLL_MS = 5000, N_FILES = 3 };

/* What a file looks like from outside. A file that is replaced has another inode. */
struct stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified, changed;
};

struct berth_tls {
    atomic_uint refs;
    char *paths[N_FILES]; /* certificate, key, authorities; NULL: none */
    int64_t poll_ms;

    pthread_mutex_t look_mutex; /* one look at a time; these three */
    struct stamp stamps[N_FILES];
    bool rejected; /* what is in the files now is not in use */
    char complaint[sizeof((struct berth_error *)0)->text]; /* told last */

    pthread_mutex_t mutex;    /* all below but the atomic; held shortly */
    pthread_cond_t wake;      /* monotonic clock */
    struct rpc_tls_pems pems; /* changes with both mutexes held */
    uint64_t n_failures;
    bool stop;
    atomic_uint_fast64_t generation;

    pthread_t thread;
    bool has_thread;
};

static void take_stamps(const struct berth_tls *tls, struct stamp *ret)
{
    memset(ret, 0, N_FILES * sizeof *ret);
    for (int i = 0; i < N_FILES; i++) {
        struct stat info;

        if (tls->paths[i] && stat(tls->paths[i], &info) == 0)
            ret[i] = (struct stamp){info.st_dev, info.st_ino, info.st_size, info.st_mtim,
                                    info.st_ctim};
    }
}

static bool stamps_differ(const struct stamp *a, const struct stamp *b)
{
    for (int i = 0; i < N_FILES; i++)
        if (a[i].device != b[i].device || a[i].inode != b[i].inode || a[i].size != b[i].size ||
            a[i].modified.tv_sec != b[i].modified.tv_sec ||
            a[i].modified.tv_nsec != b[i].modified.tv_nsec ||
            a[i].changed.tv_sec != b[i].changed.tv_sec ||
            a[i].changed.tv_nsec != b[i].changed.tv_nsec)
            return true;
    return false;
}

static enum berth_code read_files(const struct berth_tls *tls, struct rpc_tls_pems *ret,
                                  struct berth_error *err)
{
    return rpc_tls_pems_read(tls->paths[0], tls->paths[1], tls->paths[2], ret, err);
}

static bool is_time_for(const struct rpc_tls_pems *pems, int64_t now_ms)
{
    return !pems->cert || (pems->not_before_ms <= now_ms && now_ms < pems->not_after_ms);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* ---------------------------------------------------------------- looking again */

/* With the look_mutex held. Told once until it is something else. */
static void complain(struct berth_tls *tls, const char *text)
{
    pthread_mutex_lock(&tls->mutex);
    tls->n_failures++;
    pthread_mutex_unlock(&tls->mutex);
    if (tls->rejected && strcmp(text, tls->complaint) == 0)
        return;
    tls->rejected = true;
    snprintf(tls->complaint, sizeof tls->complaint, "%s", text);
    berth_log_error("new certificates cannot be used, the old ones stay in use", "error", text);
}

/* With the look_mutex held; fresh is taken. */
static void take_over(struct berth_tls *tls, struct rpc_tls_pems *fresh)
{
    struct rpc_tls_pems other = *fresh; /* the ones that are not used */
    bool other_ca = !same_text(fresh->ca, tls->pems.ca);
    bool changed = other_ca || !same_text(fresh->cert, tls->pems.cert) ||
                   !same_text(fresh->key, tls->pems.key);

    pthread_mutex_lock(&tls->mutex);
    if (changed) {
        other = tls->pems;
        tls->pems = *fresh;
        atomic_fetch_add(&tls->generation, 1);
    }
    pthread_mutex_unlock(&tls->mutex);
    if (other_ca)
        rpc_tls_sight_changed();
    if (changed)
        berth_info("new certificates are in use", "subject", tls->pems.subject);
    else if (tls->rejected)
        berth_info("the certificates in use are back in the files");
    tls->rejected = false;
    rpc_tls_pems_deinit(&other);
}

void berth_tls_reload(struct berth_tls *tls)
{
    struct stamp stamps[N_FILES];
    struct rpc_tls_pems fresh;
    struct berth_error err = {0};
    int64_t now_ms = berth_now_ms();

    pthread_mutex_lock(&tls->look_mutex);
    take_stamps(tls, stamps);
    if (tls->rejected || stamps_differ(stamps, tls->stamps)) {
        memcpy(tls->stamps, stamps, sizeof stamps);
        if (read_files(tls, &fresh, &err) != BERTH_OK) {
            complain(tls, err.text);
        } else if (!is_time_for(&fresh, now_ms) && is_time_for(&tls->pems, now_ms)) {
            complain(tls, fresh.not_after_ms <= now_ms
                              ? "the new certificate has expired"
                              : "the new certificate is not valid yet");
            rpc_tls_pems_deinit(&fresh);
        } else {
            take_over(tls, &fresh);
        }
    }
    pthread_mutex_unlock(&tls->look_mutex);
}

static void *watch(void *arg)
{
    struct berth_tls *tls = arg;
    struct timespec until;
    bool stop = false;

    while (!stop) {
        int64_t end_ms = berth_tick_ms() + tls->poll_ms;

        until = (struct timespec){.tv_sec = end_ms / 1000, .tv_nsec = end_ms % 1000 * 1000000};
        pthread_mutex_lock(&tls->mutex);
        while (!tls->stop && pthread_cond_timedwait(&tls->wake, &tls->mutex, &until) == 0)
            ;
        stop = tls->stop;
        pthread_mutex_unlock(&tls->mutex);
        if (!stop)
            berth_tls_reload(tls);
    }
    return NULL;
}

/* ------------------------------------------------------------------ begin and end */

static bool start_watching(struct berth_tls *tls)
{
    sigset_t all, old;

    sigfillset(&all); /* the process's signals stay with the threads of the caller */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    tls->has_thread = pthread_create(&tls->thread, NULL, watch, tls) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (tls->has_thread)
        pthread_setname_np(tls->thread, "tls-files");
    return tls->has_thread;
}

static enum berth_code copy_paths(struct berth_tls *tls,
                                  const struct berth_tls_options *options,
                                  struct berth_error *err)
{
    const char *paths[N_FILES] = {options->cert, options->key, options->authorities};

    for (int i = 0; i < N_FILES; i++) {
        if (!paths[i] || !*paths[i])
            continue;
        tls->paths[i] = strdup(paths[i]);
        if (!tls->paths[i])
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    if (!tls->paths[0] != !tls->paths[1])
        return berth_fail(err, BERTH_REASON_FIELD_INVALID,
                          "a certificate needs its key, and a key its certificate");
    if (!tls->paths[0] && !tls->paths[2])
        return berth_fail(err, BERTH_REASON_FIELD_INVALID,
                          "neither a certificate nor authorities are given");
    return BERTH_OK;
}

/* A start with such a certificate goes on: unix sockets do without. */
static void warn_of_time(const struct berth_tls *tls)
{
    int64_t now_ms = berth_now_ms();

    if (!is_time_for(&tls->pems, now_ms))
        berth_log_error(tls->pems.not_after_ms <= now_ms
                            ? "the certificate has expired: nobody will accept it"
                            : "the certificate is not valid yet: nobody will accept it",
                        "subject", tls->pems.subject);
}

static void warn_of_mode(const char *path)
{
    struct stat info;

    if (path && stat(path, &info) == 0 && (info.st_mode & (S_IROTH | S_IWOTH)))
        berth_warn("everybody on this machine may read or write the private key", "path", path);
}

enum berth_code berth_tls_new(const struct berth_tls_options *options, struct berth_tls **ret,
                              struct berth_error *err)
{
    struct berth_tls *tls = calloc(1, sizeof *tls);
    pthread_condattr_t monotonic;
    enum berth_code code;

    if (!tls)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    atomic_init(&tls->refs, 1);
    atomic_init(&tls->generation, 1);
    tls->poll_ms = options->poll_ms ? options->poll_ms : POLL_MS;
    pthread_mutex_init(&tls->look_mutex, NULL);
    pthread_mutex_init(&tls->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&tls->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);

    code = copy_paths(tls, options, err);
    if (!code) {
        take_stamps(tls,
                    tls->stamps); /* before reading: what changes meanwhile is seen later */
        code = read_files(tls, &tls->pems, err);
    }
    if (!code && !start_watching(tls))
        code = berth_fail(err, BERTH_REASON_OVERLOADED, "no thread to watch certificates");
    if (code) {
        berth_tls_free(tls);
        return code;
    }
    warn_of_time(tls);
    warn_of_mode(tls->paths[1]);
    *ret = tls;
    return BERTH_OK;
}

struct berth_tls *rpc_tls_ref(struct berth_tls *tls)
{
    atomic_fetch_add(&tls->refs, 1);
    return tls;
}

struct berth_tls *berth_tls_free(struct berth_tls *tls)
{
    if (!tls || atomic_fetch_sub(&tls->refs, 1) != 1)
        return NULL;
    pthread_mutex_lock(&tls->mutex);
    tls->stop = true;
    pthread_cond_signal(&tls->wake);
    pthread_mutex_unlock(&tls->mutex);
    if (tls->has_thread)
        pthread_join(tls->thread, NULL);
    rpc_tls_pems_deinit(&tls->pems);
    for (int i = 0; i < N_FILES; i++)
        free(tls->paths[i]);
    pthread_cond_destroy(&tls->wake);
    pthread_mutex_destroy(&tls->mutex);
    pthread_mutex_destroy(&tls->look_mutex);
    free(tls);
    return NULL;
}

/* ------------------------------------------------------------------- for the core */

bool rpc_tls_has_cert(const struct berth_tls *tls)
{
    return tls->paths[0] != NULL;
}

bool rpc_tls_has_ca(const struct berth_tls *tls)
{
    return tls->paths[2] != NULL;
}

uint64_t rpc_tls_generation(struct berth_tls *tls)
{
    return atomic_load(&tls->generation);
}

grpc_ssl_server_certificate_config *rpc_tls_server_config(struct berth_tls *tls,
                                                          uint64_t *ret_generation)
{
    grpc_ssl_server_certificate_config *config;
    grpc_ssl_pem_key_cert_pair pair;

    pthread_mutex_lock(&tls->mutex);
    pair = (grpc_ssl_pem_key_cert_pair){tls->pems.key, tls->pems.cert};
    /* The core wants some, also where clients are not asked for a certificate. */
    config = grpc_ssl_server_certificate_config_create(
        tls->pems.ca ? tls->pems.ca : tls->pems.cert, &pair, 1);
    *ret_generation = atomic_load(&tls->generation);
    pthread_mutex_unlock(&tls->mutex);
    return config;
}

grpc_channel_credentials *rpc_tls_channel_credentials(struct berth_tls *tls,
                                                      uint64_t *ret_generation)
{
    grpc_channel_credentials *credentials;
    grpc_ssl_pem_key_cert_pair pair;

    pthread_mutex_lock(&tls->mutex);
    pair = (grpc_ssl_pem_key_cert_pair){tls->pems.key, tls->pems.cert};
    credentials = grpc_ssl_credentials_create_ex(tls->pems.ca, pair.cert_chain ? &pair : NULL,
                                                 NULL, NULL);
    *ret_generation = atomic_load(&tls->generation);
    pthread_mutex_unlock(&tls->mutex);
    return credentials;
}

char *rpc_tls_authorities(struct berth_tls *tls)
{
    char *pem;

    pthread_mutex_lock(&tls->mutex);
    pem = tls->pems.ca ? strdup(tls->pems.ca) : NULL;
    pthread_mutex_unlock(&tls->mutex);
    return pem;
}

struct rpc_tls_stats rpc_tls_stats(struct berth_tls *tls)
{
    struct rpc_tls_stats stats;

    pthread_mutex_lock(&tls->mutex);
    stats = (struct rpc_tls_stats){.not_after_ms = tls->pems.not_after_ms,
                                   .n_reloads = atomic_load(&tls->generation) - 1,
                                   .n_failures = tls->n_failures};
    pthread_mutex_unlock(&tls->mutex);
    return stats;
}

#include "services/controlplane/keys.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/controlplane/binding.h"
#include "services/controlplane/census.h"
#include "services/controlplane/config_ops.h"
#include "services/controlplane/config_store.h"
#include "services/controlplane/inbound.h"
#include "services/controlplane/present.h"

enum {
    LOOK_MS = 1000,   /* at the file */
    COUNT_MS = 60000, /* again, while there is more than one key */
    SOON_MS = 5000,   /* again, while journals are under another key: others write them anew */
    AGAIN_MS = 5000,  /* the store or binding was away */
};

/* What tells two states of the key file apart. */
struct signature {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified;
};

struct cp_keys {
    struct cp *cp;
    struct berth_key_source source;
    pthread_t thread;
    bool running;
    pthread_mutex_t reloading; /* one at a time */
    int64_t retry_tick;        /* of a file that was refused; 0: none was. By the thread */

    pthread_mutex_t mutex; /* for all below */
    pthread_cond_t wake;
    bool stopping, due;
    bool checked;       /* no key was missing when the store was first asked */
    int64_t counted_ms; /* wall clock; 0: not yet */
    struct cp_census census;
    struct signature seen;
};

/* ----------------------------------------------------------------------- reload */

static struct signature look(const struct cp_keys *keys)
{
    struct signature signature = {0};
    struct stat st;

    if (keys->source.file && *keys->source.file && stat(keys->source.file, &st) == 0)
        signature = (struct signature){st.st_dev, st.st_ino, st.st_size, st.st_mtim};
    return signature;
}

static bool same(const struct signature *a, const struct signature *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->modified.tv_sec == b->modified.tv_sec &&
           a->modified.tv_nsec == b->modified.tv_nsec;
}

/* An id names one key for ever: what is sealed says no more than the id. *ret_removes: an id
 * that was there is not any more. */
static enum berth_code compare(const struct berth_keyring *now,
                               const struct berth_keyring *next, bool *ret_removes,
                               struct berth_error *err)
{
    char ids[BERTH_KEYS_MAX][BERTH_KEY_ID_SIZE];
    size_t n = berth_keyring_ids(now, ids);

    for (size_t i = 0; i < n; i++) {
        uint8_t a[32], b[32];

        if (!berth_keyring_mac(next, ids[i], "same", "", 0, b))
            *ret_removes = true;
        else if (!berth_keyring_mac(now, ids[i], "same", "", 0, a) ||
                 !berth_equal_secret(a, b, sizeof a))
            return berth_fail_field(err, "key_file", "key id '%s' has another key than before",
                                    ids[i]);
    }
    return BERTH_OK;
}

static enum berth_code adopt(struct cp_keys *keys, struct berth_keyring *next,
                             struct berth_error *err)
{
    char ids[BERTH_KEYS_MAX][BERTH_KEY_ID_SIZE];
    bool removes = false;
    struct cp_census census;
    enum berth_code code = compare(keys->cp->keyring, next, &removes, err);

    if (!code && removes)
        code = cp_census_take(keys->cp, true, &census, err);
    if (!code && removes)
        code = cp_census_check(&census, next, err);
    if (code)
        return code;
    (void)berth_keyring_ids(next, ids);
    berth_keyring_adopt(keys->cp->keyring, next);
    berth_info("the suite's keys have changed", "key_id", ids[0]);
    pthread_mutex_lock(&keys->mutex);
    keys->due = true;
    pthread_cond_signal(&keys->wake);
    pthread_mutex_unlock(&keys->mutex);
    return BERTH_OK;
}

enum berth_code cp_keys_reload(struct cp_keys *keys, struct berth_error *err)
{
    BERTH_AUTO(berth_keyring_free) struct berth_keyring *next = NULL;
    enum berth_code code;

    pthread_mutex_lock(&keys->reloading);
    code = berth_keyring_load(&keys->source, &next, err);
    if (!code && !berth_keyring_equal(keys->cp->keyring, next)) {
        code = adopt(keys, next, err);
        if (!code)
            next = NULL; /* taken */
    }
    pthread_mutex_unlock(&keys->reloading);
    return code;
}

/* A file that changed is read once; one that was refused (another replica may still have sealed
 * under the key that it leaves out), or met a store that was away, again. */
static void look_at_file(struct cp_keys *keys)
{
    struct signature now = look(keys);
    struct berth_error err = {0};
    enum berth_code code;

    if (same(&now, &keys->seen) &&
        (keys->retry_tick == 0 || berth_tick_ms() < keys->retry_tick))
        return;
    code = cp_keys_reload(keys, &err);
    if (code != BERTH_UNAVAILABLE)
        keys->seen = now;
    keys->retry_tick = code ? berth_tick_ms() + AGAIN_MS : 0;
    if (code)
        berth_log_error("the keys were not read again, going on with those of before", "reason",
                        berth_reason_name(err.reason), "error", err.text);
}

/* ------------------------------------------------------------------- seal anew */

/* One config under the first key. A faster writer did it, or will have to be done next time. */
static enum berth_code seal_config(struct cp *cp, const char *tenant, const char *config_id,
                                   struct berth_error *err)
{
    struct cp_config_read read = {0};
    Berth__Control__V1__Credentials *credentials = NULL;
    ProtobufCBinaryData sealed = {0}, before;
    bool applied = false;
    enum berth_code code = cp_config_read(cp, tenant, config_id, &read, err);

    if (!code && read.config && read.config->target->sealed_credentials.len > 0) {
        before = read.config->target->sealed_credentials;
        code = cp_config_open(cp->keyring, read.config->target, &credentials, err);
        if (!code)
            code = cp_config_seal(cp->keyring, read.config->target, credentials, &sealed, err);
        if (!code) {
            read.config->target->sealed_credentials = sealed;
            code = cp_config_store(cp, &read, read.config, read.config->doc.state, "resealed",
                                   &applied, err);
            read.config->target->sealed_credentials = before;
        }
        free(sealed.data);
        cp_credentials_free(credentials);
    }
    cp_config_read_deinit(&read);
    return code;
}

/* Its token in the journal, too, or what is there would need the older key. */
static enum berth_code keep_inbound(struct cp *cp, const Berth__Common__V1__SessionRef *ref,
                                    const Berth__Binding__V1__Binding *binding,
                                    const ProtobufCBinaryData *sealed, struct berth_error *err)
{
    Berth__Common__V1__DataPlaneEndpoint *endpoint = NULL;
    enum berth_code code = cp_open_endpoint(cp, ref, binding, &endpoint, err);

    if (!code)
        code = cp_inbound_keep(cp, ref, binding->sandbox_id, endpoint, sealed,
                               binding->fence + 1, err);
    berth_message_free(endpoint);
    return code;
}

/* One endpoint. It is compared where it is written: a faster holder's is sealed anew, too. */
static enum berth_code seal_endpoint(struct cp *cp, const char *tenant, const char *session_id,
                                     struct berth_error *err)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Binding__V1__ResealEndpointRequest req =
        BERTH__BINDING__V1__RESEAL_ENDPOINT_REQUEST__INIT;
    Berth__Binding__V1__ResealEndpointResponse *resp = NULL;
    Berth__Binding__V1__GetBindingResponse *got = NULL;
    ProtobufCBinaryData sealed = {0};
    enum berth_code code;

    ref.tenant_id = (char *)tenant;
    ref.session_id = (char *)session_id;
    code = cp_binding_get(cp, &ref, &got, err);
    if (!code && got->binding && got->binding->sealed_endpoint.len > 0) {
        code = cp_reseal_endpoint(cp, &ref, got->binding, &sealed, err);
        if (!code)
            code = keep_inbound(cp, &ref, got->binding, &sealed, err);
        if (!code) {
            req.session = &ref;
            req.sealed_before = got->binding->sealed_endpoint;
            req.sealed_endpoint = sealed;
            code = cp_binding_call(
                cp, NULL, "/berth.binding.v1.BindingService/ResealEndpoint", &req.base,
                &berth__binding__v1__reseal_endpoint_response__descriptor, false, &resp, err);
            berth_message_free(resp);
        }
        free(sealed.data);
    }
    berth_message_free(got);
    return code;
}

struct sealing {
    struct cp_keys *keys;
    char first[BERTH_KEY_ID_SIZE];
    struct cp_census census;
    size_t n_sealed, n_failed;
    struct berth_error err; /* of the first that failed */
};

static bool stopping(struct cp_keys *keys)
{
    bool yes;

    pthread_mutex_lock(&keys->mutex);
    yes = keys->stopping;
    pthread_mutex_unlock(&keys->mutex);
    return yes;
}

static bool seal_one(void *arg, enum cp_sealed what, const char *tenant, const char *id,
                     const char *key_id)
{
    struct sealing *s = arg;
    struct cp *cp = s->keys->cp;
    struct berth_error err = {0};
    enum berth_code code;

    if (what == CP_SEALED_JOURNAL || strcmp(key_id, s->first) == 0 ||
        !berth_keyring_has(cp->keyring, key_id)) {
        cp_census_add(&s->census, what, key_id, tenant, id);
        return !stopping(s->keys);
    }
    code = what == CP_SEALED_CONFIG ? seal_config(cp, tenant, id, &err)
                                    : seal_endpoint(cp, tenant, id, &err);
    cp_census_add(&s->census, what, code ? key_id : s->first, tenant, id);
    if (!code)
        s->n_sealed++;
    else if (s->n_failed++ == 0)
        s->err = err;
    return !stopping(s->keys);
}

/* Is a journal of anybody's under another key, and all else under the first? */
static bool journals_behind(const struct cp_census *census, const char *first)
{
    bool behind = false;

    for (size_t i = 0; i < census->n_rows; i++)
        if (strcmp(census->rows[i].key_id, first) != 0) {
            if (census->rows[i].n[CP_SEALED_CONFIG] || census->rows[i].n[CP_SEALED_ENDPOINT])
                return false;
            behind = behind || census->rows[i].n[CP_SEALED_JOURNAL];
        }
    return behind;
}

/* Counts, and seals anew. When to do it again, in ms; 0: not by itself. */
static int64_t seal_all(struct cp_keys *keys)
{
    char ids[BERTH_KEYS_MAX][BERTH_KEY_ID_SIZE];
    size_t n_keys = berth_keyring_ids(keys->cp->keyring, ids);
    struct sealing s = {.keys = keys};
    struct berth_error err = {0};

    memcpy(s.first, ids[0], sizeof s.first);
    if (berth_records_reseal(keys->cp->records, &err))
        berth_log_error("the journal was not sealed anew, trying again", "error", err.text);
    if (cp_enter(keys->cp, &err) || cp_census_walk(keys->cp, true, seal_one, &s, &err))
        return AGAIN_MS; /* readiness tells */
    if (s.n_failed > 0)
        berth_log_error("records were not sealed anew, trying again", "key_id", s.first, "n",
                        BERTH_I64((int64_t)s.n_failed), "error", s.err.text);
    if (s.n_sealed > 0)
        berth_info("sealed records anew", "key_id", s.first, "n",
                   BERTH_I64((int64_t)s.n_sealed));
    if (cp_census_check(&s.census, keys->cp->keyring, &err))
        berth_log_error("a key is missing", "error", err.text);
    pthread_mutex_lock(&keys->mutex);
    keys->census = s.census;
    keys->counted_ms = berth_now_ms();
    pthread_mutex_unlock(&keys->mutex);
    if (journals_behind(&s.census, s.first))
        return SOON_MS;
    return n_keys > 1 ? COUNT_MS : 0; /* a replica may still seal under the one before */
}

/* ----------------------------------------------------------------------- thread */

/* False: the end. *ret_due: something has changed since. */
static bool wait_a_moment(struct cp_keys *keys, bool *ret_due)
{
    struct timespec until;
    bool go_on;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LOOK_MS / 1000;
    pthread_mutex_lock(&keys->mutex);
    while (!keys->stopping && !keys->due &&
           pthread_cond_timedwait(&keys->wake, &keys->mutex, &until) == 0)
        ;
    go_on = !keys->stopping;
    *ret_due = keys->due;
    keys->due = false;
    pthread_mutex_unlock(&keys->mutex);
    return go_on;
}

static void *watch(void *arg)
{
    struct cp_keys *keys = arg;
    int64_t next_tick = 0, again_ms = 0;
    bool due = true;

    do {
        look_at_file(keys);
        if (due || (again_ms && berth_tick_ms() >= next_tick)) {
            again_ms = seal_all(keys);
            next_tick = berth_tick_ms() + again_ms;
        }
    } while (wait_a_moment(keys, &due));
    return NULL;
}

enum berth_code cp_keys_new(struct cp *cp, const struct berth_key_source *source,
                            struct cp_keys **ret, struct berth_error *err)
{
    struct cp_keys *keys;
    pthread_condattr_t clock;
    enum berth_code code;

    if (source->text && *source->text && source->command && *source->command)
        return berth_fail_field(err, "suite_key", "must be empty where there is a key_command");
    keys = calloc(1, sizeof *keys);
    if (!keys)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    keys->cp = cp;
    keys->source = *source;
    if ((source->text && *source->text) || (source->command && *source->command))
        keys->source.file = NULL;
    keys->seen = look(keys); /* before it is read: a change in between is seen */
    code = berth_keyring_load(&keys->source, &cp->keyring, err);
    if (code) {
        free(keys);
        return code;
    }
    pthread_mutex_init(&keys->mutex, NULL);
    pthread_mutex_init(&keys->reloading, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&keys->wake, &clock);
    pthread_condattr_destroy(&clock);
    *ret = keys;
    return BERTH_OK;
}

enum berth_code cp_keys_run(struct cp_keys *keys, struct berth_error *err)
{
    if (pthread_create(&keys->thread, NULL, watch, keys) != 0)
        return berth_fail(err, BERTH_REASON_OVERLOADED, "no thread for the keys");
    keys->running = true;
    return BERTH_OK;
}

struct cp_keys *cp_keys_free(struct cp_keys *keys)
{
    if (!keys)
        return NULL;
    pthread_mutex_lock(&keys->mutex);
    keys->stopping = true;
    pthread_cond_signal(&keys->wake);
    pthread_mutex_unlock(&keys->mutex);
    if (keys->running)
        pthread_join(keys->thread, NULL);
    pthread_cond_destroy(&keys->wake);
    pthread_mutex_destroy(&keys->mutex);
    pthread_mutex_destroy(&keys->reloading);
    free(keys);
    return NULL;
}

enum berth_code cp_keys_check(struct cp_keys *keys, struct berth_error *err)
{
    struct cp_census census;
    bool checked;
    enum berth_code code;

    pthread_mutex_lock(&keys->mutex);
    checked = keys->checked;
    pthread_mutex_unlock(&keys->mutex);
    if (checked)
        return BERTH_OK;
    code = cp_census_take(keys->cp, false, &census, err); /* binding may start after us */
    if (!code)
        code = cp_census_check(&census, keys->cp->keyring, err);
    if (code)
        return code;
    pthread_mutex_lock(&keys->mutex);
    keys->checked = true;
    pthread_mutex_unlock(&keys->mutex);
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- metrics */

static void print_records(FILE *file, const struct cp_census *census, const char *key_id)
{
    static const char *const names[CP_N_SEALED] = {"config", "endpoint", "journal"};

    for (int what = 0; what < CP_N_SEALED; what++) {
        size_t n = 0;

        for (size_t i = 0; i < census->n_rows; i++)
            if (strcmp(census->rows[i].key_id, key_id) == 0)
                n = census->rows[i].n[what];
        fprintf(file, "berth_sealed_records{record=\"%s\",key_id=\"%s\"} %zu\n", names[what],
                key_id, n);
    }
}

static void print_census(FILE *file, const struct cp_census *census,
                         char ids[BERTH_KEYS_MAX][BERTH_KEY_ID_SIZE], size_t n_ids)
{
    fprintf(file, "# HELP berth_sealed_records Records by the suite key they are sealed under, "
                  "as last counted. A key without any is not needed any more.\n"
                  "# TYPE berth_sealed_records gauge\n");
    for (size_t i = 0; i < n_ids; i++)
        print_records(file, census, ids[i]);
    for (size_t i = 0; i < census->n_rows; i++) {
        size_t k = 0;

        while (k < n_ids && strcmp(ids[k], census->rows[i].key_id) != 0)
            k++;
        if (k == n_ids)
            print_records(file, census, census->rows[i].key_id);
    }
}

char *cp_keys_metrics(struct cp_keys *keys)
{
    char ids[BERTH_KEYS_MAX][BERTH_KEY_ID_SIZE];
    size_t n_ids = berth_keyring_ids(keys->cp->keyring, ids), size = 0;
    struct cp_census census;
    int64_t counted_ms;
    char *text = NULL;
    FILE *file = open_memstream(&text, &size);

    if (!file)
        return NULL;
    pthread_mutex_lock(&keys->mutex);
    census = keys->census;
    counted_ms = keys->counted_ms;
    pthread_mutex_unlock(&keys->mutex);
    fprintf(file, "# HELP berth_suite_keys Keys that are held; 1: the one that seals.\n"
                  "# TYPE berth_suite_keys gauge\n");
    for (size_t i = 0; i < n_ids; i++)
        fprintf(file, "berth_suite_keys{key_id=\"%s\"} %d\n", ids[i], i == 0);
    if (counted_ms > 0) {
        print_census(file, &census, ids, n_ids);
        fprintf(file,
                "# HELP berth_sealed_records_counted_time_seconds When they were counted.\n"
                "# TYPE berth_sealed_records_counted_time_seconds gauge\n"
                "berth_sealed_records_counted_time_seconds %.3f\n",
                (double)counted_ms / 1000);
    }
    if (fclose(file) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

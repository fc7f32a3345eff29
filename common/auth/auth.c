#include "common/auth/auth.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "common/auth/rate.h"
#include "common/crypto/crypto.h"
#include "common/time/time.h"

enum {
    MAX_AGE_MS = 5000,
    N_BUCKETS = 1024,
    ENTRIES_MAX = 8192,
    UNKNOWN_MAX = 1024, /* entries that say: no such token */
    LOOKS_MAX = 256,    /* look-ups at once */
    PARKED_MAX = 2048,  /* calls that wait for one */
};

/* A principal that entries and calls share. */
struct known {
    atomic_uint refs;
    struct berth_principal principal;
};

/* A call that waits for a look-up. */
struct waiter {
    struct waiter *next;
    struct berth_call *call;
    const struct berth_rule *rule;
    struct berth_token token;
};

struct entry {
    struct entry *next;
    char id[BERTH_TOKEN_ID_SIZE];
    int64_t loaded_tick; /* INT64_MIN: never, or to be looked up anew */
    struct known *known; /* NULL: no such token */
    bool looking;        /* it stays until that is answered */
    bool forget;         /* what is being looked up may be old */
    struct waiter *waiters;
};

struct berth_auth {
    struct berth_auth_options options;
    struct berth_rate *rate;
    struct berth_gate gate;
    pthread_mutex_t mutex; /* all below */
    pthread_cond_t quiet;
    unsigned n_looks, n_parked, n_entries, n_unknown, sweep;
    uint64_t n_begun;
    struct entry *buckets[N_BUCKETS];
};

struct berth_auth_look {
    struct berth_auth *auth;
    char id[BERTH_TOKEN_ID_SIZE];
    int64_t tick; /* when it began: the age counts from there */
};

static struct known *known_ref(struct known *known)
{
    atomic_fetch_add_explicit(&known->refs, 1, memory_order_relaxed);
    return known;
}

static void known_unref(void *arg)
{
    struct known *known = arg;

    if (known && atomic_fetch_sub_explicit(&known->refs, 1, memory_order_acq_rel) == 1)
        free(known);
}

/* ------------------------------------------------------------------------- table */

static unsigned hash(const char *id)
{
    unsigned value = 2166136261U;

    for (; *id; id++)
        value = (value ^ (unsigned char)*id) * 16777619U;
    return value % N_BUCKETS;
}

static struct entry *find(struct berth_auth *auth, const char *id)
{
    struct entry *entry = auth->buckets[hash(id)];

    while (entry && strcmp(entry->id, id) != 0)
        entry = entry->next;
    return entry;
}

static bool is_unknown(const struct entry *entry)
{
    return !entry->known && !entry->looking;
}

static void remove_entry(struct berth_auth *auth, struct entry *entry)
{
    struct entry **at = &auth->buckets[hash(entry->id)];

    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    auth->n_entries--;
    auth->n_unknown -= is_unknown(entry);
    known_unref(entry->known);
    free(entry);
}

/* Whole buckets go, one after the other. unknown: only entries of no token, so that guesses
 * push out guesses. */
static void make_room(struct berth_auth *auth, bool unknown)
{
    for (unsigned i = 0; i < N_BUCKETS; i++) {
        struct entry *entry = auth->buckets[auth->sweep++ % N_BUCKETS];

        while (entry) {
            struct entry *next = entry->next;

            if (!entry->looking && (!unknown || !entry->known))
                remove_entry(auth, entry);
            entry = next;
        }
        if (unknown ? auth->n_unknown < UNKNOWN_MAX : auth->n_entries < ENTRIES_MAX)
            return;
    }
}

static struct entry *add(struct berth_auth *auth, const char *id)
{
    struct entry *entry;
    unsigned at = hash(id);

    if (auth->n_entries >= ENTRIES_MAX)
        make_room(auth, false);
    entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    memcpy(entry->id, id, sizeof entry->id);
    entry->loaded_tick = INT64_MIN;
    entry->looking = true;
    entry->next = auth->buckets[at];
    auth->buckets[at] = entry;
    auth->n_entries++;
    return entry;
}

/* ------------------------------------------------------------------------ decide */

/* One more call of a tenant with a limit. */
static enum berth_code count(struct berth_auth *auth, const struct berth_principal *principal,
                             struct berth_error *err)
{
    uint32_t per_s = principal->calls_per_second;
    enum berth_code code;
    int64_t wait_ms;

    if (!per_s || principal->deployment)
        return BERTH_OK;
    wait_ms = berth_rate_take(auth->rate, principal->tenant_id, per_s, berth_tick_ms());
    if (!wait_ms)
        return BERTH_OK;
    code = berth_fail(err, BERTH_REASON_QUOTA_EXCEEDED,
                      "requests_per_second: the tenant may have %u", per_s);
    if (err)
        err->retry_after_ms = wait_ms;
    return code;
}

/* known: fresh, or NULL where there is no such token. An unknown id and a wrong secret take the
 * same way. */
static enum berth_code decide(struct berth_auth *auth, struct berth_call *call,
                              const struct berth_rule *rule, const struct berth_token *token,
                              struct known *known, struct berth_error *err)
{
    static const uint8_t nobody[BERTH_TOKEN_HASH_SIZE];
    const uint8_t *wanted = known ? known->principal.token.hash : nobody;
    bool same = berth_equal_secret(wanted, token->hash, BERTH_TOKEN_HASH_SIZE);
    enum berth_code code;

    if (!same || !known)
        return berth_token_refuse(err);
    code = berth_rule_admit(rule, &known->principal, berth_now_ms(), err);
    if (!code)
        code = count(auth, &known->principal, err);
    if (!code)
        berth_call_set_user(call, known_ref(known), known_unref);
    return code;
}

static void admit(struct berth_auth *auth, struct waiter *waiter, enum berth_code code,
                  struct known *known, const struct berth_error *why)
{
    struct berth_error err = {0};

    if (code)
        err = *why;
    else
        code = decide(auth, waiter->call, waiter->rule, &waiter->token, known, &err);
    berth_call_admit(waiter->call, code, &err);
    free(waiter);
}

/* ------------------------------------------------------------------------ look up */

/* Without the mutex: it may be answered at once. */
static void begin_look(struct berth_auth *auth, struct berth_auth_look *look)
{
    auth->options.look(auth->options.arg, look->id, look);
}

/* With the mutex held. NULL: too many, or no memory. */
static struct berth_auth_look *new_look(struct berth_auth *auth, const char *id)
{
    struct berth_auth_look *look;

    if (auth->n_looks >= LOOKS_MAX)
        return NULL;
    look = calloc(1, sizeof *look);
    if (!look)
        return NULL;
    look->auth = auth;
    snprintf(look->id, sizeof look->id, "%s", id);
    look->tick = berth_tick_ms();
    auth->n_looks++;
    auth->n_begun++;
    return look;
}

/* With the mutex held: what the look-up says, into its entry. */
static struct waiter *settle(struct berth_auth *auth, struct entry *entry,
                             const struct berth_auth_look *look, bool told, struct known *known)
{
    struct waiter *waiters = BERTH_STEAL(entry->waiters);

    if (told) {
        known_unref(entry->known);
        entry->known = known ? known_ref(known) : NULL;
        entry->loaded_tick = entry->forget ? INT64_MIN : look->tick;
    }
    entry->looking = false;
    entry->forget = false;
    auth->n_unknown += is_unknown(entry);
    if (is_unknown(entry) && entry->loaded_tick == INT64_MIN)
        remove_entry(auth, entry);
    else if (auth->n_unknown > UNKNOWN_MAX)
        make_room(auth, true);
    for (struct waiter *waiter = waiters; waiter; waiter = waiter->next)
        auth->n_parked--;
    return waiters;
}

void berth_auth_found(struct berth_auth_look *look, enum berth_code code,
                      const struct berth_principal *found, const struct berth_error *why)
{
    struct berth_auth *auth = look->auth;
    struct known *known = NULL;
    struct berth_error err = {0};
    struct waiter *waiters;

    if (code)
        err = *why;
    if (!code && found) {
        known = calloc(1, sizeof *known);
        if (known) {
            atomic_init(&known->refs, 1);
            known->principal = *found;
        } else {
            code = berth_fail(&err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        }
    }
    pthread_mutex_lock(&auth->mutex);
    waiters = settle(auth, find(auth, look->id), look, !code, known);
    pthread_mutex_unlock(&auth->mutex);

    while (waiters) {
        struct waiter *waiter = waiters;

        waiters = waiter->next;
        admit(auth, waiter, code, known, &err);
    }
    known_unref(known);
    free(look);
    /* Last: from here on berth_auth_free() may go on. */
    pthread_mutex_lock(&auth->mutex);
    if (--auth->n_looks == 0)
        pthread_cond_broadcast(&auth->quiet);
    pthread_mutex_unlock(&auth->mutex);
}

/* With the mutex held. *ret_look: to be begun by the caller. */
static enum berth_code park(struct berth_auth *auth, struct entry *entry,
                            struct berth_call *call, const struct berth_rule *rule,
                            const struct berth_token *token, struct berth_auth_look **ret_look,
                            struct berth_error *err)
{
    struct waiter *waiter;
    struct berth_auth_look *look = NULL;
    bool asked = entry && entry->looking;

    if (auth->n_parked >= PARKED_MAX)
        return berth_fail(err, BERTH_REASON_OVERLOADED, NULL);
    waiter = calloc(1, sizeof *waiter);
    if (waiter && !asked)
        look = new_look(auth, token->id);
    if (waiter && !entry && look)
        entry = add(auth, token->id);
    if (!waiter || !entry || (!asked && !look)) {
        if (look) {
            auth->n_looks--;
            free(look);
        }
        free(waiter);
        return berth_fail(err, BERTH_REASON_OVERLOADED, "too many unknown tokens at once");
    }
    auth->n_unknown -= is_unknown(entry);
    entry->looking = true;
    *waiter =
        (struct waiter){.next = entry->waiters, .call = call, .rule = rule, .token = *token};
    entry->waiters = waiter;
    auth->n_parked++;
    *ret_look = look;
    return BERTH_DEFERRED;
}

/* -------------------------------------------------------------------------- gate */

static enum berth_code check_token(struct berth_auth *auth, struct berth_call *call,
                                   const struct berth_rule *rule,
                                   const struct berth_token *token, struct berth_error *err)
{
    int64_t tick = berth_tick_ms();
    struct berth_auth_look *look = NULL;
    struct known *known = NULL;
    struct entry *entry;
    enum berth_code code;

    pthread_mutex_lock(&auth->mutex);
    entry = find(auth, token->id);
    if (entry && entry->loaded_tick >= tick - auth->options.max_age_ms) {
        code = BERTH_OK;
        known = entry->known ? known_ref(entry->known) : NULL;
        if (known && !entry->looking &&
            entry->loaded_tick < tick - auth->options.refresh_age_ms) {
            look = new_look(auth, token->id); /* none: it ages */
            entry->looking = look != NULL;
        }
    } else {
        code = park(auth, entry, call, rule, token, &look, err);
    }
    pthread_mutex_unlock(&auth->mutex);

    if (!code)
        code = decide(auth, call, rule, token, known, err);
    known_unref(known);
    if (look)
        begin_look(auth, look);
    return code;
}

static enum berth_code enter(void *arg, struct berth_call *call, struct berth_error *err)
{
    const struct berth_rule *rule = berth_rule_find(berth_call_path(call));
    struct berth_token token;
    const void *header;
    size_t size = 0;

    if (!rule)
        return berth_fail(err, BERTH_REASON_SCOPE_MISSING, "nobody may call %s",
                          berth_call_path(call));
    if (rule->flags & BERTH_RULE_PEER)
        return berth_call_is_peer(call) ? BERTH_OK
                                        : berth_fail(err, BERTH_REASON_PEER_ONLY, NULL);
    header = berth_call_metadata(call, "authorization", &size);
    if (!header && berth_call_is_peer(call))
        return BERTH_OK;
    if (!header || berth_call_metadata_count(call, "authorization") != 1 ||
        !berth_token_parse_header(header, size, &token))
        return berth_token_refuse(err);
    return check_token(arg, call, rule, &token, err);
}

static enum berth_code judge(void *arg, struct berth_call *call,
                             const ProtobufCMessage *request, struct berth_error *err)
{
    const struct berth_principal *principal = berth_principal_of(call);

    (void)arg;
    if (!principal)
        return BERTH_OK; /* a service of the suite */
    return berth_rule_judge(berth_rule_find(berth_call_path(call)), principal, request, err);
}

/* -------------------------------------------------------------------------- life */

enum berth_code berth_auth_new(const struct berth_auth_options *options,
                               struct berth_auth **ret, struct berth_error *err)
{
    struct berth_auth *auth = calloc(1, sizeof *auth);

    if (!auth)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    auth->rate = berth_rate_new();
    if (!auth->rate) {
        free(auth);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    auth->options = *options;
    if (!auth->options.max_age_ms)
        auth->options.max_age_ms = MAX_AGE_MS;
    if (!auth->options.refresh_age_ms)
        auth->options.refresh_age_ms = auth->options.max_age_ms / 2;
    auth->gate = (struct berth_gate){.arg = auth, .enter = enter, .judge = judge};
    pthread_mutex_init(&auth->mutex, NULL);
    pthread_cond_init(&auth->quiet, NULL);
    *ret = auth;
    return BERTH_OK;
}

struct berth_auth *berth_auth_free(struct berth_auth *auth)
{
    if (!auth)
        return NULL;
    pthread_mutex_lock(&auth->mutex);
    while (auth->n_looks > 0)
        pthread_cond_wait(&auth->quiet, &auth->mutex);
    pthread_mutex_unlock(&auth->mutex);
    for (size_t i = 0; i < N_BUCKETS; i++)
        while (auth->buckets[i])
            remove_entry(auth, auth->buckets[i]);
    pthread_mutex_destroy(&auth->mutex);
    pthread_cond_destroy(&auth->quiet);
    berth_rate_free(auth->rate);
    free(auth);
    return NULL;
}

/* With the mutex held. */
static void forget(struct berth_auth *auth, struct entry *entry)
{
    if (entry->looking) {
        entry->loaded_tick = INT64_MIN;
        entry->forget = true;
    } else {
        remove_entry(auth, entry);
    }
}

void berth_auth_forget(struct berth_auth *auth, const char *token_id)
{
    struct entry *entry;

    pthread_mutex_lock(&auth->mutex);
    entry = find(auth, token_id);
    if (entry)
        forget(auth, entry);
    pthread_mutex_unlock(&auth->mutex);
}

/* What is being looked up may be anybody's. */
static bool may_be_of(const struct entry *entry, const char *tenant_id)
{
    return !tenant_id || entry->looking ||
           (entry->known && strcmp(entry->known->principal.tenant_id, tenant_id) == 0);
}

void berth_auth_forget_tenant(struct berth_auth *auth, const char *tenant_id)
{
    pthread_mutex_lock(&auth->mutex);
    for (size_t i = 0; i < N_BUCKETS; i++) {
        struct entry *entry = auth->buckets[i];

        while (entry) {
            struct entry *next = entry->next;

            if (may_be_of(entry, tenant_id))
                forget(auth, entry);
            entry = next;
        }
    }
    pthread_mutex_unlock(&auth->mutex);
}

const struct berth_gate *berth_auth_gate(struct berth_auth *auth)
{
    return &auth->gate;
}

const struct berth_principal *berth_principal_of(const struct berth_call *call)
{
    const struct known *known = berth_call_user(call);

    return known ? &known->principal : NULL;
}

const char *berth_config_bound(const struct berth_call *call)
{
    const struct berth_principal *principal = berth_principal_of(call);

    return principal ? principal->config_id : "";
}

const char *berth_actor(const struct berth_call *call, char buf[BERTH_ACTOR_SIZE])
{
    const struct berth_principal *principal = berth_principal_of(call);

    if (principal)
        snprintf(buf, BERTH_ACTOR_SIZE, "token/%s", principal->token.id);
    else
        snprintf(buf, BERTH_ACTOR_SIZE, "peer/%s", berth_call_peer_name(call));
    return buf;
}

uint64_t berth_auth_looks(struct berth_auth *auth)
{
    uint64_t n;

    pthread_mutex_lock(&auth->mutex);
    n = auth->n_begun;
    pthread_mutex_unlock(&auth->mutex);
    return n;
}

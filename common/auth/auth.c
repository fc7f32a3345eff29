#include "common/auth/internal.h"

#include <stdio.h>

#include "common/crypto/crypto.h"
#include "common/time/time.h"

enum {
    MAX_AGE_MS = 5000,
    ENTRIES_MAX = 8192,
    UNKNOWN_MAX = 1024, /* entries that say: no such token */
    PARKED_MAX = 2048,  /* calls that wait for one */
};

/* A call that waits for a look-up. */
struct auth_waiter {
    struct auth_waiter *next;
    struct berth_call *call;
    const struct berth_rule *rule;
    struct berth_token token;
};

struct auth_known *auth_known_ref(struct auth_known *known)
{
    atomic_fetch_add_explicit(&known->refs, 1, memory_order_relaxed);
    return known;
}

void auth_known_unref(struct auth_known *known)
{
    if (known && atomic_fetch_sub_explicit(&known->refs, 1, memory_order_acq_rel) == 1)
        free(known);
}

static void guest_free(void *arg)
{
    struct auth_guest *guest = arg;

    if (guest->entry)
        auth_streams_remove(guest);
    auth_known_unref(guest->known);
    free(guest);
}

/* ------------------------------------------------------------------------- table */

static unsigned hash(const char *id)
{
    unsigned value = 2166136261U;

    for (; *id; id++)
        value = (value ^ (unsigned char)*id) * 16777619U;
    return value % AUTH_BUCKETS;
}

struct auth_entry *auth_find(struct berth_auth *auth, const char *id)
{
    struct auth_entry *entry = auth->buckets[hash(id)];

    while (entry && strcmp(entry->id, id) != 0)
        entry = entry->next;
    return entry;
}

static bool is_pinned(const struct auth_entry *entry)
{
    return entry->looking || entry->guests;
}

static bool is_unknown(const struct auth_entry *entry)
{
    return !entry->known && !entry->looking;
}

static void remove_entry(struct berth_auth *auth, struct auth_entry *entry)
{
    struct auth_entry **at = &auth->buckets[hash(entry->id)];

    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    auth->n_entries--;
    auth->n_unknown -= is_unknown(entry);
    auth_known_unref(entry->known);
    free(entry);
}

/* Whole buckets go, one after the other. unknown: only entries of no token, so that guesses
 * push out guesses. */
static void make_room(struct berth_auth *auth, bool unknown)
{
    for (unsigned i = 0; i < AUTH_BUCKETS; i++) {
        struct auth_entry *entry = auth->buckets[auth->sweep++ % AUTH_BUCKETS];

        while (entry) {
            struct auth_entry *next = entry->next;

            if (!is_pinned(entry) && (!unknown || !entry->known))
                remove_entry(auth, entry);
            entry = next;
        }
        if (unknown ? auth->n_unknown < UNKNOWN_MAX : auth->n_entries < ENTRIES_MAX)
            return;
    }
}

struct auth_entry *auth_add(struct berth_auth *auth, const char *id)
{
    struct auth_entry *entry;
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
                              struct auth_known *known, struct berth_error *err)
{
    static const uint8_t nobody[BERTH_TOKEN_HASH_SIZE];
    struct auth_guest *guest;
    const uint8_t *wanted = known ? known->principal.token.hash : nobody;
    bool same = berth_equal_secret(wanted, token->hash, BERTH_TOKEN_HASH_SIZE);
    enum berth_code code;

    if (!same || !known)
        return berth_token_refuse(err);
    code = berth_rule_admit(rule, &known->principal, berth_now_ms(), err);
    if (!code)
        code = count(auth, &known->principal, err);
    if (code)
        return code;
    guest = calloc(1, sizeof *guest);
    if (!guest)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *guest = (struct auth_guest){.auth = auth, .rule = rule, .known = auth_known_ref(known)};
    berth_call_set_user(call, guest, guest_free);
    return BERTH_OK;
}

static void admit(struct berth_auth *auth, struct auth_waiter *waiter, enum berth_code code,
                  struct auth_known *known, const struct berth_error *why)
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
void auth_begin_look(struct berth_auth *auth, struct berth_auth_look *look)
{
    auth->options.look(auth->options.arg, look->id, look);
}

/* With the mutex held. NULL: too many, or no memory. */
struct berth_auth_look *auth_new_look(struct berth_auth *auth, const char *id)
{
    struct berth_auth_look *look;

    if (auth->n_looks >= AUTH_LOOKS_MAX)
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
static struct auth_waiter *settle(struct berth_auth *auth, struct auth_entry *entry,
                                  const struct berth_auth_look *look, bool told,
                                  struct auth_known *known)
{
    struct auth_waiter *waiters = BERTH_STEAL(entry->waiters);

    if (told) {
        auth_known_unref(entry->known);
        entry->known = known ? auth_known_ref(known) : NULL;
        entry->loaded_tick = entry->forget ? INT64_MIN : look->tick;
    }
    entry->looking = false;
    entry->forget = false;
    auth->n_unknown += is_unknown(entry);
    if (is_unknown(entry) && entry->loaded_tick == INT64_MIN && !entry->guests)
        remove_entry(auth, entry);
    else if (auth->n_unknown > UNKNOWN_MAX)
        make_room(auth, true);
    for (struct auth_waiter *waiter = waiters; waiter; waiter = waiter->next)
        auth->n_parked--;
    return waiters;
}

void berth_auth_found(struct berth_auth_look *look, enum berth_code code,
                      const struct berth_principal *found, const struct berth_error *why)
{
    struct berth_auth *auth = look->auth;
    struct auth_known *known = NULL;
    struct berth_error err = {0};
    struct auth_waiter *waiters;

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
    waiters = settle(auth, auth_find(auth, look->id), look, !code, known);
    pthread_mutex_unlock(&auth->mutex);

    while (waiters) {
        struct auth_waiter *waiter = waiters;

        waiters = waiter->next;
        admit(auth, waiter, code, known, &err);
    }
    auth_known_unref(known);
    free(look);
    /* Last: from here on berth_auth_free() may go on. */
    pthread_mutex_lock(&auth->mutex);
    if (--auth->n_looks == 0)
        pthread_cond_broadcast(&auth->quiet);
    pthread_mutex_unlock(&auth->mutex);
}

/* With the mutex held. *ret_look: to be begun by the caller. */
static enum berth_code park(struct berth_auth *auth, struct auth_entry *entry,
                            struct berth_call *call, const struct berth_rule *rule,
                            const struct berth_token *token, struct berth_auth_look **ret_look,
                            struct berth_error *err)
{
    struct auth_waiter *waiter;
    struct berth_auth_look *look = NULL;
    bool asked = entry && entry->looking;

    if (auth->n_parked >= PARKED_MAX)
        return berth_fail(err, BERTH_REASON_OVERLOADED, NULL);
    waiter = calloc(1, sizeof *waiter);
    if (waiter && !asked)
        look = auth_new_look(auth, token->id);
    if (waiter && !entry && look)
        entry = auth_add(auth, token->id);
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
    *waiter = (struct auth_waiter){
        .next = entry->waiters, .call = call, .rule = rule, .token = *token};
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
    struct auth_known *known = NULL;
    struct auth_entry *entry;
    enum berth_code code;

    pthread_mutex_lock(&auth->mutex);
    entry = auth_find(auth, token->id);
    if (entry && entry->loaded_tick >= tick - auth->options.max_age_ms) {
        code = BERTH_OK;
        known = entry->known ? auth_known_ref(entry->known) : NULL;
        if (known && !entry->looking &&
            entry->loaded_tick < tick - auth->options.refresh_age_ms) {
            look = auth_new_look(auth, token->id); /* none: it ages */
            entry->looking = look != NULL;
        }
    } else {
        code = park(auth, entry, call, rule, token, &look, err);
    }
    pthread_mutex_unlock(&auth->mutex);

    if (!code)
        code = decide(auth, call, rule, token, known, err);
    auth_known_unref(known);
    if (look)
        auth_begin_look(auth, look);
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
    struct auth_guest *guest = berth_call_user(call);
    const struct berth_auth *auth = arg;

    if (!guest)
        return BERTH_OK; /* a service of the suite */
    if (auth->options.loop && berth_call_is_open(call))
        auth_streams_add(guest, call);
    return berth_rule_judge(guest->rule, &guest->known->principal, request, err);
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
    auth_streams_stop(auth);
    pthread_mutex_lock(&auth->mutex);
    while (auth->n_looks > 0)
        pthread_cond_wait(&auth->quiet, &auth->mutex);
    pthread_mutex_unlock(&auth->mutex);
    for (size_t i = 0; i < AUTH_BUCKETS; i++)
        while (auth->buckets[i])
            remove_entry(auth, auth->buckets[i]);
    pthread_mutex_destroy(&auth->mutex);
    pthread_cond_destroy(&auth->quiet);
    berth_rate_free(auth->rate);
    free(auth);
    return NULL;
}

/* With the mutex held. */
static void forget(struct berth_auth *auth, struct auth_entry *entry)
{
    if (is_pinned(entry)) {
        entry->loaded_tick = INT64_MIN;
        entry->forget = entry->looking;
    } else {
        remove_entry(auth, entry);
    }
}

void berth_auth_forget(struct berth_auth *auth, const char *token_id)
{
    struct auth_entry *entry;

    pthread_mutex_lock(&auth->mutex);
    entry = auth_find(auth, token_id);
    if (entry)
        forget(auth, entry);
    pthread_mutex_unlock(&auth->mutex);
    auth_streams_refresh(auth);
}

/* What is being looked up may be anybody's. */
static bool may_be_of(const struct auth_entry *entry, const char *tenant_id)
{
    return !tenant_id || entry->looking ||
           (entry->known && strcmp(entry->known->principal.tenant_id, tenant_id) == 0);
}

void berth_auth_forget_tenant(struct berth_auth *auth, const char *tenant_id)
{
    pthread_mutex_lock(&auth->mutex);
    for (size_t i = 0; i < AUTH_BUCKETS; i++) {
        struct auth_entry *entry = auth->buckets[i];

        while (entry) {
            struct auth_entry *next = entry->next;

            if (may_be_of(entry, tenant_id))
                forget(auth, entry);
            entry = next;
        }
    }
    pthread_mutex_unlock(&auth->mutex);
    auth_streams_refresh(auth);
}

const struct berth_gate *berth_auth_gate(struct berth_auth *auth)
{
    return &auth->gate;
}

const struct berth_principal *berth_principal_of(const struct berth_call *call)
{
    const struct auth_guest *guest = berth_call_user(call);

    return guest ? &guest->known->principal : NULL;
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

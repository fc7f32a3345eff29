#include "services/binding/store.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/fields/fields.h"
#include "common/records/event.h"
#include "common/records/keys.h"
#include "common/time/time.h"
#include "services/binding/figures.h"
#include "services/binding/quota.h"
#include "services/binding/watch.h"

enum {
    TRIES_MAX = 64,                   /* of one operation against others that are faster */
    READ_MANY = BINDING_TOGETHER_MAX, /* sessions in one trip: a read has 64 documents */
};

struct binding_store {
    struct berth_redis *redis;
    struct binding_limits limits;
    struct binding_watch *watch;
    struct binding_figures figures;
};

enum berth_code binding_store_new(const struct binding_store_options *options,
                                  struct binding_store **ret, struct berth_error *err)
{
    BERTH_AUTO(binding_store_free) struct binding_store *store = calloc(1, sizeof *store);
    enum berth_code code;

    if (!store)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    store->redis = options->redis;
    store->limits = options->limits;
    code = binding_watch_new(options->redis, options->deployment, options->quarantine_ms,
                             options->unsure_ms, &store->watch, err);
    if (code)
        return code;
    *ret = BERTH_STEAL(store);
    return BERTH_OK;
}

struct binding_store *binding_store_free(struct binding_store *store)
{
    if (!store)
        return NULL;
    binding_watch_free(store->watch);
    free(store);
    return NULL;
}

const struct binding_limits *binding_store_limits(const struct binding_store *store)
{
    return &store->limits;
}

struct binding_figures *binding_store_figures(struct binding_store *store)
{
    return &store->figures;
}

struct berth_redis *binding_store_redis(const struct binding_store *store)
{
    return store->redis;
}

enum berth_code binding_store_ready(struct binding_store *store, bool *ret_wrong,
                                    struct berth_error *err)
{
    return binding_watch_ready(store->watch, ret_wrong, err);
}

bool binding_store_quarantined(struct binding_store *store)
{
    return binding_watch_quarantined(store->watch);
}

/* -------------------------------------------------------------------------- read */

static const char *const tenant_fields[] = {"rev", "disabled", "default_config", "max_sessions",
                                            "recovering"};
static const char *const config_fields[] = {"rev",
                                            "state",
                                            "account",
                                            "keyed",
                                            "fenced",
                                            "create_horizon_ms",
                                            "cordon_until_ms",
                                            "template",
                                            "next_generation",
                                            "image"};

static struct berth_redis_get get_config(const char *prefix, unsigned from, const char *field,
                                         const char *fallback)
{
    return (struct berth_redis_get){.prefix = prefix,
                                    .from = from,
                                    .field = field,
                                    .fallback = fallback,
                                    .fields = config_fields,
                                    .n_fields = BERTH_COUNT(config_fields)};
}

static enum berth_code take_tenant(const struct berth_doc *doc, struct binding_tenant *ret,
                                   struct berth_error *err)
{
    const char *disabled = berth_doc_get(doc, "disabled");
    const char *config = berth_doc_get(doc, "default_config");

    /* A rev alone is no record (berth_cas_settle). */
    if (!doc->exists || (berth_doc_get(doc, "rev")[0] && !berth_doc_has(doc, "disabled") &&
                         !berth_doc_has(doc, "default_config"))) {
        *ret = (struct binding_tenant){0};
        return BERTH_OK;
    }
    if (!berth_doc_get(doc, "rev")[0] || (strcmp(disabled, "0") && strcmp(disabled, "1")) ||
        strlen(config) >= sizeof ret->default_config)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "%s: not a tenant's document",
                          doc->key);
    ret->exists = true;
    ret->disabled = disabled[0] == '1';
    snprintf(ret->default_config, sizeof ret->default_config, "%s", config);
    ret->recovering = berth_doc_has(doc, "recovering");
    ret->lost_ms = strtoll(berth_doc_get(doc, "recovering"), NULL, 10);
    ret->max_sessions = (uint32_t)strtoul(berth_doc_get(doc, "max_sessions"), NULL, 10);
    return BERTH_OK;
}

static void begin_view(struct binding_store *store, const char *session_id, int64_t now_ms,
                       struct binding_view *view)
{
    *view = (struct binding_view){.session_id = session_id,
                                  .limits = &store->limits,
                                  .now_ms = now_ms,
                                  .quarantine = binding_watch_quarantined(store->watch),
                                  .unsure = binding_watch_unsure(store->watch),
                                  .lost_ms = binding_watch_lost(store->watch, now_ms)};
}

static enum berth_code take_session(const struct berth_doc *doc, struct binding_view *view,
                                    struct berth_error *err)
{
    enum berth_code code = binding_doc_decode(doc, &view->doc, err);

    if (!code)
        view->due_ms = binding_due_ms(&view->doc);
    return code;
}

/* The id whose document it is: what its key has behind the last '/'. */
static void name_config(struct binding_view *view, const struct berth_doc *doc)
{
    const char *slash = doc->key ? strrchr(doc->key, '/') : NULL;

    snprintf(view->config_id, sizeof view->config_id, "%s", slash ? slash + 1 : "");
}

static enum berth_code redis_read(struct binding_store *store,
                                  const struct berth_redis_get *gets, size_t n,
                                  int64_t *ret_now_ms, struct berth_doc *ret_docs,
                                  struct berth_error *err)
{
    int64_t before = berth_tick_ms();
    struct berth_error why = {0};
    enum berth_code code = berth_redis_read(store->redis, gets, n, ret_now_ms, ret_docs, &why);

    if (!code) {
        binding_watch_clock(store->watch, *ret_now_ms, before, berth_tick_ms());
        binding_watch_meet(store->watch, *ret_now_ms);
    } else if (why.reason == BERTH_REASON_OUTCOME_UNKNOWN)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "%s", why.text);
    else if (err)
        *err = why;
    return code;
}

static void deinit_docs(struct berth_doc *docs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        berth_doc_deinit(&docs[i]);
}

enum berth_code binding_store_read(struct binding_store *store, const struct binding_ref *ref,
                                   struct binding_view *ret, struct berth_error *err)
{
    char tenant[BERTH_KEY_MAX], session[BERTH_KEY_MAX], prefix[BERTH_KEY_MAX];
    struct berth_redis_get gets[4] = {{0}};
    struct berth_doc docs[4] = {{0}};
    struct binding_view view;
    const struct berth_doc *config;
    size_t n = 3;
    int64_t now_ms = 0;
    enum berth_code code;

    gets[0].key = berth_key_tenant(tenant, ref->tenant_id);
    gets[0].fields = tenant_fields;
    gets[0].n_fields = BERTH_COUNT(tenant_fields);
    gets[1].key = berth_key_session(session, ref->tenant_id, ref->session_id);
    berth_key_config_prefix(prefix, ref->tenant_id);
    gets[2] = get_config(prefix, 1, "config", ref->config_id);
    if (!ref->config_id[0])
        gets[n++] = get_config(prefix, 0, "default_config", "");

    code = redis_read(store, gets, n, &now_ms, docs, err);
    if (code)
        return code;
    begin_view(store, ref->session_id, now_ms, &view);
    code = take_tenant(&docs[0], &view.tenant, err);
    if (!code)
        code = take_session(&docs[1], &view, err);
    if (!code) {
        config = n == 4 && !berth_doc_get(&docs[1], "config")[0] ? &docs[3] : &docs[2];
        name_config(&view, config);
        code = berth_config_doc_parse(config, &view.config, err);
    }
    deinit_docs(docs, n);
    if (code)
        binding_view_deinit(&view);
    else
        *ret = view;
    return code;
}

void binding_view_deinit(struct binding_view *view)
{
    binding_doc_deinit(&view->doc);
}

/* One of many, with the config that they are all of. */
static enum berth_code take_one(struct binding_store *store, const struct binding_ref *ref,
                                const struct berth_doc *doc, int64_t now_ms,
                                const struct berth_config_doc *config, struct binding_view *ret,
                                struct berth_error *err)
{
    enum berth_code code;

    begin_view(store, ref->session_id, now_ms, ret);
    code = take_session(doc, ret, err);
    if (code || !ret->doc.session.config_id[0])
        return code;
    if (strcmp(ret->doc.session.config_id, ref->config_id) != 0) {
        /* Pinned anew since the index was read. */
        binding_view_deinit(ret);
        return binding_store_read(store, ref, ret, err);
    }
    ret->config = *config;
    snprintf(ret->config_id, sizeof ret->config_id, "%s", ref->config_id);
    return BERTH_OK;
}

/* At most READ_MANY of them. */
static enum berth_code read_some(struct binding_store *store, const char *tenant_id,
                                 const char *config_id, const char *const *session_ids,
                                 size_t n, struct binding_view *ret_views,
                                 struct berth_error *err)
{
    char keys[READ_MANY + 1][BERTH_KEY_MAX];
    struct berth_redis_get gets[READ_MANY + 1] = {{0}};
    struct berth_doc docs[READ_MANY + 1] = {{0}};
    struct berth_config_doc config;
    int64_t now_ms = 0;
    size_t done = 0;
    enum berth_code code;

    for (size_t i = 0; i < n; i++)
        gets[i].key = berth_key_session(keys[i], tenant_id, session_ids[i]);
    gets[n] = get_config(NULL, 0, NULL, NULL);
    gets[n].key = berth_key_config(keys[n], tenant_id, config_id);
    code = redis_read(store, gets, n + 1, &now_ms, docs, err);
    if (code)
        return code;
    code = berth_config_doc_parse(&docs[n], &config, err);
    for (; !code && done < n; done++) {
        const struct binding_ref ref = {tenant_id, session_ids[done], config_id};

        code = take_one(store, &ref, &docs[done], now_ms, &config, &ret_views[done], err);
    }
    deinit_docs(docs, n + 1);
    while (code && done > 0)
        binding_view_deinit(&ret_views[--done]);
    return code;
}

enum berth_code binding_store_read_many(struct binding_store *store, const char *tenant_id,
                                        const char *config_id, const char *const *session_ids,
                                        size_t n, struct binding_view *ret_views,
                                        struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (size_t at = 0; !code && at < n; at += READ_MANY) {
        size_t some = n - at < READ_MANY ? n - at : READ_MANY;

        code =
            read_some(store, tenant_id, config_id, session_ids + at, some, ret_views + at, err);
        while (code && at > 0)
            binding_view_deinit(&ret_views[--at]);
    }
    return code;
}

/* ------------------------------------------------------------------------- write */

struct keys {
    char session[BERTH_KEY_MAX];
    char config[BERTH_KEY_MAX];
    char due[BERTH_KEY_MAX];
    char alias[BERTH_KEY_MAX];
    char index[BERTH_KEY_MAX];
    char quota[BERTH_KEY_MAX];
};

static enum berth_code write_parts(struct berth_cas *cas, const char *key,
                                   const struct binding_doc *doc, struct berth_error *err)
{
    for (int part = 0; part < BINDING_N_PARTS; part++) {
        const char *name = binding_part_name((enum binding_part)part);
        BERTH_AUTO(free) char *text = NULL;
        size_t size = 0;
        enum berth_code code;

        if (!(doc->dirty & 1U << part))
            continue;
        code = binding_doc_encode(doc, (enum binding_part)part, &text, &size, err);
        if (code)
            return code;
        if (text)
            berth_cas_hset(cas, key, name, text, size);
        else
            berth_cas_write(cas, "HDEL", key, name, (char *)NULL);
    }
    return BERTH_OK;
}

static enum berth_code write_events(struct berth_cas *cas, const struct binding_ref *ref,
                                    struct binding_view *view, const struct binding_plan *plan,
                                    struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < plan->n_events; i++) {
        const struct binding_event *e = &plan->events[i];

        view->doc.seq++;
        binding_doc_touch(&view->doc, BINDING_PART_SEQ);
        code = berth_event_write(cas, ref->tenant_id,
                                 &(struct berth_event){.kind = e->kind,
                                                       .session_id = ref->session_id,
                                                       .config_id = plan->config_old[0]
                                                                        ? plan->config_old
                                                                        : view->config_id,
                                                       .sandbox_id = e->sandbox_id,
                                                       .session_seq = view->doc.seq,
                                                       .attributes = e->attributes,
                                                       .observed = e->observed},
                                 err);
    }
    return code;
}

static void write_indexes(struct berth_cas *cas, struct keys *k, const struct binding_ref *ref,
                          const struct binding_view *view, const struct binding_plan *plan)
{
    int64_t due_ms = binding_due_ms(&view->doc);
    char score[24];

    snprintf(score, sizeof score, "%" PRId64, due_ms);
    if (due_ms != view->due_ms || plan->reindex) {
        berth_key_due(k->due, ref->tenant_id);
        if (due_ms)
            berth_cas_write(cas, "ZADD", k->due, score, ref->session_id, (char *)NULL);
        else
            berth_cas_write(cas, "ZREM", k->due, ref->session_id, (char *)NULL);
    }
    berth_key_alias(k->alias, ref->tenant_id);
    if (plan->index_add) {
        berth_key_index_config(k->index, ref->tenant_id, view->doc.session.config_id);
        berth_cas_write(cas, "ZADD", k->index, "0", ref->session_id, (char *)NULL);
        berth_cas_write(cas, "HSET", k->alias, view->doc.session.alias, ref->session_id,
                        (char *)NULL);
    }
    if (plan->index_remove) {
        berth_key_index_config(k->index, ref->tenant_id, plan->config_old);
        berth_cas_write(cas, "ZREM", k->index, ref->session_id, (char *)NULL);
        berth_cas_write(cas, "HDEL", k->alias, plan->alias_old, (char *)NULL);
    }
}

static enum berth_code build(struct binding_store *store, struct berth_cas *cas, struct keys *k,
                             const struct binding_ref *ref, struct binding_view *view,
                             const struct binding_plan *plan, const char *new_rev,
                             struct berth_error *err)
{
    char ttl[24], quota_rev[17];
    enum berth_code code = BERTH_OK;

    berth_cas_expect(cas, k->session, view->doc.rev);
    if (plan->pins_config)
        berth_cas_expect(cas, berth_key_config(k->config, ref->tenant_id, view->config_id),
                         view->config.rev);
    if (plan->index_add && view->tenant.max_sessions) {
        code = binding_quota_check(store->redis, ref->tenant_id, view->tenant.max_sessions,
                                   quota_rev, err);
        if (code)
            return code;
        berth_cas_expect(cas, berth_key_quota(k->quota, ref->tenant_id), quota_rev);
        berth_cas_write(cas, "HSET", k->quota, "rev", berth_rev_new(quota_rev), (char *)NULL);
        berth_cas_write(cas, "PERSIST", k->quota, (char *)NULL);
    }
    code = write_events(cas, ref, view, plan, err);
    if (!code)
        code = write_parts(cas, k->session, &view->doc, err);
    if (code)
        return code;
    berth_cas_write(cas, "HSET", k->session, "rev", new_rev, (char *)NULL);
    write_indexes(cas, k, ref, view, plan);
    snprintf(ttl, sizeof ttl, "%" PRId64, store->limits.tombstone_ms);
    if (plan->expire)
        berth_cas_write(cas, "PEXPIRE", k->session, ttl, (char *)NULL);
    else if (plan->persist)
        berth_cas_write(cas, "PERSIST", k->session, (char *)NULL);
    return BERTH_OK;
}

/* Take the session's document as it is now; the rest of the view stands. */
static enum berth_code refresh(struct binding_store *store, const struct binding_ref *ref,
                               struct binding_view *view, const struct berth_doc *doc,
                               int64_t now_ms, struct berth_error *err)
{
    const char *config = doc ? berth_doc_get(doc, "config") : "";
    struct binding_view fresh;
    enum berth_code code;

    if (!doc || strcmp(config[0] ? config : view->config_id, view->config_id) != 0) {
        code = binding_store_read(store, ref, &fresh, err);
    } else {
        begin_view(store, ref->session_id, now_ms, &fresh);
        fresh.tenant = view->tenant;
        fresh.config = view->config;
        memcpy(fresh.config_id, view->config_id, sizeof fresh.config_id);
        code = take_session(doc, &fresh, err);
    }
    if (code)
        return code;
    binding_view_deinit(view);
    *view = fresh;
    return BERTH_OK;
}

/* Runs it, and settles it where the outcome is not known: what was overtaken counts as not
 * applied, since the rules know their own attempts and tokens again. */
static enum berth_code run_cas(struct binding_store *store, struct berth_cas *cas, bool durable,
                               bool *ret_applied, int64_t *ret_now_ms,
                               struct berth_doc *ret_docs, struct berth_error *err)
{
    struct berth_error why = {0};
    enum berth_outcome outcome = BERTH_OUTCOME_REFUSED;
    enum berth_code code =
        berth_cas_run(store->redis, cas, durable, ret_applied, ret_now_ms, ret_docs, &why);

    if (code && why.reason == BERTH_REASON_OUTCOME_UNKNOWN) {
        code = berth_cas_settle(store->redis, cas, durable, &outcome, &why);
        *ret_applied = !code && outcome == BERTH_OUTCOME_APPLIED;
    }
    if (code && err)
        *err = why;
    return code;
}

static enum berth_code apply(struct binding_store *store, const struct binding_ref *ref,
                             struct binding_view *view, const struct binding_plan *plan,
                             uint64_t server, bool *ret_again, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    struct keys k;
    struct berth_doc docs[3] = {{0}}; /* session, config, quota */
    bool applied = false, fresh;
    char rev[17];
    int64_t now_ms = 0;
    enum berth_code code;

    berth_key_session(k.session, ref->tenant_id, ref->session_id);
    code = build(store, cas, &k, ref, view, plan, berth_rev_new(rev), err);
    if (code)
        return code;
    berth_cas_only_on(cas, server);
    if (!plan->begins)
        berth_cas_when_full(cas);
    code = run_cas(store, cas, plan->durable, &applied, &now_ms, docs, err);
    fresh = docs[0].key && !plan->pins_config;
    if (!code && !applied)
        code = refresh(store, ref, view, fresh ? &docs[0] : NULL, now_ms, err);
    deinit_docs(docs, BERTH_COUNT(docs));
    if (code)
        return code;
    *ret_again = !applied;
    for (size_t i = 0; applied && i < plan->n_events; i++)
        binding_figures_count(&store->figures, plan->events[i].kind);
    if (applied) {
        memcpy(view->doc.rev, rev, sizeof rev);
        view->doc.dirty = 0;
        view->due_ms = binding_due_ms(&view->doc);
    }
    return BERTH_OK;
}

/* ------------------------------------------------------------------------ decide */

static bool is_absence(enum berth_reason reason)
{
    return reason == BERTH_REASON_TENANT_NOT_FOUND || reason == BERTH_REASON_CONFIG_NOT_FOUND ||
           reason == BERTH_REASON_SESSION_NOT_FOUND;
}

/* What does not come back from here may not be told, or not be done, while the index is lost.
 */
static enum berth_code refuse(struct binding_store *store, const struct binding_tenant *tenant,
                              enum berth_code code, const struct berth_error *why,
                              struct berth_error *err)
{
    if (why->reason == BERTH_REASON_SESSION_NOT_FOUND && tenant && tenant->recovering)
        return berth_fail(err, BERTH_REASON_INDEX_RECOVERING,
                          "a config of the tenant could not be listed yet");
    if (is_absence(why->reason)) {
        enum berth_code whole = binding_watch_whole(store->watch, err);

        if (whole)
            return whole;
    }
    if (err)
        *err = *why;
    return code;
}

enum berth_code binding_store_absent(struct binding_store *store, enum berth_reason reason,
                                     struct berth_error *err)
{
    struct berth_error why = {0};
    enum berth_code code = berth_fail(&why, reason, NULL);

    return refuse(store, NULL, code, &why, err);
}

enum berth_code binding_store_decide(struct binding_store *store, const struct binding_ref *ref,
                                     struct binding_view *view, binding_rule_fn rule, void *arg,
                                     struct binding_plan *plan, bool *ret_again,
                                     struct berth_error *err)
{
    struct berth_error why = {0};
    uint64_t server = 0;
    enum berth_code code;

    *ret_again = false;
    *plan = (struct binding_plan){0};
    code = rule(arg, view, plan, &why);
    if (!code)
        code = binding_finish(view, plan, false, &why);
    if (code) {
        binding_plan_deinit(plan);
        return refuse(store, &view->tenant, code, &why, err);
    }
    if (plan->needs_whole) {
        code = binding_watch_whole(store->watch, err);
        if (!code && !view->quarantine && binding_watch_quarantined(store->watch)) {
            /* Decided without knowing it. */
            *ret_again = true;
            code = refresh(store, ref, view, NULL, 0, err);
        }
        /* Nor may it be written to a server that nobody has looked at. */
        server = binding_watch_servers(store->watch);
    }
    if (!code && !*ret_again && view->doc.dirty)
        code = apply(store, ref, view, plan, server, ret_again, err);
    if (code || *ret_again)
        binding_plan_deinit(plan);
    return code;
}

enum berth_code binding_store_run(struct binding_store *store, const struct binding_ref *ref,
                                  binding_rule_fn rule, void *arg, struct binding_view *view,
                                  struct binding_plan *plan, struct berth_error *err)
{
    enum berth_code code = binding_store_read(store, ref, view, err);
    bool again = true;

    if (code)
        return code;
    for (int i = 0; !code && again && i < TRIES_MAX; i++)
        code = binding_store_decide(store, ref, view, rule, arg, plan, &again, err);
    if (!code && again)
        code = berth_fail(err, BERTH_REASON_CONFLICT, NULL);
    if (code)
        binding_view_deinit(view);
    return code;
}

/* -------------------------------------------------------------------------- many */

/* What one of many wants written goes into cas. *ret_fits: nothing beyond that. */
static enum berth_code add_one(struct binding_store *store, struct berth_cas *cas,
                               const struct binding_ref *ref, struct binding_view *view,
                               binding_rule_fn rule, void *arg, struct binding_plan *plan,
                               bool *ret_fits, struct berth_error *err)
{
    struct keys k;
    char rev[17];

    *ret_fits = !rule(arg, view, plan, NULL) && !binding_finish(view, plan, false, NULL) &&
                !plan->needs_whole && !plan->pins_config && !plan->index_add && !plan->begins;
    if (!*ret_fits || !view->doc.dirty)
        return BERTH_OK;
    berth_key_session(k.session, ref->tenant_id, ref->session_id);
    return build(store, cas, &k, ref, view, plan, berth_rev_new(rev), err);
}

static enum berth_code decide_together(struct binding_store *store, const char *tenant_id,
                                       struct binding_view *views, size_t n,
                                       binding_rule_fn rule, void *arg,
                                       struct binding_plan *plans, bool *ret_done,
                                       size_t *ret_written, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    bool fits = true, durable = false;
    size_t written = 0;
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && fits && i < n; i++) {
        const struct binding_ref ref = {tenant_id, views[i].session_id, ""};

        code = add_one(store, cas, &ref, &views[i], rule, arg, &plans[i], &fits, err);
        written += views[i].doc.dirty != 0;
        durable = durable || plans[i].durable;
    }
    berth_cas_when_full(cas);
    if (!code && fits && written)
        code = run_cas(store, cas, durable, &fits, NULL, NULL, err);
    if (code)
        return code;
    for (size_t i = 0; fits && i < n; i++)
        for (size_t j = 0; j < plans[i].n_events; j++)
            binding_figures_count(&store->figures, plans[i].events[j].kind);
    *ret_done = fits;
    *ret_written = fits ? written : 0;
    return BERTH_OK;
}

enum berth_code binding_store_run_together(struct binding_store *store, const char *tenant_id,
                                           const char *config_id,
                                           const char *const *session_ids, size_t n,
                                           binding_rule_fn rule, void *arg, bool *ret_done,
                                           size_t *ret_written, struct berth_error *err)
{
    BERTH_AUTO(free) struct binding_view *views = calloc(n + 1, sizeof *views);
    BERTH_AUTO(free) struct binding_plan *plans = calloc(n + 1, sizeof *plans);
    enum berth_code code;

    if (!views || !plans)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = read_some(store, tenant_id, config_id, session_ids, n, views, err);
    if (code)
        return code;
    code = decide_together(store, tenant_id, views, n, rule, arg, plans, ret_done, ret_written,
                           err);
    for (size_t i = 0; i < n; i++) {
        binding_plan_deinit(&plans[i]);
        binding_view_deinit(&views[i]);
    }
    return code;
}

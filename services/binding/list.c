/* list.c - calls about many sessions of a tenant. Pages go by id, so that they stay right while
 * sessions come and go. */
#include "services/binding/binding.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/fields/fields.h"
#include "common/ids/ids.h"
#include "common/records/keys.h"
#include "services/binding/decode.h"
#include "services/binding/encode.h"

enum {
    ID_SIZE = 129,
    PAGE_MAX = 1000,
    CONFIGS_MAX = 10000,                      /* of a tenant */
    MARK_AT_ONCE = 10 * BINDING_TOGETHER_MAX, /* read of the index */
    MARK_TRIES = 8,
    DUE_AT_ONCE = 4 * PAGE_MAX,
};

/* ------------------------------------------------------------------- page tokens */

/* "<a>/<b>" in hex, which makes it opaque enough; ids hold no '/'. Owned; NULL: no memory. */
static char *token_of(const char *a, const char *b)
{
    char plain[2 * ID_SIZE + 2];
    int len = snprintf(plain, sizeof plain, "%s/%s", a, b);
    char *token = malloc(2 * (size_t)len + 1);

    return token ? berth_hex(token, plain, (size_t)len) : NULL;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "" gives two empty ones. */
static enum berth_code parse_token(const char *token, char a[ID_SIZE], char b[ID_SIZE],
                                   struct berth_error *err)
{
    char plain[2 * ID_SIZE + 2], *slash = NULL;
    size_t len = strlen(token) / 2;
    bool good = strlen(token) % 2 == 0 && len < sizeof plain;

    a[0] = b[0] = '\0';
    if (!token[0])
        return BERTH_OK;
    for (size_t i = 0; good && i < len; i++) {
        int high = digit(token[2 * i]), low = digit(token[2 * i + 1]);

        good = high >= 0 && low >= 0 && (high || low);
        plain[i] = (char)(high << 4 | low);
    }
    if (good) {
        plain[len] = '\0';
        slash = strchr(plain, '/');
    }
    if (!slash || slash - plain >= ID_SIZE || strlen(slash + 1) >= ID_SIZE)
        return berth_fail_field(err, "page.page_token", "must be one that this method gave");
    *slash = '\0';
    snprintf(a, ID_SIZE, "%.*s", ID_SIZE - 1, plain);
    snprintf(b, ID_SIZE, "%s", slash + 1);
    if (berth_check_id_or_empty("page.page_token", a, err) ||
        berth_check_id_or_empty("page.page_token", b, err))
        return berth_fail_field(err, "page.page_token", "must be one that this method gave");
    return BERTH_OK;
}

/* --------------------------------------------------------------------- Redis lists */

static enum berth_code ask(struct binding *binding, size_t argc, const char *const *argv,
                           struct berth_reply **ret, struct berth_error *err)
{
    struct berth_error why = {0};
    enum berth_code code =
        berth_redis_call(binding_store_redis(binding->store), argc, argv, NULL, ret, &why);

    if (code && why.reason == BERTH_REASON_OUTCOME_UNKNOWN)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "%s", why.text);
    if (code && err)
        *err = why;
    return code;
}

/* At most n members after `after` of a ZSET whose scores are all 0. */
static enum berth_code members_after(struct binding *binding, const char *key,
                                     const char *after, size_t n, struct berth_reply **ret,
                                     struct berth_error *err)
{
    char from[ID_SIZE + 1], count[24];
    const char *argv[] = {"ZRANGEBYLEX", key, from, "+", "LIMIT", "0", count};

    snprintf(from, sizeof from, "%s%s", after[0] ? "(" : "-", after);
    snprintf(count, sizeof count, "%zu", n);
    return ask(binding, BERTH_COUNT(argv), argv, ret, err);
}

static int compare_items(const void *a, const void *b)
{
    return strcmp((*(struct berth_reply *const *)a)->string,
                  (*(struct berth_reply *const *)b)->string);
}

/* All configs of the tenant, in the order of their ids. */
static enum berth_code all_configs(struct binding *binding, const char *tenant_id,
                                   struct berth_reply **ret, struct berth_error *err)
{
    char key[BERTH_KEY_MAX], last[24];
    const char *argv[] = {"ZRANGE", berth_key_index_configs(key, tenant_id), "0", last};
    enum berth_code code;

    snprintf(last, sizeof last, "%d", CONFIGS_MAX - 1);
    code = ask(binding, BERTH_COUNT(argv), argv, ret, err);
    if (!code && (*ret)->n_items)
        qsort((*ret)->items, (*ret)->n_items, sizeof *(*ret)->items, compare_items);
    return code;
}

static enum berth_code check_page(const Berth__Common__V1__PageRequest *page,
                                  uint32_t *ret_size, char a[ID_SIZE], char b[ID_SIZE],
                                  struct berth_error *err)
{
    enum berth_code code =
        berth_check_page_size("page.page_size", page ? page->page_size : 0, ret_size, err);

    return code ? code : parse_token(page ? page->page_token : "", a, b, err);
}

/* ------------------------------------------------------------------- ListBindings */

/* One page being filled. */
struct page {
    const char *tenant_id;
    size_t size;
    Berth__Binding__V1__ListBindingsResponse *out;
};

/* Add those of ids that have a record; they are of one config. */
static enum berth_code add_sessions(struct binding *binding, struct page *page,
                                    const char *config_id, const struct berth_reply *ids,
                                    size_t n, struct berth_error *err)
{
    BERTH_AUTO(free) struct binding_view *views = calloc(n + 1, sizeof *views);
    BERTH_AUTO(free) const char **names = calloc(n + 1, sizeof *names);
    enum berth_code code;

    if (!views || !names)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (size_t i = 0; i < n; i++)
        names[i] = ids->items[i]->string;
    code = binding_store_read_many(binding->store, page->tenant_id, config_id, names, n, views,
                                   err);
    if (code)
        return code;
    for (size_t i = 0; i < n; i++) {
        const struct binding_ref ref = {page->tenant_id, names[i], ""};
        enum binding_state state = views[i].doc.session.state;
        Berth__Binding__V1__BoundSession *row;

        if (!code && (state == BINDING_STATE_ACTIVE || state == BINDING_STATE_DELETING)) {
            row = binding_encode_row(&ref, &views[i]);
            if (row)
                page->out->sessions[page->out->n_sessions++] = row;
            else
                code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        }
        binding_view_deinit(&views[i]);
    }
    return code;
}

/* Sessions of one config after `after`; *ret_full: the page is full, and its token is set. */
static enum berth_code add_config(struct binding *binding, struct page *page,
                                  const char *config_id, const char *after, bool *ret_full,
                                  struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *ids = NULL;
    size_t room = page->size - page->out->n_sessions, n;
    char key[BERTH_KEY_MAX];
    enum berth_code code;

    *ret_full = false;
    berth_key_index_config(key, page->tenant_id, config_id);
    code = members_after(binding, key, after, room + 1, &ids, err);
    if (code)
        return code;
    n = ids->n_items > room ? room : ids->n_items;
    code = add_sessions(binding, page, config_id, ids, n, err);
    if (code || ids->n_items <= room)
        return code;
    /* With no room left, the next page begins before the first of this config. */
    page->out->next_page_token = token_of(config_id, n ? ids->items[n - 1]->string : "");
    if (!page->out->next_page_token) {
        page->out->next_page_token = (char *)protobuf_c_empty_string;
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    *ret_full = true;
    return BERTH_OK;
}

static enum berth_code fill_page(struct binding *binding, struct page *page,
                                 const char *config_id, const char *from_config,
                                 const char *after, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *configs = NULL;
    bool full = false;
    enum berth_code code;

    if (config_id[0])
        return add_config(binding, page, config_id, after, &full, err);
    code = all_configs(binding, page->tenant_id, &configs, err);
    for (size_t i = 0; !code && !full && i < configs->n_items; i++) {
        const char *id = configs->items[i]->string;
        int order = strcmp(id, from_config);

        if (order >= 0)
            code = add_config(binding, page, id, order == 0 ? after : "", &full, err);
    }
    return code;
}

enum berth_code binding_rpc_list(void *service, struct berth_call *call,
                                 const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                 struct berth_error *err)
{
    const Berth__Binding__V1__ListBindingsRequest *req =
        (const Berth__Binding__V1__ListBindingsRequest *)message;
    struct page page = {.tenant_id = req->tenant_id};
    char config_id[ID_SIZE], after[ID_SIZE];
    uint32_t size = 0;
    enum berth_code code;

    (void)call;
    code = berth_check_id("tenant_id", req->tenant_id, err);
    if (!code)
        code = berth_check_id_or_empty("config_id", req->config_id, err);
    if (!code)
        code = check_page(req->page, &size, config_id, after, err);
    if (!code && req->config_id[0] && config_id[0] && strcmp(req->config_id, config_id) != 0)
        code = berth_fail_field(err, "page.page_token", "must be one of the same list");
    if (code)
        return code;
    page.size = size;
    page.out = malloc(sizeof *page.out);
    if (!page.out)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth__binding__v1__list_bindings_response__init(page.out);
    page.out->sessions = calloc(page.size, sizeof *page.out->sessions);
    if (!page.out->sessions)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    else
        code = fill_page(service, &page, req->config_id, config_id, after, err);
    if (code)
        protobuf_c_message_free_unpacked(&page.out->base, NULL);
    else
        *ret_resp = &page.out->base;
    return code;
}

/* ------------------------------------------------------------------------ ListDue */

static enum berth_code redis_time(struct binding *binding, char now[24],
                                  struct berth_error *err)
{
    static const char *const argv[] = {"TIME"};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    enum berth_code code = ask(binding, 1, argv, &reply, err);

    if (code)
        return code;
    if (reply->type != BERTH_REPLY_ARRAY || reply->n_items != 2)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "TIME: not the reply expected");
    snprintf(now, 24, "%.16s%03ld", reply->items[0]->string,
             strtol(reply->items[1]->string, NULL, 10) / 1000 % 1000);
    return BERTH_OK;
}

struct due_arg {
    bool *still_due;
};

/* Tidy expired tokens away; is there more to do than that? */
static enum berth_code due_rule(void *arg, struct binding_view *view, struct binding_plan *plan,
                                struct berth_error *err)
{
    const struct due_arg *due = arg;
    enum berth_code code;

    binding_cut(view);
    code = binding_finish(view, plan, true, err);
    if (!code) {
        int64_t at = binding_due_ms(&view->doc);

        *due->still_due = at && at <= view->now_ms;
        /* An entry that says something else than the document is put right. */
        if (!*due->still_due && view->doc.session.state != BINDING_STATE_NONE) {
            binding_doc_touch(&view->doc, BINDING_PART_SEQ);
            plan->reindex = true;
        }
    }
    return code;
}

static enum berth_code add_due(struct binding *binding, const char *tenant_id, const char *id,
                               Berth__Binding__V1__ListDueResponse *out,
                               struct berth_error *err)
{
    const struct binding_ref ref = {tenant_id, id, ""};
    bool still_due = false;
    struct due_arg arg = {&still_due};
    struct binding_view view;
    struct binding_plan plan = {0};
    enum berth_code code;

    code = binding_store_run(binding->store, &ref, due_rule, &arg, &view, &plan, err);
    if (code == BERTH_UNAVAILABLE)
        return code;
    if (!code) {
        binding_plan_deinit(&plan);
        binding_view_deinit(&view);
    }
    /* One that cannot be read or written is for somebody to look at, and hides no other. */
    if (!code && !still_due)
        return BERTH_OK;
    out->sessions[out->n_sessions] = binding_encode_ref(tenant_id, id);
    if (!out->sessions[out->n_sessions])
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    out->n_sessions++;
    return BERTH_OK;
}

/* At most n members due by now, from a score ("": the lowest) on. */
static enum berth_code due_members(struct binding *binding, const char *tenant_id,
                                   const char *from_score, size_t n, struct berth_reply **ret,
                                   struct berth_error *err)
{
    char key[BERTH_KEY_MAX], now[24], count[24];
    const char *argv[] = {"ZRANGEBYSCORE",
                          berth_key_due(key, tenant_id),
                          from_score[0] ? from_score : "-inf",
                          now,
                          "WITHSCORES",
                          "LIMIT",
                          "0",
                          count};
    enum berth_code code = redis_time(binding, now, err);

    if (code)
        return code;
    snprintf(count, sizeof count, "%zu", n);
    return ask(binding, BERTH_COUNT(argv), argv, ret, err);
}

static enum berth_code fill_due(struct binding *binding, const char *tenant_id,
                                const char *from_score, const char *after, size_t size,
                                Berth__Binding__V1__ListDueResponse *out,
                                struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *members = NULL;
    enum berth_code code;
    size_t n, i;

    code = due_members(binding, tenant_id, from_score, DUE_AT_ONCE, &members, err);
    if (code)
        return code;
    n = members->n_items / 2;
    for (i = 0; !code && i < n && out->n_sessions < size; i++) {
        const char *id = members->items[2 * i]->string;
        const char *score = members->items[2 * i + 1]->string;

        if (strcmp(score, from_score) != 0 || strcmp(id, after) > 0)
            code = add_due(binding, tenant_id, id, out, err);
    }
    if (code || i == 0 || (i == n && n < DUE_AT_ONCE))
        return code;
    out->next_page_token =
        token_of(members->items[2 * i - 1]->string, members->items[2 * i - 2]->string);
    if (out->next_page_token)
        return BERTH_OK;
    out->next_page_token = (char *)protobuf_c_empty_string;
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

enum berth_code binding_rpc_list_due(void *service, struct berth_call *call,
                                     const ProtobufCMessage *message,
                                     ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const Berth__Binding__V1__ListDueRequest *req =
        (const Berth__Binding__V1__ListDueRequest *)message;
    Berth__Binding__V1__ListDueResponse *out;
    char score[ID_SIZE], after[ID_SIZE];
    uint32_t size = 0;
    enum berth_code code;

    (void)call;
    code = berth_check_id("tenant_id", req->tenant_id, err);
    if (!code)
        code = check_page(req->page, &size, score, after, err);
    if (!code && strspn(score, "0123456789") != strlen(score))
        code = berth_fail_field(err, "page.page_token", "must be one that this method gave");
    if (code)
        return code;
    out = malloc(sizeof *out);
    if (!out)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth__binding__v1__list_due_response__init(out);
    out->sessions = calloc(size, sizeof *out->sessions);
    if (!out->sessions)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    else
        code = fill_due(service, req->tenant_id, score, after, size, out, err);
    if (code)
        protobuf_c_message_free_unpacked(&out->base, NULL);
    else
        *ret_resp = &out->base;
    return code;
}

/* -------------------------------------------------------------------- FindSession */

enum berth_code binding_rpc_find(void *service, struct berth_call *call,
                                 const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                 struct berth_error *err)
{
    const Berth__Binding__V1__FindSessionRequest *req =
        (const Berth__Binding__V1__FindSessionRequest *)message;
    struct binding *binding = service;
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    Berth__Binding__V1__FindSessionResponse *out;
    char key[BERTH_KEY_MAX];
    const char *argv[] = {"HGET", key, req->alias};
    enum berth_code code;

    (void)call;
    code = berth_check_id("tenant_id", req->tenant_id, err);
    if (!code)
        code = binding_check_alias("alias", req->alias, err);
    if (code)
        return code;
    berth_key_alias(key, req->tenant_id);
    code = ask(binding, BERTH_COUNT(argv), argv, &reply, err);
    if (!code && reply->type != BERTH_REPLY_STRING)
        code = binding_store_absent(binding->store, BERTH_REASON_SESSION_NOT_FOUND, err);
    if (code)
        return code;
    out = malloc(sizeof *out);
    if (!out)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth__binding__v1__find_session_response__init(out);
    out->session = binding_encode_ref(req->tenant_id, reply->string);
    if (!out->session) {
        free(out);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    *ret_resp = &out->base;
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- MarkStale */

struct mark {
    const char *tenant_id, *config_id;
    uint64_t generation;
    uint32_t marked, not_marked;
};

static enum berth_code mark_rule(void *arg, struct binding_view *view,
                                 struct binding_plan *plan, struct berth_error *err)
{
    const struct mark *mark = arg;

    return binding_mark_stale(view, mark->generation, plan, err);
}

static void mark_one(struct binding *binding, struct mark *mark, const char *id)
{
    const struct binding_ref ref = {mark->tenant_id, id, ""};
    enum berth_code code = BERTH_ABORTED;

    for (int i = 0; code == BERTH_ABORTED && i < MARK_TRIES; i++) {
        struct binding_view view;
        struct binding_plan plan = {0};

        code = binding_store_run(binding->store, &ref, mark_rule, mark, &view, &plan, NULL);
        if (code)
            continue;
        mark->marked += plan.n_events > 0;
        binding_plan_deinit(&plan);
        binding_view_deinit(&view);
    }
    mark->not_marked += code != BERTH_OK;
}

/* Errors: only those of a store that is away. */
static enum berth_code mark_some(struct binding *binding, struct mark *mark,
                                 struct berth_reply *const *items, size_t n,
                                 struct berth_error *err)
{
    const char *ids[BINDING_TOGETHER_MAX];
    struct berth_error why = {0};
    size_t written = 0;
    bool done = false;
    enum berth_code code;

    for (size_t i = 0; i < n; i++)
        ids[i] = items[i]->string;
    code = binding_store_run_together(binding->store, mark->tenant_id, mark->config_id, ids, n,
                                      mark_rule, mark, &done, &written, &why);
    if (code == BERTH_UNAVAILABLE || code == BERTH_UNKNOWN) {
        if (err)
            *err = why;
        return code;
    }
    mark->marked += (uint32_t)written;
    for (size_t i = 0; !done && i < n; i++)
        mark_one(binding, mark, ids[i]);
    return BERTH_OK;
}

/* Those after `after`, which goes on to the last of them; *ret_n: how many there were. */
static enum berth_code mark_next(struct binding *binding, struct berth_call *call,
                                 struct mark *mark, char after[ID_SIZE], size_t *ret_n,
                                 struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *ids = NULL;
    char key[BERTH_KEY_MAX];
    enum berth_code code;

    berth_key_index_config(key, mark->tenant_id, mark->config_id);
    code = members_after(binding, key, after, MARK_AT_ONCE, &ids, err);
    if (code)
        return code;
    for (size_t at = 0; !code && at < ids->n_items; at += BINDING_TOGETHER_MAX) {
        size_t left = ids->n_items - at;

        if (berth_call_cancelled(call))
            return berth_fail(err, BERTH_REASON_CANCELLED, NULL);
        code = mark_some(binding, mark, ids->items + at,
                         left < BINDING_TOGETHER_MAX ? left : BINDING_TOGETHER_MAX, err);
    }
    if (code)
        return code;
    *ret_n = ids->n_items;
    if (ids->n_items)
        snprintf(after, ID_SIZE, "%.*s", ID_SIZE - 1, ids->items[ids->n_items - 1]->string);
    return BERTH_OK;
}

enum berth_code binding_rpc_mark_stale(void *service, struct berth_call *call,
                                       const ProtobufCMessage *message,
                                       ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const Berth__Binding__V1__MarkStaleRequest *req =
        (const Berth__Binding__V1__MarkStaleRequest *)message;
    struct mark mark = {req->tenant_id, req->config_id, req->generation, 0, 0};
    Berth__Binding__V1__MarkStaleResponse *out;
    char after[ID_SIZE] = "";
    size_t n = MARK_AT_ONCE;
    enum berth_code code;

    code = berth_check_id("tenant_id", req->tenant_id, err);
    if (!code)
        code = berth_check_id("config_id", req->config_id, err);
    if (!code && (req->generation == 0 || req->generation > INT64_MAX))
        code = berth_fail_field(err, "generation", "must be at least 1");
    while (!code && n == MARK_AT_ONCE)
        code = mark_next(service, call, &mark, after, &n, err);
    if (code)
        return code;
    out = malloc(sizeof *out);
    if (!out)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth__binding__v1__mark_stale_response__init(out);
    out->sessions_marked = mark.marked;
    out->sessions_not_marked = mark.not_marked;
    *ret_resp = &out->base;
    return BERTH_OK;
}

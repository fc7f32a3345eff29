/* test_rpc.c - the calls about records, turns and lists, over the wire. */
#include <stdio.h>

#include "common/records/keys.h"
#include "common/time/time.h"
#include "tests/component/binding/house.h"

typedef Berth__Binding__V1__GetBindingResponse GetBindingResponse;
typedef Berth__Binding__V1__ListBindingsRequest ListBindingsRequest;
typedef Berth__Binding__V1__ListBindingsResponse ListBindingsResponse;
typedef Berth__Binding__V1__ListDueRequest ListDueRequest;
typedef Berth__Binding__V1__ListDueResponse ListDueResponse;

static struct house house;
static struct proxy proxy;

static void setup(void)
{
    house_open(&house, &(struct house_options){
                           .turn_min_ms = 20, .lock_ms = 60000, .tombstone_ms = 300});
}

static void setup_proxy(void)
{
    house_open(&house, &(struct house_options){.proxy = &proxy, .command_ms = 800});
}

static void teardown(void)
{
    house_close(&house);
}

static Berth__Common__V1__SessionRef ref_of(const char *session)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)session;
    return ref;
}

static enum berth_reason get(const char *session, GetBindingResponse **ret)
{
    Berth__Binding__V1__GetBindingRequest req = BERTH__BINDING__V1__GET_BINDING_REQUEST__INIT;
    Berth__Common__V1__SessionRef ref = ref_of(session);

    req.session = &ref;
    return house_call(&house, 1, METHOD("GetBinding"), &req.base,
                      &berth__binding__v1__get_binding_response__descriptor, 0, ret);
}

/* What was bound is what is told, byte for byte. */
START_TEST(get_binding__bound__whole)
{
    GetBindingResponse *got = NULL;

    ck_reason(get("s", NULL), "SESSION_NOT_FOUND");
    house_make(&house, "s", "sb");
    ck_reason(get("s", &got), "");
    ck_assert_str_eq(got->session->ref->tenant_id, "t1");
    ck_assert_str_eq(got->session->ref->session_id, "s");
    ck_assert_int_eq(got->session->state,
                     BERTH__COMMON__V1__SESSION_STATE__SESSION_STATE_ACTIVE);
    ck_assert_int_eq(got->session->kind, BERTH__BINDING__V1__SESSION_KIND__SESSION_KIND_USER);
    ck_assert_str_eq(got->session->spec->config_id, "c1");
    ck_assert_uint_eq(got->session->version, 1);
    ck_assert_uint_eq(strlen(got->session->alias), 20);
    ck_assert_str_eq(got->binding->backend, "local");
    ck_assert_uint_eq(got->binding->account.len, 32);
    ck_assert_uint_eq(got->binding->account.data[31], 0xaa);
    ck_assert_uint_eq(got->binding->sealed_endpoint.len, 6);
    ck_assert_int_eq(memcmp(got->binding->sealed_endpoint.data, "sealed", 6), 0);
    ck_assert_int_eq(got->binding->power, BERTH__BINDING__V1__POWER__POWER_RUNNING);
    ck_assert(!got->protected_ && !got->stale && !got->turn_running);
    protobuf_c_message_free_unpacked(&got->base, NULL);
}
END_TEST

/* The record made by one caller keeps its spec; another version is refused, another config too.
 */
START_TEST(update_session__version_and_config__checked)
{
    Berth__Binding__V1__UpdateSessionRequest req =
        BERTH__BINDING__V1__UPDATE_SESSION_REQUEST__INIT;
    Berth__Binding__V1__UpdateSessionResponse *resp = NULL;
    Berth__Common__V1__SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Common__V1__SessionSpec__LabelsEntry label =
        BERTH__COMMON__V1__SESSION_SPEC__LABELS_ENTRY__INIT;
    Berth__Common__V1__SessionSpec__LabelsEntry *labels[] = {&label};
    Berth__Common__V1__SessionRef ref = ref_of("s");
    const ProtobufCMessageDescriptor *type =
        &berth__binding__v1__update_session_response__descriptor;

    req.session = &ref;
    req.spec = &spec;
    ck_reason(house_call(&house, 0, METHOD("UpdateSession"), &req.base, type, 0, NULL),
              "SESSION_NOT_FOUND");
    house_make(&house, "s", "sb");
    label.key = (char *)"team";
    label.value = (char *)"b\xc3\xa4r";
    spec.labels = labels;
    spec.n_labels = 1;
    req.version = 2;
    ck_reason(house_call(&house, 0, METHOD("UpdateSession"), &req.base, type, 0, NULL),
              "ETAG_MISMATCH");
    req.version = 1;
    spec.config_id = (char *)"c2";
    ck_reason(house_call(&house, 0, METHOD("UpdateSession"), &req.base, type, 0, NULL),
              "CONFIG_PINNED");
    spec.config_id = (char *)protobuf_c_empty_string;
    ck_reason(house_call(&house, 0, METHOD("UpdateSession"), &req.base, type, 0, &resp), "");
    ck_assert_uint_eq(resp->session->version, 2);
    ck_assert_str_eq(resp->session->spec->config_id, "c1");
    ck_assert_str_eq(resp->session->spec->labels[0]->value, "b\xc3\xa4r");
    protobuf_c_message_free_unpacked(&resp->base, NULL);
    req.spec = NULL;
    ck_reason(house_call(&house, 0, METHOD("UpdateSession"), &req.base, type, 0, NULL),
              "FIELD_INVALID");
}
END_TEST

static enum berth_reason find(const char *alias, char *session)
{
    Berth__Binding__V1__FindSessionRequest req = BERTH__BINDING__V1__FIND_SESSION_REQUEST__INIT;
    Berth__Binding__V1__FindSessionResponse *resp = NULL;
    enum berth_reason reason;

    req.tenant_id = (char *)"t1";
    req.alias = (char *)alias;
    reason = house_call(&house, 0, METHOD("FindSession"), &req.base,
                        &berth__binding__v1__find_session_response__descriptor, 0, &resp);
    if (!reason) {
        snprintf(session, 129, "%s", resp->session->session_id);
        protobuf_c_message_free_unpacked(&resp->base, NULL);
    }
    return reason;
}

static void delete_session(const char *session, const char *sandbox_id)
{
    struct grant grant = house_acquire(
        &house, 0, (struct want){session, .kind = BINDING_WANT_DELETE, .attempt = 77});

    ck_reason(grant.reason, "");
    ck_reason(house_gone(&house, 0, session, &grant, sandbox_id, true), "");
    ck_reason(house_tombstone(&house, 0, session, &grant), "");
}

/* A session is found by its alias as long as there is one, and leaves nothing behind when the
 * tombstone's time is over. */
START_TEST(delete_session__tombstone_over__no_key_left)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *keys = NULL;
    GetBindingResponse *got = NULL;
    char alias[32], session[129] = "";

    house_make(&house, "s", "sb");
    snprintf(alias, sizeof alias, "%s",
             house_acquire(&house, 0, (struct want){"s", .attempt = 5}).alias);
    ck_reason(find(alias, session), "");
    ck_assert_str_eq(session, "s");
    ck_reason(find("aaaaaaaaaaaaaaaaaaaa", session), "SESSION_NOT_FOUND");
    ck_reason(find("short", session), "FIELD_INVALID");

    delete_session("s", "sb");
    ck_reason(find(alias, session), "SESSION_NOT_FOUND");
    ck_reason(get("s", &got), "");
    ck_assert_int_eq(got->session->state,
                     BERTH__COMMON__V1__SESSION_STATE__SESSION_STATE_DELETED);
    ck_assert_ptr_null(got->binding);
    protobuf_c_message_free_unpacked(&got->base, NULL);
    await(strcmp(house_field(&house, "s", "rev"), "") == 0);
    /* Left are the tenant's, its config's, the two of the deployment, and the events. */
    keys = redis_run(house.redis, "KEYS", "*", NULL);
    for (size_t i = 0; i < keys->n_items; i++)
        ck_assert_msg(!strstr(keys->items[i]->string, ":s/") &&
                          !strstr(keys->items[i]->string, "i/c/") &&
                          !strstr(keys->items[i]->string, "i/due") &&
                          !strstr(keys->items[i]->string, "i/alias"),
                      "%s", keys->items[i]->string);
    ck_reason(get("s", NULL), "SESSION_NOT_FOUND");
    house_make(&house, "s", "sb2");
}
END_TEST

/* The events of a session in the order they happened, numbered without gaps. */
START_TEST(events__life_of_session__in_order_without_gaps)
{
    static const char *const kinds[] = {"CREATED", "TURN_BEGUN", "SESSION_DELETED"};
    BERTH_AUTO(berth_reply_free) struct berth_reply *events = NULL;
    char token[160], seq[16];

    house_make(&house, "s", "sb");
    ck_reason(house_begin(&house, 0, "s", "t", token), "");
    delete_session("s", "sb");
    events = redis_run(house.redis, "XRANGE", "berth:{t1}:ev", "-", "+", NULL);
    ck_assert_uint_eq(events->n_items, BERTH_COUNT(kinds));
    for (size_t i = 0; i < BERTH_COUNT(kinds); i++) {
        struct berth_reply **field = events->items[i]->items[1]->items;

        snprintf(seq, sizeof seq, "%zu", i + 1);
        ck_assert_str_eq(field[0]->string, "kind");
        ck_assert_str_eq(field[1]->string, kinds[i]);
        ck_assert_str_eq(field[2]->string, "event_id");
        ck_assert_uint_eq(strspn(field[3]->string, "0123456789abcdef"), 32);
        ck_assert_uint_eq(field[3]->size, 32);
        ck_assert_str_eq(field[5]->string, "s");
        ck_assert_str_eq(field[7]->string, "c1");
        for (size_t k = 8; k + 1 < events->items[i]->items[1]->n_items; k += 2)
            if (strcmp(field[k]->string, "seq") == 0)
                ck_assert_str_eq(field[k + 1]->string, seq);
    }
}
END_TEST

/* --------------------------------------------------------------------------- lists */

static ListBindingsResponse *list(const char *config, int size, const char *token,
                                  enum berth_reason *ret_reason)
{
    ListBindingsRequest req = BERTH__BINDING__V1__LIST_BINDINGS_REQUEST__INIT;
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    ListBindingsResponse *resp = NULL;
    enum berth_reason reason;

    req.tenant_id = (char *)"t1";
    req.config_id = (char *)config;
    page.page_size = size;
    page.page_token = (char *)token;
    req.page = &page;
    reason = house_call(&house, 0, METHOD("ListBindings"), &req.base,
                        &berth__binding__v1__list_bindings_response__descriptor, 0, &resp);
    if (ret_reason)
        *ret_reason = reason;
    else
        ck_reason(reason, "");
    return resp;
}

static void make_in(const char *config, const char *session)
{
    struct acquire_parts parts;
    AcquireRequest req;

    house_fill_acquire((struct want){session, .attempt = 1}, &parts, &req);
    parts.spec.config_id = (char *)config;
    req.spec_if_new = &parts.spec;
    ck_reason(house_call(&house, 0, METHOD("Acquire"), &req.base,
                         &berth__binding__v1__acquire_response__descriptor, 0, NULL),
              "");
}

/* Pages of every size give each session once, in order, over all configs; also while sessions
 * come and go. */
START_TEST(list_bindings__pages__each_once)
{
    char token[1024] = "", last[300] = "", now[300], name[16];
    int seen = 0;

    house_ask(&house, "HSET", "berth:{t1}:c/c0", "rev", "00000000000000c0", "state", "active",
              "account", "", "template", "x", "keyed", "0", NULL);
    house_ask(&house, "ZADD", "berth:{t1}:i/configs", "0", "c0", NULL);
    for (int i = 0; i < 75; i++) {
        snprintf(name, sizeof name, "s%02d", i);
        make_in(i % 3 ? "c1" : "c0", name);
    }
    do {
        ListBindingsResponse *page = list("", 1 + _i * _i, token, NULL);

        ck_assert_uint_le(page->n_sessions, 1 + (size_t)_i * (size_t)_i);
        for (size_t i = 0; i < page->n_sessions; i++) {
            snprintf(now, sizeof now, "%s/%s", page->sessions[i]->session->spec->config_id,
                     page->sessions[i]->session->ref->session_id);
            ck_assert_str_gt(now, last);
            snprintf(last, sizeof last, "%s", now);
            seen++;
        }
        snprintf(token, sizeof token, "%s", page->next_page_token);
        protobuf_c_message_free_unpacked(&page->base, NULL);
    } while (token[0]);
    ck_assert_int_eq(seen, 75);
}
END_TEST

/* One config; a deleted session is not among them; what a page token may be. */
START_TEST(list_bindings__config_and_token__checked)
{
    static const char *const bad[] = {"x", "00", "2f2f2f", "6331", "63312fe4", "6331612f622f63",
                                      "ff"};
    ListBindingsResponse *page;
    enum berth_reason reason;

    house_make(&house, "a", "sa");
    house_make(&house, "b", "sb");
    delete_session("a", "sa");
    page = list("c1", 0, "", NULL);
    ck_assert_uint_eq(page->n_sessions, 1);
    ck_assert_str_eq(page->sessions[0]->binding->sandbox_id, "sb");
    ck_assert_uint_eq(page->sessions[0]->binding->sealed_endpoint.len, 0);
    ck_assert_str_eq(page->next_page_token, "");
    protobuf_c_message_free_unpacked(&page->base, NULL);
    page = list("c2", 0, "", NULL);
    ck_assert_uint_eq(page->n_sessions, 0);
    protobuf_c_message_free_unpacked(&page->base, NULL);
    for (size_t i = 0; i < BERTH_COUNT(bad); i++) {
        (void)list("c1", 0, bad[i], &reason);
        ck_assert_msg(reason == BERTH_REASON_FIELD_INVALID, "%s", bad[i]);
    }
    (void)list("c1", -1, "", &reason);
    ck_reason(reason, "FIELD_INVALID");
    (void)list("c/1", 0, "", &reason);
    ck_reason(reason, "FIELD_INVALID");
}
END_TEST

static ListDueResponse *due(int size, const char *token)
{
    ListDueRequest req = BERTH__BINDING__V1__LIST_DUE_REQUEST__INIT;
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    ListDueResponse *resp = NULL;

    req.tenant_id = (char *)"t1";
    page.page_size = size;
    page.page_token = (char *)token;
    req.page = &page;
    ck_reason(house_call(&house, 0, METHOD("ListDue"), &req.base,
                         &berth__binding__v1__list_due_response__descriptor, 0, &resp),
              "");
    return resp;
}

/* Due: a delete nobody finishes, a create nobody settled. Not due: what a holder works on, what
 * is in order, and turns that ran out, which are tidied away. */
START_TEST(list_due__what_needs_somebody__only_that)
{
    Berth__Binding__V1__BeginTurnRequest turn = BERTH__BINDING__V1__BEGIN_TURN_REQUEST__INIT;
    Google__Protobuf__Duration lease = GOOGLE__PROTOBUF__DURATION__INIT;
    Berth__Common__V1__SessionRef ref = ref_of("turned");
    struct grant grant;
    ListDueResponse *got;

    house_make(&house, "fine", "f");
    house_make(&house, "turned", "t");
    lease.nanos = 30000000;
    turn.session = &ref;
    turn.turn_id = (char *)"x";
    turn.lease = &lease;
    ck_reason(house_call(&house, 0, METHOD("BeginTurn"), &turn.base,
                         &berth__binding__v1__begin_turn_response__descriptor, 0, NULL),
              "");
    (void)house_acquire(&house, 0, (struct want){"working", .attempt = 1});
    grant = house_acquire(&house, 0, (struct want){"unsettled", .attempt = 1});
    ck_reason(house_abort(&house, 0, "unsettled", &grant), "");
    house_make(&house, "deleting", "d");
    grant = house_acquire(&house, 0,
                          (struct want){"deleting", .kind = BINDING_WANT_DELETE, .attempt = 3});
    ck_reason(house_abort(&house, 0, "deleting", &grant), "");

    await(strtol(house_ask(&house, "ZSCORE", "berth:{t1}:i/due", "turned", NULL), NULL, 10) <=
          berth_now_ms());
    got = due(0, "");
    ck_assert_uint_eq(got->n_sessions, 2);
    ck_assert_str_eq(got->next_page_token, "");
    protobuf_c_message_free_unpacked(&got->base, NULL);
    ck_assert_str_eq(house_ask(&house, "ZSCORE", "berth:{t1}:i/due", "turned", NULL), "");
    ck_assert_ptr_null(strstr(house_field(&house, "turned", "turns"), "x."));

    got = due(1, "");
    ck_assert_uint_eq(got->n_sessions, 1);
    ck_assert_str_ne(got->next_page_token, "");
    {
        ListDueResponse *next = due(1, got->next_page_token);

        ck_assert_uint_eq(next->n_sessions, 1);
        ck_assert_str_ne(next->sessions[0]->session_id, got->sessions[0]->session_id);
        protobuf_c_message_free_unpacked(&next->base, NULL);
    }
    protobuf_c_message_free_unpacked(&got->base, NULL);
}
END_TEST

/* An entry that says something else than its document is put right by looking. */
START_TEST(list_due__entry_out_of_date__put_right)
{
    ListDueResponse *got;

    house_make(&house, "fine", "f");
    house_ask(&house, "ZADD", "berth:{t1}:i/due", "1", "fine", NULL);
    got = due(0, "");
    ck_assert_uint_eq(got->n_sessions, 0);
    protobuf_c_message_free_unpacked(&got->base, NULL);
    ck_assert_str_eq(house_ask(&house, "ZSCORE", "berth:{t1}:i/due", "fine", NULL), "");
}
END_TEST

/* ----------------------------------------------------------------- stale, turns, uses */

static uint32_t mark(uint64_t generation, uint32_t not_marked)
{
    Berth__Binding__V1__MarkStaleRequest req = BERTH__BINDING__V1__MARK_STALE_REQUEST__INIT;
    Berth__Binding__V1__MarkStaleResponse *resp = NULL;
    uint32_t marked;

    req.tenant_id = (char *)"t1";
    req.config_id = (char *)"c1";
    req.generation = generation;
    ck_reason(house_call(&house, 0, METHOD("MarkStale"), &req.base,
                         &berth__binding__v1__mark_stale_response__descriptor, 0, &resp),
              "");
    ck_assert_uint_eq(resp->sessions_not_marked, not_marked);
    marked = resp->sessions_marked;
    protobuf_c_message_free_unpacked(&resp->base, NULL);
    return marked;
}

/* A session made, and n more that are like it; all are told of their making by one event. */
static void make_many(const char *session, int n)
{
    char count[12];

    snprintf(count, sizeof count, "%d", n);
    house_make(&house, session, "sb");
    house_ask(&house, "EVAL",
              "for i = 1, tonumber(ARGV[2]) do "
              "redis.call('COPY', KEYS[1], KEYS[1] .. i) "
              "redis.call('ZADD', KEYS[2], 0, ARGV[1] .. i) end",
              "2", berth_key_session((char[BERTH_KEY_MAX]){0}, "t1", session),
              "berth:{t1}:i/c/c1", session, count, NULL);
    house_ask(&house, "DEL", "berth:{t1}:ev", NULL);
}

static long n_events(void)
{
    return strtol(house_ask(&house, "EVAL", "return tostring(redis.call('XLEN', KEYS[1]))", "1",
                            "berth:{t1}:ev", NULL),
                  NULL, 10);
}

/* A flip that is told again, since its teller did not get to the end, is told to nobody twice;
 * the next one is. */
START_TEST(mark_stale__again__told_once)
{
    make_many("s", 2);
    ck_assert_uint_eq(mark(3, 0), 3);
    ck_assert_uint_eq(mark(3, 0), 0);
    ck_assert_uint_eq(mark(2, 0), 0);
    ck_assert_int_eq(n_events(), 3);
    ck_assert_uint_eq(mark(4, 0), 3);
    ck_assert_int_eq(n_events(), 6);
}
END_TEST

/* Many are written together: some trips in all. One that does not validate is the only one that
 * goes without. */
START_TEST(mark_stale__many__in_few_trips)
{
    enum { MANY = 3 * BINDING_TOGETHER_MAX };
    const char *stats, *calls;

    make_many("s", MANY - 1);
    house_ask(&house, "CONFIG", "RESETSTAT", NULL);
    ck_assert_uint_eq(mark(3, 0), MANY);
    stats = house_ask(&house, "INFO", "commandstats", NULL);
    calls = strstr(stats, "cmdstat_evalsha:calls=");
    ck_assert_ptr_nonnull(calls);
    ck_assert_int_le(strtol(strchr(calls, '=') + 1, NULL, 10), MANY / BINDING_TOGETHER_MAX + 1);
    ck_assert_int_eq(n_events(), MANY);
    house_ask(&house, "HSET", "berth:{t1}:s/s7", "binding", "{\"generation\":-1}", NULL);
    ck_assert_uint_eq(mark(4, 1), MANY - 1);
    ck_assert_int_eq(n_events(), 2 * MANY - 1);
}
END_TEST

/* Whichever way a write of many is lost, it is not done by half and not done twice. */
START_TEST(mark_stale__write_lost__each_told_once)
{
    static const enum proxy_loss losses[] = {PROXY_LOSE_REQUEST, PROXY_LOSE_REPLY};
    enum { MANY = BINDING_TOGETHER_MAX + 5 };

    make_many("s", MANY - 1);
    atomic_store(&proxy.loss, losses[_i]);
    ck_assert_uint_eq(mark(3, 0), MANY);
    ck_assert_int_eq(atomic_load(&proxy.lost), 1);
    ck_assert_int_eq(n_events(), MANY);
}
END_TEST

/* The mark is an event and no more: stale comes from the config, read in the same trip. */
START_TEST(mark_stale__flip__event_for_each_bound)
{
    struct grant got;

    house_make(&house, "a", "sa");
    house_make(&house, "b", "sb");
    house_make(&house, "sk.r1", "si");
    (void)house_acquire(&house, 0, (struct want){"unbound", .attempt = 1});
    ck_assert_uint_eq(mark(3, 0), 2);
    got = house_acquire(&house, 0, (struct want){"a", .attempt = 2});
    ck_assert_int_eq(got.decision, BINDING_USE);
    ck_assert(!got.stale);
    house_ask(&house, "HSET", "berth:{t1}:c/c1", "image",
              "{\"generation\":3,\"rebuild_before\":3}", NULL);
    got = house_acquire(&house, 0, (struct want){"a", .attempt = 3});
    ck_assert_int_eq(got.decision, BINDING_REBUILD);
    ck_assert(got.stale);
    got = house_acquire(&house, 0, (struct want){"sk.r1", .attempt = 3});
    ck_assert_int_eq(got.decision, BINDING_USE);
}
END_TEST

static enum berth_reason use(const char *session, const char *token, const char *sandbox_id,
                             bool end)
{
    Berth__Binding__V1__RenewUseRequest req = BERTH__BINDING__V1__RENEW_USE_REQUEST__INIT;
    Berth__Common__V1__SessionRef ref = ref_of(session);

    req.session = &ref;
    req.use_token = (char *)token;
    req.sandbox_id = (char *)sandbox_id;
    req.end = end;
    return house_call(&house, 0, METHOD("RenewUse"), &req.base,
                      &berth__binding__v1__renew_use_response__descriptor, 0, NULL);
}

static enum berth_reason renew(const char *session, const char *token)
{
    Berth__Binding__V1__RenewTurnRequest req = BERTH__BINDING__V1__RENEW_TURN_REQUEST__INIT;
    Berth__Common__V1__SessionRef ref = ref_of(session);

    req.session = &ref;
    req.turn_token = (char *)token;
    return house_call(&house, 0, METHOD("RenewTurn"), &req.base,
                      &berth__binding__v1__renew_turn_response__descriptor, 0, NULL);
}

static enum berth_reason end(const char *session, const char *token)
{
    Berth__Binding__V1__EndTurnRequest req = BERTH__BINDING__V1__END_TURN_REQUEST__INIT;
    Berth__Common__V1__SessionRef ref = ref_of(session);

    req.session = &ref;
    req.turn_token = (char *)token;
    return house_call(&house, 0, METHOD("EndTurn"), &req.base,
                      &berth__binding__v1__end_turn_response__descriptor, 0, NULL);
}

/* Turns and uses of two callers at once, over both replicas: nothing is lost. */
START_TEST(turns_and_uses__side_by_side__each_its_own)
{
    char first[160], second[160];
    GetBindingResponse *got = NULL;

    house_make(&house, "s", "sb");
    ck_reason(house_begin(&house, 0, "s", "a", first), "");
    ck_reason(house_begin(&house, 1, "s", "b", second), "");
    ck_reason(use("s", "stream-1", "sb", false), "");
    ck_reason(use("s", "stream-1", "other", false), "TURN_EXPIRED");
    ck_reason(renew("s", first), "");
    ck_reason(renew("s", "a.0000000000000000000000"), "TURN_EXPIRED");
    ck_reason(end("s", first), "");
    ck_reason(end("s", first), "");
    ck_reason(renew("s", first), "TURN_EXPIRED");
    ck_reason(get("s", &got), "");
    ck_assert(got->turn_running && got->protected_);
    protobuf_c_message_free_unpacked(&got->base, NULL);
    ck_reason(use("s", "stream-1", "", true), "");
    ck_reason(end("s", second), "");
    ck_reason(get("s", &got), "");
    ck_assert(!got->turn_running && !got->protected_);
    protobuf_c_message_free_unpacked(&got->base, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/rpc");
    TCase *tc = tcase_create("rpc"), *lossy = tcase_create("lossy");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, get_binding__bound__whole);
    tcase_add_test(tc, update_session__version_and_config__checked);
    tcase_add_test(tc, delete_session__tombstone_over__no_key_left);
    tcase_add_test(tc, events__life_of_session__in_order_without_gaps);
    tcase_add_loop_test(tc, list_bindings__pages__each_once, 0, 10);
    tcase_add_test(tc, list_bindings__config_and_token__checked);
    tcase_add_test(tc, list_due__what_needs_somebody__only_that);
    tcase_add_test(tc, list_due__entry_out_of_date__put_right);
    tcase_add_test(tc, mark_stale__flip__event_for_each_bound);
    tcase_add_test(tc, mark_stale__again__told_once);
    tcase_add_test(tc, mark_stale__many__in_few_trips);
    tcase_add_test(tc, turns_and_uses__side_by_side__each_its_own);
    tcase_add_checked_fixture(lossy, setup_proxy, teardown);
    tcase_set_timeout(lossy, 60);
    tcase_add_loop_test(lossy, mark_stale__write_lost__each_told_once, 0, 2);
    suite_add_tcase(suite, tc);
    suite_add_tcase(suite, lossy);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* test_sessions.c - sessions from the first resolve to the tombstone, over a real Redis and a
 * real binding, with a backend that does as it is told. */
#include <stdio.h>

#include "tests/component/controlplane/town.h"

#define OUTCOME(name) BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_##name
#define SANDBOX(name) BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_##name

static struct town town;

static void open_town(void)
{
    town_open(&town, &(struct town_options){0});
}

static void close_town(void)
{
    town_close(&town);
}

/* The first resolve makes a sandbox with everything said explicitly; the next one uses it. */
START_TEST(resolve__new_session__created_then_used)
{
    struct fake_sandbox *made;
    int outcome;

    ck_assert_str_eq(town_box(&town, "s1", &outcome), "box-1");
    ck_assert_int_eq(outcome, OUTCOME(CREATED));
    ck_assert_str_eq(town_box(&town, "s1", &outcome), "box-1");
    ck_assert_int_eq(outcome, OUTCOME(USED));

    made = fake_only(town.fake);
    ck_assert_ptr_nonnull(made);
    ck_assert_str_eq(fake_tag(made, "berth.deployment"), "test");
    ck_assert_str_eq(fake_tag(made, "berth.tenant"), "t1");
    ck_assert_str_eq(fake_tag(made, "berth.session"), "s1");
    ck_assert_str_eq(fake_tag(made, "berth.config"), "c1");
    ck_assert_str_eq(fake_tag(made, "berth.backend"), "local");
    ck_assert_str_eq(fake_tag(made, "berth.kind"), "session");
    ck_assert_str_eq(fake_tag(made, "berth.v"), "1");
    ck_assert_uint_eq(strlen(fake_tag(made, "berth.account")), 64);
    ck_assert_uint_eq(strlen(fake_tag(made, "berth.attempt")), 32);
    ck_assert_uint_eq(strlen(made->key), 32);
    ck_assert_int_eq(made->egress, BERTH__COMMON__V1__SWITCH__SWITCH_OPEN);
    ck_assert_int_eq(made->inbound, BERTH__COMMON__V1__SWITCH__SWITCH_CLOSED);
    ck_assert_int_eq(made->auto_resume, BERTH__COMMON__V1__SWITCH__SWITCH_OPEN);
    ck_assert_int_eq(made->on_idle, BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_PAUSE);
    ck_assert_int_eq(made->idle_ms, 30 * 60 * 1000);
    ck_assert_str_eq(made->template_id, "base");
}
END_TEST

/* Labels travel as u.<key>, and cannot stand in for Berth's own tags. */
START_TEST(resolve__labels_and_env__prefixed_and_reserved_refused)
{
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Common__V1__SessionSpec__LabelsEntry label =
        BERTH__COMMON__V1__SESSION_SPEC__LABELS_ENTRY__INIT;
    Berth__Common__V1__SessionSpec__LabelsEntry *labels[] = {&label};
    Resolved *resolved = NULL;

    label.key = (char *)"team";
    label.value = (char *)"blue";
    spec.labels = labels;
    spec.n_labels = 1;
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", &spec, NULL, &resolved),
                     BERTH_REASON_NONE);
    berth_message_free(resolved);
    ck_assert_str_eq(fake_tag(fake_only(town.fake), "u.team"), "blue");

    label.key = (char *)"berth.tenant";
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s2", &spec, NULL, NULL),
                     BERTH_REASON_RESERVED_KEY);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
}
END_TEST

/* How often Redis ran a command since the statistics were reset. */
static unsigned long ran(const char *name)
{
    struct berth_reply *reply = redis_run(town.store, "INFO", "commandstats", NULL);
    char wanted[64];
    const char *at;
    unsigned long n;

    snprintf(wanted, sizeof wanted, "cmdstat_%s:calls=", name);
    at = strstr(reply->string, wanted);
    n = at ? strtoul(at + strlen(wanted), NULL, 10) : 0;
    berth_reply_free(reply);
    return n;
}

/* A warm resolve is one call to binding, one trip to Redis, and none to the backend. */
START_TEST(resolve__warm__one_round_trip)
{
    enum { CALLS = 500 };
    /* Besides: the readiness of two services, and the cache reading again. */
    const unsigned long others = 60;

    (void)town_box(&town, "s1", NULL);
    fake_forget_calls(town.fake);
    berth_reply_free(redis_run(town.store, "CONFIG", "RESETSTAT", NULL));
    for (int i = 0; i < CALLS; i++)
        (void)town_box(&town, "s1", NULL);
    ck_assert_uint_ge(ran("evalsha_ro"), CALLS);
    ck_assert_uint_le(ran("evalsha_ro"), CALLS + others);
    ck_assert_uint_eq(ran("evalsha"), 0);
    ck_assert_uint_le(ran("get"), others);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_GET) + fake_count(town.fake, FAKE_CONNECT) +
                          fake_count(town.fake, FAKE_LIST),
                      0);
}
END_TEST

/* Pause, look without waking, resume by the next use. */
START_TEST(pause__then_resolve__resumed)
{
    Session *session = NULL;
    int outcome;

    (void)town_box(&town, "s1", NULL);
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_int_eq(fake_only(town.fake)->state, SANDBOX(PAUSED));
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_PAUSE), 1);
    ck_assert_int_eq(town_get(&town, "t1", "s1", true, &session), BERTH_REASON_NONE);
    ck_assert_int_eq(session->sandbox->state, SANDBOX(PAUSED));
    berth_message_free(session);
    ck_assert_int_eq(fake_only(town.fake)->state, SANDBOX(PAUSED));
    ck_assert_str_eq(town_box(&town, "s1", &outcome), "box-1");
    ck_assert_int_eq(outcome, OUTCOME(RESUMED));
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_int_eq(town_act(&town, "Resume", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_int_eq(fake_only(town.fake)->state, SANDBOX(RUNNING));
}
END_TEST

/* auto_resume CLOSED: only ResumeSession wakes it. */
START_TEST(resolve__paused_and_auto_resume_closed__refused)
{
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Common__V1__TimeoutPolicy timeouts = BERTH__COMMON__V1__TIMEOUT_POLICY__INIT;
    Resolved *resolved = NULL;

    timeouts.auto_resume = BERTH__COMMON__V1__SWITCH__SWITCH_CLOSED;
    spec.timeouts = &timeouts;
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", &spec, NULL, &resolved),
                     BERTH_REASON_NONE);
    berth_message_free(resolved);
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL),
                     BERTH_REASON_SANDBOX_PAUSED);
    ck_assert_int_eq(town_act(&town, "Resume", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL), BERTH_REASON_NONE);
}
END_TEST

/* Deleted: gone at the backend, a tombstone, a repeat is fine, and recreate gives way. */
START_TEST(delete__then_again__gone_and_repeatable)
{
    Session *session = NULL;

    (void)town_box(&town, "s1", NULL);
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_uint_eq(fake_alive(town.fake), 0);
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "never"), BERTH_REASON_SESSION_NOT_FOUND);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL),
                     BERTH_REASON_SESSION_DELETED);
    ck_assert_int_eq(town_get(&town, "t1", "s1", false, &session), BERTH_REASON_NONE);
    ck_assert_int_eq(session->state, BERTH__COMMON__V1__SESSION_STATE__SESSION_STATE_DELETED);
    berth_message_free(session);
}
END_TEST

/* A sandbox that died is replaced within a resolve that saw it fail, and the answer says so. */
START_TEST(resolve__sandbox_gone__replaced_and_told)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__ResolveRouteRequest req =
        BERTH__CONTROL__V1__RESOLVE_ROUTE_REQUEST__INIT;
    Route *route = NULL;

    fake_kill(town.fake, town_box(&town, "s1", NULL));
    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)"s1";
    req.session = &ref;
    req.failed_sandbox_id = (char *)"box-1";
    ck_assert_int_eq(town_call(town.control[0],
                               "/berth.control.v1.InternalService/ResolveRoute", &req,
                               &berth__control__v1__resolve_route_response__descriptor, WAIT_MS,
                               &route, NULL),
                     BERTH_REASON_NONE);
    ck_assert_str_eq(route->endpoint->sandbox_id, "box-2");
    ck_assert_str_eq(route->endpoint->traffic_token, "traffic-box-2");
    ck_assert_str_eq(route->endpoint->target->tenant_id, "t1");
    ck_assert_uint_eq(route->endpoint->target->fingerprint.len, 32);
    ck_assert_uint_gt(route->endpoint->fence, 0);
    ck_assert_int_gt(route->command_timeout->seconds, 0);
    berth_message_free(route);
}
END_TEST

/* EXISTING never makes a sandbox, and a route never makes a session. */
START_TEST(resolve_route__no_session__not_found_and_not_made)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__ResolveRouteRequest req =
        BERTH__CONTROL__V1__RESOLVE_ROUTE_REQUEST__INIT;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)"s1";
    req.session = &ref;
    for (int mode = 0; mode < 3; mode++) {
        req.mode = (Berth__Control__V1__ResolveMode)mode;
        ck_assert_int_eq(town_call(town.control[0],
                                   "/berth.control.v1.InternalService/ResolveRoute", &req,
                                   &berth__control__v1__resolve_route_response__descriptor,
                                   WAIT_MS, NULL, NULL),
                         BERTH_REASON_SESSION_NOT_FOUND);
    }
    ck_assert_uint_eq(fake_alive(town.fake), 0);
    ck_assert_int_eq(town_call(town.outside, "/berth.control.v1.InternalService/ResolveRoute",
                               &req, &berth__control__v1__resolve_route_response__descriptor,
                               WAIT_MS, NULL, NULL),
                     BERTH_REASON_PEER_ONLY);
}
END_TEST

/* A turn protects; a paused sandbox cannot be had under it; an ended token is refused. */
START_TEST(turn__running__pause_refused)
{
    char token[256];

    (void)town_box(&town, "s1", NULL);
    snprintf(token, sizeof token, "%s", town_begin(&town, "s1"));
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, token, NULL), BERTH_REASON_NONE);
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_TURN_RUNNING);
    ck_assert_int_eq(town_end_turn(&town, "s1", token), BERTH_REASON_NONE);
    ck_assert_int_eq(town_end_turn(&town, "s1", token), BERTH_REASON_NONE);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, token, NULL),
                     BERTH_REASON_TURN_EXPIRED);
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_NONE);
}
END_TEST

/* Another tenant's session is not found by any call, and not touched. */
START_TEST(every_call__other_tenant__not_found)
{
    static const char *const verbs[] = {"Pause", "Resume", "Delete"};
    Session *session;

    (void)town_box(&town, "s1", NULL);
    ck_assert_int_eq(town_get(&town, "t2", "s1", true, &session),
                     BERTH_REASON_SESSION_NOT_FOUND);
    for (size_t i = 0; i < BERTH_COUNT(verbs); i++)
        ck_assert_int_eq(town_act(&town, verbs[i], "t2", "s1"), BERTH_REASON_SESSION_NOT_FOUND);
    ck_assert_int_eq(fake_only(town.fake)->state, SANDBOX(RUNNING));
}
END_TEST

/* Reserved sessions belong to the installer: no stranger may name them. */
START_TEST(resolve__reserved_session_by_a_stranger__refused)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__ResolveSessionRequest req =
        BERTH__CONTROL__V1__RESOLVE_SESSION_REQUEST__INIT;
    char secret[64];

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)"sk.row1";
    req.session = &ref;
    town_tenant_token(&town, "t1", BERTH__CONTROL__V1__SCOPE__SCOPE_USE, secret);
    ck_assert_int_eq(town_call_as(town.outside, secret,
                                  "/berth.control.v1.SessionService/ResolveSession", &req,
                                  &berth__control__v1__resolve_session_response__descriptor,
                                  WAIT_MS, NULL, NULL),
                     BERTH_REASON_RESERVED_KEY);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "sk.row1", NULL, NULL, NULL),
                     BERTH_REASON_NONE);
    ck_assert_str_eq(fake_tag(fake_only(town.fake), "berth.kind"), "maintenance");
}
END_TEST

/* A session that names another config than its own is told so. */
START_TEST(resolve__other_config__pinned)
{
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;

    (void)town_box(&town, "s1", NULL);
    spec.config_id = (char *)"c2";
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", &spec, NULL, NULL),
                     BERTH_REASON_CONFIG_PINNED);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s2", &spec, NULL, NULL),
                     BERTH_REASON_CONFIG_NOT_FOUND);
    spec.config_id = (char *)"c1";
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", &spec, NULL, NULL), BERTH_REASON_NONE);
}
END_TEST

/* What a new session may not ask for is refused before anything is made, and does not matter to
 * one that is there. */
START_TEST(resolve__wider_or_unable__refused_for_new_sessions)
{
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Common__V1__NetworkPolicy network = BERTH__COMMON__V1__NETWORK_POLICY__INIT;
    char *nets[] = {(char *)"192.0.2.0/24"};

    spec.network = &network;
    network.inbound = BERTH__COMMON__V1__SWITCH__SWITCH_OPEN;
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", &spec, NULL, NULL),
                     BERTH_REASON_NETWORK_POLICY_INVALID);
    network.inbound = 0;
    network.deny_out = nets;
    network.n_deny_out = 1;
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", &spec, NULL, NULL),
                     BERTH_REASON_CAPABILITY_MISSING);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_CREATE), 0);
    (void)town_box(&town, "s1", NULL);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", &spec, NULL, NULL), BERTH_REASON_NONE);
}
END_TEST

/* A refused create leaves nothing that a later one would have to wait for. */
START_TEST(resolve__create_refused__told_and_next_one_creates)
{
    int outcome;

    fake_script(town.fake, FAKE_CREATE, FAKE_REFUSE, BERTH_REASON_TEMPLATE_INVALID, 1);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL),
                     BERTH_REASON_TEMPLATE_INVALID);
    (void)town_box(&town, "s1", &outcome);
    ck_assert_int_eq(outcome, OUTCOME(CREATED));
    ck_assert_uint_eq(fake_count(town.fake, FAKE_LIST), 0);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
}
END_TEST

/* What other services report as failed is looked at, not believed. */
START_TEST(resolve__sandbox_reported_failed_but_well__kept)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__ResolveRouteRequest req =
        BERTH__CONTROL__V1__RESOLVE_ROUTE_REQUEST__INIT;
    Route *route = NULL;

    (void)town_box(&town, "s1", NULL);
    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)"s1";
    req.session = &ref;
    req.failed_sandbox_id = (char *)"box-1";
    ck_assert_int_eq(town_call(town.control[0],
                               "/berth.control.v1.InternalService/ResolveRoute", &req,
                               &berth__control__v1__resolve_route_response__descriptor, WAIT_MS,
                               &route, NULL),
                     BERTH_REASON_NONE);
    ck_assert_str_eq(route->endpoint->sandbox_id, "box-1");
    berth_message_free(route);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_GET), 1);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_DELETE), 0);
}
END_TEST

/* An update changes what the next create gets, and nothing else. */
START_TEST(update_session__labels__kept_and_versioned)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__UpdateSessionRequest req =
        BERTH__CONTROL__V1__UPDATE_SESSION_REQUEST__INIT;
    Berth__Control__V1__UpdateSessionResponse *resp = NULL;
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
    Berth__Common__V1__SessionSpec__LabelsEntry label =
        BERTH__COMMON__V1__SESSION_SPEC__LABELS_ENTRY__INIT;
    Berth__Common__V1__SessionSpec__LabelsEntry *labels[] = {&label};
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Session session = BERTH__CONTROL__V1__SESSION__INIT;
    char *paths[] = {(char *)"spec.labels"};

    (void)town_box(&town, "s1", NULL);
    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)"s1";
    label.key = (char *)"a";
    label.value = (char *)"b";
    spec.labels = labels;
    spec.n_labels = 1;
    session.ref = &ref;
    session.spec = &spec;
    mask.paths = paths;
    mask.n_paths = 1;
    req.session = &session;
    req.update_mask = &mask;
    ck_assert_int_eq(town_call(town.control[0],
                               "/berth.control.v1.SessionService/UpdateSession", &req,
                               &berth__control__v1__update_session_response__descriptor,
                               WAIT_MS, &resp, NULL),
                     BERTH_REASON_NONE);
    ck_assert_uint_eq(resp->session->version, 2);
    ck_assert_uint_eq(resp->session->spec->n_labels, 1);
    ck_assert_str_eq(resp->session->spec->config_id, "c1");
    berth_message_free(resp);
    session.version = 1;
    ck_assert_int_eq(town_call(town.control[0],
                               "/berth.control.v1.SessionService/UpdateSession", &req,
                               &berth__control__v1__update_session_response__descriptor,
                               WAIT_MS, NULL, NULL),
                     BERTH_REASON_ETAG_MISMATCH);
    paths[0] = (char *)"spec.config_id";
    ck_assert_int_eq(town_call(town.control[0],
                               "/berth.control.v1.SessionService/UpdateSession", &req,
                               &berth__control__v1__update_session_response__descriptor,
                               WAIT_MS, NULL, NULL),
                     BERTH_REASON_FIELD_INVALID);
}
END_TEST

/* A new image of the config, as the flip of an installer writes it: sessions before it are
 * stale. */
static void publish(const char *generation)
{
    char image[128];

    snprintf(image, sizeof image, "{\"generation\":%s,\"rebuild_before\":%s}", generation,
             generation);
    berth_reply_free(redis_run(town.store, "HSET", "berth:{t1}:c/c1", "image", image, "rev",
                               "00000000000000aa", NULL));
}

static void set_rebuild(Berth__Control__V1__WorkspaceOnRebuild how)
{
    Berth__Control__V1__UpdateConfigRequest req =
        BERTH__CONTROL__V1__UPDATE_CONFIG_REQUEST__INIT;
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
    char *paths[] = {(char *)"workspace_on_rebuild"};
    SandboxConfig config = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;

    config.tenant_id = (char *)"t1";
    config.config_id = (char *)"c1";
    config.workspace_on_rebuild = how;
    mask.paths = paths;
    mask.n_paths = 1;
    req.config = &config;
    req.update_mask = &mask;
    ck_assert_int_eq(town_call(town.control[0], "/berth.control.v1.ConfigService/UpdateConfig",
                               &req, &berth__control__v1__update_config_response__descriptor,
                               WAIT_MS, NULL, NULL),
                     BERTH_REASON_NONE);
}

/* Stale and DROP: rebuilt once, told what is lost; a running turn keeps what it uses. */
START_TEST(rebuild__drop__once_and_never_under_a_turn)
{
    Resolved *resolved = NULL;
    char token[256];
    int outcome;

    set_rebuild(BERTH__CONTROL__V1__WORKSPACE_ON_REBUILD__WORKSPACE_ON_REBUILD_DROP);
    (void)town_box(&town, "s1", NULL);
    snprintf(token, sizeof token, "%s", town_begin(&town, "s1"));
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, token, NULL), BERTH_REASON_NONE);
    publish("1");
    ck_assert_str_eq(town_box(&town, "s1", &outcome), "box-1");
    ck_assert_int_eq(outcome, OUTCOME(USED));
    ck_assert_int_eq(town_end_turn(&town, "s1", token), BERTH_REASON_NONE);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, &resolved),
                     BERTH_REASON_NONE);
    ck_assert_int_eq(resolved->outcome, OUTCOME(REBUILT));
    ck_assert_uint_eq(resolved->n_lost, 3);
    ck_assert_uint_eq(resolved->session->sandbox->image->generation, 1);
    berth_message_free(resolved);
    ck_assert_str_eq(town_box(&town, "s1", &outcome), "box-2");
    ck_assert_int_eq(outcome, OUTCOME(USED));
    ck_assert_uint_eq(fake_alive(town.fake), 1);
    ck_assert_str_eq(fake_tag(fake_only(town.fake), "berth.generation"), "1");
}
END_TEST

/* Stale and CARRY: nobody can carry yet, so the old one stays, and an event says so. */
START_TEST(rebuild__carry__kept_and_told)
{
    struct berth_reply *reply;
    unsigned deferred = 0;
    int outcome;

    (void)town_box(&town, "s1", NULL);
    publish("1");
    for (int i = 0; i < 3; i++) {
        ck_assert_str_eq(town_box(&town, "s1", &outcome), "box-1");
        ck_assert_int_eq(outcome, OUTCOME(USED));
    }
    ck_assert_uint_eq(fake_count(town.fake, FAKE_DELETE), 0);
    reply = redis_run(town.store, "XRANGE", "berth:{t1}:ev", "-", "+", NULL);
    for (size_t i = 0; i < reply->n_items; i++)
        for (size_t k = 0; k < reply->items[i]->items[1]->n_items; k++)
            deferred +=
                strcmp(reply->items[i]->items[1]->items[k]->string, "REBUILD_DEFERRED") == 0;
    berth_reply_free(reply);
    ck_assert_uint_eq(deferred, 1);
    /* A paused one is resumed, not handed out as it is. */
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_str_eq(town_box(&town, "s1", &outcome), "box-1");
    ck_assert_int_eq(outcome, OUTCOME(RESUMED));
    ck_assert_int_eq(fake_only(town.fake)->state, SANDBOX(RUNNING));
}
END_TEST

/* Lists show a tenant's own sessions, filtered, in pages, without the installer's. */
START_TEST(list_sessions__filters_and_pages__whole)
{
    Berth__Control__V1__ListSessionsRequest req =
        BERTH__CONTROL__V1__LIST_SESSIONS_REQUEST__INIT;
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    Berth__Control__V1__ListSessionsResponse *resp = NULL;
    char token[128] = "", name[16], secret[64];
    size_t seen = 0;

    town_tenant_token(&town, "t1", BERTH__CONTROL__V1__SCOPE__SCOPE_READ, secret);
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "s%d", i);
        (void)town_box(&town, name, NULL);
    }
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "sk.row1", NULL, NULL, NULL),
                     BERTH_REASON_NONE);
    req.tenant_id = (char *)"t1";
    req.page = &page;
    page.page_size = 3;
    do {
        page.page_token = token;
        ck_assert_int_eq(town_call_as(town.outside, secret,
                                      "/berth.control.v1.SessionService/ListSessions", &req,
                                      &berth__control__v1__list_sessions_response__descriptor,
                                      WAIT_MS, &resp, NULL),
                         BERTH_REASON_NONE);
        seen += resp->n_sessions;
        snprintf(token, sizeof token, "%s", resp->next_page_token);
        berth_message_free(resp);
    } while (token[0]);
    ck_assert_uint_eq(seen, 7);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/sessions");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, open_town, close_town);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, resolve__new_session__created_then_used);
    tcase_add_test(all, resolve__labels_and_env__prefixed_and_reserved_refused);
    tcase_add_test(all, resolve__warm__one_round_trip);
    tcase_add_test(all, pause__then_resolve__resumed);
    tcase_add_test(all, resolve__paused_and_auto_resume_closed__refused);
    tcase_add_test(all, delete__then_again__gone_and_repeatable);
    tcase_add_test(all, resolve__sandbox_gone__replaced_and_told);
    tcase_add_test(all, resolve_route__no_session__not_found_and_not_made);
    tcase_add_test(all, turn__running__pause_refused);
    tcase_add_test(all, every_call__other_tenant__not_found);
    tcase_add_test(all, resolve__reserved_session_by_a_stranger__refused);
    tcase_add_test(all, resolve__other_config__pinned);
    tcase_add_test(all, resolve__wider_or_unable__refused_for_new_sessions);
    tcase_add_test(all, resolve__create_refused__told_and_next_one_creates);
    tcase_add_test(all, resolve__sandbox_reported_failed_but_well__kept);
    tcase_add_test(all, update_session__labels__kept_and_versioned);
    tcase_add_test(all, rebuild__drop__once_and_never_under_a_turn);
    tcase_add_test(all, rebuild__carry__kept_and_told);
    tcase_add_test(all, list_sessions__filters_and_pages__whole);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

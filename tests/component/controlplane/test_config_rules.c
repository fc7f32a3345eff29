/* test_config_rules.c - the rules of configs at their edges: request ids, masks, etags, what is
 * the server's, identity. */
#include <stdio.h>

#include "tests/component/controlplane/config_calls.h"

/* ------------------------------------------------------------------ request ids */

/* The first answer again, whatever has become of the config since, and it is not made twice. */
START_TEST(request_id__same_request__first_answer_again)
{
    SandboxConfig config = config_of("c2"), *first = NULL, *again = NULL;

    config.name = (char *)"as created";
    ck_assert_int_eq(config_create_at(0, &config, "r1", &first), BERTH_REASON_NONE);
    config.name = (char *)"renamed";
    ck_assert_int_eq(config_update(&config, "name"), BERTH_REASON_NONE);
    config.name = (char *)"as created";
    ck_assert_int_eq(config_create_at(1, &config, "r1", &again), BERTH_REASON_NONE);
    ck_assert_str_eq(again->name, "as created");
    ck_assert_str_eq(again->etag, first->etag);
    ck_assert_int_eq(again->create_time->nanos, first->create_time->nanos);
    berth_message_free(again);

    ck_assert_int_eq(config_delete("c2", ""), BERTH_REASON_NONE);
    ck_assert_int_eq(config_create_at(0, &config, "r1", &again), BERTH_REASON_NONE);
    ck_assert_str_eq(again->etag, first->etag);
    ck_assert_ptr_null(config_get("c2"));
    berth_message_free(again);
    berth_message_free(first);
}
END_TEST

/* It is kept for a day, and no longer. */
START_TEST(request_id__used__kept_for_a_day)
{
    SandboxConfig config = config_of("c2");
    struct berth_reply *keys, *left;

    ck_assert_int_eq(config_create(&config, "r1"), BERTH_REASON_NONE);
    keys = redis_run(town.store, "KEYS", "berth:{t1}:rq/*", NULL);
    ck_assert_uint_eq(keys->n_items, 1);
    left = redis_run(town.store, "PTTL", keys->items[0]->string, NULL);
    ck_assert_int_le(left->integer, 86400000);
    ck_assert_int_gt(left->integer, 86400000 - WAIT_MS);
    berth_reply_free(left);
    left = redis_run(town.store, "DEL", keys->items[0]->string, NULL);
    berth_reply_free(left);
    berth_reply_free(keys);
    ck_assert_int_eq(config_create(&config, "r1"), BERTH_REASON_CONFIG_EXISTS);
}
END_TEST

/* Anything else under the same id is refused: another config, another field, another key. */
START_TEST(request_id__another_request__refused)
{
    SandboxConfig config = config_of("c2"), other;
    Credentials credentials = BERTH__CONTROL__V1__CREDENTIALS__INIT;

    credentials.api_key = (char *)"key-one";
    config.credentials = &credentials;
    ck_assert_int_eq(config_create(&config, "r1"), BERTH_REASON_NONE);
    other = config;
    other.config_id = (char *)"c3";
    ck_assert_int_eq(config_create(&other, "r1"), BERTH_REASON_REQUEST_ID_REUSED);
    ck_assert_ptr_null(config_get("c3"));
    other = config;
    other.root_commands = true;
    ck_assert_int_eq(config_create(&other, "r1"), BERTH_REASON_REQUEST_ID_REUSED);
    credentials.api_key = (char *)"key-two";
    ck_assert_int_eq(config_create(&config, "r1"), BERTH_REASON_REQUEST_ID_REUSED);
    credentials.api_key = (char *)"key-one";
    ck_assert_int_eq(config_create(&config, "r1"), BERTH_REASON_NONE);
    /* What is the server's own does not make it another request. */
    config.etag = (char *)"x";
    config.created_by = (char *)"y";
    ck_assert_int_eq(config_create(&config, "r1"), BERTH_REASON_NONE);
    /* Ids are a tenant's. */
    config.tenant_id = (char *)"t2";
    ck_assert_int_eq(config_create(&config, "r1"), BERTH_REASON_NONE);
}
END_TEST

/* Libraries send maps in any order; it is the same request. */
START_TEST(request_id__map_in_another_order__same)
{
    SandboxConfig config = config_of("c2");
    Berth__Control__V1__SandboxConfig__EnvEntry a =
        BERTH__CONTROL__V1__SANDBOX_CONFIG__ENV_ENTRY__INIT;
    Berth__Control__V1__SandboxConfig__EnvEntry b = a;
    Berth__Control__V1__SandboxConfig__EnvEntry *one[] = {&a, &b}, *other[] = {&b, &a};

    a.key = (char *)"A";
    a.value = (char *)"1";
    b.key = (char *)"B";
    b.value = (char *)"2";
    config.n_env = 2;
    config.env = one;
    ck_assert_int_eq(config_create(&config, "r1"), BERTH_REASON_NONE);
    config.env = other;
    ck_assert_int_eq(config_create(&config, "r1"), BERTH_REASON_NONE);
    a.value = (char *)"2";
    ck_assert_int_eq(config_create(&config, "r1"), BERTH_REASON_REQUEST_ID_REUSED);
}
END_TEST

enum { RACERS = 8 };

struct racer {
    pthread_t thread;
    unsigned plane;
    const char *etag; /* update: under this one */
    char seen[64];
    enum berth_reason reason;
};

static void *race_create(void *arg)
{
    struct racer *racer = arg;
    SandboxConfig config = config_of("raced"), *made = NULL;

    racer->reason = config_create_at(racer->plane, &config, "r1", &made);
    if (made)
        snprintf(racer->seen, sizeof racer->seen, "%s", made->etag);
    berth_message_free(made);
    return NULL;
}

static void *race_update(void *arg)
{
    struct racer *racer = arg;
    SandboxConfig config = config_of("raced");
    char name[16], *paths[] = {(char *)"name", NULL};
    struct berth_error why;

    snprintf(name, sizeof name, "r%p", (void *)racer);
    config.name = name;
    config.etag = (char *)racer->etag;
    racer->reason = config_update_at(racer->plane, &config, paths, &why);
    return NULL;
}

static void race(struct racer racers[RACERS], void *(*run)(void *), const char *etag)
{
    for (unsigned i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){.plane = i % 2, .etag = etag};
        ck_assert_int_eq(pthread_create(&racers[i].thread, NULL, run, &racers[i]), 0);
    }
    for (unsigned i = 0; i < RACERS; i++)
        pthread_join(racers[i].thread, NULL);
}

/* The same request many times at once, over two replicas: made once, one answer for all. */
START_TEST(request_id__raced__one_answer_for_all)
{
    struct racer racers[RACERS];

    race(racers, race_create, NULL);
    for (unsigned i = 0; i < RACERS; i++) {
        ck_assert_msg(!racers[i].reason, "%s", berth_reason_name(racers[i].reason));
        ck_assert_str_eq(racers[i].seen, racers[0].seen);
    }
    ck_assert_int_eq(n_keys("berth:{t1}:c/raced"), 1);
}
END_TEST

/* ------------------------------------------------------------------------ etags */

/* Of updates under one etag one wins; delete keeps to it, too. */
START_TEST(etag__raced_updates__one_wins)
{
    SandboxConfig config = config_of("raced"), *made = NULL, *now;
    struct racer racers[RACERS];
    unsigned n_won = 0;

    ck_assert_int_eq(config_create_at(0, &config, "", &made), BERTH_REASON_NONE);
    race(racers, race_update, made->etag);
    for (unsigned i = 0; i < RACERS; i++) {
        n_won += racers[i].reason == BERTH_REASON_NONE;
        ck_assert(!racers[i].reason || racers[i].reason == BERTH_REASON_ETAG_MISMATCH);
    }
    ck_assert_uint_eq(n_won, 1);
    ck_assert_int_eq(config_delete("raced", made->etag), BERTH_REASON_ETAG_MISMATCH);
    ck_assert_int_eq(err.code, BERTH_ABORTED);
    now = config_get("raced");
    ck_assert_str_ne(now->etag, made->etag);
    ck_assert_int_eq(config_delete("raced", now->etag), BERTH_REASON_NONE);
    berth_message_free(now);
    berth_message_free(made);
}
END_TEST

/* ------------------------------------------------------------------------ masks */

/* A part of a message, and an unknown one. */
START_TEST(mask__nested__only_what_it_names)
{
    SandboxConfig config = config_of("c2"), *got;
    Berth__Common__V1__TimeoutPolicy timeouts = BERTH__COMMON__V1__TIMEOUT_POLICY__INIT;
    Google__Protobuf__Duration idle = GOOGLE__PROTOBUF__DURATION__INIT;
    Google__Protobuf__Duration paused = GOOGLE__PROTOBUF__DURATION__INIT;

    idle.seconds = 60;
    paused.seconds = 600;
    timeouts.idle = &idle;
    timeouts.max_paused = &paused;
    config.timeouts = &timeouts;
    ck_assert_int_eq(config_create(&config, ""), BERTH_REASON_NONE);
    idle.seconds = 70;
    paused.seconds = 700;
    ck_assert_int_eq(config_update(&config, "timeouts.idle"), BERTH_REASON_NONE);
    got = config_get("c2");
    ck_assert_int_eq(got->timeouts->idle->seconds, 70);
    ck_assert_int_eq(got->timeouts->max_paused->seconds, 600);
    berth_message_free(got);
    ck_assert_int_eq(config_update(&config, "timeouts.no_such"), BERTH_REASON_FIELD_INVALID);
    ck_assert_str_eq(err.field, "update_mask");
    ck_assert_ptr_nonnull(strstr(err.rule, "'timeouts.no_such'"));
}
END_TEST

/* What is sent may be right by itself and wrong with what is stored. */
START_TEST(update__contradicts_what_is_stored__refused)
{
    SandboxConfig config = config_of("c2");
    Google__Protobuf__Duration timeout = GOOGLE__PROTOBUF__DURATION__INIT;
    Google__Protobuf__Duration most = GOOGLE__PROTOBUF__DURATION__INIT;

    timeout.seconds = 600;
    config.command_timeout = &timeout;
    ck_assert_int_eq(config_create(&config, ""), BERTH_REASON_NONE);
    config.command_timeout = NULL;
    most.seconds = 60;
    config.command_timeout_max = &most;
    ck_assert_int_eq(config_update(&config, "command_timeout_max"), BERTH_REASON_FIELD_INVALID);
    ck_assert_str_eq(err.field, "config.command_timeout");
    most.seconds = 600;
    ck_assert_int_eq(config_update(&config, "command_timeout_max"), BERTH_REASON_NONE);
}
END_TEST

/* ----------------------------------------------------------- what is the server's */

#define IMAGE                                                                                  \
    "{\"account\":\"%s\",\"base_template_id\":\"base\",\"build_ms\":1000,\"generation\":3,"    \
    "\"rebuild_before\":3,\"snapshot_id\":\"snap-3\"}"

/* Invariant 11: with an image in place, no create and no update of a client changes it, nor the
 * account. */
START_TEST(server_owned__forged__kept)
{
    static const char *const masks[] = {"image",       "image.snapshot_id", "image.generation",
                                        "fingerprint", "credentials_set",   "etag",
                                        "create_time", "created_by",        "*"};
    SandboxConfig config = config_of("c2"), *before, *after;
    Berth__Control__V1__ImagePointer image = BERTH__CONTROL__V1__IMAGE_POINTER__INIT;
    Google__Protobuf__Timestamp time = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    char text[512];

    ck_assert_int_eq(config_create(&config, ""), BERTH_REASON_NONE);
    snprintf(text, sizeof text, IMAGE, town_field(&town, "berth:{t1}:c/c2", "account"));
    berth_reply_free(redis_run(town.store, "HSET", "berth:{t1}:c/c2", "image", text,
                               "next_generation", "4", NULL));
    before = config_get("c2");
    ck_assert_str_eq(before->image->snapshot_id, "snap-3");
    ck_assert(before->image->usable);

    image.snapshot_id = (char *)"forged";
    image.generation = 99;
    image.fingerprint = (char *)"ff";
    config.image = &image;
    config.fingerprint = (char *)"ff";
    config.credentials_set = true;
    config.credentials_fingerprint = (char *)"ff";
    config.created_by = (char *)"forged";
    time.seconds = 1;
    config.create_time = &time;
    config.update_time = &time;
    for (size_t i = 0; i < BERTH_COUNT(masks); i++) {
        config.etag = (char *)"";
        if (strcmp(masks[i], "etag") == 0) { /* in an update it is a condition */
            config.etag = (char *)"forged";
            ck_assert_int_eq(config_update(&config, masks[i]), BERTH_REASON_ETAG_MISMATCH);
        } else {
            ck_assert_msg(!config_update(&config, masks[i]), "%s: %s", masks[i], err.text);
        }
    }
    ck_assert_str_eq(town_field(&town, "berth:{t1}:c/c2", "image"), text);
    after = config_get("c2");
    ck_assert_str_eq(after->image->snapshot_id, "snap-3");
    ck_assert_uint_eq(after->image->generation, 3);
    ck_assert_str_eq(after->fingerprint, before->fingerprint);
    ck_assert_int_eq(after->create_time->seconds, before->create_time->seconds);
    ck_assert_str_eq(after->created_by, before->created_by);
    ck_assert(!after->credentials_set && !*after->credentials_fingerprint);
    berth_message_free(before);
    berth_message_free(after);
}
END_TEST

/* Reserved keys: labels and environment that are Berth's own are refused, everywhere. */
START_TEST(reserved_keys__from_clients__refused)
{
    SandboxConfig config = config_of("c2");
    Berth__Control__V1__SandboxConfig__EnvEntry env =
        BERTH__CONTROL__V1__SANDBOX_CONFIG__ENV_ENTRY__INIT;
    Berth__Control__V1__SandboxConfig__EnvEntry *envs[] = {&env};
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Common__V1__SessionSpec__LabelsEntry label =
        BERTH__COMMON__V1__SESSION_SPEC__LABELS_ENTRY__INIT;
    Berth__Common__V1__SessionSpec__LabelsEntry *labels[] = {&label};

    env.key = (char *)"BERTH_TENANT_ID";
    env.value = (char *)"t2";
    config.env = envs;
    config.n_env = 1;
    ck_assert_int_eq(config_create(&config, ""), BERTH_REASON_RESERVED_KEY);
    config = config_of("c1");
    config.env = envs;
    config.n_env = 1;
    ck_assert_int_eq(config_update(&config, "env"), BERTH_REASON_RESERVED_KEY);
    label.key = (char *)"berth.tenant";
    label.value = (char *)"t2";
    spec.labels = labels;
    spec.n_labels = 1;
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", &spec, NULL, NULL),
                     BERTH_REASON_RESERVED_KEY);
    /* A user's label of a name like ours stands apart on the sandbox. */
    label.key = (char *)"tenant";
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", &spec, NULL, NULL), BERTH_REASON_NONE);
    ck_assert_str_eq(fake_tag(fake_only(town.fake), "berth.tenant"), "t1");
    ck_assert_str_eq(fake_tag(fake_only(town.fake), "u.tenant"), "t2");
}
END_TEST

/* ---------------------------------------------------------------------- identity */

static const struct {
    const char *path;
    const char *api_url, *domain, *proxy_url;
    bool private;
} identity_rows[] = {
    {"api_url", "https://1.0.0.1", "", "", false},
    {"domain", "https://1.1.1.1", "sandboxes.example.com", "", false},
    {"proxy_url", "https://1.1.1.1", "", "http://1.0.0.1:3128", false},
    {"allow_private_endpoints", "https://1.1.1.1", "", "", true},
};

/* Invariant 11: where a live config's sandboxes are is not changed, by mask or as a whole; the
 * same value is no change, and without sessions it may change. */
START_TEST(identity__sessions_live__kept)
{
    SandboxConfig config = config_of("c2"), *got;
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;

    config.api_url = (char *)"https://1.1.1.1";
    ck_assert_msg(!config_create(&config, ""), "%s", err.text);
    spec.config_id = (char *)"c2";
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", &spec, NULL, NULL), BERTH_REASON_NONE);
    ck_assert_int_eq(config_update(&config, identity_rows[_i].path), BERTH_REASON_NONE);
    ck_assert_int_eq(config_update(&config, "*"), BERTH_REASON_NONE);
    config.api_url = (char *)identity_rows[_i].api_url;
    config.domain = (char *)identity_rows[_i].domain;
    config.proxy_url = (char *)identity_rows[_i].proxy_url;
    config.allow_private_endpoints = identity_rows[_i].private;
    ck_assert_int_eq(config_update(&config, identity_rows[_i].path),
                     BERTH_REASON_CONFIG_IN_USE);
    ck_assert_int_eq(err.code, BERTH_FAILED_PRECONDITION);
    ck_assert_int_eq(config_update(&config, "*"), BERTH_REASON_CONFIG_IN_USE);
    got = config_get("c2");
    ck_assert_str_eq(got->api_url, "https://1.1.1.1");
    ck_assert(!*got->domain && !*got->proxy_url && !got->allow_private_endpoints);
    berth_message_free(got);
    /* The config is open for new sessions all the same. */
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s2", &spec, NULL, NULL), BERTH_REASON_NONE);
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s2"), BERTH_REASON_NONE);
    ck_assert_int_eq(config_update(&config, identity_rows[_i].path), BERTH_REASON_NONE);
    config.backend = (char *)"docker";
    ck_assert_int_eq(config_update(&config, "backend"), BERTH_REASON_FIELD_INVALID);
    ck_assert_str_eq(err.field, "config.backend");
}
END_TEST

/* The operator's veto: no new config, no update, no session of one that has the switch on from
 * before; and CheckConfig says so. */
START_TEST(private_switch__operator_says_never__refused_everywhere)
{
    SandboxConfig config = config_of("c2"), other = config_of("c3");
    Berth__Control__V1__CheckConfigRequest check =
        BERTH__CONTROL__V1__CHECK_CONFIG_REQUEST__INIT;
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    struct process *strict = &town.planes[1];
    char *paths[] = {(char *)"name", NULL};
    CheckConfigResponse *found = NULL;
    struct berth_error why;

    config.api_url = other.api_url = (char *)"http://10.0.0.1";
    config.allow_private_endpoints = other.allow_private_endpoints = true;
    ck_assert_msg(!config_create(&config, ""), "%s", err.text);
    spec.config_id = (char *)"c2";
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", &spec, NULL, NULL), BERTH_REASON_NONE);
    process_kill(strict);
    snprintf(strict->texts[strict->n_args++], sizeof strict->texts[0],
             "--allow_private_targets=never");
    process_start(strict);
    town_wait_ready(&town);

    ck_assert_int_eq(config_create_at(1, &other, "", NULL), BERTH_REASON_ENDPOINT_REFUSED);
    config.name = (char *)"another";
    ck_assert_int_eq(config_update_at(1, &config, paths, &why), BERTH_REASON_ENDPOINT_REFUSED);
    ck_assert_str_eq(why.field, "config.allow_private_endpoints");
    check.tenant_id = (char *)"t1";
    check.target_case = BERTH__CONTROL__V1__CHECK_CONFIG_REQUEST__TARGET_CONFIG_ID;
    check.config_id = (char *)"c2";
    ck_assert_int_eq(town_call(town.control[1], "/berth.control.v1.ConfigService/CheckConfig",
                               &check, &berth__control__v1__check_config_response__descriptor,
                               WAIT_MS, &found, NULL),
                     BERTH_REASON_NONE);
    ck_assert(!found->ok);
    ck_assert_str_eq(config_finding(found, "config.allow_private_endpoints")->reason,
                     "ENDPOINT_REFUSED");
    berth_message_free(found);
    ck_assert_int_eq(town_resolve(&town, 1, "t1", "s1", NULL, NULL, NULL),
                     BERTH_REASON_ENDPOINT_REFUSED);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL), BERTH_REASON_NONE);
}
END_TEST

int main(void)
{
    TCase *all = tcase_create("all");

    tcase_add_test(all, request_id__same_request__first_answer_again);
    tcase_add_test(all, request_id__used__kept_for_a_day);
    tcase_add_test(all, request_id__another_request__refused);
    tcase_add_test(all, request_id__map_in_another_order__same);
    tcase_add_test(all, request_id__raced__one_answer_for_all);
    tcase_add_test(all, etag__raced_updates__one_wins);
    tcase_add_test(all, mask__nested__only_what_it_names);
    tcase_add_test(all, update__contradicts_what_is_stored__refused);
    tcase_add_test(all, server_owned__forged__kept);
    tcase_add_test(all, reserved_keys__from_clients__refused);
    tcase_add_loop_test(all, identity__sessions_live__kept, 0, (int)BERTH_COUNT(identity_rows));
    tcase_add_test(all, private_switch__operator_says_never__refused_everywhere);
    return run_town_case("controlplane/config_rules", all);
}

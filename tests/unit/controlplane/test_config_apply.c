/* test_config_apply.c - what a field mask names, and what it changes. */
#include <check.h>
#include <stdio.h>

#include "common/messages/messages.h"
#include "services/controlplane/config.h"
#include "services/controlplane/config_apply.h"

typedef Berth__Control__V1__Credentials Credentials;
typedef Berth__Control__V1__SandboxConfig SandboxConfig;
typedef Google__Protobuf__FieldMask FieldMask;

static struct berth_error err;

static FieldMask mask_of(char **paths, size_t n)
{
    FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;

    mask.paths = paths;
    mask.n_paths = n;
    return mask;
}

static const struct {
    const char *path;
    bool good;
} path_rows[] = {
    {"name", true},
    {"timeouts", true},
    {"timeouts.idle", true},
    {"timeouts.on_idle", true},
    {"network.allow_out", true},
    {"resources.memory_bytes", true},
    {"credentials", true},
    {"credentials.api_key", true},
    {"credentials.client_key_pem", true},
    {"image", true}, /* the server's: passed over */
    {"image.snapshot_id", true},
    {"credentials_fingerprint", true},
    {"update_time", true},
    {"*", true},
    {"", false},
    {".", false},
    {"name.", false},
    {".name", false},
    {"name.x", false},
    {"Name", false},
    {"timeouts.", false},
    {"timeouts..idle", false},
    {"timeouts.idle.seconds", false}, /* as a whole */
    {"update_time.seconds", false},
    {"timeouts.no_such", false},
    {"network.rules.host", false}, /* a list: as a whole */
    {"env.KEY", false},            /* a map: as a whole */
    {"options.key", false},
    {"credentials.password", false},
    {"credentials.api_key.x", false},
    {"verifyInterval", false},
    {"no_such_field", false},
    {"*.name", false},
    {"name,backend", false},
};

/* A path that is none is refused, and the error names it. */
START_TEST(mask__each_path__known_or_named)
{
    char *paths[] = {(char *)"name", (char *)path_rows[_i].path};
    bool star = strcmp(paths[1], "*") == 0;
    FieldMask mask = mask_of(star ? paths + 1 : paths, star ? 1 : 2);
    char quoted[64];

    if (path_rows[_i].good) {
        ck_assert_int_eq(cp_config_check_mask(&mask, &err), BERTH_OK);
        return;
    }
    ck_assert_int_eq(cp_config_check_mask(&mask, &err), BERTH_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "update_mask");
    snprintf(quoted, sizeof quoted, "'%s'", path_rows[_i].path);
    ck_assert_msg(strstr(err.rule, quoted) != NULL, "%s", err.rule);
}
END_TEST

/* Everything, and something beside it, is a contradiction. */
START_TEST(mask__star_and_more__refused)
{
    char *paths[] = {(char *)"*", (char *)"name"};
    FieldMask mask = mask_of(paths, 2);

    ck_assert_int_eq(cp_config_check_mask(&mask, &err), BERTH_INVALID_ARGUMENT);
}
END_TEST

static SandboxConfig *stored(void)
{
    SandboxConfig *config = berth_message_new(&berth__control__v1__sandbox_config__descriptor);

    ck_assert(berth_set_string(&config->config_id, "c") &&
              berth_set_string(&config->tenant_id, "t") &&
              berth_set_string(&config->backend, "e2b") &&
              berth_set_string(&config->api_url, "https://old.example"));
    config->timeouts = berth_message_new(&berth__common__v1__timeout_policy__descriptor);
    config->timeouts->idle = berth_duration(60000);
    config->timeouts->max_paused = berth_duration(120000);
    config->timeouts->on_idle = BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_KILL;
    return config;
}

static unsigned apply(SandboxConfig *into, const SandboxConfig *from, char **paths, size_t n)
{
    FieldMask mask = mask_of(paths, n);
    unsigned changes = 0;

    ck_assert_msg(cp_config_apply(into, from, &mask, &changes, &err) == BERTH_OK, "%s",
                  err.text);
    return changes;
}

/* One member of a message: the others stay, also where the client sent others. */
START_TEST(apply__nested_path__only_that_member)
{
    SandboxConfig *into = stored(), *from = stored();
    char *idle[] = {(char *)"timeouts.idle"}, *gone[] = {(char *)"timeouts.max_paused"};

    from->timeouts->idle->seconds = 5;
    from->timeouts->on_idle = BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_PAUSE;
    from->timeouts->max_paused = berth_message_free(from->timeouts->max_paused);
    ck_assert_uint_eq(apply(into, from, idle, 1), CP_CHANGE_ANY | CP_CHANGE_POLICY);
    ck_assert_int_eq(into->timeouts->idle->seconds, 5);
    ck_assert_int_eq(into->timeouts->on_idle, BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_KILL);
    ck_assert_int_eq(into->timeouts->max_paused->seconds, 120);
    apply(into, from, gone, 1); /* named and absent: cleared */
    ck_assert_ptr_null(into->timeouts->max_paused);
    berth_message_free(into);
    berth_message_free(from);
}
END_TEST

/* Without a mask: what is set, of messages the members that are; nothing is cleared by not
 * being said. A star clears. */
START_TEST(apply__no_mask__members_that_are_not_set_stay)
{
    static const SandboxConfig nothing = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;
    SandboxConfig *into = stored(), *from = berth_message_copy(&nothing);
    char *star[] = {(char *)"*"};
    unsigned changes = 0;

    ck_assert_int_eq(cp_config_apply(into, from, NULL, &changes, &err), BERTH_OK);
    ck_assert_uint_eq(changes, CP_CHANGE_NONE);
    from->timeouts = berth_message_new(&berth__common__v1__timeout_policy__descriptor);
    ck_assert(berth_set_string(&from->name, "new"));
    from->timeouts->idle = berth_duration(5000);
    ck_assert_uint_eq(apply(into, from, NULL, 0), CP_CHANGE_ANY | CP_CHANGE_POLICY);
    ck_assert_str_eq(into->name, "new");
    ck_assert_int_eq(into->timeouts->idle->seconds, 5);
    ck_assert_int_eq(into->timeouts->on_idle, BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_KILL);
    ck_assert_int_eq(into->timeouts->max_paused->seconds, 120);
    ck_assert_str_eq(into->api_url, "https://old.example");
    apply(into, from, star, 1);
    ck_assert_ptr_null(into->timeouts->max_paused);
    ck_assert_str_eq(into->api_url, "");
    berth_message_free(into);
    berth_message_free(from);
}
END_TEST

/* A member of a message that one side does not have. */
START_TEST(apply__nested_path_absent_message__made_or_cleared)
{
    SandboxConfig *into = stored(), *from = stored();
    char *cpu[] = {(char *)"resources.cpu_millis"}, *idle[] = {(char *)"timeouts.idle"};

    from->resources = berth_message_new(&berth__common__v1__resources__descriptor);
    from->resources->cpu_millis = 500;
    from->resources->max_processes = 7;
    from->timeouts = berth_message_free(from->timeouts);
    apply(into, from, cpu, 1);
    ck_assert_uint_eq(into->resources->cpu_millis, 500);
    ck_assert_uint_eq(into->resources->max_processes, 0);
    apply(into, from, idle, 1);
    ck_assert_ptr_null(into->timeouts->idle);
    ck_assert_ptr_nonnull(into->timeouts->max_paused);
    berth_message_free(into);
    berth_message_free(from);
}
END_TEST

/* Paths that say the same twice count once, whatever their order. */
START_TEST(apply__overlapping_paths__count_once)
{
    char *paths[][3] = {
        {(char *)"timeouts", (char *)"timeouts.idle", (char *)"timeouts"},
        {(char *)"timeouts.idle", (char *)"timeouts.idle", (char *)"timeouts"},
        {(char *)"timeouts.idle", (char *)"name", (char *)"timeouts.idle"},
    };

    for (size_t i = 0; i < BERTH_COUNT(paths); i++) {
        SandboxConfig *into = stored(), *from = stored();

        from->timeouts->idle->seconds = 5;
        apply(into, from, paths[i], 3);
        ck_assert_int_eq(into->timeouts->idle->seconds, 5);
        berth_message_free(into);
        berth_message_free(from);
    }
}
END_TEST

/* An endpoint named with the value it has is no change of it. */
START_TEST(apply__endpoint_same_value__no_change_of_it)
{
    SandboxConfig *into = stored(), *from = stored();
    char *url[] = {(char *)"api_url"}, *star[] = {(char *)"*"};
    char *private[] = {(char *)"allow_private_endpoints"};

    ck_assert_uint_eq(apply(into, from, url, 1) & CP_CHANGE_ENDPOINT, 0);
    ck_assert_uint_eq(apply(into, from, star, 1) & CP_CHANGE_ENDPOINT, 0);
    from->allow_private_endpoints = true;
    ck_assert_uint_ne(apply(into, from, private, 1) & CP_CHANGE_ENDPOINT, 0);
    ck_assert(berth_set_string(&from->api_url, "https://new.example"));
    ck_assert_uint_ne(apply(into, from, star, 1) & CP_CHANGE_ENDPOINT, 0);
    berth_message_free(into);
    berth_message_free(from);
}
END_TEST

/* What is the server's stays the server's, named or not, as a whole or in part. */
START_TEST(apply__server_owned__passed_over)
{
    char *paths[] = {(char *)"image",          (char *)"image.snapshot_id",
                     (char *)"fingerprint",    (char *)"etag",
                     (char *)"created_by",     (char *)"create_time",
                     (char *)"update_time",    (char *)"credentials_fingerprint",
                     (char *)"credentials_set"};
    SandboxConfig *into = stored(), *from = stored();

    from->image = berth_message_new(&berth__control__v1__image_pointer__descriptor);
    from->create_time = berth_timestamp(1000);
    from->credentials_set = true;
    ck_assert(berth_set_string(&from->image->snapshot_id, "forged") &&
              berth_set_string(&from->fingerprint, "forged") &&
              berth_set_string(&from->etag, "forged") &&
              berth_set_string(&from->created_by, "forged") &&
              berth_set_string(&from->credentials_fingerprint, "forged"));
    ck_assert_uint_eq(apply(into, from, paths, BERTH_COUNT(paths)), CP_CHANGE_NONE);
    ck_assert_uint_eq(apply(into, from, NULL, 0) & CP_CHANGE_TARGET, CP_CHANGE_TARGET);
    ck_assert(!into->image && !into->create_time && !into->credentials_set);
    ck_assert(!*into->fingerprint && !*into->etag && !*into->created_by);
    ck_assert_str_eq(into->credentials_fingerprint, "");
    berth_message_free(into);
    berth_message_free(from);
}
END_TEST

static const struct {
    unsigned changes;
    const char *given; /* NULL: no credentials in the request */
    const char *left;
} merge_rows[] = {
    {CP_CHANGE_CREDENTIALS, "new", "new"},
    {CP_CHANGE_CREDENTIALS, "", "old"},
    {CP_CHANGE_CREDENTIALS, NULL, "old"},
    {CP_CHANGE_CREDENTIALS, "*", "old"},
    {CP_CHANGE_CREDENTIALS, "********", "old"},
    {CP_CHANGE_CREDENTIALS, "***x", "***x"},
    {CP_CHANGE_NONE, "new", "old"}, /* not in the mask */
    {CP_CHANGE_MEMBER, "new", "new"},
    {CP_CHANGE_MEMBER, "***", "old"},
    {CP_CHANGE_MEMBER, "", ""},            /* by its own name: cleared */
    {CP_CHANGE_MEMBER, NULL, ""},          /* just so */
    {CP_CHANGE_MEMBER << 1, "new", "old"}, /* another one is named */
};

/* Masked is kept, absent is kept, and only a member that is named by itself is cleared. */
START_TEST(credentials_merge__each_way__kept_taken_or_cleared)
{
    Credentials *kept = berth_message_new(&berth__control__v1__credentials__descriptor);
    Credentials given = BERTH__CONTROL__V1__CREDENTIALS__INIT;

    ck_assert(berth_set_string(&kept->api_key, "old") &&
              berth_set_string(&kept->client_cert_pem, "cert"));
    given.api_key = (char *)merge_rows[_i].given;
    ck_assert(cp_credentials_merge(kept, merge_rows[_i].given ? &given : NULL,
                                   merge_rows[_i].changes));
    ck_assert_str_eq(kept->api_key, merge_rows[_i].left);
    ck_assert_str_eq(kept->client_cert_pem, "cert");
    cp_credentials_free(kept);
}
END_TEST

/* Named by themselves, members of the credentials are told apart. */
START_TEST(apply__credentials_by_member__told_apart)
{
    SandboxConfig *into = stored(), *from = stored();
    char *one[] = {(char *)"credentials.ca_pem"};
    char *both[] = {(char *)"credentials", (char *)"credentials.api_key"};

    ck_assert_uint_eq(apply(into, from, one, 1),
                      CP_CHANGE_ANY | CP_CHANGE_TARGET | CP_CHANGE_MEMBER << 1);
    ck_assert_uint_eq(apply(into, from, both, 2), CP_CHANGE_ANY | CP_CHANGE_TARGET |
                                                      CP_CHANGE_CREDENTIALS | CP_CHANGE_MEMBER);
    ck_assert_ptr_null(into->credentials);
    berth_message_free(into);
    berth_message_free(from);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/config_apply");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(all, mask__each_path__known_or_named, 0, (int)BERTH_COUNT(path_rows));
    tcase_add_test(all, mask__star_and_more__refused);
    tcase_add_test(all, apply__no_mask__members_that_are_not_set_stay);
    tcase_add_test(all, apply__nested_path__only_that_member);
    tcase_add_test(all, apply__nested_path_absent_message__made_or_cleared);
    tcase_add_test(all, apply__overlapping_paths__count_once);
    tcase_add_test(all, apply__endpoint_same_value__no_change_of_it);
    tcase_add_test(all, apply__server_owned__passed_over);
    tcase_add_loop_test(all, credentials_merge__each_way__kept_taken_or_cleared, 0,
                        (int)BERTH_COUNT(merge_rows));
    tcase_add_test(all, apply__credentials_by_member__told_apart);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* test_environment.c - what every command of a sandbox finds in its environment. */
#include <check.h>

#include "common/messages/messages.h"
#include "services/controlplane/environment.h"

typedef Berth__Backend__V1__CreateSandboxRequest CreateSandboxRequest;
typedef Berth__Control__V1__SandboxConfig SandboxConfig;
typedef Berth__Common__V1__SessionSpec SessionSpec;

static CreateSandboxRequest *req;
static SandboxConfig *settings;
static SessionSpec *spec;

static void set_up(void)
{
    req = berth_message_new(&berth__backend__v1__create_sandbox_request__descriptor);
    settings = berth_message_new(&berth__control__v1__sandbox_config__descriptor);
    spec = berth_message_new(&berth__common__v1__session_spec__descriptor);
}

static void tear_down(void)
{
    berth_message_free(req);
    berth_message_free(settings);
    berth_message_free(spec);
}

static void of_config(const char *name, const char *value)
{
    ck_assert(berth_set_map(&settings->n_env, &settings->env,
                            &berth__control__v1__sandbox_config__env_entry__descriptor, name,
                            value));
}

static void of_session(const char *name, const char *value)
{
    ck_assert(berth_set_map(&spec->n_env, &spec->env,
                            &berth__common__v1__session_spec__env_entry__descriptor, name,
                            value));
}

/* NULL: not set. */
static const char *value(const char *session, const char *name)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;

    ref.tenant_id = (char *)"t";
    ref.session_id = (char *)session;
    if (req->n_env == 0)
        ck_assert(cp_set_environment(req, settings, spec, &ref));
    for (size_t i = 0; i < req->n_env; i++)
        if (strcmp(req->env[i]->key, name) == 0)
            return req->env[i]->value;
    return NULL;
}

/* Packages of a session go to /workspace, by pip and by npm, and are found there. */
START_TEST(set_environment__session__overlay)
{
    ck_assert_str_eq(value("s", "BERTH_SKILLS_DIR"), "/opt/berth/skills");
    ck_assert_str_eq(value("s", "BERTH_SESSION_ID"), "s");
    ck_assert_str_eq(value("s", "PYTHONUSERBASE"), CP_PACKAGES_DIR);
    ck_assert_str_eq(value("s", "NPM_CONFIG_PREFIX"), CP_PACKAGES_DIR);
    ck_assert_str_eq(value("s", "PIP_BREAK_SYSTEM_PACKAGES"), "1");
    ck_assert_str_eq(value("s", "BERTH_PATH"),
                     CP_PACKAGES_DIR "/bin:/workspace/node_modules/.bin");
    ck_assert_ptr_null(value("s", "PATH"));
    ck_assert_ptr_null(value("s", "PIP_USER"));
}
END_TEST

/* The config's, the session's over it, Berth's over both; search paths are joined. */
START_TEST(set_environment__callers_own__stand)
{
    of_config("A", "config");
    of_config("PYTHONUSERBASE", "/data/py");
    of_config("PYTHONPATH", "/data/lib");
    of_config("NODE_PATH", "");
    of_session("A", "session");
    of_session("BERTH_TENANT_ID", "victim");
    of_session("BERTH_PATH", "/evil");
    ck_assert_str_eq(value("s", "A"), "session");
    ck_assert_str_eq(value("s", "BERTH_TENANT_ID"), "t");
    ck_assert_str_eq(value("s", "BERTH_PATH"),
                     CP_PACKAGES_DIR "/bin:/workspace/node_modules/.bin");
    ck_assert_str_eq(value("s", "PYTHONUSERBASE"), "/data/py");
    ck_assert_str_eq(value("s", "PYTHONPATH"), "/data/lib:" CP_PACKAGES_DIR "/python");
    ck_assert_str_eq(value("s", "NODE_PATH"),
                     CP_PACKAGES_DIR "/lib/node_modules:/workspace/node_modules");
}
END_TEST

/* What an installer installs belongs into the image. */
START_TEST(set_environment__maintenance__no_overlay)
{
    ck_assert_str_eq(value("sk.1", "BERTH_SKILLS_DIR"), "/opt/berth/skills");
    ck_assert_ptr_null(value("sk.1", "PYTHONUSERBASE"));
    ck_assert_ptr_null(value("sk.1", "NPM_CONFIG_PREFIX"));
    ck_assert_ptr_null(value("sk.1", "BERTH_PATH"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("environment");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, set_environment__session__overlay);
    tcase_add_test(all, set_environment__callers_own__stand);
    tcase_add_test(all, set_environment__maintenance__no_overlay);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

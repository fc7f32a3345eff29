/* test_keys.c - the suite's keys while the control plane runs: where they come from, how they
 * change, and what is sealed under them. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/component/controlplane/town.h"

#define TYPE(name) (&berth__control__v1__##name##__descriptor)
#define CONFIGS "/berth.control.v1.ConfigService/"
#define K1 "k1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define K1_OTHER "k1 ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define K2 "k2 202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f\n"

typedef Berth__Control__V1__Credentials Credentials;

static struct town town;

static void open_town(void)
{
    town_open(&town, &(struct town_options){.metrics = true});
}

static void close_town(void)
{
    town_close(&town);
}

/* ------------------------------------------------------------------------ helpers */

/* As a tool does it: a new file over the old one. */
static void put_keys(const char *text)
{
    char path[96], next[96];
    int fd;

    snprintf(path, sizeof path, "%s/suite.key", town.dir);
    snprintf(next, sizeof next, "%s/suite.key.new", town.dir);
    fd = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    ck_assert_int_eq(rename(next, path), 0);
}

static enum berth_reason write_config(const char *method, const char *id, const char *api_key)
{
    Berth__Control__V1__UpdateConfigRequest req =
        BERTH__CONTROL__V1__UPDATE_CONFIG_REQUEST__INIT; /* its field 1 is CreateConfig's, too
                                                          */
    SandboxConfig config = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;
    Credentials credentials = BERTH__CONTROL__V1__CREDENTIALS__INIT;
    char path[96];

    config.tenant_id = (char *)"t1";
    config.config_id = (char *)id;
    config.backend = (char *)"local";
    credentials.api_key = (char *)api_key;
    config.credentials = &credentials;
    req.config = &config;
    snprintf(path, sizeof path, CONFIGS "%sConfig", method);
    return town_call(town.control[0], path, &req, TYPE(update_config_response), WAIT_MS, NULL,
                     NULL);
}

/* The key that a config is sealed under, by the head of what is sealed. */
static const char *key_of(const char *id)
{
    static char ret[17];
    char key[64];
    const char *sealed;
    size_t len;

    snprintf(key, sizeof key, "berth:{t1}:c/%s", id);
    sealed = town_field(&town, key, "credentials");
    len = sealed[0] ? (unsigned char)sealed[1] : 0;
    snprintf(ret, sizeof ret, "%.*s", len < sizeof ret ? (int)len : 0, sealed + 2);
    return ret;
}

static void wait_key(const char *id, const char *key)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    while (strcmp(key_of(id), key) != 0) {
        ck_assert_msg(berth_tick_ms() < end_tick, "%s is sealed under %s", id, key_of(id));
        usleep(5000);
    }
}

static void wait_log(const char *text)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    for (;;) {
        BERTH_AUTO(free) char *log = process_log(&town.planes[0]);

        if (strstr(log, text))
            return;
        ck_assert_msg(berth_tick_ms() < end_tick, "not logged: %s", text);
        usleep(5000);
    }
}

static void wait_metric(const char *line)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    for (;;) {
        BERTH_AUTO(free) char *metrics = process_metrics(&town.planes[0]);

        if (metrics && strstr(metrics, line))
            return;
        ck_assert_msg(berth_tick_ms() < end_tick, "no metric: %s\n%s", line, metrics);
        usleep(5000);
    }
}

static void set_option(const char *name, const char *value)
{
    struct process *plane = &town.planes[0];
    size_t len = strlen(name), i = 0;

    while (i < plane->n_args && strncmp(plane->texts[i], name, len) != 0)
        i++;
    ck_assert_uint_lt(i, BERTH_COUNT(plane->texts));
    if (i == plane->n_args)
        plane->n_args++;
    snprintf(plane->texts[i], sizeof plane->texts[i], "%s%s", name, value);
}

static void start_again(void)
{
    process_kill(&town.planes[0]);
    process_start(&town.planes[0]);
    town_wait_ready(&town);
}

static void start_in_vain(void)
{
    struct process *plane = &town.planes[0];
    int status = 0;

    process_kill(plane);
    process_start(plane);
    ck_assert_int_eq(waitpid(plane->pid, &status, 0), plane->pid);
    plane->pid = 0;
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) != 0);
}

/* Bytes of /proc/<pid>/<name> of the control plane. */
static bool proc_holds(const char *name, const char *text)
{
    static char buf[1 << 16];
    char path[64];
    FILE *file;
    size_t size;

    snprintf(path, sizeof path, "/proc/%d/%s", (int)town.planes[0].pid, name);
    file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    size = fread(buf, 1, sizeof buf, file);
    fclose(file);
    return memmem(buf, size, text, strlen(text)) != NULL;
}

/* ----------------------------------------------------------------------- rotation */

/* A new first key in the file: what is sealed under the old one is sealed anew in the
 * background, and the figures say when the old one is not needed any more. */
START_TEST(keys__new_first_key_in_file__configs_sealed_anew)
{
    char before[2048];

    ck_assert_int_eq(write_config("Create", "sealed", "a-secret"), BERTH_REASON_NONE);
    ck_assert_str_eq(key_of("sealed"), "k1");
    snprintf(before, sizeof before, "%s", town_field(&town, "berth:{t1}:c/sealed", "settings"));
    put_keys(K2 K1);
    wait_key("sealed", "k2");
    wait_metric("berth_sealed_records{record=\"config\",key_id=\"k1\"} 0\n");
    wait_metric("berth_sealed_records{record=\"config\",key_id=\"k2\"} 1\n");
    wait_metric("berth_suite_keys{key_id=\"k2\"} 1\n");
    wait_metric("berth_suite_keys{key_id=\"k1\"} 0\n");
    /* Nothing that a client may see of the config has changed, its etag included. */
    ck_assert_str_eq(town_field(&town, "berth:{t1}:c/sealed", "settings"), before);

    put_keys(K2);
    wait_log("\"the suite's keys have changed\",\"key_id\":\"k2\"");
    /* A masked member is kept: it is opened and sealed again by the key that is left. */
    ck_assert_int_eq(write_config("Update", "sealed", "***"), BERTH_REASON_NONE);
    start_again();
    ck_assert_int_eq(write_config("Update", "sealed", "***"), BERTH_REASON_NONE);
}
END_TEST

static void wait_endpoint(const char *session, const char *key_id)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    char key[64], head[32];

    snprintf(key, sizeof key, "berth:{t1}:s/%s", session);
    snprintf(head, sizeof head, "\x01%c%s", (char)strlen(key_id), key_id);
    while (strncmp(town_field(&town, key, "endpoint"), head, strlen(head)) != 0) {
        ck_assert_msg(berth_tick_ms() < end_tick, "the endpoint is not under %s", key_id);
        usleep(5000);
    }
}

/* Endpoints of sessions, running and paused: sealed anew too, without waking anything; an old
 * key that one of them needs cannot go. */
START_TEST(keys__new_first_key__endpoints_sealed_anew)
{
    BERTH_AUTO(free) char *box = strdup(town_box(&town, "s1", NULL));

    (void)town_box(&town, "s2", NULL);
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s2"), BERTH_REASON_NONE);
    wait_endpoint("s1", "k1");
    fake_forget_calls(town.fake);
    put_keys(K2); /* not yet known: refused */
    wait_log("key 'k1' is still needed: the endpoint of session t1/");
    put_keys(K2 K1);
    wait_endpoint("s1", "k2");
    wait_endpoint("s2", "k2");
    wait_metric("berth_sealed_records{record=\"endpoint\",key_id=\"k1\"} 0\n");
    wait_metric("berth_sealed_records{record=\"endpoint\",key_id=\"k2\"} 2\n");
    ck_assert_uint_eq(fake_count(town.fake, FAKE_CONNECT), 0);
    put_keys(K2);
    wait_log("\"the suite's keys have changed\",\"key_id\":\"k2\"");
    wait_metric("berth_suite_keys{key_id=\"k2\"} 1\n");
    start_again();
    ck_assert_str_eq(town_box(&town, "s1", NULL), box); /* it opens: the same one is used */
    (void)town_box(&town, "s2", NULL);
    ck_assert_uint_eq(fake_alive(town.fake), 2);
}
END_TEST

/* A key that only opens seals nothing. */
START_TEST(keys__second_key_in_file__nothing_changes)
{
    ck_assert_int_eq(write_config("Create", "sealed", "a-secret"), BERTH_REASON_NONE);
    put_keys(K1 K2);
    wait_metric("berth_suite_keys{key_id=\"k2\"} 0\n");
    wait_metric("berth_sealed_records{record=\"config\",key_id=\"k1\"} 1\n");
    ck_assert_str_eq(key_of("sealed"), "k1");
}
END_TEST

/* Without a key that is still needed nothing starts, and the error names it and a config. */
START_TEST(keys__needed_key_missing_at_start__refused_by_name)
{
    ck_assert_int_eq(write_config("Create", "sealed", "a-secret"), BERTH_REASON_NONE);
    process_kill(&town.planes[0]);
    put_keys(K2);
    start_in_vain();
    wait_log("is sealed under key 'k1', which is not among the suite's keys"); /* the journal */
    set_option("--journal=", "");
    start_in_vain();
    wait_log("key 'k1' is still needed: config t1/sealed is sealed under it");
    put_keys(K2 K1);
    start_again();
    wait_key("sealed", "k2");
}
END_TEST

/* The store is away at the start: the key is missed as soon as it is back, and nothing is
 * served until then. */
START_TEST(keys__needed_key_missing_while_store_away__not_serving)
{
    ck_assert_int_eq(write_config("Create", "sealed", "a-secret"), BERTH_REASON_NONE);
    process_kill(&town.planes[0]);
    put_keys(K2);
    set_option("--journal=", "");
    redis_server_pause(&town.redis);
    process_start(&town.planes[0]);
    wait_log("the store cannot be reached");
    redis_server_resume(&town.redis);
    wait_log("key 'k1' is still needed: config t1/sealed is sealed under it");
}
END_TEST

/* Taken out of the file while it is needed: the keys of before stay. */
START_TEST(keys__needed_key_removed_while_running__kept)
{
    ck_assert_int_eq(write_config("Create", "sealed", "a-secret"), BERTH_REASON_NONE);
    put_keys(K2);
    wait_log("key 'k1' is still needed: config t1/sealed is sealed under it");
    ck_assert_int_eq(write_config("Update", "sealed", "***"), BERTH_REASON_NONE);
    ck_assert_str_eq(key_of("sealed"), "k1");
}
END_TEST

static const struct {
    const char *text, *says;
} bad_rows[] = {
    {"", "no key in it"},
    {K1_OTHER, "key id 'k1' has another key than before"},
    {"k1 00\n", "line 1: wanted one space and 64 hex digits"},
};

/* A bad file changes nothing, and no digit of it is logged. */
START_TEST(keys__bad_file_while_running__kept)
{
    put_keys(bad_rows[_i].text);
    wait_log(bad_rows[_i].says);
    ck_assert_int_eq(write_config("Create", "sealed", "a-secret"), BERTH_REASON_NONE);
    ck_assert_str_eq(key_of("sealed"), "k1");
    BERTH_AUTO(free) char *log = process_log(&town.planes[0]);
    ck_assert_ptr_null(strstr(log, "0102030405"));
}
END_TEST

/* A config that was meant for another does not open, and is not lost by being sealed anew. */
START_TEST(keys__sealed_bytes_of_another_config__left_alone)
{
    struct berth_reply *reply;
    BERTH_AUTO(free) char *before = NULL;
    size_t size;

    ck_assert_int_eq(write_config("Create", "one", "secret-of-one"), BERTH_REASON_NONE);
    ck_assert_int_eq(write_config("Create", "two", "secret-of-two"), BERTH_REASON_NONE);
    reply = redis_run(town.store, "HGET", "berth:{t1}:c/one", "credentials", NULL);
    size = reply->size;
    before = malloc(size);
    memcpy(before, reply->string, size);
    {
        const char *const argv[] = {"HSET", "berth:{t1}:c/two", "credentials", before};
        const size_t sizes[] = {4, strlen(argv[1]), strlen(argv[2]), size};
        struct berth_reply *done = NULL;

        ck_assert_int_eq(berth_redis_call(town.store, 4, argv, sizes, &done, NULL), BERTH_OK);
        berth_reply_free(done);
    }
    berth_reply_free(reply);
    put_keys(K2 K1);
    wait_key("one", "k2");
    wait_log("records were not sealed anew, trying again");
    reply = redis_run(town.store, "HGET", "berth:{t1}:c/two", "credentials", NULL);
    ck_assert_uint_eq(reply->size, size);
    ck_assert_mem_eq(reply->string, before, size);
    berth_reply_free(reply);
    ck_assert_int_eq(write_config("Update", "two", "***"), BERTH_REASON_BACKEND_AUTHENTICATION);
    ck_assert_int_eq(write_config("Update", "one", "***"), BERTH_REASON_NONE);
}
END_TEST

/* ------------------------------------------------------------------------ sources */

/* A command is asked at the start and at SIGHUP, and only then. */
START_TEST(keys__command__asked_again_at_sighup)
{
    char command[128];

    snprintf(command, sizeof command, "/bin/cat %s/suite.key", town.dir);
    set_option("--key_command=", command);
    set_option("--key_file=", "/nonexistent");
    start_again();
    ck_assert_int_eq(write_config("Create", "sealed", "a-secret"), BERTH_REASON_NONE);
    put_keys(K2 K1);
    ck_assert_int_eq(write_config("Update", "sealed", "another"), BERTH_REASON_NONE);
    ck_assert_str_eq(key_of("sealed"), "k1");
    ck_assert_int_eq(kill(town.planes[0].pid, SIGHUP), 0);
    wait_key("sealed", "k2");
    set_option("--key_command=", "/bin/false");
    start_in_vain();
    wait_log("key command: it failed");
    set_option("--key_command=", command);
    start_again();
}
END_TEST

/* A key of the environment is wiped there: neither /proc/PID/environ nor the command line hold
 * it. Two sources at once are refused. */
START_TEST(keys__environment__wiped_once_read)
{
    setenv("BERTH_SUITE_KEY",
           "e1 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
           "b0b1b2b3b4b5b6b7b8b9babbbcbdbebf,"
           "k1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
           1);
    setenv("BERTH_TEST_CONTROL", "shown", 1);
    start_again();
    ck_assert_int_eq(write_config("Create", "sealed", "a-secret"), BERTH_REASON_NONE);
    ck_assert_str_eq(key_of("sealed"), "e1");
    ck_assert(proc_holds("environ", "BERTH_TEST_CONTROL=shown")); /* the look does look */
    ck_assert(!proc_holds("environ", "a0a1a2a3"));
    ck_assert(!proc_holds("environ", "0001020304"));
    ck_assert(!proc_holds("cmdline", "a0a1a2a3"));
    set_option("--key_command=", "/bin/true");
    start_in_vain();
    wait_log("suite_key: must be empty where there is a key_command");
    unsetenv("BERTH_SUITE_KEY");
    unsetenv("BERTH_TEST_CONTROL");
    put_keys(K1 "e1 a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf\n");
    set_option("--key_command=", "");
    start_again();
}
END_TEST

/* No core: the limit is 0, and raising it from outside writes none either. */
START_TEST(process__killed_by_a_fault__no_core)
{
    struct process *plane = &town.planes[0];
    struct rlimit cores, had;
    int status = 0;

    /* As it may be inherited from whoever starts us. */
    ck_assert_int_eq(getrlimit(RLIMIT_CORE, &cores), 0);
    cores.rlim_cur = cores.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_CORE, &cores), 0);
    start_again();
    ck_assert_int_eq(prlimit(plane->pid, RLIMIT_CORE, NULL, &had), 0);
    ck_assert_uint_eq(had.rlim_cur, 0);
    if (prlimit(plane->pid, RLIMIT_CORE, &cores, NULL) < 0)
        ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(kill(plane->pid, SIGSEGV), 0);
    ck_assert_int_eq(waitpid(plane->pid, &status, 0), plane->pid);
    plane->pid = 0;
    ck_assert(!WIFSIGNALED(status) || !WCOREDUMP(status)); /* a sanitizer exits instead */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/keys");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, open_town, close_town);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, keys__new_first_key_in_file__configs_sealed_anew);
    tcase_add_test(all, keys__new_first_key__endpoints_sealed_anew);
    tcase_add_test(all, keys__second_key_in_file__nothing_changes);
    tcase_add_test(all, keys__needed_key_missing_at_start__refused_by_name);
    tcase_add_test(all, keys__needed_key_missing_while_store_away__not_serving);
    tcase_add_test(all, keys__needed_key_removed_while_running__kept);
    tcase_add_loop_test(all, keys__bad_file_while_running__kept, 0, (int)BERTH_COUNT(bad_rows));
    tcase_add_test(all, keys__sealed_bytes_of_another_config__left_alone);
    tcase_add_test(all, keys__command__asked_again_at_sighup);
    tcase_add_test(all, keys__environment__wiped_once_read);
    tcase_add_test(all, process__killed_by_a_fault__no_core);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

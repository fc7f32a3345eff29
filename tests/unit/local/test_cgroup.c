#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/ids/ids.h"
#include "common/time/time.h"
#include "services/adapter-local/spawner/cgroup.h"
#include "services/adapter-local/spawner/io.h"

/* Hosts as directories: what a kernel would do to files is not tested here, but what is written
 * where is; this machine has one layout only. */

static char root[64];

static void setup(void)
{
    char random[9];

    snprintf(root, sizeof root, "/tmp/berth-cgroup-%s", berth_id_base36(random, 8));
    ck_assert_int_eq(mkdir(root, 0700), 0);
}

static void teardown(void)
{
    ck_assert_int_eq(io_remove_tree(AT_FDCWD, root), 0);
}

static void put(const char *name, const char *text)
{
    char path[512];
    int fd;

    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static const char *get(const char *name)
{
    static char text[256];
    char path[512];

    snprintf(path, sizeof path, "%s/%s", root, name);
    ck_assert_msg(io_read(AT_FDCWD, path, text, sizeof text) >= 0, "%s", path);
    return text;
}

#define HYBRID                                                                                 \
    "25 1 0:1 / /sys rw - sysfs sysfs rw\n"                                                    \
    "30 25 0:25 / %s/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n"                  \
    "31 25 0:26 / %s/memory rw - cgroup cgroup rw,memory\n"                                    \
    "32 25 0:27 / %s/pids rw - cgroup cgroup rw,pids\n"                                        \
    "33 25 0:28 / %s/unified rw - cgroup2 cgroup2 rw\n"
#define PURE "33 25 0:28 / %s rw - cgroup2 cgroup2 rw,nsdelegate\n"

static void discover(bool pure, struct cgroup_host *host)
{
    struct berth_error err = {0};
    char *text;
    int n =
        pure ? asprintf(&text, PURE, root) : asprintf(&text, HYBRID, root, root, root, root);

    ck_assert_int_gt(n, 0);
    ck_assert_msg(cgroup_discover(text, host, &err) == BERTH_OK, "%s", err.text);
    free(text);
}

/* A hybrid host: v1 controllers, and a unified hierarchy without them. */
START_TEST(cgroup_discover__hybrid__v1_homes)
{
    struct cgroup_host host;
    char path[128];

    put("unified/cgroup.controllers", "hugetlb\n");
    discover(false, &host);
    snprintf(path, sizeof path, "%s/memory", root);
    ck_assert_str_eq(host.v1[CGROUP_MEMORY], path);
    snprintf(path, sizeof path, "%s/cpu", root);
    ck_assert_str_eq(host.v1[CGROUP_CPU], path);
    snprintf(path, sizeof path, "%s/unified", root);
    ck_assert_str_eq(host.unified, path);
}
END_TEST

START_TEST(cgroup_discover__pure_v2__all_unified)
{
    struct cgroup_host host;

    put("cgroup.controllers", "cpuset cpu io memory pids\n");
    discover(true, &host);
    for (int i = 0; i < CGROUP_N_CONTROLLERS; i++)
        ck_assert_str_eq(host.v1[i], "");
}
END_TEST

/* What is not there is named. */
START_TEST(cgroup_discover__nothing_or_half__says_what_is_missing)
{
    struct cgroup_host host;
    struct berth_error err = {0};
    char *text;

    ck_assert_int_eq(cgroup_discover("", &host, &err), BERTH_UNIMPLEMENTED);
    ck_assert_ptr_nonnull(strstr(err.text, "cgroup2"));
    put("cgroup.controllers", "cpuset cpu memory\n");
    ck_assert_int_gt(asprintf(&text, PURE, root), 0);
    ck_assert_int_eq(cgroup_discover(text, &host, &err), BERTH_UNIMPLEMENTED);
    ck_assert_ptr_nonnull(strstr(err.text, "pids"));
    free(text);
    ck_assert_int_eq(cgroup_discover("garbage\n - \n - cgroup2\n\n", &host, &err),
                     BERTH_UNIMPLEMENTED);
}
END_TEST

static const struct adapter_resources limits = {
    .memory_bytes = 1 << 30, .max_processes = 100, .cpu_millis = 1500};

/* Pure v2: controllers handed down, limits on the box. */
START_TEST(cgroup_make__pure_v2__limits_on_the_box)
{
    struct cgroup_host host;
    struct cgroup group = {.host = &host, .store = "berth-x", .id = "s1"};
    struct berth_error err = {0};

    put("cgroup.controllers", "cpu memory pids\n");
    put("cgroup.subtree_control", "");
    put("berth-x/cgroup.subtree_control", "");
    put("berth-x/s1/cgroup.subtree_control", "");
    put("berth-x/s1/box/memory.max", "");
    put("berth-x/s1/box/memory.swap.max", "");
    put("berth-x/s1/box/pids.max", "");
    put("berth-x/s1/box/cpu.max", "");
    discover(true, &host);
    ck_assert_msg(cgroup_make(&group, &limits, &err) == BERTH_OK, "%s", err.text);
    ck_assert_str_eq(get("berth-x/s1/box/memory.max"), "1073741824");
    ck_assert_str_eq(get("berth-x/s1/box/memory.swap.max"), "0");
    ck_assert_str_eq(get("berth-x/s1/box/pids.max"), "100");
    ck_assert_str_eq(get("berth-x/s1/box/cpu.max"), "150000 100000");
    /* Each word is a write of its own, over the one before in these files. */
    ck_assert_ptr_nonnull(strstr(get("berth-x/s1/cgroup.subtree_control"), "+cpu"));
}
END_TEST

START_TEST(cgroup_make__no_limits__written_as_max)
{
    struct cgroup_host host;
    struct cgroup group = {.host = &host, .store = "berth-x", .id = "s1"};
    static const struct adapter_resources none;

    put("cgroup.controllers", "cpu memory pids\n");
    put("cgroup.subtree_control", "");
    put("berth-x/cgroup.subtree_control", "");
    put("berth-x/s1/cgroup.subtree_control", "");
    put("berth-x/s1/box/memory.max", "");
    put("berth-x/s1/box/pids.max", "");
    put("berth-x/s1/box/cpu.max", "");
    discover(true, &host);
    ck_assert_int_eq(cgroup_make(&group, &none, NULL), BERTH_OK);
    ck_assert_str_eq(get("berth-x/s1/box/memory.max"), "max");
    ck_assert_str_eq(get("berth-x/s1/box/cpu.max"), "max 100000");
}
END_TEST

START_TEST(cgroup_make__hybrid__limits_in_v1)
{
    struct cgroup_host host;
    struct cgroup group = {.host = &host, .store = "berth-x", .id = "s1"};
    struct berth_error err = {0};

    put("unified/cgroup.controllers", "");
    put("memory/berth-x/s1/memory.limit_in_bytes", "");
    put("memory/berth-x/s1/memory.memsw.limit_in_bytes", "");
    put("pids/berth-x/s1/pids.max", "");
    put("cpu/berth-x/s1/cpu.cfs_period_us", "");
    put("cpu/berth-x/s1/cpu.cfs_quota_us", "");
    discover(false, &host);
    ck_assert_msg(cgroup_make(&group, &limits, &err) == BERTH_OK, "%s", err.text);
    ck_assert_str_eq(get("memory/berth-x/s1/memory.limit_in_bytes"), "1073741824");
    ck_assert_str_eq(get("memory/berth-x/s1/memory.memsw.limit_in_bytes"), "1073741824");
    ck_assert_str_eq(get("pids/berth-x/s1/pids.max"), "100");
    ck_assert_str_eq(get("cpu/berth-x/s1/cpu.cfs_quota_us"), "150000");
}
END_TEST

/* A limit that cannot be written is an error, not a sandbox without it. */
START_TEST(cgroup_make__limit_refused__fails)
{
    struct cgroup_host host;
    struct cgroup group = {.host = &host, .store = "berth-x", .id = "s1"};

    put("unified/cgroup.controllers", "");
    put("memory/none", "");
    put("pids/none", "");
    put("cpu/none", "");
    discover(false, &host);
    ck_assert_int_ne(cgroup_make(&group, &limits, NULL), BERTH_OK);
}
END_TEST

/* A freeze that does not come about is taken back. */
START_TEST(cgroup_freeze__never_frozen__timeout_and_thawed)
{
    struct cgroup_host host;
    struct cgroup group = {.host = &host, .store = "berth-x", .id = "s1"};
    struct berth_error err = {0};

    put("cgroup.controllers", "cpu memory pids\n");
    put("berth-x/s1/box/cgroup.freeze", "");
    put("berth-x/s1/box/cgroup.events", "populated 1\nfrozen 0\n");
    discover(true, &host);
    ck_assert_int_eq(cgroup_freeze(&group, true, berth_tick_ms() + 30, &err),
                     BERTH_DEADLINE_EXCEEDED);
    ck_assert_int_eq(err.reason, BERTH_REASON_BACKEND_TIMEOUT);
    ck_assert_str_eq(get("berth-x/s1/box/cgroup.freeze"), "0");
    ck_assert(!cgroup_is_frozen(&group));
}
END_TEST

START_TEST(cgroup_freeze__no_group__sandbox_terminal)
{
    struct cgroup_host host;
    struct cgroup group = {.host = &host, .store = "berth-x", .id = "gone"};
    struct berth_error err = {0};

    put("cgroup.controllers", "cpu memory pids\n");
    discover(true, &host);
    ck_assert_int_eq(cgroup_freeze(&group, true, berth_tick_ms() + 30, &err), BERTH_NOT_FOUND);
    ck_assert_int_eq(err.reason, BERTH_REASON_SANDBOX_TERMINAL);
    ck_assert_int_eq(cgroup_destroy(&group, berth_tick_ms() + 30, &err), BERTH_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local/cgroup");
    TCase *tcase = tcase_create("cgroup");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, cgroup_discover__hybrid__v1_homes);
    tcase_add_test(tcase, cgroup_discover__pure_v2__all_unified);
    tcase_add_test(tcase, cgroup_discover__nothing_or_half__says_what_is_missing);
    tcase_add_test(tcase, cgroup_make__pure_v2__limits_on_the_box);
    tcase_add_test(tcase, cgroup_make__no_limits__written_as_max);
    tcase_add_test(tcase, cgroup_make__hybrid__limits_in_v1);
    tcase_add_test(tcase, cgroup_make__limit_refused__fails);
    tcase_add_test(tcase, cgroup_freeze__never_frozen__timeout_and_thawed);
    tcase_add_test(tcase, cgroup_freeze__no_group__sandbox_terminal);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/ids/ids.h"
#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/message.h"
#include "services/adapter-local/spawner/store.h"

static char root[64];
static struct store store;

static void setup(void)
{
    char random[9];
    struct berth_error err = {0};

    snprintf(root, sizeof root, "/tmp/berth-store-%s", berth_id_base36(random, 8));
    ck_assert_msg(store_open(root, "", &store, &err) == BERTH_OK, "%s", err.text);
}

static void teardown(void)
{
    store_close(&store);
    ck_assert_int_eq(io_remove_tree(AT_FDCWD, root), 0);
}

/* Opened again it is the same store, and nobody else may look in. */
START_TEST(store_open__again__same_uuid_and_private)
{
    struct store again;
    struct stat st;

    ck_assert_uint_eq(strlen(store.uuid), 36);
    ck_assert_int_eq(chmod(root, 0755), 0);
    ck_assert_int_eq(store_open(root, "", &again, NULL), BERTH_OK);
    ck_assert_str_eq(store.uuid, again.uuid);
    ck_assert_int_eq(stat(root, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    store_close(&again);
}
END_TEST

static const struct {
    const char *path, *templates;
} bad[] = {{"relative", ""}, {"", ""}, {"/tmp/x", "relative"}, {"/tmp/x", "/a:b"}};

START_TEST(store_open__bad_paths__field_invalid)
{
    struct store other;
    struct berth_error err = {0};

    ck_assert_int_eq(store_open(bad[_i].path, bad[_i].templates, &other, &err),
                     BERTH_INVALID_ARGUMENT);
    (void)rmdir("/tmp/x");
}
END_TEST

START_TEST(store_id_ok__names__safe_or_refused)
{
    static const char *const good[] = {"a", "snap-x", "A.b_c-9"};
    static const char *const refused[] = {
        "",     ".",
        "..",   ".hidden",
        "a/b",  "a b",
        "a\n",  "\xff",
        "a\\b", "0123456789012345678901234567890123456789012345678901234567890123456789xx"};

    for (size_t i = 0; i < BERTH_COUNT(good); i++)
        ck_assert_msg(store_id_ok(good[i]), "%s", good[i]);
    for (size_t i = 0; i < BERTH_COUNT(refused); i++)
        ck_assert_msg(!store_id_ok(refused[i]), "%s", refused[i]);
}
END_TEST

static void make(struct record *record)
{
    *record = (struct record){.id = "s1",
                              .key = "k",
                              .attempt = "ab",
                              .fence = UINT64_MAX,
                              .state = RECORD_READY,
                              .paused = true,
                              .create_ms = 123,
                              .image = {ADAPTER_IMAGE_SNAPSHOT, "snap-1", 7},
                              .network = {ADAPTER_OPEN, ADAPTER_CLOSED, 1},
                              .timeouts = {.idle_ms = 5,
                                           .max_lifetime_ms = ADAPTER_INHERIT,
                                           .max_paused_ms = 0,
                                           .warn_before_ms = 9,
                                           .on_idle = 1,
                                           .auto_resume = 2},
                              .resources = {1, 2, 3, 4, 5},
                              .cidr = "10.213.0.0/16",
                              .resolvers = "1.2.3.4",
                              .slot = 42,
                              .boot = "b",
                              .supervisor_pid = 10,
                              .supervisor_start = 11,
                              .init_pid = 12,
                              .init_start = 13};
    ck_assert_int_eq(adapter_pairs_add(&record->metadata, "berth.x", "\"\xc3\xa4\n", NULL), 0);
    ck_assert_int_eq(adapter_pairs_add(&record->env, "A", "", NULL), 0);
    record->layers[0] = strdup("snapshots/snap-1/layer");
    record->layers[1] = strdup("/else/base/rootfs");
    record->n_layers = 2;
}

/* All members come back as they were. */
START_TEST(record__saved_and_loaded__equal)
{
    struct record in, out;

    make(&in);
    ck_assert_int_eq(mkdirat(store.sandboxes_fd, "s1", 0700), 0);
    ck_assert_int_eq(record_save(&store, &in, true, NULL), BERTH_OK);
    ck_assert_int_eq(record_load(&store, "s1", &out, NULL), BERTH_OK);
    ck_assert_str_eq(in.id, out.id);
    ck_assert_str_eq(in.key, out.key);
    ck_assert_str_eq(in.attempt, out.attempt);
    ck_assert_uint_eq(in.fence, out.fence);
    ck_assert_int_eq(in.state, out.state);
    ck_assert(out.paused && !out.ended);
    ck_assert_int_eq(memcmp(&in.timeouts, &out.timeouts, sizeof in.timeouts), 0);
    ck_assert_int_eq(memcmp(&in.network, &out.network, sizeof in.network), 0);
    ck_assert_int_eq(memcmp(&in.resources, &out.resources, sizeof in.resources), 0);
    ck_assert_int_eq(in.image.kind, out.image.kind);
    ck_assert_uint_eq(in.image.generation, out.image.generation);
    ck_assert_str_eq(adapter_pairs_get(&out.metadata, "berth.x"), "\"\xc3\xa4\n");
    ck_assert_str_eq(adapter_pairs_get(&out.env, "A"), "");
    ck_assert_uint_eq(out.n_layers, 2);
    ck_assert_str_eq(out.layers[1], "/else/base/rootfs");
    ck_assert_int_eq(out.slot, 42);
    ck_assert_int_eq(out.init_pid, 12);
    ck_assert_uint_eq(out.init_start, 13);
    record_deinit(&in);
    record_deinit(&out);
}
END_TEST

static const char *const damaged[] = {
    "{",
    "[]",
    "{}",
    "{\"id\":\"other\",\"state\":2}",
    "{\"id\":\"s1\",\"state\":9}",
    "{\"id\":\"s1\",\"state\":\"2\"}",
    "{\"id\":\"s1\",\"id\":\"s1\"}",
    "{\"id\":\"s1\",\"slot\":-1}",
    "{\"id\":\"s1\",\"slot\":99999}",
    "{\"id\":\"s1\",\"layers\":[1]}",
    "{\"id\":\"s1\",\"layers\":[\"\"]}",
    "{\"id\":\"s1\",\"metadata\":[]}",
    "{\"id\":\"s1\",\"metadata\":{\"a\":1}}",
    "{\"id\":\"s1\",\"network\":{\"egress\":7}}",
    "{\"id\":\"s1\",\"layers\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\","
    "\"a\","
    "\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"]}",
};

/* A record that does not validate is an error, never "not there". */
START_TEST(record_load__damaged__internal_error)
{
    struct record record;
    struct berth_error err = {0};
    int fd;

    ck_assert_int_eq(mkdirat(store.sandboxes_fd, "s1", 0700), 0);
    fd = io_open_dir(store.sandboxes_fd, "s1");
    ck_assert_int_eq(io_replace(fd, "meta.json", damaged[_i], strlen(damaged[_i]), false, NULL),
                     BERTH_OK);
    close(fd);
    ck_assert_msg(record_load(&store, "s1", &record, &err) == BERTH_INTERNAL, "%s: %s",
                  damaged[_i], err.text);
}
END_TEST

static const struct {
    const char *text;
    size_t size;
} torn[] = {{"", 0}, {"\0\0\0\0\0\0\0", 7}, {"{\"id\":\"s1\",\0\0\0", 13}};

/* What a power cut leaves of a record that was not synced is as good as none. */
START_TEST(record_load__torn_by_a_power_cut__sandbox_not_found)
{
    struct record record;
    struct berth_error err = {0};
    int fd;

    ck_assert_int_eq(mkdirat(store.sandboxes_fd, "s1", 0700), 0);
    fd = io_open_dir(store.sandboxes_fd, "s1");
    ck_assert_int_eq(io_replace(fd, "meta.json", torn[_i].text, torn[_i].size, false, NULL),
                     BERTH_OK);
    close(fd);
    ck_assert_int_eq(record_load(&store, "s1", &record, &err), BERTH_NOT_FOUND);
    ck_assert_int_eq(err.reason, BERTH_REASON_SANDBOX_NOT_FOUND);
}
END_TEST

START_TEST(record_load__absent__sandbox_not_found)
{
    static const char *const ids[] = {"none", "..", "", "../keys", "s1"};
    struct record record;
    struct berth_error err = {0};

    ck_assert_int_eq(mkdirat(store.sandboxes_fd, "s1", 0700), 0); /* without meta.json */
    for (size_t i = 0; i < BERTH_COUNT(ids); i++) {
        ck_assert_int_eq(record_load(&store, ids[i], &record, &err), BERTH_NOT_FOUND);
        ck_assert_int_eq(err.reason, BERTH_REASON_SANDBOX_NOT_FOUND);
    }
}
END_TEST

/* A pid proves nothing: start time and boot must be the same, too. */
START_TEST(record_alive__reused_pid_or_other_boot__dead)
{
    struct record record;

    make(&record);
    record.supervisor_pid = record.init_pid = getpid();
    record.supervisor_start = record.init_start = io_process_start(getpid());
    ck_assert_uint_ne(record.init_start, 0);
    snprintf(record.boot, sizeof record.boot, "%s", store.boot);
    ck_assert(record_alive(&store, &record));
    record.init_start++;
    ck_assert(!record_alive(&store, &record));
    record.init_start--;
    record.boot[0] ^= 1;
    ck_assert(!record_alive(&store, &record));
    record.boot[0] ^= 1;
    record.ended = true;
    ck_assert(!record_alive(&store, &record));
    record_deinit(&record);
}
END_TEST

/* ------------------------------------------------------------------------ locks */

static void *lock_key(void *arg)
{
    struct key_lock *lock = arg;

    ck_assert_int_eq(key_lock(&store, "k", berth_tick_ms() + 10000, lock, NULL), BERTH_OK);
    return NULL;
}

/* The lock never lapses between two writes: who waits sees the last one. */
START_TEST(key_lock__writer_replaces_the_file__waiter_sees_the_last)
{
    struct key_lock first = {.fd = -1}, second = {.fd = -1};
    pthread_t thread;

    ck_assert_int_eq(key_lock(&store, "k", berth_tick_ms(), &first, NULL), BERTH_OK);
    ck_assert_str_eq(first.record.sandbox_id, "");
    ck_assert_int_eq(pthread_create(&thread, NULL, lock_key, &second), 0);
    for (int i = 0; i < 50; i++) {
        first.record.fence = (uint64_t)i;
        snprintf(first.record.sandbox_id, sizeof first.record.sandbox_id, "s%d", i);
        ck_assert_int_eq(key_save(&store, &first, NULL), BERTH_OK);
        ck_assert_int_eq(second.fd, -1);
    }
    key_unlock(&first);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(second.record.fence, 49);
    ck_assert_str_eq(second.record.sandbox_id, "s49");
    key_unlock(&second);
}
END_TEST

/* Put or saved, everybody sees it, whoever dies; syncing is for the power only. */
START_TEST(key_put__not_synced__seen_by_the_next)
{
    struct key_lock lock = {.fd = -1};

    ck_assert_int_eq(key_lock(&store, "k", berth_tick_ms(), &lock, NULL), BERTH_OK);
    lock.record.fence = 7;
    snprintf(lock.record.sandbox_id, sizeof lock.record.sandbox_id, "s7");
    ck_assert_int_eq(key_put(&store, &lock, NULL), BERTH_OK);
    key_unlock(&lock);
    ck_assert_int_eq(key_lock(&store, "k", berth_tick_ms(), &lock, NULL), BERTH_OK);
    ck_assert_uint_eq(lock.record.fence, 7);
    ck_assert_str_eq(lock.record.sandbox_id, "s7");
    ck_assert_int_eq(key_sync(&lock, NULL), BERTH_OK);
    key_unlock(&lock);
}
END_TEST

/* A key that a power cut tore is a new one: whoever wrote it was never answered. One that is
 * nonsense is an error. */
START_TEST(key_lock__torn_by_a_power_cut__as_new)
{
    struct key_lock lock = {.fd = -1};

    ck_assert_int_eq(
        io_replace(store.keys_fd, "k.json", torn[_i].text, torn[_i].size, false, NULL),
        BERTH_OK);
    ck_assert_int_eq(key_lock(&store, "k", berth_tick_ms(), &lock, NULL), BERTH_OK);
    ck_assert_uint_eq(lock.record.fence, 0);
    ck_assert_str_eq(lock.record.sandbox_id, "");
    key_unlock(&lock);
    ck_assert_int_eq(io_replace(store.keys_fd, "k.json", "{\"fence\":", 9, false, NULL),
                     BERTH_OK);
    ck_assert_int_eq(key_lock(&store, "k", berth_tick_ms(), &lock, NULL), BERTH_INTERNAL);
}
END_TEST

START_TEST(key_lock__held__backend_timeout)
{
    struct key_lock first = {.fd = -1}, second = {.fd = -1};
    struct berth_error err = {0};

    ck_assert_int_eq(key_lock(&store, "k", berth_tick_ms(), &first, NULL), BERTH_OK);
    ck_assert_int_eq(key_lock(&store, "k", berth_tick_ms() + 20, &second, &err),
                     BERTH_DEADLINE_EXCEEDED);
    key_unlock(&first);
    ck_assert_int_eq(key_lock(&store, "k", berth_tick_ms() + 20, &second, &err), BERTH_OK);
    key_unlock(&second);
}
END_TEST

/* A sandbox that went to the trash while somebody waited for it is not there any more. */
START_TEST(record_lock__deleted_meanwhile__not_found)
{
    struct record_lock first = {-1, -1}, second = {-1, -1};

    ck_assert_int_eq(mkdirat(store.sandboxes_fd, "s1", 0700), 0);
    ck_assert_int_eq(record_lock(&store, "s1", berth_tick_ms(), &first, NULL), BERTH_OK);
    ck_assert_int_eq(store_trash(&store, store.sandboxes_fd, "s1", NULL), BERTH_OK);
    record_unlock(&first);
    ck_assert_int_eq(record_lock(&store, "s1", berth_tick_ms(), &second, NULL),
                     BERTH_NOT_FOUND);
}
END_TEST

/* ---------------------------------------------------------------------- messages */

/* An error is the same on the other side. */
START_TEST(message__error__carried_over)
{
    struct berth_error in = {0}, out = {0};
    json_t *json;

    (void)berth_fail(&in, BERTH_REASON_DISK_FULL, "no \"room\"");
    snprintf(in.sandbox_id, sizeof in.sandbox_id, "s1");
    snprintf(in.field, sizeof in.field, "f");
    json = message_result(in.code, &in);
    ck_assert_int_eq(message_check(json, &out), in.code);
    ck_assert_int_eq(out.reason, BERTH_REASON_DISK_FULL);
    ck_assert_str_eq(out.text, "no \"room\"");
    ck_assert_str_eq(out.sandbox_id, "s1");
    ck_assert_str_eq(out.field, "f");
    json_decref(json);
}
END_TEST

START_TEST(message__nonsense__internal_error)
{
    static const char *const texts[] = {"{}", "{\"ok\":false}", "{\"ok\":1,\"reason\":\"X\"}",
                                        "{\"ok\":false,\"reason\":7}"};

    for (size_t i = 0; i < BERTH_COUNT(texts); i++) {
        json_t *json = json_loads(texts[i], 0, NULL);

        ck_assert_int_eq(message_check(json, NULL), BERTH_INTERNAL);
        json_decref(json);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local/store");
    TCase *tcase = tcase_create("store");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, store_open__again__same_uuid_and_private);
    tcase_add_loop_test(tcase, store_open__bad_paths__field_invalid, 0, (int)BERTH_COUNT(bad));
    tcase_add_test(tcase, store_id_ok__names__safe_or_refused);
    tcase_add_test(tcase, record__saved_and_loaded__equal);
    tcase_add_loop_test(tcase, record_load__damaged__internal_error, 0,
                        (int)BERTH_COUNT(damaged));
    tcase_add_loop_test(tcase, record_load__torn_by_a_power_cut__sandbox_not_found, 0,
                        (int)BERTH_COUNT(torn));
    tcase_add_test(tcase, record_load__absent__sandbox_not_found);
    tcase_add_test(tcase, record_alive__reused_pid_or_other_boot__dead);
    tcase_add_test(tcase, key_lock__writer_replaces_the_file__waiter_sees_the_last);
    tcase_add_test(tcase, key_put__not_synced__seen_by_the_next);
    tcase_add_loop_test(tcase, key_lock__torn_by_a_power_cut__as_new, 0,
                        (int)BERTH_COUNT(torn));
    tcase_add_test(tcase, key_lock__held__backend_timeout);
    tcase_add_test(tcase, record_lock__deleted_meanwhile__not_found);
    tcase_add_test(tcase, message__error__carried_over);
    tcase_add_test(tcase, message__nonsense__internal_error);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

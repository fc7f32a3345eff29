/* test_stored.c - what sandboxes and snapshots hold on the disk, as it is told. */
#include "tests/component/local/rig.h"

#include <fcntl.h>
#include <stdio.h>

#include "services/adapter-local/spawner/io.h"

enum { MIB = 1 << 20, FILE_SIZE = 3 * MIB, SLACK = MIB / 4, MEASURE_MS = 20, WAIT_MS = 20000 };

static struct rig rig;

static void setup(void)
{
    rig = (struct rig){.measure_ms = MEASURE_MS};
    rig_open(&rig);
}

static void teardown(void)
{
    rig_close(&rig);
}

static bool fill(const char *path, size_t size)
{
    static char block[MIB];
    int fd = open(path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);

    memset(block, 'x', sizeof block);
    for (size_t done = 0; fd >= 0 && done < size; done += sizeof block)
        if (write(fd, block, sizeof block) != sizeof block)
            return false;
    return fd >= 0 && close(fd) == 0;
}

/* A file with two names, one that is all hole, and some of no size. */
static int write_files(void *arg)
{
    int hole;

    (void)arg;
    if (!fill("/workspace/data", FILE_SIZE) || link("/workspace/data", "/workspace/name") < 0)
        return 1;
    hole = open("/workspace/hole", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    return hole < 0 || ftruncate(hole, (off_t)1 << 40) < 0 ? 2 : 0;
}

static uint64_t told(const char *id)
{
    struct adapter_sandbox sandbox;
    struct record record;
    uint64_t bytes;

    rig_record(&rig, id, &record);
    ck_assert_int_eq(record_describe(&rig.store, &record, &sandbox, NULL), BERTH_OK);
    bytes = sandbox.disk_used_bytes;
    adapter_sandbox_deinit(&sandbox);
    record_deinit(&record);
    return bytes;
}

struct wish {
    const char *id;
    uint64_t bytes;
};

static bool is_told(void *arg)
{
    const struct wish *wish = arg;
    uint64_t bytes = told(wish->id);

    return bytes >= wish->bytes && bytes < wish->bytes + SLACK;
}

static bool comes_to(const char *id, uint64_t bytes)
{
    return rig_until(is_told, &(struct wish){id, bytes}, WAIT_MS);
}

/* Blocks are counted, each once, whatever sizes and names say; a sandbox from a snapshot has
 * nothing of its own, and the snapshot has what it was made of. */
START_TEST(stored__real_files__their_blocks)
{
    char id[ADAPTER_ID_SIZE], snapshot[ADAPTER_ID_SIZE], copy[ADAPTER_ID_SIZE];
    struct snapshot_record record;

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    ck_assert_uint_lt(told(id), SLACK);
    ck_assert_int_eq(rig_inside(&rig, id, RIG_USER, write_files, NULL), 0);
    ck_assert(comes_to(id, FILE_SIZE));
    rig_snapshot(&rig, id, "one", snapshot);
    ck_assert_int_eq(snapshot_load(&rig.store, snapshot, &record, NULL), BERTH_OK);
    ck_assert_uint_ge(record.info.size_bytes, FILE_SIZE);
    ck_assert_uint_lt(record.info.size_bytes, FILE_SIZE + SLACK);
    snapshot_record_deinit(&record);
    rig_make(&rig, &(struct rig_wish){.key = "copy", .fence = 1, .snapshot = snapshot}, copy);
    ck_assert_int_eq(rig_inside(&rig, id, RIG_USER, write_files, NULL), 1); /* once more */
    ck_assert(comes_to(id, 2 * FILE_SIZE));
    ck_assert_uint_lt(told(copy), SLACK);
}
END_TEST

/* begin_ms of what was measured last; 0: never. */
static int64_t measured(const char *id)
{
    BERTH_AUTO(close) int dir_fd = io_open_dir(rig.store.sandboxes_fd, id);
    struct stored stored;

    return stored_load(dir_fd, &stored) ? stored.begin_ms : 0;
}

static bool is_measured_later(void *arg)
{
    struct {
        const char *id;
        int64_t begin_ms;
    } *than = arg;

    return measured(than->id) > than->begin_ms;
}

static bool again(const char *id)
{
    struct {
        const char *id;
        int64_t begin_ms;
    } than = {id, measured(id)};

    return rig_until(is_measured_later, &than, WAIT_MS);
}

/* What rests is walked through once more and then left alone, until it is used again. */
START_TEST(stored__paused__measured_once)
{
    char id[ADAPTER_ID_SIZE], other[ADAPTER_ID_SIZE];
    int64_t once;

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    rig_make(&rig, &(struct rig_wish){.key = "other", .fence = 1}, other);
    ck_assert_int_eq(rig_call(&rig, "pause", rig_about(id, 1), NULL, NULL), BERTH_OK);
    ck_assert(again(id));
    ck_assert(again(other) && again(other)); /* the pass that saw it pause is over */
    once = measured(id);
    ck_assert(again(other) && again(other));
    ck_assert_int_eq(measured(id), once);
    ck_assert_int_eq(rig_call(&rig, "connect", rig_about(id, 1), NULL, NULL), BERTH_OK);
    ck_assert(again(id));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local/stored");
    TCase *tcase = tcase_create("stored");
    SRunner *runner;
    int failed;

    rig_main();
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, stored__real_files__their_blocks);
    tcase_add_test(tcase, stored__paused__measured_once);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_finish();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

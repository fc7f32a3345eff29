/* What WriteFile holds while the disk is slow: in order, bounded, and gone when the call is.
 * The local backend behind a gate that every write has to pass. */
#include <limits.h>
#include <pthread.h>

#include "common/crypto/crypto.h"
#include "services/adapter-local/files.h"
#include "tests/component/supervisor/file_calls.h"

enum {
    WAIT_MS = 20000,
    MIB = 1 << 20,
    SLOW_WRITE_MS = 50,
    N_SLOW = 24,
    /* What may be on its way to a disk that stands still, in messages of 1 MiB: what the
     * adapter holds (4 and 1), the window of the stream, and one at the caller. Some room, too.
     */
    ON_THE_WAY_MAX = 8,
    N_SMALL = 300,
    N_CANCELS = 40,
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int allowed;                    /* so many writes may pass */
    int paced_ms;                   /* each takes this long, or until too much is on its way */
    int fail_at;                    /* this write is told that the disk is full; 0: none */
    int begun, passed, most;        /* writes; on their way */
    int sent;                       /* by the caller */
    int n_open, n_commits, n_close; /* of files */
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER,
          .changed = PTHREAD_COND_INITIALIZER,
          .allowed = INT_MAX};

/* ------------------------------------------------------------------- the slow disk */

static void note(int *count)
{
    pthread_mutex_lock(&gate.mutex);
    ++*count;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

static void wait_for(const int *count, int least)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_MS / 1000;
    pthread_mutex_lock(&gate.mutex);
    while (*count < least)
        ck_assert_int_eq(pthread_cond_timedwait(&gate.changed, &gate.mutex, &until), 0);
    pthread_mutex_unlock(&gate.mutex);
}

static void allow(int n)
{
    pthread_mutex_lock(&gate.mutex);
    gate.allowed = n;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

/* With the mutex held. */
static void pace(void)
{
    struct timespec until;
    int on_the_way = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += gate.paced_ms * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    do {
        on_the_way = gate.sent - gate.passed;
        if (on_the_way > gate.most)
            gate.most = on_the_way;
    } while (on_the_way <= ON_THE_WAY_MAX &&
             pthread_cond_timedwait(&gate.changed, &gate.mutex, &until) == 0);
}

static enum berth_code gated_write(struct adapter_writer *writer, struct iovec *pieces,
                                   int n_pieces, struct berth_error *err)
{
    int nth;

    pthread_mutex_lock(&gate.mutex);
    nth = ++gate.begun;
    pthread_cond_broadcast(&gate.changed);
    while (nth > gate.allowed)
        pthread_cond_wait(&gate.changed, &gate.mutex);
    if (gate.paced_ms)
        pace();
    gate.passed++;
    pthread_mutex_unlock(&gate.mutex);
    if (nth == gate.fail_at)
        return berth_fail(err, BERTH_REASON_DISK_FULL, NULL);
    return local_write(writer, pieces, n_pieces, err);
}

static enum berth_code gated_open(struct adapter *adapter, const struct adapter_route *route,
                                  const struct adapter_write_open *open,
                                  struct adapter_writer **ret, struct berth_error *err)
{
    enum berth_code code = local_open_write(adapter, route, open, ret, err);

    if (code == BERTH_OK)
        note(&gate.n_open);
    return code;
}

static enum berth_code gated_commit(struct adapter_writer *writer, struct adapter_file *ret,
                                    struct berth_error *err)
{
    note(&gate.n_commits);
    return local_commit(writer, ret, err);
}

static void gated_close(struct adapter_writer *writer)
{
    local_close_write(writer);
    note(&gate.n_close);
}

static void open_gated(void)
{
    static struct adapter_file_ops ops;

    ops = local_file_ops;
    ops.open_write = gated_open;
    ops.write = gated_write;
    ops.commit = gated_commit;
    ops.close_write = gated_close;
    rig_files = &ops;
    files_open();
    put_dir("/d", USER);
    put("/d/f", "old", USER, 0644);
}

/* ---------------------------------------------------------------------- the caller */

static struct rig_stream *begin(void)
{
    struct rig_stream *stream = rig_stream_open(FILES("WriteFile"));
    Berth__Data__V1__WriteFileOpen open = BERTH__DATA__V1__WRITE_FILE_OPEN__INIT;

    open.session = &rig_session;
    open.path = (char *)"/d/f";
    send_message(stream, BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_OPEN, &open);
    return stream;
}

static void send_data(struct rig_stream *stream, const void *data, size_t size)
{
    ProtobufCBinaryData part = {size, (uint8_t *)(uintptr_t)data};

    send_message(stream, BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_DATA, &part);
    note(&gate.sent);
}

static void send_done(struct rig_stream *stream, const void *data, size_t size)
{
    Berth__Data__V1__FileDone done = BERTH__DATA__V1__FILE_DONE__INIT;
    uint8_t digest[32];

    berth_sha256_once(data, size, digest);
    done.size_bytes = size;
    done.sha256 = (ProtobufCBinaryData){sizeof digest, digest};
    send_message(stream, BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_DONE, &done);
}

/* The file is what it was, alone, and no writer is left. */
static void expect_nothing_left(void)
{
    wait_for(&gate.n_close, gate.n_open);
    ck_assert_int_eq(count_entries("/d"), 1);
    expect_content("/d/f", "old", 3);
}

static void wait_until_cancelled(unsigned n)
{
    for (int64_t until = berth_tick_ms() + WAIT_MS;
         rig_ended(FILES("WriteFile"), "CANCELLED") < n; usleep(1000))
        ck_assert_int_lt(berth_tick_ms(), until);
}

/* ----------------------------------------------------------------------- the tests */

/* More messages than are held, of all sizes, behind a disk that stands still: all of them are
 * written, each once, in order. */
START_TEST(write__queued_behind_slow_disk__exact)
{
    uint8_t *data = malloc(2 * N_SMALL * N_SMALL);
    struct rig_stream *stream;
    size_t size = 0;

    for (size_t i = 0; i < 2 * N_SMALL * N_SMALL; i++)
        data[i] = (uint8_t)(i ^ i >> 8);
    allow(0);
    stream = begin();
    for (size_t i = 0; i < N_SMALL; i++) {
        size_t n = i * 7 % (2 * N_SMALL); /* some are empty */

        send_data(stream, data + size, n);
        size += n;
    }
    send_done(stream, data, size);
    rig_stream_half_close(stream);
    wait_for(&gate.begun, 1);
    ck_assert_int_eq(gate.passed, 0);
    allow(INT_MAX);
    ck_assert_int_eq(rig_stream_end(stream, NULL), BERTH_OK);
    ck_assert_int_eq(gate.passed, N_SMALL);
    expect_content("/d/f", data, size);
    free(data);
}
END_TEST

/* A disk slower than the caller: the caller is held up, and what lies between is bounded. */
START_TEST(write__slow_disk__caller_waits)
{
    uint8_t *data = calloc(N_SLOW, MIB);
    struct rig_stream *stream = begin();

    gate.paced_ms = SLOW_WRITE_MS;
    for (size_t i = 0; i < N_SLOW; i++)
        send_data(stream, data + i * MIB, MIB);
    send_done(stream, data, (size_t)N_SLOW * MIB);
    rig_stream_half_close(stream);
    ck_assert_int_eq(rig_stream_end(stream, NULL), BERTH_OK);
    ck_assert_int_gt(gate.most, 1); /* it was received meanwhile, but */
    ck_assert_int_le(gate.most, ON_THE_WAY_MAX);
    free(data);
}
END_TEST

/* The caller gives up while messages wait, and the one that completes the file with them: no
 * other write begins. */
START_TEST(write__cancelled_with_messages_queued__nothing_left)
{
    struct rig_stream *stream;

    allow(0);
    stream = begin();
    send_data(stream, "one", 3);
    wait_for(&gate.begun, 1);
    send_data(stream, "two", 3);
    send_done(stream, "onetwo", 6);
    rig_stream_half_close(stream);
    rig_stream_cancel(stream);
    wait_until_cancelled(1);
    allow(INT_MAX);
    ck_assert_int_eq(rig_stream_end(stream, NULL), BERTH_CANCELLED);
    expect_nothing_left();
    ck_assert_int_eq(gate.begun, 1);
    ck_assert_int_eq(gate.n_commits, 0);
}
END_TEST

/* The same where a worker has got them all: it looks before each. */
START_TEST(write__cancelled_within_a_batch__nothing_left)
{
    struct rig_stream *stream;

    allow(0);
    stream = begin();
    send_data(stream, "1", 1);
    wait_for(&gate.begun, 1);
    send_data(stream, "2", 1);
    send_data(stream, "3", 1);
    send_done(stream, "123", 3);
    ck_assert_int_eq(stat_it("/d/f", NULL), 0); /* behind them on the same connection */
    allow(1);
    wait_for(&gate.begun, 2);
    rig_stream_cancel(stream);
    wait_until_cancelled(1);
    allow(INT_MAX);
    ck_assert_int_eq(rig_stream_end(stream, NULL), BERTH_CANCELLED);
    expect_nothing_left();
    ck_assert_int_eq(gate.begun, 2);
    ck_assert_int_eq(gate.n_commits, 0);
}
END_TEST

/* The disk is full while more is queued: that is said, and the rest is not written. */
START_TEST(write__fails_with_messages_queued__said_and_nothing_left)
{
    struct berth_error err = {0};
    struct rig_stream *stream;

    allow(0);
    gate.fail_at = 2;
    stream = begin();
    for (int i = 0; i < 10; i++)
        send_data(stream, "part", 4);
    send_done(stream, "", 0);
    wait_for(&gate.begun, 1);
    allow(INT_MAX);
    ck_assert_int_ne(rig_stream_end(stream, &err), BERTH_OK);
    ck_assert_int_eq(err.reason, BERTH_REASON_DISK_FULL);
    expect_nothing_left();
    ck_assert_int_eq(gate.begun, 2);
    ck_assert_int_eq(gate.n_commits, 0);
}
END_TEST

/* Half-closed behind a queue without a done: all of it is void. */
START_TEST(write__queue_ends_without_done__nothing_left)
{
    struct berth_error err = {0};
    struct rig_stream *stream;

    allow(0);
    stream = begin();
    for (int i = 0; i < 10; i++)
        send_data(stream, "part", 4);
    rig_stream_half_close(stream);
    wait_for(&gate.begun, 1);
    allow(INT_MAX);
    ck_assert_int_eq(rig_stream_end(stream, &err), BERTH_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "done");
    expect_nothing_left();
    ck_assert_int_eq(gate.n_commits, 0);
}
END_TEST

/* Given up after any number of messages, with the disk in any state: never a part of a file,
 * and every writer is closed. */
START_TEST(write__cancelled_anywhere__nothing_left)
{
    uint8_t *data = calloc(1, MIB);

    gate.paced_ms = 1;
    for (int i = 0; i < N_CANCELS; i++) {
        struct rig_stream *stream = begin();

        for (int k = 0; k < i % 10; k++)
            send_data(stream, data, i % 3 ? MIB : 1000);
        if (i % 4 == 0)
            rig_stream_half_close(stream);
        rig_stream_cancel(stream);
        (void)rig_stream_end(stream, NULL);
    }
    for (int64_t until = berth_tick_ms() + WAIT_MS; count_entries("/d") != 1; usleep(1000))
        ck_assert_int_lt(berth_tick_ms(), until);
    expect_nothing_left();
    ck_assert_int_eq(gate.n_commits, 0);
    free(data);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("adapter/file_queue");
    TCase *tcase = tcase_create("file_queue");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, open_gated, files_close);
    tcase_add_test(tcase, write__queued_behind_slow_disk__exact);
    tcase_add_test(tcase, write__slow_disk__caller_waits);
    tcase_add_test(tcase, write__cancelled_with_messages_queued__nothing_left);
    tcase_add_test(tcase, write__cancelled_within_a_batch__nothing_left);
    tcase_add_test(tcase, write__fails_with_messages_queued__said_and_nothing_left);
    tcase_add_test(tcase, write__queue_ends_without_done__nothing_left);
    tcase_add_test(tcase, write__cancelled_anywhere__nothing_left);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

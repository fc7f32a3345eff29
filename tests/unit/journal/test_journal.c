/* A journal in a file: what is answered for is there after any crash, and nothing else is taken
 * for it. */
#include "tests/unit/base/main.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/journal/internal.h"

#define KEY_1_OTHER "k1 aa112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"
#define KEY_1 "k1 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"
#define KEY_2 "k2 ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"

static char dir[] = "/tmp/berth-journal-XXXXXX", path[64];
static struct berth_keyring *keyring;
static atomic_bool sync_fails, write_fails;
static atomic_int n_syncs;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    atomic_fetch_add(&n_syncs, 1);
    if (atomic_load(&sync_fails)) {
        errno = EIO;
        return -1;
    }
    return __real_fdatasync(fd);
}

ssize_t __real_pwrite64(int fd, const void *data, size_t size, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t offset)
{
    if (!atomic_load(&write_fails))
        return __real_pwrite64(fd, data, size, offset);
    if (size > 7)
        return __real_pwrite64(fd, data, 7, offset);
    errno = ENOSPC;
    return -1;
}

static struct berth_keyring *keys(const char *text)
{
    struct berth_keyring *ring = NULL;

    ck_assert_int_eq(berth_keyring_parse("keys", text, strlen(text), &ring, NULL), BERTH_OK);
    return ring;
}

static void set_up(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/sub/j", dir);
    keyring = keys(KEY_1);
}

static void tear_down(void)
{
    static const char *const names[] = {"sub/j", "sub/j.lock", "sub/j.new", "sub"};
    char name[96];

    berth_keyring_free(keyring);
    for (size_t i = 0; i < BERTH_COUNT(names); i++) {
        snprintf(name, sizeof name, "%s/%s", dir, names[i]);
        remove(name);
    }
    rmdir(dir);
}

/* ------------------------------------------------------------------------ calls */

static enum berth_code try_open(struct berth_journal **ret, bool skip,
                                struct berth_journal_report *report, struct berth_error *err)
{
    const struct berth_journal_options options = {.path = path,
                                                  .deployment = "test",
                                                  .keyring = keyring,
                                                  .compact_bytes = 1 << 16,
                                                  .skip_damaged = skip};

    return berth_journal_open(&options, ret, report, err);
}

static struct berth_journal *open_it(struct berth_journal_report *report)
{
    struct berth_journal *journal = NULL;
    struct berth_error err = {0};

    ck_assert_msg(try_open(&journal, false, report, &err) == BERTH_OK, "%s", err.text);
    return journal;
}

static enum berth_code append(struct berth_journal *journal, const char *key, int64_t time_ms,
                              const char *text)
{
    const struct berth_journal_entry entry = {.key = key,
                                              .deleted = text == NULL,
                                              .time_ms = time_ms,
                                              .doc = (const uint8_t *)text,
                                              .doc_size = text ? strlen(text) : 0};

    return berth_journal_append(journal, &entry, 1, NULL);
}

static void check(struct berth_journal *journal, const char *key, const char *text)
{
    uint8_t *doc;
    size_t size;
    int64_t time_ms;

    ck_assert_int_eq(berth_journal_find(journal, key, &doc, &size, &time_ms, NULL), BERTH_OK);
    ck_assert_msg(!doc == !text, "%s", key);
    if (text)
        ck_assert_msg(size == strlen(text) && memcmp(doc, text, size) == 0, "%s: %.*s", key,
                      (int)size, (const char *)doc);
    free(doc);
}

static size_t file_size(void)
{
    struct stat st;

    ck_assert_int_eq(stat(path, &st), 0);
    return (size_t)st.st_size;
}

static void flip(size_t offset)
{
    int fd = open(path, O_RDWR);
    uint8_t byte;

    ck_assert_int_eq(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 0x20;
    ck_assert_int_eq(__real_pwrite64(fd, &byte, 1, (off_t)offset), 1);
    close(fd);
}

/* ------------------------------------------------------------------------ tests */

/* What was appended is there when the journal is opened again; a deletion is, too. */
START_TEST(journal__opened_again__newest_of_each_key)
{
    struct berth_journal_report report;
    struct berth_journal *journal = open_it(&report);
    char id[64];
    struct stat st;

    ck_assert(report.made);
    snprintf(id, sizeof id, "%s", berth_journal_id(journal));
    ck_assert_int_eq(append(journal, "a", 10, "one"), BERTH_OK);
    ck_assert_int_eq(append(journal, "b", 11, "two"), BERTH_OK);
    ck_assert_int_eq(append(journal, "a", 12, "three"), BERTH_OK);
    ck_assert_int_eq(append(journal, "b", 13, NULL), BERTH_OK);
    berth_journal_free(journal);
    ck_assert(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    journal = open_it(&report);
    ck_assert(!report.made && report.n_entries == 4 && report.cut_bytes == 0);
    ck_assert_str_eq(berth_journal_id(journal), id);
    check(journal, "a", "three");
    check(journal, "b", NULL);
    check(journal, "c", NULL);
    berth_journal_free(journal);
}
END_TEST

/* An older entry behind a newer one, as two clocks may write them: the newer one counts. */
START_TEST(journal__older_entry_behind__newer_counts)
{
    struct journal_entry entry = {
        .time_ms = 5, .key = "a", .key_size = 1, .doc = (const uint8_t *)"old", .doc_size = 3};
    struct berth_journal *journal = open_it(NULL);
    uint8_t *frame;
    size_t size;

    ck_assert_int_eq(append(journal, "a", 10, "new"), BERTH_OK);
    ck_assert_int_eq(journal_seal(keyring, &journal->head, journal->sequence + 1, &entry,
                                  &frame, &size, NULL),
                     BERTH_OK);
    ck_assert(journal_write_all(journal->fd, frame, size, journal->end));
    free(frame);
    berth_journal_free(journal);
    journal = open_it(NULL);
    check(journal, "a", "new");
    /* What is appended is never older than what is there, whatever Redis' clock says. */
    ck_assert_int_eq(append(journal, "a", 3, "newest"), BERTH_OK);
    berth_journal_free(journal);
    journal = open_it(NULL);
    check(journal, "a", "newest");
    berth_journal_free(journal);
}
END_TEST

/* Nothing is answered for before the disk has it; afterwards nothing more is taken until the
 * whole file could be written anew. */
START_TEST(append__fsync_fails__not_answered_for)
{
    struct berth_journal *journal = open_it(NULL);
    int before = atomic_load(&n_syncs);

    ck_assert_int_eq(append(journal, "a", 1, "one"), BERTH_OK);
    ck_assert_int_gt(atomic_load(&n_syncs), before);
    atomic_store(&sync_fails, true);
    ck_assert_int_eq(append(journal, "a", 2, "two"), BERTH_UNKNOWN);
    atomic_store(&sync_fails, false);
    ck_assert_int_eq(append(journal, "a", 3, "three"), BERTH_UNAVAILABLE);
    ck_assert_int_eq(berth_journal_check(journal, NULL), BERTH_UNAVAILABLE);
    ck_assert_int_eq(berth_journal_compact(journal, NULL, NULL), BERTH_OK);
    ck_assert_int_eq(berth_journal_check(journal, NULL), BERTH_OK);
    ck_assert_int_eq(append(journal, "a", 4, "four"), BERTH_OK);
    berth_journal_free(journal);
    journal = open_it(NULL);
    check(journal, "a", "four");
    berth_journal_free(journal);
}
END_TEST

/* A full disk: half a frame is taken back, and the next append is fine. */
START_TEST(append__disk_full__taken_back)
{
    struct berth_journal *journal = open_it(NULL);
    const struct berth_journal_entry entry = {
        .key = "a", .time_ms = 2, .doc = (const uint8_t *)"two", .doc_size = 3};
    struct berth_error err = {0};
    size_t size;

    ck_assert_int_eq(append(journal, "a", 1, "one"), BERTH_OK);
    size = file_size();
    atomic_store(&write_fails, true);
    ck_assert_int_ne(berth_journal_append(journal, &entry, 1, &err), BERTH_OK);
    atomic_store(&write_fails, false);
    ck_assert_int_eq(err.reason, BERTH_REASON_DISK_FULL);
    ck_assert_uint_eq(file_size(), size);
    ck_assert_int_eq(append(journal, "b", 3, "three"), BERTH_OK);
    berth_journal_free(journal);
    journal = open_it(NULL);
    check(journal, "a", "one");
    check(journal, "b", "three");
    berth_journal_free(journal);
}
END_TEST

/* A tail that is not whole is cut and told, and the journal goes on from there. */
START_TEST(open__torn_tail__cut_and_told)
{
    struct berth_journal_report report;
    struct berth_journal *journal = open_it(NULL);
    size_t size;

    ck_assert_int_eq(append(journal, "a", 1, "one"), BERTH_OK);
    size = file_size();
    ck_assert_int_eq(append(journal, "a", 2, "two"), BERTH_OK);
    berth_journal_free(journal);
    ck_assert_int_eq(truncate(path, (off_t)file_size() - 1), 0);
    journal = open_it(&report);
    ck_assert_uint_gt(report.cut_bytes, 0);
    ck_assert_uint_eq(file_size(), size);
    check(journal, "a", "one");
    ck_assert_int_eq(append(journal, "a", 3, "three"), BERTH_OK);
    berth_journal_free(journal);
    journal = open_it(&report);
    ck_assert_uint_eq(report.cut_bytes, 0);
    check(journal, "a", "three");
    berth_journal_free(journal);
}
END_TEST

/* A damaged middle is refused by its offset and left as it is; only who says so loses it. */
START_TEST(open__damaged_middle__refused_unless_told)
{
    struct berth_journal_report report;
    struct berth_journal *journal = open_it(NULL);
    struct berth_error err = {0};
    size_t at, size;
    char offset[32];

    ck_assert_int_eq(append(journal, "a", 1, "one"), BERTH_OK);
    at = file_size();
    ck_assert_int_eq(append(journal, "b", 2, "two"), BERTH_OK);
    ck_assert_int_eq(append(journal, "c", 3, "three"), BERTH_OK);
    berth_journal_free(journal);
    flip(at + 40);
    size = file_size();
    ck_assert_int_eq(try_open(&journal, false, NULL, &err), BERTH_INVALID_ARGUMENT);
    snprintf(offset, sizeof offset, "at offset %zu ", at);
    ck_assert_msg(strstr(err.text, offset) != NULL, "%s", err.text);
    ck_assert_uint_eq(file_size(), size);
    ck_assert_int_eq(try_open(&journal, true, &report, &err), BERTH_OK);
    ck_assert_uint_eq(report.n_damages, 1);
    check(journal, "a", "one");
    check(journal, "b", NULL);
    check(journal, "c", "three");
    berth_journal_free(journal);
    journal = open_it(&report); /* and that once only */
    ck_assert_uint_eq(report.n_damages, 0);
    berth_journal_free(journal);
}
END_TEST

static void refused(const char *says);

/* Another key by the same id opens nothing, and so would make all of it look like a tail. */
START_TEST(open__another_key_of_that_id__refused_and_left_alone)
{
    struct berth_journal *journal = open_it(NULL);
    size_t size;

    ck_assert_int_eq(append(journal, "a", 1, "one"), BERTH_OK);
    berth_journal_free(journal);
    size = file_size();
    berth_keyring_free(keyring);
    keyring = keys(KEY_1_OTHER);
    refused("another key of the same id");
    ck_assert_uint_eq(file_size(), size);
    berth_keyring_free(keyring);
    keyring = keys(KEY_1);
    journal = open_it(NULL);
    check(journal, "a", "one");
    berth_journal_free(journal);
}
END_TEST

static void refused(const char *says)
{
    struct berth_journal *journal = NULL;
    struct berth_error err = {0};

    ck_assert_int_eq(try_open(&journal, false, NULL, &err), BERTH_INVALID_ARGUMENT);
    ck_assert_msg(strstr(err.text, says) != NULL, "%s", err.text);
}

/* One writer; none but us may read; of this deployment; under keys that are there. */
START_TEST(open__not_ours__refused)
{
    struct berth_journal *journal = open_it(NULL);
    size_t size;

    ck_assert_int_eq(append(journal, "a", 1, "one"), BERTH_OK);
    refused("another process writes it");
    berth_journal_free(journal);
    size = file_size();
    chmod(path, 0644);
    refused("others may read it");
    chmod(path, 0600);
    berth_keyring_free(keyring);
    keyring = keys(KEY_2);
    refused("sealed under key 'k1'");
    ck_assert_uint_eq(file_size(), size); /* not taken for a torn tail */
    berth_keyring_free(keyring);
    keyring = keys(KEY_1);
    flip(JOURNAL_HEAD_SIZE - JOURNAL_DEPLOYMENT_SIZE);
    refused("belongs to deployment");
    flip(JOURNAL_HEAD_SIZE - JOURNAL_DEPLOYMENT_SIZE);
    flip(0);
    refused("not a journal");
}
END_TEST

/* The file does not grow with what is not the newest any more. */
START_TEST(append__many__compacted)
{
    struct berth_journal *journal = open_it(NULL);
    struct berth_journal_count count;
    char text[512];

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    ck_assert_int_eq(append(journal, "gone", 1, "x"), BERTH_OK);
    ck_assert_int_eq(append(journal, "gone", 2, NULL), BERTH_OK);
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(append(journal, i % 2 ? "a" : "b", i + 3, text), BERTH_OK);
    ck_assert_int_eq(append(journal, "a", 2000, "last"), BERTH_OK);
    berth_journal_count(journal, &count);
    ck_assert_uint_gt(count.n_compactions, 3);
    ck_assert_uint_lt(file_size(), 1 << 17);
    berth_journal_free(journal);
    journal = open_it(NULL);
    check(journal, "a", "last");
    check(journal, "b", text);
    check(journal, "gone", NULL);
    berth_journal_count(journal, &count);
    ck_assert_uint_eq(count.n_deleted, 1); /* remembered: another journal may have it */
    berth_journal_free(journal);
}
END_TEST

/* Rotation: after it no entry needs the older key. */
START_TEST(compact__under_the_next_key__older_not_needed)
{
    struct berth_journal *journal = open_it(NULL);
    struct berth_journal_count count;

    ck_assert_int_eq(append(journal, "a", 1, "one"), BERTH_OK);
    berth_keyring_adopt(keyring, keys(KEY_2 KEY_1));
    ck_assert_int_eq(append(journal, "b", 2, "two"), BERTH_OK);
    berth_journal_count(journal, &count);
    ck_assert_uint_eq(count.n_keys, 2);
    ck_assert_int_eq(berth_journal_compact(journal, NULL, NULL), BERTH_OK);
    berth_journal_count(journal, &count);
    ck_assert(count.n_keys == 1 && strcmp(count.keys[0].key_id, "k2") == 0);
    berth_journal_free(journal);
    berth_keyring_free(keyring);
    keyring = keys(KEY_2);
    journal = open_it(NULL);
    check(journal, "a", "one");
    check(journal, "b", "two");
    berth_journal_free(journal);
}
END_TEST

enum { THREADS = 8, EACH = 40 };

static void *append_some(void *arg)
{
    struct berth_journal *journal = arg;
    static atomic_int number;
    int me = atomic_fetch_add(&number, 1);

    for (int i = 0; i < EACH; i++) {
        char key[32];

        snprintf(key, sizeof key, "%d.%d", me, i);
        if (append(journal, key, 1, key))
            abort();
    }
    return NULL;
}

/* Those that come together share an fsync, and all of them are there. */
START_TEST(append__at_once__syncs_shared)
{
    struct berth_journal *journal = open_it(NULL);
    struct berth_journal_count count;
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, append_some, journal), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    berth_journal_count(journal, &count);
    ck_assert_uint_eq(count.n_appends, THREADS * EACH);
    ck_assert_uint_le(count.n_syncs, count.n_appends);
    berth_journal_free(journal);
    journal = open_it(NULL);
    for (int i = 0; i < THREADS * EACH; i++) {
        char key[32];

        snprintf(key, sizeof key, "%d.%d", i / EACH, i % EACH);
        check(journal, key, key);
    }
    berth_journal_free(journal);
}
END_TEST

/* Killed at any moment: whatever it had answered for is there. */
START_TEST(append__killed__what_was_answered_is_there)
{
    for (int round = 0; round < 12; round++) {
        struct berth_journal *journal;
        int fds[2], answered = -1;
        pid_t pid;

        ck_assert_int_eq(pipe(fds), 0);
        pid = fork();
        if (pid == 0) {
            journal = open_it(NULL);
            for (int i = 0;; i++) {
                char key[32];

                snprintf(key, sizeof key, "%d.%d", round, i % 50);
                if (append(journal, key, i, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx") ||
                    write(fds[1], &i, sizeof i) != sizeof i)
                    _exit(1);
            }
        }
        while (answered < 5 + round * 20)
            ck_assert_int_eq(read(fds[0], &answered, sizeof answered), sizeof answered);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        close(fds[1]);
        while (read(fds[0], &answered, sizeof answered) == sizeof answered)
            ;
        close(fds[0]);
        journal = open_it(NULL);
        for (int i = answered; i >= 0 && i > answered - 50; i--) {
            char key[32];

            snprintf(key, sizeof key, "%d.%d", round, i % 50);
            check(journal, key, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
        }
        berth_journal_free(journal);
    }
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("journal");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, journal__opened_again__newest_of_each_key);
    tcase_add_test(tcase, journal__older_entry_behind__newer_counts);
    tcase_add_test(tcase, append__fsync_fails__not_answered_for);
    tcase_add_test(tcase, append__disk_full__taken_back);
    tcase_add_test(tcase, open__torn_tail__cut_and_told);
    tcase_add_test(tcase, open__another_key_of_that_id__refused_and_left_alone);
    tcase_add_test(tcase, open__damaged_middle__refused_unless_told);
    tcase_add_test(tcase, open__not_ours__refused);
    tcase_add_test(tcase, append__many__compacted);
    tcase_add_test(tcase, compact__under_the_next_key__older_not_needed);
    tcase_add_test(tcase, append__at_once__syncs_shared);
    tcase_add_test(tcase, append__killed__what_was_answered_is_there);
    return run_case("journal/journal", tcase);
}

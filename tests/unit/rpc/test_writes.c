/* Writes that are held, and those that must not be. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/rpc/writes.h"

enum { WAIT_MS = 5000 };

static int near, far; /* the two ends of a TCP connection */

static void setup(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);

    near = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    ck_assert_int_eq(connect(near, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), 0);
    far = accept(listener, NULL, NULL);
    ck_assert_int_ge(far, 0);
    close(listener);
}

static void teardown(void)
{
    close(near);
    close(far);
}

static void write_one(int fd)
{
    struct iovec byte = {(void *)"x", 1};
    const struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1};

    ck_assert_int_eq(sendmsg(fd, &message, MSG_NOSIGNAL), 1);
}

/* What has arrived, at least n; 0: nothing has. */
static size_t arrived(int fd, size_t n)
{
    size_t have = 0;
    char bytes[64];

    while (have < n) {
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        ssize_t got;

        ck_assert_msg(poll(&readable, 1, WAIT_MS) == 1, "%zu of %zu came", have, n);
        got = recv(fd, bytes, sizeof bytes, 0);
        ck_assert_int_gt(got, 0);
        have += (size_t)got;
    }
    return have + (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0);
}

/* The first write of a burst goes out at once, the others when they are told to. */
START_TEST(writes__burst__held_until_flush)
{
    rpc_writes_gather(true);
    write_one(near);
    ck_assert(!rpc_writes_held());
    write_one(near);
    write_one(near);
    ck_assert(rpc_writes_held());
    ck_assert_uint_eq(arrived(far, 1), 1);
    rpc_writes_flush();
    ck_assert(!rpc_writes_held());
    ck_assert_uint_eq(arrived(far, 2), 2);
}
END_TEST

/* One write for each read: none is ever held. After a burst of several the first is, too. */
START_TEST(writes__single_calls__never_held)
{
    rpc_writes_gather(true);
    for (int i = 0; i < 3; i++) {
        write_one(near);
        ck_assert(!rpc_writes_held());
        rpc_writes_heard(near);
    }
    write_one(near);
    write_one(near);
    rpc_writes_flush();
    rpc_writes_heard(near);
    write_one(near);
    ck_assert(rpc_writes_held());
    rpc_writes_flush();
    ck_assert_uint_eq(arrived(far, 6), 6);
}
END_TEST

/* Not more than so many, nor for ever where nobody says that it is over. */
START_TEST(writes__too_many__sent)
{
    size_t n = 2 + RPC_WRITES_HELD_MAX;

    rpc_writes_gather(true);
    for (size_t i = 0; i < n; i++)
        write_one(near);
    ck_assert(!rpc_writes_held());
    ck_assert_uint_eq(arrived(far, n), n);
}
END_TEST

/* Who does not gather is not made to wait, whatever was before. */
START_TEST(writes__not_gathering__sent)
{
    rpc_writes_gather(true);
    write_one(near);
    write_one(near);
    write_one(near);
    rpc_writes_flush();
    rpc_writes_gather(false);
    rpc_writes_heard(near);
    write_one(near);
    write_one(near);
    ck_assert(!rpc_writes_held());
    ck_assert_uint_eq(arrived(far, 5), 5);
}
END_TEST

static void *write_elsewhere(void *arg)
{
    (void)arg;
    write_one(near);
    ck_assert(!rpc_writes_held());
    return NULL;
}

/* Another thread's write goes out, with what this one holds. */
START_TEST(writes__other_thread__sent)
{
    pthread_t thread;

    rpc_writes_gather(true);
    write_one(near);
    write_one(near);
    ck_assert_int_eq(pthread_create(&thread, NULL, write_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(arrived(far, 3), 3);
    rpc_writes_flush();
}
END_TEST

/* A socket that cannot hold anything, and one that was closed meanwhile, are no trouble. */
START_TEST(writes__not_tcp__sent)
{
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    rpc_writes_gather(true);
    write_one(pair[0]);
    write_one(pair[0]);
    ck_assert_uint_eq(arrived(pair[1], 2), 2);
    rpc_writes_flush();
    write_one(pair[0]);
    ck_assert(!rpc_writes_held());
    write_one(near);
    write_one(near);
    close(pair[0]);
    close(pair[1]);
    close(near);
    rpc_writes_flush();
    ck_assert(!rpc_writes_held());
    ck_assert_uint_eq(arrived(far, 2), 2);
    near = dup(far);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/rpc writes");
    TCase *tcase = tcase_create("writes");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, writes__burst__held_until_flush);
    tcase_add_test(tcase, writes__single_calls__never_held);
    tcase_add_test(tcase, writes__too_many__sent);
    tcase_add_test(tcase, writes__not_gathering__sent);
    tcase_add_test(tcase, writes__other_thread__sent);
    tcase_add_test(tcase, writes__not_tcp__sent);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

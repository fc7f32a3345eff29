/* test_store.c - what goes to Redis, and what happens when Redis does not answer. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/time/time.h"
#include "tests/component/binding/house.h"

static struct house house;
static struct proxy proxy;

static void teardown(void)
{
    house_close(&house);
}

static void setup(void)
{
    house_open(&house, NULL);
}

static void setup_prompt(void)
{
    house_open(&house, &(struct house_options){.command_ms = 800});
}

static void setup_kept(void)
{
    house_open(&house, &(struct house_options){
                           .redis = {.keep = true}, .quarantine_ms = 700, .command_ms = 800});
}

static void setup_proxy(void)
{
    house_open(&house, &(struct house_options){.proxy = &proxy});
}

/* ------------------------------------------------------------------ what is sent */

/* The number behind "cmdstat_<name>:calls=" in INFO commandstats; 0: never called. */
static long calls_of(const char *stats, const char *name)
{
    char word[64];
    const char *at;

    snprintf(word, sizeof word, "cmdstat_%s:calls=", name);
    at = strstr(stats, word);
    return at ? strtol(at + strlen(word), NULL, 10) : 0;
}

/* A warm use is one command, and one that reads. */
START_TEST(acquire__warm__one_command_each)
{
    enum { N = 100 };
    const char *stats;

    house_make(&house, "s", "sb");
    /* Connections are there, and so are the scripts. */
    for (int i = 0; i < REPLICAS; i++)
        ck_assert_int_eq(house_acquire(&house, i, (struct want){"s", .attempt = 5}).decision,
                         BINDING_USE);
    house_ask(&house, "CONFIG", "RESETSTAT", NULL);
    for (unsigned i = 0; i < N; i++)
        ck_assert_str_eq(
            house_acquire(&house, (int)i % REPLICAS, (struct want){"s", .attempt = 10 + i})
                .bound,
            "sb");
    stats = house_ask(&house, "INFO", "commandstats", NULL);
    ck_assert_int_eq(calls_of(stats, "evalsha_ro"), N);
    ck_assert_int_eq(calls_of(stats, "evalsha"), 0);
    ck_assert_int_eq(calls_of(stats, "get"), 0);
    ck_assert_int_eq(calls_of(stats, "info"), 0);
    ck_assert_int_eq(calls_of(stats, "hset"), 0);
}
END_TEST

static int open_monitor(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%.90s", house.server.url + 5);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(send(fd, "MONITOR\r\n", 9, 0), 9);
    return fd;
}

/* All that the monitor says up to the word end. */
static char *read_monitor(int fd, const char *end)
{
    size_t size = 0, room = 8 << 20;
    char *text = malloc(room);

    ck_assert_ptr_nonnull(text);
    text[0] = '\0';
    while (!strstr(text, end)) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        ssize_t n;

        ck_assert_int_eq(poll(&wait, 1, WAIT_MS), 1);
        n = recv(fd, text + size, room - size - 1, 0);
        ck_assert_int_gt(n, 0);
        size += (size_t)n;
        text[size] = '\0';
    }
    return text;
}

/* Words in quotes of one line of the monitor; returns how many. */
static size_t words_of(char *line, char *words[64])
{
    size_t n = 0;
    char *at = strstr(line, "] \"");

    for (at = at ? at + 2 : NULL; at && *at == '"' && n < 64; at++) {
        words[n++] = ++at;
        while (*at && (*at != '"' || at[-1] == '\\'))
            at++;
        if (!*at)
            break;
        *at++ = '\0';
        if (*at != ' ')
            break;
    }
    return n;
}

/* Keys of a script, all in one slot; *ret_scripts counts. */
static void check_line(char *line, int *ret_scripts)
{
    char *words[64];
    size_t n = words_of(line, words);
    bool inner = strstr(line, " lua] ") != NULL;
    long n_keys;

    if (n < 2)
        return;
    if (inner && strcmp(words[0], "TIME") != 0)
        ck_assert_msg(berth_redis_slot(words[1]) == berth_redis_slot("{t1}"), "%s %s", words[0],
                      words[1]);
    if (strncmp(words[0], "EVALSHA", 7) != 0)
        return;
    n_keys = strtol(words[2], NULL, 10);
    ck_assert_int_gt(n_keys, 0);
    ck_assert_int_lt(3 + n_keys, 64);
    for (long i = 0; i < n_keys; i++)
        ck_assert_msg(berth_redis_slot(words[3 + i]) == berth_redis_slot("{t1}"), "%s",
                      words[3 + i]);
    (*ret_scripts)++;
}

/* The whole life of a session: every command keeps to the tenant's slot. */
START_TEST(session__whole_life__every_command_in_one_slot)
{
    int fd = open_monitor(), scripts = 0;
    struct grant grant;
    char token[160], *text, *line, *next;

    house_make(&house, "s", "sb");
    ck_reason(house_begin(&house, 1, "s", "t", token), "");
    ck_assert(house_acquire(&house, 0, (struct want){"s", .attempt = 3, .turn_token = token})
                  .protected);
    grant =
        house_acquire(&house, 0, (struct want){"s", .kind = BINDING_WANT_DELETE, .attempt = 4});
    ck_reason(house_gone(&house, 0, "s", &grant, "sb", true), "");
    ck_reason(house_tombstone(&house, 0, "s", &grant), "");
    house_ask(&house, "ECHO", "that-was-all", NULL);
    text = read_monitor(fd, "that-was-all");
    for (line = text; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        check_line(line, &scripts);
    }
    ck_assert_int_ge(scripts, 10);
    free(text);
    close(fd);
}
END_TEST

/* The document bears a new rev after each write, never one of before. */
START_TEST(session__each_write__a_new_rev)
{
    char seen[6][32], token[160], turn[8];

    house_make(&house, "s", "sb");
    for (int i = 0; i < 6; i++) {
        snprintf(turn, sizeof turn, "t%d", i);
        ck_reason(house_begin(&house, i % REPLICAS, "s", turn, token), "");
        snprintf(seen[i], sizeof seen[i], "%s", house_field(&house, "s", "rev"));
        ck_assert_uint_eq(strlen(seen[i]), 16);
        for (int k = 0; k < i; k++)
            ck_assert_str_ne(seen[k], seen[i]);
    }
}
END_TEST

/* ------------------------------------------------------------ answers that are lost */

/* Each row: what is lost, and of which call. */
static const struct {
    enum proxy_loss loss;
    const char *call;
} loss_rows[] = {
    {PROXY_LOSE_REQUEST, "acquire"}, {PROXY_LOSE_REPLY, "acquire"},
    {PROXY_LOSE_REQUEST, "commit"},  {PROXY_LOSE_REPLY, "commit"},
    {PROXY_LOSE_REQUEST, "begin"},   {PROXY_LOSE_REPLY, "begin"},
    {PROXY_LOSE_REQUEST, "abort"},   {PROXY_LOSE_REPLY, "abort"},
    {PROXY_HOLD_REQUEST, "acquire"}, {PROXY_HOLD_REQUEST, "commit"},
    {PROXY_HOLD_REQUEST, "begin"},   {PROXY_HOLD_REQUEST, "abort"},
};

static long events_of(const char *kind)
{
    BERTH_AUTO(berth_reply_free)
    struct berth_reply *reply =
        redis_run(house.redis, "XRANGE", "berth:{t1}:ev", "-", "+", NULL);
    long n = 0;

    for (size_t i = 0; i < reply->n_items; i++)
        n += strcmp(reply->items[i]->items[1]->items[1]->string, kind) == 0;
    return n;
}

/* A write whose outcome is not known is settled: the call answers as if nothing had happened,
 * and has been done exactly once. */
START_TEST(write__outcome_not_known__settled_and_done_once)
{
    const char *call = loss_rows[_i].call;
    struct grant grant = {0};
    char token[160] = "", rev[32];

    if (strcmp(call, "acquire") != 0)
        grant = house_acquire(&house, 0, (struct want){"s", .attempt = 1});
    if (strcmp(call, "begin") == 0)
        ck_reason(house_bind(&house, 0, "s", &grant, "sb"), "");
    atomic_store(&proxy.loss, loss_rows[_i].loss);

    if (strcmp(call, "acquire") == 0) {
        grant = house_acquire(&house, 0, (struct want){"s", .attempt = 1});
        ck_reason(grant.reason, "");
        ck_assert_int_eq(grant.decision, BINDING_ADOPT_OR_CREATE);
        ck_assert_uint_eq(grant.n_intents, 1);
    } else if (strcmp(call, "commit") == 0) {
        ck_reason(house_bind(&house, 0, "s", &grant, "sb"), "");
        ck_assert_int_eq(events_of("CREATED"), 1);
    } else if (strcmp(call, "begin") == 0) {
        ck_reason(house_begin(&house, 0, "s", "t", token), "");
        ck_assert_int_eq(events_of("TURN_BEGUN"), 1);
    } else {
        ck_reason(house_abort(&house, 0, "s", &grant), "");
    }
    ck_assert_int_eq(atomic_load(&proxy.lost), 1);
    /* It arrives after all, and too late. */
    if (loss_rows[_i].loss == PROXY_HOLD_REQUEST) {
        snprintf(rev, sizeof rev, "%s", house_field(&house, "s", "rev"));
        proxy_release(&proxy);
        ck_assert_str_eq(house_field(&house, "s", "rev"), rev);
    }
    /* What stands in Redis is what was answered. */
    if (strcmp(call, "acquire") == 0)
        ck_reason(house_bind(&house, 1, "s", &grant, "sb"), "");
    if (strcmp(call, "abort") == 0)
        ck_assert_int_eq(house_acquire(&house, 1, (struct want){"s", .attempt = 2}).decision,
                         BINDING_ADOPT_OR_CREATE);
    if (strcmp(call, "begin") == 0)
        ck_assert(
            house_acquire(&house, 1, (struct want){"s", .attempt = 2, .turn_token = token})
                .protected);
}
END_TEST

/* A session that is new and whose first write was lost leaves nothing that stays for ever. */
START_TEST(write__first_of_session_lost_for_good__stub_expires)
{
    ck_assert_str_eq(house_field(&house, "s", "rev"), "");
    atomic_store(&proxy.loss, PROXY_LOSE_REQUEST);
    /* Settled by a write of its own, then decided anew: the record is there, and stays. */
    ck_reason(house_acquire(&house, 0, (struct want){"s", .attempt = 1}).reason, "");
    ck_assert_str_eq(house_ask(&house, "PTTL", "berth:{t1}:s/s", NULL), "-1");
}
END_TEST

/* --------------------------------------------------------------- Redis not there */

static enum berth_reason within_a_second(struct grant (*call)(void))
{
    int64_t begin = berth_tick_ms();
    struct grant got = call();

    ck_assert_int_le(berth_tick_ms() - begin, 1200);
    return got.reason;
}

static struct grant warm(void)
{
    return house_acquire(&house, 0, (struct want){"s", .attempt = 50});
}

static struct grant fresh(void)
{
    static unsigned attempt = 100;

    return house_acquire(&house, 0, (struct want){"new", .attempt = ++attempt});
}

/* Killed: UNAVAILABLE within a second. Back: what is bound is used at once; nothing is made
 * until the quarantine is over, and then it is, without a restart. */
START_TEST(redis__killed_and_back__unavailable_quarantine_well)
{
    int64_t until;

    house_make(&house, "s", "sb");
    redis_server_kill(&house.server);
    ck_reason(within_a_second(warm), "STORE_UNAVAILABLE");
    ck_reason(within_a_second(fresh), "STORE_UNAVAILABLE");
    redis_server_again(&house.server);
    until = berth_tick_ms() + WAIT_MS;
    while (warm().reason == BERTH_REASON_STORE_UNAVAILABLE && berth_tick_ms() < until)
        usleep(10000);
    ck_assert_str_eq(warm().bound, "sb");
    ck_reason(fresh().reason, "QUARANTINE");
    ck_assert(binding_store_quarantined(house.replica[0].binding->store));
    await(fresh().reason == BERTH_REASON_NONE);
}
END_TEST

/* Hanging: the same, and no quarantine, since it is the same server. */
START_TEST(redis__stopped_and_going_on__unavailable_then_well)
{
    house_make(&house, "s", "sb");
    redis_server_pause(&house.server);
    ck_reason(within_a_second(warm), "STORE_UNAVAILABLE");
    ck_reason(within_a_second(warm), "STORE_UNAVAILABLE");
    redis_server_resume(&house.server);
    await(warm().reason == BERTH_REASON_NONE);
    ck_assert_str_eq(warm().bound, "sb");
    ck_assert_int_eq(fresh().decision, BINDING_ADOPT_OR_CREATE);
}
END_TEST

/* Who waits for a lock is told when the store goes away. */
START_TEST(redis__killed_while_callers_wait__told)
{
    struct grant holder = house_acquire(&house, 0, (struct want){"s", .attempt = 1}), got;
    pid_t killer;

    ck_reason(holder.reason, "");
    killer = fork();
    if (killer == 0) {
        usleep(200000);
        kill(house.server.pid, SIGKILL);
        _exit(0);
    }
    got = house_acquire(&house, 0, (struct want){"s", .attempt = 2});
    ck_reason(got.reason, "STORE_UNAVAILABLE");
}
END_TEST

/* ------------------------------------------------------------ an index that is lost */

/* Without the epoch absence is no fact: nothing is made, nothing is "not found"; what is there
 * is used. */
START_TEST(epoch__missing__recovering)
{
    struct grant holder;

    house_make(&house, "s", "sb");
    holder = house_acquire(&house, 0, (struct want){"s2", .attempt = 3});
    house_ask(&house, "DEL", "berth:epoch", NULL);
    ck_assert_str_eq(warm().bound, "sb");
    ck_reason(fresh().reason, "INDEX_RECOVERING");
    ck_reason(house_acquire(&house, 0,
                            (struct want){"none", .kind = BINDING_WANT_EXISTING, .attempt = 4})
                  .reason,
              "INDEX_RECOVERING");
    /* A holder finishes what it began. */
    ck_reason(house_bind(&house, 0, "s2", &holder, "sb2"), "");
    house_ask(&house, "FLUSHALL", NULL);
    ck_reason(warm().reason, "INDEX_RECOVERING");
    ck_reason(house_bind(&house, 0, "s2", &holder, "sb2"), "LOCK_LOST");
}
END_TEST

/* A document that does not validate is an error and stays as it is. */
START_TEST(document__broken__error_not_absent)
{
    house_make(&house, "s", "sb");
    house_ask(&house, "HSET", "berth:{t1}:s/s", "turns", "{\"list\":7}", NULL);
    ck_reason(warm().reason, "INTERNAL_BUG");
    ck_assert_str_eq(house_field(&house, "s", "turns"), "{\"list\":7}");
    house_ask(&house, "DEL", "berth:{t1}:s/s", NULL);
    house_ask(&house, "SET", "berth:{t1}:s/s", "x", NULL);
    ck_reason(warm().reason, "INTERNAL_BUG");
    ck_assert_str_eq(house_ask(&house, "GET", "berth:{t1}:s/s", NULL), "x");
}
END_TEST

/* Members and fields of a later version survive our writes. */
START_TEST(document__unknown_field__kept)
{
    char token[160];

    house_make(&house, "s", "sb");
    house_ask(&house, "HSET", "berth:{t1}:s/s", "later", "kept", NULL);
    ck_reason(house_begin(&house, 0, "s", "t", token), "");
    ck_assert_str_eq(house_field(&house, "s", "later"), "kept");
}
END_TEST

/* ------------------------------------------------------------------------ replicas */

/* Not confirmed is not granted; with a replica there, it is. */
START_TEST(acquire__replica_wanted__granted_only_with_it)
{
    struct redis_server replica;
    char port[8];
    const char *extra[] = {"--replicaof", "127.0.0.1", port, NULL};

    house_open(&house, &(struct house_options){
                           .redis = {.tcp = true}, .wait_replicas = 1, .command_ms = 1500});
    /* As often as it is asked. */
    for (int i = 0; i < 2; i++)
        ck_reason(house_acquire(&house, i, (struct want){"s", .attempt = 1}).reason,
                  "OUTCOME_UNKNOWN");
    snprintf(port, sizeof port, "%d", house.server.port);
    redis_server_start(&replica, &(struct redis_server_options){.extra = extra});
    await(house_acquire(&house, 0, (struct want){"s", .attempt = 1}).decision ==
          BINDING_ADOPT_OR_CREATE);
    redis_server_stop(&replica);
    house_close(&house);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/store");
    TCase *tc = tcase_create("store"), *kept = tcase_create("kept");
    TCase *prompt = tcase_create("prompt");
    TCase *lossy = tcase_create("lossy"), *replicas = tcase_create("replicas");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, acquire__warm__one_command_each);
    tcase_add_test(tc, session__whole_life__every_command_in_one_slot);
    tcase_add_test(tc, session__each_write__a_new_rev);
    tcase_add_test(tc, epoch__missing__recovering);
    tcase_add_test(tc, document__broken__error_not_absent);
    tcase_add_test(tc, document__unknown_field__kept);
    tcase_add_checked_fixture(prompt, setup_prompt, teardown);
    tcase_add_test(prompt, redis__stopped_and_going_on__unavailable_then_well);
    tcase_add_test(prompt, redis__killed_while_callers_wait__told);
    tcase_add_checked_fixture(kept, setup_kept, teardown);
    tcase_add_test(kept, redis__killed_and_back__unavailable_quarantine_well);
    tcase_add_checked_fixture(lossy, setup_proxy, teardown);
    tcase_add_loop_test(lossy, write__outcome_not_known__settled_and_done_once, 0,
                        (int)BERTH_COUNT(loss_rows));
    tcase_add_test(lossy, write__first_of_session_lost_for_good__stub_expires);
    tcase_add_test(replicas, acquire__replica_wanted__granted_only_with_it);
    suite_add_tcase(suite, tc);
    suite_add_tcase(suite, prompt);
    suite_add_tcase(suite, kept);
    suite_add_tcase(suite, lossy);
    suite_add_tcase(suite, replicas);
    tcase_set_timeout(tc, 60);
    tcase_set_timeout(prompt, 60);
    tcase_set_timeout(kept, 60);
    tcase_set_timeout(lossy, 60);
    tcase_set_timeout(replicas, 60);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

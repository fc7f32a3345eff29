/* test_operations.c - operations in a real Redis: the queue, the lock and its end by Redis'
 * clock, what owners of before can still do, lost answers. */
#include "tests/unit/base/main.h"

#include <pthread.h>
#include <stdio.h>

#include "berth/skills/v1/skills.pb-c.h"
#include "common/time/time.h"
#include "services/skills/operation.h"
#include "tests/lib/redis_proxy.h"
#include "tests/lib/redis_server.h"

#define KEYS "k1 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"
#define CONFIG "berth:{t}:c/x"
#define KIND(name) BERTH__SKILLS__V1__OPERATION_KIND__OPERATION_KIND_##name
#define STATE(name) BERTH__SKILLS__V1__OPERATION_STATE__OPERATION_STATE_##name
#define STEP(name) BERTH__SKILLS__V1__STEP__STEP_##name

enum { LONG_MS = 60000, SHORT_MS = 300, AHEAD_MS = 3600000, N_THREADS = 20, WAIT_MS = 20000 };

static struct redis_server server;
static struct proxy proxy;
static struct berth_redis *store; /* past the proxy */
static struct skills skills;

static void ask(const char *command, const char *key, const char *a, const char *b,
                const char *c, const char *d)
{
    berth_reply_free(redis_run(store, command, key, a, b, c, d, NULL));
}

static void open_with(int64_t lease_ms, int64_t clock_ms)
{
    const struct redis_server_options options = {.clock_ms = clock_ms};
    struct berth_redis_options through = {.command_timeout_ms = 1000,
                                          .connect_timeout_ms = 10000};

    redis_server_start(&server, &options);
    proxy_start(&proxy, server.folder, server.url + strlen("unix:"));
    store = redis_server_client(&server, NULL);
    through.url = proxy.url;
    ck_assert_int_eq(berth_redis_new(&through, &skills.redis, NULL), BERTH_OK);
    ck_assert_int_eq(berth_keyring_parse("keys", KEYS, strlen(KEYS), &skills.keyring, NULL),
                     BERTH_OK);
    skills.build_lease_ms = lease_ms;
    ask("SET", "berth:epoch", "1", NULL, NULL, NULL);
    ask("SADD", "berth:tenants", "t", NULL, NULL, NULL);
    ask("HSET", CONFIG, "rev", "0000000000000001", "state", "active");
}

static void set_up(void)
{
    open_with(LONG_MS, 0);
}

static void tear_down(void)
{
    berth_keyring_free(skills.keyring);
    berth_redis_free(skills.redis);
    berth_redis_free(store);
    proxy_stop(&proxy);
    redis_server_stop(&server);
    skills = (struct skills){0};
}

/* ----------------------------------------------------------------------- helpers */

static struct operation wish(const char *skill)
{
    struct operation out = {.kind = KIND(INSTALL)};

    snprintf(out.tenant_id, sizeof out.tenant_id, "t");
    snprintf(out.config_id, sizeof out.config_id, "x");
    snprintf(out.skill_name, sizeof out.skill_name, "%s", skill);
    snprintf(out.created_by, sizeof out.created_by, "somebody");
    return out;
}

static struct operation queue(const char *skill)
{
    struct operation out = wish(skill);
    struct berth_error err = {0};
    bool repeat;

    ck_assert_msg(operation_queue(&skills, &out, NULL, &repeat, &err) == BERTH_OK, "%s",
                  err.text);
    ck_assert(!repeat);
    return out;
}

static enum berth_reason queue_reason(struct operation operation)
{
    struct berth_error err = {0};
    bool repeat;

    return operation_queue(&skills, &operation, NULL, &repeat, &err) ? err.reason
                                                                     : BERTH_REASON_NONE;
}

static struct operation read_it(const char *id)
{
    struct operation out = {0};
    struct berth_error err = {0};

    ck_assert_msg(operation_read(&skills, "t", id, &out, &err) == BERTH_OK, "%s", err.text);
    operation_deinit(&out);
    return out;
}

static bool take(struct operation_grant *ret)
{
    struct berth_error err = {0};
    bool taken = false;

    ck_assert_msg(operation_take(&skills, "t", "x", ret, &taken, &err) == BERTH_OK, "%s",
                  err.text);
    return taken;
}

static enum berth_reason beat(struct operation_grant *grant)
{
    struct berth_error err = {0};

    return operation_beat(&skills, grant, &err) ? err.reason : BERTH_REASON_NONE;
}

static enum berth_reason end(struct operation_grant *grant, int state)
{
    struct berth_error err = {0};

    grant->operation.state = state;
    return operation_end(&skills, grant, &err) ? err.reason : BERTH_REASON_NONE;
}

static enum berth_reason cancel(const char *tenant, const char *id)
{
    struct operation out = {0};
    struct berth_error err = {0};

    if (operation_cancel(&skills, tenant, id, &out, &err))
        return err.reason;
    operation_deinit(&out);
    return BERTH_REASON_NONE;
}

static enum berth_reason finish(const char *id, bool ok, const char *message)
{
    struct operation out = {0};
    struct berth_error err = {0};

    if (operation_finish(&skills, "t", id, ok, message, &out, &err))
        return err.reason;
    operation_deinit(&out);
    return BERTH_REASON_NONE;
}

/* Until the lock's time is over by Redis' clock. */
static bool take_later(struct operation_grant *ret)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    while (!take(ret)) {
        if (berth_tick_ms() > end_tick)
            return false;
        usleep(10000);
    }
    return true;
}

static char *text_of(const char *command, const char *key, const char *field)
{
    static char text[4096];
    struct berth_reply *reply = redis_run(store, command, key, field, NULL);

    if (reply->type == BERTH_REPLY_INTEGER)
        snprintf(text, sizeof text, "%lld", (long long)reply->integer);
    else
        snprintf(text, sizeof text, "%s", reply->string ? reply->string : "");
    berth_reply_free(reply);
    return text;
}

static const char *op_key(const char *kind, const char *id)
{
    static char key[128];

    snprintf(key, sizeof key, "berth:{t}:%s/%s", kind, id);
    return key;
}

static void count_one(void *arg, const char *tenant, const char *config_id)
{
    ck_assert_str_eq(tenant, "t");
    ck_assert_str_eq(config_id, "x");
    ++*(int *)arg;
}

static int waiting(void)
{
    int n = 0;

    ck_assert_int_eq(operation_each_waiting(&skills, count_one, &n, NULL), BERTH_OK);
    return n;
}

/* ------------------------------------------------------------------------- queue */

/* One after the other, in the order they came. */
START_TEST(take__three_queued__in_their_order)
{
    const struct operation ops[] = {queue("a"), queue("b"), queue("c")};
    struct operation_grant grant = {0}, none = {0};

    for (size_t i = 0; i < BERTH_COUNT(ops); i++) {
        ck_assert_int_eq(waiting(), 1);
        ck_assert(take(&grant));
        ck_assert_str_eq(grant.operation.operation_id, ops[i].operation_id);
        ck_assert_int_eq(grant.operation.state, STATE(RUNNING));
        ck_assert_int_eq((int)grant.operation.starts, 1);
        ck_assert(!take(&none));
        ck_assert_int_eq(waiting(), 0);
        ck_assert_int_eq(end(&grant, STATE(DONE)), BERTH_REASON_NONE);
        ck_assert_int_eq(read_it(ops[i].operation_id).state, STATE(DONE));
        operation_grant_deinit(&grant);
    }
    ck_assert(!take(&none));
    ck_assert_str_eq(text_of("HEXISTS", CONFIG, "queue"), "0");
    ck_assert_str_eq(text_of("HEXISTS", CONFIG, "lock"), "0");
    ck_assert_str_eq(text_of("EXISTS", "berth:{t}:i/queues", NULL), "0");
}
END_TEST

/* A newer change of the same skill takes the place of one that has not begun, and of no other.
 */
START_TEST(queue__same_skill_waits__overtaken)
{
    struct operation running = queue("a"), waits, other, newer;
    struct operation_grant grant = {0};
    struct operation removal = wish("a");
    bool repeat;

    ck_assert(take(&grant));
    waits = queue("a");
    other = queue("b");
    removal.kind = KIND(UNINSTALL);
    ck_assert_int_eq(operation_queue(&skills, &removal, NULL, &repeat, NULL), BERTH_OK);
    ck_assert_int_eq(read_it(waits.operation_id).state, STATE(CANCELLED));
    ck_assert_ptr_nonnull(strstr(read_it(waits.operation_id).message, removal.operation_id));
    ck_assert_int_eq(read_it(running.operation_id).state, STATE(RUNNING));
    ck_assert_int_eq(read_it(other.operation_id).state, STATE(QUEUED));
    newer = queue("a");
    ck_assert_int_eq(read_it(removal.operation_id).state, STATE(CANCELLED));
    ck_assert_int_eq(end(&grant, STATE(FAILED)), BERTH_REASON_NONE);
    operation_grant_deinit(&grant);
    ck_assert(take(&grant));
    ck_assert_str_eq(grant.operation.operation_id, other.operation_id);
    ck_assert_int_eq(end(&grant, STATE(DONE)), BERTH_REASON_NONE);
    operation_grant_deinit(&grant);
    ck_assert(take(&grant));
    ck_assert_str_eq(grant.operation.operation_id, newer.operation_id);
    operation_grant_deinit(&grant);
}
END_TEST

/* The same request again is the same operation; another one under its id is refused. */
START_TEST(queue__request_id_again__first_operation)
{
    struct operation first = wish("a"), again = wish("a"), other = wish("b");
    bool repeat = true;

    for (struct operation *one = &first; one; one = one == &first ? &again : NULL)
        snprintf(one->request_id, sizeof one->request_id, "r1");
    snprintf(other.request_id, sizeof other.request_id, "r1");
    ck_assert_int_eq(operation_queue(&skills, &first, NULL, &repeat, NULL), BERTH_OK);
    ck_assert(!repeat);
    ck_assert_int_eq(operation_queue(&skills, &again, NULL, &repeat, NULL), BERTH_OK);
    ck_assert(repeat);
    ck_assert_str_eq(again.operation_id, first.operation_id);
    ck_assert_int_eq(queue_reason(other), BERTH_REASON_REQUEST_ID_REUSED);
}
END_TEST

/* More than may wait, a config that is not there or about to go, a lost index: refused. */
START_TEST(queue__impossible__refused)
{
    struct operation operation = wish("a");

    for (int i = 0; i < OPERATION_QUEUE_MAX; i++) {
        char skill[16];

        snprintf(skill, sizeof skill, "s%d", i);
        (void)queue(skill);
    }
    ck_assert_int_eq(queue_reason(operation), BERTH_REASON_OVERLOADED);
    ck_assert_int_eq(queue_reason(wish("s7")), BERTH_REASON_NONE); /* in place of another */
    snprintf(operation.config_id, sizeof operation.config_id, "y");
    ck_assert_int_eq(queue_reason(operation), BERTH_REASON_CONFIG_NOT_FOUND);
    ask("HSET", CONFIG, "state", "deleting", NULL, NULL);
    ck_assert_int_eq(queue_reason(wish("s7")), BERTH_REASON_CONFIG_NOT_FOUND);
    ask("DEL", "berth:epoch", NULL, NULL, NULL, NULL);
    ck_assert_int_eq(queue_reason(wish("s7")), BERTH_REASON_INDEX_RECOVERING);
}
END_TEST

static void *queue_one(void *arg)
{
    char skill[16];

    snprintf(skill, sizeof skill, "s%d", *(int *)arg);
    (void)queue(skill);
    return NULL;
}

/* All at once: each has its place. */
START_TEST(queue__twenty_at_once__all_in_it)
{
    pthread_t threads[N_THREADS];
    int numbers[N_THREADS];
    struct operation_grant grant = {0};

    for (int i = 0; i < N_THREADS; i++) {
        numbers[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, queue_one, &numbers[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < N_THREADS; i++) {
        ck_assert(take(&grant));
        ck_assert_int_eq(end(&grant, STATE(DONE)), BERTH_REASON_NONE);
        operation_grant_deinit(&grant);
    }
    ck_assert(!take(&grant));
}
END_TEST

/* The environment comes back as it was, lies sealed in the store, and goes with the end. */
START_TEST(queue__environment__sealed_and_gone_at_the_end)
{
    struct operation operation = wish("a");
    json_t *env = json_pack("{s:s}", "TOKEN", "hunter2-hunter2");
    struct operation_grant grant = {0};
    bool repeat;

    ck_assert_int_eq(operation_queue(&skills, &operation, env, &repeat, NULL), BERTH_OK);
    ck_assert_ptr_null(
        strstr(text_of("HGET", op_key("op", operation.operation_id), "env"), "hunter"));
    ck_assert(take(&grant));
    ck_assert(json_equal(grant.env, env));
    ck_assert_int_eq(end(&grant, STATE(DONE)), BERTH_REASON_NONE);
    ck_assert_str_eq(text_of("HEXISTS", op_key("op", operation.operation_id), "env"), "0");
    operation_grant_deinit(&grant);
    json_decref(env);
}
END_TEST

/* Where its key is gone the operation fails, and the next one has its turn. */
START_TEST(take__environment_unreadable__failed_and_next)
{
    struct operation operation = wish("a"), next;
    json_t *env = json_pack("{s:s}", "A", "b");
    struct operation_grant grant = {0};
    bool repeat;

    ck_assert_int_eq(operation_queue(&skills, &operation, env, &repeat, NULL), BERTH_OK);
    next = queue("b");
    ask("HSET", op_key("op", operation.operation_id), "env", "nonsense", NULL, NULL);
    ck_assert(take(&grant));
    ck_assert_str_eq(grant.operation.operation_id, next.operation_id);
    ck_assert_int_eq(read_it(operation.operation_id).state, STATE(FAILED));
    operation_grant_deinit(&grant);
    json_decref(env);
}
END_TEST

/* ------------------------------------------------------------------------- lock */

static void *take_one(void *arg)
{
    struct operation_grant grant = {0};

    *(bool *)arg = take(&grant);
    operation_grant_deinit(&grant);
    return NULL;
}

/* Of all who would take it one does. */
START_TEST(take__twenty_at_once__one)
{
    pthread_t threads[N_THREADS];
    bool taken[N_THREADS] = {false};
    int n = 0;

    (void)queue("a");
    for (int i = 0; i < N_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, take_one, &taken[i]), 0);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        n += taken[i];
    }
    ck_assert_int_eq(n, 1);
}
END_TEST

/* An owner that gave no sign of life is followed by another; what it then says or writes counts
 * for nothing. */
START_TEST(take__owner_silent__next_start_and_old_one_lost)
{
    struct operation operation = queue("a"), seen;
    struct operation_grant old = {0}, grant = {0};

    skills.build_lease_ms = SHORT_MS;
    ck_assert(take(&old));
    operation_say(&skills, &old, "1", 1);
    skills.build_lease_ms = LONG_MS;
    ck_assert(take_later(&grant));
    ck_assert_int_eq((int)grant.operation.starts, 2);
    ck_assert_int_eq((int)grant.seq, 1);
    old.operation.step = STEP(FLIPPED);
    ck_assert_int_eq(beat(&old), BERTH_REASON_LOCK_LOST);
    ck_assert_int_eq(end(&old, STATE(DONE)), BERTH_REASON_LOCK_LOST);
    operation_leave(&skills, &old);
    ck_assert(!operation_holds(&old, text_of("HGET", CONFIG, "lock")));
    ck_assert(operation_holds(&grant, text_of("HGET", CONFIG, "lock")));
    seen = read_it(operation.operation_id);
    ck_assert_int_eq(seen.state, STATE(RUNNING));
    ck_assert_int_ne(seen.step, STEP(FLIPPED));
    ck_assert_int_eq(beat(&grant), BERTH_REASON_NONE);
    operation_grant_deinit(&old);
    operation_grant_deinit(&grant);
}
END_TEST

/* Signs of life keep the lock. */
START_TEST(beat__in_time__nobody_else_takes_it)
{
    struct operation_grant grant = {0}, none = {0};
    int64_t end_tick = berth_tick_ms() + 3 * SHORT_MS;

    (void)queue("a");
    skills.build_lease_ms = SHORT_MS;
    ck_assert(take(&grant));
    skills.build_lease_ms = LONG_MS;
    ck_assert_int_eq(beat(&grant), BERTH_REASON_NONE);
    while (berth_tick_ms() < end_tick) {
        ck_assert(!take(&none));
        usleep(20000);
    }
    operation_grant_deinit(&grant);
}
END_TEST

/* The lock's time is Redis': ours may be an hour behind. */
START_TEST(take__our_clock_behind__lock_holds_all_the_same)
{
    struct operation_grant grant = {0}, none = {0};

    (void)queue("a");
    ck_assert(take(&grant));
    ck_assert_int_gt(grant.operation.beat_ms, berth_now_ms() + AHEAD_MS / 2);
    ck_assert(!take(&none));
    ck_assert_int_eq(beat(&grant), BERTH_REASON_NONE);
    ck_assert(!take(&none));
    ck_assert_int_eq(waiting(), 0);
    operation_grant_deinit(&grant);
}
END_TEST

static void open_ahead(void)
{
    open_with(LONG_MS, AHEAD_MS);
}

/* Given back at a shutdown, it is taken again at once. */
START_TEST(leave__taken__next_takes_it_at_once)
{
    struct operation operation = queue("a");
    struct operation_grant grant = {0};

    ck_assert(take(&grant));
    operation_leave(&skills, &grant);
    ck_assert_int_eq(waiting(), 1);
    operation_grant_deinit(&grant);
    ck_assert(take(&grant));
    ck_assert_str_eq(grant.operation.operation_id, operation.operation_id);
    ck_assert_int_eq((int)grant.operation.starts, 2);
    operation_grant_deinit(&grant);
}
END_TEST

/* What the index has lost is no obstacle: an id without its document, a set without a queue. */
START_TEST(take__document_lost__passed_over)
{
    struct operation lost = queue("a"), there = queue("b");
    struct operation_grant grant = {0};

    ask("DEL", op_key("op", lost.operation_id), NULL, NULL, NULL, NULL);
    ck_assert(take(&grant));
    ck_assert_str_eq(grant.operation.operation_id, there.operation_id);
    ask("HDEL", CONFIG, "queue", "lock", NULL, NULL);
    ck_assert_int_eq(waiting(), 0);
    ck_assert_str_eq(text_of("EXISTS", "berth:{t}:i/queues", NULL), "0");
    ck_assert_int_eq(beat(&grant), BERTH_REASON_LOCK_LOST);
    operation_grant_deinit(&grant);
}
END_TEST

/* -------------------------------------------------------------------------- said */

static void expect_entry(const struct berth_reply *entry, const char *id, const char *field,
                         size_t size)
{
    ck_assert_str_eq(entry->items[0]->string, id);
    ck_assert_str_eq(entry->items[1]->items[2]->string, field);
    if (size)
        ck_assert_uint_eq(entry->items[1]->items[3]->size, size);
}

/* Output is numbered, in pieces; steps stand between it, once each. */
START_TEST(say__output_and_steps__numbered_from_one)
{
    static char much[OPERATION_ENTRY_MAX + 10];
    struct operation operation = queue("a");
    struct operation_grant grant = {0};
    struct berth_reply *log;

    memset(much, 'x', sizeof much);
    ck_assert(take(&grant));
    operation_say(&skills, &grant, "a\0b", 3);
    grant.operation.step = STEP(LOCKED);
    ck_assert_int_eq(beat(&grant), BERTH_REASON_NONE);
    ck_assert_int_eq(beat(&grant), BERTH_REASON_NONE);
    operation_say(&skills, &grant, much, sizeof much);
    log = redis_run(store, "XRANGE", op_key("opl", operation.operation_id), "-", "+", NULL);
    ck_assert_uint_eq(log->n_items, 4);
    expect_entry(log->items[0], "1-0", "out", 3);
    expect_entry(log->items[1], "2-0", "op", 0);
    expect_entry(log->items[2], "3-0", "out", OPERATION_ENTRY_MAX);
    expect_entry(log->items[3], "4-0", "out", 10);
    berth_reply_free(log);
    ck_assert_int_eq(beat(&grant), BERTH_REASON_NONE);
    ck_assert_str_ne(text_of("PTTL", op_key("opl", operation.operation_id), NULL), "-1");
    operation_grant_deinit(&grant);
}
END_TEST

/* Ended ones go by themselves, not those that wait or run; the end may be repeated. */
START_TEST(end__twice__ended_once_and_expires)
{
    struct operation operation = queue("a");
    struct operation_grant grant = {0};

    ck_assert(take(&grant));
    ck_assert_str_eq(text_of("PTTL", op_key("op", operation.operation_id), NULL), "-1");
    ck_assert_int_eq(end(&grant, STATE(FAILED)), BERTH_REASON_NONE);
    ck_assert_int_eq(end(&grant, STATE(FAILED)), BERTH_REASON_NONE);
    ck_assert_str_ne(text_of("PTTL", op_key("op", operation.operation_id), NULL), "-1");
    ck_assert_int_ne(read_it(operation.operation_id).end_ms, 0);
    operation_grant_deinit(&grant);
}
END_TEST

/* The last failure of a skill is remembered until it is done. */
START_TEST(end__failed__remembered_until_done)
{
    static const int states[] = {STATE(FAILED), STATE(FAILED), STATE(DONE)};
    struct operation_grant grant = {0};
    char wanted[64];

    for (size_t i = 0; i < BERTH_COUNT(states); i++) {
        struct operation operation = queue("a");

        ck_assert(take(&grant));
        ck_assert_int_eq(end(&grant, states[i]), BERTH_REASON_NONE);
        operation_grant_deinit(&grant);
        snprintf(wanted, sizeof wanted, "[\"%s\"]", operation.operation_id);
        ck_assert_str_eq(text_of("HGET", CONFIG, "failed"),
                         states[i] == STATE(FAILED) ? wanted : "");
    }
}
END_TEST

/* ------------------------------------------------------------------------ others */

/* At once where it waits, by its owner where it runs, never behind the flip. */
START_TEST(cancel__each_state__as_far_as_it_goes)
{
    struct operation running = queue("a"), waits = queue("b");
    struct operation_grant grant = {0};

    ck_assert_int_eq(cancel("other", waits.operation_id), BERTH_REASON_OPERATION_NOT_FOUND);
    ck_assert_int_eq(cancel("t", waits.operation_id), BERTH_REASON_NONE);
    ck_assert_int_eq(read_it(waits.operation_id).state, STATE(CANCELLED));
    ck_assert_int_eq(cancel("t", waits.operation_id), BERTH_REASON_NONE);
    ck_assert(take(&grant));
    ck_assert_int_eq(cancel("t", running.operation_id), BERTH_REASON_NONE);
    ck_assert_int_eq(read_it(running.operation_id).state, STATE(RUNNING));
    ck_assert(!grant.operation.cancel);
    ck_assert_int_eq(beat(&grant), BERTH_REASON_NONE);
    ck_assert(grant.operation.cancel);
    grant.operation.step = STEP(FLIPPED);
    ck_assert_int_eq(beat(&grant), BERTH_REASON_NONE);
    ck_assert_int_eq(cancel("t", running.operation_id), BERTH_REASON_OPERATION_ENDED);
    ck_assert_int_eq(end(&grant, STATE(DONE)), BERTH_REASON_NONE);
    ck_assert_int_eq(cancel("t", running.operation_id), BERTH_REASON_OPERATION_ENDED);
    operation_grant_deinit(&grant);
    ck_assert(!take(&grant));
}
END_TEST

/* The installer's word: only where one is waited for, once, and not for a later start. */
START_TEST(finish__external_installer__one_word_for_one_start)
{
    struct operation plain = queue("a"), operation = wish("b");
    struct operation_grant grant = {0};
    bool repeat;

    ck_assert_int_eq(finish(plain.operation_id, true, ""), BERTH_REASON_FIELD_INVALID);
    ck_assert_int_eq(cancel("t", plain.operation_id), BERTH_REASON_NONE);
    operation.external_installer = true;
    ck_assert_int_eq(operation_queue(&skills, &operation, NULL, &repeat, NULL), BERTH_OK);
    ck_assert_int_eq(finish(operation.operation_id, true, ""), BERTH_REASON_CONFLICT);
    ck_assert(take(&grant));
    grant.operation.step = STEP(EXTERNAL_INSTALLER);
    ck_assert_int_eq(beat(&grant), BERTH_REASON_NONE);
    ck_assert_int_eq(finish(operation.operation_id, false, "no"), BERTH_REASON_NONE);
    ck_assert_int_eq(finish(operation.operation_id, false, "no"), BERTH_REASON_NONE);
    ck_assert_int_eq(finish(operation.operation_id, true, "yes"), BERTH_REASON_CONFLICT);
    ck_assert_int_eq(beat(&grant), BERTH_REASON_NONE);
    ck_assert(grant.operation.finished && !grant.operation.finished_ok);
    ck_assert_str_eq(grant.operation.finish_message, "no");
    operation_leave(&skills, &grant);
    operation_grant_deinit(&grant);
    ck_assert(take(&grant));
    ck_assert(!grant.operation.finished);
    ck_assert_int_eq(end(&grant, STATE(FAILED)), BERTH_REASON_NONE);
    ck_assert_int_eq(finish(operation.operation_id, true, ""), BERTH_REASON_OPERATION_ENDED);
    operation_grant_deinit(&grant);
}
END_TEST

/* ------------------------------------------------------------------ lost answers */

static void lose(enum proxy_loss loss)
{
    atomic_store(&proxy.loss, (int)loss);
}

static void all_lossy(enum proxy_loss loss)
{
    struct operation_grant grant = {0}, none = {0};
    struct operation operation, second;

    lose(loss);
    operation = queue("a");
    lose(loss);
    second = queue("b");
    lose(loss);
    ck_assert_int_eq(cancel("t", second.operation_id), BERTH_REASON_NONE);
    lose(loss);
    ck_assert(take(&grant));
    ck_assert_str_eq(grant.operation.operation_id, operation.operation_id);
    ck_assert_int_eq((int)grant.operation.starts, 1);
    lose(loss);
    grant.operation.percent = 7;
    ck_assert_int_eq(beat(&grant), BERTH_REASON_NONE);
    ck_assert_int_eq((int)read_it(operation.operation_id).percent, 7);
    ck_assert(!take(&none));
    lose(loss);
    ck_assert_int_eq(end(&grant, STATE(DONE)), BERTH_REASON_NONE);
    ck_assert_int_eq(read_it(operation.operation_id).state, STATE(DONE));
    operation_grant_deinit(&grant);
    ck_assert(!take(&none));
    ck_assert_int_eq(atomic_load(&proxy.lost), 6);
}

/* An answer that does not come is asked after, and nothing is done twice or by halves. */
START_TEST(all__answer_lost__known_all_the_same)
{
    all_lossy(PROXY_LOSE_REPLY);
}
END_TEST

/* ... whether the write arrived or not. */
START_TEST(all__request_lost__done_all_the_same)
{
    all_lossy(PROXY_LOSE_REQUEST);
}
END_TEST

/* A write that arrives when it has been given up does nothing any more. */
START_TEST(queue__arrives_late__once)
{
    struct operation_grant grant = {0}, none = {0};
    struct operation operation;

    lose(PROXY_HOLD_REQUEST);
    operation = queue("a");
    proxy_release(&proxy);
    ck_assert(take(&grant));
    ck_assert_str_eq(grant.operation.operation_id, operation.operation_id);
    ck_assert_int_eq(end(&grant, STATE(DONE)), BERTH_REASON_NONE);
    operation_grant_deinit(&grant);
    ck_assert(!take(&none));
}
END_TEST

static void add_case(Suite *suite, const char *name, void (*open)(void),
                     const TTest *const *tests, size_t n)
{
    TCase *tcase = tcase_create(name);

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, open, tear_down);
    for (size_t i = 0; i < n; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    const TTest *const tests[] = {
        take__three_queued__in_their_order,
        queue__same_skill_waits__overtaken,
        queue__request_id_again__first_operation,
        queue__impossible__refused,
        queue__twenty_at_once__all_in_it,
        queue__environment__sealed_and_gone_at_the_end,
        take__environment_unreadable__failed_and_next,
        take__twenty_at_once__one,
        take__owner_silent__next_start_and_old_one_lost,
        beat__in_time__nobody_else_takes_it,
        leave__taken__next_takes_it_at_once,
        take__document_lost__passed_over,
        say__output_and_steps__numbered_from_one,
        end__twice__ended_once_and_expires,
        end__failed__remembered_until_done,
        cancel__each_state__as_far_as_it_goes,
        finish__external_installer__one_word_for_one_start,
        all__answer_lost__known_all_the_same,
        all__request_lost__done_all_the_same,
        queue__arrives_late__once,
    };
    const TTest *const ahead[] = {take__our_clock_behind__lock_holds_all_the_same};
    Suite *suite = suite_create("operations");
    SRunner *runner;
    int failed;

    add_case(suite, "operations", set_up, tests, BERTH_COUNT(tests));
    add_case(suite, "ahead", open_ahead, ahead, BERTH_COUNT(ahead));
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

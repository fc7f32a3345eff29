/* test_events.c - WatchEvents: every change once, in order, from where the caller stopped. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/component/controlplane/town.h"

#define KIND(name) BERTH__CONTROL__V1__EVENT_KIND__EVENT_KIND_##name
#define EVENTS_KEY "berth:{t1}:ev"

enum { SEEN_MAX = 4096 };

typedef Berth__Control__V1__Event Event;
typedef Berth__Control__V1__EventKind EventKind;
typedef Berth__Control__V1__WatchEventsRequest WatchEventsRequest;
typedef Berth__Control__V1__WatchEventsResponse WatchEventsResponse;

static struct town town;
static struct berth_loop *loop;

/* One caller. All but the request is guarded by the mutex. */
struct watcher {
    struct berth_channel *channel;
    struct berth_buf *request;
    struct berth_stream *stream;
    pthread_mutex_t mutex;
    bool lazy; /* reads nothing more once it has one event */
    unsigned n_beats, n_seen;
    char beat[64]; /* the last cursor of a heartbeat */
    struct seen {
        int kind;
        uint64_t seq;
        char session[32], box[64], cursor[48], id[64];
    } seen[SEEN_MAX];
    bool over, let_go;
    enum berth_reason reason;
    struct berth_error err;
};

static void open_town(void)
{
    town_open(&town, &(struct town_options){.heartbeat = "300ms"});
    ck_assert_int_eq(berth_loop_new(&loop, NULL), BERTH_OK);
    ck_assert_int_eq(berth_loop_start(loop, "watchers", NULL), BERTH_OK);
}

static void close_town(void)
{
    berth_loop_free(loop);
    town_close(&town);
}

static void note(struct watcher *watcher, const Event *event)
{
    struct seen *seen = &watcher->seen[watcher->n_seen++];

    seen->kind = (int)event->kind;
    seen->seq = event->session_seq;
    snprintf(seen->session, sizeof seen->session, "%s",
             event->session ? event->session->session_id : "");
    snprintf(seen->box, sizeof seen->box, "%s", event->sandbox_id);
    snprintf(seen->cursor, sizeof seen->cursor, "%s", event->cursor);
    snprintf(seen->id, sizeof seen->id, "%s", event->event_id);
    ck_assert_ptr_nonnull(event->occur_time);
    ck_assert(*event->event_id);
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct watcher *watcher = ctx;
    ProtobufCMessage *message;
    WatchEventsResponse *response;
    bool read_on;

    if (!msg)
        return;
    ck_assert_int_eq(berth_buf_decode(&berth__control__v1__watch_events_response__descriptor,
                                      msg, &message, NULL),
                     BERTH_OK);
    berth_buf_unref(msg);
    response = (WatchEventsResponse *)message;
    pthread_mutex_lock(&watcher->mutex);
    if (response->message_case == BERTH__CONTROL__V1__WATCH_EVENTS_RESPONSE__MESSAGE_EVENT) {
        if (watcher->n_seen < SEEN_MAX)
            note(watcher, response->event);
    } else {
        watcher->n_beats++;
        snprintf(watcher->beat, sizeof watcher->beat, "%s", response->heartbeat_cursor);
    }
    read_on = !watcher->lazy || !watcher->n_seen;
    pthread_mutex_unlock(&watcher->mutex);
    berth_message_free(message);
    if (read_on)
        berth_stream_read(stream);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    (void)ctx;
    (void)stream;
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct watcher *watcher = ctx;

    (void)stream;
    pthread_mutex_lock(&watcher->mutex);
    watcher->over = true;
    watcher->stream = NULL;
    if (status->code) {
        (void)berth_status_to_error(status, &watcher->err);
        watcher->reason = watcher->err.reason;
    }
    pthread_mutex_unlock(&watcher->mutex);
}

static void start(void *arg)
{
    static const struct berth_stream_ops ops = {
        .message = on_message, .written = on_written, .closed = on_closed};
    struct watcher *watcher = arg;
    struct berth_stream *stream =
        berth_channel_stream(watcher->channel, "/berth.control.v1.EventService/WatchEvents",
                             NULL, loop, &ops, watcher);

    pthread_mutex_lock(&watcher->mutex);
    watcher->stream = stream;
    pthread_mutex_unlock(&watcher->mutex);
    (void)berth_stream_write(stream, watcher->request);
    berth_stream_half_close(stream);
    berth_stream_read(stream);
}

static WatchEventsRequest request_of(const char *session, const char *cursor)
{
    WatchEventsRequest req = BERTH__CONTROL__V1__WATCH_EVENTS_REQUEST__INIT;

    req.tenant_id = (char *)"t1";
    req.session_id = (char *)session;
    req.after_cursor = (char *)cursor;
    return req;
}

static struct watcher *open_watcher(const WatchEventsRequest *req, bool lazy)
{
    struct watcher *watcher = calloc(1, sizeof *watcher);

    ck_assert_ptr_nonnull(watcher);
    pthread_mutex_init(&watcher->mutex, NULL);
    watcher->channel = town.control[0];
    watcher->lazy = lazy;
    watcher->request = berth_buf_pack(&req->base);
    berth_loop_post(loop, start, watcher);
    return watcher;
}

enum what { EVENTS, BEATS, END, LET_GO };

static void await(struct watcher *watcher, enum what what, unsigned n)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    bool there = false;

    while (!there) {
        ck_assert_msg(berth_tick_ms() < end_tick, "%u events, %u beats, reason %d",
                      watcher->n_seen, watcher->n_beats, (int)watcher->reason);
        usleep(1000);
        pthread_mutex_lock(&watcher->mutex);
        there = what == EVENTS  ? watcher->n_seen >= n
                : what == BEATS ? watcher->n_beats >= n
                                : watcher->over && (what == END || watcher->let_go);
        pthread_mutex_unlock(&watcher->mutex);
    }
}

static void cancel(void *arg)
{
    struct watcher *watcher = arg;

    if (watcher->stream)
        berth_stream_cancel(watcher->stream);
    pthread_mutex_lock(&watcher->mutex);
    watcher->let_go = true; /* the last that this callback does with it */
    pthread_mutex_unlock(&watcher->mutex);
}

static void close_watcher(struct watcher *watcher)
{
    berth_loop_post(loop, cancel, watcher);
    await(watcher, LET_GO, 0);
    pthread_mutex_destroy(&watcher->mutex);
    free(watcher);
}

static struct watcher *watch(const char *session, const char *cursor)
{
    WatchEventsRequest req = request_of(session, cursor);
    struct watcher *watcher = open_watcher(&req, false);

    await(watcher, BEATS, 1);
    return watcher;
}

static enum berth_reason refused(const WatchEventsRequest *req, char *ret_field, size_t size)
{
    struct watcher *watcher = open_watcher(req, false);
    enum berth_reason reason;

    await(watcher, END, 0);
    reason = watcher->reason;
    if (ret_field)
        snprintf(ret_field, size, "%s", watcher->err.field);
    close_watcher(watcher);
    return reason;
}

/* Entries of no use but to be there. */
static void fill(unsigned n, unsigned max)
{
    char count[16], id[32];

    snprintf(count, sizeof count, "%u", max);
    for (unsigned i = 0; i < n; i++) {
        snprintf(id, sizeof id, "fill-%u", i);
        berth_reply_free(redis_run(town.store, "XADD", EVENTS_KEY, "MAXLEN", "=", count, "*",
                                   "kind", "STALE", "event_id", id, "session", "filled",
                                   "at_ms", "1", (char *)NULL));
    }
}

/* ------------------------------------------------------------------------------ */

/* Whoever watches from now on hears what happens, once each, in order. */
START_TEST(watch__from_now__every_change_once_in_order)
{
    static const int kinds[] = {KIND(CREATED), KIND(PAUSED), KIND(RESUMED),
                                KIND(SESSION_DELETED)};
    char box[64];
    struct watcher *watcher;

    snprintf(box, sizeof box, "%s", town_box(&town, "before", NULL));
    watcher = watch("", "");
    snprintf(box, sizeof box, "%s", town_box(&town, "s1", NULL));
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_int_eq(town_act(&town, "Resume", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s1"), BERTH_REASON_NONE);
    await(watcher, EVENTS, BERTH_COUNT(kinds));
    for (unsigned i = 0; i < BERTH_COUNT(kinds); i++) {
        ck_assert_int_eq(watcher->seen[i].kind, kinds[i]);
        ck_assert_str_eq(watcher->seen[i].session, "s1");
        ck_assert_uint_eq(watcher->seen[i].seq, i + 1);
        if (i < 3)
            ck_assert_str_eq(watcher->seen[i].box, box);
    }
    close_watcher(watcher);
}
END_TEST

/* A caller that comes again with any cursor it got misses nothing and gets nothing twice. */
START_TEST(watch__again_from_each_cursor__the_rest_and_no_more)
{
    struct watcher *all;

    town_box(&town, "s1", NULL);
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_NONE);
    town_box(&town, "s2", NULL);
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s2"), BERTH_REASON_NONE);
    all = watch("", "0");
    await(all, EVENTS, 5); /* of the config, two creates, a pause, an end */
    await(all, BEATS, all->n_beats + 1);
    ck_assert_str_eq(all->beat, all->seen[all->n_seen - 1].cursor);
    for (unsigned i = 0; i < all->n_seen; i++) {
        unsigned left = all->n_seen - i - 1;
        struct watcher *rest = watch("", all->seen[i].cursor);

        await(rest, EVENTS, left);
        await(rest, BEATS, rest->n_beats + 1);
        ck_assert_uint_eq(rest->n_seen, left);
        for (unsigned k = 0; k < left; k++)
            ck_assert_str_eq(rest->seen[k].id, all->seen[i + 1 + k].id);
        close_watcher(rest);
    }
    close_watcher(all);
}
END_TEST

/* More than fits in a page. */
START_TEST(watch__thousands_kept__all_come)
{
    struct watcher *watcher;

    fill(1000, 100000);
    watcher = watch("filled", "0");
    await(watcher, EVENTS, 1000);
    ck_assert_uint_eq(watcher->n_seen, 1000);
    for (unsigned i = 0; i < 1000; i++) {
        char id[32];

        snprintf(id, sizeof id, "fill-%u", i);
        ck_assert_str_eq(watcher->seen[i].id, id);
    }
    close_watcher(watcher);
}
END_TEST

/* One session, and some kinds only; the cursor moves on over what is left out. */
START_TEST(watch__session_and_kinds__nothing_else_comes)
{
    EventKind kinds[] = {KIND(PAUSED), KIND(SESSION_DELETED)};
    WatchEventsRequest req = request_of("s1", "0");
    struct watcher *watcher;
    char before[64];

    req.kinds = kinds;
    req.n_kinds = BERTH_COUNT(kinds);
    watcher = open_watcher(&req, false);
    await(watcher, BEATS, 2);
    snprintf(before, sizeof before, "%s", watcher->beat);
    town_box(&town, "s1", NULL);
    town_box(&town, "s2", NULL);
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s2"), BERTH_REASON_NONE);
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s1"), BERTH_REASON_NONE);
    await(watcher, EVENTS, 2);
    town_box(&town, "s3", NULL); /* nothing to it, but for the cursor */
    await(watcher, BEATS, watcher->n_beats + 2);
    ck_assert_uint_eq(watcher->n_seen, 2);
    ck_assert_int_eq(watcher->seen[0].kind, KIND(PAUSED));
    ck_assert_int_eq(watcher->seen[1].kind, KIND(SESSION_DELETED));
    ck_assert_str_ne(watcher->beat, before);
    ck_assert_str_ne(watcher->beat, watcher->seen[1].cursor);
    close_watcher(watcher);
}
END_TEST

/* Where events were trimmed behind a cursor, it says so and skips nothing in silence. */
START_TEST(watch__cursor_behind_what_is_kept__expired)
{
    struct watcher *watcher;
    WatchEventsRequest req;
    char cursor[64];

    fill(3, 100000);
    watcher = watch("filled", "0");
    await(watcher, EVENTS, 3);
    snprintf(cursor, sizeof cursor, "%s", watcher->seen[0].cursor);
    close_watcher(watcher);
    fill(20, 10);
    req = request_of("", cursor);
    ck_assert_int_eq(refused(&req, NULL, 0), BERTH_REASON_CURSOR_EXPIRED);
    req = request_of("", "1-1");
    ck_assert_int_eq(refused(&req, NULL, 0), BERTH_REASON_CURSOR_EXPIRED);
    watcher = watch("", "0");
    await(watcher, EVENTS, 10);
    close_watcher(watcher);
}
END_TEST

/* A reader that stops is told what it missed, and costs no memory meanwhile. */
START_TEST(watch__reader_too_slow__expired_not_skipped)
{
    WatchEventsRequest req = request_of("", "0");
    struct watcher *lazy;

    fill(2000, 100000);
    lazy = open_watcher(&req, true);
    await(lazy, EVENTS, 1);
    fill(20, 10);
    pthread_mutex_lock(&lazy->mutex);
    lazy->lazy = false;
    pthread_mutex_unlock(&lazy->mutex);
    berth_loop_post(loop, (berth_loop_fn)berth_stream_read, lazy->stream);
    await(lazy, END, 0);
    ck_assert_int_eq(lazy->reason, BERTH_REASON_CURSOR_EXPIRED);
    ck_assert_uint_lt(lazy->n_seen, 2020);
    close_watcher(lazy);
}
END_TEST

/* The stream was lost with the store: a cursor of before is of another one. */
START_TEST(watch__cursor_ahead_of_the_stream__expired)
{
    WatchEventsRequest req = request_of("", "99999999999999-0");

    ck_assert_int_eq(refused(&req, NULL, 0), BERTH_REASON_CURSOR_EXPIRED);
}
END_TEST

static const struct {
    const char *tenant, *session, *cursor, *field;
    int kind;
    enum berth_reason reason;
} bad[] = {
    {"", "", "", "tenant_id", 1, BERTH_REASON_FIELD_INVALID},
    {"a/b", "", "", "tenant_id", 1, BERTH_REASON_FIELD_INVALID},
    {"nobody", "", "", "", 1, BERTH_REASON_TENANT_NOT_FOUND},
    {"t1", "a b", "", "session_id", 1, BERTH_REASON_FIELD_INVALID},
    {"t1", "", "", "kinds", 0, BERTH_REASON_FIELD_INVALID},
    {"t1", "", "", "kinds", 99, BERTH_REASON_FIELD_INVALID},
    {"t1", "", "", "kinds", -1, BERTH_REASON_FIELD_INVALID},
    {"t1", "", "x", "after_cursor", 1, BERTH_REASON_FIELD_INVALID},
    {"t1", "", "12", "after_cursor", 1, BERTH_REASON_FIELD_INVALID},
    {"t1", "", "1-", "after_cursor", 1, BERTH_REASON_FIELD_INVALID},
    {"t1", "", "-1-1", "after_cursor", 1, BERTH_REASON_FIELD_INVALID},
    {"t1", "", "1-1 ", "after_cursor", 1, BERTH_REASON_FIELD_INVALID},
    {"t1", "", "18446744073709551616-0", "after_cursor", 1, BERTH_REASON_FIELD_INVALID},
};

/* The field and the rule. */
START_TEST(watch__bad_request__refused_naming_the_field)
{
    char field[128];

    for (size_t i = 0; i < BERTH_COUNT(bad); i++) {
        WatchEventsRequest req = BERTH__CONTROL__V1__WATCH_EVENTS_REQUEST__INIT;
        EventKind kind = (EventKind)bad[i].kind;

        req.tenant_id = (char *)bad[i].tenant;
        req.session_id = (char *)bad[i].session;
        req.after_cursor = (char *)bad[i].cursor;
        req.kinds = &kind;
        req.n_kinds = 1;
        ck_assert_msg(refused(&req, field, sizeof field) == bad[i].reason, "case %zu", i);
        ck_assert_str_eq(field, bad[i].field);
    }
}
END_TEST

/* Redis is killed and comes back with what it had: watchers go on where they were. */
START_TEST(watch__store_away_for_a_moment__goes_on)
{
    struct watcher *watcher = watch("s1", "");

    town_box(&town, "s1", NULL);
    await(watcher, EVENTS, 1);
    redis_server_pause(&town.redis);
    /* Longer than a command may take: the read of the watcher has failed, too. */
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_STORE_UNAVAILABLE);
    redis_server_resume(&town.redis);
    town_wait_ready(&town);
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_NONE);
    await(watcher, EVENTS, 2);
    ck_assert_int_eq(watcher->seen[1].kind, KIND(PAUSED));
    close_watcher(watcher);
}
END_TEST

/* Hundreds of reads of Redis a second for watchers that have nothing to hear would be a herd.
 */
START_TEST(watch__fifty_at_rest__one_read_for_all)
{
    struct watcher *watchers[50];
    struct berth_reply *reply;
    int64_t calls;
    const char *at;

    for (unsigned i = 0; i < BERTH_COUNT(watchers); i++)
        watchers[i] = watch("", "");
    berth_reply_free(redis_run(town.store, "CONFIG", "RESETSTAT", (char *)NULL));
    town_box(&town, "s1", NULL);
    for (unsigned i = 0; i < BERTH_COUNT(watchers); i++)
        await(watchers[i], EVENTS, 1);
    reply = redis_run(town.store, "INFO", "commandstats", (char *)NULL);
    at = strstr(reply->string, "cmdstat_xrange:calls=");
    ck_assert_ptr_nonnull(at);
    calls = strtoll(at + strlen("cmdstat_xrange:calls="), NULL, 10);
    /* Two per page, and one page for all, where each comes to its end at the same time. */
    ck_assert_int_le(calls, 20);
    berth_reply_free(reply);
    for (unsigned i = 0; i < BERTH_COUNT(watchers); i++)
        close_watcher(watchers[i]);
}
END_TEST

/* A drain does not wait for those who would watch for ever. */
START_TEST(watch__server_stops__told_at_once)
{
    struct watcher *watcher = watch("", "");

    process_stop(&town.planes[0]);
    await(watcher, END, 0);
    ck_assert_int_eq(watcher->reason, BERTH_REASON_DRAINING);
    process_start(&town.planes[0]);
    town_wait_ready(&town);
    close_watcher(watcher);
}
END_TEST

/* Ids of a stream's entries that are the first of their sessions (seq 1), added to ids. */
static size_t first_ids(const char *key, char ids[][64], size_t n)
{
    BERTH_AUTO(berth_reply_free)
    struct berth_reply *all = redis_run(town.store, "XRANGE", key, "-", "+", NULL);

    for (size_t i = 0; i < all->n_items; i++) {
        const struct berth_reply *fields = all->items[i]->items[1];
        const char *id = "", *seq = "";

        for (size_t k = 0; k + 1 < fields->n_items; k += 2) {
            if (strcmp(fields->items[k]->string, "event_id") == 0)
                id = fields->items[k + 1]->string;
            if (strcmp(fields->items[k]->string, "seq") == 0)
                seq = fields->items[k + 1]->string;
        }
        if (strcmp(seq, "1") == 0)
            snprintf(ids[n++], 64, "%s", id);
    }
    return n;
}

/* No two events have one id: not those of two tenants' sessions of one name, nor those of a
 * session whose numbers begin anew because it was lost. */
START_TEST(event_id__alike_in_all_else__never_the_same)
{
    char ids[8][64];
    size_t n;

    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(town_resolve(&town, 0, i ? "t2" : "t1", "same", NULL, NULL, NULL),
                         BERTH_REASON_NONE);
    berth_reply_free(redis_run(town.store, "DEL", "berth:{t1}:s/same", NULL));
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "same", NULL, NULL, NULL), BERTH_REASON_NONE);
    n = first_ids("berth:{t1}:ev", ids, 0);
    n = first_ids("berth:{t2}:ev", ids, n);
    ck_assert_uint_eq(n, 3);
    for (size_t i = 0; i < n; i++) {
        ck_assert_uint_eq(strlen(ids[i]), 32);
        for (size_t k = 0; k < i; k++)
            ck_assert_str_ne(ids[i], ids[k]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/events");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, open_town, close_town);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, watch__from_now__every_change_once_in_order);
    tcase_add_test(all, event_id__alike_in_all_else__never_the_same);
    tcase_add_test(all, watch__again_from_each_cursor__the_rest_and_no_more);
    tcase_add_test(all, watch__thousands_kept__all_come);
    tcase_add_test(all, watch__session_and_kinds__nothing_else_comes);
    tcase_add_test(all, watch__cursor_behind_what_is_kept__expired);
    tcase_add_test(all, watch__reader_too_slow__expired_not_skipped);
    tcase_add_test(all, watch__cursor_ahead_of_the_stream__expired);
    tcase_add_test(all, watch__store_away_for_a_moment__goes_on);
    tcase_add_test(all, watch__fifty_at_rest__one_read_for_all);
    tcase_add_test(all, watch__server_stops__told_at_once);
    tcase_add_test(all, watch__bad_request__refused_naming_the_field);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* test_losses.c - a sandbox that is lost is told of by the next answer that can, whoever found
 * it out and whatever was answered in between; and what the first create of a session got wrong
 * does not stick. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/component/controlplane/town.h"

#define OUTCOME(name) BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_##name
#define INTERNAL "/berth.control.v1.InternalService/"

static struct town town;

static void open_town(void)
{
    /* Two control planes, each of which looks at a sandbox before it hands it out. */
    town_open(&town, &(struct town_options){
                         .planes = 2, .lock_lease = "1s", .verify = "0ms", .metrics = true});
}

static void close_town(void)
{
    town_close(&town);
}

/* What the data plane asks; mode 0: ENSURE. */
static enum berth_reason route(const char *session, int mode, Route **ret)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__ResolveRouteRequest req =
        BERTH__CONTROL__V1__RESOLVE_ROUTE_REQUEST__INIT;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)session;
    req.session = &ref;
    req.mode = (Berth__Control__V1__ResolveMode)mode;
    return town_call(town.control[0], INTERNAL "ResolveRoute", &req,
                     &berth__control__v1__resolve_route_response__descriptor, WAIT_MS, ret,
                     NULL);
}

static enum berth_reason told_by(struct berth_channel *channel, const char *session,
                                 uint64_t number)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__LossToldRequest req = BERTH__CONTROL__V1__LOSS_TOLD_REQUEST__INIT;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)session;
    req.session = &ref;
    req.number = number;
    return town_call(channel, INTERNAL "LossTold", &req,
                     &berth__control__v1__loss_told_response__descriptor, WAIT_MS, NULL, NULL);
}

static enum berth_reason loss_told(const char *session, uint64_t number)
{
    return told_by(town.control[1], session, number);
}

static Resolved *resolve(unsigned plane, const char *session)
{
    Resolved *resolved = NULL;

    ck_assert_int_eq(town_resolve(&town, plane, "t1", session, NULL, NULL, &resolved),
                     BERTH_REASON_NONE);
    return resolved;
}

/* Told exactly once, by whichever control plane is asked first. */
static void must_tell_once(const char *session, const char *lost_box)
{
    Resolved *resolved = resolve(1, session);
    Session *seen = NULL;

    ck_assert_int_eq(resolved->outcome, OUTCOME(REPLACED));
    ck_assert_uint_eq(resolved->n_lost, 3);
    ck_assert_ptr_nonnull(strstr(resolved->lost[1], "/workspace"));
    ck_assert_str_eq(resolved->session->last_loss->sandbox_id, lost_box);
    ck_assert_str_ne(resolved->session->sandbox->sandbox_id, lost_box);
    berth_message_free(resolved);
    resolved = resolve(0, session);
    ck_assert_int_eq(resolved->outcome, OUTCOME(USED));
    ck_assert_uint_eq(resolved->n_lost, 0);
    ck_assert_ptr_null(resolved->session->last_loss);
    berth_message_free(resolved);
    ck_assert_int_eq(town_get(&town, "t1", session, false, &seen), BERTH_REASON_NONE);
    ck_assert_ptr_nonnull(seen->last_loss);
    ck_assert_ptr_nonnull(seen->last_loss->told_time);
    berth_message_free(seen);
}

static void cordon(bool on)
{
    Berth__Control__V1__UpdateConfigRequest req =
        BERTH__CONTROL__V1__UPDATE_CONFIG_REQUEST__INIT;
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
    SandboxConfig config = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;
    char *paths[] = {(char *)"cordoned"};

    config.tenant_id = (char *)"t1";
    config.config_id = (char *)"c1";
    config.cordoned = on;
    mask.n_paths = 1;
    mask.paths = paths;
    req.config = &config;
    req.update_mask = &mask;
    ck_assert_int_eq(town_call(town.control[0], "/berth.control.v1.ConfigService/UpdateConfig",
                               &req, &berth__control__v1__update_config_response__descriptor,
                               WAIT_MS, NULL, NULL),
                     BERTH_REASON_NONE);
}

/* Each row: what comes first after the loss. */
static const char *const firsts[] = {"resolve",        "run",      "stat", "pause", "resume",
                                     "create refused", "cordoned", "read", "killed"};

START_TEST(loss__whatever_call_came_first__told_by_the_next_resolve)
{
    const char *first = firsts[_i];
    Session *seen = NULL;
    Route *got = NULL;

    (void)town_box(&town, "s1", NULL);
    fake_kill(town.fake, "box-1");
    if (strcmp(first, "run") == 0) {
        ck_assert_int_eq(route("s1", 0, &got), BERTH_REASON_NONE);
        ck_assert_str_eq(got->endpoint->sandbox_id, "box-2");
        ck_assert_int_eq(got->loss->outcome, OUTCOME(REPLACED));
        ck_assert_uint_eq(got->loss->n_lost, 3);
        berth_message_free(got);
    } else if (strcmp(first, "stat") == 0) {
        ck_assert_int_eq(route("s1", 2, NULL), BERTH_REASON_SANDBOX_NOT_FOUND);
    } else if (strcmp(first, "pause") == 0) {
        ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_SANDBOX_NOT_FOUND);
    } else if (strcmp(first, "resume") == 0) {
        ck_assert_int_eq(town_act(&town, "Resume", "t1", "s1"), BERTH_REASON_SANDBOX_NOT_FOUND);
    } else if (strcmp(first, "create refused") == 0) {
        fake_script(town.fake, FAKE_CREATE, FAKE_REFUSE, BERTH_REASON_BACKEND_CAPACITY, 1);
        ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL),
                         BERTH_REASON_BACKEND_CAPACITY);
    } else if (strcmp(first, "cordoned") == 0) {
        enum berth_reason reason = BERTH_REASON_NONE;
        int64_t end_tick = berth_tick_ms() + WAIT_MS;

        cordon(true);
        ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL),
                         BERTH_REASON_CONFIG_CORDONED);
        cordon(false);
        do /* until the cache of the other one has seen it */
            reason = town_resolve(&town, 1, "t1", "s2", NULL, NULL, NULL);
        while (reason && berth_tick_ms() < end_tick);
    } else if (strcmp(first, "read") == 0) {
        (void)route("s1", 2, NULL);
        ck_assert_int_eq(town_get(&town, "t1", "s1", false, &seen), BERTH_REASON_NONE);
        ck_assert_int_eq(seen->last_loss->outcome, OUTCOME(REPLACED));
        ck_assert_ptr_null(seen->last_loss->told_time);
        berth_message_free(seen);
    } else if (strcmp(first, "killed") == 0) {
        struct beside call;

        fake_script(town.fake, FAKE_CREATE, FAKE_HOLD, 0, 1);
        beside_start(&call, &town, 0, "Resolve", "s1");
        fake_wait_held(town.fake, 1);
        process_kill(&town.planes[0]);
        (void)beside_join(&call);
        fake_release(town.fake);
        process_start(&town.planes[0]);
        town_wait_ready(&town);
    }
    must_tell_once("s1", "box-1");
}
END_TEST

/* Two losses before anybody could be told are one notice; a report of another number, or of a
 * session that lost nothing, changes nothing; told by the data plane, the resolve is quiet. */
START_TEST(loss__told_by_the_data_plane__not_again)
{
    Resolved *resolved;
    Route *got = NULL;
    uint64_t number;
    (void)town_box(&town, "s1", NULL);
    ck_assert_int_eq(loss_told("s1", 1), BERTH_REASON_NONE);
    ck_assert_int_eq(loss_told("never", 1), BERTH_REASON_SESSION_NOT_FOUND);
    ck_assert_int_eq(loss_told("s1", 0), BERTH_REASON_FIELD_INVALID);
    fake_kill(town.fake, "box-1");
    ck_assert_int_eq(route("s1", 2, NULL), BERTH_REASON_SANDBOX_NOT_FOUND);
    ck_assert_int_eq(route("s1", 0, &got), BERTH_REASON_NONE);
    berth_message_free(got);
    fake_kill(town.fake, "box-2");
    ck_assert_int_eq(route("s1", 0, &got), BERTH_REASON_NONE);
    ck_assert_str_eq(got->endpoint->sandbox_id, "box-3");
    ck_assert_str_eq(got->loss->sandbox_id, "box-2");
    number = got->loss->number;
    ck_assert_uint_eq(number, 2);
    berth_message_free(got);
    ck_assert_int_eq(loss_told("s1", number - 1), BERTH_REASON_NONE);
    ck_assert_int_eq(route("s1", 2, &got), BERTH_REASON_NONE);
    ck_assert_uint_eq(got->loss->number, number);
    berth_message_free(got);
    ck_assert_int_eq(loss_told("s1", number), BERTH_REASON_NONE);
    ck_assert_int_eq(loss_told("s1", number), BERTH_REASON_NONE);
    ck_assert_int_eq(route("s1", 0, &got), BERTH_REASON_NONE);
    ck_assert_ptr_null(got->loss);
    berth_message_free(got);
    resolved = resolve(0, "s1");
    ck_assert_int_eq(resolved->outcome, OUTCOME(USED));
    ck_assert_uint_eq(resolved->n_lost, 0);
    berth_message_free(resolved);
    /* A stranger may not say so. */
    ck_assert_int_eq(told_by(town.outside, "s1", number), BERTH_REASON_PEER_ONLY);
}
END_TEST

/* A caller that is gone when the answer is ready was not told. */
START_TEST(loss__caller_gone_before_the_answer__told_to_the_next)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__ResolveSessionRequest req =
        BERTH__CONTROL__V1__RESOLVE_SESSION_REQUEST__INIT;

    (void)town_box(&town, "s1", NULL);
    fake_kill(town.fake, "box-1");
    fake_script(town.fake, FAKE_CREATE, FAKE_HOLD, 0, 1);
    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)"s1";
    req.session = &ref;
    ck_assert_int_eq(
        town_call(town.control[0], "/berth.control.v1.SessionService/ResolveSession", &req,
                  &berth__control__v1__resolve_session_response__descriptor, 500, NULL, NULL),
        BERTH_REASON_DEADLINE);
    fake_wait_held(town.fake, 1);
    fake_release(town.fake);
    must_tell_once("s1", "box-1");
}
END_TEST

/* What goes because somebody asked for it is no loss. */
START_TEST(delete__then_recreate__nothing_lost)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__ResolveSessionRequest req =
        BERTH__CONTROL__V1__RESOLVE_SESSION_REQUEST__INIT;
    Resolved *resolved = NULL;

    (void)town_box(&town, "s1", NULL);
    fake_kill(town.fake, "box-1");
    ck_assert_int_eq(route("s1", 2, NULL), BERTH_REASON_SANDBOX_NOT_FOUND);
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s1"), BERTH_REASON_NONE);
    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)"s1";
    req.session = &ref;
    req.recreate = true;
    ck_assert_int_eq(town_call(town.control[0],
                               "/berth.control.v1.SessionService/ResolveSession", &req,
                               &berth__control__v1__resolve_session_response__descriptor,
                               WAIT_MS, &resolved, NULL),
                     BERTH_REASON_NONE);
    ck_assert_int_eq(resolved->outcome, OUTCOME(CREATED));
    ck_assert_uint_eq(resolved->n_lost, 0);
    ck_assert_ptr_null(resolved->session->last_loss);
    berth_message_free(resolved);
}
END_TEST

static unsigned events_of(const char *kind, const char *detail)
{
    struct berth_reply *reply =
        redis_run(town.store, "XRANGE", "berth:{t1}:ev", "-", "+", NULL);
    unsigned n = 0;

    for (size_t i = 0; i < reply->n_items; i++) {
        const struct berth_reply *fields = reply->items[i]->items[1];
        bool is_kind = false, has_detail = !*detail;

        for (size_t k = 0; k < fields->n_items; k++) {
            is_kind = is_kind || strcmp(fields->items[k]->string, kind) == 0;
            has_detail = has_detail || strstr(fields->items[k]->string, detail);
        }
        n += is_kind && has_detail;
    }
    berth_reply_free(reply);
    return n;
}

/* The operator sees it: events, a warning, and figures by cause. */
START_TEST(loss__operator__event_log_and_figures)
{
    BERTH_AUTO(free) char *log = NULL, *figures = NULL;

    (void)town_box(&town, "s1", NULL);
    fake_kill(town.fake, "box-1");
    ck_assert_int_eq(route("s1", 2, NULL), BERTH_REASON_SANDBOX_NOT_FOUND);
    ck_assert_int_eq(route("s1", 0, NULL), BERTH_REASON_NONE);
    ck_assert_uint_eq(events_of("LOST", ""), 1);
    ck_assert_uint_eq(events_of("REPLACED", "box-1"), 1);
    ck_assert_uint_eq(events_of("CREATED", ""), 1);
    figures = process_metrics(&town.binding);
    ck_assert_ptr_nonnull(figures);
    ck_assert_ptr_nonnull(strstr(figures, "berth_binding_losses_total{cause=\"gone\"} 1\n"));
    ck_assert_ptr_nonnull(
        strstr(figures, "berth_binding_replacements_total{cause=\"gone\"} 1\n"));
    log = process_log(&town.binding);
    ck_assert_ptr_nonnull(strstr(log, "a session lost its sandbox"));
    ck_assert_ptr_nonnull(strstr(log, "a new sandbox stands in for a lost one"));
    ck_assert_ptr_nonnull(strstr(log, "\"cause\":\"gone\""));
}
END_TEST

/* The box of a session, resolved with a turn's token. */
static const char *box_of(const char *token, int *ret_outcome)
{
    static char box[64];
    Resolved *resolved = NULL;

    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, token, &resolved),
                     BERTH_REASON_NONE);
    snprintf(box, sizeof box, "%s", resolved->session->sandbox->sandbox_id);
    *ret_outcome = (int)resolved->outcome;
    berth_message_free(resolved);
    return box;
}

/* What lets calls in is gone with the store: the sandbox goes on under a turn, and without one;
 * the first turn to begin while nobody uses it has another, told with the reason (F18). */
START_TEST(begin__inbound_token_lost__another_one_told)
{
    char first[64], second[64], third[64];
    int outcome;

    (void)town_box(&town, "s1", NULL);
    snprintf(first, sizeof first, "%s", town_begin(&town, "s1"));
    ck_assert_str_eq(box_of(first, &outcome), "box-1");
    town.fake->token_lost = true;
    ck_assert_int_eq(town_act(&town, "Resume", "t1", "s1"), BERTH_REASON_NONE);
    snprintf(second, sizeof second, "%s", town_begin(&town, "s1"));
    ck_assert_str_eq(box_of(second, &outcome), "box-1");
    ck_assert_int_eq(outcome, OUTCOME(USED));
    ck_assert_int_eq(town_end_turn(&town, "s1", first), BERTH_REASON_NONE);
    ck_assert_int_eq(town_end_turn(&town, "s1", second), BERTH_REASON_NONE);
    ck_assert_str_eq(town_box(&town, "s1", NULL), "box-1");
    ck_assert_uint_eq(events_of("LOST", ""), 0);
    town.fake->token_lost = false;
    snprintf(third, sizeof third, "%s", town_begin(&town, "s1"));
    ck_assert_str_eq(box_of(third, &outcome), "box-2");
    ck_assert_int_eq(outcome, OUTCOME(REPLACED));
    ck_assert_uint_eq(events_of("LOST", "INBOUND_TOKEN_LOST"), 1);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
    ck_assert_int_eq(town_end_turn(&town, "s1", third), BERTH_REASON_NONE);
    (void)town_begin(&town, "s1");
    ck_assert_str_eq(town_box(&town, "s1", NULL), "box-2");
}
END_TEST

/* ----------------------------------------------------------------- first spec */

static enum berth_reason try(unsigned plane, const char *template_id, Resolved **ret)
{
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Common__V1__Image image = BERTH__COMMON__V1__IMAGE__INIT;

    image.source_case = BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID;
    image.template_id = (char *)template_id;
    spec.image = &image;
    return town_resolve(&town, plane, "t1", "s1", &spec, NULL, ret);
}

/* A first create that was refused for what its caller asked: asked better, it is made, at
 * either control plane; and from then on another spec is not read, and the answer says so. */
START_TEST(resolve__typo_then_right__made_as_asked_last)
{
    Resolved *resolved = NULL;

    fake_script(town.fake, FAKE_CREATE, FAKE_REFUSE, BERTH_REASON_TEMPLATE_INVALID, 1);
    ck_assert_int_eq(try(0, "baes", NULL), BERTH_REASON_TEMPLATE_INVALID);
    ck_assert_int_eq(try(1, "base", &resolved), BERTH_REASON_NONE);
    ck_assert_int_eq(resolved->outcome, OUTCOME(CREATED));
    ck_assert_str_eq(resolved->session->spec->image->template_id, "base");
    ck_assert(!resolved->spec_ignored);
    berth_message_free(resolved);
    ck_assert_str_eq(fake_only(town.fake)->template_id, "base");

    ck_assert_int_eq(try(0, "other", &resolved), BERTH_REASON_NONE);
    ck_assert(resolved->spec_ignored);
    ck_assert_str_eq(resolved->session->spec->image->template_id, "base");
    berth_message_free(resolved);
    ck_assert_int_eq(try(0, "base", &resolved), BERTH_REASON_NONE);
    ck_assert(!resolved->spec_ignored);
    berth_message_free(resolved);
    /* Also once it was lost: what it was made as is what it is made as again. */
    fake_kill(town.fake, "box-1");
    ck_assert_int_eq(try(1, "other", &resolved), BERTH_REASON_NONE);
    ck_assert_int_eq(resolved->outcome, OUTCOME(REPLACED));
    ck_assert(resolved->spec_ignored);
    berth_message_free(resolved);
    ck_assert_str_eq(fake_only(town.fake)->template_id, "base");
}
END_TEST

/* While a create may still take effect its spec stays. */
START_TEST(resolve__first_create_not_settled__its_spec_stays)
{
    Resolved *resolved = NULL;

    fake_script(town.fake, FAKE_CREATE, FAKE_LOSE, 0, 1);
    ck_assert_int_eq(try(0, "first", NULL), BERTH_REASON_OUTCOME_UNKNOWN);
    ck_assert_int_eq(try(1, "second", &resolved), BERTH_REASON_NONE);
    ck_assert_str_eq(resolved->session->spec->image->template_id, "first");
    ck_assert(resolved->spec_ignored);
    berth_message_free(resolved);
    ck_assert_str_eq(fake_only(town.fake)->template_id, "first");
}
END_TEST

static void await_figure(const char *line)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    bool seen = false;

    while (!seen && berth_tick_ms() < end_tick) {
        BERTH_AUTO(free) char *figures = process_metrics(&town.binding);

        seen = figures && strstr(figures, line);
        if (!seen)
            usleep(5000);
    }
    ck_assert_msg(seen, "never: %s", line);
}

struct late {
    pthread_t thread;
    enum berth_reason reason;
    Resolved *resolved;
};

static void *try_late(void *arg)
{
    struct late *late = arg;

    late->reason = try(1, "right", &late->resolved);
    return NULL;
}

/* Two first creates at once, the one that comes first with a mistake: the other waits for it,
 * and is not held to it. */
START_TEST(resolve__two_specs_at_once__each_told_of_its_own)
{
    struct late late = {0};
    struct beside first;

    fake_script(town.fake, FAKE_CREATE, FAKE_HOLD, BERTH_REASON_TEMPLATE_INVALID, 1);
    beside_start(&first, &town, 0, "Resolve", "s1"); /* the config's own template */
    fake_wait_held(town.fake, 1);
    ck_assert_int_eq(pthread_create(&late.thread, NULL, try_late, &late), 0);
    await_figure("berth_binding_lock_waits_total 1\n");
    fake_release(town.fake);
    ck_assert_int_eq(beside_join(&first), BERTH_REASON_TEMPLATE_INVALID);
    pthread_join(late.thread, NULL);
    ck_assert_int_eq(late.reason, BERTH_REASON_NONE);
    ck_assert_str_eq(fake_only(town.fake)->template_id, "right");
    ck_assert(!late.resolved->spec_ignored);
    berth_message_free(late.resolved);
}
END_TEST

/* What can be told without a backend is told before anything is written. */
static const char *const bad_ids[] = {"../../keys", "..",    ".",    "/base", "a//b",
                                      "a/",         "a/./b", "a/..", "bäse"};

START_TEST(resolve__template_that_is_no_name__refused_naming_the_field)
{
    Session *seen = NULL;
    struct berth_error err;
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__ResolveSessionRequest req =
        BERTH__CONTROL__V1__RESOLVE_SESSION_REQUEST__INIT;
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Common__V1__Image image = BERTH__COMMON__V1__IMAGE__INIT;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)"s1";
    req.session = &ref;
    req.spec = &spec;
    spec.image = &image;
    image.source_case = BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID;
    for (size_t i = 0; i < BERTH_COUNT(bad_ids); i++) {
        image.template_id = (char *)bad_ids[i];
        ck_assert_int_eq(town_call(town.control[0],
                                   "/berth.control.v1.SessionService/ResolveSession", &req,
                                   &berth__control__v1__resolve_session_response__descriptor,
                                   WAIT_MS, NULL, &err),
                         BERTH_REASON_FIELD_INVALID);
        ck_assert_str_eq(err.field, "spec.image.template_id");
    }
    ck_assert_int_eq(town_get(&town, "t1", "s1", false, &seen), BERTH_REASON_SESSION_NOT_FOUND);
    ck_assert_int_eq(try(0, "registry.example:5000/team/base", NULL), BERTH_REASON_NONE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/losses");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, open_town, close_town);
    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, loss__whatever_call_came_first__told_by_the_next_resolve, 0,
                        (int)BERTH_COUNT(firsts));
    tcase_add_test(all, loss__told_by_the_data_plane__not_again);
    tcase_add_test(all, loss__caller_gone_before_the_answer__told_to_the_next);
    tcase_add_test(all, delete__then_recreate__nothing_lost);
    tcase_add_test(all, loss__operator__event_log_and_figures);
    tcase_add_test(all, begin__inbound_token_lost__another_one_told);
    tcase_add_test(all, resolve__typo_then_right__made_as_asked_last);
    tcase_add_test(all, resolve__first_create_not_settled__its_spec_stays);
    tcase_add_test(all, resolve__two_specs_at_once__each_told_of_its_own);
    tcase_add_test(all, resolve__template_that_is_no_name__refused_naming_the_field);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

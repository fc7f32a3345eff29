/* test_operation_rpc.c - changes of an image asked for, read, watched and given up, over gRPC.
 * The test is who carries them out: it holds the config's lock. */
#include <pthread.h>
#include <stdio.h>

#include "common/records/config_doc.h"
#include "services/skills/operation.h"
#include "tests/component/controlplane/town.h"

#define SKILLS "/berth.skills.v1.SkillService/"
#define CONFIG "berth:{t1}:c/c1"
#define TYPE(name) (&berth__skills__v1__##name##__descriptor)
#define STATE(name) BERTH__SKILLS__V1__OPERATION_STATE__OPERATION_STATE_##name
#define STEP(name) BERTH__SKILLS__V1__STEP__STEP_##name

typedef Berth__Skills__V1__GetOperationResponse Shown; /* all answers have its layout */
typedef Berth__Skills__V1__WatchOperationResponse WatchOperationResponse;

enum { SEEN_MAX = 64, OUTPUT_MAX = 4096 };

static struct town town;
static struct berth_loop *loop;
static struct skills owner; /* enough of one to carry operations out */

static void hold(const char *operation_id)
{
    char lock[160];

    snprintf(lock, sizeof lock, "{\"op\":\"%s\",\"owner\":\"test\",\"until_ms\":%lld}",
             operation_id, 4102444800000LL);
    berth_reply_free(redis_run(town.store, "HSET", CONFIG, "lock", lock, NULL));
}

static void open_town(void)
{
    town_open(&town, &(struct town_options){.skills = true});
    ck_assert_int_eq(berth_loop_new(&loop, NULL), BERTH_OK);
    ck_assert_int_eq(berth_loop_start(loop, "watchers", NULL), BERTH_OK);
    owner = (struct skills){.redis = town.store, .build_lease_ms = 3600000};
    hold("nobody's");
}

static void close_town(void)
{
    berth_loop_free(loop);
    town_close(&town);
}

/* ------------------------------------------------------------------------- calls */

/* An operation as answered: id, state (0: refused). */
struct answer {
    char id[64], message[256], created_by[64];
    int state, kind;
    bool cancel_requested;
    enum berth_reason reason;
};

static struct answer call_as(const char *secret, const char *method, const void *req)
{
    struct answer out = {0};
    Shown *resp = NULL;
    char path[96];

    snprintf(path, sizeof path, SKILLS "%s", method);
    out.reason = town_call_as(town.snap, secret, path, req, TYPE(get_operation_response),
                              WAIT_MS, &resp, NULL);
    if (!out.reason) {
        ck_assert_str_eq(resp->operation->tenant_id, "t1");
        ck_assert_str_eq(resp->operation->config_id, "c1");
        snprintf(out.id, sizeof out.id, "%s", resp->operation->operation_id);
        snprintf(out.message, sizeof out.message, "%s", resp->operation->message);
        snprintf(out.created_by, sizeof out.created_by, "%s", resp->operation->created_by);
        out.state = (int)resp->operation->state;
        out.kind = (int)resp->operation->kind;
        out.cancel_requested = resp->operation->cancel_requested;
        berth_message_free(resp);
    }
    return out;
}

static struct answer rebuild(const char *tenant, const char *config, const char *request_id)
{
    Berth__Skills__V1__RebuildImageRequest req = BERTH__SKILLS__V1__REBUILD_IMAGE_REQUEST__INIT;

    req.tenant_id = (char *)tenant;
    req.config_id = (char *)config;
    req.request_id = (char *)request_id;
    return call_as(NULL, "RebuildImage", &req);
}

static struct answer rollback(uint64_t generation)
{
    Berth__Skills__V1__RollbackImageRequest req =
        BERTH__SKILLS__V1__ROLLBACK_IMAGE_REQUEST__INIT;

    req.tenant_id = (char *)"t1";
    req.config_id = (char *)"c1";
    req.generation = generation;
    return call_as(NULL, "RollbackImage", &req);
}

static struct answer uninstall(const char *name, const char *request_id)
{
    Berth__Skills__V1__UninstallSkillRequest req =
        BERTH__SKILLS__V1__UNINSTALL_SKILL_REQUEST__INIT;

    req.tenant_id = (char *)"t1";
    req.config_id = (char *)"c1";
    req.name = (char *)name;
    req.request_id = (char *)request_id;
    return call_as(NULL, "UninstallSkill", &req);
}

/* GetOperation and CancelOperation have the same two fields. */
static struct answer on_one_as(const char *secret, const char *method, const char *tenant,
                               const char *id)
{
    Berth__Skills__V1__GetOperationRequest req = BERTH__SKILLS__V1__GET_OPERATION_REQUEST__INIT;

    req.tenant_id = (char *)tenant;
    req.operation_id = (char *)id;
    return call_as(secret, method, &req);
}

static struct answer on_one(const char *method, const char *tenant, const char *id)
{
    return on_one_as(NULL, method, tenant, id);
}

/* The test carries it out from here on. */
static struct operation_grant take(const char *id)
{
    struct operation_grant grant = {0};

    hold(id);
    ck_assert_int_eq(operation_read(&owner, "t1", id, &grant.operation, NULL), BERTH_OK);
    snprintf(grant.operation.owner, sizeof grant.operation.owner, "test");
    grant.operation.state = STATE(RUNNING);
    return grant;
}

static void step(struct operation_grant *grant, int which)
{
    struct berth_error err = {0};

    grant->operation.step = which;
    ck_assert_msg(operation_beat(&owner, grant, &err) == BERTH_OK, "%s", err.text);
}

static void end(struct operation_grant *grant, int state)
{
    struct berth_error err = {0};

    grant->operation.state = state;
    ck_assert_msg(operation_end(&owner, grant, &err) == BERTH_OK, "%s", err.text);
    hold("nobody's");
    operation_grant_deinit(grant);
}

/* Generation 2 is live, with one skill; 1 is kept; 3 is in another account. */
static void publish(void)
{
    struct berth_image_pointer image = {
        .snapshot_id = "snap-2", .generation = 2, .row_id = "r2"};
    struct berth_snapshot_row row = {.origin = "skills"};

    snprintf(image.account, sizeof image.account, "%s", town_field(&town, CONFIG, "account"));
    for (unsigned i = 1; i <= 3; i++) {
        char field[48], *text;

        snprintf(row.row_id, sizeof row.row_id, "r%u", i);
        snprintf(row.snapshot_id, sizeof row.snapshot_id, "snap-%u", i);
        snprintf(row.state, sizeof row.state, "%s", i == 2 ? "active" : "superseded");
        snprintf(row.account, sizeof row.account, "%s", i == 3 ? "" : image.account);
        row.generation = i;
        snprintf(field, sizeof field, "row:%s", row.row_id);
        text = berth_snapshot_row_format(&row);
        berth_reply_free(redis_run(town.store, "HSET", CONFIG, field, text, NULL));
        free(text);
    }
    {
        char *text = berth_image_pointer_format(&image);

        berth_reply_free(redis_run(town.store, "HSET", CONFIG, "image", text, "skills:r2",
                                   "[{\"name\":\"pdf\"}]", "next_generation", "4", NULL));
        free(text);
    }
}

/* ----------------------------------------------------------------------- watcher */

struct watcher {
    struct berth_buf *request;
    struct berth_stream *stream;
    pthread_mutex_t mutex; /* guards what follows */
    unsigned n_seen;
    struct seen {
        uint64_t seq;
        int state, step; /* 0: output */
    } seen[SEEN_MAX];
    char output[OUTPUT_MAX];
    size_t output_size;
    bool over;
    enum berth_reason reason;
};

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct watcher *watcher = ctx;
    WatchOperationResponse *response;
    ProtobufCMessage *message;
    struct seen *seen;

    if (!msg)
        return;
    ck_assert_int_eq(berth_buf_decode(TYPE(watch_operation_response), msg, &message, NULL),
                     BERTH_OK);
    berth_buf_unref(msg);
    response = (WatchOperationResponse *)message;
    pthread_mutex_lock(&watcher->mutex);
    ck_assert_uint_lt(watcher->n_seen, SEEN_MAX);
    seen = &watcher->seen[watcher->n_seen++];
    seen->seq = response->seq;
    if (response->operation) {
        seen->state = (int)response->operation->state;
        seen->step = (int)response->operation->step;
    }
    ck_assert_uint_le(watcher->output_size + response->output.len, OUTPUT_MAX);
    if (response->output.len > 0)
        memcpy(watcher->output + watcher->output_size, response->output.data,
               response->output.len);
    watcher->output_size += response->output.len;
    pthread_mutex_unlock(&watcher->mutex);
    berth_message_free(message);
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
    struct berth_error err = {0};

    (void)stream;
    pthread_mutex_lock(&watcher->mutex);
    watcher->over = true;
    if (status->code) {
        (void)berth_status_to_error(status, &err);
        watcher->reason = err.reason;
    }
    pthread_mutex_unlock(&watcher->mutex);
}

static void start(void *arg)
{
    static const struct berth_stream_ops ops = {
        .message = on_message, .written = on_written, .closed = on_closed};
    struct watcher *watcher = arg;

    watcher->stream =
        berth_channel_stream(town.snap, SKILLS "WatchOperation", NULL, loop, &ops, watcher);
    (void)berth_stream_write(watcher->stream, watcher->request);
    berth_stream_half_close(watcher->stream);
    berth_stream_read(watcher->stream);
}

static struct watcher *watch(const char *tenant, const char *id, uint64_t after)
{
    Berth__Skills__V1__WatchOperationRequest req =
        BERTH__SKILLS__V1__WATCH_OPERATION_REQUEST__INIT;
    struct watcher *watcher = calloc(1, sizeof *watcher);

    ck_assert_ptr_nonnull(watcher);
    pthread_mutex_init(&watcher->mutex, NULL);
    req.tenant_id = (char *)tenant;
    req.operation_id = (char *)id;
    req.after_seq = after;
    watcher->request = berth_buf_pack(&req.base);
    berth_loop_post(loop, start, watcher);
    return watcher;
}

/* n 0: its end. */
static void await(struct watcher *watcher, unsigned n)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    bool there = false;

    while (!there) {
        ck_assert_msg(berth_tick_ms() < end_tick, "%u seen, reason %s", watcher->n_seen,
                      berth_reason_name(watcher->reason));
        usleep(1000);
        pthread_mutex_lock(&watcher->mutex);
        there = n ? watcher->n_seen >= n : watcher->over;
        pthread_mutex_unlock(&watcher->mutex);
    }
}

static enum berth_reason close_watcher(struct watcher *watcher)
{
    enum berth_reason reason;

    await(watcher, 0);
    reason = watcher->reason;
    pthread_mutex_destroy(&watcher->mutex);
    free(watcher);
    return reason;
}

static void expect(const struct watcher *watcher, unsigned at, uint64_t seq, int state,
                   int step)
{
    ck_assert_uint_lt(at, watcher->n_seen);
    ck_assert_msg(watcher->seen[at].seq == seq && watcher->seen[at].state == state &&
                      watcher->seen[at].step == step,
                  "message %u: seq %llu, state %d, step %d", at,
                  (unsigned long long)watcher->seen[at].seq, watcher->seen[at].state,
                  watcher->seen[at].step);
}

/* --------------------------------------------------------------------- asked for */

/* Queued, shown to its tenant alone, and the same again for the same request. */
START_TEST(rebuild__asked_for__queued_and_shown)
{
    struct answer made = rebuild("t1", "c1", "r1"), got;

    ck_assert_int_eq(made.reason, BERTH_REASON_NONE);
    ck_assert_int_eq(made.state, STATE(QUEUED));
    ck_assert_int_eq(made.kind, BERTH__SKILLS__V1__OPERATION_KIND__OPERATION_KIND_REBUILD);
    ck_assert_int_eq(strncmp(made.created_by, "peer/", 5), 0);
    got = on_one("GetOperation", "t1", made.id);
    ck_assert_str_eq(got.id, made.id);
    ck_assert_int_eq(on_one("GetOperation", "t2", made.id).reason,
                     BERTH_REASON_OPERATION_NOT_FOUND);
    ck_assert_int_eq(on_one("CancelOperation", "t2", made.id).reason,
                     BERTH_REASON_OPERATION_NOT_FOUND);
    ck_assert_str_eq(rebuild("t1", "c1", "r1").id, made.id);
    ck_assert_str_ne(rebuild("t1", "c1", "").id, made.id);
    ck_assert_int_eq(rebuild("t1", "no-such", "").reason, BERTH_REASON_CONFIG_NOT_FOUND);
    ck_assert_int_eq(rebuild("no-such", "c1", "").reason, BERTH_REASON_TENANT_NOT_FOUND);
    ck_assert_int_eq(rebuild("t1", "c1/..", "").reason, BERTH_REASON_FIELD_INVALID);
}
END_TEST

/* Only what is in the image, or on its way into it, can be taken out. */
START_TEST(uninstall__each_skill__if_it_is_there)
{
    struct operation coming = {.kind =
                                   BERTH__SKILLS__V1__OPERATION_KIND__OPERATION_KIND_INSTALL};
    struct answer first;
    bool repeat;

    ck_assert_int_eq(uninstall("pdf", "").reason, BERTH_REASON_SKILL_NOT_FOUND);
    publish();
    first = uninstall("pdf", "r1");
    ck_assert_int_eq(first.reason, BERTH_REASON_NONE);
    ck_assert_int_eq(uninstall("docx", "").reason, BERTH_REASON_SKILL_NOT_FOUND);
    ck_assert_int_eq(uninstall("docx", "r1").reason, BERTH_REASON_REQUEST_ID_REUSED);
    ck_assert_int_eq(uninstall("", "").reason, BERTH_REASON_FIELD_INVALID);
    snprintf(coming.tenant_id, sizeof coming.tenant_id, "t1");
    snprintf(coming.config_id, sizeof coming.config_id, "c1");
    snprintf(coming.skill_name, sizeof coming.skill_name, "docx");
    ck_assert_int_eq(operation_queue(&owner, &coming, NULL, &repeat, NULL), BERTH_OK);
    ck_assert_int_eq(uninstall("docx", "").reason, BERTH_REASON_NONE);
    ck_assert_int_eq(on_one("GetOperation", "t1", coming.operation_id).state, STATE(CANCELLED));
    /* Done, it is not there any more; its repeat is still the same. */
    berth_reply_free(redis_run(town.store, "HDEL", CONFIG, "skills:r2", NULL));
    ck_assert_str_eq(uninstall("pdf", "r1").id, first.id);
}
END_TEST

/* An earlier generation that is kept, in the config's account. */
START_TEST(rollback__each_generation__if_it_is_kept)
{
    publish();
    ck_assert_int_eq(rollback(1).reason, BERTH_REASON_NONE);
    ck_assert_int_eq(rollback(2).reason, BERTH_REASON_FIELD_INVALID);
    ck_assert_int_eq(rollback(3).reason, BERTH_REASON_IMAGE_OWNER_MISMATCH);
    ck_assert_int_eq(rollback(4).reason, BERTH_REASON_SNAPSHOT_NOT_FOUND);
    ck_assert_int_eq(rollback(0).reason, BERTH_REASON_FIELD_INVALID);
    ck_assert_int_eq(rollback(UINT64_MAX).reason, BERTH_REASON_SNAPSHOT_NOT_FOUND);
}
END_TEST

/* Without an account, or a backend that makes snapshots, nothing is queued. */
START_TEST(rebuild__no_account_or_capability__refused)
{
    berth_reply_free(redis_run(town.store, "HSET", CONFIG, "account", "", NULL));
    ck_assert_int_eq(rebuild("t1", "c1", "").reason, BERTH_REASON_FINGERPRINT_EMPTY);
    ck_assert_str_eq(town_field(&town, CONFIG, "queue"), "");
}
END_TEST

/* Waiting ones at once, running ones by who carries them out. */
START_TEST(cancel__queued_and_running__as_far_as_it_goes)
{
    struct answer first = rebuild("t1", "c1", ""), second = rebuild("t1", "c1", "");
    struct operation_grant grant = take(first.id);

    step(&grant, STEP(LOCKED));
    ck_assert_int_eq(on_one("CancelOperation", "t1", second.id).state, STATE(CANCELLED));
    ck_assert_int_eq(on_one("CancelOperation", "t1", first.id).state, STATE(RUNNING));
    ck_assert(on_one("GetOperation", "t1", first.id).cancel_requested);
    step(&grant, STEP(FLIPPED));
    ck_assert_int_eq(on_one("CancelOperation", "t1", first.id).reason,
                     BERTH_REASON_OPERATION_ENDED);
    end(&grant, STATE(DONE));
}
END_TEST

/* ------------------------------------------------------------------------ tokens */

static void bound_token(const char *session, const char *config, char secret[64])
{
    Berth__Control__V1__Token token = BERTH__CONTROL__V1__TOKEN__INIT;
    Berth__Control__V1__Scope scope = BERTH__CONTROL__V1__SCOPE__SCOPE_INSTALL;

    token.tenant_id = (char *)"t1";
    token.session_id = (char *)session;
    token.config_id = (char *)config;
    token.scopes = &scope;
    token.n_scopes = 1;
    ck_assert_int_eq(town_token(&town, &token, secret, NULL), BERTH_REASON_NONE);
}

static struct answer finish_as(const char *secret, const char *id, bool ok)
{
    Berth__Skills__V1__FinishInstallationRequest req =
        BERTH__SKILLS__V1__FINISH_INSTALLATION_REQUEST__INIT;

    req.tenant_id = (char *)"t1";
    req.operation_id = (char *)id;
    req.ok = ok;
    return call_as(secret, "FinishInstallation", &req);
}

/* An installer's token is good for its own operation, whatever it is asked about. */
START_TEST(token__of_an_installer__its_operation_only)
{
    struct operation mine = {.kind = BERTH__SKILLS__V1__OPERATION_KIND__OPERATION_KIND_INSTALL,
                             .external_installer = true};
    struct answer other = rebuild("t1", "c1", "");
    struct operation_grant grant;
    char secret[64], of_config[64];
    bool repeat;

    ck_assert_int_eq(on_one("CancelOperation", "t1", other.id).reason, BERTH_REASON_NONE);
    snprintf(mine.tenant_id, sizeof mine.tenant_id, "t1");
    snprintf(mine.config_id, sizeof mine.config_id, "c1");
    snprintf(mine.skill_name, sizeof mine.skill_name, "pdf");
    ck_assert_int_eq(operation_queue(&owner, &mine, NULL, &repeat, NULL), BERTH_OK);
    bound_token(mine.session_id, "", secret);
    bound_token("", "c2", of_config);
    ck_assert_int_eq(on_one_as(secret, "GetOperation", "t1", mine.operation_id).reason,
                     BERTH_REASON_NONE);
    for (int i = 0; i < 2; i++) {
        const char *method = i ? "GetOperation" : "CancelOperation";

        ck_assert_int_eq(on_one_as(secret, method, "t1", other.id).reason,
                         BERTH_REASON_OPERATION_NOT_FOUND);
        ck_assert_int_eq(on_one_as(of_config, method, "t1", mine.operation_id).reason,
                         BERTH_REASON_OPERATION_NOT_FOUND);
    }
    ck_assert_int_eq(finish_as(of_config, mine.operation_id, true).reason,
                     BERTH_REASON_OPERATION_NOT_FOUND);
    ck_assert_int_eq(finish_as(secret, mine.operation_id, true).reason, BERTH_REASON_CONFLICT);
    grant = take(mine.operation_id);
    step(&grant, STEP(EXTERNAL_INSTALLER));
    ck_assert_int_eq(finish_as(secret, mine.operation_id, true).reason, BERTH_REASON_NONE);
    step(&grant, STEP(SEALED));
    ck_assert(grant.operation.finished && grant.operation.finished_ok);
    end(&grant, STATE(DONE));
}
END_TEST

/* ------------------------------------------------------------------------- watch */

/* How it stands, what was said, what is said, how it ended; the same for whoever comes late or
 * comes back. */
START_TEST(watch__whole_operation__all_of_it_in_order)
{
    struct answer made = rebuild("t1", "c1", "");
    struct watcher *first = watch("t1", made.id, 0), *late, *back;
    struct operation_grant grant;

    await(first, 1);
    expect(first, 0, 0, STATE(QUEUED), STEP(ACCEPTED));
    grant = take(made.id);
    step(&grant, STEP(LOCKED));
    operation_say(&owner, &grant, "one\n", 4);
    await(first, 3);
    late = watch("t1", made.id, 0);
    await(late, 3);
    operation_say(&owner, &grant, "t\0wo\n", 5);
    end(&grant, STATE(FAILED));
    await(first, 0);
    await(late, 0);
    expect(first, 1, 1, STATE(RUNNING), STEP(LOCKED));
    expect(first, 2, 2, 0, 0);
    expect(first, 3, 3, 0, 0);
    expect(first, 4, 0, STATE(FAILED), STEP(LOCKED));
    ck_assert_uint_eq(first->n_seen, 5);
    ck_assert_uint_eq(first->output_size, 9);
    ck_assert_int_eq(memcmp(first->output, "one\nt\0wo\n", 9), 0);
    expect(late, 0, 0, STATE(RUNNING), STEP(LOCKED));
    ck_assert_uint_eq(late->n_seen, 5);
    back = watch("t1", made.id, 2);
    await(back, 0);
    expect(back, 0, 0, STATE(FAILED), STEP(LOCKED));
    expect(back, 1, 3, 0, 0);
    expect(back, 2, 0, STATE(FAILED), STEP(LOCKED));
    ck_assert_int_eq(close_watcher(first), BERTH_REASON_NONE);
    ck_assert_int_eq(close_watcher(late), BERTH_REASON_NONE);
    ck_assert_int_eq(close_watcher(back), BERTH_REASON_NONE);
}
END_TEST

/* What is not kept any more is said to be missing; who begins anew gets what there is. */
START_TEST(watch__entries_gone__seq_expired)
{
    struct answer made = rebuild("t1", "c1", "");
    struct operation_grant grant = take(made.id);
    struct watcher *anew;
    char key[96];

    for (int i = 0; i < 5; i++)
        operation_say(&owner, &grant, "x", 1);
    snprintf(key, sizeof key, "berth:{t1}:opl/%s", made.id);
    berth_reply_free(redis_run(town.store, "XTRIM", key, "MAXLEN", "2", NULL));
    ck_assert_int_eq(close_watcher(watch("t1", made.id, 1)), BERTH_REASON_SEQ_EXPIRED);
    ck_assert_int_eq(close_watcher(watch("t1", made.id, 99)), BERTH_REASON_SEQ_EXPIRED);
    ck_assert_int_eq(close_watcher(watch("t2", made.id, 0)), BERTH_REASON_OPERATION_NOT_FOUND);
    ck_assert_int_eq(close_watcher(watch("t1", "", 0)), BERTH_REASON_FIELD_INVALID);
    end(&grant, STATE(DONE));
    anew = watch("t1", made.id, 0);
    await(anew, 0);
    expect(anew, 1, 4, 0, 0);
    ck_assert_int_eq(close_watcher(anew), BERTH_REASON_NONE);
}
END_TEST

/* One read serves all who watch the same operation. */
START_TEST(watch__many_watchers__one_reader)
{
    enum { N = 40 };
    struct answer made = rebuild("t1", "c1", "");
    struct watcher *all[N];
    struct operation_grant grant = take(made.id);
    struct berth_reply *stats;
    const char *at;

    for (int i = 0; i < N; i++) {
        all[i] = watch("t1", made.id, 0);
        await(all[i], 1);
    }
    berth_reply_free(redis_run(town.store, "CONFIG", "RESETSTAT", NULL));
    usleep(500 * 1000);
    stats = redis_run(town.store, "INFO", "commandstats", NULL);
    at = strstr(stats->string, "cmdstat_xrange:calls=");
    ck_assert_ptr_nonnull(at);
    ck_assert_int_le(strtol(at + strlen("cmdstat_xrange:calls="), NULL, 10), N);
    berth_reply_free(stats);
    end(&grant, STATE(DONE));
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(close_watcher(all[i]), BERTH_REASON_NONE);
}
END_TEST

/* A service that stops lets its watchers go at once. */
START_TEST(watch__service_stops__drained)
{
    struct answer made = rebuild("t1", "c1", "");
    struct watcher *watcher = watch("t1", made.id, 0);
    int64_t begin_tick = berth_tick_ms();

    await(watcher, 1);
    process_stop(&town.skills);
    ck_assert_int_lt(berth_tick_ms() - begin_tick, 5000);
    ck_assert_int_eq(close_watcher(watcher), BERTH_REASON_DRAINING);
    process_start(&town.skills);
    town_wait_ready(&town);
    ck_assert_int_eq(on_one("GetOperation", "t1", made.id).state, STATE(QUEUED));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("operation_rpc");
    TCase *all = tcase_create("operation_rpc");
    SRunner *runner;
    int failed;

    tcase_set_timeout(all, 120);
    tcase_add_checked_fixture(all, open_town, close_town);
    tcase_add_test(all, rebuild__asked_for__queued_and_shown);
    tcase_add_test(all, uninstall__each_skill__if_it_is_there);
    tcase_add_test(all, rollback__each_generation__if_it_is_kept);
    tcase_add_test(all, rebuild__no_account_or_capability__refused);
    tcase_add_test(all, cancel__queued_and_running__as_far_as_it_goes);
    tcase_add_test(all, token__of_an_installer__its_operation_only);
    tcase_add_test(all, watch__whole_operation__all_of_it_in_order);
    tcase_add_test(all, watch__entries_gone__seq_expired);
    tcase_add_test(all, watch__many_watchers__one_reader);
    tcase_add_test(all, watch__service_stops__drained);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* test_chain.c - images changed whole: by a berth-skills whose work in the sandbox is only
 * written down (fake_work.c), everything around it is real but the backend. */
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "common/records/config_doc.h"
#include "services/skills/chain_fault.h"
#include "tests/component/skills/uploads.h"
#include "tests/lib/packer.h"

#define SKILLS "/berth.skills.v1.SkillService/"
#define CONFIG "berth:{t1}:c/c1"
#define TYPE(name) (&berth__skills__v1__##name##__descriptor)
#define STATE(name) BERTH__SKILLS__V1__OPERATION_STATE__OPERATION_STATE_##name
#define STEP(name) BERTH__SKILLS__V1__STEP__STEP_##name

typedef Berth__Skills__V1__GetOperationResponse Shown; /* all answers have its layout */
typedef Berth__Skills__V1__SkillOperation SkillOperation;

enum { PATH_SIZE = 200, ID_SIZE = 64 };

static struct town town;
static struct berth_loop *loop;

static void open_town(void)
{
    town_open(&town, &(struct town_options){.skills = true,
                                            .skills_program =
                                                "tests/component/skills/berth-skills-fake",
                                            .build_lease = "600ms"});
    ck_assert_int_eq(berth_loop_new(&loop, NULL), BERTH_OK);
    ck_assert_int_eq(berth_loop_start(loop, "caller", NULL), BERTH_OK);
}

static void close_town(void)
{
    town_close(&town);
    berth_loop_free(loop);
}

/* ------------------------------------------------------------- files of fake_work.c */

static const char *file(char buf[PATH_SIZE], const char *name)
{
    snprintf(buf, PATH_SIZE, "%s/%s", getenv("BERTH_TEST_DIR"), name);
    return buf;
}

static void put_file(const char *name, const char *text)
{
    char path[PATH_SIZE];
    int fd = open(file(path, name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void remove_file(const char *name)
{
    char path[PATH_SIZE];

    unlink(file(path, name));
}

/* What was done in sandboxes since it was asked last; static text. */
static const char *done(void)
{
    static char text[8192];
    char path[PATH_SIZE];
    int fd = open(file(path, "log"), O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;

    text[size > 0 ? size : 0] = 0;
    if (fd >= 0)
        close(fd);
    remove_file("log");
    return text;
}

/* --------------------------------------------------------------------------- calls */

/* A skill of that name, with that in it. */
static enum berth_reason install(const char *name, const char *content, char ret_id[ID_SIZE],
                                 bool *ret_unchanged)
{
    char skill_md[200];
    const struct pack_file files[] = {
        {.path = "SKILL.md", .content = skill_md},
        {.path = "content.txt", .content = content},
        {.path = "requirements.txt", .content = "idna\n"},
    };
    InstallSkillOpen open = BERTH__SKILLS__V1__INSTALL_SKILL_OPEN__INIT;
    InstallSkillResponse *resp = NULL;
    enum berth_reason reason;
    size_t size;
    BERTH_AUTO(free) void *data = NULL;
    struct upload upload = {.open = &open, .town = &town, .loop = loop};

    snprintf(skill_md, sizeof skill_md,
             "---\nname: %s\ndescription: What %s does.\n---\nDo it.\n", name, name);
    data = pack_archive(PACK_TAR, files, BERTH_COUNT(files), 1700000000, NULL, &size);
    upload.data = data;
    upload.size = size;
    open.tenant_id = (char *)"t1";
    open.config_id = (char *)"c1";
    open.allow_warnings = true;
    upload_start(&upload);
    reason = upload_finish(&upload, &resp);
    if (reason)
        return reason;
    snprintf(ret_id, ID_SIZE, "%s", resp->operation->operation_id);
    if (ret_unchanged)
        *ret_unchanged = resp->operation->unchanged;
    berth_message_free(resp);
    return BERTH_REASON_NONE;
}

static enum berth_reason call(const char *method, const void *req, char ret_id[ID_SIZE])
{
    char path[96];
    Shown *shown = NULL;
    enum berth_reason reason;

    snprintf(path, sizeof path, SKILLS "%s", method);
    reason =
        town_call(town.snap, path, req, TYPE(get_operation_response), WAIT_MS, &shown, NULL);
    if (!reason)
        snprintf(ret_id, ID_SIZE, "%s", shown->operation->operation_id);
    berth_message_free(shown);
    return reason;
}

static enum berth_reason uninstall(const char *name, char ret_id[ID_SIZE])
{
    Berth__Skills__V1__UninstallSkillRequest req =
        BERTH__SKILLS__V1__UNINSTALL_SKILL_REQUEST__INIT;

    req.tenant_id = (char *)"t1";
    req.config_id = (char *)"c1";
    req.name = (char *)name;
    return call("UninstallSkill", &req, ret_id);
}

static enum berth_reason rebuild(char ret_id[ID_SIZE])
{
    Berth__Skills__V1__RebuildImageRequest req = BERTH__SKILLS__V1__REBUILD_IMAGE_REQUEST__INIT;

    req.tenant_id = (char *)"t1";
    req.config_id = (char *)"c1";
    return call("RebuildImage", &req, ret_id);
}

static enum berth_reason rollback(uint64_t generation, char ret_id[ID_SIZE])
{
    Berth__Skills__V1__RollbackImageRequest req =
        BERTH__SKILLS__V1__ROLLBACK_IMAGE_REQUEST__INIT;

    req.tenant_id = (char *)"t1";
    req.config_id = (char *)"c1";
    req.generation = generation;
    return call("RollbackImage", &req, ret_id);
}

/* Until the process can be asked, and the operation has that step, or has ended. */
static Shown *wait_step(const char *id, int step)
{
    Berth__Skills__V1__GetOperationRequest req = BERTH__SKILLS__V1__GET_OPERATION_REQUEST__INIT;
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    req.tenant_id = (char *)"t1";
    req.operation_id = (char *)id;
    for (;;) {
        Shown *shown = NULL;

        if (!town_call(town.snap, SKILLS "GetOperation", &req, TYPE(get_operation_response),
                       WAIT_MS, &shown, NULL) &&
            (shown->operation->state >= STATE(DONE) || (int)shown->operation->step >= step))
            return shown;
        berth_message_free(shown);
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        usleep(5000);
    }
}

/* Its end; the reason is "" where it is done. Static text. */
static const char *end_of(const char *id)
{
    static char reason[80];
    Shown *shown = wait_step(id, 100);

    snprintf(reason, sizeof reason, "%s",
             shown->operation->state == STATE(CANCELLED) ? "CANCELLED"
             : shown->operation->error                   ? shown->operation->error->reason
                                                         : "");
    if (shown->operation->state == STATE(DONE))
        ck_assert_uint_eq(shown->operation->percent, 100);
    berth_message_free(shown);
    return reason;
}

static void must_install(const char *name, const char *content)
{
    char id[ID_SIZE];

    ck_assert_int_eq(install(name, content, id, NULL), BERTH_REASON_NONE);
    ck_assert_str_eq(end_of(id), "");
}

/* ------------------------------------------------------------------------ the store */

static struct berth_image_pointer image(void)
{
    const struct berth_redis_get get = {.key = CONFIG};
    struct berth_config_doc config;
    struct berth_doc doc;
    int64_t now_ms;

    ck_assert_int_eq(berth_redis_read(town.store, &get, 1, &now_ms, &doc, NULL), BERTH_OK);
    ck_assert_int_eq(berth_config_doc_parse(&doc, &config, NULL), BERTH_OK);
    berth_doc_deinit(&doc);
    return config.image;
}

static void set_image(const struct berth_image_pointer *pointer)
{
    BERTH_AUTO(free) char *json = berth_image_pointer_format(pointer);
    char rev[17];

    berth_reply_free(
        redis_run(town.store, "HSET", CONFIG, "image", json, "rev", berth_rev_new(rev), NULL));
}

/* "a b": the skills of the live image, as its list says. Static text. */
static const char *skills(void)
{
    static char text[1024];
    char field[64];
    json_t *list;

    snprintf(field, sizeof field, "skills:%s", image().row_id);
    list = json_loads(town_field(&town, CONFIG, field), 0, NULL);
    text[0] = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "",
                 json_string_value(json_object_get(json_array_get(list, i), "name")));
    json_decref(list);
    return text;
}

static size_t count_rows(const char *state)
{
    struct berth_reply *reply = redis_run(town.store, "HGETALL", CONFIG, NULL);
    size_t n = 0;

    for (size_t i = 0; i + 1 < reply->n_items; i += 2) {
        struct berth_snapshot_row row;

        if (strncmp(reply->items[i]->string, "row:", 4) != 0)
            continue;
        ck_assert_int_eq(berth_snapshot_row_parse(reply->items[i + 1]->string, &row, NULL),
                         BERTH_OK);
        n += strcmp(row.state, state) == 0;
    }
    berth_reply_free(reply);
    return n;
}

static size_t count_events(const char *kind)
{
    struct berth_reply *reply =
        redis_run(town.store, "XRANGE", "berth:{t1}:ev", "-", "+", NULL);
    size_t n = 0;

    for (size_t i = 0; i < reply->n_items; i++) {
        const struct berth_reply *fields = reply->items[i]->items[1];

        for (size_t k = 0; k + 1 < fields->n_items; k += 2)
            n += strcmp(fields->items[k]->string, "kind") == 0 &&
                 strcmp(fields->items[k + 1]->string, kind) == 0;
    }
    berth_reply_free(reply);
    return n;
}

static void wait_snapshots(size_t n)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    while (fake_snapshots_alive(town.fake) != n) {
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        usleep(5000);
    }
}

/* Lists that were asked for meanwhile. */
static void wait_rounds(size_t n)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    size_t seen = fake_count(town.fake, FAKE_LIST_SNAPSHOTS);

    while (fake_count(town.fake, FAKE_LIST_SNAPSHOTS) < seen + n) {
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        usleep(5000);
    }
}

static void wait_alive(size_t n)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    while (fake_alive(town.fake) != n) {
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        usleep(5000);
    }
}

/* What a new session boots: a snapshot's id, or "". */
static const char *booted(const char *session)
{
    return fake_find(town.fake, town_box(&town, session, NULL))->snapshot_id;
}

/* ------------------------------------------------------------------------ the tests */

/* Installed, replaced, removed, published again: each is one generation, and what new sessions
 * boot. */
START_TEST(image__whole_life__one_generation_each)
{
    struct berth_image_pointer now;
    bool unchanged = false;
    char id[ID_SIZE];

    must_install("aa", "1");
    now = image();
    ck_assert_str_eq(now.snapshot_id, "snap-1");
    ck_assert_uint_eq(now.generation, 1);
    ck_assert_uint_eq(now.rebuild_before, 1);
    ck_assert_str_eq(skills(), "aa");
    ck_assert_uint_eq(count_events("SKILL_INSTALLED"), 1);
    ck_assert_ptr_nonnull(strstr(
        done(), "upload aa\ndependencies /opt/berth/skills/aa\nseal \nverify aa\nclean "));
    wait_alive(0); /* the maintenance sandbox */
    ck_assert_str_eq(booted("s1"), "snap-1");

    ck_assert_int_eq(install("aa", "1", id, &unchanged), BERTH_REASON_NONE);
    ck_assert(unchanged);
    ck_assert_str_eq(done(), "");

    must_install("bb", "1");
    ck_assert_str_eq(skills(), "aa bb");
    ck_assert_ptr_nonnull(strstr(done(), "open -\nupload bb\n")); /* on the live image */
    must_install("aa", "2");
    ck_assert_uint_eq(image().generation, 3);
    ck_assert_str_eq(skills(), "aa bb");
    ck_assert_uint_eq(count_rows("active"), 1);
    ck_assert_uint_eq(count_rows("superseded"), 2);

    ck_assert_int_eq(uninstall("aa", id), BERTH_REASON_NONE);
    ck_assert_str_eq(end_of(id), "");
    ck_assert_str_eq(skills(), "bb");
    ck_assert_ptr_nonnull(strstr(done(), "remove aa\n"));
    ck_assert_int_eq(uninstall("bb", id), BERTH_REASON_NONE);
    ck_assert_str_eq(end_of(id), "");
    now = image();
    ck_assert_str_eq(now.snapshot_id, "");
    ck_assert_uint_eq(now.generation, 5);
    ck_assert_uint_eq(fake_snapshots_alive(town.fake), 4);
    ck_assert_uint_eq(count_events("SKILL_REMOVED"), 2);
    ck_assert_str_eq(booted("s2"), "");

    ck_assert_int_eq(rollback(2, id), BERTH_REASON_NONE);
    ck_assert_str_eq(end_of(id), "");
    now = image();
    ck_assert_str_eq(now.snapshot_id, "snap-2");
    ck_assert_uint_eq(now.generation, 6);
    ck_assert_str_eq(skills(), "aa bb");
    ck_assert_str_eq(booted("s3"), "snap-2");
    ck_assert_uint_eq(count_rows("active"), 1);
}
END_TEST

/* Whatever goes wrong before the flip: said, the old image serves, and nothing is left but what
 * is not ours. */
START_TEST(install__goes_wrong__old_image_serves)
{
    static const struct {
        const char *file;
        const char *reason;
    } cases[] = {
        {"bad-deps", "DEPENDENCY_FAILED"},
        {"bad-gate", "GATE_FAILED"},
    };
    struct berth_image_pointer before;
    char id[ID_SIZE];

    must_install("aa", "1");
    before = image();
    (void)town_box(&town, "s1", NULL);
    /* Another environment's, in the same account. */
    fake_add_snapshot(town.fake, "berth-sk-0123456789abcdef-g7-abcdefgh", "box-2");
    for (size_t i = 0; i < BERTH_COUNT(cases); i++) {
        put_file(cases[i].file, "");
        ck_assert_int_eq(install("bb", "1", id, NULL), BERTH_REASON_NONE);
        ck_assert_str_eq(end_of(id), cases[i].reason);
        remove_file(cases[i].file);
    }
    fake_script(town.fake, FAKE_SNAPSHOT, FAKE_REFUSE, BERTH_REASON_DISK_FULL, 1);
    ck_assert_int_eq(install("bb", "1", id, NULL), BERTH_REASON_NONE);
    ck_assert_str_eq(end_of(id), "DISK_FULL");
    /* The janitor has looked what that build may have left, and taken nothing else for it. */
    wait_rounds(2);
    ck_assert_uint_eq(fake_snapshots_alive(town.fake), 2);
    /* Made, but neither the answer nor the list tells: found by its name later. */
    fake_script(town.fake, FAKE_LIST_SNAPSHOTS, FAKE_REFUSE, BERTH_REASON_BACKEND_UNAVAILABLE,
                1);
    fake_script(town.fake, FAKE_SNAPSHOT, FAKE_LOSE, 0, 1);
    ck_assert_int_eq(install("bb", "2", id, NULL), BERTH_REASON_NONE);
    ck_assert_str_eq(end_of(id), "");
    wait_snapshots(3);
    ck_assert_str_eq(skills(), "aa bb");
    ck_assert_uint_gt(image().generation, before.generation);
    ck_assert_uint_eq(count_rows("active"), 1);
    wait_alive(1);
}
END_TEST

/* Given up while it works: undone, and the next one goes on. */
START_TEST(install__cancelled__undone)
{
    Berth__Skills__V1__CancelOperationRequest req =
        BERTH__SKILLS__V1__CANCEL_OPERATION_REQUEST__INIT;
    char id[ID_SIZE], ignored[ID_SIZE];

    put_file("hold", "");
    ck_assert_int_eq(install("aa", "1", id, NULL), BERTH_REASON_NONE);
    berth_message_free(wait_step(id, STEP(UPLOADED)));
    req.tenant_id = (char *)"t1";
    req.operation_id = id;
    ck_assert_int_eq(call("CancelOperation", &req, ignored), BERTH_REASON_NONE);
    ck_assert_str_eq(end_of(id), "CANCELLED");
    remove_file("hold");
    ck_assert_uint_eq(image().generation, 0);
    ck_assert_uint_eq(fake_snapshots_alive(town.fake), 0);
    wait_alive(0);
    must_install("aa", "1");
}
END_TEST

/* Five at once on one config: one after the other, and none is lost. */
START_TEST(install__many_at_once__all_in_the_image)
{
    char ids[5][ID_SIZE], name[8];

    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "s%d", i);
        ck_assert_int_eq(install(name, "1", ids[i], NULL), BERTH_REASON_NONE);
    }
    for (int i = 0; i < 5; i++)
        ck_assert_str_eq(end_of(ids[i]), "");
    ck_assert_str_eq(skills(), "s0 s1 s2 s3 s4");
    ck_assert_uint_eq(image().generation, 5);
    ck_assert_uint_eq(count_rows("active"), 1);
}
END_TEST

/* Killed at that place: begun again by the next process, and finished, once. */
static void kill_at(int place, const char *content)
{
    struct berth_image_pointer before = image();
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    char id[ID_SIZE], text[16];
    size_t kept;
    int status;

    snprintf(text, sizeof text, "%d", place);
    put_file("die", text);
    ck_assert_int_eq(install("aa", content, id, NULL), BERTH_REASON_NONE);
    while (waitpid(town.skills.pid, &status, WNOHANG) == 0) {
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        usleep(2000);
    }
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    process_start(&town.skills);
    ck_assert_msg(strcmp(end_of(id), "") == 0, "place %d: %s", place, end_of(id));
    ck_assert_uint_gt(image().generation, before.generation);
    ck_assert_str_eq(skills(), "aa");
    ck_assert_uint_eq(count_rows("active"), 1);
    ck_assert_uint_eq(count_rows("building"), 0);
    /* Nothing that the ledger does not name. */
    kept = count_rows("active") + count_rows("superseded") + count_rows("abandoned");
    ck_assert_uint_le(fake_snapshots_alive(town.fake), kept);
    wait_alive(0);
}

START_TEST(install__killed_anywhere__finished_once)
{
    static const int places[] = {
        STEP(SANDBOX_READY), STEP(CLEANED), FAULT_ROW_WRITTEN, FAULT_ACTIVE,
        FAULT_FLIP_WRITTEN,  STEP(FLIPPED), FAULT_END,
    };
    char content[8];

    for (size_t i = 0; i < BERTH_COUNT(places); i++) {
        snprintf(content, sizeof content, "%zu", i);
        kill_at(places[i], content);
    }
}
END_TEST

/* Killed while the backend makes its snapshot: what was made is published, not made twice. */
START_TEST(install__killed_under_the_backend__carried_on)
{
    char id[ID_SIZE];

    fake_script(town.fake, FAKE_SNAPSHOT, FAKE_HOLD_AFTER, 0, 1);
    ck_assert_int_eq(install("aa", "1", id, NULL), BERTH_REASON_NONE);
    fake_wait_held(town.fake, 1);
    process_kill(&town.skills);
    fake_release(town.fake);
    process_start(&town.skills);
    ck_assert_str_eq(end_of(id), "");
    ck_assert_uint_eq(fake_count(town.fake, FAKE_SNAPSHOT), 1);
    ck_assert_str_eq(image().snapshot_id, "snap-1");
    wait_alive(0);
}
END_TEST

/* The same, and the backend cannot be asked what it made: given up, and cleaned by its name. */
START_TEST(install__backend_away_after_a_kill__given_up_and_cleaned)
{
    char id[ID_SIZE];

    fake_script(town.fake, FAKE_SNAPSHOT, FAKE_HOLD_AFTER, 0, 1);
    ck_assert_int_eq(install("aa", "1", id, NULL), BERTH_REASON_NONE);
    fake_wait_held(town.fake, 1);
    process_kill(&town.skills);
    fake_script(town.fake, FAKE_LIST_SNAPSHOTS, FAKE_REFUSE, BERTH_REASON_BACKEND_UNAVAILABLE,
                1000);
    fake_release(town.fake);
    process_start(&town.skills);
    ck_assert_str_eq(end_of(id), "BACKEND_UNAVAILABLE");
    ck_assert_uint_eq(fake_snapshots_alive(town.fake), 1);
    fake_script(town.fake, FAKE_LIST_SNAPSHOTS, FAKE_OBEY, 0, 0);
    wait_snapshots(0);
    ck_assert_uint_eq(count_rows("building"), 0);
    ck_assert_uint_eq(image().generation, 0);
    wait_alive(0);
}
END_TEST

/* The pointer moves under an installation: it begins anew, from the one that is live. */
START_TEST(install__pointer_moved__begun_anew)
{
    struct berth_image_pointer other;
    char id[ID_SIZE];

    must_install("aa", "1");
    put_file("hold", "");
    (void)done();
    ck_assert_int_eq(install("bb", "1", id, NULL), BERTH_REASON_NONE);
    berth_message_free(wait_step(id, STEP(UPLOADED)));
    other = image();
    other.generation = 50;
    berth_reply_free(redis_run(town.store, "HSET", CONFIG, "next_generation", "51", NULL));
    set_image(&other);
    remove_file("hold");
    ck_assert_str_eq(end_of(id), "");
    ck_assert_uint_eq(image().generation, 51);
    ck_assert_str_eq(skills(), "aa bb");
    ck_assert_ptr_nonnull(strstr(strstr(done(), "upload bb") + 1, "upload bb"));
    ck_assert_uint_eq(count_rows("active"), 1);
}
END_TEST

/* An image of another account is not built on: from the base template, with all its skills. */
START_TEST(install__account_rotated__from_the_base)
{
    struct berth_image_pointer other;
    Shown *shown;
    bool said = false;
    char id[ID_SIZE];

    must_install("aa", "1");
    other = image();
    memset(other.account, 'f', 64);
    set_image(&other);
    (void)done();
    ck_assert_int_eq(install("bb", "1", id, NULL), BERTH_REASON_NONE);
    ck_assert_str_eq(end_of(id), "");
    ck_assert_str_eq(skills(), "aa bb");
    ck_assert_ptr_null(strstr(done(), "open -"));
    shown = wait_step(id, 100);
    for (size_t i = 0; i < shown->operation->n_findings; i++)
        said = said || strcmp(shown->operation->findings[i]->code, "IMAGE_OTHER_ACCOUNT") == 0;
    ck_assert(said);
    berth_message_free(shown);
    ck_assert_str_eq(booted("s1"), image().snapshot_id);
}
END_TEST

/* An image that is gone at its backend: said, sessions boot the base, and it can be built
 * again; one that is only outdated in a create under way is left alone. */
START_TEST(image__missing__healed_by_the_base)
{
    struct berth_image_pointer before, now;
    struct beside late;
    char id[ID_SIZE];

    must_install("aa", "1");
    before = image();
    fake_script(town.fake, FAKE_CREATE, FAKE_REFUSE, BERTH_REASON_SNAPSHOT_NOT_FOUND, 1);
    ck_assert_str_eq(booted("s1"), "");
    now = image();
    ck_assert_str_eq(now.snapshot_id, "");
    ck_assert_uint_gt(now.generation, before.generation);
    ck_assert_str_eq(skills(), "aa"); /* still wanted */
    ck_assert_uint_eq(count_events("IMAGE_MISSING"), 1);
    (void)done();
    ck_assert_int_eq(rebuild(id), BERTH_REASON_NONE);
    ck_assert_str_eq(end_of(id), "");
    ck_assert_ptr_nonnull(strstr(done(), "upload aa\n"));
    ck_assert_str_eq(skills(), "aa");
    ck_assert_str_eq(booted("s2"), image().snapshot_id);

    before = image();
    fake_script(town.fake, FAKE_CREATE, FAKE_HOLD, BERTH_REASON_SNAPSHOT_NOT_FOUND, 1);
    beside_start(&late, &town, 0, "Resolve", "s3");
    fake_wait_held(town.fake, 1);
    now = before;
    now.generation += 10;
    snprintf(now.snapshot_id, sizeof now.snapshot_id, "snap-1");
    set_image(&now);
    fake_release(town.fake);
    ck_assert_int_eq(beside_join(&late), BERTH_REASON_NONE);
    ck_assert_str_eq(image().snapshot_id, "snap-1");
    ck_assert_uint_eq(image().generation, now.generation);
    ck_assert_str_eq(fake_find(town.fake, late.box)->snapshot_id, "snap-1");
    ck_assert_uint_eq(count_events("IMAGE_MISSING"), 1);
}
END_TEST

static char test_dir[] = "/tmp/berth-test-chain-XXXXXX";

int main(void)
{
    Suite *suite = suite_create("skills/chain");
    TCase *all = tcase_create("all");
    SRunner *runner;
    char path[PATH_SIZE];
    int failed;

    if (!mkdtemp(test_dir))
        return EXIT_FAILURE;
    setenv("BERTH_TEST_DIR", test_dir, 1);
    tcase_add_checked_fixture(all, open_town, close_town);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, image__whole_life__one_generation_each);
    tcase_add_test(all, install__goes_wrong__old_image_serves);
    tcase_add_test(all, install__cancelled__undone);
    tcase_add_test(all, install__many_at_once__all_in_the_image);
    tcase_add_test(all, install__killed_anywhere__finished_once);
    tcase_add_test(all, install__killed_under_the_backend__carried_on);
    tcase_add_test(all, install__backend_away_after_a_kill__given_up_and_cleaned);
    tcase_add_test(all, install__pointer_moved__begun_anew);
    tcase_add_test(all, install__account_rotated__from_the_base);
    tcase_add_test(all, image__missing__healed_by_the_base);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    unlink(file(path, "log"));
    unlink(file(path, "hold"));
    unlink(file(path, "die"));
    rmdir(test_dir);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

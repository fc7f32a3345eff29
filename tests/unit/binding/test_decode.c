#include <check.h>
#include <stdio.h>

#include "services/binding/decode.h"

typedef Berth__Binding__V1__AcquireRequest AcquireRequest;
typedef Berth__Binding__V1__CommitRequest CommitRequest;

static const struct binding_limits limits = {
    .turn_ms = 1800000, .turn_min_ms = 60000, .turn_max_ms = 86400000};
static uint8_t zeros[512 * 1024];
static char longest[8192];

/* A string of n letters. */
static char *letters(size_t n)
{
    memset(longest, 'a', n);
    longest[n] = '\0';
    return longest;
}

/* A good request, and what it is made of. */
struct acquire {
    AcquireRequest req;
    Berth__Common__V1__SessionRef ref;
    Berth__Common__V1__SessionSpec spec;
    Google__Protobuf__Timestamp time;
};

static void good_acquire(struct acquire *a)
{
    berth__binding__v1__acquire_request__init(&a->req);
    berth__common__v1__session_ref__init(&a->ref);
    berth__common__v1__session_spec__init(&a->spec);
    google__protobuf__timestamp__init(&a->time);
    a->ref.tenant_id = (char *)"t1";
    a->ref.session_id = (char *)"s1";
    a->req.session = &a->ref;
    a->req.want = BERTH__BINDING__V1__WANT__WANT_ENSURE;
    a->req.owner = (char *)"me";
    a->req.attempt.data = zeros;
    a->req.attempt.len = 16;
}

/* Each row: what is done to a good request, the field that is blamed ("": none). */
static const struct {
    const char *what, *field;
} acquire_rows[] = {
    {"good", ""},
    {"no session", "session"},
    {"tenant empty", "session.tenant_id"},
    {"tenant slash", "session.tenant_id"},
    {"session 128", ""},
    {"session 129", "session.session_id"},
    {"session dots", "session.session_id"},
    {"want 0", "want"},
    {"want 12", "want"},
    {"want negative", "want"},
    {"owner empty", "owner"},
    {"owner 128", ""},
    {"owner 129", "owner"},
    {"owner control", "owner"},
    {"attempt 0", "attempt"},
    {"attempt 15", "attempt"},
    {"attempt 17", "attempt"},
    {"turn 151", ""},
    {"turn 152", "turn_token"},
    {"turn charset", "turn_token"},
    {"turn with pause", "turn_token"},
    {"failed 128", ""},
    {"failed 129", "failed_sandbox_id"},
    {"failed space", "failed_sandbox_id"},
    {"spec config", "spec_if_new.config_id"},
    {"spec huge", "spec_if_new"},
    {"created_by 129", "created_by"},
    {"fence huge", "seen_fence"},
    {"reap without id", "reap_sandbox_id"},
    {"reap without account", "reap_account"},
    {"reap account 33", "reap_account"},
    {"reap good", ""},
    {"reap time negative", "unless_active_after"},
    {"reap time nanos", "unless_active_after"},
    {"reap time far", "unless_active_after"},
};

static void spoil_reap(struct acquire *a, const char *what)
{
    a->req.want = BERTH__BINDING__V1__WANT__WANT_REAP;
    a->req.reap_sandbox_id = (char *)"sb";
    a->req.reap_account.data = zeros;
    a->req.reap_account.len = 32;
    if (strcmp(what, "reap without id") == 0)
        a->req.reap_sandbox_id = (char *)"";
    if (strcmp(what, "reap without account") == 0)
        a->req.reap_account.len = 0;
    if (strcmp(what, "reap account 33") == 0)
        a->req.reap_account.len = 33;
    if (strncmp(what, "reap time", 9) == 0)
        a->req.unless_active_after = &a->time;
    if (strcmp(what, "reap time negative") == 0)
        a->time.seconds = -1;
    if (strcmp(what, "reap time nanos") == 0)
        a->time.nanos = 1000000000;
    if (strcmp(what, "reap time far") == 0)
        a->time.seconds = INT64_MAX;
}

static void spoil_acquire(struct acquire *a, const char *what)
{
    static Berth__Common__V1__SessionSpec__EnvEntry entry;
    static Berth__Common__V1__SessionSpec__EnvEntry *env[] = {&entry};
    const char *number = strrchr(what, ' ');
    size_t n = number ? strtoul(number, NULL, 10) : 0;

    if (strcmp(what, "no session") == 0)
        a->req.session = NULL;
    if (strcmp(what, "tenant empty") == 0)
        a->ref.tenant_id = (char *)"";
    if (strcmp(what, "tenant slash") == 0)
        a->ref.tenant_id = (char *)"a/b";
    if (strncmp(what, "session ", 8) == 0)
        a->ref.session_id = n ? letters(n) : (char *)"..";
    if (strncmp(what, "want ", 5) == 0)
        a->req.want = (Berth__Binding__V1__Want)(strstr(what, "neg") ? -1 : (int)n);
    if (strncmp(what, "owner ", 6) == 0)
        a->req.owner = n ? letters(n) : (char *)(strstr(what, "control") ? "a\nb" : "");
    if (strncmp(what, "attempt ", 8) == 0)
        a->req.attempt.len = n;
    if (strncmp(what, "turn ", 5) == 0)
        a->req.turn_token = n ? letters(n) : (char *)"a b";
    if (strcmp(what, "turn with pause") == 0) {
        a->req.turn_token = (char *)"t";
        a->req.want = BERTH__BINDING__V1__WANT__WANT_PAUSE;
    }
    if (strncmp(what, "failed ", 7) == 0)
        a->req.failed_sandbox_id = n ? letters(n) : (char *)"a b";
    if (strncmp(what, "spec ", 5) == 0)
        a->req.spec_if_new = &a->spec;
    if (strcmp(what, "spec config") == 0)
        a->spec.config_id = (char *)"a b";
    if (strcmp(what, "spec huge") == 0) {
        static char big[BINDING_SPEC_MAX + 1];

        memset(big, 'x', BINDING_SPEC_MAX);
        berth__common__v1__session_spec__env_entry__init(&entry);
        entry.key = (char *)"K";
        entry.value = big;
        a->spec.env = env;
        a->spec.n_env = 1;
    }
    if (strcmp(what, "created_by 129") == 0)
        a->req.created_by = letters(129);
    if (strcmp(what, "fence huge") == 0)
        a->req.seen_fence = UINT64_MAX;
    if (strncmp(what, "reap ", 5) == 0)
        spoil_reap(a, what);
}

START_TEST(decode_acquire__each_edge__field_blamed)
{
    struct acquire a;
    struct binding_acquire_request got;
    struct berth_error err = {0};
    enum berth_code code;

    good_acquire(&a);
    spoil_acquire(&a, acquire_rows[_i].what);
    code = binding_decode_acquire(&a.req, &got, &err);
    ck_assert_str_eq(err.field, acquire_rows[_i].field);
    ck_assert_int_eq(code, acquire_rows[_i].field[0] ? BERTH_INVALID_ARGUMENT : BERTH_OK);
    if (!code) {
        ck_assert_str_eq(got.want.attempt, "00000000000000000000000000000000");
        ck_assert_uint_eq(strlen(got.want.new_alias), BINDING_ALIAS_LEN);
    }
}
END_TEST

struct commit {
    CommitRequest req;
    Berth__Common__V1__SessionRef ref;
    Berth__Binding__V1__Lock lock;
    Berth__Binding__V1__Binding bound;
    Berth__Binding__V1__Intent intent;
    Berth__Common__V1__Image image;
    Berth__Binding__V1__EventDraft draft;
    Berth__Binding__V1__EventDraft *drafts[17];
    Berth__Binding__V1__EventDraft__AttributesEntry entry;
    Berth__Binding__V1__EventDraft__AttributesEntry *entries[17];
};

static void good_commit(struct commit *c)
{
    berth__binding__v1__commit_request__init(&c->req);
    berth__common__v1__session_ref__init(&c->ref);
    berth__binding__v1__lock__init(&c->lock);
    berth__binding__v1__binding__init(&c->bound);
    berth__binding__v1__intent__init(&c->intent);
    berth__common__v1__image__init(&c->image);
    berth__binding__v1__event_draft__init(&c->draft);
    berth__binding__v1__event_draft__attributes_entry__init(&c->entry);
    c->ref.tenant_id = (char *)"t1";
    c->ref.session_id = (char *)"s1";
    c->req.session = &c->ref;
    c->lock.token.data = zeros;
    c->lock.token.len = 16;
    c->lock.fence = 7;
    c->req.lock = &c->lock;
    c->bound.backend = (char *)"local";
    c->bound.config_id = (char *)"c1";
    c->bound.sandbox_id = (char *)"sb";
    c->bound.origin = BERTH__BINDING__V1__ORIGIN__ORIGIN_CREATED;
    c->bound.account.data = c->bound.attempt.data = c->bound.sealed_endpoint.data = zeros;
    c->bound.account.len = 32;
    c->req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_BIND;
    c->req.bind = &c->bound;
    c->draft.kind = (char *)"KILLED";
    c->entry.key = (char *)"k";
    c->entry.value = (char *)"v";
    for (size_t i = 0; i < 17; i++) {
        c->drafts[i] = &c->draft;
        c->entries[i] = &c->entry;
    }
    c->req.events = c->drafts;
    c->draft.attributes = c->entries;
}

static const struct {
    const char *what, *field;
} commit_rows[] = {
    {"good", ""},
    {"no session", "session"},
    {"no lock", "lock"},
    {"token 15", "lock.token"},
    {"fence 0", "lock.fence"},
    {"fence huge", "lock.fence"},
    {"no change", "change"},
    {"bind NULL", "bind"},
    {"bind sandbox empty", "bind.sandbox_id"},
    {"bind sandbox 129", "bind.sandbox_id"},
    {"bind backend empty", "bind.backend"},
    {"bind backend 33", "bind.backend"},
    {"bind backend Case", "bind.backend"},
    {"bind config empty", "bind.config_id"},
    {"bind origin 0", "bind.origin"},
    {"bind origin 3", "bind.origin"},
    {"bind power 4", "bind.power"},
    {"bind account 33", "bind.account"},
    {"bind attempt 16", ""},
    {"bind attempt 15", "bind.attempt"},
    {"bind endpoint 262144", ""},
    {"bind endpoint 262145", "bind.sealed_endpoint"},
    {"image huge generation", "bind.image.generation"},
    {"image template empty", "bind.image.template_id"},
    {"image snapshot 129", "bind.image.snapshot_id"},
    {"patch bare", ""},
    {"gone empty", "gone_sandbox_id"},
    {"intend kind 0", "intend.kind"},
    {"intend kind 4", "intend.kind"},
    {"intend delete nobody", "intend.sandbox_id"},
    {"intend create", ""},
    {"settled 15", "settled_attempt"},
    {"delete false", "delete_session"},
    {"delete true", ""},
    {"events 16", ""},
    {"events 17", "events"},
    {"event kind empty", "events.kind"},
    {"event kind lower", "events.kind"},
    {"attributes 16", ""},
    {"attributes 17", "events.attributes"},
    {"attribute key empty", "events.attributes.key"},
    {"attribute value 1025", "events.attributes.value"},
    {"turn 152", "turn_token"},
};

static void spoil_bind(struct commit *c, const char *what, size_t n)
{
    if (strcmp(what, "bind NULL") == 0)
        c->req.bind = NULL;
    if (strncmp(what, "bind sandbox", 12) == 0)
        c->bound.sandbox_id = letters(n);
    if (strncmp(what, "bind backend", 12) == 0)
        c->bound.backend = strstr(what, "Case") ? (char *)"Local" : letters(n);
    if (strncmp(what, "bind config", 11) == 0)
        c->bound.config_id = letters(n);
    if (strncmp(what, "bind origin", 11) == 0)
        c->bound.origin = (Berth__Binding__V1__Origin)n;
    if (strncmp(what, "bind power", 10) == 0)
        c->bound.power = (Berth__Binding__V1__Power)n;
    if (strncmp(what, "bind account", 12) == 0)
        c->bound.account.len = n;
    if (strncmp(what, "bind attempt", 12) == 0)
        c->bound.attempt.len = n;
    if (strncmp(what, "bind endpoint", 13) == 0)
        c->bound.sealed_endpoint.len = n;
    if (strncmp(what, "image ", 6) == 0)
        c->bound.image = &c->image;
    if (strcmp(what, "image huge generation") == 0)
        c->image.generation = UINT64_MAX;
    if (strcmp(what, "image template empty") == 0) {
        c->image.source_case = BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID;
        c->image.template_id = (char *)"";
    }
    if (strcmp(what, "image snapshot 129") == 0) {
        c->image.source_case = BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID;
        c->image.snapshot_id = letters(n);
    }
}

static void spoil_change(struct commit *c, const char *what, size_t n)
{
    if (strcmp(what, "no change") == 0)
        c->req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE__NOT_SET;
    if (strcmp(what, "patch bare") == 0) {
        berth__binding__v1__binding__init(&c->bound);
        c->bound.sandbox_id = (char *)"sb";
        c->req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_PATCH;
        c->req.patch = &c->bound;
    }
    if (strcmp(what, "gone empty") == 0) {
        c->req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_GONE_SANDBOX_ID;
        c->req.gone_sandbox_id = (char *)"";
    }
    if (strncmp(what, "intend ", 7) == 0) {
        c->req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_INTEND;
        c->req.intend = &c->intent;
        c->intent.kind = (Berth__Binding__V1__IntentKind)n;
    }
    if (strcmp(what, "intend delete nobody") == 0)
        c->intent.kind = BERTH__BINDING__V1__INTENT_KIND__INTENT_KIND_DELETE;
    if (strcmp(what, "intend create") == 0)
        c->intent.kind = BERTH__BINDING__V1__INTENT_KIND__INTENT_KIND_CREATE;
    if (strcmp(what, "settled 15") == 0) {
        c->req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_SETTLED_ATTEMPT;
        c->req.settled_attempt.data = zeros;
        c->req.settled_attempt.len = n;
    }
    if (strncmp(what, "delete ", 7) == 0) {
        c->req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_DELETE_SESSION;
        c->req.delete_session = strstr(what, "true") != NULL;
    }
}

static void spoil_commit(struct commit *c, const char *what)
{
    const char *number = strrchr(what, ' ');
    size_t n = number ? strtoul(number, NULL, 10) : 0;

    spoil_bind(c, what, n);
    spoil_change(c, what, n);
    if (strcmp(what, "no session") == 0)
        c->req.session = NULL;
    if (strcmp(what, "no lock") == 0)
        c->req.lock = NULL;
    if (strcmp(what, "token 15") == 0)
        c->lock.token.len = n;
    if (strncmp(what, "fence ", 6) == 0)
        c->lock.fence = strstr(what, "huge") ? UINT64_MAX : 0;
    if (strncmp(what, "events ", 7) == 0)
        c->req.n_events = n;
    if (strncmp(what, "event ", 6) == 0 || strncmp(what, "attribute", 9) == 0)
        c->req.n_events = 1;
    if (strncmp(what, "event kind", 10) == 0)
        c->draft.kind = (char *)(strstr(what, "lower") ? "killed" : "");
    if (strncmp(what, "attribute", 9) == 0)
        c->draft.n_attributes = strncmp(what, "attributes", 10) == 0 ? n : 1;
    if (strcmp(what, "attribute key empty") == 0)
        c->entry.key = (char *)"";
    if (strcmp(what, "attribute value 1025") == 0)
        c->entry.value = letters(n);
    if (strcmp(what, "turn 152") == 0)
        c->req.turn_token = letters(n);
}

START_TEST(decode_commit__each_edge__field_blamed)
{
    struct commit c;
    struct binding_commit_request got;
    struct berth_error err = {0};
    enum berth_code code;

    good_commit(&c);
    spoil_commit(&c, commit_rows[_i].what);
    code = binding_decode_commit(&c.req, &got, &err);
    ck_assert_str_eq(err.field, commit_rows[_i].field);
    ck_assert_int_eq(code, commit_rows[_i].field[0] ? BERTH_INVALID_ARGUMENT : BERTH_OK);
    binding_commit_request_deinit(&got);
}
END_TEST

/* Each row: seconds, nanos, the lease in ms; -1: refused. */
static const struct {
    int64_t seconds;
    int32_t nanos;
    int64_t ms;
} lease_rows[] = {{60, 0, 60000},     {59, 999000000, -1}, {86400, 0, 86400000},
                  {86400, 1, -1},     {-1, 0, -1},         {0, 0, -1},
                  {INT64_MAX, 0, -1}, {60, -1, -1},        {60, 1000000000, -1}};

START_TEST(decode_lease__bounds__kept)
{
    Google__Protobuf__Duration lease = GOOGLE__PROTOBUF__DURATION__INIT;
    int64_t ms = 42;
    enum berth_code code;

    ck_assert_int_eq(binding_decode_lease("lease", NULL, &limits, &ms, NULL), BERTH_OK);
    ck_assert_int_eq(ms, 0);
    lease.seconds = lease_rows[_i].seconds;
    lease.nanos = lease_rows[_i].nanos;
    code = binding_decode_lease("lease", &lease, &limits, &ms, NULL);
    ck_assert_int_eq(code, lease_rows[_i].ms < 0 ? BERTH_INVALID_ARGUMENT : BERTH_OK);
    if (!code)
        ck_assert_int_eq(ms, lease_rows[_i].ms);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/decode");
    TCase *tc = tcase_create("decode");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(tc, decode_acquire__each_edge__field_blamed, 0,
                        (int)BERTH_COUNT(acquire_rows));
    tcase_add_loop_test(tc, decode_commit__each_edge__field_blamed, 0,
                        (int)BERTH_COUNT(commit_rows));
    tcase_add_loop_test(tc, decode_lease__bounds__kept, 0, (int)BERTH_COUNT(lease_rows));
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

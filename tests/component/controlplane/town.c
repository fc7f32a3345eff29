#include "tests/component/controlplane/town.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "grpc/health/v1/health.pb-c.h"
#include "tests/lib/port.h"

extern char **environ;

enum { METRICS_MAX = 1 << 18 };

#define TYPE(package, name) (&berth__##package##__v1__##name##__descriptor)

/* ----------------------------------------------------------------- processes */

__attribute__((format(printf, 2, 3))) static void add(struct process *process, const char *fmt,
                                                      ...)
{
    va_list args;

    ck_assert_uint_lt(process->n_args, BERTH_COUNT(process->texts));
    va_start(args, fmt);
    vsnprintf(process->texts[process->n_args], sizeof process->texts[0], fmt, args);
    va_end(args);
    process->n_args++;
}

static void describe(struct process *process, const struct town *town, const char *name,
                     const char *run_dir)
{
    const char *build = getenv("BERTH_BUILD_DIR");

    snprintf(process->name, sizeof process->name, "%s", name);
    snprintf(process->run_dir, sizeof process->run_dir, "%s/%s", town->dir, run_dir);
    ck_assert(mkdir(process->run_dir, 0755) == 0 || errno == EEXIST);
    add(process, "%s/services/%s/berth-%s", build ? build : "build", name, name);
    add(process, "--run_dir=%s", process->run_dir);
    add(process, "--deployment=test");
    if (process->metrics_port)
        add(process, "--metrics_listen=127.0.0.1:%d", process->metrics_port);
    else
        add(process, "--metrics_listen=");
    add(process, "--redis=%s", town->proxy ? town->proxy->url : town->redis.url);
}

void process_start(struct process *process)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    char log[160];
    sigset_t none;
    size_t i;

    for (i = 0; i < process->n_args; i++)
        process->args[i] = process->texts[i];
    process->args[i] = NULL;
    snprintf(log, sizeof log, "%s/%s.log", process->run_dir, process->name);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    sigemptyset(&none);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    ck_assert_msg(posix_spawn(&process->pid, process->args[0], &actions, &attr,
                              (char *const *)process->args, environ) == 0,
                  "cannot start %s", process->args[0]);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
}

char *process_log(const struct process *process)
{
    char path[160], *text = NULL;
    size_t size = 0;
    FILE *file, *copy = open_memstream(&text, &size);
    int byte;

    snprintf(path, sizeof path, "%s/%s.log", process->run_dir, process->name);
    file = fopen(path, "r");
    ck_assert(file && copy);
    while ((byte = fgetc(file)) != EOF)
        fputc(byte, copy);
    fclose(file);
    fclose(copy);
    return text;
}

char *process_metrics(const struct process *process)
{
    static const char ask[] = "GET /metrics HTTP/1.0\r\n\r\n";
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)process->metrics_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char *text = calloc(1, METRICS_MAX);
    size_t size = 0;
    ssize_t n = 0;

    ck_assert_ptr_nonnull(text);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        write(fd, ask, sizeof ask - 1) == sizeof ask - 1)
        while (size < METRICS_MAX - 1 &&
               (n = read(fd, text + size, METRICS_MAX - 1 - size)) > 0)
            size += (size_t)n;
    close(fd);
    if (size == 0) {
        free(text);
        return NULL;
    }
    return text;
}

static void print_log(const struct process *process)
{
    char path[160], line[2048];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s.log", process->run_dir, process->name);
    file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        fputs(line, stderr);
    if (file)
        fclose(file);
}

void process_kill(struct process *process)
{
    if (process->pid) {
        kill(process->pid, SIGKILL);
        waitpid(process->pid, NULL, 0);
        process->pid = 0;
    }
}

void process_stop(struct process *process)
{
    int status = 0;

    if (!process->pid)
        return;
    kill(process->pid, SIGTERM);
    waitpid(process->pid, &status, 0);
    process->pid = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        print_log(process);
        ck_abort_msg("%s ended with status %x", process->name, (unsigned)status);
    }
}

/* ---------------------------------------------------------------------- calls */

enum berth_reason town_call_as(struct berth_channel *channel, const char *secret,
                               const char *path, const void *req,
                               const ProtobufCMessageDescriptor *resp_type, int64_t timeout_ms,
                               void *ret_resp, struct berth_error *ret_err)
{
    char header[96];
    int size = snprintf(header, sizeof header, "Bearer %s", secret ? secret : "");
    const struct berth_metadata metadata = {
        .key = "authorization", .value = header, .size = (size_t)size};
    const struct berth_call_options options = {
        .timeout_ms = timeout_ms, .metadata = &metadata, .n_metadata = secret ? 1 : 0};
    ProtobufCMessage *resp = NULL;
    struct berth_error err = {0};
    enum berth_code code =
        berth_channel_call(channel, path, req, resp_type, &options, &resp, &err);

    if (ret_err)
        *ret_err = err;
    if (code)
        return err.reason;
    if (ret_resp)
        memcpy(ret_resp, &resp, sizeof resp);
    else
        berth_message_free(resp);
    return BERTH_REASON_NONE;
}

enum berth_reason town_call(struct berth_channel *channel, const char *path, const void *req,
                            const ProtobufCMessageDescriptor *resp_type, int64_t timeout_ms,
                            void *ret_resp, struct berth_error *ret_err)
{
    return town_call_as(channel, NULL, path, req, resp_type, timeout_ms, ret_resp, ret_err);
}

enum berth_reason town_token(struct town *town, const Berth__Control__V1__Token *wanted,
                             char *secret, char ret_id[13])
{
    Berth__Control__V1__CreateTokenRequest req = BERTH__CONTROL__V1__CREATE_TOKEN_REQUEST__INIT;
    Berth__Control__V1__CreateTokenResponse *resp;
    enum berth_reason reason;

    req.token = (Berth__Control__V1__Token *)wanted;
    reason = town_call(town->control[0], "/berth.control.v1.TenantService/CreateToken", &req,
                       TYPE(control, create_token_response), WAIT_MS, &resp, NULL);
    if (reason)
        return reason;
    snprintf(secret, 64, "%s", resp->secret);
    if (ret_id)
        snprintf(ret_id, 13, "%s", resp->token->token_id);
    berth_message_free(resp);
    return BERTH_REASON_NONE;
}

void town_tenant_token(struct town *town, const char *tenant, Berth__Control__V1__Scope scope,
                       char *secret)
{
    Berth__Control__V1__Token token = BERTH__CONTROL__V1__TOKEN__INIT;

    token.tenant_id = (char *)tenant;
    token.scopes = &scope;
    token.n_scopes = 1;
    ck_assert_int_eq(town_token(town, &token, secret, NULL), BERTH_REASON_NONE);
}

enum berth_reason town_resolve(struct town *town, unsigned plane, const char *tenant,
                               const char *session, const SessionSpec *spec, const char *token,
                               Resolved **ret)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__ResolveSessionRequest req =
        BERTH__CONTROL__V1__RESOLVE_SESSION_REQUEST__INIT;

    ref.tenant_id = (char *)tenant;
    ref.session_id = (char *)session;
    req.session = &ref;
    req.spec = (SessionSpec *)spec;
    if (token)
        req.turn_token = (char *)token;
    return town_call(town->control[plane], "/berth.control.v1.SessionService/ResolveSession",
                     &req, TYPE(control, resolve_session_response), WAIT_MS, ret, NULL);
}

const char *town_box(struct town *town, const char *session, int *ret_outcome)
{
    static char box[64];
    Resolved *resolved = NULL;
    enum berth_reason reason = town_resolve(town, 0, "t1", session, NULL, NULL, &resolved);

    if (reason)
        print_log(&town->planes[0]);
    ck_assert_msg(!reason, "resolve %s: %s", session, berth_reason_name(reason));
    ck_assert_ptr_nonnull(resolved->session->sandbox);
    snprintf(box, sizeof box, "%s", resolved->session->sandbox->sandbox_id);
    if (ret_outcome)
        *ret_outcome = (int)resolved->outcome;
    berth_message_free(resolved);
    return box;
}

enum berth_reason town_act(struct town *town, const char *verb, const char *tenant,
                           const char *session)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    /* The three requests have the same one field. */
    Berth__Control__V1__PauseSessionRequest req =
        BERTH__CONTROL__V1__PAUSE_SESSION_REQUEST__INIT;
    char path[96];

    ref.tenant_id = (char *)tenant;
    ref.session_id = (char *)session;
    req.session = &ref;
    snprintf(path, sizeof path, "/berth.control.v1.SessionService/%sSession", verb);
    return town_call(town->control[0], path, &req, TYPE(control, pause_session_response),
                     WAIT_MS, NULL, NULL);
}

enum berth_reason town_get(struct town *town, const char *tenant, const char *session,
                           bool fresh, Session **ret)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__GetSessionRequest req = BERTH__CONTROL__V1__GET_SESSION_REQUEST__INIT;
    Berth__Control__V1__GetSessionResponse *resp;
    enum berth_reason reason;

    ref.tenant_id = (char *)tenant;
    ref.session_id = (char *)session;
    req.key_case = BERTH__CONTROL__V1__GET_SESSION_REQUEST__KEY_SESSION;
    req.session = &ref;
    req.fresh = fresh;
    reason = town_call(town->control[0], "/berth.control.v1.SessionService/GetSession", &req,
                       TYPE(control, get_session_response), WAIT_MS, &resp, NULL);
    if (!reason) {
        *ret = BERTH_STEAL(resp->session);
        berth_message_free(resp);
    }
    return reason;
}

const char *town_begin(struct town *town, const char *session)
{
    static char token[256];
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__BeginTurnRequest req = BERTH__CONTROL__V1__BEGIN_TURN_REQUEST__INIT;
    Berth__Control__V1__BeginTurnResponse *resp = NULL;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)session;
    req.session = &ref;
    ck_assert_int_eq(town_call(town->control[0], "/berth.control.v1.SessionService/BeginTurn",
                               &req, TYPE(control, begin_turn_response), WAIT_MS, &resp, NULL),
                     BERTH_REASON_NONE);
    snprintf(token, sizeof token, "%s", resp->turn_token);
    berth_message_free(resp);
    return token;
}

enum berth_reason town_end_turn(struct town *town, const char *session, const char *token)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__EndTurnRequest req = BERTH__CONTROL__V1__END_TURN_REQUEST__INIT;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)session;
    req.session = &ref;
    req.turn_token = (char *)token;
    return town_call(town->control[0], "/berth.control.v1.SessionService/EndTurn", &req,
                     TYPE(control, end_turn_response), WAIT_MS, NULL, NULL);
}

const char *town_field(struct town *town, const char *key, const char *field)
{
    static char text[65536];
    struct berth_reply *reply = redis_run(town->store, "HGET", key, field, NULL);

    snprintf(text, sizeof text, "%s", reply->type == BERTH_REPLY_STRING ? reply->string : "");
    berth_reply_free(reply);
    return text;
}

/* ------------------------------------------------------------------- beside */

static void *run_beside(void *arg)
{
    struct beside *call = arg;
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__ResolveSessionRequest req =
        BERTH__CONTROL__V1__RESOLVE_SESSION_REQUEST__INIT;
    bool resolve = strcmp(call->verb, "Resolve") == 0;
    Resolved *resolved = NULL;
    char path[96];

    ref.tenant_id = (char *)"t1";
    ref.session_id = call->session;
    req.session = &ref; /* field 1 in all of them */
    snprintf(path, sizeof path, "/berth.control.v1.SessionService/%sSession", call->verb);
    call->reason =
        town_call(call->town->control[call->plane], path, &req,
                  TYPE(control, resolve_session_response), WAIT_MS, &resolved, &call->err);
    if (!call->reason && resolve) {
        call->outcome = (int)resolved->outcome;
        snprintf(call->box, sizeof call->box, "%s", resolved->session->sandbox->sandbox_id);
    }
    berth_message_free(resolved);
    return NULL;
}

void beside_start(struct beside *call, struct town *town, unsigned plane, const char *verb,
                  const char *session)
{
    *call = (struct beside){.town = town, .plane = plane};
    snprintf(call->verb, sizeof call->verb, "%s", verb);
    snprintf(call->session, sizeof call->session, "%s", session);
    ck_assert_int_eq(pthread_create(&call->thread, NULL, run_beside, call), 0);
}

enum berth_reason beside_join(struct beside *call)
{
    pthread_join(call->thread, NULL);
    return call->reason;
}

/* ---------------------------------------------------------------------- life */

static bool serves(struct berth_channel *channel, const char *service)
{
    Grpc__Health__V1__HealthCheckRequest req = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    Grpc__Health__V1__HealthCheckResponse *resp = NULL;
    bool serving;

    req.service = (char *)service;
    if (town_call(channel, "/grpc.health.v1.Health/Check", &req,
                  &grpc__health__v1__health_check_response__descriptor, 1000, &resp, NULL))
        return false;
    serving = resp->status == GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    berth_message_free(resp);
    return serving;
}

static void wait_channel(struct berth_channel *channel, const struct process *process,
                         const char *service)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    while (!serves(channel, service)) {
        usleep(5000);
        if (berth_tick_ms() >= end_tick)
            print_log(process);
        ck_assert_msg(berth_tick_ms() < end_tick, "%s does not serve", process->name);
    }
}

void town_wait_ready(struct town *town)
{
    wait_channel(town->bind, &town->binding, "berth.binding.v1.BindingService");
    for (unsigned i = 0; i < PLANES; i++)
        if (town->planes[i].pid)
            wait_channel(town->control[i], &town->planes[i], "berth.control.v1.SessionService");
    if (town->skills.pid)
        wait_channel(town->snap, &town->skills, "berth.skills.v1.SnapshotService");
    for (unsigned i = 0; i < REAPERS; i++)
        if (town->reapers[i].pid)
            wait_channel(town->reap[i], &town->reapers[i], "berth.reaper.v1.ReaperService");
}

static void connect_to(const struct process *process, struct berth_channel **ret)
{
    char target[160];

    snprintf(target, sizeof target, "unix:%s/%s.sock", process->run_dir, process->name);
    ck_assert_int_eq(berth_channel_new(target, NULL, ret, NULL), BERTH_OK);
}

static void make_tenant(struct town *town, const char *id, bool config)
{
    Berth__Control__V1__Tenant tenant = BERTH__CONTROL__V1__TENANT__INIT;
    Berth__Control__V1__CreateTenantRequest create =
        BERTH__CONTROL__V1__CREATE_TENANT_REQUEST__INIT;
    Berth__Control__V1__UpdateTenantRequest update =
        BERTH__CONTROL__V1__UPDATE_TENANT_REQUEST__INIT;
    Berth__Control__V1__CreateConfigRequest make =
        BERTH__CONTROL__V1__CREATE_CONFIG_REQUEST__INIT;
    SandboxConfig settings = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;
    struct berth_error err;
    enum berth_reason reason;

    tenant.tenant_id = (char *)id;
    create.tenant = &tenant;
    reason = town_call(town->control[0], "/berth.control.v1.TenantService/CreateTenant",
                       &create, TYPE(control, create_tenant_response), WAIT_MS, NULL, &err);
    ck_assert_msg(!reason, "CreateTenant: %s", err.text);
    if (!config)
        return;
    settings.tenant_id = (char *)id;
    settings.config_id = (char *)"c1";
    settings.backend = (char *)"local";
    make.config = &settings;
    reason = town_call(town->control[0], "/berth.control.v1.ConfigService/CreateConfig", &make,
                       TYPE(control, create_config_response), WAIT_MS, NULL, &err);
    ck_assert_msg(!reason, "CreateConfig: %s", err.text);
    tenant.default_config_id = (char *)"c1";
    update.tenant = &tenant;
    reason = town_call(town->control[0], "/berth.control.v1.TenantService/UpdateTenant",
                       &update, TYPE(control, update_tenant_response), WAIT_MS, NULL, &err);
    ck_assert_msg(!reason, "UpdateTenant: %s", err.text);
}

static void write_key(const struct town *town)
{
    char path[96];
    int fd;

    snprintf(path, sizeof path, "%s/suite.key", town->dir);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_gt(
        dprintf(fd, "k1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"),
        0);
    close(fd);
}

static void start_planes(struct town *town, const struct town_options *options)
{
    unsigned planes = options->planes ? options->planes : 1;

    for (unsigned i = 0; i < planes; i++) {
        struct process *plane = &town->planes[i];
        char run_dir[16], target[64];
        int port = test_port();

        snprintf(run_dir, sizeof run_dir, "cp%u", i);
        plane->metrics_port = options->metrics ? test_port() : 0;
        describe(plane, town, "controlplane", run_dir);
        add(plane, "--listen=127.0.0.1:%d", port);
        add(plane, "--key_file=%s/suite.key", town->dir);
        add(plane, "--journal=%s/cp%u.journal", town->dir, i);
        add(plane, "--binding=unix:%s/binding.sock", town->binding.run_dir);
        add(plane, "--adapter_local=%s", town->fake->target);
        add(plane, "--dataplane=off"); /* nobody serves it here */
        if (options->deaf)
            add(plane, "--redis_connections=3");
        if (options->verify)
            add(plane, "--verify_interval=%s", options->verify);
        if (options->heartbeat)
            add(plane, "--event_heartbeat=%s", options->heartbeat);
        if (i == 0) {
            snprintf(target, sizeof target, "127.0.0.1:%d", port);
            ck_assert_int_eq(berth_channel_new(target, NULL, &town->outside, NULL), BERTH_OK);
        }
        process_start(plane);
        connect_to(plane, &town->control[i]);
    }
}

void town_lose_epoch(struct town *town)
{
    berth_reply_free(
        redis_run(town->store, "HSET", "berth:recovery", "writer:away", "x", NULL));
    berth_reply_free(redis_run(town->store, "DEL", "berth:epoch", NULL));
}

static void start_reapers(struct town *town, const struct town_options *options)
{
    for (unsigned i = 0; i < options->reapers; i++) {
        struct process *reaper = &town->reapers[i];
        char run_dir[16];

        snprintf(run_dir, sizeof run_dir, "r%u", i);
        reaper->metrics_port = options->metrics ? test_port() : 0;
        describe(reaper, town, "reaper", run_dir);
        add(reaper, "--controlplane=unix:%s/controlplane.sock", town->planes[0].run_dir);
        add(reaper, "--binding=unix:%s/binding.sock", town->binding.run_dir);
        add(reaper, "--adapter_local=%s", town->fake->target);
        add(reaper, "--interval=24h");
        add(reaper, "--lease=1s");
        add(reaper, "--grace=%s", options->grace);
        add(reaper, "--duplicate_grace=%s",
            options->duplicate_grace ? options->duplicate_grace : options->grace);
        process_start(reaper);
        connect_to(reaper, &town->reap[i]);
    }
}

void town_open(struct town *town, const struct town_options *options)
{
    const struct redis_server_options redis = {.keep = true,
                                               .clock_ms = options->redis_clock_ms};
    char socket[96];

    *town = (struct town){0};
    berth_rpc_init();
    snprintf(town->dir, sizeof town->dir, "/tmp/berth-town-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(town->dir));
    write_key(town);
    redis_server_start(&town->redis, &redis);
    town->store = redis_server_client(&town->redis, NULL);
    town->proxy = options->proxy;
    if (town->proxy)
        proxy_start(town->proxy, town->redis.folder, town->redis.url + strlen("unix:"));
    berth_reply_free(redis_run(town->store, "SET", "berth:deployment", "test", NULL));
    berth_reply_free(redis_run(town->store, "SET", "berth:epoch", "1", NULL));
    snprintf(socket, sizeof socket, "%s/adapter.sock", town->dir);
    town->fake = fake_new(socket);
    town->fake->keyed = !options->not_keyed;
    town->fake->not_fenced = options->not_keyed;
    town->fake->create_horizon_ms = options->create_horizon_ms;

    town->binding.metrics_port = options->metrics ? test_port() : 0;
    describe(&town->binding, town, "binding", "b");
    if (options->lock_lease)
        add(&town->binding, "--lock_lease=%s", options->lock_lease);
    process_start(&town->binding);
    connect_to(&town->binding, &town->bind);
    start_planes(town, options);
    if (options->skills) {
        describe(&town->skills, town, "skills", "sk");
        if (options->skills_program)
            snprintf(town->skills.texts[0], sizeof town->skills.texts[0], "%s/%s",
                     getenv("BERTH_BUILD_DIR") ? getenv("BERTH_BUILD_DIR") : "build",
                     options->skills_program);
        add(&town->skills, "--listen=");
        add(&town->skills, "--binding=unix:%s/binding.sock", town->binding.run_dir);
        add(&town->skills, "--blob_dir=%s/blobs", town->dir);
        add(&town->skills, "--key_file=%s/suite.key", town->dir);
        add(&town->skills, "--journal=%s/skills.journal", town->dir);
        add(&town->skills, "--controlplane=unix:%s/controlplane.sock", town->planes[0].run_dir);
        add(&town->skills, "--adapter_local=%s", town->fake->target);
        add(&town->skills, "--janitor_interval=100ms");
        if (options->build_lease)
            add(&town->skills, "--build_lease=%s", options->build_lease);
        add(&town->skills, "--spool=%s", town->dir);
        for (size_t i = 0; i < BERTH_COUNT(options->skills_args); i++)
            if (options->skills_args[i])
                add(&town->skills, "%s", options->skills_args[i]);
        process_start(&town->skills);
        connect_to(&town->skills, &town->snap);
    }
    start_reapers(town, options);
    town_wait_ready(town);
    make_tenant(town, "t1", !options->no_config);
    make_tenant(town, "t2", !options->no_config);
}

void town_close(struct town *town)
{

    fake_release(town->fake);
    berth_channel_free(town->outside);
    berth_channel_free(town->snap);
    berth_channel_free(town->bind);
    for (unsigned i = 0; i < PLANES; i++)
        berth_channel_free(town->control[i]);
    for (unsigned i = 0; i < REAPERS; i++) {
        berth_channel_free(town->reap[i]);
        process_stop(&town->reapers[i]);
    }
    process_stop(&town->skills);
    for (unsigned i = 0; i < PLANES; i++)
        process_stop(&town->planes[i]);
    process_stop(&town->binding);
    fake_free(town->fake);
    berth_redis_free(town->store);
    if (town->proxy)
        proxy_stop(town->proxy);
    redis_server_stop(&town->redis);
    if (!getenv("BERTH_KEEP")) {
        const char *const args[] = {"rm", "-rf", town->dir, NULL};
        pid_t pid;

        ck_assert_int_eq(posix_spawn(&pid, "/bin/rm", NULL, NULL, (char *const *)args, environ),
                         0);
        waitpid(pid, NULL, 0);
    }
    berth_rpc_done();
}

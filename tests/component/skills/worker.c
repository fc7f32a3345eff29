/* worker.c - the steps of work.h from a command line, against a running suite:
 *
 *   skill-worker RUN_DIR TENANT CONFIG SESSION [template=ID] [timeout=MS] STEP...
 *
 * STEP: upload=BUNDLE, dependencies, remove=NAME, root=SCRIPT, seal, verify, clean, stop=MS
 * (from then on it is not wanted any more), keep (the session stays). Each prints "<step>
 * <milliseconds> OK" or
 * "... <REASON> <text>", and the first one that fails is the last. What commands print goes to
 * stderr. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/skills/bundle/tar.h"
#include "services/skills/work/command.h"

struct worker {
    struct berth_runtime runtime;
    struct skills skills;
    struct work *work;
    struct bundle_verdict verdict; /* of the last upload */
    int spool_fd;
    bool keeps;
    int64_t stop_tick; /* 0: never */
};

static void say(void *arg, const void *data, size_t size)
{
    (void)arg;
    (void)!write(STDERR_FILENO, data, size);
}

static bool stopped(void *arg)
{
    const struct worker *worker = arg;

    return worker->stop_tick && berth_tick_ms() >= worker->stop_tick;
}

static enum berth_code to_file(void *arg, const void *data, size_t size,
                               struct berth_error *err)
{
    const int *fd = arg;

    return write(*fd, data, size) == (ssize_t)size
               ? BERTH_OK
               : berth_fail(err, BERTH_REASON_DISK_FULL, NULL);
}

static enum berth_code upload(struct worker *worker, const char *path, struct berth_error *err)
{
    BERTH_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    BERTH_AUTO(close) int tar_fd = -1;
    struct bundle_source source = {.fd = fd};
    struct stat about;
    int64_t begin_tick;
    enum berth_code code;

    if (fd < 0 || fstat(fd, &about) < 0)
        return berth_fail(err, BERTH_REASON_FILE_NOT_FOUND, "%s", path);
    source.size = (uint64_t)about.st_size;
    bundle_verdict_deinit(&worker->verdict);
    closep(&worker->spool_fd);
    worker->spool_fd = -1;
    worker->verdict = (struct bundle_verdict){0};
    code = bundle_spool_open("/var/tmp", &worker->spool_fd, err);
    if (!code)
        code = bundle_judge(&source, worker->spool_fd, NULL, work_host(worker->work),
                            &worker->verdict, err);
    if (!code && !worker->verdict.is_accepted)
        code = berth_fail(err, BERTH_REASON_BUNDLE_INVALID, NULL);
    if (!code)
        code = bundle_spool_open("/var/tmp", &tar_fd, err);
    if (!code)
        code = bundle_write_tar(&worker->verdict.bundle, worker->verdict.skill.name, to_file,
                                &tar_fd, err);
    if (!code && fstat(tar_fd, &about) < 0)
        code = berth_fail(err, BERTH_REASON_INTERNAL_BUG, NULL);
    if (code)
        return code;
    begin_tick = berth_tick_ms();
    code = work_upload(worker->work, worker->verdict.skill.name, tar_fd,
                       (uint64_t)about.st_size, err);
    if (!code)
        printf("uploaded %" PRId64 "\n", berth_tick_ms() - begin_tick);
    return code;
}

static enum berth_code verify(struct worker *worker, struct berth_error *err)
{
    struct findings findings = {0};
    enum berth_code code = work_verify(worker->work, &worker->verdict, &findings, err);

    for (size_t i = 0; i < findings.n; i++)
        printf("finding %s %s:%u %s\n", finding_name(findings.list[i].code),
               findings.list[i].file, findings.list[i].line, findings.list[i].message);
    if (!code && findings_refuse(&findings))
        code = berth_fail(err, BERTH_REASON_GATE_FAILED, NULL);
    findings_deinit(&findings);
    return code;
}

/* What an installer's own script might do. */
static enum berth_code run_as_root(struct worker *worker, const char *script,
                                   struct berth_error *err)
{
    const char *const argv[] = {"/bin/sh", "-c", script};
    const struct command command = {.argv = argv, .n_argv = BERTH_COUNT(argv)};
    struct command_end end = {0};
    enum berth_code code = command_run(worker->work, &command, &end, err);
    char how[160];

    if (!code && !command_is_done(&end) && !end.is_signaled)
        code = berth_fail(err, BERTH_REASON_INTERNAL_BUG, "it %s: %s",
                          command_tell(&end, how, sizeof how), end.tail);
    command_end_deinit(&end);
    return code;
}

static enum berth_code do_step(struct worker *worker, const char *step, struct berth_error *err)
{
    uint64_t bytes = 0;

    if (strncmp(step, "upload=", 7) == 0)
        return upload(worker, step + 7, err);
    if (strcmp(step, "dependencies") == 0)
        return work_dependencies(worker->work, &worker->verdict.plan, err);
    if (strncmp(step, "remove=", 7) == 0)
        return work_remove(worker->work, step + 7, err);
    if (strncmp(step, "root=", 5) == 0)
        return run_as_root(worker, step + 5, err);
    if (strcmp(step, "seal") == 0)
        return work_seal(worker->work, err);
    if (strcmp(step, "verify") == 0)
        return verify(worker, err);
    if (strcmp(step, "clean") == 0) {
        enum berth_code code = work_clean(worker->work, &bytes, err);

        if (!code)
            printf("bytes %" PRIu64 "\n", bytes);
        return code;
    }
    if (strncmp(step, "stop=", 5) == 0) {
        worker->stop_tick = berth_tick_ms() + strtol(step + 5, NULL, 10);
        return BERTH_OK;
    }
    if (strcmp(step, "keep") == 0) {
        worker->keeps = true;
        return BERTH_OK;
    }
    return berth_fail(err, BERTH_REASON_FIELD_INVALID, "no step '%s'", step);
}

static enum berth_code start(struct worker *worker, const char *run_dir,
                             struct berth_error *err)
{
    enum berth_code code = berth_loop_new(&worker->runtime.loop, err);

    if (!code)
        code = berth_loop_start(worker->runtime.loop, "worker", err);
    worker->runtime.run_dir = run_dir;
    worker->skills.runtime = &worker->runtime;
    if (!code)
        code = berth_peer_channel(&worker->runtime, "controlplane", "", NULL,
                                  &worker->skills.controlplane, err);
    if (!code)
        code = berth_peer_channel(&worker->runtime, "dataplane", "", NULL,
                                  &worker->skills.dataplane, err);
    return code;
}

static int tell(const char *step, int64_t begin_tick, enum berth_code code,
                const struct berth_error *err)
{
    printf("%s %" PRId64 " %s%s%s\n", step, berth_tick_ms() - begin_tick,
           code ? berth_reason_name(err->reason) : "OK", code ? " " : "",
           code ? err->text : "");
    fflush(stdout);
    return code != BERTH_OK;
}

int main(int argc, char **argv)
{
    struct worker worker = {.spool_fd = -1};
    struct work_wish wish = {
        .say = say, .stopped = stopped, .arg = &worker, .step_timeout_ms = 300000};
    struct berth_error err = {0};
    int64_t begin_tick = berth_tick_ms();
    enum berth_code code;
    int i = 5, failed;

    if (argc < 5)
        return 2;
    wish.tenant_id = argv[2];
    wish.config_id = argv[3];
    wish.session_id = argv[4];
    for (; i < argc; i++) {
        if (strncmp(argv[i], "template=", 9) == 0)
            wish.template_id = argv[i] + 9;
        else if (strncmp(argv[i], "timeout=", 8) == 0)
            wish.step_timeout_ms = strtol(argv[i] + 8, NULL, 10);
        else
            break;
    }
    berth_rpc_init();
    code = start(&worker, argv[1], &err);
    if (!code)
        code = work_open(&worker.skills, &wish, &worker.work, &err);
    failed = tell("open", begin_tick, code, &err);
    for (; !failed && i < argc; i++) {
        begin_tick = berth_tick_ms();
        code = do_step(&worker, argv[i], &err);
        failed = tell(argv[i], begin_tick, code, &err);
    }
    if (worker.work)
        printf("sandbox %s %" PRIu64 "\n", work_sandbox(worker.work),
               work_generation(worker.work));
    begin_tick = berth_tick_ms();
    worker.work = work_close(worker.work, !worker.keeps);
    tell("close", begin_tick, BERTH_OK, NULL);
    bundle_verdict_deinit(&worker.verdict);
    closep(&worker.spool_fd);
    berth_channel_free(worker.skills.controlplane);
    berth_channel_free(worker.skills.dataplane);
    berth_loop_free(worker.runtime.loop);
    berth_rpc_done();
    return failed;
}

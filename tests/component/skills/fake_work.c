/* fake_work.c - work.h without a data plane: the session and its sandbox are real (of the
 * control plane and the adapter that there are), what is done in it is written down. With
 * main.c of berth-skills it makes a berth-skills that does as files in $BERTH_TEST_DIR say: log
 * what was done, one line each hold       while it is there the dependencies take their time
 *   bad-deps, bad-gate   while it is there: as if
 *   die        the number of the place (chain_fault.h) at which the process kills itself, once
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "berth/control/v1/control.pb-c.h"
#include "common/messages/messages.h"
#include "services/skills/chain_fault.h"
#include "services/skills/work/work.h"

enum { PATH_SIZE = 200, LINE_SIZE = 400 };

struct work {
    struct skills *skills;
    struct work_wish wish;
    char tenant_id[129], session_id[129], sandbox_id[129];
    uint64_t generation;
    struct plan_host host;
};

static const char *file(char buf[PATH_SIZE], const char *name)
{
    snprintf(buf, PATH_SIZE, "%s/%s", getenv("BERTH_TEST_DIR"), name);
    return buf;
}

static bool is_there(const char *name)
{
    char path[PATH_SIZE];

    return access(file(path, name), F_OK) == 0;
}

static void note(const char *what, const char *name)
{
    char path[PATH_SIZE], line[LINE_SIZE];
    int fd = open(file(path, "log"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int len = snprintf(line, sizeof line, "%s %s\n", what, name);

    (void)!write(fd, line, (size_t)len);
    close(fd);
}

static void die_there(int place)
{
    char path[PATH_SIZE], text[16] = "";
    int fd = open(file(path, "die"), O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    (void)!read(fd, text, sizeof text - 1);
    close(fd);
    if (strtol(text, NULL, 10) != place)
        return;
    unlink(path);
    raise(SIGKILL);
}

__attribute__((constructor)) static void set_fault(void)
{
    skills_fault = die_there;
}

/* ---------------------------------------------------------------------- the session */

static enum berth_code resolve(struct work *work, struct berth_error *err)
{
    Berth__Control__V1__ResolveSessionRequest req =
        BERTH__CONTROL__V1__RESOLVE_SESSION_REQUEST__INIT;
    Berth__Control__V1__ResolveSessionResponse *resp = NULL;
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Common__V1__SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Common__V1__Image image = BERTH__COMMON__V1__IMAGE__INIT;
    enum berth_code code;

    ref.tenant_id = work->tenant_id;
    ref.session_id = work->session_id;
    spec.config_id = (char *)work->wish.config_id;
    if (work->wish.template_id) {
        image.source_case = BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID;
        image.template_id = (char *)work->wish.template_id;
        spec.image = &image;
    }
    req.session = &ref;
    req.spec = &spec;
    code = skills_control_call(
        work->skills, NULL, "/berth.control.v1.SessionService/ResolveSession", &req.base,
        &berth__control__v1__resolve_session_response__descriptor, &resp, err);
    if (code)
        return code;
    snprintf(work->sandbox_id, sizeof work->sandbox_id, "%s",
             resp->session->sandbox->sandbox_id);
    work->generation =
        resp->session->sandbox->image ? resp->session->sandbox->image->generation : 0;
    berth_message_free(resp);
    return BERTH_OK;
}

enum berth_code work_open(struct skills *skills, const struct work_wish *wish,
                          struct work **ret, struct berth_error *err)
{
    struct work *work = calloc(1, sizeof *work);
    enum berth_code code;

    work->skills = skills;
    work->wish = *wish;
    snprintf(work->tenant_id, sizeof work->tenant_id, "%s", wish->tenant_id);
    snprintf(work->session_id, sizeof work->session_id, "%s", wish->session_id);
    note("open", wish->template_id ? wish->template_id : "-");
    code = resolve(work, err);
    if (code)
        free(work);
    else
        *ret = work;
    return code;
}

const char *work_sandbox(const struct work *work)
{
    return work->sandbox_id;
}

uint64_t work_generation(const struct work *work)
{
    return work->generation;
}

const struct plan_host *work_host(const struct work *work)
{
    return &work->host;
}

struct work *work_close(struct work *work, bool destroy)
{
    Berth__Control__V1__DeleteSessionRequest req =
        BERTH__CONTROL__V1__DELETE_SESSION_REQUEST__INIT;
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    void *resp = NULL;

    if (!work)
        return NULL;
    ref.tenant_id = work->tenant_id;
    ref.session_id = work->session_id;
    req.session = &ref;
    if (destroy)
        (void)!skills_control_call(
            work->skills, NULL, "/berth.control.v1.SessionService/DeleteSession", &req.base,
            &berth__control__v1__delete_session_response__descriptor, &resp, NULL);
    berth_message_free(resp);
    free(work);
    return NULL;
}

/* ------------------------------------------------------------------------ the steps */

enum berth_code work_upload(struct work *work, const char *name, int tar_fd, uint64_t size,
                            struct berth_error *err)
{
    (void)work;
    (void)err;
    note(tar_fd >= 0 && size > 0 ? "upload" : "nothing", name);
    return BERTH_OK;
}

enum berth_code work_dependencies(struct work *work, const struct plan *plan,
                                  struct berth_error *err)
{
    const struct timespec pause = {.tv_nsec = 5 * 1000000};

    note("dependencies", plan->root);
    work->wish.say(work->wish.arg, "installing\n", strlen("installing\n"));
    while (is_there("hold") && !work->wish.stopped(work->wish.arg))
        nanosleep(&pause, NULL);
    if (work->wish.stopped(work->wish.arg))
        return berth_fail(err, BERTH_REASON_CANCELLED, NULL);
    if (is_there("bad-deps"))
        return berth_fail(err, BERTH_REASON_DEPENDENCY_FAILED, "no package 'nothing'");
    return BERTH_OK;
}

enum berth_code work_remove(struct work *work, const char *name, struct berth_error *err)
{
    (void)work;
    (void)err;
    note("remove", name);
    return BERTH_OK;
}

enum berth_code work_seal(struct work *work, struct berth_error *err)
{
    (void)work;
    (void)err;
    note("seal", "");
    return BERTH_OK;
}

enum berth_code work_verify(struct work *work, const struct bundle_verdict *verdict,
                            struct findings *findings, struct berth_error *err)
{
    (void)work;
    (void)err;
    note("verify", verdict->skill.name);
    if (is_there("bad-gate"))
        findings_add(findings, FINDING_ARCHIVE_DAMAGED, "run.py", 3, "it does not parse");
    return BERTH_OK;
}

enum berth_code work_clean(struct work *work, uint64_t *ret_bytes, struct berth_error *err)
{
    (void)work;
    (void)err;
    note("clean", "");
    *ret_bytes = 1000;
    return BERTH_OK;
}

#include "services/skills/bundle/judge.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

void bundle_verdict_deinit(struct bundle_verdict *verdict)
{
    findings_deinit(&verdict->findings);
    bundle_deinit(&verdict->bundle);
    skill_deinit(&verdict->skill);
    plan_deinit(&verdict->plan);
    *verdict = (struct bundle_verdict){0};
}

enum berth_code bundle_judge(const struct bundle_source *source, int spool_fd,
                             const struct plan_policy *policy, const struct plan_host *host,
                             struct bundle_verdict *ret, struct berth_error *err)
{
    struct findings *findings = &ret->findings;
    enum berth_code code = bundle_read(source, spool_fd, findings, &ret->bundle, err);

    if (!code)
        code = skill_read(&ret->bundle, findings, &ret->skill, err);
    if (!code)
        code = plan_make(&ret->bundle, &ret->skill, policy, host, findings, &ret->plan, err);
    if (!code && findings->no_memory)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (!code && !findings_refuse(findings))
        code = bundle_digest(&ret->bundle, ret->digest, err);
    if (code)
        return code;
    ret->is_accepted = !findings_refuse(findings);
    findings_close(findings);
    return BERTH_OK;
}

enum berth_code bundle_spool_open(const char *folder, int *ret_fd, struct berth_error *err)
{
    char path[4096];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) { /* not of this file system */
        if (snprintf(path, sizeof path, "%s/berth-spool-XXXXXX", folder) >= (int)sizeof path)
            return berth_fail_field(err, "spool", "is too long");
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0)
            unlink(path);
    }
    if (fd < 0)
        return berth_fail(err, berth_reason_from_errno(errno), "spool %s: %s", folder,
                          strerror(errno));
    *ret_fd = fd;
    return BERTH_OK;
}

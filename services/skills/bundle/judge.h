/* judge.h - a bundle judged whole: read, SKILL.md, dependencies, digest. Everything that is
 * known of it before a sandbox is touched. */
#pragma once

#include "services/skills/bundle/plan.h"
#include "services/skills/bundle/read.h"

struct bundle_verdict {
    struct findings findings; /* all of them, closed */
    bool is_accepted;
    struct bundle bundle; /* its contents stand in the spool */
    struct skill skill;   /* name NULL: it has none */
    struct plan plan;     /* of an accepted one */
    uint8_t digest[32];   /* of an accepted one: bundle_digest() */
};

/**
 * bundle_judge() - everything in order, every finding at once
 * @spool_fd:      an empty file, kept by the caller as long as ret
 * @policy, @host: of plan_make(); may be NULL
 * @ret:           zeroed; bundle_verdict_deinit() in any case
 *
 * BERTH_OK for refused ones, too. Errors: as bundle_read().
 */
BERTH_MUST_CHECK enum berth_code
bundle_judge(const struct bundle_source *source, int spool_fd, const struct plan_policy *policy,
             const struct plan_host *host, struct bundle_verdict *ret, struct berth_error *err);
void bundle_verdict_deinit(struct bundle_verdict *verdict);

/* An unlinked file of ours in that folder, for an upload or a spool. Errors: DISK_FULL, ... of
 * the folder. */
BERTH_MUST_CHECK enum berth_code bundle_spool_open(const char *folder, int *ret_fd,
                                                   struct berth_error *err);

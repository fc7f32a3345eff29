/* upload.h - a bundle on its way in: received into a nameless file, bounded in size, time and
 * number, then judged. */
#pragma once

#include "berth/skills/v1/skills.pb-c.h"
#include "common/auth/auth.h"
#include "services/skills/bundle/judge.h"
#include "services/skills/skills.h"

/* An upload that is whole and judged: what an installation begins with. */
struct skills_bundle {
    const Berth__Skills__V1__InstallSkillOpen *open;
    int fd; /* the bytes as they came */
    uint64_t size;
    uint8_t sha256[32]; /* of them */
    int spool_fd;       /* what is in verdict.bundle */
    char actor[BERTH_ACTOR_SIZE];
    struct bundle_verdict verdict;
};

/* SkillService.InstallSkill, evented. */
enum berth_code skills_open_install(void *service, struct berth_stream *stream,
                                    const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                    struct berth_error *err);

/* install.c, on a worker: what is to be done before a byte is taken; the whole upload's answer.
 * *ret is owned, berth_message_free(). */
BERTH_MUST_CHECK enum berth_code
skills_install_check(struct skills *skills, const Berth__Skills__V1__InstallSkillOpen *open,
                     struct berth_error *err);
BERTH_MUST_CHECK enum berth_code
skills_install_answer(struct skills *skills, const struct skills_bundle *bundle,
                      Berth__Skills__V1__InstallSkillResponse **ret, struct berth_error *err);

extern const struct berth_method skills_install_methods[];
extern const size_t skills_n_install_methods;

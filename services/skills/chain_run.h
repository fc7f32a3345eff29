/* chain_run.h - what the parts of the chain share: one start of one operation. */
#pragma once

#include <stdatomic.h>

#include "services/skills/chain.h"
#include "services/skills/making.h"
#include "services/skills/work/work.h"

/* Values of skills.proto. */
#define KIND(name) BERTH__SKILLS__V1__OPERATION_KIND__OPERATION_KIND_##name
#define STATE(name) BERTH__SKILLS__V1__OPERATION_STATE__OPERATION_STATE_##name
#define STEP(name) BERTH__SKILLS__V1__STEP__STEP_##name

/* A skill that is put into the image by this start. */
struct chain_skill {
    char name[257];
    char digest[65];
    bool is_new; /* the one that the operation is about */
    int tar_fd, spool_fd;
    uint64_t tar_size;
    struct bundle_verdict verdict;
};

/* What an attempt sets out to do, decided on one reading of the ledger. */
struct chain_plan {
    struct berth_image_pointer booted; /* as it was then */
    char account[65];
    char template_id[129];
    bool from_base;             /* boots the template, and puts in all that is wanted */
    uint64_t below_bytes;       /* of the layers that it stands on */
    json_t *list;               /* owned: what is wanted when it is done, without the new one */
    const char *remove;         /* borrowed: the skill that goes; NULL: none */
    struct chain_skill *skills; /* owned: to be put in */
    size_t n_skills;
    enum chain_way {
        CHAIN_BUILD,     /* a sandbox, a snapshot, a flip */
        CHAIN_CLEAR,     /* nothing is wanted any more: a flip alone */
        CHAIN_AGAIN,     /* an earlier one is published again: a flip alone */
        CHAIN_UNCHANGED, /* it is as it shall be */
    } way;
    char again[33]; /* row_id */
};

struct chain_run {
    struct skills *skills;
    const struct skills_chain_options *options;
    const atomic_bool *stopping; /* the process ends */

    pthread_mutex_t mutex; /* for grant: the beater writes it, too */
    pthread_cond_t wake;
    struct operation_grant grant;
    pthread_t beater;
    bool is_beating, ends; /* the beater's */
    atomic_bool lost, cancelled;
    bool flipped; /* past the point of no return: neither cancelled nor left */
    struct berth_image_pointer image; /* flipped: as it was written */
    int64_t end_tick;

    struct chain_plan plan;
    struct work *work;
};

/* ---- chain_run.c */

/* All of one start, to its end; grant stays the caller's. */
void chain_run(struct skills *skills, const struct skills_chain_options *options,
               const atomic_bool *stopping, struct operation_grant *grant);
/* work_open() as the plan says, into run->work. */
BERTH_MUST_CHECK enum berth_code chain_open_work(struct chain_run *run,
                                                 struct berth_error *err);

/* Why it may not go on: LOCK_LOST, CANCELLED, DRAINING, DEADLINE. */
BERTH_MUST_CHECK enum berth_code chain_check(struct chain_run *run, struct berth_error *err);
/* That step is done: written and said. Errors: those of chain_check(). */
BERTH_MUST_CHECK enum berth_code chain_step(struct chain_run *run, int step, unsigned percent,
                                            struct berth_error *err);
/* A line of our own into the operation's output. */
void chain_say(struct chain_run *run, const char *fmt, ...) BERTH_PRINTF(2, 3);
/* Something to be told with the operation. severity as of skills.proto. */
void chain_find(struct chain_run *run, const char *code, int severity, const char *message);
/* All findings of a verdict or a gate. */
void chain_add_findings(struct chain_run *run, const struct findings *findings);

/* ---- chain_plan.c */

/* Errors: SKILL_NOT_FOUND, FINGERPRINT_EMPTY, CONFIG_NOT_FOUND, BUNDLE_INVALID, ... */
BERTH_MUST_CHECK enum berth_code
chain_make_plan(struct chain_run *run, const struct ledger *ledger, struct berth_error *err);
void chain_plan_deinit(struct chain_plan *plan);
/* Judge a bundle of the store once more. Errors: BUNDLE_INVALID, FILE_CHANGED. */
BERTH_MUST_CHECK enum berth_code chain_judge(struct chain_run *run, struct chain_skill *skill,
                                             struct berth_error *err);
/* Plan a judged one by what the sandbox brings. */
BERTH_MUST_CHECK enum berth_code chain_fit(struct chain_run *run, struct chain_skill *skill,
                                           const struct plan_host *host,
                                           struct berth_error *err);

/* ---- chain_build.c: from a sandbox to an active row */

BERTH_MUST_CHECK enum berth_code chain_build(struct chain_run *run, struct berth_error *err);

/* ---- chain_image.c: rows, the flip, and after it */

/* A new row, building, and what the backend makes of it. Errors: QUOTA_EXCEEDED, ... */
BERTH_MUST_CHECK enum berth_code chain_snapshot(struct chain_run *run, uint64_t skills_bytes,
                                                struct berth_error *err);
/* A row that an earlier start left building: published, or given up (*ret_active false). */
BERTH_MUST_CHECK enum berth_code chain_settle(struct chain_run *run,
                                              const struct ledger *ledger, bool *ret_active,
                                              struct berth_error *err);
/* A row that was active in vain. */
void chain_drop_row(struct chain_run *run, const char *row_id);
void chain_note_flip(struct chain_run *run, const struct berth_image_pointer *image);
BERTH_MUST_CHECK enum berth_code
chain_flip(struct chain_run *run, const struct image_flip *flip, struct berth_error *err);
/* Tell the sessions' binding. What goes wrong is told with the operation, which is done. */
void chain_mark_stale(struct chain_run *run);
/* The maintenance session of an earlier start. */
BERTH_MUST_CHECK enum berth_code
chain_delete_session(struct chain_run *run, const char *session_id, struct berth_error *err);

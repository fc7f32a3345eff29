/* image.h - what a config's image holds, and how another one comes to be live.
 *
 * The list of an image is field skills:<row_id> of c/<config>: a JSON array of objects, by
 * name:
 *   name, version, description, path (as message Skill shows them), bundle (hex content
 *   digest), generation (it came in with), operation_id, update_ms, restricts_tools,
 *   disable_model_invocation, hidden_from_users, allowed_tools, env_names (arrays of strings),
 *   warnings (as of struct operation), n_files, size_bytes; external (true: prepared by an
 *   external installer, absent: not).
 * What is wanted in a config's image is the list of the row that its pointer names. */
#pragma once

#include <jansson.h>

#include "berth/skills/v1/skills.pb-c.h"
#include "services/skills/bundle/judge.h"
#include "services/skills/ledger.h"
#include "services/skills/operation.h"
#include "services/skills/skills.h"

/* ------------------------------------------------------------------- image_list.c */

/* The list of a row; owned; empty where it has none. Errors: INTERNAL_BUG, OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code image_list(const struct ledger *ledger, const char *row_id,
                                            json_t **ret, struct berth_error *err);
/* What is wanted now; owned. Errors: as image_list(). */
BERTH_MUST_CHECK enum berth_code image_wanted(const struct ledger *ledger, json_t **ret,
                                              struct berth_error *err);
/* Borrowed; NULL: not in it. */
json_t *image_find(const json_t *list, const char *name);
/* In place of one of the same name; skill is taken, also on failure. False: no memory. */
bool image_put(json_t *list, json_t *skill);
bool image_remove(json_t *list, const char *name); /* false: it was not there */
/* JSON; owned. Errors: QUOTA_EXCEEDED: too many, or too much text; OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code image_format(const json_t *list, char **ret,
                                              struct berth_error *err);
/* An accepted bundle as an entry; owned; NULL: no memory. warnings: borrowed, may be NULL. */
json_t *image_skill(const struct bundle_verdict *verdict, const json_t *warnings,
                    const char *operation_id, uint64_t generation, int64_t now_ms);
/* As stored with an operation: {code, severity (of skills.proto), file, line, message}; owned;
 * NULL: no memory. */
json_t *image_findings(const struct findings *findings, bool only_warnings);
/* As the API shows it, READY; owned; NULL: no memory. */
Berth__Skills__V1__Skill *image_show(const char *tenant, const char *config_id,
                                     const json_t *skill);

/* ------------------------------------------------------- image_core.c: rules, pure */

/* Who wants to make an image live, and what it was made from. */
struct image_claim {
    const char *operation_id;
    const char *owner;                        /* the process; as in the config's lock */
    const struct berth_image_pointer *booted; /* the pointer as it was before */
    const char *account;                      /* that it was made in */
    const char *row_id;                       /* "": no row of its own is needed */
};

enum image_verdict {
    IMAGE_MAY_FLIP,
    IMAGE_IS_FLIPPED, /* it was done before */
    IMAGE_NO_CONFIG,
    IMAGE_LOCK_LOST,
    IMAGE_ACCOUNT_CHANGED,
    IMAGE_MOVED,    /* another one is live than was booted */
    IMAGE_ROW_LOST, /* its row is not active, or not of this operation */
};
enum image_verdict image_judge_flip(const struct ledger *now, const struct image_claim *claim);

/* How an operation goes on that somebody may have begun before. */
enum image_start {
    IMAGE_START_ANEW,
    IMAGE_START_SETTLE, /* the backend was, or may have been, asked for its snapshot */
    IMAGE_START_FLIP,   /* the snapshot is active, and can still be made live */
    IMAGE_START_ENDED,  /* it is live */
};
enum image_start image_judge_start(struct ledger *now, const char *operation_id,
                                   const char *row_id);

/* Has the live image grown so much that the next one is built from the base template? Its
 * layers beyond slack are more than factor times its skills, or it is larger than max and they
 * are a quarter more; 0 each: no such limit. */
struct image_growth {
    uint64_t factor, slack_bytes, max_bytes;
};
bool image_is_bloated(const struct berth_snapshot_row *live, const struct image_growth *growth);

/* ------------------------------------------------------------------- image_flip.c */

struct image_flip {
    struct image_claim claim;
    /* Exactly one of: claim.row_id (built and active before); again, the row whose snapshot is
     * published once more; neither: nothing is wanted any more, there is no image. */
    const char *again;            /* row_id; "": not that */
    const char *base_template_id; /* "": as it was */
    const char *created_by;
};

/* One compare-and-set: the pointer, the rows, the next generation, and an event for each skill
 * that came or went. Repeatable. *ret: the pointer as it then stands.
 * Errors: LOCK_LOST, GENERATION_MOVED, ACCOUNT_CHANGED, CONFIG_NOT_FOUND, CONFLICT (its row);
 * SNAPSHOT_NOT_FOUND, IMAGE_OWNER_MISMATCH (again); STORE_UNAVAILABLE; OUTCOME_UNKNOWN. */
BERTH_MUST_CHECK enum berth_code image_flip(struct skills *skills, const char *tenant,
                                            const char *config_id,
                                            const struct image_flip *flip,
                                            struct berth_image_pointer *ret,
                                            struct berth_error *err);

/* catalog.h - which skills an image has: a config's live one, or the one that a session's
 * sandbox really runs. Blocking. */
#pragma once

#include <jansson.h>

#include "berth/skills/v1/skills.pb-c.h"
#include "services/skills/ledger.h"
#include "services/skills/operation.h"
#include "services/skills/skills.h"

/* Which image. */
struct catalog_image {
    char config_id[129]; /* whose ledger names it */
    uint64_t generation; /* 0: a template */
    bool not_bound;      /* the session has no sandbox: what it would boot now */
    json_t *list;        /* owned: of the skills in it, as image.h says */
};
void catalog_image_deinit(struct catalog_image *image);

/* Errors: CONFIG_NOT_FOUND, TENANT_NOT_FOUND, TENANT_DISABLED. */
BERTH_MUST_CHECK enum berth_code catalog_of_config(struct skills *skills, const char *tenant,
                                                   const char *config_id,
                                                   struct catalog_image *ret,
                                                   struct berth_error *err);
/* only_config: the session is of this one; "": of any. Errors: SESSION_NOT_FOUND;
 * SNAPSHOT_NOT_FOUND: what its sandbox runs is not in the ledger any more. */
BERTH_MUST_CHECK enum berth_code
catalog_of_session(struct skills *skills, const struct berth_call *call, const char *tenant,
                   const char *session_id, const char *only_config, struct catalog_image *ret,
                   struct berth_error *err);

/* What is known of a skill: of its entry in a list, and of an operation that changes it. */
struct catalog_skill {
    const char *name;                  /* borrowed */
    const json_t *entry;               /* borrowed; NULL: it is not in the image */
    const struct operation *operation; /* borrowed; NULL: none */
};
/* By name. list: of the live image; operations: as operation_list() gives them. Owned; NULL: no
 * memory. Pure. */
struct catalog_skill *catalog_merge(const json_t *list, const struct operation *operations,
                                    size_t n_operations, size_t *ret_n);
/* Owned; NULL: no memory. */
Berth__Skills__V1__Skill *catalog_show(const char *tenant, const char *config_id,
                                       const struct catalog_skill *skill);

/* catalog_text.c: the Markdown of a bundle's SKILL.md behind its frontmatter; owned. digest: 64
 * hex digits, of a bundle of the store. Errors: FILE_NOT_FOUND: it is not kept. */
BERTH_MUST_CHECK enum berth_code catalog_instructions(struct skills *skills, const char *tenant,
                                                      const char *digest, const char *name,
                                                      char **ret, struct berth_error *err);

extern const struct berth_method skills_catalog_methods[];
extern const size_t skills_n_catalog_methods;
extern const struct berth_method skills_prune_methods[];
extern const size_t skills_n_prune_methods;

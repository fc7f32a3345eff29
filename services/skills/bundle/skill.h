/* skill.h - what SKILL.md says, by the rules of agentskills.io, counted in characters: tolerant
 * of what the world ships, loud about what was changed, closed on restrictions that could not
 * be read. */
#pragma once

#include <jansson.h>

#include "services/skills/bundle/bundle.h"

enum {
    SKILL_NAME_MAX = 64,          /* characters */
    SKILL_DESCRIPTION_MAX = 1024, /* characters; longer ones are kept, with a warning */
    SKILL_COMPATIBILITY_MAX = 500,
    SKILL_TOOLS_MAX = 256,
    SKILL_TOOL_MAX = 256, /* bytes of one */
    SKILL_APT_MAX = 64,
    SKILL_ENV_MAX = 20,
    SKILL_SELF_TEST_MAX = 32, /* words */
};

struct skill_list {
    char **items; /* owned strings; NULL-terminated where n > 0 */
    size_t n;
};
void skill_list_deinit(struct skill_list *list);
/* A copy of size bytes. False: no memory. */
bool skill_list_add(struct skill_list *list, const char *text, size_t size);

/* All owned; strings are as they stand in SKILL.md, for nobody's eyes before text_show(). */
struct skill {
    char *name;         /* what it is installed as: a folder of this name is its own. Letters
                           and digits (lower case where ASCII) and single hyphens inside; at
                           most 64 characters, 255 bytes */
    char *written_name; /* as written */
    char *description;
    char *version; /* the key of this name, else that of metadata; "" */
    char *license;
    char *compatibility;
    struct skill_list allowed_tools; /* each "Read" or "Bash(git:*)", none twice */
    bool restricts_tools;            /* allowed-tools stands there: nothing else may be used */
    bool disable_model_invocation;
    bool user_invocable; /* true where nothing is said */
    json_t *keys;        /* all of the frontmatter (frontmatter.h) */
    char *instructions;  /* the Markdown behind it, without blank lines around */

    /* Of ours, under metadata: a string of words, or a list. */
    struct skill_list apt; /* berth-apt: Debian packages, "name" or "name=version" */
    struct skill_list
        env_names; /* berth-env: variables that the skill would like to have set */
    struct skill_list self_test; /* berth-self-test: argv, run in the skill's folder as the
                                    session's user when it is installed. A string is one for
                                    "sh -c". Empty: none */
};

/* Zeroed is empty. */
void skill_deinit(struct skill *skill);

/**
 * skill_read() - read and judge SKILL.md of a bundle
 * @findings: what is added decides; a skill of a refused bundle is filled as far as it goes
 *            (name NULL: there is none)
 * @ret:      zeroed
 *
 * Errors: OUT_OF_MEMORY; INTERNAL_BUG (the spool).
 */
BERTH_MUST_CHECK enum berth_code skill_read(const struct bundle *bundle,
                                            struct findings *findings, struct skill *ret,
                                            struct berth_error *err);

/* The same of a text; folder: what the name is compared with, or NULL. */
BERTH_MUST_CHECK enum berth_code skill_read_text(const char *text, size_t size,
                                                 const char *folder, struct findings *findings,
                                                 struct skill *ret, struct berth_error *err);

/**
 * skill_slug() - the name that a skill is installed under
 * @name: UTF-8
 *
 * ASCII letters become small, everything in ASCII that is no letter or digit becomes a hyphen,
 * hyphens are single and inside; what is beyond ASCII stays unless it is invisible or a blank.
 *
 * Returns an owned string, "" when nothing is left; NULL: no memory.
 */
char *skill_slug(const char *name);

/* Add the tools that text names, separated by blanks and commas outside of parentheses. False:
 * it cannot be read for certain (*ret_no_memory: or no memory). */
BERTH_MUST_CHECK bool skill_read_tools(const char *text, struct skill_list *tools,
                                       bool *ret_no_memory);

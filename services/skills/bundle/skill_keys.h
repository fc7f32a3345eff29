/* skill_keys.h - for skill.c: the keys of a frontmatter, read one by one. */
#pragma once

#include "services/skills/bundle/frontmatter.h"
#include "services/skills/bundle/skill.h"

struct skill_reading {
    const struct frontmatter *frontmatter;
    struct findings *findings;
    struct skill *skill;
    bool no_memory;
};

/* Of SKILL.md, at the line of a key. */
#define SKILL_SAY(reading, code, key, ...)                                                     \
    findings_add((reading)->findings, (code), "SKILL.md",                                      \
                 frontmatter_line((reading)->frontmatter, (key)), __VA_ARGS__)

/* Text of a key at the top; NULL: not there, null, or of another kind. Borrowed. */
const char *skill_text_of(const struct skill_reading *reading, const char *key);

/* restrict.c: allowed-tools, disable-model-invocation, user-invocable. */
void skill_read_restrictions(struct skill_reading *reading);
/* extras.c: what is ours, under metadata. */
void skill_read_extras(struct skill_reading *reading);

/* frontmatter.h - SKILL.md: "---", YAML, "---", Markdown. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "common/errors/errors.h"
#include "services/skills/bundle/findings.h"

enum {
    SKILL_MD_MAX = 512 << 10,   /* bytes of SKILL.md */
    FRONTMATTER_MAX = 64 << 10, /* bytes between the two lines "---" */
};

struct frontmatter {
    /* Every scalar is a string, exactly as it was meant in YAML ("1.10", "true"); only a plain
     * scalar that is empty, "~" or "null" is null. Keys in their order. Owned. */
    json_t *keys;
    bool is_recovered;   /* one scalar had to be quoted first */
    char *recovered_key; /* its key; owned, or NULL */
    const char *yaml;    /* the text between the lines; borrowed from the file */
    size_t yaml_size;
    const char *body; /* what follows; borrowed from the file */
    size_t body_size;
};
void frontmatter_deinit(struct frontmatter *frontmatter);

/**
 * frontmatter_read() - take SKILL.md apart
 * @text: the file; kept borrowed by ret
 * @file: what the file is called, for findings
 * @ret:  zeroed; ret->keys is set when the frontmatter could be read, else a finding says why
 *
 * Opening and closing line are exactly "---" and blanks. CRLF and one BOM are fine. A plain
 * scalar that holds ": " is quoted and the whole parsed again, once, for one scalar; nothing
 * else is repaired.
 *
 * Errors: OUT_OF_MEMORY.
 */
BERTH_MUST_CHECK enum berth_code frontmatter_read(const char *text, size_t size,
                                                  const char *file, struct findings *findings,
                                                  struct frontmatter *ret,
                                                  struct berth_error *err);

/* The line of SKILL.md on which a key at the top stands; 0: not found. For findings. */
unsigned frontmatter_line(const struct frontmatter *frontmatter, const char *key);

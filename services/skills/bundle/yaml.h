/* yaml.h - YAML of strangers by libyaml, events only: no aliases, no anchors, no tags, no key
 * twice, bounded depth and number of values. */
#pragma once

#include <jansson.h>

#include "common/errors/errors.h"
#include "services/skills/bundle/findings.h"

enum { YAML_DEPTH_MAX = 12, YAML_VALUES_MAX = 4096, YAML_PROBLEM_SIZE = 200 };

struct yaml_problem {
    enum finding_code code;
    bool is_syntax; /* libyaml's own verdict: text that is not YAML */
    unsigned line;  /* of the text, from 0 */
    char text[YAML_PROBLEM_SIZE];
};

/* One document. *ret is NULL when ret_problem says why not; else owned, and as of struct
 * frontmatter; json null for an empty document. Errors: OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code yaml_read(const char *text, size_t size, json_t **ret,
                                           struct yaml_problem *ret_problem,
                                           struct berth_error *err);

/* The text with one scalar quoted: the plain one at the top level that holds ": " (or ends in
 * ":") and stands on the given line, whole, where it begins on the line of its key. Flow, block
 * and quoted values, anchors, tags and values with a comment are left alone. Owned; NULL with
 * *ret_key NULL: there is no such scalar. *ret_key is owned.
 * Errors: OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code yaml_requote(const char *text, size_t size, unsigned line,
                                              char **ret, size_t *ret_size, char **ret_key,
                                              unsigned *ret_line, struct berth_error *err);

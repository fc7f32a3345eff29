/* scripts.h - which files of a bundle are programs, and of which language: what the
 * verification gate parses, and never runs. Pure. */
#pragma once

#include "services/skills/bundle/bundle.h"

enum script_language { SCRIPT_PYTHON, SCRIPT_NODE, SCRIPT_SH, SCRIPT_BASH, SCRIPT_LANGUAGES };

struct bundle_script {
    const char *path; /* borrowed from the bundle */
    enum script_language language;
    /* Tests, examples, documentation: what is wrong in them is told and refuses nothing. */
    bool is_auxiliary;
};

/* By the name's end (.py, .js .mjs .cjs, .sh, .bash), or, of a file with a run bit and none of
 * these, by its first line ("#!/usr/bin/env python3"). node_modules are left out. In the
 * bundle's order. *ret is owned (free()), NULL when there is none.
 * Errors: OUT_OF_MEMORY; INTERNAL_BUG (the spool). */
BERTH_MUST_CHECK enum berth_code bundle_scripts(const struct bundle *bundle,
                                                struct bundle_script **ret, size_t *ret_n,
                                                struct berth_error *err);

/* findings.h - what was seen in a bundle: all of it at once, in the order seen. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "common/base/base.h"

enum finding_severity { FINDING_NOTE, FINDING_WARNING, FINDING_ERROR, FINDING_SEVERITIES };

enum finding_code {
#define FINDING(name, severity) FINDING_##name,
#include "services/skills/bundle/codes.def"
#undef FINDING
    FINDING_CODES
};

enum {
    FINDINGS_EACH_MAX = 100,   /* kept of each severity */
    FINDING_MESSAGE_MAX = 400, /* characters */
    FINDING_FILE_MAX = 300,    /* characters */
};

struct finding {
    enum finding_code code;
    unsigned line; /* of the file, from 1; 0: none */
    char *file;    /* path in the bundle, escaped (text.h); "": the bundle itself */
    char *message; /* escaped; what was seen, and what was done about it */
};

struct findings {
    struct finding *list;
    size_t n;
    size_t counts[FINDING_SEVERITIES]; /* seen, also those that were cut */
    bool no_memory;                    /* something could not be kept: nothing is accepted */
};

/* Zeroed is empty. */
void findings_deinit(struct findings *findings);

/* Say it. file may be NULL; file and the formatted message may hold anything. */
void findings_add(struct findings *findings, enum finding_code code, const char *file,
                  unsigned line, const char *fmt, ...) BERTH_PRINTF(5, 6);
/* Says that some were cut, if so. At the end, once. */
void findings_close(struct findings *findings);

/* An error was seen, or could not be kept: the bundle is refused. */
bool findings_refuse(const struct findings *findings);
bool findings_has(const struct findings *findings, enum finding_code code);

/* "NAME_SLUGGED". Static string. */
const char *finding_name(enum finding_code code);
enum finding_severity finding_severity(enum finding_code code);

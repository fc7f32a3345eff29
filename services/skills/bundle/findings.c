#include "services/skills/bundle/findings.h"

#include <stdarg.h>
#include <stdio.h>

#include "services/skills/bundle/text.h"

static const struct {
    const char *name;
    enum finding_severity severity;
} codes[] = {
#define FINDING(name, severity) [FINDING_##name] = {#name, FINDING_##severity},
#include "services/skills/bundle/codes.def"
#undef FINDING
};

void findings_deinit(struct findings *findings)
{
    for (size_t i = 0; i < findings->n; i++) {
        free(findings->list[i].file);
        free(findings->list[i].message);
    }
    free(findings->list);
    *findings = (struct findings){0};
}

const char *finding_name(enum finding_code code)
{
    return codes[code].name;
}

enum finding_severity finding_severity(enum finding_code code)
{
    return codes[code].severity;
}

/* text is taken. */
static void append(struct findings *findings, enum finding_code code, const char *file,
                   unsigned line, char *text)
{
    struct finding *bigger, one = {.code = code, .line = line};

    if (text)
        one.message = text_show(text, strlen(text), FINDING_MESSAGE_MAX, false);
    one.file = text_show(file ? file : "", file ? strlen(file) : 0, FINDING_FILE_MAX, false);
    bigger = realloc(findings->list, (findings->n + 1) * sizeof *bigger);
    free(text);
    if (bigger)
        findings->list = bigger;
    if (!bigger || !one.message || !one.file) {
        findings->no_memory = true;
        free(one.message);
        free(one.file);
        return;
    }
    findings->list[findings->n++] = one;
}

void findings_add(struct findings *findings, enum finding_code code, const char *file,
                  unsigned line, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;

    if (++findings->counts[codes[code].severity] > FINDINGS_EACH_MAX)
        return;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0)
        text = NULL;
    va_end(args);
    append(findings, code, file, line, text);
}

void findings_close(struct findings *findings)
{
    size_t cut = 0;

    for (size_t i = 0; i < FINDING_SEVERITIES; i++)
        if (findings->counts[i] > FINDINGS_EACH_MAX)
            cut += findings->counts[i] - FINDINGS_EACH_MAX;
    if (cut > 0) {
        char *text = NULL;

        if (asprintf(&text, "%zu more are not listed", cut) < 0)
            text = NULL;
        append(findings, FINDING_FINDINGS_CUT, NULL, 0, text);
    }
}

bool findings_refuse(const struct findings *findings)
{
    return findings->no_memory || findings->counts[FINDING_ERROR] > 0;
}

bool findings_has(const struct findings *findings, enum finding_code code)
{
    for (size_t i = 0; i < findings->n; i++)
        if (findings->list[i].code == code)
            return true;
    return false;
}

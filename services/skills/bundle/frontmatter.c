#include "services/skills/bundle/frontmatter.h"

#include "common/base/utf8.h"
#include "services/skills/bundle/text.h"
#include "services/skills/bundle/yaml.h"

void frontmatter_deinit(struct frontmatter *frontmatter)
{
    json_decref(frontmatter->keys);
    free(frontmatter->recovered_key);
    *frontmatter = (struct frontmatter){0};
}

static unsigned line_at(const char *text, size_t at)
{
    unsigned line = 1;

    for (size_t i = 0; i < at; i++)
        line += text[i] == '\n' || (text[i] == '\r' && text[i + 1] != '\n');
    return line;
}

/* The whole file, its body as well. False: a finding says why. */
static bool check_encoding(const char *text, size_t size, const char *file,
                           struct findings *findings)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t bad;

    if (size >= 2 && ((s[0] == 0xff && s[1] == 0xfe) || (s[0] == 0xfe && s[1] == 0xff))) {
        findings_add(findings, FINDING_ENCODING, file, 1,
                     "is UTF-16; it must be saved as UTF-8");
        return false;
    }
    bad = text_bad_byte(text, size);
    if (bad < size) {
        findings_add(findings, FINDING_ENCODING, file, line_at(text, bad),
                     "byte 0x%02x is not UTF-8 text; it must be saved as UTF-8", s[bad]);
        return false;
    }
    return true;
}

/* Bytes of the line at text without its end; *ret_next: bytes with it. */
static size_t line_size(const char *text, size_t size, size_t *ret_next)
{
    size_t len = 0;

    while (len < size && text[len] != '\n' && text[len] != '\r')
        len++;
    *ret_next = len;
    if (*ret_next < size && text[*ret_next] == '\r')
        ++*ret_next;
    if (*ret_next < size && text[*ret_next] == '\n')
        ++*ret_next;
    return len;
}

static bool is_rule(const char *line, size_t len)
{
    if (len < 3 || memcmp(line, "---", 3) != 0)
        return false;
    for (size_t i = 3; i < len; i++)
        if (line[i] != ' ' && line[i] != '\t')
            return false;
    return true;
}

/* False: a finding says why. */
static bool split(const char *text, size_t size, const char *file, struct findings *findings,
                  struct frontmatter *ret)
{
    size_t next, at;

    if (!is_rule(text, line_size(text, size, &next))) {
        findings_add(findings, FINDING_FRONTMATTER_MISSING, file, 1,
                     "must begin with a line '---' and YAML");
        return false;
    }
    ret->yaml = text + next;
    for (at = next; at < size; at += next) {
        size_t len = line_size(text + at, size - at, &next);

        if (is_rule(text + at, len)) {
            ret->yaml_size = at - (size_t)(ret->yaml - text);
            ret->body = text + at + next;
            ret->body_size = size - at - next;
            return true;
        }
        if (at - (size_t)(ret->yaml - text) > FRONTMATTER_MAX)
            break;
    }
    if (at >= size)
        findings_add(findings, FINDING_FRONTMATTER_UNCLOSED, file, 1,
                     "the frontmatter is not closed by a second line '---'");
    else
        findings_add(findings, FINDING_FRONTMATTER_TOO_LARGE, file, 1,
                     "the frontmatter is longer than %d bytes, the limit", FRONTMATTER_MAX);
    return false;
}

/* To YAML 1.1, and so to libyaml, they end a line; to YAML 1.2 and to our reader of lines they
 * do not. What has two meanings may hide a key. */
static bool has_odd_breaks(const struct frontmatter *ret, const char *file,
                           struct findings *findings)
{
    for (size_t at = 0; at < ret->yaml_size;) {
        uint32_t point = 0;
        size_t step = berth_utf8_step(ret->yaml + at, ret->yaml_size - at, &point);

        if (point == 0x85 || point == 0x2028 || point == 0x2029) {
            findings_add(findings, FINDING_YAML_LINE_BREAK, file, line_at(ret->yaml, at) + 1,
                         "U+%04X ends a line to some readers and not to others",
                         (unsigned)point);
            return true;
        }
        at += step ? step : 1;
    }
    return false;
}

/* Is a tab among the blanks at the start of that line (from 0)? */
static bool is_tab_indented(const char *yaml, size_t size, unsigned line)
{
    size_t at = 0, next;

    for (; at < size && line > 0; line--) {
        (void)line_size(yaml + at, size - at, &next);
        at += next;
    }
    for (; at < size && (yaml[at] == ' ' || yaml[at] == '\t'); at++)
        if (yaml[at] == '\t')
            return true;
    return false;
}

static void say_problem(const struct frontmatter *ret, const struct yaml_problem *problem,
                        const char *file, struct findings *findings)
{
    unsigned line = problem->line + 2; /* behind the first '---' */

    if (problem->is_syntax && is_tab_indented(ret->yaml, ret->yaml_size, problem->line))
        findings_add(findings, FINDING_YAML_TAB, file, line,
                     "a tab stands in the indentation; YAML takes spaces only");
    else
        findings_add(findings, problem->code, file, line, "the frontmatter cannot be read: %s",
                     problem->text);
}

/* The parser has refused: quote the scalar that it stumbled over, and ask again. */
static enum berth_code recover(struct frontmatter *ret, const struct yaml_problem *first,
                               const char *file, struct findings *findings,
                               struct berth_error *err)
{
    BERTH_AUTO(free) char *text = NULL, *key = NULL;
    struct yaml_problem second;
    size_t size;
    unsigned line;
    enum berth_code code =
        yaml_requote(ret->yaml, ret->yaml_size, first->line, &text, &size, &key, &line, err);

    if (!code && text)
        code = yaml_read(text, size, &ret->keys, &second, err);
    if (code)
        return code;
    if (!ret->keys) {
        say_problem(ret, first, file, findings);
        return BERTH_OK;
    }
    findings_add(findings,
                 strcmp(key, "description") == 0 ? FINDING_DESCRIPTION_REQUOTED
                                                 : FINDING_VALUE_REQUOTED,
                 file, line + 2,
                 "the value of '%s' holds ': ' and must stand in quotes; it was read as if it "
                 "did, the file is left as it is",
                 key);
    ret->is_recovered = true;
    ret->recovered_key = BERTH_STEAL(key);
    return BERTH_OK;
}

static enum berth_code parse(struct frontmatter *ret, const char *file,
                             struct findings *findings, struct berth_error *err)
{
    struct yaml_problem problem;
    enum berth_code code = yaml_read(ret->yaml, ret->yaml_size, &ret->keys, &problem, err);

    if (!code && !ret->keys) {
        if (problem.is_syntax)
            code = recover(ret, &problem, file, findings, err);
        else
            say_problem(ret, &problem, file, findings);
    }
    if (code || !ret->keys)
        return code;
    if (json_is_null(ret->keys)) { /* nothing between the lines: every key is missing */
        ret->keys = json_object();
        return ret->keys ? BERTH_OK : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    if (!json_is_object(ret->keys)) {
        findings_add(findings, FINDING_FRONTMATTER_NOT_A_MAPPING, file, 2,
                     "the frontmatter must be a mapping: 'name: ...', 'description: ...'");
        json_decref(ret->keys);
        ret->keys = NULL;
    }
    return BERTH_OK;
}

enum berth_code frontmatter_read(const char *text, size_t size, const char *file,
                                 struct findings *findings, struct frontmatter *ret,
                                 struct berth_error *err)
{
    static const char bom[] = "\xef\xbb\xbf";

    if (size > SKILL_MD_MAX) {
        findings_add(findings, FINDING_SKILL_MD_TOO_LARGE, file, 0,
                     "is longer than %d bytes, the limit", SKILL_MD_MAX);
        return BERTH_OK;
    }
    if (!check_encoding(text, size, file, findings))
        return BERTH_OK;
    if (size >= sizeof bom - 1 && memcmp(text, bom, sizeof bom - 1) == 0) {
        findings_add(findings, FINDING_BOM_STRIPPED, file, 1,
                     "a byte order mark stands at the start; it is passed over");
        text += sizeof bom - 1;
        size -= sizeof bom - 1;
    }
    if (!split(text, size, file, findings, ret) || has_odd_breaks(ret, file, findings))
        return BERTH_OK;
    return parse(ret, file, findings, err);
}

unsigned frontmatter_line(const struct frontmatter *frontmatter, const char *key)
{
    size_t len = strlen(key), next;
    unsigned line = 2;

    for (size_t at = 0; at < frontmatter->yaml_size; at += next, line++) {
        const char *here = frontmatter->yaml + at;
        size_t size = line_size(here, frontmatter->yaml_size - at, &next);

        if (size > len && memcmp(here, key, len) == 0 && (here[len] == ':' || here[len] == ' '))
            return line;
    }
    return 0;
}

/* name.c - skill_slug() and skill_read_tools(): the two small languages of the frontmatter. */
#include "common/base/utf8.h"
#include "services/skills/bundle/skill.h"
#include "services/skills/bundle/text.h"

/* Beyond ASCII: a blank or punctuation, which no name of a folder needs. */
static bool is_separator(uint32_t point)
{
    return (point >= 0xa0 && point <= 0xbf && point != 0xaa && point != 0xb5 &&
            point != 0xba) ||
           point == 0x1680 || (point >= 0x2000 && point <= 0x206f) ||
           (point >= 0x3000 && point <= 0x3004) || (point >= 0x3008 && point <= 0x3020) ||
           (point >= 0xfe10 && point <= 0xfe6b) || (point >= 0xff01 && point <= 0xff0f) ||
           (point >= 0xff1a && point <= 0xff20) || text_is_hidden(point);
}

char *skill_slug(const char *name)
{
    size_t size = strlen(name), used = 0;
    char *slug = malloc(size + 1);

    for (size_t at = 0; slug && at < size;) {
        uint32_t point = 0;
        size_t step = berth_utf8_step(name + at, size - at, &point);
        const char *c = name + at;

        at += step ? step : 1;
        if (*c >= 'A' && *c <= 'Z') {
            slug[used++] = (char)(*c - 'A' + 'a');
        } else if ((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9')) {
            slug[used++] = *c;
        } else if (step > 1 && !is_separator(point)) {
            memcpy(slug + used, c, step);
            used += step;
        } else if (used > 0 && slug[used - 1] != '-') {
            slug[used++] = '-';
        }
    }
    if (slug && used > 0 && slug[used - 1] == '-')
        used--;
    if (slug)
        slug[used] = 0;
    return slug;
}

static bool is_tool_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != 0 && strchr("_-.:/*@", c));
}

static bool is_between(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',';
}

/* The end of the tool at text: a name, then perhaps "(...)", balanced. NULL: no tool. */
static const char *tool_end(const char *text)
{
    const char *at = text;
    unsigned depth = 0;

    while (is_tool_char(*at))
        at++;
    if (at == text)
        return NULL;
    if (*at == '(') {
        for (; *at; at++) {
            depth += *at == '(';
            depth -= *at == ')';
            if (depth == 0)
                break;
        }
        if (!*at)
            return NULL;
        at++;
    }
    return *at == 0 || is_between(*at) ? at : NULL;
}

static bool has(const struct skill_list *list, const char *text, size_t size)
{
    for (size_t i = 0; i < list->n; i++)
        if (strlen(list->items[i]) == size && memcmp(list->items[i], text, size) == 0)
            return true;
    return false;
}

bool skill_read_tools(const char *text, struct skill_list *tools, bool *ret_no_memory)
{
    for (const char *at = text; *at;) {
        const char *end;

        if (is_between(*at)) {
            at++;
            continue;
        }
        end = tool_end(at);
        if (!end || end - at > SKILL_TOOL_MAX || tools->n >= SKILL_TOOLS_MAX ||
            text_has_hidden(at, (size_t)(end - at)))
            return false;
        if (!has(tools, at, (size_t)(end - at)) &&
            !skill_list_add(tools, at, (size_t)(end - at))) {
            *ret_no_memory = true;
            return false;
        }
        at = end;
    }
    return true;
}

/* requote.c - the one repair there is: `description: Use when: ...` means the whole line. */
#include "services/skills/bundle/yaml.h"

static const char *line_end(const char *at, const char *end)
{
    while (at < end && *at != '\n' && *at != '\r')
        at++;
    return at;
}

static const char *next_line(const char *at, const char *end)
{
    at = line_end(at, end);
    if (at < end && *at == '\r')
        at++;
    if (at < end && *at == '\n')
        at++;
    return at;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_key_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '-' || c == '_' || c == '.';
}

/* A key at the start of a line, and the plain value behind it, to the end of its last line. */
struct pair {
    const char *key, *key_end;
    const char *value, *value_end;
};

/* Does a line at the top carry a key with something behind it? */
static bool find_value(const char *at, const char *end, struct pair *ret)
{
    const char *stop = line_end(at, end);

    ret->key = at;
    while (at < stop && is_key_char(*at))
        at++;
    ret->key_end = at;
    if (at == ret->key || at + 1 >= stop || *at != ':' || !is_blank(at[1]))
        return false;
    at++;
    while (at < stop && is_blank(*at))
        at++;
    ret->value = at;
    return at < stop;
}

/* Lines that belong to the value: indented, or blank with an indented one behind them. */
static const char *find_end(const char *value, const char *end, const char **ret_next,
                            unsigned *ret_lines)
{
    const char *last = line_end(value, end), *at = next_line(value, end);
    unsigned lines = 1, n = 1;

    while (at < end) {
        const char *stop = line_end(at, end), *c = at;

        while (c < stop && is_blank(*c))
            c++;
        if (c < stop && c == at)
            break;
        n++;
        if (c < stop) {
            last = stop;
            lines = n;
        }
        at = next_line(at, end);
    }
    *ret_next = at;
    *ret_lines = lines;
    while (last > value && is_blank(last[-1]))
        last--;
    return last;
}

/* What may stand at the start of a plain scalar. */
static bool begins_plain(const char *value, const char *end)
{
    bool alone = value + 1 >= end || is_blank(value[1]);

    if (strchr("\"'[]{}>|*&!%#@`,", *value))
        return false;
    return !(strchr("-?:", *value) && alone);
}

/* A colon that YAML takes for a key's, and no comment. */
static bool is_broken(const char *value, const char *end)
{
    bool colon = false;

    for (const char *c = value; c < end; c++) {
        if (*c == '#' && c > value && (is_blank(c[-1]) || c[-1] == '\n' || c[-1] == '\r'))
            return false;
        if (*c == ':' && (c + 1 == end || is_blank(c[1]) || c[1] == '\n' || c[1] == '\r'))
            colon = true;
    }
    return colon;
}

static bool quote(const char *text, size_t size, const struct pair *pair, char **ret,
                  size_t *ret_size, char **ret_key)
{
    size_t quotes = 2, used = 0;
    char *out;

    for (const char *c = pair->value; c < pair->value_end; c++)
        quotes += *c == '\'';
    out = malloc(size + quotes + 1);
    *ret_key = strndup(pair->key, (size_t)(pair->key_end - pair->key));
    if (!out || !*ret_key) {
        free(out);
        free(*ret_key);
        *ret_key = NULL;
        return false;
    }
    for (const char *c = text; c <= text + size; c++) {
        if (c == pair->value || c == pair->value_end)
            out[used++] = '\'';
        if (c == text + size)
            break;
        if (*c == '\'' && c >= pair->value && c < pair->value_end)
            out[used++] = '\'';
        out[used++] = *c;
    }
    out[used] = 0;
    *ret = out;
    *ret_size = used;
    return true;
}

enum berth_code yaml_requote(const char *text, size_t size, unsigned line, char **ret,
                             size_t *ret_size, char **ret_key, unsigned *ret_line,
                             struct berth_error *err)
{
    const char *end = text + size, *next;
    unsigned here = 0;

    *ret = NULL;
    *ret_key = NULL;
    for (const char *at = text; at < end && here <= line; at = next, here++) {
        struct pair pair;
        unsigned lines;

        next = next_line(at, end);
        if (!find_value(at, end, &pair))
            continue;
        pair.value_end = find_end(pair.value, end, &next, &lines);
        if (line < here + lines) {
            if (!begins_plain(pair.value, line_end(pair.value, end)) ||
                !is_broken(pair.value, pair.value_end))
                return BERTH_OK;
            *ret_line = here;
            return quote(text, size, &pair, ret, ret_size, ret_key)
                       ? BERTH_OK
                       : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        }
        next = next_line(at, end);
    }
    return BERTH_OK;
}

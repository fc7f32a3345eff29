#include "services/adapter-local/spawner/sources.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "common/base/base.h"

enum { FIELD_SIZE = 512, WORD_SIZE = 256 };

/* The next word of *at, by blanks. False: there is none, or it does not fit. */
static bool next_word(const char **at, char word[WORD_SIZE])
{
    size_t len;

    *at += strspn(*at, " \t\r");
    len = strcspn(*at, " \t\r\n");
    if (len == 0 || len >= WORD_SIZE)
        return false;
    memcpy(word, *at, len);
    word[len] = 0;
    *at += len;
    return true;
}

static bool is_ours(const char *suite, const char *codename)
{
    size_t len = strlen(codename);

    return len && strncmp(suite, codename, len) == 0 &&
           (suite[len] == 0 || strcmp(suite + len, "-updates") == 0 ||
            strcmp(suite + len, "-security") == 0);
}

/* "deb [signed-by=...] uri suite component..." */
static unsigned select_line(const char *line, const char *codename, FILE *out)
{
    const char *at = line, *options = NULL;
    size_t options_len = 0;
    char type[WORD_SIZE], uri[WORD_SIZE], suite[WORD_SIZE];

    if (!next_word(&at, type) || strcmp(type, "deb") != 0)
        return 0;
    at += strspn(at, " \t");
    if (*at == '[') {
        options = at;
        options_len = strcspn(at, "]\n");
        if (at[options_len] != ']')
            return 0;
        at += ++options_len;
    }
    if (!next_word(&at, uri) || !next_word(&at, suite) || !is_ours(suite, codename))
        return 0;
    fprintf(out, "deb %.*s%s%s %s %.*s\n", (int)options_len, options ? options : "",
            options ? " " : "", uri, suite, (int)strcspn(at, "#\r\n"), at);
    return 1;
}

struct stanza {
    char types[FIELD_SIZE], uris[FIELD_SIZE], suites[FIELD_SIZE], components[FIELD_SIZE],
        signed_by[FIELD_SIZE], enabled[FIELD_SIZE];
};

static unsigned select_stanza(const struct stanza *stanza, const char *codename, FILE *out)
{
    const char *types = stanza->types, *suites = stanza->suites;
    char word[WORD_SIZE], uri[WORD_SIZE], suite[WORD_SIZE];
    bool binary = false;
    unsigned n = 0;

    while (next_word(&types, word))
        binary = binary || strcmp(word, "deb") == 0;
    if (!binary || strcasecmp(stanza->enabled, "no") == 0 ||
        strcasecmp(stanza->enabled, "false") == 0)
        return 0;
    while (next_word(&suites, suite)) {
        const char *uris = stanza->uris;

        while (is_ours(suite, codename) && next_word(&uris, uri)) {
            bool key_file = stanza->signed_by[0] == '/';

            fprintf(out, "deb %s%s%s%s %s %s\n", key_file ? "[signed-by=" : "",
                    key_file ? stanza->signed_by : "", key_file ? "] " : "", uri, suite,
                    stanza->components);
            n++;
        }
    }
    return n;
}

static void read_field(struct stanza *stanza, const char *line, size_t len)
{
    const struct {
        const char *name;
        char *value;
    } fields[] = {{"Types", stanza->types},         {"URIs", stanza->uris},
                  {"Suites", stanza->suites},       {"Components", stanza->components},
                  {"Signed-By", stanza->signed_by}, {"Enabled", stanza->enabled}};
    const char *colon = memchr(line, ':', len);

    for (size_t i = 0; colon && i < BERTH_COUNT(fields); i++) {
        const char *value = colon + 1 + strspn(colon + 1, " \t");

        if (strlen(fields[i].name) == (size_t)(colon - line) &&
            strncasecmp(line, fields[i].name, (size_t)(colon - line)) == 0)
            snprintf(fields[i].value, FIELD_SIZE, "%.*s",
                     value < line + len ? (int)(line + len - value) : 0, value);
    }
}

unsigned sources_select(const char *text, int deb822, const char *codename, FILE *out)
{
    struct stanza stanza = {0};
    unsigned n = 0;

    for (const char *line = text; *line;) {
        size_t len = strcspn(line, "\n");

        if (!deb822)
            n += select_line(line, codename, out);
        else if (len == strspn(line, " \t\r")) {
            n += select_stanza(&stanza, codename, out);
            stanza = (struct stanza){0};
        } else if (*line != '#' && *line != ' ' && *line != '\t')
            read_field(&stanza, line, len);
        line += len + (line[len] == '\n');
    }
    if (deb822)
        n += select_stanza(&stanza, codename, out);
    return n;
}

#include "services/skills/work/gate_read.h"

#include <string.h>

#include "common/base/base.h"

enum { SUM_DIGITS = 64, NUMBER_DIGITS = 9 };

/* A decimal number and the blank behind it. */
static bool read_number(const char **at, unsigned long *ret)
{
    size_t n = strspn(*at, "0123456789");

    *ret = 0;
    if (n == 0 || n > NUMBER_DIGITS || (*at)[n] != ' ')
        return false;
    for (size_t i = 0; i < n; i++)
        *ret = *ret * 10 + (unsigned long)((*at)[i] - '0');
    *at += n + 1;
    return true;
}

static bool read_state(const char **at, enum gate_state *ret)
{
    static const struct {
        const char *word;
        enum gate_state state;
    } words[] = {{"ok ", GATE_OK}, {"bad ", GATE_BAD}, {"odd ", GATE_ODD}};

    for (size_t i = 0; i < BERTH_COUNT(words); i++) {
        size_t len = strlen(words[i].word);

        if (strncmp(*at, words[i].word, len) == 0) {
            *ret = words[i].state;
            *at += len;
            return true;
        }
    }
    return false;
}

bool gate_read(const char *text, size_t size, struct gate_record *ret, size_t n)
{
    const char *end = text + size;

    for (size_t i = 0; i < n; i++)
        ret[i] = (struct gate_record){.text = ""};
    while (text < end) {
        const char *at = text, *nul = memchr(text, 0, (size_t)(end - text));
        unsigned long number, line;
        enum gate_state state;

        if (!nul || !read_number(&at, &number) || number >= n || !read_state(&at, &state) ||
            !read_number(&at, &line) || ret[number].state != GATE_UNSAID)
            return false;
        ret[number] = (struct gate_record){.state = state, .line = (unsigned)line, .text = at};
        text = nul + 1;
    }
    return true;
}

unsigned gate_shell_line(const char *text)
{
    for (const char *at = text; (at = strstr(at, ": ")); at++) {
        const char *digits = at + 2;
        size_t n;

        if (strncmp(digits, "line ", 5) == 0)
            digits += 5;
        n = strspn(digits, "0123456789");
        if (n > 0 && n <= NUMBER_DIGITS && digits[n] == ':') {
            unsigned line = 0;

            while (n-- > 0)
                line = line * 10 + (unsigned)(*digits++ - '0');
            return line;
        }
    }
    return 0;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool gate_read_sums(const char *text, size_t size, const char *const *names, size_t n,
                    uint8_t (*ret)[32])
{
    const char *end = text + size;

    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(names[i]);

        if ((size_t)(end - text) < SUM_DIGITS + 2 + len + 1)
            return false;
        for (size_t k = 0; k < SUM_DIGITS / 2; k++) {
            int high = digit(text[2 * k]), low = digit(text[2 * k + 1]);

            if (high < 0 || low < 0)
                return false;
            ret[i][k] = (uint8_t)(high << 4 | low);
        }
        text += SUM_DIGITS;
        if (text[0] != ' ' || (text[1] != ' ' && text[1] != '*') ||
            memcmp(text + 2, names[i], len + 1) != 0)
            return false;
        text += 2 + len + 1;
    }
    return text == end;
}

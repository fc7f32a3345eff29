/* What a sandbox answers to the gate: records, sums, links, complaints of shells and
 * installers. The first byte says which of them the rest is. */
#include <stdlib.h>
#include <string.h>

#include "services/skills/work/blame.h"
#include "services/skills/work/gate_read.h"
#include "services/skills/work/links.h"
#include "tests/fuzz/fuzz.h"

enum { RECORDS = 5 };

static void need(bool promise)
{
    if (!promise)
        abort();
}

static bool records(const char *text, size_t size)
{
    struct gate_record list[RECORDS];
    bool is_whole = gate_read(text, size, list, RECORDS);
    size_t n_said = 0;

    for (size_t i = 0; i < RECORDS; i++) {
        n_said += list[i].state != GATE_UNSAID;
        need(list[i].state <= GATE_ODD && strlen(list[i].text) <= size);
        (void)gate_shell_line(list[i].text);
    }
    return is_whole && n_said > 0;
}

static bool sums(const char *text, size_t size)
{
    static const char *const names[] = {"./SKILL.md", "./requirements.txt"};
    uint8_t list[2][32];

    return gate_read_sums(text, size, names, 2, list);
}

/* An absolute path from its first real part on. */
static const char *behind_root(const char *path)
{
    for (;;) {
        path += strspn(path, "/");
        if (strncmp(path, "./", 2) == 0)
            path += 1;
        else if (strncmp(path, "../", 3) == 0)
            path += 2;
        else
            return path;
    }
}

/* No link that is let through leads anywhere but down from where it starts. */
static bool link_of(const char *text, size_t size)
{
    const char *target = memchr(text, 0, size);
    enum link_verdict verdict;

    if (!target)
        return false;
    verdict = link_judge(text, target + 1);
    /* At the root ".." is the root. */
    if (verdict == LINK_SYSTEM && target[1] == '/')
        need(!strstr(behind_root(target + 1), "/../"));
    return verdict == LINK_INSIDE || verdict == LINK_SYSTEM;
}

static bool blamed(const char *text, size_t size)
{
    struct blame blame;

    blame_read(text, size, &blame);
    need(strlen(blame.package) <= BLAME_PACKAGE_MAX && strlen(blame.line) <= BLAME_LINE_MAX);
    need(*blame_text(blame.kind));
    blame_mask(blame.line, strlen(blame.line));
    need(blame_is_offline(text, size) || blame.kind != BLAME_NO_NETWORK);
    return blame.kind != BLAME_OTHER;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    bool accepts = false;
    char *text;

    if (size == 0)
        return false;
    text = malloc(size); /* exactly: a byte read behind it is seen */
    need(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    switch (data[0]) {
    case 'r':
        accepts = records(text, size - 1);
        break;
    case 's':
        accepts = sums(text, size - 1);
        break;
    case 'l':
        accepts = link_of(text, size - 1);
        break;
    case 'b':
        accepts = blamed(text, size - 1);
        break;
    default:
        break;
    }
    free(text);
    return accepts;
}

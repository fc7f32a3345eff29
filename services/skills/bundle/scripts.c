#include "services/skills/bundle/scripts.h"

#include <errno.h>

enum { HEAD_SIZE = 128 };

static bool find_by_name(const char *path, enum script_language *ret)
{
    static const struct {
        const char *end;
        enum script_language language;
    } ends[] = {{".py", SCRIPT_PYTHON}, {".js", SCRIPT_NODE}, {".mjs", SCRIPT_NODE},
                {".cjs", SCRIPT_NODE},  {".sh", SCRIPT_SH},   {".bash", SCRIPT_BASH}};
    const char *dot = strrchr(path_base(path), '.');

    for (size_t i = 0; dot && i < BERTH_COUNT(ends); i++) {
        if (strcmp(dot, ends[i].end) == 0) {
            *ret = ends[i].language;
            return true;
        }
    }
    return false;
}

/* "#!/usr/bin/env -S python3 -u", "#!/bin/bash": the last part of the program's path, without
 * its version. */
static bool find_by_line(const char *line, enum script_language *ret)
{
    static const struct {
        const char *program;
        enum script_language language;
    } programs[] = {{"python", SCRIPT_PYTHON}, {"node", SCRIPT_NODE}, {"nodejs", SCRIPT_NODE},
                    {"sh", SCRIPT_SH},         {"dash", SCRIPT_SH},   {"bash", SCRIPT_BASH}};

    if (strncmp(line, "#!", 2) != 0)
        return false;
    line += 2;
    for (;;) {
        size_t gap = strspn(line, " \t"), len = strcspn(line + gap, " \t\r\n"), bare;
        const char *word = line + gap, *slash;

        if (len == 0)
            return false;
        line = word + len;
        slash = memrchr(word, '/', len);
        if (slash) {
            len -= (size_t)(slash + 1 - word);
            word = slash + 1;
        }
        if ((len == 3 && memcmp(word, "env", 3) == 0) || (len > 0 && *word == '-') ||
            memchr(word, '=', len))
            continue;
        for (bare = len; bare > 0 && strchr("0123456789.", word[bare - 1]); bare--)
            ;
        for (size_t i = 0; i < BERTH_COUNT(programs); i++) {
            if (strlen(programs[i].program) == bare &&
                memcmp(word, programs[i].program, bare) == 0) {
                *ret = programs[i].language;
                return true;
            }
        }
        return false;
    }
}

static enum berth_code read_head(const struct bundle *bundle, const struct bundle_entry *entry,
                                 char head[HEAD_SIZE + 1], struct berth_error *err)
{
    size_t size = entry->size < HEAD_SIZE ? (size_t)entry->size : HEAD_SIZE;
    ssize_t n;

    do
        n = pread(bundle->spool_fd, head, size, (off_t)entry->offset);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)size)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "read the spool: %s",
                          n < 0 ? strerror(errno) : "it is too short");
    head[size] = 0;
    head[strcspn(head, "\r\n")] = 0;
    return BERTH_OK;
}

static bool is_word(const char *text, size_t len, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(words[i]) == len && memcmp(words[i], text, len) == 0)
            return true;
    return false;
}

static bool is_auxiliary(const char *path)
{
    static const char *const folders[] = {
        "test",    "tests",    "testing",    "__tests__", "example", "examples", "sample",
        "samples", "fixtures", "benchmarks", "benchmark", "doc",     "docs"};
    static const char *const names[] = {"conftest", "setup"};
    const char *base = path_base(path);
    size_t len = strcspn(base, ".");

    for (const char *at = path; at < base;) {
        size_t here = strcspn(at, "/");

        if (is_word(at, here, folders, BERTH_COUNT(folders)))
            return true;
        at += here + 1;
    }
    return is_word(base, len, names, BERTH_COUNT(names)) || strncmp(base, "test_", 5) == 0 ||
           (len > 5 && strncmp(base + len - 5, "_test", 5) == 0);
}

static bool is_foreign(const char *path)
{
    return strncmp(path, "node_modules/", 13) == 0 || strstr(path, "/node_modules/");
}

enum berth_code bundle_scripts(const struct bundle *bundle, struct bundle_script **ret,
                               size_t *ret_n, struct berth_error *err)
{
    BERTH_AUTO(free) struct bundle_script *list = NULL;
    size_t n = 0;

    for (size_t i = 0; i < bundle->n_entries; i++) {
        const struct bundle_entry *entry = &bundle->entries[i];
        enum script_language language = SCRIPT_SH;
        char head[HEAD_SIZE + 1];

        if (entry->is_directory || is_foreign(entry->path))
            continue;
        if (!find_by_name(entry->path, &language)) {
            enum berth_code code;

            if (!entry->is_executable)
                continue;
            code = read_head(bundle, entry, head, err);
            if (code)
                return code;
            if (!find_by_line(head, &language))
                continue;
        }
        if (!list) /* as many as there can be */
            list = calloc(bundle->n_entries, sizeof *list);
        if (!list)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        list[n++] = (struct bundle_script){entry->path, language, is_auxiliary(entry->path)};
    }
    *ret = BERTH_STEAL(list);
    *ret_n = n;
    return BERTH_OK;
}

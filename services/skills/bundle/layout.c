/* layout.c - where in the archive the skill is, and whether its files can live side by side on
 * any file system. */
#include <stdio.h>
#include <strings.h>
#include <wctype.h>

#include "common/base/utf8.h"
#include "services/skills/bundle/read.h"

#define SKILL_MD "SKILL.md"

enum { NESTED_SAID_MAX = 5 };

static int compare_entries(const void *a, const void *b)
{
    const struct bundle_entry *x = a, *y = b;
    int order = strcmp(x->path, y->path);

    return order ? order : (int)y->is_directory - (int)x->is_directory;
}

/* ------------------------------------------------------------------ where the skill is */

static bool is_skill_md(const struct bundle_entry *entry)
{
    return !entry->is_directory && strcmp(path_base(entry->path), SKILL_MD) == 0;
}

static bool is_misspelt(const struct bundle_entry *entry)
{
    return !entry->is_directory && strcasecmp(path_base(entry->path), SKILL_MD) == 0 &&
           !is_skill_md(entry);
}

/* Bytes of the one folder that everything stands in, with its '/'; 0: there is none. */
static size_t common_folder(const struct bundle *bundle)
{
    const char *first = bundle->entries[0].path;
    size_t len = strcspn(first, "/");

    for (size_t i = 0; i < bundle->n_entries; i++) {
        const struct bundle_entry *entry = &bundle->entries[i];

        if (strncmp(entry->path, first, len) != 0)
            return 0;
        if (entry->path[len] != '/' && !(entry->path[len] == 0 && entry->is_directory))
            return 0;
    }
    return len + 1;
}

static void say_missing(const struct bundle *bundle, struct findings *findings)
{
    const struct bundle_entry *found[2] = {NULL}, *misspelt = NULL;

    for (size_t i = 0; i < bundle->n_entries; i++) {
        const struct bundle_entry *entry = &bundle->entries[i];

        if (is_skill_md(entry) && !found[1])
            found[found[0] ? 1 : 0] = entry;
        if (is_misspelt(entry) && !misspelt)
            misspelt = entry;
    }
    if (found[1])
        findings_add(findings, FINDING_TWO_SKILLS, found[1]->path, 0,
                     "a bundle holds one skill; another one stands in '%s'", found[0]->path);
    else if (found[0])
        findings_add(findings, FINDING_SKILL_MD_MISSING, found[0]->path, 0,
                     SKILL_MD " stands neither at the root nor in one folder that holds "
                              "everything else, too");
    else if (misspelt)
        findings_add(findings, FINDING_SKILL_MD_MISSING, misspelt->path, 0,
                     "the file must be called " SKILL_MD ", in this spelling");
    else
        findings_add(findings, FINDING_SKILL_MD_MISSING, NULL, 0,
                     "there is no " SKILL_MD " at the root or in the one folder");
}

/* *ret_skip: bytes to take off each path. False: no skill here; a finding says why. */
static bool find_root(const struct bundle *bundle, struct findings *findings, size_t *ret_skip)
{
    const struct bundle_entry *entry = bundle_find(bundle, SKILL_MD);
    size_t len = common_folder(bundle);
    char path[BUNDLE_PATH_MAX + sizeof SKILL_MD + 1];

    *ret_skip = 0;
    if (entry && !entry->is_directory)
        return true;
    if (len > 0) {
        snprintf(path, sizeof path, "%.*s/" SKILL_MD, (int)len - 1, bundle->entries[0].path);
        entry = bundle_find(bundle, path);
        if (entry && !entry->is_directory) {
            *ret_skip = len;
            return true;
        }
    }
    say_missing(bundle, findings);
    return false;
}

/* False: no memory. */
static bool strip(struct bundle *bundle, size_t skip, struct findings *findings)
{
    size_t kept = 0;

    if (skip == 0)
        return true;
    bundle->folder = strndup(bundle->entries[0].path, skip - 1);
    if (!bundle->folder)
        return false;
    findings_add(findings, FINDING_FOLDER_STRIPPED, bundle->folder, 0,
                 "everything stands in this folder: it is taken as the skill's own");
    for (size_t i = 0; i < bundle->n_entries; i++) {
        struct bundle_entry *entry = &bundle->entries[i];

        if (strlen(entry->path) <= skip) {
            free(entry->path);
            continue;
        }
        memmove(entry->path, entry->path + skip, strlen(entry->path + skip) + 1);
        bundle->entries[kept++] = *entry;
    }
    bundle->n_entries = kept;
    return true;
}

/* ---------------------------------------------------------------------- collisions */

/* A path or one of the folders that it implies. */
struct node {
    char *folded; /* owned; its start as long as the path, in lower case */
    const char *path;
    size_t len;
    bool is_directory;
};

static size_t encode(char *buf, uint32_t point)
{
    if (point < 0x80) {
        buf[0] = (char)point;
        return 1;
    }
    if (point < 0x800) {
        buf[0] = (char)(0xc0 | point >> 6);
        buf[1] = (char)(0x80 | (point & 0x3f));
        return 2;
    }
    if (point < 0x10000) {
        buf[0] = (char)(0xe0 | point >> 12);
        buf[1] = (char)(0x80 | (point >> 6 & 0x3f));
        buf[2] = (char)(0x80 | (point & 0x3f));
        return 3;
    }
    buf[0] = (char)(0xf0 | point >> 18);
    buf[1] = (char)(0x80 | (point >> 12 & 0x3f));
    buf[2] = (char)(0x80 | (point >> 6 & 0x3f));
    buf[3] = (char)(0x80 | (point & 0x3f));
    return 4;
}

/* Lower case of len bytes of UTF-8; owned. */
static char *fold(const char *path, size_t len)
{
    char *folded = malloc(4 * len + 1);
    size_t used = 0;

    for (size_t at = 0; folded && at < len;) {
        uint32_t point = 0;
        size_t step = berth_utf8_step(path + at, len - at, &point);

        used += encode(folded + used, (uint32_t)towlower((wint_t)point));
        at += step ? step : 1;
    }
    if (folded)
        folded[used] = 0;
    return folded;
}

static int compare_nodes(const void *a, const void *b)
{
    const struct node *x = a, *y = b;
    int order = strcmp(x->folded, y->folded);
    size_t len = x->len < y->len ? x->len : y->len;

    if (order == 0)
        order = memcmp(x->path, y->path, len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

static bool add_node(struct node *nodes, size_t *n, const char *path, size_t len,
                     bool is_directory)
{
    struct node node = {fold(path, len), path, len, is_directory};

    if (!node.folded)
        return false;
    nodes[(*n)++] = node;
    return true;
}

static size_t count_nodes(const struct bundle *bundle)
{
    size_t n = bundle->n_entries;

    for (size_t i = 0; i < bundle->n_entries; i++)
        for (const char *c = bundle->entries[i].path; *c; c++)
            n += *c == '/';
    return n;
}

/* Each path once, and the folders of it that the path before it was not in. */
static bool collect_nodes(const struct bundle *bundle, struct node *nodes, size_t *n)
{
    const char *before = "";

    for (size_t i = 0; i < bundle->n_entries; i++) {
        const struct bundle_entry *entry = &bundle->entries[i];
        const char *path = entry->path;

        for (size_t at = 0; path[at]; at++)
            if (path[at] == '/' && strncmp(before, path, at + 1) != 0 &&
                !add_node(nodes, n, path, at, true))
                return false;
        if (!add_node(nodes, n, path, strlen(path), entry->is_directory))
            return false;
        before = path;
    }
    return true;
}

static void compare_neighbours(const struct node *nodes, size_t n, struct findings *findings)
{
    for (size_t i = 1; i < n; i++) {
        const struct node *x = &nodes[i - 1], *y = &nodes[i];
        bool same = x->len == y->len && memcmp(x->path, y->path, x->len) == 0;
        char path[BUNDLE_PATH_MAX + 1];

        if (strcmp(x->folded, y->folded) != 0 || (same && x->is_directory && y->is_directory))
            continue;
        snprintf(path, sizeof path, "%.*s", (int)y->len, y->path);
        if (!same)
            findings_add(findings, FINDING_CASE_COLLISION, path, 0,
                         "differs from '%.*s' in case only: one file on some systems, two on "
                         "others",
                         (int)x->len, x->path);
        else
            findings_add(findings, FINDING_DUPLICATE_ENTRY, path, 0, "%s",
                         x->is_directory != y->is_directory
                             ? "stands there as a file and as a folder"
                             : "stands there twice");
    }
}

static enum berth_code find_collisions(const struct bundle *bundle, struct findings *findings,
                                       struct berth_error *err)
{
    struct node *nodes = calloc(count_nodes(bundle) + 1, sizeof *nodes);
    size_t n = 0;
    bool ok = nodes && collect_nodes(bundle, nodes, &n);

    if (ok) {
        qsort(nodes, n, sizeof *nodes, compare_nodes);
        compare_neighbours(nodes, n, findings);
    }
    for (size_t i = 0; i < n; i++)
        free(nodes[i].folded);
    free(nodes);
    return ok ? BERTH_OK : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* ------------------------------------------------------------------------------ all */

/* A folder may be told more than once. */
static void drop_repeated_folders(struct bundle *bundle)
{
    size_t kept = 0;

    for (size_t i = 0; i < bundle->n_entries; i++) {
        struct bundle_entry *entry = &bundle->entries[i];

        if (kept > 0 && entry->is_directory && bundle->entries[kept - 1].is_directory &&
            strcmp(bundle->entries[kept - 1].path, entry->path) == 0)
            free(entry->path);
        else
            bundle->entries[kept++] = *entry;
    }
    bundle->n_entries = kept;
}

static void say_what_is_plain(const struct bundle *bundle, struct findings *findings)
{
    unsigned n_nested = 0, n_archives = 0;

    for (size_t i = 0; i < bundle->n_entries; i++) {
        const struct bundle_entry *entry = &bundle->entries[i];

        if ((is_skill_md(entry) || is_misspelt(entry)) && strcmp(entry->path, SKILL_MD) != 0 &&
            n_nested++ < NESTED_SAID_MAX)
            findings_add(findings, FINDING_NESTED_SKILL, entry->path, 0,
                         "no skill of its own: ignored as one, kept as a file");
        if (!entry->is_directory && path_is_archive(entry->path) &&
            n_archives++ < NESTED_SAID_MAX)
            findings_add(findings, FINDING_NESTED_ARCHIVE, entry->path, 0,
                         "kept as a file; it is not unpacked, nor looked into");
    }
}

enum berth_code bundle_lay_out(struct bundle *bundle, struct findings *findings,
                               struct berth_error *err)
{
    enum berth_code code;
    size_t skip = 0;

    qsort(bundle->entries, bundle->n_entries, sizeof *bundle->entries, compare_entries);
    if (find_root(bundle, findings, &skip)) {
        if (!strip(bundle, skip, findings))
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        say_what_is_plain(bundle, findings);
    }
    code = find_collisions(bundle, findings, err);
    if (code)
        return code;
    drop_repeated_folders(bundle);
    bundle->total_bytes = 0;
    for (size_t i = 0; i < bundle->n_entries; i++) {
        bundle->n_files += !bundle->entries[i].is_directory;
        bundle->total_bytes += bundle->entries[i].size;
    }
    return BERTH_OK;
}

/* test_archive.c - bundles of every kind of archive: what is taken, what is refused and why,
 * and that one content has one digest and one tar. */
#include <check.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/crypto/crypto.h"
#include "services/skills/bundle/judge.h"
#include "services/skills/bundle/tar.h"
#include "services/skills/bundle/text.h"
#include "tests/lib/packer.h"

#define MD "---\nname: pdf\ndescription: Reads.\n---\nRead it.\n"
#define NONE FINDING_CODES
#define LONG_NAME                                                                              \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567" \
    "8901234567890123456789012345678901234567890123456789012345678901234567890123456789012345" \
    "6789012345678901234567890123456789012345678901234567890123456789012345678901234567890123"

static struct bundle_verdict verdict;
static int spool = -1;

static void set_up(void)
{
    spool = pack_spool();
    verdict = (struct bundle_verdict){0};
}

static void tear_down(void)
{
    bundle_verdict_deinit(&verdict);
    close(spool);
}

static void judge_bytes(const void *data, size_t size, const struct bundle_limits *limits,
                        enum bundle_format format)
{
    struct bundle_source source = {
        .fd = -1, .data = data, .size = size, .limits = limits, .format = format};
    struct berth_error err = {0};

    if (spool >= 0)
        tear_down();
    set_up();
    ck_assert_msg(bundle_judge(&source, spool, NULL, NULL, &verdict, &err) == BERTH_OK, "%s",
                  err.text);
}

static char judge(enum pack_format format, const struct pack_file *files, size_t n)
{
    size_t size;
    BERTH_AUTO(free) void *data = pack_archive(format, files, n, 1700000000, NULL, &size);

    judge_bytes(data, size, NULL, BUNDLE_FORMAT_ANY);
    return !verdict.is_accepted                           ? 'R'
           : verdict.findings.counts[FINDING_WARNING] > 0 ? 'W'
                                                          : 'A';
}

static const struct finding *find(enum finding_code code)
{
    for (size_t i = 0; i < verdict.findings.n; i++)
        if (verdict.findings.list[i].code == code)
            return &verdict.findings.list[i];
    return NULL;
}

static const char *said(void)
{
    return verdict.findings.n ? verdict.findings.list[0].message : "nothing";
}

/* Case 29: what is added to a good skill, the verdict, and the finding at that file. */
static const struct {
    struct pack_file file;
    char verdict;
    enum finding_code code;
    const char *at; /* NULL: the file's path */
    int only;       /* 0: tar and zip; 't' or 'z' */
} rows[] = {
    {{"scripts/run.sh", "#!/bin/sh\n", .mode = 0755}, 'A', NONE, 0, 0},
    {{"empty/", NULL}, 'A', NONE, 0, 0},
    {{"./a/./b//c", "x"}, 'A', NONE, 0, 0},
    {{"資料/読む.md", "x"}, 'A', NONE, 0, 0},
    {{"資料/読む.md", "x", .raw_name = true}, 'A', NONE, 0, 'z'},
    {{"a b+c@d#e.txt", "x"}, 'A', NONE, 0, 0},
    {{"__MACOSX/._SKILL.md", "x"}, 'A', FINDING_LITTER_IGNORED, 0, 0},
    {{"a/.DS_Store", "x"}, 'A', FINDING_LITTER_IGNORED, 0, 0},
    {{"Thumbs.db", "x"}, 'A', FINDING_LITTER_IGNORED, 0, 0},
    {{"__MACOSX/link", "/etc", .kind = 'l'}, 'A', FINDING_LITTER_IGNORED, 0, 0},
    {{".venv/bin/python", "/usr/bin/python3", .kind = 'l'},
     'W',
     FINDING_ENVIRONMENT_DROPPED,
     0,
     0},
    {{"assets/data.zip", "PK"}, 'A', FINDING_NESTED_ARCHIVE, 0, 0},
    {{"docs/skill.md", "# API"}, 'A', FINDING_NESTED_SKILL, 0, 0},
    {{"other/SKILL.md", MD}, 'A', FINDING_NESTED_SKILL, 0, 0},
    {{"../evil", "x"}, 'R', FINDING_PATH_ESCAPES, 0, 0},
    {{"a/../../evil", "x"}, 'R', FINDING_PATH_ESCAPES, 0, 0},
    {{"a/..", "x"}, 'R', FINDING_PATH_ESCAPES, 0, 0},
    {{"/etc/passwd", "x"}, 'R', FINDING_PATH_ABSOLUTE, 0, 0},
    {{"C:/x", "x"}, 'R', FINDING_PATH_DRIVE, 0, 0},
    {{"c:x", "x"}, 'R', FINDING_PATH_DRIVE, 0, 0},
    {{"a\\..\\b", "x"}, 'R', FINDING_PATH_BACKSLASH, 0, 't'},
    {{"a\\b", "x"}, 'A', NONE, 0, 'z'}, /* old Windows zips; libarchive reads it as a/b */
    {{"a\\..\\..\\b", "x"}, 'R', FINDING_PATH_ESCAPES, "a/../../b", 'z'},
    {{"a\nb", "x"}, 'R', FINDING_PATH_CONTROL, "a\\u{a}b", 0},
    {{"a\xc2\x9b"
      "b",
      "x"},
     'R',
     FINDING_PATH_CONTROL,
     "a\\u{9b}b",
     0},
    {{"caf\xe9", "x", .raw_name = true}, 'R', FINDING_PATH_ENCODING, "caf\\x{e9}", 0},
    {{"a\xe2\x80\xae"
      "b",
      "x"},
     'W',
     FINDING_PATH_HIDDEN,
     "a\\u{202e}b",
     0},
    {{LONG_NAME, "x"}, 'R', FINDING_PATH_LONG, "", 0},
    {{"1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17", "x"}, 'R', FINDING_PATH_DEEP, 0, 0},
    {{"1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16", "x"}, 'A', NONE, 0, 0},
    {{"link", "/etc/passwd", .kind = 'l'}, 'R', FINDING_SYMLINK, 0, 0},
    {{"link", "SKILL.md", .kind = 'l'}, 'R', FINDING_SYMLINK, 0, 0},
    {{"hard", "SKILL.md", .kind = 'h'}, 'R', FINDING_HARD_LINK, 0, 't'},
    {{"dev", NULL, .kind = 'c'}, 'R', FINDING_SPECIAL_FILE, 0, 't'},
    {{"fifo", NULL, .kind = 'p'}, 'R', FINDING_SPECIAL_FILE, 0, 't'},
    {{"SKILL.md", "again"}, 'R', FINDING_DUPLICATE_ENTRY, 0, 0},
    {{"./SKILL.md", "again"}, 'R', FINDING_DUPLICATE_ENTRY, "SKILL.md", 0},
    {{"SKILL.md/x", "x"}, 'R', FINDING_DUPLICATE_ENTRY, "SKILL.md", 0},
    {{"skill.MD", "x"}, 'R', FINDING_CASE_COLLISION, "skill.MD", 0},
    {{"README/x", "x"}, 'R', FINDING_CASE_COLLISION, "readme", 0},
    {{"ÉTÉ", "x"}, 'R', FINDING_CASE_COLLISION, "été", 0},
};

/* Each entry beside a good skill, in a tar and in a zip. */
START_TEST(bundle_read__each_entry__as_the_format_says)
{
    struct pack_file files[] = {
        {"SKILL.md", MD}, {"readme", "x"}, {"été", "x"}, rows[_i / 2].file};
    bool zip = _i % 2;
    const char *at = rows[_i / 2].at ? rows[_i / 2].at : rows[_i / 2].file.path;
    const struct finding *finding;
    char got;

    if (rows[_i / 2].only == (zip ? 't' : 'z'))
        return;
    got = judge(zip ? PACK_ZIP : PACK_TAR, files, 4);
    ck_assert_msg(got == rows[_i / 2].verdict, "row %d: %c: %s", _i / 2, got, said());
    if (rows[_i / 2].code == NONE) {
        ck_assert_msg(verdict.findings.n == 0, "row %d: %s", _i / 2, said());
        return;
    }
    finding = find(rows[_i / 2].code);
    ck_assert_msg(finding != NULL, "row %d: %s", _i / 2, said());
    if (*at)
        ck_assert_str_eq(finding->file, at);
}
END_TEST

/* Where the skill may be, and where not. */
static const struct {
    struct pack_file files[4];
    char verdict;
    enum finding_code code;
} roots[] = {
    {{{"SKILL.md", MD}}, 'A', NONE},
    {{{"pdf/", NULL}, {"pdf/SKILL.md", MD}, {"pdf/a/b", "x"}}, 'A', FINDING_FOLDER_STRIPPED},
    {{{"./", NULL}, {"./pdf/SKILL.md", MD}}, 'A', FINDING_FOLDER_STRIPPED},
    {{{"pdf/SKILL.md", MD}, {"__MACOSX/pdf/._SKILL.md", "x"}, {".DS_Store", "x"}},
     'A',
     FINDING_FOLDER_STRIPPED},
    {{{"pdf-main/SKILL.md", MD}}, 'W', FINDING_NAME_DIFFERS},
    {{{"a/SKILL.md", MD}, {"b/SKILL.md", MD}}, 'R', FINDING_TWO_SKILLS},
    {{{"x/a/SKILL.md", MD}, {"x/b/SKILL.md", MD}}, 'R', FINDING_TWO_SKILLS},
    {{{"pdf/SKILL.md", MD}, {"README.md", "x"}}, 'R', FINDING_SKILL_MD_MISSING},
    {{{"x/pdf/SKILL.md", MD}}, 'R', FINDING_SKILL_MD_MISSING},
    {{{"skill.md", MD}}, 'R', FINDING_SKILL_MD_MISSING},
    {{{"SKILL.md/", NULL}, {"a", "x"}}, 'R', FINDING_SKILL_MD_MISSING},
    {{{"README.md", "x"}}, 'R', FINDING_SKILL_MD_MISSING},
    {{{NULL}}, 'R', FINDING_ARCHIVE_EMPTY},
    {{{".DS_Store", "x"}}, 'R', FINDING_ARCHIVE_EMPTY},
};

START_TEST(bundle_read__root__found_or_said)
{
    size_t n = 0;
    char got;

    while (n < 4 && roots[_i].files[n].path)
        n++;
    got = judge(_i % 2 ? PACK_ZIP : PACK_TAR_GZ, roots[_i].files, n);
    ck_assert_msg(got == roots[_i].verdict, "row %d: %c: %s", _i, got, said());
    if (roots[_i].code != NONE)
        ck_assert_msg(find(roots[_i].code) != NULL, "row %d: %s", _i, said());
    else
        ck_assert_uint_eq(verdict.findings.n, 0);
    if (verdict.is_accepted)
        ck_assert_ptr_nonnull(bundle_find(&verdict.bundle, "SKILL.md"));
}
END_TEST

/* Every finding at once: three entries and two keys. */
START_TEST(bundle_judge__many_faults__all_told)
{
    const struct pack_file files[] = {{"SKILL.md", "---\nallowed-tools: {}\n---\n"},
                                      {"/abs", "x"},
                                      {"link", "x", .kind = 'l'},
                                      {"a/package.json", "{"}};

    ck_assert_int_eq(judge(PACK_ZIP, files, 4), 'R');
    ck_assert(find(FINDING_PATH_ABSOLUTE) && find(FINDING_SYMLINK) &&
              find(FINDING_NAME_MISSING));
    ck_assert(find(FINDING_DESCRIPTION_MISSING) && find(FINDING_RESTRICTION_UNREAD));
    ck_assert_ptr_nonnull(find(FINDING_MANIFEST_INVALID));
}
END_TEST

/* ------------------------------------------------------------------------- limits */

static const struct bundle_limits small = {.total_bytes = 300,
                                           .file_bytes = 200,
                                           .n_entries = 5,
                                           .ratio = 1000,
                                           .free_bytes = 1 << 20};

/* Each limit is met, then passed by one; the message names it. */
static const struct {
    size_t sizes[5];
    enum finding_code code;
    const char *named;
} limits[] = {
    {{200, 53}, NONE, ""},
    {{201}, FINDING_FILE_TOO_LARGE, "200"},
    {{200, 54}, FINDING_ARCHIVE_TOO_LARGE, "300"},
    {{1, 1, 1, 1}, NONE, ""},
    {{1, 1, 1, 1, 1}, FINDING_TOO_MANY_ENTRIES, "5"},
};

START_TEST(bundle_read__limits__named)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    static const char content[201] = {0};
    struct pack_file files[6] = {{"SKILL.md", MD}};
    size_t n = 1, size;

    ck_assert_uint_eq(sizeof MD - 1, 47);
    for (; n <= 5 && limits[_i / 2].sizes[n - 1]; n++)
        files[n] = (struct pack_file){names[n - 1], content, limits[_i / 2].sizes[n - 1]};
    {
        BERTH_AUTO(free)
        void *data = pack_archive(_i % 2 ? PACK_ZIP : PACK_TAR, files, n, 0, NULL, &size);

        judge_bytes(data, size, &small, BUNDLE_FORMAT_ANY);
    }
    if (limits[_i / 2].code == NONE) {
        ck_assert_msg(verdict.is_accepted, "%s", said());
        return;
    }
    ck_assert_msg(find(limits[_i / 2].code) != NULL, "%s", said());
    ck_assert_ptr_nonnull(strstr(find(limits[_i / 2].code)->message, limits[_i / 2].named));
    ck_assert_uint_eq(verdict.bundle.n_entries, 0);
}
END_TEST

/* A zip whose directory has more entries than may be is refused before it is read: all of them
 * would be held in memory. */
START_TEST(bundle_read__endless_directory__not_read)
{
    size_t n = 2 * bundle_limits.n_entries + 2 - (size_t)_i, size = 4 * n;
    BERTH_AUTO(free) uint8_t *data = malloc(size);

    for (size_t i = 0; i < n; i++)
        memcpy(data + 4 * i, i == 0 ? "PK\3\4" : "PK\1\2", 4);
    judge_bytes(data, size, NULL, BUNDLE_FORMAT_ANY);
    ck_assert(!verdict.is_accepted);
    ck_assert_int_eq(find(FINDING_TOO_MANY_ENTRIES) != NULL, _i == 0);
}
END_TEST

/* A bomb is told by what it declares, before anything of it is unpacked. */
START_TEST(bundle_read__bomb_declared__nothing_unpacked)
{
    size_t bomb = 20 << 20, size;
    BERTH_AUTO(free) char *zeros = calloc(1, bomb);
    struct pack_file files[] = {{"SKILL.md", MD}, {"zeros", zeros, bomb}};
    BERTH_AUTO(free)
    void *data = pack_archive(_i ? PACK_ZIP : PACK_TAR_ZST, files, 2, 0, NULL, &size);
    struct stat spooled;

    judge_bytes(data, size, NULL, BUNDLE_FORMAT_ANY);
    ck_assert_msg(find(FINDING_ARCHIVE_BOMB) != NULL, "%s", said());
    ck_assert_int_eq(fstat(spool, &spooled), 0);
    ck_assert_int_lt(spooled.st_size, 1 << 20);
}
END_TEST

/* One that declares little: the size in both headers of the zip is a lie. */
START_TEST(bundle_read__bomb_undeclared__stopped)
{
    size_t bomb = 4 << 20, size;
    BERTH_AUTO(free) char *zeros = calloc(1, bomb);
    struct pack_file files[] = {{"SKILL.md", MD}, {"zeros", zeros, bomb}};
    BERTH_AUTO(free) uint8_t *data = pack_archive(PACK_ZIP, files, 2, 0, NULL, &size);
    const struct bundle_limits tight = {
        .total_bytes = 1 << 20, .file_bytes = 1 << 20, .n_entries = 10, .ratio = 50};
    const uint8_t real[4] = {0, 0, 0x40, 0};
    unsigned lies = 0;
    struct stat spooled;

    for (size_t i = 0; i + 4 <= size; i++)
        if (memcmp(data + i, real, 4) == 0) {
            data[i + 2] = 0;
            data[i] = 64;
            lies++;
        }
    ck_assert_uint_ge(lies, 1);
    judge_bytes(data, size, &tight, BUNDLE_FORMAT_ANY);
    ck_assert(!verdict.is_accepted);
    ck_assert_int_eq(fstat(spool, &spooled), 0);
    ck_assert_int_le(spooled.st_size, 1 << 20);
}
END_TEST

/* gzip in gzip, bzip2, a truncated archive, text, nothing: none of them is taken. */
START_TEST(bundle_read__other_bytes__refused)
{
    const struct pack_file files[] = {{"SKILL.md", MD}};
    size_t inner_size, size;
    BERTH_AUTO(free) void *inner = pack_archive(PACK_TAR_GZ, files, 1, 0, NULL, &inner_size);
    const struct pack_file twice[] = {{"SKILL.md", inner, inner_size}};
    BERTH_AUTO(free) void *outer = pack_archive(PACK_TAR_GZ, twice, 1, 0, NULL, &size);

    judge_bytes(outer, size, NULL, BUNDLE_FORMAT_ANY); /* a tar.gz that is the SKILL.md */
    ck_assert_ptr_nonnull(find(FINDING_ENCODING));
    judge_bytes("BZh91AY&SY", 10, NULL, BUNDLE_FORMAT_ANY);
    ck_assert(!verdict.is_accepted);
    judge_bytes("", 0, NULL, BUNDLE_FORMAT_ANY);
    ck_assert(!verdict.is_accepted);
    judge_bytes("PK\x03\x04", 4, NULL, BUNDLE_FORMAT_ANY);
    ck_assert(!verdict.is_accepted);
    judge_bytes(MD, sizeof MD - 1, NULL, BUNDLE_FORMAT_ANY);
    ck_assert(!verdict.is_accepted);
    judge_bytes(inner, inner_size, NULL, BUNDLE_FORMAT_ZIP);
    ck_assert_ptr_nonnull(find(FINDING_ARCHIVE_FORMAT));
}
END_TEST

/* Every truncation of every format is refused, and never crashes. */
START_TEST(bundle_read__cut_short__refused)
{
    const struct pack_file files[] = {{"SKILL.md", MD}, {"a", "content of a"}};
    size_t size;
    BERTH_AUTO(free) void *data = pack_archive((enum pack_format)_i, files, 2, 0, NULL, &size);
    size_t whole = _i == PACK_TAR ? 2048 : size; /* a tar may lack its end */

    for (size_t n = 0; n < whole; n += n < 2048 ? 7 : 101) {
        BERTH_AUTO(free) void *copy = malloc(n + 1);

        memcpy(copy, data, n);
        judge_bytes(copy, n, NULL, BUNDLE_FORMAT_ANY);
        ck_assert_msg(!verdict.is_accepted, "%zu of %zu bytes", n, size);
    }
}
END_TEST

/* A zip with a password is refused for that. */
START_TEST(bundle_read__encrypted__refused)
{
    const struct pack_file files[] = {{"SKILL.md", MD}};
    size_t size;
    BERTH_AUTO(free)
    void *data = pack_archive(PACK_ZIP, files, 1, 0, "zip:encryption=traditional", &size);

    judge_bytes(data, size, NULL, BUNDLE_FORMAT_ANY);
    ck_assert_msg(find(FINDING_ARCHIVE_ENCRYPTED) != NULL, "%s", said());
}
END_TEST

/* Told to stop, it does. */
START_TEST(bundle_read__stopped__cancelled)
{
    const struct pack_file files[] = {{"SKILL.md", MD}};
    size_t size;
    BERTH_AUTO(free) void *data = pack_archive(PACK_TAR, files, 1, 0, NULL, &size);
    const atomic_bool stop = true;
    const struct bundle_source source = {.fd = -1, .data = data, .size = size, .stop = &stop};
    struct berth_error err;

    ck_assert_int_eq(bundle_judge(&source, spool, NULL, NULL, &verdict, &err), BERTH_CANCELLED);
}
END_TEST

/* ------------------------------------------------------------- digest and normal tar */

static const struct pack_file whole[] = {
    {"SKILL.md", MD},          {"scripts/run.py", "print(1)\n", .mode = 0755},
    {"scripts/日本.txt", "x"}, {"references/deep/er/note.md", "# Note\n"},
    {"assets/", NULL},
};

/* Another format, order, time, mode or folder, told folders and litter: the same digest. */
START_TEST(bundle_digest__same_content__same_digest)
{
    static const struct pack_file other[] = {
        {"pdf/", NULL},
        {"pdf/references/", NULL},
        {"pdf/references/deep/er/note.md", "# Note\n", .mode = 0600},
        {"pdf/.DS_Store", "x"},
        {"pdf/assets/", NULL, .mode = 0700},
        {"pdf/scripts/日本.txt", "x"},
        {"pdf/scripts/", NULL},
        {"pdf/scripts/run.py", "print(1)\n", .mode = 04711},
        {"pdf/SKILL.md", MD},
    };
    uint8_t first[32];

    ck_assert_int_eq(judge(PACK_ZIP, whole, BERTH_COUNT(whole)), 'A');
    memcpy(first, verdict.digest, sizeof first);
    for (int format = 0; format < PACK_FORMATS; format++) {
        size_t size;
        BERTH_AUTO(free)
        void *data = pack_archive((enum pack_format)format, other, BERTH_COUNT(other), 4711,
                                  NULL, &size);

        judge_bytes(data, size, NULL, BUNDLE_FORMAT_ANY);
        ck_assert_msg(verdict.is_accepted, "%s", said());
        ck_assert_mem_eq(verdict.digest, first, sizeof first);
    }
}
END_TEST

/* Any change of content, name, run bit or empty folder: another digest. */
START_TEST(bundle_digest__other_content__other_digest)
{
    static const struct pack_file changes[] = {
        {"scripts/run.py", "print(2)\n", .mode = 0755},
        {"scripts/run.py", "print(1)\n"},
        {"scripts/run2.py", "print(1)\n", .mode = 0755},
        {"scripts/run.py/", NULL},
        {"scripts/run.py", "", .mode = 0755},
    };
    struct pack_file files[BERTH_COUNT(whole)];
    uint8_t first[32];

    (void)judge(PACK_TAR, whole, BERTH_COUNT(whole));
    memcpy(first, verdict.digest, sizeof first);
    for (size_t i = 0; i < BERTH_COUNT(changes); i++) {
        memcpy(files, whole, sizeof files);
        files[1] = changes[i];
        ck_assert_int_eq(judge(PACK_TAR, files, BERTH_COUNT(files)), 'A');
        ck_assert_mem_ne(verdict.digest, first, sizeof first);
    }
    ck_assert_int_eq(judge(PACK_TAR, whole, BERTH_COUNT(whole) - 1), 'A');
    ck_assert_mem_ne(verdict.digest, first, sizeof first);
}
END_TEST

struct bytes {
    uint8_t *data;
    size_t size;
};

static enum berth_code collect(void *arg, const void *data, size_t size,
                               struct berth_error *err)
{
    struct bytes *bytes = arg;

    (void)err;
    bytes->data = realloc(bytes->data, bytes->size + size);
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
    return BERTH_OK;
}

static struct bytes tar_of(const char *prefix)
{
    struct bytes bytes = {0};
    struct berth_error err = {0};

    ck_assert_msg(bundle_write_tar(&verdict.bundle, prefix, collect, &bytes, &err) == BERTH_OK,
                  "%s", err.text);
    return bytes;
}

/* The tar is the same for the same content, and reads back as what went in. */
START_TEST(bundle_write_tar__read_back__same_bundle)
{
    struct bytes first, second;
    uint8_t digest[32];

    (void)judge(PACK_ZIP, whole, BERTH_COUNT(whole));
    memcpy(digest, verdict.digest, sizeof digest);
    first = tar_of("pdf");
    (void)judge(PACK_TAR_ZST, whole, BERTH_COUNT(whole));
    second = tar_of("pdf");
    ck_assert_uint_eq(first.size, second.size);
    ck_assert_mem_eq(first.data, second.data, first.size);
    judge_bytes(first.data, first.size, NULL, BUNDLE_FORMAT_TAR);
    ck_assert_msg(verdict.is_accepted, "%s", said());
    ck_assert_mem_eq(verdict.digest, digest, sizeof digest);
    ck_assert_str_eq(verdict.bundle.folder, "pdf");
    ck_assert(bundle_find(&verdict.bundle, "scripts/run.py")->is_executable);
    free(first.data);
    free(second.data);
}
END_TEST

/* As tar(1) shows it: folders first, owned by root, with two modes and one time. */
START_TEST(bundle_write_tar__listing__normalised)
{
    static const char wanted[] = "drwxr-xr-x 0/0 2000-01-01 00:00:00 pdf/\n"
                                 "-rw-r--r-- 0/0 2000-01-01 00:00:00 pdf/SKILL.md\n"
                                 "drwxr-xr-x 0/0 2000-01-01 00:00:00 pdf/assets/\n"
                                 "drwxr-xr-x 0/0 2000-01-01 00:00:00 pdf/references/\n"
                                 "drwxr-xr-x 0/0 2000-01-01 00:00:00 pdf/references/deep/\n"
                                 "drwxr-xr-x 0/0 2000-01-01 00:00:00 pdf/references/deep/er/\n"
                                 "-rw-r--r-- 0/0 2000-01-01 00:00:00 "
                                 "pdf/references/deep/er/note.md\n"
                                 "drwxr-xr-x 0/0 2000-01-01 00:00:00 pdf/scripts/\n"
                                 "-rwxr-xr-x 0/0 2000-01-01 00:00:00 pdf/scripts/run.py\n"
                                 "-rw-r--r-- 0/0 2000-01-01 00:00:00 pdf/scripts/日本.txt\n";
    char path[] = "/tmp/berth-tar-XXXXXX", command[200], line[200], listing[2000] = "";
    int fd = mkstemp(path);
    struct bytes tar;
    FILE *pipe;
    size_t used = 0;

    (void)judge(PACK_ZIP, whole, BERTH_COUNT(whole));
    tar = tar_of("pdf");
    ck_assert_int_eq(write(fd, tar.data, tar.size), (ssize_t)tar.size);
    close(fd);
    snprintf(command, sizeof command,
             "TZ=UTC LC_ALL=C.UTF-8 tar --numeric-owner --full-time -tvf %s | "
             "awk '{print $1, $2, $4, $5, $6}'",
             path);
    pipe = popen(command, "r");
    while (fgets(line, sizeof line, pipe))
        used += (size_t)snprintf(listing + used, sizeof listing - used, "%s", line);
    pclose(pipe);
    unlink(path);
    free(tar.data);
    ck_assert_str_eq(listing, wanted);
}
END_TEST

static enum berth_code refuse(void *arg, const void *data, size_t size, struct berth_error *err)
{
    (void)arg;
    (void)data;
    (void)size;
    return berth_fail(err, BERTH_REASON_DISK_FULL, NULL);
}

/* The sink's failure is the failure. */
START_TEST(bundle_write_tar__sink_fails__its_error)
{
    struct berth_error err;

    (void)judge(PACK_TAR, whole, BERTH_COUNT(whole));
    ck_assert_int_eq(bundle_write_tar(&verdict.bundle, "pdf", refuse, NULL, &err),
                     BERTH_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_DISK_FULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("skills/archive");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_set_timeout(all, 30);
    tcase_add_loop_test(all, bundle_read__each_entry__as_the_format_says, 0,
                        2 * (int)BERTH_COUNT(rows));
    tcase_add_loop_test(all, bundle_read__root__found_or_said, 0, (int)BERTH_COUNT(roots));
    tcase_add_test(all, bundle_judge__many_faults__all_told);
    tcase_add_loop_test(all, bundle_read__limits__named, 0, 2 * (int)BERTH_COUNT(limits));
    tcase_add_loop_test(all, bundle_read__endless_directory__not_read, 0, 2);
    tcase_add_loop_test(all, bundle_read__bomb_declared__nothing_unpacked, 0, 2);
    tcase_add_test(all, bundle_read__bomb_undeclared__stopped);
    tcase_add_test(all, bundle_read__other_bytes__refused);
    tcase_add_loop_test(all, bundle_read__cut_short__refused, 0, PACK_FORMATS);
    tcase_add_test(all, bundle_read__encrypted__refused);
    tcase_add_test(all, bundle_read__stopped__cancelled);
    tcase_add_test(all, bundle_digest__same_content__same_digest);
    tcase_add_test(all, bundle_digest__other_content__other_digest);
    tcase_add_test(all, bundle_write_tar__read_back__same_bundle);
    tcase_add_test(all, bundle_write_tar__listing__normalised);
    tcase_add_test(all, bundle_write_tar__sink_fails__its_error);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* test_skill_md.c - SKILL.md: each case of the format's description, decided as written there:
 * accepted, accepted with a warning, or refused with the reason. */
#include <check.h>
#include <stdio.h>

#include "services/skills/bundle/frontmatter.h"
#include "services/skills/bundle/skill.h"
#include "services/skills/bundle/text.h"

#define HEAD "---\nname: pdf-tools\ndescription: Reads PDF files.\n"
#define NONE FINDING_CODES

static struct findings findings;
static struct skill skill;

static void set_up(void)
{
    findings = (struct findings){0};
    skill = (struct skill){0};
}

static void tear_down(void)
{
    findings_deinit(&findings);
    skill_deinit(&skill);
}

static char judge_in(const char *text, size_t size, const char *folder)
{
    struct berth_error err;
    char *copy = malloc(size + 1); /* so that a sanitizer sees one byte more */

    memcpy(copy, text, size);
    copy[size] = 0;
    ck_assert_int_eq(skill_read_text(copy, size, folder, &findings, &skill, &err), BERTH_OK);
    free(copy);
    ck_assert(!findings.no_memory);
    return findings_refuse(&findings) ? 'R' : findings.counts[FINDING_WARNING] > 0 ? 'W' : 'A';
}

static char judge(const char *text)
{
    return judge_in(text, strlen(text), NULL);
}

static const struct finding *find(enum finding_code code)
{
    for (size_t i = 0; i < findings.n; i++)
        if (findings.list[i].code == code)
            return &findings.list[i];
    return NULL;
}

/* Number of the case; what it is; verdict; the code that says why and its line. */
static const struct {
    int number;
    const char *text;
    char verdict;
    enum finding_code code;
    unsigned line;
} rows[] = {
    {1, HEAD "---\n", 'A', NONE, 0},
    {2, HEAD "---", 'A', NONE, 0},
    {3, "---\r\nname: pdf-tools\r\ndescription: Reads.\r\n---\r\nBody\r\n", 'A', NONE, 0},
    {3, "---\rname: pdf-tools\rdescription: Reads.\r---\rBody\r", 'A', NONE, 0},
    {4, "\xef\xbb\xbf" HEAD "---\n", 'A', FINDING_BOM_STRIPPED, 1},
    {4, "\xef\xbb\xbf\xef\xbb\xbf" HEAD "---\n", 'R', FINDING_FRONTMATTER_MISSING, 1},
    {6, HEAD "license: caf\xe9\n---\n", 'R', FINDING_ENCODING, 4},
    {6, HEAD "---\nbody\n\n\xff\n", 'R', FINDING_ENCODING, 7},
    {7, "---  \nname: pdf-tools\ndescription: Reads.\n--- \t\nBody\n", 'A', NONE, 0},
    {8, "# Reads PDF files\n", 'R', FINDING_FRONTMATTER_MISSING, 1},
    {8, "", 'R', FINDING_FRONTMATTER_MISSING, 1},
    {8, "\n" HEAD "---\n", 'R', FINDING_FRONTMATTER_MISSING, 1},
    {8, "----\nname: a\n----\n", 'R', FINDING_FRONTMATTER_MISSING, 1},
    {9, HEAD, 'R', FINDING_FRONTMATTER_UNCLOSED, 1},
    {9, "---", 'R', FINDING_FRONTMATTER_UNCLOSED, 1},
    {10, "---\n---\n", 'R', FINDING_NAME_MISSING, 0},
    {10, "---\n\n# only a comment\n---\n", 'R', FINDING_DESCRIPTION_MISSING, 0},
    {10, "---\nname:\ndescription: Reads.\n---\n", 'R', FINDING_NAME_MISSING, 2},
    {10, "---\nname: ' '\ndescription: Reads.\n---\n", 'R', FINDING_NAME_MISSING, 2},
    {10, "---\nname: a\ndescription: ''\n---\n", 'R', FINDING_DESCRIPTION_MISSING, 3},
    {11, "---\n- name\n- description\n---\n", 'R', FINDING_FRONTMATTER_NOT_A_MAPPING, 2},
    {11, "---\npdf-tools\n---\n", 'R', FINDING_FRONTMATTER_NOT_A_MAPPING, 2},
    {12, "---\nname: a\ndescription: Use when: asked.\n---\n", 'W',
     FINDING_DESCRIPTION_REQUOTED, 3},
    {12, "---\nname: a\ndescription: it's for: 'x', and\n  more: y\n---\n", 'W',
     FINDING_DESCRIPTION_REQUOTED, 3},
    {12, "---\nname: a\ndescription: Ends so:\n---\n", 'W', FINDING_DESCRIPTION_REQUOTED, 3},
    {12, HEAD "argument-hint: file: path\n---\n", 'W', FINDING_VALUE_REQUOTED, 4},
    {12, "---\nname: a\ndescription: one: two\nhint: three: four\n---\n", 'R',
     FINDING_YAML_INVALID, 3},
    {12, "---\nname: a\ndescription: one: two # three\n---\n", 'R', FINDING_YAML_INVALID, 3},
    {12, "---\nname: a\ndescription: [one] two: three\n---\n", 'R', FINDING_YAML_INVALID, 3},
    {12, "---\nname: a\ndescription: \"one\" two: three\n---\n", 'R', FINDING_YAML_INVALID, 3},
    {12, "---\nname: a\ndescription: &x one: two\n---\n", 'R', FINDING_YAML_ALIAS, 3},
    {13, "---\nname: a\ndescription: >\n  folded\n\n  more\n---\n", 'A', NONE, 0},
    {13, "---\nname: a\ndescription: >-\n  folded: yes\n---\n", 'A', NONE, 0},
    {13, "---\nname: a\ndescription: |\n  one\n\n  ---\n  two\n---\n", 'A', NONE, 0},
    {14, "---\nname: a\ndescription: plain\n  goes on\n\n  and on\n---\n", 'A', NONE, 0},
    {15, "---\nname: a\ndescription: \"say \\\"x\\\": \\u00e9 --- \\\\\"\n---\n", 'A', NONE, 0},
    {15, "---\nname: a\ndescription: a --- b\n---\n", 'A', NONE, 0},
    {16, "---\nname: Ahrefs Automation\ndescription: x\n---\n", 'W', FINDING_NAME_SLUGGED, 2},
    {17, "---\nname: 数据分析\ndescription: x\n---\n", 'W', FINDING_NAME_NOT_ASCII, 2},
    {18, "---\nname: -pdf\ndescription: x\n---\n", 'W', FINDING_NAME_SLUGGED, 2},
    {19, "---\nname: pdf_tools\ndescription: x\n---\n", 'W', FINDING_NAME_SLUGGED, 2},
    {19, "---\nname: pdf--tools\ndescription: x\n---\n", 'W', FINDING_NAME_SLUGGED, 2},
    {23, HEAD "a:\n  b:\n    c:\n      d: [1, {e: f}]\n---\n", 'A', NONE, 0},
    {23, HEAD "requires:\n  mcp: [rube]\neffort: high\ntriggers:\n  - a\n---\n", 'A', NONE, 0},
    {23, HEAD "argument-hint: [file]\n---\n", 'A', NONE, 0},
    {24, HEAD "allowed-tools: Bash(git:*) Read\n---\n", 'A', NONE, 0},
    {24, HEAD "allowed-tools:\n  - Bash(git add:*, x)\n  - Read\n---\n", 'A', NONE, 0},
    {24, HEAD "allowed-tools: ''\n---\n", 'A', NONE, 0},
    {24, HEAD "allowed-tools:\n---\n", 'A', NONE, 0},
    {24, HEAD "allowed-tools: Bash (git:*)\n---\n", 'R', FINDING_RESTRICTION_UNREAD, 4},
    {24, HEAD "allowed-tools: Bash(git:*\n---\n", 'R', FINDING_RESTRICTION_UNREAD, 4},
    {24, HEAD "allowed-tools: {Read: yes}\n---\n", 'R', FINDING_RESTRICTION_UNREAD, 4},
    {24, HEAD "allowed-tools: [Read, [Bash]]\n---\n", 'R', FINDING_RESTRICTION_UNREAD, 4},
    {24, HEAD "allowed-tools: [Read, ]\n---\n", 'A', NONE, 0},
    {24, HEAD "allowed-tools\xe2\x80\x8b: Read\n---\n", 'R', FINDING_YAML_INVALID, 4},
    {24, HEAD "'allowed-tools': Read\n---\n", 'A', NONE, 0},
    {24, HEAD "allowed_tools: Read\n---\n", 'W', FINDING_RESTRICTION_RESPELT, 4},
    {24, HEAD "allowedTools: Read\nallowed-tools: Bash\n---\n", 'R', FINDING_RESTRICTION_UNREAD,
     5},
    {24, HEAD "allowed-tools: Bash(git: *)\n---\n", 'R', FINDING_RESTRICTION_UNREAD, 4},
    {24, "---\nname: a\ndescription: b: c\nallowed-tools: Read\n---\n", 'W',
     FINDING_DESCRIPTION_REQUOTED, 3},
    {24, "---\nname: a\ndescription: b: c\n  allowed-tools: Read\n---\n", 'R',
     FINDING_RESTRICTION_UNREAD, 3},
    {24, "---\nname: a\ndescription: b: c Allowed_Tools: Read\n---\n", 'R',
     FINDING_RESTRICTION_UNREAD, 3},
    {24, HEAD "disable-model-invocation: true\nuser-invocable: No\n---\n", 'A', NONE, 0},
    {24, HEAD "disable-model-invocation: perhaps\n---\n", 'R', FINDING_RESTRICTION_UNREAD, 4},
    {24, HEAD "disable-model-invocation:\n---\n", 'R', FINDING_RESTRICTION_UNREAD, 4},
    {26, HEAD "a: &x 1\n---\n", 'R', FINDING_YAML_ALIAS, 4},
    {26, HEAD "a: *x\n---\n", 'R', FINDING_YAML_ALIAS, 4},
    {26, HEAD "<<: *base\n---\n", 'R', FINDING_YAML_ALIAS, 4},
    {26, HEAD "a: &a [l, l]\nb: &b [*a, *a]\nc: [*b, *b]\n---\n", 'R', FINDING_YAML_ALIAS, 4},
    {26, HEAD "&k key: 1\n---\n", 'R', FINDING_YAML_ALIAS, 4},
    {26, HEAD "a: !!python/object:os.system x\n---\n", 'R', FINDING_YAML_TAG, 4},
    {27, HEAD "metadata:\n\ta: 1\n---\n", 'R', FINDING_YAML_TAB, 5},
    {0, HEAD "name: other\n---\n", 'R', FINDING_YAML_DUPLICATE_KEY, 4},
    {0, HEAD "metadata: {a: 1, a: 2}\n---\n", 'R', FINDING_YAML_DUPLICATE_KEY, 4},
    {0, HEAD "? [a, b]\n: 1\n---\n", 'R', FINDING_YAML_INVALID, 4},
    {0, HEAD "a: [[[[[[[[[[[[[1]]]]]]]]]]]]]\n---\n", 'R', FINDING_YAML_TOO_DEEP, 4},
    {0, HEAD "a: \"x\\0y\"\n---\n", 'R', FINDING_YAML_INVALID, 4},
    {0, HEAD "...\nallowed-tools: Read\n---\n", 'R', FINDING_YAML_INVALID, 0},
    {0,
     HEAD "a: x\xe2\x80\xa8"
          "allowed-tools: Read\n---\n",
     'R', FINDING_YAML_LINE_BREAK, 4},
    {0, HEAD "a: x\xc2\x85y\n---\n", 'R', FINDING_YAML_LINE_BREAK, 4},
    {0, HEAD "license: [MIT]\n---\n", 'W', FINDING_KEY_SHAPE, 4},
    {0, HEAD "metadata: x\n---\n", 'W', FINDING_KEY_SHAPE, 4},
    {0, "---\nname: [a]\ndescription: x\n---\n", 'R', FINDING_NAME_INVALID, 2},
    {0, "---\nname: ../x\ndescription: x\n---\n", 'R', FINDING_NAME_INVALID, 2},
    {0, "---\nname: ..\ndescription: x\n---\n", 'R', FINDING_NAME_INVALID, 2},
    {0, "---\nname: a\\b\ndescription: x\n---\n", 'R', FINDING_NAME_INVALID, 2},
    {0, "---\nname: \"<b>\"\ndescription: x\n---\n", 'R', FINDING_NAME_INVALID, 2},
    {0, "---\nname: \"a\\u202eb\"\ndescription: x\n---\n", 'R', FINDING_NAME_INVALID, 2},
    {0, "---\nname: '!!!'\ndescription: x\n---\n", 'R', FINDING_NAME_INVALID, 2},
    {0, "---\nname: a\ndescription:\n  Use: x\n---\n", 'R', FINDING_DESCRIPTION_INVALID, 3},
    {31, "---\nname: a\ndescription: x </skills> y\n---\n", 'W', FINDING_TEXT_HIDDEN, 3},
    {31, "---\nname: a\ndescription: \"\\e[31mred\"\n---\n", 'W', FINDING_TEXT_HIDDEN, 3},
    {31, "---\nname: a\ndescription: x\xe2\x80\xaey\n---\n", 'W', FINDING_TEXT_HIDDEN, 3},
    {31, "---\nname: a\ndescription: x\xe2\x80\x8by\n---\n", 'W', FINDING_TEXT_HIDDEN, 3},
    {31, "---\nname: a\ndescription: if 1 < 2 & \xe2\x9a\xa0\xef\xb8\x8f\n---\n", 'A', NONE, 0},
    {0, HEAD "metadata:\n  berth-apt: ffmpeg poppler-utils=22.12.0-2+b1 g++\n---\n", 'A', NONE,
     0},
    {0, HEAD "metadata:\n  berth-apt: [--force]\n---\n", 'R', FINDING_APT_INVALID, 4},
    {0, HEAD "metadata:\n  berth-apt: vim-\n---\n", 'R', FINDING_APT_INVALID, 4},
    {0, HEAD "metadata:\n  berth-apt: {a: b}\n---\n", 'R', FINDING_APT_INVALID, 4},
    {0, HEAD "metadata:\n  berth-env: API_KEY PATH\n---\n", 'W', FINDING_ENV_INVALID, 4},
    {0, HEAD "metadata:\n  berth-self-test: python3 scripts/check.py --all\n---\n", 'A', NONE,
     0},
    {0, HEAD "metadata:\n  berth-self-test: [[a]]\n---\n", 'R', FINDING_SELF_TEST_INVALID, 4},
};

/* Each case has its verdict, and the finding that carries it stands at its line. */
START_TEST(skill_read__each_case__as_the_format_says)
{
    char verdict = judge(rows[_i].text);
    const struct finding *finding;

    ck_assert_msg(verdict == rows[_i].verdict, "case %d, row %d: %c: %s", rows[_i].number, _i,
                  verdict, findings.n ? findings.list[0].message : "");
    if (rows[_i].code == NONE) {
        ck_assert_uint_eq(findings.n, 0);
        return;
    }
    finding = find(rows[_i].code);
    ck_assert_msg(finding != NULL, "case %d, row %d: %s: %s", rows[_i].number, _i,
                  findings.n ? finding_name(findings.list[0].code) : "nothing",
                  findings.n ? findings.list[0].message : "");
    if (rows[_i].line)
        ck_assert_msg(finding->line == rows[_i].line, "case %d, row %d: line %u",
                      rows[_i].number, _i, finding->line);
    ck_assert_str_eq(finding->file, "SKILL.md");
}
END_TEST

/* Case 5: UTF-16, of either order, is told from any other bad byte. */
START_TEST(skill_read__utf16__refused_by_name)
{
    static const char little[] = "\xff\xfe-\0-\0-\0\n", big[] = "\xfe\xff\0-\0-\0-\0\n";

    ck_assert_int_eq(judge_in(_i ? big : little, sizeof little - 1, NULL), 'R');
    ck_assert_ptr_nonnull(find(FINDING_ENCODING));
    ck_assert_ptr_nonnull(strstr(find(FINDING_ENCODING)->message, "UTF-16"));
}
END_TEST

/* Case 20: the name decides, the folder's is only compared. */
START_TEST(skill_read__other_folder__warned)
{
    const char *text = HEAD "---\n";

    ck_assert_int_eq(judge_in(text, strlen(text), "pdf-tools"), 'A');
    tear_down();
    ck_assert_int_eq(judge_in(text, strlen(text), "pdf-tools-main"), 'W');
    ck_assert_ptr_nonnull(find(FINDING_NAME_DIFFERS));
    ck_assert_str_eq(skill.name, "pdf-tools");
}
END_TEST

/* name and description of so many characters (one repeated). */
static char judge_lengths(const char *c, size_t name, size_t description)
{
    BERTH_AUTO(free) char *text = malloc(8192);
    size_t used = (size_t)snprintf(text, 8192, "---\nname: ");

    for (size_t i = 0; i < name; i++)
        used += (size_t)snprintf(text + used, 8192 - used, "%s", c);
    used += (size_t)snprintf(text + used, 8192 - used, "\ndescription: ");
    for (size_t i = 0; i < description; i++)
        used += (size_t)snprintf(text + used, 8192 - used, "%s", c);
    used += (size_t)snprintf(text + used, 8192 - used, "\n---\n");
    return judge_in(text, used, NULL);
}

/* Cases 21 and 22: characters are counted, not bytes. */
START_TEST(skill_read__lengths__in_characters)
{
    static const struct {
        const char *c;
        size_t name, description;
        char verdict;
        enum finding_code code;
    } lengths[] = {
        {"a", 64, 1024, 'A', NONE},
        {"a", 65, 1, 'R', FINDING_NAME_LONG},
        {"a", 1, 1025, 'W', FINDING_DESCRIPTION_LONG},
        {"数", 64, 1024, 'W', FINDING_NAME_NOT_ASCII},
        {"数", 65, 1, 'R', FINDING_NAME_LONG},
        {"数", 1, 400, 'W', FINDING_NAME_NOT_ASCII},
        {"\xf0\xa0\x80\x80", 64, 1, 'R',
         FINDING_NAME_INVALID}, /* 256 bytes: no folder's name */
    };
    char verdict = judge_lengths(lengths[_i].c, lengths[_i].name, lengths[_i].description);

    ck_assert_int_eq(verdict, lengths[_i].verdict);
    if (lengths[_i].code != NONE)
        ck_assert_ptr_nonnull(find(lengths[_i].code));
    ck_assert_ptr_null(find(lengths[_i].description == 1025 ? NONE : FINDING_DESCRIPTION_LONG));
}
END_TEST

/* A description of 400 Chinese characters is 1,200 bytes and within the rule. */
START_TEST(skill_read__chinese_description__accepted_whole)
{
    BERTH_AUTO(free) char *text = malloc(2000);
    size_t used = (size_t)snprintf(text, 2000, "---\nname: a\ndescription: ");

    for (int i = 0; i < 400; i++)
        used += (size_t)snprintf(text + used, 2000 - used, "读");
    snprintf(text + used, 2000 - used, "\n---\n");
    ck_assert_int_eq(judge(text), 'A');
    ck_assert_uint_eq(text_len(skill.description, strlen(skill.description)), 400);
}
END_TEST

/* Case 28: 74 kB of SKILL.md are the largest seen; more than the limit is refused by it. */
START_TEST(skill_read__size__limit_is_named)
{
    static const size_t sizes[] = {74 << 10, SKILL_MD_MAX, SKILL_MD_MAX + 1};
    BERTH_AUTO(free) char *text = malloc(sizes[_i] + 1);
    size_t used = (size_t)snprintf(text, 100, HEAD "---\n");

    memset(text + used, 'x', sizes[_i] - used);
    ck_assert_int_eq(judge_in(text, sizes[_i], NULL), _i == 2 ? 'R' : 'A');
    if (_i == 2)
        ck_assert_ptr_nonnull(strstr(find(FINDING_SKILL_MD_TOO_LARGE)->message, "524288"));
}
END_TEST

/* A frontmatter without end is not read to the end of a big file. */
START_TEST(skill_read__long_frontmatter__refused)
{
    BERTH_AUTO(free) char *text = malloc(FRONTMATTER_MAX + 1000);
    size_t used = (size_t)snprintf(text, 100, HEAD);

    while (used + 10 < FRONTMATTER_MAX + 1000)
        used += (size_t)snprintf(text + used, 10, "# %05zu\n", used % 100000);
    ck_assert_int_eq(judge_in(text, used, NULL), 'R');
    ck_assert_ptr_nonnull(find(FINDING_FRONTMATTER_TOO_LARGE));
}
END_TEST

/* What was read, as it is kept: versions are text, tools are split, the body is trimmed. */
START_TEST(skill_read__values__kept_as_meant)
{
    ck_assert_int_eq(judge(HEAD "version: 1.10\nlicense: MIT\ncompatibility: Needs git\n"
                                "allowed-tools: Read, Bash(git add:*) Read\n"
                                "disable-model-invocation: yes\nuser-invocable: off\n"
                                "metadata: {author: me, n: 007}\n"
                                "x: {y: {z: [1.0, true, ~, '']}}\n"
                                "---\n\n# Title\n\n---\ntext\n\n"),
                     'A');
    ck_assert_str_eq(skill.version, "1.10");
    ck_assert_str_eq(skill.license, "MIT");
    ck_assert_str_eq(skill.compatibility, "Needs git");
    ck_assert_uint_eq(skill.allowed_tools.n, 2);
    ck_assert_str_eq(skill.allowed_tools.items[0], "Read");
    ck_assert_str_eq(skill.allowed_tools.items[1], "Bash(git add:*)");
    ck_assert(skill.restricts_tools && skill.disable_model_invocation && !skill.user_invocable);
    ck_assert_str_eq(skill.instructions, "# Title\n\n---\ntext");
    {
        BERTH_AUTO(free)
        char *kept = json_dumps(json_object_get(skill.keys, "x"), JSON_COMPACT);
        BERTH_AUTO(free)
        char *meta = json_dumps(json_object_get(skill.keys, "metadata"), JSON_COMPACT);

        ck_assert_str_eq(kept, "{\"y\":{\"z\":[\"1.0\",\"true\",null,\"\"]}}");
        ck_assert_str_eq(meta, "{\"author\":\"me\",\"n\":\"007\"}");
    }
}
END_TEST

/* No allowed-tools is no restriction; an empty one allows nothing. Both have an empty list. */
START_TEST(skill_read__no_tools__told_from_none_allowed)
{
    (void)judge(HEAD "---\n");
    ck_assert(!skill.restricts_tools && skill.user_invocable);
    tear_down();
    (void)judge(HEAD "allowed-tools:\n---\n");
    ck_assert(skill.restricts_tools && skill.allowed_tools.n == 0);
}
END_TEST

/* Case 12: the whole value is meant, and version may stand in metadata. */
START_TEST(skill_read__recovered__value_is_whole)
{
    (void)judge("---\nname: a\ndescription: it's for: 'x', and\n  more: y\n"
                "metadata: {version: 2.0}\n---\n");
    ck_assert_str_eq(skill.description, "it's for: 'x', and more: y");
    ck_assert_str_eq(skill.version, "2.0");
}
END_TEST

static const struct {
    const char *name, *slug;
} slugs[] = {
    {"Ahrefs Automation", "ahrefs-automation"},
    {"-pdf", "pdf"},
    {"pdf_tools", "pdf-tools"},
    {"a.b.c", "a-b-c"},
    {"a -- b", "a-b"},
    {"数据 分析", "数据-分析"},
    {"数据　分析（新）", "数据-分析-新"},
    {"CafÉ", "cafÉ"},
    {"a\xe2\x80\x8b"
     "b",
     "a-b"},
    {"...", ""},
};

START_TEST(skill_slug__table)
{
    BERTH_AUTO(free) char *slug = skill_slug(slugs[_i].name);

    ck_assert_str_eq(slug, slugs[_i].slug);
}
END_TEST

static const struct {
    const char *text;
    size_t max;
    bool many_lines;
    const char *shown;
} shows[] = {
    {"plain", 10, false, "plain"},
    {"</skills>&", 20, false, "&lt;/skills&gt;&amp;"},
    {"a\xe2\x80\xae"
     "b",
     9, false, "a\\u{202e}b"},
    {"\xef\xbb\xbf\x1b[0m", 9, false, "\\u{feff}\\u{1b}[0m"},
    {"a\xff", 9, false, "a\\x{ff}"},
    {"a\nb", 9, false, "a\\u{a}b"},
    {"a\nb", 9, true, "a\nb"},
    {"数据分析", 2, false, "数据..."},
    {"\xf3\xa0\x81\x81", 9, false, "\\u{e0041}"},
};

/* Case 31: nothing hidden and no tag is left, whatever comes in. */
START_TEST(text_show__table)
{
    BERTH_AUTO(free)
    char *shown =
        text_show(shows[_i].text, strlen(shows[_i].text), shows[_i].max, shows[_i].many_lines);

    ck_assert_str_eq(shown, shows[_i].shown);
    ck_assert(!text_is_suspicious(shown, strlen(shown)));
}
END_TEST

/* A hundred of each kind are kept and the rest is counted; an error is never crowded out. */
START_TEST(findings_add__many__cut_by_kind)
{
    for (int i = 0; i < 500; i++)
        findings_add(&findings, FINDING_LITTER_IGNORED, "a", 0, "%d", i);
    findings_add(&findings, FINDING_SYMLINK, "b\x1b", 0, "is </b>");
    findings_close(&findings);
    ck_assert_uint_eq(findings.n, 102);
    ck_assert(findings_refuse(&findings));
    ck_assert_str_eq(find(FINDING_SYMLINK)->file, "b\\u{1b}");
    ck_assert_str_eq(find(FINDING_SYMLINK)->message, "is &lt;/b&gt;");
    ck_assert_ptr_nonnull(strstr(find(FINDING_FINDINGS_CUT)->message, "400"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("skills/skill_md");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_loop_test(all, skill_read__each_case__as_the_format_says, 0,
                        (int)BERTH_COUNT(rows));
    tcase_add_loop_test(all, skill_read__utf16__refused_by_name, 0, 2);
    tcase_add_test(all, skill_read__other_folder__warned);
    tcase_add_loop_test(all, skill_read__lengths__in_characters, 0, 7);
    tcase_add_test(all, skill_read__chinese_description__accepted_whole);
    tcase_add_loop_test(all, skill_read__size__limit_is_named, 0, 3);
    tcase_add_test(all, skill_read__long_frontmatter__refused);
    tcase_add_test(all, skill_read__values__kept_as_meant);
    tcase_add_test(all, skill_read__no_tools__told_from_none_allowed);
    tcase_add_test(all, skill_read__recovered__value_is_whole);
    tcase_add_loop_test(all, skill_slug__table, 0, (int)BERTH_COUNT(slugs));
    tcase_add_loop_test(all, text_show__table, 0, (int)BERTH_COUNT(shows));
    tcase_add_test(all, findings_add__many__cut_by_kind);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* test_plan.c - skills in the shapes the world ships, judged whole, and what is to be done
 * about their dependencies (case 30 of the format's description). */
#include <check.h>
#include <stdio.h>

#include "services/skills/bundle/judge.h"
#include "services/skills/bundle/scripts.h"
#include "services/skills/bundle/text.h"
#include "tests/lib/skill_bundles.h"

#define ROOT "/opt/berth/skills/"

static struct bundle_verdict verdict;
static int spool;

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

static void judge_files(const struct pack_file *files, size_t n, enum pack_format format,
                        const struct plan_policy *policy, const struct plan_host *host)
{
    size_t size;
    BERTH_AUTO(free) void *data = pack_archive(format, files, n, 1700000000, NULL, &size);
    const struct bundle_source source = {.fd = -1, .data = data, .size = size};
    struct berth_error err = {0};

    ck_assert_msg(bundle_judge(&source, spool, policy, host, &verdict, &err) == BERTH_OK, "%s",
                  err.text);
}

static void judge(const char *name, const struct plan_policy *policy,
                  const struct plan_host *host)
{
    const struct skill_bundle *bundle = skill_bundle_find(name);

    judge_files(bundle->files, bundle->n_files, PACK_ZIP, policy, host);
    ck_assert_msg(verdict.is_accepted, "%s", verdict.findings.list[0].message);
    ck_assert_str_eq(verdict.skill.name, name);
}

static const struct finding *find(enum finding_code code)
{
    for (size_t i = 0; i < verdict.findings.n; i++)
        if (verdict.findings.list[i].code == code)
            return &verdict.findings.list[i];
    return NULL;
}

/* "folder: argv ..." of each command, one a line; owned. Scripts are shortened to LIST. */
static char *commands(void)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);

    for (size_t i = 0; i < verdict.plan.n_commands; i++) {
        const struct plan_command *command = &verdict.plan.commands[i];

        fprintf(file, "%s:", command->directory);
        for (size_t k = 0; k < command->argv.n; k++)
            fprintf(file, " %s",
                    strchr(command->argv.items[k], '\n') ? "LIST" : command->argv.items[k]);
        for (size_t k = 0; k < command->env.n; k++)
            fprintf(file, " (%s)", command->env.items[k]);
        fprintf(file, "\n");
    }
    fclose(file);
    return text;
}

static bool has_env(const char *wanted)
{
    for (size_t i = 0; i < verdict.plan.env.n; i++)
        if (strcmp(verdict.plan.env.items[i], wanted) == 0)
            return true;
    return false;
}

static const struct plan_dependency *dependency(const char *name)
{
    for (size_t i = 0; i < verdict.plan.n_dependencies; i++)
        if (strcmp(verdict.plan.dependencies[i].name, name) == 0)
            return &verdict.plan.dependencies[i];
    return NULL;
}

/* Every shape in every format: accepted, one digest each. */
START_TEST(bundle_judge__real_shapes__accepted_in_every_format)
{
    const struct skill_bundle *bundle = &skill_bundles[_i];
    uint8_t digest[32];

    for (int format = 0; format < PACK_FORMATS; format++) {
        tear_down();
        set_up();
        judge_files(bundle->files, bundle->n_files, (enum pack_format)format, NULL, NULL);
        ck_assert_msg(verdict.is_accepted, "%s: %s", bundle->name,
                      verdict.findings.n ? verdict.findings.list[0].message : "");
        ck_assert_str_eq(verdict.skill.name, bundle->name);
        if (format > 0)
            ck_assert_mem_eq(digest, verdict.digest, sizeof digest);
        memcpy(digest, verdict.digest, sizeof digest);
    }
}
END_TEST

/* Python at the root and in scripts/: one environment, each file where it stands. */
START_TEST(plan_make__requirements__one_environment)
{
    BERTH_AUTO(free) char *said = NULL;

    judge("table-tools", NULL, NULL);
    said = commands();
    ck_assert_str_eq(said, ROOT "table-tools: python3 -m venv .venv\n" ROOT "table-tools: " ROOT
                                "table-tools/.venv/bin/python -m pip "
                                "install -r requirements.txt\n" ROOT
                                "table-tools/scripts: " ROOT "table-tools/.venv/bin/python -m "
                                "pip install -r requirements.txt\n" ROOT "table-tools: " ROOT
                                "table-tools/.venv/bin/python -m pip "
                                "check\n" ROOT "table-tools: " ROOT
                                "table-tools/.venv/bin/python -I -c LIST\n");
    ck_assert_uint_eq(verdict.plan.n_dependencies, 4);
    ck_assert_str_eq(dependency("tabulate")->manifest, "requirements.txt");
    ck_assert(dependency("et-xmlfile")->is_python && !dependency("et-xmlfile")->is_conditional);
    ck_assert(dependency("colorama")->is_conditional);
    ck_assert_ptr_nonnull(dependency("six"));
    ck_assert_str_eq(find(FINDING_INDEX_NAMED)->file, "scripts/requirements.txt");
    ck_assert_uint_eq(find(FINDING_INDEX_NAMED)->line, 1);
    ck_assert(find(FINDING_DESCRIPTION_REQUOTED) && find(FINDING_NAME_SLUGGED));
    ck_assert_str_eq(verdict.skill.version, "1.10");
    ck_assert_str_eq(verdict.skill.self_test.items[2], "python3 scripts/convert.py --check");
}
END_TEST

/* Node: with a lock exactly that, without one what is declared; neither is written to. */
START_TEST(plan_make__package_json__beside_it)
{
    BERTH_AUTO(free) char *said = NULL;

    judge("web-report", NULL, NULL);
    said = commands();
    ck_assert_str_eq(said, ROOT "web-report: npm ci --omit=dev\n" ROOT
                                "web-report/viewer: npm install --omit=dev --no-save "
                                "--no-package-lock\n");
    ck_assert_uint_eq(verdict.plan.n_dependencies, 4);
    ck_assert(!dependency("@scope/x")->is_python && dependency("fsevents")->is_conditional);
    ck_assert_str_eq(find(FINDING_INSTALL_SCRIPT)->file, "package.json");
    ck_assert_str_eq(find(FINDING_LOCK_UNUSED)->file, "viewer/yarn.lock");
    ck_assert_str_eq(verdict.skill.allowed_tools.items[0], "Bash(node:*)");
}
END_TEST

/* Debian packages by root; no other manifest, no other command. */
START_TEST(plan_make__apt__first_and_alone)
{
    BERTH_AUTO(free) char *said = NULL;

    judge("git-helper", NULL, NULL);
    said = commands();
    ck_assert_str_eq(said, "/: apt-get update -q\n"
                           "/: apt-get install -y -q --no-install-recommends -- jq git\n");
    ck_assert(has_env("DEBIAN_FRONTEND=noninteractive"));
    ck_assert_str_eq(verdict.skill.env_names.items[0], "GIT_TOKEN");
    ck_assert_uint_eq(verdict.findings.counts[FINDING_WARNING], 0);
}
END_TEST

/* Where the config says so, a skill that asks for Debian packages is refused. */
START_TEST(plan_make__apt_denied__refused)
{
    const struct plan_policy policy = {.deny_apt = true};
    const struct pack_file files[] = {
        {"SKILL.md", "---\nname: a\ndescription: b\nmetadata:\n  berth-apt: jq\n---\n"}};

    judge_files(files, 1, PACK_TAR, &policy, NULL);
    ck_assert(!verdict.is_accepted && find(FINDING_APT_REFUSED));
    tear_down();
    set_up();
    judge_files(files, 1, PACK_TAR, NULL, NULL);
    ck_assert(verdict.is_accepted);
}
END_TEST

/* uv.lock: by uv, which is got first where the image has none. */
START_TEST(plan_make__uv_lock__by_uv)
{
    static const char sync[] =
        " sync --frozen --inexact --no-dev --no-install-project "
        "(UV_PROJECT_ENVIRONMENT=" ROOT "contract-review/.venv)\n" ROOT "contract-review: " ROOT
        "contract-review/.venv/bin/python -I -c LIST\n";
    BERTH_AUTO(free) char *without = NULL, *with = NULL;
    char wanted[1000];

    judge("contract-review", NULL, NULL);
    ck_assert_uint_eq(verdict.findings.counts[FINDING_WARNING], 0);
    ck_assert_uint_eq(text_len(verdict.skill.description, strlen(verdict.skill.description)),
                      400);
    without = commands();
    snprintf(wanted, sizeof wanted,
             ROOT "contract-review: python3 -m venv .venv\n"
                  "/: python3 -m venv /tmp/berth-install/uv\n"
                  "/: /tmp/berth-install/uv/bin/python -m pip install uv\n" ROOT
                  "contract-review/scripts: /tmp/berth-install/uv/bin/uv%s",
             sync);
    ck_assert_str_eq(without, wanted);
    tear_down();
    set_up();
    judge("contract-review", NULL, &(struct plan_host){.has_uv = true});
    with = commands();
    snprintf(wanted, sizeof wanted,
             ROOT "contract-review: python3 -m venv .venv\n" ROOT
                  "contract-review/scripts: uv%s",
             sync);
    ck_assert_str_eq(with, wanted);
}
END_TEST

/* pyproject.toml without a lock: what it lists, by pip. */
START_TEST(plan_make__pyproject__listed_then_installed)
{
    BERTH_AUTO(free) char *said = NULL;

    judge("brand-guide", NULL, NULL);
    said = commands();
    ck_assert_str_eq(said,
                     ROOT "brand-guide: python3 -m venv .venv\n" ROOT "brand-guide: " ROOT
                          "brand-guide/.venv/bin/python -I -c LIST pyproject.toml "
                          "/tmp/berth-install/requirements-0.txt\n" ROOT "brand-guide: " ROOT
                          "brand-guide/.venv/bin/python -m pip install -r "
                          "/tmp/berth-install/requirements-0.txt\n" ROOT "brand-guide: " ROOT
                          "brand-guide/.venv/bin/python -I -c LIST\n");
    ck_assert(find(FINDING_NESTED_ARCHIVE) && find(FINDING_BOM_STRIPPED));
    ck_assert_uint_eq(verdict.findings.counts[FINDING_WARNING], 0);
    ck_assert_ptr_nonnull(bundle_find(&verdict.bundle, "assets/drafts"));
}
END_TEST

/* The script that lists them does so: run here, by the Python there is. */
START_TEST(plan_make__pyproject_script__lists_dependencies)
{
    char folder[] = "/tmp/berth-plan-XXXXXX", path[100], to[200], line[100] = "";
    const char *script;
    FILE *file;

    judge("brand-guide", NULL, NULL);
    script = verdict.plan.commands[1].argv.items[3];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/list.py", folder);
    file = fopen(path, "w");
    fputs(script, file);
    fclose(file);
    snprintf(path, sizeof path, "%s/pyproject.toml", folder);
    file = fopen(path, "w");
    fputs("[project]\ndependencies = ['tabulate>=0.9']\n", file);
    fclose(file);
    snprintf(to, sizeof to, "cd %s && /usr/bin/python3 -I list.py pyproject.toml %s/new/x",
             folder, folder);
    file = popen(to, "r");
    ck_assert_int_eq(pclose(file), 0);
    snprintf(path, sizeof path, "%s/new/x", folder);
    file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
    fclose(file);
    ck_assert_str_eq(line, "tabulate>=0.9\n");
    snprintf(to, sizeof to, "rm -r %s", folder);
    ck_assert_int_eq(pclose(popen(to, "r")), 0);
}
END_TEST

/* The config's policy goes into the environment of every command. */
START_TEST(plan_make__policy__in_the_environment)
{
    const struct plan_policy policy = {.python_index_url = "https://pypi.example/simple",
                                       .npm_registry = "https://npm.example",
                                       .proxy = "http://proxy:3128",
                                       .no_proxy = "localhost"};
    const struct plan_policy offline = {.wheel_dir = "/srv/wheels",
                                        .npm_cache_dir = "/srv/npm"};

    judge("table-tools", &policy, NULL);
    ck_assert(has_env("PIP_INDEX_URL=https://pypi.example/simple"));
    ck_assert(has_env("UV_DEFAULT_INDEX=https://pypi.example/simple"));
    ck_assert(has_env("npm_config_registry=https://npm.example"));
    ck_assert(has_env("HTTPS_PROXY=http://proxy:3128") && has_env("NO_PROXY=localhost"));
    ck_assert(!has_env("PIP_NO_INDEX=1"));
    tear_down();
    set_up();
    judge("table-tools", &offline, NULL);
    ck_assert(has_env("PIP_NO_INDEX=1") && has_env("PIP_FIND_LINKS=/srv/wheels"));
    ck_assert(has_env("UV_NO_INDEX=1") && has_env("npm_config_offline=true"));
    ck_assert(has_env("npm_config_cache=/srv/npm"));
}
END_TEST

#define MD "---\nname: a\ndescription: b\n---\n"

/* Manifests that ask for nothing, stand too deep, or are broken. */
static const struct {
    const char *path, *content;
    size_t n_commands;
    enum finding_code code; /* FINDING_CODES: none */
} rows[] = {
    {"requirements.txt", "# nothing\n\n", 0, FINDING_CODES},
    {"requirements.txt", "./wheels/x.whl\n", 3, FINDING_CODES},
    {"requirements.txt", "x @ https://example.com/x.whl", 3, FINDING_CODES},
    {"requirements.txt", "-r more.txt\n", 3, FINDING_CODES},
    {"requirements.txt", "-i https://x\n", 0, FINDING_INDEX_NAMED},
    {"requirements.txt", "caf\xe9\n", 0, FINDING_MANIFEST_INVALID},
    {"server/requirements.txt", "x\n", 3, FINDING_CODES},
    {"a/b/requirements.txt", "x\n", 0, FINDING_CODES},
    {"node_modules/requirements.txt", "x\n", 0, FINDING_CODES},
    {"package.json", "{\"type\": \"module\"}", 0, FINDING_CODES},
    {"package.json", "{\"devDependencies\": {\"x\": \"1\"}}", 0, FINDING_CODES},
    {"package.json", "{\"scripts\": {\"prepare\": \"x\"}}", 1, FINDING_INSTALL_SCRIPT},
    {"package.json", "[]", 0, FINDING_MANIFEST_INVALID},
    {"package.json", "{\n\"a\": 1,\n}", 0, FINDING_MANIFEST_INVALID},
    {"package.json", "{\"dependencies\": [\"x\"]}", 0, FINDING_CODES},
    {"uv.lock", "version = 1\n", 0, FINDING_LOCK_UNUSED},
    {".npmrc", "registry=https://x\n", 0, FINDING_INDEX_NAMED},
    {"scripts/run.py", "import x\n", 0, FINDING_CODES},
};

START_TEST(plan_make__manifests__table)
{
    const struct pack_file files[] = {{"SKILL.md", MD}, {rows[_i].path, rows[_i].content}};

    judge_files(files, 2, PACK_TAR, NULL, NULL);
    ck_assert_msg(verdict.plan.n_commands == rows[_i].n_commands, "row %d: %zu commands", _i,
                  verdict.plan.n_commands);
    if (rows[_i].code == FINDING_CODES) {
        ck_assert_uint_eq(verdict.findings.n, 0);
        return;
    }
    ck_assert_msg(find(rows[_i].code) != NULL, "row %d", _i);
    ck_assert_str_eq(find(rows[_i].code)->file, rows[_i].path);
    if (rows[_i].code == FINDING_MANIFEST_INVALID)
        ck_assert(!verdict.is_accepted);
}
END_TEST

/* What the gate parses, by name or by first line; in tests and examples only for the record. */
START_TEST(bundle_scripts__by_name_or_first_line)
{
    static const struct {
        struct pack_file file;
        int language; /* -1: none */
        bool is_auxiliary;
    } scripts[] = {
        {{"a.py", "x"}, SCRIPT_PYTHON, false},
        {{"b.mjs", "x"}, SCRIPT_NODE, false},
        {{"c.sh", "x"}, SCRIPT_SH, false},
        {{"d.bash", "x"}, SCRIPT_BASH, false},
        {{"e", "#!/usr/bin/env -S A=1 python3.11 -u\nx", .mode = 0755}, SCRIPT_PYTHON, false},
        {{"f", "#! /bin/bash -e\n", .mode = 0755}, SCRIPT_BASH, false},
        {{"g", "#!/bin/sh", .mode = 0755}, SCRIPT_SH, false},
        {{"h", "#!/usr/bin/node\r\n", .mode = 0755}, SCRIPT_NODE, false},
        {{"i", "#!/bin/bash\n"}, -1, false},
        {{"j", "#!/usr/bin/perl\n", .mode = 0755}, -1, false},
        {{"k", "", .mode = 0755}, -1, false},
        {{"l", "#!", .mode = 0755}, -1, false},
        {{"m.md", "x"}, -1, false},
        {{"node_modules/x.js", "x"}, -1, false},
        {{"scripts/node_modules/x.js", "x"}, -1, false},
        {{"scripts/tests/n.py", "x"}, SCRIPT_PYTHON, true},
        {{"scripts/test_o.py", "x"}, SCRIPT_PYTHON, true},
        {{"scripts/p_test.py", "x"}, SCRIPT_PYTHON, true},
        {{"setup.py", "x"}, SCRIPT_PYTHON, true},
        {{"testimony.py", "x"}, SCRIPT_PYTHON, false},
    };
    struct pack_file files[BERTH_COUNT(scripts) + 1] = {{"SKILL.md", MD}};
    BERTH_AUTO(free) struct bundle_script *list = NULL;
    size_t n = 0, wanted = 0;

    for (size_t i = 0; i < BERTH_COUNT(scripts); i++) {
        files[i + 1] = scripts[i].file;
        wanted += scripts[i].language >= 0;
    }
    judge_files(files, BERTH_COUNT(files), PACK_TAR, NULL, NULL);
    ck_assert_int_eq(bundle_scripts(&verdict.bundle, &list, &n, NULL), BERTH_OK);
    ck_assert_uint_eq(n, wanted);
    for (size_t i = 0; i < BERTH_COUNT(scripts); i++)
        for (size_t k = 0; k < n; k++)
            if (strcmp(list[k].path, scripts[i].file.path) == 0) {
                ck_assert_int_eq((int)list[k].language, scripts[i].language);
                ck_assert_int_eq(list[k].is_auxiliary, scripts[i].is_auxiliary);
            }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("skills/plan");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_loop_test(all, bundle_judge__real_shapes__accepted_in_every_format, 0,
                        (int)n_skill_bundles);
    tcase_add_test(all, plan_make__requirements__one_environment);
    tcase_add_test(all, plan_make__package_json__beside_it);
    tcase_add_test(all, plan_make__apt__first_and_alone);
    tcase_add_test(all, plan_make__apt_denied__refused);
    tcase_add_test(all, plan_make__uv_lock__by_uv);
    tcase_add_test(all, plan_make__pyproject__listed_then_installed);
    tcase_add_test(all, plan_make__pyproject_script__lists_dependencies);
    tcase_add_test(all, plan_make__policy__in_the_environment);
    tcase_add_test(all, bundle_scripts__by_name_or_first_line);
    tcase_add_loop_test(all, plan_make__manifests__table, 0, (int)BERTH_COUNT(rows));
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* gate.c - a sealed skill, looked at as the session's user: scripts parse, dependencies are
 * there, manifests are as they came, and the self-test passes. But for the last nothing of the
 * skill is run. */
#include <stdio.h>

#include "services/skills/bundle/scripts.h"
#include "services/skills/work/command.h"
#include "services/skills/work/gate_read.h"

enum {
    CHECK_MAX_MS = 5 * 60 * 1000,
    SELF_TEST_MAX_MS = 2 * 60 * 1000,
    NAMES_MAX = 2000,         /* of one command */
    NAMES_BYTES_MAX = 400000, /* of them together */
    HEAD_MAX = 16,
    NOT_THERE = 127, /* exit code: no such program */
    TOLD_MAX = 200,
};

/* Nothing of the session's environment: it could name files of the skill to be run. */
#define CLEAN_ENV                                                                              \
    "/usr/bin/env", "-i", "LANG=C.UTF-8", "HOME=/nonexistent",                                 \
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct gate {
    struct work *work;
    const struct bundle_verdict *verdict;
    struct findings *findings;
};

/* Words of one command: its head, then what it is asked about. */
struct words {
    const char *head[HEAD_MAX];
    struct skill_list names;
    size_t bytes;
    bool no_memory;
};

BERTH_PRINTF(2, 3) static void add_name(struct words *words, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    int len;

    va_start(args, fmt);
    len = vasprintf(&text, fmt, args);
    va_end(args);
    if (len < 0 || !skill_list_add(&words->names, text, (size_t)len))
        words->no_memory = true;
    words->bytes += len > 0 ? (size_t)len : 0;
    free(len < 0 ? NULL : text);
}

static bool is_full(const struct words *words)
{
    return words->names.n >= NAMES_MAX || words->bytes >= NAMES_BYTES_MAX;
}

/* Run the words as the session's user in the skill's folder; stdout is captured. */
static enum berth_code run_words(struct gate *gate, const struct words *words,
                                 struct command_end *ret, struct berth_error *err)
{
    struct command command = {.directory = gate->verdict->plan.root,
                              .as_user = true,
                              .is_bare = true,
                              .capture_max = COMMAND_CAPTURE_MAX,
                              .timeout_ms = CHECK_MAX_MS};
    const char **argv = calloc(HEAD_MAX + words->names.n + 1, sizeof *argv);
    enum berth_code code;

    if (!argv || words->no_memory) {
        free(argv);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    for (size_t i = 0; i < HEAD_MAX && words->head[i]; i++)
        argv[command.n_argv++] = words->head[i];
    for (size_t i = 0; i < words->names.n; i++)
        argv[command.n_argv++] = words->names.items[i];
    command.argv = argv;
    code = command_run(gate->work, &command, ret, err);
    free(argv);
    return code;
}

/* The same, and its answer as records, one per name. *ret is owned; NULL: the program is not
 * there. */
static enum berth_code ask(struct gate *gate, const struct words *words,
                           struct command_end *end, struct gate_record **ret,
                           struct berth_error *err)
{
    enum berth_code code = run_words(gate, words, end, err);

    *ret = NULL;
    if (code || (!end->is_signaled && end->exit_code == NOT_THERE))
        return code;
    *ret = calloc(words->names.n, sizeof **ret);
    if (!*ret)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    /* What is not told right is not judged, and so refused below. */
    (void)gate_read(end->captured ? end->captured : "", end->captured_size, *ret,
                    words->names.n);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------- scripts */

static const struct {
    const char *name, *program;
    const char *head[HEAD_MAX];
} parsers[SCRIPT_LANGUAGES] = {
    [SCRIPT_PYTHON] = {"Python",
                       "python3",
                       {CLEAN_ENV, "python3", "-I", "-S", "-c", work_parse_py}},
    [SCRIPT_NODE] = {"JavaScript",
                     "node",
                     {CLEAN_ENV, "node", "--no-warnings", "--experimental-vm-modules", "-e",
                      work_parse_js, "--"}},
    [SCRIPT_SH] = {"sh", "sh", {CLEAN_ENV, "sh", "-c", work_parse_sh, "berth", "sh"}},
    [SCRIPT_BASH] = {"bash", "bash", {CLEAN_ENV, "sh", "-c", work_parse_sh, "berth", "bash"}},
};

static void tell_script(struct gate *gate, const struct bundle_script *script,
                        const struct gate_record *record)
{
    unsigned line = record->line;

    if (script->language == SCRIPT_SH || script->language == SCRIPT_BASH)
        line = gate_shell_line(record->text);
    if (record->state == GATE_ODD)
        findings_add(gate->findings, FINDING_SCRIPT_MODULE, script->path, 0,
                     "it is a module by its text, but not by its name or package.json: node "
                     "will not run it as it is");
    else if (record->state == GATE_BAD)
        findings_add(gate->findings,
                     script->is_auxiliary ? FINDING_SCRIPT_SYNTAX_AUXILIARY
                                          : FINDING_SCRIPT_SYNTAX,
                     script->path, line, "%s cannot read it: %.*s",
                     parsers[script->language].program, TOLD_MAX, record->text);
}

static enum berth_code parse_some(struct gate *gate, enum script_language language,
                                  const struct words *words,
                                  const struct bundle_script *const *scripts,
                                  struct berth_error *err)
{
    struct command_end end = {0};
    struct gate_record *records = NULL;
    enum berth_code code = ask(gate, words, &end, &records, err);
    size_t n = words->names.n, n_unsaid = 0;
    char how[160];

    if (!code && !records)
        findings_add(gate->findings, FINDING_SCRIPT_UNCHECKED, scripts[0]->path, 0,
                     "the image has no %s: %zu %s scripts were not looked at",
                     parsers[language].program, n, parsers[language].name);
    for (size_t i = 0; records && i < n; i++) {
        if (records[i].state == GATE_UNSAID && n_unsaid++ == 0)
            findings_add(gate->findings, FINDING_SCRIPT_UNJUDGED, scripts[i]->path, 0,
                         "nothing can be said of it: the parser %s",
                         command_tell(&end, how, sizeof how));
        tell_script(gate, scripts[i], &records[i]);
    }
    free(records);
    command_end_deinit(&end);
    return code;
}

static enum berth_code parse_language(struct gate *gate, enum script_language language,
                                      const struct bundle_script *scripts, size_t n_scripts,
                                      struct berth_error *err)
{
    const struct bundle_script **asked = calloc(NAMES_MAX, sizeof *asked);
    enum berth_code code = BERTH_OK;

    if (!asked)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (size_t at = 0; !code && at < n_scripts;) {
        struct words words = {0};

        memcpy(words.head, parsers[language].head, sizeof words.head);
        for (; at < n_scripts && !is_full(&words); at++) {
            if (scripts[at].language != language)
                continue;
            asked[words.names.n] = &scripts[at];
            add_name(&words, "./%s", scripts[at].path);
            if (words.no_memory)
                break;
        }
        if (words.no_memory)
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        else if (words.names.n > 0)
            code = parse_some(gate, language, &words, asked, err);
        skill_list_deinit(&words.names);
    }
    free(asked);
    return code;
}

static enum berth_code check_scripts(struct gate *gate, struct berth_error *err)
{
    struct bundle_script *scripts = NULL;
    size_t n = 0;
    enum berth_code code = bundle_scripts(&gate->verdict->bundle, &scripts, &n, err);

    for (int language = 0; !code && language < SCRIPT_LANGUAGES; language++)
        code = parse_language(gate, (enum script_language)language, scripts, n, err);
    free(scripts);
    return code;
}

/* ----------------------------------------------------------------------- manifests */

static void ask_sum(struct words *words, const struct bundle *bundle, const char *path)
{
    if (path && bundle_find(bundle, path))
        add_name(words, "./%s", path);
}

/* SKILL.md, manifests and locks: what was judged is what lies there. */
static enum berth_code check_manifests(struct gate *gate, struct berth_error *err)
{
    const struct bundle *bundle = &gate->verdict->bundle;
    const struct plan *plan = &gate->verdict->plan;
    struct words words = {.head = {CLEAN_ENV, "sha256sum", "-z", "--"}};
    struct command_end end = {0};
    uint8_t(*sums)[32] = NULL;
    enum berth_code code;

    ask_sum(&words, bundle, "SKILL.md");
    for (size_t i = 0; i < plan->n_manifests; i++) {
        ask_sum(&words, bundle, plan->manifests[i].path);
        ask_sum(&words, bundle, plan->manifests[i].lock_path);
    }
    code = words.names.n > 0 ? run_words(gate, &words, &end, err) : BERTH_OK;
    if (!code && words.names.n > 0) {
        sums = calloc(words.names.n, sizeof *sums);
        if (!sums)
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    if (sums && !gate_read_sums(end.captured ? end.captured : "", end.captured_size,
                                (const char *const *)words.names.items, words.names.n, sums)) {
        findings_add(gate->findings, FINDING_MANIFEST_CHANGED, NULL, 0,
                     "SKILL.md or a manifest cannot be read any more: %.*s", TOLD_MAX,
                     end.tail);
    } else {
        for (size_t i = 0; sums && i < words.names.n; i++) {
            const struct bundle_entry *entry = bundle_find(bundle, words.names.items[i] + 2);

            if (memcmp(sums[i], entry->sha256, sizeof sums[i]) != 0)
                findings_add(gate->findings, FINDING_MANIFEST_CHANGED, entry->path, 0,
                             "it is not as it came any more: something that was installed has "
                             "written to it");
        }
    }
    free(sums);
    skill_list_deinit(&words.names);
    command_end_deinit(&end);
    return code;
}

/* -------------------------------------------------------------------- dependencies */

/* manifest "scripts/package.json", name "x": "./scripts/node_modules/x". */
static void add_module(struct words *words, const char *manifest, const char *name)
{
    const char *slash = strrchr(manifest, '/');
    int len = slash ? (int)(slash - manifest) : 0;

    add_name(words, "./%.*s%snode_modules/%s", len, manifest, len ? "/" : "", name);
}

static void tell_absent(struct gate *gate, const char *manifest, bool may, const char *name)
{
    findings_add(gate->findings, may ? FINDING_DEPENDENCY_SKIPPED : FINDING_DEPENDENCY_ABSENT,
                 manifest, 0, "the package '%.*s' %s", TOLD_MAX, name,
                 may ? "is optional, or for other machines, and was not installed"
                     : "is declared and was not installed");
}

/* What one command is asked about: of the plan's dependencies, or (of its pyproject.toml files)
 * of its manifests. */
struct packages {
    struct words words;
    const struct plan_dependency *of[NAMES_MAX]; /* NULL: a manifest's own */
    const char *manifests[NAMES_MAX];
};

static void begin_packages(struct packages *packages, bool is_python)
{
    static const char *const python[HEAD_MAX] = {CLEAN_ENV, "python3", "-I",
                                                 "-S",      "-c",      work_present_py};
    static const char *const node[HEAD_MAX] = {CLEAN_ENV, "sh", "-c", work_present_sh, "berth"};

    skill_list_deinit(&packages->words.names);
    packages->words = (struct words){.no_memory = packages->words.no_memory};
    memcpy(packages->words.head, is_python ? python : node, sizeof python);
}

static enum berth_code ask_some(struct gate *gate, const struct packages *packages,
                                struct berth_error *err)
{
    struct gate_record *records = NULL;
    struct command_end end = {0};
    size_t n = packages->words.names.n;
    enum berth_code code = BERTH_OK;

    if (packages->words.no_memory)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (n > 0)
        code = ask(gate, &packages->words, &end, &records, err);
    for (size_t i = 0; !code && i < n; i++) {
        const struct plan_dependency *of = packages->of[i];

        if (records && records[i].state == GATE_OK)
            continue;
        tell_absent(gate, packages->manifests[i], of && of->is_conditional,
                    of                              ? of->name
                    : records && records[i].text[0] ? records[i].text
                                                    : "?");
    }
    free(records);
    command_end_deinit(&end);
    return code;
}

static enum berth_code check_packages(struct gate *gate, bool is_python,
                                      struct packages *packages, struct berth_error *err)
{
    const struct plan *plan = &gate->verdict->plan;
    struct words *words = &packages->words;
    enum berth_code code = BERTH_OK;

    begin_packages(packages, is_python);
    for (size_t i = 0; !code && i < plan->n_dependencies; i++) {
        const struct plan_dependency *dependency = &plan->dependencies[i];

        if (dependency->is_python != is_python)
            continue;
        packages->of[words->names.n] = dependency;
        packages->manifests[words->names.n] = dependency->manifest;
        if (is_python)
            add_name(words, "name=%s", dependency->name);
        else
            add_module(words, dependency->manifest, dependency->name);
        if (is_full(words)) {
            code = ask_some(gate, packages, err);
            begin_packages(packages, is_python);
        }
    }
    if (!code)
        code = ask_some(gate, packages, err);
    begin_packages(packages, is_python);
    for (size_t i = 0; !code && is_python && i < plan->n_manifests; i++) {
        if (plan->manifests[i].kind != PLAN_PYPROJECT || !plan->manifests[i].is_needed)
            continue;
        packages->of[words->names.n] = NULL;
        packages->manifests[words->names.n] = plan->manifests[i].path;
        add_name(words, "manifest=%s", plan->manifests[i].path);
    }
    return code ? code : ask_some(gate, packages, err);
}

static enum berth_code check_all_packages(struct gate *gate, struct berth_error *err)
{
    struct packages *packages = calloc(1, sizeof *packages);
    enum berth_code code = BERTH_OK;

    if (!packages)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (int is_python = 0; !code && is_python < 2; is_python++)
        code = check_packages(gate, is_python, packages, err);
    skill_list_deinit(&packages->words.names);
    free(packages);
    return code;
}

/* ----------------------------------------------------------------------- self-test */

static const char *last_line(struct command_end *end)
{
    char *line;

    while (end->tail_size > 0 && strchr("\n\r ", end->tail[end->tail_size - 1]))
        end->tail[--end->tail_size] = 0;
    line = strrchr(end->tail, '\n');
    return line ? line + 1 : end->tail;
}

static enum berth_code run_self_test(struct gate *gate, struct berth_error *err)
{
    const struct skill_list *words = &gate->verdict->skill.self_test;
    int64_t step_ms = gate->work->wish.step_timeout_ms;
    const struct command command = {
        .argv = (const char *const *)words->items,
        .n_argv = words->n,
        .directory = gate->verdict->plan.root,
        .as_user = true,
        .timeout_ms = step_ms < SELF_TEST_MAX_MS ? step_ms : SELF_TEST_MAX_MS,
    };
    const struct command after = {.is_bare = true,
                                  .input = gate->work->known,
                                  .input_size = strlen(gate->work->known),
                                  .timeout_ms = CHECK_MAX_MS};
    struct command_end end = {0}, forgotten = {0};
    struct berth_error why = {0};
    enum berth_code code, undone;
    char how[160];

    work_say(gate->work, "self-test of %s", gate->verdict->skill.name);
    code = command_run(gate->work, &command, &end, &why);
    if (code == BERTH_DEADLINE_EXCEEDED || why.reason == BERTH_REASON_GATE_FAILED) {
        findings_add(gate->findings, FINDING_SELF_TEST_FAILED, NULL, 0, "the self-test: %s",
                     why.text);
        code = BERTH_OK;
    } else if (code && err) {
        *err = why;
    } else if (!code && !command_is_done(&end)) {
        (void)command_tell(&end, how, sizeof how);
        findings_add(gate->findings, FINDING_SELF_TEST_FAILED, NULL, 0,
                     "the self-test %s: %.*s", how, TOLD_MAX, last_line(&end));
    }
    command_end_deinit(&end);
    if (code == BERTH_CANCELLED)
        return code;
    undone = command_run_script(gate->work, &after, work_forget_sh, &forgotten,
                                code ? NULL : err, (char *)NULL);
    if (!code && !undone && !command_is_done(&forgotten))
        code = berth_fail(err, BERTH_REASON_GATE_FAILED,
                          "what the self-test left behind does not go: %.150s", forgotten.tail);
    command_end_deinit(&forgotten);
    return code ? code : undone;
}

/* --------------------------------------------------------------------------- all */

enum berth_code work_verify(struct work *work, const struct bundle_verdict *verdict,
                            struct findings *findings, struct berth_error *err)
{
    struct gate gate = {.work = work, .verdict = verdict, .findings = findings};
    size_t n_errors = findings->counts[FINDING_ERROR];
    enum berth_code code = check_scripts(&gate, err);

    if (!code)
        code = check_manifests(&gate, err);
    if (!code)
        code = check_all_packages(&gate, err);
    /* Of what is broken already it would say the same again. */
    if (!code && verdict->skill.self_test.n > 0 && findings->counts[FINDING_ERROR] == n_errors)
        code = run_self_test(&gate, err);
    return code;
}

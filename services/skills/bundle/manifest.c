/* manifest.c - which manifests there are, and what can be read of them without running
 * anything. */
#include <stdio.h>

#include "services/skills/bundle/plan.h"
#include "services/skills/bundle/text.h"

enum { DIRS_MAX = 256, LINE_MAX_SIZE = 4096 };

static bool grow(void *list, size_t n, size_t size)
{
    void **slot = list, *bigger;

    if (n & (n - 1)) /* full at each power of two */
        return true;
    bigger = realloc(*slot, (n ? 2 * n : 1) * size);
    if (bigger)
        *slot = bigger;
    return bigger != NULL;
}

static void add_dependency(struct plan *plan, const struct plan_manifest *manifest,
                           const char *name, size_t len, bool conditional)
{
    struct plan_dependency one = {.manifest = manifest->path,
                                  .name = strndup(name, len),
                                  .is_python = manifest->kind != PLAN_PACKAGE_JSON,
                                  .is_conditional = conditional};

    if (!one.name || !grow(&plan->dependencies, plan->n_dependencies, sizeof one)) {
        free(one.name);
        plan->no_memory = true;
        return;
    }
    plan->dependencies[plan->n_dependencies++] = one;
}

/* --------------------------------------------------------------- requirements.txt */

static bool names_an_index(const char *line, size_t len)
{
    static const char *const options[] = {"-i",           "--index-url", "--extra-index-url",
                                          "--find-links", "-f",          "--trusted-host"};

    for (size_t i = 0; i < BERTH_COUNT(options); i++) {
        size_t size = strlen(options[i]);

        if (len > size && memcmp(line, options[i], size) == 0 &&
            (line[size] == ' ' || line[size] == '=' || line[size] == '\t'))
            return true;
    }
    return false;
}

static size_t name_len(const char *line, size_t len)
{
    size_t n = 0;

    while (n < len &&
           ((line[n] >= 'a' && line[n] <= 'z') || (line[n] >= 'A' && line[n] <= 'Z') ||
            (line[n] >= '0' && line[n] <= '9') ||
            (n > 0 && (line[n] == '-' || line[n] == '_' || line[n] == '.'))))
        n++;
    return n;
}

/* One line without its end and the blanks around. Returns whether it asks for something. */
static bool read_requirement(struct plan *plan, const struct plan_manifest *manifest,
                             const char *line, size_t len, unsigned number,
                             struct findings *findings)
{
    size_t n = name_len(line, len);

    if (len == 0 || *line == '#')
        return false;
    if (names_an_index(line, len)) {
        findings_add(findings, FINDING_INDEX_NAMED, manifest->path, number,
                     "names an index of its own; it is used only where the config's policy "
                     "allows it");
        return false;
    }
    if (*line == '-')
        return strncmp(line, "-r", 2) == 0 || strncmp(line, "-e", 2) == 0 ||
               strncmp(line, "--re", 4) == 0 || strncmp(line, "--ed", 4) == 0;
    /* "name", then a version, extras, a marker or "@ URL"; not "https://..." or "./x". */
    if (n > 0 && (n == len || strchr(" \t<>=!~[;@(#", line[n])))
        add_dependency(plan, manifest, line, n, memchr(line, ';', len) != NULL);
    return true;
}

static void read_requirements(struct plan *plan, struct plan_manifest *manifest,
                              const char *text, struct findings *findings)
{
    unsigned number = 1;
    bool goes_on = false;

    for (const char *at = text; *at; number++) {
        size_t len = strcspn(at, "\r\n"), begin = strspn(at, " \t"), size = len;

        while (size > begin && (at[size - 1] == ' ' || at[size - 1] == '\t'))
            size--;
        begin = begin < size ? begin : size;
        if (!goes_on)
            manifest->is_needed |=
                read_requirement(plan, manifest, at + begin, size - begin, number, findings);
        goes_on = size > begin && at[size - 1] == '\\';
        at += len;
        at += *at == '\r';
        at += *at == '\n';
    }
}

/* -------------------------------------------------------------------- package.json */

static void read_npm_names(struct plan *plan, struct plan_manifest *manifest,
                           const json_t *root, const char *key, bool conditional)
{
    json_t *object = json_object_get(root, key), *value;
    const char *name;

    json_object_foreach(object, name, value)
    {
        add_dependency(plan, manifest, name, strlen(name), conditional);
        manifest->is_needed = true;
    }
}

static void read_package_json(struct plan *plan, struct plan_manifest *manifest,
                              const char *text, size_t size, struct findings *findings)
{
    static const char *const scripts[] = {"preinstall", "install", "postinstall", "prepare"};
    json_error_t why;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);

    if (!json_is_object(root)) {
        findings_add(findings, FINDING_MANIFEST_INVALID, manifest->path,
                     root ? 1 : (unsigned)(why.line > 0 ? why.line : 0), "is not JSON: %s",
                     root ? "it must be an object" : why.text);
        json_decref(root);
        return;
    }
    read_npm_names(plan, manifest, root, "dependencies", false);
    read_npm_names(plan, manifest, root, "optionalDependencies", true);
    manifest->is_needed |= json_object_get(root, "workspaces") != NULL;
    for (size_t i = 0; i < BERTH_COUNT(scripts); i++) {
        if (!json_object_get(json_object_get(root, "scripts"), scripts[i]))
            continue;
        manifest->has_install_script = true;
        manifest->is_needed = true;
        findings_add(findings, FINDING_INSTALL_SCRIPT, manifest->path, 0,
                     "the script '%s' runs inside the maintenance sandbox when the skill is "
                     "installed",
                     scripts[i]);
    }
    json_decref(root);
}

/* --------------------------------------------------------------------------- finding */

static const struct {
    enum plan_manifest_kind kind;
    const char *name;
    const char *locks[2];  /* that are used, the first found */
    const char *others[4]; /* that are not */
} kinds[] = {
    {PLAN_REQUIREMENTS, "requirements.txt", {NULL}, {NULL}},
    {PLAN_PYPROJECT,
     "pyproject.toml",
     {"uv.lock"},
     {"poetry.lock", "pdm.lock", "Pipfile.lock"}},
    {PLAN_PACKAGE_JSON,
     "package.json",
     {"package-lock.json", "npm-shrinkwrap.json"},
     {"yarn.lock", "pnpm-lock.yaml", "bun.lockb", "bun.lock"}},
};

static const struct bundle_entry *find_in(const struct bundle *bundle, const char *dir,
                                          const char *name)
{
    char path[BUNDLE_PATH_MAX + 64];
    const struct bundle_entry *entry;

    snprintf(path, sizeof path, "%s%s%s", dir, *dir ? "/" : "", name);
    entry = bundle_find(bundle, path);
    return entry && !entry->is_directory ? entry : NULL;
}

static bool add_manifest(struct plan *plan, enum plan_manifest_kind kind,
                         const struct bundle_entry *entry, const struct bundle_entry *lock)
{
    struct plan_manifest one = {.kind = kind, .path = strdup(entry->path)};

    one.lock_path = lock ? strdup(lock->path) : NULL;
    one.is_needed = kind == PLAN_PYPROJECT;
    if (!one.path || (lock && !one.lock_path) ||
        !grow(&plan->manifests, plan->n_manifests, sizeof one)) {
        free(one.path);
        free(one.lock_path);
        return false;
    }
    plan->manifests[plan->n_manifests++] = one;
    return true;
}

static void look_in(const struct bundle *bundle, const char *dir, struct findings *findings,
                    struct plan *plan)
{
    for (size_t i = 0; i < BERTH_COUNT(kinds); i++) {
        const struct bundle_entry *entry = find_in(bundle, dir, kinds[i].name), *lock = NULL;

        for (size_t k = 0; !lock && k < 2 && kinds[i].locks[k]; k++)
            lock = find_in(bundle, dir, kinds[i].locks[k]);
        if (entry && plan->n_manifests < PLAN_MANIFESTS_MAX &&
            !add_manifest(plan, kinds[i].kind, entry, lock))
            plan->no_memory = true;
        if (!entry && lock)
            findings_add(findings, FINDING_LOCK_UNUSED, lock->path, 0,
                         "there is no %s beside it", kinds[i].name);
        for (size_t k = 0; entry && !lock && k < 4 && kinds[i].others[k]; k++) {
            const struct bundle_entry *other = find_in(bundle, dir, kinds[i].others[k]);

            if (other)
                findings_add(findings, FINDING_LOCK_UNUSED, other->path, 0,
                             "is not read; %s is installed without a lock", kinds[i].name);
        }
    }
    if (find_in(bundle, dir, ".npmrc"))
        findings_add(findings, FINDING_INDEX_NAMED, find_in(bundle, dir, ".npmrc")->path, 0,
                     "may name a registry of its own; it is used only where the config's "
                     "policy allows it");
}

static enum berth_code read_manifest(const struct bundle *bundle, struct plan *plan,
                                     struct plan_manifest *manifest, struct findings *findings,
                                     struct berth_error *err)
{
    const struct bundle_entry *entry = bundle_find(bundle, manifest->path);
    BERTH_AUTO(free) char *text = NULL;
    size_t size = (size_t)entry->size;
    enum berth_code code;

    if (size > PLAN_MANIFEST_SIZE_MAX) {
        findings_add(findings, FINDING_MANIFEST_TOO_LARGE, manifest->path, 0,
                     "is longer than %d bytes, the limit", PLAN_MANIFEST_SIZE_MAX);
        return BERTH_OK;
    }
    code = bundle_load(bundle, entry, &text, err);
    if (code)
        return code;
    if (text_bad_byte(text, size) < size)
        findings_add(findings, FINDING_MANIFEST_INVALID, manifest->path, 0, "is not UTF-8");
    else if (manifest->kind == PLAN_REQUIREMENTS)
        read_requirements(plan, manifest, text, findings);
    else if (manifest->kind == PLAN_PACKAGE_JSON)
        read_package_json(plan, manifest, text, size, findings);
    return BERTH_OK;
}

enum berth_code plan_find_manifests(const struct bundle *bundle, struct findings *findings,
                                    struct plan *ret, struct berth_error *err)
{
    char before[BUNDLE_NAME_MAX + 1] = "";
    enum berth_code code = BERTH_OK;
    unsigned n_dirs = 0;

    look_in(bundle, "", findings, ret);
    for (size_t i = 0; i < bundle->n_entries && n_dirs < DIRS_MAX; i++) {
        const char *path = bundle->entries[i].path;
        size_t len = strcspn(path, "/");
        char dir[BUNDLE_NAME_MAX + 1];

        if (path[len] != '/')
            continue;
        snprintf(dir, sizeof dir, "%.*s", (int)len, path);
        if (strcmp(dir, before) == 0 || strcmp(dir, "node_modules") == 0)
            continue;
        memcpy(before, dir, sizeof before);
        n_dirs++;
        look_in(bundle, dir, findings, ret);
    }
    for (size_t i = 0; !code && i < ret->n_manifests; i++)
        code = read_manifest(bundle, ret, &ret->manifests[i], findings, err);
    return code;
}

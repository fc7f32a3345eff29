#include "services/skills/bundle/plan.h"

#include <stdio.h>

/* Writes the dependencies of [project] of argv[1] to argv[2], one a line. */
static const char list_project[] =
    "import os, sys\n"
    "try:\n"
    "    import tomllib\n"
    "except ImportError:\n"
    "    from pip._vendor import tomli as tomllib\n"
    "with open(sys.argv[1], 'rb') as file:\n"
    "    found = tomllib.load(file).get('project', {}).get('dependencies', [])\n"
    "os.makedirs(os.path.dirname(sys.argv[2]), exist_ok=True)\n"
    "with open(sys.argv[2], 'w') as file:\n"
    "    file.writelines(line + '\\n' for line in found)\n";

/* The skill's Python and its pip know the overlay of the session from then on: what is
 * installed goes there, what is there comes after the skill's own. The plan's own commands read
 * no configuration of pip. */
static const char know_overlay[] =
    "import os, sys, sysconfig\n"
    "overlay = '/workspace/.packages'\n"
    "with open(os.path.join(sys.prefix, 'pip.conf'), 'w') as file:\n"
    "    file.write(f'[install]\\nprefix = {overlay}\\n')\n"
    "with open(os.path.join(sysconfig.get_path('purelib'), 'berth-overlay.pth'), 'w') as "
    "file:\n"
    "    file.write('%s/lib/python%d.%d/site-packages\\n' % ((overlay,) + "
    "sys.version_info[:2]))\n";

void plan_deinit(struct plan *plan)
{
    for (size_t i = 0; i < plan->n_manifests; i++) {
        free(plan->manifests[i].path);
        free(plan->manifests[i].lock_path);
    }
    for (size_t i = 0; i < plan->n_dependencies; i++)
        free(plan->dependencies[i].name);
    for (size_t i = 0; i < plan->n_commands; i++) {
        skill_list_deinit(&plan->commands[i].argv);
        skill_list_deinit(&plan->commands[i].env);
        free(plan->commands[i].directory);
    }
    free(plan->manifests);
    free(plan->dependencies);
    free(plan->commands);
    free(plan->root);
    skill_list_deinit(&plan->env);
    *plan = (struct plan){0};
}

static void add_word(struct plan *plan, struct skill_list *list, const char *word)
{
    if (!skill_list_add(list, word, strlen(word)))
        plan->no_memory = true;
}

/* name NULL or value NULL: nothing. */
static void add_env(struct plan *plan, struct skill_list *list, const char *name,
                    const char *value)
{
    char *text = NULL;

    if (!value || !*value)
        return;
    if (asprintf(&text, "%s=%s", name, value) < 0)
        text = NULL;
    if (text)
        add_word(plan, list, text);
    else
        plan->no_memory = true;
    free(text);
}

/* A command in a folder of the skill ("": its root), or at an absolute path. NULL: no memory.
 */
BERTH_SENTINEL static struct plan_command *add(struct plan *plan, enum plan_step step,
                                               const char *manifest, const char *dir, ...)
{
    struct plan_command *bigger =
        realloc(plan->commands, (plan->n_commands + 1) * sizeof *bigger);
    struct plan_command *command;
    const char *word;
    va_list words;

    if (!bigger) {
        plan->no_memory = true;
        return NULL;
    }
    plan->commands = bigger;
    command = &bigger[plan->n_commands++];
    *command = (struct plan_command){.step = step, .manifest = manifest};
    if (asprintf(&command->directory, "%s%s%s", *dir == '/' ? "" : plan->root,
                 *dir && *dir != '/' ? "/" : "", dir) < 0) {
        command->directory = NULL;
        plan->no_memory = true;
    }
    va_start(words, dir);
    while ((word = va_arg(words, const char *)))
        add_word(plan, &command->argv, word);
    va_end(words);
    return command;
}

static void set_env(struct plan *plan, const struct plan_policy *policy)
{
    static const char *const always[][2] = {
        {"DEBIAN_FRONTEND", "noninteractive"},  {"PIP_CONFIG_FILE", "/dev/null"},
        {"PIP_DISABLE_PIP_VERSION_CHECK", "1"}, {"PIP_NO_INPUT", "1"},
        {"PIP_ROOT_USER_ACTION", "ignore"},     {"UV_NO_CONFIG", "1"},
        {"UV_PYTHON_DOWNLOADS", "never"},       {"UV_LINK_MODE", "copy"},
        {"npm_config_audit", "false"},          {"npm_config_fund", "false"},
        {"npm_config_update_notifier", "false"}};
    const struct plan_policy none = {0}, *p = policy ? policy : &none;
    const char *wheels = p->wheel_dir, *cache = p->npm_cache_dir;
    struct skill_list *env = &plan->env;

    for (size_t i = 0; i < BERTH_COUNT(always); i++)
        add_env(plan, env, always[i][0], always[i][1]);
    add_env(plan, env, "PIP_INDEX_URL", p->python_index_url);
    add_env(plan, env, "UV_DEFAULT_INDEX", p->python_index_url);
    add_env(plan, env, "UV_INDEX_URL", p->python_index_url);
    add_env(plan, env, "PIP_NO_INDEX", wheels ? "1" : NULL);
    add_env(plan, env, "UV_NO_INDEX", wheels ? "1" : NULL);
    add_env(plan, env, "PIP_FIND_LINKS", wheels);
    add_env(plan, env, "UV_FIND_LINKS", wheels);
    add_env(plan, env, "npm_config_registry", p->npm_registry);
    add_env(plan, env, "npm_config_offline", cache ? "true" : NULL);
    add_env(plan, env, "npm_config_cache", cache);
    add_env(plan, env, "HTTP_PROXY", p->proxy);
    add_env(plan, env, "HTTPS_PROXY", p->proxy);
    add_env(plan, env, "http_proxy", p->proxy);
    add_env(plan, env, "https_proxy", p->proxy);
    add_env(plan, env, "NO_PROXY", p->no_proxy);
    add_env(plan, env, "no_proxy", p->no_proxy);
}

static void plan_apt(struct plan *plan, const struct skill *skill)
{
    struct plan_command *install;

    if (skill->apt.n == 0)
        return;
    add(plan, PLAN_APT, "", "/", "apt-get", "update", "-q", (char *)NULL);
    install = add(plan, PLAN_APT, "", "/", "apt-get", "install", "-y", "-q",
                  "--no-install-recommends", "--", (char *)NULL);
    for (size_t i = 0; install && i < skill->apt.n; i++)
        add_word(plan, &install->argv, skill->apt.items[i]);
}

/* The folder of a manifest in the skill, "" for its root, and its name there. */
static const char *split(const char *path, char dir[BUNDLE_PATH_MAX + 1])
{
    const char *name = path_base(path);

    snprintf(dir, BUNDLE_PATH_MAX + 1, "%.*s", name > path ? (int)(name - path - 1) : 0, path);
    return name;
}

static void plan_uv(struct plan *plan, const struct plan_manifest *manifest, const char *dir,
                    bool has_uv)
{
    struct plan_command *sync = add(
        plan, PLAN_PYTHON, manifest->path, dir, has_uv ? "uv" : PLAN_SCRATCH_DIR "/uv/bin/uv",
        "sync", "--frozen", "--inexact", "--no-dev", "--no-install-project", (char *)NULL);
    char *venv = NULL;

    if (asprintf(&venv, "%s/.venv", plan->root) < 0)
        venv = NULL;
    if (sync && venv)
        add_env(plan, &sync->env, "UV_PROJECT_ENVIRONMENT", venv);
    plan->no_memory |= !venv;
    free(venv);
}

static void plan_python(struct plan *plan, const struct plan_manifest *manifest,
                        const char *python, size_t number, bool has_uv)
{
    char dir[BUNDLE_PATH_MAX + 1], listed[sizeof PLAN_SCRATCH_DIR + 40];
    const char *name = split(manifest->path, dir);

    if (manifest->kind == PLAN_PYPROJECT && manifest->lock_path) {
        plan_uv(plan, manifest, dir, has_uv);
        return;
    }
    if (manifest->kind == PLAN_PYPROJECT) {
        snprintf(listed, sizeof listed, PLAN_SCRATCH_DIR "/requirements-%zu.txt", number);
        add(plan, PLAN_PYTHON, manifest->path, dir, python, "-I", "-c", list_project, name,
            listed, (char *)NULL);
        name = listed;
    }
    add(plan, PLAN_PYTHON, manifest->path, dir, python, "-m", "pip", "install", "-r", name,
        (char *)NULL);
}

static void plan_all_python(struct plan *plan, bool has_uv)
{
    BERTH_AUTO(free) char *python = NULL;
    size_t n = 0, n_locked = 0;

    for (size_t i = 0; i < plan->n_manifests; i++) {
        const struct plan_manifest *manifest = &plan->manifests[i];
        bool counts = manifest->is_needed && manifest->kind != PLAN_PACKAGE_JSON;

        n += counts;
        n_locked += counts && manifest->lock_path;
    }
    if (n == 0)
        return;
    if (asprintf(&python, "%s/.venv/bin/python", plan->root) < 0) {
        python = NULL;
        plan->no_memory = true;
        return;
    }
    add(plan, PLAN_VENV, "", "", "python3", "-m", "venv", ".venv", (char *)NULL);
    if (n_locked > 0 && !has_uv) {
        add(plan, PLAN_TOOL, "", "/", "python3", "-m", "venv", PLAN_SCRATCH_DIR "/uv",
            (char *)NULL);
        add(plan, PLAN_TOOL, "", "/", PLAN_SCRATCH_DIR "/uv/bin/python", "-m", "pip", "install",
            "uv", (char *)NULL);
    }
    for (size_t i = 0; i < plan->n_manifests; i++)
        if (plan->manifests[i].is_needed && plan->manifests[i].kind != PLAN_PACKAGE_JSON)
            plan_python(plan, &plan->manifests[i], python, i, has_uv);
    if (n > 1) /* what one of them brought may have been replaced by another */
        add(plan, PLAN_CHECK, "", "", python, "-m", "pip", "check", (char *)NULL);
    add(plan, PLAN_VENV, "", "", python, "-I", "-c", know_overlay, (char *)NULL);
}

static void plan_node(struct plan *plan, const struct plan_manifest *manifest)
{
    char dir[BUNDLE_PATH_MAX + 1];

    (void)split(manifest->path, dir);
    if (manifest->lock_path)
        add(plan, PLAN_NODE, manifest->path, dir, "npm", "ci", "--omit=dev", (char *)NULL);
    else
        add(plan, PLAN_NODE, manifest->path, dir, "npm", "install", "--omit=dev", "--no-save",
            "--no-package-lock", (char *)NULL);
}

enum berth_code plan_make(const struct bundle *bundle, const struct skill *skill,
                          const struct plan_policy *policy, const struct plan_host *host,
                          struct findings *findings, struct plan *ret, struct berth_error *err)
{
    enum berth_code code = plan_find_manifests(bundle, findings, ret, err);

    if (code)
        return code;
    if (asprintf(&ret->root, PLAN_SKILLS_DIR "/%s", skill->name ? skill->name : "") < 0) {
        ret->root = NULL;
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    set_env(ret, policy);
    if (policy && policy->deny_apt && skill->apt.n > 0)
        findings_add(findings, FINDING_APT_REFUSED, "SKILL.md", 0,
                     "metadata.berth-apt: the config's policy has no Debian packages "
                     "(skills.deny_apt)");
    plan_apt(ret, skill);
    plan_all_python(ret, host && host->has_uv);
    for (size_t i = 0; i < ret->n_manifests; i++)
        if (ret->manifests[i].kind == PLAN_PACKAGE_JSON && ret->manifests[i].is_needed)
            plan_node(ret, &ret->manifests[i]);
    return ret->no_memory ? berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL) : BERTH_OK;
}

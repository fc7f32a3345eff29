/* plan.h - what a skill's dependencies need, as commands that somebody else runs: in order, as
 * root, inside the maintenance sandbox, where the bundle has been unpacked. Pure.
 *
 * Manifests count at the skill's root and one folder down (scripts/ and its neighbours):
 * requirements.txt, pyproject.toml (with uv.lock: exactly that), package.json (with
 * package-lock.json or npm-shrinkwrap.json: exactly that). All Python of a skill shares
 * <skill>/.venv; node_modules stand beside their package.json. Nothing is written to a manifest
 * or a lock. */
#pragma once

#include "services/skills/bundle/skill.h"

#define PLAN_SKILLS_DIR "/opt/berth/skills"
/* Made and used by the commands; wiped with the rest of the scratch before the snapshot. */
#define PLAN_SCRATCH_DIR "/tmp/berth-install"

enum { PLAN_MANIFESTS_MAX = 64, PLAN_MANIFEST_SIZE_MAX = 1 << 20 };

enum plan_manifest_kind { PLAN_REQUIREMENTS, PLAN_PYPROJECT, PLAN_PACKAGE_JSON };

struct plan_manifest {
    enum plan_manifest_kind kind;
    char *path;      /* owned, in the skill; its SHA-256 is the entry's: bundle_find() */
    char *lock_path; /* owned; NULL: none */
    bool is_needed;  /* something is to be installed for it */
    bool has_install_script;
};

/* One dependency that a manifest declares by name (of pyproject.toml: none; the gate asks it
 * inside the sandbox). */
struct plan_dependency {
    const char *manifest; /* borrowed from the manifest */
    char *name;           /* owned, as written */
    bool is_python;
    bool is_conditional; /* has a marker, or is optional: may rightly be absent */
};

enum plan_step { PLAN_APT, PLAN_VENV, PLAN_TOOL, PLAN_PYTHON, PLAN_NODE, PLAN_CHECK };

struct plan_command {
    enum plan_step step;
    struct skill_list argv; /* no shell */
    char *directory;        /* owned, absolute */
    struct skill_list env;  /* "NAME=value", on top of plan.env */
    const char *manifest;   /* that it is for; borrowed; "": none */
};

struct plan {
    char *root; /* owned: /opt/berth/skills/<name> */
    struct plan_manifest *manifests;
    size_t n_manifests;
    struct plan_dependency *dependencies;
    size_t n_dependencies;
    struct plan_command *commands;
    size_t n_commands;
    struct skill_list env; /* "NAME=value" of all commands: indexes, proxies, no questions */
    bool no_memory;
};

/* What the config says about where packages come from. All borrowed; NULL: nothing. */
struct plan_policy {
    const char *python_index_url; /* in place of PyPI */
    const char *npm_registry;     /* in place of npm's */
    const char *proxy, *no_proxy; /* of HTTP and HTTPS */
    /* Absolute folders in the sandbox. Given: nothing is asked over the network. */
    const char *wheel_dir, *npm_cache_dir;
    bool deny_apt; /* a skill that asks for Debian packages is refused */
};

/* What the image brings; found out in the sandbox (`command -v`) before. */
struct plan_host {
    bool has_uv; /* else it is got by pip, into the scratch folder */
};

/* Zeroed is empty. */
void plan_deinit(struct plan *plan);

/**
 * plan_make() - look for manifests and say what is to be done
 * @policy, @host: may be NULL
 * @ret:           zeroed. Of a refused bundle it means nothing
 *
 * What stands in pip's and npm's files beyond names (an index of its own, install scripts) is
 * told as findings.
 *
 * Errors: OUT_OF_MEMORY; INTERNAL_BUG (the spool).
 */
BERTH_MUST_CHECK enum berth_code
plan_make(const struct bundle *bundle, const struct skill *skill,
          const struct plan_policy *policy, const struct plan_host *host,
          struct findings *findings, struct plan *ret, struct berth_error *err);

/* manifest.c, for plan.c: fill ret->manifests and ret->dependencies. */
BERTH_MUST_CHECK enum berth_code plan_find_manifests(const struct bundle *bundle,
                                                     struct findings *findings,
                                                     struct plan *ret, struct berth_error *err);

#include "services/controlplane/environment.h"

#include <stdio.h>

#include "common/messages/messages.h"
#include "services/controlplane/names.h"

typedef Berth__Backend__V1__CreateSandboxRequest CreateSandboxRequest;

static bool set_env(CreateSandboxRequest *req, const char *name, const char *value)
{
    return berth_set_map(&req->n_env, &req->env,
                         &berth__backend__v1__create_sandbox_request__env_entry__descriptor,
                         name, value);
}

static const char *get_env(const CreateSandboxRequest *req, const char *name)
{
    for (size_t i = 0; i < req->n_env; i++)
        if (strcmp(req->env[i]->key, name) == 0)
            return req->env[i]->value;
    return NULL;
}

/* Unless the caller has said something else. */
static bool offer_env(CreateSandboxRequest *req, const char *name, const char *value)
{
    return get_env(req, name) ? true : set_env(req, name, value);
}

/* Folders behind those of the caller. */
static bool extend_env(CreateSandboxRequest *req, const char *name, const char *folders)
{
    const char *present = get_env(req, name);
    BERTH_AUTO(free) char *text = NULL;

    if (!present || !*present)
        return set_env(req, name, folders);
    if (asprintf(&text, "%s:%s", present, folders) < 0) {
        text = NULL;
        return false;
    }
    return set_env(req, name, text);
}

static bool set_overlay(CreateSandboxRequest *req)
{
    return set_env(req, "BERTH_PACKAGES_DIR", CP_PACKAGES_DIR) &&
           set_env(req, "BERTH_PATH", CP_PACKAGES_DIR "/bin:/workspace/node_modules/.bin") &&
           offer_env(req, "PYTHONUSERBASE", CP_PACKAGES_DIR) &&
           offer_env(req, "PIP_BREAK_SYSTEM_PACKAGES", "1") &&
           offer_env(req, "PIP_DISABLE_PIP_VERSION_CHECK", "1") &&
           extend_env(req, "PYTHONPATH", CP_PACKAGES_DIR "/python") &&
           offer_env(req, "NPM_CONFIG_PREFIX", CP_PACKAGES_DIR) &&
           offer_env(req, "NPM_CONFIG_UPDATE_NOTIFIER", "false") &&
           extend_env(req, "NODE_PATH",
                      CP_PACKAGES_DIR "/lib/node_modules:/workspace/node_modules");
}

bool cp_set_environment(CreateSandboxRequest *req,
                        const Berth__Control__V1__SandboxConfig *settings,
                        const Berth__Common__V1__SessionSpec *spec,
                        const Berth__Common__V1__SessionRef *ref)
{
    for (size_t i = 0; i < settings->n_env; i++)
        if (!set_env(req, settings->env[i]->key, settings->env[i]->value))
            return false;
    for (size_t i = 0; spec && i < spec->n_env; i++)
        if (!set_env(req, spec->env[i]->key, spec->env[i]->value))
            return false;
    return set_env(req, "BERTH_TENANT_ID", ref->tenant_id) &&
           set_env(req, "BERTH_SESSION_ID", ref->session_id) &&
           set_env(req, "BERTH_INPUT_DIR", "/workspace/input") &&
           set_env(req, "BERTH_OUTPUT_DIR", "/workspace/output") &&
           set_env(req, "BERTH_SKILLS_DIR", "/opt/berth/skills") &&
           (cp_is_maintenance(ref->session_id) || set_overlay(req));
}

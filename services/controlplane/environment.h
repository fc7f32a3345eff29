/* environment.h - what every command of a sandbox finds in its environment. Pure.
 *
 * The overlay is where a session's user installs packages: in /workspace, so that it is carried
 * along, and no part of the image. pip finds it by PYTHONUSERBASE (as uid 1000 it installs
 * there by itself, into a folder of each Python's version; the marker of PEP 668 is told to
 * stand aside), npm -g by its prefix. What a skill's .venv does with it stands in the .venv
 * (services/skills/bundle/plan.c). Adapters put BERTH_PATH in front of PATH, and before that
 * the commands of BERTH_SKILL_DIR, which a caller sets with a command. */
#pragma once

#include <stdbool.h>

#include "berth/backend/v1/backend.pb-c.h"
#include "berth/control/v1/config.pb-c.h"

#define CP_PACKAGES_DIR "/workspace/.packages"

/* The config's, the session's over it, Berth's own over both; of what pip and npm look at the
 * caller's stand, of search paths they stand first. A maintenance session has no overlay.
 * spec may be NULL. False: no memory. */
bool cp_set_environment(Berth__Backend__V1__CreateSandboxRequest *req,
                        const Berth__Control__V1__SandboxConfig *settings,
                        const Berth__Common__V1__SessionSpec *spec,
                        const Berth__Common__V1__SessionRef *ref);

#include "tests/lib/skill_bundles.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define TEN(text) text text text text text text text text text text

/* Python: manifests at the root and in scripts/, a description with ": ", a name in capitals.
 */
static const struct pack_file table_tools[] = {
    {"Table-Tools/", NULL},
    {"Table-Tools/SKILL.md",
     "---\n"
     "name: Table Tools\n"
     "description: Reads tables. Use when: the user has CSV, XLSX or a page with tables.\n"
     "license: MIT\n"
     "metadata:\n"
     "  version: 1.10\n"
     "  berth-self-test: python3 scripts/convert.py --check\n"
     "---\n"
     "\n# Table tools\n\nRun `scripts/convert.py`.\n\n---\n\nSee "
     "[more](references/more.md).\n"},
    {"Table-Tools/requirements.txt", "# runtime\r\ntabulate==0.9.0\r\n"},
    {"Table-Tools/scripts/requirements.txt",
     "--extra-index-url https://wheels.example.com/simple\n"
     "et-xmlfile >= 1.1, < 2  # spreadsheets\n"
     "colorama; sys_platform == 'win32'\n"
     "six==1.16.0 \\\n    "
     "--hash=sha256:8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e02"
     "54\n"},
    {"Table-Tools/scripts/convert.py",
     "#!/usr/bin/env python3\nimport sys\nprint('ok', sys.argv[1:])\n", .mode = 0755},
    {"Table-Tools/references/more.md", "# More\n"},
    {"__MACOSX/Table-Tools/._SKILL.md", "x"},
    {"Table-Tools/.DS_Store", "x"},
};

/* Node: a lock, an install script, tools restricted. */
static const struct pack_file web_report[] = {
    {"SKILL.md", "---\n"
                 "name: web-report\n"
                 "description: >-\n"
                 "  Renders a report as HTML.\n"
                 "  Use it for anything that goes into a browser.\n"
                 "allowed-tools:\n"
                 "  - Bash(node:*)\n"
                 "  - Read\n"
                 "---\n"
                 "# Web report\n"},
    {"package.json", "{\"name\": \"web-report\", \"private\": true,\n"
                     " \"dependencies\": {\"mustache\": \"^4.2.0\", \"@scope/x\": \"1\"},\n"
                     " \"optionalDependencies\": {\"fsevents\": \"2\"},\n"
                     " \"devDependencies\": {\"eslint\": \"*\"},\n"
                     " \"scripts\": {\"postinstall\": \"node setup.js\", \"test\": \"x\"}}\n"},
    {"package-lock.json", "{\"lockfileVersion\": 3, \"packages\": {}}\n"},
    {"setup.js", "console.log('set up')\n"},
    {"lib/render.mjs", "export default () => '<p>'\n"},
    {"viewer/package.json", "{\"dependencies\": {\"htm\": \"3\"}}\n"},
    {"viewer/yarn.lock", "# yarn\n"},
};

/* Shell: nothing to install but Debian packages. */
static const struct pack_file git_helper[] = {
    {"git-helper/SKILL.md", "---\r\nname: git-helper\r\n"
                            "description: \"Finds the commit that broke it: bisects.\"\r\n"
                            "allowed-tools: Bash(git:*) Read\r\n"
                            "metadata: {berth-apt: \"jq git\", berth-env: GIT_TOKEN}\r\n"
                            "---\r\n# Git helper\r\n"},
    {"git-helper/scripts/bisect.sh", "#!/bin/sh\nset -eu\ngit bisect start\n", .mode = 0755},
    {"git-helper/scripts/lib.bash", "f() { echo x; }\n"},
};

/* A 400-character Chinese description; scripts/pyproject.toml with a lock. */
static const struct pack_file contract_review[] = {
    {"SKILL.md", "---\nname: contract-review\ndescription: " TEN(TEN("合同"))
                     TEN(TEN("审查")) "\n---\n# 合同审查\n"},
    {"scripts/pyproject.toml", "[project]\nname = \"review\"\nversion = \"1\"\n"
                               "dependencies = [\"tabulate\"]\n"},
    {"scripts/uv.lock", "version = 1\n"},
    {"scripts/审查.py", "print('好')\n"},
    {"references/条款.md", "# 条款\n"},
};

/* Many references, a font, deep folders, an empty one, an archive, a pyproject without a lock.
 */
static const struct pack_file brand_guide[] = {
    {"SKILL.md",
     "\xef\xbb\xbf---  \nname: brand-guide\n"
     "description: |\n  The brand: colours, type --- and voice.\n\n  Ask for it.\n"
     "requires:\n  mcp: [figma]\nargument-hint: [topic]\n---\nRead the references.\n"},
    {"references/colours.md", "# Colours\n"},
    {"references/type/scale.md", "# Scale\n"},
    {"references/type/web/fallbacks/list.md", "# Fallbacks\n"},
    {"references/voice.md", "# Voice\n"},
    {"assets/fonts/Brand.woff2", "wOF2\0\1\2\3\0\0", 10},
    {"assets/templates.zip", "PK\3\4", 4},
    {"assets/drafts/", NULL},
    {"pyproject.toml", "[project]\nname = \"x\"\ndependencies = [\"tabulate>=0.9\"]\n"},
};

const struct skill_bundle skill_bundles[] = {
    {"table-tools", table_tools, COUNT(table_tools)},
    {"web-report", web_report, COUNT(web_report)},
    {"git-helper", git_helper, COUNT(git_helper)},
    {"contract-review", contract_review, COUNT(contract_review)},
    {"brand-guide", brand_guide, COUNT(brand_guide)},
};
const size_t n_skill_bundles = COUNT(skill_bundles);

const struct skill_bundle *skill_bundle_find(const char *name)
{
    for (size_t i = 0; i < n_skill_bundles; i++)
        if (strcmp(skill_bundles[i].name, name) == 0)
            return &skill_bundles[i];
    abort();
}

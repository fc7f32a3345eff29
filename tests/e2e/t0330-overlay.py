#!/usr/bin/python3
"""t0330-overlay - what a session installs by pip and npm goes to /workspace, works there, goes along with it,
and leaves skills as they are."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import bundles  # noqa: E402
import tap  # noqa: E402
from suite import Failure, TestSuite, pb  # noqa: E402

S, OVERLAY, SKILL = "overlay", "/workspace/.packages", "/opt/berth/skills/with-venv"
ROOT = pb.data.ACCOUNT_ROOT


def shell(suite, text, status=0, session=S, **more):
    result = suite.api.run(session, text, **more)
    tap.equal(result.exited.exit_code, status, text, (result.stdout + result.stderr).decode(errors="replace"))
    return (result.stderr if status else result.stdout).decode()


def put(suite, named):
    path = "/tmp/" + named[0]
    suite.api.write_file(S, path, named[1])
    return path


def refusal(call, *args, **more):
    try:
        call(*args, **more)
    except Failure as failure:
        return failure
    raise AssertionError("it was accepted")


# pip install, in spite of Debian's marker: import and command work, also without a shell; a later version replaces.
def pip_install__system_python__lands_in_the_overlay(suite):
    first, second = put(suite, bundles.wheel("alpha")), put(suite, bundles.wheel("beta"))
    shell(suite, f"pip install -q --no-index {first} && pip install -q --no-index {second}")
    tap.equal(shell(suite, "python3 -c 'import alpha; print(alpha.__file__)'").split("/lib/")[0], OVERLAY)
    tap.equal(shell(suite, "alpha-cmd; beta-cmd"), "alpha 1.0\nbeta 1.0\n")
    tap.equal(shell(suite, ["beta-cmd"]), "beta 1.0\n")
    shell(suite, f"python3 -m pip install -q --no-index {put(suite, bundles.wheel('alpha', '2.0'))}")
    tap.equal(shell(suite, "alpha-cmd; pip list 2>/dev/null | grep -c alpha"), "alpha 2.0\n1\n")
    shell(suite, f"pip uninstall -q -y beta; ! beta-cmd 2>/dev/null; test -w {OVERLAY}")


# npm install -g and npm install: require and command work, also without a shell.
def npm_install__global_and_local__land_in_workspace(suite):
    one, two = put(suite, bundles.npm_package("gamma")), put(suite, bundles.npm_package("delta"))
    shell(suite, f"npm install -g --offline {one} && npm install --offline {two}", timeout=60)
    tap.equal(shell(suite, "cd /tmp && node -p \"require('gamma') + require('delta')\""), "gamma 1.0.0delta 1.0.0\n")
    tap.equal(shell(suite, "gamma-cmd; delta-cmd"), "gamma 1.0.0\ndelta 1.0.0\n")
    tap.equal(shell(suite, ["gamma-cmd"]), "gamma 1.0.0\n")
    tap.equal(shell(suite, "readlink -f $(command -v gamma-cmd)"), f"{OVERLAY}/lib/node_modules/gamma/cmd.js\n")


# The commands that an installation would run, as root: the skill's Python has its own packages, and the overlay behind them.
def pip_install__python_of_a_skill__skill_untouched(suite):
    name, data = bundles.wheel("alpha", "1.5")
    bundle = bundles.simple("with-venv", requirements__txt=f"./{name}\n") | {name: data}
    plan = suite.api.install_skill("local", bundles.pack(bundle), validate_only=True).plan
    shell(suite, f"mkdir -p {SKILL}", account=ROOT)
    suite.api.import_workspace(S, bundles.pack({"skill/" + path: text for path, text in bundle.items()}))
    shell(suite, f"cp -r /workspace/skill/. {SKILL}/ && rm -r /workspace/skill", account=ROOT)
    for command in plan.commands:
        shell(suite, list(command.argv), account=ROOT, cwd=command.directory, timeout=120,
              env={"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1"})
    shell(suite, f"chmod -R a-w {SKILL}; find {SKILL} -printf '%p %T@ %s\\n' | sort >/root/before", account=ROOT)
    at = {"env": {"BERTH_SKILL_DIR": SKILL}}
    tap.equal(shell(suite, "python -c 'import alpha; print(alpha.VERSION)'", **at), "1.5\n")
    shell(suite, ["pip", "install", "-q", "--no-index", put(suite, bundles.wheel("epsilon"))], **at)
    tap.equal(shell(suite, "python -c 'import alpha, epsilon; print(alpha.VERSION, epsilon.VERSION)'", **at), "1.5 1.0\n")
    tap.equal(shell(suite, ["python", "-c", "import sys; print(sys.prefix)"], **at), SKILL + "/.venv\n")
    tap.equal(shell(suite, ["epsilon-cmd"], **at), "epsilon 1.0\n")
    tap.equal(shell(suite, "python3 -c 'import alpha; print(alpha.VERSION)'"), "2.0\n")
    shell(suite, f"find {SKILL} -printf '%p %T@ %s\\n' | sort | cmp - /root/before", account=ROOT)


# Into the tree of skills nothing can be written; FileService says where to instead.
def write__tree_of_skills__refused_with_a_hint(suite):
    for failure in (refusal(suite.api.write_file, S, SKILL + "/x", b"x"), refusal(suite.api.make_dir, S, SKILL + "/d"),
                    refusal(suite.api.remove, S, SKILL + "/SKILL.md")):
        tap.check(failure.code == "PERMISSION_DENIED" and OVERLAY in str(failure), failure)
    tap.check("ermission denied" in shell(suite, f"echo x >{SKILL}/SKILL.md", 1), "no word of it")


# Root loads no code from where the session's user installs.
def environment__root__has_no_overlay(suite):
    said = shell(suite, ["env"], account=ROOT)
    tap.check(OVERLAY + "/" not in said and "PYTHONUSERBASE" not in said, said)
    tap.check(OVERLAY not in shell(suite, "echo $PATH; python3 -c 'import sys; print(sys.path)'", account=ROOT), "on a path")


# Where packages come from is stored with the config, changed by the mask, judged as other addresses, and planned with.
def policy__of_a_config__stored_and_planned_with(suite):
    def update(*paths, **skills):
        return suite.api.configs.UpdateConfig(pb.control.UpdateConfigRequest(
            config=pb.control.SandboxConfig(tenant_id="default", config_id="local", skills=skills),
            update_mask={"paths": list(paths)})).config.skills
    asks_apt = bundles.pack(bundles.simple("asks", front="metadata:\n  berth-apt: jq\n"))

    def verdict():
        return suite.api.install_skill("local", asks_apt, validate_only=True).operation.state
    tap.equal(verdict(), pb.skills.OPERATION_STATE_DONE)
    update("skills", wheel_dir="/srv/wheels", deny_apt=True)
    after = update("skills.python_index_url", python_index_url="https://index.example/simple")
    tap.equal((after.wheel_dir, after.python_index_url, after.deny_apt),
              ("/srv/wheels", "https://index.example/simple", True))
    tap.equal(verdict(), pb.skills.OPERATION_STATE_FAILED)
    failure = refusal(update, "skills.npm_registry", npm_registry="http://10.0.0.1/")
    tap.equal((failure.reason, failure.metadata["field"]), ("ENDPOINT_REFUSED", "config.skills.npm_registry"))
    tap.check(not update("skills").wheel_dir, "it was not cleared")


# Packages go along where the workspace does.
def overlay__workspace_exported__works_there(suite):
    tar, _ = suite.api.export_workspace(S)
    suite.api.resolve("other", config="local")
    suite.api.import_workspace("other", tar)
    tap.equal(shell(suite, "alpha-cmd; gamma-cmd; delta-cmd", session="other"), "alpha 2.0\ngamma 1.0.0\ndelta 1.0.0\n")


class Suite(TestSuite):
    def __enter__(self):
        super().__enter__()
        self.api = self.client()
        self.api.configs.UpdateConfig(pb.control.UpdateConfigRequest(
            config=pb.control.SandboxConfig(tenant_id="default", config_id="local", root_commands=True),
            update_mask={"paths": ["root_commands"]}))
        self.api.resolve(S, config="local")
        return self


if __name__ == "__main__":
    tap.main(globals(), Suite)

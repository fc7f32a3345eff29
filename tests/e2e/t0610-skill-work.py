#!/usr/bin/python3
"""t0610-skill-work - the steps of an installation in a real maintenance sandbox, by hand: files in place,
dependencies and their failures, seal, gate and cleaning against what skills may try."""
import io
import os
import re
import subprocess
import sys
import tarfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import BUILD, TestSuite, pb, wait_for  # noqa: E402

ROOT, CLOSED = pb.data.ACCOUNT_ROOT, pb.common.SWITCH_CLOSED
TREE = "/opt/berth/skills"
STEP = re.compile(r"(.*?) (\d+) (OK|[A-Z_]{3,} .*)$", re.S)
WORKER = os.path.join(BUILD, "tests", "component", "skills", "skill-worker")


class Work:
    """What the worker's steps came to."""

    def __init__(self, suite, name, config, *steps):
        self.session, self.api = "sk." + name, suite.peer()
        if "keep" in steps:
            suite.kept.append(self.session)
        done = subprocess.run([WORKER, suite.path("run"), "default", config, self.session, *steps],
                              capture_output=True, text=True, errors="replace", timeout=120, check=False)
        self.said, self.lines = done.stderr, done.stdout.splitlines()
        if os.environ.get("VERBOSE"):
            print("\n".join(self.lines), file=sys.stderr)
        self.findings = [line.split(" ", 2)[1:] for line in self.lines if line.startswith("finding ")]

    def result(self, step):
        """The reason and the text of a step."""
        for line in self.lines:
            if line.startswith(step + " ") or line.startswith(step + "="):
                return STEP.match(line).group(3)
        raise AssertionError(f"no step {step}: {self.lines} {self.said[-500:]}")

    def good(self):
        bad = [line for line in self.lines if STEP.match(line) and STEP.match(line).group(3) != "OK"]
        tap.check(not bad and self.lines, bad, self.findings, self.said[-800:])
        return self

    def shell(self, text, account=ROOT):
        """What it prints in the session's sandbox."""
        done = self.api.run(self.session, text, account=account)
        return (done.stdout + done.stderr).decode(errors="replace").strip()


def bundle(suite, name, files, **metadata):
    """A tar with SKILL.md; files: {path: text, or (text, mode)}."""
    path = suite.path(name + ".tar")
    lines = ["---", "name: " + name, "description: made by a test"]
    if metadata:
        lines += ["metadata:"] + [f"  {key.replace('_', '-')}: {value}" for key, value in metadata.items()]
    with tarfile.open(path, "w") as tar:
        for file, text in {"SKILL.md": "\n".join(lines) + "\n---\nDo.\n", **files}.items():
            text, mode = text if isinstance(text, tuple) else (text, 0o644)
            info = tarfile.TarInfo(file)
            info.size, info.mode = len(text.encode()), mode
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


# All steps of a skill of four languages: it lies there whole, root's and read-only, nothing else is left.
def work__whole_skill__sealed_verified_and_clean(suite):
    path = bundle(suite, "whole", {
        "scripts/a.py": ("#!/usr/bin/env python3\nimport os\nopen('/tmp/left', 'w').write('x')\n"
                         "open('/workspace/left', 'w').write('x')\nos.makedirs('/workspace/new/dir')\n"
                         "open(os.path.expanduser('~/.profile'), 'w').write('changed')\nos.remove(os.path.expanduser('~/.bashrc'))\n"
                         "if os.fork() == 0:\n    os.setsid(); os.close(1); os.close(2)\n    import time; time.sleep(999)\n", 0o755),
        "scripts/b.js": "return 1; // of a CommonJS module\n", "scripts/c.mjs": "export default await 1;\n",
        "scripts/d.sh": "echo d\n", "scripts/e f.bash": "x=(1 2)\n", "assets/data.bin": "\x01",
        "scripts/names/\u540d\u524d.py": "x = '\u00e4'\n"},
        berth_self_test="'python3 scripts/a.py'")
    work = Work(suite, "whole", "local", "upload=" + path, "dependencies", "seal", "verify", "clean", "keep").good()
    tap.equal(work.findings, [])
    tap.equal(work.shell(f"cd {TREE} && find . -not -type l -printf '%u:%g %m %p\\n' | sort -k3"),
              "\n".join(f"root:root {mode} ./{name}".rstrip("/") for mode, name in [
                  ("555", ""), ("555", "whole"), ("444", "whole/SKILL.md"), ("555", "whole/assets"),
                  ("444", "whole/assets/data.bin"), ("555", "whole/scripts"), ("555", "whole/scripts/a.py"),
                  ("444", "whole/scripts/b.js"), ("444", "whole/scripts/c.mjs"), ("444", "whole/scripts/d.sh"),
                  ("444", "whole/scripts/e f.bash"), ("555", "whole/scripts/names"),
                  ("444", "whole/scripts/names/\u540d\u524d.py")]).replace("./\n", ".\n", 1))
    tap.equal(work.shell("ls -A /opt/berth /tmp /var/tmp /workspace /root"),
              "/opt/berth:\nskills\n\n/root:\n.bashrc\n.profile\n\n/tmp:\n\n/var/tmp:\n\n/workspace:\ninput\noutput")
    tap.equal(work.shell("head -c 7 ~user/.profile; ls -A ~user | wc -l; pgrep -c python3"), "# ~/.pr3\n0")
    tap.equal(work.shell(f"touch {TREE}/whole/x {TREE}/x; rm -f {TREE}/whole/SKILL.md", account=0).count("denied"), 3)


# What a skill can get wrong, all told at once: scripts of each language, a dependency, a manifest, a dead parser.
def verify__broken_skill__everything_told(suite):
    deep = "x = " + "(" * 100000 + "\n"
    path = bundle(suite, "broken", {
        "a.py": "def f(:\n", "b.js": "const x = ;\n", "c.sh": "echo a\nif true; then\n", "d.bash": "x=(1\n",
        "odd.js": "import fs from 'fs';\n", "tests/test_a.py": "def f(:\n", "null.py": "x = '\0'\n", "deep.py": deep,
        "requirements.txt": "six\nabsent; python_version < '3'\n",
        "package.json": '{"dependencies": {"x": "1"}, "optionalDependencies": {"y": "1"}}'}, berth_self_test="'false'")
    work = Work(suite, "broken", "local", "upload=" + path, "seal", "verify")
    tap.equal(work.result("verify").split()[0], "GATE_FAILED")
    told = sorted((code, text.split(" ")[0]) for code, text in work.findings)
    tap.equal(told, [("DEPENDENCY_ABSENT", "package.json:0"), ("DEPENDENCY_ABSENT", "requirements.txt:0"),
                     ("DEPENDENCY_SKIPPED", "package.json:0"), ("DEPENDENCY_SKIPPED", "requirements.txt:0"),
                     ("SCRIPT_MODULE", "odd.js:0"), ("SCRIPT_SYNTAX", "a.py:1"), ("SCRIPT_SYNTAX", "b.js:1"),
                     ("SCRIPT_SYNTAX", "c.sh:3"), ("SCRIPT_SYNTAX", "d.bash:1"), ("SCRIPT_SYNTAX", "deep.py:1"),
                     ("SCRIPT_SYNTAX", "null.py:0"), ("SCRIPT_SYNTAX_AUXILIARY", "tests/test_a.py:1")])


# Nothing of a skill runs while it is parsed, whatever it calls its files and whatever the session's environment says.
def verify__hostile_names__nothing_runs(suite):
    trap = "import os\nos.system('touch /tmp/ran')\n"
    path = bundle(suite, "hostile", {
        "$(touch ran).sh": "touch /tmp/ran\n", "-c touch.sh": "touch /tmp/ran\n", "a;b `id`.bash": "touch /tmp/ran\n",
        "ast.py": trap, "warnings.py": trap, "sitecustomize.py": trap, "encodings/__init__.py": trap,
        "cookie.py": "# -*- coding: hostile -*-\n", "hostile.py": trap,
        "fs.js": "require('fs').writeFileSync('/tmp/ran', '')\n", "m.mjs": "import 'fs';\nawait 1;\n",
        "tomllib.py": trap, "pyproject.toml": "[project]\nname = 'x'\nversion = '1'\ndependencies = []\n"})
    work = Work(suite, "hostile", "local", "upload=" + path, "seal", "verify", "keep")
    tap.equal([code for code, _ in work.findings], ["SCRIPT_SYNTAX"], work.findings)
    tap.equal(work.findings[0][1].split(":")[0], "cookie.py")
    work = Work(suite, "hostile2", "local", "upload=" + path, "seal", "keep").good()
    tap.equal(work.shell("ls /tmp"), "berth-install")


# Install scripts run as root, and leave what they like: the seal takes rights away and refuses what leads out.
def seal__what_install_scripts_leave__taken_away_or_refused(suite):
    def after(name, script, *steps):
        path = bundle(suite, name, {"good.py": "x = 1\n", "p/x.txt": "x"})
        return Work(suite, name, "local", "upload=" + path, "root=" + script, *steps, "keep")
    skill = TREE + "/rights"
    work = after("rights", f"cd {skill}; chmod 4777 good.py; chmod 2777 p; chown 1000:1000 SKILL.md; cp /bin/true cap; "
                 "setcap cap_net_raw+ep cap 2>/dev/null || python3 -c \"import os; os.setxattr('cap', 'security.capability', "
                 "bytes.fromhex('0100000200200000000000000000000000000000'))\"; "
                 "echo secret > /root/s; chmod 600 /root/s; ln /root/s hard; ln -s /usr/bin/python3 py; ln -s good.py also; "
                 "chmod 0 p/x.txt; (setsid sleep 999 &)", "seal").good()
    tap.equal(work.shell(f"cd {skill}; stat -c '%U %a %h %n' good.py p SKILL.md hard p/x.txt; stat -c %a /root/s; "
                         "python3 -c \"import os; print(os.listxattr('cap'))\"; pgrep -c sleep"),
              "root 555 1 good.py\nroot 555 2 p\nroot 444 1 SKILL.md\nroot 444 1 hard\nroot 444 1 p/x.txt\n600\n[]\n0")
    for name, script, text in [("out", "ln -s /root/.ssh {0}/x", "leads out of its skill"),
                               ("other", "mkdir {0}/../z; ln -s ../z {0}/x", "leads out of its skill"),
                               ("wind", "ln -s p/../../../.. {0}/x", "cannot be told"),
                               ("fifo", "mkfifo {0}/x", "FIFO"),
                               ("whole", "rm -r {0}; ln -s /usr {0}", "leads out of its skill")]:
        work = after(name, script.format(f"{TREE}/{name}"), "seal")
        tap.equal(work.result("seal").split()[0], "GATE_FAILED", work.lines)
        tap.check(text in work.result("seal"), work.result("seal"))


# A self-test that fails, hangs, floods or dies is told with what it said last.
def self_test__every_bad_end__told(suite):
    def told(name, test, *options):
        path = bundle(suite, name, {}, berth_self_test=test)
        work = Work(suite, name, "local", *options, "upload=" + path, "seal", "verify")
        tap.equal([code for code, _ in work.findings], ["SELF_TEST_FAILED"], work.lines)
        return work.findings[0][1]
    tap.check("exit code 3: no such input" in told("fails", "'echo no such input >&2; exit 3'"))
    tap.check("in time" in told("hangs", "'sleep 99'", "timeout=1500"))
    tap.check("signal" in told("dies", "'kill -9 $$'"))
    tap.check("printed more than" in told("floods", "'yes'"))
    tap.check("denied" in told("writes", "'touch x'"))


# Without a network: in seconds, and in clear words.
def dependencies__no_network__said_in_seconds(suite):
    config = pb.control.SandboxConfig(config_id="closed", tenant_id="default", name="closed", backend="local", template_id="base",
                                      network=pb.common.NetworkPolicy(egress=CLOSED))
    suite.client().configs.CreateConfig(pb.control.CreateConfigRequest(config=config))
    path = bundle(suite, "npm", {"package.json": '{"dependencies": {"left-pad": "1"}}'})
    text = Work(suite, "closed", "closed", "upload=" + path, "dependencies").result("dependencies")
    tap.check(text.startswith("DEPENDENCY_FAILED Node packages of package.json: no package index could be reached"), text)


# A stop in the middle of a command is obeyed within a second, and the command is gone with its session.
def stop__in_a_command__within_a_second(suite):
    path = bundle(suite, "slow", {})
    work = Work(suite, "slow", "local", "upload=" + path, "stop=300", "root=sleep 99")
    tap.equal(work.result("root").split()[0], "CANCELLED")
    took = [int(STEP.match(line).group(2)) for line in work.lines if line.startswith("root=")][0]
    tap.check(took < 2000, f"{took} ms")


# Data plane or adapter killed under a command: it is found again, and what it printed comes whole and once.
def kill__under_a_command__found_again(suite):
    for name in ("dataplane", "adapter-local"):
        marks = suite.path(name + ".begun")
        steps = subprocess.Popen(
            [WORKER, suite.path("run"), "default", "local", "sk." + name, "root=for i in $(seq 12); do echo $i; sleep 0.1; done", "seal"],
            stdout=subprocess.PIPE, stderr=open(marks, "w"), text=True)
        wait_for(lambda: os.path.getsize(marks), 20, "the command prints", step=0.02)
        suite.kill9(name)
        suite.start(name)
        lines = steps.communicate(timeout=60)[0].splitlines()
        tap.check([STEP.match(line).group(3) for line in lines if STEP.match(line)] == ["OK"] * 4, lines)
        with open(marks) as file:
            tap.equal(file.read().split(), [str(i) for i in range(1, 13)])


# A newer one takes the old one's place whole, one that goes is gone, and the other stays as it is.
def upload__again__in_place_of_the_old_one(suite):
    first = bundle(suite, "twice", {"old.py": "x = 1\n", "both.py": "x = 1\n"})
    os.rename(first, first + ".old")
    second = bundle(suite, "twice", {"new.py": "x = 1\n", "both.py": "x = 2\n"})
    other = bundle(suite, "other", {"o.py": "x = 1\n"})
    work = Work(suite, "twice", "local", f"upload={first}.old", "upload=" + other, "seal", "upload=" + second,
                "remove=other", "seal", "verify", "clean", "keep").good()
    tap.equal(work.shell(f"cd {TREE}; find . -type f | sort; cat twice/both.py"),
              "./twice/SKILL.md\n./twice/both.py\n./twice/new.py\nx = 2")


# A sandbox that is lost in the middle is not worked on in another one's place.
def lost_sandbox__in_the_middle__said(suite):
    path = bundle(suite, "lost", {})
    work = Work(suite, "lost", "local", "upload=" + path, "root=kill -9 -1; rm -rf /opt/berth/.work", "seal")
    tap.equal(work.result("seal").split()[0], "SANDBOX_NOT_FOUND", work.lines)


class Suite(TestSuite):
    """Deletes what was kept to be looked at."""

    kept = []

    def __exit__(self, *exc):
        for session in self.kept:
            self.peer().delete(session)
        return super().__exit__(*exc)


if __name__ == "__main__":
    tap.main(globals(), Suite)

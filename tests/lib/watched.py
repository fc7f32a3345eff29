"""watched.py - test programs of a build, run under something that watches them; TAP.

    watched.main(build, always=[...], named=[...], command=..., environment=..., reports=..., planted=...)

always and named are names of meson tests: the first run as part of everything, all of them where
BERTH_NAMED=true (the part was named) or by `run all`; other arguments are names of tests. `run
--targets` prints what is to be built for that. Each program has a process namespace of its own: when
it ends, or this one does, nothing that it started goes on."""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SECONDS_MAX = 240


def introspect(build, what):
    return json.loads(subprocess.run(["meson", "introspect", what, str(build)], check=True,
                                     stdout=subprocess.PIPE).stdout)


def targets(build, tests):
    outputs = {target["id"]: target["filename"] for target in introspect(build, "--targets")}
    wanted = set()
    for test in tests:
        wanted.add(os.path.relpath(test["cmd"][0], build))
        for dependency in test["depends"]:
            wanted.update(os.path.relpath(name, build) for name in outputs.get(dependency, []))
    return sorted(wanted)


def run(words, build, environment):
    """The exit status and what was printed."""
    if os.geteuid() == 0:
        # Process ids start anew in there and stand in names of sockets: a /tmp of its own, too.
        own_tmp = "true" if ROOT.parts[1] == "tmp" else "mount -t tmpfs -o mode=1777 tmpfs /tmp"
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
                 "sh", "-c", own_tmp + ' && exec "$@"', "watched", *words]
    # Where /tmp cannot be its own, files that valgrind names after process 1 must still not meet.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryDirectory() as folder:
        if ROOT.parts[1] == "tmp":
            environment = {**environment, "TMPDIR": folder}
        try:
            done = subprocess.run(words, cwd=build, env={**os.environ, **environment}, check=False,
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                  timeout=SECONDS_MAX, start_new_session=True)
            status = done.returncode
        except subprocess.TimeoutExpired:
            status = f"no end in {SECONDS_MAX} s"
        out.seek(0)
        return status, out.read().decode(errors="replace")


def main(build, always, named, command, environment, reports, planted):
    """command(test) -> words; reports(text) -> lines of what was found; planted: the target of a
    program with a fault, the proof that faults are found."""
    build = pathlib.Path(build).resolve()
    arguments = [word for word in sys.argv[1:] if not word.startswith("--")]
    names = always + named if os.environ.get("BERTH_NAMED") == "true" or arguments == ["all"] else always
    if arguments and arguments != ["all"]:
        names = arguments
    known = {test["name"]: test for test in introspect(build, "--tests")}
    missing = [name for name in names if name not in known]
    if missing:
        sys.exit(f"Bail out! no such test: {' '.join(missing)}")
    tests = [known[name] for name in names]
    if "--targets" in sys.argv:
        print(" ".join(targets(build, tests) + [planted]))
        return 0
    print(f"1..{len(tests) + 1}", flush=True)
    bad = 0

    def one(test):
        begin = time.monotonic()
        env = {**environment, **test["env"], "BERTH_BUILD_DIR": str(build)}
        return test, *run(command(test["cmd"]), build, env), time.monotonic() - begin

    status, text = run(command([str(build / planted)]), build, environment)
    if status == 0 or not reports(text):
        bad += 1
        print("not ", end="")
    print("ok 1 - planted__fault__found", flush=True)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        for number, done in enumerate(concurrent.futures.as_completed(
                [threads.submit(one, test) for test in tests]), 2):
            test, status, text, seconds = done.result()
            found = reports(text)
            if status == 77 and not found:
                print(f"ok {number} - {test['name']} # SKIP it cannot run here", flush=True)
                continue
            if status or found:
                bad += 1
                for line in (found or text.splitlines())[-60:]:
                    print(f"# {line}")
                print(f"# exit status {status}\nnot ", end="")
            print(f"ok {number} - {test['name']}", flush=True)
            print(f"{test['name']} {seconds:.1f} s", file=sys.stderr, flush=True)
    return 1 if bad else 0

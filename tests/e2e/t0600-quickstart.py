#!/usr/bin/python3
"""t0600-quickstart - the first command a stranger types, on ports of its own: it starts, shows the
main job, is quick the second time, tells its state, and stops without leaving anything."""
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import REPO, base, health, need_root, template_cache  # noqa: E402
import leftovers  # noqa: E402


def quickstart(state, *more, timeout=900):
    done = subprocess.run([os.path.join(REPO, "deploy", "quickstart"), "--state", state, *more], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=timeout)
    print(done.stdout, file=sys.stderr)
    return done


# Everything up to the main job, and the suite is left running.
def quickstart__first_run__main_job_shown_and_suite_up(state):
    done = quickstart(state)
    tap.equal(done.returncode, 0, done.stdout[-600:])
    for word in ("The main job is done", "grpcurl -plaintext", "--stop"):
        tap.check(word in done.stdout, word, "is not said")
    suite = base.Suite(state)
    for name in suite.names:
        tap.equal(health(suite.target(name)), "SERVING", name)


# Nothing is done again: seconds, and the same processes.
def quickstart__second_run__seconds_and_same_processes(state):
    suite = base.Suite(state)
    before = {name: suite.pid(name) for name in suite.names}
    begin = time.monotonic()
    done = quickstart(state, "--no-demo")
    took = time.monotonic() - begin
    tap.equal(done.returncode, 0, done.stdout[-600:])
    tap.check(took < 15, f"{took:.1f} s")
    tap.equal({name: suite.pid(name) for name in suite.names}, before)


# A binary that was built again is the one that runs after the next quickstart; the others stay.
def quickstart__binary_built_again__that_service_restarted(state):
    suite = base.Suite(state)
    before = {name: suite.pid(name) for name in suite.names}
    os.utime(suite.binary("dataplane"))
    tap.equal(quickstart(state, "--no-demo").returncode, 0)
    after = {name: suite.pid(name) for name in suite.names}
    tap.equal([name for name in suite.names if before[name] != after[name]], ["dataplane"])


# --status tells what runs, and after --stop nothing does.
def quickstart__status_and_stop__told_and_nothing_left(state):
    tap.equal(quickstart(state, "--status").returncode, 0)
    tap.equal(quickstart(state, "--stop").returncode, 0)
    tap.equal(leftovers.find(state) + leftovers.furniture(state), [])
    done = quickstart(state, "--status")
    tap.check(done.returncode == 3 and "not running" in done.stdout, done.stdout)
    tap.equal(quickstart(state, "--stop").returncode, 0, "stopping twice")


# Started again after a stop, on the same state folder.
def quickstart__after_stop__starts_again(state):
    done = quickstart(state, "--no-demo")
    tap.equal(done.returncode, 0, done.stdout[-600:])
    tap.equal(quickstart(state, "--stop").returncode, 0)
    tap.equal(leftovers.find(state) + leftovers.furniture(state), [])


# A state folder on overlayfs is refused with words that say what to do.
def quickstart__state_on_overlayfs__refused_with_advice(state):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for part in ("lower", "upper", "work", "merged"):
            os.mkdir(os.path.join(folder, part))
        options = ",".join(f"{part}dir={folder}/{part}" for part in ("lower", "upper", "work"))
        merged = os.path.join(folder, "merged")
        if subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, merged]).returncode:
            raise tap.Skip("overlay cannot be mounted here")
        try:
            done = quickstart(os.path.join(merged, "state"))
        finally:
            subprocess.run(["umount", merged], check=True)
        tap.check(done.returncode != 0 and "overlayfs" in done.stdout and "--state DIR" in done.stdout, done.stdout)


# Where another suite has the usual ports, a new state folder gets free ones, and keeps them.
def suite__usual_ports_taken__free_ones(state):
    with socket.socket() as held, tempfile.TemporaryDirectory() as folder:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # somebody has it already
            held.bind(("127.0.0.1", base.PORTS["dataplane"]))
            held.listen()
        other = base.Suite(folder)
        ports = set(other.facts["ports"].values())
        tap.check(not ports & set(base.PORTS.values()) and len(ports) == 2 * len(base.PORTS), other.facts["ports"])
        other.facts["build"] = state
        for part in ("run", "log", "redis", "local"):
            os.makedirs(other.path(part))
        other.prepare()
        tap.equal(base.Suite(folder).facts["ports"], other.facts["ports"])


# An unknown option is refused with the usage.
def quickstart__unknown_option__usage(state):
    done = quickstart(state, "--no-such")
    tap.check(done.returncode == 2 and "usage:" in done.stdout and "--no-such" in done.stdout, done.stdout)


@contextlib.contextmanager
def prepared():
    """A state folder with free ports and the shared template: what a second checkout would have."""
    need_root()
    templates = template_cache()
    state = tempfile.mkdtemp(prefix="berth-quick-", dir="/var/tmp")
    numbers = base.free_ports(2 * len(base.ORDER))
    ports = dict(zip(base.ORDER, numbers)) | {n + "-metrics": p for n, p in zip(base.ORDER, numbers[len(base.ORDER):])}
    with open(os.path.join(state, "suite.json"), "w") as file:
        json.dump({"deployment": "quickstart", "ports": ports, "control_planes": 1,
                   "options": {"adapter-local": {"template_dirs": templates}}}, file)
    try:
        yield state
    finally:
        with contextlib.suppress(base.SuiteError):
            base.Suite(state).stop()
        left = leftovers.find(state)
        leftovers.remove(state)
        shutil.rmtree(state, ignore_errors=True)
    tap.equal(left, [])


if __name__ == "__main__":
    tap.main(globals(), prepared)

#!/usr/bin/python3
"""t0100-mainjob - the main job that quickstart shows, on a suite of its own, twice.

Sanitized, too."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import REPO, TestSuite  # noqa: E402


def run(suite, *more):
    done = subprocess.run([os.path.join(REPO, "deploy", "mainjob.py"), "--state", suite.state, *more],
                          capture_output=True, text=True, timeout=400)
    print(done.stdout + done.stderr, file=sys.stderr)
    steps = re.findall(r"^  (ok  |FAIL) +[\d.]+ ms  (.*)$", done.stdout, re.M)
    failed = [text for verdict, text in steps if verdict == "FAIL"]
    tap.check(done.returncode == 0 and not failed, done.stderr.strip(), *failed)
    tap.check(len(steps) >= 35, "only", len(steps), "steps")


# Every step of the main job holds, with a kill -9 of every service between the turns.
def mainjob__services_killed_between_turns__every_step_holds(suite):
    run(suite)


# And again on the same suite: new sessions, nothing in the way of them.
def mainjob__second_time_on_the_same_suite__every_step_holds(suite):
    run(suite, "--no-kill")


if __name__ == "__main__":
    tap.main(globals(), TestSuite)

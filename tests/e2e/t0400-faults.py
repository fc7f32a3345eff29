#!/usr/bin/python3
"""t0400-faults - what is away is said within a second, nothing is torn down for it, running commands
go on, and all is well again without a restart of anybody else.

Sanitized, too."""
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import Failure, TestSuite, health, pb, wait_for  # noqa: E402
import leftovers  # noqa: E402

S = "steady"


def refusal(call, *args, **more):
    try:
        call(*args, **more)
    except Failure as failure:
        return failure
    raise AssertionError("it was accepted")


def within_a_second(call, *args, code="UNAVAILABLE", **more):
    """The refusal, which comes soon. A call that had left when its peer died is honestly told as
    OUTCOME_UNKNOWN: then the next one is judged."""
    begin = time.monotonic()
    failure = refusal(call, *args, **more)
    if failure.reason == "OUTCOME_UNKNOWN":
        begin = time.monotonic()
        failure = refusal(call, *args, **more)
    took = time.monotonic() - begin
    tap.equal(failure.code, code, failure)
    tap.check(took <= 1.2, f"answered after {took:.2f} s: {failure}")
    return failure


def recovers(call, *args, **more):
    """The answer of a call that is repeated while it says UNAVAILABLE, as any client may: connections
    come back within a second or two of their peer."""
    def one():
        try:
            return call(*args, **more)
        except Failure as failure:
            tap.equal(failure.code, "UNAVAILABLE", failure)
            return None
    return wait_for(one, 5, "it answers again", step=0.05)


@contextlib.contextmanager
def killed(suite, name):
    """kill -9 for the length of a block; what comes after a failure finds it running again."""
    suite.kill9(name)
    try:
        yield
    finally:
        if name == "redis":
            suite.start_redis()
        else:
            suite.restart(name)


class Ticking:
    """A command that prints a line every 50 ms, read by a thread of its own."""

    def __init__(self, suite, exec_id):
        self.events = suite.api.exec(S, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done", exec_id=exec_id,
                                     timeout=300, rpc_timeout=300)
        self.error = None
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        self.goes_on()

    def read(self):
        try:
            self.events.finish()
        except Failure as failure:
            self.error = failure

    def lines(self):
        return self.events.stdout.count(b"\n")

    def goes_on(self):
        now = self.lines()
        wait_for(lambda: self.lines() >= now + 3 or self.error, 10, "the running command's output goes on")
        tap.check(self.error is None, "the stream broke:", self.error)

    def end(self, suite):
        suite.api.signal(S, self.events.started.exec_id, signal.SIGKILL)
        self.thread.join(10)


def sandboxes(suite):
    return sorted(os.listdir(suite.path("local", "sandboxes")))


# Redis down: UNAVAILABLE within a second, NOT_SERVING, no teardown; a running command goes on, and
# all is well when it is back.
def redis_down__running_and_new_calls__unavailable_but_nothing_torn_down(suite):
    api = suite.api
    box = api.resolve(S, config="local").session.sandbox.sandbox_id
    there = sandboxes(suite)
    ticking = Ticking(suite, "over-redis")
    with killed(suite, "redis"):
        for call in (lambda: api.resolve("new", config="local"), lambda: api.session(S), lambda: api.delete(S),
                     lambda: api.begin_turn(S), lambda: api.pause(S)):
            within_a_second(call)
        wait_for(lambda: health(suite.target("controlplane"), "berth.control.v1.SessionService") == "NOT_SERVING", 5,
                 "SessionService is NOT_SERVING")
        tap.equal(health(suite.target("controlplane")), "SERVING", "the process itself is alive")
        ticking.goes_on()
    ticking.goes_on()
    tap.equal(recovers(api.resolve, S, config="local").session.sandbox.sandbox_id, box)
    tap.equal(sandboxes(suite), there)
    ticking.end(suite)


# Redis hangs (stopped, not dead): the same.
def redis_hangs__calls__unavailable_within_a_second(suite):
    api = suite.api
    pid = suite.pid("redis")
    os.kill(pid, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        failure = refusal(api.session, S)
        took = time.monotonic() - begin
        tap.equal(failure.code, "UNAVAILABLE", failure)
        tap.check(took < 2, f"{took:.2f} s")
        within_a_second(api.session, S)
    finally:
        os.kill(pid, signal.SIGCONT)
    tap.equal(recovers(api.resolve, S, config="local").outcome, pb.control.RESOLVE_OUTCOME_USED)


# The adapter killed: calls that need it are UNAVAILABLE within a second, the command in the sandbox
# goes on, and a repeat of its exec_id finds it when the adapter is back.
def adapter_killed__running_command__found_again_by_its_id(suite):
    api = suite.api
    box = api.resolve(S, config="local").session.sandbox.sandbox_id
    what = "for i in $(seq 60); do echo $i; sleep 0.05; done; echo $$ > /workspace/pid"
    first = api.exec(S, what, exec_id="over-adapter", timeout=60, detach=True).until(lambda e: e.stdout.count(b"\n") >= 3)
    failure = None
    with killed(suite, "adapter-local"):
        within_a_second(api.run, S, "true")
        try:
            first.finish()
        except Failure as caught:
            failure = caught
    tap.check(failure is not None and failure.code in ("UNKNOWN", "UNAVAILABLE"), "no exit may be made up:", failure, first.exited)
    recovers(api.run, S, "true")
    again = api.exec(S, what, exec_id="over-adapter", timeout=60, detach=True).finish()
    tap.equal((again.exited.reason, again.exited.exit_code), (pb.data.EXIT_REASON_EXITED, 0))
    tap.equal(again.stdout, b"".join(b"%d\n" % i for i in range(1, 61)))
    answer = api.resolve(S, config="local")
    tap.equal(answer.session.sandbox.sandbox_id, box)


# The data plane killed: what its callers ran has two seconds in which a repeat of the exec_id may take
# it over. A repeat never starts it twice: it gets what there is, or is told why the command was ended.
def dataplane_killed__commands_not_detached__kept_for_a_repeat(suite):
    api = suite.api
    api.resolve(S, config="local")
    short, long = "echo once >> /workspace/runs; sleep 0.5; echo done", "echo twice >> /workspace/runs; sleep 300"
    streams = [api.exec(S, what, exec_id=name, timeout=600, rpc_timeout=60).until_started()
               for name, what in (("short", short), ("long", long))]
    with killed(suite, "dataplane"):
        for stream in streams:
            tap.equal(refusal(stream.finish).code, "UNAVAILABLE")
    recovers(api.run, S, "true")
    wait_for(lambda: all(process.HasField("exited") for process in api.list_processes(S)), 10, "both have ended")
    again = recovers(api.run, S, short, exec_id="short", timeout=600)
    tap.equal((again.exited.reason, again.exited.exit_code, again.stdout), (pb.data.EXIT_REASON_EXITED, 0, b"done\n"))
    again = recovers(api.run, S, long, exec_id="long", timeout=600)
    tap.equal(again.exited.reason, pb.data.EXIT_REASON_KILLED)
    tap.check("its caller went away" in again.exited.message, again.exited.message)
    tap.equal(api.run(S, "sort /workspace/runs").stdout, b"once\ntwice\n")


# A control plane killed under load: its peer's calls and the running command do not notice.
def controlplane_killed__other_replica__serves_on(suite):
    first, second = suite.api, suite.client(control="controlplane-2")
    box = second.resolve(S, config="local").session.sandbox.sandbox_id
    ticking = Ticking(suite, "over-control")
    with killed(suite, "controlplane-2"):
        within_a_second(second.resolve, S, config="local")
        tap.equal(first.resolve(S, config="local").session.sandbox.sandbox_id, box)
        ticking.goes_on()
    tap.equal(recovers(second.resolve, S, config="local").session.sandbox.sandbox_id, box)
    ticking.end(suite)


# The control plane behind the data plane killed: the running command goes on, new ones say who is away.
def controlplane_of_dataplane_killed__running_command__goes_on(suite):
    ticking = Ticking(suite, "over-main-control")
    with killed(suite, "controlplane"):
        within_a_second(suite.api.run, S, "true")
        ticking.goes_on()
    tap.equal(recovers(suite.api.run, S, "echo back", text=True).stdout_text, "back\n")
    ticking.end(suite)


# Binding killed: UNAVAILABLE, then well again by itself.
def binding_killed__calls__unavailable_then_well_again(suite):
    with killed(suite, "binding"):
        within_a_second(suite.api.resolve, S, config="local")
    tap.equal(recovers(suite.api.resolve, S, config="local").outcome, pb.control.RESOLVE_OUTCOME_USED)


# A sandbox that dies by itself: the next command says so or runs in a new one, and nobody is told that
# the old one is still there.
def sandbox_killed__next_command__runs_in_a_new_one(suite):
    api = suite.api
    box = api.resolve("dies", config="local").session.sandbox.sandbox_id
    suite.kill_sandbox(box)
    tap.equal(recovers(api.run, "dies", "echo new", text=True).stdout_text, "new\n")
    tap.check(api.resolve("dies", config="local").session.sandbox.sandbox_id != box, "the dead one is still handed out")
    wait_for(lambda: box not in sandboxes(suite), 10, "the dead one's folder goes")


def zombies():
    """{pid: name} of children of ours that nobody has waited for."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
            if rest.split()[0] == "Z" and rest.split()[1] == str(os.getpid()):
                found[int(pid)] = name
    return found


# After a restart of the adapter its sandboxes are orphans. Whoever inherits them may be slow to reap, or
# never do it (a container without an init): a deleted sandbox reaps its own commands, and ends all the same.
def delete__heir_reaps_nothing__only_the_supervisor_is_left_to_it(suite):
    api, libc = suite.api, ctypes.CDLL(None, use_errno=True)
    tap.equal(libc.prctl(36, 1, 0, 0, 0), 0, "PR_SET_CHILD_SUBREAPER")
    try:
        api.resolve("orphan", config="local")
        for n in range(3):
            api.exec("orphan", "sleep 300 & sleep 300", exec_id=f"orphan-{n}", timeout=300, detach=True).until(lambda e: e.started)
        with killed(suite, "adapter-local"):
            pass
        recovers(api.run, "orphan", "true")
        before = zombies()
        api.delete("orphan")
        tap.equal([name for pid, name in zombies().items() if pid not in before], ["berth-local-sup"])
    finally:
        libc.prctl(36, 0, 0, 0, 0)
        for pid, name in zombies().items():
            if name == "berth-local-sup":
                os.waitpid(pid, 0)


# SIGTERM drains: a command in flight gets its answer, and every process exits 0 soon.
def sigterm__command_in_flight__drained(suite):
    answers = []

    def call():
        try:
            answers.append(suite.api.run(S, "sleep 1; echo whole", text=True).stdout_text)
        except Failure as failure:
            answers.append(str(failure))
    thread = threading.Thread(target=call)
    thread.start()
    wait_for(lambda: [p for p in suite.api.list_processes(S) if not p.HasField("exited")], 5, "the command runs")
    suite.end("dataplane", signal.SIGTERM)
    thread.join(15)
    tap.equal(answers, ["whole\n"])
    tap.equal(suite.children["dataplane"].returncode, 0)
    suite.restart("dataplane")


class Suite(TestSuite):
    def __init__(self):
        super().__init__(control_planes=2)

    def __enter__(self):
        super().__enter__()
        self.api = self.client()
        return self


if __name__ == "__main__":
    tap.main(globals(), Suite)

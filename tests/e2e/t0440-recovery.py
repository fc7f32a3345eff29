#!/usr/bin/python3
"""t0440-recovery - Redis loses everything it knew, under load. The records come back from the journals,
every sandbox is bound to its session again as it was, and nothing is created twice, woken or reaped.

Sanitized, too."""
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import Failure, TestSuite, pb, wait_for  # noqa: E402

RUNNING, PAUSED = pb.common.SANDBOX_STATE_RUNNING, pb.common.SANDBOX_STATE_PAUSED
USED = pb.control.RESOLVE_OUTCOME_USED
# What may be answered while the index is lost: nothing was done, ask again.
MEANWHILE = ("INDEX_RECOVERING", "STORE_UNAVAILABLE", "PEER_UNAVAILABLE", "QUARANTINE", "LOCK_WAIT")
PATIENCE = 30


def box_of(session):
    return session.sandbox.sandbox_id


def epoch(suite):
    return suite.redis_cli("get", "berth:epoch")


class Load:
    """Callers that resolve and run all the while, and a look at all sandboxes every few milliseconds."""

    def __init__(self, suite, sessions):
        self.suite, self.over, self.bad, self.answers = suite, threading.Event(), [], 0
        self.boxes = self.now()
        self.threads = [threading.Thread(target=self.call, args=(session,)) for session in sessions]
        self.threads.append(threading.Thread(target=self.look))

    def now(self):
        return set(os.listdir(self.suite.path("local", "sandboxes")))

    def call(self, session):
        api = self.suite.client()
        while not self.over.is_set():
            try:
                api.resolve(session, config="local", timeout=10)
                answer = api.run(session, "cat /workspace/kept", text=True, rpc_timeout=10)
                if answer.stdout_text != session:
                    self.bad.append(f"{session}: {answer}")
                self.answers += 1
            except Failure as failure:
                if failure.reason not in MEANWHILE:
                    self.bad.append(f"{session}: {failure}")
            time.sleep(0.01)

    def look(self):
        while not self.over.is_set():
            if self.now() != self.boxes:
                self.bad.append(f"sandboxes: {self.now() ^ self.boxes}")
                return
            time.sleep(0.005)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()
        tap.equal(self.bad, [])


class World:
    """Sessions of every kind, and what they were."""

    def __init__(self, suite, prefix):
        self.suite, self.api, self.prefix = suite, suite.client(), prefix
        self.workers = [f"{prefix}-w{n}" for n in range(3)]
        for name in self.workers + [self.name("turn"), self.name("paused"), self.name("origin")]:
            self.api.resolve(name, config="local")
            self.api.write_file(name, "/workspace/kept", name.encode())
        for name in self.workers:
            self.api.exec(name, "while :; do date +%s%N > /workspace/next; mv /workspace/next /workspace/beat; sleep 0.05; done", exec_id="beat",
                          detach=True).until_started().cancel()
        self.token = self.api.begin_turn(self.name("turn"))
        self.api.run(self.name("turn"), "true", turn=self.token)
        self.api.pause(self.name("paused"))
        self.snapshot = self.api.snapshot(self.name("origin"), "before").snapshot_id
        self.api.resolve(self.name("image"), config="local", image=pb.common.Image(snapshot_id=self.snapshot))
        self.api.write_file(self.name("image"), "/workspace/kept", self.name("image").encode())
        self.all = self.workers + [self.name(kind) for kind in ("turn", "paused", "origin", "image")]
        self.were = {name: self.api.session(name) for name in self.all}

    def name(self, kind):
        return f"{self.prefix}-{kind}"

    def check(self):
        """The same sandboxes, asleep or awake, of the same age and image; files, commands and the turn go on."""
        for name in self.all:
            was, now = self.were[name], self.api.session(name)
            tap.equal(box_of(now), box_of(was), name)
            tap.equal(now.sandbox.state, PAUSED if name == self.name("paused") else RUNNING, name)
            tap.equal(now.sandbox.create_time.ToMilliseconds(), was.sandbox.create_time.ToMilliseconds(), name)
            tap.equal(now.sandbox.image.generation, was.sandbox.image.generation, name)
        for name in self.workers:
            first = self.api.read_file(name, "/workspace/beat")
            wait_for(lambda name=name, first=first: self.api.read_file(name, "/workspace/beat") not in (first, b""), 5, "it beats")
            tap.check(any(each.exec_id == "beat" for each in self.api.list_processes(name)), name)
        answer = self.api.run(self.name("turn"), "cat /workspace/kept", turn=self.token, text=True)
        tap.equal(answer.stdout_text, self.name("turn"))
        answer = self.api.resolve(self.name("turn"), turn=self.token)
        tap.equal((answer.outcome, box_of(answer.session)), (USED, box_of(self.were[self.name("turn")])))
        for name in (self.name("paused"), self.name("image")):
            tap.equal(self.api.run(name, "cat /workspace/kept", text=True).stdout_text, name)
            tap.equal(box_of(self.api.session(name)), box_of(self.were[name]))
        boot = self.api.resolve(self.name("image") + "2", config="local", image=pb.common.Image(snapshot_id=self.snapshot))
        tap.check(box_of(boot.session), "the ledger knows its snapshot")

    def end(self):
        for name in self.all + [self.name("image") + "2"]:
            self.api.delete(name)
        self.api.delete_snapshot(self.snapshot)


def recovered(suite, before):
    wait_for(lambda: epoch(suite) not in ("", before), PATIENCE, "the index is recovered", step=0.05)


def new_session_waits(suite, name):
    """Until the index is whole nothing is made; then it is."""
    api = suite.client()

    def made():
        try:
            return box_of(api.resolve(name, config="local", timeout=10).session)
        except Failure as failure:
            tap.check(failure.reason in MEANWHILE, failure)
            return None
    return wait_for(made, PATIENCE, "a new session is made", step=0.02)


# All that Redis knew goes at once, while callers are at work: nobody restarts anything.
def index__emptied_under_load__everything_goes_on(suite):
    world, before = World(suite, "flush"), epoch(suite)
    with Load(suite, world.workers) as load:
        time.sleep(0.3)
        suite.redis_cli("flushall")
        tap.equal(epoch(suite), "")
        recovered(suite, before)
        answers = load.answers
        wait_for(lambda: load.answers > answers + 10, PATIENCE, "callers are answered again")
    world.check()
    tap.check(new_session_waits(suite, "flush-new"))
    suite.client().delete("flush-new")
    world.end()


# Redis comes back with an empty folder, and the control plane and skills were away, too.
def redis__back_empty__recovered_at_the_start(suite):
    world, before = World(suite, "empty"), epoch(suite)
    with Load(suite, []):
        for name in ("controlplane", "skills", "redis"):
            suite.end(name, signal.SIGKILL)
        shutil.rmtree(suite.path("redis"))
        os.makedirs(suite.path("redis"), mode=0o700)
        suite.start_redis()
        suite.start("controlplane", "skills")
        recovered(suite, before)
        suite.wait_ready()
    world.check()
    world.end()


# The backend of a config cannot be asked: whoever has no record waits for it, and then all are there.
def config__not_listed__its_tenant_waits_the_others_go_on(suite):
    api, before = suite.client(), epoch(suite)
    box = box_of(api.resolve("unlisted", config="local").session)
    suite.end("adapter-local", signal.SIGTERM)
    suite.redis_cli("flushall")
    recovered(suite, before)
    tap.equal(suite.redis_cli("smembers", "berth:recovery:unlisted"), "default/local")
    for call in (lambda: api.resolve("unlisted", config="local", timeout=10), lambda: api.session("unlisted")):
        try:
            call()
            raise AssertionError("it was answered")
        except Failure as failure:
            tap.equal(failure.reason, "INDEX_RECOVERING")
    tap.check(suite.client("another").tenants.ListTenants(pb.control.ListTenantsRequest()), "the others are served")
    suite.start("adapter-local")
    wait_for(lambda: not suite.redis_cli("smembers", "berth:recovery:unlisted"), PATIENCE, "it is listed", step=0.1)
    tap.equal(box_of(api.resolve("unlisted", config="local").session), box)
    api.delete("unlisted")


# A backup: into an empty store only; the sandboxes are bound again by the running suite.
def backup__imported_without_journals__sessions_are_back(suite):
    api, path = suite.client(), suite.path("backup")
    box = box_of(api.resolve("backup", config="local").session)

    def command(*words):
        return subprocess.run(suite.command("controlplane") + list(words), capture_output=True, text=True, timeout=20)
    done = command("--export", path)
    tap.equal(done.returncode, 0, done.stderr)
    tap.equal(os.stat(path).st_mode & 0o777, 0o600)
    done = command("--import", path)
    tap.check(done.returncode != 0 and "not empty" in done.stderr, done.stderr)
    for name in ("controlplane", "skills"):
        suite.end(name, signal.SIGTERM)
    shutil.rmtree(suite.path("journal"))
    os.makedirs(suite.path("journal"), mode=0o700)
    suite.redis_cli("flushall")
    done = command("--import", path)
    tap.equal(done.returncode, 0, done.stderr)
    suite.start("controlplane", "skills")
    recovered(suite, "")
    tap.equal(box_of(api.resolve("backup", config="local").session), box)
    api.delete("backup")
    with contextlib.suppress(OSError):
        os.unlink(path + ".lock")


if __name__ == "__main__":
    tap.main(globals(), TestSuite)

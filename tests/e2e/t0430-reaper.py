#!/usr/bin/python3
"""t0430-reaper - sandboxes made by hand, at the adapter's socket, and no call to anybody else: what a
reaper that runs by itself makes of them, while sessions are created at full speed."""
import contextlib
import glob
import os
import secrets
import sys
import threading
import time
import urllib.request

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import Failure, TestSuite, duration, pb, wait_for  # noqa: E402

B, R = pb.backend, pb.reaper
INTERVAL, GRACE = 1, 3
SLACK = 3  # of a busy machine
# An idle time below 10 s counts as 10 s: a command tells of itself after 5 s.
QUICK = pb.common.TimeoutPolicy(idle=duration(1), on_idle=pb.common.IDLE_ACTION_PAUSE)


class ReaperSuite(TestSuite):
    def __init__(self):
        super().__init__(options={
            "adapter-local": {"measure_interval": "500ms"},
            "dataplane": {"use_after": "500ms", "use_renew": "500ms"},
            "reaper": {"interval": f"{INTERVAL}s", "grace": f"{GRACE}s", "duplicate_grace": f"{GRACE}s", "lease": "3s"},
            "binding": {"turn_lease": "3s", "turn_lease_min": "1s"}})

    def __enter__(self):
        super().__enter__()
        self.api = self.client()
        self.api.configs.CreateConfig(pb.control.CreateConfigRequest(config=pb.control.SandboxConfig(
            config_id="quick", tenant_id="default", name="quick", backend="local", template_id="base", timeouts=QUICK)))
        self.api.configs.CreateConfig(pb.control.CreateConfigRequest(config=pb.control.SandboxConfig(
            config_id="short", tenant_id="default", name="short", backend="local", template_id="base",
            timeouts=pb.common.TimeoutPolicy(max_lifetime=duration(1)))))
        found = self.peer().internal.ListTargets(pb.control.ListTargetsRequest(tenant_id="default", config_id="quick"))
        self.quick = found.targets[0].target
        self.adapter = pb.rpc.backend.BackendServiceStub(grpc.insecure_channel(self.target("adapter-local")))
        self.reaper = pb.rpc.reaper.ReaperServiceStub(grpc.insecure_channel(self.target("reaper")))
        self.strays = []
        return self

    def __exit__(self, *failure):
        for box in self.strays if hasattr(self, "strays") else ():
            with contextlib.suppress(grpc.RpcError):
                self.adapter.DeleteSandbox(B.DeleteSandboxRequest(target=self.quick, sandbox_id=box, fence=2 ** 62))
        super().__exit__(*failure)

    def tags(self, session, **other):
        tags = {"deployment": "test", "tenant": "default", "session": session, "config": "quick", "backend": "local",
                "account": self.quick.fingerprint.hex(), "v": "1", "generation": "0", "fence": "1",
                "attempt": secrets.token_hex(16), "created": str(int(time.time() * 1000)), "kind": "session"} | other
        return {f"berth.{key}": value for key, value in tags.items() if value is not None}

    def make(self, tags):
        """A sandbox that no service but the adapter knows of."""
        policy = pb.common.TimeoutPolicy(auto_resume=pb.common.SWITCH_OPEN, max_paused=duration(86400),
                                         max_lifetime=duration(0), warn_before=duration(0))
        policy.MergeFrom(QUICK)
        made = self.adapter.CreateSandbox(B.CreateSandboxRequest(
            target=self.quick, image=pb.common.Image(template_id="base"), unique_key=secrets.token_hex(16), fence=1,
            metadata=tags, attempt=secrets.token_bytes(16), timeouts=policy,
            network=pb.common.NetworkPolicy(egress=pb.common.SWITCH_CLOSED, inbound=pb.common.SWITCH_CLOSED)), timeout=30).sandbox.sandbox_id
        self.strays.append(made)
        return made

    def look(self, box):
        """"" when it is gone."""
        try:
            got = self.adapter.GetSandbox(B.GetSandboxRequest(target=self.quick, sandbox_id=box), timeout=10)
            return pb.common.SandboxState.Name(got.sandbox.state).replace("SANDBOX_STATE_", "")
        except grpc.RpcError as error:
            tap.equal(error.code(), grpc.StatusCode.NOT_FOUND, error)
            return ""

    def bound(self, session):
        """"" while there is no such session, or nothing is bound."""
        try:
            return self.api.session(session).sandbox.sandbox_id
        except Failure as failure:
            tap.equal(failure.reason, "SESSION_NOT_FOUND", failure)
            return ""

    def plan(self, **more):
        return {each.item.sandbox_id: each.item for each in self.reaper.PlanSweep(R.PlanSweepRequest(**more), timeout=20)}

    def in_use(self, session):
        binding = pb.rpc.binding.BindingServiceStub(grpc.insecure_channel(self.target("binding")))
        return binding.GetBinding(pb.binding.GetBindingRequest(session=self.api.ref(session))).protected

    def metric(self, name, of="reaper"):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.facts['ports'][of + '-metrics']}/metrics", timeout=5) as page:
            lines = [line.split() for line in page.read().decode().splitlines() if line.startswith(name)]
        return sum(float(line[1]) for line in lines)


class Traffic:
    """Sessions created, used and deleted as fast as it goes; what of theirs vanished unasked."""

    def __init__(self, suite):
        self.suite, self.stop, self.made, self.wrong = suite, threading.Event(), 0, []
        self.thread = threading.Thread(target=self.run)

    def run(self):
        api = self.suite.client()
        while not self.stop.is_set():
            session = f"busy-{self.made}"
            try:
                box = api.resolve(session, config="local").session.sandbox.sandbox_id
                if self.made % 4 == 0 and api.resolve(session).session.sandbox.sandbox_id != box:
                    self.wrong.append(session)
                if self.made >= 8:
                    api.delete(f"busy-{self.made - 8}")
                self.made += 1
            except Failure as failure:
                self.wrong.append(str(failure))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


# A deleted session's sandbox goes within grace and two intervals, one without a record is adopted and then rests
# for want of use, others' and untagged ones stay and are told of; young and bound ones are not touched meanwhile.
def sweeps__made_by_hand__each_as_it_deserves(suite):
    for session, config in (("daemon", "quick"), ("aged", "short"), ("frozen", "local")):  # see below
        suite.api.resolve(session, config=config)
        suite.api.exec(session, ["sleep", "4242"], exec_id="left", timeout=0, detach=True).until_started().cancel()
    suite.api.pause("frozen")
    suite.frozen_at = time.time()
    suite.api.resolve("gone", config="quick")
    suite.api.delete("gone")
    suite.api.resolve("kept", config="local")
    kept = suite.api.session("kept").sandbox.sandbox_id
    with Traffic(suite) as traffic:
        begin = time.monotonic()
        deleted = suite.make(suite.tags("gone"))
        lost = suite.make(suite.tags("lost"))
        second = suite.make(suite.tags("kept", config="local"))
        foreign = suite.make(suite.tags("gone", deployment="another"))
        untagged = suite.make({"u.name": "mine"})
        unknown = suite.make(suite.tags("gone") | {"berth.session": "no such id"})
        wait_for(lambda: suite.look(deleted) == "", GRACE + 2 * 1.1 * INTERVAL + SLACK, "the deleted session's is gone")
        tap.check(time.monotonic() - begin > GRACE, "not before it was old enough")
        wait_for(lambda: suite.look(second) == "", GRACE + 2 * INTERVAL + SLACK, "the second one of a session is gone")
        wait_for(lambda: suite.bound("lost") == lost, GRACE + 2 * 1.1 * INTERVAL + SLACK, "the one without a record is adopted",
                 step=0.1)
        wait_for(lambda: suite.look(lost) == "PAUSED", 25, "and rests for want of use", step=0.2)
    tap.equal(traffic.wrong, [])
    tap.check(traffic.made > 20, "made", traffic.made)
    for box in (foreign, untagged, unknown, kept):
        tap.equal(suite.look(box), "RUNNING")
    verdicts = {box: R.Verdict.Name(item.verdict) for box, item in suite.plan(with_kept=True).items()}
    tap.equal([verdicts.get(box) for box in (foreign, untagged, unknown, kept)],
              ["VERDICT_KEEP_FOREIGN", "VERDICT_KEEP_UNTAGGED", "VERDICT_KEEP_UNTAGGED", "VERDICT_KEEP_BOUND"])
    tap.equal(suite.metric("berth_reaper_untagged"), 2)
    tap.equal(suite.metric("berth_reaper_leader"), 1)
    tap.check(suite.metric('berth_sandbox_running_seconds_total{tenant="default",config="local"}') > 0, "running seconds")


# What was left running long ago keeps its sandbox from idling, but not beyond its lifetime; with a time limit it
# holds a use token, for as long as it runs.
def detached__left_running__awake_and_mortal(suite):
    tap.equal(suite.look(suite.bound("daemon")), "RUNNING")
    tap.check(not suite.in_use("daemon"), "without a time limit it holds no token")
    got = suite.adapter.GetSandbox(B.GetSandboxRequest(target=suite.quick, sandbox_id=suite.bound("frozen")), timeout=10).sandbox
    tap.check(got.last_active_time.ToMilliseconds() / 1000 < suite.frozen_at + 1, "what is frozen does not run", got)
    wait_for(lambda: suite.bound("aged") == "", 3 * INTERVAL + SLACK, "its lifetime is over", step=0.1)
    tap.equal(events_of(suite, "aged", 2), ["CREATED", "KILLED"])
    suite.api.resolve("job", config="local")
    suite.api.exec("job", ["sleep", "4343"], exec_id="job", timeout=60, detach=True).until_started().cancel()
    wait_for(lambda: suite.in_use("job"), 10, "it holds a token", step=0.1)
    seen = suite.metric("berth_dataplane_uses_total", "dataplane")
    wait_for(lambda: suite.metric("berth_dataplane_uses_total", "dataplane") >= seen + 3, 10, "which is renewed", step=0.1)
    tap.check(suite.in_use("job"), "while it runs")
    tap.check(suite.api.signal("job", "job", 9), "it runs")
    wait_for(lambda: not suite.in_use("job"), 10, "and gives it back", step=0.1)


# Files of a real sandbox, and a snapshot of it, are bytes of their config; what was stored how long is added up.
def stored__files_and_a_snapshot__told_by_config(suite):
    size, of = 3 << 20, '{tenant="default",config="local"}'
    before = {kind: suite.metric(f"berth_{kind}_stored_bytes{of}") for kind in ("sandbox", "snapshot")}
    tap.equal(before["snapshot"], 0)
    suite.api.run("kept", f"head -c {size} /dev/urandom > data")
    snapshot = suite.api.snapshots.CreateSnapshot(pb.skills.CreateSnapshotRequest(session=suite.api.ref("kept"))).snapshot
    tap.check(size <= snapshot.size_bytes < size + (1 << 20), "size of the snapshot", snapshot.size_bytes)
    for kind in before:
        wait_for(lambda kind=kind: suite.metric(f"berth_{kind}_stored_bytes{of}") >= before[kind] + size,
                 2 * INTERVAL + SLACK, f"bytes of a {kind} are told", step=0.1)
        wait_for(lambda kind=kind: suite.metric(f"berth_{kind}_stored_byte_seconds_total{of}") > 0, 2 * INTERVAL + SLACK,
                 f"byte-seconds of a {kind} are told", step=0.1)


# What rests is resumed by the next use, and has lost nothing.
def idle__used_again__resumed(suite):
    answer = suite.api.resolve("lost")
    tap.equal(pb.control.ResolveOutcome.Name(answer.outcome), "RESOLVE_OUTCOME_RESUMED")
    tap.equal(list(answer.lost), [])


def events_of(suite, session, n):
    """The first n kinds of a session, and whether each was only seen later."""
    watch = suite.peer().events.WatchEvents(
        pb.control.WatchEventsRequest(tenant_id="default", session_id=session, after_cursor="0"), timeout=30)
    found = []
    for message in watch:
        if message.HasField("event"):
            event = message.event
            found.append(("*" if event.HasField("observe_time") else "") + pb.control.EventKind.Name(event.kind)[11:])
            if len(found) == n:
                watch.cancel()
                return found
    return found


# What somebody does to a sandbox by hand, at the kernel, is told once each, and the session goes on.
def by_hand__frozen_thawed_killed__told_once_each(suite):
    box = suite.api.resolve("hand", config="local").session.sandbox.sandbox_id
    [freezer] = glob.glob(f"/sys/fs/cgroup/**/{box}/box/cgroup.freeze", recursive=True)

    def freeze(word):
        with open(freezer, "w") as file:
            file.write(word)

    def power():
        return pb.common.SandboxState.Name(suite.api.session("hand").sandbox.state)[14:]

    freeze("1")
    wait_for(lambda: power() == "PAUSED", 2 * INTERVAL + SLACK, "the freeze is seen")
    freeze("0")
    wait_for(lambda: power() == "RUNNING", 2 * INTERVAL + SLACK, "the thaw is seen")
    freeze("1")
    suite.api.resolve("other", config="local")
    suite.api.delete("other")  # which makes the adapter tidy up
    wait_for(lambda: power() == "PAUSED", 2 * INTERVAL + SLACK, "the second freeze is seen")
    tap.equal(suite.api.run("hand", "echo goes on").stdout, b"goes on\n")
    suite.kill_sandbox(box)
    wait_for(lambda: suite.bound("hand") == "", 2 * INTERVAL + SLACK, "the loss is seen")
    tap.equal(pb.control.ResolveOutcome.Name(suite.api.resolve("hand").outcome), "RESOLVE_OUTCOME_REPLACED")
    tap.equal(events_of(suite, "hand", 7),
              ["CREATED", "*PAUSED", "*RESUMED", "*PAUSED", "RESUMED", "*LOST", "REPLACED"])
    tap.equal(suite.metric("berth_reaper_observed_total") >= 4, True)


# A deletion that its caller never saw the end of is brought to an end.
def deleting__control_plane_killed__finished_by_the_reaper(suite):
    box = suite.api.resolve("torn", config="local").session.sandbox.sandbox_id
    binding = pb.rpc.binding.BindingServiceStub(grpc.insecure_channel(suite.target("binding")))
    granted = binding.Acquire(pb.binding.AcquireRequest(session=suite.api.ref("torn"), want=pb.binding.WANT_DELETE, owner="test",
                                                        attempt=secrets.token_bytes(16)))
    binding.Abort(pb.binding.AbortRequest(session=suite.api.ref("torn"), lock=granted.lock))
    wait_for(lambda: suite.look(box) == "", 2 * 1.1 * INTERVAL + SLACK, "its sandbox is gone")
    wait_for(lambda: binding.GetBinding(pb.binding.GetBindingRequest(session=suite.api.ref("torn"))).session.state ==
             pb.common.SESSION_STATE_DELETED, 5, "and so is the session")


if __name__ == "__main__":
    tap.main(globals(), ReaperSuite)

#!/usr/bin/python3
"""t0710-skills-killed - kill -9 of skills, controlplane, adapter-local, dataplane and Redis, and SIGTERM of skills, while a
skill is being installed: the operation is finished or undone, one image is live, nothing is left over, nothing is lost that is named.

BERTH_KILLS=N: so many (8), BERTH_SEED=N: these (the time)."""
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import grpc  # noqa: E402
import bundles  # noqa: E402
import tap  # noqa: E402
from suite import Failure, TestSuite, duration, pb, quick, wait_for  # noqa: E402

K = pb.skills
ENDED = {K.OPERATION_STATE_DONE, K.OPERATION_STATE_FAILED, K.OPERATION_STATE_CANCELLED}
STOPPED = "skills, by SIGTERM"
VICTIMS = ("skills", "skills", STOPPED, STOPPED, "controlplane", "adapter-local", "dataplane", "redis")
STEPS = (K.STEP_LOCKED, K.STEP_SANDBOX_READY, K.STEP_UPLOADED, K.STEP_SEALED, K.STEP_VERIFIED, K.STEP_CLEANED,
         K.STEP_LEDGERED, K.STEP_SNAPSHOT_TAKEN, K.STEP_FLIPPED, K.STEP_MARKED_STALE)
CONFIG = "local"


def patiently(call, *args, timeout=90, **more):
    """Asked again while a service is away."""
    end = time.monotonic() + timeout
    while True:
        try:
            return call(*args, **more)
        except Failure as failure:
            if failure.code not in ("UNAVAILABLE", "UNKNOWN", "DEADLINE_EXCEEDED", "ABORTED") or time.monotonic() > end:
                raise
        time.sleep(0.1)


def image(suite):
    return patiently(suite.api.configs.GetConfig, pb.control.GetConfigRequest(
        tenant_id="default", config_id=CONFIG)).config.image


def snapshots(suite):
    """What the backend has."""
    with grpc.insecure_channel(suite.target("adapter-local")) as channel:
        page = pb.rpc.backend.SnapshotServiceStub(channel).ListSnapshots(pb.backend.ListSnapshotsRequest(
            target=quick.local_target(), page=pb.common.PageRequest(page_size=1000)), timeout=20)
    return {each.snapshot_id for each in page.snapshots}


def ledger(suite):
    return {each.snapshot_id for each in patiently(suite.api.snapshots.ListSnapshots, K.ListSnapshotsRequest(
        tenant_id="default", page=pb.common.PageRequest(page_size=1000))).snapshots if each.snapshot_id}


def kill(suite, name):
    if name == STOPPED:
        name = "skills"
        suite.end(name, signal.SIGTERM)
    else:
        suite.kill9(name)
    if name == "redis":
        suite.start_redis()
    else:
        suite.restart(name)


def one_kill(suite, draw, number):
    """An install of version `number`, somebody killed once it has reached a step, and what has come of it."""
    victim, step = draw.choice(VICTIMS), draw.choice(STEPS)
    before = image(suite)
    files = bundles.simple("victim", body=f"{number}\n") | {"data": b"x" * 200000}
    operation = patiently(suite.api.install_skill, CONFIG, bundles.pack(files), request_id=f"kill-{number}").operation
    end = time.monotonic() + 15
    while time.monotonic() < end:
        now = suite.api.operation(operation.operation_id)
        if now.step >= step or now.state in ENDED:
            break
    kill(suite, victim)
    said = f"kill {number} of {victim} at step {now.step} (wanted {step})"

    def ended():
        now = patiently(suite.api.operation, operation.operation_id)
        return now if now.state in ENDED else None
    now = wait_for(ended, 90, said, step=0.05)
    live = image(suite)
    if victim == STOPPED:  # the next start goes on with it
        tap.equal(now.state, K.OPERATION_STATE_DONE, said, now.message)
    if now.state == K.OPERATION_STATE_DONE:
        tap.equal((live.generation, live.snapshot_id), (now.generation, now.snapshot_id), said)
        suite.version = number
    else:
        tap.equal((live.generation, live.snapshot_id), (before.generation, before.snapshot_id), said, now.message)
    tap.check(not live.snapshot_id or (live.usable and live.snapshot_id in snapshots(suite)), said, live)
    session = f"after-{number}"
    patiently(suite.api.resolve, session, config=CONFIG)
    shown = patiently(suite.api.run, session, "tail -n 1 /opt/berth/skills/victim/SKILL.md", text=True)
    tap.equal(shown.stdout_text.strip(), str(suite.version) if suite.version is not None else "", said)
    patiently(suite.api.delete, session)
    return f"{victim}: {K.OperationState.Name(now.state)[16:]}"


# Whoever is killed at whatever step.
def install_skill__somebody_killed_at_each_step__finished_or_undone(suite):
    seed = int(os.environ.get("BERTH_SEED", time.time_ns() % 10 ** 7))
    kills = int(os.environ.get("BERTH_KILLS", 8))
    print(f"# seed {seed}, {kills} kills", flush=True)
    draw, ends = random.Random(seed), {}
    suite.version = None
    for number in range(kills):
        end = one_kill(suite, draw, number)
        ends[end] = ends.get(end, 0) + 1
    print(f"# {ends}", flush=True)


# What the ledger names is there, what it does not name is not, and after a prune only the live image is left.
def prune__after_the_kills__nothing_but_the_live_image(suite):
    wait_for(lambda: snapshots(suite) == ledger(suite), 60, "the backend has what the ledger names", step=0.2)
    patiently(suite.api.skills.PruneSnapshots, K.PruneSnapshotsRequest(
        tenant_id="default", config_id=CONFIG, retention=duration(0)))
    wait_for(lambda: snapshots(suite) == {image(suite).snapshot_id}, 30, "only the live image is left", step=0.2)
    wait_for(lambda: not [each for each in suite.api.sessions.ListSessions(pb.control.ListSessionsRequest(
        tenant_id="default")).sessions if each.ref.session_id.startswith("sk.") and
        each.state != pb.common.SESSION_STATE_DELETED], 60, "maintenance sessions are gone", step=0.2)


class Suite(TestSuite):
    def __init__(self):
        super().__init__(options={"skills": {"build_lease": "2s", "janitor_interval": "1s"},
                                  "binding": {"lock_lease": "3s"}})

    def __enter__(self):
        super().__enter__()
        self.api = self.client()
        return self


if __name__ == "__main__":
    tap.main(globals(), Suite)

#!/usr/bin/python3
"""t0450-carry - a rebuild between turns: the workspace goes along to the new sandbox, whatever is killed
on the way, or the old sandbox stays."""
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import Failure, TestSuite, pb, wait_for  # noqa: E402

REBUILT, USED, REPLACED = (pb.control.RESOLVE_OUTCOME_REBUILT, pb.control.RESOLVE_OUTCOME_USED,
                           pb.control.RESOLVE_OUTCOME_REPLACED)
MAKE = r"""set -e; mkdir -p a/b packages/tool && printf 'work of hours' > a/b/file && chmod 0741 a/b/file
touch -d '2001-02-03 04:05:06.789012345Z' a/b/file; ln a/b/file hard; ln -s a/b/file soft
printf '#!/bin/sh\necho tool works\n' > packages/tool/tool; chmod +x packages/tool/tool
head -c 4000000 /dev/urandom > data; sha256sum data > sum"""
SHOW = "stat -c '%n %a %.Y %h' a/b/file; cat hard soft; sha256sum -c --quiet sum; packages/tool/tool"


def box_of(answer):
    return answer.session.sandbox.sandbox_id


def shell(suite, session, text, turn=""):
    result = suite.api.run(session, text, turn=turn)
    tap.equal(result.exited.exit_code, 0, result.stderr.decode(errors="replace"))
    return result.stdout


def shell_again(suite, session, text):
    """As a client does it for whom a service was away a moment ago."""
    def tried():
        try:
            return suite.api.run(session, text)
        except Failure as failure:
            if failure.code != "UNAVAILABLE":
                raise
    result = wait_for(tried, 20, "commands reach the sandbox again", step=0.05)
    tap.equal(result.exited.exit_code, 0, result.stderr.decode(errors="replace"))


def told(suite, *words):
    """How many events have all of these words in them."""
    text = subprocess.run(["redis-cli", "-s", suite.path("run", "redis.sock"), "--json", "XRANGE", "berth:{default}:ev", "-", "+"],
                          check=True, stdout=subprocess.PIPE, text=True).stdout
    return sum(all(word in " ".join(fields) for word in words) for _, fields in json.loads(text))


def blobs(suite):
    return [name for _, _, names in os.walk(suite.path("blobs")) for name in names if not name.endswith(".into")]


def is_forgotten(suite, session):
    """The next use is the sign that the tar is not needed any more."""
    def gone():
        suite.api.run(session, "true")
        return not blobs(suite)
    wait_for(gone, 10, "the tar is removed once the new sandbox is used", step=0.1)


# Next turn, with a FIFO that cannot go along: another sandbox with the same files, modes, times and links, the package that was installed
# there works, and the answer says what is not there any more.
def rebuild__next_turn__workspace_carried_process_told(suite):
    api = suite.api
    before = api.resolve("s1", config="local")
    turn = api.begin_turn("s1")
    api.resolve("s1", turn=turn)
    shell(suite, "s1", MAKE + "; mkfifo pipe", turn)
    shown = shell(suite, "s1", SHOW, turn)
    api.run("s1", "nohup sleep 1000 > /dev/null 2>&1 &", turn=turn)
    suite.flip()
    tap.equal(box_of(api.resolve("s1", turn=turn)), box_of(before), "not under a turn")
    api.end_turn("s1", turn)
    turn = api.begin_turn("s1")
    after = api.resolve("s1", turn=turn)
    tap.equal((after.outcome, box_of(after) != box_of(before)), (REBUILT, True), after)
    tap.equal([word.split(":")[0] for word in after.lost], ["memory", "workspace_entries", "packages"])
    tap.equal(list(after.session.last_loss.lost), list(after.lost))
    tap.equal(told(suite, "REBUILT", "carried in part", "left_behind", "pipe"), 1)
    tap.equal(shell(suite, "s1", SHOW, turn), shown)
    tap.equal(api.run("s1", "pgrep sleep", turn=turn).exited.exit_code, 1)
    api.end_turn("s1", turn)
    is_forgotten(suite, "s1")
    tap.equal(api.resolve("s1").outcome, USED)


# With DROP the workspace goes, and that is told.
def rebuild__drop__workspace_lost_and_told(suite):
    api = suite.api
    api.configs.UpdateConfig(pb.control.UpdateConfigRequest(
        config=pb.control.SandboxConfig(tenant_id="default", config_id="local",
                                        workspace_on_rebuild=pb.control.WORKSPACE_ON_REBUILD_DROP),
        update_mask={"paths": ["workspace_on_rebuild"]}))
    suite.flip()
    after = api.resolve("s1")
    tap.equal((after.outcome, len(after.lost)), (REBUILT, 3), after)
    tap.equal(shell(suite, "s1", "ls"), b"input\noutput\n")
    api.configs.UpdateConfig(pb.control.UpdateConfigRequest(
        config=pb.control.SandboxConfig(tenant_id="default", config_id="local",
                                        workspace_on_rebuild=pb.control.WORKSPACE_ON_REBUILD_CARRY),
        update_mask={"paths": ["workspace_on_rebuild"]}))


# No room to carry it: the old sandbox stays, and what runs in it, each turn anew, until there is.
def rebuild__export_fails__old_sandbox_stays_and_runs(suite):
    api = suite.api
    box = box_of(api.resolve("s2", config="local"))
    shell(suite, "s2", MAKE)
    api.run("s2", "nohup sleep 1000 > /dev/null 2>&1 &")
    suite.flip()
    with no_room(suite):
        for _ in range(2):
            turn = api.begin_turn("s2")
            answer = api.resolve("s2", turn=turn)
            tap.equal((answer.outcome, box_of(answer), list(answer.lost)), (USED, box, []), answer)
            tap.check(shell(suite, "s2", "pgrep sleep", turn), "what ran is asleep or gone")
            api.end_turn("s2", turn)
    tap.equal(told(suite, "REBUILD_DEFERRED", "blob store"), 2, "each turn says so, and why")
    turn = api.begin_turn("s2")
    answer = api.resolve("s2", turn=turn)
    tap.equal((answer.outcome, box_of(answer) != box), (REBUILT, True), answer)
    shell(suite, "s2", SHOW, turn)
    api.end_turn("s2", turn)
    is_forgotten(suite, "s2")


# kill -9 of control plane, data plane or adapter at any moment of a rebuild: the files are there in the end.
def rebuild__processes_killed_at_any_moment__workspace_is_kept(suite):
    api = suite.api
    seed = int(os.environ.get("BERTH_SEED", time.time_ns() % 1000000))
    print(f"# seed {seed}")
    rng = random.Random(seed)
    api.resolve("s3", config="local")
    shell(suite, "s3", MAKE + "; head -c 16000000 /dev/urandom > more")
    cut_off = 0
    for name in ("controlplane", "dataplane", "controlplane", "adapter-local") * 2:
        suite.flip()
        call = begin_resolve(suite, "s3")
        time.sleep(rng.random() * 0.25)
        cut_off += not call.done()
        suite.kill9(name)
        call.cancel()
        suite.restart(name)
        answer = wait_for(lambda: resolved(suite, "s3"), 40, "it resolves again")
        tap.check(not [word for word in answer.lost if word.startswith("workspace")], name, answer)
        shell_again(suite, "s3", SHOW)
    print(f"# {cut_off} of 8 were cut off")
    is_forgotten(suite, "s3")


# The tar is there, the old sandbox is going, the new one coming: the control plane dies at once, or with a data
# plane that stands still in the middle of the import. Whoever comes next unpacks it, from the start.
def rebuild__control_plane_killed_after_the_export__next_holder_unpacks(suite):
    # A session each: what was made already when the control plane died is adopted, and then not rebuilt for a while.
    for stand_still in (False, True):
        session = next(session for session in (f"s7-{stand_still}-{n}" for n in range(5)) if cut_off(suite, session, stand_still))
        answer = wait_for(lambda session=session: resolved(suite, session), 40, "it resolves again")
        tap.equal([word.split(":")[0] for word in answer.lost], ["memory", "packages"])
        shell_again(suite, session, SHOW)
        is_forgotten(suite, session)


def cut_off(suite, session, stand_still):
    """Kills the control plane once the tar is there. False: it had answered before that, on a busy machine."""
    suite.api.resolve(session, config="local")
    shell_again(suite, session, MAKE + "; head -c 16000000 /dev/urandom > more; sha256sum more >> sum")
    suite.flip()
    call = begin_resolve(suite, session)
    wait_for(lambda: [name for name in blobs(suite) if name.endswith(".tar") and not name.startswith(".")], 20,
             "the tar is there", step=0.001)
    if stand_still:
        os.kill(suite.pid("dataplane"), signal.SIGSTOP)
    suite.kill9("controlplane")
    answered = call.code() == grpc.StatusCode.OK  # it has ended with its connection
    if stand_still:
        os.kill(suite.pid("dataplane"), signal.SIGCONT)
    suite.restart("controlplane")
    if answered:
        shell_again(suite, session, "true")
        is_forgotten(suite, session)
    return not answered


# The new sandbox is used while no write is confirmed: that it has the workspace may yet be forgotten by a failover, so the tar stays.
def rebuild__use_is_not_confirmed__tar_stays(suite):
    def kept_for_now():
        return suite.logs("controlplane").count("a workspace that was carried is kept for now")
    api = suite.api
    api.resolve("s9", config="local")
    shell(suite, "s9", MAKE)
    suite.flip()
    tap.equal(api.resolve("s9").outcome, REBUILT)
    before = kept_for_now()
    suite.redis_cli("client", "pause", "60000", "write")
    try:
        tap.equal(api.resolve("s9").outcome, USED)
        wait_for(lambda: kept_for_now() > before, 20, "it is told that the tar stays")
        tap.equal(len(blobs(suite)), 1)
    finally:
        suite.redis_cli("client", "unpause")
    shell(suite, "s9", SHOW)
    is_forgotten(suite, "s9")


# A sandbox that nobody uses is deleted only when its workspace is safe; whoever comes next has it again.
def idle_kill__workspace_exported__next_resolve_has_it(suite):
    api = suite.api
    box = box_of(api.resolve("s4", config="local"))
    shell(suite, "s4", MAKE)
    with no_room(suite):
        tap.equal(idle_kill(suite, "s4", box), pb.control.SETTLE_RESULT_IN_USE)
    tap.equal(box_of(api.resolve("s4")), box, "it was killed without its workspace")
    tap.equal(idle_kill(suite, "s4", box), pb.control.SETTLE_RESULT_DONE)
    tap.equal(len(blobs(suite)), 1)
    answer = api.resolve("s4")
    tap.equal((answer.outcome, [word.split(":")[0] for word in answer.lost]), (REPLACED, ["memory", "packages"]))
    shell(suite, "s4", SHOW)
    is_forgotten(suite, "s4")


# Redis loses all it knew while a tar waits: whoever comes next has its files again, and is told of the rest.
def index_lost__tar_waits__found_again(suite):
    api = suite.api
    box = box_of(api.resolve("lost1", config="local"))
    shell(suite, "lost1", MAKE)
    tap.equal(idle_kill(suite, "lost1", box), pb.control.SETTLE_RESULT_DONE)
    tap.equal(len(blobs(suite)), 1)
    lose_index(suite)
    answer = wait_for(lambda: resolved(suite, "lost1", "local"), 40, "it resolves again")
    tap.equal([word.split(":")[0] for word in answer.lost], ["memory", "packages"])
    shell(suite, "lost1", SHOW)
    is_forgotten(suite, "lost1")
    api.delete("lost1")


# The same while the new sandbox is there and the tar not yet in it: it is adopted, and unpacked into. What was worked
# on since is not unpacked over.
def index_lost__new_sandbox_without_its_files__unpacked_when_adopted(suite):
    api = suite.api
    box = box_of(api.resolve("lost2", config="local"))
    shell(suite, "lost2", MAKE + "; head -c 64000000 /dev/urandom > more; sha256sum more >> sum")
    before = set(os.listdir(suite.path("local", "sandboxes")))
    suite.flip()
    call = begin_resolve(suite, "lost2")
    new = wait_for(lambda: set(os.listdir(suite.path("local", "sandboxes"))) - before, 20, "the new sandbox comes", step=0.001)
    os.kill(suite.pid("dataplane"), signal.SIGSTOP)
    suite.kill9("controlplane")
    call.cancel()
    suite.kill9("dataplane")
    suite.redis_cli("flushall")
    suite.restart("controlplane", "dataplane")
    recovered(suite)
    answer = wait_for(lambda: resolved(suite, "lost2", "local"), 40, "it resolves again")
    tap.check(box_of(answer) != box, answer)
    print("# adopted" if box_of(answer) in new else "# its create was cut off")
    shell(suite, "lost2", SHOW + "; echo new > a/b/file")
    lose_index(suite)
    wait_for(lambda: resolved(suite, "lost2", "local"), 40, "it resolves again")
    tap.equal(shell(suite, "lost2", "cat a/b/file"), b"new\n")
    api.delete("lost2")


# The tar is gone when it is needed: the session goes on, and is told that its files do not.
def rebuild__tar_vanishes__told_as_lost(suite):
    api = suite.api
    box = box_of(api.resolve("s5", config="local"))
    shell(suite, "s5", MAKE)
    tap.equal(idle_kill(suite, "s5", box), pb.control.SETTLE_RESULT_DONE)
    shutil.rmtree(suite.path("blobs", "default"))
    answer = api.resolve("s5")
    tap.equal((answer.outcome, [word.split(":")[0] for word in answer.lost]), (REPLACED, ["memory", "workspace", "packages"]))
    tap.equal(shell(suite, "s5", "ls"), b"input\noutput\n")


# A session that is deleted takes the tar along that waits for it.
def delete__tar_waits__removed(suite):
    api = suite.api
    box = box_of(api.resolve("s6", config="local"))
    tap.equal(idle_kill(suite, "s6", box), pb.control.SETTLE_RESULT_DONE)
    tap.equal(len(blobs(suite)), 1)
    api.delete("s6")
    tap.equal(blobs(suite), [])


def idle_kill(suite, session, box):
    """What the reaper asks for when it has seen nobody use it."""
    peer = suite.peer().internal
    target = peer.ListTargets(pb.control.ListTargetsRequest(tenant_id="default")).targets[0]
    return peer.SettleSession(pb.control.SettleSessionRequest(
        session=suite.api.ref(session), action=pb.control.SETTLE_ACTION_IDLE_KILL, config_id="local", sandbox_id=box,
        account=target.target.fingerprint, unless_active_after={"seconds": int(time.time()) + 60}, reason="idle")).result


@contextlib.contextmanager
def no_room(suite):
    """No workspace can be exported meanwhile."""
    shutil.rmtree(suite.path("blobs", "default"), ignore_errors=True)
    with open(suite.path("blobs", "default"), "w"):
        pass
    yield
    os.remove(suite.path("blobs", "default"))


def lose_index(suite):
    suite.redis_cli("flushall")
    recovered(suite)


def recovered(suite):
    wait_for(lambda: suite.redis_cli("get", "berth:epoch"), 30, "the index is recovered", step=0.05)


def begin_resolve(suite, session):
    return suite.api.sessions._stub.ResolveSession.future(
        pb.control.ResolveSessionRequest(session=suite.api.ref(session)), timeout=20, metadata=suite.api.metadata)


def resolved(suite, session, config=None):
    try:
        return suite.api.resolve(session, config=config, timeout=10)
    except Failure:
        return None


class Suite(TestSuite):
    def __enter__(self):
        super().__enter__()
        self.api = self.client()
        return self


if __name__ == "__main__":
    tap.main(globals(), lambda: Suite(options={"binding": {"lock_lease": "3s"}}))

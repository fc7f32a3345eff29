#!/usr/bin/python3
"""t0420-losses - a sandbox that dies takes its workspace along, and somebody is told: by the next answer
that can say it, exactly once, whatever was asked first. And a mistake in the first create does not stick.

Sanitized, too."""
import os
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import Failure, TestSuite, pb, wait_for  # noqa: E402

REPLACED, USED, CREATED = (pb.control.RESOLVE_OUTCOME_REPLACED, pb.control.RESOLVE_OUTCOME_USED,
                           pb.control.RESOLVE_OUTCOME_CREATED)


def refusal(call, *args, **more):
    try:
        call(*args, **more)
    except Failure as failure:
        return failure.reason
    raise AssertionError("it was accepted")


def recovers(call, *args, **more):
    """A call at the moment a supervisor dies may say UNAVAILABLE: nothing was done."""
    def one():
        try:
            return call(*args, **more)
        except Failure as failure:
            tap.equal(failure.code, "UNAVAILABLE", failure)
            return None
    return wait_for(one, 10, "it answers again", step=0.05)


def lose(suite, session):
    """A session with a file in its workspace, and then without its sandbox."""
    api = suite.api
    box = api.resolve(session, config="local").session.sandbox.sandbox_id
    api.write_file(session, "/workspace/kept", b"work of hours")
    suite.kill_sandbox(box)
    return box


def is_told(loss, box):
    tap.equal((loss.outcome, loss.sandbox_id, len(loss.lost)), (REPLACED, box, 3), loss)
    tap.check(any("/workspace" in word for word in loss.lost), loss)


def is_quiet(suite, session):
    answer = suite.api.resolve(session, config="local")
    tap.equal((answer.outcome, list(answer.lost)), (USED, []))
    tap.check(suite.api.session(session).last_loss.HasField("told_time"), "GetSession still shows it")


def next_resolve_tells(suite, session, box):
    answer = recovers(suite.api.resolve, session, config="local")
    tap.equal((answer.outcome, len(answer.lost)), (REPLACED, 3), answer)
    is_told(answer.session.last_loss, box)
    is_quiet(suite, session)


# The model is in the middle of a turn when its sandbox dies: the next command says what is gone.
def sandbox_dies_in_a_turn__next_run__tells_and_resolve_does_not_again(suite):
    api = suite.api
    api.resolve("turn", config="local")
    token = api.begin_turn("turn")
    box = api.resolve("turn", turn=token).session.sandbox.sandbox_id
    tap.equal(api.run("turn", "echo work > /workspace/kept", turn=token).HasField("loss"), False)
    suite.kill_sandbox(box)
    answer = recovers(api.run, "turn", "cat /workspace/kept", turn=token)
    tap.equal(answer.exited.exit_code, 1)
    is_told(answer.loss, box)
    tap.equal(api.run("turn", "true", turn=token).HasField("loss"), False)
    is_quiet(suite, "turn")


# Exec says it when it starts.
def sandbox_dies__next_exec__tells_in_started(suite):
    box = lose(suite, "exec")
    events = recovers(lambda: suite.api.exec("exec", "ls /workspace", timeout=30).finish())
    is_told(events.started.loss, box)
    again = suite.api.exec("exec", "true", timeout=30).finish()
    tap.equal(again.started.HasField("loss"), False)
    is_quiet(suite, "exec")


# WriteFile too.
def sandbox_dies__next_write__tells(suite):
    box = lose(suite, "write")
    request = pb.data.WriteFileRequest

    def write():
        return suite.api.files.WriteFile(iter([
            request(open=pb.data.WriteFileOpen(session=suite.api.ref("write"), path="/workspace/new")),
            request(data=b"x"), request(done=pb.data.FileDone(size_bytes=1))]))
    is_told(recovers(write).loss, box)
    is_quiet(suite, "write")


# Calls that make nothing answer that there is no sandbox; the resolve after them tells.
def sandbox_dies__first_asked_by_what_makes_nothing__next_resolve_tells(suite):
    api = suite.api
    for name, call in (("stat", lambda s: api.stat(s, "/workspace/kept")), ("list", api.list_processes),
                       ("pause", api.pause), ("resume", api.resume)):
        box = lose(suite, name)

        def gone():
            reason = refusal(call, name)
            tap.check(reason in ("SANDBOX_NOT_FOUND", "ADAPTER_UNAVAILABLE", "BACKEND_UNAVAILABLE"), name, reason)
            return reason == "SANDBOX_NOT_FOUND"
        wait_for(gone, 10, f"{name} says that it is gone", step=0.05)
        seen = api.session(name)
        tap.check(not seen.HasField("sandbox") and not seen.last_loss.HasField("told_time"), "a read tells nobody", seen)
        next_resolve_tells(suite, name, box)


# Nor does a call that is refused swallow it.
def sandbox_dies__create_refused__next_resolve_tells(suite):
    api = suite.api
    box = lose(suite, "cordoned")

    def cordon(on):
        api.configs.UpdateConfig(pb.control.UpdateConfigRequest(
            config=pb.control.SandboxConfig(tenant_id=api.tenant, config_id="local", cordoned=on),
            update_mask={"paths": ["cordoned"]}))
    cordon(True)
    try:
        wait_for(lambda: refusal(api.resolve, "while-cordoned", config="local") == "CONFIG_CORDONED", 10, "cordoned")
        wait_for(lambda: refusal(api.run, "cordoned", "true") == "CONFIG_CORDONED", 10, "refused")
    finally:
        cordon(False)

    def accepted():
        try:
            api.resolve("uncordoned", config="local")
            return True
        except Failure as failure:
            tap.equal(failure.reason, "CONFIG_CORDONED")
            return False
    wait_for(accepted, 10, "uncordoned")
    next_resolve_tells(suite, "cordoned", box)


# What is deleted on purpose is no loss.
def recreate__sandbox_lost_before_the_delete__nothing_told(suite):
    box = lose(suite, "again")
    suite.api.delete("again")
    answer = suite.api.resolve("again", config="local", recreate=True)
    tap.equal((answer.outcome, list(answer.lost)), (CREATED, []), box)
    tap.check(not answer.session.HasField("last_loss"), answer)


# Whoever looks after the suite sees it: a warning with the cause, and a figure.
def sandbox_dies__operator__warned_and_counted(suite):
    box = lose(suite, "seen")
    tap.equal(recovers(suite.api.run, "seen", "true").loss.sandbox_id, box)
    lines = [line for line in suite.logs("binding").splitlines() if box in line and '"level":"warn"' in line]
    tap.check(any('"cause":"gone"' in line for line in lines), lines)
    with urllib.request.urlopen(f"http://127.0.0.1:{suite.facts['ports']['binding-metrics']}/metrics") as page:
        figures = dict(line.rsplit(" ", 1) for line in page.read().decode().splitlines() if line and line[0] != "#")
    tap.check(int(figures['berth_binding_replacements_total{cause="gone"}']) > 0, figures)


# One typo in the first create does not poison the session's id.
def template_mistyped__then_right__made(suite):
    api = suite.api
    tap.equal(refusal(api.resolve, "typo", config="local", image=pb.common.Image(template_id="../../keys")), "FIELD_INVALID")
    tap.equal(refusal(api.session, "typo"), "SESSION_NOT_FOUND")
    for _ in range(2):
        tap.equal(refusal(api.resolve, "typo", config="local", image=pb.common.Image(template_id="bsae")), "TEMPLATE_INVALID")
    answer = api.resolve("typo", config="local", image=pb.common.Image(template_id="base"))
    tap.equal((answer.outcome, answer.session.spec.image.template_id, answer.spec_ignored), (CREATED, "base", False))
    tap.equal(api.run("typo", "echo well", text=True).stdout_text, "well\n")
    answer = api.resolve("typo", config="local", image=pb.common.Image(template_id="other"))
    tap.equal((answer.outcome, answer.session.spec.image.template_id, answer.spec_ignored), (USED, "base", True))


class Suite(TestSuite):
    def __enter__(self):
        super().__enter__()
        self.api = self.client()
        return self


if __name__ == "__main__":
    tap.main(globals(), Suite)

#!/usr/bin/python3
"""t0210-tenants - what one tenant may know of another: nothing. And what a session is over its life.

Sanitized, too."""
import os
import sys
import time

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import Client, Failure, TestSuite, health, pb, quick, wait_for  # noqa: E402

C = pb.control


def refusal(call, *args, **more):
    try:
        call(*args, **more)
    except Failure as failure:
        return failure
    raise AssertionError("it was accepted")


# Another tenant's session is not found by any call that names it, and is not touched.
def every_call__session_of_another_tenant__not_found(suite):
    mine, other = suite.client(), suite.client("other")
    quick.tenant_and_config(other)
    first = mine.resolve("shared-name", config="local").session.sandbox.sandbox_id
    mine.write_file("shared-name", "/workspace/mine", b"secret")
    ref = other.ref("shared-name")
    calls = {
        "GetSession": lambda: other.session("shared-name"),
        "Resolve EXISTING": lambda: other.existing("shared-name"),
        "Pause": lambda: other.pause("shared-name"), "Resume": lambda: other.resume("shared-name"),
        "Update": lambda: other.sessions.UpdateSession(C.UpdateSessionRequest(
            session=C.Session(ref=ref), update_mask={"paths": ["spec.labels"]})),
        "Run": lambda: other.run("shared-name", "cat mine"),
        "Exec": lambda: other.exec("shared-name", "cat mine").finish(),
        "Signal": lambda: other.signal("shared-name", "x"), "List": lambda: other.list_processes("shared-name"),
        "Stat": lambda: other.stat("shared-name", "/workspace/mine"),
        "ReadFile": lambda: other.read_file("shared-name", "/workspace/mine"),
        "WriteFile": lambda: other.write_file("shared-name", "/workspace/mine", b"changed"),
        "Remove": lambda: other.remove("shared-name", "/workspace/mine"),
        "Snapshot": lambda: other.snapshot("shared-name"),
        "EndTurn": lambda: other.end_turn("shared-name", "t")}
    for name, call in calls.items():
        failure = refusal(call)
        tap.equal((failure.code, failure.reason), ("NOT_FOUND", "SESSION_NOT_FOUND"), name)
    tap.equal(mine.read_file("shared-name", "/workspace/mine"), b"secret")
    tap.equal([s.ref.session_id for s in other.sessions.ListSessions(C.ListSessionsRequest(tenant_id="other")).sessions], [])
    # The same name is another session there.
    second = other.resolve("shared-name", config="local").session.sandbox.sandbox_id
    tap.check(first != second, "one sandbox for two tenants")
    tap.equal(refusal(other.read_file, "shared-name", "/workspace/mine").reason, "FILE_NOT_FOUND")
    other.delete("shared-name")
    tap.equal(mine.read_file("shared-name", "/workspace/mine"), b"secret")


# Another tenant's snapshot boots nothing, is not shown and cannot be deleted.
def snapshot__of_another_tenant__not_found(suite):
    mine, other = suite.client(), suite.client("other")
    snapshot = mine.snapshot("shared-name").snapshot_id
    image = pb.common.Image(snapshot_id=snapshot)
    tap.equal(refusal(other.resolve, "thief", config="local", image=image).reason, "SNAPSHOT_NOT_FOUND")
    tap.equal(refusal(other.snapshots.GetSnapshot, pb.skills.GetSnapshotRequest(
        tenant_id="other", snapshot_id=snapshot)).reason, "SNAPSHOT_NOT_FOUND")
    tap.equal(refusal(other.delete_snapshot, snapshot).reason, "SNAPSHOT_NOT_FOUND")
    tap.equal(len(other.snapshots.ListSnapshots(pb.skills.ListSnapshotsRequest(tenant_id="other")).snapshots), 0)
    tap.equal([s.snapshot_id for s in mine.snapshots.ListSnapshots(
        pb.skills.ListSnapshotsRequest(tenant_id="default")).snapshots], [snapshot])
    mine.delete_snapshot(snapshot)
    tap.equal(refusal(mine.resolve, "late", config="local", image=image).reason, "SNAPSHOT_NOT_FOUND")


# Internal services and InternalService answer peers only, not callers from TCP.
def internal__caller_from_tcp__peer_only(suite):
    api = suite.client()
    failure = refusal(api.internal.ResolveRoute, C.ResolveRouteRequest(session=api.ref("shared-name")))
    tap.equal((failure.code, failure.reason), ("PERMISSION_DENIED", "PEER_ONLY"))
    tap.equal(refusal(api.internal.ListTargets, C.ListTargetsRequest()).reason, "PEER_ONLY")


# A maintenance session's key is reserved to the suite's services.
def resolve__reserved_key__refused(suite):
    tap.equal(refusal(suite.client().resolve, "sk.x", config="local").reason, "RESERVED_KEY")


# A session's answers hold no endpoint, no token, no credential.
def get__session_and_config__no_secret_in_the_answer(suite):
    api = suite.client()
    api.configs.CreateConfig(C.CreateConfigRequest(config=C.SandboxConfig(
        config_id="sealed", tenant_id="default", name="sealed", backend="local", template_id="base",
        credentials=C.Credentials(api_key="very-secret-key"))))
    got = api.configs.GetConfig(C.GetConfigRequest(tenant_id="default", config_id="sealed")).config
    tap.check(got.credentials_set and not got.credentials.api_key, got)
    listed = api.configs.ListConfigs(C.ListConfigsRequest(tenant_id="default"))
    tap.check("very-secret-key" not in str(listed), "ListConfigs")
    stored = suite.redis_cli("--no-raw", "hgetall", "berth:{default}:c/sealed")
    tap.check(stored and "very-secret-key" not in stored, "the store holds it in the clear")
    for name in suite.names:
        tap.check("very-secret-key" not in suite.logs(name), name, "logs it")
    api.configs.DeleteConfig(C.DeleteConfigRequest(tenant_id="default", config_id="sealed"))


# The network is open to public addresses and closed to private ones; between sandboxes, too.
def network__private_addresses__denied(suite):
    api = suite.client()
    for address in ("10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "127.0.0.1"):
        done = api.run("shared-name", ["python3", "-c", f"import socket; socket.create_connection(({address!r}, 80), 1)"],
                       text=True, timeout=10)
        tap.equal(done.exited.exit_code, 1, address)
    done = api.run("shared-name", "ip route | grep -c default; cat /etc/resolv.conf", text=True)
    tap.check(done.exited.exit_code in (0, 127), done.stdout_text)


# Egress CLOSED leaves no link but loopback.
def network__egress_closed__no_link(suite):
    api = suite.client()
    closed = pb.common.NetworkPolicy(egress=pb.common.SWITCH_CLOSED)
    api.resolve("closed", spec=pb.common.SessionSpec(config_id="local", network=closed))
    tap.equal(api.run("closed", "ls /sys/class/net", text=True).stdout_text.split(), ["lo"])


# Create, pause, resume, delete, recreate: outcomes and states are told as they are.
def session__whole_life__told_as_it_is(suite):
    api = suite.client()
    tap.equal(refusal(api.existing, "life").reason, "SESSION_NOT_FOUND")
    made = api.resolve("life", spec=pb.common.SessionSpec(config_id="local", labels={"team": "blue"}))
    tap.equal(made.outcome, C.RESOLVE_OUTCOME_CREATED)
    box = made.session.sandbox.sandbox_id
    tap.equal(api.resolve("life", config="local").outcome, C.RESOLVE_OUTCOME_USED)
    tap.equal(refusal(api.resolve, "life", config="local", must_be_new=True).reason, "SESSION_EXISTS")
    tap.equal(refusal(api.resolve, "life", config="other-config").reason, "CONFIG_PINNED")
    tap.equal(api.pause("life").sandbox.state, pb.common.SANDBOX_STATE_PAUSED)
    tap.equal(api.session("life").sandbox.state, pb.common.SANDBOX_STATE_PAUSED, "a read does not wake")
    answer = api.resolve("life", config="local")
    tap.equal((answer.outcome, answer.session.sandbox.sandbox_id), (C.RESOLVE_OUTCOME_RESUMED, box))
    api.pause("life")
    tap.equal(api.run("life", "echo on", text=True).stdout_text, "on\n", "a command wakes it")
    token = api.begin_turn("life")
    api.resolve("life", config="local", turn=token)
    tap.equal(refusal(api.pause, "life").reason, "TURN_RUNNING")
    api.end_turn("life", token)
    tap.equal(refusal(api.resolve, "life", config="local", turn=token).reason, "TURN_EXPIRED")
    listed = api.sessions.ListSessions(C.ListSessionsRequest(tenant_id="default", labels={"team": "blue"})).sessions
    tap.equal([s.ref.session_id for s in listed], ["life"])
    alias = api.session("life").alias
    tap.equal(api.sessions.GetSession(C.GetSessionRequest(alias=alias, tenant_id="default")).session.ref.session_id, "life")
    api.delete("life")
    tap.equal(refusal(api.resolve, "life", config="local").reason, "SESSION_DELETED")
    tap.check(refusal(api.run, "life", "true").code in ("FAILED_PRECONDITION", "NOT_FOUND"), "run")
    api.delete("life")
    again = api.resolve("life", config="local", recreate=True)
    tap.equal(again.outcome, C.RESOLVE_OUTCOME_CREATED)
    tap.check(again.session.sandbox.sandbox_id != box, "a new one")


# A tenant's limit of commands at once holds for calls with its tokens; one that has ended makes room.
def quotas__commands_at_once__no_more_than_the_limit(suite):
    quick.tenant_and_config(suite.client("busy"))
    made = suite.client().tenants.CreateToken(C.CreateTokenRequest(token=C.Token(tenant_id="busy", scopes=[C.SCOPE_USE])))
    api = suite.client("busy", token=made.secret)
    api.resolve("one", config="local")
    suite.client().tenants.UpdateTenant(C.UpdateTenantRequest(
        tenant=C.Tenant(tenant_id="busy", quotas=C.Quotas(concurrent_commands=2)), update_mask={"paths": ["quotas"]}))
    running = [api.exec("one", "echo on; sleep 60", exec_id=f"busy-{i}") for i in range(2)]
    for events in running:
        events.until_started()
    over = refusal(api.run, "one", "true")
    tap.equal((over.code, over.reason), ("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"))
    tap.equal(over.text, "concurrent_commands: the tenant may have 2, and has 2")
    api.signal("one", "busy-0", 9)
    running[0].finish()
    tap.equal(api.run("one", "echo room", text=True).stdout_text, "room\n")
    tap.equal(suite.client("busy").run("one", "echo ours", text=True).stdout_text, "ours\n", "of the deployment")
    api.signal("one", "busy-1", 9)
    running[1].finish()
    api.delete("one")


# With a token end the streams that were let in with it: a command, which is ended with its stream, and
# events. The session is the tenant's and stays.
def revoke__token_with_open_streams__they_end(suite):
    admin = suite.client()
    made = admin.tenants.CreateToken(C.CreateTokenRequest(token=C.Token(tenant_id="busy", scopes=[C.SCOPE_USE])))
    api = suite.client("busy", token=made.secret)
    api.resolve("cut", config="local")
    command = api.exec("cut", "echo on; sleep 60", exec_id="cut").until_started()
    events = api.events.WatchEvents(C.WatchEventsRequest(tenant_id="busy"))
    next(events)
    begin = time.monotonic()
    admin.tenants.RevokeToken(C.RevokeTokenRequest(tenant_id="busy", token_id=made.token.token_id))
    for name, stream in (("the command", command.finish), ("the events", lambda: list(events))):
        failure = refusal(stream)
        tap.equal((failure.code, failure.reason), ("UNAUTHENTICATED", "TOKEN_INVALID"), name)
    tap.check(time.monotonic() - begin < 10, "not within the time of a look-up")
    other = suite.client("busy")
    wait_for(lambda: not [p for p in other.list_processes("cut") if p.exec_id == "cut" and not p.HasField("exited")], 10,
             "the end of the command")
    tap.equal(other.run("cut", "echo still", text=True).stdout_text, "still\n")
    other.delete("cut")


# Public services refuse to listen beyond loopback; a deployment's other id refuses to start.
def start__public_address_or_foreign_store__refused(suite):
    import subprocess
    command = suite.command("controlplane")
    for change, word in ((("--listen=", "--listen=0.0.0.0:1"), "loopback"),
                         (("--deployment=", "--deployment=another"), "deployment")):
        tried = [change[1] if each.startswith(change[0]) else each for each in command]
        done = subprocess.run(tried + ["--run_dir=" + suite.path("run-refused"), "--metrics_listen=", "--journal="], capture_output=True,
                              text=True, timeout=20)
        tap.check(done.returncode not in (0, None), change, "started")
        tap.check(word in (done.stderr + done.stdout).lower(), done.stderr[-300:])
    done = subprocess.run(command + ["--init"], capture_output=True, text=True, timeout=20)
    tap.check(done.returncode != 0, "--init on a store in use was accepted")


# Health tells the process and each service; an unknown one is not found.
def health__each_service__told(suite):
    for name in suite.names:
        tap.equal(health(suite.target(name)), "SERVING", name)
        tap.equal(health(suite.target(name), "no.such.Service"), "NOT_FOUND", name)


if __name__ == "__main__":
    assert Client and grpc
    tap.main(globals(), TestSuite)

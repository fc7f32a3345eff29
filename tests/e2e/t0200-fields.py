#!/usr/bin/python3
"""t0200-fields - every field of every public RPC given every kind of bad value: refused as
INVALID_ARGUMENT with the field's name, and nothing changed. The table is made from the descriptors
and the rules in the proto comments (tests/lib/fields.py).

Sanitized, too."""
import os
import sys

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import Failure, TestSuite, pb  # noqa: E402
import fields  # noqa: E402

REF = pb.common.SessionRef(tenant_id="default", session_id="no-such-session")
SPEC = pb.common.SessionSpec(config_id="no-such-config")
RUN = pb.data.Command(shell="true")
EXEC = pb.data.Command(argv=pb.data.Argv(args=["true"]), timeout={"seconds": 5})
C, D, S = pb.control, pb.data, pb.skills
CONFIG = C.SandboxConfig(config_id="local", tenant_id="default", name="local", backend="local", template_id="base",
                         etag="0000000000000000")

# Service, method, a request that no field rule refuses and that changes nothing.
TABLE = [
    ("control", "berth.control.v1.TenantService", [
        ("CreateTenant", C.CreateTenantRequest(tenant=C.Tenant(tenant_id="default"))),
        ("GetTenant", C.GetTenantRequest(tenant_id="no-such-tenant")),
        ("CreateToken", C.CreateTokenRequest(token=C.Token(tenant_id="no-such-tenant", scopes=[C.SCOPE_READ]))),
        ("ListTokens", C.ListTokensRequest(tenant_id="no-such-tenant")),
        ("RevokeToken", C.RevokeTokenRequest(tenant_id="no-such-tenant", token_id="0" * 12)),
        ("UpdateTenant", C.UpdateTenantRequest(tenant=C.Tenant(tenant_id="no-such-tenant"),
                                               update_mask={"paths": ["disabled"]}))]),
    ("control", "berth.control.v1.ConfigService", [
        ("CreateConfig", C.CreateConfigRequest(config=CONFIG)),
        ("GetConfig", C.GetConfigRequest(tenant_id="default", config_id="no-such-config")),
        ("ListConfigs", C.ListConfigsRequest(tenant_id="no-such-tenant")),
        ("UpdateConfig", C.UpdateConfigRequest(config=CONFIG, update_mask={"paths": ["name"]})),
        ("DeleteConfig", C.DeleteConfigRequest(tenant_id="default", config_id="no-such-config")),
        ("GetCapabilities", C.GetCapabilitiesRequest(tenant_id="default", config_id="no-such-config"))]),
    ("control", "berth.control.v1.SessionService", [
        ("ResolveSession", C.ResolveSessionRequest(session=REF, spec=SPEC)),
        ("GetSession", C.GetSessionRequest(session=REF)),
        ("ListSessions", C.ListSessionsRequest(tenant_id="no-such-tenant")),
        ("UpdateSession", C.UpdateSessionRequest(session=C.Session(ref=REF), update_mask={"paths": ["spec.labels"]})),
        ("PauseSession", C.PauseSessionRequest(session=REF)),
        ("ResumeSession", C.ResumeSessionRequest(session=REF)),
        ("DeleteSession", C.DeleteSessionRequest(session=REF)),
        ("BeginTurn", C.BeginTurnRequest(session=REF)),
        ("RenewTurn", C.RenewTurnRequest(session=REF, turn_token="t")),
        ("EndTurn", C.EndTurnRequest(session=REF, turn_token="t"))]),
    ("data", "berth.data.v1.ProcessService", [
        ("Run", D.RunRequest(session=REF, command=RUN)),
        ("Exec", D.ExecRequest(session=REF, command=EXEC)),
        ("SendInput", D.SendInputRequest(session=REF, process=D.ProcessRef(exec_id="x"))),
        ("Signal", D.SignalRequest(session=REF, process=D.ProcessRef(exec_id="x"), signal=15)),
        ("ListProcesses", D.ListProcessesRequest(session=REF))]),
    ("data", "berth.data.v1.FileService", [
        ("Stat", D.StatRequest(session=REF, path="/workspace")),
        ("ListDir", D.ListDirRequest(session=REF, path="/workspace")),
        ("MakeDir", D.MakeDirRequest(session=REF, path="/workspace/d")),
        ("Move", D.MoveRequest(session=REF, source="/workspace/a", target="/workspace/b")),
        ("Remove", D.RemoveRequest(session=REF, path="/workspace/a")),
        ("ReadFile", D.ReadFileRequest(session=REF, path="/workspace/a")),
        ("WriteFile", D.WriteFileRequest(open=D.WriteFileOpen(session=REF, path="/workspace/a")))]),
    ("data", "berth.data.v1.WorkspaceService", [
        ("ExportWorkspace", D.ExportWorkspaceRequest(session=REF)),
        ("ImportWorkspace", D.ImportWorkspaceRequest(open=D.ImportOpen(session=REF)))]),
    ("skills", "berth.skills.v1.SnapshotService", [
        ("CreateSnapshot", S.CreateSnapshotRequest(session=REF)),
        ("GetSnapshot", S.GetSnapshotRequest(tenant_id="default", snapshot_id="no-such-snapshot")),
        ("ListSnapshots", S.ListSnapshotsRequest(tenant_id="no-such-tenant")),
        ("DeleteSnapshot", S.DeleteSnapshotRequest(tenant_id="default", snapshot_id="no-such-snapshot"))]),
    ("skills", "berth.skills.v1.SkillService", [
        ("InstallSkill", S.InstallSkillRequest(open=S.InstallSkillOpen(
            tenant_id="default", config_id="no-such-config", validate_only=True)))]),
]
# What peers call; the same rules.
B, N = pb.backend, pb.binding
LOCK = N.Lock(token=b"0" * 16, fence=1)
TARGET = pb.common.BackendTarget(config_id="local", backend="local", tenant_id="default")
INTERNAL = [
    ("controlplane", "berth.control.v1.InternalService", [
        ("ResolveRoute", C.ResolveRouteRequest(session=REF)),
        ("RenewUse", C.RenewUseRequest(session=REF, use_token="u", sandbox_id="x", end=True)),
        ("IntrospectToken", C.IntrospectTokenRequest(token_id="0" * 12)),
        ("ListTargets", C.ListTargetsRequest(tenant_id="no-such-tenant")),
        ("SettleSession", C.SettleSessionRequest(session=REF, action=C.SETTLE_ACTION_FINISH_DELETE, config_id="local"))]),
    ("dataplane", "berth.data.v1.InternalService", [
        ("MoveWorkspace", pb.data.MoveWorkspaceRequest(
            session=REF, remove=True, blob_id="b", not_after_time={"seconds": 4102444800}))]),
    ("reaper", "berth.reaper.v1.ReaperService", [
        ("RunSweep", pb.reaper.RunSweepRequest(tenant_id="no-such-tenant")),
        ("GetSweep", pb.reaper.GetSweepRequest())]),
    ("binding", "berth.binding.v1.BindingService", [
        ("Acquire", N.AcquireRequest(session=REF, want=N.WANT_EXISTING, owner="test", attempt=b"0" * 16)),
        ("Commit", N.CommitRequest(session=REF, lock=LOCK, gone_sandbox_id="x")),
        ("Commit", N.CommitRequest(session=REF, lock=LOCK, bind=N.Binding(
            sandbox_id="x", backend="local", config_id="local", origin=N.ORIGIN_CREATED))),
        ("Abort", N.AbortRequest(session=REF, lock=LOCK)),
        ("RenewLock", N.RenewLockRequest(session=REF, lock=LOCK)),
        ("GetBinding", N.GetBindingRequest(session=REF)),
        ("ListBindings", N.ListBindingsRequest(tenant_id="no-such-tenant")),
        ("ResealEndpoint", N.ResealEndpointRequest(session=REF, sealed_before=b"x", sealed_endpoint=b"y")),
        ("ForgetCarry", N.ForgetCarryRequest(session=REF, blob_id="b")),
        ("RenewTurn", N.RenewTurnRequest(session=REF, turn_token="t")),
        ("EndTurn", N.EndTurnRequest(session=REF, turn_token="t"))]),
    ("adapter-local", "berth.backend.v1.BackendService", [
        ("GetInfo", B.GetInfoRequest(target=TARGET)),
        ("ConnectSandbox", B.ConnectSandboxRequest(target=TARGET, sandbox_id="no-such-sandbox", fence=1)),
        ("GetSandbox", B.GetSandboxRequest(target=TARGET, sandbox_id="no-such-sandbox")),
        ("ListSandboxes", B.ListSandboxesRequest(target=TARGET)),
        ("PauseSandbox", B.PauseSandboxRequest(target=TARGET, sandbox_id="no-such-sandbox", fence=1)),
        ("DeleteSandbox", B.DeleteSandboxRequest(target=TARGET, sandbox_id="no-such-sandbox", fence=1))]),
    ("adapter-local", "berth.backend.v1.SnapshotService", [
        ("CreateSnapshot", B.CreateSnapshotRequest(target=TARGET, sandbox_id="no-such-sandbox", name="berth-us-x", fence=1)),
        ("ListSnapshots", B.ListSnapshotsRequest(target=TARGET)),
        ("DeleteSnapshot", B.DeleteSnapshotRequest(target=TARGET, snapshot_id="no-such-snapshot", fence=1))]),
    ("adapter-local", "berth.backend.v1.TemplateService", [
        ("ListTemplates", B.ListTemplatesRequest(target=TARGET)),
        ("GetTemplate", B.GetTemplateRequest(target=TARGET, template_id="no-such-template")),
        ("DeleteTemplate", B.DeleteTemplateRequest(target=TARGET, template_id="no-such-template"))]),
]
STREAMING = {"Exec": "unary_stream", "ReadFile": "unary_stream", "WriteFile": "stream_unary", "InstallSkill": "stream_unary",
             "ExportWorkspace": "unary_stream", "ImportWorkspace": "stream_unary", "MoveWorkspace": "unary_stream"}


def send(channel, service, method, wire, metadata=()):
    """Sends raw bytes as the (first) request; None, or the Failure."""
    shape = STREAMING.get(method, "unary_unary")
    call = getattr(channel, shape)(f"/{service}/{method}")
    try:
        if shape == "unary_stream":
            for _ in call(wire, timeout=10, metadata=metadata):
                pass
        else:
            call(iter([wire]) if shape == "stream_unary" else wire, timeout=10, metadata=metadata)
    except grpc.RpcError as error:
        return Failure(error)
    return None


def judge(bad, failure):
    """What is wrong with the answer to a bad value, or None."""
    if failure is None:
        return "accepted"
    if failure.code not in bad.may:
        return f"{failure.code} / {failure.reason}: {failure.text[:100]}"
    if failure.code == "INVALID_ARGUMENT":
        if not failure.reason:
            return "no reason"
        named = failure.metadata.get("field", "").split("[")[0]
        if not named:
            return f"no field in the metadata: {failure.reason}: {failure.text[:80]}"
        # A field inside a missing or wrong one may be named by what holds it, and the other way round.
        if not (bad.path.startswith(named) or named.startswith(bad.path) or
                (bad.fresh and named.startswith(bad.fresh))):
            return f"names {named!r}: {failure.text[:80]}"
    return None


def contents(suite):
    """Digests of every key but the lease of the reaper, which it renews by itself."""
    keys = sorted(set(suite.redis_cli("keys", "*").split()) - {"berth:reaper", "berth:journals"})
    return keys, suite.redis_cli("debug", "digest-value", *keys)


def case_of(target, service, method, request):
    def case(suite):
        api = suite.client()
        channel = api.channels.get(target) or grpc.insecure_channel(suite.internal_target(target))
        metadata = api.metadata if target in api.channels else ()
        valid = send(channel, service, method, request.SerializeToString(), metadata)
        tap.check(valid is None or valid.code not in ("INVALID_ARGUMENT", "UNIMPLEMENTED"), "the valid request:", valid)
        before = contents(suite)
        wrong, tried = [], 0
        for bad in fields.mutations(request):
            tried += 1
            problem = judge(bad, send(channel, service, method, bad.wire, metadata))
            if problem:
                wrong.append(f"{bad}: {problem}")
        print(f"{method}: {tried} bad values, {len(wrong)} not refused as they should be", file=sys.stderr)
        for line in wrong:
            print(f"  {line}", file=sys.stderr)
        tap.check(not wrong, f"{len(wrong)} of {tried}:\n" + "\n".join(wrong[:25]))
        tap.check(tried > 5, "only", tried, "bad values")
        tap.equal(contents(suite), before, "the store")
        tap.equal(os.listdir(suite.path("local", "sandboxes")) if os.path.isdir(suite.path("local", "sandboxes")) else [],
                  [], "sandboxes")
    return case


for _target, _service, _methods in TABLE + INTERNAL:
    for _method, _request in _methods:
        _name = _service.split(".")[1] + "_" + _method.lower()
        _name += "_2" if f"{_name}__bad_value_in_any_field__refused_by_name" in globals() else ""
        globals()[f"{_name}__bad_value_in_any_field__refused_by_name"] = case_of(
            _target, _service, _method, _request)


if __name__ == "__main__":
    tap.main(globals(), lambda: TestSuite(options={"redis": {"enable-debug-command": "yes"}}))

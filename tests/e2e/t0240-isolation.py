#!/usr/bin/python3
"""t0240-isolation - every RPC of every public service, as reflection tells them, called without a token
and with another tenant's ids. New RPCs are covered by themselves.

Sanitized, too."""
import os
import statistics
import sys
import time
import urllib.request

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import Failure, TestSuite, bearer, pb, quick, wait_for  # noqa: E402

C = pb.control
PUBLIC = {"controlplane": "control", "dataplane": "data", "skills": "skills"}
GONE = 5  # seconds until what was revoked is gone everywhere
OPEN = ("grpc.health.v1.Health",)
# Refused to a tenant's own admin whatever it names.
DEPLOYMENT_ONLY = {"CreateTenant", "ListTenants"}


class Method:
    """One RPC as the running process describes it."""

    def __init__(self, process, descriptor):
        self.process, self.name = process, descriptor.name
        self.service = descriptor.containing_service.full_name
        self.path = f"/{self.service}/{self.name}"
        self.input, self.output = descriptor.input_type, descriptor.output_type
        proto = descriptor_pb2.MethodDescriptorProto()
        descriptor.CopyToProto(proto)
        self.shape = ("stream" if proto.client_streaming else "unary") + "_" + \
            ("stream" if proto.server_streaming else "unary")

    def __str__(self):
        return self.path


def class_of(descriptor):
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory().GetPrototype(descriptor)


def reflect(channel, metadata, **request):
    call = pb.rpc.reflection.ServerReflectionStub(channel).ServerReflectionInfo
    answer, = call(iter([pb.reflection.ServerReflectionRequest(**request)]), timeout=10, metadata=metadata)
    return answer


def methods_of(suite):
    """Every method of every service that the public processes list."""
    found = []
    for process in PUBLIC:
        pool = descriptor_pool.DescriptorPool()
        added = set()
        with grpc.insecure_channel(suite.target(process)) as channel:
            metadata = suite.client().metadata
            listed = reflect(channel, metadata, list_services="").list_services_response.service
            for service in listed:
                answer = reflect(channel, metadata, file_containing_symbol=service.name)
                files = [descriptor_pb2.FileDescriptorProto.FromString(each)
                         for each in answer.file_descriptor_response.file_descriptor_proto]
                by_name = {file.name: file for file in files}

                def add(file, by_name=by_name, pool=pool, added=added):
                    if file.name in added:
                        return
                    added.add(file.name)
                    for needed in file.dependency:
                        if needed in by_name:
                            add(by_name[needed])
                    pool.Add(file)
                for file in files:
                    add(file)
                found += [Method(process, each) for each in pool.FindServiceByName(service.name).methods]
    return found


def fill(message, ids, choice, depth=0):
    """Sets every field: ids by the field's name, anything else to something short. choice: which
    member of each oneof."""
    for field in message.DESCRIPTOR.fields:
        group = field.containing_oneof
        if group and group.fields[choice % len(group.fields)].name != field.name:
            continue
        if field.message_type is not None:
            if field.message_type.full_name.startswith("google.protobuf.") or field.message_type.GetOptions().map_entry:
                continue
            if depth < 5 and field.label != F.LABEL_REPEATED:
                getattr(message, field.name).SetInParent()
                fill(getattr(message, field.name), ids, choice, depth + 1)
        elif field.label == F.LABEL_REPEATED:
            if field.type == F.TYPE_ENUM:
                getattr(message, field.name).append(1)
        elif field.type == F.TYPE_STRING:
            value = ids.get(field.name, "")
            if value:
                setattr(message, field.name, value)
    return message


def requests_of(method, ids):
    """Requests that name these ids, one for each member of the widest oneof."""
    kind = class_of(method.input)
    seen = []
    for choice in range(max([1] + [len(each.fields) for each in method.input.oneofs])):
        wire = fill(kind(), ids, choice).SerializeToString()
        if wire not in seen:
            seen.append(wire)
    return seen


def send(channel, method, wire, token):
    """(code, reason, text) of the answer."""
    call = getattr(channel, method.shape)(method.path)
    streams_in, streams_out = method.shape.split("_")
    try:
        answer = call(iter([wire]) if streams_in == "stream" else wire, timeout=20, metadata=bearer(token))
        if streams_out == "stream":
            for _ in answer:
                answer.cancel()
                break
        return "OK", "", ""
    except grpc.RpcError as error:
        failure = Failure(error)
        return failure.code, failure.reason, failure.text


def make_token(suite, tenant="default", scope=C.SCOPE_ADMIN, **more):
    return suite.client().tenants.CreateToken(C.CreateTokenRequest(token=C.Token(
        tenant_id=tenant, scopes=[scope], **more)))


def refusal(call, *args, **more):
    try:
        call(*args, **more)
    except Failure as failure:
        return failure.code, failure.reason
    return "OK", ""


def stored(suite, tenant):
    """All that the store holds of a tenant."""
    keys = sorted(suite.redis_cli("--scan", "--pattern", f"berth:{{{tenant}}}:*").split())
    kinds = {"hash": "hgetall", "string": "get", "zset": "zrange", "set": "smembers", "stream": "xlen"}
    dump = {}
    for key in keys:
        kind = suite.redis_cli("type", key)
        more = ["0", "-1"] if kind == "zset" else []
        dump[key] = suite.redis_cli("--no-raw", kinds[kind], key, *more)
    return dump


def ended_operation(api):
    """The id of an operation on an image, whose end is not waited for longer than need be."""
    made = api.skills.RebuildImage(pb.skills.RebuildImageRequest(tenant_id="default", config_id="secret-config"))
    ids = {"tenant_id": "default", "operation_id": made.operation.operation_id}
    refusal(api.skills.CancelOperation, pb.skills.CancelOperationRequest(**ids))
    wait_for(lambda: api.skills.GetOperation(pb.skills.GetOperationRequest(**ids)).operation.HasField("end_time"), 30,
             "the operation ends")
    return ids["operation_id"]


class Isolation(TestSuite):
    """Tenant `default` owns something of everything; tenant `thief` has an admin's token."""

    def __enter__(self):
        super().__enter__()
        api = self.client()
        quick.tenant_and_config(self.client("thief"))
        api.configs.CreateConfig(C.CreateConfigRequest(config=C.SandboxConfig(
            config_id="secret-config", tenant_id="default", backend="local", template_id="base")))
        api.resolve("victim", config="secret-config")
        api.write_file("victim", "/workspace/mine", b"mine")
        api.run("victim", "true", exec_id="mine")
        made = make_token(self, scope=C.SCOPE_READ)
        operation = ended_operation(api)
        self.victim = {
            "tenant_id": "default", "session_id": "victim", "config_id": "secret-config",
            "snapshot_id": api.snapshot("victim").snapshot_id, "alias": api.session("victim").alias,
            "operation_id": operation, "template_id": "base", "token_id": made.token.token_id, "exec_id": "mine", "path": "/workspace/mine",
            "source": "/workspace/mine", "target": "/workspace/theirs", "backend": "local", "name": "base", "api_url": ""}
        self.thief = make_token(self, "thief").secret
        self.methods = methods_of(self)
        return self

    def channel(self, method):
        return self.client().channels[PUBLIC[method.process]]


def made_up(ids):
    """The same shapes, of nobody."""
    return ids | {"session_id": "nobody", "config_id": "no-such-config", "token_id": "0" * 12,
                  "snapshot_id": ids["snapshot_id"][:-4] + "0000", "operation_id": "0" * 32, "alias": "0" * 20, "template_id": "no-such-base"}


# What reflection lists is what is tested here: nothing is left out.
def methods__by_reflection__all_there(suite):
    names = {method.path for method in suite.methods}
    tap.check(len(names) > 40, len(names), "methods")
    for path in ("/berth.control.v1.SessionService/ResolveSession", "/berth.data.v1.FileService/WriteFile",
                 "/berth.skills.v1.SnapshotService/CreateSnapshot", "/grpc.health.v1.Health/Check",
                 "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"):
        tap.check(path in names, path)


# No method but those of health answers a caller without a token: reflection neither.
def every_method__without_token__refused(suite):
    wrong, served = [], 0
    for method in suite.methods:
        if method.service in OPEN:
            continue
        for token in (None, "brt_000000000000_" + "0" * 40, "e2b_" + "0" * 40, "nonsense"):
            code, reason, _ = send(suite.channel(method), method, b"", token)
            served += code == "UNAUTHENTICATED"
            if (code, reason) not in (("UNAUTHENTICATED", "TOKEN_INVALID"), ("PERMISSION_DENIED", "PEER_ONLY"),
                                      ("UNIMPLEMENTED", "METHOD_UNKNOWN")):
                wrong.append(f"{method} with {token}: {code} / {reason}")
    tap.check(not wrong, "\n".join(wrong))
    tap.check(served > 100, served)


# Health needs none: probes have no token.
def health__without_token__served(suite):
    for process in PUBLIC:
        with grpc.insecure_channel(suite.target(process)) as channel:
            answer = pb.rpc.health.HealthStub(channel).Check(pb.health.HealthCheckRequest(), timeout=5)
            tap.equal(answer.status, pb.health.HealthCheckResponse.SERVING)


# Another tenant's ids are NOT_FOUND to every method, in the very words in which nobody's are, and nothing moves.
def every_method__ids_of_another_tenant__not_found(suite):
    before, wrong, tried = stored(suite, "default"), [], 0
    nobody = {key: "nobodys" if key == "tenant_id" else value for key, value in made_up(suite.victim).items()}
    for method in suite.methods:
        if method.service in OPEN or method.service.startswith("grpc.reflection"):
            continue
        pairs = zip(requests_of(method, suite.victim), requests_of(method, nobody))
        for real, fake in pairs:
            if real == fake:
                continue  # a message of a stream that names nothing
            got = send(suite.channel(method), method, real, suite.thief)
            wanted = send(suite.channel(method), method, fake, suite.thief)
            if got[:2] in (("UNIMPLEMENTED", "METHOD_UNKNOWN"), ("PERMISSION_DENIED", "PEER_ONLY")):
                continue
            tried += 1
            if method.name in DEPLOYMENT_ONLY:
                if got[:2] != ("PERMISSION_DENIED", "SCOPE_MISSING"):
                    wrong.append(f"{method}: {got}")
            elif got[0] != "NOT_FOUND" or (got[0], got[1], got[2].replace("default", "nobodys")) != wanted:
                wrong.append(f"{method}: {got}, of nobody {wanted}")
    tap.check(not wrong, "\n".join(wrong))
    tap.check(tried > 35, tried)
    tap.equal(stored(suite, "default"), before, "the store")
    tap.equal(suite.client().read_file("victim", "/workspace/mine"), b"mine")


# With its own tenant and another one's sessions, configs, snapshots and tokens: as if they were made up.
def every_method__own_tenant_with_anothers_ids__as_made_up(suite):
    before, wrong, tried = stored(suite, "default"), [], 0
    mine, nobody = ({**ids, "tenant_id": "thief"} for ids in (suite.victim, made_up(suite.victim)))
    for method in suite.methods:
        if method.service in OPEN or method.service.startswith("grpc.reflection") or method.name in DEPLOYMENT_ONLY | {
                "CreateConfig", "CreateToken", "UpdateTenant"}:
            continue
        for real, fake in zip(requests_of(method, mine), requests_of(method, nobody)):
            got, wanted = (send(suite.channel(method), method, wire, suite.thief)[:2] for wire in (real, fake))
            tried += got[0] not in ("UNIMPLEMENTED", "INVALID_ARGUMENT", "PERMISSION_DENIED")
            # Templates are the backend's: those of `base` are everybody's to read.
            if got != wanted and method.service != "berth.control.v1.TemplateService":
                wrong.append(f"{method}: {got}, of nobody {wanted}")
    tap.check(not wrong, "\n".join(wrong))
    tap.check(tried > 10, tried)
    tap.equal(stored(suite, "default"), before, "the store")


# Time does not tell another tenant from none.
def get__another_tenant_or_none__same_time(suite):
    api = suite.client("thief", token=suite.thief)
    took = {"default": [], "nobodys": []}
    for _ in range(300):
        for tenant, times in took.items():
            begin = time.perf_counter()
            refusal(api.tenants.GetTenant, C.GetTenantRequest(tenant_id=tenant))
            times.append(time.perf_counter() - begin)
    medians = sorted(statistics.median(times) for times in took.values())
    print(f"median {medians[0] * 1e6:.0f} and {medians[1] * 1e6:.0f} us", file=sys.stderr)
    tap.check(medians[1] < 1.3 * medians[0] + 0.0001, medians)


# A token for one session, over the data plane and skills: that one, the others are not found.
def token__for_one_session__data_plane_and_skills(suite):
    api = suite.client()
    api.resolve("shown", config="local")
    bound = suite.client(token=make_token(suite, scope=C.SCOPE_USE, session_id="shown").secret)
    tap.equal(bound.run("shown", "echo on", text=True).stdout_text, "on\n")
    bound.write_file("shown", "/workspace/a", b"a")
    for call in (lambda: bound.run("victim", "true"), lambda: bound.exec("victim", "true").finish(),
                 lambda: bound.read_file("victim", "/workspace/mine"), lambda: bound.write_file("victim", "/workspace/a", b""),
                 lambda: bound.snapshot("victim"), lambda: bound.session("victim")):
        tap.equal(refusal(call), ("NOT_FOUND", "SESSION_NOT_FOUND"))
    api.delete("shown")


# A token for one config, over the data plane: sessions of others are not found, and are not woken.
def token__for_one_config__data_plane(suite):
    api = suite.client()
    api.resolve("of-local", config="local")
    bound = suite.client(token=make_token(suite, scope=C.SCOPE_USE, config_id="secret-config").secret)
    tap.equal(bound.run("victim", "echo on", text=True).stdout_text, "on\n")
    api.pause("of-local")
    for call in (lambda: bound.run("of-local", "true"), lambda: bound.stat("of-local", "/workspace"),
                 lambda: bound.list_processes("of-local")):
        tap.equal(refusal(call), ("NOT_FOUND", "SESSION_NOT_FOUND"))
    tap.equal(api.session("of-local").sandbox.state, pb.common.SANDBOX_STATE_PAUSED, "it was woken")
    tap.equal(refusal(bound.snapshots.GetSnapshot, pb.skills.GetSnapshotRequest(
        tenant_id="default", snapshot_id=suite.victim["snapshot_id"])), ("OK", ""))
    api.delete("of-local")


def introspections(suite):
    """How often data plane and skills have asked whose a token is."""
    url = f"http://127.0.0.1:{suite.facts['ports']['controlplane-metrics']}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return sum(float(line.rsplit(" ", 1)[1]) for line in answer.read().decode().splitlines()
                   if line.startswith("berth_rpc_calls_total") and "IntrospectToken" in line)


# A warm command asks nobody whose its token is.
def run__warm__no_question_about_the_token(suite):
    api = suite.client(token=make_token(suite, scope=C.SCOPE_USE).secret)
    api.run("victim", "true")
    before, begin, n = introspections(suite), time.monotonic(), 200
    for _ in range(n):
        api.stat("victim", "/workspace")
    asked, seconds = introspections(suite) - before, time.monotonic() - begin
    print(f"{asked:g} questions in {n} calls and {seconds:.1f} s", file=sys.stderr)
    tap.check(asked <= 2 * (1 + 2 * seconds), asked, "questions in", seconds, "s")


# A revoked token is gone from every process within five seconds, while it is in use all the time.
def revoke__token_in_use_everywhere__gone_within_five_seconds(suite):
    made = make_token(suite, scope=C.SCOPE_USE)
    api = suite.client(token=made.secret, timeout=20)
    calls = {"controlplane": lambda: api.session("victim"), "dataplane": lambda: api.stat("victim", "/workspace"),
             "skills": lambda: api.snapshots.ListSnapshots(pb.skills.ListSnapshotsRequest(tenant_id="default"))}
    for name, call in calls.items():
        tap.equal(refusal(call), ("OK", ""), name)
    suite.client().tenants.RevokeToken(C.RevokeTokenRequest(tenant_id="default", token_id=made.token.token_id))
    begin = time.monotonic()
    for name, call in calls.items():
        wait_for(lambda call=call: refusal(call) == ("UNAUTHENTICATED", "TOKEN_INVALID"), GONE + 2, f"{name} refuses it")
        print(f"{name}: gone after {time.monotonic() - begin:.1f} s", file=sys.stderr)
    tap.check(time.monotonic() - begin < GONE + 1, time.monotonic() - begin)


# Tokens outlive their keepers: after kill -9 of every process each one is what it was.
def tokens__every_process_killed__as_before(suite):
    good, revoked = make_token(suite), make_token(suite)
    suite.client().tenants.RevokeToken(C.RevokeTokenRequest(tenant_id="default", token_id=revoked.token.token_id))
    suite.kill9("controlplane", "dataplane", "skills")
    suite.restart("controlplane", "dataplane", "skills")
    tap.equal(suite.client(token=good.secret).read_file("victim", "/workspace/mine"), b"mine")
    tap.equal(refusal(suite.client(token=revoked.secret).session, "victim"), ("UNAUTHENTICATED", "TOKEN_INVALID"))


# The admin's token lies where only root reads it, and no secret of a token is in store, logs or command lines.
def secrets__of_tokens__nowhere(suite):
    tap.equal(os.stat(suite.path("admin.token")).st_mode & 0o777, 0o600)
    secrets = [suite.admin_token(), suite.thief, make_token(suite).secret]
    texts = {name + ".log": suite.logs(name) for name in suite.names}
    for tenant in ("default", "thief", "."):
        texts["store of " + tenant] = str(stored(suite, tenant))
    for name in suite.names:
        for part in ("cmdline", "environ"):
            with open(f"/proc/{suite.pid(name)}/{part}", "rb") as file:
                texts[f"{name} {part}"] = file.read().decode(errors="replace")
        url = f"http://127.0.0.1:{suite.facts['ports'][name + '-metrics']}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            texts[name + " metrics"] = answer.read().decode()
    for where, text in texts.items():
        for secret in secrets:
            tap.check(secret.split("_")[-1] not in text, "a token's secret is in", where)


if __name__ == "__main__":
    tap.main(globals(), Isolation)

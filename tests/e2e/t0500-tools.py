#!/usr/bin/python3
"""t0500-tools - what others' tools see: reflection v1 and v1alpha, health Watch, metrics, --help, and
grpcurl where Go is there to build it."""
import json
import os
import subprocess
import sys
import urllib.request

import grpc
from google.protobuf import descriptor_pb2

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import Failure, TestSuite, grpcurl, pb, wait_for  # noqa: E402

WANTED = {
    "controlplane": ["berth.control.v1.ConfigService", "berth.control.v1.SessionService", "berth.control.v1.TenantService"],
    "dataplane": ["berth.data.v1.FileService", "berth.data.v1.ProcessService"],
    "skills": ["berth.skills.v1.SkillService", "berth.skills.v1.SnapshotService"],
    "binding": ["berth.binding.v1.BindingService"],
    "reaper": ["berth.reaper.v1.ReaperService"],
    "adapter-local": ["berth.backend.v1.BackendService", "berth.backend.v1.SnapshotService", "berth.backend.v1.TemplateService"]}


def reflect(suite, name, package, stubs, **request):
    with grpc.insecure_channel(suite.target(name)) as channel:
        call = stubs.ServerReflectionStub(channel).ServerReflectionInfo
        answer, = call(iter([package.ServerReflectionRequest(**request)]), timeout=10, metadata=suite.client().metadata)
        return answer


# Every process lists its services by both reflection versions, health and reflection among them.
def reflection__both_versions__list_every_service(suite):
    for name, wanted in WANTED.items():
        for package, stubs in ((pb.reflection, pb.rpc.reflection), (pb.reflection_alpha, pb.rpc.reflection_alpha)):
            answer = reflect(suite, name, package, stubs, list_services="")
            listed = [each.name for each in answer.list_services_response.service]
            for service in wanted + ["grpc.health.v1.Health"]:
                tap.check(service in listed, name, service, "not in", listed)


# A service's file comes with all that it imports.
def reflection__file_of_a_symbol__whole(suite):
    answer = reflect(suite, "controlplane", pb.reflection, pb.rpc.reflection,
                     file_containing_symbol="berth.control.v1.SessionService")
    files = [descriptor_pb2.FileDescriptorProto.FromString(each)
             for each in answer.file_descriptor_response.file_descriptor_proto]
    tap.check(any(service.name == "SessionService" for file in files for service in file.service), "the service")
    unknown = reflect(suite, "controlplane", pb.reflection, pb.rpc.reflection, file_containing_symbol="no.such.Thing")
    tap.equal(unknown.error_response.error_code, 5)


# Watch tells the present state at once and each change; an unknown service is SERVICE_UNKNOWN.
def health_watch__store_away_and_back__each_change_told(suite):
    with grpc.insecure_channel(suite.target("controlplane")) as channel:
        stub = pb.rpc.health.HealthStub(channel)
        name = pb.health.HealthCheckResponse.ServingStatus.Name
        watch = stub.Watch(pb.health.HealthCheckRequest(service="berth.control.v1.SessionService"), timeout=40)
        tap.equal(name(next(watch).status), "SERVING")
        suite.kill9("redis")
        tap.equal(name(next(watch).status), "NOT_SERVING")
        suite.start_redis()
        tap.equal(name(next(watch).status), "SERVING")
        watch.cancel()
        unknown = stub.Watch(pb.health.HealthCheckRequest(service="no.such.Service"), timeout=10)
        tap.equal(name(next(unknown).status), "SERVICE_UNKNOWN")
        unknown.cancel()


# Each process gives Prometheus text with its per-method counts.
def metrics__after_calls__per_method(suite):
    suite.client().tenants.GetTenant(pb.control.GetTenantRequest(tenant_id="default"))
    for name in suite.names:
        url = f"http://127.0.0.1:{suite.facts['ports'][name + '-metrics']}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            text = answer.read().decode()
        tap.check("# TYPE " in text, name)
        if name == "controlplane":
            tap.check([line for line in text.splitlines() if "GetTenant" in line and not line.startswith("#")], "no GetTenant")


# Every binary explains its settings, tells its version, and checks them without starting.
def binaries__help_version_check__answer(suite):
    for name in suite.names:
        text = subprocess.run([suite.binary(name), "--help"], capture_output=True, text=True, timeout=10)
        tap.equal(text.returncode, 0, name, "--help")
        for setting in ("listen", "run_dir", "deployment"):
            tap.check(setting in text.stdout, name, "says nothing of", setting)
        tap.equal(subprocess.run([suite.binary(name), "--version"], capture_output=True, timeout=10).returncode, 0, name)
        checked = subprocess.run(suite.command(name) + ["--check"], capture_output=True, text=True, timeout=10)
        tap.equal(checked.returncode, 0, name, checked.stderr[-200:])
        wrong = subprocess.run([suite.binary(name), "--no_such_setting=1"], capture_output=True, text=True, timeout=10)
        tap.check(wrong.returncode != 0 and "no_such_setting" in wrong.stderr + wrong.stdout, name, wrong.stderr[-200:])


# Logs are one JSON object a line.
def logs__every_process__json_lines(suite):
    for name in suite.names:
        for line in suite.logs(name).splitlines():
            entry = json.loads(line)
            tap.check({"ts", "level", "svc", "msg"} <= set(entry), name, line)


def shown(suite):
    return "-plaintext", "-H", f"authorization: Bearer {suite.admin_token()}"


# grpcurl lists and describes every public process.
def grpcurl__list_and_describe__works(suite):
    tool = grpcurl()
    for name in ("controlplane", "dataplane", "skills"):
        done = subprocess.run([tool, *shown(suite), suite.target(name), "list"], capture_output=True, text=True, timeout=20)
        tap.equal(done.returncode, 0, done.stderr)
        for service in WANTED[name]:
            tap.check(service in done.stdout.split(), service, "not in", done.stdout)
            text = subprocess.run([tool, *shown(suite), suite.target(name), "describe", service], capture_output=True,
                                  text=True, timeout=20)
            tap.check(text.returncode == 0 and "rpc " in text.stdout, text.stderr)


def outcome(call, *args):
    try:
        call(*args)
        return ""
    except Failure as failure:
        return failure.reason


# The README's calls, with grpcurl: a session, a command with readable output, its end.
def grpcurl__readme_calls__work(suite):
    tool = grpcurl()

    def call(name, method, request):
        done = subprocess.run([tool, *shown(suite), "-d", json.dumps(request), suite.target(name), method],
                              capture_output=True, text=True, timeout=60)
        tap.equal(done.returncode, 0, method, done.stderr)
        return json.loads(done.stdout)
    ref = {"tenant_id": "default", "session_id": "by-hand"}
    # An earlier case restarted the store: binding creates nothing until its quarantine is over.
    wait_for(lambda: outcome(suite.client().resolve, "after-quarantine", "local") != "QUARANTINE", 20, "the quarantine ends")
    made = call("controlplane", "berth.control.v1.SessionService/ResolveSession",
                {"session": ref, "spec": {"config_id": "local"}})
    tap.equal(made["outcome"], "RESOLVE_OUTCOME_CREATED")
    ran = call("dataplane", "berth.data.v1.ProcessService/Run",
               {"session": ref, "command": {"shell": "id -un; pwd"}, "text": True})
    tap.equal(ran["stdoutText"], "user\n/workspace\n")
    tap.equal(call("controlplane", "berth.control.v1.SessionService/DeleteSession", {"session": ref}), {})


if __name__ == "__main__":
    tap.main(globals(), TestSuite)

"""A small foreign client of Berth over python3-grpcio: what the main job, the end-to-end tests and
the bench speak with. It knows the protos only."""
import hashlib

import grpc
from google.protobuf import duration_pb2

from stubs import pb

CHUNK = 256 * 1024
OPTIONS = [("grpc.max_receive_message_length", 64 << 20), ("grpc.enable_retries", 0),
           ("grpc.use_local_subchannel_pool", 1)]


def duration(seconds):
    value = duration_pb2.Duration()
    value.FromNanoseconds(round(seconds * 1e9))
    return value


class Failure(Exception):
    """A failed call as Berth tells it: code, reason, metadata, text."""

    def __init__(self, error):
        self.code = error.code().name
        self.text = error.details()
        self.reason, self.metadata = "", {}
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                for detail in pb.common.Status.FromString(value).details:
                    if detail.type_url.endswith("/google.rpc.ErrorInfo"):
                        info = pb.common.ErrorInfo.FromString(detail.value)
                        self.reason, self.metadata = info.reason, dict(info.metadata)
        super().__init__(f"{self.code} / {self.reason or '-'}: {self.text} {self.metadata or ''}")


def bearer(token):
    """The metadata that shows a token; none without."""
    return (("authorization", "Bearer " + token),) if token else ()


class _Calls:
    """A stub whose calls raise Failure, with a default deadline and the caller's token."""

    def __init__(self, stub, timeout, metadata):
        self._stub, self._timeout, self._metadata = stub, timeout, metadata

    def __getattr__(self, name):
        call = getattr(self._stub, name)

        def invoke(request, timeout=None, metadata=(), **more):
            try:
                answer = call(request, timeout=timeout or self._timeout, metadata=self._metadata + tuple(metadata), **more)
            except grpc.RpcError as error:
                raise Failure(error) from None
            return answer if not hasattr(answer, "__next__") else _Stream(answer)
        return invoke


class _Stream:
    """A response stream whose failures are raised as Failure."""

    def __init__(self, call):
        self.call = call

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return next(self.call)
        except StopIteration:
            raise
        except grpc.RpcError as error:
            raise Failure(error) from None

    def cancel(self):
        self.call.cancel()


class Client:
    """One tenant's view. Targets as gRPC writes them: "127.0.0.1:7400", "unix:/path". token: what every
    call shows; services of the suite, on the unix sockets, need none."""

    def __init__(self, control, data, skills, tenant="default", timeout=60, token=None):
        self.tenant = tenant
        self.metadata = bearer(token)
        self.channels = {name: grpc.insecure_channel(target, options=OPTIONS) for name, target in
                         (("control", control), ("data", data), ("skills", skills)) if target}

        def calls(channel, package, service):
            if channel not in self.channels:
                return None
            stub = getattr(getattr(pb.rpc, package), service + "Stub")
            return _Calls(stub(self.channels[channel]), timeout, self.metadata)

        self.configs = calls("control", "control", "ConfigService")
        self.sessions = calls("control", "control", "SessionService")
        self.events = calls("control", "control", "EventService")
        self.tenants = calls("control", "control", "TenantService")
        self.templates = calls("control", "control", "TemplateService")
        self.internal = calls("control", "control", "InternalService")
        self.events = calls("control", "control", "EventService")
        self.processes = calls("data", "data", "ProcessService")
        self.files = calls("data", "data", "FileService")
        self.workspaces = calls("data", "data", "WorkspaceService")
        self.moves = calls("data", "data", "InternalService")
        self.snapshots = calls("skills", "skills", "SnapshotService")
        self.skills = calls("skills", "skills", "SkillService")

    def close(self):
        for channel in self.channels.values():
            channel.close()

    def ref(self, session):
        return pb.common.SessionRef(tenant_id=self.tenant, session_id=session)

    # ------------------------------------------------------------ sessions and turns

    def resolve(self, session, config="", turn="", image=None, timeout=None, **more):
        spec = more.pop("spec", None) or pb.common.SessionSpec(config_id=config, image=image)
        return self.sessions.ResolveSession(pb.control.ResolveSessionRequest(
            session=self.ref(session), spec=spec, turn_token=turn, **more), timeout=timeout)

    def existing(self, session):
        return self.resolve(session, mode=pb.control.RESOLVE_MODE_EXISTING)

    def session(self, session):
        return self.sessions.GetSession(pb.control.GetSessionRequest(session=self.ref(session))).session

    def begin_turn(self, session, turn_id=""):
        return self.sessions.BeginTurn(pb.control.BeginTurnRequest(
            session=self.ref(session), turn_id=turn_id)).turn_token

    def end_turn(self, session, token):
        self.sessions.EndTurn(pb.control.EndTurnRequest(session=self.ref(session), turn_token=token))

    def pause(self, session):
        return self.sessions.PauseSession(pb.control.PauseSessionRequest(session=self.ref(session))).session

    def resume(self, session):
        return self.sessions.ResumeSession(pb.control.ResumeSessionRequest(session=self.ref(session))).session

    def delete(self, session, timeout=None):
        self.sessions.DeleteSession(pb.control.DeleteSessionRequest(session=self.ref(session)), timeout=timeout)

    # ------------------------------------------------------------ commands

    def command(self, what, timeout=None, **more):
        """what: a string for the shell, a list for argv. timeout: seconds of the command."""
        command = pb.data.Command(**more)
        if isinstance(what, str):
            command.shell = what
        else:
            command.argv.args.extend(what)
        if timeout is not None:
            command.timeout.CopyFrom(duration(timeout))
        return command

    def run(self, session, what, turn="", stdin=b"", max_output_bytes=0, text=False, rpc_timeout=None, **more):
        return self.processes.Run(pb.data.RunRequest(
            session=self.ref(session), turn_token=turn, command=self.command(what, **more), stdin=stdin,
            max_output_bytes=max_output_bytes, text=text), timeout=rpc_timeout)

    def exec(self, session, what, turn="", stdin=b"", keep_stdin_open=False, detach=False,
             max_output_bytes=0, rpc_timeout=None, keep=True, **more):
        """The stream of ProcessEvents. keep: gather the output in .stdout and .stderr."""
        stream = self.processes.Exec(pb.data.ExecRequest(
            session=self.ref(session), turn_token=turn, command=self.command(what, **more),
            initial_stdin=stdin, keep_stdin_open=keep_stdin_open, detach=detach,
            max_output_bytes=max_output_bytes), timeout=rpc_timeout)
        return Events(stream, keep)

    def attach(self, session, exec_id, after_seq=0, rpc_timeout=None):
        return Events(self.processes.Attach(pb.data.AttachRequest(
            session=self.ref(session), process=pb.data.ProcessRef(exec_id=exec_id), after_seq=after_seq),
            timeout=rpc_timeout))

    def send_input(self, session, exec_id, data=b"", end_of_file=False, offset=0):
        return self.processes.SendInput(pb.data.SendInputRequest(
            session=self.ref(session), process=pb.data.ProcessRef(exec_id=exec_id), data=data,
            end_of_file=end_of_file, offset=offset)).next_offset

    def signal(self, session, exec_id, signal=15, leader_only=False):
        return self.processes.Signal(pb.data.SignalRequest(
            session=self.ref(session), process=pb.data.ProcessRef(exec_id=exec_id), signal=signal,
            leader_only=leader_only)).existed

    def list_processes(self, session):
        return self.processes.ListProcesses(pb.data.ListProcessesRequest(session=self.ref(session))).processes

    # ------------------------------------------------------------ files

    def write_file(self, session, path, data, turn="", mode=0, done=True, timeout=None, **more):
        """data: bytes, or an iterable of chunks."""
        def requests():
            yield pb.data.WriteFileRequest(open=pb.data.WriteFileOpen(
                session=self.ref(session), turn_token=turn, path=path, mode=mode, **more))
            chunks = [data[i:i + CHUNK] for i in range(0, len(data), CHUNK)] if isinstance(data, bytes) else data
            digest, size = hashlib.sha256(), 0
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                yield pb.data.WriteFileRequest(data=chunk)
            if done:
                yield pb.data.WriteFileRequest(done=pb.data.FileDone(size_bytes=size, sha256=digest.digest()))
        return self.files.WriteFile(requests(), timeout=timeout).entry

    def read_chunks(self, session, path, timeout=None, **more):
        """Yields the data; raises if the last message did not come."""
        done = False
        for message in self.files.ReadFile(pb.data.ReadFileRequest(
                session=self.ref(session), path=path, **more), timeout=timeout):
            done = message.HasField("done")
            if message.data:
                yield message.data
        if not done:
            raise RuntimeError(f"{path}: the stream ended without its last message")

    def read_file(self, session, path, **more):
        return b"".join(self.read_chunks(session, path, **more))

    def stat(self, session, path, **more):
        return self.files.Stat(pb.data.StatRequest(session=self.ref(session), path=path, **more)).entry

    def list_dir(self, session, path, depth=0, **page):
        return self.files.ListDir(pb.data.ListDirRequest(
            session=self.ref(session), path=path, depth=depth, page=pb.common.PageRequest(**page)))

    def make_dir(self, session, path, turn=""):
        return self.files.MakeDir(pb.data.MakeDirRequest(session=self.ref(session), path=path, turn_token=turn))

    def move(self, session, source, target, overwrite=False):
        return self.files.Move(pb.data.MoveRequest(
            session=self.ref(session), source=source, target=target, overwrite=overwrite)).entry

    def remove(self, session, path, recursive=False):
        return self.files.Remove(pb.data.RemoveRequest(
            session=self.ref(session), path=path, recursive=recursive)).existed

    # ------------------------------------------------------------ workspaces

    def export_workspace(self, session, timeout=None):
        """The tar, and the last message, which says what stayed behind."""
        parts, last = [], None
        for message in self.workspaces.ExportWorkspace(
                pb.data.ExportWorkspaceRequest(session=self.ref(session)), timeout=timeout):
            parts.append(message.tar_data)
            last = message
        if last is None or not last.HasField("done"):
            raise RuntimeError("the stream ended without its last message")
        tar = b"".join(parts)
        if (last.done.size_bytes, last.done.sha256) != (len(tar), hashlib.sha256(tar).digest()):
            raise RuntimeError("the tar is not what was sent")
        return tar, last

    def import_workspace(self, session, tar, turn="", done=True, timeout=None):
        def requests():
            yield pb.data.ImportWorkspaceRequest(open=pb.data.ImportOpen(session=self.ref(session), turn_token=turn))
            for i in range(0, len(tar), CHUNK):
                yield pb.data.ImportWorkspaceRequest(tar_data=tar[i:i + CHUNK])
            if done:
                yield pb.data.ImportWorkspaceRequest(done=pb.data.FileDone(
                    size_bytes=len(tar), sha256=hashlib.sha256(tar).digest()))
        return self.workspaces.ImportWorkspace(requests(), timeout=timeout)

    # ------------------------------------------------------------ snapshots

    def install_skill(self, config, bundle, timeout=None, **more):
        """The bytes of a bundle into the image of a config; more: as InstallSkillOpen."""
        def requests():
            yield pb.skills.InstallSkillRequest(open=pb.skills.InstallSkillOpen(
                tenant_id=self.tenant, config_id=config, size_bytes=len(bundle), **more))
            for at in range(0, len(bundle), 1 << 20):
                yield pb.skills.InstallSkillRequest(data=bundle[at:at + (1 << 20)])
        return self.skills.InstallSkill(requests(), timeout=timeout)

    def operation(self, operation_id):
        return self.skills.GetOperation(pb.skills.GetOperationRequest(
            tenant_id=self.tenant, operation_id=operation_id)).operation

    def watch_operation(self, operation_id, after_seq=0, timeout=None):
        """Its messages until it has ended."""
        return self.skills.WatchOperation(pb.skills.WatchOperationRequest(
            tenant_id=self.tenant, operation_id=operation_id, after_seq=after_seq), timeout=timeout)

    def list_skills(self, **of):
        """of: config_id= or session_id=."""
        return self.skills.ListSkills(pb.skills.ListSkillsRequest(tenant_id=self.tenant, **of))

    def snapshot(self, session, display_name="", timeout=None):
        return self.snapshots.CreateSnapshot(pb.skills.CreateSnapshotRequest(
            session=self.ref(session), display_name=display_name), timeout=timeout).snapshot

    def delete_snapshot(self, snapshot_id):
        self.snapshots.DeleteSnapshot(pb.skills.DeleteSnapshotRequest(
            tenant_id=self.tenant, snapshot_id=snapshot_id))


class Events:
    """An Exec or Attach stream, and what it said so far."""

    def __init__(self, stream, keep=True):
        self.stream, self.keep = stream, keep
        self.started = self.exited = None
        self.stdout, self.stderr, self.last_seq = bytearray(), bytearray(), 0

    def __iter__(self):
        for message in self.stream:
            event = message.event
            self.last_seq = event.seq or self.last_seq
            kind = event.WhichOneof("event")
            if kind == "started":
                self.started = event.started
            elif kind == "stdout" and self.keep:
                self.stdout += event.stdout
            elif kind == "stderr" and self.keep:
                self.stderr += event.stderr
            elif kind == "exited":
                self.exited = event.exited
            yield event

    def until_started(self):
        for _ in self:
            if self.started:
                return self
        raise RuntimeError("the stream ended before the command began")

    def until(self, condition):
        """Reads on until condition(self) holds."""
        if condition(self):
            return self
        for _ in self:
            if condition(self):
                return self
        raise RuntimeError(f"the stream ended before its time; stdout {self.stdout[-200:]!r}, exited {self.exited}")

    def finish(self):
        for _ in self:
            pass
        return self

    def cancel(self):
        self.stream.cancel()


def health(target, service="", timeout=5):
    """SERVING, NOT_SERVING, ...; UNREACHABLE when nobody answers."""
    with grpc.insecure_channel(target, options=OPTIONS) as channel:
        try:
            answer = pb.rpc.health.HealthStub(channel).Check(
                pb.health.HealthCheckRequest(service=service), timeout=timeout)
        except grpc.RpcError as error:
            return "UNREACHABLE" if error.code().name in ("UNAVAILABLE", "DEADLINE_EXCEEDED") else error.code().name
        return pb.health.HealthCheckResponse.ServingStatus.Name(answer.status)

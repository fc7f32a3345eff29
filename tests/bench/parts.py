"""parts.py - what is measured. Each part is one function of a Bench."""
import os
import shutil
import socket
import subprocess
import time

import bundles
import rival
from balloon import Balloon
from suite import base, duration, pb
from table import median, p
from yardstick import MARK, LoadError, call, redis_get

SESSIONS = "/berth.control.v1.SessionService/"
INTERNAL = "/berth.control.v1.InternalService/"
PROCESSES = "/berth.data.v1.ProcessService/"
FILES = "/berth.data.v1.FileService/"
BACKEND = "/berth.backend.v1.BackendService/"
GIB, MIB = 1 << 30, 1 << 20
SERVICES = ("binding", "adapter-local", "controlplane", "dataplane", "skills", "reaper")


class Bench:
    def __init__(self, suite, yard, table, scale):
        self.suite, self.yard, self.table, self.scale = suite, yard, table, scale
        self.client = suite.client(timeout=120)
        self.control, self.data = suite.target("controlplane"), suite.target("dataplane")
        self.internal = "unix:" + suite.path("run", "controlplane.sock")
        self.adapter = suite.target("adapter-local")
        self.token = {"authorization": f"Bearer {suite.admin_token()}".encode()}
        self.redis = "unix:" + suite.path("run", "redis.sock")

    def n(self, full):
        return max(5, full // self.scale)

    def floor(self, when):
        echo = self.yard.rounds(self.n(500), {"echo": [self.yard.echo()]}, warm=50)["echo"]
        self.table.floor(when, p(echo, 50))

    # ------------------------------------------------------------ requests

    def ref(self, session):
        return pb.common.SessionRef(tenant_id="default", session_id=session)

    def resolve(self, session, image=None, config="local"):
        return call(self.control, SESSIONS + "ResolveSession", pb.control.ResolveSessionRequest(
            session=self.ref(session), spec=pb.common.SessionSpec(config_id=config, image=image)), self.token)

    def delete(self, session):
        return call(self.control, SESSIONS + "DeleteSession", pb.control.DeleteSessionRequest(session=self.ref(session)),
                    self.token)

    def run(self, session):
        return call(self.data, PROCESSES + "Run", self.true(session), self.token)

    def true(self, session, exec_id=""):
        return pb.data.RunRequest(session=self.ref(session), command=pb.data.Command(
            argv=pb.data.Argv(args=["/bin/true"]), timeout=duration(60), exec_id=exec_id))

    def route(self, session):
        """The packed endpoint of a session's sandbox, as the data plane gets it."""
        import grpc
        with grpc.insecure_channel(self.internal) as channel:
            stub = pb.rpc.control.InternalServiceStub(channel)
            return stub.ResolveRoute(pb.control.ResolveRouteRequest(session=self.ref(session)), timeout=60).endpoint


# ------------------------------------------------------------------- resolve

def warm_resolve(bench):
    """warm resolve against an echo through one relay and a GET; Redis round trips of one"""
    bench.client.resolve("warm", config="local")
    tracks = {
        "relay and get": [bench.yard.echo(bench.yard.relayed), redis_get(bench.redis, "berth:epoch")],
        "resolve": [bench.resolve("warm")],
    }
    before = commands(bench)
    micros = bench.yard.rounds(bench.n(1000), tracks, warm=0)
    after = commands(bench)
    n = len(micros["resolve"])
    used = sum(after[name] - before.get(name, 0) for name in after if name not in ("get", "info"))
    bench.table.ratio_at_most("warm resolve p50", p(micros["resolve"], 50), "us", "relayed echo + GET",
                              p(micros["relay and get"], 50), 1.25)
    bench.table.at_most("warm resolve, Redis round trips", used / n, 1.02, "")
    token_cost(bench)


def token_cost(bench):
    """The same resolve by the same way, with a token and as a service of the suite."""
    message = pb.control.ResolveSessionRequest(session=bench.ref("warm"), spec=pb.common.SessionSpec(config_id="local"))
    tracks = {"peer": [call(bench.internal, SESSIONS + "ResolveSession", message)],
              "token": [call(bench.internal, SESSIONS + "ResolveSession", message, bench.token)]}
    micros = bench.yard.rounds(bench.n(1000), tracks)
    bench.table.ratio_at_most("warm resolve with a token p50", p(micros["token"], 50), "us", "without, as a peer",
                              p(micros["peer"], 50), 1.1)


def commands(bench):
    """{command: calls}, without those that a script or the readiness checks make."""
    counts = {}
    for line in bench.suite.redis_cli("info", "commandstats").splitlines():
        if line.startswith("cmdstat_"):
            name, _, rest = line[len("cmdstat_"):].partition(":")
            counts[name.split("|")[0]] = int(rest.split("calls=")[1].split(",")[0])
    return {name: n for name, n in counts.items() if name in ("evalsha", "evalsha_ro", "eval", "eval_ro", "fcall", "get", "set", "script")}


# ------------------------------------------------------------------- growth

# Sessions like KEYS[1], from ARGV[1] to ARGV[2], called ARGV[3], under config ARGV[4] in the index.
CLONE = """local from = KEYS[1] .. '-' .. ARGV[3] .. '-'
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
    redis.call('COPY', KEYS[1], from .. i)
    redis.call('ZADD', 'berth:{default}:i/c/' .. ARGV[4], 0, 'grow-' .. ARGV[3] .. '-' .. i)
end"""
FORGET = """local from = KEYS[1] .. '-' .. ARGV[3] .. '-'
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
    redis.call('UNLINK', from .. i)
    redis.call('ZREM', 'berth:{default}:i/c/' .. ARGV[4], 'grow-' .. ARGV[3] .. '-' .. i)
end"""


def in_parts(bench, script, n, name, config):
    """In pieces that nobody has to wait for."""
    for first in range(1, n + 1, 5000):
        bench.suite.redis_cli("eval", script, "1", "berth:{default}:s/grow", str(first), str(min(n, first + 4999)), name, config)


def growth(bench):
    """a warm resolve among 100,000 bindings against one among ten; MarkStale by the session"""
    many = 100000 // bench.scale
    sizes = {"few": 10, "many": many, "grow1": 500, "grow10": 5000}
    bench.client.resolve("grow", config="local")
    seen, each = {"few": [], "many": []}, {}
    for _ in range(4):  # in turns, so that both see the same machine
        for size, micros in seen.items():
            in_parts(bench, CLONE, sizes[size], size, size)
            micros += bench.yard.rounds(bench.n(400), {"resolve": [bench.resolve("grow")]})["resolve"]
            in_parts(bench, FORGET, sizes[size], size, size)
    bench.table.ratio_at_most(f"warm resolve among {many} bindings p50", p(seen["many"], 50), "us", "among ten", p(seen["few"], 50), 1.1)
    hset = []
    for size in ("grow1", "grow10"):
        in_parts(bench, CLONE, sizes[size], size, "local")
        rounds = []
        for generation in range(1, 6):  # of the same one, a session is told once
            rounds.append(mark_stale(bench, generation))
            hset.append(pipelined_hset(bench, size, sizes[size]) / sizes[size])
        each[size] = median(rounds) / sizes[size]
        in_parts(bench, FORGET, sizes[size], size, "local")
    bench.table.ratio_at_most(f"MarkStale, one of {sizes['grow10']}", each["grow10"], "us", f"one of {sizes['grow1']}", each["grow1"], 1.25)
    bench.table.ratio_at_most("MarkStale, one session", each["grow10"], "us", "pipelined HSET", median(hset), 60)


def mark_stale(bench, generation):
    """Microseconds of one MarkStale."""
    message = pb.binding.MarkStaleRequest(tenant_id="default", config_id="local", generation=generation)
    mark = call("unix:" + bench.suite.path("run", "binding.sock"), "/berth.binding.v1.BindingService/MarkStale", message)
    return bench.yard.rounds(1, {"mark": [mark]}, warm=0)["mark"][0]


def pipelined_hset(bench, config, n):
    """Microseconds of n HSET to as many sessions in one write: what Redis itself takes."""
    orders = b"".join(b"*4\r\n$4\r\nHSET\r\n$%d\r\n%s\r\n$5\r\nbench\r\n$16\r\n0123456789abcdef\r\n" % (len(key), key) for key in
                      (f"berth:{{default}}:s/grow-{config}-{i}".encode() for i in range(1, n + 1)))
    with socket.socket(socket.AF_UNIX) as redis:
        redis.connect(bench.suite.path("run", "redis.sock"))
        start, left = time.perf_counter(), n
        redis.sendall(orders)
        while left:
            left -= redis.recv(MIB).count(b"\n")
        return (time.perf_counter() - start) * 1e6


# ------------------------------------------------------------------- commands

def run_true(bench):
    """`true` on a running session against the adapter asked directly"""
    bench.client.resolve("warm-true", config="local")
    route = bench.route("warm-true").SerializeToString()
    tracks = {
        "echo": [bench.yard.echo()],
        "adapter": [call(bench.adapter, PROCESSES + "Run", bench.true("warm-true", "a" + MARK), {"berth-route-bin": route})],
        "session": [bench.run("warm-true")],
    }
    micros = bench.yard.rounds(bench.n(500), tracks)
    echo, adapter, session = (p(micros[name], 50) for name in tracks)
    limit = adapter + 1.25 * 4 * echo
    bench.table.ratio_at_most("`true` on a running session p50", session, "us", "adapter's + 1.25 x 4 echoes", limit, 1)
    bench.table.at_most("`true` on a running session p50", session / 1000, 5, "ms")
    bench.table.line("  adapter asked directly p50", f"{adapter:.0f} us", f"echo {echo:.0f} us")


def create(bench):
    """session create to the end of its first command"""
    session = "create-" + MARK
    tracks = {"create": ([bench.resolve(session), bench.run(session)],
                         [bench.delete(session)])}
    micros = bench.yard.rounds(bench.n(100), tracks, warm=3)["create"]
    bench.table.at_most("create -> first command p50", p(micros, 50) / 1000, 25, "ms")
    bench.table.at_most("create -> first command p99", p(micros, 99) / 1000, 100, "ms")


def from_snapshot(bench):
    """the same from a snapshot against from the base template, in pairs"""
    client = bench.client
    client.resolve("snap-source", config="local")
    client.run("snap-source", "mkdir -p /workspace/pkg && head -c 20000000 /dev/urandom > /workspace/pkg/blob")
    snapshot = client.snapshot("snap-source", "bench", timeout=120)
    image = pb.common.Image(snapshot_id=snapshot.snapshot_id)
    first = bench.run
    base_name, snap_name = "pair-b-" + MARK, "pair-s-" + MARK
    tracks = {"base": ([bench.resolve(base_name), first(base_name)], [bench.delete(base_name)]),
              "snapshot": ([bench.resolve(snap_name, image), first(snap_name)], [bench.delete(snap_name)])}
    micros = bench.yard.rounds(bench.n(50), tracks, warm=3)
    bench.table.ratio_at_most("create from a snapshot, median", median(micros["snapshot"]) / 1000, "ms", "from base",
                              median(micros["base"]) / 1000, 1.3)


# ------------------------------------------------------------------- files

def gigabyte(bench):
    """1 GiB by ReadFile and WriteFile against a bare relay in the data plane's place, and the adapter alone"""
    size, rounds = GIB // bench.scale, 5 if bench.scale == 1 else 2
    bench.client.resolve("giga", config="local")
    services = ("dataplane", "adapter-local")
    route = {"berth-route-bin": bench.route("giga").SerializeToString()}
    ways = {"data plane": (bench.data, bench.token), "bare relay": (bench.yard.adapter, route), "bare stream": (bench.adapter, route)}
    moves = ("WriteFile", "ReadFile")
    seen = {(move, way): [] for move in moves for way in ways}
    memory = {move: [] for move in moves}
    chunk = MIB
    write_file(bench, bench.data, "giga", MIB, size // MIB, bench.token)  # the processes have their memory
    reset_peaks(bench, services)
    start = {name: bench.suite.rss_kib(name) for name in services}
    for k in range(rounds):
        for move, act, order in (("WriteFile", write_file, 1), ("ReadFile", read_file, 1), ("ReadFile", read_file, -1)):
            # In turns: who goes first has a disk that has nothing left to do from the one before.
            for way in list(ways)[::-order if k % 2 else order]:
                target, metadata = ways[way]
                # Each has the memory for its file at hand. Without it the data plane, which used to be
                # first in every round, paid for what the machine had given back to its host meanwhile.
                with Balloon(size * 5 // 4 if move == "WriteFile" else 0):
                    result = act(bench, target, "giga", MIB, size // MIB, metadata)
                seen[move, way].append(speed(result))
        memory["WriteFile"].append(speed(bench.yard.write_sink(bench.yard.relayed, chunk, size // chunk)))
        memory["ReadFile"].append(speed(bench.yard.read_source(bench.yard.relayed, chunk, size // chunk)))
    for move in moves:
        name = f"{move} {size / GIB:g} GiB"
        own = seen[move, "data plane"]
        for way, limit in (("bare relay", 0.9), ("bare stream", 0.6)):
            bench.table.paired_at_least(name, own, "MB/s", way, seen[move, way], limit)
        bench.table.line("  memory through a bare relay", f"{median(memory[move]):.0f} MB/s", "no file, no SHA-256")
    for name in services:
        grown = (peak_kib(bench, name) - start[name]) / 1024
        bench.table.at_most(f"{name} grows by", max(grown, 0), 32, "MiB")
    bench.client.remove("giga", "/workspace/giga")


def write_file(bench, target, session, chunk, n, metadata=None):
    open_message = pb.data.WriteFileRequest(open=pb.data.WriteFileOpen(
        session=bench.ref(session), path="/workspace/giga", size_bytes=chunk * n))
    done = pb.data.WriteFileRequest(done=pb.data.FileDone(size_bytes=chunk * n))
    prefix = pb.data.WriteFileRequest(data=b"x" * chunk).SerializeToString()[:-chunk]
    return bench.yard.load(call(target, FILES + "WriteFile", open_message, metadata) | {
        "mode": "write", "prefix": prefix.hex(), "chunk": chunk, "n": n, "last": done.SerializeToString().hex()})


def read_file(bench, target, session, chunk, n, metadata=None):
    request = pb.data.ReadFileRequest(session=bench.ref(session), path="/workspace/giga")
    return bench.yard.load(call(target, FILES + "ReadFile", request, metadata) | {"mode": "read"})


def speed(result):
    return result["bytes"] / result["seconds"] / 1e6


def reset_peaks(bench, names):
    for name in names:
        with open(f"/proc/{bench.suite.pid(name)}/clear_refs", "w") as file:
            file.write("5")


def peak_kib(bench, name):
    with open(f"/proc/{bench.suite.pid(name)}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))


# ------------------------------------------------------------------- workspaces

def carry(bench):
    """a rebuild that carries 256 MiB in 500 files against `tar | tar` of the same"""
    n = bench.n(500)
    bench.client.resolve("carry", config="local")
    bench.client.run("carry", f"for i in $(seq {n}); do head -c 524288 /dev/urandom > f$i; done; sync", timeout=60)
    seen = {"rebuild": [], "tar": []}
    there = bench.suite.path("carried")
    for _ in range(5):
        bench.client.run("carry", "true")  # the sign that the tar of before may go
        box = bench.client.session("carry").sandbox.sandbox_id
        here = bench.suite.path("local", "sandboxes", box, "upper", "workspace")
        os.makedirs(there)
        start = time.perf_counter()
        subprocess.run(f"tar -C {here} -c . | tar -C {there} -x", shell=True, check=True)
        seen["tar"].append(time.perf_counter() - start)
        shutil.rmtree(there)
        bench.suite.flip()
        start = time.perf_counter()
        bench.client.resolve("carry")
        seen["rebuild"].append(time.perf_counter() - start)
    bench.table.ratio_at_most(f"rebuild with {n // 2} MiB in {n} files, median", median(seen["rebuild"]) * 1000, "ms", "`tar | tar`",
                              median(seen["tar"]) * 1000, 1.5)
    bench.client.delete("carry")


# ------------------------------------------------------------------- many streams, size

def idle_streams(bench):
    """1,000 idle Exec streams: memory and threads of each process"""
    n, n_sessions = bench.n(1000), 5
    services = ("dataplane", "adapter-local")
    requests = []
    for k in range(n_sessions):
        bench.client.resolve(f"idle-{k}", config="local")
        requests.append({"request": pb.data.ExecRequest(session=bench.ref(f"idle-{k}"), command=pb.data.Command(
            argv=pb.data.Argv(args=["/bin/sleep", "600"]), timeout=duration(600))).SerializeToString().hex()})
    hold(bench, requests, 50)  # pools and arenas fill up
    before = {name: (bench.suite.rss_kib(name), threads(bench, name)) for name in services}
    before_supervisors = supervisors_kib(bench)
    process = hold(bench, requests, n, wait=False)
    try:
        held = {name: (bench.suite.rss_kib(name), threads(bench, name)) for name in services}
        supervisors = supervisors_kib(bench)
    finally:
        finish(process)
    for name in services:
        each = (held[name][0] - before[name][0]) / n
        bench.table.at_most(f"{name}, one of {n} idle streams", each, 64, "KiB")
        # gRPC's executor has up to two threads per processor, whatever the load.
        more = held[name][1] - before[name][1]
        bench.table.at_most(f"{name}, threads for {n} streams", more, 2 * os.cpu_count(), "more")
    bench.table.at_most(f"supervisors, one of {n} commands", (supervisors - before_supervisors) / n, 64, "KiB")


def supervisors_kib(bench):
    """RSS of the supervisors of this suite's sandboxes, together."""
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                ours = file.read().startswith(b"berth-local-supervisor\0" + bench.suite.state.encode())
            with open(f"/proc/{pid}/status") as file:
                total += next((int(line.split()[1]) for line in file if line.startswith("VmRSS:")), 0) if ours else 0
        except OSError:
            continue  # it has just ended
    return total


def hold(bench, requests, n, wait=True):
    process = bench.yard.spawn({"mode": "hold", "target": bench.data, "path": PROCESSES + "Exec", "requests": requests, "n": n,
                               "metadata": {key: value.hex() for key, value in bench.token.items()}})
    if process.stdout.readline() != "ready\n":
        raise LoadError(process.stderr.read()[-300:])
    return finish(process) if wait else process


def finish(process):
    process.stdin.close()
    process.wait(60)


def threads(bench, name):
    return len(os.listdir(f"/proc/{bench.suite.pid(name)}/task"))


def idle_size(bench):
    """PSS of each service at rest"""
    for name in SERVICES:
        bench.suite.end(name, 15)
    bench.suite.start()
    for name in SERVICES:
        limit = 16 if name in ("binding", "controlplane", "reaper") else 22
        bench.table.at_most(f"PSS of idle {name}", bench.suite.pss_kib(name) / 1024, limit, "MiB")


# ------------------------------------------------------------------- freeze

def freeze(bench):
    """freeze and thaw of a sandbox with processes in it"""
    bench.client.resolve("freeze", config="local")
    bench.client.exec("freeze", ["/bin/sleep", "600"], detach=True, timeout=600).until_started()
    endpoint = bench.route("freeze")
    pause = pb.backend.PauseSandboxRequest(target=endpoint.target, sandbox_id=endpoint.sandbox_id, fence=endpoint.fence)
    thaw = pb.backend.ConnectSandboxRequest(target=endpoint.target, sandbox_id=endpoint.sandbox_id, fence=endpoint.fence)
    for message in (pause, thaw):
        message.not_after_time.FromSeconds(int(time.time()) + 3600)
    freeze_call, thaw_call = call(bench.adapter, BACKEND + "PauseSandbox", pause), call(bench.adapter, BACKEND + "ConnectSandbox", thaw)
    for name, timed, after in (("freeze", freeze_call, thaw_call), ("thaw", thaw_call, freeze_call)):
        micros = bench.yard.rounds(bench.n(100), {name: ([timed], [after])})[name]
        bench.table.at_most(f"{name} p50", p(micros, 50) / 1000, 5, "ms")
    bench.client.resume("freeze")


# ------------------------------------------------------------------- skills

def step_seconds(bench, operation, first, last):
    """From the end of one step of an operation to that of another, as it said."""
    times = {each.operation.step: each.time.ToNanoseconds() / 1e9
             for each in list(bench.client.watch_operation(operation, timeout=60))[1:] if each.HasField("operation")}
    return times[last] - times[first]


def installed(bench, files, config="skilled"):
    """(operation, seconds to its end)"""
    begin = time.monotonic()
    operation = bench.client.install_skill(config, bundles.pack(files)).operation.operation_id
    while bench.client.operation(operation).state in (pb.skills.OPERATION_STATE_QUEUED, pb.skills.OPERATION_STATE_RUNNING):
        time.sleep(0.005)
    now = bench.client.operation(operation)
    if now.state != pb.skills.OPERATION_STATE_DONE:
        raise LoadError(f"an installation failed: {now.message}")
    return operation, time.monotonic() - begin


def skills(bench):
    """a bundle of 1,000 files and 50 MB sent and unpacked against tar x of it in the sandbox; an install without dependencies;
    create from an image with ten skills against from base"""
    n, rounds = 1000 // bench.scale, 5 if bench.scale == 1 else 2
    for config in ("skilled", "ten"):
        bench.client.configs.CreateConfig(pb.control.CreateConfigRequest(config=pb.control.SandboxConfig(
            config_id=config, tenant_id="default", name=config, backend="local", template_id="base")))
    seconds = [installed(bench, bundles.simple("small", body=f"{k}\n"))[1] for k in range(rounds)]
    bench.table.at_most("install without dependencies, median", median(seconds), 2, "s")
    big = bundles.simple("big") | {f"data/{k % 10}/{k}": os.urandom(50000) for k in range(n)}
    bench.client.resolve("untar", config="local")
    bench.client.write_file("untar", "/workspace/big.tar", bundles.pack(big, wrap="big"))
    unpacked, sent = [], []
    for k in range(rounds):
        bench.client.run("untar", "rm -rf x && mkdir x", timeout=60)
        begin = time.monotonic()
        bench.client.run("untar", ["tar", "xf", "big.tar", "-C", "x"], timeout=60)
        unpacked.append(time.monotonic() - begin)
        operation, _ = installed(bench, big | {"SKILL.md": f"---\nname: big-{k}\ndescription: Large.\n---\n".encode()})
        sent.append(step_seconds(bench, operation, pb.skills.STEP_SANDBOX_READY, pb.skills.STEP_UPLOADED))
    bench.table.ratio_at_most(f"{n} files, {n // 20} MB sent and unpacked", median(sent) * 1000, "ms", "tar x",
                              median(unpacked) * 1000, 1.5)
    bench.client.delete("untar")
    for k in range(10):
        installed(bench, bundles.simple(f"one-of-ten-{k}", body=f"{k}\n") | {"data/blob": os.urandom(1 << 20)}, "ten")
    base, ten = "ten-b-" + MARK, "ten-s-" + MARK
    micros = bench.yard.rounds(bench.n(30), {
        "base": ([bench.resolve(base), bench.run(base)], [bench.delete(base)]),
        "ten": ([bench.resolve(ten, config="ten"), bench.run(ten)], [bench.delete(ten)])}, warm=3)
    bench.table.ratio_at_most("create from an image with ten skills, median", median(micros["ten"]) / 1000, "ms", "from base",
                              median(micros["base"]) / 1000, 1.3)


# growth comes last: the sweeps over what it leaves would be in every other part.
ALL = {"resolve": warm_resolve, "true": run_true, "create": create, "snapshot": from_snapshot, "gigabyte": gigabyte, "carry": carry,
       "rival": rival.versus, "streams": idle_streams, "size": idle_size, "freeze": freeze, "skills": skills,
       "growth": growth}

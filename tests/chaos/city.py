"""city.py - a suite as large as chaos needs: replicas of everything, Redis with a replica and a Sentinel
that fails over, and in the place of the local backend, where asked for, one that gets things wrong."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import suite as lib  # noqa: E402
from suite import Failure, TestSuite, base, duration, pb, quick, wait_for  # noqa: E402,F401

HERE = os.path.dirname(os.path.abspath(__file__))
CLOUD = os.path.join(lib.BUILD, "tests", "chaos", "berth-chaos-cloud")
CLOCK = os.path.join(lib.BUILD, "tests", "lib", "libberth-test-clock.so")
LEASE = 3.0  # of a lock, and of the quarantine after a failover
READY = 2  # RECORD_READY of the local store
GRACE = 0.1  # of the reaper
HORIZON = 2.0  # of the backend that gets things wrong
CARRY = "carry"
IDLE = pb.common.TimeoutPolicy(idle=duration(3600), on_idle=pb.common.IDLE_ACTION_PAUSE)


def ms(seconds):
    return f"{round(seconds * 1000)}ms"


class City(TestSuite):
    """cloud: settings of berth-chaos-cloud, or None: the local backend. clocks: names of processes whose
    wall clock step() sets. grace: of the reaper, which sweeps only when it is told to. carry: a rebuild takes the
    workspace along; else it is dropped. both: there is also a config CARRY, whose rebuilds do."""

    def __init__(self, cloud=None, control_planes=4, bindings=2, clocks=(), grace=ms(GRACE), interval="24h",
                 pair=True, carry=False, both=False):
        self.servers = [f"redis-{letter}" for letter in "ab"] if pair else []
        self.cloud, self.clocks, self.carry = cloud, clocks, carry
        self.configs = ["local", *([CARRY] if both else [])]
        self.locks = {}
        self.ports = dict(zip(["redis-a", "redis-b", "sentinel"], base.free_ports(3)))
        redis = {"redis": f"sentinel:m@127.0.0.1:{self.ports['sentinel']}", "redis_replicas": "1"} if pair else {}
        options = {
            "binding": redis | {"lock_lease": ms(LEASE), "quarantine": ms(LEASE), "turn_lease": "60s", "turn_renewal": "1s"},
            "controlplane": redis | {"verify_interval": "1s"}, "skills": dict(redis),
            "reaper": redis | {"interval": interval, "grace": grace, "duplicate_grace": "0ms", "budget": "100000",
                               "lease": "2s", "act_timeout": "30s"}}
        super().__init__(sandboxes=cloud is None, control_planes=control_planes, bindings=bindings, options=options)
        self.log = self.path("log", "cloud.events")
        self.calm_file = self.path("calm")
        if cloud is not None:
            self.facts["options"]["adapter-local"] = {"log": self.log, "calm": self.calm_file} | cloud

    def __enter__(self):
        super().__enter__()
        try:
            self.clients = {name: self.client(control=name, timeout=30) for name in self.planes()}
            self.api = self.clients["controlplane"]
            if self.cloud is not None:
                quick.tenant_and_config(self.api)
            if not self.carry:
                self.api.configs.UpdateConfig(pb.control.UpdateConfigRequest(
                    config=pb.control.SandboxConfig(tenant_id="default", config_id="local", timeouts=IDLE,
                                                    workspace_on_rebuild=pb.control.WORKSPACE_ON_REBUILD_DROP),
                    update_mask={"paths": ["workspace_on_rebuild", "timeouts"]}))
            if CARRY in self.configs:
                self.api.configs.CreateConfig(pb.control.CreateConfigRequest(config=pb.control.SandboxConfig(
                    tenant_id="default", config_id=CARRY, name=CARRY, backend="local", template_id=quick.TEMPLATE,
                    timeouts=IDLE, workspace_on_rebuild=pb.control.WORKSPACE_ON_REBUILD_CARRY)))
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def planes(self):
        return [name for name in self.names if base.kind_of(name) == "controlplane"]

    def bindings(self):
        return [name for name in self.names if base.kind_of(name) == "binding"]

    # ------------------------------------------------------------ processes

    def binary(self, name):
        if name in self.ports:
            return "/usr/bin/redis-server"
        return CLOUD if name == "adapter-local" and self.cloud is not None else super().binary(name)

    def peers(self, name):
        """Control planes with an even number ask the second binding."""
        peers = super().peers(name)
        number = int(name.rpartition("-")[2])
        if number % 2 == 0 and "binding-2" in self.names:
            peers["binding"] = self.path("run", "binding-2", "binding.sock")
        return peers

    def environment(self, name):
        more = {"LD_PRELOAD": CLOCK, "BERTH_TEST_CLOCK": self.clock_file(name)} if name in self.clocks else {}
        return super().environment(name) | more

    def clock_file(self, name):
        return self.path("run", name + ".clock")

    def prepare(self):
        super().prepare()
        for name in self.clocks:
            self.step(name, 0)

    def step(self, name, hours):
        """The wall clock of the process is so much ahead from now on."""
        with open(self.clock_file(name), "r+b" if os.path.exists(self.clock_file(name)) else "wb") as file:
            file.write(int(hours * 3600000).to_bytes(8, "little", signed=True))

    def busy(self, name):
        """Held while somebody kills, stops or starts the process."""
        return self.locks.setdefault(name, threading.Lock())

    def kill_and_start(self, name):
        with self.busy(name):
            self.kill9(name)
            self.spawn(name)

    def stop_for(self, name, seconds):
        with self.busy(name):
            pid = self.pid(name)
            if pid:
                os.kill(pid, signal.SIGSTOP)
                try:
                    time.sleep(seconds)
                finally:
                    os.kill(pid, signal.SIGCONT)

    # ------------------------------------------------------------ Redis

    def redis_words(self, name):
        """The path of a socket in its words tells leftovers whose it is."""
        return ["redis-server", *([self.path("sentinel", "sentinel.conf"), "--sentinel"] if name == "sentinel" else []),
                "--port", str(self.ports[name]), "--bind", "127.0.0.1", "--set-proc-title", "no",
                "--unixsocket", self.path("run", "redis.sock." + name[-1]), "--dir", self.path(name)] + ([] if name == "sentinel" else [
                    "--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--repl-diskless-sync-delay", "0",
                    "--repl-timeout", "10", "--enable-debug-command", "yes"])

    def command(self, name):
        return self.redis_words(name) if name in self.servers + ["sentinel"] and self.servers else super().command(name)

    def recipe(self, name):
        return name if name in self.ports else super().recipe(name)

    def start_server(self, name, *more):
        self.spawn(name, self.redis_words(name) + list(more))
        wait_for(lambda: self.alive(name) and self.cli(self.ports[name], "ping").startswith(("PONG", "LOADING")), 30,
                 f"{name} answers")

    def start_redis(self):
        if not self.servers:
            return super().start_redis()
        for name in self.servers + ["sentinel"]:
            os.makedirs(self.path(name), exist_ok=True)
        with open(self.path("sentinel", "sentinel.conf"), "w") as file:
            file.write(f"sentinel monitor m 127.0.0.1 {self.ports['redis-a']} 1\n"
                       "sentinel down-after-milliseconds m 1500\nsentinel failover-timeout m 3000\n")
        self.start_server("redis-a")
        self.start_server("redis-b", "--replicaof", "127.0.0.1", str(self.ports["redis-a"]))
        self.start_server("sentinel")
        return self.await_replica()

    def cli(self, port, *words):
        done = subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True, text=True, timeout=20)
        return done.stdout.strip()

    def master(self):
        answer = self.cli(self.ports["sentinel"], "sentinel", "get-master-addr-by-name", "m").splitlines()
        return int(answer[1]) if len(answer) == 2 else 0

    def master_name(self):
        port = self.master()
        return next((name for name in self.servers if self.ports[name] == port), self.servers[0])

    def redis_cli(self, *words):
        return self.cli(self.master(), *words) if self.servers else super().redis_cli(*words)

    def await_replica(self):
        """There is a master with a replica that follows it, and the Sentinel knows both."""
        def whole():
            found = self.cli(self.ports["sentinel"], "sentinel", "replicas", "m")
            return "slave" in found and re.search(r"connected_slaves:[1-9]\d*\s.*state=online", self.redis_cli("info", "replication"), re.S)
        wait_for(whole, 60, "Redis has its replica", step=0.1)

    def stop(self, redis=True):
        trouble = []
        try:
            super().stop(redis)
        except base.SuiteError as error:
            trouble.append(str(error))
        for name in self.servers and ["sentinel"] + self.servers:
            with contextlib.suppress(base.SuiteError):
                self.end(name, signal.SIGKILL)
        if trouble:
            raise base.SuiteError("; ".join(trouble))

    # ------------------------------------------------------------ what is there

    def calm(self):
        """From now on the backend does what it is told."""
        with open(self.calm_file, "w"):
            pass

    def all_well(self, timeout=60):
        """Every process runs and serves."""
        for name in self.names:
            with self.busy(name):
                if not self.pid(name):
                    self.spawn(name)
        for name in self.names:
            wait_for(lambda name=name: self.alive(name) and self.ready(name), timeout, f"{name} is ready", step=0.05)

    def try_sweep(self):
        """What a sweep says of itself; None: it cannot be run now."""
        with grpc.insecure_channel(self.target("reaper")) as channel:
            try:
                return pb.rpc.reaper.ReaperServiceStub(channel).RunSweep(
                    pb.reaper.RunSweepRequest(budget=100000), timeout=300).sweep
            except grpc.RpcError:
                return None

    def sweep(self):
        """A sweep that comes to its end."""
        def one():
            told = self.try_sweep()
            return told if told and not told.error else None
        return wait_for(one, 60, "a sweep can be run", step=0.2)

    def adapter(self):
        return pb.rpc.backend.BackendServiceStub(grpc.insecure_channel(self.target("adapter-local")))

    def target_message(self):
        found = self.peer().internal.ListTargets(pb.control.ListTargetsRequest(tenant_id="default", config_id="local"))
        return found.targets[0].target

    def bound(self):
        """{session: sandbox id} of every active session that has one; {session: state} of all."""
        boxes, states, token = {}, {}, ""
        while True:
            page = self.api.sessions.ListSessions(pb.control.ListSessionsRequest(
                tenant_id="default", page=pb.common.PageRequest(page_size=1000, page_token=token)))
            for each in page.sessions:
                states[each.ref.session_id] = pb.common.SessionState.Name(each.state)
                if each.sandbox.sandbox_id:
                    boxes[each.ref.session_id] = each.sandbox.sandbox_id
            token = page.next_page_token
            if not token:
                return boxes, states

    def folders(self):
        folder = self.path("local", "sandboxes")
        return {name for name in os.listdir(folder) if not name.startswith(".")}

    def meta(self, box):
        with open(self.path("local", "sandboxes", box, "meta.json")) as file:
            return json.load(file)

    def kill_box(self, box):
        """kill -9 of its supervisor. When, in ns; None: it was not there."""
        try:
            record = self.meta(box)
            pid, now = record["supervisor_pid"], time.monotonic_ns()
            if pid <= 1 or record["state"] != READY:  # killed while it starts it would be a bug, and told as one
                return None
            os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError, KeyError):
            return None
        return now

    def __exit__(self, kind, error, trace):
        if os.environ.get("BERTH_KEEP_LOGS"):
            shutil.copytree(self.path("log"), os.environ["BERTH_KEEP_LOGS"], dirs_exist_ok=True)
        super().__exit__(kind, error, trace)

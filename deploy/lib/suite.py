#!/usr/bin/python3
"""suite.py - starts, watches and stops the processes of one Berth suite under one state folder.

As a program: suite.py ACTION --state DIR [--build DIR]; quickstart calls it. As a library: class Suite.

    <state>/suite.json   what the suite is made of: build folder, ports, deployment id
    <state>/suite.key    the suite key: a key id and 32 random bytes in hex, mode 0600
    <state>/admin.token  a token of the deployment: all tenants, all scopes; mode 0600
    <state>/run/         unix sockets and pid files
    <state>/log/         one file per process
    <state>/redis/       append-only file
    <state>/journal/     the records once more, sealed: what Redis is recovered from
    <state>/local/       the store of adapter-local
"""
import argparse
import glob
import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time

import client
import leftovers
import provision
from stubs import pb

DEPLOYMENT = "quickstart"
PORTS = {"controlplane": 7400, "dataplane": 7401, "skills": 7402, "binding": 7403, "reaper": 7404,
         "adapter-local": 7410}
START_TIMEOUT, STOP_TIMEOUT = 30, 20
# Loopback ports that are public, in the order of starting.
ORDER = ["binding", "adapter-local", "controlplane", "dataplane", "skills", "reaper"]
SERVICES = {
    "binding": ["berth.binding.v1.BindingService"],
    "adapter-local": ["berth.backend.v1.BackendService"],
    "controlplane": ["berth.control.v1.SessionService"],
    "dataplane": ["berth.data.v1.ProcessService", "berth.data.v1.FileService"],
    "skills": ["berth.skills.v1.SnapshotService"],
    "reaper": ["berth.reaper.v1.ReaperService"],
}


class SuiteError(Exception):
    """What went wrong, in words for the person at the terminal."""


def kind_of(name):
    """controlplane-2 is a controlplane."""
    kind, _, number = name.rpartition("-")
    return kind if number.isdigit() else name


def start_time(pid):
    """Clock ticks from boot to the start of pid: with it a pid names one process for ever."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def free_ports(n):
    held = []
    try:
        for _ in range(n):
            held.append(socket.socket())
            held[-1].bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def choose_ports():
    """The usual ones, or free ones where another suite has those."""
    try:
        for port in PORTS.values():
            for number in (port, port + 100):
                with socket.socket() as held:
                    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    held.bind(("127.0.0.1", number))
    except OSError:
        numbers = free_ports(2 * len(PORTS))
        return dict(zip(PORTS, numbers)) | {n + "-metrics": p for n, p in zip(PORTS, numbers[len(PORTS):])}
    return dict(PORTS)


def wait_for(condition, timeout, what, step=0.01):
    """Polls condition() until it is true; SuiteError(what) after timeout seconds."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise SuiteError(f"{what}: not within {timeout:g} s")
        time.sleep(step)


class Suite:
    def __init__(self, state, build=None, deployment=DEPLOYMENT, ports=None, control_planes=1, options=None):
        """build, ports, ...: for a new state folder; an existing one remembers them.
        options: {process name: {setting: value}} on top of what the suite sets itself."""
        self.state = os.path.abspath(state)
        try:
            with open(self.path("suite.json")) as file:
                self.facts = json.load(file)
            ports = self.facts["ports"]
            for name in PORTS:  # one that came with a later version
                if name not in ports:
                    usual = ports["controlplane"] == PORTS["controlplane"]
                    ports[name], ports[name + "-metrics"] = (PORTS[name], PORTS[name] + 100) if usual else free_ports(2)
        except OSError:
            self.facts = {"deployment": deployment, "ports": ports or choose_ports(),
                          "control_planes": control_planes, "options": {}}
        if build:
            self.facts["build"] = os.path.abspath(build)
        if options:
            self.facts["options"] = options
        self.children = {}

    def path(self, *parts):
        return os.path.join(self.state, *parts)

    @property
    def names(self):
        """Process names, in the order of starting."""
        many = {"controlplane": self.facts["control_planes"], "binding": self.facts.get("bindings", 1)}
        return [name if n == 1 else f"{name}-{n}" for name in ORDER for n in range(1, many.get(name, 1) + 1)]

    def binary(self, name):
        kind = kind_of(name)
        return os.path.join(self.facts["build"], "services", kind, "berth-" + kind)

    def run_dir(self, name="controlplane"):
        """A replica has one of its own."""
        return self.path("run") if name == kind_of(name) else self.path("run", name)

    def target(self, name):
        """What a client dials: loopback for public services, the socket for the others."""
        if kind_of(name) in ("binding", "adapter-local", "reaper"):
            return self.internal_target(name)
        return f"127.0.0.1:{self.facts['ports'].get(name)}"

    def internal_target(self, name):
        """The socket where peers are told apart."""
        return "unix:" + os.path.join(self.run_dir(name), kind_of(name) + ".sock")

    def client(self, tenant="default", control="controlplane", **more):
        """With the admin token, unless another one is given (token=None: none)."""
        more.setdefault("token", self.admin_token())
        return client.Client(self.target(control), self.target("dataplane"), self.target("skills"),
                             tenant=tenant, **more)

    def peer(self, tenant="default", **more):
        """A client that counts as a service of the suite."""
        targets = (self.internal_target(name) for name in ("controlplane", "dataplane", "skills"))
        return client.Client(*targets, tenant=tenant, **more)

    def admin_token(self):
        try:
            with open(self.path("admin.token")) as file:
                return file.read().strip()
        except OSError:
            return None

    def make_admin_token(self):
        """The first token, by the way that needs none: root on the control plane's socket."""
        try:
            if self.admin_token():
                self.client(timeout=10).tenants.ListTenants(pb.control.ListTenantsRequest())
                return
        except client.Failure as failure:
            if failure.reason != "TOKEN_INVALID":  # of a store that is not there any more
                raise
        secret = self.peer(timeout=10).tenants.CreateToken(pb.control.CreateTokenRequest(
            token=pb.control.Token(deployment=True, scopes=[pb.control.SCOPE_ADMIN]))).secret
        with open(os.open(self.path("admin.token.new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secret + "\n")
        os.rename(self.path("admin.token.new"), self.path("admin.token"))

    # ------------------------------------------------------------ preparing

    def prepare(self):
        """Folders, key, facts. Safe to repeat."""
        if len(self.path("run", "controlplane-9", "adapter-local.sock")) > 100:
            raise SuiteError(f"{self.state}: the path is too long for unix sockets; choose a shorter --state")
        for part in ("run", "log", "redis", "journal", "local"):
            os.makedirs(self.path(part), mode=0o755, exist_ok=True)
        os.chmod(self.path("run"), 0o700)
        os.chmod(self.path("redis"), 0o700)
        os.chmod(self.path("journal"), 0o700)
        if not os.path.exists(self.path("suite.key")):
            with open(os.open(self.path("suite.key.new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(b"key-1 " + secrets.token_hex(32).encode() + b"\n")
            os.rename(self.path("suite.key.new"), self.path("suite.key"))
        with open(self.path("suite.json.new"), "w") as file:
            json.dump(self.facts, file, indent=2)
        os.rename(self.path("suite.json.new"), self.path("suite.json"))

    def settings(self, name):
        """Every setting of a Berth process that is not its default."""
        ports = self.facts["ports"]
        values = {"deployment": self.facts["deployment"], "run_dir": self.run_dir(name)}
        redis = "unix:" + self.path("run", "redis.sock")
        key = self.path("suite.key")
        kind = kind_of(name)
        if kind in ("controlplane", "dataplane", "skills"):
            values["listen"] = f"127.0.0.1:{ports[name]}"
        values["metrics_listen"] = f"127.0.0.1:{ports.get(name + '-metrics', ports[name] + 100)}"
        if kind in ("controlplane", "binding", "skills", "reaper"):
            values["redis"] = redis
        if kind in ("controlplane", "skills", "adapter-local"):
            values["key_file"] = key
        if kind in ("controlplane", "skills"):
            values["journal"] = self.path("journal", name + ".journal")
        if kind == "dataplane":
            values["blob_dir"] = self.path("blobs")
        if kind == "skills":
            values["blob_dir"] = self.path("skills")
        if kind == "adapter-local":
            values["state_dir"] = self.path("local")
        values.update(self.facts["options"].get(kind, {}))
        values.update(self.facts["options"].get(name, {}))
        return values

    def command(self, name):
        if name == "redis":
            return ["redis-server", "--port", "0", "--unixsocket", self.path("run", "redis.sock"),
                    "--unixsocketperm", "700", "--dir", self.path("redis"), "--appendonly", "yes",
                    "--appendfsync", "everysec", "--save", "", "--daemonize", "no", "--maxmemory-policy", "noeviction",
                    *[word for key, value in self.facts["options"].get("redis", {}).items() for word in ("--" + key, value)]]
        return [self.binary(name)] + [f"--{key}={value}" for key, value in self.settings(name).items()]

    # ------------------------------------------------------------ processes

    def pid(self, name):
        """The pid, if the process that we started still runs."""
        try:
            with open(self.path("run", name + ".pid")) as file:
                pid, began = file.read().split()[:2]
        except (OSError, ValueError):
            return None
        child = self.children.get(name)
        if child and child.pid == int(pid):
            child.poll()
        return int(pid) if start_time(pid) == began else None

    def recipe(self, name):
        """What a process is started from, as it is now: its words, and the files that it runs."""
        facts = [" ".join(self.command(name))]
        if name != "redis":
            folder = os.path.dirname(self.binary(name))
            for path in sorted(glob.glob(folder + "/berth-*") + glob.glob(folder + "/*/berth-*")):
                about = os.stat(path)
                facts.append(f"{path} {about.st_ino} {about.st_mtime_ns}")
        return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]

    def outdated(self, name):
        """It runs, and was started from an older build or with other settings."""
        if not self.pid(name):
            return False
        with open(self.path("run", name + ".pid")) as file:
            return file.read().split()[2:] != [self.recipe(name)]

    def peers(self, name):  # pylint: disable=unused-argument
        """{kind: socket} of whom the replica `name` calls."""
        return {kind: self.path("run", kind + ".sock") for kind in ("binding", "adapter-local", "dataplane")}

    def spawn(self, name, command=None):
        if self.pid(name):
            return
        if self.children.get(name):  # killed; its last thread may still hold what it had locked
            self.children[name].wait(STOP_TIMEOUT)
        if name != "redis" and not os.access(self.binary(name), os.X_OK):
            raise SuiteError(f"{self.binary(name)} is not built")
        if name != kind_of(name):
            # A replica has its own socket, and finds its peers at the others'.
            os.makedirs(self.run_dir(name), mode=0o700, exist_ok=True)
            for kind, path in self.peers(name).items():
                link = os.path.join(self.run_dir(name), kind + ".sock")
                if kind != kind_of(name) and not os.path.islink(link):
                    os.symlink(path, link)
        with open(self.path("log", name + ".log"), "ab") as log:
            child = subprocess.Popen(command or self.command(name), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     start_new_session=True, cwd="/", env=self.environment(name))
        self.children[name] = child
        with open(self.path("run", name + ".pid"), "w") as file:
            file.write(f"{child.pid} {start_time(child.pid) or 0} {self.recipe(name)}\n")

    def environment(self, name):
        """No BERTH_ settings of the caller's shell leak in."""
        return {key: value for key, value in os.environ.items() if not key.startswith("BERTH_")}

    def log_tail(self, name, lines=5):
        try:
            with open(self.path("log", name + ".log"), errors="replace") as file:
                return "".join(file.readlines()[-lines:])
        except OSError:
            return ""

    def redis_cli(self, *words):
        done = subprocess.run(["redis-cli", "-s", self.path("run", "redis.sock"), *words], capture_output=True, text=True)
        return done.stdout.strip()

    def start_redis(self):
        self.spawn("redis")
        wait_for(lambda: self.alive("redis") and self.redis_cli("ping") == "PONG", START_TIMEOUT, "redis-server answers")

    def alive(self, name):
        if self.pid(name):
            return True
        raise SuiteError(f"{name} ended at once; the end of {self.path('log', name + '.log')}:\n{self.log_tail(name)}")

    def init_store(self):
        """A deployment's first start: writes the deployment id and the epoch into an empty store."""
        if self.redis_cli("get", "berth:deployment"):
            return
        if os.path.exists(self.path("journal", "controlplane.journal")):
            return  # it was lost: the control plane recovers it
        done = subprocess.run(self.command("controlplane") + ["--init"], capture_output=True, text=True, cwd="/",
                              env=self.environment("controlplane"))
        if done.returncode:
            raise SuiteError("berth-controlplane --init: " + (done.stderr or done.stdout).strip())

    def ready(self, name):
        """SERVING for the process and for each service it keeps."""
        kind = kind_of(name)
        return all(client.health(self.target(name), service, timeout=2) == "SERVING" for service in [""] + SERVICES[kind])

    def wait_ready(self, *names):
        for name in names or self.names:
            wait_for(lambda name=name: self.alive(name) and self.ready(name), START_TIMEOUT, f"{name} is ready")

    def start(self, *names):
        """Starts what is not running (all, or the processes named) and waits until it is ready. What
        runs an older build or with other settings is restarted; sandboxes outlive that."""
        self.prepare()
        if not names:
            self.start_redis()
            self.init_store()
        for name in names or self.names:
            if self.outdated(name):
                self.end(name, signal.SIGTERM)
            self.spawn(name)
        self.wait_ready(*names)
        if not names:
            self.make_admin_token()

    def end(self, name, how):
        pid = self.pid(name)
        if not pid:
            return
        began = start_time(pid)  # None: it ended just now, by an earlier signal
        try:
            os.kill(pid, how)
            wait_for(lambda: self.gone(name, pid, began), STOP_TIMEOUT, f"{name} ends")
        except ProcessLookupError:
            pass
        except SuiteError:
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: self.gone(name, pid, began), STOP_TIMEOUT, f"{name} ends by SIGKILL")
            if how != signal.SIGKILL:
                raise SuiteError(f"{name} did not end within {STOP_TIMEOUT} s of its signal") from None

    def gone(self, name, pid, began):
        over = began is None or start_time(pid) != began
        child = self.children.get(name)
        if over and child and child.pid == pid:
            child.wait()  # it is a zombie by now, if anything
        return over

    def kill9(self, *names):
        """kill -9 of the processes named; of all Berth services (not redis-server) without a name."""
        for name in names or self.names:
            if pid := self.pid(name):
                os.kill(pid, signal.SIGKILL)
        for name in names or self.names:
            self.end(name, signal.SIGKILL)

    def restart(self, *names):
        """Starts again what was killed, and waits for it."""
        self.start(*(names or self.names))

    def stop(self, redis=True):
        """SIGTERM in the reverse order, redis-server last."""
        trouble = []
        for name in reversed(self.names):
            try:
                self.end(name, signal.SIGTERM)
            except SuiteError as error:
                trouble.append(str(error))
        if redis:
            self.end("redis", signal.SIGTERM)
        if trouble:
            raise SuiteError("; ".join(trouble))

    def status(self):
        """[(name, pid or None, health)]"""
        rows = [("redis", self.pid("redis"), self.redis_cli("ping") or "-")] if shutil.which("redis-cli") else []
        for name in self.names:
            pid = self.pid(name)
            rows.append((name, pid, client.health(self.target(name), timeout=2) if pid else "-"))
        return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("action", choices=["start-backend", "template", "start", "tenant", "stop", "status"])
    parser.add_argument("--state", required=True)
    parser.add_argument("--build")
    args = parser.parse_args()
    suite = Suite(args.state, args.build)
    try:
        if args.action == "start-backend":
            suite.prepare()
            if suite.facts["ports"]["controlplane"] != PORTS["controlplane"]:
                print(f"            another suite had the usual ports: this one is on {suite.facts['ports']['controlplane']} "
                      f"(control plane), {suite.facts['ports']['dataplane']} (data plane), {suite.facts['ports']['skills']} (skills)")
            suite.start_redis()
            suite.start("adapter-local")
        elif args.action == "template":
            begin = time.monotonic()
            provision.build_base(suite, lambda text: print(f"{'':12}{time.monotonic() - begin:6.1f} s  {text}", flush=True))
        elif args.action == "start":
            suite.start()
        elif args.action == "tenant":
            provision.tenant_and_config(suite.client())
        elif args.action == "stop":
            suite.stop()
            leftovers.remove(suite.state)
            if left := leftovers.find(suite.state) + leftovers.furniture(suite.state):
                raise SuiteError("left behind: " + "; ".join(left))
        else:
            rows = suite.status()
            for name, pid, state in rows:
                print(f"{name:<15} {pid or 'not running':<12} {state}")
            return 0 if all(pid for _, pid, _ in rows) else 3
    except (SuiteError, client.Failure) as error:
        print(f"suite: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

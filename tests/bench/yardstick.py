"""yardstick.py - the yardstick server, a bare relay to it, and the load generator (C programs of this
folder), as Python sees them."""
import json
import os
import struct
import subprocess

from suite import BUILD, base

PROGRAMS = os.path.join(BUILD, "tests", "bench")
ECHO, SOURCE, SINK = ("/berth.bench.v1.Yardstick/" + name for name in ("Echo", "Source", "Sink"))
MARK = "@" * 12  # becomes a number that is new in each round


class LoadError(Exception):
    """What the load generator said."""


class Yardsticks:
    """serve: the yardstick on loopback and a unix socket. relay: on loopback, to that socket; so the
    hops are those of a call through one public service to an internal one. adapter: a relay to the
    adapter, in the place of the data plane."""

    def __init__(self, suite):
        self.suite, self.peers = suite, []

    def __enter__(self):
        serve, relay, files = base.free_ports(3)
        socket = "unix:" + self.suite.path("run", "yardstick.sock")
        self.direct, self.relayed, self.adapter = (f"127.0.0.1:{port}" for port in (serve, relay, files))
        try:
            self.peers.append(self.start("serve", socket, self.direct))
            self.peers.append(self.start("relay", socket, self.relayed))
            self.peers.append(self.start("relay", self.suite.target("adapter-local"), self.adapter))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for peer in self.peers:
            peer.stdin.close()
            try:
                peer.wait(10)
            except subprocess.TimeoutExpired:
                peer.kill()
                peer.wait()

    def start(self, *words):
        with open(self.suite.path("log", "bench-" + words[0] + ".log"), "wb") as log:
            peer = subprocess.Popen([os.path.join(PROGRAMS, "berth-bench-peer"), *words], stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, stderr=log, env=self.environment())
        if peer.stdout.readline() != b"ready\n":
            raise LoadError(f"berth-bench-peer {words[0]} did not start")
        return peer

    @staticmethod
    def environment():
        return os.environ | {"MALLOC_ARENA_MAX": "2"}

    def spawn(self, plan):
        path = self.suite.path("plan.json")
        with open(path, "w") as file:
            json.dump(plan, file)
        return subprocess.Popen([os.path.join(PROGRAMS, "berth-bench-load"), path], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment())

    def load(self, plan, timeout=600):
        """Carries out a plan and returns its result."""
        process = self.spawn(plan)
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        if process.returncode:
            lines = [line for line in err.splitlines() if line.startswith("berth-bench-load: ")]
            raise LoadError((lines or [err])[-1])
        return json.loads(out)

    def rounds(self, n, tracks, warm=None):
        """{name: [microseconds]}; tracks: {name: [call] or ([call], [call after])}."""
        plans = []
        for name, calls in tracks.items():
            timed, after = calls if isinstance(calls, tuple) else (calls, [])
            plans.append({"name": name, "timed": timed, "after": after})
        return self.load({"mode": "rounds", "n": n, "warm": max(3, n // 10) if warm is None else warm, "tracks": plans})

    def echo(self, target=None):
        return call(target or self.direct, ECHO, b"\x0a\x07default\x12\x10bench-echo-00000")

    def read_source(self, target, chunk, n):
        return self.load({"mode": "read", "target": target, "path": SOURCE, "request": struct.pack("<II", n, chunk).hex()})

    def write_sink(self, target, chunk, n):
        return self.load({"mode": "write", "target": target, "path": SINK, "request": "", "prefix": "", "chunk": chunk,
                          "n": n, "last": ""})


def call(target, path, message, metadata=None):
    """One call of a track. message: bytes, or a protobuf message."""
    data = message if isinstance(message, bytes) else message.SerializeToString()
    return {"target": target, "path": path, "request": data.hex(),
            "metadata": {key: value.hex() for key, value in (metadata or {}).items()}}


def redis_get(url, key):
    return {"redis": url, "get": key}

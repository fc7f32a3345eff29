"""rival.py - common/rpc against C++ gRPC's callback API on the same core, server and client.

Rounds in turn: in each one every way is measured once, the first one changing, and what counts is the
ratio to C++ asking C++ within the round. The interval is Student's, of the logarithms of the ratios.

A reactor of the callback API must not block: so on our side the server's method is a quick one, and the
client's next call is made in the callback of the last one. Two more ways are shown, and not judged: the
same method on the pool, where it may block, and blocking (1 at once) or evented calls. An evented call
is a stream: three operations and a closed() where the callback API has one reaction to one call, so its
row says what the data plane pays for being able to forward anything. Both sides have the same settings of the core and no tokens; ours checks every message with its guard.
"""
import math
import os
import shutil
import statistics
import subprocess

from suite import BUILD, REPO, base
from tap import Skip
from yardstick import PROGRAMS, LoadError

FLAGS = ["-std=c++17", "-O2", "-DNDEBUG"]
ROUNDS, CALLS = 15, 16
SECONDS = {1: 0.35, CALLS: 0.5}
T_975 = {4: 2.776, 14: 2.145, 19: 2.093}  # of Student's distribution, by degrees of freedom


def build():
    """The C++ program; built when the source is newer."""
    folder, source = os.path.join(BUILD, "bench-rival"), os.path.join(REPO, "tests", "bench")
    program = os.path.join(folder, "rival")
    needed = [os.path.join(source, name) for name in ("rival.cc", "rival.proto")]
    if not os.path.exists(program) or os.path.getmtime(program) < max(map(os.path.getmtime, needed)):
        if subprocess.run([os.path.join(REPO, "deploy", "packages.sh"), "rival"]).returncode:
            raise Skip("libgrpc++-dev cannot be installed")
        os.makedirs(folder, exist_ok=True)
        subprocess.run(["protoc", "-I" + source, "--cpp_out=" + folder, "--grpc_out=" + folder,
                        "--plugin=protoc-gen-grpc=" + shutil.which("grpc_cpp_plugin"), needed[1]], check=True)
        libraries = subprocess.run(["pkg-config", "--cflags", "--libs", "grpc++", "protobuf"], check=True,
                                   capture_output=True, text=True).stdout.split()
        subprocess.run(["g++", *FLAGS, "-I" + folder, needed[0], os.path.join(folder, "rival.pb.cc"),
                        os.path.join(folder, "rival.grpc.pb.cc"), "-o", program, *libraries], check=True)
    return program


class Program:
    """A server (words: serve ADDRESS) or a load generator, for the length of the bench."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.DEVNULL)

    def ready(self):
        if self.process.stdout.readline() != "ready\n":
            raise LoadError(f"{self.process.args[0]} did not start")
        return self

    def measure(self, target, calls):
        """(calls per second, p50 in us)"""
        self.process.stdin.write(f"{target} {calls} {SECONDS[calls]}\n")
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        if len(words) != 2:
            raise LoadError(f"{self.process.args[0]} gave up")
        return float(words[0]), float(words[1])

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def interval(ratios):
    """(low, geometric mean, high)"""
    logs = [math.log(ratio) for ratio in ratios]
    middle = statistics.mean(logs)
    half = T_975.get(len(logs) - 1, 2.776) * statistics.stdev(logs) / math.sqrt(len(logs))
    return tuple(math.exp(value) for value in (middle - half, middle, middle + half))


def versus(bench):
    """throughput and p50 of an echo against C++ callback gRPC, as server and as client"""
    rival, rounds = build(), max(5, ROUNDS // bench.scale)
    peer, pace = (os.path.join(PROGRAMS, "berth-bench-" + name) for name in ("peer", "pace"))
    quick, pooled, theirs = (f"127.0.0.1:{port}" for port in base.free_ports(3))
    programs = []

    def start(*command):
        programs.append(Program(*command))
        return programs[-1]
    try:
        start(peer, "quick", quick).ready()
        start(peer, "serve", pooled).ready()
        start(rival, "serve", theirs).ready()
        cpp, callback, plain = start(rival, "load"), start(pace, "callback"), start(pace, "plain")
        ways = {"C++": (cpp, theirs), "server": (cpp, quick), "client": (callback, theirs),
                "server with a pool": (cpp, pooled), "client, blocking or evented": (plain, theirs)}
        seen = {}
        for number in range(-1, rounds):  # one to warm up
            first = number % len(ways)
            order = list(ways)[first:] + list(ways)[:first]
            for calls in SECONDS:
                for way in order:
                    got = ways[way][0].measure(ways[way][1], calls)
                    if number >= 0:
                        seen.setdefault((way, calls), []).append(got)
    finally:
        for program in programs:
            program.end()
    table = bench.table
    table.line("C++ callback peer, flags", " ".join(FLAGS), f"{rounds} rounds")
    for (way, calls), own in seen.items():
        if way == "C++":
            continue
        pairs = list(zip(own, seen["C++", calls]))
        rate = interval([one[0] / other[0] for one, other in pairs])
        p50 = interval([one[1] / other[1] for one, other in pairs])
        medians = [statistics.median(pair[who][what] for pair in pairs) for what in (0, 1) for who in (0, 1)]
        name = f"{way}, {calls} call{'s' if calls > 1 else ''} at once"
        asked = way in ("server", "client")
        table.line(f"{name}: calls/s", f"{medians[0]:.0f}", f"C++ {medians[1]:.0f} [{rate[0]:.2f}, {rate[2]:.2f}]",
                   rate[1], *(("reaches 1", rate[2] >= 1) if asked else ()))
        table.line(f"{name}: p50", f"{medians[2]:.0f} us", f"C++ {medians[3]:.0f} us [{p50[0]:.2f}, {p50[2]:.2f}]",
                   p50[1], *(("reaches 1", p50[0] <= 1) if asked else ()))

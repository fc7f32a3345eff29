"""faults.py - what goes wrong and when: drawn from a seed before anything runs, so that a seed is a schedule.

Of Redis: pause, drop (its clients' connections), redis (kill -9), failover, flush (emptied). Of processes: kill-*,
stop-* (SIGSTOP past the lease). And two that are no faults: sweep, and flip (everything bound is stale)."""
import random
import signal
import subprocess
import sys
import threading
import time

from city import LEASE, base, wait_for
from turn import flip

WHOM = {"kill-reaper": "reaper", "kill-adapter": "adapter-local", "kill-data": "dataplane"}


def schedule(seed, planes, bindings, calls, n, local):
    """[(after how many calls, kind, whom, for how long)], in order."""
    rng = random.Random(f"{seed}/faults")
    kinds = ["pause"] * 3 + ["drop"] * 3 + ["redis"] * 2 + ["failover"] * 2 + ["kill-plane"] * 4 + ["stop-plane"] * 3 + \
        ["kill-binding"] * 3 + ["stop-binding"] * 2 + ["kill-reaper", "sweep", "sweep", "flip", "flip"] + \
        (["kill-adapter"] * 3 + ["kill-data", "flush"] if local else [])
    drawn = []
    for i in range(n):
        # Each kind once, as far as there is room; then as it comes.
        kind = sorted(set(kinds))[i] if i < len(set(kinds)) else rng.choice(kinds)
        whom = rng.choice(planes) if kind.endswith("plane") else rng.choice(bindings) if kind.endswith("binding") else "-"
        seconds = rng.uniform(0.2, 2) if kind == "pause" else LEASE + rng.uniform(0.5, 2) if kind.startswith("stop") else 0
        drawn.append((kind, whom, round(seconds, 2)))
    rng.shuffle(drawn)
    at = sorted(rng.randrange(calls * 95 // 100) for _ in drawn)
    # What was adopted lately is spared by a flip: there is one before anything can be lost, and some more.
    flips = [0, *(rng.randrange(calls * 95 // 100) for _ in range(n // 10))] if local else []
    return sorted([(when, *what) for when, what in zip(at, drawn)] + [(when, "flip", "-", 0) for when in flips], key=lambda each: each[0])


class Saboteur:
    """Carries out a schedule beside a load; two faults at a time at most. done: those that were faults; kills: processes
    killed."""

    def __init__(self, city, load, faults):
        self.city, self.load, self.faults = city, load, faults
        self.kills = self.done = self.flips = 0
        self.wrong = []
        self.turn = threading.Lock()
        self.threads = [threading.Thread(target=self.run) for _ in range(2)]

    def run(self):
        while True:
            with self.turn:
                if not self.faults:
                    return
                when, kind, whom, seconds = self.faults.pop(0)
                while self.load.count < when and not self.load.over:
                    time.sleep(0.005)
            try:
                self.carry_out(kind, whom, seconds)
                self.done += kind not in ("flip", "sweep")
            except (base.SuiteError, OSError, subprocess.SubprocessError) as error:
                self.wrong.append(f"{kind} {whom}: {error}")

    def carry_out(self, kind, whom, seconds):
        city = self.city
        print(f"{self.load.count:7d} {kind} {whom} {seconds or ''}", file=sys.stderr, flush=True)
        if kind == "pause":
            city.redis_cli("client", "pause", str(int(seconds * 1000)), "write" if seconds < 1 else "all")
            time.sleep(seconds)
        elif kind == "drop":
            city.redis_cli("client", "kill", "type", "normal")
        elif kind == "redis":
            with city.busy("redis"):
                name = city.master_name()
                city.end(name, signal.SIGKILL)
                city.start_server(name)
                self.kills += 1
                self.city.await_replica()
        elif kind == "failover":
            with city.busy("redis"):
                before = city.master()
                wait_for(lambda: city.cli(city.ports["sentinel"], "sentinel", "failover", "m") == "OK", 30, "the Sentinel agrees",
                         step=0.2)
                wait_for(lambda: city.master() not in (0, before), 30, "another one is master", step=0.05)
                city.await_replica()
        elif kind.startswith("stop"):
            city.stop_for(whom, seconds)
        elif kind == "sweep":
            city.try_sweep()
        elif kind == "flip":
            self.flips += 1
            flip(city, self.flips)
        elif kind == "flush":
            city.redis_cli("flushall")
        else:
            city.kill_and_start(whom if whom != "-" else WHOM[kind])
            self.kills += 1

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        for thread in self.threads:
            thread.join()



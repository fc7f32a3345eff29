"""clocks.py - the wall clock of one replica jumps by eight hours, ahead and back, while sessions are made as fast
as it goes and a reaper sweeps all the time; then how long a sweep of all of them takes."""
import concurrent.futures
import itertools
import random
import sys
import threading
import time

from city import City, Failure
from load import Lives

HOURS = 8
MIB = 1024


def jump(city, rng, over):
    """Steps the clocks of the jumpy ones until over is set; how often."""
    n = 0
    while not over.wait(rng.uniform(0.05, 0.3)):
        name = rng.choice(city.clocks)
        city.step(name, rng.choice([-HOURS, 0, HOURS]))
        n += 1
    return n


def make_all(city, n):
    """n sessions over all planes; {session: sandbox} of those that were made, and what the others were told."""
    made, refused = {}, {}

    def one(number):
        session = f"c{number}"
        for plane in itertools.islice(itertools.cycle(city.planes()), number % 4, number % 4 + 40):
            try:
                made[session] = city.clients[plane].resolve(session, config="local", timeout=20).session.sandbox.sandbox_id
                return
            except Failure as failure:
                refused[failure.reason or failure.code] = refused.get(failure.reason or failure.code, 0) + 1
                time.sleep(0.02)
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        list(pool.map(one, range(n)))
    return made, refused


def steps(size, seed, check):
    """0 bound or young sandboxes deleted."""
    rng = random.Random(f"{seed}/clocks")
    jumpy = ("controlplane-2", "reaper", "binding-2")
    with City(cloud={"keyed": "true"}, clocks=jumpy, interval="300ms", grace="60s") as city:
        over = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(1) as jumper:
            jumps = jumper.submit(jump, city, rng, over)
            begin = time.monotonic()
            made, refused = make_all(city, size.sessions)
            took = time.monotonic() - begin
            over.set()
        lives = Lives(city.log)
        print(f"{len(made)} made in {took:.0f} s, refusals {refused}, {jumps.result()} jumps", file=sys.stderr)
        check(len(made) == size.sessions, len(made), "made of", size.sessions, refused)
        check("DEADLINE" not in refused, "a call ended by the clock of its replica:", refused)
        check(not lives.gone, len(lives.gone), "deleted:", sorted(lives.gone)[:5])
        check(lives.alive() >= set(made.values()), "those made are there")
        for name in jumpy:
            city.step(name, 0)
        sweep = timed_sweep(city, size, check)
        check(not Lives(city.log).gone, "deleted by the last sweep")
        return f"{len(made)} sessions in {took:.0f} s, {jumps.result()} jumps of up to {HOURS} h, {len(lives.lists)} lists, {sweep}"


def peak_kib(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))


def timed_sweep(city, size, check):
    """A sweep of all of them: at most 10 s per 10,000 beside the backend's time, in at most 64 MiB."""
    begin = time.monotonic()
    told = city.sweep()
    took = time.monotonic() - begin
    pages = [each for each in Lives(city.log).lists if each[0] > begin * 1e9]
    backend = sum(each[2] for each in pages) / 1e9
    kib = peak_kib(city.pid("reaper"))
    check(told.seen == size.sessions and not told.configs_skipped and not told.failed, told)
    check(took - backend <= 10, f"the sweep took {took:.1f} s, {backend:.1f} s of it the backend")
    check(kib <= 64 * MIB, f"the reaper had {kib} KiB")
    return f"a sweep of them all {took:.2f} s ({backend:.2f} s of it the backend's lists), at most {kib / MIB:.0f} MiB"

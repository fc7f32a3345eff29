"""race.py - resolves that race over four control planes and two bindings while everything under them goes
wrong: on the local backend, where create is keyed, and on one that loses, delays and repeats answers."""
import os
import random
import subprocess
import sys
import time

import faults
from city import CARRY, GRACE, HORIZON, HERE, LEASE, City, ms, wait_for
from load import Lives, Load, handed_out_dead, handed_out_twice


class Watched:
    """The observer of the local store, for the length of a block."""

    def __init__(self, city):
        self.log = city.path("log", "store.events")
        self.words = [sys.executable, os.path.join(HERE, "watch.py"), city.path("local"), self.log]

    def __enter__(self):
        self.child = subprocess.Popen(self.words, stdout=subprocess.PIPE, text=True)
        self.child.stdout.readline()
        return self

    def __exit__(self, *_):
        self.child.terminate()
        self.child.wait()

    def caught_up(self, city):
        """What it has seen, once that is all that is there."""
        wait_for(lambda: Lives(self.log).alive() == city.folders(), 20, "the observer has seen everything", step=0.1)
        return Lives(self.log)


def settle(city, wait):
    """Everything runs again; what was under way is over. Two sweeps after that, a grace apart: when the first
    began."""
    city.calm()
    city.all_well()
    time.sleep(wait)
    begin = time.monotonic_ns()
    for n in range(2):
        time.sleep(n * 2 * GRACE)
        told = city.sweep()
        print(f"sweep: seen {told.seen}, deleted {told.deleted}, adopted {told.adopted}, failed {told.failed}", file=sys.stderr)
    city.await_replica()
    return begin


def whole(lives, held, sweep, check, killed=()):
    """What lives is what is bound. The folder of one that was killed may stay until its session is used again."""
    extra = [f"{box} of {lives.session[box]}, which has {held.get(lives.session[box])}, made {(lives.made[box] - sweep) / 1e9:.1f} s "
             "after the sweep began" for box in sorted(lives.alive() - set(held.values()) - set(killed))]
    gone = [f"{box} of {session}" for session, box in held.items() if box not in lives.alive()]
    check(not extra and not gone, len(extra), "are not bound:", extra[:5], len(gone), "bound ones are gone:", gone[:5])


def resolve_all(city, n, load):
    """{session: sandbox} of all that are resolved once more."""
    return {session: city.api.resolve(session, config=load.config(session), recreate=True).session.sandbox.sandbox_id
            for session in (f"s{i}" for i in range(n))}


class Files:
    """Every tenth session has files from before the races, and a config that carries them."""
    WRITE = "cd /workspace && mkdir -p a/b && head -c 20000 /dev/urandom > a/b/random && echo {} > mark && ln -s ../mark a/link"
    READ = "cd /workspace && cat a/link && sha256sum a/b/random"

    def __init__(self, city, n):
        self.city, self.sums = city, {}
        for session in (f"s{i}" for i in range(0, n, 10)):
            city.api.resolve(session, config=CARRY)
            city.api.run(session, self.WRITE.format(session))
            self.sums[session] = self.read(session)

    def read(self, session):
        told = self.city.api.run(session, self.READ, text=True)
        return told.stdout_text or told.stderr_text

    def judge(self, lives, check):
        """All are what they were. How often they went to another sandbox."""
        wrong, moved = [], 0
        for session, before in self.sums.items():
            boxes = sorted((box for box in lives.made if lives.session[box] == session), key=lives.made.get)
            moved += len(boxes) - 1
            now = self.read(session)
            if now != before:
                wrong.append(f"{session}: {before!r} became {now!r} over {boxes}")
        check(moved, "no workspace went to another sandbox")
        check(not wrong, len(wrong), "workspaces are not what they were:", wrong[:5])
        return f"{len(self.sums)} workspaces carried {moved} times"


def run(city, size, seed, load, check):
    saboteur = faults.Saboteur(city, load, faults.schedule(seed, city.planes(), city.bindings(), size.calls, size.faults,
                                                          local=city.cloud is None))
    with load, saboteur:
        pass
    check(not saboteur.wrong, "faults that could not be made:", saboteur.wrong)
    check(not load.bad, "answers that no fault explains:", load.bad[:5])
    check(len(load.answers) > size.calls * 0.8, f"only {len(load.answers)} of {size.calls} were answered", dict(load.failures))
    return saboteur


def local(size, seed, check):
    """0 sessions with two live sandboxes at any time, says the store itself."""
    with City(both=True) as city, Watched(city) as watched:
        boxes = {}

        def kill(session):
            for box in city.folders():
                if boxes.setdefault(box, None) is None:
                    try:
                        boxes[box] = city.meta(box)["metadata"]["berth.session"]
                    except (OSError, ValueError, KeyError):
                        continue
                if boxes[box] == session:
                    when = city.kill_box(box)
                    return (box, when) if when else None
            return None
        files = Files(city, size.sessions)
        load = Load(city, seed, size.calls, size.sessions, kill, kept=files.sums)
        saboteur = run(city, size, seed, load, check)
        sweep = settle(city, LEASE)
        held, _ = city.bound()
        lives = watched.caught_up(city)
        check(not lives.missed, "the observer lost events")
        check(not lives.two, "two alive at once:", lives.two[:5])
        wrong = handed_out_twice(load.answers, lives, load.killed) + handed_out_dead(load.answers, lives, load.killed)
        check(not wrong, len(wrong), "times:", wrong[:5])
        whole(lives, held, sweep, check, load.killed)
        check(not load.lost, "workspaces are told to be lost:", load.lost[:5])
        carried = files.judge(lives, check)
        again = resolve_all(city, size.sessions, load)
        check(len(set(again.values())) == size.sessions, "every session has a sandbox of its own again")
        return f"{len(load.answers)} answers, {len(lives.made)} sandboxes made, {carried}, {saboteur.done} faults, {saboteur.flips} flips, {saboteur.kills} kills"


def cloud(size, seed, check):
    """0 handed out twice; what is too much is gone one sweep past the horizon."""
    rng = random.Random(f"{seed}/cloud")
    with City(cloud={"seed": str(rng.randrange(1 << 31)), "trouble": "500", "horizon": ms(HORIZON)}) as city:
        load = Load(city, seed, size.calls, size.sessions, lambda session: None, deleted=0.25)
        saboteur = run(city, size, seed, load, check)
        sweep = settle(city, LEASE + HORIZON)
        held, _ = city.bound()
        lives = Lives(city.log)
        wrong = handed_out_twice(load.answers, lives, {}) + handed_out_dead(load.answers, lives, {})
        check(not wrong, len(wrong), "times:", wrong[:5])
        whole(lives, held, sweep, check)
        again = resolve_all(city, size.sessions, load)
        check(len(set(again.values())) == size.sessions, "every session has a sandbox of its own again")
        extra = len(lives.made) - len({box for _, _, _, box in load.answers})
        return f"{len(load.answers)} answers, {len(lives.made)} sandboxes made, {extra} of them never handed out, {saboteur.done} faults, {saboteur.flips} flips, {saboteur.kills} kills"

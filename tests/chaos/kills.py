"""kills.py - kill -9 of whoever is at work, at a random moment of each operation, counted from its call; then
two sweeps, and everything must be in its place."""
import random
import sys
import threading
import time

from city import GRACE, LEASE, City, Failure
from turn import flip

# How long each takes, in seconds, here: kills are drawn within twice that.
TOOK = {"create": 0.06, "rebuild": 0.15, "pause": 0.03, "resume": 0.03, "delete": 0.05, "sweep": 0.15}


def schedule(seed, planes, bindings, n):
    """[(operation, whom, seconds after the call)]"""
    rng = random.Random(f"{seed}/kills")
    drawn = []
    for i in range(n):
        operation = list(TOOK)[i % len(TOOK)]
        dice = rng.random()
        whom = "plane" if dice < 0.5 else rng.choice(bindings) if dice < 0.7 else "adapter-local" if dice < 0.85 else \
            "dataplane" if dice < 0.92 else "reaper"
        if operation == "sweep" and dice < 0.5:
            whom = "reaper"
        drawn.append((operation, rng.choice(planes) if whom == "plane" else whom, rng.uniform(0, 2 * TOOK[operation])))
    rng.shuffle(drawn)
    return drawn


class Lane:
    """One thread with sessions of its own. Each step: an operation, a kill somewhere within it, and what the
    client knows after that. known: {session: sandbox} as it must be found again."""

    def __init__(self, city, number, steps):
        self.city, self.number, self.steps = city, number, steps
        self.known, self.deleted, self.left, self.lost = {}, set(), set(), []
        self.made = self.kills = self.n_deletes = self.rebuilt = 0
        self.thread = threading.Thread(target=self.run)

    def call(self, plane, what):
        """Over and over until it is answered, as clients do: the answer."""
        end = time.monotonic() + 60
        while True:
            try:
                return what(self.city.clients[plane])
            except Failure as failure:
                if time.monotonic() > end:
                    raise
                if failure.reason == "INTERNAL_BUG":
                    self.lost.append(str(failure))
                time.sleep(0.02)

    def attempt(self, plane, what, whom, after):
        """The call, and the kill `after` its begin. None: it was not answered."""
        answers = []

        def one():
            try:
                answers.append(what(self.city.clients[plane]) or True)
            except Failure as failure:
                if failure.reason == "INTERNAL_BUG":
                    self.lost.append(str(failure))
        thread = threading.Thread(target=one)
        thread.start()
        time.sleep(after)
        self.city.kill_and_start(whom)
        self.kills += 1
        thread.join()
        return answers[0] if answers else None

    def run(self):
        try:
            for step in self.steps:
                self.step(*step)
        except (Failure, RuntimeError, OSError) as error:
            self.lost.append(f"lane {self.number}: {error!r}")

    def step(self, operation, whom, after):
        planes = self.city.planes()
        plane = whom if whom in planes else planes[self.number % len(planes)]
        other = planes[(self.number + 1) % len(planes)]
        if operation in ("create", "sweep") or not self.known:
            session = f"k{self.number}-{self.made}"
            self.made += 1
        else:
            session = sorted(self.known)[self.made * 7 % len(self.known)]
        box = self.known.get(session)
        if operation == "sweep":
            thread = threading.Thread(target=self.city.try_sweep)
            thread.start()
            time.sleep(after)
            self.city.kill_and_start(whom)
            self.kills += 1
            thread.join()
            return
        if operation == "delete":
            self.known.pop(session, None)
            told = self.attempt(plane, lambda api: api.delete(session), whom, after)
            self.finish_delete(other, session, told)
            return
        if operation == "rebuild" and box:
            self.city.flip()
        if operation == "resume" and box:
            self.call(other, lambda api: api.pause(session))
        what = (lambda api: api.pause(session)) if operation == "pause" and box else \
            (lambda api: api.resolve(session, config="local", timeout=20))
        self.attempt(plane, what, whom, after)
        answer = self.call(other, lambda api: api.resolve(session, config="local", timeout=20))
        self.rebuilt += bool(box) and answer.session.sandbox.sandbox_id != box
        if box and any(word.startswith("workspace") for word in answer.lost):
            self.lost.append(f"{session}: {operation} lost {list(answer.lost)}")
        if box and operation == "rebuild" or not box:
            self.mark(session, new=not box)
        self.known[session] = self.call(other, lambda api: api.resolve(session, config="local", timeout=20)).session.sandbox.sandbox_id

    def mark(self, session, new=False):
        """Every session has a file from its first day to its last."""
        what = f"echo {session} > /workspace/mark" if new else "cat /workspace/mark"
        told = self.call(self.city.planes()[0], lambda api: api.run(session, what, text=True, rpc_timeout=20))
        if not new and told.stdout_text != session + "\n":
            self.lost.append(f"{session}: its file is gone: {told.stdout_text!r} {told.stderr_text!r}")

    def finish_delete(self, plane, session, told):
        """Half of those that were not answered are left as they are, for the reaper: they may never have begun."""
        self.n_deletes += 1
        if not told and self.n_deletes % 2 == 0:
            self.left.add(session)
            return

        def one(api):
            try:
                api.delete(session)
            except Failure as failure:
                if failure.reason != "SESSION_NOT_FOUND":
                    raise
        self.call(plane, one)
        self.deleted.add(session)


class KillCity(City):
    flips = 0

    def flip(self):
        with self.busy("image"):
            self.flips += 1
            flip(self, self.flips)


def kills(size, seed, check):
    with KillCity(carry=True) as city:
        steps = schedule(seed, city.planes(), city.bindings(), size.kills)
        lanes = [Lane(city, n, steps[n::4]) for n in range(4)]
        for lane in lanes:
            lane.thread.start()
        for lane in lanes:
            lane.thread.join()
        lost = [text for lane in lanes for text in lane.lost]
        check(not lost, lost[:5])
        city.all_well()
        time.sleep(LEASE)
        for n in range(2):
            time.sleep(n * 2 * GRACE)
            told = city.sweep()
            print(f"sweep: seen {told.seen}, deleted {told.deleted}, adopted {told.adopted}, failed {told.failed}", file=sys.stderr)
        held, states = city.bound()
        known = {session: box for lane in lanes for session, box in lane.known.items()}
        deleted = {session for lane in lanes for session in lane.deleted} | \
            {session for lane in lanes for session in lane.left if states.get(session) != "SESSION_STATE_ACTIVE"}
        check(city.folders() == set(held.values()), "leaked:", sorted(city.folders() - set(held.values()))[:5],
              "bound and gone:", sorted(set(held.values()) - city.folders())[:5])
        moved = {session: (box, held.get(session)) for session, box in known.items() if held.get(session) != box}
        check(not moved, "bound to another one than the client was told:", list(moved.items())[:5])
        keys = city.redis_cli("keys", "berth:{default}:s/*").splitlines()
        for session in deleted:
            key = f"berth:{{default}}:s/{session}"
            check(states.get(session) in (None, "SESSION_STATE_DELETED"), session, states.get(session))
            check(key not in keys or int(city.redis_cli("ttl", key)) > 0, "not a tombstone:", key)
        check(not set(city.redis_cli("zrange", "berth:{default}:i/c/local", "0", "-1").split()) & deleted, "deleted ones in the index")
        check(not city.redis_cli("zrange", "berth:{default}:i/due", "0", "-1").split(), "something is still due")
        for lane in lanes:
            for session in lane.known:
                lane.mark(session)
            check(not lane.lost, lane.lost[:5])
        rebuilt = sum(lane.rebuilt for lane in lanes)
        check(rebuilt, "nothing was rebuilt, of", city.flips, "times stale")
        return f"{sum(lane.kills for lane in lanes)} kills, {sum(lane.made for lane in lanes)} sessions, {len(deleted)} deleted, " \
               f"{rebuilt} workspaces carried to another sandbox, {len(held)} left bound"

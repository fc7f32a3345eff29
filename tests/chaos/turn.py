"""turn.py - a turn of many commands while the image of its config is replaced all the time."""
import json
import secrets
import threading
import time

from city import CARRY, City, pb

EVERY = 0.05
FLIP = "for _, key in ipairs(KEYS) do if redis.call('HEXISTS', key, 'state') == 1 then redis.call('HSET', key, unpack(ARGV)) end end"


def flip(city, generation):
    """Writes the configs' images as an installer's flip does: everything older is stale. Only into records that are
    there: an emptied Redis may just have lost them."""
    image = json.dumps({"generation": generation, "rebuild_before": generation})
    keys = [f"berth:{{default}}:c/{config}" for config in city.configs]
    city.redis_cli("eval", FLIP, str(len(keys)), *keys, "image", image, "next_generation", str(generation + 1),
                   "rev", secrets.token_hex(8))


class Flips:
    """A flip every 50 ms, each one generation more. n: how many."""

    def __init__(self, city):
        self.city, self.over, self.n = city, threading.Event(), 0
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.wait(EVERY):
            self.n += 1
            flip(self.city, self.n)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


OLD = "mkdir -p old/deep && head -c 300000 /dev/urandom > old/deep/random && ln -s deep/random old/link && chmod 750 old"
SUM = "cat old/link | sha256sum && stat -c %a old"


class Turn:
    """A turn of n commands, each of which makes a file, in a session of a config. What it had before the turn goes with
    the sandbox, or is carried."""

    def __init__(self, city, config, check, n):
        self.city, self.config, self.check, self.n = city, config, check, n
        self.session, self.carried = f"t-{config}", config == CARRY

    def run(self, what, turn):
        told = self.city.api.run(self.session, "cd /workspace; " + what, turn=turn, text=True)
        self.check(told.exited.exit_code == 0, what, told)
        return told.stdout_text

    def before(self):
        self.box = self.city.api.resolve(self.session, config=self.config).session.sandbox.sandbox_id
        self.run(OLD, "")
        self.sum = self.run(SUM, "")

    def old_is_there(self, turn):
        names = self.run("ls", turn).split()
        self.check(("old" in names) == self.carried, "of before the turn:", "old" in names, "carried:", self.carried)
        if self.carried:
            found = self.run(SUM, turn)
            self.check(found == self.sum, "what was carried is not what it was:", self.sum, found)

    def new_are_there(self, turn):
        text = self.run(f"for n in $(seq 0 {self.n - 1}); do cat f$n; done", turn)
        self.check(text.split() == [str(n) for n in range(self.n)], "files vanished:", self.n, "written,", len(text.split()), "there")

    def play(self):
        city, check = self.city, self.check
        token = city.api.begin_turn(self.session)
        first = city.api.resolve(self.session, turn=token)
        box = first.session.sandbox.sandbox_id
        rebuilt = first.outcome == pb.control.RESOLVE_OUTCOME_REBUILT
        check(rebuilt and box != self.box, "the turn begins with the new image", pb.control.ResolveOutcome.Name(first.outcome))
        self.old_is_there(token)
        for n in range(self.n):
            self.run(f"echo {n} > f{n}; ls | wc -l > count", token)
            if n % 10 == 0:
                again = city.clients[city.planes()[n // 10 % 2]].resolve(self.session, turn=token if n % 20 else "")
                check(again.session.sandbox.sandbox_id == box, "after", n, "commands another sandbox")
                check(again.outcome == pb.control.RESOLVE_OUTCOME_USED, pb.control.ResolveOutcome.Name(again.outcome))
        self.old_is_there(token)
        self.new_are_there(token)
        city.api.end_turn(self.session, token)
        after = city.api.resolve(self.session)
        check(after.outcome == pb.control.RESOLVE_OUTCOME_REBUILT, "rebuilt once the turn is over")
        if self.carried:  # through this rebuild, and those that the looking itself is made to wait for
            self.old_is_there("")
            self.new_are_there("")


def turn(size, _, check):
    """At most one rebuild, none after the first resolve, and no file of the turn vanishes; where the workspace is
    carried no file at all, whatever is rebuilt."""
    with City(control_planes=2, bindings=1, pair=False, both=True) as city:
        turns = [Turn(city, config, check, size.calls) for config in city.configs]
        for each in turns:
            each.before()
        with Flips(city) as flips:
            while flips.n < 2:
                time.sleep(EVERY)
            for each in turns:
                each.play()
            check(flips.n > 2 * size.calls * 0.002 / EVERY, "only", flips.n, "flips")
        return f"2 turns of {size.calls} commands, one dropped and one carried at its begin, {flips.n} flips, 1 rebuild each"

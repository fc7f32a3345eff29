"""turn.py - a turn of many commands while the image of its config is replaced all the time."""
import json
import secrets
import threading
import time

from city import City, pb

EVERY = 0.05
FLIP = "return redis.call('HEXISTS', KEYS[1], 'state') == 1 and redis.call('HSET', KEYS[1], unpack(ARGV))"


def flip(city, generation):
    """Writes the config's image as an installer's flip does: everything older is stale. Only into a record that is
    there: an emptied Redis may just have lost it."""
    image = json.dumps({"generation": generation, "rebuild_before": generation})
    city.redis_cli("eval", FLIP, "1", "berth:{default}:c/local", "image", image, "next_generation", str(generation + 1),
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


def turn(size, _, check):
    """At most one rebuild, none after the first resolve, and no file of the turn vanishes."""
    with City(control_planes=2, bindings=1, pair=False) as city:
        before = city.api.resolve("t", config="local").session.sandbox.sandbox_id
        with Flips(city) as flips:
            while flips.n < 2:
                time.sleep(EVERY)
            token = city.api.begin_turn("t")
            first = city.api.resolve("t", turn=token)
            box = first.session.sandbox.sandbox_id
            rebuilt = first.outcome == pb.control.RESOLVE_OUTCOME_REBUILT
            check(rebuilt and box != before, "the turn begins with the new image", pb.control.ResolveOutcome.Name(first.outcome))
            for n in range(size.calls):
                city.api.run("t", f"echo {n} > /workspace/f{n}; ls /workspace | wc -l > /workspace/count", turn=token)
                if n % 10 == 0:
                    again = city.clients[city.planes()[n // 10 % 2]].resolve("t", turn=token if n % 20 else "")
                    check(again.session.sandbox.sandbox_id == box, "after", n, "commands another sandbox")
                    check(again.outcome == pb.control.RESOLVE_OUTCOME_USED, pb.control.ResolveOutcome.Name(again.outcome))
            names = city.api.run("t", "ls /workspace", turn=token, text=True).stdout_text.split()
            check(set(names) >= {f"f{n}" for n in range(size.calls)}, "files vanished:", size.calls, "written,", len(names), "there")
            check(flips.n > size.calls * 0.002 / EVERY, "only", flips.n, "flips")
            city.api.end_turn("t", token)
            after = city.api.resolve("t")
            check(after.outcome == pb.control.RESOLVE_OUTCOME_REBUILT, "rebuilt once the turn is over")
        return f"{size.calls} commands, {flips.n} flips, 1 rebuild"

"""waiters.py - 200 calls that wait for one lock."""
import concurrent.futures
import re
import time

from city import LEASE, City, ms, pb

WAITERS, CREATE = 200, 2.0


def commands(city):
    """What Redis was asked so far: each is one script, whatever that runs."""
    stats = city.redis_cli("info", "commandstats")
    return sum(int(n) for name, n in re.findall(r"cmdstat_([a-z|_]+):calls=(\d+)", stats) if name.startswith(("eval", "fcall")))


def crowd(size, _, check):
    """All get the sandbox that the holder makes, it keeps its lock, and Redis hardly notices them."""
    with City(cloud={"keyed": "true", "create": ms(CREATE)}, pair=False) as city:
        planes = city.planes()
        before = commands(city)
        begin = time.monotonic()

        def one(n):
            answer = city.clients[planes[n % 4]].resolve("one", config="local", timeout=60)
            return answer, time.monotonic() - begin
        with concurrent.futures.ThreadPoolExecutor(WAITERS) as pool:
            answers, times = zip(*pool.map(one, range(WAITERS)))
        used = commands(city) - before
        boxes = {answer.session.sandbox.sandbox_id for answer in answers}
        outcomes = [answer.outcome for answer in answers]
        check(len(boxes) == 1 and outcomes.count(pb.control.RESOLVE_OUTCOME_CREATED) == 1, boxes)
        holder = times[outcomes.index(pb.control.RESOLVE_OUTCOME_CREATED)]
        check(holder < CREATE + LEASE, f"its holder took {holder:.1f} s for what takes {CREATE:.0f} s")
        # Each asks once when it comes and once when the lock is free; the rest is polling and renewals.
        check(WAITERS <= used < 3 * WAITERS, f"{used} commands for {WAITERS} waiters")
        return f"{WAITERS} waiters over {CREATE:.0f} s: its holder had it after {holder:.2f} s, the last of them after {max(times):.2f} s, " \
               f"Redis was asked {used} times"

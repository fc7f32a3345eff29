#!/usr/bin/python3
"""t0410-race - many resolves of one new session at once over two control planes: one sandbox.

Sanitized, too."""
import collections
import concurrent.futures
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import Failure, TestSuite, pb  # noqa: E402

THREADS, CALLS = 200, 1000


def race(suite, session, calls, **more):
    apis = [suite.client(control=control, timeout=60) for control in ("controlplane", "controlplane-2")]

    def one(number):
        for _ in range(20):
            try:
                answer = apis[number % 2].resolve(session, config="local", **more)
                return answer.session.sandbox.sandbox_id, answer.outcome
            except Failure as failure:
                if failure.reason not in ("OVERLOADED",):
                    return failure.reason or failure.code, None
        return "OVERLOADED", None
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(calls)))


# 1,000 resolves of one new session over two control planes: one sandbox, one create.
def resolve__thousand_at_once_over_two_control_planes__one_sandbox(suite):
    answers = race(suite, "raced", CALLS)
    boxes = collections.Counter(box for box, _ in answers)
    print(boxes, collections.Counter(outcome for _, outcome in answers), file=sys.stderr)
    tap.equal(len(boxes), 1, "answers", dict(boxes))
    tap.equal(sum(outcome == pb.control.RESOLVE_OUTCOME_CREATED for _, outcome in answers), 1, "created")
    tap.equal(os.listdir(suite.path("local", "sandboxes")), list(boxes))


# The same on a paused one: resumed, never a second one.
def resolve__hundred_at_once_on_a_paused_one__same_sandbox(suite):
    api = suite.client()
    box = api.session("raced").sandbox.sandbox_id
    for _ in range(3):
        api.pause("raced")
        tap.equal({each for each, _ in race(suite, "raced", 100)}, {box})
    tap.equal(os.listdir(suite.path("local", "sandboxes")), [box])


# must_be_new: one caller wins, all others are told that it exists.
def resolve__must_be_new_at_once__one_winner(suite):
    answers = race(suite, "one-winner", 50, must_be_new=True)
    outcomes = collections.Counter("won" if outcome else box for box, outcome in answers)
    tap.equal(dict(outcomes), {"won": 1, "SESSION_EXISTS": 49})


# 40 sessions at once, then all deleted at once: 40 sandboxes, then none.
def sessions__forty_made_and_deleted_at_once__none_left(suite):
    api = suite.client()
    before = set(os.listdir(suite.path("local", "sandboxes")))
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        boxes = list(pool.map(lambda i: api.resolve(f"many-{i}", config="local").session.sandbox.sandbox_id, range(40)))
        tap.equal(len(set(boxes)), 40)
        outs = list(pool.map(lambda i: api.run(f"many-{i}", f"echo {i}").stdout, range(40)))
        tap.equal(outs, [b"%d\n" % i for i in range(40)])
        list(pool.map(lambda i: api.delete(f"many-{i}"), range(40)))
    tap.equal(set(os.listdir(suite.path("local", "sandboxes"))), before)


if __name__ == "__main__":
    tap.main(globals(), lambda: TestSuite(control_planes=2))

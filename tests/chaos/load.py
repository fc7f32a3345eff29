"""load.py - resolves that race for a few sessions at a time, what each was told, and the judgement of it."""
import collections
import random
import sys
import threading
import time

from city import CARRY, Failure, pb

BURST = 8  # resolves of one session that start together
TRIES, PAUSE = 12, 0.1
HONEST = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "UNKNOWN", "CANCELLED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
          "NOT_FOUND"}


class Load:
    """`calls` resolves of `sessions` sessions from `threads` threads. Before some bursts the session is
    deleted (that share of them), paused, or its sandbox killed; kill(session) does the last and says when and
    which. Those of `kept`, which have files and a config that carries them, are only paused."""

    def __init__(self, city, seed, calls, sessions, kill, deleted=0.08, threads=48, kept=()):
        self.city, self.seed, self.calls, self.sessions, self.kill = city, seed, calls, sessions, kill
        self.deleted, self.kept = deleted, kept
        self.count, self.over = 0, False
        self.lock = threading.Lock()
        self.answers = []  # (begin ns, end ns, session, sandbox)
        self.failures = collections.Counter()
        self.outcomes = collections.Counter()
        self.killed = {}  # sandbox: ns
        self.lost = []  # workspaces of kept sessions, as they were told
        self.bad = []
        self.planes = city.planes()
        self.threads = [threading.Thread(target=self.run) for _ in range(threads)]
        self.plan = random.Random(f"{seed}/load")
        self.bursts = [self.draw() for _ in range(calls // BURST + 1)]

    def draw(self):
        session, dice = f"s{self.plan.randrange(self.sessions)}", self.plan.random()
        trick = "delete" if dice < self.deleted else "pause" if dice > 0.97 else "kill" if dice > 0.93 else ""
        return session, trick if trick == "pause" or session not in self.kept else ""

    def config(self, session):
        return CARRY if session in self.kept else "local"

    def run(self):
        while True:
            with self.lock:
                number = self.count
                if number >= self.calls:
                    self.over = True
                    return
                self.count += 1
            session, trick = self.bursts[number // BURST]
            if number % BURST == 0 and trick:
                self.play(session, trick)
            self.resolve(session, self.planes[(number + number // BURST) % len(self.planes)])

    def play(self, session, trick):
        api = self.city.clients[self.planes[len(session) % len(self.planes)]]
        try:
            if trick == "delete":
                api.delete(session, timeout=15)
            elif trick == "pause":
                api.pause(session)
            else:
                killed = self.kill(session)
                if killed:
                    self.killed.setdefault(*killed)
        except Failure as failure:
            self.note(trick, failure)

    def note(self, what, failure):
        self.failures[f"{what} {failure.code}/{failure.reason or '-'}"] += 1
        if failure.code not in HONEST or failure.reason == "INTERNAL_BUG":
            self.bad.append(str(failure))

    def resolve(self, session, plane):
        """As a client does: what was not answered is asked again, a little later and at another place."""
        for attempt in range(TRIES):
            begin = time.monotonic_ns()
            try:
                answer = self.city.clients[plane].resolve(session, config=self.config(session), recreate=True, timeout=20)
                break
            except Failure as failure:
                self.note("resolve", failure)
                if failure.reason == "SESSION_DELETED":  # by somebody who was not told that it is done
                    self.play(session, "delete")
            time.sleep(PAUSE * (attempt + 1))
            plane = self.planes[(self.planes.index(plane) + 1) % len(self.planes)]
        else:
            return
        end = time.monotonic_ns()
        if session in self.kept and any(word.startswith("workspace") for word in answer.lost):
            self.lost.append(f"{session}: {list(answer.lost)}")
        self.answers.append((begin, end, session, answer.session.sandbox.sandbox_id))
        self.outcomes[pb.control.ResolveOutcome.Name(answer.outcome).removeprefix("RESOLVE_OUTCOME_")] += 1

    def __enter__(self):
        self.began = time.monotonic()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        for thread in self.threads:
            thread.join()
        self.over = True
        print(f"{self.calls} calls in {time.monotonic() - self.began:.0f} s: {len(self.answers)} answers {dict(self.outcomes)}, "
              f"failures {dict(self.failures)}", file=sys.stderr, flush=True)


class Lives:
    """The log of a backend's observer: who lived when, and of which session."""

    def __init__(self, path):
        self.session, self.made, self.gone, self.two, self.lists, self.missed = {}, {}, {}, [], [], 0
        with open(path) as file:
            for line in file:
                words = line.split()
                when, what, box = int(words[0]), words[1], words[2]
                if what == "made":
                    self.session[box], self.made[box] = words[3], when
                elif what == "gone":
                    self.gone.setdefault(box, when)
                elif what == "two":
                    self.two.append((words[3], box, words[4]))
                elif what == "listed":
                    self.lists.append((when, int(words[3]), int(words[4])))
                elif what == "missed":
                    self.missed += 1

    def alive(self):
        return {box for box in self.made if box not in self.gone}


def handed_out_twice(answers, lives, killed):
    """Pairs of sandboxes of one session that were both handed out and both alive at one moment, and
    sandboxes handed out for a session that is not theirs. A sandbox counts as handed out from the end of
    the first call that was told of it."""
    first, wrong = {}, []
    for _, end, session, box in answers:
        if lives.session.get(box) != session:
            wrong.append(f"{box} of {lives.session.get(box)} was handed out for {session}")
        first[box] = min(end, first.get(box, end))
    by_session = collections.defaultdict(list)
    for box, begin in first.items():
        end = min(lives.gone.get(box, 1 << 62), killed.get(box, 1 << 62))
        if begin < end and box in lives.session:
            by_session[lives.session[box]].append((begin, end, box))
    for session, spans in by_session.items():
        spans.sort()
        for (_, end, one), (begin, _, other) in zip(spans, spans[1:]):
            if begin < end:
                wrong.append(f"{session}: {one} still lived {(end - begin) / 1e6:.1f} ms when {other} was handed out")
    return wrong


def handed_out_dead(answers, lives, killed):
    """Sandboxes handed out by a call that began after Berth had deleted them."""
    return sorted({f"{session}: {box} was handed out {(begin - lives.gone[box]) / 1e6:.1f} ms after it was deleted"
                   for begin, _, session, box in answers if box not in killed and lives.gone.get(box, 1 << 62) < begin})

"""table.py - figures, their yardsticks and targets, as a table in TAP."""
import statistics

ECHO_FLOOR_US = 400


def p(samples, percent):
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(samples):
    return statistics.median(samples)


class Table:
    def __init__(self):
        self.rows, self.void = [], None
        self.heading = f"{'figure':44} {'value':>12} {'yardstick':>34} {'ratio':>7} {'target':>10}  "
        self.say(self.heading)
        self.say("-" * len(self.heading))

    @staticmethod
    def say(text):
        print("# " + text, flush=True)

    def line(self, figure, value, yardstick="", ratio=None, target="", good=None):
        """good None: for information only, no case."""
        verdict = {True: "ok", False: "MISS", None: ""}[good]
        shown = "" if ratio is None else f"{ratio:.2f}"
        self.say(f"{figure:44} {value:>12} {yardstick:>34} {shown:>7} {target:>10}  {verdict}".rstrip())
        if good is not None:
            self.rows.append((figure, good, f"{value} against {target}{' of ' + yardstick if yardstick else ''}"))

    def at_most(self, figure, value, limit, unit, yardstick="", of=None):
        """value <= limit; of: the yardstick's figure that the ratio is of."""
        self.line(figure, f"{value:.2f} {unit}", yardstick, value / of if of else None, f"<= {limit:.2f}", value <= limit)

    def ratio_at_most(self, figure, value, unit, yardstick, of, limit):
        self.line(figure, f"{value:.1f} {unit}", f"{yardstick} {of:.1f} {unit}", value / of, f"<= {limit:g}", value <= limit * of)

    def paired_at_least(self, figure, values, unit, yardstick, of, limit):
        """The median of the ratios of each round: a disk or a host that is slow for some seconds is so for both."""
        ratio = median([value / other for value, other in zip(values, of)])
        self.line(figure, f"{median(values):.0f} {unit}", f"{yardstick} {median(of):.0f} {unit}", ratio, f">= {limit:g}", ratio >= limit)

    def floor(self, name, echo_us):
        good = echo_us <= ECHO_FLOOR_US
        self.line(f"echo p50 ({name})", f"{echo_us:.0f} us", "floor", None, f"<= {ECHO_FLOOR_US}", good)
        if not good:
            self.void = f"echo p50 was {echo_us:.0f} us: the machine was too busy to measure anything"

    def finish(self):
        """The plan and the cases. Exit code."""
        if self.void:
            self.say("VOID: " + self.void)
        for n, (figure, good, text) in enumerate(self.rows, 1):
            print(f"{'ok' if good else 'not ok'} {n} - {figure.replace('#', '')}: {text}")
        print(f"1..{len(self.rows)}")
        return 0 if all(good for _, good, _ in self.rows) else 1

"""tap.py - a test file's cases are its functions named function__condition__outcome, each with one
sentence above; main() runs them in order and prints TAP.

    def run__exit_code__reported(suite): ...
    tap.main(globals(), TestSuite)          # the context's value is the argument of each case
"""
import inspect
import os
import signal
import sys
import time
import traceback


class Skip(Exception):
    """The case cannot be tried on this machine; the text says why."""


def check(condition, *text):
    if not condition:
        raise AssertionError(" ".join(str(part) for part in text) or "check failed")


def equal(got, wanted, *text):
    if got != wanted:
        raise AssertionError(f"{' '.join(str(part) for part in text)}: got {got!r}, not {wanted!r}".lstrip(": "))


def cases_of(module):
    own = [(name, value) for name, value in module.items() if inspect.isfunction(value) and value.__module__ == "__main__"]
    unnamed = [name for name, _ in own if name.strip("_").count("__") == 1]
    if unnamed:
        raise ValueError(f"no sentence of three parts, and so no case: {unnamed}")
    found = [(name, value) for name, value in own if name.count("__") >= 2]
    return sorted(found, key=lambda item: item[1].__code__.co_firstlineno)


def main(module, context):
    """Arguments of the program: parts of case names; none: all. Exit 1 when one failed."""
    # A caller's time limit still lets the context clean up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = sys.argv[1:]
    cases = [(name, function) for name, function in cases_of(module)
             if not wanted or any(part in name for part in wanted)]
    print(f"1..{len(cases) + 1}", flush=True)
    failed = number = 0

    def report(name, error, begin):
        nonlocal failed, number
        number += 1
        took = f"{(time.monotonic() - begin) * 1000:.0f} ms"
        if error is None:
            print(f"ok {number} - {name}", flush=True)
        elif isinstance(error, Skip):
            print(f"ok {number} - {name} # SKIP {error}", flush=True)
        else:
            failed += 1
            text = str(error) or type(error).__name__
            line = traceback.extract_tb(error.__traceback__)
            here = [frame for frame in line if frame.filename == sys.argv[0] or "/tests/" in frame.filename]
            where = f" ({os.path.basename(here[-1].filename)}:{here[-1].lineno})" if here else ""
            for part in (type(error).__name__ + ": " + text[:1500]).splitlines():
                print(f"# {part}")
            print(f"not ok {number} - {name}{where}", flush=True)
            traceback.print_exception(error, file=sys.stderr)
        print(f"{name}: {took}", file=sys.stderr, flush=True)

    begin = time.monotonic()
    try:
        with context() as value:
            print(f"started in {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
            for name, function in cases:
                begin = time.monotonic()
                error = None
                try:
                    function(value)
                except Exception as caught:  # pylint: disable=broad-except
                    error = caught
                report(name, error, begin)
            begin = time.monotonic()
    except Exception as caught:  # pylint: disable=broad-except
        if isinstance(caught, Skip) and not number:
            for name, _ in cases:
                report(name, caught, begin)
        report("suite__after_all_cases__nothing_left", caught, begin)
    else:
        report("suite__after_all_cases__nothing_left", None, begin)
    sys.exit(1 if failed else 0)

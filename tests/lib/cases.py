#!/usr/bin/python3
"""cases.py - results of tests as lines "VERDICT<TAB>case<TAB>text", and their sum.

tap PREFIX                         TAP on standard input
script PREFIX TAP LOG EXIT         TAP in a file, checked against plan and exit code
meson SUITE DIR JSON               libcheck's TAP files in DIR, else meson's own verdicts
sum RESULTS ALLOWED                prints skips and the last line; the exit code
"""
import fnmatch
import glob
import json
import os
import re
import sys

LINE = re.compile(r"^(not ok|ok)\b\s*\d*\s*(?:-\s*)?(.*?)(?:\s+#\s*(SKIP)\b\s*(.*))?$", re.I)


def emit(verdict, case, text=""):
    text = " ".join(text.split())
    print(f"{verdict}\t{case}\t{text}")
    if verdict == "FAIL":
        print(f"FAIL {case}: {text}" if text else f"FAIL {case}", file=sys.stderr)


def parse_tap(lines):
    """Yields (verdict, name, text); text holds the comment lines that stood before a failure."""
    notes = []
    planned = None
    seen = 0
    for raw in lines:
        line = raw.rstrip("\n")
        plan = re.match(r"^1\.\.(\d+)\s*(?:#\s*skip\s*(.*))?$", line, re.I)
        if plan:
            planned = int(plan.group(1))
            if planned == 0 and plan.group(2):
                yield "SKIP", "", plan.group(2)
            continue
        match = LINE.match(line)
        if not match:
            if line.startswith("#"):
                notes.append(line[1:].strip())
            continue
        seen += 1
        state, name, directive, reason = match.groups()
        if directive and directive.upper() == "SKIP":
            yield "SKIP", name, reason
        else:
            yield ("PASS" if state == "ok" else "FAIL"), name, "; ".join(notes[-8:]) if state != "ok" else ""
        notes = []
    if planned is not None and seen < planned:
        yield "FAIL", "plan", f"{planned} cases planned, {seen} reported"


def from_tap(prefix):
    for verdict, name, text in parse_tap(sys.stdin):
        emit(verdict, f"{prefix}/{name}".rstrip("/"), text)


def from_script(prefix, tap, log, status):
    bad = count = 0
    with open(tap, errors="replace") as lines:
        for verdict, name, text in parse_tap(lines):
            count += 1
            bad += verdict == "FAIL"
            emit(verdict, f"{prefix}/{name}".rstrip("/"), text)
    if status == 77 and count == 0:
        emit("SKIP", prefix, tail(log, 1))
    elif status != 0 and not bad:
        emit("FAIL", prefix, f"exit status {status}: {tail(log, 5)}")
    elif count == 0:
        emit("FAIL", prefix, "reported no case")


def tail(path, n):
    try:
        with open(path, errors="replace") as file:
            return " | ".join(line.strip() for line in file.readlines()[-n:])
    except OSError:
        return ""


def from_meson(suite, tap_dir, log):
    suite = suite.rstrip("/").replace("/-", "-")
    try:
        with open(log) as file:
            tests = [json.loads(line) for line in file]
    except OSError:
        tests = []
    if not tests:
        emit("FAIL", suite, "meson ran no test")
    for test in tests:
        name = test["name"].split(" / ")[-1]
        program = next(("+".join(word.split("/")[-2:]) for word in test["command"]
                        if not word.endswith("case-log")), "")
        cases = []
        for tap in glob.glob(os.path.join(tap_dir, glob.escape(program) + ".*.tap")):
            with open(tap, errors="replace") as lines:
                cases += list(parse_tap(lines))
        bad = sum(1 for case in cases if case[0] == "FAIL")
        for verdict, case, text in cases:
            # file:tcase:test: message
            match = re.match(r"^(.*?):([^:]*):([^:]*): ?(.*)$", case)
            label, message = (match.group(3), match.group(4)) if match else (case, "")
            emit(verdict, f"{suite}/{name}/{label}", (text or message) if verdict != "PASS" else "")
        result = test["result"]
        output = (test.get("stdout", "") + test.get("stderr", "")).strip().splitlines()
        if result in ("SKIP",) and not cases:
            emit("SKIP", f"{suite}/{name}", output[-1] if output else "")
        elif result in ("OK", "EXPECTEDFAIL"):
            if not cases:
                emit("PASS", f"{suite}/{name}")
        elif not bad:
            emit("FAIL", f"{suite}/{name}", f"{result}: " + " | ".join(output[-12:]))


def allowed_skips(path):
    rules = []
    with open(path) as file:
        for line in file:
            line = line.strip()
            if line and not line.startswith("#"):
                pattern, _, reason = line.partition(" ")
                rules.append((pattern, reason.strip()))
    return rules


def total(results, allowed):
    rules = allowed_skips(allowed)
    strict = os.environ.get("CI") == "true"
    passed = failed = skipped = 0
    with open(results) as file:
        for line in file:
            verdict, case, text = line.rstrip("\n").split("\t")
            if verdict == "PASS":
                passed += 1
            elif verdict == "FAIL":
                failed += 1
            elif strict and not any(fnmatch.fnmatchcase(case, pattern) for pattern, _ in rules):
                failed += 1
                print(f"FAIL {case}: skipped, and tests/skips.allowed does not allow it: {text}")
            else:
                skipped += 1
                print(f"SKIP {case}: {text}")
    if passed + failed == 0:
        print("run: no test ran")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 0 if failed == 0 and passed else 1


def main(argv):
    kind = argv[0]
    if kind == "tap":
        from_tap(argv[1])
    elif kind == "script":
        from_script(argv[1], argv[2], argv[3], int(argv[4]))
    elif kind == "meson":
        from_meson(argv[1], argv[2], argv[3])
    else:
        return total(argv[1], argv[2])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/python3
"""mainjob.py - the main job, end to end, on a running suite: what an agent does in two turns with a
sandbox that is still there. Each step is printed with its time and checked.

usage: mainjob.py --state DIR [--tenant default] [--config local] [--no-kill]
"""
import argparse
import csv
import hashlib
import io
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import leftovers  # noqa: E402
from client import Failure  # noqa: E402
from stubs import pb  # noqa: E402
from suite import Suite, SuiteError, wait_for  # noqa: E402

PACKAGE = "tabulate"  # small, pure Python, from the public index
WHEEL = "berth_table-1.0-py3-none-any.whl"  # the stand-in, built here
PACKAGES_DIR = "/workspace/.packages"
MIN_CSV = 1_000_000
ANALYSE = ["python3", "/workspace/analyse.py"]

# Runs inside the sandbox. The token is in its memory only until the second turn.
ANALYSIS = r'''
import collections, csv, hashlib, json, os, secrets, sys, time
sys.path.insert(0, "/workspace/.packages")
try:
    from tabulate import tabulate
except ImportError:
    from berth_table import tabulate

token = secrets.token_hex(16)
log = open("/workspace/output/analysis.log", "a", buffering=1)
print("token-sha256", hashlib.sha256(token.encode()).hexdigest(), file=log)
sections = collections.defaultdict(list)
with open("/workspace/data.csv", newline="") as file:
    for row in csv.DictReader(file):
        sections[row["section"]].append(int(row["size"]))
result = {}
for name in sorted(sections):
    sizes = sorted(sections[name])
    result[name] = {"packages": len(sizes), "bytes": sum(sizes), "median": sizes[len(sizes) // 2]}
    print("section", name, len(sizes), sum(sizes), file=log)
    time.sleep(0.02)
print("waiting", file=log)
while not os.path.exists("/workspace/continue"):
    time.sleep(0.02)
rows = [[name, each["packages"], each["bytes"]] for name, each in sorted(result.items(), key=lambda i: -i[1]["bytes"])]
with open("/workspace/output/report.txt", "w") as file:
    file.write(tabulate(rows[:10], headers=["section", "packages", "bytes"]) + "\n")
with open("/workspace/output/report.json", "w") as file:
    json.dump({"token": token, "pid": os.getpid(), "sections": result}, file)
print("done", file=log)
print("analysed", sum(each["packages"] for each in result.values()), "packages")
'''

STAND_IN = '''
def tabulate(rows, headers=()):
    table = [[str(cell) for cell in row] for row in [headers, *rows]]
    widths = [max(len(row[i]) for row in table) for i in range(len(headers))]
    return "\\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in table)
'''


class Show:
    """Prints a step when it is done, with its time; a step that does not hold ends the job."""

    def __init__(self):
        self.begin = time.monotonic()
        self.step_begin = self.begin

    def title(self, text):
        print(f"\n{text}", flush=True)
        self.step_begin = time.monotonic()

    def done(self, text, holds=True):
        now = time.monotonic()
        took = (now - self.step_begin) * 1000
        print(f"  {'ok  ' if holds else 'FAIL'} {took:8.1f} ms  {text}", flush=True)
        if not holds:
            raise SuiteError("the main job's step does not hold: " + text)
        self.step_begin = time.monotonic()


def package_index():
    """The machine's own Debian package index as CSV bytes, and the figures to check against."""
    text = b""
    for update in (False, True):
        if update and os.geteuid() == 0:  # an image builder may have thrown the index away
            subprocess.run(["apt-get", "update", "-q"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        text = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, check=True).stdout
        if len(text) > MIN_CSV:
            break
    text = text.decode(errors="replace")
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["package", "version", "section", "priority", "size", "maintainer", "description"])
    sections = {}
    for paragraph in text.split("\n\n"):
        fields = {}
        for line in paragraph.split("\n"):
            key, colon, value = line.partition(": ")
            if colon and not line.startswith(" "):
                fields[key] = value
        if "Package" not in fields or not fields.get("Size", "").isdigit():
            continue
        section = fields.get("Section", "none")
        writer.writerow([fields["Package"], fields.get("Version"), section, fields.get("Priority"), fields["Size"],
                         fields.get("Maintainer"), fields.get("Description") or fields.get("Description-en")])
        count, total = sections.get(section, (0, 0))
        sections[section] = (count + 1, total + int(fields["Size"]))
    return out.getvalue().encode(), sections


def stand_in_wheel():
    """A wheel as any build backend would make it, built here, for machines without an index."""
    files = {"berth_table.py": STAND_IN,
             "berth_table-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: berth-table\nVersion: 1.0\n",
             "berth_table-1.0.dist-info/WHEEL":
                 "Wheel-Version: 1.0\nGenerator: berth\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{name},,\n" for name in files) + "berth_table-1.0.dist-info/RECORD,,\n"
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w") as wheel:
            for name, text in (files | {"berth_table-1.0.dist-info/RECORD": record}).items():
                wheel.writestr(name, text)
        file.seek(0)
        return file.read()


def install_package(api, session, turn, show):
    """Into /workspace, by pip from an index where the sandbox reaches one, else from a wheel."""
    pip = ["python3", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check",
           "--no-cache-dir", "--target", PACKAGES_DIR]
    done = api.run(session, pip + ["--retries", "0", "--timeout", "10", PACKAGE], turn=turn, timeout=90)
    if done.exited.exit_code == 0 and done.exited.reason == pb.data.EXIT_REASON_EXITED:
        show.done(f"pip installs {PACKAGE} from the public index into {PACKAGES_DIR}")
        return PACKAGE
    why = (done.stderr.decode(errors="replace").strip().splitlines() or ["no answer in time"])[-1]
    show.done(f"no index reachable from the sandbox ({why[:90]})")
    api.write_file(session, "/workspace/" + WHEEL, stand_in_wheel(), turn=turn)
    done = api.run(session, pip + ["--no-index", "/workspace/" + WHEEL], turn=turn, timeout=90)
    show.done(f"pip installs the wheel {WHEEL}, built here, into {PACKAGES_DIR}", done.exited.exit_code == 0)
    return "berth_table"


def module_works(api, session, module, **more):
    done = api.run(session, ["python3", "-c", f"import sys; sys.path.insert(0, {PACKAGES_DIR!r}); "
                   f"from {module} import tabulate; print(tabulate([[1, 2]], headers=['a', 'b']))"], **more)
    return done.exited.exit_code == 0 and b"a" in done.stdout


def first_turn(api, config, session, show):
    show.title(f"Session A ({session}), turn 1")
    answer = api.resolve(session, config=config)
    sandbox = answer.session.sandbox.sandbox_id
    show.done(f"the session gets a sandbox: {sandbox}", answer.outcome == pb.control.RESOLVE_OUTCOME_CREATED)
    turn = api.begin_turn(session, "turn-1")
    answer = api.resolve(session, turn=turn)
    show.done("a turn begins, with this sandbox", answer.session.sandbox.sandbox_id == sandbox)

    data, sections = package_index()
    show.done(f"this machine's Debian package index becomes CSV: {len(data) / 1e6:.1f} MB", len(data) >= MIN_CSV)
    api.write_file(session, "/workspace/data.csv", data, turn=turn)
    show.done("WriteFile /workspace/data.csv")
    entry = api.stat(session, "/workspace/data.csv", with_sha256=True)
    show.done("Stat: size and SHA-256 are those of the data",
              entry.size_bytes == len(data) and entry.sha256 == hashlib.sha256(data).digest())
    module = install_package(api, session, turn, show)
    api.write_file(session, "/workspace/analyse.py", ANALYSIS.encode(), turn=turn)
    show.done("WriteFile /workspace/analyse.py")
    events = api.exec(session, ANALYSE, turn=turn, exec_id="analysis", detach=True, timeout=0).until_started()
    pid = events.started.pid
    events.cancel()
    show.done(f"Exec starts the analysis in the background: pid {pid}")
    log = api.exec(session, "tail -n +1 -F /workspace/output/analysis.log 2>/dev/null", turn=turn, timeout=60)
    log.until(lambda e: b"\nwaiting" in e.stdout)
    log.cancel()
    lines = log.stdout.decode().splitlines()
    told = next(line.split()[1] for line in lines if line.startswith("token-sha256"))
    show.done(f"a second command streams its log: {len(lines)} lines, the analysis waits with its result in memory",
              len([line for line in lines if line.startswith("section")]) == len(sections))
    api.end_turn(session, turn)
    show.done("the turn ends")
    return {"sandbox": sandbox, "pid": pid, "token_sha256": told, "module": module, "sections": sections}


def between_turns(suite, api, session, show, kill):
    show.title("Between the turns")
    paused = api.pause(session)
    show.done("PauseSession: the sandbox is frozen", paused.sandbox.state == pb.common.SANDBOX_STATE_PAUSED)
    if not kill:
        return
    before = {name: suite.pid(name) for name in suite.names}
    suite.kill9()
    killed = [pid for pid, words in leftovers.processes(suite.state).items() if "berth-local-spawner" in words]
    show.done("kill -9 of every Berth service: " + ", ".join(f"{name} {pid}" for name, pid in before.items()),
              all(before.values()) and not any(suite.pid(name) for name in suite.names))
    for pid in killed:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass
    suite.restart()
    show.done("they are started again and serve", all(suite.pid(name) != pid for name, pid in before.items()))


def second_turn(api, config, session, first, show):
    show.title("Session A, turn 2")
    turn = api.begin_turn(session, "turn-2")
    show.done("a turn begins")
    answer = api.resolve(session, turn=turn)
    outcome = pb.control.ResolveOutcome.Name(answer.outcome)[len("RESOLVE_OUTCOME_"):].lower()
    show.done(f"the session resolves to the same sandbox ({outcome})",
              answer.session.sandbox.sandbox_id == first["sandbox"] and not answer.lost and
              answer.outcome == pb.control.RESOLVE_OUTCOME_RESUMED)
    running = [each for each in api.list_processes(session) if each.exec_id == "analysis"]
    show.done(f"the background process still runs: pid {first['pid']}",
              len(running) == 1 and running[0].pid == first["pid"] and not running[0].HasField("exited"))
    api.write_file(session, "/workspace/continue", b"", turn=turn)
    # The same exec_id and command again: attaches, never starts twice.
    end = api.exec(session, ANALYSE, turn=turn, exec_id="analysis", detach=True, timeout=0).finish()
    show.done(f"it goes on, ends and says: {end.stdout.decode().strip()}",
              end.started.attached and end.started.pid == first["pid"] and end.exited is not None and end.exited.exit_code == 0 and b"analysed" in end.stdout)
    report = json.loads(api.read_file(session, "/workspace/output/report.json"))
    show.done("ReadFile /workspace/output/report.json")
    show.done("its memory came through: the token it never wrote down in turn 1 has the hash it told then",
              hashlib.sha256(report["token"].encode()).hexdigest() == first["token_sha256"])
    wanted = {name: {"packages": count, "bytes": total} for name, (count, total) in first["sections"].items()}
    got = {name: {"packages": each["packages"], "bytes": each["bytes"]} for name, each in report["sections"].items()}
    show.done(f"the result is right: {len(wanted)} sections, counted here again", got == wanted)
    show.done(f"the package is still there: {first['module']}", module_works(api, session, first["module"], turn=turn))
    table = api.read_file(session, "/workspace/output/report.txt").decode()
    print("\n".join("       " + line for line in table.splitlines()[:5]))
    api.end_turn(session, turn)
    show.done("the turn ends")


def isolated(api, config, session, other, show):
    show.title(f"Session B ({session}) sees nothing of A")
    api.resolve(session, config=config)
    show.done("the session gets a sandbox of its own")
    seen = api.run(session, "ls -A /workspace /workspace/*; test -e /workspace/data.csv", text=True)
    show.done("no file of A", seen.exited.exit_code == 1 and "data.csv" not in seen.stdout_text)
    seen = api.run(session, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '", text=True)
    show.done("no process of A", "analyse.py" not in seen.stdout_text and "cmdline" in seen.stdout_text)
    address = "python3 -c 'import socket,fcntl,struct; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); " \
        "s.connect((\"1.1.1.1\",9)); print(s.getsockname()[0])'"
    mine, theirs = (api.run(each, address, text=True).stdout_text.strip() for each in (session, other))
    tried = api.run(session, ["python3", "-c", f"import socket; socket.create_connection(({theirs!r}, 22), 1)"],
                    text=True, timeout=10)
    show.done(f"another address ({mine}), and A's ({theirs}) cannot be reached from it",
              mine != theirs and tried.exited.exit_code == 1 and "refused" not in tried.stderr_text)
    try:
        found = api.signal(session, "analysis")
    except Failure as failure:
        found = failure.reason != "PROCESS_NOT_FOUND"
    show.done("A's exec_id means nothing here", not found)


def from_snapshot(api, config, source, session, module, show):
    show.title(f"A snapshot of A, and session C ({session}) from it")
    snapshot = api.snapshot(source, display_name="main job")
    show.done(f"CreateSnapshot: {snapshot.snapshot_id}, {snapshot.size_bytes / 1e6:.1f} MB",
              snapshot.state == pb.skills.LEDGER_STATE_ACTIVE)
    answer = api.resolve(session, config=config, image=pb.common.Image(snapshot_id=snapshot.snapshot_id))
    show.done("the session boots from it", answer.outcome == pb.control.RESOLVE_OUTCOME_CREATED)
    show.done("the package is there", module_works(api, session, module))
    done = api.run(session, ["cat", "/workspace/output/report.txt"])
    show.done("and so is A's output", done.exited.exit_code == 0 and b"section" in done.stdout)
    return snapshot.snapshot_id


def delete_all(suite, api, sessions, snapshot, boxes, show):
    show.title("Deleting the sessions")
    for session in sessions:
        api.delete(session)
        show.done(f"DeleteSession {session}")
    if snapshot:
        api.delete_snapshot(snapshot)
        show.done("DeleteSnapshot")
    check_gone(suite, sessions, boxes, api.tenant, show)


def check_gone(suite, sessions, boxes, tenant, show):
    def left():
        return ([words for words in leftovers.processes(suite.state).values()
                 if any(box in words for box in boxes)] +
                [path for path in leftovers.cgroups(suite.state) for box in boxes if box in path] +
                [path for path in leftovers.mounts(suite.state) for box in boxes if box in path] +
                [box for box in leftovers.sandbox_folders(suite.state) if box in boxes])
    try:
        wait_for(lambda: not left(), 10, "")
    except SuiteError:
        show.done(f"left behind: {left()[:5]}", False)
    show.done("no process, mount, cgroup or folder of them is left")
    now = leftovers.links(suite.state)
    show.done("no network link of them is left", not [link for link in now if link not in show.links_before])
    bad = []
    for session in sessions:
        key = f"berth:{{{tenant}}}:s/{session}"
        document = suite.redis_cli("hget", key, "session")
        if document and (json.loads(document)["state"] != "deleted" or int(suite.redis_cli("ttl", key)) < 0):
            bad.append(session)
        if suite.redis_cli("hget", key, "binding"):
            bad.append(session + " (binding)")
    show.done("no session key is left but tombstones that end by themselves", not bad)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--state", required=True)
    parser.add_argument("--tenant", default="default")
    parser.add_argument("--config", default="local")
    parser.add_argument("--no-kill", action="store_true", help="leave the services running between the turns")
    args = parser.parse_args()
    suite = Suite(args.state)
    api = suite.client(args.tenant)
    mark = secrets.token_hex(4)
    a, b, c = (f"demo-{name}-{mark}" for name in "abc")
    show = Show()
    show.links_before = leftovers.links(suite.state)
    try:
        first = first_turn(api, args.config, a, show)
        between_turns(suite, api, a, show, not args.no_kill)
        second_turn(api, args.config, a, first, show)
        isolated(api, args.config, b, a, show)
        snapshot = from_snapshot(api, args.config, a, c, first["module"], show)
        boxes = [api.session(each).sandbox.sandbox_id for each in (a, b, c)]
        delete_all(suite, api, (a, b, c), snapshot, boxes, show)
    except (Failure, SuiteError) as error:
        print(f"\nmain job: {error}", file=sys.stderr)
        return 1
    print(f"\nThe main job is done: {time.monotonic() - show.begin:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

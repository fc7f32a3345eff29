#!/usr/bin/python3
"""t0300-commands - commands of a session through the whole suite: exact bytes, bounded output, no
command twice, none left running."""
import concurrent.futures
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import Failure, TestSuite, pb, wait_for  # noqa: E402
import leftovers  # noqa: E402

S = "commands"
EXITED, SIGNALED = pb.data.EXIT_REASON_EXITED, pb.data.EXIT_REASON_SIGNALED
TIMED_OUT = pb.data.EXIT_REASON_TIMED_OUT


def refusal(call, *args, **more):
    try:
        call(*args, **more)
    except Failure as failure:
        return failure
    raise AssertionError("it was accepted")


def finished(result, code=0):
    tap.equal((result.exited.reason, result.exited.exit_code), (EXITED, code), result.stderr[-300:])
    return result


# A session's first call gives it a sandbox, and an argv is passed on as it is.
def run__argv__passed_on_without_a_shell(suite):
    api = suite.api
    api.resolve(S, config="local")
    done = finished(api.run(S, ["printf", "%s|", "a b", "$HOME", "", "*"]))
    tap.equal(done.stdout, b"a b|$HOME||*|")
    tap.equal(done.exited.stdout_bytes, 13)


# Exit codes and signals are told as the kernel reported them.
def run__exit_code_and_signal__told_exactly(suite):
    for code in (0, 1, 77, 255):
        finished(suite.api.run(S, f"exit {code}"), code)
    done = suite.api.run(S, ["bash", "-c", "kill -SEGV $$"])
    tap.equal((done.exited.reason, done.exited.signal), (SIGNALED, 11))


# A program that is not there is a failure to start, not an exit code of a shell.
def run__no_such_program__spawn_failed(suite):
    done = suite.api.run(S, ["/no/such/program"])
    tap.equal(done.exited.reason, pb.data.EXIT_REASON_SPAWN_FAILED)
    tap.check("no such" in done.exited.message.lower() or "not found" in done.exited.message.lower(), done.exited.message)


# The user is uid 1000 in /workspace, with the environment of design section 7.
def run__user_and_environment__as_promised(suite):
    done = finished(suite.api.run(S, "id -u; pwd; echo $BERTH_TENANT_ID $BERTH_SESSION_ID $BERTH_INPUT_DIR "
                                  "$BERTH_OUTPUT_DIR; echo $MY", env={"MY": "own value"}, text=True))
    tap.equal(done.stdout_text.splitlines(), ["1000", "/workspace",
              f"default {S} /workspace/input /workspace/output", "own value"])


# No stdin is end-of-file at once; stdin given is read to its end.
def run__stdin__absent_is_eof_and_given_is_exact(suite):
    begin = time.monotonic()
    tap.equal(finished(suite.api.run(S, ["cat"])).stdout, b"")
    data = bytes(range(256)) * 4096
    done = finished(suite.api.run(S, ["sha256sum"], stdin=data))
    import hashlib
    tap.equal(done.stdout.split()[0].decode(), hashlib.sha256(data).hexdigest())
    tap.check(time.monotonic() - begin < 5, "it waited")


# Output is bytes, and a code point cut anywhere arrives whole.
def run__bytes_and_cut_utf8__exact(suite):
    every = "python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256))*40)'"
    tap.equal(finished(suite.api.run(S, every)).stdout, bytes(range(256)) * 40)
    cut = "python3 -c 'import os,time; os.write(1,b\"\\xe2\"); time.sleep(0.1); os.write(1,b\"\\x82\\xac\")'"
    done = finished(suite.api.run(S, cut, text=True))
    tap.equal((done.stdout, done.stdout_text), ("\u20ac".encode(), "\u20ac"))
    edge = finished(suite.api.run(S, "python3 -c 'import os; os.write(1, b\"a\"*8191 + \"\\u20ac\".encode())'", text=True))
    tap.equal(edge.stdout_text, "a" * 8191 + "\u20ac")
    bad = finished(suite.api.run(S, "printf 'x\\377y\\0z'", text=True))
    tap.equal((bad.stdout, bad.stdout_text), (b"x\xffy\0z", "x\ufffdy\ufffdz"))
    events = suite.api.exec(S, cut, timeout=10).finish()
    tap.equal(events.stdout, "\u20ac".encode())


# `yes` for ever ends by its timeout, bounded by the caller's cap, and says so.
def run__yes_for_ever__bounded_and_says_so(suite):
    done = suite.api.run(S, ["yes"], max_output_bytes=10_000, timeout=2)
    tap.equal(done.exited.reason, TIMED_OUT)
    tap.check(done.stdout_truncated and len(done.stdout) <= 10_100, len(done.stdout))
    tap.check(done.exited.stdout_bytes > 1_000_000, done.exited.stdout_bytes)
    tap.check(done.stdout.startswith(b"y\ny\n") and done.stdout.endswith(b"y\n"), "head and tail are kept")


# 1 GB of output leaves the memory of every process flat.
def exec__one_gigabyte__memory_flat(suite):
    names = ("dataplane", "adapter-local", "controlplane")
    finished(suite.api.run(S, "head -c 50M /dev/zero | wc -c"))
    before = {name: suite.rss_kib(name) for name in names}
    total, peak = 0, dict(before)
    for event in suite.api.exec(S, "head -c 1000000000 /dev/zero", timeout=120, rpc_timeout=150, keep=False):
        if event.WhichOneof("event") == "stdout":
            total += len(event.stdout)
            if total % 50_000_000 < len(event.stdout):
                peak = {name: max(peak[name], suite.rss_kib(name)) for name in names}
        elif event.HasField("exited"):
            tap.equal((event.exited.reason, event.exited.exit_code), (EXITED, 0))
            tap.equal(event.exited.stdout_bytes, 1_000_000_000)
    tap.equal(total, 1_000_000_000)
    grown = {name: peak[name] - before[name] for name in names}
    tap.check(max(grown.values()) <= 32 * 1024, "grown by KiB:", grown)
    supervisors = [pid for pid, words in leftovers.processes(suite.state).items() if "berth-local-supervisor" in words]
    tap.check(supervisors, "no supervisor found")
    for pid in supervisors:
        with open(f"/proc/{pid}/status") as file:
            rss = next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
        tap.check(rss < 64 * 1024, f"supervisor has {rss} KiB")


# A reader that does not read stops the command's output, not the memory's bounds.
def exec__reader_stalls__memory_bounded_and_resumes(suite):
    events = suite.api.exec(S, "head -c 200000000 /dev/zero", timeout=60, rpc_timeout=90, keep=False).until_started()
    before = suite.rss_kib("dataplane")
    time.sleep(1)  # what is tested is that nothing happens meanwhile
    grown = suite.rss_kib("dataplane") - before
    tap.check(grown <= 32 * 1024, f"grown by {grown} KiB")
    total = sum(len(event.stdout) for event in events)
    tap.equal(total, 200_000_000)


# A background child that holds the stream does not hold the answer.
def run__background_child_holds_the_stream__answered(suite):
    begin = time.monotonic()
    done = finished(suite.api.run(S, "sleep 300 & echo done", timeout=60))
    took = time.monotonic() - begin
    tap.check(done.stdout == b"done\n" and done.exited.stream_held_open, done)
    tap.check(took < 5, f"answered after {took:.1f} s")
    finished(suite.api.run(S, "pkill -x sleep"))


# A timeout kills the whole tree: children that left the session or ignore TERM, too.
def run__timeout__kills_the_whole_tree(suite):
    tree = ("trap '' TERM; setsid bash -c 'trap \"\" TERM; while :; do sleep 0.05; done' & "
            "(setsid sleep 4242 &) ; while :; do :; done")
    begin = time.monotonic()
    done = suite.api.run(S, ["bash", "-c", tree], timeout=1)
    tap.equal(done.exited.reason, TIMED_OUT)
    tap.check(time.monotonic() - begin < 8, "it took too long")
    left = suite.api.run(S, "ps -eo args | grep -c '[s]leep 4242\\|[w]hile :'", text=True).stdout_text.strip()
    tap.equal(left, "0", "processes of the tree that are left")


# A repeated exec_id does not run twice: while it runs, after it ended, and for another command.
def exec__repeated_id__runs_once(suite):
    api = suite.api
    what = "echo once >> /workspace/count; sleep 1; wc -l < /workspace/count"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: api.run(S, what, exec_id="once", text=True), range(8)))
    tap.equal({answer.stdout_text.strip() for answer in answers}, {"1"})
    tap.equal(api.run(S, what, exec_id="once", text=True).stdout_text.strip(), "1", "after its end")
    tap.equal(api.run(S, "wc -l < /workspace/count", text=True).stdout_text.strip(), "1", "the file")
    tap.equal(refusal(api.run, S, "echo other", exec_id="once").reason, "EXEC_ID_REUSED")
    events = api.exec(S, what, exec_id="once").finish()
    tap.equal((events.exited.exit_code, events.stdout.strip()), (0, b"1"))


# Input sent in pieces arrives once each, in order; a repeat with its offset is not fed twice.
def sendinput__repeated_piece__fed_once(suite):
    api = suite.api
    events = api.exec(S, ["cat"], exec_id="typed", keep_stdin_open=True, timeout=30).until_started()
    tap.equal(api.send_input(S, "typed", b"one "), 4)
    tap.equal(api.send_input(S, "typed", b"two ", offset=4), 8)
    tap.equal(api.send_input(S, "typed", b"two ", offset=4), 8)
    api.send_input(S, "typed", b"three", offset=8, end_of_file=True)
    tap.equal(events.finish().stdout, b"one two three")
    tap.equal(events.exited.exit_code, 0)


# Signal reaches the command; one that has ended or never was is an answer.
def signal__running_ended_unknown__existed_or_not(suite):
    api = suite.api
    events = api.exec(S, ["sleep", "60"], exec_id="sleeper", timeout=90).until_started()
    tap.check(api.signal(S, "sleeper", 15), "it existed")
    events.finish()
    tap.equal((events.exited.reason, events.exited.signal), (SIGNALED, 15))
    tap.check(not api.signal(S, "sleeper", 15), "it has ended")
    tap.check(not api.signal(S, "never-was", 15), "it never was")


# Cancelling the call ends the command; with detach it goes on and is listed.
def exec__cancelled__ends_unless_detached(suite):
    api = suite.api
    api.exec(S, ["sleep", "4343"], exec_id="cancelled", timeout=120).until_started().cancel()
    api.exec(S, ["sleep", "4444"], exec_id="kept", detach=True, timeout=0).until_started().cancel()

    def running():
        return {each.exec_id for each in api.list_processes(S) if not each.HasField("exited")}
    wait_for(lambda: "cancelled" not in running(), 20, "the cancelled command ends")
    tap.check("kept" in running(), running())
    tap.check(api.signal(S, "kept", 9), "the kept one is there")
    wait_for(lambda: "kept" not in running(), 5, "the kept command ends by KILL")


# Root is refused where the config does not allow it.
def run__root_without_leave__refused(suite):
    tap.equal(refusal(suite.api.run, S, "id", account=pb.data.ACCOUNT_ROOT).reason, "ROOT_REFUSED")


# Timeouts that no command may have are refused before anything runs.
def run__timeout_zero_or_over_the_maximum__refused(suite):
    for seconds in (0, 10 * 366 * 86400):
        failure = refusal(suite.api.run, S, "true", timeout=seconds)
        tap.equal((failure.code, failure.metadata.get("field")), ("INVALID_ARGUMENT", "command.timeout"))


# 500 commands with empty input, 16 at a time: each ends at once, and no descriptor is left.
def run__five_hundred_at_once__all_answered_and_no_descriptor_left(suite):
    def descriptors():
        return {name: len(os.listdir(f"/proc/{suite.pid(name)}/fd")) for name in ("dataplane", "adapter-local")}
    suite.api.run(S, ["cat"])
    before = descriptors()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: suite.api.run(S, ["cat"]), range(500)))
    tap.equal({(a.exited.reason, a.exited.exit_code, a.stdout) for a in answers}, {(EXITED, 0, b"")})
    wait_for(lambda: all(descriptors()[n] <= before[n] + 4 for n in before), 5, f"descriptors as before ({before})")


# A sandbox without memory kills the command, says why, and lives on.
def run__out_of_memory__told_and_sandbox_lives(suite):
    api = suite.api
    limited = pb.common.SessionSpec(config_id="local", resources=pb.common.Resources(memory_bytes=128 << 20))
    api.resolve("small", spec=limited)
    done = api.run("small", ["python3", "-c", "x = bytearray(1 << 30)"], timeout=30)
    tap.check(done.exited.reason in (pb.data.EXIT_REASON_OUT_OF_MEMORY, EXITED), done.exited)
    tap.check(done.exited.exit_code != 0 or done.exited.reason != EXITED, "it was allowed")
    tap.equal(done.exited.reason, pb.data.EXIT_REASON_OUT_OF_MEMORY)
    finished(api.run("small", "true"))


class Suite(TestSuite):
    def __enter__(self):
        super().__enter__()
        self.api = self.client()
        return self


if __name__ == "__main__":
    tap.main(globals(), Suite)

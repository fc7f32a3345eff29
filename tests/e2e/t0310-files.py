#!/usr/bin/python3
"""t0310-files - files of a session through the whole suite: exact bytes, whole or not at all, and
never outside the sandbox.

Sanitized, too."""
import hashlib
import os
import sys

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import Failure, TestSuite, pb  # noqa: E402

S = "files"


def refusal(call, *args, **more):
    try:
        call(*args, **more)
    except Failure as failure:
        return failure
    raise AssertionError("it was accepted")


# Every byte value and every size around the message limits comes back as it went in.
def write_read__every_byte_and_size__exact(suite):
    api = suite.api
    api.resolve(S, config="local")
    for data in (b"", b"\0", b"\x89PNG", bytes(range(256)) * 100, os.urandom((4 << 20) - 1), os.urandom(4 << 20),
                 os.urandom((4 << 20) + 1)):
        entry = api.write_file(S, "/workspace/x", data)
        tap.equal((entry.size_bytes, entry.uid, entry.gid, entry.type), (len(data), 1000, 1000, pb.data.FILE_TYPE_REGULAR))
        tap.check(api.read_file(S, "/workspace/x") == data, f"{len(data)} bytes differ")
        tap.equal(api.stat(S, "/workspace/x", with_sha256=True).sha256, hashlib.sha256(data).digest())
    tap.equal(api.read_file(S, "/workspace/x", offset=10, length=7), data[10:17])
    tap.equal(api.run(S, "stat -c '%u %a' x && echo more >> x && wc -c < x").stdout.split()[-1],
              str(len(data) + 5).encode(), "the user's own commands may write it")


# A file takes its name only when all of it has come, and what was there before stays until then.
def write__stream_broken_off__old_content_stays(suite):
    api = suite.api
    api.write_file(S, "/workspace/whole", b"old")

    def broken():
        yield b"new " * 1000
        raise RuntimeError("the client breaks off")
    try:
        api.write_file(S, "/workspace/whole", broken())
    except (Failure, RuntimeError, grpc.RpcError):
        pass
    refusal(api.write_file, S, "/workspace/whole", b"without its last message", done=False)
    tap.equal(api.read_file(S, "/workspace/whole"), b"old")
    names = [entry.path for entry in api.list_dir(S, "/workspace").entries]
    tap.check(not [name for name in names if "whole" in name and name != "/workspace/whole"], names)


# The sum at the end is checked.
def write__wrong_sha256__refused(suite):
    api, ref = suite.api, suite.api.ref(S)
    failure = refusal(api.files.WriteFile, iter([
        pb.data.WriteFileRequest(open=pb.data.WriteFileOpen(session=ref, path="/workspace/sum")),
        pb.data.WriteFileRequest(data=b"abc"),
        pb.data.WriteFileRequest(done=pb.data.FileDone(size_bytes=3, sha256=b"\1" * 32))]))
    tap.equal(failure.code, "INVALID_ARGUMENT")
    tap.equal(refusal(api.stat, S, "/workspace/sum").reason, "FILE_NOT_FOUND")


# create_only and if_etag refuse what they are there to refuse.
def write__create_only_and_etag__guarded(suite):
    api = suite.api
    entry = api.write_file(S, "/workspace/e", b"1")
    tap.equal(refusal(api.write_file, S, "/workspace/e", b"2", create_only=True).reason, "FILE_EXISTS")
    tap.equal(refusal(api.write_file, S, "/workspace/e", b"2", if_etag="0-0-0").code, "ABORTED")
    api.write_file(S, "/workspace/e", b"22", if_etag=entry.etag)
    tap.equal(refusal(api.read_file, S, "/workspace/e", if_etag=entry.etag).reason, "FILE_CHANGED")


# /workspace/input refuses writes; what is not the user's is denied; what is not there is not found.
def write__read_only_and_foreign_places__refused(suite):
    api = suite.api
    tap.equal(refusal(api.write_file, S, "/workspace/input/x", b"1").reason, "PATH_READ_ONLY")
    for path in ("/etc/shadow", "/root/x", "/usr/bin/x", "/proc/1/mem"):
        failure = refusal(api.write_file, S, path, b"1")
        tap.equal(failure.code, "PERMISSION_DENIED", path, failure)
    tap.equal(refusal(api.read_file, S, "/etc/shadow").reason, "FILE_ACCESS_DENIED")
    tap.equal(refusal(api.read_file, S, "/workspace/none").reason, "FILE_NOT_FOUND")
    tap.equal(refusal(api.read_file, S, "/workspace").reason, "NOT_A_FILE")
    tap.equal(refusal(api.list_dir, S, "/etc/passwd").reason, "NOT_A_DIRECTORY")


# Links of a hostile sandbox lead nowhere outside it, and a FIFO does not block.
def read__links_and_fifos_of_a_hostile_sandbox__harmless(suite):
    api = suite.api
    api.run(S, "mkdir -p h; cd h; ln -sf /etc/shadow shadow; ln -sf ../../../../../../etc/hostname up; mkfifo pipe; "
            "ln -sf loop loop; ln -sf /proc/1/root/etc/hostname proc; ln -sf / root")
    with open("/etc/hostname", "rb") as file:
        host = file.read().strip()
    for name in ("shadow", "up", "pipe", "loop", "proc", "root/etc/shadow", "root/etc/hostname"):
        try:
            data = api.read_file(S, "/workspace/h/" + name, timeout=5)
        except Failure as failure:
            tap.check(failure.code in ("NOT_FOUND", "PERMISSION_DENIED", "FAILED_PRECONDITION"), name, failure)
        else:
            tap.check(not host or host not in data, f"{name} shows the host's {data!r}")
    entry = api.stat(S, "/workspace/h/shadow")
    tap.equal((entry.type, entry.link_target), (pb.data.FILE_TYPE_SYMLINK, "/etc/shadow"))


# Directories: made with those above, listed in order and in pages, moved, removed.
def dirs__make_list_move_remove__as_said(suite):
    api = suite.api
    tap.check(api.make_dir(S, "/workspace/d/e/f").created, "new")
    tap.check(not api.make_dir(S, "/workspace/d/e/f").created, "again")
    api.run(S, "cd d; for i in $(seq -w 25); do echo $i > n$i; done")
    seen, token = [], ""
    while True:
        page = api.list_dir(S, "/workspace/d", page_size=10, page_token=token)
        seen += [entry.path for entry in page.entries]
        token = page.next_page_token
        if not token:
            break
    tap.equal(seen, ["/workspace/d/e"] + [f"/workspace/d/n{i:02}" for i in range(1, 26)])
    api.move(S, "/workspace/d/n01", "/workspace/d/m")
    tap.equal(refusal(api.move, S, "/workspace/d/n02", "/workspace/d/m").reason, "FILE_EXISTS")
    api.move(S, "/workspace/d/n02", "/workspace/d/m", overwrite=True)
    tap.equal(refusal(api.remove, S, "/workspace/d").reason, "DIRECTORY_NOT_EMPTY")
    tap.check(api.remove(S, "/workspace/d", recursive=True), "existed")
    tap.check(not api.remove(S, "/workspace/d", recursive=True), "is gone")


# A name that is not UTF-8 is shown whole in raw_path, not guessed.
def list__name_not_utf8__shown_raw(suite):
    suite.api.run(S, "mkdir -p raw; cd raw; touch $'bad\\xff'")
    entry, = suite.api.list_dir(S, "/workspace/raw").entries
    tap.check(entry.raw_path.endswith(b"bad\xff"), entry)


# A tree 300 deep and a page of a big directory do not hurt.
def list__deep_and_wide__answered(suite):
    api = suite.api
    api.run(S, "mkdir -p wide; cd wide; seq 5000 | xargs touch; cd ..; p=deep; for i in $(seq 300); do p=$p/d; done; mkdir -p $p",
            timeout=60)
    tap.equal(len(api.list_dir(S, "/workspace/wide", page_size=1000).entries), 1000)
    tap.check(api.list_dir(S, "/workspace/deep", depth=32, page_size=1000).entries, "some")
    tap.check(api.remove(S, "/workspace/deep", recursive=True), "removed")


# 300 MB each way: exact, and no process keeps it in memory.
def write_read__large__exact_and_memory_flat(suite):
    api = suite.api
    block = os.urandom(1 << 20)
    count = 300
    before = {name: suite.rss_kib(name) for name in ("dataplane", "adapter-local")}
    api.write_file(S, "/workspace/big", (block for _ in range(count)), timeout=120)
    digest, wanted = hashlib.sha256(), hashlib.sha256()
    for chunk in api.read_chunks(S, "/workspace/big", timeout=120):
        digest.update(chunk)
    for _ in range(count):
        wanted.update(block)
    tap.equal(digest.hexdigest(), wanted.hexdigest())
    suite.check_growth(before, 32 * 1024)
    api.remove(S, "/workspace/big")


class Suite(TestSuite):
    def __enter__(self):
        super().__enter__()
        self.api = self.client()
        return self


if __name__ == "__main__":
    tap.main(globals(), Suite)

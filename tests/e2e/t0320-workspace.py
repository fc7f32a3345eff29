#!/usr/bin/python3
"""t0320-workspace - whole workspaces out of a session and into one, as tars that other programs make
and read, from sandboxes and tars that mean no good."""
import io
import os
import subprocess
import sys
import tarfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import Failure, TestSuite, pb  # noqa: E402

FROM, INTO = "ws-from", "ws-into"
END = pb.data.ImportWorkspaceRequest(done=pb.data.FileDone())
MAKE = r"""set -e; umask 022
mkdir -p a/b 'a/sp ace' empty closed locked
printf 'one\n' > a/b/one; chmod 0754 a/b/one; touch -d '2001-02-03 04:05:06.789012345Z' a/b/one
ln a/b/one a/hard; ln -s b/one a/soft; ln -s /etc/passwd a/out; ln -s loop a/loop
printf x > "$(printf 'not\377utf8')"
printf x > "$(head -c 250 /dev/zero | tr '\0' n)"
truncate -s 1T sparse; printf middle | dd of=sparse bs=1 seek=500000000000 conv=notrunc status=none
mkfifo fifo
printf suid > suid; chmod 6755 suid
printf secret > unreadable; chmod 0 unreadable
printf in > closed/in; chmod 0555 closed; printf in > locked/in; chmod 0 locked
d=.; for i in $(seq 1 20); do d=$d/$(printf '%0240d' $i); done; mkdir -p "${d#./}" 2>/dev/null || {
  (for i in $(seq 1 20); do n=$(printf '%0240d' $i); mkdir $n; cd $n; done; echo deep > deep); }
touch -d '1999-12-31 23:59:59Z' empty a
"""
SHOW = r"""find . -not -type p \( -type d -printf '%P|%y|%m|%T@\n' -o -printf '%P|%y|%m|%T@|%s|%l|%n\n' \) | \
sed -E 's/0{200,}/0/g' | grep -av '^|' | LC_ALL=C sort; cat a/b/one a/hard a/soft closed/in; \
dd if=sparse bs=1 skip=500000000000 count=6 status=none; du -k sparse | cut -f1"""


def refusal(call, *args, **more):
    try:
        call(*args, **more)
    except Failure as failure:
        return failure
    raise AssertionError("it was accepted")


def shell(suite, session, text):
    result = suite.api.run(session, text)
    tap.equal(result.exited.exit_code, 0, result.stderr.decode(errors="replace"))
    return result.stdout


def tar_of(*members):
    """(name, type, content or link) each; "." closes what it is unpacked into."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, what in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0 if name == "." else 0o755
            if kind == tarfile.REGTYPE:
                info.size = len(what)
                tar.addfile(info, io.BytesIO(what))
            else:
                info.linkname = what
                tar.addfile(info)
    return out.getvalue()


# Modes, times to the nanosecond, links of both kinds, names of any bytes, holes, closed directories,
# paths beyond PATH_MAX: all of it is the same in another session. What cannot go is named.
def export_import__everything_a_workspace_can_hold__same_in_another_session(suite):
    api = suite.api
    for session in (FROM, INTO):
        api.resolve(session, config="local")
    shell(suite, FROM, MAKE)
    tar, last = api.export_workspace(FROM)
    tap.check(len(tar) < 1 << 20, f"holes were sent: {len(tar)}")
    tap.equal([(lost.path, lost.reason) for lost in last.lost], [("fifo", "a device, FIFO or socket")])
    answer = api.import_workspace(INTO, tar)
    tap.equal((answer.lost_count, answer.files), (0, last.files))
    before, after = (shell(suite, session, "chmod u+rx locked; " + SHOW).splitlines() for session in (FROM, INTO))
    before = [line.replace(b"suid|f|6755", b"suid|f|755") for line in before]
    tap.equal([line for line in after if line not in before], [line for line in before if line not in after])
    tap.equal(after, before, "the workspace there is not the one here")
    tap.equal(shell(suite, INTO, "chmod u+r unreadable; cat unreadable; find . -not -user 1000 | wc -l"), b"secret0\n")


# GNU tar reads what is exported, and what it writes is imported.
def export__gnu_tar__reads_it_and_is_read(suite):
    tar, _ = suite.api.export_workspace(FROM)
    listing = subprocess.run(["tar", "tvf", "-"], input=tar, stdout=subprocess.PIPE, check=True).stdout.decode()
    tap.check("a/hard link to a/b/one" in listing or "a/b/one link to a/hard" in listing, listing[:2000])
    tap.check("1099511627776" in listing, "the sparse file has another size")
    shell(suite, INTO, "tar --format=gnu -cf /tmp/x.tar --exclude=./sparse --exclude=fifo . 2>/dev/null; true")
    made = suite.api.read_file(INTO, "/tmp/x.tar")
    shell(suite, INTO, "chmod -R u+rwx closed locked; find . -mindepth 1 -maxdepth 1 ! -name input ! -name output -exec rm -rf {} +")
    tap.equal(suite.api.import_workspace(INTO, made).lost_count, 0)
    tap.equal(shell(suite, INTO, "cat a/soft; stat -c %h a/hard"), b"one\n2\n")


# A tar that means no good gets nothing outside of the workspace, nothing through a link, and no device.
def import__hostile_tar__stays_inside(suite):
    api = suite.api
    shell(suite, INTO, "rm -rf /tmp/o && mkdir /tmp/o && ln -s /tmp/o away && mkdir -p full/inner")
    answer = api.import_workspace(INTO, tar_of(
        ("../up", tarfile.REGTYPE, b"x"), ("/rooted", tarfile.REGTYPE, b"x"), ("a/../../up", tarfile.REGTYPE, b"x"),
        ("away/in", tarfile.REGTYPE, b"x"), ("esc", tarfile.SYMTYPE, "/tmp/o"), ("esc/in", tarfile.REGTYPE, b"x"),
        ("dev", tarfile.CHRTYPE, ""), ("pipe", tarfile.FIFOTYPE, ""), ("hl", tarfile.LNKTYPE, "/etc/passwd"),
        ("hl2", tarfile.LNKTYPE, "esc/passwd"), ("input/x", tarfile.REGTYPE, b"x"), ("full", tarfile.REGTYPE, b"x"),
        (".", tarfile.REGTYPE, b"x"), ("./fine/./x", tarfile.REGTYPE, b"fine")))
    reasons = {lost.path: lost.reason for lost in answer.lost}
    tap.equal(sorted(reasons), sorted(["../up", "a/../../up", "away/in", "esc/in", "dev", "pipe", "hl", "hl2",
                                       "input/x", "full", "."]))
    tap.equal(answer.files, 3, "what is lost is not counted as unpacked")
    tap.equal(shell(suite, INTO, "ls -A /tmp/o; cat fine/x; cat rooted; ls -d /rooted /up 2>/dev/null; true"), b"finex")


# A tar that closes the workspace itself, before what is in it and behind, leaves it to its user.
def import__workspace_itself_closed__stays_of_use(suite):
    suite.api.import_workspace(INTO, tar_of((".", tarfile.DIRTYPE, ""), ("under-it", tarfile.REGTYPE, b"in"), (".", tarfile.DIRTYPE, "")))
    tap.equal(shell(suite, INTO, "stat -c %a .; cat under-it; echo more > under-it"), b"700\nin")


# What is not a tar, is cut off, or has another digest is refused; half a file is not left.
def import__cut_off_or_spoilt__refused(suite):
    api = suite.api
    good = tar_of(("big", tarfile.REGTYPE, os.urandom(200000)))
    for tar in (b"not a tar" * 100, good[:1000], good[:100000]):
        failure = refusal(api.import_workspace, INTO, tar)
        tap.equal((failure.reason, failure.metadata["field"]), ("FIELD_INVALID", "tar"))
    for messages, field in (([END], "tar"), ([END, pb.data.ImportWorkspaceRequest(tar_data=good)], "tar_data"), ([END, END], "done")):
        start = pb.data.ImportWorkspaceRequest(open=pb.data.ImportOpen(session=api.ref(INTO)))
        tap.equal(refusal(api.workspaces.ImportWorkspace, iter([start] + messages)).metadata["field"], field)
    tap.equal(refusal(api.import_workspace, INTO, good, done=False).metadata["field"], "done")
    tap.equal(shell(suite, INTO, "ls big 2>/dev/null; true"), b"big\n", "all of it came but for the last message")
    shell(suite, INTO, "rm big")
    refusal(api.import_workspace, INTO, good[:100000])
    tap.equal(shell(suite, INTO, "ls big 2>/dev/null; true"), b"")


# A session without a sandbox has nothing to export, and gets none by being asked.
def export__no_sandbox__none_is_made(suite):
    tap.equal(refusal(suite.api.export_workspace, "ws-none").reason, "SESSION_NOT_FOUND")


class Suite(TestSuite):
    def __enter__(self):
        super().__enter__()
        self.api = self.client()
        return self


if __name__ == "__main__":
    tap.main(globals(), Suite)

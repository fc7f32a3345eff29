"""process.py - programs that a conformance test starts: servers that say "ready PORT", and clients."""
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

from tap import Skip

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib", "foreign-peers")
_folders = {}


def to_case_log():
    """Under tests/run each case is counted: TAP goes to the file that it reads."""
    path = os.environ.get("CK_TAP_LOG_FILE_NAME")
    if path:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.close(log)


def foreign(kind):
    """The folder of other people's programs of a kind, or Skip."""
    if kind not in _folders:
        done = subprocess.run([TOOL, kind], capture_output=True, text=True)
        _folders[kind] = (done.returncode, (done.stdout if done.returncode == 0 else done.stderr).strip())
    code, text = _folders[kind]
    if code:
        raise Skip(text.splitlines()[-1] if text else f"foreign-peers {kind}: exit {code}")
    return text


def finish(command, environment=None, timeout=60):
    """Runs a program to its end: (exit code, all it said)."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          text=True, errors="replace", timeout=timeout, env=os.environ | (environment or {}))
    return done.returncode, done.stdout


class Peer:
    """A server. A command with "{port}" is given a free one, and is ready when it listens there."""

    def __init__(self, command, environment=None):
        self.log = tempfile.TemporaryFile()
        self.port = None
        if "{port}" in command:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
        command = [str(self.port) if word == "{port}" else word for word in command]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=self.log, text=True,
                                        stdout=self.log if self.port else subprocess.PIPE,
                                        env=os.environ | (environment or {}))
        self.by_port = self.port is not None
        if self.by_port:
            self.wait_port()
        else:
            line = self.process.stdout.readline().split()
            if len(line) < 2 or line[0] != "ready":
                self.end()
                raise AssertionError(f"{command[0]} did not start: {self.tail()}")
            self.port = int(line[1])
            self.tls_port = int(line[2]) if len(line) > 2 else -1

    def wait_port(self):
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    self.end()
                    raise AssertionError(f"{self.process.args[0]} does not listen: {self.tail()}") from None
                time.sleep(0.05)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def status(self, field):
        """A line of /proc/PID/status, in its unit."""
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(field + ":"))

    def tail(self):
        self.log.seek(0)
        return self.log.read()[-800:].decode(errors="replace")

    def end(self):
        """True: it ended by itself, with exit code 0, when its standard input did."""
        if self.by_port and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            return self.process.wait(30) == 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            print(f"{self.process.args[0]} had to be killed", file=sys.stderr)
            return False

#!/usr/bin/python3
"""hostile.py - peers that do not keep to HTTP/2 against a server of common/rpc, by hand-made frames:
what the server takes of memory stays bounded, and a well-behaved client is answered all the while, over
the connection it has and over new ones.

usage: hostile.py SERVER CLIENT [PART...]     PART: of the names of cases
"""
import json
import os
import random
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "lib"), HERE]
import tap  # noqa: E402
from h2 import (ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE,  # noqa: E402
                PING, PREFACE, RST_STREAM, SETTINGS, Connection, frame, goaway, indexed, integer, literal, request,
                request_headers, setting)
from process import Peer, to_case_log  # noqa: E402

SERVER, CLIENT = map(os.path.abspath, sys.argv[1:3])  # meson gives them from its build folder
del sys.argv[1:3]
# Sanitizers are slow, and keep what was freed: there only "it answers" is judged.
ASAN = "asan" in SERVER
WORST_MS = 20000 if ASAN else 10000
CROWD = 2000 if ASAN else 10000
_folder = []
UNARY = "/grpc.testing.TestService/UnaryCall"


class Context:
    def __enter__(self):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return self

    def __exit__(self, *_):
        pass


def certificate():
    """A folder with one for this run; the attackers do not look at it."""
    if not _folder:
        _folder.append(tempfile.TemporaryDirectory())
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", "/CN=hostile", "-keyout", "server.key", "-out", "server.pem"],
                       cwd=_folder[0].name, check=True, capture_output=True)
    return _folder[0].name


class Attacked:
    """A server, a witness that calls it every 20 ms, and what the server may grow by meanwhile."""

    def __init__(self, limit_mib, *options, tls=False):
        self.limit_mib, self.options, self.connections, self.tls = limit_mib, options, [], tls

    def __enter__(self):
        words = [SERVER, *self.options, "127.0.0.1:0"]
        if self.tls:
            words[1:1] = ["--tls=" + certificate()]
            words.append("tls:127.0.0.1:0")
        self.server = Peer(words)
        self.port = self.server.port
        self.witness = subprocess.Popen(["/usr/bin/python3", os.path.join(HERE, "witness.py"), str(self.port)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        tap.equal(self.witness.stdout.readline(), "ready\n")
        with open(f"/proc/{self.server.process.pid}/clear_refs", "w") as file:
            file.write("5")
        self.before = self.server.status("VmRSS")
        return self

    def connect(self, raw=False, settings=b""):
        connection = Connection(self.server.tls_port if self.tls else self.port, raw, settings, self.tls)
        self.connections.append(connection)
        return connection

    def wait_descriptors(self, good):
        """Until the server has so many open."""
        end = time.monotonic() + 20
        while not good(n := len(os.listdir(f"/proc/{self.server.process.pid}/fd"))):
            tap.check(time.monotonic() < end, n, "descriptors are open after 20 s")
            time.sleep(0.05)

    def send_until_cut(self, connection, chunk, times):
        """True: the server hung up before all was sent."""
        connection.socket.settimeout(10)
        return not all(connection.send(chunk) for _ in range(times)) or connection.closed(2)

    def __exit__(self, kind, *_):
        try:
            said, _ = self.witness.communicate("", timeout=60)
            grown = (self.server.status("VmHWM") - self.before) / 1024
        finally:
            if self.witness.poll() is None:
                self.witness.kill()
                self.witness.wait()
            for connection in self.connections:
                connection.close()
            well = self.server.end()
        if kind:
            return
        seen = json.loads(said)
        worst = max(seen["kept"]["worst_ms"], seen["fresh"]["worst_ms"])
        print(f"grew {grown:.1f} MiB (at most {self.limit_mib}); witness: {seen['kept']['n']} calls, "
              f"{seen['fresh']['n']} on new connections, worst {worst:.0f} ms", file=sys.stderr)
        tap.check(well, "the server did not end well:", self.server.tail())
        tap.equal(seen["failed"], [], "the witness was not answered")
        tap.check(worst <= WORST_MS, f"the witness waited {worst:.0f} ms")
        tap.check(ASAN or grown <= self.limit_mib, f"grew by {grown:.1f} MiB, more than {self.limit_mib}")


# ------------------------------------------------------------------------ slow ones

# 500 connections stop within the preface.
def slow_loris__half_a_preface__costs_little(_):
    with Attacked(16) as attack:
        for _ in range(500):
            attack.connect(raw=True).send(PREFACE[:10])
        time.sleep(1)  # the length of the attack


# 200 connections send one call's headers a byte at a time.
def slow_loris__headers_dripped__costs_little(_):
    with Attacked(24) as attack:
        connections = [attack.connect() for _ in range(200)]
        headers = frame(HEADERS, 0, 1, literal("x", "y" * 8000))
        for at in range(200):
            for connection in connections:
                connection.send(headers[at:at + 1])


# 10,000, ten times the connections there is room for: whoever is silent makes room for who is not.
def connections__10000_idle__others_get_in(_):
    with Attacked(64) as attack:
        for _ in range(CROWD):
            attack.connect()
        end = time.monotonic() + 20
        while (alive := sum(1 for connection in attack.connections if not connection.closed(0))) > 1024:
            tap.check(time.monotonic() < end, alive, "connections are open")


# As many as the process has descriptors for, all kept.
def connections__10000_where_all_may_stay__bounded(_):
    with Attacked(256, "--max_connections=20000") as attack:
        for _ in range(CROWD):
            attack.connect()


# A connection with a call in progress is not the one that makes room.
def connections__busy_ones__not_evicted(_):
    with Attacked(64) as attack:
        busy = [attack.connect() for _ in range(50)]
        for connection in busy:
            connection.send(frame(HEADERS, END_HEADERS, 1, request_headers("/grpc.testing.TestService/FullDuplexCall")))
        time.sleep(1.5)  # longer than a silent one is left alone
        for _ in range(1500):
            attack.connect()
        for connection in busy:
            tap.check(not connection.closed(0), "a busy connection was closed")


# Peers that vanish without a word, calls open: nobody answers the pings, the connections go.
def half_open__pings_unanswered__closed(_):
    with Attacked(24, "--keepalive_ms=1500") as attack:
        for _ in range(100):
            connection = attack.connect()
            connection.send(frame(HEADERS, END_HEADERS, 1, request_headers("/grpc.testing.TestService/FullDuplexCall")))
        attack.wait_descriptors(lambda n: n > 100)
        attack.wait_descriptors(lambda n: n < 60)


# ---------------------------------------------------------------------------- floods

def resets(first, n):
    return b"".join(frame(HEADERS, END_HEADERS, first + 2 * i, request_headers()) +
                    frame(RST_STREAM, 0, first + 2 * i, struct.pack(">I", 8)) for i in range(n))


def reset_flood(attack, chunks):
    connection = attack.connect()
    connection.socket.settimeout(10)
    for at in range(chunks):
        if not connection.send(resets(1 + at * 1000, 500)):
            return True
    return connection.closed(2)


# Rapid reset: 100,000 calls opened and cancelled at once. (Unguarded: 1.2 GiB, silence for 10 s.)
def rapid_reset__one_connection__cut(_):
    with Attacked(64) as attack:
        tap.check(reset_flood(attack, 200), "it was not cut")


# The same from 20 connections at once.
def rapid_reset__many_connections__cut(_):
    with Attacked(128) as attack:
        threads = [threading.Thread(target=reset_flood, args=(attack, 40)) for _ in range(8 if ASAN else 20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


# And within TLS, where the frames are seen once they are decrypted.
def rapid_reset__within_tls__cut(_):
    with Attacked(64, tls=True) as attack:
        tap.check(reset_flood(attack, 200), "it was not cut")


# A ping flood, too.
def ping_flood__within_tls__cut(_):
    with Attacked(128, tls=True) as attack:
        tap.check(attack.send_until_cut(attack.connect(), frame(PING, 0, 0, b"12345678") * 500, 1000), "it was not cut")


# What a busy client cancels by right: 500 calls at once, plain and within TLS.
def rapid_reset__few__borne(_):
    for tls in (False, True):
        with Attacked(64, tls=tls) as attack:
            connection = attack.connect()
            connection.send(resets(1, 500))
            tap.check(not connection.closed(1), "a client that cancelled 500 calls was cut", tls)


def flood(data, limit_mib, cut):
    with Attacked(limit_mib) as attack:
        was_cut = attack.send_until_cut(attack.connect(), data * 500, 1000)
        tap.equal(was_cut, cut, "cut")


# Settings without end, none of the acknowledgements read.
def settings_flood__answers_unread__cut(_):
    flood(frame(SETTINGS, 0, 0, setting(INITIAL_WINDOW_SIZE, 65535)), 64, True)


# Pings without end.
def ping_flood__not_acknowledged__cut(_):
    flood(frame(PING, 0, 0, b"12345678"), 128, True)


# Answers to pings that nobody sent.
def ping_flood__acknowledgements__cut(_):
    flood(frame(PING, ACK, 0, b"12345678"), 64, True)


# Empty frames of data for a call.
def data_flood__empty_frames__cut(_):
    with Attacked(64) as attack:
        connection = attack.connect()
        connection.send(frame(HEADERS, END_HEADERS, 1, request_headers("/grpc.testing.TestService/FullDuplexCall")))
        tap.check(attack.send_until_cut(connection, frame(DATA, 0, 1) * 500, 1000), "it was not cut")


# A client that says goodbye, and again, 500,000 times.
def goaway_storm__from_a_client__cut(_):
    flood(goaway(text=b"x" * 20), 64, True)


# ---------------------------------------------------------------------------- headers

# 4 KB remembered by the compressor's table and named 16,000 times in each of many frames.
def header_bomb__table_entry_repeated__bounded(_):
    with Attacked(48) as attack:
        for _ in range(20):
            connection = attack.connect()
            connection.send(frame(HEADERS, 0, 1, request_headers() + literal("x", "y" * 3900, index=True)))
            tap.check(attack.send_until_cut(connection, frame(CONTINUATION, 0, 1, indexed(62) * 16000), 50), "not cut")


# Headers that go on for 128 MiB. (Unguarded: all of it is kept.)
def continuation_flood__headers_without_end__cut(_):
    more = frame(CONTINUATION, 0, 1, b"".join(literal(f"k{i}", "v" * 1000) for i in range(16)))
    with Attacked(32) as attack:
        connection = attack.connect()
        connection.send(frame(HEADERS, 0, 1, request_headers()))
        tap.check(attack.send_until_cut(connection, more, 8000), "it was not cut")


# A million continuations with nothing in them.
def continuation_flood__empty__cut(_):
    with Attacked(32) as attack:
        connection = attack.connect()
        connection.send(frame(HEADERS, 0, 1, request_headers()))
        tap.check(attack.send_until_cut(connection, frame(CONTINUATION, 0, 1) * 1000, 1000), "it was not cut")


# One literal said to have a gibibyte.
def continuation_flood__endless_literal__cut(_):
    with Attacked(32) as attack:
        connection = attack.connect()
        connection.send(frame(HEADERS, 0, 1, request_headers() + b"\0" + integer(1 << 30, 7, 0)))
        tap.check(attack.send_until_cut(connection, frame(CONTINUATION, 0, 1, b"a" * 16384), 8000), "it was not cut")


# ------------------------------------------------------------------------- the rest

# 500 answers of 3 MiB each, none of them read: beyond 256 MiB they are not given.
def answers__never_read__bounded(_):
    with Attacked(512) as attack:
        connection = attack.connect(settings=setting(INITIAL_WINDOW_SIZE, 0))
        message = b"\x10" + varint(3 << 20)
        for i in range(500):
            connection.send(request(1 + 2 * i, UNARY, message))
        time.sleep(2)  # the length of the attack


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


# Calls with 20 bytes changed at random, and bytes that are no HTTP/2 at all.
def garbage__1000_connections__borne(_):
    seed = int(os.environ.get("BERTH_SEED", "7"))
    rng = random.Random(seed)
    with Attacked(32) as attack:
        for n in range(1000):
            connection = attack.connect(raw=rng.random() < 0.5)
            data = bytearray(request(1) + request(3) + frame(GOAWAY, 0, 0, bytes(8)))
            for _ in range(20):
                data[rng.randrange(len(data))] = rng.randrange(256)
            connection.send(bytes(data))
            connection.close()
            attack.connections.pop()


# A server that says goodbye to each connection at once, 20 times: our client neither hangs nor
# hammers it, and goes on when the storm is over.
def goaway_storm__from_a_server__client_goes_on(_):
    storms, n_seen, real = 20, 0, Peer([SERVER, "127.0.0.1:0"])
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def serve():
        nonlocal n_seen
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            n_seen += 1
            if n_seen <= storms:
                try:
                    peer.sendall(frame(SETTINGS, 0, 0) + goaway())
                    peer.close()
                except OSError:
                    pass
                continue
            through = socket.create_connection(("127.0.0.1", real.port))
            for ends in ((peer, through), (through, peer)):
                threading.Thread(target=pump, args=ends, daemon=True).start()
    threading.Thread(target=serve, daemon=True).start()
    begin = time.monotonic()
    client = subprocess.run([CLIENT, f"127.0.0.1:{listener.getsockname()[1]}", "keep_asking", "ping_pong"],
                            capture_output=True, text=True, timeout=90)
    took = time.monotonic() - begin
    listener.close()
    well = real.end()
    print(f"{n_seen} connections in {took:.1f} s", file=sys.stderr)
    tap.equal(client.stdout.splitlines(), ["keep_asking ok", "ping_pong ok"], client.stderr[-300:])
    tap.check(storms < n_seen < storms + 5, n_seen, "connections")
    tap.check(well, "the server did not end well")


if __name__ == "__main__":
    to_case_log()
    tap.main(globals(), Context)

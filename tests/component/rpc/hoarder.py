"""Begins messages and never ends them: HTTP/2 by hand.

usage: hoarder.py ADDRESS STREAMS BYTES SECONDS; sends up to BYTES of a message of 4 MiB on each of
STREAMS calls, for SECONDS or until half of the calls were reset. Exit code 0: they were.
"""
import select
import socket
import struct
import sys
import time

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
INITIAL_WINDOW, FRAME_MAX, PENDING_MAX = 65535, 16384, 1 << 20


def frame(kind, flags, stream, payload=b''):
    length = struct.pack('>I', len(payload))[1:]
    return length + bytes([kind, flags]) + struct.pack('>I', stream) + payload


def header(key, value):
    return b'\0' + bytes([len(key)]) + key + bytes([len(value)]) + value


class Hoarder:
    def __init__(self, address, n_streams, size):
        host, port = address.rsplit(':', 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setblocking(False)
        self.window, self.initial, self.n_sent, self.n_reset = INITIAL_WINDOW, INITIAL_WINDOW, 0, 0
        self.received = b''
        self.pending = bytearray(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(SETTINGS, 0, 0))
        headers = b''.join(header(*pair) for pair in (
            (b':method', b'POST'), (b':scheme', b'http'), (b':authority', b'x'),
            (b':path', b'/berth.testing.v1.EchoService/Unary'),
            (b'content-type', b'application/grpc'), (b'te', b'trailers')))
        self.streams = {}  # id: [window, bytes left]
        for stream in range(1, 2 * n_streams, 2):
            self.pending += frame(HEADERS, 4, stream, headers)
            self.streams[stream] = [INITIAL_WINDOW, size]
        self.size = size

    def take(self, kind, flags, stream, payload):
        if kind == WINDOW_UPDATE:
            more = struct.unpack('>I', payload)[0]
            if stream == 0:
                self.window += more
            elif stream in self.streams:
                self.streams[stream][0] += more
        elif kind == SETTINGS and not flags & 1:
            for at in range(0, len(payload), 6):
                key, value = struct.unpack('>HI', payload[at:at + 6])
                if key == 4:
                    for state in self.streams.values():
                        state[0] += value - self.initial
                    self.initial = value
            self.pending += frame(SETTINGS, 1, 0)
        elif kind == PING and not flags & 1:
            self.pending += frame(PING, 1, 0, payload)
        elif kind == RST_STREAM and self.streams.pop(stream, None):
            self.n_reset += 1

    def read(self):
        data = self.socket.recv(1 << 20)
        if not data:
            return False
        self.received += data
        while len(self.received) >= 9:
            length = int.from_bytes(self.received[:3], 'big')
            if len(self.received) < 9 + length:
                break
            stream = int.from_bytes(self.received[5:9], 'big') & 0x7fffffff
            self.take(self.received[3], self.received[4], stream, self.received[9:9 + length])
            self.received = self.received[9 + length:]
        return True

    def fill(self):
        for stream, state in self.streams.items():
            n = min(FRAME_MAX, state[0], self.window, state[1])
            if n <= 5 or len(self.pending) > PENDING_MAX:
                continue
            start = b'\0' + struct.pack('>I', 4 << 20) if state[1] == self.size else b''
            self.pending += frame(DATA, 0, stream, start + bytes(n - len(start)))
            state[0] -= n
            state[1] -= n
            self.window -= n
            self.n_sent += n

    def run(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.n_reset < len(self.streams):
            writers = [self.socket] if self.pending else []
            readable, writable, _ = select.select([self.socket], writers, [], 0.05)
            try:
                if readable and not self.read():
                    return
                if writable:
                    del self.pending[:self.socket.send(self.pending)]
            except BlockingIOError:
                pass
            except OSError:
                return
            self.fill()


def main():
    hoarder = Hoarder(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    hoarder.run(float(sys.argv[4]))
    print(f'{hoarder.n_sent} bytes sent, {hoarder.n_reset} calls reset', file=sys.stderr)
    sys.exit(hoarder.n_reset < len(hoarder.streams))


main()

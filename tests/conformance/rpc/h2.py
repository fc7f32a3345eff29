"""h2.py - HTTP/2 by hand, for peers that do not keep to it."""
import socket
import ssl
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def integer(value, bits, first):
    """HPACK's integer with a prefix of so many bits."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([first | value])
    out, value = bytes([first | limit]), value - limit
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return integer(len(value), 7, 0) + value


def literal(name, value, index=False):
    """A header written out; index: to be remembered by the receiver's dynamic table."""
    return (b"\x40" if index else b"\x00") + text(name) + text(value)


def indexed(number):
    return integer(number, 7, 0x80)


def request_headers(path="/grpc.testing.TestService/EmptyCall", more=b""):
    return indexed(3) + indexed(6) + literal(":path", path) + literal(":authority", "x") + \
        literal("te", "trailers") + literal("content-type", "application/grpc") + more


def request(stream, path="/grpc.testing.TestService/EmptyCall", message=b""):
    """A whole unary call."""
    return frame(HEADERS, END_HEADERS, stream, request_headers(path)) + \
        frame(DATA, END_STREAM, stream, b"\0" + struct.pack(">I", len(message)) + message)


def goaway(last=0, code=0, text=b""):
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code) + text)


def setting(key, value):
    return struct.pack(">HI", key, value)


class Connection:
    """Connected, and past the preface unless raw."""

    def __init__(self, port, raw=False, settings=b"", tls=False):
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols(["h2"])
            self.socket = context.wrap_socket(self.socket)
        if not raw:
            self.send(PREFACE + frame(SETTINGS, 0, 0, settings))

    def send(self, data):
        """False: the peer has hung up, or takes no more for now."""
        try:
            self.socket.sendall(data)
            return True
        except OSError:
            return False

    def closed(self, wait):
        """Did the peer hang up within so many seconds? What it says meanwhile is dropped."""
        self.socket.settimeout(wait)
        try:
            while self.socket.recv(65536):
                pass
            return True
        except (TimeoutError, BlockingIOError):
            return False
        except OSError:
            return True

    def close(self):
        self.socket.close()

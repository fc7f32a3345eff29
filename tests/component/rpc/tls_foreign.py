"""Clients that are not ours against the EchoService with TLS: grpcio, openssl s_client, and HTTP/2 by
hand over Python's ssl, which can be held to one version.

usage: tls_foreign.py ADDRESS CA CERT KEY STRANGER_CERT STRANGER_KEY; the certificate CERT is of the peer
spiffe://berth/foreign, STRANGER_CERT is signed by somebody else. Exit code 1 with the reason on
stderr when a promise does not hold.
"""
import socket
import ssl
import struct
import subprocess
import sys

import grpc

SERVICE = '/berth.testing.v1.EchoService/'


def expect(what, have, want):
    if have != want:
        sys.exit(f'{what}: have {have!r}, want {want!r}')


def slurp(path):
    with open(path, 'rb') as file:
        return file.read()


def code_of(channel, method):
    try:
        channel.unary_unary(SERVICE + method)(b'', timeout=5)
    except grpc.RpcError as error:
        return error.code().name
    return 'OK'


def check_grpcio(address, ca, cert, key, stranger_cert, stranger_key):
    trust = grpc.ssl_channel_credentials(slurp(ca))
    with grpc.secure_channel(address, trust) as channel:
        expect('no certificate', code_of(channel, 'Unary'), 'OK')
        expect('no certificate, peers only', code_of(channel, 'PeerOnly'), 'PERMISSION_DENIED')
    mutual = grpc.ssl_channel_credentials(slurp(ca), slurp(key), slurp(cert))
    with grpc.secure_channel(address, mutual) as channel:
        expect('peer', code_of(channel, 'PeerOnly'), 'OK')
        sent = [b'\x0a\x01x'] * 20
        answers = channel.stream_stream(SERVICE + 'Bidi')(iter(sent), timeout=5)
        expect('stream', list(answers), sent)
    foreign = grpc.ssl_channel_credentials(slurp(ca), slurp(stranger_key), slurp(stranger_cert))
    with grpc.secure_channel(address, foreign) as channel:
        expect('certificate of others', code_of(channel, 'Unary'), 'UNAVAILABLE')
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(slurp(stranger_cert))) as channel:
        expect('authority of others', code_of(channel, 'Unary'), 'UNAVAILABLE')
    wrong = [('grpc.ssl_target_name_override', 'other.example')]
    with grpc.secure_channel(address, trust, options=wrong) as channel:
        expect('wrong name', code_of(channel, 'Unary'), 'UNAVAILABLE')
    with grpc.insecure_channel(address) as channel:
        expect('plaintext', code_of(channel, 'Unary'), 'UNAVAILABLE')


# ------------------------------------------------------------------------------ HTTP/2 by hand

DATA, HEADERS, SETTINGS, PING, GOAWAY = 0, 1, 4, 6, 7
ACK, END_STREAM, END_HEADERS = 1, 1, 4


def frame(kind, flags, stream, payload=b''):
    return struct.pack('>I', len(payload))[1:] + bytes([kind, flags]) + struct.pack('>I', stream) + payload


def literal(name, value):
    """A header field without indexing, without Huffman (RFC 7541, 6.2.2)."""
    return b'\0' + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


class Stream:
    def __init__(self, connection):
        self.connection, self.buffer = connection, b''

    def take(self, n):
        while len(self.buffer) < n:
            data = self.connection.recv(65536)
            if not data:
                sys.exit('the server hung up')
            self.buffer += data
        out, self.buffer = self.buffer[:n], self.buffer[n:]
        return out

    def frame(self):
        head = self.take(9)
        return head[3], head[4], self.take(int.from_bytes(head[:3], 'big'))


def call_by_hand(address, context):
    """One unary call; the TLS version and the answer's message."""
    host, port = address.rsplit(':', 1)
    with socket.create_connection((host, int(port)), timeout=5) as plain, \
            context.wrap_socket(plain, server_hostname=host) as connection:
        expect('ALPN', connection.selected_alpn_protocol(), 'h2')
        headers = b''.join(literal(*each) for each in (
            (':method', 'POST'), (':scheme', 'https'), (':path', SERVICE + 'PeerOnly'),
            (':authority', address), ('te', 'trailers'), ('content-type', 'application/grpc'),
            ('grpc-timeout', '5S')))
        connection.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(SETTINGS, 0, 0) +
                           frame(HEADERS, END_HEADERS, 1, headers) +
                           frame(DATA, END_STREAM, 1, b'\0' * 5))
        stream, message = Stream(connection), b''
        while True:
            kind, flags, payload = stream.frame()
            if kind == SETTINGS and not flags & ACK:
                connection.sendall(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                connection.sendall(frame(PING, ACK, 0, payload))
            elif kind == GOAWAY:
                sys.exit('GOAWAY')
            elif kind == DATA:
                message += payload
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                return connection.version(), message[5:]


def check_versions(address, ca, cert, key):
    for version, name in ((ssl.TLSVersion.TLSv1_2, 'TLSv1.2'), (ssl.TLSVersion.TLSv1_3, 'TLSv1.3')):
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(cert, key)
        context.set_alpn_protocols(['h2'])
        context.minimum_version = context.maximum_version = version
        agreed, message = call_by_hand(address, context)
        expect('version', agreed, name)
        expect('the answer names the caller', b'spiffe://berth/foreign' in message, True)


def check_s_client(address, ca):
    def s_client(*words):
        done = subprocess.run(['openssl', 's_client', '-connect', address, '-CAfile', ca, '-verify_return_error',
                               '-alpn', 'h2', '-brief', *words], input=b'', capture_output=True, timeout=20, check=False)
        return done.returncode, done.stderr.decode()

    for version in ('1_2', '1_3'):
        code, text = s_client('-tls' + version)
        expect('s_client ' + version, code, 0)
        expect('s_client verifies', 'Verification: OK' in text, True)
        expect('s_client agrees', 'Protocol version: TLSv' + version.replace('_', '.') in text, True)
    for version in ('1', '1_1'):
        code, text = s_client('-tls' + version, '-cipher', 'DEFAULT@SECLEVEL=0')
        expect('s_client ' + version, code != 0, True)
    code, text = s_client('-verify_hostname', 'other.example')
    expect('s_client sees another name', code != 0, True)


def main():
    address, ca, cert, key, stranger_cert, stranger_key = sys.argv[1:]
    check_grpcio(address, ca, cert, key, stranger_cert, stranger_key)
    check_versions(address, ca, cert, key)
    check_s_client(address, ca)


main()

"""A client that is not ours against the EchoService: what is promised on the wire holds.

usage: foreign.py ADDRESS; exit code 1 with the reason on stderr when it does not.
Messages are made by hand, so that no generated code is needed.
"""
import sys
import threading
import time

import grpc

SERVICE = '/berth.testing.v1.EchoService/'
TEXT, COUNT, HOLD_MS, FAIL, BYTES = 1, 3, 4, 5, 6


def varint(number):
    out = b''
    while number > 0x7f:
        out += bytes([number & 0x7f | 0x80])
        number >>= 7
    return out + bytes([number])


def text(field, value):
    value = value if isinstance(value, bytes) else value.encode()
    return varint(field << 3 | 2) + varint(len(value)) + value


def number(field, value):
    return varint(field << 3) + varint(value)


def read(message):
    """{field: value} of the outermost message."""
    out, at = {}, 0

    def next_varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value
    while at < len(message):
        key = next_varint()
        value = next_varint()
        if key & 7 == 2:
            value, at = message[at:at + value], at + value
        out[key >> 3] = value
    return out


def expect(what, have, want):
    if have != want:
        sys.exit(f'{what}: have {have!r}, want {want!r}')


def refused(call):
    try:
        call()
    except grpc.RpcError as error:
        return error
    sys.exit('the call did not fail')


def check_kinds(channel):
    unary = channel.unary_unary(SERVICE + 'Unary')
    answer = read(unary(text(TEXT, 'h\u00e9'), timeout=5, metadata=[('echo-bin', b'\0\xff')]))
    expect('unary', (answer[TEXT], answer[7]), ('h\u00e9'.encode(), b'\0\xff'))

    stream = channel.unary_stream(SERVICE + 'Server')(number(COUNT, 50), timeout=5)
    expect('server stream', [read(m)[COUNT] for m in stream], list(range(1, 51)))

    answer = channel.stream_unary(SERVICE + 'Client')(iter([text(TEXT, 'x')] * 30), timeout=5)
    expect('client stream', read(answer)[COUNT], 30)

    sent = [text(TEXT, f'message {i}') for i in range(30)]
    answers = channel.stream_stream(SERVICE + 'Bidi')(iter(sent), timeout=5)
    expect('bidi', list(answers), sent)


def check_failures(channel):
    unary = channel.unary_unary(SERVICE + 'Unary')
    error = refused(lambda: unary(text(FAIL, 'LOCK_LOST') + text(TEXT, '\u20ac 5%'), timeout=5))
    expect('code', error.code(), grpc.StatusCode.ABORTED)
    expect('text', error.details(), 'as asked: \u20ac 5%')
    details = dict(error.trailing_metadata())['grpc-status-details-bin']
    status = read(details)
    expect('details', (status[1], status[2]), (10, 'as asked: \u20ac 5%'.encode()))
    info = read(read(status[3])[2])
    expect('reason', (info[1], info[2]), (b'LOCK_LOST', b'berth'))

    error = refused(lambda: channel.unary_unary(SERVICE + 'Nope')(b'', timeout=5))
    expect('unknown method', error.code(), grpc.StatusCode.UNIMPLEMENTED)
    error = refused(lambda: unary(b'\x0a\x7f\x01', timeout=5))
    expect('malformed', error.code(), grpc.StatusCode.INVALID_ARGUMENT)
    error = refused(lambda: unary(text(TEXT, b'\xff'), timeout=5))
    expect('not UTF-8', error.code(), grpc.StatusCode.INVALID_ARGUMENT)

    start = time.monotonic()
    error = refused(lambda: unary(number(HOLD_MS, 60000), timeout=0.3))
    expect('deadline', error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
    expect('deadline kept', time.monotonic() - start < 3, True)

    call = channel.unary_stream(SERVICE + 'Server')(number(COUNT, 1000000))
    next(call)
    call.cancel()
    expect('cancel', refused(lambda: list(call)).code(), grpc.StatusCode.CANCELLED)


def check_sizes(address):
    large = [('grpc.max_send_message_length', -1), ('grpc.max_receive_message_length', -1)]
    limit = 4 << 20
    with grpc.insecure_channel(address, options=large) as channel:
        unary = channel.unary_unary(SERVICE + 'Unary')
        # 5 bytes of key and length; one byte back, so that the answer is small.
        request = text(2, bytes(limit - 7)) + number(BYTES, 1)
        expect('size of the request', len(request), limit)
        expect('4 MiB', len(read(unary(request, timeout=10))[2]), 1)
        error = refused(lambda: unary(text(2, bytes(limit)), timeout=10))
        expect('over 4 MiB', error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        error = refused(lambda: channel.stream_unary(SERVICE + 'Client')(
            iter([text(2, bytes(limit))]), timeout=10))
        expect('over 4 MiB streamed', error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)

        answer = unary(text(TEXT, 'x' * 5000), timeout=5, compression=grpc.Compression.Gzip)
        expect('gzip', read(answer)[TEXT], b'x' * 5000)
        error = refused(lambda: unary(text(2, bytes(64 << 20)), timeout=30,
                                      compression=grpc.Compression.Gzip))
        expect('gzip bomb', error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)


def check_crowd(address):
    """Many channels at once, each with many calls; then all of them gone without a goodbye."""
    failures = []

    def one():
        channel = grpc.insecure_channel(address, options=[('grpc.use_local_subchannel_pool', 1)])
        unary = channel.unary_unary(SERVICE + 'Unary')
        try:
            for _ in range(50):
                unary(text(TEXT, 'x'), timeout=10)
        except grpc.RpcError as error:
            failures.append(error)

    threads = [threading.Thread(target=one) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect('crowd', failures, [])


def main():
    address = sys.argv[1]
    with grpc.insecure_channel(address) as channel:
        check_kinds(channel)
        check_failures(channel)
    check_sizes(address)
    check_crowd(address)


main()

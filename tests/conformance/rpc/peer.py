#!/usr/bin/python3
"""peer.py - gRPC's interoperability tests by grpcio.

usage: peer.py serve                  says "ready PORT", ends with its standard input
       peer.py call TARGET CASE...    one line per case, "CASE ok" or "CASE failed: why"
"""
import sys
import time
from concurrent import futures

import grpc

import stubs_of_testing

stubs_of_testing.join()
from grpc.testing import empty_pb2, messages_pb2, test_pb2_grpc  # noqa: E402

INITIAL, TRAILING = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
REQUESTS, RESPONSES = (27182, 8, 1828, 45904), (31415, 9, 2653, 58979)
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n"
CODES = {code.value[0]: code for code in grpc.StatusCode}


def payload(size):
    return messages_pb2.Payload(body=bytes(size))


# --------------------------------------------------------------------- server

class Service(test_pb2_grpc.TestServiceServicer):
    @staticmethod
    def echo(context):
        sent = dict(context.invocation_metadata())
        if INITIAL in sent:
            context.send_initial_metadata(((INITIAL, sent[INITIAL]),))
        if TRAILING in sent:
            context.set_trailing_metadata(((TRAILING, sent[TRAILING]),))

    @staticmethod
    def status(request, context):
        if request.HasField("response_status") and request.response_status.code:
            context.abort(CODES[request.response_status.code], request.response_status.message)

    def EmptyCall(self, request, context):
        return empty_pb2.Empty()

    def UnaryCall(self, request, context):
        self.echo(context)
        self.status(request, context)
        if request.response_compressed.value:
            context.set_compression(grpc.Compression.Gzip)
        return messages_pb2.SimpleResponse(payload=payload(request.response_size))

    def StreamingOutputCall(self, request, context):
        if any(each.compressed.value for each in request.response_parameters):
            context.set_compression(grpc.Compression.Deflate)
        for each in request.response_parameters:
            time.sleep(each.interval_us / 1e6)
            yield messages_pb2.StreamingOutputCallResponse(payload=payload(each.size))

    def StreamingInputCall(self, requests, context):
        size = sum(len(request.payload.body) for request in requests)
        return messages_pb2.StreamingInputCallResponse(aggregated_payload_size=size)

    def FullDuplexCall(self, requests, context):
        self.echo(context)
        for request in requests:
            self.status(request, context)
            for each in request.response_parameters:
                yield messages_pb2.StreamingOutputCallResponse(payload=payload(each.size))


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(16))
    test_pb2_grpc.add_TestServiceServicer_to_server(Service(), server)
    print("ready", server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(1).wait()


# --------------------------------------------------------------------- client

def expect(have, want, what=""):
    if have != want:
        raise AssertionError(f"{what}: have {have!r}, want {want!r}")


def ends_with(call, code, text=None):
    try:
        call()
    except grpc.RpcError as error:
        expect(error.code(), code, error.details())
        if text is not None:
            expect(error.details(), text)
        return
    raise AssertionError("the call did not fail")


def output_request(size, response):
    return messages_pb2.StreamingOutputCallRequest(
        response_parameters=[messages_pb2.ResponseParameters(size=response)], payload=payload(size))


class Cases:
    def __init__(self, channel):
        self.channel = channel
        self.stub = test_pb2_grpc.TestServiceStub(channel)

    def empty_unary(self):
        expect(self.stub.EmptyCall(empty_pb2.Empty(), timeout=20), empty_pb2.Empty())

    def large_unary(self, compression=None):
        answer = self.stub.UnaryCall(messages_pb2.SimpleRequest(response_size=314159, payload=payload(271828)),
                                     timeout=20, compression=compression)
        expect(answer.payload.body, bytes(314159))

    def client_compressed_unary(self):
        for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate, None):
            self.large_unary(compression)

    def client_streaming(self, compression=None):
        requests = [messages_pb2.StreamingInputCallRequest(payload=payload(size)) for size in REQUESTS]
        answer = self.stub.StreamingInputCall(iter(requests), timeout=20, compression=compression)
        expect(answer.aggregated_payload_size, 74922)

    def client_compressed_streaming(self):
        self.client_streaming(grpc.Compression.Gzip)

    def server_streaming(self):
        request = messages_pb2.StreamingOutputCallRequest(
            response_parameters=[messages_pb2.ResponseParameters(size=size) for size in RESPONSES])
        expect(tuple(len(each.payload.body) for each in self.stub.StreamingOutputCall(request, timeout=20)), RESPONSES)

    def half_duplex(self):
        requests = [output_request(*pair) for pair in zip(REQUESTS, RESPONSES)]
        answers = self.stub.HalfDuplexCall(iter(requests), timeout=20)
        expect(tuple(len(each.payload.body) for each in answers), RESPONSES)

    def ping_pong(self):
        turns = iter(zip(REQUESTS, RESPONSES))
        waiting = futures.Future()
        first = next(turns)

        def requests():
            nonlocal waiting
            turn = first
            while turn:
                yield output_request(*turn)
                turn, waiting = waiting.result(20), futures.Future()
        seen = []
        for answer in self.stub.FullDuplexCall(requests(), timeout=20):
            seen.append(len(answer.payload.body))
            waiting.set_result(next(turns, None))
        expect(tuple(seen), RESPONSES)

    def empty_stream(self):
        expect(list(self.stub.FullDuplexCall(iter(()), timeout=20)), [])

    def custom_metadata(self):
        metadata = ((INITIAL, "test_initial_metadata_value"), (TRAILING, b"\xab\xab\xab"))
        request = messages_pb2.SimpleRequest(response_size=1, payload=payload(1))
        _, unary = self.stub.UnaryCall.with_call(request, metadata=metadata, timeout=20)
        stream = self.stub.FullDuplexCall(iter([output_request(1, 1)]), metadata=metadata, timeout=20)
        expect(len(list(stream)), 1)
        for call in (unary, stream):
            expect(dict(call.initial_metadata()).get(INITIAL), "test_initial_metadata_value")
            expect(dict(call.trailing_metadata()).get(TRAILING), b"\xab\xab\xab")

    def status_code_and_message(self, text="test status message"):
        status = messages_pb2.EchoStatus(code=2, message=text)
        ends_with(lambda: self.stub.UnaryCall(messages_pb2.SimpleRequest(response_status=status), timeout=20),
                  grpc.StatusCode.UNKNOWN, text)
        request = messages_pb2.StreamingOutputCallRequest(response_status=status)
        ends_with(lambda: list(self.stub.FullDuplexCall(iter([request]), timeout=20)), grpc.StatusCode.UNKNOWN, text)

    def special_status_message(self):
        self.status_code_and_message(SPECIAL)

    def unimplemented_method(self):
        ends_with(lambda: self.stub.UnimplementedCall(empty_pb2.Empty(), timeout=20), grpc.StatusCode.UNIMPLEMENTED)

    def unimplemented_service(self):
        stub = test_pb2_grpc.UnimplementedServiceStub(self.channel)
        ends_with(lambda: stub.UnimplementedCall(empty_pb2.Empty(), timeout=20), grpc.StatusCode.UNIMPLEMENTED)

    def cancel_after_begin(self):
        never = futures.Future()

        def requests():
            never.result(20)
            yield
        call = self.stub.StreamingInputCall.future(requests(), timeout=20)
        call.cancel()
        never.set_exception(RuntimeError())
        expect((call.cancelled(), call.code()), (True, grpc.StatusCode.CANCELLED))

    def cancel_after_first_response(self):
        never = futures.Future()

        def requests():
            yield output_request(27182, 31415)
            never.result(20)
        call = self.stub.FullDuplexCall(requests(), timeout=20)
        expect(len(next(call).payload.body), 31415)
        call.cancel()
        ends_with(lambda: next(call), grpc.StatusCode.CANCELLED)
        never.set_result(None)

    def timeout_on_sleeping_server(self):
        never = futures.Future()

        def requests():
            yield messages_pb2.StreamingOutputCallRequest(payload=payload(27182))
            never.result(20)
        ends_with(lambda: next(self.stub.FullDuplexCall(requests(), timeout=0.001)), grpc.StatusCode.DEADLINE_EXCEEDED)
        never.set_result(None)


def call(target, names):
    with grpc.insecure_channel(target) as channel:
        cases, failed = Cases(channel), False
        for name in names:
            try:
                getattr(cases, name)()
                print(name, "ok", flush=True)
            except Exception as error:  # pylint: disable=broad-except
                failed = True
                print(name, "failed:", str(error).replace("\n", " ") or type(error).__name__, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(serve() if sys.argv[1] == "serve" else call(sys.argv[2], sys.argv[3:]))

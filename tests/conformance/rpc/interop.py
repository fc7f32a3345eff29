#!/usr/bin/python3
"""interop.py - gRPC's interoperability tests: our server and client against those of grpc-go, grpcio
and grpc-js, each way; reflection and health as standard tools see them.

usage: interop.py SERVER CLIENT [PART...]     PART: of the names of cases

Not served, and why: cacheable_unary (GET, withdrawn by gRPC), the probes of the compressed cases (core
does not tell a server whether a message came compressed, and Berth never compresses what it sends;
compressed messages are understood both ways, which is tested), orca, xDS and the cloud's credentials.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "lib"), HERE]
import tap  # noqa: E402
import stubs_of_testing  # noqa: E402
from process import Peer, finish, foreign, to_case_log  # noqa: E402

SERVER, CLIENT = sys.argv[1:3]
del sys.argv[1:3]
COMMON = ["empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
          "custom_metadata", "status_code_and_message", "special_status_message", "unimplemented_method",
          "unimplemented_service", "cancel_after_begin", "cancel_after_first_response", "timeout_on_sleeping_server"]
COMPRESSED = ["server_compressed_unary", "server_compressed_streaming"]
PYTHON, NODE = ["/usr/bin/python3", os.path.join(HERE, "peer.py")], ["node", os.path.join(HERE, "peer.js")]


class Context:
    """Our server, and each foreign one when it is first asked for."""

    def __enter__(self):
        self.stubs = tempfile.TemporaryDirectory(prefix="berth-interop-")
        os.environ["BERTH_INTEROP_STUBS"] = self.stubs.name
        os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"
        stubs_of_testing.generate(self.stubs.name)
        stubs_of_testing.join()
        self.socket = os.path.join(self.stubs.name, "server.sock")
        self.peers = {"ours": Peer([SERVER, "127.0.0.1:0", "unix:" + self.socket])}
        return self

    def __exit__(self, kind, *_):
        left = [name for name, peer in self.peers.items() if not peer.end() and name == "ours"]
        self.stubs.cleanup()
        if left and kind is None:
            raise AssertionError("our server did not end well: " + self.peers["ours"].tail())

    def target(self, name):
        if name not in self.peers:
            if name == "go":
                self.peers[name] = Peer([os.path.join(foreign("go"), "interop-server"), "--port", "{port}"])
            elif name == "node":
                self.peers[name] = Peer(NODE + ["serve"], node_environment())
            else:
                self.peers[name] = Peer(PYTHON + ["serve"])
        return f"127.0.0.1:{self.peers[name].port}"


def node_environment():
    return {"NODE_PATH": os.path.join(foreign("npm"), "node_modules")}


def one_line(command, environment=None):
    code, text = finish(command, environment)
    tap.equal(code, 0, text[-600:])


def ask_python(context, target, case):
    one_line(PYTHON + ["call", context.target(target), case])


def ask_node(context, target, case):
    environment = node_environment()
    one_line(NODE + ["call", context.target(target), case], environment)


def ask_go(context, target, case):
    port = context.target(target).rpartition(":")[2]
    command = [os.path.join(foreign("go"), "interop-client"), "--server_host=127.0.0.1", "--server_port=" + port,
               "--test_case=" + case]
    # It cancels and half-closes at once: an answer may be faster than its own cancellation.
    for _ in range(4 if case == "cancel_after_begin" else 0):
        if finish(command)[0] == 0:
            return
    one_line(command)


def ask_ours(context, target, case):
    one_line([CLIENT, context.target(target), case])


def add(name, ask, target, case):
    # One case of gRPC's own list; a def, because tap.py looks for functions.
    def run(context):
        ask(context, target, case)
    run.__name__ = name
    globals()[name] = run


for each in COMMON + ["rpc_soak", "channel_soak", "pick_first_unary"]:
    add(f"server__{each}_of_grpc_go__passes", ask_go, "ours", each)
for each in COMMON + ["half_duplex", "client_compressed_unary", "client_compressed_streaming"]:
    add(f"server__{each}_of_grpcio__passes", ask_python, "ours", each)
for each in COMMON + ["client_compressed_unary"]:
    add(f"server__{each}_of_grpc_js__passes", ask_node, "ours", each)
for each in COMMON:
    add(f"client__{each}_at_grpc_go__passes", ask_ours, "go", each)
for each in COMMON + COMPRESSED:
    add(f"client__{each}_at_grpcio__passes", ask_ours, "python", each)
    add(f"client__{each}_at_grpc_js__passes", ask_ours, "node", each)
    add(f"client__{each}_at_our_server__passes", ask_ours, "ours", each)


# ------------------------------------------------------------------------ reflection

def grpcurl(context, *words):
    code, text = finish([os.path.join(foreign("go"), "grpcurl"), "-plaintext", *words])
    tap.equal(code, 0, text)
    return text


# grpcurl lists, describes and calls what it knows by reflection alone.
def reflection__grpcurl__lists_describes_calls(context):
    target = context.target("ours")
    tap.check("grpc.testing.TestService" in grpcurl(context, target, "list").split(), "list")
    text = grpcurl(context, target, "describe", "grpc.testing.TestService")
    tap.check("rpc FullDuplexCall ( stream .grpc.testing.StreamingOutputCallRequest )" in text, text)
    text = grpcurl(context, target, "describe", "grpc.testing.SimpleRequest")
    tap.check("response_status" in text, text)
    answer = json.loads(grpcurl(context, "-d", '{"response_size": 3}', target, "grpc.testing.TestService/UnaryCall"))
    tap.equal(answer["payload"]["body"], "AAAA")


# The same over a unix socket, as an operator asks an internal service.
def reflection__grpcurl_by_unix_socket__lists(context):
    text = grpcurl(context, "-unix", context.socket, "list")
    tap.check("grpc.testing.TestService" in text.split(), text)


# grpc-js-reflection-client lists by v1 and v1alpha, and calls by the descriptors it was given.
def reflection__grpc_js_reflection_client__lists_and_calls(context):
    environment = node_environment()
    one_line(NODE + ["reflect", context.target("ours")], environment)


# ---------------------------------------------------------------------------- health

# The probe that orchestrators use: 0 where it serves, 4 where it does not, 3 for an unknown service.
def health__grpc_health_probe__tells_states(context):
    probe = [os.path.join(foreign("go"), "grpc-health-probe"), "-addr=" + context.target("ours")]
    tap.equal(finish(probe)[0], 0)
    tap.equal(finish(probe + ["-service=grpc.testing.TestService"])[0], 0)
    tap.equal(finish(probe + ["-service=no.such.Service"])[0], 3)
    ours = context.peers["ours"]
    ours.say("away grpc.testing.TestService")
    with_stub(context, lambda stub, pb: wait_state(stub, pb, "NOT_SERVING"))
    tap.equal(finish(probe + ["-service=grpc.testing.TestService"])[0], 4)
    tap.equal(finish(probe)[0], 0)
    ours.say("serving grpc.testing.TestService")
    with_stub(context, lambda stub, pb: wait_state(stub, pb, "SERVING"))


# grpcio's health stub: Check and Watch, each change, an unknown service both ways.
def health__grpcio_check_and_watch__each_change_told(context):
    def run(stub, pb):
        import grpc
        name = pb.HealthCheckResponse.ServingStatus.Name
        request = pb.HealthCheckRequest(service="grpc.testing.TestService")
        tap.equal(name(stub.Check(request, timeout=10).status), "SERVING")
        tap.equal(name(stub.Check(pb.HealthCheckRequest(), timeout=10).status), "SERVING")
        watch = stub.Watch(request, timeout=30)
        tap.equal(name(next(watch).status), "SERVING")
        context.peers["ours"].say("away grpc.testing.TestService")
        tap.equal(name(next(watch).status), "NOT_SERVING")
        context.peers["ours"].say("serving grpc.testing.TestService")
        tap.equal(name(next(watch).status), "SERVING")
        watch.cancel()
        unknown = pb.HealthCheckRequest(service="no.such.Service")
        try:
            stub.Check(unknown, timeout=10)
            raise AssertionError("an unknown service has a state")
        except grpc.RpcError as error:
            tap.equal(error.code(), grpc.StatusCode.NOT_FOUND)
        watch = stub.Watch(unknown, timeout=10)
        tap.equal(name(next(watch).status), "SERVICE_UNKNOWN")
        watch.cancel()
    with_stub(context, run)


def with_stub(context, function):
    import grpc
    from grpc.health.v1 import health_pb2, health_pb2_grpc
    with grpc.insecure_channel(context.target("ours")) as channel:
        function(health_pb2_grpc.HealthStub(channel), health_pb2)


def wait_state(stub, pb, wanted):
    """The state is told through the server's standard input: there when Watch says so."""
    for answer in stub.Watch(pb.HealthCheckRequest(service="grpc.testing.TestService"), timeout=10):
        if pb.HealthCheckResponse.ServingStatus.Name(answer.status) == wanted:
            return


if __name__ == "__main__":
    to_case_log()
    tap.main(globals(), Context)

#!/usr/bin/python3
"""t0520-tls - the whole suite with mutual TLS over TCP between its processes, with certificates of
deploy/dev-ca; and the certificates renewed under it.

Sanitized, too."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import tap  # noqa: E402
from suite import TestSuite, base, pb, wait_for  # noqa: E402

DEV_CA = os.path.join(HERE, "..", "..", "deploy", "dev-ca")
PEERS = ["controlplane", "dataplane", "skills", "reaper"]


class TlsSuite(TestSuite):
    """Every process listens with TLS on loopback, and finds the others there."""

    def __init__(self):
        self.certificates = tempfile.mkdtemp(prefix="berth-certificates-")
        self.dev_ca()
        super().__init__()
        ports = self.facts["ports"]
        targets = {"binding": f"127.0.0.1:{ports['binding']}", "controlplane": f"localhost:{ports['controlplane']}",
                   "adapter_local": f"127.0.0.1:{ports['adapter-local']}", "dataplane": f"localhost:{ports['dataplane']}"}
        calls = {"controlplane": ["binding", "adapter_local", "dataplane"], "dataplane": ["controlplane", "adapter_local"],
                 "skills": ["controlplane", "adapter_local"], "reaper": ["controlplane", "binding", "adapter_local"],
                 "binding": [], "adapter-local": []}
        for name in base.ORDER:
            mine = self.facts["options"].setdefault(name, {})
            mine.update({"tls_cert": self.file(name + ".pem"), "tls_key": self.file(name + ".key"),
                         "tls_ca": self.file("ca.pem"), "listen": f"127.0.0.1:{ports[name]}",
                         "peer_sans": ",".join(f"spiffe://berth/{each}" for each in PEERS)})
            mine.update({each: targets[each] for each in calls[name]})

    def __exit__(self, *about):
        try:
            super().__exit__(*about)
        finally:
            shutil.rmtree(self.certificates, ignore_errors=True)

    def file(self, name):
        return os.path.join(self.certificates, name)

    def dev_ca(self, *words):
        subprocess.run([DEV_CA, "--dir", self.certificates, *words], check=True, timeout=120, stdout=subprocess.DEVNULL)

    def target(self, name):
        """Our own client is a peer by its uid."""
        return "unix:" + self.path("run", name + ".sock")

    def over_tls(self, name, certificate=None, authority=None):
        def slurp(path):
            with open(self.file(path), "rb") as file:
                return file.read()

        pair = [slurp(certificate + ".key"), slurp(certificate + ".pem")] if certificate else [None, None]
        with open(authority or self.file("ca.pem"), "rb") as file:
            trust = file.read()
        return grpc.secure_channel(f"127.0.0.1:{self.facts['ports'][name]}", grpc.ssl_channel_credentials(trust, *pair))


def code_of(channel, path, request=b""):
    with channel:
        try:
            channel.unary_unary(path)(request, timeout=10)
        except grpc.RpcError as error:
            return error.code().name
        return "OK"


GET_BINDING = "/berth.binding.v1.BindingService/GetBinding"
HEALTH = "/grpc.health.v1.Health/Check"


# A session lives, works, is snapshotted and dies, and every hop of it was encrypted.
def suite__mutual_tls__session_from_start_to_end(suite):
    client = suite.client()
    client.resolve("tls-1", config="local")
    answer = client.run("tls-1", "echo over tls")
    tap.equal(answer.stdout.strip(), b"over tls")
    client.write_file("tls-1", "/workspace/a", b"x" * 3000000)
    tap.equal(client.read_file("tls-1", "/workspace/a"), b"x" * 3000000)
    suite.flip()
    tap.equal(client.resolve("tls-1").outcome, pb.control.RESOLVE_OUTCOME_REBUILT)
    tap.equal(client.read_file("tls-1", "/workspace/a"), b"x" * 3000000)
    client.delete("tls-1")


# Internal services take the suite's certificates, and of others not even a question.
def internal__each_certificate__peers_only(suite):
    for name in ("binding", "adapter-local"):
        tap.equal(code_of(suite.over_tls(name, "dataplane"), HEALTH), "OK")
        tap.equal(code_of(suite.over_tls(name), HEALTH), "UNAVAILABLE")
        tap.equal(code_of(grpc.insecure_channel(f"127.0.0.1:{suite.facts['ports'][name]}"), HEALTH), "UNAVAILABLE")
    # The client's certificate is of the suite's authority, but no service's.
    tap.equal(code_of(suite.over_tls("binding", "client"), GET_BINDING), "PERMISSION_DENIED")
    tap.check(code_of(suite.over_tls("binding", "controlplane"), GET_BINDING) in ("INVALID_ARGUMENT", "NOT_FOUND"),
              "a service's certificate")


# Public services ask for no certificate, and the InternalService of the same port does.
def public__without_certificate__not_a_peer(suite):
    tap.equal(code_of(suite.over_tls("controlplane"), HEALTH), "OK")
    tap.equal(code_of(suite.over_tls("controlplane"), "/berth.control.v1.InternalService/ListTargets"), "PERMISSION_DENIED")
    tap.equal(code_of(suite.over_tls("controlplane", "client"), "/berth.control.v1.InternalService/ListTargets"),
              "PERMISSION_DENIED")


# All certificates are renewed while a session is in use; nothing stops, and all show the new ones.
def renew__while_running__nothing_stops(suite):
    client = suite.client()
    client.resolve("tls-2", config="local")

    def serial(name):
        done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{suite.facts['ports'][name]}", "-alpn", "h2"],
                              input=b"", capture_output=True, timeout=20, check=False)
        done = subprocess.run(["openssl", "x509", "-noout", "-serial"], input=done.stdout, capture_output=True,
                              timeout=20, check=False)
        return done.stdout

    before = {name: serial(name) for name in base.ORDER}
    tap.equal(len(set(before.values())), len(base.ORDER))
    suite.dev_ca("--renew")
    os.kill(suite.pid("binding"), signal.SIGHUP)  # the others find out by themselves
    for name in base.ORDER:
        wait_for(lambda each=name: serial(each) not in (before[each], b""), 20, f"{name} shows its new certificate", 0.2)
        tap.equal(client.run("tls-2", "echo still there").stdout.strip(), b"still there")
    client.delete("tls-2")


# What is broken stays out: told loudly, and the old certificate serves on.
def broken_file__while_running__old_one_serves(suite):
    with open(suite.file("controlplane.pem"), "w") as file:
        file.write("-----BEGIN CERTIFICATE-----\nbroken\n")
    os.kill(suite.pid("controlplane"), signal.SIGHUP)
    wait_for(lambda: "new certificates cannot be used" in suite.logs("controlplane"), 20, "the complaint", 0.1)
    tap.equal(code_of(suite.over_tls("controlplane"), HEALTH), "OK")
    suite.dev_ca("--renew")
    os.kill(suite.pid("controlplane"), signal.SIGHUP)
    wait_for(lambda: suite.logs("controlplane").count("new certificates are in use") >= 2, 20, "the new ones", 0.1)
    tap.equal(code_of(suite.over_tls("controlplane"), HEALTH), "OK")


if __name__ == "__main__":
    tap.main(globals(), TlsSuite)

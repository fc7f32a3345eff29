"""suite.py - a whole suite in a folder of its own for the length of a test, and proof that it left
nothing behind. Used by tests/e2e and tests/bench.

    with TestSuite() as suite:
        client = suite.client()
        client.resolve("s1", config="local")

The environment: BERTH_BUILD_DIR (default build/), BERTH_KEEP=1 keeps the state folder.
"""
import contextlib
import fcntl
import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(REPO, "deploy", "lib"))
_spec = importlib.util.spec_from_file_location("berth_suite", os.path.join(REPO, "deploy", "lib", "suite.py"))
base = importlib.util.module_from_spec(_spec)
sys.modules["berth_suite"] = base
_spec.loader.exec_module(base)

from client import Client, Failure, bearer, duration, health  # noqa: E402,F401 re-exported
from stubs import pb  # noqa: E402
import provision as quick  # noqa: E402
import leftovers  # noqa: E402
from tap import Skip  # noqa: E402

SuiteError, wait_for = base.SuiteError, base.wait_for
CACHE = os.environ.get("BERTH_TEST_CACHE", "/var/tmp/berth-test-cache")
BUILD = os.path.abspath(os.environ.get("BERTH_BUILD_DIR", os.path.join(REPO, "build")))


def need_root():
    if os.geteuid() != 0:
        raise Skip("needs root: the local backend makes namespaces, cgroups and links")


class TestSuite(base.Suite):
    """options and control_planes as in Suite, as many bindings; sandboxes=False: no template, no config `local`."""

    def __init__(self, sandboxes=True, control_planes=1, bindings=1, options=None, **more):
        need_root()
        names = base.ORDER + [f"controlplane-{n}" for n in range(2, control_planes + 1)] + \
            [f"binding-{n}" for n in range(2, bindings + 1)]
        numbers = base.free_ports(2 * len(names))
        ports = dict(zip(names, numbers)) | {n + "-metrics": p for n, p in zip(names, numbers[len(names):])}
        options = options or {}
        # A minute by default, in which nothing is created after redis-server was killed.
        options.setdefault("binding", {}).setdefault("quarantine", "1s")
        options["binding"].setdefault("turn_renewal", "1s")
        if sandboxes:
            options.setdefault("adapter-local", {}).setdefault("template_dirs", template_cache())
        self.sandboxes = sandboxes
        super().__init__(tempfile.mkdtemp(prefix="berth-test-", dir="/var/tmp"), BUILD, deployment="test",
                         ports=ports, control_planes=control_planes, options=options, **more)
        self.facts["bindings"] = bindings

    def __enter__(self):
        try:
            self.start()
            if self.sandboxes:
                quick.tenant_and_config(self.client())
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, error, trace):
        """Deletes every session, stops, and checks that nothing is left."""
        problems = []
        try:
            if kind is None and self.sandboxes:
                self.delete_everything()
        except (Failure, SuiteError) as caught:
            problems.append(str(caught))
        try:
            self.stop()
        except SuiteError as caught:
            problems.append(str(caught))
        problems += leftovers.find(self.state)
        leftovers.remove(self.state)
        problems += [f"after the stop: {each}" for each in leftovers.find(self.state) + leftovers.furniture(self.state)]
        problems += self.sanitizer_reports()
        if os.environ.get("BERTH_KEEP") or (kind is None and problems):
            print(f"kept {self.state}", file=sys.stderr)
        else:
            shutil.rmtree(self.state, ignore_errors=True)
        if kind is None and problems:
            raise SuiteError("; ".join(problems))

    def environment(self, name):
        return super().environment(name) | {"MALLOC_ARENA_MAX": "2"}

    def delete_everything(self, tenant="default"):
        api = self.client(tenant)
        token = ""
        while True:
            page = api.sessions.ListSessions(pb.control.ListSessionsRequest(
                tenant_id=tenant, page=pb.common.PageRequest(page_size=500, page_token=token)))
            for session in page.sessions:
                if session.state != pb.common.SESSION_STATE_DELETED:
                    api.delete(session.ref.session_id)
            token = page.next_page_token
            if not token:
                return

    def flip(self, config="local", tenant="default"):
        """Writes what an installer's flip does: every sandbox of the config is to be rebuilt between turns."""
        self.generation = getattr(self, "generation", 1) + 1
        subprocess.run(["redis-cli", "-s", self.path("run", "redis.sock"), "HSET", "berth:{%s}:c/%s" % (tenant, config),
                        "image", json.dumps({"generation": self.generation, "rebuild_before": self.generation}),
                        "rev", secrets.token_hex(8)], check=True, stdout=subprocess.DEVNULL)

    def kill_sandbox(self, box):
        """kill -9 of its supervisor, and with it of everything in it; the adapter is not asked."""
        for pid, words in leftovers.processes(self.state).items():
            if "berth-local-supervisor" in words and box in words:
                with contextlib.suppress(ProcessLookupError):  # gone with the one before
                    os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not [1 for words in leftovers.processes(self.state).values() if box in words], 10,
                 "the supervisor ends")

    def sanitizer_reports(self):
        found = []
        for name in os.listdir(self.path("log")) if os.path.isdir(self.path("log")) else []:
            with open(self.path("log", name), errors="replace") as file:
                bad = [line.strip() for line in file if "ERROR: AddressSanitizer" in line or
                       "runtime error:" in line or "ERROR: LeakSanitizer" in line]
            found += [f"{name}: {line}" for line in bad[:3]]
        return found

    def logs(self, name):
        with open(self.path("log", name + ".log"), errors="replace") as file:
            return file.read()

    def check_growth(self, before, limit_kib):
        """before: {process: rss_kib()}. Sanitizers keep freed memory: nothing is judged there."""
        grown = {name: self.rss_kib(name) - kib for name, kib in before.items()}
        if "asan" not in os.path.basename(self.facts["build"]) and max(grown.values()) > limit_kib:
            raise AssertionError(f"grown by KiB: {grown}, at most {limit_kib}")

    def rss_kib(self, name):
        with open(f"/proc/{self.pid(name)}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))

    def pss_kib(self, name):
        with open(f"/proc/{self.pid(name)}/smaps_rollup") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))


def template_cache():
    """A folder of templates with `base`, built once per machine by an adapter of its own."""
    templates = os.path.join(CACHE, "local", "templates")
    os.makedirs(CACHE, exist_ok=True)
    with open(os.path.join(CACHE, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if quick.has_base(templates):
            return templates
        begin = time.monotonic()
        numbers = base.free_ports(2)
        suite = base.Suite(CACHE, BUILD, deployment="cache", ports={
            "adapter-local": numbers[0], "adapter-local-metrics": numbers[1]})
        suite.prepare()
        try:
            suite.start("adapter-local")
            quick.build_base(suite, lambda text: print(f"template base: {text}", file=sys.stderr, flush=True))
        finally:
            suite.end("adapter-local", 15)
        print(f"template base built in {time.monotonic() - begin:.0f} s", file=sys.stderr)
        return templates


def grpcurl():
    """The path of grpcurl; built by Go where Go is there, else Skip."""
    path = shutil.which("grpcurl")
    if path:
        return path
    cache = os.environ.get("BERTH_CACHE") or os.path.expanduser("~/.cache/berth")
    path = os.path.join(cache, "bin", "grpcurl")
    if os.path.exists(path):
        return path
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if not go:
        raise Skip("no Go to build grpcurl with")
    done = subprocess.run([go, "install", "github.com/fullstorydev/grpcurl/cmd/grpcurl@latest"], text=True,
                          capture_output=True, env=os.environ | {"GOBIN": os.path.join(cache, "bin")}, timeout=600)
    if done.returncode:
        raise Skip("go install of grpcurl failed: " + done.stderr.strip().splitlines()[-1])
    return path


def json_of(path):
    with open(path) as file:
        return json.load(file)

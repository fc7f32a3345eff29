#!/usr/bin/python3
"""t0220-secrets - secrets are planted in a whole suite, it is made to work and to fail, and then
everything that it says, writes and shows is searched for them: answers, errors, logs, metrics, the store,
/proc of every process, and the sandbox.

The suite's keys come from a file, from the environment and from a command, one way per control plane;
Redis' password from a file and from the environment.

Sanitized, too."""
import base64
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import Failure, TestSuite, pb, wait_for  # noqa: E402

C = pb.control
KEY_1, KEY_2 = secrets.token_hex(32), secrets.token_hex(32)
PASSWORD = "planted-redis-password-" + secrets.token_hex(8)
API_KEY = "planted-api-key-" + secrets.token_hex(8)
API_KEY_2 = "planted-second-key-" + secrets.token_hex(8)
PEM_BODY = base64.b64encode(b"planted-pem-" + secrets.token_bytes(24)).decode()
PEM = f"-----BEGIN PRIVATE KEY-----\n{PEM_BODY}\n-----END PRIVATE KEY-----\n"
REFUSED = "planted-and-refused-" + secrets.token_hex(8)
SECRETS = {"first suite key": KEY_1, "second suite key": KEY_2, "Redis' password": PASSWORD, "API key": API_KEY,
           "second API key": API_KEY_2, "private key": PEM_BODY, "refused value": REFUSED}
SHOWN = "shown-on-purpose-" + secrets.token_hex(8)  # proves that a search finds


def spellings(value):
    """The bytes that would give it away."""
    raw = value.encode()
    yield raw
    yield raw.hex().encode()
    for cut in range(3):  # base64 of it, wherever it begins
        yield base64.b64encode(b"\0" * cut + raw)[4 if cut else 0:-4]
    if len(value) == 64 and not value.startswith("planted"):
        yield bytes.fromhex(value)


def holds(data, value):
    data = data if isinstance(data, bytes) else str(data).encode("utf-8", "surrogateescape")
    return any(each in data for each in spellings(value))


def search(what, data):
    for name, value in SECRETS.items():
        tap.check(not holds(data, value), what, "holds the", name)


def of_tree(pid):
    """pid and all its descendants."""
    found, i = [pid], 0
    while i < len(found):
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{found[i]}/task"):
                with open(f"/proc/{found[i]}/task/{task}/children") as file:
                    found += [int(child) for child in file.read().split()]
        i += 1
    return found


def read(path):
    with contextlib.suppress(OSError):
        with open(path, "rb") as file:
            return file.read()
    return b""


class SecretSuite(TestSuite):
    def __init__(self):
        debug = {"log_level": "debug"}
        super().__init__(control_planes=3, options={
            "redis": {}, "dataplane": dict(debug), "adapter-local": dict(debug), "binding": dict(debug),
            "skills": dict(debug), "controlplane": dict(debug), "reaper": dict(debug)})
        options = self.facts["options"]
        password = "@" + self.path("redis.password")
        options["redis"]["aclfile"] = self.path("redis.acl")
        for name in ("binding", "skills", "reaper"):
            options[name]["redis_password"] = password
        options["controlplane-3"] = {"key_command": "/bin/cat " + self.path("suite.key"), "key_file": ""}
        self.keys_of_environment = f"key-1 {KEY_1}"
        self.answers = []  # everything that calls said, errors included

    def prepare(self):
        for name, text in (("suite.key", f"key-1 {KEY_1}\n"), ("redis.password", PASSWORD + "\n"),
                           ("redis.acl", f"user default on >{PASSWORD} ~* &* +@all\n")):
            if not os.path.exists(self.path(name)):
                with open(os.open(self.path(name), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                    file.write(text)
        super().prepare()

    def environment(self, name):
        found = super().environment(name)
        found.pop("REDISCLI_AUTH", None)
        if name.startswith("controlplane"):
            found["BERTH_REDIS_PASSWORD"] = PASSWORD
        if name == "controlplane-2":
            found["BERTH_SUITE_KEY"] = self.keys_of_environment
        return found

    def redis_cli(self, *words):
        os.environ["REDISCLI_AUTH"] = PASSWORD
        try:
            return super().redis_cli(*words)
        finally:
            del os.environ["REDISCLI_AUTH"]

    def stored(self, *words):
        """What redis-cli prints, as bytes: what is sealed is no text."""
        return subprocess.run(["redis-cli", "-s", self.path("run", "redis.sock"), "--raw", *words], capture_output=True,
                              check=True, env=os.environ | {"REDISCLI_AUTH": PASSWORD}).stdout

    def tried(self, call, *args, **more):
        """The answer or the failure of a call; kept either way."""
        try:
            answer = call(*args, **more)
        except Failure as failure:
            answer = failure
        self.answers.append(f"{answer} {getattr(answer, 'text', '')} {getattr(answer, 'metadata', '')}")
        return answer

    def metrics(self, name):
        port = self.facts["ports"].get(name + "-metrics", self.facts["ports"][name] + 100)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return answer.read()


def config(name, **more):
    return C.SandboxConfig(config_id=name, tenant_id="default", name=name, backend="local", template_id="base", **more)


def update(api, changed, *paths):
    return api.configs.UpdateConfig, C.UpdateConfigRequest(config=changed, update_mask={"paths": paths})


# Credentials go in by each control plane, are changed, masked, checked, listed; none comes out again.
def credentials__every_call__never_come_out(suite):
    for n, plane in enumerate(["controlplane", "controlplane-2", "controlplane-3"]):
        api = suite.client(control=plane)
        name = f"sealed-{n}"
        keys = C.Credentials(api_key=API_KEY, client_key_pem=PEM)
        made = suite.tried(api.configs.CreateConfig, C.CreateConfigRequest(
            config=config(name, credentials=keys, env={"SHOWN": SHOWN}), request_id=name))
        tap.check(made.config.credentials_set, made)
        tap.equal(sorted(made.config.credentials_members), ["api_key", "client_key_pem"])
        suite.tried(api.configs.CreateConfig, C.CreateConfigRequest(  # repeated, and another
            config=config(name, credentials=keys, env={"SHOWN": SHOWN}), request_id=name))
        tap.equal(suite.tried(api.configs.CreateConfig, C.CreateConfigRequest(
            config=config(name, credentials=C.Credentials(api_key=API_KEY_2)), request_id=name)).reason,
            "REQUEST_ID_REUSED")
        suite.tried(*update(api, config(name, credentials=C.Credentials(api_key="***")), "credentials"))
        suite.tried(*update(api, config(name, credentials=C.Credentials(api_key=API_KEY_2)), "credentials.api_key"))
        suite.tried(api.configs.GetConfig, C.GetConfigRequest(tenant_id="default", config_id=name))
        suite.tried(api.configs.CheckConfig, C.CheckConfigRequest(tenant_id="default", config_id=name))
        suite.tried(api.configs.CheckConfig, C.CheckConfigRequest(tenant_id="default", config=config(
            "tried", credentials=keys)))
        tap.equal(suite.tried(*update(api, config(name, api_url="https://1.1.1.1"), "api_url")).metadata["field"],
                  "config.credentials.api_key")
    listed = suite.tried(api.configs.ListConfigs, C.ListConfigsRequest(tenant_id="default"))
    tap.check(len({each.credentials_fingerprint for each in listed.configs}) >= 2, listed)
    tap.check(holds("".join(suite.answers), SHOWN), "the search finds nothing")
    search("an answer", "\n".join(suite.answers))


# Tokens, too: the first one, one that is made, and one that is none.
def tokens__used_and_refused__never_come_out(suite):
    SECRETS["admin token"] = suite.admin_token()
    made = suite.client().tenants.CreateToken(C.CreateTokenRequest(token=C.Token(
        tenant_id="default", scopes=[C.SCOPE_READ])))
    SECRETS["made token"] = made.secret  # shown once, here
    reader = suite.client(token=made.secret)
    suite.tried(reader.configs.ListConfigs, C.ListConfigsRequest(tenant_id="default"))
    tap.equal(suite.tried(reader.configs.CreateConfig, C.CreateConfigRequest(config=config("no"))).reason,
              "SCOPE_MISSING")
    for bad in (made.secret[:-1] + "_", "Bearer " + REFUSED, REFUSED * 100):
        tap.equal(suite.tried(suite.client(token=bad).configs.ListConfigs, C.ListConfigsRequest(
            tenant_id="default")).code, "UNAUTHENTICATED")
    suite.tried(suite.client().tenants.ListTokens, C.ListTokensRequest(tenant_id="default"))
    search("an answer", "\n".join(suite.answers))


# Values that are refused are not repeated in the error, nor in the log.
def credentials__refused__not_in_the_error(suite):
    api = suite.client()
    for keys in (C.Credentials(api_key=REFUSED * 200), C.Credentials(ca_pem=REFUSED),
                 C.Credentials(client_key_pem=REFUSED), C.Credentials(api_key=REFUSED + "\n"),
                 C.Credentials(client_cert_pem=REFUSED * 4000)):
        failure = suite.tried(api.configs.CreateConfig, C.CreateConfigRequest(config=config("refused", credentials=keys)))
        tap.equal(failure.code, "INVALID_ARGUMENT")
        checked = suite.tried(api.configs.CheckConfig, C.CheckConfigRequest(
            tenant_id="default", config=config("refused", credentials=keys)))
        tap.check(not checked.ok and checked.findings, checked)
    wire = C.CreateConfigRequest(config=config("refused", credentials=C.Credentials(api_key=REFUSED + "MARK"))
                                 ).SerializeToString().replace(b"MARK", b"\xff\xfe\xff\xfe")
    call = api.channels["control"].unary_unary("/berth.control.v1.ConfigService/CreateConfig")
    try:
        call(wire, timeout=10, metadata=api.metadata)
    except Exception as error:  # pylint: disable=broad-except
        suite.answers.append(f"{error} {error.details()} {error.trailing_metadata()}")
    search("an answer", "\n".join(suite.answers))


# Another first key, given to each control plane its own way while it runs; the old one goes when the
# figures say so.
def keys__rotated_while_running__old_one_not_needed(suite):
    def put(*keys):
        with open(os.open(suite.path("suite.key.new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write("".join(f"{name} {key}\n" for name, key in keys))
        os.rename(suite.path("suite.key.new"), suite.path("suite.key"))
        os.kill(suite.pid("controlplane-3"), signal.SIGHUP)  # a command is asked again
    suite.end("controlplane-2", signal.SIGTERM)  # keys of the environment change by a restart only
    put(("key-1", KEY_1), ("key-2", KEY_2))  # known everywhere before anything is sealed under it
    suite.keys_of_environment = f"key-2 {KEY_2},key-1 {KEY_1}"  # its journal is under the old one
    suite.start("controlplane-2")
    put(("key-2", KEY_2), ("key-1", KEY_1))
    for record in (b"config", b"endpoint", b"journal"):
        for name in ("controlplane", "controlplane-2", "controlplane-3"):
            wait_for(lambda name=name, record=record: b'berth_sealed_records{record="%s",key_id="key-1"} 0\n' % record
                     in suite.metrics(name), 60, f"{name}: the old key is not needed any more", step=0.1)
    suite.end("controlplane-2", signal.SIGTERM)
    put(("key-2", KEY_2))
    wait_for(lambda: b'key_id="key-1"' not in suite.metrics("controlplane"), 60, "the old key is gone", step=0.1)
    put(("key-2", "short" + REFUSED))  # refused, and not repeated
    wait_for(lambda: "not read again" in suite.logs("controlplane"), 60, "the bad file is refused", step=0.1)
    put(("key-2", KEY_2))
    # Without the key that is needed nothing starts.
    suite.keys_of_environment = f"key-1 {KEY_1}"
    suite.spawn("controlplane-2")
    wait_for(lambda: not suite.pid("controlplane-2"), 60, "the start is refused")
    tap.check("sealed under key 'key-2', which is not among the suite's keys" in suite.logs("controlplane-2"),
              suite.log_tail("controlplane-2"))
    suite.keys_of_environment = f"key-2 {KEY_2}"
    suite.start("controlplane-2")
    api = suite.client()
    tap.check(suite.tried(*update(api, config("sealed-0", credentials=C.Credentials(api_key="***")), "credentials")
                          ).config.credentials_set, "it opens under the new key")


# What runs in a sandbox sees none of them: not in its environment, not in /proc, not on its disk.
def sandbox__looks_around__finds_none(suite):
    api = suite.client()
    api.resolve("curious", config="local")
    done = suite.tried(api.run, "curious", "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; "
                       "cat /etc/hosts /run/* 2>/dev/null; echo end", text=True)
    tap.check(done.stdout_text.endswith("end\n"), done)
    search("the sandbox", done.stdout_text)


# Every process of the suite and all their children: environment, command line, and no core.
def processes__proc__no_secret_and_no_core(suite):
    names = [name for name in suite.names if suite.pid(name)]
    tap.check(len(names) >= 6, names)
    with_marker = 0
    for name in names:
        for pid in of_tree(suite.pid(name)):
            environment = read(f"/proc/{pid}/environ")
            with_marker += b"PATH=" in environment
            search(f"/proc/{pid}/environ of {name}", environment)
            search(f"/proc/{pid}/cmdline of {name}", read(f"/proc/{pid}/cmdline"))
        limits = read(f"/proc/{suite.pid(name)}/limits").decode()
        line = next(each for each in limits.splitlines() if each.startswith("Max core file size"))
        tap.equal(line.split()[4], "0", name)
    tap.check(with_marker >= 6, "the search finds nothing")


# Logs of all processes at level debug, metrics, and all that Redis has on disk and in memory.
def logs_metrics_store__whole_run__no_secret(suite):
    for name in os.listdir(suite.path("log")):
        data = read(suite.path("log", name))
        tap.check(data, name, "is empty")
        search(f"the log of {name}", data)
    metrics = b"".join(suite.metrics(name) for name in suite.names if suite.pid(name))
    tap.check(b"berth_suite_keys" in metrics, "the search finds nothing")
    search("metrics", metrics)
    on_disk = b"".join(read(os.path.join(folder, name)) for folder, _, names in os.walk(suite.path("redis")) for name in names)
    tap.check(holds(on_disk, SHOWN), "the search finds nothing")
    search("the store on disk", on_disk)
    suite.redis_cli("bgrewriteaof")
    for key in suite.redis_cli("--scan").split():
        kind = suite.redis_cli("type", key)
        words = {"hash": ["hgetall"], "string": ["get"], "set": ["smembers"], "zset": ["zrange", "0", "-1"],
                 "stream": ["xrange", "-", "+"]}[kind]
        search(key, suite.stored(words[0], key, *words[1:]))
    state = b"".join(read(os.path.join(folder, name)) for folder, _, names in os.walk(suite.path("local"))
                     if "rootfs" not in folder and "/upper" not in folder for name in names if name.endswith(".json"))
    search("the state of adapter-local", state)


if __name__ == "__main__":
    tap.main(globals(), SecretSuite)

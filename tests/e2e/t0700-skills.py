#!/usr/bin/python3
"""t0700-skills - skills from the bundle to the next turn: five real ones, installed while others are at work."""
import concurrent.futures
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import bundles  # noqa: E402
import tap  # noqa: E402
from suite import Failure, TestSuite, duration, pb, wait_for  # noqa: E402

K = pb.skills
QUEUED, RUNNING, DONE = K.OPERATION_STATE_QUEUED, K.OPERATION_STATE_RUNNING, K.OPERATION_STATE_DONE
FAILED, CANCELLED = K.OPERATION_STATE_FAILED, K.OPERATION_STATE_CANCELLED
ROOT = "/opt/berth/skills/"


def refusal(call, *args, **more):
    try:
        call(*args, **more)
    except Failure as failure:
        return failure
    raise AssertionError("it was accepted")


def shell(suite, session, text, turn="", status=0, **more):
    result = suite.api.run(session, text, turn=turn, **more)
    tap.equal(result.exited.exit_code, status, text, (result.stdout + result.stderr).decode(errors="replace")[-2000:])
    return result.stdout.decode()


def ended(suite, operation, timeout=120):
    return wait_for(lambda: (lambda now: now if now.state not in (QUEUED, RUNNING) else None)(
        suite.api.operation(operation.operation_id)), timeout, f"{operation.skill_name} ends", step=0.05)


def done(suite, operation, **more):
    now = ended(suite, operation, **more) if operation.operation_id else operation  # one that is unchanged has no id
    tap.equal(now.state, DONE, now.error.reason, now.message, [f.message for f in now.findings])
    return now


def install(suite, files, config="local", kind="tar.gz", **more):
    return suite.api.install_skill(config, bundles.pack(files, kind), allow_warnings=True, **more).operation


def failed(suite, operation, reason):
    now = ended(suite, operation)
    tap.equal((now.state, now.error.reason), (FAILED, reason), now.message)
    return now


def has(suite, **of):
    """{name: generation} of what is ready."""
    return {each.name: each.generation for each in suite.api.list_skills(**of).skills if each.state == K.SKILL_STATE_READY}


def image(suite, config="local"):
    return suite.api.configs.GetConfig(pb.control.GetConfigRequest(tenant_id="default", config_id=config)).config.image


def update(suite, config, *paths, **fields):
    return suite.api.configs.UpdateConfig(pb.control.UpdateConfigRequest(
        config=pb.control.SandboxConfig(tenant_id="default", config_id=config, **fields),
        update_mask={"paths": list(paths)})).config


def make_config(suite, name, **more):
    suite.api.configs.CreateConfig(pb.control.CreateConfigRequest(config=pb.control.SandboxConfig(
        config_id=name, tenant_id="default", name=name, backend="local", template_id="base", **more)))


# Each of the real skills, in each format, wrapped and with litter: accepted, and one content.
def install_skill__real_bundles_validated__accepted_in_every_format(suite):
    for name in sorted(os.listdir(bundles.SKILLS)):
        files, digests = bundles.skill(name), set()
        for kind in bundles.FORMATS:
            data = bundles.pack(files, kind)
            if kind == "zip":
                wrapped = {f"{name}/{path}": what for path, what in files.items()}
                data = bundles.pack(wrapped | bundles.MACOS_LITTER, kind)
            answer = suite.api.install_skill("local", data, validate_only=True)
            tap.equal(answer.operation.state, DONE, name, answer.operation.findings)
            digests.add(answer.skill.bundle_sha256)
        tap.equal((answer.skill.name, len(digests)), (name, 1))
        if name == "contract-review":
            tap.equal(len(answer.skill.description), 400)


# An admin installs while a session is in its turn: nothing of it is touched until EndTurn, and it is told what it has;
# the next turn has the skill, and the files, and the packages. A session of a config that asks for it stays as it is.
def install_skill__during_a_turn__there_at_the_next(suite):
    api = suite.api
    update(suite, "old-stay", "rollout", rollout=pb.control.ROLLOUT_NEW_SESSIONS)
    api.resolve("stays", config="old-stay")
    shell(suite, "stays", "echo mine >/workspace/f")
    stays = api.session("stays").sandbox.sandbox_id
    api.resolve("talks", config="local")
    turn = api.begin_turn("talks")
    wheel = bundles.wheel("zeta")
    api.write_file("talks", "/tmp/" + wheel[0], wheel[1], turn=turn)
    shell(suite, "talks", f"echo kept >/workspace/f; pip install -q --no-index /tmp/{wheel[0]}", turn)
    api.exec("talks", ["sleep", "300"], turn=turn, detach=True, exec_id="nap", timeout=0).until_started()
    before = api.session("talks").sandbox.sandbox_id
    begin = time.monotonic()
    operation = done(suite, install(suite, bundles.skill("git-notes")))
    took = time.monotonic() - begin
    print(f"# an install without dependencies: {took:.2f} s", flush=True)
    done(suite, install(suite, bundles.skill("git-notes"), "old-stay"))
    tap.equal((operation.percent, operation.step, operation.sessions_marked), (100, K.STEP_SANDBOX_DESTROYED, 1))
    tap.equal((has(suite, session_id="talks"), has(suite, config_id="local")), ({}, {"git-notes": operation.generation}))
    tap.equal(shell(suite, "talks", f"cat f; zeta-cmd; ls {ROOT}", turn), "kept\nzeta 1.0\n")
    tap.check(any(each.exec_id == "nap" and not each.HasField("exited") for each in api.list_processes("talks")), "no nap")
    tap.equal(api.session("talks").sandbox.sandbox_id, before)
    api.end_turn("talks", turn)
    turn = api.begin_turn("talks")
    tap.equal(shell(suite, "talks", f"cat f; zeta-cmd; ls {ROOT}", turn), "kept\nzeta 1.0\ngit-notes\n")
    tap.equal(has(suite, session_id="talks"), {"git-notes": operation.generation})
    api.end_turn("talks", turn)
    shell(suite, "stays", "cat f")
    tap.equal((api.session("stays").sandbox.sandbox_id, has(suite, session_id="stays")), (stays, {}))
    api.resolve("new", config="old-stay")
    tap.equal(sorted(has(suite, session_id="new")), ["git-notes"])
    shown = api.skills.GetSkill(K.GetSkillRequest(tenant_id="default", config_id="local", name="git-notes"))
    tap.check("scripts/notes.sh" in shown.instructions and shown.skill.path == ROOT + "git-notes", shown)
    shell(suite, "talks", "git init -q r && cd r && git -c user.name=n -c user.email=e commit -q --allow-empty -m first")
    tap.equal(shell(suite, "talks", f"cd r && {ROOT}git-notes/scripts/notes.sh && sh {ROOT}git-notes/scripts/count.sh"),
              "# Changes\n- first\n1\n")


# All that an installation says comes again to whoever asks later: steps in order, then the end.
def watch_operation__after_the_end__tells_it_all(suite):
    operation = done(suite, install(suite, bundles.skill("brand-guide"), kind="tar.zst"))
    told = list(suite.api.watch_operation(operation.operation_id, timeout=20))
    steps = [each.operation.step for each in told[1:] if each.HasField("operation")]  # first: as it stands
    tap.equal(steps, sorted(steps), "steps go back")
    tap.check({K.STEP_SANDBOX_READY, K.STEP_SEALED, K.STEP_VERIFIED, K.STEP_FLIPPED} <= set(steps), steps)
    tap.equal(told[-1].operation.state, DONE)
    suite.api.resolve("guide", config="local")
    tap.equal(shell(suite, "guide", f"python3 {ROOT}brand-guide/scripts/contrast.py ink paper"), "18.5\n")


# Python with a manifest at the root and one level down, Node with a lock: from folders, nothing asked over the network.
def install_skill__offline_caches__run_in_a_session(suite):
    api = suite.api
    wheels = dict([bundles.wheel("berth_tables"), bundles.wheel("berth_contracts")])
    tables = bundles.skill("table-tools") | {"wheels/" + name: data for name, data in wheels.items()}
    update(suite, "offline", "skills", skills={"wheel_dir": ROOT + "table-tools/wheels",
                                               "npm_cache_dir": ROOT + "web-report/cache"})
    package = bundles.npm_package("berth-figures")
    api.resolve("packer", config="local")
    api.write_file("packer", "/tmp/" + package[0], package[1])
    shell(suite, "packer", f"npm cache add --cache /tmp/cache /tmp/{package[0]} && tar cf /tmp/cache.tar -C /tmp cache/_cacache")
    cache = suite.untar(api.read_file("packer", "/tmp/cache.tar"))
    report = bundles.skill("web-report") | cache | {
        "package-lock.json": bundles.lock_of({"berth-figures": package}, "web-report")}
    queued = [install(suite, files, "offline") for files in (tables, bundles.skill("contract-review"), report)]
    for operation in queued:
        done(suite, operation)
    api.resolve("uses", config="offline")
    tap.equal(sorted(has(suite, session_id="uses")), ["contract-review", "table-tools", "web-report"])
    api.write_file("uses", "/workspace/a.csv", b"name,n\nabc,1\n")
    api.write_file("uses", "/workspace/a.txt", "当事人 标的 价款".encode())
    tap.equal(shell(suite, "uses", "python $BERTH_SKILL_DIR/scripts/render.py a.csv",
                    env={"BERTH_SKILL_DIR": ROOT + "table-tools"}), "name | n\nabc  | 1\n")
    tap.equal(shell(suite, "uses", ["python", ROOT + "contract-review/scripts/review.py", "a.txt"],
                    env={"BERTH_SKILL_DIR": ROOT + "contract-review"}), "缺: 期限、违约责任、争议解决 1.0\n")
    tap.equal(shell(suite, "uses", f"node {ROOT}web-report/lib/report.mjs Sales 1 2"),
              "<h1>Sales</h1><ul><li>1</li><li>2</li></ul><!-- berth-figures 1.0.0 -->\n")
    tap.equal(shell(suite, "uses", f"find {ROOT} -writable ! -type l; find {ROOT} ! -user root; find /tmp -mindepth 1"), "")
    tap.check("ermission denied" in api.run("uses", f"touch {ROOT}table-tools/x").stderr.decode(), "it was written")


# What an index does not have is named, and no generation is made.
def install_skill__missing_package__named_and_nothing_changed(suite):
    before = image(suite, "offline")
    now = failed(suite, install(suite, bundles.simple("lacks", requirements__txt="nobody-has-this==9\n"), "offline"),
                 "DEPENDENCY_FAILED")
    tap.check("nobody-has-this" in now.message, now.message)
    tap.equal(image(suite, "offline"), before)


# Every script that does not parse is told, in one go, and no generation is made.
def install_skill__broken_scripts__all_told(suite):
    before = image(suite)
    now = failed(suite, install(suite, bundles.simple("broken") | {
        "scripts/a.py": b"def f(:\n", "scripts/b.sh": b"#!/bin/bash\nif true; then\n", "scripts/c.mjs": b"let = ;\n",
        "scripts/fine.py": b"print(1)\n"}), "GATE_FAILED")
    tap.equal(sorted(each.file for each in now.findings if each.severity == K.SEVERITY_ERROR),
              ["scripts/a.py", "scripts/b.sh", "scripts/c.mjs"])
    tap.equal(image(suite), before)
    tap.check("broken" not in has(suite, config_id="local"), "it is listed as ready")


# The same content again changes nothing; another one is a new generation.
def install_skill__same_content_twice__unchanged(suite):
    before = image(suite)
    now = done(suite, install(suite, bundles.skill("git-notes"), kind="zip"))
    tap.check(now.unchanged and image(suite) == before, now)
    tap.check(not done(suite, install(suite, bundles.skill("git-notes") | {"scripts/more.sh": b"true\n"})).unchanged)
    tap.equal(image(suite).generation, before.generation + 1)


# What waits is overtaken by a newer one of the same skill, what runs is stopped on request, others' settings stay.
def operations__overtaken_cancelled_and_settings_saved__each_as_asked(suite):
    slow = bundles.simple("slow", front="metadata:\n  berth-self-test: sleep 60\n")
    first = install(suite, slow, "queue")
    wait_for(lambda: suite.api.operation(first.operation_id).step >= K.STEP_SEALED, 30, "the self-test begins", step=0.02)
    waiting = [install(suite, bundles.simple("quick", body=f"{n}\n"), "queue") for n in range(3)]
    apart = install(suite, bundles.simple("apart"), "queue")
    update(suite, "queue", "env", "name", env={"SAVED": "meanwhile"}, name="renamed")
    cancelled = suite.api.skills.CancelOperation(K.CancelOperationRequest(tenant_id="default", operation_id=apart.operation_id))
    tap.equal(cancelled.operation.state, CANCELLED)
    begin = time.monotonic()
    suite.api.skills.CancelOperation(K.CancelOperationRequest(tenant_id="default", operation_id=first.operation_id))
    tap.equal(ended(suite, first).state, CANCELLED)
    tap.check(time.monotonic() - begin < 5, "it went on")
    done(suite, waiting[2])
    tap.equal([ended(suite, each).state for each in waiting], [CANCELLED, CANCELLED, DONE])
    config = suite.api.configs.GetConfig(pb.control.GetConfigRequest(tenant_id="default", config_id="queue")).config
    tap.equal((config.name, dict(config.env), config.image.generation), ("renamed", {"SAVED": "meanwhile"},
                                                                        suite.api.operation(waiting[2].operation_id).generation))
    suite.api.resolve("after", config="queue")
    tap.equal(shell(suite, "after", f"cat {ROOT}quick/SKILL.md | tail -1; echo $SAVED; ls {ROOT}"), "2\nmeanwhile\nquick\n")


# Twenty at once, on one config and on four: each is carried out or overtaken, one image each, with all that is wanted.
def install_skill__twenty_at_once__one_after_the_other(suite):
    configs = ["queue"] * 14 + ["many-1", "many-2", "many-3"] * 2
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        queued = list(pool.map(lambda n: install(suite, bundles.simple(f"many-{n % 3}", body=f"{n}\n"), configs[n]), range(20)))
    states = {each.operation_id: ended(suite, each) for each in queued if each.operation_id}
    tap.check({each.state for each in states.values()} <= {DONE, CANCELLED}, [each.message for each in states.values()])
    tap.equal(sorted(has(suite, config_id="queue")), ["many-0", "many-1", "many-2", "quick"])
    flipped = [each.generation for each in states.values() if each.config_id == "queue" and each.state == DONE and not each.unchanged]
    tap.equal((len(set(flipped)), max(flipped)), (len(flipped), image(suite, "queue").generation))
    for name in ("many-1", "many-2", "many-3"):
        tap.equal(len(has(suite, config_id=name)), 1, name)


# Rollback brings an older image under a new number, uninstall takes one out, the last one the image, rebuild makes it anew.
def image__rolled_back_uninstalled_rebuilt__as_asked(suite):
    api = suite.api
    with_two = image(suite)
    taken = done(suite, api.skills.UninstallSkill(K.UninstallSkillRequest(
        tenant_id="default", config_id="local", name="brand-guide")).operation)
    tap.equal((list(has(suite, config_id="local")), taken.generation), (["git-notes"], with_two.generation + 1))
    api.resolve("less", config="local")
    tap.equal(shell(suite, "less", f"ls {ROOT}"), "git-notes\n")
    back = done(suite, api.skills.RollbackImage(K.RollbackImageRequest(
        tenant_id="default", config_id="local", generation=with_two.generation)).operation)
    now = image(suite)
    tap.equal((now.snapshot_id, now.generation), (with_two.snapshot_id, back.generation))
    tap.check(back.generation > taken.generation, back)
    tap.equal(sorted(has(suite, config_id="local")), ["brand-guide", "git-notes"])
    rebuilt = done(suite, api.skills.RebuildImage(K.RebuildImageRequest(tenant_id="default", config_id="local")).operation)
    tap.equal((image(suite).generation, sorted(has(suite, config_id="local"))), (rebuilt.generation, ["brand-guide", "git-notes"]))
    tap.equal(shell(suite, "less", f"ls {ROOT}"), "brand-guide\ngit-notes\n")
    pruned = api.skills.PruneSnapshots(K.PruneSnapshotsRequest(tenant_id="default", config_id="local", retention=duration(0)))
    tap.check(any(item.deleted for item in pruned.items), pruned)
    tap.check(image(suite).snapshot_id not in [item.snapshot_id for item in pruned.items if item.deleted], pruned)
    api.resolve("booted", config="local")
    tap.equal(shell(suite, "booted", f"ls {ROOT}"), "brand-guide\ngit-notes\n")
    for name in ("brand-guide", "git-notes"):
        done(suite, api.skills.UninstallSkill(K.UninstallSkillRequest(
            tenant_id="default", config_id="local", name=name)).operation)
    tap.equal((image(suite).snapshot_id, has(suite, config_id="local")), ("", {}))
    api.resolve("bare", config="local")
    tap.equal(shell(suite, "bare", f"ls {ROOT}"), "")
    tap.equal(refusal(api.skills.UninstallSkill, K.UninstallSkillRequest(
        tenant_id="default", config_id="local", name="git-notes")).reason, "SKILL_NOT_FOUND")


# An agent of the caller's has a token for the maintenance session alone, works there as root, and says that it is ready.
def external_installer__with_its_token__works_as_root_and_finishes(suite):
    api = suite.api
    answer = api.install_skill("many-3", bundles.pack(bundles.simple("agentic")), external_installer=True)
    operation = answer.operation
    wait_for(lambda: api.operation(operation.operation_id).step == K.STEP_EXTERNAL_INSTALLER, 30, "it is the agent's turn")
    session = api.operation(operation.operation_id).maintenance_session_id
    agent = suite.client(token=answer.installer_token)
    tap.equal(agent.run(session, f"id -u; echo made >{ROOT}agentic/made", account=pb.data.ACCOUNT_ROOT).stdout, b"0\n")
    tap.check(refusal(agent.run, "bare", "true").code in ("NOT_FOUND", "PERMISSION_DENIED"), "it reached another session")
    agent.skills.FinishInstallation(K.FinishInstallationRequest(
        tenant_id="default", operation_id=operation.operation_id, ok=True))
    done(suite, operation)
    tap.equal(agent.operation(operation.operation_id).state, K.OPERATION_STATE_DONE)
    why = refusal(agent.run, session, "true")
    tap.equal(why.reason, "SESSION_DELETED")
    api.resolve("agented", config="many-3")
    tap.equal(shell(suite, "agented", f"cat {ROOT}agentic/made; stat -c %U {ROOT}agentic/made"), "made\nroot\n")
    rebuilt = done(suite, api.skills.RebuildImage(K.RebuildImageRequest(tenant_id="default", config_id="many-3")).operation)
    tap.check("EXTERNAL_WORK_LOST" in [each.code for each in rebuilt.findings], rebuilt)


def with_index(suite, command):
    """Skips where a sandbox reaches no public index."""
    if suite.api.run("bare", command, timeout=40).exited.exit_code != 0:
        raise tap.Skip("a sandbox reaches no public index from this machine")


# One real package of the Python index, and what it brings.
def real_index__python_package__runs_in_a_session(suite):
    with_index(suite, "pip download -q -d /tmp/d --no-deps --retries 0 --timeout 8 tabulate")
    done(suite, install(suite, bundles.simple("from-index", requirements__txt="tabulate\n"), "many-1"))
    suite.api.resolve("indexed", config="many-1")
    tap.equal(shell(suite, "indexed", "python -c \"from tabulate import tabulate; print(tabulate([[1]], tablefmt='plain'))\"",
                    env={"BERTH_SKILL_DIR": ROOT + "from-index"}), "1\n")


# One real package of npm's registry.
def real_index__npm_package__runs_in_a_session(suite):
    with_index(suite, "timeout 20 npm view is-number version")
    done(suite, install(suite, bundles.simple("from-npm", package__json='{"dependencies": {"is-number": "^7.0.0"}}\n') | {
        "scripts/n.js": b"console.log(require('is-number')('5'));\n"}, "many-2"))
    suite.api.resolve("npmed", config="many-2")
    tap.equal(shell(suite, "npmed", f"node {ROOT}from-npm/scripts/n.js"), "true\n")


class Suite(TestSuite):
    def __init__(self):
        super().__init__(options={"skills": {"uploads": 24}})

    def __enter__(self):
        super().__enter__()
        self.api = self.client()
        for name in ("old-stay", "offline", "queue", "many-1", "many-2", "many-3"):
            make_config(self, name)
        return self

    @staticmethod
    def untar(data):
        import io
        import tarfile
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            return {each.name: (tar.extractfile(each).read(), 0o644) for each in tar if each.isfile()}


if __name__ == "__main__":
    tap.main(globals(), Suite)

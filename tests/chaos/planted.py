"""planted.py - each judge of these tests is shown what it must not miss."""
import secrets
import time

import faults
import race
from city import City, Failure, pb, wait_for
from load import Lives, handed_out_dead, handed_out_twice

B = pb.backend


def make_by_hand(city, session, config="local"):
    """A second sandbox of a session, behind Berth's back."""
    target = city.target_message()
    tags = {"deployment": "test", "tenant": "default", "session": session, "config": config, "backend": "local",
            "account": target.fingerprint.hex(), "v": "1", "generation": "0", "fence": "1", "attempt": secrets.token_hex(16),
            "created": str(int(time.time() * 1000)), "kind": "session"}
    policy = pb.common.TimeoutPolicy(auto_resume=pb.common.SWITCH_OPEN, on_idle=pb.common.IDLE_ACTION_PAUSE)
    for name in ("idle", "max_paused", "max_lifetime", "warn_before"):
        getattr(policy, name).FromSeconds(3600 if name in ("idle", "max_paused") else 0)
    return city.adapter().CreateSandbox(B.CreateSandboxRequest(
        target=target, image=pb.common.Image(template_id="base"), unique_key=secrets.token_hex(16), fence=1,
        metadata={f"berth.{key}": value for key, value in tags.items()}, attempt=secrets.token_bytes(16), timeouts=policy,
        network=pb.common.NetworkPolicy(egress=pb.common.SWITCH_CLOSED, inbound=pb.common.SWITCH_CLOSED)), timeout=30).sandbox.sandbox_id


def second_sandbox(check):
    """Two of one session on the local backend: the observer of its store says so."""
    with City(control_planes=1, bindings=1, pair=False) as city, race.Watched(city) as watched:
        one = city.api.resolve("s", config="local").session.sandbox.sandbox_id
        other = make_by_hand(city, "s")
        wait_for(lambda: Lives(watched.log).two, 10, "the observer tells of two")
        check({*Lives(watched.log).two[0][1:]} == {one, other}, Lives(watched.log).two)
        city.sweep()
        wait_for(lambda: city.sweep() and city.folders() == {one}, 10, "the second one is gone")


def undeleted(check):
    """A backend that answers a delete and does nothing: two that were handed out live at once."""
    with City(cloud={"lie": "2"}, control_planes=1, bindings=1, pair=False) as city:
        answers = []
        for _ in range(2):
            begin = time.monotonic_ns()
            answer = city.api.resolve("s", config="local", recreate=True)
            answers.append((begin, time.monotonic_ns(), "s", answer.session.sandbox.sandbox_id))
            city.api.delete("s")
        if answers[0][3] == answers[1][3]:  # adopted: it was there
            answers[1] = (*answers[1][:3], make_by_hand(city, "s"))
        check(handed_out_twice(answers, Lives(city.log), {}), "not seen: two handed out and alive")


def judged(check):
    """The rules over logs alone; a seed is a schedule."""
    drawn = [faults.schedule(7, ["a", "b"], ["c"], 1000, 20, True) for _ in range(2)]
    check(drawn[0] == drawn[1] != faults.schedule(8, ["a", "b"], ["c"], 1000, 20, True), "the same seed, the same faults")
    lives = Lives("/dev/null")
    lives.session, lives.made, lives.gone = {"a": "s", "b": "s"}, {"a": 1, "b": 20}, {"a": 15}
    fine = [(2, 5, "s", "a"), (16, 30, "s", "b")]
    check(not handed_out_twice(fine, lives, {}) and not handed_out_dead(fine, lives, {}), "a replacement is fine")
    check(handed_out_dead(fine + [(16, 18, "s", "a")], lives, {}), "a dead one handed out")
    check(handed_out_twice(fine + [(2, 5, "t", "a")], lives, {}), "one of another session")
    check(said_of_files(lives, "what it was"), "files that are the same, in another sandbox")
    check(not said_of_files(lives, "less"), "files that are not the same")
    lives.gone["a"] = 31
    check(handed_out_twice(fine, lives, {}), "both alive when the second is handed out")


def said_of_files(lives, now):
    """Are the files of session s, which lived in a and then in b, as they ought to be?"""
    said, files = [], race.Files.__new__(race.Files)
    files.sums, files.read = {"s": "what it was"}, lambda session: now
    files.judge(lives, lambda good, *_: said.append(good))
    return all(said)


def late_creates(check):
    """A backend whose creates land after its horizon: what is left after the sweep is seen."""
    with City(cloud={"lie": "1", "trouble": "1000", "seed": "3", "horizon": "500ms"}, control_planes=1, bindings=1, pair=False) as city:
        for n in range(12):
            try:
                city.api.resolve(f"s{n}", config="local", timeout=2)
            except Failure:
                pass
        city.calm()
        time.sleep(4)
        city.sweep()
        held, _ = city.bound()

        def seen():
            city.adapter().ListSandboxes(B.ListSandboxesRequest(target=city.target_message()), timeout=10)
            return Lives(city.log).alive() - set(held.values())
        wait_for(seen, 20, "what landed after the sweep is seen", step=0.2)


def seen(_size, _seed, check):
    cases = (judged, second_sandbox, undeleted, late_creates)
    for case in cases:
        case(check)
    return f"{len(cases)} kinds"

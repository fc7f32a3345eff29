#!/usr/bin/python3
"""t0230-configs - the main rules of configs through the whole suite: what is the server's, masks, etags, request
ids, identity of a config in use, cordons, CheckConfig.

Sanitized, too."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap  # noqa: E402
from suite import Failure, TestSuite, duration, pb, wait_for  # noqa: E402

C = pb.control


def refusal(call, *args, **more):
    try:
        call(*args, **more)
    except Failure as failure:
        return failure
    raise AssertionError("it was accepted")


def config(config_id, **more):
    return C.SandboxConfig(**(dict(config_id=config_id, tenant_id="default", name=config_id, backend="local",
                                   template_id="base") | more))


def create(api, wanted, request_id=""):
    return api.configs.CreateConfig(C.CreateConfigRequest(config=wanted, request_id=request_id)).config


def update(api, wanted, *paths):
    return api.configs.UpdateConfig(C.UpdateConfigRequest(config=wanted, update_mask={"paths": paths})).config


def get(api, name):
    return api.configs.GetConfig(C.GetConfigRequest(tenant_id="default", config_id=name)).config


def check(api, wanted):
    return api.configs.CheckConfig(C.CheckConfigRequest(tenant_id="default", config=wanted))


# The same request is the same answer, also after the config has changed; another one is refused.
def create__request_id__first_answer_again(suite):
    api = suite.client()
    wanted = config("once", options={"a": "1", "b": "2"})
    first = create(api, wanted, "id-1")
    update(api, config("once", name="renamed"), "name")
    tap.equal(create(api, wanted, "id-1"), first)
    failure = refusal(create, api, config("twice", options={"a": "1", "b": "2"}), "id-1")
    tap.equal((failure.code, failure.reason), ("INVALID_ARGUMENT", "REQUEST_ID_REUSED"))
    tap.equal(refusal(create, api, wanted).reason, "CONFIG_EXISTS")
    tap.equal(refusal(get, api, "twice").reason, "CONFIG_NOT_FOUND")


# A mask names members too; one that names nothing is refused by name; what is the server's stays.
def update__masks__only_what_they_name(suite):
    api = suite.client()
    made = create(api, config("masks", timeouts={"idle": duration(60), "max_paused": duration(600)}))
    got = update(api, config("masks", timeouts={"idle": duration(70)}), "timeouts.idle")
    tap.equal((got.timeouts.idle.seconds, got.timeouts.max_paused.seconds), (70, 600))
    failure = refusal(update, api, config("masks"), "name", "timeouts.idel")
    tap.equal((failure.reason, failure.metadata["field"]), ("FIELD_INVALID", "update_mask"))
    tap.check("'timeouts.idel'" in failure.text, failure)
    forged = config("masks", fingerprint="f" * 64, created_by="me", image={"snapshot_id": "mine", "generation": 9})
    update(api, forged, "fingerprint", "created_by", "image", "image.snapshot_id")
    update(api, forged, "*")
    after = get(api, "masks")
    tap.equal((after.fingerprint, after.created_by), (made.fingerprint, made.created_by))
    tap.check(not after.image.snapshot_id, after.image)
    failure = refusal(update, api, config("masks", etag=made.etag), "name")
    tap.equal((failure.code, failure.reason), ("ABORTED", "ETAG_MISMATCH"))
    update(api, config("masks", etag=after.etag, command_timeout=duration(600)), "command_timeout")
    failure = refusal(update, api, config("masks", command_timeout_max=duration(60)), "command_timeout_max")
    tap.equal(failure.metadata["field"], "config.command_timeout")


# A config whose sandboxes live stays where it is; without them it may move.
def identity__sandbox_lives__config_in_use(suite):
    api = suite.client()
    create(api, config("home"))
    api.resolve("resident", config="home")
    failure = refusal(update, api, config("home", api_url="https://1.1.1.1"), "api_url")
    tap.equal((failure.code, failure.reason), ("FAILED_PRECONDITION", "CONFIG_IN_USE"))
    tap.equal(refusal(update, api, config("home", allow_private_endpoints=True), "*").reason, "CONFIG_IN_USE")
    tap.equal(refusal(update, api, config("home", backend="docker"), "backend").metadata["field"], "config.backend")
    tap.equal(refusal(api.configs.DeleteConfig, C.DeleteConfigRequest(tenant_id="default", config_id="home")).reason,
              "CONFIG_IN_USE")
    tap.equal(api.run("resident", "echo on", text=True).stdout_text, "on\n")
    api.delete("resident")
    update(api, config("home", allow_private_endpoints=True), "allow_private_endpoints")


# Nothing new in a cordon, what is there goes on; it ends by itself, without anybody writing.
def cordon__with_an_end__ends_by_itself(suite):
    api = suite.client()
    create(api, config("fence"))
    api.resolve("inside", config="fence")
    end = time.time() + 3
    cordoned = config("fence", cordoned=True)
    cordoned.cordon_expire_time.FromNanoseconds(round(end * 1e9))
    update(api, cordoned, "cordoned", "cordon_expire_time")
    tap.equal(refusal(api.resolve, "outside", config="fence").reason, "CONFIG_CORDONED")
    tap.check(get(api, "fence").cordoned)
    tap.equal(api.run("inside", "echo on", text=True).stdout_text, "on\n")

    def enters():
        try:
            return api.resolve("outside", config="fence")
        except Failure as failure:
            tap.equal(failure.reason, "CONFIG_CORDONED")
            return None
    wait_for(enters, 20, "the cordon ends", step=0.05)
    tap.check(time.time() >= end and not get(api, "fence").cordoned)


# All that is wrong at once, with field, rule and capability, and nothing is written.
def check_config__several_faults__all_told(suite):
    api = suite.client()
    checked = check(api, config("bad", template_id="a b", verify_interval=duration(-1), env={"BERTH_X": "1"},
                                volumes=[{"volume": "v", "path": "/data"}], api_url="http://169.254.169.254/",
                                timeouts={"idle": duration(0)}))
    found = {finding.field: finding for finding in checked.findings}
    tap.check(not checked.ok and checked.message, checked)
    for field, reason in (("config.template_id", "FIELD_INVALID"), ("config.verify_interval", "FIELD_INVALID"),
                          ("config.env", "RESERVED_KEY"), ("config.api_url", "ENDPOINT_REFUSED")):
        tap.equal(found[field].reason, reason, field)
        tap.check(found[field].rule, field)
    tap.equal(found["config.timeouts.idle"].severity, C.FINDING_SEVERITY_WARNING)
    checked = check(api, config("bad", volumes=[{"volume": "v", "path": "/data"}], template_id="no-such"))
    found = {finding.field: finding for finding in checked.findings}
    tap.equal(found["config.volumes"].capability, "volumes")
    tap.check("config.template_id" in found, checked)
    tap.equal(refusal(get, api, "bad").reason, "CONFIG_NOT_FOUND")
    checked = check(api, config("good"))
    tap.check(checked.ok, checked)


if __name__ == "__main__":
    tap.main(globals(), TestSuite)

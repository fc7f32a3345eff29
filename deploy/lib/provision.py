"""provision.py - what a new suite needs before the first session: the template `base`, a tenant and
a config for the local backend."""
import json
import os

import grpc

from client import Failure, OPTIONS
from stubs import pb

TENANT, CONFIG, TEMPLATE = "default", "local", "base"


def local_target():
    return pb.common.BackendTarget(config_id=CONFIG, backend="local", tenant_id=TENANT)


def has_base(templates):
    """Is the template there whole? An unfinished one has no meta.json."""
    try:
        with open(os.path.join(templates, TEMPLATE, "meta.json")) as file:
            return bool(json.load(file))
    except (OSError, ValueError):
        return False


def build_base(suite, say):
    """Has adapter-local build the template `base`, if it has none; say(text) is called per step."""
    with grpc.insecure_channel(suite.target("adapter-local"), options=OPTIONS) as channel:
        templates = pb.rpc.backend.TemplateServiceStub(channel)
        try:
            answer = templates.GetTemplate(pb.backend.GetTemplateRequest(
                target=local_target(), template_id=TEMPLATE), timeout=30)
            if answer.template.state == pb.common.TEMPLATE_STATE_READY:
                return False
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise Failure(error) from None
        last = None
        try:
            for progress in templates.BuildTemplate(pb.backend.BuildTemplateRequest(
                    target=local_target(), name=TEMPLATE), timeout=1800):
                # One line per percent: what is being done just then.
                if (progress.percent, progress.step) != last:
                    say(f"{progress.percent:3d} % {progress.step} {progress.message[:60]}".rstrip())
                last = progress.percent, progress.step
        except grpc.RpcError as error:
            raise Failure(error) from None
        return True


def tenant_and_config(client):
    """Tenant `default` with the config `local`, where they are not there yet."""
    def unless_there(call, request, reason):
        try:
            call(request)
        except Failure as failure:
            if failure.reason != reason:
                raise
    unless_there(client.tenants.CreateTenant, pb.control.CreateTenantRequest(
        tenant=pb.control.Tenant(tenant_id=client.tenant)), "TENANT_EXISTS")
    unless_there(client.configs.CreateConfig, pb.control.CreateConfigRequest(
        config=pb.control.SandboxConfig(config_id=CONFIG, tenant_id=client.tenant, name=CONFIG, backend="local",
                                        template_id=TEMPLATE)), "CONFIG_EXISTS")
    client.tenants.UpdateTenant(pb.control.UpdateTenantRequest(
        tenant=pb.control.Tenant(tenant_id=client.tenant, default_config_id=CONFIG),
        update_mask={"paths": ["default_config_id"]}))

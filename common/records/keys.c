#include "common/records/keys.h"

#include <stdio.h>

static const char *make(char *buf, const char *tenant, const char *kind, const char *id)
{
    snprintf(buf, BERTH_KEY_MAX, "berth:{%s}:%s%s", tenant, kind, id);
    return buf;
}

const char *berth_key_session(char *buf, const char *tenant, const char *session)
{
    return make(buf, tenant, "s/", session);
}

const char *berth_key_session_prefix(char *buf, const char *tenant)
{
    return make(buf, tenant, "s/", "");
}

const char *berth_key_config(char *buf, const char *tenant, const char *config)
{
    return make(buf, tenant, "c/", config);
}

const char *berth_key_config_prefix(char *buf, const char *tenant)
{
    return make(buf, tenant, "c/", "");
}

const char *berth_key_index_config(char *buf, const char *tenant, const char *config)
{
    return make(buf, tenant, "i/c/", config);
}

const char *berth_key_index_configs(char *buf, const char *tenant)
{
    return make(buf, tenant, "i/configs", "");
}

const char *berth_key_due(char *buf, const char *tenant)
{
    return make(buf, tenant, "i/due", "");
}

const char *berth_key_alias(char *buf, const char *tenant)
{
    return make(buf, tenant, "i/alias", "");
}

const char *berth_key_snapshot_index(char *buf, const char *tenant)
{
    return make(buf, tenant, "i/snapshot", "");
}

const char *berth_key_events(char *buf, const char *tenant)
{
    return make(buf, tenant, "ev", "");
}

const char *berth_key_tenant(char *buf, const char *tenant)
{
    return make(buf, tenant, "t", "");
}

const char *berth_key_quota(char *buf, const char *tenant)
{
    return make(buf, tenant, "q", "");
}

const char *berth_key_operation(char *buf, const char *tenant, const char *operation)
{
    return make(buf, tenant, "op/", operation);
}

const char *berth_key_operation_log(char *buf, const char *tenant, const char *operation)
{
    return make(buf, tenant, "opl/", operation);
}

const char *berth_key_queues(char *buf, const char *tenant)
{
    return make(buf, tenant, "i/queues", "");
}

const char *berth_key_request(char *buf, const char *tenant, const char *digest)
{
    return make(buf, tenant, "rq/", digest);
}

const char *berth_key_inbound(char *buf, const char *tenant, const char *session)
{
    return make(buf, tenant, "in/", session);
}

const char *berth_key_token(char *buf, const char *token_id)
{
    snprintf(buf, BERTH_KEY_MAX, "berth:token/%s", token_id);
    return buf;
}

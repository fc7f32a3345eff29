#include "services/controlplane/policy.h"

#include <stdbool.h>

#include "common/messages/messages.h"
#include "services/controlplane/net.h"

typedef Berth__Common__V1__NetworkPolicy NetworkPolicy;
typedef Berth__Common__V1__TimeoutPolicy TimeoutPolicy;
typedef Berth__Common__V1__Resources Resources;
typedef Berth__Common__V1__Capabilities Capabilities;

#define OPEN BERTH__COMMON__V1__SWITCH__SWITCH_OPEN
#define CLOSED BERTH__COMMON__V1__SWITCH__SWITCH_CLOSED
#define DNS_DEFAULT BERTH__COMMON__V1__DNS_MODE__DNS_MODE_POLICY

void cp_policy_deinit(struct cp_policy *policy)
{
    policy->network = berth_message_free(policy->network);
    policy->timeouts = berth_message_free(policy->timeouts);
    policy->resources = berth_message_free(policy->resources);
}

/* ------------------------------------------------------------------ network */

static Berth__Common__V1__Switch pick_switch(const NetworkPolicy *policy, bool inbound,
                                             Berth__Common__V1__Switch otherwise)
{
    Berth__Common__V1__Switch value = !policy ? 0 : inbound ? policy->inbound : policy->egress;

    return value == OPEN || value == CLOSED ? value : otherwise;
}

/* The session's word, unless it would open what the config closes. */
static Berth__Common__V1__Switch narrow_switch(const NetworkPolicy *config,
                                               const NetworkPolicy *session, bool inbound)
{
    Berth__Common__V1__Switch base = pick_switch(config, inbound, inbound ? CLOSED : OPEN);

    return base == CLOSED ? CLOSED : pick_switch(session, inbound, base);
}

/* UNSPECIFIED inherits; OPEN is wider than POLICY is wider than CLOSED. */
static int dns_width(Berth__Common__V1__DnsMode mode)
{
    switch (mode) {
    case BERTH__COMMON__V1__DNS_MODE__DNS_MODE_OPEN:
        return 2;
    case BERTH__COMMON__V1__DNS_MODE__DNS_MODE_CLOSED:
        return 0;
    default:
        return 1;
    }
}

static Berth__Common__V1__DnsMode narrow_dns(const NetworkPolicy *config,
                                             const NetworkPolicy *session)
{
    Berth__Common__V1__DnsMode base = config && config->dns ? config->dns : DNS_DEFAULT;

    if (!session || !session->dns || dns_width(session->dns) > dns_width(base))
        return base;
    return session->dns;
}

static bool in_list(char *const *list, size_t n, const char *value)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], value) == 0)
            return true;
    return false;
}

/* May a session allow this destination? Allowed entries beat denied ones at the backend, so one
 * that overlaps what the config denies must be allowed by the config, too. */
static bool may_allow(const NetworkPolicy *config, const char *entry)
{
    struct cp_net wanted, net;
    bool is_net = cp_net_parse(entry, &wanted);

    for (size_t i = 0; config && i < config->n_allow_out; i++)
        if (is_net ? cp_net_parse(config->allow_out[i], &net) && cp_net_covers(&net, &wanted)
                   : cp_domain_covers(config->allow_out[i], entry))
            return true;
    if (pick_switch(config, false, OPEN) == CLOSED)
        return false;
    for (size_t i = 0; config && i < config->n_deny_out; i++)
        if (!is_net ||
            (cp_net_parse(config->deny_out[i], &net) && cp_net_overlaps(&net, &wanted)))
            return false;
    return true;
}

static bool may_ask(const NetworkPolicy *config, const char *server)
{
    return !config || config->n_dns_servers == 0 ||
           in_list(config->dns_servers, config->n_dns_servers, server);
}

/* A session that says something about egress brings its own list; otherwise it has the
 * config's. */
static bool brings_allow_list(const NetworkPolicy *session)
{
    return session && (session->n_allow_out > 0 || session->egress);
}

static bool merge_lists(const NetworkPolicy *config, const NetworkPolicy *session,
                        NetworkPolicy *out)
{
    const NetworkPolicy *allow = brings_allow_list(session) ? session : config;
    const NetworkPolicy *dns = session && session->n_dns_servers > 0 ? session : config;
    bool ok = true;

    for (size_t i = 0; allow && ok && i < allow->n_allow_out; i++)
        if (allow == config || may_allow(config, allow->allow_out[i]))
            ok = berth_add_string(&out->n_allow_out, &out->allow_out, allow->allow_out[i]);
    for (size_t i = 0; config && ok && i < config->n_deny_out; i++)
        ok = berth_add_string(&out->n_deny_out, &out->deny_out, config->deny_out[i]);
    for (size_t i = 0; session && ok && i < session->n_deny_out; i++)
        if (!in_list(out->deny_out, out->n_deny_out, session->deny_out[i]))
            ok = berth_add_string(&out->n_deny_out, &out->deny_out, session->deny_out[i]);
    for (size_t i = 0; dns && ok && i < dns->n_dns_servers; i++)
        if (dns == config || may_ask(config, dns->dns_servers[i]))
            ok = berth_add_string(&out->n_dns_servers, &out->dns_servers, dns->dns_servers[i]);
    return ok;
}

static NetworkPolicy *resolve_network(const NetworkPolicy *config, const NetworkPolicy *session)
{
    NetworkPolicy *out = berth_message_new(&berth__common__v1__network_policy__descriptor);

    if (!out)
        return NULL;
    out->egress = narrow_switch(config, session, false);
    out->inbound = narrow_switch(config, session, true);
    out->dns = narrow_dns(config, session);
    return merge_lists(config, session, out) ? out : berth_message_free(out);
}

static enum berth_code wider(struct berth_error *err, const char *member, const char *why)
{
    enum berth_code code = berth_fail(err, BERTH_REASON_NETWORK_POLICY_INVALID,
                                      "spec.network.%s: %s; a session may narrow its config's "
                                      "policy, not widen it",
                                      member, why);

    BERTH_ERROR_SET(err, field, "spec.network");
    return code;
}

enum berth_code cp_policy_check_narrow(const NetworkPolicy *config,
                                       const NetworkPolicy *session, struct berth_error *err)
{
    if (!session)
        return BERTH_OK;
    if (session->egress == OPEN && pick_switch(config, false, OPEN) == CLOSED)
        return wider(err, "egress", "the config's is CLOSED");
    if (session->inbound == OPEN && pick_switch(config, true, CLOSED) == CLOSED)
        return wider(err, "inbound", "the config's is CLOSED");
    if (session->dns &&
        dns_width(session->dns) > dns_width(config && config->dns ? config->dns : DNS_DEFAULT))
        return wider(err, "dns", "the config's is narrower");
    for (size_t i = 0; i < session->n_allow_out; i++)
        if (!may_allow(config, session->allow_out[i]))
            return wider(err, "allow_out", "an entry is not allowed by the config");
    for (size_t i = 0; i < session->n_dns_servers; i++)
        if (!may_ask(config, session->dns_servers[i]))
            return wider(err, "dns_servers", "a server is not one of the config's");
    return BERTH_OK;
}

/* ------------------------------------------------------- timeouts, resources */

static Google__Protobuf__Duration *pick_duration(const Google__Protobuf__Duration *session,
                                                 const Google__Protobuf__Duration *config,
                                                 int64_t otherwise_ms, bool *ok)
{
    const Google__Protobuf__Duration *from = session ? session : config;
    Google__Protobuf__Duration *out;

    if (!from && otherwise_ms < 0)
        return NULL;
    out = from ? berth_message_copy(from) : berth_duration(otherwise_ms);
    if (!out)
        *ok = false;
    return out;
}

static Berth__Common__V1__IdleAction idle_default(const Capabilities *caps)
{
    const Berth__Common__V1__PauseCapability *pause = caps ? caps->pause : NULL;

    return pause && pause->supported && pause->keeps_memory
               ? BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_PAUSE
               : BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_KILL;
}

static TimeoutPolicy *resolve_timeouts(const TimeoutPolicy *config,
                                       const TimeoutPolicy *session, const Capabilities *caps)
{
    static const TimeoutPolicy nothing = BERTH__COMMON__V1__TIMEOUT_POLICY__INIT;
    TimeoutPolicy *out = berth_message_new(&berth__common__v1__timeout_policy__descriptor);
    const TimeoutPolicy *base = config ? config : &nothing, *own = session ? session : &nothing;
    bool ok = true;

    if (!out)
        return NULL;
    out->idle = pick_duration(own->idle, base->idle, CP_IDLE_DEFAULT_MS, &ok);
    out->max_paused =
        pick_duration(own->max_paused, base->max_paused, CP_MAX_PAUSED_DEFAULT_MS, &ok);
    out->max_lifetime = pick_duration(own->max_lifetime, base->max_lifetime, -1, &ok);
    out->warn_before = pick_duration(own->warn_before, base->warn_before, -1, &ok);
    out->on_idle = own->on_idle    ? own->on_idle
                   : base->on_idle ? base->on_idle
                                   : idle_default(caps);
    out->auto_resume = own->auto_resume    ? own->auto_resume
                       : base->auto_resume ? base->auto_resume
                                           : OPEN;
    return ok ? out : berth_message_free(out);
}

static Resources *resolve_resources(const Resources *config, const Resources *session)
{
    static const Resources nothing = BERTH__COMMON__V1__RESOURCES__INIT;
    Resources *out = berth_message_new(&berth__common__v1__resources__descriptor);
    const Resources *base = config ? config : &nothing, *own = session ? session : &nothing;

    if (!out)
        return NULL;
    out->cpu_millis = own->cpu_millis ? own->cpu_millis : base->cpu_millis;
    out->memory_bytes = own->memory_bytes ? own->memory_bytes : base->memory_bytes;
    out->disk_bytes = own->disk_bytes ? own->disk_bytes : base->disk_bytes;
    out->max_processes = own->max_processes ? own->max_processes : base->max_processes;
    out->max_open_files = own->max_open_files ? own->max_open_files : base->max_open_files;
    return out;
}

enum berth_code cp_policy_resolve(const Berth__Control__V1__SandboxConfig *config,
                                  const Berth__Common__V1__SessionSpec *spec,
                                  const Capabilities *caps, struct cp_policy *ret,
                                  struct berth_error *err)
{
    struct cp_policy out = {
        .network = resolve_network(config->network, spec ? spec->network : NULL),
        .timeouts = resolve_timeouts(config->timeouts, spec ? spec->timeouts : NULL, caps),
        .resources = resolve_resources(config->resources, spec ? spec->resources : NULL),
    };

    if (!out.network || !out.timeouts || !out.resources) {
        cp_policy_deinit(&out);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    *ret = out;
    return BERTH_OK;
}

/* ------------------------------------------------------------- capabilities */

enum berth_code cp_missing(const char *capability, const char *what, struct berth_error *err)
{
    enum berth_code code =
        berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                   "%s: the backend lacks the capability %s", what, capability);

    BERTH_ERROR_SET(err, resource, capability);
    return code;
}

static bool any_domain(const NetworkPolicy *network)
{
    struct cp_net net;

    for (size_t i = 0; i < network->n_allow_out; i++)
        if (!cp_net_parse(network->allow_out[i], &net))
            return true;
    return false;
}

static bool any_net(const NetworkPolicy *network)
{
    struct cp_net net;

    for (size_t i = 0; i < network->n_allow_out; i++)
        if (cp_net_parse(network->allow_out[i], &net))
            return true;
    return network->n_deny_out > 0;
}

static enum berth_code check_network(const Capabilities *caps, const NetworkPolicy *network,
                                     struct berth_error *err)
{
    static const Berth__Common__V1__NetworkCapability none =
        BERTH__COMMON__V1__NETWORK_CAPABILITY__INIT;
    const Berth__Common__V1__NetworkCapability *can = caps->network ? caps->network : &none;

    if (network->egress == CLOSED && !can->egress_switch)
        return cp_missing("network.egress_switch", "network.egress", err);
    if (network->inbound && !can->inbound_switch)
        return cp_missing("network.inbound_switch", "network.inbound", err);
    if (any_domain(network) && !can->domains)
        return cp_missing("network.domains", "network.allow_out", err);
    if (any_net(network) && !can->cidr)
        return cp_missing("network.cidr", "network.allow_out and deny_out", err);
    if (network->dns && network->dns != DNS_DEFAULT && !can->dns_policy)
        return cp_missing("network.dns_policy", "network.dns", err);
    if (network->n_dns_servers > 0 && !can->dns_servers)
        return cp_missing("network.dns_servers", "network.dns_servers", err);
    if (network->n_rules > 0)
        return cp_missing("network.l7", "network.rules", err);
    return BERTH_OK;
}

enum berth_code cp_policy_check_capable(const Capabilities *caps, const NetworkPolicy *network,
                                        const TimeoutPolicy *timeouts,
                                        const Resources *resources, size_t n_volumes,
                                        struct berth_error *err)
{
    enum berth_code code = network ? check_network(caps, network, err) : BERTH_OK;

    if (code)
        return code;
    if (timeouts && timeouts->on_idle == BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_PAUSE &&
        !(caps->pause && caps->pause->supported))
        return cp_missing("pause", "timeouts.on_idle", err);
    if (resources && resources->disk_bytes && !caps->disk_limit)
        return cp_missing("disk_limit", "resources.disk_bytes", err);
    if (resources &&
        (resources->cpu_millis || resources->memory_bytes || resources->max_processes ||
         resources->max_open_files) &&
        !caps->resources)
        return cp_missing("resources", "resources", err);
    if (n_volumes > 0 && !caps->volumes)
        return cp_missing("volumes", "volumes", err);
    return BERTH_OK;
}

#include "services/adapter/encode.h"

#include "common/messages/messages.h"

typedef Berth__Common__V1__Sandbox Sandbox;
typedef Berth__Common__V1__Sandbox__MetadataEntry MetadataEntry;

bool encode_string(char **member, const char *value)
{
    *member = strdup(value);
    return *member != NULL;
}

/* Free a message that is half built. Members are NULL or the empty string of __init. */
static void *discard(void *message)
{
    protobuf_c_message_free_unpacked(message, NULL);
    return NULL;
}

static Google__Protobuf__Timestamp *new_time(int64_t ms)
{
    Google__Protobuf__Timestamp *time = calloc(1, sizeof *time);

    if (!time)
        return NULL;
    google__protobuf__timestamp__init(time);
    time->seconds = ms / 1000;
    time->nanos = (int32_t)(ms % 1000) * 1000000;
    return time;
}

/* 0: not known, so absent. */
static bool put_time(Google__Protobuf__Timestamp **member, int64_t ms)
{
    if (!ms)
        return true;
    *member = new_time(ms);
    return *member != NULL;
}

static Google__Protobuf__Duration *new_duration(int64_t ms)
{
    Google__Protobuf__Duration *duration = calloc(1, sizeof *duration);

    if (!duration)
        return NULL;
    google__protobuf__duration__init(duration);
    duration->seconds = ms / 1000;
    duration->nanos = (int32_t)(ms % 1000) * 1000000;
    return duration;
}

static bool put_duration(Google__Protobuf__Duration **member, int64_t ms)
{
    if (ms == ADAPTER_INHERIT)
        return true;
    *member = new_duration(ms);
    return *member != NULL;
}

static Berth__Common__V1__TimeoutPolicy *new_timeouts(const struct adapter_timeouts *t)
{
    Berth__Common__V1__TimeoutPolicy *policy = calloc(1, sizeof *policy);

    if (!policy)
        return NULL;
    berth__common__v1__timeout_policy__init(policy);
    policy->on_idle = (Berth__Common__V1__IdleAction)t->on_idle;
    policy->auto_resume = (Berth__Common__V1__Switch)t->auto_resume;
    if (!put_duration(&policy->idle, t->idle_ms) ||
        !put_duration(&policy->max_lifetime, t->max_lifetime_ms) ||
        !put_duration(&policy->max_paused, t->max_paused_ms) ||
        !put_duration(&policy->warn_before, t->warn_before_ms))
        return discard(policy);
    return policy;
}

static Berth__Common__V1__NetworkPolicy *new_network(const struct adapter_network *network)
{
    Berth__Common__V1__NetworkPolicy *policy = calloc(1, sizeof *policy);

    if (!policy)
        return NULL;
    berth__common__v1__network_policy__init(policy);
    policy->egress = (Berth__Common__V1__Switch)network->egress;
    policy->inbound = (Berth__Common__V1__Switch)network->inbound;
    policy->dns = (Berth__Common__V1__DnsMode)network->dns;
    return policy;
}

static Berth__Common__V1__Resources *new_resources(const struct adapter_resources *from)
{
    Berth__Common__V1__Resources *resources = calloc(1, sizeof *resources);

    if (!resources)
        return NULL;
    berth__common__v1__resources__init(resources);
    resources->cpu_millis = from->cpu_millis;
    resources->memory_bytes = from->memory_bytes;
    resources->disk_bytes = from->disk_bytes;
    resources->max_processes = from->max_processes;
    resources->max_open_files = from->max_open_files;
    return resources;
}

static Berth__Common__V1__Image *new_image(const struct adapter_image *from)
{
    Berth__Common__V1__Image *image = calloc(1, sizeof *image);

    if (!image)
        return NULL;
    berth__common__v1__image__init(image);
    image->generation = from->generation;
    if (from->kind == ADAPTER_IMAGE_NONE)
        return image;
    image->source_case = from->kind == ADAPTER_IMAGE_TEMPLATE
                             ? BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID
                             : BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID;
    image->template_id = strdup(from->id); /* the other member of the union is the same */
    if (!image->template_id) {
        image->source_case = BERTH__COMMON__V1__IMAGE__SOURCE__NOT_SET;
        return discard(image);
    }
    return image;
}

static bool put_metadata(Sandbox *to, const struct adapter_pairs *pairs)
{
    if (pairs->n == 0)
        return true;
    to->metadata = calloc(pairs->n, sizeof *to->metadata);
    if (!to->metadata)
        return false;
    for (size_t i = 0; i < pairs->n; i++) {
        MetadataEntry *entry = calloc(1, sizeof *entry);

        if (!entry)
            return false;
        berth__common__v1__sandbox__metadata_entry__init(entry);
        to->metadata[to->n_metadata++] = entry;
        if (!encode_string(&entry->key, pairs->keys[i]) ||
            !encode_string(&entry->value, pairs->values[i]))
            return false;
    }
    return true;
}

Berth__Common__V1__Sandbox *encode_sandbox(const char *backend,
                                           const struct adapter_sandbox *from)
{
    Sandbox *to = calloc(1, sizeof *to);

    if (!to)
        return NULL;
    berth__common__v1__sandbox__init(to);
    to->state = (Berth__Common__V1__SandboxState)from->state;
    to->disk_used_bytes = from->disk_used_bytes;
    to->fence = from->fence;
    if (!encode_string(&to->sandbox_id, from->id) || !encode_string(&to->backend, backend) ||
        !encode_string(&to->raw_state, from->raw_state) || !put_metadata(to, &from->metadata) ||
        !put_time(&to->create_time, from->create_ms) ||
        !put_time(&to->end_time, from->end_ms) ||
        !put_time(&to->last_active_time, from->last_active_ms) ||
        !put_time(&to->last_call_time, from->last_call_ms) ||
        !(to->image = new_image(&from->image)) ||
        !(to->timeouts = new_timeouts(&from->timeouts)) ||
        !(to->network = new_network(&from->network)) ||
        !(to->resources = new_resources(&from->resources)))
        return discard(to);
    return to;
}

static bool put_snapshot_metadata(Berth__Common__V1__Snapshot *to,
                                  const struct adapter_pairs *pairs)
{
    for (size_t i = 0; i < pairs->n; i++)
        if (!berth_set_map(&to->n_metadata, &to->metadata,
                           &berth__common__v1__snapshot__metadata_entry__descriptor,
                           pairs->keys[i], pairs->values[i]))
            return false;
    return true;
}

Berth__Common__V1__Snapshot *encode_snapshot(const struct adapter_snapshot *from)
{
    Berth__Common__V1__Snapshot *to = calloc(1, sizeof *to);

    if (!to)
        return NULL;
    berth__common__v1__snapshot__init(to);
    to->state = (Berth__Common__V1__SnapshotState)from->state;
    to->size_bytes = from->size_bytes;
    to->has_memory = from->has_memory;
    to->names = calloc(1, sizeof *to->names);
    if (!to->names || !encode_string(&to->names[0], from->name))
        return discard(to);
    to->n_names = 1;
    if (!encode_string(&to->snapshot_id, from->id) ||
        !encode_string(&to->source_sandbox_id, from->source_sandbox_id) ||
        !put_snapshot_metadata(to, &from->metadata) ||
        !put_time(&to->create_time, from->create_ms))
        return discard(to);
    return to;
}

Berth__Common__V1__Template *encode_template(const struct adapter_template *from)
{
    Berth__Common__V1__Template *to = calloc(1, sizeof *to);

    if (!to)
        return NULL;
    berth__common__v1__template__init(to);
    to->state = (Berth__Common__V1__TemplateState)from->state;
    to->size_bytes = from->size_bytes;
    to->names = calloc(1, sizeof *to->names);
    if (!to->names || !encode_string(&to->names[0], from->id))
        return discard(to);
    to->n_names = 1;
    if (!encode_string(&to->template_id, from->id) ||
        !encode_string(&to->message, from->message) ||
        !put_time(&to->create_time, from->create_ms))
        return discard(to);
    return to;
}

/* A copy without credentials: who holds an endpoint needs none. */
static Berth__Common__V1__BackendTarget *
copy_target(const Berth__Common__V1__BackendTarget *target)
{
    Berth__Common__V1__BackendTarget bare = *target;
    Berth__Common__V1__BackendTarget *copy;
    size_t size;
    uint8_t *packed;

    bare.sealed_credentials = (ProtobufCBinaryData){0};
    size = berth__common__v1__backend_target__get_packed_size(&bare);
    packed = malloc(size ? size : 1);
    if (!packed)
        return NULL;
    berth__common__v1__backend_target__pack(&bare, packed);
    copy = berth__common__v1__backend_target__unpack(NULL, size, packed);
    free(packed);
    return copy;
}

Berth__Common__V1__DataPlaneEndpoint *
encode_endpoint(const Berth__Common__V1__BackendTarget *target, const char *sandbox_id,
                uint64_t fence)
{
    Berth__Common__V1__DataPlaneEndpoint *endpoint = calloc(1, sizeof *endpoint);

    if (!endpoint)
        return NULL;
    berth__common__v1__data_plane_endpoint__init(endpoint);
    endpoint->kind = BERTH__COMMON__V1__DATA_PLANE_KIND__DATA_PLANE_KIND_ADAPTER;
    endpoint->fence = fence;
    if (!encode_string(&endpoint->sandbox_id, sandbox_id) ||
        !(endpoint->target = copy_target(target)))
        return discard(endpoint);
    return endpoint;
}

/* ----------------------------------------------------------------------- info */

static bool put_pause(Berth__Common__V1__Capabilities *to, const struct adapter_info *info)
{
    Berth__Common__V1__PauseCapability *pause = calloc(1, sizeof *pause);

    if (!pause)
        return false;
    berth__common__v1__pause_capability__init(pause);
    pause->supported = info->pause;
    pause->keeps_memory = info->pause_keeps_memory;
    pause->frees_host_memory = info->pause_frees_host_memory;
    pause->auto_resume = info->pause_auto_resume;
    to->pause = pause;
    return true;
}

static bool put_snapshots(Berth__Common__V1__Capabilities *to, const struct adapter_info *info)
{
    Berth__Common__V1__SnapshotCapability *snapshots = calloc(1, sizeof *snapshots);

    if (!snapshots)
        return false;
    berth__common__v1__snapshot_capability__init(snapshots);
    snapshots->supported = info->snapshots;
    snapshots->keeps_memory = info->snapshot_keeps_memory;
    snapshots->source_must_run = info->snapshot_source_must_run;
    snapshots->names_listed = info->snapshot_names_listed;
    snapshots->host_bound = info->snapshot_host_bound;
    to->snapshots = snapshots;
    return true;
}

static bool put_network(Berth__Common__V1__Capabilities *to, const struct adapter_info *info)
{
    Berth__Common__V1__NetworkCapability *network = calloc(1, sizeof *network);

    if (!network)
        return false;
    berth__common__v1__network_capability__init(network);
    network->egress_switch = info->egress_switch;
    network->inbound_switch = info->inbound_switch;
    network->cidr = info->cidr;
    network->domains = info->domains;
    network->l7 = info->l7;
    network->live_update = info->live_update;
    network->dns_policy = info->dns_policy;
    network->dns_servers = info->dns_servers;
    to->network = network;
    return true;
}

static Berth__Common__V1__Capabilities *new_capabilities(const struct adapter_info *info)
{
    Berth__Common__V1__Capabilities *to = calloc(1, sizeof *to);

    if (!to)
        return NULL;
    berth__common__v1__capabilities__init(to);
    to->isolation = (Berth__Common__V1__Isolation)info->isolation;
    to->timeout_model = (Berth__Common__V1__TimeoutModel)info->timeout_model;
    to->commands = info->commands;
    to->files = info->files;
    to->watch = info->watch;
    to->terminal = info->terminal;
    to->root_commands = info->root_commands;
    to->volumes = info->volumes;
    to->templates_build = info->templates_build;
    to->keyed_create = info->keyed_create;
    to->metadata_filter = info->metadata_filter;
    to->rollback = info->rollback;
    to->resources = info->resources;
    to->disk_limit = info->disk_limit;
    if ((info->pause && !put_pause(to, info)) ||
        (info->snapshots && !put_snapshots(to, info)) || !put_network(to, info))
        return discard(to);
    return to;
}

Berth__Backend__V1__GetInfoResponse *encode_info(const char *backend,
                                                 const struct adapter_info *info)
{
    Berth__Backend__V1__GetInfoResponse *to = calloc(1, sizeof *to);

    if (!to)
        return NULL;
    berth__backend__v1__get_info_response__init(to);
    to->data_plane = (Berth__Common__V1__DataPlaneKind)info->data_plane;
    to->fenced = info->fenced;
    if (!encode_string(&to->backend, backend) ||
        !encode_string(&to->adapter_version, BERTH_VERSION) ||
        !encode_string(&to->account_id, info->account_id) ||
        !(to->capabilities = new_capabilities(info)) ||
        !(to->max_resources = new_resources(&info->max_resources)) ||
        !put_duration(&to->create_horizon, info->create_horizon_ms))
        return discard(to);
    return to;
}

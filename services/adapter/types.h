/* types.h - what adapters know of sandboxes, snapshots and templates, without gRPC, so that the
 * helpers of a backend can use it, too. Enum numbers are those of berth.common.v1. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/errors/errors.h"

enum {
    ADAPTER_ID_SIZE = 72,      /* ids that adapters make, with NUL */
    ADAPTER_KEY_SIZE = 201,    /* unique_key, with NUL */
    ADAPTER_ATTEMPT_SIZE = 129 /* attempt as hex, with NUL */
};

enum adapter_switch { ADAPTER_SWITCH_UNSET, ADAPTER_OPEN, ADAPTER_CLOSED };

enum adapter_state {
    ADAPTER_STATE_UNSET,
    ADAPTER_RUNNING,
    ADAPTER_PAUSED,
    ADAPTER_TRANSITIONING,
    ADAPTER_TERMINAL,
    ADAPTER_UNKNOWN
};

enum adapter_image_kind { ADAPTER_IMAGE_NONE, ADAPTER_IMAGE_TEMPLATE, ADAPTER_IMAGE_SNAPSHOT };

struct adapter_image {
    enum adapter_image_kind kind;
    char id[ADAPTER_ID_SIZE];
    uint64_t generation;
};

/* String pairs, owned. {0} is empty. */
struct adapter_pairs {
    size_t n;
    char **keys, **values;
};

/* Milliseconds; ADAPTER_INHERIT where nothing was said, 0 = never. */
enum { ADAPTER_INHERIT = -1 };
struct adapter_timeouts {
    int64_t idle_ms, max_lifetime_ms, max_paused_ms, warn_before_ms;
    int on_idle;     /* IdleAction */
    int auto_resume; /* enum adapter_switch */
};

struct adapter_network {
    int egress, inbound; /* enum adapter_switch */
    int dns;             /* DnsMode */
};

/* 0: the backend's default; as answered: what is in force, 0 = no limit. */
struct adapter_resources {
    uint32_t cpu_millis, max_processes, max_open_files;
    uint64_t memory_bytes, disk_bytes;
};

struct adapter_sandbox {
    char id[ADAPTER_ID_SIZE];
    enum adapter_state state;
    char raw_state[32]; /* for a developer */
    struct adapter_image image;
    struct adapter_pairs metadata;
    int64_t create_ms, end_ms, last_active_ms,
        last_call_ms; /* wall clock; 0: not known, none */
    struct adapter_timeouts timeouts;
    struct adapter_network network;
    struct adapter_resources resources;
    uint64_t disk_used_bytes;
    uint64_t fence; /* highest one seen by the sandbox */
};

struct adapter_snapshot {
    char id[ADAPTER_ID_SIZE];
    char name[ADAPTER_ID_SIZE];
    int state; /* SnapshotState */
    char source_sandbox_id[ADAPTER_ID_SIZE];
    struct adapter_pairs metadata;
    uint64_t size_bytes;
    int64_t create_ms;
    bool has_memory;
};

struct adapter_template {
    char id[ADAPTER_ID_SIZE];
    int state; /* TemplateState */
    char message[256];
    uint64_t size_bytes;
    int64_t create_ms;
};

/* Free what the struct owns; it is empty afterwards. */
void adapter_pairs_deinit(struct adapter_pairs *pairs);
void adapter_sandbox_deinit(struct adapter_sandbox *sandbox);
void adapter_snapshot_deinit(struct adapter_snapshot *snapshot);

/* Append a copy of one pair. */
BERTH_MUST_CHECK enum berth_code adapter_pairs_add(struct adapter_pairs *pairs, const char *key,
                                                   const char *value, struct berth_error *err);
/* Value of key, borrowed; NULL: not there. */
const char *adapter_pairs_get(const struct adapter_pairs *pairs, const char *key);

/* JSON objects with the members' names; new references, NULL: out of memory. */
json_t *adapter_pairs_to_json(const struct adapter_pairs *pairs);
json_t *adapter_image_to_json(const struct adapter_image *image);
json_t *adapter_timeouts_to_json(const struct adapter_timeouts *timeouts);
json_t *adapter_network_to_json(const struct adapter_network *network);
json_t *adapter_resources_to_json(const struct adapter_resources *resources);

/* And back; json NULL reads as "nothing said". Errors: FIELD_INVALID. */
BERTH_MUST_CHECK enum berth_code
adapter_pairs_from_json(const json_t *json, struct adapter_pairs *ret, struct berth_error *err);
BERTH_MUST_CHECK enum berth_code
adapter_image_from_json(const json_t *json, struct adapter_image *ret, struct berth_error *err);
BERTH_MUST_CHECK enum berth_code adapter_timeouts_from_json(const json_t *json,
                                                            struct adapter_timeouts *ret,
                                                            struct berth_error *err);
BERTH_MUST_CHECK enum berth_code adapter_network_from_json(const json_t *json,
                                                           struct adapter_network *ret,
                                                           struct berth_error *err);
BERTH_MUST_CHECK enum berth_code adapter_resources_from_json(const json_t *json,
                                                             struct adapter_resources *ret,
                                                             struct berth_error *err);

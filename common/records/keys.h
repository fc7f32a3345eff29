/* keys.h - every Redis key of Berth (design section 1). All keys of a tenant share one hash
 * tag. */
#pragma once

enum { BERTH_KEY_MAX = 320 };

/* Each writes a NUL-terminated key into buf[BERTH_KEY_MAX] and returns buf. Ids must have been
 * checked (common/fields): at most 128 characters each. */
const char *berth_key_session(char *buf, const char *tenant, const char *session);
const char *berth_key_session_prefix(char *buf, const char *tenant); /* "berth:{t}:s/" */
const char *berth_key_config(char *buf, const char *tenant, const char *config);
const char *berth_key_config_prefix(char *buf, const char *tenant);
const char *berth_key_index_config(char *buf, const char *tenant, const char *config);
const char *berth_key_index_configs(char *buf,
                                    const char *tenant); /* ZSET of the tenant's config ids */
const char *berth_key_due(char *buf, const char *tenant);
const char *berth_key_alias(char *buf, const char *tenant);
const char *berth_key_snapshot_index(char *buf, const char *tenant);
const char *berth_key_events(char *buf, const char *tenant);
const char *berth_key_tenant(char *buf, const char *tenant);
/* HASH: rev, new with whatever counts against a limit of the tenant, so that of two who would
 * go over it together one has to count again; b:<row>: snapshots that are being made (skills).
 */
const char *berth_key_quota(char *buf, const char *tenant);
const char *berth_key_operation(char *buf, const char *tenant, const char *operation);
/* STREAM: what an operation has said. */
const char *berth_key_operation_log(char *buf, const char *tenant, const char *operation);
/* SET of the tenant's configs that have operations in their queue. */
const char *berth_key_queues(char *buf, const char *tenant);
/* HASH, only after a loss: an inbound token as the journals had it. */
const char *berth_key_inbound(char *buf, const char *tenant, const char *session);
const char *berth_key_token(char *buf, const char *token_id); /* "berth:token/<id>" */

/* HASH, gone after 24 h: what a request id was used for. digest: 32 hex digits of it. */
const char *berth_key_request(char *buf, const char *tenant, const char *digest);

#define BERTH_KEY_TENANTS "berth:tenants"       /* SET of tenant ids: a hint */
#define BERTH_KEY_DEPLOYMENT "berth:deployment" /* the deployment id */
#define BERTH_KEY_EPOCH "berth:epoch"           /* present: the index is whole */
#define BERTH_KEY_CHANGES "berth:changes"       /* STREAM: records that changed; a hint */
#define BERTH_KEY_REAPER "berth:reaper"         /* HASH, a lease: which reaper leads */
/* HASH: "<tenant>/<config>" -> "<running ms> <paused ms> <stored KiB x s>" used so far; at ->
 * Redis' time of the last sample. */
#define BERTH_KEY_USAGE "berth:usage"
/* "<run_id> <ms>": the server that binding knows, and when it was made master; 0: it began as
 * one. */
#define BERTH_KEY_SERVER "berth:server"

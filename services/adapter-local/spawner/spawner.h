/* spawner.h - berth-local-spawner inside: one function per operation, each run in a child
 * process of its own, so that it may block and may be killed. */
#pragma once

#include <jansson.h>

#include "services/adapter-local/spawner/cgroup.h"
#include "services/adapter-local/spawner/net.h"
#include "services/adapter-local/spawner/store.h"

struct spawner {
    int socket_fd; /* to the adapter */
    struct store store;
    struct cgroup_host host;
    struct net_cidr cidr;
    char cidr_text[20];
    char resolvers[256];
    char slots_dir[256];
    char supervisor_path[STORE_PATH_MAX];
    int64_t ended_keep_ms; /* that the directory of one that has ended is kept */
    char cgroup_name[32];
    char table[32];  /* of nftables */
    char prefix[16]; /* of link names */
};

/* What an operation is asked to do and by when. */
struct operation {
    int64_t id;
    const json_t *request;
    int64_t deadline_ms; /* tick */
    json_t *answer;      /* members to add to {"ok":true} */
    /* Set by an operation that goes on after it was answered (removing what it threw away). */
    void (*afterwards)(const struct spawner *spawner);
};

typedef enum berth_code (*operation_fn)(const struct spawner *spawner, struct operation *op,
                                        struct berth_error *err);

/* create.c:
 * {"key","fence","attempt","not_after_ms","image","metadata","env","network","timeouts",
 * "resources"} -> {"sandbox_id"} */
enum berth_code spawner_create(const struct spawner *spawner, struct operation *op,
                               struct berth_error *err);

/* lifecycle.c: all take {"sandbox_id","fence","not_after_ms"}.
 * connect {"timeouts"?} -> {"resumed"}; set_timeout {"timeouts"}; set_network {"network"};
 * delete {"unless_active_after_ms"} -> {"existed"} */
enum berth_code spawner_connect(const struct spawner *spawner, struct operation *op,
                                struct berth_error *err);
enum berth_code spawner_pause(const struct spawner *spawner, struct operation *op,
                              struct berth_error *err);
enum berth_code spawner_set_timeout(const struct spawner *spawner, struct operation *op,
                                    struct berth_error *err);
enum berth_code spawner_set_network(const struct spawner *spawner, struct operation *op,
                                    struct berth_error *err);
enum berth_code spawner_delete(const struct spawner *spawner, struct operation *op,
                               struct berth_error *err);

/* snapshot.c: {"sandbox_id","name","metadata","fence","not_after_ms"} -> {"snapshot_id"};
 * delete_snapshot {"snapshot_id","fence","not_after_ms"} -> {"existed","in_use"} */
enum berth_code spawner_snapshot(const struct spawner *spawner, struct operation *op,
                                 struct berth_error *err);
enum berth_code spawner_delete_snapshot(const struct spawner *spawner, struct operation *op,
                                        struct berth_error *err);

/* template.c: {"name"} -> {} with progress; delete_template {"template_id"} -> {"existed"} */
enum berth_code spawner_build_template(const struct spawner *spawner, struct operation *op,
                                       struct berth_error *err);
enum berth_code spawner_delete_template(const struct spawner *spawner, struct operation *op,
                                        struct berth_error *err);

/* Tell the adapter how far a long operation is. False: it is gone. */
bool spawner_progress(const struct spawner *spawner, const struct operation *op,
                      const char *step, unsigned percent, const char *message);

/* probe.c: try on this host, in a child, everything a sandbox needs. Errors: CAPABILITY_MISSING
 * naming the first step that fails, its errno and what to change. */
BERTH_MUST_CHECK enum berth_code spawner_probe(const struct spawner *spawner,
                                               struct berth_error *err);

/* host.c: what a sandbox holds outside of its directory. */

/* Remove it: processes, cgroups, link, inbound rule, slot. slot < 0: not known. Processes that
 * are dead but for being reaped may show for a moment longer: host_await_gone(). */
BERTH_MUST_CHECK enum berth_code host_release(const struct spawner *spawner, const char *id,
                                              int slot, bool inbound_open, int64_t deadline_ms,
                                              struct berth_error *err);
void host_await_gone(const struct record *record);
/* The store's packet rules, with the inbound switches of its running sandboxes. */
BERTH_MUST_CHECK enum berth_code host_install_rules(const struct spawner *spawner,
                                                    struct berth_error *err);
/* We end: where no sandbox runs any more, packet rules and groups of the store go, too. */
void host_leave(const struct spawner *spawner);
/* Forwarding on, and Docker's chain lets our packets pass. */
BERTH_MUST_CHECK enum berth_code host_prepare_forwarding(const struct spawner *spawner,
                                                         struct berth_error *err);

/* sweep.c: bring the store and the host together again after crashes: finish deletes, remove
 * what was half made, release what dead sandboxes held and, later, remove them, thaw what a
 * dead snapshot froze, forget old keys, empty the trash. Leaves alone whatever somebody holds a
 * lock on. Safe at any time.
 */
void spawner_sweep(const struct spawner *spawner);
/* Does a sandbox, or a snapshot that is not itself on its way out, stand on this one? */
bool spawner_snapshot_needed(const struct spawner *spawner, const char *id);
/* Only the trash. */
void spawner_empty_trash(const struct spawner *spawner);

/* measure.c: note of each sandbox what it has written, by walking through its layer. Takes as
 * long as it takes; skips what cannot have changed. */
void spawner_measure(const struct spawner *spawner);

/* Common to the operations: the members every grant has. Errors: DEADLINE when not_after is
 * past. */
BERTH_MUST_CHECK enum berth_code operation_grant(const struct operation *op,
                                                 uint64_t *ret_fence, struct berth_error *err);

/* rig.h - a store of its own for each test, with a real spawner, real supervisors and a
 * template `tiny` that holds hardly more than directories: tests look at sandboxes from within
 * by entering their namespaces, not by running programs. Needs root; exits with 77 where the
 * host refuses. */
#pragma once

#include <check.h>
#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "services/adapter-local/spawn_client.h"
#include "services/adapter-local/spawner/cgroup.h"
#include "services/adapter-local/spawner/store.h"

#define RIG_SLOTS "/run/berth/slots"
#define RIG_CIDR "10.213.0.0/16"

struct rig {
    char dir[96]; /* the state directory */
    struct store store;
    struct cgroup_host host;
    struct spawn_client *client;
    char resolvers[64];     /* set before rig_open() */
    int64_t measure_ms;     /* the same; 0: hardly ever */
    int64_t ended_keep_ms;  /* the same; 0: for ever */
    const char *supervisor; /* NULL: the real one */
};

/* Once, first thing in main(): 77 where sandboxes cannot be made here. */
void rig_main(void);
/* Last thing in main(): removes what failed tests left. */
void rig_finish(void);

void rig_open(struct rig *rig);
/* Delete all sandboxes that are left, check that nothing is left on the host, remove the store.
 */
void rig_close(struct rig *rig);
/* Only the spawner goes; and comes again. */
void rig_stop(struct rig *rig);
void rig_start(struct rig *rig);
pid_t rig_spawner_pid(const struct rig *rig);

/* One operation of the spawner. request: taken. answer may be NULL. */
enum berth_code rig_call(struct rig *rig, const char *op, json_t *request, json_t **answer,
                         struct berth_error *err);
/* {"sandbox_id","fence"} */
json_t *rig_about(const char *id, uint64_t fence);

struct rig_wish {
    const char *key, *attempt; /* NULL: "key", "aa" */
    uint64_t fence;
    const char *snapshot, *template; /* NULL, NULL: template tiny */
    bool egress, inbound;
    uint64_t memory;
    unsigned processes;
    int64_t not_after_ms;
};
enum berth_code rig_create(struct rig *rig, const struct rig_wish *wish,
                           char id[ADAPTER_ID_SIZE], struct berth_error *err);
/* Must succeed. */
void rig_make(struct rig *rig, const struct rig_wish *wish, char id[ADAPTER_ID_SIZE]);
void rig_delete(struct rig *rig, const char *id, uint64_t fence);
/* Must succeed; snapshot id. */
void rig_snapshot(struct rig *rig, const char *id, const char *name,
                  char snapshot[ADAPTER_ID_SIZE]);

void rig_record(struct rig *rig, const char *id, struct record *ret);
enum adapter_state rig_state(struct rig *rig, const char *id);
struct cgroup rig_group(struct rig *rig, const char *id);
/* Write a file into the sandbox's writable layer from the host; "etc/x" (parents exist). */
void rig_path(struct rig *rig, const char *id, const char *below, char path[512]);

/* Run fn(arg) in a child and wait; its return value (0..255), or -1 when it was killed. */
enum rig_as {
    RIG_ROOT,    /* in all namespaces, root of the sandbox, confined as a command is */
    RIG_USER,    /* the same as uid 1000 */
    RIG_NETWORK, /* in its network only, with all of the host's power */
    RIG_BARE     /* in all namespaces but the user namespace, not confined: what root could do
                    if those two protections were off */
};
int rig_inside(struct rig *rig, const char *id, enum rig_as as, int (*fn)(void *arg),
               void *arg);
/* Start it and leave it running in the sandbox; its pid on the host. It must not return. */
pid_t rig_start_inside(struct rig *rig, const char *id, enum rig_as as, int (*fn)(void *arg),
                       void *arg);

/* Poll until cond(arg) or until limit_ms have passed; the last value. */
bool rig_until(bool (*cond)(void *arg), void *arg, int limit_ms);
bool rig_pid_lives(pid_t pid);
/* What of a sandbox is left on the host; "" = nothing. slot < 0: not known. */
const char *rig_leftovers(struct rig *rig, const char *id, int slot);

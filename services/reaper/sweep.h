/* sweep.h - one pass: what is there, whose it is, what is to become of it, and doing that. For
 * the files of the sweep only, but for reaper_sweep(). */
#pragma once

#include "berth/backend/v1/backend.pb-c.h"
#include "berth/binding/v1/binding.pb-c.h"
#include "berth/control/v1/control.pb-c.h"
#include "services/reaper/reaper.h"

enum {
    SWEEP_ACCOUNT_HEX = 65,
    SWEEP_BOXES_MAX = 1 << 20,
    SWEEP_ITEMS_MAX = 1000,   /* kept of a sweep */
    SWEEP_PLAN_MAX = 1 << 17, /* told by a plan */
    SWEEP_PAGE = 500,
    SWEEP_PAGES_MAX = 100000,
    SWEEP_TOKEN_MAX = 4096,
};

/* What is asked for. Strings borrowed; "": all. */
struct sweep_request {
    const char *tenant_id, *config_id;
    bool dry;       /* tell, do nothing */
    bool with_kept; /* tell of what is kept, too */
    uint32_t budget;
};

/* One account at one backend: listed once, whatever the number of its configs. */
struct sweep_group {
    const Berth__Control__V1__ConfigTarget *target; /* any of them; borrowed */
    char account[SWEEP_ACCOUNT_HEX];
    bool timer, can_pause, snapshots;
    uint32_t n_configs;
    bool whole; /* it was listed to the end */
};

/* One sandbox. The strings lie behind one another in id. */
struct sweep_box {
    char *id;
    const char *tenant, *session, *config;
    unsigned group;
    uint64_t disk_bytes;
    struct reaper_facts facts;
};

/* A sandbox that a session has bound, of an account whose whole list does not have it. The
 * strings lie behind one another in id. */
struct sweep_missing {
    char *id;
    const char *tenant, *session, *config;
    unsigned group;
};

struct sweep {
    struct reaper *reaper;
    struct sweep_request request;
    int64_t now_ms, tick_ms; /* Redis' time at the start, and ours */
    uint64_t term;           /* 0: not leading */
    uint32_t left;           /* of the budget */

    Berth__Control__V1__ConfigTarget **targets; /* owned, by tenant and config */
    size_t n_targets;
    uint64_t *snapshot_bytes; /* of each target; NULL: not known */
    struct sweep_group *groups;
    size_t n_groups;
    struct sweep_box *boxes; /* by tenant and session, once they are all there */
    size_t n_boxes, boxes_room;
    struct sweep_missing *missing;
    size_t n_missing, missing_room;

    Berth__Reaper__V1__Sweep *told; /* owned */
    Berth__Reaper__V1__SweepItem **items;
    size_t n_items, items_room, items_max;
};

/* sweep_list.c: what is there. */
BERTH_MUST_CHECK enum berth_code sweep_list_targets(struct sweep *sweep,
                                                    struct berth_error *err);
/* A group whose list is not to be believed is skipped and told of; not an error. */
BERTH_MUST_CHECK enum berth_code sweep_list_boxes(struct sweep *sweep, struct berth_error *err);
/* Its place in targets; n_targets: it is not there. */
size_t sweep_target_at(const struct sweep *sweep, const char *tenant, const char *config);
const Berth__Control__V1__ConfigTarget *
sweep_find_target(const struct sweep *sweep, const char *tenant, const char *config);
/* sweep_snapshots.c: what the snapshots of each target hold. Best effort: nothing of it decides
 * anything. */
void sweep_list_snapshots(struct sweep *sweep);
void sweep_account_hex(char buf[SWEEP_ACCOUNT_HEX], const ProtobufCBinaryData *account);

/* sweep_own.c: whose it is. What cannot be read stays REAPER_UNREADABLE. A session that is in
 * no list counts as one without a record, until it is looked at more closely. */
void sweep_find_owners(struct sweep *sweep);
/* No list has tombstones and intents: they are asked for one by one, before anything is done.
 */
void sweep_look_closer(struct sweep *sweep, struct sweep_box *box);

/* sweep_act.c: doing it, and telling. */
struct sweep_act {
    const char *tenant, *session, *config;
    const char *sandbox_id; /* "": the session */
    const ProtobufCBinaryData *account;
    struct reaper_verdict verdict;
    int64_t age_ms;       /* -1: not known */
    int64_t ends_soon_ms; /* OBSERVE: to be told; 0: nothing */
};
BERTH_MUST_CHECK enum berth_code sweep_do(struct sweep *sweep, const struct sweep_act *act,
                                          struct berth_error *err);
/* usage_store.c. False: it cannot be read, and nothing is counted yet. */
bool sweep_load_usage(struct sweep *sweep, int64_t max_ms);
void sweep_save_usage(struct sweep *sweep);

/* sweep_observe.c: what backends and their operators did by themselves. A bound one that no box
 * is: it is gone, if the list of its account was whole. Errors: OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code sweep_note_missing(struct sweep *sweep,
                                                    const Berth__Common__V1__SessionRef *ref,
                                                    const Berth__Binding__V1__BoundSession *row,
                                                    struct berth_error *err);
/* Whatever is not written down is looked at. */
BERTH_MUST_CHECK enum berth_code sweep_observe(struct sweep *sweep, struct berth_error *err);
/* Sessions that are due: deleting, or with intents that nobody settles. */
BERTH_MUST_CHECK enum berth_code sweep_due(struct sweep *sweep, struct berth_error *err);
/* Still the leader of the same term, and not stopping. */
bool sweep_may_go_on(struct sweep *sweep);

/**
 * reaper_sweep() - one pass
 * @ret_told:  the sweep, owned
 * @ret_items: its items, owned, each and the array
 *
 * Errors: PEER_UNAVAILABLE (another replica leads), INDEX_RECOVERING, STORE_UNAVAILABLE; what
 * came in between is in told->error.
 */
BERTH_MUST_CHECK enum berth_code reaper_sweep(struct reaper *reaper,
                                              const struct sweep_request *request,
                                              Berth__Reaper__V1__Sweep **ret_told,
                                              Berth__Reaper__V1__SweepItem ***ret_items,
                                              size_t *ret_n_items, struct berth_error *err);

/* config_doc.h - the document c/<config> as more than one service reads it.
 *
 * HASH fields: rev; settings (JSON), state, account, keyed, fenced, create_horizon_ms,
 * template, rollout, cordon_until_ms (controlplane); image (JSON), next_generation, lock,
 * queue, failed, row:<id>, skills:<id> (skills). One writer more of image and next_generation:
 * the control plane, where it finds that the image is gone. Numbers are decimal, keyed is "0"
 * or "1"; rev and state are always there. A reader may fetch only some fields: rev, state and
 * those it uses. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/errors/errors.h"
#include "common/redis/redis.h"

/* The skill image pointer. All zero: there never was one. Without a snapshot, and with a
 * row_id: the image is gone at its backend, and what is wanted in it stands in that row's list;
 * with neither: nothing is wanted. */
struct berth_image_pointer {
    char snapshot_id[129];
    uint64_t generation;
    uint64_t rebuild_before; /* bindings of a lower generation are stale */
    char account[65];        /* hex fingerprint of the account it lives in */
    char base_template_id[129];
    int64_t build_ms;
    char row_id[33];       /* of the ledger: the row it was published with */
    char operation_id[33]; /* that published it: an operation is flipped when it stands here */
};

struct berth_config_doc {
    bool exists;
    char rev[17];
    char state[16];   /* "active" or "deleting" */
    char account[65]; /* hex fingerprint, "" = none */
    char template_id[129];
    bool keyed_create;
    bool fenced; /* absent: as keyed_create */
    int64_t create_horizon_ms;
    int64_t cordon_until_ms; /* no new sessions before then; 0 or absent: not cordoned */
    bool new_sessions_only;  /* rollout: sandboxes that are there stay as they are */
    struct berth_image_pointer image;
    uint64_t next_generation; /* at least 1 */
};

/* Errors: INTERNAL_BUG when the document does not validate (unknown members are fine). */
BERTH_MUST_CHECK enum berth_code berth_config_doc_parse(const struct berth_doc *doc,
                                                        struct berth_config_doc *ret,
                                                        struct berth_error *err);
/* JSON of the `image` field; owned. NULL: no memory, or a text that is not UTF-8. */
char *berth_image_pointer_format(const struct berth_image_pointer *image);

/* The image may be booted: there is one, and it lives in the account of the config. */
bool berth_image_usable(const struct berth_config_doc *config);

/* A row of the snapshot ledger: JSON in field row:<row_id>. */
struct berth_snapshot_row {
    char row_id[33];
    char snapshot_id[129];    /* the backend's; "" while building */
    char origin[8];           /* "skills" or "user" */
    char state[16];           /* building, active, superseded, deleted, abandoned */
    uint64_t generation;      /* 0: a user's own */
    uint64_t base_generation; /* of the image that its sandbox had booted from; 0: a template,
                                 or not known */
    char planned_name[64];
    char parent_snapshot_id[129];
    char account[65];
    char display_name[257];
    char source_session[129];
    char created_by[129];
    char request_id[129];
    uint64_t size_bytes;
    int64_t create_ms, supersede_ms;
    int64_t not_after_ms; /* of the backend call that builds it */
    char owner[33];       /* building: the process that does it; "": one of an older version */
    int64_t beat_ms;      /* building: its last sign of life, by Redis' clock */
    char source_sandbox[129]; /* building: the sandbox that it is made of */
    /* Of a skill image; what it holds stands in field skills:<row_id>. */
    char operation_id[33];
    uint64_t image_bytes;  /* its own layer and those below it, down to the base template */
    uint64_t skills_bytes; /* of the skills' files in it */
};
BERTH_MUST_CHECK enum berth_code berth_snapshot_row_parse(const char *json,
                                                          struct berth_snapshot_row *ret,
                                                          struct berth_error *err);
/* Owned. NULL: no memory, or a text that is not UTF-8. */
char *berth_snapshot_row_format(const struct berth_snapshot_row *row);

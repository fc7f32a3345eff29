/* inside.h - what the steps of work.h share. */
#pragma once

#include "berth/control/v1/control.pb-c.h"
#include "services/skills/work/flow.h"
#include "services/skills/work/work.h"

/* Ours in the sandbox: known, staging, temporary files of installers. On the same file system
 * as the skills. work_clean() removes it. */
#define WORK_DIR "/opt/berth/.work"

enum { WORK_ID_SIZE = 33, WORK_CALL_MS = 30000 };

struct work_keeper;

struct work {
    struct skills *skills;
    struct work_wish wish; /* its strings are NULL */
    char *tenant_id, *config_id, *session_id;
    json_t *env;
    struct flow_patience patience;
    Berth__Common__V1__SessionRef ref;
    char *turn_token;
    struct work_keeper *keeper;
    char *sandbox_id;
    uint64_t generation;
    struct plan_host host;
    char id[WORK_ID_SIZE]; /* random; stands in WORK_DIR/id */
    char *known;           /* processes that were there before us: "pid:start ..." */
    unsigned n_commands;
};

/* A line of our own in the operation's output. */
void work_say(struct work *work, const char *fmt, ...) BERTH_PRINTF(2, 3);

/* keeper.c: renews a turn until it is freed. token is borrowed. NULL: no memory. */
struct work_keeper *work_keeper_new(struct skills *skills,
                                    const Berth__Common__V1__SessionRef *session,
                                    const char *token, int64_t every_ms);
struct work_keeper *work_keeper_free(struct work_keeper *keeper);

/* embed.sh */
extern const char work_begin_sh[], work_clean_sh[], work_forget_sh[], work_parse_js[],
    work_parse_py[], work_parse_sh[], work_present_py[], work_present_sh[], work_remove_sh[],
    work_seal_sh[], work_unpack_sh[];

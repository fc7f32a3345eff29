/* chain.h - carries operations out: one at a time of each config, a few at once in this
 * process, each on a thread of its own. Whoever queues one kicks; what others left behind is
 * looked for at the start and as often as a lock runs out. */
#pragma once

#include "services/skills/image.h"
#include "services/skills/skills.h"

struct skills_chain;

struct skills_chain_options {
    unsigned max_running; /* operations at once */
    int64_t timeout_ms; /* of one, from its start; an external installer's limit comes on top */
    int64_t step_timeout_ms; /* of one command in the maintenance sandbox */
    struct image_growth growth;
};

BERTH_MUST_CHECK enum berth_code skills_chain_new(struct skills *skills,
                                                  const struct skills_chain_options *options,
                                                  struct skills_chain **ret,
                                                  struct berth_error *err);
/* From here on also for what others left behind. */
BERTH_MUST_CHECK enum berth_code skills_chain_start(struct skills_chain *chain,
                                                    struct berth_error *err);
/* What runs is left where it is, for the next process, unless it is past its flip: that is
 * waited for. NULL is fine; returns NULL. */
struct skills_chain *skills_chain_free(struct skills_chain *chain);

/* See to the config's queue, soon. Never blocks, may be called by anybody at any time; where
 * too many run it is looked for later. */
void skills_chain_kick(struct skills *skills, const char *tenant, const char *config_id);

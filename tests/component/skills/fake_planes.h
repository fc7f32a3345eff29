/* fake_planes.h - a control plane and a data plane for work.h, in this process, that do what a
 * test says. They run nothing. */
#pragma once

#include <pthread.h>

#include "services/skills/work/command.h"

enum fake_act {
    FAKE_EXIT, /* stdout, stderr, then exited */
    FAKE_CUT,  /* started and half of stdout, then the connection breaks; Attach has the rest */
    FAKE_LOST, /* the same, and Attach knows nothing of it */
    FAKE_STALL, /* started, then nothing */
    FAKE_FLOOD, /* started, then output without end */
    FAKE_MUTE,  /* started, then a good end of the stream without exited */
    FAKE_OTHER, /* started tells that a sandbox was lost */
    FAKE_AWAY,  /* refused: nobody is there */
};

/* What a command is answered: the first rule that matches its words. */
struct fake_rule {
    const char *word; /* one of its arguments, whole; NULL: any command */
    enum fake_act act;
    const char *out, *err;
    size_t out_size; /* 0: of the string */
    int exit_code;
    unsigned times; /* it counts so often; 0: always */
};

enum { FAKE_RULES_MAX = 16, FAKE_SAID_MAX = 1 << 20 };

struct planes {
    char dir[64];
    struct berth_loop *loop, *caller_loop;
    struct berth_server *control, *data;
    struct berth_runtime runtime;
    struct skills skills;
    struct work_wish wish;
    struct work *work;

    pthread_mutex_t mutex; /* for all below */
    struct fake_rule rules[FAKE_RULES_MAX];
    unsigned n_rules;
    unsigned n_execs, n_attached, n_cancelled, n_open;
    unsigned n_resolved, n_turns, n_renewed, n_ended, n_deleted;
    unsigned n_refused; /* resolves that are still to be refused */
    char last[4096];    /* words of the last command, blanks between */
    char env[8192];     /* its environment, "A=b " each */
    bool was_root;
    uint64_t upload_bytes, upload_sum;
    bool refuse_upload; /* after the first chunk, for want of space */
    char said[FAKE_SAID_MAX];
    size_t n_said, n_says;
    bool stop;
};

void planes_open(struct planes *planes);
void planes_close(struct planes *planes);
/* Rules are looked at in the order they were added. */
void planes_add(struct planes *planes, struct fake_rule rule);
void planes_work(struct planes *planes); /* work_open(); it must go well */
unsigned planes_get(struct planes *planes, const unsigned *value);

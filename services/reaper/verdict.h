/* verdict.h - what is to become of one sandbox, or of one session that is due. Pure: facts and
 * Redis' time go in; a verdict, an act, and how long it must have stood come out. Positive
 * evidence only: what is absent, unreadable or foreign is kept, or adopted. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Numbers as in berth.reaper.v1.Verdict. */
enum reaper_why {
    REAPER_CONDEMNED = 1,
    REAPER_DUPLICATE = 2,
    REAPER_SESSION_DELETED = 3,
    REAPER_OLD_TARGET = 4,
    REAPER_IDLE = 5,
    REAPER_MAX_PAUSED = 6,
    REAPER_MAX_LIFETIME = 7,
    REAPER_KEEP_BOUND = 10,
    REAPER_KEEP_YOUNG = 11,
    REAPER_KEEP_UNKNOWN_AGE = 12,
    REAPER_KEEP_FOREIGN = 13,
    REAPER_KEEP_UNREADABLE = 14,
    REAPER_ADOPT = 15,
    REAPER_KEEP_UNTAGGED = 16,
    REAPER_KEEP_ENDED = 17,
    REAPER_UNSETTLED = 18,
    REAPER_OBSERVE = 19,
    REAPER_N_WHY
};

/* Numbers as in berth.control.v1.SettleAction; NONE: it is left alone. */
enum reaper_act {
    REAPER_ACT_NONE = 0,
    REAPER_ACT_ADOPT = 1,
    REAPER_ACT_REAP = 2,
    REAPER_ACT_IDLE_PAUSE = 3,
    REAPER_ACT_IDLE_KILL = 4,
    REAPER_ACT_FINISH_DELETE = 5,
    REAPER_ACT_OBSERVE = 6,
    REAPER_ACT_STILL = 7,
};

enum reaper_session {
    REAPER_UNREADABLE, /* nothing is said of it */
    REAPER_NO_RECORD,
    REAPER_ACTIVE,
    REAPER_DELETING,
    REAPER_DELETED, /* a tombstone */
};

/* What the tags say, as far as they can be believed. */
enum reaper_tags {
    REAPER_TAGS_NONE,
    REAPER_TAGS_FOREIGN,     /* another deployment's */
    REAPER_TAGS_LATER,       /* ours, of a form that is not known here */
    REAPER_TAGS_OLD_ACCOUNT, /* ours, of another account or of a config that is not here */
    REAPER_TAGS_OURS,
};

struct reaper_policy {
    int64_t idle_ms, max_paused_ms, max_lifetime_ms; /* 0: never */
    int64_t warn_ms;                                 /* of its end; 0: not at all */
    bool kill;                                       /* when idle: not paused */
    bool timer;                                      /* the backend ends it by itself */
    bool can_pause;
};

struct reaper_facts {
    enum reaper_tags tags;
    bool ended;        /* the backend says so, as of the next two */
    bool runs, sleeps; /* neither: something in between */
    int64_t end_ms;    /* when the backend ends it; 0: not said */
    int64_t create_ms; /* 0: not known */
    int64_t active_ms; /* last use that anybody noted; 0: none */
    int64_t call_ms;   /* of that the last call, what runs on by itself is none; 0: not known */

    enum reaper_session session;
    bool elsewhere;    /* the session is pinned to another config */
    bool condemned;    /* a delete intent names it */
    bool bound;        /* the session has a sandbox */
    bool bound_here;   /* this one */
    bool same_account; /* of what is bound, or would be */
    bool in_use;       /* protected, or a turn is running */
    bool paused;       /* binding's word */
    bool pausing;      /* the same: a pause may be on its way */
    int64_t told_ms;   /* the end that was told to be near; 0: none */
    struct reaper_policy policy;
};

struct reaper_limits {
    int64_t grace_ms, duplicate_grace_ms;
};

struct reaper_verdict {
    enum reaper_why why;
    enum reaper_act act;
    int64_t hold_ms; /* by our clock it must have been seen in this plight for so long */
    int64_t ripe_ms; /* and by Redis' clock it must be so late; 0: at once */
    int64_t unless_active_after_ms; /* 0: not said */
    bool calls_only;                /* that is held against calls alone */
};

struct reaper_verdict reaper_judge(const struct reaper_facts *facts,
                                   const struct reaper_limits *limits, int64_t now_ms);

/* What may be done before the verdict is ripe: one that runs beside the bound one rests. */
struct reaper_verdict reaper_meanwhile(const struct reaper_facts *facts,
                                       const struct reaper_limits *limits);
/* When the bound one ends unless it is used; 0: nobody knows, or not while it is. */
int64_t reaper_end_ms(const struct reaper_facts *facts);
/* Its backend has done something by itself, or will soon, that is not written down. Nothing
 * follows from it but a look, so that it need not have stood for a while. */
bool reaper_must_look(const struct reaper_facts *facts, int64_t now_ms);

/* What is counted as one and the same by the clock of hold_ms: 1 for whatever nobody owns. */
int reaper_plight(enum reaper_why why);

/* A session that ListDue names, whose lock is free. */
struct reaper_due {
    enum reaper_session session;
    bool bound;
    bool deletes, creates, pauses; /* intents of that kind are open */
};
struct reaper_verdict reaper_judge_due(const struct reaper_due *due);

/* "idle", for logs and metrics. Static. */
const char *reaper_why_name(enum reaper_why why);

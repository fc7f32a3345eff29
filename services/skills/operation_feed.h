/* operation_feed.h - what operations say, for whoever watches them: one thread reads for all
 * watchers of a process, and those that stand at the same place of the same operation share
 * what it reads. Calls come from the loop thread, and so do answers. */
#pragma once

#include "common/rpc/rpc.h"
#include "services/skills/operation.h"

struct operation_feed;

/* What one read gave; shared. */
struct operation_page {
    unsigned refs; /* of the loop thread, but for the first */
    struct operation operation;
    size_t n_messages;
    struct berth_buf **messages; /* WatchOperationResponse, each */
    uint64_t seq;                /* of the last entry in it, or as it was asked for */
    uint64_t log_at;             /* likewise, of the kept log */
    int told_state; /* of the last message that tells one, or as it was asked for */
    bool is_last;   /* the operation has ended, and all of it is told */
};
struct operation_page *operation_page_unref(struct operation_page *page); /* NULL is fine */

/* What a watcher waits for; part of the watcher. */
struct operation_ask {
    /* Set by the watcher. */
    const char *tenant, *operation_id; /* borrowed as long as the ask is out */
    uint64_t after;
    uint64_t log_at; /* 0: entries; else 1 + where to go on in the kept log */
    int told_state;
    bool begin; /* the first one: answered by how the operation stands alone */
    /* page: borrowed, NULL unless code is BERTH_OK. */
    void (*done)(struct operation_ask *ask, struct operation_page *page, enum berth_code code,
                 const struct berth_error *err);
    /* The feed's. */
    struct operation_ask *next;
    bool waits;
};

/* The thread starts with the first watcher. NULL: no memory. */
struct operation_feed *operation_feed_new(struct skills *skills);
/* After the last stream has closed. NULL is fine. */
struct operation_feed *operation_feed_free(struct operation_feed *feed);

/* done() follows, once. Errors: INTERNAL_BUG: no thread can be started. */
BERTH_MUST_CHECK enum berth_code operation_feed_ask(struct operation_feed *feed,
                                                    struct operation_ask *ask,
                                                    struct berth_error *err);
/* Take back an ask that is out. False: too late, done() comes. */
bool operation_feed_take_back(struct operation_feed *feed, struct operation_ask *ask);

/* operation_page.c: one read. *ret NULL: nothing that is new. Errors: OPERATION_NOT_FOUND,
 * SEQ_EXPIRED, STORE_UNAVAILABLE, OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code operation_page_read(struct skills *skills,
                                                     const struct operation_ask *ask,
                                                     struct operation_page **ret,
                                                     struct berth_error *err);

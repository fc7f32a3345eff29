/* event_feed.h - pages of event streams for whoever watches them: two threads read for all.
 *
 * Watchers that wait at the end of a stream cost one blocking read together; those that stand
 * at the same place share one page. Calls come from the loop thread, and so do answers. */
#pragma once

#include "services/controlplane/event_page.h"

struct cp_feed;

/* What a watcher waits for; part of the watcher. */
struct cp_ask {
    /* Set by the watcher. */
    const char *tenant; /* borrowed as long as the ask is out */
    struct cp_cursor after;
    bool begin; /* the first one: the cursor is judged, and answered by an empty page */
    bool from_now;
    bool at_end; /* the last page was the last one: wait for more. The feed changes it */
    /* The answer. page: borrowed, NULL unless code is BERTH_OK; empty after `begin` only.
     * `after` has moved to the newest entry with from_now. */
    void (*done)(struct cp_ask *ask, struct cp_page *page, enum berth_code code,
                 const struct berth_error *err);
    /* The feed's. */
    struct cp_ask *next;
};

/* block_ms: of the read at the ends of streams; well below the time-out of a command, and how
 * late an event may come to the first watcher of a tenant that has come to the end. The threads
 * start with the first watcher.
 * NULL: no memory. */
struct cp_feed *cp_feed_new(struct berth_redis *redis, struct berth_loop *loop,
                            int64_t block_ms);
/* After the last stream has closed. NULL is fine. */
struct cp_feed *cp_feed_free(struct cp_feed *feed);

/* done() follows, once. Errors: INTERNAL_BUG: no thread can be started. */
BERTH_MUST_CHECK enum berth_code cp_feed_ask(struct cp_feed *feed, struct cp_ask *ask,
                                             struct berth_error *err);
/* Take back an ask that is out. False: too late, done() comes. */
bool cp_feed_take_back(struct cp_feed *feed, struct cp_ask *ask);

/* event_page.h - a page of a tenant's event stream, read from Redis and packed for the wire. */
#pragma once

#include "common/errors/errors.h"
#include "common/redis/redis.h"
#include "common/rpc/rpc.h"

/* A place in a tenant's stream: the id of the entry last seen; both 0: before the first. */
struct cp_cursor {
    uint64_t ms, seq;
};

enum { CP_CURSOR_MAX = 48 };

/* "0" or "<ms>-<seq>". Errors: FIELD_INVALID. */
BERTH_MUST_CHECK enum berth_code cp_cursor_parse(const char *field, const char *text,
                                                 struct cp_cursor *ret,
                                                 struct berth_error *err);
const char *cp_cursor_format(char buf[CP_CURSOR_MAX], struct cp_cursor cursor);
/* As strcmp(). */
int cp_cursor_order(struct cp_cursor a, struct cp_cursor b);

/* One event. response: a WatchEventsResponse, packed; NULL where the entry is of a kind that
 * this version does not know. */
struct cp_page_event {
    struct cp_cursor cursor;
    int kind;
    char *session_id; /* owned; "": of none */
    struct berth_buf *response;
};

/* Immutable; refs is the loop thread's once the page is handed over. */
struct cp_page {
    unsigned refs;
    bool is_last; /* there was no more when it was read */
    size_t n_events;
    struct cp_page_event *events;
};
/* NULL is fine; returns NULL. */
struct cp_page *cp_page_unref(struct cp_page *page);
BERTH_DEFINE_AUTO(struct cp_page *, cp_page_unref)

/* Up to max events behind the cursor; none: *ret has n_events 0.
 * Errors: CURSOR_EXPIRED (entries behind the cursor have been trimmed meanwhile);
 * STORE_UNAVAILABLE; OUT_OF_MEMORY; INTERNAL_BUG (an entry that is not ours). */
BERTH_MUST_CHECK enum berth_code cp_page_read(struct berth_redis *redis, const char *tenant,
                                              struct cp_cursor after, unsigned max,
                                              struct cp_page **ret, struct berth_error *err);

/* The newest entry; 0-0 when there is none. */
BERTH_MUST_CHECK enum berth_code cp_page_newest(struct berth_redis *redis, const char *tenant,
                                                struct cp_cursor *ret, struct berth_error *err);

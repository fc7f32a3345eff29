/* operation_page.c - one read of what an operation has said. The document first: what it ended
 * with was said before it says so, so that the entries that follow are all there are. */
#include <inttypes.h>
#include <stdio.h>

#include "common/messages/messages.h"
#include "services/skills/blobs.h"
#include "services/skills/operation_feed.h"
#include "services/skills/operation_impl.h"
#include "services/skills/operation_rpc.h"

typedef Berth__Skills__V1__WatchOperationResponse Response;

enum { PAGE_ENTRIES = 64, LOG_PIECE = 64 << 10 };

struct operation_page *operation_page_unref(struct operation_page *page)
{
    if (!page || --page->refs > 0)
        return NULL;
    for (size_t i = 0; i < page->n_messages; i++)
        berth_buf_unref(page->messages[i]);
    free(page->messages);
    operation_deinit(&page->operation);
    free(page);
    return NULL;
}

/* --------------------------------------------------------------------- messages */

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* buf is taken. */
static bool add(struct operation_page *page, struct berth_buf *buf)
{
    struct berth_buf **more =
        buf ? realloc(page->messages, (page->n_messages + 1) * sizeof *more) : NULL;

    if (!more) {
        berth_buf_unref(buf);
        return false;
    }
    page->messages = more;
    page->messages[page->n_messages++] = buf;
    return true;
}

static bool add_operation(struct operation_page *page, const struct operation *operation,
                          uint64_t seq, int64_t at_ms)
{
    Response *message =
        berth_message_new(&berth__skills__v1__watch_operation_response__descriptor);
    bool good = false;

    if (message) {
        message->seq = seq;
        message->operation = operation_show(operation);
        good = message->operation && (!seq || (message->time = berth_timestamp(at_ms))) &&
               add(page, berth_buf_pack(&message->base));
    }
    berth_message_free(message);
    if (good)
        page->told_state = operation->state;
    return good;
}

static bool add_output(struct operation_page *page, const void *data, size_t size, uint64_t seq,
                       int64_t at_ms)
{
    Response message = BERTH__SKILLS__V1__WATCH_OPERATION_RESPONSE__INIT;
    Google__Protobuf__Timestamp *time = seq ? berth_timestamp(at_ms) : NULL;
    bool good = !seq || time;

    message.seq = seq;
    message.time = time;
    message.output = (ProtobufCBinaryData){.len = size, .data = (uint8_t *)data};
    good = good && add(page, berth_buf_pack(&message.base));
    berth_message_free(time);
    return good;
}

/* ---------------------------------------------------------------------- entries */

/* command: XRANGE or XREVRANGE; up to count from the one id to the other. */
static enum berth_code range(struct skills *skills, const struct operation_ask *ask,
                             const char *command, const char *from, const char *to,
                             const char *count, struct berth_reply **ret,
                             struct berth_error *err)
{
    char key[BERTH_KEY_MAX];
    const char *const argv[] = {
        command, berth_key_operation_log(key, ask->tenant, ask->operation_id),
        from,    to,
        "COUNT", count};
    enum berth_code code =
        berth_redis_call(skills->redis, BERTH_COUNT(argv), argv, NULL, ret, err);

    return code == BERTH_UNKNOWN ? berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, NULL) : code;
}

static bool is_entry(const struct berth_reply *entry)
{
    return entry->type == BERTH_REPLY_ARRAY && entry->n_items == 2 &&
           entry->items[0]->type == BERTH_REPLY_STRING &&
           entry->items[1]->type == BERTH_REPLY_ARRAY && entry->items[1]->n_items == 4;
}

static uint64_t seq_of(const struct berth_reply *entry)
{
    return is_entry(entry) ? strtoull(entry->items[0]->string, NULL, 10) : 0;
}

/* The number of the oldest or the newest entry; 0: there is none. */
static enum berth_code edge(struct skills *skills, const struct operation_ask *ask, bool oldest,
                            uint64_t *ret, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    enum berth_code code = range(skills, ask, oldest ? "XRANGE" : "XREVRANGE",
                                 oldest ? "-" : "+", oldest ? "+" : "-", "1", &reply, err);

    if (!code)
        *ret = reply->n_items == 1 ? seq_of(reply->items[0]) : 0;
    return code;
}

static bool add_entry(struct operation_page *page, const struct berth_reply *entry)
{
    const struct berth_reply *fields = entry->items[1];
    int64_t at_ms = strtoll(fields->items[1]->string, NULL, 10);
    struct operation then = {0};
    bool good = true;

    page->seq = seq_of(entry);
    if (strcmp(fields->items[2]->string, "out") == 0)
        return add_output(page, fields->items[3]->string, fields->items[3]->size, page->seq,
                          at_ms);
    /* One that a later version has written is passed over. */
    if (strcmp(fields->items[2]->string, "op") == 0 &&
        !operation_parse(fields->items[3]->string, fields->items[3]->size, &then, NULL))
        good = add_operation(page, &then, page->seq, at_ms);
    operation_deinit(&then);
    return good;
}

static enum berth_code expired(const struct operation_ask *ask, struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_SEQ_EXPIRED,
                      "what follows %" PRIu64 " is not kept; 0 begins with the oldest there is",
                      ask->after);
}

/* Is nothing missing between where the watcher stands and what is kept? */
static enum berth_code check_gap(struct skills *skills, const struct operation_ask *ask,
                                 uint64_t first, struct berth_error *err)
{
    uint64_t oldest = 0;
    enum berth_code code = BERTH_OK;

    if (ask->after == 0 || first == ask->after + 1)
        return BERTH_OK;
    code = edge(skills, ask, true, &oldest, err);
    if (!code && oldest > ask->after + 1)
        code = expired(ask, err);
    return code;
}

/* *ret_end: no more of them now. */
static enum berth_code add_entries(struct skills *skills, const struct operation_ask *ask,
                                   struct operation_page *page, bool *ret_end,
                                   struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    char from[32], count[16];
    enum berth_code code;

    snprintf(from, sizeof from, "%" PRIu64 "-0", ask->after + 1);
    snprintf(count, sizeof count, "%d", PAGE_ENTRIES);
    code = range(skills, ask, "XRANGE", from, "+", count, &reply, err);
    if (!code && reply->n_items > 0)
        code = check_gap(skills, ask, seq_of(reply->items[0]), err);
    for (size_t i = 0; !code && i < reply->n_items; i++)
        if (is_entry(reply->items[i]) && !add_entry(page, reply->items[i]))
            code = no_memory(err);
    *ret_end = !code && reply->n_items < PAGE_ENTRIES;
    return code;
}

/* --------------------------------------------------------------------- kept log */

static enum berth_code add_log(struct skills *skills, const struct operation_ask *ask,
                               struct operation_page *page, bool *ret_end,
                               struct berth_error *err)
{
    BERTH_AUTO(free) char *piece = malloc(LOG_PIECE);
    uint64_t size;
    ssize_t n = -1;
    int fd;

    if (!piece)
        return no_memory(err);
    if (skills_log_open(skills->blobs, ask->tenant, ask->operation_id, &fd, &size, err) ==
        BERTH_OK) {
        n = pread(fd, piece, LOG_PIECE, (off_t)(ask->log_at - 1));
        close(fd);
    }
    *ret_end = n <= 0; /* swept meanwhile: what was told is all there is */
    if (n > 0 && !add_output(page, piece, (size_t)n, 0, 0))
        return no_memory(err);
    page->log_at = ask->log_at + (n > 0 ? (uint64_t)n : 0);
    return BERTH_OK;
}

/* Of one that has ended, and of whose numbered entries the first are gone. */
static bool has_log(struct skills *skills, const struct operation_ask *ask)
{
    uint64_t size;
    int fd;

    if (!skills->blobs || skills_log_open(skills->blobs, ask->tenant, ask->operation_id, &fd,
                                          &size, NULL) != BERTH_OK)
        return false;
    close(fd);
    return size > 0;
}

/* ----------------------------------------------------------------------- a page */

static enum berth_code begin(struct skills *skills, const struct operation_ask *ask,
                             struct operation_page *page, struct berth_error *err)
{
    uint64_t oldest = 0, newest = 0;
    enum berth_code code = edge(skills, ask, true, &oldest, err);

    if (!code)
        code = edge(skills, ask, false, &newest, err);
    if (code)
        return code;
    if (ask->after > 0 && (ask->after > newest || oldest > ask->after + 1))
        return expired(ask, err);
    if (ask->after == 0 && oldest != 1 && operation_has_ended(&page->operation) &&
        has_log(skills, ask))
        page->log_at = 1;
    return add_operation(page, &page->operation, 0, 0) ? BERTH_OK : no_memory(err);
}

static enum berth_code fill(struct skills *skills, const struct operation_ask *ask,
                            struct operation_page *page, struct berth_error *err)
{
    bool at_end = false, ended = operation_has_ended(&page->operation);
    enum berth_code code;

    if (ask->begin)
        return begin(skills, ask, page, err);
    code = ask->log_at ? add_log(skills, ask, page, &at_end, err)
                       : add_entries(skills, ask, page, &at_end, err);
    if (code || !at_end)
        return code;
    /* The end is told once more behind all that was said. */
    if ((ended || page->told_state != page->operation.state) &&
        !add_operation(page, &page->operation, 0, 0))
        return no_memory(err);
    page->is_last = ended;
    return BERTH_OK;
}

enum berth_code operation_page_read(struct skills *skills, const struct operation_ask *ask,
                                    struct operation_page **ret, struct berth_error *err)
{
    struct operation_page *page = calloc(1, sizeof *page);
    enum berth_code code;

    *ret = NULL;
    if (!page)
        return no_memory(err);
    page->refs = 1;
    page->seq = ask->after;
    page->log_at = ask->log_at;
    page->told_state = ask->told_state;
    code = operation_read(skills, ask->tenant, ask->operation_id, &page->operation, err);
    if (!code)
        code = fill(skills, ask, page, err);
    if (code || page->n_messages == 0)
        operation_page_unref(page);
    else
        *ret = page;
    return code;
}

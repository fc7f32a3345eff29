#include "services/controlplane/event_page.h"

#include <inttypes.h>
#include <stdio.h>

#include "berth/control/v1/control.pb-c.h"
#include "common/fields/fields.h"
#include "common/json/json.h"
#include "common/messages/messages.h"
#include "common/records/keys.h"

typedef Berth__Control__V1__Event Event;
typedef Berth__Control__V1__WatchEventsResponse WatchEventsResponse;

enum { ATTRIBUTES_MAX = 64 * 1024 };

/* ------------------------------------------------------------------- cursors */

/* Digits only, as many as fit. Returns the first character that is none; NULL: not a number. */
static const char *read_number(const char *text, uint64_t *ret)
{
    uint64_t value = 0;
    const char *p = text;

    for (; *p >= '0' && *p <= '9'; p++) {
        unsigned digit = (unsigned)(*p - '0');

        if (value > (UINT64_MAX - digit) / 10)
            return NULL;
        value = value * 10 + digit;
    }
    *ret = value;
    return p == text ? NULL : p;
}

enum berth_code cp_cursor_parse(const char *field, const char *text, struct cp_cursor *ret,
                                struct berth_error *err)
{
    struct cp_cursor cursor = {0};
    const char *p = read_number(text, &cursor.ms);

    if (p && *p == '-')
        p = read_number(p + 1, &cursor.seq);
    if (!p || *p || (!strchr(text, '-') && cursor.ms))
        return berth_fail_field(err, field,
                                "must be empty, \"0\" or a cursor of an earlier answer");
    *ret = cursor;
    return BERTH_OK;
}

const char *cp_cursor_format(char buf[CP_CURSOR_MAX], struct cp_cursor cursor)
{
    if (!cursor.ms && !cursor.seq)
        snprintf(buf, CP_CURSOR_MAX, "0");
    else
        snprintf(buf, CP_CURSOR_MAX, "%" PRIu64 "-%" PRIu64, cursor.ms, cursor.seq);
    return buf;
}

int cp_cursor_order(struct cp_cursor a, struct cp_cursor b)
{
    if (a.ms != b.ms)
        return a.ms < b.ms ? -1 : 1;
    return a.seq < b.seq ? -1 : a.seq > b.seq;
}

/* ------------------------------------------------------------------- entries */

struct cp_page *cp_page_unref(struct cp_page *page)
{
    if (!page || --page->refs)
        return NULL;
    for (size_t i = 0; i < page->n_events; i++) {
        free(page->events[i].session_id);
        berth_buf_unref(page->events[i].response);
    }
    free(page->events);
    free(page);
    return NULL;
}

static const char *text_of(const struct berth_reply *reply)
{
    return reply->type == BERTH_REPLY_STRING ? reply->string : "";
}

static int kind_of(const char *word)
{
    const ProtobufCEnumValue *value;
    char name[64];

    if (snprintf(name, sizeof name, "EVENT_KIND_%s", word) >= (int)sizeof name)
        return 0;
    value = protobuf_c_enum_descriptor_get_value_by_name(
        &berth__control__v1__event_kind__descriptor, name);
    return value ? value->value : 0;
}

/* All of them strings; what is not is of a later version and left out. */
static bool take_attributes(Event *event, const json_t *attributes)
{
    const char *name;
    json_t *value;

    json_object_foreach(
        (json_t *)attributes, name,
        value) if (json_is_string(value) &&
                   !berth_set_map(&event->n_attributes, &event->attributes,
                                  &berth__control__v1__event__attributes_entry__descriptor,
                                  name, json_string_value(value))) return false;
    return true;
}

static bool take_session(Event *event, const char *tenant, const char *session)
{
    if (!*session)
        return true;
    event->session = berth_message_new(&berth__common__v1__session_ref__descriptor);
    return event->session && berth_set_string(&event->session->tenant_id, tenant) &&
           berth_set_string(&event->session->session_id, session);
}

/* A field of an entry. *ret_good false: the value is not what the field holds. Returns false
 * only when out of memory. */
static bool take_field(Event *event, const char *tenant, const char *name, const char *value,
                       bool *ret_good)
{
    uint64_t number = 0;
    const char *end;

    if (strcmp(name, "kind") == 0) {
        event->kind = (Berth__Control__V1__EventKind)kind_of(value);
    } else if (strcmp(name, "event_id") == 0) {
        return berth_set_string(&event->event_id, value);
    } else if (strcmp(name, "session") == 0) {
        return take_session(event, tenant, value);
    } else if (strcmp(name, "config") == 0) {
        return berth_set_string(&event->config_id, value);
    } else if (strcmp(name, "sandbox") == 0) {
        return berth_set_string(&event->sandbox_id, value);
    } else if (strcmp(name, "actor") == 0) {
        return berth_set_string(&event->actor, value);
    } else if (strcmp(name, "attributes") == 0) {
        BERTH_AUTO(json_decref) json_t *attributes = NULL;

        *ret_good = !berth_json_parse(value, strlen(value), ATTRIBUTES_MAX, &attributes, NULL);
        return !*ret_good || take_attributes(event, attributes);
    } else if (strcmp(name, "seq") == 0 || strcmp(name, "at_ms") == 0 ||
               strcmp(name, "observe_ms") == 0) {
        end = read_number(value, &number);
        *ret_good = end && !*end && number <= INT64_MAX;
        if (!*ret_good)
            return true;
        if (name[0] == 's') {
            event->session_seq = number;
            return true;
        }
        if (name[0] == 'a')
            return (event->occur_time = berth_timestamp((int64_t)number)) != NULL;
        return (event->observe_time = berth_timestamp((int64_t)number)) != NULL;
    }
    return true;
}

/* entry: [id, [name, value, ...]] */
static enum berth_code decode(const char *tenant, const struct berth_reply *entry,
                              struct cp_page_event *ret, struct berth_error *err)
{
    WatchEventsResponse response = BERTH__CONTROL__V1__WATCH_EVENTS_RESPONSE__INIT;
    const struct berth_reply *fields = entry->n_items == 2 ? entry->items[1] : NULL;
    Event *event = berth_message_new(&berth__control__v1__event__descriptor);
    bool good = fields && !cp_cursor_parse("id", text_of(entry->items[0]), &ret->cursor, NULL);
    bool memory = event != NULL;
    char cursor[CP_CURSOR_MAX];

    for (size_t i = 0; good && memory && i + 1 < fields->n_items; i += 2)
        memory = take_field(event, tenant, text_of(fields->items[i]),
                            text_of(fields->items[i + 1]), &good);
    if (good && memory) {
        ret->kind = (int)event->kind;
        ret->session_id = strdup(event->session ? event->session->session_id : "");
        memory = ret->session_id &&
                 berth_set_string(&event->cursor, cp_cursor_format(cursor, ret->cursor));
    }
    if (good && memory && ret->kind) {
        response.message_case = BERTH__CONTROL__V1__WATCH_EVENTS_RESPONSE__MESSAGE_EVENT;
        response.event = event;
        ret->response = berth_buf_pack(&response.base);
        memory = ret->response != NULL;
    }
    berth_message_free(event);
    if (!memory)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    return good ? BERTH_OK
                : berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                             "an entry of the event stream of tenant '%s' does not validate",
                             tenant);
}

/* -------------------------------------------------------------------- reading */

static enum berth_code range(struct berth_redis *redis, const char *command, const char *tenant,
                             const char *from, const char *to, unsigned max,
                             struct berth_reply **ret, struct berth_error *err)
{
    char key[BERTH_KEY_MAX], count[16];
    const char *argv[] = {command, berth_key_events(key, tenant), from, to, "COUNT", count};
    enum berth_code code;

    snprintf(count, sizeof count, "%u", max);
    code = berth_redis_call(redis, BERTH_COUNT(argv), argv, NULL, ret, err);
    /* Reading again does no harm. */
    if (code == BERTH_UNKNOWN)
        code = berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, NULL);
    if (!code && (*ret)->type != BERTH_REPLY_ARRAY)
        code = berth_fail(err, BERTH_REASON_INTERNAL_BUG, "%s answered no list", command);
    return code;
}

/* The id of the one entry in a list of at most one. */
static enum berth_code id_of(const struct berth_reply *list, struct cp_cursor *ret,
                             struct berth_error *err)
{
    *ret = (struct cp_cursor){0};
    if (!list->n_items)
        return BERTH_OK;
    if (list->items[0]->n_items != 2)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "an entry without fields");
    return cp_cursor_parse("id", text_of(list->items[0]->items[0]), ret, err);
}

enum berth_code cp_page_newest(struct berth_redis *redis, const char *tenant,
                               struct cp_cursor *ret, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    enum berth_code code = range(redis, "XREVRANGE", tenant, "+", "-", 1, &reply, err);

    return code ? code : id_of(reply, ret, err);
}

/* After the page was read, so that what is trimmed in between is not missed unseen. The entry
 * that a cursor names is kept unless it was trimmed. */
static enum berth_code check_kept(struct berth_redis *redis, const char *tenant,
                                  struct cp_cursor after, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    struct cp_cursor oldest;
    enum berth_code code = range(redis, "XRANGE", tenant, "-", "+", 1, &reply, err);

    if (!code)
        code = id_of(reply, &oldest, err);
    if (!code && cp_cursor_order(after, oldest) < 0)
        code = berth_fail(err, BERTH_REASON_CURSOR_EXPIRED,
                          "events behind this cursor are not kept any more; \"0\" begins with "
                          "the oldest kept");
    return code;
}

enum berth_code cp_page_read(struct berth_redis *redis, const char *tenant,
                             struct cp_cursor after, unsigned max, struct cp_page **ret,
                             struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    BERTH_AUTO(cp_page_unref) struct cp_page *page = calloc(1, sizeof *page);
    char from[CP_CURSOR_MAX + 1] = "-";
    enum berth_code code;

    if (!page)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    page->refs = 1;
    if (after.ms || after.seq) {
        from[0] = '(';
        cp_cursor_format(from + 1, after);
    }
    code = range(redis, "XRANGE", tenant, from, "+", max, &reply, err);
    if (!code && (after.ms || after.seq))
        code = check_kept(redis, tenant, after, err);
    if (!code)
        page->is_last = reply->n_items < max;
    if (!code && reply->n_items) {
        page->events = calloc(reply->n_items, sizeof *page->events);
        if (!page->events)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    for (size_t i = 0; !code && i < reply->n_items; i++) {
        code = decode(tenant, reply->items[i], &page->events[i], err);
        page->n_events++;
    }
    if (!code)
        *ret = BERTH_STEAL(page);
    return code;
}

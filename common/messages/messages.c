#include "common/messages/messages.h"

void *berth_message_new(const ProtobufCMessageDescriptor *type)
{
    void *message = calloc(1, type->sizeof_message);

    if (message)
        protobuf_c_message_init(type, message);
    return message;
}

void *berth_message_copy(const void *message)
{
    const ProtobufCMessage *from = message;
    size_t size = protobuf_c_message_get_packed_size(from);
    uint8_t *data = malloc(size + 1);
    void *copy;

    if (!data)
        return NULL;
    protobuf_c_message_pack(from, data);
    copy = protobuf_c_message_unpack(from->descriptor, NULL, size, data);
    free(data);
    return copy;
}

void *berth_message_free(void *message)
{
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
    return NULL;
}

bool berth_set_string(char **slot, const char *value)
{
    char *copy = strdup(value ? value : "");

    if (!copy)
        return false;
    if (*slot != protobuf_c_empty_string)
        free(*slot);
    *slot = copy;
    return true;
}

bool berth_set_bytes(ProtobufCBinaryData *slot, const void *data, size_t size)
{
    uint8_t *copy = NULL;

    if (size > 0) {
        copy = malloc(size);
        if (!copy)
            return false;
        memcpy(copy, data, size);
    }
    free(slot->data);
    *slot = (ProtobufCBinaryData){.len = size, .data = copy};
    return true;
}

static bool grow(size_t n, void *list, void *item)
{
    void **items, **grown;

    memcpy(&items, list, sizeof items);
    grown = realloc(items, (n + 1) * sizeof *grown);
    if (!grown)
        return false;
    grown[n] = item;
    memcpy(list, &grown, sizeof grown);
    return true;
}

bool berth_add_string(size_t *n, char ***list, const char *value)
{
    char *copy = strdup(value);

    if (!copy || !grow(*n, list, copy)) {
        free(copy);
        return false;
    }
    ++*n;
    return true;
}

bool berth_add_message(size_t *n, void *list, void *message)
{
    if (!message)
        return false;
    if (!grow(*n, list, message)) {
        berth_message_free(message);
        return false;
    }
    ++*n;
    return true;
}

/* The two strings of a map entry, by its descriptor. */
static char **entry_string(void *entry, const ProtobufCMessageDescriptor *type, unsigned at)
{
    return (char **)((char *)entry + type->fields[at].offset);
}

bool berth_set_map(size_t *n, void *list, const ProtobufCMessageDescriptor *type,
                   const char *key, const char *value)
{
    void **entries, *entry;

    memcpy(&entries, list, sizeof entries);
    for (size_t i = 0; i < *n; i++)
        if (strcmp(*entry_string(entries[i], type, 0), key) == 0)
            return berth_set_string(entry_string(entries[i], type, 1), value);

    entry = berth_message_new(type);
    if (!entry)
        return false;
    if (!berth_set_string(entry_string(entry, type, 0), key) ||
        !berth_set_string(entry_string(entry, type, 1), value)) {
        berth_message_free(entry);
        return false;
    }
    return berth_add_message(n, list, entry);
}

Google__Protobuf__Duration *berth_duration(int64_t ms)
{
    Google__Protobuf__Duration *duration =
        berth_message_new(&google__protobuf__duration__descriptor);

    if (duration) {
        duration->seconds = ms / 1000;
        duration->nanos = (int32_t)(ms % 1000 * 1000000);
    }
    return duration;
}

Google__Protobuf__Timestamp *berth_timestamp(int64_t wall_ms)
{
    Google__Protobuf__Timestamp *timestamp =
        berth_message_new(&google__protobuf__timestamp__descriptor);

    if (timestamp) {
        timestamp->seconds = wall_ms / 1000;
        timestamp->nanos = (int32_t)(wall_ms % 1000 * 1000000);
    }
    return timestamp;
}

static int64_t to_ms(int64_t seconds, int32_t nanos)
{
    if (seconds > INT64_MAX / 1000 - 1)
        return INT64_MAX;
    if (seconds < INT64_MIN / 1000 + 1)
        return INT64_MIN;
    return seconds * 1000 + nanos / 1000000;
}

int64_t berth_duration_ms(const Google__Protobuf__Duration *duration, int64_t absent)
{
    return duration ? to_ms(duration->seconds, duration->nanos) : absent;
}

int64_t berth_timestamp_ms(const Google__Protobuf__Timestamp *timestamp, int64_t absent)
{
    return timestamp ? to_ms(timestamp->seconds, timestamp->nanos) : absent;
}

/* messages.h - building generated messages on the heap, as if they had been unpacked.
 * Everything here is freed by protobuf_c_message_free_unpacked(). NULL or false always means no
 * memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "common/base/base.h"
#include "google/protobuf/duration.pb-c.h"
#include "google/protobuf/timestamp.pb-c.h"

/* A zeroed, initialised message of a type. */
void *berth_message_new(const ProtobufCMessageDescriptor *type);
/* A deep copy. */
void *berth_message_copy(const void *message);
/* NULL is fine; returns NULL. */
void *berth_message_free(void *message);

/* slot keeps its old value on failure. NULL counts as "". */
bool berth_set_string(char **slot, const char *value);
bool berth_set_bytes(ProtobufCBinaryData *slot, const void *data, size_t size);
/* Append a copy to a repeated string. */
bool berth_add_string(size_t *n, char ***list, const char *value);
/* Append a message (taken, also on failure; NULL fails) to a repeated message. list is the
 * address of the T ** member. */
bool berth_add_message(size_t *n, void *list, void *message);
/* Set key in a map<string, string>: list is the address of the XEntry ** member, type that of
 * the entry. A later value replaces an earlier one. */
bool berth_set_map(size_t *n, void *list, const ProtobufCMessageDescriptor *type,
                   const char *key, const char *value);

Google__Protobuf__Duration *berth_duration(int64_t ms);
Google__Protobuf__Timestamp *berth_timestamp(int64_t wall_ms);
/* absent where there is none; rounded down; cut to the range of int64_t milliseconds. */
int64_t berth_duration_ms(const Google__Protobuf__Duration *duration, int64_t absent);
int64_t berth_timestamp_ms(const Google__Protobuf__Timestamp *timestamp, int64_t absent);

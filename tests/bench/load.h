/* load.h - the load generator: carries out a plan (JSON), says what it measured (JSON). */
#pragma once

#include <jansson.h>

#include "common/rpc/rpc.h"

/* Any message of any type: what is in it travels as unknown fields of google.protobuf.Empty. */
#define LOAD_ANY google__protobuf__empty__descriptor

/* Ends the program with a sentence. */
_Noreturn void load_fail(const char *fmt, ...) BERTH_PRINTF(1, 2);

/* Members of a plan; missing ones end the program. Strings are borrowed. */
const char *load_text(const json_t *plan, const char *key);
int64_t load_number(const json_t *plan, const char *key);
/* The bytes of a member in hex; owned. */
uint8_t *load_bytes(const json_t *plan, const char *key, size_t *ret_size);
/* One channel per target, for the whole run. */
struct berth_channel *load_channel(const char *target);

/* The call options' metadata of a plan: {key: hex}. */
struct load_metadata {
    struct berth_metadata entries[4];
    uint8_t *values[4];
    size_t n;
};
void load_metadata_init(struct load_metadata *metadata, const json_t *plan);
void load_metadata_deinit(struct load_metadata *metadata);

/* Each carries out a plan of its mode and returns the result. */
json_t *load_rounds(const json_t *plan);
json_t *load_read(const json_t *plan);
json_t *load_write(const json_t *plan);
json_t *load_hold(const json_t *plan);

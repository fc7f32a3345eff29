/* symbols.h - what is defined in a serialized FileDescriptorSet, and in which file. */
#pragma once

#include <stdbool.h>

#include "common/errors/errors.h"
#include "google/protobuf/descriptor.pb-c.h"

struct rpc_file {
    const uint8_t *data; /* a FileDescriptorProto as it stands in the set */
    size_t size;
    Google__Protobuf__FileDescriptorProto *proto;
};

struct rpc_symbol {
    char *name; /* "berth.data.v1.ProcessService.Run" */
    size_t file;
};

struct rpc_symbols {
    struct rpc_file *files;
    size_t n_files;
    struct rpc_symbol *symbols; /* sorted */
    size_t n_symbols, symbols_size;
};

enum { RPC_NO_FILE = -1 };

/* set is borrowed for ever. */
BERTH_MUST_CHECK enum berth_code rpc_symbols_init(struct rpc_symbols *symbols,
                                                  const uint8_t *set, size_t size,
                                                  struct berth_error *err);
void rpc_symbols_deinit(struct rpc_symbols *symbols);

/* Index of a file, or RPC_NO_FILE. */
int rpc_symbols_file(const struct rpc_symbols *symbols, const char *name);
int rpc_symbols_find(const struct rpc_symbols *symbols, const char *name);
int rpc_symbols_extension(const struct rpc_symbols *symbols, const char *type, int32_t number);
/* The numbers of all extensions of a type; at most n_max are written. */
size_t rpc_symbols_extensions(const struct rpc_symbols *symbols, const char *type,
                              int32_t *numbers, size_t n_max);
/* A file and all that it imports; files holds room for n_files. Returns how many. */
size_t rpc_symbols_closure(const struct rpc_symbols *symbols, int file,
                           ProtobufCBinaryData *files);

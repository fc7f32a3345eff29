#include "common/rpc/symbols.h"

#include <stdio.h>

typedef Google__Protobuf__FileDescriptorProto FileProto;
typedef Google__Protobuf__DescriptorProto MessageProto;
typedef Google__Protobuf__EnumDescriptorProto EnumProto;
typedef Google__Protobuf__ServiceDescriptorProto ServiceProto;
typedef Google__Protobuf__FieldDescriptorProto FieldProto;

enum { FILE_TAG = 0x0a, SYMBOLS_MIN = 64, LENGTH_BITS_MAX = 28 };

/* Adds <scope>.<name>. Returns the full name, borrowed; NULL: out of memory. */
static const char *add(struct rpc_symbols *symbols, const char *scope, const char *name,
                       size_t file)
{
    size_t size = strlen(scope) + strlen(name) + 2;
    char *full;

    if (symbols->n_symbols == symbols->symbols_size) {
        size_t more = symbols->symbols_size ? 2 * symbols->symbols_size : SYMBOLS_MIN;
        struct rpc_symbol *grown = realloc(symbols->symbols, more * sizeof *grown);

        if (!grown)
            return NULL;
        symbols->symbols = grown;
        symbols->symbols_size = more;
    }
    full = malloc(size);
    if (!full)
        return NULL;
    snprintf(full, size, "%s%s%s", scope, *scope ? "." : "", name);
    symbols->symbols[symbols->n_symbols++] = (struct rpc_symbol){.name = full, .file = file};
    return full;
}

static bool add_enum(struct rpc_symbols *symbols, const char *scope, const EnumProto *proto,
                     size_t file)
{
    bool ok = add(symbols, scope, proto->name, file) != NULL;

    for (size_t i = 0; ok && i < proto->n_value; i++) /* values live beside their enum */
        ok = add(symbols, scope, proto->value[i]->name, file) != NULL;
    return ok;
}

static bool add_message(struct rpc_symbols *symbols, const char *scope,
                        const MessageProto *proto, size_t file)
{
    const char *name = add(symbols, scope, proto->name, file);
    bool ok = name != NULL;

    for (size_t i = 0; ok && i < proto->n_field; i++)
        ok = add(symbols, name, proto->field[i]->name, file) != NULL;
    for (size_t i = 0; ok && i < proto->n_oneof_decl; i++)
        ok = add(symbols, name, proto->oneof_decl[i]->name, file) != NULL;
    for (size_t i = 0; ok && i < proto->n_extension; i++)
        ok = add(symbols, name, proto->extension[i]->name, file) != NULL;
    for (size_t i = 0; ok && i < proto->n_enum_type; i++)
        ok = add_enum(symbols, name, proto->enum_type[i], file);
    for (size_t i = 0; ok && i < proto->n_nested_type; i++)
        ok = add_message(symbols, name, proto->nested_type[i], file);
    return ok;
}

static bool add_service(struct rpc_symbols *symbols, const char *scope,
                        const ServiceProto *proto, size_t file)
{
    const char *name = add(symbols, scope, proto->name, file);
    bool ok = name != NULL;

    for (size_t i = 0; ok && i < proto->n_method; i++)
        ok = add(symbols, name, proto->method[i]->name, file) != NULL;
    return ok;
}

static bool add_file(struct rpc_symbols *symbols, size_t file)
{
    const FileProto *proto = symbols->files[file].proto;
    const char *package = proto->package ? proto->package : "";
    bool ok = true;

    for (size_t i = 0; ok && i < proto->n_message_type; i++)
        ok = add_message(symbols, package, proto->message_type[i], file);
    for (size_t i = 0; ok && i < proto->n_enum_type; i++)
        ok = add_enum(symbols, package, proto->enum_type[i], file);
    for (size_t i = 0; ok && i < proto->n_extension; i++)
        ok = add(symbols, package, proto->extension[i]->name, file) != NULL;
    for (size_t i = 0; ok && i < proto->n_service; i++)
        ok = add_service(symbols, package, proto->service[i], file);
    return ok;
}

/* FileDescriptorSet: repeated FileDescriptorProto file = 1. The raw bytes are kept: they are
 * what clients want. 1: one file read; 0: the end; -1: malformed. */
static int next_file(const uint8_t **at, const uint8_t *end, struct rpc_file *ret)
{
    size_t size = 0;
    uint8_t byte;

    if (*at == end)
        return 0;
    if (*(*at)++ != FILE_TAG)
        return -1;
    for (unsigned shift = 0;; shift += 7) {
        if (*at == end || shift > LENGTH_BITS_MAX)
            return -1;
        byte = *(*at)++;
        size |= (size_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            break;
    }
    if (size > (size_t)(end - *at))
        return -1;
    *ret = (struct rpc_file){.data = *at, .size = size};
    *at += size;
    ret->proto = google__protobuf__file_descriptor_proto__unpack(NULL, size, ret->data);
    return ret->proto ? 1 : -1;
}

static int compare_symbols(const void *a, const void *b)
{
    return strcmp(((const struct rpc_symbol *)a)->name, ((const struct rpc_symbol *)b)->name);
}

enum berth_code rpc_symbols_init(struct rpc_symbols *symbols, const uint8_t *set, size_t size,
                                 struct berth_error *err)
{
    const uint8_t *at = set, *end = set + size;
    struct rpc_file file;
    bool ok = true;
    int read;

    *symbols = (struct rpc_symbols){0};
    while ((read = next_file(&at, end, &file)) > 0) {
        struct rpc_file *grown =
            realloc(symbols->files, (symbols->n_files + 1) * sizeof(struct rpc_file));

        if (!grown) {
            google__protobuf__file_descriptor_proto__free_unpacked(file.proto, NULL);
            ok = false;
            break;
        }
        symbols->files = grown;
        symbols->files[symbols->n_files++] = file;
    }
    for (size_t i = 0; ok && read == 0 && i < symbols->n_files; i++)
        ok = add_file(symbols, i);
    if (!ok || read < 0) {
        rpc_symbols_deinit(symbols);
        return ok ? berth_fail(err, BERTH_REASON_INTERNAL_BUG, "malformed descriptor set")
                  : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    qsort(symbols->symbols, symbols->n_symbols, sizeof(struct rpc_symbol), compare_symbols);
    return BERTH_OK;
}

void rpc_symbols_deinit(struct rpc_symbols *symbols)
{
    for (size_t i = 0; i < symbols->n_files; i++)
        google__protobuf__file_descriptor_proto__free_unpacked(symbols->files[i].proto, NULL);
    for (size_t i = 0; i < symbols->n_symbols; i++)
        free(symbols->symbols[i].name);
    free(symbols->files);
    free(symbols->symbols);
    *symbols = (struct rpc_symbols){0};
}

int rpc_symbols_file(const struct rpc_symbols *symbols, const char *name)
{
    for (size_t i = 0; i < symbols->n_files; i++)
        if (strcmp(symbols->files[i].proto->name, name) == 0)
            return (int)i;
    return RPC_NO_FILE;
}

int rpc_symbols_find(const struct rpc_symbols *symbols, const char *name)
{
    struct rpc_symbol key = {.name = (char *)(uintptr_t)name};
    const struct rpc_symbol *found;

    if (symbols->n_symbols == 0)
        return RPC_NO_FILE;
    found = bsearch(&key, symbols->symbols, symbols->n_symbols, sizeof key, compare_symbols);
    return found ? (int)found->file : RPC_NO_FILE;
}

/* ---------------------------------------------------------------- extensions */

struct extensions { /* a walk over those of one type */
    const char *type;
    int32_t wanted; /* number; with numbers NULL */
    bool found;
    int32_t *numbers;
    size_t n, n_max;
};

static void look_at(struct extensions *walk, const FieldProto *field)
{
    const char *extendee = field->extendee ? field->extendee : "";

    if (strcmp(*extendee == '.' ? extendee + 1 : extendee, walk->type) != 0)
        return;
    if (!walk->numbers)
        walk->found = walk->found || field->number == walk->wanted;
    else if (walk->n < walk->n_max)
        walk->numbers[walk->n++] = field->number;
}

static void look_into(struct extensions *walk, const MessageProto *proto)
{
    for (size_t i = 0; i < proto->n_extension; i++)
        look_at(walk, proto->extension[i]);
    for (size_t i = 0; i < proto->n_nested_type; i++)
        look_into(walk, proto->nested_type[i]);
}

static void look_through(struct extensions *walk, const FileProto *proto)
{
    for (size_t i = 0; i < proto->n_extension; i++)
        look_at(walk, proto->extension[i]);
    for (size_t i = 0; i < proto->n_message_type; i++)
        look_into(walk, proto->message_type[i]);
}

int rpc_symbols_extension(const struct rpc_symbols *symbols, const char *type, int32_t number)
{
    struct extensions walk = {.type = type, .wanted = number};

    for (size_t i = 0; i < symbols->n_files; i++) {
        look_through(&walk, symbols->files[i].proto);
        if (walk.found)
            return (int)i;
    }
    return RPC_NO_FILE;
}

size_t rpc_symbols_extensions(const struct rpc_symbols *symbols, const char *type,
                              int32_t *numbers, size_t n_max)
{
    struct extensions walk = {.type = type, .numbers = numbers, .n_max = n_max};

    for (size_t i = 0; i < symbols->n_files; i++)
        look_through(&walk, symbols->files[i].proto);
    return walk.n;
}

/* ------------------------------------------------------------------- closure */

static bool has_file(const ProtobufCBinaryData *files, size_t n, const uint8_t *data)
{
    for (size_t i = 0; i < n; i++)
        if (files[i].data == data)
            return true;
    return false;
}

size_t rpc_symbols_closure(const struct rpc_symbols *symbols, int file,
                           ProtobufCBinaryData *files)
{
    size_t n = 0;

    files[n].data = (uint8_t *)(uintptr_t)symbols->files[file].data;
    files[n++].len = symbols->files[file].size;
    /* What is in the list already is at the same time the queue of what to look into. */
    for (size_t next = 0; next < n; next++) {
        const FileProto *proto = NULL;

        for (size_t i = 0; i < symbols->n_files; i++)
            if (symbols->files[i].data == files[next].data)
                proto = symbols->files[i].proto;
        for (size_t i = 0; proto && i < proto->n_dependency; i++) {
            int other = rpc_symbols_file(symbols, proto->dependency[i]);

            if (other == RPC_NO_FILE || has_file(files, n, symbols->files[other].data))
                continue;
            files[n].data = (uint8_t *)(uintptr_t)symbols->files[other].data;
            files[n++].len = symbols->files[other].size;
        }
    }
    return n;
}

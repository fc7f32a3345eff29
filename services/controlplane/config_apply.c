#include "services/controlplane/config_apply.h"

#include <stdio.h>

#include "common/messages/messages.h"
#include "services/controlplane/config.h"
#include "services/controlplane/config_check.h"

typedef Berth__Control__V1__SandboxConfig SandboxConfig;
typedef Berth__Control__V1__Credentials Credentials;
typedef Google__Protobuf__FieldMask FieldMask;

enum { PATH_DEPTH = 4 };

enum field_kind {
    FIELD_COPY,        /* a client's */
    FIELD_POLICY,      /* a client's, asks something of the backend */
    FIELD_TARGET,      /* a client's, part of the target */
    FIELD_ENDPOINT,    /* a client's, credentials are bound to it */
    FIELD_IMMUTABLE,   /* may be repeated */
    FIELD_CREDENTIALS, /* sealed apart */
    FIELD_SERVER,      /* passed over */
};

static const struct {
    const char *name;
    enum field_kind kind;
} fields[] = {
    {"config_id", FIELD_IMMUTABLE},
    {"tenant_id", FIELD_IMMUTABLE},
    {"backend", FIELD_IMMUTABLE},
    {"name", FIELD_COPY},
    {"api_url", FIELD_ENDPOINT},
    {"domain", FIELD_ENDPOINT},
    {"proxy_url", FIELD_ENDPOINT},
    {"allow_private_endpoints", FIELD_ENDPOINT},
    {"options", FIELD_TARGET},
    {"credentials", FIELD_CREDENTIALS},
    {"credentials_set", FIELD_SERVER},
    {"fingerprint", FIELD_SERVER},
    {"template_id", FIELD_COPY},
    {"network", FIELD_POLICY},
    {"timeouts", FIELD_POLICY},
    {"resources", FIELD_POLICY},
    {"volumes", FIELD_POLICY},
    {"env", FIELD_COPY},
    {"rollout", FIELD_COPY},
    {"workspace_on_rebuild", FIELD_COPY},
    {"verify_interval", FIELD_COPY},
    {"image", FIELD_SERVER},
    {"etag", FIELD_SERVER},
    {"create_time", FIELD_SERVER},
    {"update_time", FIELD_SERVER},
    {"created_by", FIELD_SERVER},
    {"cordoned", FIELD_COPY},
    {"cordon_expire_time", FIELD_COPY},
    {"root_commands", FIELD_POLICY},
    {"command_timeout", FIELD_COPY},
    {"command_timeout_max", FIELD_COPY},
    {"sandbox_ca_pems", FIELD_COPY},
    {"credentials_fingerprint", FIELD_SERVER},
    {"credentials_members", FIELD_SERVER},
    {"skills", FIELD_COPY},
};

/* A path of a mask: the field of the config, and what it names below that. */
struct path {
    size_t top;     /* in fields */
    unsigned depth; /* of steps below it */
    const ProtobufCFieldDescriptor *steps[PATH_DEPTH];
};

static const ProtobufCFieldDescriptor *member_of(const ProtobufCMessageDescriptor *type,
                                                 const char *name, size_t len)
{
    char buf[64];

    if (len == 0 || len >= sizeof buf)
        return NULL;
    memcpy(buf, name, len);
    buf[len] = 0;
    return protobuf_c_message_descriptor_get_field_by_name(type, buf);
}

static const ProtobufCFieldDescriptor *top_field(size_t at)
{
    return member_of(&berth__control__v1__sandbox_config__descriptor, fields[at].name,
                     strlen(fields[at].name));
}

/* What lies below a field. NULL: nothing that a mask may name: lists and maps are taken as a
 * whole, and so are times and durations. */
static const ProtobufCMessageDescriptor *below(const ProtobufCFieldDescriptor *field)
{
    const ProtobufCMessageDescriptor *type = field->descriptor;

    if (field->type != PROTOBUF_C_TYPE_MESSAGE || field->label == PROTOBUF_C_LABEL_REPEATED ||
        strncmp(type->package_name, "google.protobuf", 15) == 0)
        return NULL;
    return type;
}

static bool parse_path(const char *text, struct path *ret)
{
    size_t len = strcspn(text, ".");
    const ProtobufCFieldDescriptor *field;

    *ret = (struct path){0};
    while (ret->top < BERTH_COUNT(fields) && (strlen(fields[ret->top].name) != len ||
                                              memcmp(fields[ret->top].name, text, len) != 0))
        ret->top++;
    if (ret->top == BERTH_COUNT(fields))
        return false;
    field = top_field(ret->top);
    for (text += len; *text; text += len) {
        const ProtobufCMessageDescriptor *type = below(field);

        len = strcspn(++text, ".");
        field = type && ret->depth < PATH_DEPTH ? member_of(type, text, len) : NULL;
        if (!field)
            return false;
        ret->steps[ret->depth++] = field;
    }
    return true;
}

static enum berth_code read_path(const char *text, struct path *ret, struct berth_error *err)
{
    if (!parse_path(text, ret))
        return berth_fail_field(err, "update_mask", "'%.80s' is not a field of a config", text);
    return BERTH_OK;
}

static bool is_star(const FieldMask *mask)
{
    return mask && mask->n_paths == 1 && strcmp(mask->paths[0], "*") == 0;
}

enum berth_code cp_config_check_mask(const FieldMask *mask, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;
    struct path path;

    for (size_t i = 0; !code && mask && !is_star(mask) && i < mask->n_paths; i++)
        code = read_path(mask->paths[i], &path, err);
    return code;
}

/* ---------------------------------------------------------------------- values */

static size_t value_size(const ProtobufCFieldDescriptor *field)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return sizeof(void *);
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return sizeof(uint64_t);
    default:
        return sizeof(uint32_t);
    }
}

static void *value_at(void *message, const ProtobufCFieldDescriptor *field)
{
    return (char *)message + field->offset;
}

static bool is_set(const void *message, const ProtobufCFieldDescriptor *field)
{
    static const char zeros[sizeof(ProtobufCBinaryData)];
    const char *at = (const char *)message + field->offset;

    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return *(const size_t *)((const char *)message + field->quantifier_offset) > 0;
    if (field->type == PROTOBUF_C_TYPE_STRING)
        return **(char *const *)at != 0;
    return memcmp(at, zeros, value_size(field)) != 0;
}

/* Swap one field between two messages of the same type: each still owns what it holds. */
static void swap_field(void *a, void *b, const ProtobufCFieldDescriptor *field)
{
    char buf[sizeof(ProtobufCBinaryData)];
    void *x = value_at(a, field), *y = value_at(b, field);
    size_t size = value_size(field);

    memcpy(buf, x, size);
    memcpy(x, y, size);
    memcpy(y, buf, size);
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        size_t *n = (size_t *)((char *)a + field->quantifier_offset);
        size_t *m = (size_t *)((char *)b + field->quantifier_offset);
        size_t keep = *n;

        *n = *m;
        *m = keep;
    }
}

/* The message in a field, made where it is absent. NULL: no memory. */
static void *open_message(void *holder, const ProtobufCFieldDescriptor *field)
{
    void *message;

    memcpy(&message, value_at(holder, field), sizeof message);
    if (!message) {
        message = berth_message_new(field->descriptor);
        memcpy(value_at(holder, field), &message, sizeof message);
    }
    return message;
}

/* Of a string or a switch. */
static bool same_value(const void *a, const void *b, const ProtobufCFieldDescriptor *field)
{
    const char *x = (const char *)a + field->offset, *y = (const char *)b + field->offset;

    if (field->type == PROTOBUF_C_TYPE_STRING)
        return strcmp(*(char *const *)x, *(char *const *)y) == 0;
    return memcmp(x, y, value_size(field)) == 0;
}

/* ----------------------------------------------------------------------- apply */

static enum berth_code check_immutable(const SandboxConfig *into, const SandboxConfig *from,
                                       const ProtobufCFieldDescriptor *field,
                                       struct berth_error *err)
{
    const char *old = *(char *const *)((const char *)into + field->offset);
    const char *new = *(char *const *)((const char *)from + field->offset);
    char buf[64];

    if (!*new || strcmp(old, new) == 0)
        return BERTH_OK;
    snprintf(buf, sizeof buf, "config.%s", field->name);
    return berth_fail_field(err, buf, "cannot be changed");
}

/* Of the whole, or of one member by its own name. */
static unsigned credentials_change(const struct path *path)
{
    unsigned changes = CP_CHANGE_ANY | CP_CHANGE_TARGET;
    size_t i = 0;

    if (path->depth == 0)
        return changes | CP_CHANGE_CREDENTIALS;
    while (i < CP_CREDENTIALS_MEMBERS &&
           strcmp(cp_credentials_members[i], path->steps[0]->name) != 0)
        i++;
    return changes | (unsigned)CP_CHANGE_MEMBER << i;
}

static enum berth_code take(SandboxConfig *into, SandboxConfig *copy, const struct path *path,
                            struct berth_error *err)
{
    const ProtobufCFieldDescriptor *field = top_field(path->top);
    void *a = into, *b = copy;

    for (unsigned i = 0; i < path->depth; i++) {
        a = open_message(a, field);
        b = open_message(b, field);
        if (!a || !b)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        field = path->steps[i];
    }
    swap_field(a, b, field);
    return BERTH_OK;
}

static enum berth_code apply_path(SandboxConfig *into, SandboxConfig *copy,
                                  const struct path *path, unsigned *changes,
                                  struct berth_error *err)
{
    const ProtobufCFieldDescriptor *field = top_field(path->top);

    switch (fields[path->top].kind) {
    case FIELD_SERVER:
        return BERTH_OK;
    case FIELD_IMMUTABLE:
        return check_immutable(into, copy, field, err);
    case FIELD_CREDENTIALS:
        *changes |= credentials_change(path);
        return BERTH_OK;
    case FIELD_ENDPOINT:
        *changes |= CP_CHANGE_TARGET;
        if (!same_value(into, copy, field))
            *changes |= CP_CHANGE_ENDPOINT;
        break;
    case FIELD_TARGET:
        *changes |= CP_CHANGE_TARGET;
        break;
    case FIELD_POLICY:
        *changes |= CP_CHANGE_POLICY;
        break;
    case FIELD_COPY:
        break;
    }
    *changes |= CP_CHANGE_ANY;
    return take(into, copy, path, err);
}

/* Another path says the same: equal and before it, or a message that this one lies in. Members
 * of the credentials by their own name say more than the whole. */
static bool is_covered(const FieldMask *mask, size_t at)
{
    if (strncmp(mask->paths[at], "credentials.", 12) == 0)
        return false;
    for (size_t i = 0; i < mask->n_paths; i++) {
        size_t len = strlen(mask->paths[i]);

        if (i != at && strncmp(mask->paths[i], mask->paths[at], len) == 0 &&
            (mask->paths[at][len] == '.' || (!mask->paths[at][len] && i < at)))
            return true;
    }
    return false;
}

static enum berth_code apply_mask(SandboxConfig *into, SandboxConfig *copy,
                                  const FieldMask *mask, unsigned *changes,
                                  struct berth_error *err)
{
    enum berth_code code = cp_config_check_mask(mask, err);
    struct path path;

    for (size_t i = 0; !code && i < mask->n_paths; i++) {
        if (is_covered(mask, i))
            continue;
        code = read_path(mask->paths[i], &path, err);
        if (!code)
            code = apply_path(into, copy, &path, changes, err);
    }
    return code;
}

static enum berth_code apply_star(SandboxConfig *into, SandboxConfig *copy,
                                  const SandboxConfig *from, unsigned *changes,
                                  struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < BERTH_COUNT(fields); i++) {
        const struct path path = {.top = i};

        if (fields[i].kind != FIELD_CREDENTIALS || is_set(from, top_field(i)))
            code = apply_path(into, copy, &path, changes, err);
    }
    return code;
}

/* What is set of the field that path names, which holder has: of a message its members. */
static enum berth_code apply_set(SandboxConfig *into, SandboxConfig *copy, const void *holder,
                                 const ProtobufCFieldDescriptor *field, const struct path *path,
                                 unsigned *changes, struct berth_error *err)
{
    const ProtobufCMessageDescriptor *type =
        fields[path->top].kind == FIELD_CREDENTIALS ? NULL : below(field);
    enum berth_code code = BERTH_OK;
    const void *message;

    if (!is_set(holder, field))
        return BERTH_OK;
    if (!type || path->depth == PATH_DEPTH)
        return apply_path(into, copy, path, changes, err);
    memcpy(&message, (const char *)holder + field->offset, sizeof message);
    for (unsigned i = 0; !code && i < type->n_fields; i++) {
        struct path member = *path;

        member.steps[member.depth++] = &type->fields[i];
        code = apply_set(into, copy, message, &type->fields[i], &member, changes, err);
    }
    return code;
}

static enum berth_code apply_all_set(SandboxConfig *into, SandboxConfig *copy,
                                     const SandboxConfig *from, unsigned *changes,
                                     struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < BERTH_COUNT(fields); i++) {
        const struct path path = {.top = i};

        code = apply_set(into, copy, from, top_field(i), &path, changes, err);
    }
    return code;
}

enum berth_code cp_config_apply(SandboxConfig *into, const SandboxConfig *from,
                                const FieldMask *mask, unsigned *ret_changes,
                                struct berth_error *err)
{
    SandboxConfig *copy = berth_message_copy(from);
    enum berth_code code;
    unsigned changes = 0;

    if (!copy)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (is_star(mask))
        code = apply_star(into, copy, from, &changes, err);
    else if (!mask || mask->n_paths == 0)
        code = apply_all_set(into, copy, from, &changes, err);
    else
        code = apply_mask(into, copy, mask, &changes, err);
    cp_credentials_free(copy->credentials);
    copy->credentials = NULL;
    berth_message_free(copy);
    if (!code)
        *ret_changes = changes;
    return code;
}

bool cp_config_defaults(SandboxConfig *config)
{
    if (!config->rollout)
        config->rollout = BERTH__CONTROL__V1__ROLLOUT__ROLLOUT_NEXT_TURN;
    if (!config->workspace_on_rebuild)
        config->workspace_on_rebuild =
            BERTH__CONTROL__V1__WORKSPACE_ON_REBUILD__WORKSPACE_ON_REBUILD_CARRY;
    return *config->template_id || berth_set_string(&config->template_id, CP_TEMPLATE_DEFAULT);
}

/* ----------------------------------------------------------------- credentials */

const char *const cp_credentials_members[CP_CREDENTIALS_MEMBERS] = {
    "api_key", "ca_pem", "client_cert_pem", "client_key_pem"};

char **cp_credentials_member(Credentials *credentials, size_t i)
{
    char **const members[CP_CREDENTIALS_MEMBERS] = {&credentials->api_key, &credentials->ca_pem,
                                                    &credentials->client_cert_pem,
                                                    &credentials->client_key_pem};

    return members[i];
}

bool cp_is_masked(const char *value)
{
    return *value && strspn(value, "*") == strlen(value);
}

bool cp_credentials_merge(Credentials *stored, const Credentials *given, unsigned changes)
{
    static const Credentials none = BERTH__CONTROL__V1__CREDENTIALS__INIT;

    for (size_t i = 0; i < CP_CREDENTIALS_MEMBERS; i++) {
        const char *value = *cp_credentials_member((Credentials *)(given ? given : &none), i);
        bool named = changes & (unsigned)CP_CHANGE_MEMBER << i;
        bool taken = named || ((changes & CP_CHANGE_CREDENTIALS) && *value);
        char **slot = cp_credentials_member(stored, i);

        if (!taken || cp_is_masked(value))
            continue;
        if (*slot != protobuf_c_empty_string)
            berth_wipe(*slot, strlen(*slot));
        if (!berth_set_string(slot, value))
            return false;
    }
    return true;
}

/* config_apply.h - which fields of a SandboxConfig an update takes over. Pure. */
#pragma once

#include <stdbool.h>

#include "berth/control/v1/control.pb-c.h"
#include "common/errors/errors.h"

/* What an update changes; it may have to ask the adapter again. */
enum cp_config_change {
    CP_CHANGE_NONE = 0,
    CP_CHANGE_ANY = 1,
    CP_CHANGE_TARGET = 2,      /* options or credentials, too */
    CP_CHANGE_ENDPOINT = 4,    /* what sealed credentials are bound to has another value */
    CP_CHANGE_CREDENTIALS = 8, /* credentials as a whole: what is given is taken */
    CP_CHANGE_POLICY = 16,     /* what the backend has to be capable of */
    CP_CHANGE_MEMBER = 64,     /* << i: member i of the credentials is named by itself */
};

enum { CP_CREDENTIALS_MEMBERS = 4 };
extern const char *const cp_credentials_members[CP_CREDENTIALS_MEMBERS];
/* Borrowed. */
char **cp_credentials_member(Berth__Control__V1__Credentials *credentials, size_t i);

/* Every path is a field of a config or below one, or the mask is "*". Errors: FIELD_INVALID
 * naming the path. */
BERTH_MUST_CHECK enum berth_code cp_config_check_mask(const Google__Protobuf__FieldMask *mask,
                                                      struct berth_error *err);

/**
 * cp_config_apply() - take the fields named by mask over
 * @into:  the stored settings, changed in place
 * @from:  what the client sent, already checked
 * @mask:  NULL or empty: every field that is set in from, of messages the members that are;
 *         "*": every field a client may write; "timeouts.idle": one member of a message, the
 *         others stay
 * @ret_changes: enum cp_config_change bits
 *
 * Fields of the server in the mask are passed over. Credentials are not copied.
 *
 * Errors: FIELD_INVALID for an unknown path and for an immutable field that differs;
 * OUT_OF_MEMORY.
 */
BERTH_MUST_CHECK enum berth_code cp_config_apply(Berth__Control__V1__SandboxConfig *into,
                                                 const Berth__Control__V1__SandboxConfig *from,
                                                 const Google__Protobuf__FieldMask *mask,
                                                 unsigned *ret_changes,
                                                 struct berth_error *err);

/* Fill in what was left open and is stored explicitly: template, rollout, workspace_on_rebuild.
 * False: no memory. */
bool cp_config_defaults(Berth__Control__V1__SandboxConfig *config);

/* A value that stands for the one that is stored: "***". */
bool cp_is_masked(const char *value);

/* Credentials as stored after a change: as a whole an empty or masked member keeps the stored
 * one; named by itself only a masked one does, and an empty one clears it. given may be NULL.
 * False: no memory. */
bool cp_credentials_merge(Berth__Control__V1__Credentials *stored,
                          const Berth__Control__V1__Credentials *given, unsigned changes);

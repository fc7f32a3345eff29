/* rules.h - who may call what: one table of every method of the public services, and what a
 * token's request may name. Pure: no clock, no store, and so the same time for what is there
 * and what is not. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/auth/token.h"
#include "common/errors/errors.h"

/* From small to large: a larger one includes the smaller. The numbers of Scope in
 * control.proto.
 */
enum berth_scope {
    BERTH_SCOPE_NONE = 0,
    BERTH_SCOPE_READ = 1,
    BERTH_SCOPE_USE = 2,
    BERTH_SCOPE_INSTALL = 3,
    BERTH_SCOPE_ADMIN = 4,
};

/* Whom a token stands for. */
struct berth_principal {
    struct berth_token token; /* its id and hash */
    bool deployment;          /* of no tenant: may name any */
    char tenant_id[129];      /* "" where deployment */
    enum berth_scope scope;   /* the largest it has */
    char session_id[129];     /* good for this session only; "": for all */
    char config_id[129];      /* good for this config and its sessions only; "": for all */
    int64_t expire_ms;        /* wall clock; 0: never */
    bool tenant_disabled;
    /* Of the tenant, per process; 0: as many as it likes. */
    uint32_t calls_per_second, max_commands;
};

enum berth_rule_flags {
    BERTH_RULE_PEER = 1,           /* services of the suite only, whatever token they show */
    BERTH_RULE_DEPLOYMENT = 2,     /* a tenant's token is not enough */
    BERTH_RULE_NO_TENANT = 4,      /* the request is about no tenant */
    BERTH_RULE_UNBOUND = 8,        /* not with a token for one session or config */
    BERTH_RULE_CHECKS_CONFIG = 16, /* the handler holds sessions, aliases and snapshots against
                                      the token's config_id */
    BERTH_RULE_EVEN_DISABLED = 32, /* goes on where the tenant is disabled */
    BERTH_RULE_CHECKS_OPERATION = 64, /* the handler holds the operation against the token's
                                         session_id and config_id */
};

struct berth_rule {
    const char *path;
    enum berth_scope scope; /* NONE: any valid token */
    unsigned flags;
};

/* NULL: nobody may call it. */
const struct berth_rule *berth_rule_find(const char *path);

/* May this token call the method at all?
 * Errors: TOKEN_INVALID (expired); SCOPE_MISSING; TENANT_DISABLED. */
BERTH_MUST_CHECK enum berth_code berth_rule_admit(const struct berth_rule *rule,
                                                  const struct berth_principal *principal,
                                                  int64_t now_ms, struct berth_error *err);

/**
 * berth_rule_judge() - may this token ask for this?
 *
 * Finds by their names, wherever they stand in the message, what the request is about:
 * tenant_id, session_id, config_id, alias, snapshot_id and operation_id; and by "deployment", a
 * switch, whether it asks for what is the deployment's own. So a new method is covered by its
 * entry in the table alone.
 *
 * Errors: TENANT_NOT_FOUND, SESSION_NOT_FOUND, CONFIG_NOT_FOUND, SNAPSHOT_NOT_FOUND for what is
 * not the token's, as if it were not there; FIELD_INVALID where no tenant is named;
 * SCOPE_MISSING for a token for one session or config where the method is about neither, and
 * for a tenant's where the deployment's own is asked for.
 */
BERTH_MUST_CHECK enum berth_code berth_rule_judge(const struct berth_rule *rule,
                                                  const struct berth_principal *principal,
                                                  const ProtobufCMessage *request,
                                                  struct berth_error *err);

/* Every refusal of a token reads the same. Returns UNAUTHENTICATED. */
enum berth_code berth_token_refuse(struct berth_error *err);

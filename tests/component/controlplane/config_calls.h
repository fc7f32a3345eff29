/* config_calls.h - a town, and ConfigService called in it; for the tests of configs' rules. */
#pragma once

#include "tests/component/controlplane/town.h"

typedef Berth__Control__V1__CheckConfigResponse CheckConfigResponse;
typedef Berth__Control__V1__ConfigFinding ConfigFinding;
typedef Berth__Control__V1__Credentials Credentials;

extern struct town town;
extern struct berth_error err; /* of the last call that does not give its own */

/* Two replicas. */
void open_town(void);
void close_town(void);

/* Of tenant t1, with nothing but an id and backend local. */
SandboxConfig config_of(const char *id);
enum berth_reason config_create_at(unsigned plane, SandboxConfig *config,
                                   const char *request_id, SandboxConfig **ret);
enum berth_reason config_create(SandboxConfig *config, const char *request_id);
/* From the other replica. Owned; NULL: err. */
SandboxConfig *config_get(const char *id);
/* paths: up to NULL. */
enum berth_reason config_update_at(unsigned plane, SandboxConfig *config, char **paths,
                                   struct berth_error *ret_err);
enum berth_reason config_update(SandboxConfig *config, const char *path);
enum berth_reason config_delete(const char *id, const char *etag);
/* A config, or the stored one of this id. Owned. */
CheckConfigResponse *config_check(SandboxConfig *config, const char *id);
/* NULL: nothing was found of this field. */
const ConfigFinding *config_finding(const CheckConfigResponse *resp, const char *field);

int64_t store_ms(void); /* the store's clock */
int64_t n_keys(const char *pattern);

/* Runs the case; the exit code of main. */
int run_town_case(const char *name, TCase *tcase);

/* blobs.h - bundles and logs on disk, closed to others:
 *
 *   <blob_dir>/bundles/<tenant>/<hex content digest>.tar   as bundle_write_tar() makes it
 *   <blob_dir>/logs/<tenant>/<operation>.log               output as it came
 *
 * A bundle takes its name when it is whole and synced; whoever uses one judges it again, and so
 * sees that its content is what its name says. Replicas share the folder. Calls block. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "services/skills/bundle/bundle.h"

struct skills_blobs;

/* Makes the directory with mode 0700. Errors: FIELD_INVALID naming blob_dir: it cannot be used,
 * or others may look into it. */
BERTH_MUST_CHECK enum berth_code skills_blobs_new(const char *dir, struct skills_blobs **ret,
                                                  struct berth_error *err);
struct skills_blobs *skills_blobs_free(struct skills_blobs *blobs); /* NULL is fine */

/* Ids are checked ids, digests 64 lower-case hex digits. prefix: the skill's name. One that is
 * there is written anew, and so young again. Errors: DISK_FULL, STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code
skills_blobs_put(struct skills_blobs *blobs, const char *tenant, const struct bundle *bundle,
                 const char *prefix, const char *digest, struct berth_error *err);
/* A descriptor at its start. Errors: FILE_NOT_FOUND; STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code skills_blobs_open(struct skills_blobs *blobs,
                                                   const char *tenant, const char *digest,
                                                   int *ret_fd, uint64_t *ret_size,
                                                   struct berth_error *err);

enum { SKILLS_LOG_MAX = 16 << 20 }; /* bytes of one operation's; what comes then is left out */

/* Best effort: output that cannot be kept is no error. */
void skills_log_add(struct skills_blobs *blobs, const char *tenant, const char *operation_id,
                    const void *data, size_t size);
/* Errors: FILE_NOT_FOUND; STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code skills_log_open(struct skills_blobs *blobs, const char *tenant,
                                                 const char *operation_id, int *ret_fd,
                                                 uint64_t *ret_size, struct berth_error *err);

/* Is this bundle still named by anybody? Called for those that are old enough to go. */
typedef bool (*skills_keep_fn)(void *arg, const char *digest);
/* A tenant's bundles that were written before bundle_ms (wall clock) and that nobody keeps, and
 * its logs before log_ms; what killed writers left behind goes after an hour. Returns how many.
 */
unsigned skills_blobs_sweep(struct skills_blobs *blobs, const char *tenant, int64_t bundle_ms,
                            int64_t log_ms, skills_keep_fn keep, void *arg);
/* Calls fn for every tenant that has a bundle or a log. */
void skills_blobs_tenants(struct skills_blobs *blobs, void (*fn)(void *arg, const char *tenant),
                          void *arg);

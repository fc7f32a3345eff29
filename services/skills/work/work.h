/* work.h - the maintenance sandbox of one start of an operation, and the steps that are done in
 * it. Blocking, on a worker of the operation's own. Each step may be repeated, and ends within
 * a second of `stopped` becoming true.
 *
 * Order: work_open, then per skill that is new work_upload, work_dependencies; work_remove per
 * skill that goes; work_seal, work_verify (the whole tree), work_clean; the snapshot is the
 * caller's; work_close. */
#pragma once

#include "services/skills/bundle/judge.h"
#include "services/skills/skills.h"

struct work;

struct work_wish {
    const char *tenant_id, *config_id;
    const char *session_id;  /* sk.<row> */
    const char *template_id; /* boot from this template; NULL: as the config's sessions do */
    const json_t *env;       /* object of strings, of every command; NULL: none */
    int64_t step_timeout_ms; /* of one command */
    /* Output of commands as it comes, and lines of our own. */
    void (*say)(void *arg, const void *data, size_t size);
    bool (*stopped)(void *arg); /* cancelled, lock lost, or shutting down */
    void *arg;
};

/* Make the session, its sandbox and a turn on it (renewed by itself as long as work lives). A
 * sandbox that an earlier start left under the same session is used again only if it is whole;
 * callers give each start a session of its own.
 * Errors: those of ResolveSession; CANCELLED. */
BERTH_MUST_CHECK enum berth_code work_open(struct skills *skills, const struct work_wish *wish,
                                           struct work **ret, struct berth_error *err);
/* What it runs on. generation: of the image it booted from; 0: a template. */
const char *work_sandbox(const struct work *work);
uint64_t work_generation(const struct work *work);
/* What the image brings. */
const struct plan_host *work_host(const struct work *work);
/* End the turn; destroy: delete the session, too. NULL is fine. Errors are logged, the reaper
 * sees to the rest. */
struct work *work_close(struct work *work, bool destroy);

/* One tar (bundle_write_tar with the skill's name as prefix) into /opt/berth/skills/<name>, in
 * place of what was there: a constant number of calls. Errors: DISK_FULL; the data plane's. */
BERTH_MUST_CHECK enum berth_code work_upload(struct work *work, const char *name, int tar_fd,
                                             uint64_t size, struct berth_error *err);
/* Every command of the plan as root. Errors: DEPENDENCY_FAILED with the package's name, or that
 * no index could be reached, and what the tool said; DEADLINE; CANCELLED. */
BERTH_MUST_CHECK enum berth_code work_dependencies(struct work *work, const struct plan *plan,
                                                   struct berth_error *err);
BERTH_MUST_CHECK enum berth_code work_remove(struct work *work, const char *name,
                                             struct berth_error *err);
/* Skills' tree root-owned, readable by all and writable by none; symlinks that lead out of the
 * skill's own folder and to no system path refused; set-id bits gone. */
BERTH_MUST_CHECK enum berth_code work_seal(struct work *work, struct berth_error *err);
/* The gate, as the session's user: scripts parse, declared dependencies are there, manifests
 * are as they came, the self-test passes. All findings at once. */
BERTH_MUST_CHECK enum berth_code work_verify(struct work *work,
                                             const struct bundle_verdict *verdict,
                                             struct findings *findings,
                                             struct berth_error *err);
/* Scratch, caches, histories and logs gone; all that the session's user, his home, root's home
 * and the workspace have got since work_open() gone, too: an image is its skills and its
 * system. No process but those of the beginning left; file systems synced. Byte code of
 * environments stays. *ret_bytes: of the skills' tree. Errors: GATE_FAILED where something
 * would not go. */
BERTH_MUST_CHECK enum berth_code work_clean(struct work *work, uint64_t *ret_bytes,
                                            struct berth_error *err);

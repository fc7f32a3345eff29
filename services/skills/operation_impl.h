/* operation_impl.h - for operation*.c only. */
#pragma once

#include "common/records/keys.h"
#include "services/skills/operation.h"

enum {
    OPERATION_TRIES = 64, /* of one write: each means that another's went well */
    OPERATION_FAILED_MAX = 20,
};

/* Values of skills.proto. */
#define KIND(name) BERTH__SKILLS__V1__OPERATION_KIND__OPERATION_KIND_##name
#define STATE(name) BERTH__SKILLS__V1__OPERATION_STATE__OPERATION_STATE_##name
#define STEP(name) BERTH__SKILLS__V1__STEP__STEP_##name

/* What of c/<config> is the operations'. */
struct operation_place {
    bool exists; /* and is not about to go */
    char rev[17];
    json_t *queue, *failed; /* owned: arrays of strings */
    struct {
        char op[OPERATION_ID_SIZE], owner[33];
        int64_t until_ms; /* 0: nobody has it */
    } lock;
    int64_t now_ms; /* Redis' clock at the read */
};
void operation_place_deinit(struct operation_place *place);
/* The document of one operation; rev "": there is none. */
struct operation_seen {
    char rev[17];
    struct operation operation; /* of rev "": zeroed */
    uint8_t *env;               /* owned: sealed */
    size_t env_size;
};
void operation_seen_deinit(struct operation_seen *seen);

/* Both in one trip; id NULL: only the place. Errors: STORE_UNAVAILABLE, INTERNAL_BUG. */
BERTH_MUST_CHECK enum berth_code operation_look(struct skills *skills, const char *tenant,
                                                const char *config_id, const char *id,
                                                struct operation_place *ret_place,
                                                struct operation_seen *ret_seen,
                                                struct berth_error *err);
/* Those of a list of ids, in its order, that are there. *ret is owned:
 * operation_seen_free_all(). */
BERTH_MUST_CHECK enum berth_code operation_look_all(struct skills *skills, const char *tenant,
                                                    const json_t *ids,
                                                    struct operation_seen **ret, size_t *ret_n,
                                                    struct berth_error *err);
void operation_seen_free_all(struct operation_seen *list, size_t n);

/* operation_doc.c: the documents' text. */
char *operation_format(const struct operation *operation); /* owned; NULL: no memory */
BERTH_MUST_CHECK enum berth_code
operation_parse(const char *text, size_t size, struct operation *ret, struct berth_error *err);
/* *ret: an array of strings, owned; text "": of none. */
BERTH_MUST_CHECK enum berth_code operation_parse_ids(const char *text, json_t **ret,
                                                     struct berth_error *err);
BERTH_MUST_CHECK enum berth_code
operation_parse_lock(const char *text, struct operation_place *ret, struct berth_error *err);
char *operation_format_lock(const char *op, const char *owner, int64_t until_ms); /* as above */
/* Without id; an array of its own. NULL: no memory. */
json_t *operation_ids_without(const json_t *ids, const char *id);

/* What is written, over what was seen. Each notes its own new revs. */
void operation_expect_place(struct berth_cas *cas, const struct operation *operation,
                            const struct operation_place *place);
/* Errors: OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code operation_write_queue(struct berth_cas *cas,
                                                       const struct operation *operation,
                                                       const json_t *queue,
                                                       struct berth_error *err);
BERTH_MUST_CHECK enum berth_code operation_write(struct berth_cas *cas, const char *rev,
                                                 const struct operation *operation,
                                                 struct berth_error *err);
/* *ret_applied false: not written, or not known any more: look again and decide anew. */
BERTH_MUST_CHECK enum berth_code operation_run(struct skills *skills, struct berth_cas *cas,
                                               bool durable, bool *ret_applied,
                                               struct berth_error *err);
/* Before the next try: a moment, longer with each. */
void operation_yield(int n_tries);
BERTH_MUST_CHECK enum berth_code operation_contended(struct berth_error *err);

/* redis.h - Redis 7 by hiredis, behind own types. Thread-safe: connections are pooled, a
 * connection that saw any error is thrown away, commands go out by argv only. Reconnects back
 * off 50 ms .. 2 s while the server is away, and calls then fail at once.
 *
 * With Sentinels the master is asked for before each connection, and once a second: who is none
 * any more is left within two seconds, also when it still answers. Only masters are spoken to.
 *
 * An ACL user needs, on the keys berth:*, @read @write @scripting and
 * +ping +info +select +wait. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/errors/errors.h"

struct berth_redis;

enum { BERTH_REDIS_RUN_ID_SIZE = 41 };

struct berth_redis_options {
    /* "redis://host[:port][/db]", "unix:/path[?db=n]", or Sentinels, up to eight:
     * "sentinel:<name of the master>@host[:port][,host[:port]...][/db]" */
    const char *url;
    const char *username;          /* ACL user; NULL or "": the default user */
    const char *password;          /* NULL or "": none */
    const char *sentinel_username; /* the same, for the Sentinels */
    const char *sentinel_password;
    /* Files in PEM; ca NULL or "": in the clear. By TCP only, to Redis and Sentinels. The
     * server's certificate must be one of ca's for the host in the url (or for what the
     * Sentinel calls the master). cert and key: our own, where it is wanted. */
    const char *tls_ca, *tls_cert, *tls_key;
    bool any_role;              /* a replica will do, too: for who only looks */
    unsigned max_connections;   /* 0: 16 */
    int64_t connect_timeout_ms; /* 0: 300 */
    int64_t command_timeout_ms; /* 0: 800; so that an absent store shows within a second */
    unsigned wait_replicas;     /* durable writes wait for this many replicas; 0: none */
};

/* Does not connect. Errors: FIELD_INVALID for a bad url. */
BERTH_MUST_CHECK enum berth_code berth_redis_new(const struct berth_redis_options *options,
                                                 struct berth_redis **ret,
                                                 struct berth_error *err);
struct berth_redis *berth_redis_free(struct berth_redis *redis);
BERTH_DEFINE_AUTO(struct berth_redis *, berth_redis_free)

/* How many servers it has been so far: 0 none yet, 1 the first, one more with each failover and
 * restart. Each new connection asks who the server is, so nothing is read from or written to
 * another one than before without showing here first. */
uint64_t berth_redis_servers(struct berth_redis *redis);
/* The run_id of the one it is now; "": none yet. True: it has been a replica, so that it was
 * made what it is by a failover. */
bool berth_redis_server(struct berth_redis *redis, char ret_run_id[BERTH_REDIS_RUN_ID_SIZE]);

/* PING. Errors: STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code berth_redis_ping(struct berth_redis *redis,
                                                  struct berth_error *err);

/* ------------------------------------------------------------ plain commands */

enum berth_reply_type {
    BERTH_REPLY_NIL,
    BERTH_REPLY_INTEGER,
    BERTH_REPLY_STRING, /* bulk or status; NUL-terminated beyond size, may hold NULs */
    BERTH_REPLY_ARRAY,
};

struct berth_reply {
    enum berth_reply_type type;
    int64_t integer;
    char *string;
    size_t size;
    struct berth_reply **items; /* none is NULL */
    size_t n_items;
};
struct berth_reply *berth_reply_free(struct berth_reply *reply);
BERTH_DEFINE_AUTO(struct berth_reply *, berth_reply_free)

/* One command. sizes NULL: all are C strings. Error replies become errors here, never a reply;
 * meaning.c lists them. Their texts are ours: Redis' own are only logged.
 * Errors: STORE_UNAVAILABLE when nothing was done: not sent, or refused by a store that is
 * starting, full, busy, a replica, without replicas or disk, or not open to us; OUTCOME_UNKNOWN
 * when the answer did not come (for a read the caller may treat that as STORE_UNAVAILABLE);
 * INTERNAL_BUG for every other error. */
BERTH_MUST_CHECK enum berth_code berth_redis_call(struct berth_redis *redis, size_t argc,
                                                  const char *const *argv, const size_t *sizes,
                                                  struct berth_reply **ret,
                                                  struct berth_error *err);

/* ----------------------------------------------- documents: read, compare-and-set */

/* A hash as read. Field values are NUL-terminated beyond their size. */
struct berth_doc {
    char *key;
    bool exists;
    size_t n_fields;
    struct berth_doc_field {
        char *name;
        char *value;
        size_t size;
    } * fields;
};
void berth_doc_deinit(struct berth_doc *doc);
/* "" when the field (or the document) is absent; borrowed from doc. */
const char *berth_doc_get(const struct berth_doc *doc, const char *field);
bool berth_doc_has(const struct berth_doc *doc, const char *field);

/* One hash to read. Either key, or a key that is made on the server: prefix + the value of
 * `field` in the hash read by an earlier item `from` (or + fallback when that field is absent;
 * fallback
 * "" and no field: the document counts as absent). */
struct berth_redis_get {
    const char *key;
    const char *prefix;
    unsigned from;
    const char *field;
    const char *fallback;
    const char *const *fields; /* only these fields; NULL: all */
    size_t n_fields;
};

/* TIME and all hashes in one round trip (one read-only script, EVALSHA_RO; all keys must have
 * one hash tag, which is checked before sending). ret_docs: n_gets documents, each to be
 * deinit'ed. Errors: STORE_UNAVAILABLE; INTERNAL_BUG. */
BERTH_MUST_CHECK enum berth_code
berth_redis_read(struct berth_redis *redis, const struct berth_redis_get *gets, size_t n_gets,
                 int64_t *ret_now_ms, struct berth_doc *ret_docs, struct berth_error *err);

/* A compare-and-set being built: what it expects, what it writes. Keeps copies. Building cannot
 * fail half: an allocation failure is remembered and reported by berth_cas_run(). */
struct berth_cas;
struct berth_cas *berth_cas_new(void);
struct berth_cas *berth_cas_free(struct berth_cas *cas);
BERTH_DEFINE_AUTO(struct berth_cas *, berth_cas_free)
/* Field "rev" of key must be rev; "" = the key (or its rev) must be absent. */
void berth_cas_expect(struct berth_cas *cas, const char *key, const char *rev);
/* One command on key; words after the key follow, C strings, NULL-terminated. Allowed: HSET
 * HDEL DEL PEXPIRE PERSIST ZADD ZREM SADD SREM XADD (with MAXLEN) SET. A word "$NOW" stands for
 * Redis' time in ms, taken inside the script. */
BERTH_SENTINEL void berth_cas_write(struct berth_cas *cas, const char *command, const char *key,
                                    ...);
/* Only on this server (as berth_redis_servers() counts); on another one nothing is written, and
 * the answer is STORE_UNAVAILABLE. 0: on any. */
void berth_cas_only_on(struct berth_cas *cas, uint64_t server);
/* Also while Redis is at its memory limit: for what renews, releases, removes, or records what
 * has been done already. A full store must not lose locks. */
void berth_cas_when_full(struct berth_cas *cas);
/* HSET of one binary value. */
void berth_cas_hset(struct berth_cas *cas, const char *key, const char *field,
                    const void *value, size_t size);

/* Run it (one round trip, one slot; the slot is checked). *ret_applied false: something was not
 * as expected; then ret_docs (may be NULL) holds the present hashes of the expected keys, in
 * order of berth_cas_expect(). durable: with wait_replicas set, WAIT for them; too few =
 * OUTCOME_UNKNOWN.
 * Errors: STORE_UNAVAILABLE (nothing was written), OUTCOME_UNKNOWN (settle it: write something
 * that makes it impossible, then read), INTERNAL_BUG. */
BERTH_MUST_CHECK enum berth_code berth_cas_run(struct berth_redis *redis, struct berth_cas *cas,
                                               bool durable, bool *ret_applied,
                                               int64_t *ret_now_ms, struct berth_doc *ret_docs,
                                               struct berth_error *err);

enum berth_outcome {
    BERTH_OUTCOME_APPLIED,
    BERTH_OUTCOME_REFUSED,   /* it has not been applied, and cannot be any more */
    BERTH_OUTCOME_OVERTAKEN, /* nor can it be, but somebody else has written since: it may have
                                been, and may have been decided on by others */
};

/**
 * berth_cas_settle() - what became of a write whose outcome is not known
 * @cas: as it was run, with at least one expectation
 * @durable: as it was run
 *
 * First a write that makes the other one impossible if it has not taken effect yet: a new rev
 * of a document it expects (a document that was to be new is left with its rev alone for an
 * hour: readers take that for absent, and who makes it anew says PERSIST). Only then a look.
 *
 * Errors: OUTCOME_UNKNOWN: the store does not answer, or has it and no replica does.
 */
BERTH_MUST_CHECK enum berth_code berth_cas_settle(struct berth_redis *redis,
                                                  struct berth_cas *cas, bool durable,
                                                  enum berth_outcome *ret,
                                                  struct berth_error *err);

/* berth_cas_run(), settled where need be. *ret_applied false: decide anew.
 * Errors: STORE_UNAVAILABLE (nothing was written); OUTCOME_UNKNOWN (it could not be settled, or
 * was overtaken); INTERNAL_BUG. */
BERTH_MUST_CHECK enum berth_code berth_cas_run_settled(struct berth_redis *redis,
                                                       struct berth_cas *cas, bool durable,
                                                       bool *ret_applied, int64_t *ret_now_ms,
                                                       struct berth_error *err);

/* A fresh rev: 16 hex digits of 64 random bits. */
const char *berth_rev_new(char buf[17]);

/* The CRC16 slot (0..16383) of a key, as Redis Cluster computes it. */
unsigned berth_redis_slot(const char *key);

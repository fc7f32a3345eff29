/* internal.h - what the files of common/redis share. */
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/redis/redis.h"

/* ---------------------------------------------------------------------- words */

/* A growing list of words, owned copies. A failed allocation is remembered in `failed`. */
struct redis_words {
    char **argv;
    size_t *sizes;
    size_t n, room;
    bool failed;
};
void redis_words_add(struct redis_words *words, const void *data, size_t size);
void redis_words_add_number(struct redis_words *words, size_t number);
/* In the place of the one that was added as the index-th. */
void redis_words_set_number(struct redis_words *words, size_t index, size_t number);
/* One word of a prefix byte and data. */
void redis_words_add_marked(struct redis_words *words, char mark, const void *data,
                            size_t size);
void redis_words_deinit(struct redis_words *words);

/* ------------------------------------------------------------------- replies */

/* A Redis error inside a reply: text in string. Never leaves common/redis. */
enum { REDIS_REPLY_IS_ERROR = 100 };

struct redisReader *redis_reader_new(void); /* builds struct berth_reply */

/* The first error in a reply, its own or an item's. NULL: none. Borrowed. */
const char *redis_reply_error(const struct berth_reply *reply);
/* For the operator, now and then; callers get a text of ours: where Redis is is not theirs. */
void redis_log_error(const char *text);
/* Error text from Redis into a reason and a text of ours; Redis' own goes to the log. */
enum berth_code redis_map_error(const char *text, struct berth_error *err);

/* What to do with the connection that answered with this error. */
enum redis_advice {
    REDIS_STAY,        /* it is good, the command was not */
    REDIS_DOUBT,       /* leave it where the Sentinels may know a better server */
    REDIS_LEAVE,       /* of no use: another server, or other credentials, are needed */
    REDIS_ASK_ANOTHER, /* leave it, and ask the next server the same, once */
};
enum redis_advice redis_advice(const char *text);

/* ------------------------------------------------------------------ addresses */

enum { REDIS_HOST_MAX = 256 };

struct redis_address {
    bool is_unix;
    struct sockaddr_un un;
    char host[REDIS_HOST_MAX];
    char port[6];
    unsigned db;
    char shown[REDIS_HOST_MAX + 16]; /* for error texts */
};

enum { REDIS_SENTINELS_MAX = 8, REDIS_NAME_MAX = 64 };

/* What the url says: one server, or where to ask for it. */
struct redis_source {
    char master[REDIS_NAME_MAX]; /* as the Sentinels know it; "": no Sentinels */
    struct redis_address at[REDIS_SENTINELS_MAX]; /* the server, or the Sentinels */
    size_t n;
};
enum berth_code redis_parse_url(const char *url, struct redis_source *ret,
                                struct berth_error *err);
/* host and port as a Sentinel gives them. False: they make no address. */
bool redis_set_address(struct redis_address *ret, const char *host, const char *port,
                       unsigned db);

enum { REDIS_ENDPOINTS_MAX = 8 };

struct redis_endpoints {
    size_t n;
    struct {
        struct sockaddr_storage address;
        socklen_t size;
    } at[REDIS_ENDPOINTS_MAX];
};

/* The addresses of a host, by the resolver where it is a name. 0, or EAI_*; EAI_AGAIN also when
 * until_tick has passed. */
int redis_look_up(const struct redis_address *address, int64_t until_tick,
                  struct redis_endpoints *ret);

/* ----------------------------------------------------------------- connection */

enum redis_script {
    REDIS_SCRIPT_READ,
    REDIS_SCRIPT_CAS,
    REDIS_SCRIPT_CAS_FULL, /* at the memory limit, too */
    REDIS_N_SCRIPTS
};
extern const char redis_read_lua[], redis_cas_lua[], redis_cas_full_lua[]; /* scripts.S.in */

struct redis_command {
    size_t argc;
    const char *const *argv;
    const size_t *sizes; /* NULL: C strings */
};

struct redis_login {
    const struct redis_address *address;
    const char *username, *password;   /* or NULL */
    const struct redis_tls_files *tls; /* NULL: in the clear */
};

/* ------------------------------------------------------------------------ TLS */

struct redis_tls_files {
    const char *ca;
    const char *cert, *key; /* or NULL */
};
struct ssl_st;

/* Shakes hands on a connected socket, which stays the caller's. host: as it was named; its
 * certificate must say so. Errors: STORE_UNAVAILABLE. */
enum berth_code redis_tls_open(const struct redis_tls_files *files, const char *host, int fd,
                               int64_t until_tick, struct ssl_st **ret,
                               struct berth_error *err);
void redis_tls_close(struct ssl_st *ssl);
/* As recv() and send(); with EAGAIN *ret_events is what poll() has to wait for. */
ssize_t redis_tls_recv(struct ssl_st *ssl, void *buf, size_t size, short *ret_events);
ssize_t redis_tls_send(struct ssl_st *ssl, const void *buf, size_t size, short *ret_events);
/* Waits for events on a socket. False: the deadline has passed. */
bool redis_wait_for(int fd, short events, int64_t until_tick);

/* Who a server is, and what its data descend from. */
struct redis_identity {
    char run_id[BERTH_REDIS_RUN_ID_SIZE];
    char history[BERTH_REDIS_RUN_ID_SIZE]; /* master_replid */
    bool is_master;
    bool was_replica; /* its history began as somebody else's (master_replid2) */
};
/* Identity from the answer of INFO. False: it is not there. */
bool redis_identity_parse(const char *info, struct redis_identity *ret);
/* What was acknowledged by one may be missing from the other. */
bool redis_identity_differs(const struct redis_identity *before,
                            const struct redis_identity *now);

/* One connection; used by one thread at a time. */
struct redis_conn {
    int fd;
    struct ssl_st *ssl;  /* NULL: in the clear */
    bool broken;         /* throw it away */
    bool doubted;        /* throw it away where there are Sentinels */
    unsigned generation; /* the pool's, when it was opened */
    uint64_t server;     /* as berth_redis_servers() counts */
    struct redis_identity who;
    struct redisReader *reader;
    char sha[REDIS_N_SCRIPTS][41];
    struct redis_conn *next; /* in the pool's list */
};

/* Connects, logs in, chooses the database, loads the scripts; all before until_tick.
 * Errors: STORE_UNAVAILABLE. */
enum berth_code redis_conn_open(const struct redis_login *login, int64_t until_tick,
                                struct redis_conn **ret, struct berth_error *err);
/* Connects and logs in to what is no server of ours. Errors: STORE_UNAVAILABLE. */
enum berth_code redis_conn_dial(const struct redis_login *login, int64_t until_tick,
                                struct redis_conn **ret, struct berth_error *err);
struct redis_conn *redis_conn_close(struct redis_conn *conn);
/* The other side has hung up, or sent what nobody asked for. */
bool redis_conn_is_stale(const struct redis_conn *conn);

/* Sends n commands in one write and waits for n replies (ret[n], each to be freed). On failure
 * the connection is broken, ret holds nothing, and *ret_sent says whether Redis may have run
 * the first. Errors: STORE_UNAVAILABLE (not sent), OUTCOME_UNKNOWN (sent). */
enum berth_code redis_conn_exchange(struct redis_conn *conn,
                                    const struct redis_command *commands, size_t n,
                                    int64_t until_tick, struct berth_reply **ret,
                                    bool *ret_sent, struct berth_error *err);
enum berth_code redis_load_script(struct redis_conn *conn, enum redis_script script,
                                  int64_t until_tick, struct berth_error *err);

/* ------------------------------------------------------------------- Sentinels */

struct redis_sentinels {
    const struct redis_source *source;
    const char *username, *password;   /* of the Sentinels; or NULL */
    const struct redis_tls_files *tls; /* or NULL */
    size_t first;                      /* who is asked first: who has answered last */
};
/* The address of the master, of the first Sentinel that knows it; all are asked before
 * until_tick. Errors: STORE_UNAVAILABLE. */
enum berth_code redis_ask_sentinels(struct redis_sentinels *sentinels, int64_t until_tick,
                                    struct redis_address *ret, struct berth_error *err);

/* ----------------------------------------------------------------------- pool */

struct redis_order {
    enum redis_script script;
    const struct redis_words *args; /* number of keys, keys, arguments */
    unsigned wait_replicas;         /* also WAIT for them */
    uint64_t only_on;               /* 0: on any server */
    int64_t until_tick;             /* 0: as long as a command may take */
};
/* Runs one script. *ret_replicas: how many have it. Errors: as berth_redis_call. */
enum berth_code redis_eval(struct berth_redis *redis, const struct redis_order *order,
                           int64_t *ret_replicas, struct berth_reply **ret,
                           struct berth_error *err);

/* A connection for this thread alone; to be given back. Errors: STORE_UNAVAILABLE. */
enum berth_code redis_take(struct berth_redis *redis, int64_t until_tick,
                           struct redis_conn **ret, struct berth_error *err);
void redis_put(struct berth_redis *redis, struct redis_conn *conn);
unsigned redis_wait_replicas(const struct berth_redis *redis);
int64_t redis_command_ms(const struct berth_redis *redis);

/* ------------------------------------------------------------------ documents */

/* A key that a compare-and-set compares or writes. */
struct redis_cas_key {
    char *name;
    bool expected;
    bool changed;     /* HSET or HDEL */
    bool deleted;     /* DEL */
    bool has_rev;     /* a new rev is written, or the key is deleted */
    char *old_rev;    /* where expected */
    char new_rev[17]; /* "": none is written, or not one of ours */
};
size_t redis_cas_keys(const struct berth_cas *cas, const struct redis_cas_key **ret);
int64_t redis_cas_start_tick(const struct berth_cas *cas);
/* The rev that settling leaves: the same each time, so that one attempt knows another's. */
const char *redis_cas_touch_rev(struct berth_cas *cas);
/* berth_cas_run() with an end of its own. */
enum berth_code redis_cas_run(struct berth_redis *redis, struct berth_cas *cas, bool durable,
                              int64_t until_tick, bool *ret_applied, int64_t *ret_now_ms,
                              struct berth_doc *ret_docs, struct berth_error *err);

/* Moves the strings of a flat array name, value, ... out of reply into doc->fields.
 * False: not such an array, or no memory. */
bool redis_doc_fill(struct berth_doc *doc, struct berth_reply *flat);

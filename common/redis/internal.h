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
/* Error text from Redis into a reason, as redis.h lists them. */
enum berth_code redis_map_error(const char *text, struct berth_error *err);
/* After this error the connection is of no use: another server, or another password, is needed.
 */
bool redis_error_is_final(const char *text);

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
enum berth_code redis_parse_url(const char *url, struct redis_address *ret,
                                struct berth_error *err);

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

enum redis_script { REDIS_SCRIPT_READ, REDIS_SCRIPT_CAS, REDIS_N_SCRIPTS };
extern const char redis_read_lua[], redis_cas_lua[]; /* scripts.S.in */

struct redis_command {
    size_t argc;
    const char *const *argv;
    const size_t *sizes; /* NULL: C strings */
};

struct redis_login {
    const struct redis_address *address;
    const char *username, *password; /* or NULL */
};

/* One connection; used by one thread at a time. */
struct redis_conn {
    int fd;
    bool broken; /* throw it away */
    struct redisReader *reader;
    char sha[REDIS_N_SCRIPTS][41];
    struct redis_conn *next; /* in the pool's list */
};

/* Connects, logs in, chooses the database, loads the scripts; all before until_tick.
 * Errors: STORE_UNAVAILABLE. */
enum berth_code redis_conn_open(const struct redis_login *login, int64_t until_tick,
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

/* ----------------------------------------------------------------------- pool */

/* Runs one script. args: number of keys, keys, arguments; borrowed. wait_replicas: also WAIT
 * for them; *ret_replicas then says how many have it. Errors: as berth_redis_call. */
enum berth_code redis_eval(struct berth_redis *redis, enum redis_script script,
                           const struct redis_words *args, unsigned wait_replicas,
                           int64_t *ret_replicas, struct berth_reply **ret,
                           struct berth_error *err);
unsigned redis_wait_replicas(const struct berth_redis *redis);

/* ------------------------------------------------------------------ documents */

/* Moves the strings of a flat array name, value, ... out of reply into doc->fields.
 * False: not such an array, or no memory. */
bool redis_doc_fill(struct berth_doc *doc, struct berth_reply *flat);

/* redis_server.h - a redis-server of a test's own: a temporary folder, a unix socket,
 * optionally a TCP port and an ACL user. Aborts the test where it cannot be started. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "common/redis/redis.h"

struct redis_server_options {
    bool tcp;                 /* also on a free port of 127.0.0.1 */
    const char *username;     /* only this ACL user may come in, with this password */
    const char *password;     /* alone: the default user's password */
    bool keep;                /* appendonly: data survive redis_server_kill() and _start() */
    int64_t clock_ms;         /* its wall clock is ahead by that; wants BERTH_BUILD_DIR */
    const char *const *extra; /* more arguments, NULL-terminated; or NULL */
};

struct redis_server {
    struct redis_server_options options;
    pid_t pid;
    char folder[64];
    char url[96];     /* unix:<folder>/redis.sock */
    char tcp_url[64]; /* redis://127.0.0.1:<port>; "" without tcp */
    int port;
};

/* A port of 127.0.0.1 that is free now. */
int redis_free_port(void);

/* Starts one and waits until it answers. options NULL: unix socket only, no password. */
void redis_server_start(struct redis_server *server,
                        const struct redis_server_options *options);
/* kill -9; its folder and port stay its own. */
void redis_server_kill(struct redis_server *server);
/* After redis_server_kill(): only started, it may not answer yet. */
void redis_server_launch(struct redis_server *server);
/* After redis_server_kill(): the same again. */
void redis_server_again(struct redis_server *server);
void redis_server_pause(struct redis_server *server);  /* SIGSTOP */
void redis_server_resume(struct redis_server *server); /* SIGCONT */
/* Ends it and removes its folder. */
void redis_server_stop(struct redis_server *server);

/* A Sentinel of a test's own that knows the master by the name "m" and fails over by itself
 * once that has been away for 300 ms. */
struct redis_sentinel {
    pid_t pid;
    char folder[64];
    int port; /* of 127.0.0.1 */
};
/* Waits until it has found n_replicas. password: wanted of its clients; or NULL. */
void redis_sentinel_start(struct redis_sentinel *sentinel, const struct redis_server *master,
                          const char *password, int n_replicas);
/* The same port says from now on that another one is the master. */
void redis_sentinel_move(struct redis_sentinel *sentinel, const struct redis_server *master,
                         const char *password);
/* Make the replica master, though nothing is wrong. */
void redis_sentinel_failover(const struct redis_sentinel *sentinel, const char *password);
void redis_sentinel_stop(struct redis_sentinel *sentinel);

/* A client of it, with its url and credentials where base (may be NULL) has none. To be freed.
 */
struct berth_redis *redis_server_client(const struct redis_server *server,
                                        const struct berth_redis_options *base);

/* One command, given as words up to a NULL; aborts on an error. The reply is to be freed. */
__attribute__((sentinel)) struct berth_reply *redis_run(struct berth_redis *client, ...);

/* peer.h - a scripted stand-in for Redis, for what a real one cannot be made to say. It answers
 * logins as Redis does and every other command with what the test wants. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

struct peer {
    const char *answer; /* bytes sent for every command but those of the login */
    size_t answer_size;
    int drip_ms;       /* one byte each so many milliseconds; 0: at once */
    int close_after;   /* close the connection behind the answer */
    int refuse_logins; /* close each connection at once */

    char folder[64], url[128];
    int listen_fd, stop_fd[2];
    pthread_t thread;
    atomic_int n_connections, n_commands; /* commands: without those of the login */
};

/* Fields above the line are the caller's, set before; answer_size 0: strlen(answer). */
void peer_start(struct peer *peer);
void peer_stop(struct peer *peer);

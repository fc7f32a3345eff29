/* port.h - TCP ports for programs that a test starts. */
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A port that is free and stays so for as long as this process lives: below those that the
 * kernel gives to connections, and marked as taken for other tests by a unix socket of its
 * name. */
static inline int test_port(void)
{
    enum { FIRST = 20000, COUNT = 12000 };
    static unsigned next;

    for (int i = 0; i < COUNT; i++) {
        int port = FIRST + (int)(((unsigned)getpid() * 31 + next++) % COUNT);
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)port),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        struct sockaddr_un mark = {.sun_family = AF_UNIX};
        int mark_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool is_free;

        snprintf(mark.sun_path + 1, sizeof mark.sun_path - 1, "berth-test-port-%d", port);
        is_free = mark_fd >= 0 && fd >= 0 &&
                  bind(mark_fd, (struct sockaddr *)&mark, sizeof mark) == 0 &&
                  bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
        close(fd);
        if (is_free)
            return port; /* mark_fd stays open */
        close(mark_fd);
    }
    fputs("no free port\n", stderr);
    abort();
}

/* dns_impl.h - what the two halves of the forwarder share. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "services/adapter-local/spawner/dns.h"

struct dns_upstream {
    struct sockaddr_storage address;
    socklen_t size;
};

struct dns_query;
struct dns_stream;

struct dns {
    struct berth_loop *loop;
    int udp_fd, tcp_fd, port;
    struct berth_watch *udp_watch, *tcp_watch;
    struct dns_query *queries[DNS_QUERIES_MAX];
    struct dns_stream *streams[DNS_STREAMS_MAX];

    bool fixed;              /* upstreams were given; else they follow resolv_conf */
    const char *resolv_conf; /* borrowed for ever */
    struct timespec read_mtime;
    ino_t read_ino;
    struct dns_upstream upstreams[DNS_UPSTREAMS_MAX];
    unsigned n_upstreams;
};

/* Bring the upstreams up to date; how many there are. */
unsigned dns_refresh(struct dns *dns);

/* dns_tcp.c: connections wait at tcp_fd; end and free one. */
void dns_tcp_accept(void *arg, uint32_t events);
void dns_stream_close(struct dns_stream *stream);

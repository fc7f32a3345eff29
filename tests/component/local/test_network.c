#include "tests/component/local/rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/net.h"
#include "services/adapter-local/spawner/nft.h"
#include "services/adapter-local/spawner/slot.h"

/* This program is in a network namespace of its own, so its "host" is not the machine, and no
 * packet leaves it. Beside the host there is one other machine, outside, that has addresses of
 * every kind: a public one and some that sandboxes must never reach. */

#define HOST "198.51.100.1"
#define PUBLIC "198.51.100.2"

enum { TCP_PORT = 7777, HOST_PORT = 7778, DNS_PORT_HOST = 5399, PATIENCE_MS = 400 };

static const char *const denied[] = {
    "10.99.1.1",       "172.16.5.5",      "172.31.255.1",  "192.168.7.7", "100.64.3.3",
    "100.100.100.200", "169.254.169.254", "169.254.170.2", "192.0.0.192", "168.63.129.16",
};

static struct rig rig;
/* What outside has received. */
static struct seen {
    atomic_uint n_datagrams, n_connections;
    _Atomic uint32_t last_source; /* host byte order */
} * seen;

/* ------------------------------------------------------------------ small parts */

static struct sockaddr_in at(const char *address, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    inet_pton(AF_INET, address, &to.sin_addr);
    return to;
}

static int listen_at(int type, int port)
{
    struct sockaddr_in any = at("0.0.0.0", port);
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), on = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof any) < 0 ||
        (type == SOCK_STREAM && listen(fd, 16) < 0))
        return -1;
    return fd;
}

/* 0: connected; else the errno, ETIMEDOUT when nothing came back. */
static int try_connect(const char *address, int port)
{
    struct sockaddr_in to = at(address, port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    socklen_t size = sizeof(int);
    int failure = 0;

    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS) {
        failure = errno;
        close(fd);
        return failure;
    }
    if (poll(&polled, 1, PATIENCE_MS) <= 0)
        failure = ETIMEDOUT;
    else
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size);
    close(fd);
    return failure;
}

struct target {
    const char *address;
    int port;
};

static int connect_inside(void *arg)
{
    const struct target *target = arg;

    return try_connect(target->address, target->port);
}

static int reach(const char *id, const char *address, int port)
{
    return rig_inside(&rig, id, RIG_USER, connect_inside, &(struct target){address, port});
}

/* All packet rules of the store, gone: what would be without them. */
static void remove_protection(void)
{
    char table[32];

    rig_stop(&rig); /* it would put them back at once */
    snprintf(table, sizeof table, "berth_%s", rig.store.tag);
    ck_assert_int_eq(nft_remove(table, NULL), BERTH_OK);
}

static void pair_of(const char *id, struct net_pair *ret)
{
    struct record record;
    struct net_cidr cidr;

    rig_record(&rig, id, &record);
    ck_assert_int_eq(net_parse_cidr(record.cidr, &cidr, NULL), BERTH_OK);
    net_pair_of(&cidr, (unsigned)record.slot, ret);
    record_deinit(&record);
}

/* ------------------------------------------------------------------- the world */

static void set_up(const char *link)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {.ifr_flags = IFF_UP};

    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", link);
    (void)ioctl(fd, SIOCSIFFLAGS, &request);
    close(fd);
}

/* In outside: one more address. */
static void add_alias(int number, const char *address)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {0};
    struct sockaddr_in in = at(address, 0);

    snprintf(request.ifr_name, sizeof request.ifr_name, "eth0:%d", number);
    memcpy(&request.ifr_addr, &in, sizeof in);
    if (ioctl(fd, SIOCSIFADDR, &request) < 0)
        perror("SIOCSIFADDR");
    in = at("255.255.255.255", 0);
    memcpy(&request.ifr_netmask, &in, sizeof in);
    (void)ioctl(fd, SIOCSIFNETMASK, &request);
    close(fd);
}

/* On the host: the way to it. */
static void add_route(const char *address)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY | RTF_HOST};
    struct sockaddr_in in = at(address, 0);

    memcpy(&route.rt_dst, &in, sizeof in);
    in = at(PUBLIC, 0);
    memcpy(&route.rt_gateway, &in, sizeof in);
    if (ioctl(fd, SIOCADDRT, &route) < 0)
        perror("SIOCADDRT");
    close(fd);
}

static _Noreturn void be_outside(int ns_fd, int ready_fd)
{
    struct pollfd polls[2];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (setns(ns_fd, CLONE_NEWNET) < 0)
        _exit(1);
    for (size_t i = 0; i < BERTH_COUNT(denied); i++)
        add_alias((int)i + 1, denied[i]);
    polls[0] = (struct pollfd){.fd = listen_at(SOCK_STREAM, TCP_PORT), .events = POLLIN};
    polls[1] = (struct pollfd){.fd = listen_at(SOCK_DGRAM, TCP_PORT), .events = POLLIN};
    (void)!write(ready_fd, "r", 1);
    while (poll(polls, 2, -1) >= 0) {
        struct sockaddr_in from = {0};
        socklen_t size = sizeof from;
        char byte;

        if (polls[0].revents) {
            int fd = accept(polls[0].fd, (struct sockaddr *)&from, &size);

            atomic_store(&seen->last_source, ntohl(from.sin_addr.s_addr));
            atomic_fetch_add(&seen->n_connections, 1);
            close(fd);
        }
        if (polls[1].revents &&
            recvfrom(polls[1].fd, &byte, 1, 0, (struct sockaddr *)&from, &size) >= 0)
            atomic_fetch_add(&seen->n_datagrams, 1);
    }
    _exit(0);
}

/* A resolver of the host: answers every question with one address, by UDP and TCP. */
static size_t make_answer(const uint8_t *question, size_t size, uint8_t *answer)
{
    static const uint8_t record[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 51, 100, 2};

    memcpy(answer, question, size);
    answer[2] |= 0x80;
    answer[7] = 1;
    memcpy(answer + size, record, sizeof record);
    return size + sizeof record;
}

static _Noreturn void be_host_services(int ready_fd)
{
    struct pollfd polls[3];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    polls[0] = (struct pollfd){.fd = listen_at(SOCK_STREAM, HOST_PORT), .events = POLLIN};
    polls[1] = (struct pollfd){.fd = listen_at(SOCK_DGRAM, DNS_PORT_HOST), .events = POLLIN};
    polls[2] = (struct pollfd){.fd = listen_at(SOCK_STREAM, DNS_PORT_HOST), .events = POLLIN};
    (void)!write(ready_fd, "r", 1);
    while (poll(polls, 3, -1) >= 0) {
        struct sockaddr_in from = {0};
        socklen_t size = sizeof from;
        uint8_t in[512], out[1024];

        if (polls[0].revents)
            close(accept(polls[0].fd, NULL, NULL));
        if (polls[1].revents) {
            ssize_t n =
                recvfrom(polls[1].fd, in, sizeof in, 0, (struct sockaddr *)&from, &size);

            if (n > 0)
                (void)!sendto(polls[1].fd, out, make_answer(in, (size_t)n, out), 0,
                              (struct sockaddr *)&from, size);
        }
        if (polls[2].revents) {
            int fd = accept(polls[2].fd, NULL, NULL);
            ssize_t n = recv(fd, in, sizeof in, 0);
            size_t len = n > 2 ? make_answer(in + 2, (size_t)n - 2, out + 2) : 0;

            out[0] = (uint8_t)(len >> 8);
            out[1] = (uint8_t)len;
            if (len)
                (void)!write(fd, out, len + 2);
            close(fd);
        }
    }
    _exit(0);
}

static void skip(const char *why)
{
    printf("SKIP: %s: %s\n", why, strerror(errno));
    fflush(stdout);
    _exit(77);
}

static void make_world(void)
{
    struct net_pair pair = {.gateway = ntohl(inet_addr(HOST)),
                            .address = ntohl(inet_addr(PUBLIC))};
    int outside_fd, fds[2];
    char byte;

    if (unshare(CLONE_NEWNET) < 0)
        skip("unshare(CLONE_NEWNET)");
    set_up("lo");
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED || pipe2(fds, O_CLOEXEC) < 0 ||
        net_make_ns(&outside_fd, NULL) != BERTH_OK ||
        net_link_up("outside", outside_fd, &pair, NULL) != BERTH_OK)
        skip("make another machine");
    if (fork() == 0)
        be_outside(outside_fd, fds[1]);
    if (fork() == 0)
        be_host_services(fds[1]);
    for (size_t i = 0; i < BERTH_COUNT(denied); i++)
        add_route(denied[i]);
    if (read(fds[0], &byte, 1) != 1 || read(fds[0], &byte, 1) != 1)
        skip("start the other machine");
    close(outside_fd);
}

static void setup(void)
{
    rig = (struct rig){.resolvers = "127.0.0.1:5399"};
    rig_open(&rig);
}

static void teardown(void)
{
    rig_close(&rig);
}

static void make(const char *key, bool egress, bool inbound, char id[ADAPTER_ID_SIZE])
{
    rig_make(&rig,
             &(struct rig_wish){.key = key, .fence = 1, .egress = egress, .inbound = inbound},
             id);
}

/* ---------------------------------------------------------------------- egress */

static bool more_connections(void *arg)
{
    return atomic_load(&seen->n_connections) > *(unsigned *)arg;
}

/* With egress open the world is there, and sees the host's address, not the sandbox's. */
START_TEST(egress__open__public_address_reached_by_nat)
{
    char id[ADAPTER_ID_SIZE];
    unsigned before = atomic_load(&seen->n_connections);

    make("key", true, false, id);
    ck_assert_int_eq(reach(id, PUBLIC, TCP_PORT), 0);
    ck_assert(rig_until(more_connections, &before, 5000));
    ck_assert_uint_eq(atomic_load(&seen->last_source), ntohl(inet_addr(HOST)));
}
END_TEST

/* Private, shared, link-local and metadata addresses are refused; the host reaches them, and so
 * would the sandbox without the rules. */
START_TEST(egress__denied_address__refused_and_reached_without_rules)
{
    char id[ADAPTER_ID_SIZE];

    make("key", true, false, id);
    for (size_t i = 0; i < BERTH_COUNT(denied); i++) {
        int result = reach(id, denied[i], TCP_PORT);

        /* The refusals themselves are limited in number: some are silent. */
        ck_assert_msg(result == EHOSTUNREACH || result == ETIMEDOUT, "%s: %s", denied[i],
                      strerror(result));
        ck_assert_int_eq(try_connect(denied[i], TCP_PORT), 0);
    }
    remove_protection();
    for (size_t i = 0; i < BERTH_COUNT(denied); i++)
        ck_assert_msg(reach(id, denied[i], TCP_PORT) == 0, "%s", denied[i]);
}
END_TEST

/* Services of the host are out of reach by any of its addresses. */
START_TEST(egress__host_service__refused_and_reached_without_rules)
{
    struct net_pair pair;
    char id[ADAPTER_ID_SIZE];

    make("key", true, false, id);
    pair_of(id, &pair);
    ck_assert_int_eq(reach(id, pair.gateway_text, HOST_PORT), EHOSTUNREACH);
    ck_assert_int_eq(reach(id, HOST, HOST_PORT), EHOSTUNREACH);
    ck_assert_int_eq(reach(id, pair.gateway_text, DNS_PORT_HOST), EHOSTUNREACH);
    remove_protection();
    ck_assert_int_eq(reach(id, pair.gateway_text, HOST_PORT), 0);
    ck_assert_int_eq(reach(id, HOST, HOST_PORT), 0);
}
END_TEST

static int serve(void *arg)
{
    int fd = listen_at(SOCK_STREAM, *(int *)arg);

    for (;;)
        close(accept(fd, NULL, NULL));
    return 0;
}

static bool answers_inside(void *arg)
{
    const char *id = arg;

    return reach(id, "127.0.0.1", 80) == 0;
}

/* Sandboxes do not see each other, whatever their switches say. */
START_TEST(egress__other_sandbox__refused_and_reached_without_rules)
{
    char id[ADAPTER_ID_SIZE], other[ADAPTER_ID_SIZE];
    struct net_pair pair;

    make("one", true, true, id);
    make("two", true, true, other);
    rig_start_inside(&rig, other, RIG_USER, serve, &(int){80});
    ck_assert(rig_until(answers_inside, other, 5000));
    pair_of(other, &pair);
    ck_assert_int_eq(reach(id, pair.address_text, 80), EHOSTUNREACH);
    remove_protection();
    ck_assert_int_eq(reach(id, pair.address_text, 80), 0);
}
END_TEST

/* With the host's power inside its network: another source address. */
static int send_spoofed(void *arg)
{
    const char *source = arg;
    struct sockaddr_in from = at(source, 0), to = at(PUBLIC, TCP_PORT);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;

    if (setsockopt(fd, SOL_IP, IP_TRANSPARENT, &on, sizeof on) < 0 ||
        bind(fd, (struct sockaddr *)&from, sizeof from) < 0)
        return errno;
    return sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof to) == 1 ? 0 : errno;
}

static bool more_datagrams(void *arg)
{
    return atomic_load(&seen->n_datagrams) > *(unsigned *)arg;
}

static bool arrives(const char *id, const char *source)
{
    unsigned before = atomic_load(&seen->n_datagrams);

    ck_assert_int_eq(rig_inside(&rig, id, RIG_NETWORK, send_spoofed, (void *)source), 0);
    return rig_until(more_datagrams, &before, PATIENCE_MS);
}

START_TEST(egress__spoofed_source__dropped_and_passed_without_rules)
{
    struct net_pair pair;
    char id[ADAPTER_ID_SIZE];

    make("key", true, false, id);
    pair_of(id, &pair);
    ck_assert(arrives(id, pair.address_text));
    ck_assert(!arrives(id, "203.0.113.9"));
    ck_assert(!arrives(id, "10.213.255.254"));
    remove_protection();
    ck_assert(arrives(id, "203.0.113.9"));
}
END_TEST

static int try_ipv6(void *arg)
{
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(TCP_PORT)};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)arg;
    inet_pton(AF_INET6, "2001:db8::2", &to.sin6_addr);
    return fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0 ? errno : 0;
}

START_TEST(egress__ipv6__no_way)
{
    char id[ADAPTER_ID_SIZE];

    make("key", true, false, id);
    ck_assert_int_ne(rig_inside(&rig, id, RIG_USER, try_ipv6, NULL), 0);
}
END_TEST

static void set_network(const char *id, bool egress, bool inbound)
{
    struct adapter_network network = {.egress = egress ? ADAPTER_OPEN : ADAPTER_CLOSED,
                                      .inbound = inbound ? ADAPTER_OPEN : ADAPTER_CLOSED};
    struct berth_error err = {0};
    json_t *request = rig_about(id, 1);

    json_object_set_new(request, "network", adapter_network_to_json(&network));
    ck_assert_msg(rig_call(&rig, "set_network", request, NULL, &err) == BERTH_OK, "%s",
                  err.text);
}

/* Closed: there is no network at all. The switch can be moved while the sandbox runs. */
START_TEST(egress__closed__no_network_until_opened)
{
    char id[ADAPTER_ID_SIZE];

    make("key", false, false, id);
    ck_assert_int_eq(reach(id, PUBLIC, TCP_PORT), ENETUNREACH);
    for (int i = 0; i < 3; i++) {
        set_network(id, true, false);
        ck_assert_int_eq(reach(id, PUBLIC, TCP_PORT), 0);
        set_network(id, false, false);
        ck_assert_int_eq(reach(id, PUBLIC, TCP_PORT), ENETUNREACH);
    }
}
END_TEST

/* --------------------------------------------------------------------- inbound */

/* Closed: the host's new connections are dropped. Open: they come in, from the host only. */
START_TEST(inbound__switch__decides_for_the_host)
{
    char id[ADAPTER_ID_SIZE];
    struct net_pair pair;

    make("key", true, false, id);
    rig_start_inside(&rig, id, RIG_USER, serve, &(int){80});
    ck_assert(rig_until(answers_inside, id, 5000));
    pair_of(id, &pair);
    ck_assert_int_eq(try_connect(pair.address_text, 80), ETIMEDOUT);
    set_network(id, true, true);
    ck_assert_int_eq(try_connect(pair.address_text, 80), 0);
    set_network(id, true, false);
    ck_assert_int_eq(try_connect(pair.address_text, 80), ETIMEDOUT);
    remove_protection();
    ck_assert_int_eq(try_connect(pair.address_text, 80), 0);
}
END_TEST

/* The rules are put back by the next spawner, with the switches as they were. */
START_TEST(rules__spawner_started_again__switches_kept)
{
    char open[ADAPTER_ID_SIZE], closed[ADAPTER_ID_SIZE];
    struct net_pair open_pair, closed_pair;

    make("open", true, true, open);
    make("closed", true, false, closed);
    rig_start_inside(&rig, open, RIG_USER, serve, &(int){80});
    rig_start_inside(&rig, closed, RIG_USER, serve, &(int){80});
    ck_assert(rig_until(answers_inside, open, 5000));
    ck_assert(rig_until(answers_inside, closed, 5000));
    pair_of(open, &open_pair);
    pair_of(closed, &closed_pair);
    remove_protection();
    rig_start(&rig);
    ck_assert_int_eq(try_connect(open_pair.address_text, 80), 0);
    ck_assert_int_eq(try_connect(closed_pair.address_text, 80), ETIMEDOUT);
    ck_assert_int_eq(reach(open, denied[0], TCP_PORT), EHOSTUNREACH);
    ck_assert_int_eq(reach(open, PUBLIC, TCP_PORT), 0);
}
END_TEST

static bool note_table(void *arg, const char *line)
{
    bool *found = arg;

    *found = *found || strstr(line, rig.store.tag);
    return true;
}

static bool table_is_there(void)
{
    const char *const argv[] = {"nft", "list", "tables", NULL};
    bool found = false;

    ck_assert_int_eq(io_run(argv, NULL, berth_tick_ms() + 10000, note_table, &found, NULL),
                     BERTH_OK);
    return found;
}

/* The rules go with the last sandbox and the spawner; not before. */
START_TEST(rules__nothing_left_to_protect__removed)
{
    char id[ADAPTER_ID_SIZE];

    make("key", true, false, id);
    rig_stop(&rig);
    ck_assert(table_is_there());
    rig_start(&rig);
    rig_delete(&rig, id, 1);
    ck_assert(table_is_there());
    rig_stop(&rig);
    ck_assert(!table_is_there());
}
END_TEST

static bool is_protected(void *arg)
{
    return reach(arg, denied[0], TCP_PORT) == EHOSTUNREACH;
}

/* Another program flushes all rules: ours are back before long. */
START_TEST(rules__flushed_by_somebody__put_back)
{
    char id[ADAPTER_ID_SIZE], table[32];

    make("key", true, false, id);
    snprintf(table, sizeof table, "berth_%s", rig.store.tag);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(nft_remove(table, NULL), BERTH_OK);
        ck_assert(rig_until(is_protected, id, 5000));
    }
    ck_assert_int_eq(reach(id, PUBLIC, TCP_PORT), 0);
}
END_TEST

static bool tool(const char *const *argv)
{
    return io_run(argv, NULL, berth_tick_ms() + 10000, NULL, NULL, NULL) == BERTH_OK;
}

/* Docker's rules drop what is forwarded and ask DOCKER-USER first: ours are put there. */
START_TEST(egress__beside_docker__passes_its_forward_chain)
{
    static const char *const set_up_docker[][8] = {
        {"iptables-nft", "-w", "-N", "DOCKER-USER"},
        {"iptables-nft", "-w", "-A", "FORWARD", "-j", "DOCKER-USER"},
        {"iptables-nft", "-w", "-P", "FORWARD", "DROP"}};
    static const char *const flush[] = {"iptables-nft", "-w", "-F", "DOCKER-USER", NULL};
    static const char *const accept[] = {"iptables-nft", "-w", "-P", "FORWARD", "ACCEPT", NULL};
    char id[ADAPTER_ID_SIZE];

    rig_stop(&rig);
    for (size_t i = 0; i < BERTH_COUNT(set_up_docker); i++)
        if (!tool(set_up_docker[i])) {
            printf("SKIP: no iptables-nft here\n");
            return;
        }
    rig_start(&rig);
    make("key", true, false, id);
    ck_assert_int_eq(reach(id, PUBLIC, TCP_PORT), 0);
    ck_assert_int_eq(reach(id, denied[0], TCP_PORT), EHOSTUNREACH);
    ck_assert(tool(flush));
    ck_assert_int_eq(reach(id, PUBLIC, TCP_PORT), ETIMEDOUT);
    ck_assert(tool(accept));
}
END_TEST

/* ----------------------------------------------------------------------- names */

/* "a.b" A IN, id 0x1234. */
static const uint8_t question[] = {0x12, 0x34, 1,   0, 0,   1, 0, 0, 0, 0, 0,
                                   0,    1,    'a', 1, 'b', 0, 0, 1, 0, 1};

static bool is_answer(const uint8_t *data, ssize_t n)
{
    static const uint8_t address[] = {198, 51, 100, 2};

    return n == (ssize_t)sizeof question + 16 && memcmp(data, question, 2) == 0 &&
           data[2] & 0x80 && memcmp(data + n - 4, address, 4) == 0;
}

static int ask(int type, const char *server)
{
    struct sockaddr_in to = at(server, 53);
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 3};
    uint8_t data[512], framed[64] = {0, sizeof question};
    size_t used = 0;
    ssize_t n;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
        return errno;
    if (type == SOCK_DGRAM) {
        if (send(fd, question, sizeof question, 0) < 0)
            return errno;
        n = recv(fd, data, sizeof data, 0);
        return is_answer(data, n) ? 0 : 200;
    }
    memcpy(framed + 2, question, sizeof question);
    if (send(fd, framed, sizeof question + 2, 0) < 0)
        return errno;
    while ((n = recv(fd, data + used, sizeof data - used, 0)) > 0)
        used += (size_t)n;
    return is_answer(data + 2, (ssize_t)used - 2) ? 0 : 201;
}

static int ask_by_udp(void *arg)
{
    return ask(SOCK_DGRAM, arg);
}

static int ask_by_tcp(void *arg)
{
    return ask(SOCK_STREAM, arg);
}

/* Names are answered at the gateway although the host's resolver itself is out of reach. */
START_TEST(names__at_the_gateway__answered_by_the_hosts_resolver)
{
    char id[ADAPTER_ID_SIZE], path[512], text[64];
    struct net_pair pair;

    make("key", true, false, id);
    pair_of(id, &pair);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(rig_inside(&rig, id, RIG_USER, ask_by_udp, pair.gateway_text), 0);
    ck_assert_int_eq(rig_inside(&rig, id, RIG_USER, ask_by_tcp, pair.gateway_text), 0);
    rig_path(&rig, id, "etc/resolv.conf", path);
    ck_assert_int_gt(io_read(AT_FDCWD, path, text, sizeof text), 0);
    ck_assert_ptr_nonnull(strstr(text, pair.gateway_text));
}
END_TEST

/* ... and without a network there are none. */
START_TEST(names__egress_closed__not_answered)
{
    char id[ADAPTER_ID_SIZE];
    struct net_pair pair;

    make("key", false, false, id);
    pair_of(id, &pair);
    ck_assert_int_eq(rig_inside(&rig, id, RIG_USER, ask_by_udp, pair.gateway_text),
                     ENETUNREACH);
    set_network(id, true, false);
    ck_assert_int_eq(rig_inside(&rig, id, RIG_USER, ask_by_udp, pair.gateway_text), 0);
}
END_TEST

/* Who tries the host has a link and no record, but a slot that is held: a sweep of another
 * spawner of the same store, which ends or begins just then, leaves it. */
START_TEST(sweep__link_of_a_held_slot__left)
{
    struct net_cidr cidr;
    char links[2][16];
    int slots[2], held[2], ns_fd;

    ck_assert_int_eq(net_parse_cidr(RIG_CIDR, &cidr, NULL), BERTH_OK);
    for (int i = 0; i < 2; i++) {
        struct net_pair pair;

        ck_assert_int_eq(slot_take(RIG_SLOTS, net_slots(&cidr), &slots[i], &held[i], NULL),
                         BERTH_OK);
        net_pair_of(&cidr, (unsigned)slots[i], &pair);
        store_link_name(&rig.store, slots[i], links[i]);
        ck_assert_int_eq(net_make_ns(&ns_fd, NULL), BERTH_OK);
        ck_assert_int_eq(net_link_up(links[i], ns_fd, &pair, NULL), BERTH_OK);
        /* The namespace stays with the process: the links must not go with it. */
    }
    close(held[1]);
    rig_stop(&rig);
    rig_start(&rig); /* with a sweep */
    for (int64_t until_ms = berth_tick_ms() + 10000;
         net_link_exists(links[1]) && berth_tick_ms() < until_ms;)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    ck_assert(!net_link_exists(links[1]));
    ck_assert(net_link_exists(links[0]));
    ck_assert_int_eq(net_link_down(links[0], NULL), BERTH_OK);
    close(held[0]);
    slot_forget(RIG_SLOTS, slots[0]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local/network");
    TCase *tcase = tcase_create("network");
    SRunner *runner;
    int failed;

    rig_main();
    make_world();
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, egress__open__public_address_reached_by_nat);
    tcase_add_test(tcase, egress__denied_address__refused_and_reached_without_rules);
    tcase_add_test(tcase, egress__host_service__refused_and_reached_without_rules);
    tcase_add_test(tcase, egress__other_sandbox__refused_and_reached_without_rules);
    tcase_add_test(tcase, egress__spoofed_source__dropped_and_passed_without_rules);
    tcase_add_test(tcase, egress__ipv6__no_way);
    tcase_add_test(tcase, egress__closed__no_network_until_opened);
    tcase_add_test(tcase, inbound__switch__decides_for_the_host);
    tcase_add_test(tcase, rules__spawner_started_again__switches_kept);
    tcase_add_test(tcase, rules__nothing_left_to_protect__removed);
    tcase_add_test(tcase, rules__flushed_by_somebody__put_back);
    tcase_add_test(tcase, egress__beside_docker__passes_its_forward_chain);
    tcase_add_test(tcase, names__at_the_gateway__answered_by_the_hosts_resolver);
    tcase_add_test(tcase, names__egress_closed__not_answered);
    tcase_add_test(tcase, sweep__link_of_a_held_slot__left);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_finish();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

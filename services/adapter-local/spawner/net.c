#include "services/adapter-local/spawner/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"

/* OPERSTATE_UP: IF_OPER_UP of <linux/if.h>, which <net/if.h> excludes. */
enum { CARRIER_MS = 500, OPERSTATE_UP = 6 };

/* ----------------------------------------------------------------- addresses */

enum berth_code net_parse_cidr(const char *text, struct net_cidr *ret, struct berth_error *err)
{
    char address[INET_ADDRSTRLEN];
    size_t len = strcspn(text, "/");
    struct in_addr in;
    unsigned prefix;
    uint32_t base;
    char end;

    if (len >= sizeof address || text[len] != '/' || strlen(text + len + 1) > 2 ||
        sscanf(text + len + 1, "%2u%c", &prefix, &end) != 1)
        return berth_fail_field(err, "network_cidr", "an IPv4 network like 10.213.0.0/16");
    snprintf(address, sizeof address, "%.*s", (int)len, text);
    if (inet_pton(AF_INET, address, &in) != 1)
        return berth_fail_field(err, "network_cidr", "an IPv4 network like 10.213.0.0/16");
    if (prefix < NET_PREFIX_MIN || prefix > NET_PREFIX_MAX)
        return berth_fail_field(err, "network_cidr", "a prefix from /%d to /%d", NET_PREFIX_MIN,
                                NET_PREFIX_MAX);
    base = ntohl(in.s_addr);
    if (base & (UINT32_MAX >> prefix))
        return berth_fail_field(err, "network_cidr", "no address bits beyond the prefix");
    *ret = (struct net_cidr){base, prefix};
    return BERTH_OK;
}

unsigned net_slots(const struct net_cidr *cidr)
{
    return 1U << (30 - cidr->prefix);
}

void net_pair_of(const struct net_cidr *cidr, unsigned slot, struct net_pair *ret)
{
    struct in_addr gateway, address;

    ret->gateway = cidr->base + slot * 4 + 1;
    ret->address = ret->gateway + 1;
    gateway.s_addr = htonl(ret->gateway);
    address.s_addr = htonl(ret->address);
    inet_ntop(AF_INET, &gateway, ret->gateway_text, sizeof ret->gateway_text);
    inet_ntop(AF_INET, &address, ret->address_text, sizeof ret->address_text);
}

static bool is_sandbox_link(const char *name)
{
    return name[0] == 'b' && strspn(name + 1, "0123456789abcdef") == 7 && name[8] == '-';
}

enum berth_code net_check_free(const struct net_cidr *cidr, struct berth_error *err)
{
    uint32_t mask = ~(UINT32_MAX >> cidr->prefix);
    enum berth_code code = BERTH_OK;
    struct ifaddrs *list, *at;

    if (getifaddrs(&list) < 0)
        return io_fail(err, "list the host's addresses");
    for (at = list; at && !code; at = at->ifa_next) {
        uint32_t address, theirs;

        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET ||
            is_sandbox_link(at->ifa_name))
            continue;
        address = ntohl(((struct sockaddr_in *)at->ifa_addr)->sin_addr.s_addr);
        theirs = at->ifa_netmask
                     ? ntohl(((struct sockaddr_in *)at->ifa_netmask)->sin_addr.s_addr)
                     : UINT32_MAX;
        /* Two networks overlap when they agree in the bits both fix. */
        if (((address ^ cidr->base) & mask & theirs) == 0)
            code = berth_fail_field(err, "network_cidr",
                                    "a network that interface %s of this host does not use",
                                    at->ifa_name);
    }
    freeifaddrs(list);
    return code;
}

/* ------------------------------------------------------------------ netlink */

struct request {
    struct nlmsghdr header;
    char body[1024];
};

static void *put(struct request *r, size_t size)
{
    char *at = (char *)r + NLMSG_ALIGN(r->header.nlmsg_len);

    memset(at, 0, size);
    r->header.nlmsg_len = (uint32_t)(NLMSG_ALIGN(r->header.nlmsg_len) + size);
    return at;
}

static struct rtattr *put_attr(struct request *r, unsigned short type, const void *data,
                               size_t size)
{
    struct rtattr *attr = put(r, RTA_LENGTH(size));

    attr->rta_type = type;
    attr->rta_len = (unsigned short)RTA_LENGTH(size);
    if (size)
        memcpy(RTA_DATA(attr), data, size);
    return attr;
}

static void end_attr(struct request *r, struct rtattr *attr)
{
    attr->rta_len = (unsigned short)((char *)r + r->header.nlmsg_len - (char *)attr);
}

static struct request request(unsigned short type, unsigned short flags)
{
    return (struct request){.header = {.nlmsg_len = NLMSG_LENGTH(0),
                                       .nlmsg_type = type,
                                       .nlmsg_flags = flags | NLM_F_REQUEST | NLM_F_ACK}};
}

static int open_socket(void)
{
    return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
}

/* 0 or -1 with errno as the kernel answers. */
static int transact(int fd, struct request *r)
{
    char answer[4096];
    const struct nlmsghdr *header = (const void *)answer;
    const struct nlmsgerr *verdict = NLMSG_DATA(header);
    ssize_t n;

    if (send(fd, r, r->header.nlmsg_len, 0) < 0)
        return -1;
    do
        n = recv(fd, answer, sizeof answer, 0);
    while (n < 0 && errno == EINTR);
    if (n < (ssize_t)NLMSG_LENGTH(sizeof *verdict) || header->nlmsg_type != NLMSG_ERROR) {
        errno = n < 0 ? errno : EPROTO;
        return -1;
    }
    errno = -verdict->error;
    return verdict->error ? -1 : 0;
}

static int add_address(int fd, unsigned index, uint32_t address)
{
    struct request r = request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
    struct ifaddrmsg *message = put(&r, sizeof *message);
    uint32_t wire = htonl(address);

    message->ifa_family = AF_INET;
    message->ifa_prefixlen = 30;
    message->ifa_index = index;
    put_attr(&r, IFA_LOCAL, &wire, sizeof wire);
    put_attr(&r, IFA_ADDRESS, &wire, sizeof wire);
    return transact(fd, &r);
}

static int set_up(int fd, unsigned index)
{
    struct request r = request(RTM_NEWLINK, 0);
    struct ifinfomsg *message = put(&r, sizeof *message);

    message->ifi_index = (int)index;
    message->ifi_flags = IFF_UP;
    message->ifi_change = IFF_UP;
    return transact(fd, &r);
}

static int add_default_route(int fd, uint32_t gateway)
{
    struct request r = request(RTM_NEWROUTE, NLM_F_CREATE);
    struct rtmsg *message = put(&r, sizeof *message);
    uint32_t wire = htonl(gateway);

    message->rtm_family = AF_INET;
    message->rtm_table = RT_TABLE_MAIN;
    message->rtm_protocol = RTPROT_BOOT;
    message->rtm_type = RTN_UNICAST;
    put_attr(&r, RTA_GATEWAY, &wire, sizeof wire);
    return transact(fd, &r);
}

/* Nothing of IPv6 is spoken on a link; the rules drop it, this keeps the kernel quiet. Where it
 * cannot be said, the rules still stand. */
static void silence_ipv6(const char *link)
{
    char path[96];

    snprintf(path, sizeof path, "/proc/sys/net/ipv6/conf/%s/disable_ipv6", link);
    (void)io_write(AT_FDCWD, path, "1");
}

static int add_veth(int fd, const char *link, int ns_fd)
{
    struct request r = request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
    uint32_t ns = (uint32_t)ns_fd;
    struct rtattr *info, *data, *peer;

    put(&r, sizeof(struct ifinfomsg));
    put_attr(&r, IFLA_IFNAME, link, strlen(link) + 1);
    info = put_attr(&r, IFLA_LINKINFO, NULL, 0);
    put_attr(&r, IFLA_INFO_KIND, "veth", 4);
    data = put_attr(&r, IFLA_INFO_DATA, NULL, 0);
    peer = put_attr(&r, VETH_INFO_PEER, NULL, 0);
    put(&r, sizeof(struct ifinfomsg));
    put_attr(&r, IFLA_IFNAME, "eth0", 5);
    put_attr(&r, IFLA_NET_NS_FD, &ns, sizeof ns);
    end_attr(&r, peer);
    end_attr(&r, data);
    end_attr(&r, info);
    return transact(fd, &r);
}

static int delete_link(int fd, const char *link)
{
    struct request r = request(RTM_DELLINK, 0);

    put(&r, sizeof(struct ifinfomsg));
    put_attr(&r, IFLA_IFNAME, link, strlen(link) + 1);
    return transact(fd, &r) < 0 && errno != ENODEV ? -1 : 0;
}

/* --------------------------------------------------------------- namespaces */

/* Where a kernel does not have one of these, or /proc/sys is read-only, the rest still holds:
 * the rules on the host side drop IPv6 anyway. */
static void set_sysctls(void)
{
    static const char *const settings[][2] = {
        {"/proc/sys/net/ipv6/conf/all/disable_ipv6", "1"},
        {"/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"},
        {"/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"},
        {"/proc/sys/net/ipv4/ping_group_range", "0 2147483647"},
    };

    for (size_t i = 0; i < BERTH_COUNT(settings); i++)
        (void)io_write(AT_FDCWD, settings[i][0], settings[i][1]);
}

static enum berth_code set_up_here(struct berth_error *err)
{
    BERTH_AUTO(close) int fd = open_socket();

    if (fd < 0 || set_up(fd, 1) < 0)
        return io_fail(err, "set up a network namespace");
    set_sysctls();
    return BERTH_OK;
}

enum berth_code net_enter_new_ns(struct berth_error *err)
{
    return unshare(CLONE_NEWNET) < 0 ? io_fail(err, "make a network namespace")
                                     : set_up_here(err);
}

enum berth_code net_make_ns(int *ret_fd, struct berth_error *err)
{
    BERTH_AUTO(close) int home_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    enum berth_code code;
    int fd;

    if (home_fd < 0)
        return io_fail(err, "open our network namespace");
    code = net_enter_new_ns(err);
    fd = code ? -1 : open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (!code && fd < 0)
        code = io_fail(err, "open a network namespace");
    if (setns(home_fd, CLONE_NEWNET) < 0 && !code)
        code = io_fail(err, "return to our network namespace");
    if (code) {
        if (fd >= 0)
            close(fd);
        return code;
    }
    *ret_fd = fd;
    return BERTH_OK;
}

/* A netlink socket that acts in another namespace. */
static int open_socket_in(int ns_fd)
{
    BERTH_AUTO(close) int home_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    int fd;

    if (home_fd < 0 || setns(ns_fd, CLONE_NEWNET) < 0)
        return -1;
    fd = open_socket();
    if (setns(home_fd, CLONE_NEWNET) < 0)
        abort();
    return fd;
}

struct link_state {
    unsigned index; /* 0: not there */
    bool up;        /* packets pass: the kernel has seen that the other end is up, too */
};

static struct link_state look_at(int fd, const char *name)
{
    struct request r = request(RTM_GETLINK, 0);
    struct link_state state = {0};
    char answer[8192];
    const struct nlmsghdr *header = (const void *)answer;
    const struct ifinfomsg *message = NLMSG_DATA(header);
    const struct rtattr *attr = IFLA_RTA(message);
    ssize_t n;
    int left;

    put(&r, sizeof(struct ifinfomsg));
    put_attr(&r, IFLA_IFNAME, name, strlen(name) + 1);
    r.header.nlmsg_flags = NLM_F_REQUEST;
    if (send(fd, &r, r.header.nlmsg_len, 0) < 0)
        return state;
    n = recv(fd, answer, sizeof answer, 0);
    if (n < (ssize_t)NLMSG_LENGTH(sizeof *message) || header->nlmsg_type != RTM_NEWLINK)
        return state;
    state.index = (unsigned)message->ifi_index;
    for (left = (int)IFLA_PAYLOAD(header); RTA_OK(attr, left); attr = RTA_NEXT(attr, left))
        if (attr->rta_type == IFLA_OPERSTATE)
            state.up = *(const uint8_t *)RTA_DATA(attr) == OPERSTATE_UP;
    return state;
}

void net_link_await(const char *link, int ns_fd)
{
    BERTH_AUTO(close) int host_fd = open_socket();
    BERTH_AUTO(close) int inner_fd = open_socket_in(ns_fd);
    int64_t deadline_ms = berth_tick_ms() + CARRIER_MS;

    while (host_fd >= 0 && inner_fd >= 0 &&
           !(look_at(host_fd, link).up && look_at(inner_fd, "eth0").up) &&
           berth_tick_ms() < deadline_ms)
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
}

enum berth_code net_link_up(const char *link, int ns_fd, const struct net_pair *pair,
                            struct berth_error *err)
{
    BERTH_AUTO(close) int host_fd = open_socket();
    BERTH_AUTO(close) int inner_fd = open_socket_in(ns_fd);
    enum berth_code code = BERTH_OK;
    unsigned index;

    if (host_fd < 0 || inner_fd < 0)
        return io_fail(err, "open a netlink socket");
    if (delete_link(host_fd, link) < 0 || add_veth(host_fd, link, ns_fd) < 0)
        return io_fail(err, "make link %s", link);
    silence_ipv6(link);
    index = if_nametoindex(link);
    if (!index || add_address(host_fd, index, pair->gateway) < 0 || set_up(host_fd, index) < 0)
        code = io_fail(err, "set up link %s", link);
    index = code ? 0 : look_at(inner_fd, "eth0").index;
    if (!code &&
        (!index || add_address(inner_fd, index, pair->address) < 0 ||
         set_up(inner_fd, index) < 0 || add_default_route(inner_fd, pair->gateway) < 0))
        code = io_fail(err, "set up the sandbox's end of link %s", link);
    if (code)
        (void)delete_link(host_fd, link);
    return code;
}

enum berth_code net_link_down(const char *link, struct berth_error *err)
{
    BERTH_AUTO(close) int fd = open_socket();

    if (fd < 0 || delete_link(fd, link) < 0)
        return io_fail(err, "remove link %s", link);
    return BERTH_OK;
}

bool net_link_exists(const char *link)
{
    return if_nametoindex(link) != 0;
}

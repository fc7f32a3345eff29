#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>

#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/nft.h"
#include "services/adapter-local/spawner/slot.h"
#include "services/adapter-local/spawner/spawner.h"

enum { TOOL_MS = 10000, GONE_MS = 2000 };

enum berth_code host_release(const struct spawner *spawner, const char *id, int slot,
                             bool inbound_open, int64_t deadline_ms, struct berth_error *err)
{
    struct cgroup group = {.host = &spawner->host, .store = spawner->cgroup_name, .id = id};
    enum berth_code code = cgroup_destroy(&group, deadline_ms, err);
    char link[16];

    /* The last one leaves nothing. */
    if (!code)
        cgroup_forget_store(&spawner->host, spawner->cgroup_name);
    if (code || slot < 0)
        return code;
    /* The link goes with its namespace, but the kernel takes its time over that. */
    store_link_name(&spawner->store, slot, link);
    code = net_link_down(link, err);
    /* A rule left over would open the next sandbox in this slot: rather make all of them anew.
     */
    if (!code && inbound_open && nft_set_inbound(spawner->table, link, false, NULL))
        code = host_install_rules(spawner, err);
    if (!code)
        slot_forget(spawner->slots_dir, slot);
    return code;
}

void host_await_gone(const struct record *record)
{
    int64_t deadline_ms = berth_tick_ms() + GONE_MS;

    while ((io_process_start(record->supervisor_pid) == record->supervisor_start ||
            io_process_start(record->init_pid) == record->init_start) &&
           record->init_start && berth_tick_ms() < deadline_ms)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static enum berth_code collect_open(const struct spawner *spawner, char *const *ids, size_t n,
                                    char **links, size_t *ret_n, struct berth_error *err)
{
    size_t used = 0;

    for (size_t i = 0; i < n; i++) {
        struct record record = {0};
        char link[16] = "";

        /* One that cannot be read stays closed. */
        if (record_load(&spawner->store, ids[i], &record, NULL))
            continue;
        if (record.network.inbound == ADAPTER_OPEN && record_alive(&spawner->store, &record))
            store_link_name(&spawner->store, record.slot, link);
        record_deinit(&record);
        if (!link[0])
            continue;
        links[used] = strdup(link);
        if (!links[used])
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        *ret_n = ++used;
    }
    return BERTH_OK;
}

enum berth_code host_install_rules(const struct spawner *spawner, struct berth_error *err)
{
    BERTH_AUTO(free) char *rules = NULL;
    char **ids = NULL, **links = NULL;
    size_t n = 0, n_links = 0;
    enum berth_code code = store_list(spawner->store.sandboxes_fd, &ids, &n, err);

    if (code)
        return code;
    links = calloc(n + 1, sizeof *links);
    code = links ? collect_open(spawner, ids, n, links, &n_links, err)
                 : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (!code) {
        rules = nft_rules(spawner->table, spawner->prefix, spawner->cidr_text,
                          (const char *const *)links, n_links);
        code =
            rules ? nft_install(rules, err) : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    store_list_free(links, n_links);
    store_list_free(ids, n);
    return code;
}

void host_leave(const struct spawner *spawner)
{
    char **ids = NULL;
    size_t n = 0, n_alive = 0;

    if (store_list(spawner->store.sandboxes_fd, &ids, &n, NULL))
        return;
    for (size_t i = 0; i < n; i++) {
        struct record record;

        /* One that cannot be read, or is being made by a child of ours, counts as alive. */
        if (record_load(&spawner->store, ids[i], &record, NULL)) {
            n_alive++;
            continue;
        }
        n_alive += record.state == RECORD_CREATING || record_alive(&spawner->store, &record);
        record_deinit(&record);
    }
    store_list_free(ids, n);
    if (n_alive == 0) {
        (void)!nft_remove(spawner->table, NULL);
        cgroup_forget_store(&spawner->host, spawner->cgroup_name);
    }
}

static bool succeeds(const char *const *argv)
{
    return io_run(argv, NULL, berth_tick_ms() + TOOL_MS, NULL, NULL, NULL) == BERTH_OK;
}

/* Docker sets the policy of FORWARD to DROP and jumps to DOCKER-USER first; a verdict of our
 * own table cannot overrule a drop there. */
static enum berth_code pass_docker(const struct spawner *spawner, struct berth_error *err)
{
    static const char *const tools[] = {"iptables-nft", "iptables-legacy"};
    char pattern[20];

    snprintf(pattern, sizeof pattern, "%s+", spawner->prefix);
    for (size_t i = 0; i < BERTH_COUNT(tools); i++) {
        const char *const list[] = {tools[i], "-w", "5", "-n", "-L", "DOCKER-USER", NULL};
        const char *rules[2][16] = {
            {tools[i], "-w", "5", "-C", "DOCKER-USER", "-i", pattern, "-j", "ACCEPT", NULL},
            {tools[i], "-w", "5", "-C", "DOCKER-USER", "-o", pattern, "-m", "conntrack",
             "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT", NULL}};

        if (!succeeds(list))
            continue;
        for (size_t k = 0; k < BERTH_COUNT(rules); k++) {
            if (succeeds(rules[k]))
                continue;
            rules[k][3] = "-I";
            if (!succeeds(rules[k]))
                return berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                                  "%s cannot add a rule to Docker's DOCKER-USER chain",
                                  tools[i]);
        }
    }
    return BERTH_OK;
}

enum berth_code host_prepare_forwarding(const struct spawner *spawner, struct berth_error *err)
{
    static const char path[] = "/proc/sys/net/ipv4/ip_forward";
    char text[16];

    if (io_read(AT_FDCWD, path, text, sizeof text) < 0)
        return io_fail(err, "read %s", path);
    if (text[0] == '0' && io_write(AT_FDCWD, path, "1") < 0)
        return io_fail(err, "switch on %s (do it by sysctl where /proc/sys is read-only)",
                       path);
    return pass_docker(spawner, err);
}

/* probe.c - does this host let us make sandboxes? Each step is what a real one needs, done in a
 * child and taken back; the first that fails is named, with its errno and what to change. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/ids/ids.h"
#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/net.h"
#include "services/adapter-local/spawner/nft.h"
#include "services/adapter-local/spawner/sandbox.h"
#include "services/adapter-local/spawner/slot.h"
#include "services/adapter-local/spawner/spawner.h"

enum { PROBE_MS = 10000 };

/* What a step works on. */
struct probe {
    const struct spawner *spawner;
    char id[32]; /* of the sandbox that is tried */
    char link[16];
    struct cgroup group;
    struct cgroup_fds cgroup;
    int dir_fd, user_fd, net_fd, slot_fd; /* close with the child that probes */
    int slot;
};

static enum berth_code try_root(struct probe *p, struct berth_error *err)
{
    (void)p;
    if (geteuid() != 0)
        return berth_fail(err, BERTH_REASON_CAPABILITY_MISSING, "not root (uid %ld)",
                          (long)geteuid());
    return BERTH_OK;
}

static enum berth_code try_store(struct probe *p, struct berth_error *err)
{
    char hidden[64];

    snprintf(hidden, sizeof hidden, ".new-%s", p->id);
    p->dir_fd = io_make_dir(p->spawner->store.sandboxes_fd, hidden, 0700);
    /* Held for our life: a later sweep sees whether we still are at it. */
    if (p->dir_fd < 0 || io_make_lock(p->dir_fd) < 0 || mkdirat(p->dir_fd, "upper", 0755) < 0 ||
        mkdirat(p->dir_fd, "work", 0700) < 0 || mkdirat(p->dir_fd, "mnt", 0700) < 0 ||
        mkdirat(p->dir_fd, "image", 0755) < 0)
        return io_fail(err, "make directories");
    return BERTH_OK;
}

static enum berth_code try_supervisor(struct probe *p, struct berth_error *err)
{
    return access(p->spawner->supervisor_path, X_OK) < 0
               ? io_fail(err, "%s", p->spawner->supervisor_path)
               : BERTH_OK;
}

static enum berth_code try_slot(struct probe *p, struct berth_error *err)
{
    return slot_take(p->spawner->slots_dir, net_slots(&p->spawner->cidr), &p->slot, &p->slot_fd,
                     err);
}

static enum berth_code try_cgroup(struct probe *p, struct berth_error *err)
{
    static const struct adapter_resources limits = {
        .cpu_millis = 1000, .max_processes = 64, .memory_bytes = 64 << 20};
    enum berth_code code = cgroup_make(&p->group, &limits, err);

    return code ? code : cgroup_open(&p->group, &p->cgroup, err);
}

static enum berth_code try_user_ns(struct probe *p, struct berth_error *err)
{
    return sandbox_user_ns(STORE_UID_BASE + (unsigned)p->slot * STORE_UID_COUNT, &p->user_fd,
                           err);
}

static enum berth_code try_cidr(struct probe *p, struct berth_error *err)
{
    return net_check_free(&p->spawner->cidr, err);
}

static enum berth_code try_network(struct probe *p, struct berth_error *err)
{
    struct net_pair pair;
    enum berth_code code = net_make_ns(&p->net_fd, err);

    net_pair_of(&p->spawner->cidr, (unsigned)p->slot, &pair);
    store_link_name(&p->spawner->store, p->slot, p->link);
    return code ? code : net_link_up(p->link, p->net_fd, &pair, err);
}

static enum berth_code try_rules(struct probe *p, struct berth_error *err)
{
    char table[48];
    BERTH_AUTO(free) char *rules = NULL;
    enum berth_code code;

    snprintf(table, sizeof table, "%s_probe", p->spawner->table);
    rules = nft_rules(table, "berth-none-", p->spawner->cidr_text, NULL, 0);
    if (!rules)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = nft_install(rules, err);
    return code ? code : nft_remove(table, err);
}

static enum berth_code try_sandbox(struct probe *p, struct berth_error *err)
{
    char layer[64], dir[STORE_PATH_MAX + 64];
    const char *const layers[] = {layer};
    struct sandbox_plan plan = {
        .store = p->spawner->store.path,
        .dir = dir,
        .layers = layers,
        .n_layers = 1,
        .user_fd = p->user_fd,
        .uid_base = STORE_UID_BASE + (unsigned)p->slot * STORE_UID_COUNT,
        .box_fd = p->cgroup.box_fd,
        .nameserver = "",
        .tmp_bytes = 1 << 20,
        .shm_bytes = 1 << 20,
    };

    struct sandbox_birth birth;
    enum berth_code code;

    snprintf(layer, sizeof layer, "sandboxes/.new-%s/image", p->id);
    snprintf(dir, sizeof dir, "%s/sandboxes/.new-%s", p->spawner->store.path, p->id);
    code = sandbox_start(&plan, &birth, err);
    if (code)
        return code;
    close(birth.pidfd);
    return sandbox_await(&birth, err);
}

static enum berth_code try_freeze(struct probe *p, struct berth_error *err)
{
    enum berth_code code = cgroup_freeze(&p->group, true, berth_tick_ms() + PROBE_MS, err);

    return code ? code : cgroup_freeze(&p->group, false, berth_tick_ms() + PROBE_MS, err);
}

static const struct {
    const char *name;
    enum berth_code (*fn)(struct probe *p, struct berth_error *err);
    const char *advice;
} steps[] = {
    {"root", try_root, "run berth-adapter-local as root; sandboxes without root come later"},
    {"state directory", try_store, "make the state directory writable, on a disk with room"},
    {"supervisor program", try_supervisor,
     "install berth-local-supervisor beside berth-adapter-local, or set supervisor"},
    {"slot", try_slot, "make /run/berth writable, or set slots_dir"},
    {"control groups", try_cgroup,
     "mount the cgroup hierarchies writable (in a container: -v "
     "/sys/fs/cgroup:/sys/fs/cgroup:rw "
     "and the host's cgroup namespace)"},
    {"user namespace", try_user_ns,
     "raise user.max_user_namespaces; in a container: --security-opt seccomp=unconfined "
     "--security-opt apparmor=unconfined"},
    {"network range", try_cidr, "set network_cidr to a network this host does not use"},
    {"network namespace and link", try_network,
     "give CAP_NET_ADMIN and CAP_SYS_ADMIN, and a kernel with veth"},
    {"packet rules", try_rules, "give CAP_NET_ADMIN, and a kernel with nf_tables, nat and fib"},
    {"file systems", try_sandbox,
     "give CAP_SYS_ADMIN without a seccomp or AppArmor profile, and put the state directory on "
     "ext4, xfs or btrfs (not on a container's own overlay); Linux 5.19 or later is needed"},
    {"freezer", try_freeze,
     "use a kernel with the cgroup v2 freezer (5.2) and cgroup.kill (5.14)"},
};

static void clean_up(struct probe *p)
{
    char hidden[64];

    (void)!host_release(p->spawner, p->id, -1, false, berth_tick_ms() + PROBE_MS, NULL);
    if (p->link[0])
        (void)!net_link_down(p->link, NULL);
    if (p->slot_fd >= 0) {
        close(p->slot_fd);
        slot_forget(p->spawner->slots_dir, p->slot);
    }
    snprintf(hidden, sizeof hidden, ".new-%s", p->id);
    (void)io_remove_tree(p->spawner->store.sandboxes_fd, hidden);
}

/* In the child. Its answer: the number of the failed step, from 1, and the error. */
static enum berth_code run_steps(const struct spawner *spawner, struct berth_error *err)
{
    struct probe probe = {
        .spawner = spawner,
        .cgroup = {.sup_fd = -1, .box_fd = -1, .memory_fd = -1},
        .dir_fd = -1,
        .user_fd = -1,
        .net_fd = -1,
        .slot_fd = -1,
        .slot = -1,
    };
    enum berth_code code = BERTH_OK;
    char random[13];

    snprintf(probe.id, sizeof probe.id, "probe-%s", berth_id_base36(random, 12));
    probe.group =
        (struct cgroup){.host = &spawner->host, .store = spawner->cgroup_name, .id = probe.id};
    for (size_t i = 0; !code && i < BERTH_COUNT(steps); i++) {
        struct berth_error why = {0};

        if (steps[i].fn(&probe, &why) == BERTH_OK)
            continue;
        code =
            berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                       "this host does not let us make sandboxes. Step '%s': %s. To change: %s",
                       steps[i].name, why.text, steps[i].advice);
    }
    clean_up(&probe);
    return code;
}

enum berth_code spawner_probe(const struct spawner *spawner, struct berth_error *err)
{
    struct berth_error answer = {0};
    int fds[2];
    pid_t pid;
    ssize_t n;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return io_fail(err, "pipe");
    pid = fork();
    if (pid == 0) {
        (void)run_steps(spawner, &answer);
        _exit(write(fds[1], &answer, sizeof answer) == sizeof answer ? 0 : 1);
    }
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return io_fail(err, "fork");
    }
    do
        n = read(fds[0], &answer, sizeof answer);
    while (n < 0 && errno == EINTR);
    close(fds[0]);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (n != sizeof answer)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "the probe of this host died");
    if (answer.code && err)
        *err = answer;
    return answer.code;
}

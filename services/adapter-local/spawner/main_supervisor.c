/* berth-local-supervisor - the parent of one sandbox: makes it, then serves its commands until
 * it ends. Started by berth-local-spawner, outlives it and the adapter.
 *
 *   berth-local-supervisor STATE_DIR SANDBOX_ID SLOT
 *
 * Descriptor 3: a pipe for the number of the sandbox's init as soon as it is born, on a line,
 * and for one line of JSON: made, or why not. Descriptor 4: the slot's lock,
 * held for life. Descriptor 5: a pipe that brings one byte when the sandbox's meta.json, which
 * says what to make, and its groups are there; until then only what needs neither is made, and
 * where it ends without, nothing comes of it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "common/json/json.h"
#include "services/adapter-local/spawner/cgroup.h"
#include "services/adapter-local/spawner/dns.h"
#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/launcher.h"
#include "services/adapter-local/spawner/message.h"
#include "services/adapter-local/spawner/net.h"
#include "services/adapter-local/spawner/sandbox.h"
#include "services/adapter-local/spawner/store.h"
#include "services/adapter-local/spawner/supervisor.h"

enum { STATUS_FD = 3, SLOT_FD = 4, GO_FD = 5, BACKLOG = 64, DNS_PORT = 53 };
enum { TMP_BYTES_UNLIMITED = 1 << 30, SCRATCH_MIN = 16 << 20 };

struct supervisor {
    struct store store;
    struct record record;
    struct cgroup_host host;
    struct cgroup_fds cgroup;
    struct supervisor_env env;
    char **environ;
    struct dns *dns;
    int user_fd; /* the sandbox's user namespace */
    struct berth_error net_err;
    enum berth_code net_code;
    char *title; /* argv: one string after another */
    size_t title_size;
};

static enum berth_code make_environ(struct supervisor *s, struct berth_error *err)
{
    const struct adapter_pairs *env = &s->record.env;

    s->environ = calloc(env->n + 1, sizeof *s->environ);
    for (size_t i = 0; s->environ && i < env->n; i++)
        if (asprintf(&s->environ[i], "%s=%s", env->keys[i], env->values[i]) < 0)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    return s->environ ? BERTH_OK : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* The path of a socket is short, that of a store need not be: bind from inside. */
static enum berth_code listen_here(int dir_fd, int *ret_fd, struct berth_error *err)
{
    const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "sup.sock"};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    enum berth_code code = BERTH_OK;

    if (fd < 0)
        return io_fail(err, "socket");
    (void)unlinkat(dir_fd, "sup.sock", 0);
    umask(0177);
    if (fchdir(dir_fd) < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 ||
        listen(fd, BACKLOG) < 0)
        code = io_fail(err, "bind sup.sock");
    umask(077);
    if (chdir("/") < 0 && !code)
        code = io_fail(err, "chdir");
    if (code) {
        close(fd);
        return code;
    }
    *ret_fd = fd;
    return BERTH_OK;
}

static enum berth_code open_files(struct supervisor *s, const char *id, struct berth_error *err)
{
    struct supervisor_env *env = &s->env;

    env->dir_fd = io_open_dir(s->store.sandboxes_fd, id);
    if (env->dir_fd < 0)
        return io_fail(err, "open the sandbox's directory");
    env->active_fd =
        openat(env->dir_fd, "active", O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (env->active_fd < 0)
        return io_fail(err, "make active");
    return listen_here(env->dir_fd, &env->listen_fd, err);
}

/* -------------------------------------------------- work of the launcher's thread */

static long enter_network(void *arg)
{
    struct supervisor *s = arg;

    s->net_code = net_enter_new_ns(&s->net_err);
    return 0;
}

static long join_groups(void *arg)
{
    const struct cgroup_fds *cgroup = arg;

    for (int i = 0; i < cgroup->n_v1; i++)
        if (write(cgroup->v1_tasks_fd[i], "0", 1) < 0)
            return -1;
    return 0;
}

static long filter(void *arg)
{
    (void)arg;
    return supervisor_filter();
}

/* ------------------------------------------------------------------------ making */

static enum berth_code enter_cgroup(struct supervisor *s, struct berth_error *err)
{
    struct supervisor_env *env = &s->env;
    char name[32];
    struct cgroup group = {.host = &s->host, .store = name, .id = s->record.id};
    enum berth_code code;

    store_cgroup_name(&s->store, name);
    code = cgroup_open(&group, &s->cgroup, err);
    if (code)
        return code;
    env->box_fd = s->cgroup.box_fd;
    env->memory_fd = s->cgroup.memory_fd;
    env->memory_is_v2 = s->cgroup.memory_is_v2;
    return launcher_run(env->launcher, join_groups, &s->cgroup) < 0
               ? io_fail(err, "join the sandbox's groups")
               : BERTH_OK;
}

static uint64_t scratch_bytes(uint64_t memory, uint64_t part)
{
    uint64_t bytes = memory ? memory / part : TMP_BYTES_UNLIMITED;

    return bytes < SCRATCH_MIN ? SCRATCH_MIN : bytes;
}

/* What belongs to the network that init was born into. link NULL: closed. */
static enum berth_code make_network(struct supervisor *s, pid_t init_pid, const char *link,
                                    const struct net_pair *pair, struct berth_error *err)
{
    BERTH_AUTO(close) int fd = -1;
    enum berth_code code = BERTH_OK;
    char path[64];

    snprintf(path, sizeof path, "/proc/%ld/ns/net", (long)init_pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        code = io_fail(err, "open the sandbox's network");
    if (!code && link)
        code = net_link_up(link, fd, pair, err);
    if (!code)
        code = dns_new(s->env.loop, pair->gateway_text, DNS_PORT, s->record.resolvers,
                       "/etc/resolv.conf", &s->dns, err);
    if (!code && link)
        net_link_await(link, fd);
    return code;
}

static enum berth_code start_init(struct supervisor *s, struct berth_error *err)
{
    struct record *record = &s->record;
    bool online = record->network.egress == ADAPTER_OPEN;
    struct sandbox_birth birth;
    char dir[STORE_PATH_MAX + ADAPTER_ID_SIZE + 16];
    struct sandbox_plan plan = {
        .store = s->store.path,
        .dir = dir,
        .layers = (const char *const *)record->layers,
        .n_layers = record->n_layers,
        .user_fd = s->user_fd,
        .uid_base = s->env.uid_base,
        .box_fd = s->cgroup.box_fd,
        .launcher = s->env.launcher,
        .tmp_bytes = scratch_bytes(record->resources.memory_bytes, 2),
        .shm_bytes = scratch_bytes(record->resources.memory_bytes, 4),
        .title = s->title,
        .title_size = s->title_size,
    };
    struct net_cidr cidr;
    struct net_pair pair;
    enum berth_code code, await;
    char link[16];

    snprintf(dir, sizeof dir, "%s/sandboxes/%s", s->store.path, record->id);
    code = net_parse_cidr(record->cidr, &cidr, err);
    if (code)
        return code;
    net_pair_of(&cidr, (unsigned)record->slot, &pair);
    store_link_name(&s->store, record->slot, link);
    /* The namespace's address stays the same when the switch is moved later. */
    plan.nameserver = pair.gateway_text;
    code = sandbox_start(&plan, &birth, err);
    if (code)
        return code;
    s->env.init_pidfd = birth.pidfd;
    dprintf(STATUS_FD, "%ld\n", (long)birth.pid);
    /* Its network is made from here while init builds its file systems. */
    code = make_network(s, birth.pid, online ? link : NULL, &pair, err);
    /* Commands are born with it. Where that fails each of them has to see to it, and says why
     * it cannot. */
    s->env.filtered = launcher_run(s->env.launcher, filter, NULL) == 0;
    await = sandbox_await(&birth, code ? NULL : err);
    s->env.init_pid = birth.pid;
    return code ? code : await;
}

/* What can be made of a sandbox before its record is there, and before it is certain that it
 * will be. */
static enum berth_code prepare(struct supervisor *s, const char *state_dir, const char *id,
                               unsigned slot, struct berth_error *err)
{
    struct supervisor_env *env = &s->env;
    enum berth_code code = launcher_new(&env->launcher, err);

    if (code)
        return code;
    /* First: it takes longest, and goes on by itself. */
    launcher_begin(env->launcher, enter_network, s);
    env->uid_base = STORE_UID_BASE + slot * STORE_UID_COUNT;
    code = store_open(state_dir, "", &s->store, err);
    if (!code)
        code = open_files(s, id, err);
    if (!code)
        code = berth_loop_new(&env->loop, err);
    if (!code)
        code = cgroup_discover_self(&s->host, err);
    if (!code)
        code = sandbox_user_ns(env->uid_base, &s->user_fd, err);
    (void)launcher_end(env->launcher);
    if (!code && s->net_code) {
        *err = s->net_err;
        code = s->net_code;
    }
    return code;
}

/* False: there is nothing to make. */
static bool await_go(void)
{
    char byte;
    ssize_t n;

    do
        n = read(GO_FD, &byte, 1);
    while (n < 0 && errno == EINTR);
    close(GO_FD);
    return n == 1;
}

static enum berth_code make(struct supervisor *s, const char *id, unsigned slot,
                            struct berth_error *err)
{
    enum berth_code code = record_load(&s->store, id, &s->record, err);
    char path[64];

    if (!code && (unsigned)s->record.slot != slot)
        code = berth_fail(err, BERTH_REASON_INTERNAL_BUG, "the record names another slot");
    if (code)
        return code;
    s->env.sandbox_id = s->record.id;
    s->env.max_open_files = s->record.resources.max_open_files;
    code = make_environ(s, err);
    s->env.environ = (const char *const *)s->environ;
    if (!code)
        code = enter_cgroup(s, err);
    if (!code)
        code = start_init(s, err);
    if (code)
        return code;
    close(s->user_fd);
    snprintf(path, sizeof path, "/proc/%ld/root", (long)s->env.init_pid);
    s->env.root_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return s->env.root_fd < 0 ? io_fail(err, "open the sandbox's root") : BERTH_OK;
}

/* False: whoever started us is gone, so nobody would know of this sandbox. */
static bool report(enum berth_code code, const struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *json = message_result(code, err);
    BERTH_AUTO(free) char *text = NULL;
    bool sent;

    text = json ? berth_json_format(json) : NULL;
    sent = text && write(STATUS_FD, text, strlen(text)) == (ssize_t)strlen(text);
    close(STATUS_FD);
    return sent;
}

/* Whatever is left of the box dies with us. Nothing is waited for: init does not end before the
 * dead commands around it are reaped, and that is done by whoever inherits them from us. */
static void kill_box(const struct supervisor *s)
{
    if (s->env.box_fd > 0)
        (void)io_write(s->env.box_fd, "cgroup.kill", "1");
    if (s->env.init_pid > 0)
        kill(s->env.init_pid, SIGKILL);
}

int main(int argc, char **argv)
{
    static struct supervisor s = {.cgroup = {.sup_fd = -1, .box_fd = -1, .memory_fd = -1}};
    struct berth_error err = {0};
    enum berth_code code;
    unsigned slot;
    char end;

    if (argc != 4 || sscanf(argv[3], "%5u%c", &slot, &end) != 1) {
        fprintf(stderr,
                "usage: berth-local-supervisor STATE_DIR SANDBOX_ID SLOT (by the spawner)\n");
        return 2;
    }
    s.title = argv[0];
    s.title_size = (size_t)(argv[3] + strlen(argv[3]) + 1 - argv[0]);
    signal(SIGPIPE, SIG_IGN);
    umask(077);
    fcntl(STATUS_FD, F_SETFD, FD_CLOEXEC);
    fcntl(SLOT_FD, F_SETFD, FD_CLOEXEC);
    fcntl(GO_FD, F_SETFD, FD_CLOEXEC);

    code = prepare(&s, argv[1], argv[2], slot, &err);
    if (!code && !await_go())
        return 1;
    if (!code)
        code = make(&s, argv[2], slot, &err);
    if (!report(code, &err) || code) {
        kill_box(&s);
        return 1;
    }
    code = supervisor_serve(&s.env, &err);
    if (code)
        fprintf(stderr, "supervisor_serve: %s: %s\n", berth_reason_name(err.reason), err.text);
    kill_box(&s);
    return code ? 1 : 0;
}

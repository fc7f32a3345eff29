#include "tests/component/local/rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/netlink.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "services/adapter-local/spawner/io.h"

/* What root of a sandbox tries. Each attack returns 0 when it succeeded, else its errno. Where
 * an attack would need more than the two protections (user namespace last, confinement) to be
 * stopped, it is tried without them, too, and must succeed then: else the test would prove
 * nothing. */

static struct rig rig;
static char id[ADAPTER_ID_SIZE];

static void setup(void)
{
    rig = (struct rig){0};
    rig_open(&rig);
    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
}

static void teardown(void)
{
    rig_close(&rig);
}

static int outcome(int result)
{
    return result < 0 ? errno : 0;
}

static int mount_tmpfs(void *arg)
{
    (void)arg;
    return outcome(mount("t", "/tmp", "tmpfs", 0, NULL));
}

static int remount_root(void *arg)
{
    (void)arg;
    return outcome(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
}

static int unmount_mask(void *arg)
{
    (void)arg;
    return outcome(umount2("/proc/sys", 0));
}

static int new_mount_namespace(void *arg)
{
    (void)arg;
    return outcome(unshare(CLONE_NEWNS));
}

static int make_device(void *arg)
{
    (void)arg;
    return outcome(mknod("/tmp/disk", S_IFBLK | 0600, makedev(254, 0)));
}

static int set_name(void *arg)
{
    (void)arg;
    return outcome(sethostname("mine", 4));
}

static int write_sysctl(void *arg)
{
    (void)arg;
    return outcome(io_write(AT_FDCWD, "/proc/sys/kernel/domainname", "mine"));
}

static int nested_user_namespace(void *arg)
{
    (void)arg;
    return outcome(unshare(CLONE_NEWUSER));
}

static int load_bpf(void *arg)
{
    union bpf_attr attr = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};

    (void)arg;
    return outcome((int)syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof attr));
}

static int read_kernel_log(void *arg)
{
    char text[128];

    (void)arg;
    return outcome((int)syscall(SYS_syslog, 3, text, sizeof text));
}

/* Reaches the hypervisor, whatever the network namespace. */
static int open_vsock(void *arg)
{
    (void)arg;
    return outcome(socket(AF_VSOCK, SOCK_STREAM, 0));
}

static int open_audit(void *arg)
{
    (void)arg;
    return outcome(socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT));
}

/* What programs need. */
static int open_sockets(void *arg)
{
    (void)arg;
    return outcome(socket(AF_UNIX, SOCK_STREAM, 0)) +
           outcome(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) +
           outcome(socket(AF_INET6, SOCK_STREAM, 0)) +
           outcome(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
}

static int read_init_words(void *arg)
{
    char words[256] = "";

    (void)arg;
    if (io_read(AT_FDCWD, "/proc/1/cmdline", words, sizeof words) < 0)
        return errno;
    return strcmp(words, "init") == 0 ? 0 : 200;
}

static const struct {
    const char *what;
    int (*fn)(void *arg);
    bool works_bare; /* succeeds without the two protections */
} attacks[] = {
    {"mount", mount_tmpfs, true},
    {"remount", remount_root, true},
    {"unmount a mask", unmount_mask, true},
    {"new mount namespace", new_mount_namespace, true},
    {"mknod", make_device, true},
    {"hostname", set_name, true},
    {"bpf", load_bpf, true},
    {"syslog", read_kernel_log, true},
    {"vsock", open_vsock, true},
    {"audit", open_audit, true},
    {"nested user namespace", nested_user_namespace, false},
    {"sysctl", write_sysctl, false},
};

START_TEST(root__attack__refused_and_works_without_protection)
{
    int confined = rig_inside(&rig, id, RIG_ROOT, attacks[_i].fn, NULL);

    ck_assert_msg(confined > 0, "%s: %d", attacks[_i].what, confined);
    if (attacks[_i].works_bare) {
        int bare = rig_inside(&rig, id, RIG_BARE, attacks[_i].fn, NULL);

        /* Two sockets' families can be absent from the kernel. */
        ck_assert_msg(bare == 0 || bare == EAFNOSUPPORT || bare == EPROTONOSUPPORT,
                      "%s, bare: %s", attacks[_i].what, strerror(bare));
    }
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_RUNNING);
}
END_TEST

/* The sockets that ordinary programs open, and no path of the host in what `ps` shows. */
START_TEST(ordinary__sockets_and_ps__work_and_tell_nothing)
{
    ck_assert_int_eq(rig_inside(&rig, id, RIG_ROOT, open_sockets, NULL), 0);
    ck_assert_int_eq(rig_inside(&rig, id, RIG_USER, read_init_words, NULL), 0);
}
END_TEST

/* Processes of the host and of other sandboxes are neither seen nor reached. */
static int look_for_others(void *arg)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    int n = 0;

    while (dir && (entry = readdir(dir)))
        n += entry->d_name[0] >= '0' && entry->d_name[0] <= '9';
    if (kill(*(pid_t *)arg, 0) == 0 || errno != ESRCH)
        return 200;
    return n;
}

START_TEST(processes__of_the_host__not_seen)
{
    pid_t outside = getpid();

    /* Init and the one that looks. */
    ck_assert_int_eq(rig_inside(&rig, id, RIG_ROOT, look_for_others, &outside), 2);
}
END_TEST

static int hit_init(void *arg)
{
    (void)arg;
    kill(1, SIGKILL);
    kill(1, SIGTERM);
    return access("/proc/1/root/etc", F_OK) == 0 ? 1 : 0;
}

/* Init cannot be killed from inside, nor is its root or memory open. */
START_TEST(init__killed_from_inside__lives)
{
    ck_assert_int_eq(rig_inside(&rig, id, RIG_ROOT, hit_init, NULL), 0);
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_RUNNING);
}
END_TEST

/* Files of the sandbox belong to its ids on disk as the template's do (0-based), and outside of
 * its namespaces nobody can be them. */
static int write_files(void *arg)
{
    int fd = open("/etc/mine", O_CREAT | O_WRONLY, 0644);

    (void)arg;
    return fd < 0 ? errno : 0;
}

START_TEST(ids__on_disk__independent_of_the_slot)
{
    char path[512];
    struct stat st;

    ck_assert_int_eq(rig_inside(&rig, id, RIG_ROOT, write_files, NULL), 0);
    rig_path(&rig, id, "etc/mine", path);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_uid, 0);
    ck_assert_int_eq(stat(rig.dir, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0700);
}
END_TEST

static int as_user(void *arg)
{
    (void)arg;
    if (open("/etc/mine", O_CREAT | O_WRONLY, 0644) >= 0 || errno != EACCES)
        return 1;
    if (open("/workspace/mine", O_CREAT | O_WRONLY, 0644) < 0)
        return 2;
    if (setuid(0) == 0)
        return 3;
    return open("/tmp/mine", O_CREAT | O_WRONLY, 0644) < 0 ? 4 : 0;
}

START_TEST(user__own_files_only__as_expected)
{
    ck_assert_int_eq(rig_inside(&rig, id, RIG_USER, as_user, NULL), 0);
}
END_TEST

static int look_at_mounts(void *arg)
{
    struct statvfs st;
    int fd = open("/dev/null", O_RDWR);

    (void)arg;
    if (fd < 0 || write(fd, "x", 1) != 1)
        return 1;
    if (statvfs("/", &st) < 0 || !(st.f_flag & ST_NODEV) || !(st.f_flag & ST_NOSUID) ||
        st.f_flag & ST_RDONLY)
        return 2;
    if (statvfs("/proc/sys", &st) < 0 || !(st.f_flag & ST_RDONLY))
        return 3;
    if (statvfs("/sys", &st) < 0 || !(st.f_flag & ST_RDONLY))
        return 4;
    if (open("/dev/pts/ptmx", O_RDWR) < 0)
        return 5;
    if (access("/dev/shm", W_OK) < 0 || access("/tmp", W_OK) < 0)
        return 6;
    fd = open("/proc/kallsyms", O_RDONLY);
    return fd >= 0 && read(fd, &st, 16) > 0 ? 7 : 0;
}

START_TEST(mounts__inside__complete_and_restricted)
{
    ck_assert_int_eq(rig_inside(&rig, id, RIG_ROOT, look_at_mounts, NULL), 0);
}
END_TEST

/* An image that was made to bend the paths of our mounts: the sandbox is refused or comes up,
 * the host stays as it is. */
START_TEST(image__hostile_links__host_untouched)
{
    static const struct {
        const char *name, *target;
    } links[] = {{"proc", "/etc"},
                 {"sys", "../../../../../../etc"},
                 {"dev", "/var/tmp"},
                 {"tmp", "/root"},
                 {"etc", "/etc"}};
    char snapshot[ADAPTER_ID_SIZE], path[512], copy[ADAPTER_ID_SIZE];
    struct berth_error err = {0};
    struct stat before, after;

    rig_snapshot(&rig, id, "one", snapshot);
    snprintf(path, sizeof path, "%s/snapshots/%s/layer/%s", rig.dir, snapshot, links[_i].name);
    (void)io_remove_tree(AT_FDCWD, path);
    ck_assert_int_eq(symlink(links[_i].target, path), 0);
    ck_assert_int_eq(stat("/etc/resolv.conf", &before), 0);
    ck_assert_int_ne(
        rig_create(&rig, &(struct rig_wish){.key = "evil", .fence = 1, .snapshot = snapshot},
                   copy, &err),
        BERTH_OK);
    ck_assert_int_eq(stat("/etc/resolv.conf", &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    ck_assert_int_eq(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
}
END_TEST

/* A resolv.conf that is a link is replaced, not followed. */
START_TEST(image__resolv_conf_is_a_link__replaced)
{
    char snapshot[ADAPTER_ID_SIZE], path[512], copy[ADAPTER_ID_SIZE];
    struct stat st;

    rig_snapshot(&rig, id, "one", snapshot);
    snprintf(path, sizeof path, "%s/snapshots/%s/layer/etc/resolv.conf", rig.dir, snapshot);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink("/etc/passwd", path), 0);
    rig_make(&rig, &(struct rig_wish){.key = "copy", .fence = 1, .snapshot = snapshot}, copy);
    rig_path(&rig, copy, "etc/resolv.conf", path);
    ck_assert_int_eq(lstat(path, &st), 0);
    ck_assert(S_ISREG(st.st_mode));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local/isolation");
    TCase *tcase = tcase_create("isolation");
    SRunner *runner;
    int failed;

    rig_main();
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, root__attack__refused_and_works_without_protection, 0,
                        (int)BERTH_COUNT(attacks));
    tcase_add_test(tcase, ordinary__sockets_and_ps__work_and_tell_nothing);
    tcase_add_test(tcase, processes__of_the_host__not_seen);
    tcase_add_test(tcase, init__killed_from_inside__lives);
    tcase_add_test(tcase, ids__on_disk__independent_of_the_slot);
    tcase_add_test(tcase, user__own_files_only__as_expected);
    tcase_add_test(tcase, mounts__inside__complete_and_restricted);
    tcase_add_loop_test(tcase, image__hostile_links__host_untouched, 0, 5);
    tcase_add_test(tcase, image__resolv_conf_is_a_link__replaced);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_finish();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

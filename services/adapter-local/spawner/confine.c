/* confine.c - what a process of a sandbox gives up for good: capabilities it has no use for and
 * system calls that only widen the kernel's surface. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "services/adapter-local/spawner/supervisor.h"

/* Kept in the bounding set: what root of a container needs to install software. All of them
 * count in the sandbox's user namespace only. SYS_ADMIN is not among them: with it, root could
 * make mount namespaces of its own. */
static const int kept[] = {CAP_CHOWN,   CAP_DAC_OVERRIDE, CAP_FOWNER,          CAP_FSETID,
                           CAP_KILL,    CAP_SETGID,       CAP_SETUID,          CAP_SETPCAP,
                           CAP_SETFCAP, CAP_SYS_CHROOT,   CAP_NET_BIND_SERVICE};

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
enum { FOREIGN_FROM = 0x40000000 }; /* x32 numbers */
#elif defined(__aarch64__)
#define OWN_ARCH AUDIT_ARCH_AARCH64
enum { FOREIGN_FROM = 0x7fffffff };
#else
#error "add the audit architecture of this machine"
#endif

#define ERRNO(number) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (number))
#define REFUSE(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), ERRNO(EPERM)
#define ALLOW(value)                                                                           \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, 1),                                        \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
/* The low half of an argument: what an int of the call is (both machines are little-endian). */
#define ARG(number) (offsetof(struct seccomp_data, args) + 8 * (number))

static const struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCH, 1, 0),
    ERRNO(ENOSYS),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, FOREIGN_FROM, 0, 1),
    ERRNO(ENOSYS),
    /* keys of the host's users, programs in the kernel, its counters and faults */
    REFUSE(SYS_add_key),
    REFUSE(SYS_keyctl),
    REFUSE(SYS_request_key),
    REFUSE(SYS_bpf),
    REFUSE(SYS_perf_event_open),
    REFUSE(SYS_userfaultfd),
    REFUSE(SYS_io_uring_setup),
    REFUSE(SYS_io_uring_enter),
    REFUSE(SYS_io_uring_register),
    REFUSE(SYS_syslog),
    /* mounts */
    REFUSE(SYS_mount),
    REFUSE(SYS_umount2),
    REFUSE(SYS_pivot_root),
    REFUSE(SYS_fsopen),
    REFUSE(SYS_fsconfig),
    REFUSE(SYS_fsmount),
    REFUSE(SYS_fspick),
    REFUSE(SYS_move_mount),
    REFUSE(SYS_open_tree),
    REFUSE(SYS_mount_setattr),
    REFUSE(SYS_open_by_handle_at),
    REFUSE(SYS_quotactl),
    REFUSE(SYS_quotactl_fd),
    REFUSE(SYS_swapon),
    REFUSE(SYS_swapoff),
    REFUSE(SYS_acct),
    /* the machine */
    REFUSE(SYS_reboot),
    REFUSE(SYS_kexec_load),
    REFUSE(SYS_kexec_file_load),
    REFUSE(SYS_init_module),
    REFUSE(SYS_finit_module),
    REFUSE(SYS_delete_module),
    REFUSE(SYS_settimeofday),
    REFUSE(SYS_clock_settime),
    REFUSE(SYS_adjtimex),
    REFUSE(SYS_clock_adjtime),
#if defined(__x86_64__)
    REFUSE(SYS_iopl),
    REFUSE(SYS_ioperm),
    REFUSE(SYS_modify_ldt),
#endif
    /* Sockets: only families that the network namespace or the file system confines. AF_VSOCK,
     * to name one, reaches the hypervisor from any namespace. */
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARG(0)),
    ALLOW(AF_UNIX),
    ALLOW(AF_INET),
    ALLOW(AF_INET6),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 1, 0),
    ERRNO(EAFNOSUPPORT),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARG(2)),
    ALLOW(NETLINK_ROUTE), /* getifaddrs() */
    ERRNO(EPROTONOSUPPORT),
};

static bool is_kept(int cap)
{
    for (size_t i = 0; i < BERTH_COUNT(kept); i++)
        if (kept[i] == cap)
            return true;
    return false;
}

int supervisor_drop_rights(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    for (int cap = 0; cap < 64; cap++) {
        if (is_kept(cap))
            continue;
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            if (errno == EINVAL)
                break; /* the last one this kernel knows was before */
            return -1;
        }
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return -1;
    if (syscall(SYS_capget, &header, data) < 0)
        return -1;
    for (int cap = 0; cap < 64; cap++)
        if (!is_kept(cap)) {
            data[cap / 32].permitted &= ~(1U << cap % 32);
            data[cap / 32].effective &= ~(1U << cap % 32);
        }
    data[0].inheritable = data[1].inheritable = 0;
    if (syscall(SYS_capset, &header, data) < 0)
        return -1;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -1 : 0;
}

int supervisor_filter(void)
{
    const struct sock_fprog program = {.len = BERTH_COUNT(filter),
                                       .filter = (struct sock_filter *)filter};

    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? -1 : 0;
}

int supervisor_confine(void)
{
    return supervisor_drop_rights() < 0 ? -1 : supervisor_filter();
}

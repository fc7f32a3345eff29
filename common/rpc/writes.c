#include "common/rpc/writes.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SLOTS = 16 };

/* Of one connection. */
struct slot {
    int fd;
    bool refuses;              /* not TCP */
    unsigned n_held;           /* writes that wait in the kernel */
    unsigned n_before, n_here; /* in the burst before and in this one */
};

/* Slots by the descriptor's last digits. */
static _Thread_local struct {
    bool gathering;
    unsigned n_holding; /* slots with n_held */
    struct slot slots[SLOTS];
} writes;

/* NULL: another connection has it, and is holding. */
static struct slot *slot_of(int fd)
{
    struct slot *slot = &writes.slots[(unsigned)fd % SLOTS];

    if (slot->fd == fd)
        return slot;
    if (slot->n_held)
        return NULL;
    *slot = (struct slot){.fd = fd};
    return slot;
}

void rpc_writes_gather(bool gather)
{
    writes.gathering = gather;
}

bool rpc_writes_held(void)
{
    return writes.n_holding > 0;
}

void rpc_writes_heard(int fd)
{
    struct slot *slot = slot_of(fd);

    if (!slot)
        return;
    slot->n_before = slot->n_here;
    slot->n_here = 0;
}

void rpc_writes_flush(void)
{
    static const int one = 1;

    for (size_t i = 0; i < SLOTS && writes.n_holding > 0; i++) {
        struct slot *slot = &writes.slots[i];

        if (!slot->n_held)
            continue;
        slot->n_held = 0;
        writes.n_holding--;
        /* It is set already; setting it sends what is held. */
        slot->refuses = setsockopt(slot->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0;
    }
}

/* As libc's, for the whole process; MSG_MORE lets the kernel wait for more. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct slot *slot = writes.gathering ? slot_of(fd) : NULL;
    bool hold = slot && !slot->refuses && slot->n_held < RPC_WRITES_HELD_MAX &&
                (slot->n_here > 0 || slot->n_before > 1);
    ssize_t size = syscall(SYS_sendmsg, fd, message, hold ? flags | MSG_MORE : flags);

    if (!slot || size < 0)
        return size;
    slot->n_here++;
    if (hold && slot->n_held++ == 0)
        writes.n_holding++;
    if (!hold && slot->n_held) { /* it took them along */
        slot->n_held = 0;
        writes.n_holding--;
    }
    return size;
}

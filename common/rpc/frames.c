#include "common/rpc/frames.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/log/log.h"
#include "common/rpc/core.h"
#include "common/rpc/writes.h"
#include "common/time/time.h"

enum {
    FDS_MAX = 8192, /* non-peers have lower descriptors, see rpc_peer_fd_base() */
    HEADER_SIZE = sizeof((struct rpc_scan *)0)->header,
    BLOCK_MAX = 2 * BERTH_RPC_METADATA_MAX, /* the core itself refuses the half of it */
    MS_PER_S = 1000,
};
enum frame_type {
    FRAME_DATA = 0,
    FRAME_HEADERS = 1,
    FRAME_RST_STREAM = 3,
    FRAME_WINDOW_UPDATE = 8,
    FRAME_CONTINUATION = 9,
};

/* Of one descriptor, and never freed. What is not atomic belongs to the connection's reader, of
 * which the core has one at a time, and to rpc_frames_begin() before there is one. */
struct frames {
    atomic_uint generation, n_calls;
    atomic_llong heard_tick_ms;
    atomic_bool judged;
    ino_t inode;
    struct rpc_scan scan;
};

static _Atomic(struct frames *) table[FDS_MAX];
static atomic_uint_fast64_t n_cut;
static struct rpc_bucket all_resets;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of all_resets */

static struct frames *frames_of(int fd)
{
    return fd >= 0 && fd < FDS_MAX ? atomic_load_explicit(&table[fd], memory_order_acquire)
                                   : NULL;
}

static ino_t inode_of(int fd)
{
    struct stat info;

    return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

void rpc_frames_begin(int fd, bool judged)
{
    struct frames *frames = frames_of(fd);

    if (!frames && fd < FDS_MAX && judged) {
        frames = calloc(1, sizeof *frames);
        atomic_store_explicit(&table[fd], frames, memory_order_release);
    }
    if (!frames)
        return;               /* not judged; or no memory, and nobody is turned away for that */
    RPC_TSAN_ACQUIRE(frames); /* who read from that descriptor before has closed it since */
    atomic_store(&frames->judged, false);
    frames->inode = inode_of(fd);
    frames->scan = (struct rpc_scan){.skip = RPC_PREFACE_SIZE};
    atomic_store(&frames->n_calls, 0);
    atomic_store(&frames->heard_tick_ms, berth_tick_ms());
    atomic_fetch_add(&frames->generation, 1);
    RPC_TSAN_RELEASE(frames);
    atomic_store(&frames->judged, judged);
}

unsigned rpc_frames_call_begun(int fd)
{
    struct frames *frames = frames_of(fd);

    if (!frames)
        return 0;
    atomic_fetch_add(&frames->n_calls, 1);
    return atomic_load(&frames->generation);
}

void rpc_frames_call_ended(int fd, unsigned generation)
{
    struct frames *frames = frames_of(fd);

    if (frames && generation == atomic_load(&frames->generation))
        atomic_fetch_sub(&frames->n_calls, 1);
}

int64_t rpc_frames_idle_since_ms(int fd)
{
    struct frames *frames = frames_of(fd);

    if (!frames || !atomic_load(&frames->judged) || atomic_load(&frames->n_calls) > 0)
        return INT64_MAX;
    return atomic_load(&frames->heard_tick_ms);
}

uint64_t rpc_frames_cut(void)
{
    return atomic_load(&n_cut);
}

/* ------------------------------------------------------------------ the rules */

/* Tokens left after one was taken; negative: there was none. */
static int64_t take(struct rpc_bucket *bucket, int64_t burst, int64_t per_s, int64_t now_ms)
{
    int64_t full = burst * MS_PER_S;

    bucket->level = bucket->tick_ms ? bucket->level + (now_ms - bucket->tick_ms) * per_s : full;
    bucket->tick_ms = now_ms;
    if (bucket->level > full)
        bucket->level = full;
    if (bucket->level < MS_PER_S)
        return -1;
    bucket->level -= MS_PER_S;
    return bucket->level / MS_PER_S;
}

static bool may_reset(struct rpc_scan *scan, int64_t now_ms)
{
    int64_t own = take(&scan->resets, RPC_RESETS_BURST, RPC_RESETS_PER_S, now_ms), all;

    pthread_mutex_lock(&mutex);
    all = take(&all_resets, RPC_RESETS_ALL_BURST, RPC_RESETS_ALL_PER_S, now_ms);
    pthread_mutex_unlock(&mutex);
    return own >= 0 && (all >= 0 || own >= RPC_RESETS_BURST - RPC_RESETS_DUE);
}

/* Why the connection is cut at this frame; NULL: it goes on. */
static const char *judge(struct rpc_scan *scan, unsigned type, size_t size, int64_t now_ms)
{
    switch (type) {
    case FRAME_HEADERS:
        scan->block = size;
        return size > BLOCK_MAX ? "headers too large" : NULL;
    case FRAME_CONTINUATION:
        scan->block += size + HEADER_SIZE;
        return scan->block > BLOCK_MAX ? "headers too large" : NULL;
    case FRAME_RST_STREAM:
        return may_reset(scan, now_ms) ? NULL : "too many cancelled calls";
    case FRAME_WINDOW_UPDATE:
        return NULL;
    case FRAME_DATA:
        if (size > 0)
            return NULL;
        break;
    default:
        break;
    }
    return take(&scan->control, RPC_CONTROL_BURST, RPC_CONTROL_PER_S, now_ms) >= 0
               ? NULL
               : "too many pings, settings or empty frames";
}

const char *rpc_frames_scan(struct rpc_scan *scan, const void *bytes, size_t size,
                            int64_t now_ms)
{
    const uint8_t *data = bytes;
    const char *why = NULL;

    while (size > 0 && !why) {
        if (scan->skip > 0) {
            size_t n = scan->skip < size ? scan->skip : size;

            scan->skip -= n;
            data += n;
            size -= n;
            continue;
        }
        scan->header[scan->have++] = *data++;
        size--;
        if (scan->have < HEADER_SIZE)
            continue;
        scan->have = 0;
        scan->skip = (size_t)scan->header[0] << 16 | (size_t)scan->header[1] << 8 |
                     (size_t)scan->header[2];
        why = judge(scan, scan->header[3], scan->skip, now_ms);
    }
    return why;
}

/* ------------------------------------------------------------- the core's read */

void rpc_frames_note_cut(const char *why)
{
    atomic_fetch_add(&n_cut, 1);
    berth_warn("a connection is cut", "why", why);
}

static void cut(struct frames *frames, int fd, const char *why)
{
    atomic_store(&frames->judged, false);
    (void)shutdown(fd, SHUT_RDWR);
    rpc_frames_note_cut(why);
}

/* As libc's, for the whole process. Descriptors that are not a judged connection's are passed
 * on untouched; one that is closed and used again by somebody else is told by its inode, which
 * is looked at only before anything is done about it. */
ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    ssize_t size = syscall(SYS_recvmsg, fd, message, flags);
    struct frames *frames = size > 0 ? frames_of(fd) : NULL;
    const char *why = NULL;
    size_t left = (size_t)size;
    int64_t now_ms;

    if (size > 0)
        rpc_writes_heard(fd);
    if (!frames || !atomic_load_explicit(&frames->judged, memory_order_acquire))
        return size;
    RPC_TSAN_ACQUIRE(frames);
    now_ms = berth_tick_ms();
    atomic_store_explicit(&frames->heard_tick_ms, now_ms, memory_order_relaxed);
    for (size_t i = 0; i < message->msg_iovlen && left > 0 && !why; i++) {
        size_t n = message->msg_iov[i].iov_len < left ? message->msg_iov[i].iov_len : left;

        why = rpc_frames_scan(&frames->scan, message->msg_iov[i].iov_base, n, now_ms);
        left -= n;
    }
    RPC_TSAN_RELEASE(frames);
    if (!why || inode_of(fd) != frames->inode)
        return size;
    cut(frames, fd, why);
    errno = ECONNRESET;
    return -1;
}

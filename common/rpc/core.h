/* core.h - what the files of common/rpc share: tags, batches, the process-wide client queue.
 * Not for users of the library. */
#pragma once

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>

#include "common/rpc/rpc.h"

/* ThreadSanitizer does not see the synchronisation inside of the core: everything written
 * before an operation is started happens before what follows its completion. */
#if defined(__SANITIZE_THREAD__)
#define RPC_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RPC_TSAN 1
#endif
#endif
#ifdef RPC_TSAN
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#define RPC_TSAN_RELEASE(address) __tsan_release(address)
#define RPC_TSAN_ACQUIRE(address) __tsan_acquire(address)
#else
#define RPC_TSAN_RELEASE(address) ((void)(address))
#define RPC_TSAN_ACQUIRE(address) ((void)(address))
#endif

/* How much a sender may have on its way in one stream before the receiver has asked for it.
 * Fixed: the core's own estimate of the line (BDP) goes up to tens of MiB per stream where the
 * machine is busy, and a reader that has stopped must not cost that. */
enum { RPC_STREAM_WINDOW = 1 << 20 };

/* One operation of the core in flight. Lives in the object that the operation is about, which
 * therefore lives until fn is called. */
struct rpc_tag {
    struct berth_post post;
    struct berth_loop *loop; /* fn runs there; NULL: on the thread that saw the completion */
    bool heavy; /* of a stream of large messages: the queue's thread has enough to do
                   with its sockets, and wakes the loop's for the rest */
    void (*fn)(void *owner, bool ok);
    void *owner;
    bool ok;
};

/* Start operations on a call. Every failure here is a bug of ours: aborts. */
void rpc_start_batch(grpc_call *call, const grpc_op *ops, size_t n_ops, struct rpc_tag *tag);

/* Hand one event of the queue on. */
void rpc_complete(const grpc_event *event);

/* On the loop; from the queue's thread, and where the loop sleeps, at once and on this thread.
 * With no lock held. */
void rpc_run_on_loop(struct berth_loop *loop, struct berth_post *post, berth_loop_fn fn,
                     void *arg);

/* The one queue of the process, for servers and clients alike, served by one thread; between
 * berth_rpc_init() and _done(). That thread sees to the sockets, too, so what it finds needs no
 * second thread to be woken: with a queue and two threads per server, a relayed call cost twice
 * the context switches. Of handlers it runs those that never block: quick ones, and evented
 * ones while their loop sleeps. Client calls on it are counted, so that _done() can wait for
 * them; servers have ended before. */
grpc_completion_queue *rpc_queue(void);
void rpc_client_call_begun(void);
void rpc_client_call_ended(void);
/* Call fn(owner) on the queue's thread after after_ms. Only from that thread. The
 * entry belongs to the caller until then. */
struct rpc_delay {
    struct rpc_delay *next;
    int64_t tick_ms;
    void (*fn)(void *owner);
    void *owner;
};
void rpc_client_delay(struct rpc_delay *delay, int64_t after_ms, void (*fn)(void *),
                      void *owner);

/* A queue for one blocking call at a time, out of a free list. */
struct rpc_pluck_queue {
    struct rpc_pluck_queue *next;
    grpc_completion_queue *core;
};
struct rpc_pluck_queue *rpc_pluck_take(void); /* NULL: out of memory */
void rpc_pluck_give(struct rpc_pluck_queue *queue);

/* A descriptor at or above this number is a connection from a peer; see accept.h. */
int rpc_peer_fd_base(void);

/* Deadlines as the core wants them. INT64_MAX: none. */
gpr_timespec rpc_deadline(int64_t after_ms);

static inline bool rpc_slice_is(grpc_slice slice, const char *text)
{
    return grpc_slice_str_cmp(slice, text) == 0;
}

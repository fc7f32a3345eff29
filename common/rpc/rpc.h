/* rpc.h - gRPC core behind a small surface. Only common/rpc/ includes <grpc/...>.
 *
 * Servers have two kinds of handlers. A *unary* one is an ordinary function that may block; it
 * runs on a bounded pool. An *evented* one is a set of callbacks on the server's loop thread
 * (or, while that sleeps, on the thread that serves the sockets, see loop.h) and must never
 * block; it serves any kind of method, streams included. Clients likewise: one blocking call,
 * one with a callback, and evented streams. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/errors/errors.h"
#include "common/loop/loop.h"
#include "common/pool/pool.h"

/* ------------------------------------------------------------------ limits */

enum {
    BERTH_RPC_MESSAGE_MAX = 4 << 20,   /* bytes of one message, both ways */
    BERTH_RPC_METADATA_MAX = 64 << 10, /* bytes of all metadata of a call */
    BERTH_RPC_DEPTH_MAX = 64,          /* nested messages */
    BERTH_RPC_FIELDS_MAX = 64 << 10,   /* wire records in one message */
};

/* ---------------------------------------------------------------- messages */

/* The bytes of one message, immutable, reference counted, shared between threads. */
struct berth_buf;

struct berth_buf *berth_buf_new(const void *data, size_t size);    /* copies; NULL: no memory */
struct berth_buf *berth_buf_pack(const ProtobufCMessage *message); /* NULL: no memory */
/* Without a copy: size bytes from offset on of data, which is from malloc() and taken, also on
 * failure. */
struct berth_buf *berth_buf_take(void *data, size_t offset, size_t size);
struct berth_buf *berth_buf_ref(struct berth_buf *buf);
struct berth_buf *berth_buf_unref(struct berth_buf *buf); /* NULL is fine; returns NULL */
BERTH_DEFINE_AUTO(struct berth_buf *, berth_buf_unref)
size_t berth_buf_size(const struct berth_buf *buf);
/* Contiguous view, borrowed until the last unref. (May have to copy once.) */
const uint8_t *berth_buf_data(struct berth_buf *buf);
/* The bytes as they lie, never copied: the view of up to max pieces from the first-th on,
 * borrowed until the last unref. Returns how many; 0: there are no more. */
size_t berth_buf_pieces(const struct berth_buf *buf, size_t first, struct iovec *ret,
                        size_t max);

/* The guarded decoder: depth, record count, memory budget (16 x size + 256 KiB), UTF-8 and
 * embedded NUL are checked before and while protobuf-c unpacks. *ret is freed with
 * protobuf_c_message_free_unpacked(m, NULL). Unknown enum numbers and missing messages are the
 * caller's to check (common/fields).
 * Errors: FIELD_INVALID, MESSAGE_TOO_LARGE, OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code berth_decode(const ProtobufCMessageDescriptor *type,
                                              const void *data, size_t size,
                                              ProtobufCMessage **ret, struct berth_error *err);
BERTH_MUST_CHECK enum berth_code berth_buf_decode(const ProtobufCMessageDescriptor *type,
                                                  struct berth_buf *buf, ProtobufCMessage **ret,
                                                  struct berth_error *err);

/* Metadata to send. Keys are lower case; those ending in "-bin" carry any bytes. Borrowed for
 * the length of the call that takes it. */
struct berth_metadata {
    const char *key;
    const void *value;
    size_t size;
};

/* ------------------------------------------------------------- calls (server) */

struct berth_call; /* one RPC in progress; valid until the handler returns, or while ref'd */

int64_t berth_call_left_ms(const struct berth_call *call); /* of the deadline; never negative;
                                                              INT64_MAX where there is none */
bool berth_call_cancelled(const struct berth_call *call);
/* True: came over a unix socket from an allowed uid (SO_PEERCRED), or over TLS with a verified
 * certificate that has one of the server's peer_sans. */
bool berth_call_is_peer(const struct berth_call *call);
/* Who calls, as far as the connection proves it: "uid:0" of a peer over a unix socket, a name
 * in the verified certificate ("spiffe://berth/dataplane"; a listed one if there is one), else
 * "". Borrowed until the call ends. */
const char *berth_call_peer_name(const struct berth_call *call);
/* Value of a request metadata entry; borrowed until the call ends; NULL: not sent. */
const void *berth_call_metadata(const struct berth_call *call, const char *key,
                                size_t *ret_size);
size_t berth_call_metadata_count(const struct berth_call *call, const char *key);
/* "/package.Service/Method". */
const char *berth_call_path(const struct berth_call *call);
/* 16 hex digits, in the log line of the call and in INTERNAL errors. */
const char *berth_call_request_id(const struct berth_call *call);
/* The W3C traceparent to pass on: the caller's, or one made here. "" never. */
const char *berth_call_traceparent(const struct berth_call *call);

/* Metadata of the answer, copied: INITIAL goes before its first message, TRAILING with the
 * status. On the loop thread (evented) or before the answer (unary).
 * Errors: FIELD_INVALID (not valid in HTTP/2, or more than 16 of a kind), OUT_OF_MEMORY. */
enum berth_metadata_kind { BERTH_METADATA_INITIAL, BERTH_METADATA_TRAILING };
BERTH_MUST_CHECK enum berth_code berth_call_add_metadata(struct berth_call *call,
                                                         enum berth_metadata_kind kind,
                                                         const struct berth_metadata *entry,
                                                         struct berth_error *err);

/* A unary handler. req is borrowed until it returns (deferred: until the answer). On BERTH_OK
 * it has filled *ret_resp with a message that the runtime frees with
 * protobuf_c_message_free_unpacked(resp, NULL), so all of it is heap-allocated as by unpack;
 * otherwise err is filled and becomes the status. It does not log. A handler that has to wait
 * returns BERTH_DEFERRED after berth_call_ref() and answers later, once, from any thread, with
 * berth_call_answer(). */
typedef enum berth_code (*berth_unary_fn)(void *service, struct berth_call *call,
                                          const ProtobufCMessage *req,
                                          ProtobufCMessage **ret_resp, struct berth_error *err);

struct berth_call *berth_call_ref(struct berth_call *call);
struct berth_call *berth_call_unref(struct berth_call *call);
/* Answers a deferred call and drops one ref. code BERTH_OK: resp (taken) is sent; otherwise err
 * (borrowed). */
void berth_call_answer(struct berth_call *call, enum berth_code code, ProtobufCMessage *resp,
                       const struct berth_error *err);

/* ---------------------------------------------------------- streams (evented) */

/* One call as a stream of messages, on either side. Every callback runs on the loop thread, and
 * never inside of a call of the functions below. Back-pressure is explicit: one message is
 * delivered per berth_stream_read(), one write may be in flight until .written.
 *
 * Whoever does not read on does not hear of the end: on the client .closed comes after every
 * message has been read (berth_stream_cancel() and a passed deadline drop what is left). */
struct berth_stream;

/* How a call ended, as the wire says it. Borrowed in callbacks. */
struct berth_status {
    enum berth_code code;
    const char *message;    /* "" when none */
    const uint8_t *details; /* google.rpc.Status bytes of grpc-status-details-bin, or NULL */
    size_t details_size;
};

struct berth_stream_ops {
    /* A message that berth_stream_read() asked for; msg is taken. NULL: the peer half-closed
     * (server side) or sends no more (client side; .closed follows).
     *
     * Server side, before the first write: NULL is never told for a caller that went away, so a
     * whole upload can be told from a cut-off one. After the first write it is told 5 ms late,
     * and .cancelled may still follow it: commit nothing on such an end. */
    void (*message)(void *ctx, struct berth_stream *stream, struct berth_buf *msg);
    /* The write is out of our hands; the next one may follow. */
    void (*written)(void *ctx, struct berth_stream *stream);
    /* The last callback, always, once: on the server after finish or cancel (nothing else comes
     * after those), on the client when the status is known. The stream is gone when it returns;
     * ctx may be freed. Server side: status is the one sent, or CANCELLED when the caller went
     * away. */
    void (*closed)(void *ctx, struct berth_stream *stream, const struct berth_status *status);
    /* Optional, server side: the caller cancelled, its deadline passed, or the connection
     * broke. Finish soon; writes are void from here on. .closed follows after finish. */
    void (*cancelled)(void *ctx, struct berth_stream *stream);
};

/* Server side: a call has come. Set *ret_ops and *ret_ctx, then start with berth_stream_read()
 * (may be called inside). Anything but BERTH_OK ends the call with err. */
typedef enum berth_code (*berth_open_fn)(void *service, struct berth_stream *stream,
                                         const struct berth_stream_ops **ret_ops,
                                         void **ret_ctx, struct berth_error *err);

/* All on the loop thread only. */
struct berth_call *
berth_stream_call(struct berth_stream *stream); /* server side: metadata etc. */
struct berth_loop *berth_stream_loop(struct berth_stream *stream);
void berth_stream_read(
    struct berth_stream *stream); /* ask for one message; not twice at once */
/* Send one message (taken). False: a write is in flight or the stream has ended; msg is freed.
 */
bool berth_stream_write(struct berth_stream *stream, struct berth_buf *msg);
bool berth_stream_can_write(const struct berth_stream *stream);
/* Client side: the same, and no more writes after this one: all in one write to the socket. */
bool berth_stream_write_last(struct berth_stream *stream, struct berth_buf *msg);
/* Server side: the one message of a unary answer (taken) and the status OK, in one write to the
 * socket. Nothing happens where berth_stream_write() would return false. */
void berth_stream_answer(struct berth_stream *stream, struct berth_buf *msg);
/* Client side: no more writes; after those in flight. */
void berth_stream_half_close(struct berth_stream *stream);
/* Server side: end with a status, after the write in flight. Once; later ones are ignored. */
void berth_stream_finish(struct berth_stream *stream, enum berth_code code,
                         const struct berth_error *err);
/* Server side: end with a status exactly as it came from another call. */
void berth_stream_finish_status(struct berth_stream *stream, const struct berth_status *status);
/* Either side: give up. Client: .closed comes with CANCELLED. */
void berth_stream_cancel(struct berth_stream *stream);

/* Does it carry our ErrorInfo (with a reason that fits the code)? OK and bare ones do not. */
bool berth_status_has_reason(const struct berth_status *status);
/* Turn a received status into err (reason, metadata, text). Returns its code. */
enum berth_code berth_status_to_error(const struct berth_status *status,
                                      struct berth_error *err);

/* ----------------------------------------------------------------------- TLS */

/* A certificate with its key, and the authorities that the certificates of others must come
 * from; all of them PEM files. A thread looks every few seconds whether the files have changed.
 * New ones are used from the next connection on, and channels connect anew. What does not hold
 * together (or has expired, while the old one has not) is logged, and the old ones stay in use
 * until that is mended. Connections that stand are left alone, but for those to our servers
 * whose certificate is of an authority that is there no more: they are cut with the next byte,
 * at the latest after keepalive_ms. TLS 1.2 and 1.3. */
struct berth_tls;

struct berth_tls_options {   /* paths; borrowed for _new; NULL or "": none */
    const char *cert;        /* the certificate, then those between it and its authority */
    const char *key;         /* not encrypted */
    const char *authorities; /* of clients, and of the servers that channels go to */
    int64_t poll_ms;         /* between looks at the files; 0: 5 s */
};

/* Errors: FIELD_INVALID naming the file. An expired certificate is only warned of. */
BERTH_MUST_CHECK enum berth_code berth_tls_new(const struct berth_tls_options *options,
                                               struct berth_tls **ret, struct berth_error *err);
/* Servers and channels that were given it keep it. */
struct berth_tls *berth_tls_free(struct berth_tls *tls);
BERTH_DEFINE_AUTO(struct berth_tls *, berth_tls_free)
void berth_tls_reload(struct berth_tls *tls); /* look at the files now */

enum berth_tls_clients {
    BERTH_TLS_CLIENTS_ANY,      /* not asked for a certificate */
    BERTH_TLS_CLIENTS_MAY_SHOW, /* verified if shown; a bad one does not get in */
    BERTH_TLS_CLIENTS_MUST_SHOW,
};

/* ------------------------------------------------------------------- server */

enum berth_method_flags {
    BERTH_METHOD_PEER_ONLY = 1, /* PEER_ONLY to anybody who is not a peer */
    BERTH_METHOD_PRIORITY = 2,  /* own lane of workers: never waits behind backend calls */
    BERTH_METHOD_UNGUARDED = 4, /* evented: messages reach the callbacks unscanned; the handler
                                   decodes with berth_decode() or forwards undecoded, and shows
                                   the first one to berth_call_judge() */
    BERTH_METHOD_QUICK = 8, /* unary: never blocks, no lock held for long, microseconds; runs
                               on the thread that serves the sockets, not on the pool */
};

struct berth_method {
    const char *path; /* "/berth.binding.v1.BindingService/Acquire" */
    const ProtobufCMessageDescriptor *request;
    berth_unary_fn unary; /* exactly one of unary and open */
    berth_open_fn open;
    unsigned flags;
};

struct berth_server;

struct berth_server_options {
    struct berth_loop *loop;     /* borrowed: evented handlers run here */
    unsigned n_workers;          /* 0: 32 */
    unsigned n_priority_workers; /* 0: 4 */
    unsigned max_queued; /* unary calls waiting for a worker; 0: 1024. Over it: OVERLOADED */
    unsigned max_connections; /* 0: 1024; more are closed at accept */
    unsigned max_streams;     /* per connection; 0: 2048 */
    int64_t keepalive_ms;     /* between pings to a silent caller, which has a third of it to
                                 answer;     0: 60 s */
    size_t memory_bytes; /* of messages half received or not read yet, about; 0: 1 GiB. A last
                            resort: over it the core resets streams, no matter whose */
    bool peers_only;     /* every method but health is PEER_ONLY */
    const unsigned *peer_uids; /* besides our own effective uid and root; borrowed for _new */
    size_t n_peer_uids;
    bool insecure_dev;     /* everybody is a peer */
    struct berth_tls *tls; /* NULL: none; berth_server_listen_tls() needs it */
    enum berth_tls_clients tls_clients;
    const char *const *peer_sans; /* DNS names or URIs ("x://y") in certificates of peers,
                                     whole; borrowed for _new */
    size_t n_peer_sans;
    int64_t handshake_ms; /* a TLS connection is ready by then or closed; 0: 10 s */
};

BERTH_MUST_CHECK enum berth_code berth_server_new(const struct berth_server_options *options,
                                                  struct berth_server **ret,
                                                  struct berth_error *err);
/* Before start. methods and what they point to live as long as the server. */
BERTH_MUST_CHECK enum berth_code berth_server_add(struct berth_server *server,
                                                  const struct berth_method *methods,
                                                  size_t n_methods, void *service,
                                                  struct berth_error *err);
/* address: "127.0.0.1:7400", "[::1]:0", "unix:/path". An old socket file is replaced if nobody
 * listens there; mode 0600 (peers_only) or 0666. ret_port may be NULL. */
BERTH_MUST_CHECK enum berth_code berth_server_listen(struct berth_server *server,
                                                     const char *address, int *ret_port,
                                                     struct berth_error *err);
/* The same with TLS, on TCP only. */
BERTH_MUST_CHECK enum berth_code berth_server_listen_tls(struct berth_server *server,
                                                         const char *address, int *ret_port,
                                                         struct berth_error *err);
BERTH_MUST_CHECK enum berth_code berth_server_start(struct berth_server *server,
                                                    struct berth_error *err);
/* Who may call what (common/auth). Asked about every call but those of health. */
struct berth_gate {
    void *arg;
    /* A call has come. On the thread that serves the sockets: must not block. BERTH_DEFERRED:
     * berth_call_admit() follows, once, from any thread, perhaps before this returns. */
    enum berth_code (*enter)(void *arg, struct berth_call *call, struct berth_error *err);
    /* Its request (of a stream: the first message), decoded. Must not block. */
    enum berth_code (*judge)(void *arg, struct berth_call *call,
                             const ProtobufCMessage *request, struct berth_error *err);
};
/* Before start; borrowed as long as the server lives. Without one everybody may call what is
 * not PEER_ONLY. */
void berth_server_set_gate(struct berth_server *server, const struct berth_gate *gate);
bool berth_server_has_gate(const struct berth_server *server);
/* Lets a deferred call in (BERTH_OK), or ends it with err. */
void berth_call_admit(struct berth_call *call, enum berth_code code,
                      const struct berth_error *err);
/* What the gate says to a request. The runtime asks by itself but for UNGUARDED methods. */
BERTH_MUST_CHECK enum berth_code berth_call_judge(struct berth_call *call,
                                                  const ProtobufCMessage *request,
                                                  struct berth_error *err);
/* What the gate keeps with a call; release is called at its end. Once. */
void berth_call_set_user(struct berth_call *call, void *user, void (*release)(void *user));
void *berth_call_user(const struct berth_call *call); /* NULL: nothing */

/* Of an evented call, on the loop thread: it has begun and has not been closed. */
bool berth_call_is_open(const struct berth_call *call);
/* Ends such a call with err, whatever it is about: its handler is told as if the caller had
 * gone away. Nothing where it is ending already. */
void berth_call_cut(struct berth_call *call, enum berth_code code,
                    const struct berth_error *err);

/* Before start: fn is called on the loop thread when the server begins to stop, once. Who keeps
 * calls open for as long as the caller likes ends them there, or the stop waits for them. */
void berth_server_on_drain(struct berth_server *server, void (*fn)(void *arg), void *arg);
/* Accept no more, answer new calls DRAINING, wait up to grace_ms for calls in progress, cancel
 * the rest, join all. Not from the loop thread; the loop must be running. */
void berth_server_stop(struct berth_server *server, int64_t grace_ms);
struct berth_server *
berth_server_free(struct berth_server *server); /* stops with grace 0 first */
BERTH_DEFINE_AUTO(struct berth_server *, berth_server_free)
bool berth_server_stopping(const struct berth_server *server);
/* The workers, for evented handlers with something that blocks (file I/O). */
struct berth_pool *berth_server_pool(struct berth_server *server);

/* grpc.health.v1. service "" is the process itself. serving false: NOT_SERVING. Any thread. */
void berth_health_set(struct berth_server *server, const char *service, bool serving);
/* Registers Check and Watch; Watch holds no worker. Before start. */
BERTH_MUST_CHECK enum berth_code berth_health_add(struct berth_server *server,
                                                  struct berth_error *err);
/* grpc.reflection.v1 and v1alpha from a serialized FileDescriptorSet (borrowed for ever).
 * services: the names to list; health and reflection are added. */
BERTH_MUST_CHECK enum berth_code
berth_reflection_add(struct berth_server *server, const uint8_t *descriptor_set, size_t size,
                     const char *const *services, size_t n_services, struct berth_error *err);

/* Counters and histograms of every method as Prometheus text; owned, free(). */
char *berth_server_metrics(struct berth_server *server);

/* ------------------------------------------------------------------- client */

struct berth_channel; /* one peer; shared by all threads */

struct berth_channel_options {
    unsigned max_in_flight; /* unary calls at once, more fail with OVERLOADED; 0: no limit */
    enum berth_reason unavailable; /* reason for a peer that cannot be reached;
                                      0: PEER_UNAVAILABLE */
    struct berth_tls *tls;   /* NULL: plaintext. It needs authorities; a certificate is shown */
    const char *server_name; /* that the server's certificate must have; borrowed for _new;
                                NULL: the host of target */
};

/* target: "127.0.0.1:7403", "unix:/path". Does not connect yet. Connecting is given a second
 * and tried again with back-off up to a second; proxies of the environment are not used. On the
 * server side clients may send keepalive pings every 10 s, with or without calls; our own
 * channels do every 20 s while they have calls. */
BERTH_MUST_CHECK enum berth_code berth_channel_new(const char *target,
                                                   const struct berth_channel_options *options,
                                                   struct berth_channel **ret,
                                                   struct berth_error *err);
struct berth_channel *berth_channel_free(struct berth_channel *channel);
BERTH_DEFINE_AUTO(struct berth_channel *, berth_channel_free)

struct berth_call_options {
    int64_t timeout_ms;              /* 0: 60 s */
    const struct berth_call *parent; /* server call this belongs to: its deadline caps ours, its
                                        traceparent goes along. Or NULL */
    const struct berth_metadata *metadata;
    size_t n_metadata; /* at most 16 */
    bool idempotent;   /* UNAVAILABLE (nothing was done) is tried again within the deadline, at
                          most 3 times with back-off */
};

/* Blocking. On BERTH_OK *ret_resp is owned: protobuf_c_message_free_unpacked(resp, NULL).
 * A status without our ErrorInfo becomes OUTCOME_UNKNOWN, or unavailable where nothing was
 * sent; a bare NOT_FOUND or UNIMPLEMENTED never becomes a reason that frees anything. */
BERTH_MUST_CHECK enum berth_code
berth_channel_call(struct berth_channel *channel, const char *path, const ProtobufCMessage *req,
                   const ProtobufCMessageDescriptor *resp_type,
                   const struct berth_call_options *options, ProtobufCMessage **ret_resp,
                   struct berth_error *err);

/* The same without a waiting thread: done is called once, on pool, with resp taken (BERTH_OK)
 * or err borrowed. pool NULL: on the thread that serves the sockets, which it must not block
 * (or, where nothing was sent, before this returns). */
typedef void (*berth_done_fn)(void *arg, enum berth_code code, ProtobufCMessage *resp,
                              const struct berth_error *err);
void berth_channel_call_async(struct berth_channel *channel, const char *path,
                              const ProtobufCMessage *req,
                              const ProtobufCMessageDescriptor *resp_type,
                              const struct berth_call_options *options, struct berth_pool *pool,
                              berth_done_fn done, void *arg);

/* An evented stream (a unary method is a stream of one message each way). On the loop thread.
 * The call goes out with the first write, half-close or read; write first, if there is
 * anything. NULL only when out of memory; a peer that cannot be reached shows in .closed.
 * options->timeout_ms here: 0 = no deadline. */
struct berth_stream *berth_channel_stream(struct berth_channel *channel, const char *path,
                                          const struct berth_call_options *options,
                                          struct berth_loop *loop,
                                          const struct berth_stream_ops *ops, void *ctx);

/* In .closed of a client's stream only: the metadata of the answer. Borrowed; NULL: not sent.
 */
const void *berth_stream_metadata(const struct berth_stream *stream,
                                  enum berth_metadata_kind kind, const char *key,
                                  size_t *ret_size);

/* Connected right now? Tries to connect; waits up to wait_ms. For readiness. */
bool berth_channel_ready(struct berth_channel *channel, int64_t wait_ms);

/* Process-wide, counted; call before the first server or channel, once per _done(). The first
 * one ignores SIGPIPE (unless it is handled) and raises the soft limit of open files to at most
 * 65536; both are inherited over exec. Signals stay with the threads of the caller. _done()
 * waits for calls without a waiting thread. */
void berth_rpc_init(void);
void berth_rpc_done(void);

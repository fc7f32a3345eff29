/* stream.h - one client stream for a thread that waits: berth_stream turned inside out. */
#pragma once

#include "common/rpc/rpc.h"

struct wire_stream;

/* NULL: out of memory. */
struct wire_stream *wire_open(struct berth_channel *channel, struct berth_loop *loop,
                              const char *path, const struct berth_call_options *options);
/* False: the stream has ended, or 20 s have passed. */
bool wire_write(struct wire_stream *wire, const ProtobufCMessage *message);
void wire_half_close(struct wire_stream *wire);
void wire_begin(struct wire_stream *wire); /* send the headers, read what comes */
void wire_cancel(struct wire_stream *wire);
/* The next message, owned; NULL: there are no more. */
struct berth_buf *wire_read(struct wire_stream *wire);

struct wire_end {
    enum berth_code code;
    char message[256];
    char initial[64], trailing[64]; /* of the two test keys; hex where binary */
};
/* Reads what is left, waits for the end and frees the stream. False: it did not end in 20 s. */
bool wire_end(struct wire_stream *wire, struct wire_end *ret);

/* reader.c - which event of a command comes next for somebody who reads them. */
#include "services/adapter-local/spawner/engine.h"

/* Bytes of each stream up to the event seq, as well as they are known: exact where a chunk is
 * still kept or a reader left off there, else too low. */
static void position_at(const struct exec *exec, uint64_t seq, uint64_t ret_pos[WIRE_N_STREAMS])
{
    const struct exec_mark *best = NULL;

    for (unsigned i = 0; i < exec->n_marks && i < EXEC_MARKS; i++) {
        const struct exec_mark *mark = &exec->marks[i];

        if (mark->seq <= seq && (!best || mark->seq > best->seq))
            best = mark;
    }
    for (int s = 0; s < WIRE_N_STREAMS; s++) {
        const struct ring_chunk *chunk = ring_before(&exec->out[s].ring, seq);

        ret_pos[s] = best ? best->pos[s] : 0;
        if (chunk && chunk->start + chunk->size > ret_pos[s])
            ret_pos[s] = chunk->start + chunk->size;
    }
}

enum berth_code reader_attach(struct exec_reader *reader, struct exec *exec, uint64_t after_seq,
                              bool attached, struct berth_error *err)
{
    if (after_seq >= exec->next_seq)
        return berth_fail(
            err, BERTH_REASON_SEQ_EXPIRED, "after_seq %llu: the last event is %llu",
            (unsigned long long)after_seq, (unsigned long long)exec->next_seq - 1);
    reader->exec = exec;
    reader->cursor = after_seq + 1;
    reader->started_sent = after_seq > 0;
    reader->attached = attached;
    position_at(exec, after_seq, reader->pos);
    reader->next = exec->readers;
    exec->readers = reader;
    exec_readers_changed(exec);
    output_watch(exec);
    return BERTH_OK;
}

void reader_detach(struct exec_reader *reader)
{
    struct exec *exec = reader->exec;
    struct exec_mark *mark;
    struct exec_reader **link;

    if (!exec)
        return;
    for (link = &exec->readers; *link != reader; link = &(*link)->next) {
    }
    *link = reader->next;
    reader->exec = NULL;
    if (!exec->collect) {
        mark = &exec->marks[exec->n_marks++ % EXEC_MARKS];
        mark->seq = reader->cursor - 1;
        memcpy(mark->pos, reader->pos, sizeof mark->pos);
    }
    exec_readers_changed(exec);
    output_trim(exec);
    output_watch(exec);
}

static struct reader_event truncated(struct exec_reader *reader, enum wire_stream s,
                                     uint64_t seq, uint64_t to)
{
    struct reader_event event = {.kind = READER_TRUNCATED, .stream = s};

    event.truncated = (struct wire_truncated){
        .seq = seq, .from_seq = reader->cursor, .dropped = to - reader->pos[s], .stream = s};
    return event;
}

struct reader_event reader_next(struct exec_reader *reader)
{
    struct reader_event event = {.kind = READER_NOTHING};
    struct exec *exec = reader->exec;
    bool done = exec->state == EXEC_DONE;
    struct ring_chunk *chunk = NULL;

    /* Of a collected command nothing is told before its end, not even that it runs: its caller
     * would be woken for nothing. */
    if (exec->state == EXEC_SPAWNING || (exec->collect && !done))
        return event;
    if (!reader->started_sent && exec->started) {
        event.kind = READER_STARTED;
        return event;
    }
    for (int s = 0; s < WIRE_N_STREAMS; s++) {
        struct ring_chunk *found = ring_find(&exec->out[s].ring, reader->cursor);

        if (found && (!chunk || found->seq < chunk->seq)) {
            chunk = found;
            event.stream = (enum wire_stream)s;
        }
    }
    if (chunk) {
        if (reader->pos[event.stream] < chunk->start)
            return truncated(reader, event.stream, chunk->seq - 1, chunk->start);
        ring_share(&exec->out[event.stream].ring, chunk);
        event.kind = READER_OUTPUT;
        event.chunk = chunk;
        return event;
    }
    for (int s = 0; s < WIRE_N_STREAMS; s++) {
        uint64_t total = exec->out[s].ring.total;
        bool capped = exec->max_output > 0 && total > exec->max_output;

        /* Over the limit: said when it begins, and summed up at the end. */
        if (reader->pos[s] < total && (done || (capped && !reader->cap_told[s])))
            return truncated(reader, (enum wire_stream)s, reader->cursor - 1, total);
    }
    if (done)
        event.kind = READER_EXITED;
    return event;
}

void reader_done(struct exec_reader *reader, const struct reader_event *event)
{
    enum wire_stream s = event->stream;

    switch (event->kind) {
    case READER_STARTED:
        reader->started_sent = true;
        if (reader->cursor < 2)
            reader->cursor = 2;
        break;
    case READER_OUTPUT:
        reader->cursor = event->chunk->seq + 1;
        reader->pos[s] = event->chunk->start + event->chunk->size;
        break;
    case READER_TRUNCATED:
        reader->pos[s] += event->truncated.dropped;
        if (reader->cursor <= event->truncated.seq)
            reader->cursor = event->truncated.seq + 1;
        if (reader->exec->max_output > 0 && reader->pos[s] >= reader->exec->max_output)
            reader->cap_told[s] = true;
        break;
    default:
        break;
    }
}

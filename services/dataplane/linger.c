/* linger.c - commands that were detached go on when their stream has ended, and so does their
 * use of the sandbox: the adapter is asked now and then whether one still runs, and as long as
 * it says so a use token stands for it. Only for those that have a time limit: what was to run
 * for ever would keep an old image, and a session past its lifetime, for ever. While the
 * sandbox is paused nothing runs, and no token keeps it from its end.
 *
 * All of it is this process' memory. After a restart nothing keeps a rebuild from what was
 * detached before; from idling the adapter keeps it by itself. */
#include "services/dataplane/stream.h"

#include "common/messages/messages.h"
#include "common/time/time.h"

enum {
    LINGERS_MAX = 4096, /* more are let go */
    LOOKS_MAX = 64,     /* in flight */
    LOOK_TIMEOUT_MS = 10000,
    FAILED_MAX = 3, /* looks without an answer, one after the other: nothing is known */
};

struct dp_linger {
    struct dataplane *dp;
    struct dp_linger *prev, *next;
    struct dp_peer *adapter; /* borrowed: it lives as long as dp */
    uint8_t *packed;         /* the route; owned */
    size_t packed_size;
    Berth__Common__V1__SessionRef *session; /* owned */
    char *sandbox_id, *exec_id;
    struct dp_use *use; /* or NULL */
    struct dp_unary *look;
    int64_t next_tick_ms;
    unsigned n_failed;
};

static void linger_free(struct dp_linger *linger)
{
    struct dataplane *dp = linger->dp;

    if (linger->prev)
        linger->prev->next = linger->next;
    else
        dp->lingers = linger->next;
    if (linger->next)
        linger->next->prev = linger->prev;
    dp->n_lingers--;
    if (linger->look) {
        dp_unary_cancel(linger->look);
        dp->n_looks--;
    }
    dp_use_end(linger->use);
    berth_message_free(linger->session);
    free(linger->packed);
    free(linger->sandbox_id);
    free(linger->exec_id);
    free(linger);
}

void dp_linger_begin(struct dp_stream *s)
{
    struct dataplane *dp = s->dp;
    struct dp_linger *linger =
        dp->drained || dp->n_lingers >= LINGERS_MAX ? NULL : calloc(1, sizeof *linger);

    if (!linger)
        return;
    *linger = (struct dp_linger){.dp = dp,
                                 .next = dp->lingers,
                                 .adapter = s->adapter,
                                 .packed = BERTH_STEAL(s->packed),
                                 .packed_size = s->packed_size,
                                 .session = berth_message_copy(s->route_req->session),
                                 .sandbox_id = BERTH_STEAL(s->sandbox_id),
                                 .exec_id = BERTH_STEAL(s->exec_id),
                                 .use = BERTH_STEAL(s->use)};
    linger->next_tick_ms = berth_tick_ms() + dp->options.use_after_ms;
    if (linger->next)
        linger->next->prev = linger;
    dp->lingers = linger;
    dp->n_lingers++;
    if (!linger->session)
        linger_free(linger);
    else
        dp_sweep_arm(dp);
}

/* -------------------------------------------------------------------- looking */

static bool runs(const struct dp_linger *linger,
                 const Berth__Data__V1__ListProcessesResponse *list)
{
    for (size_t i = 0; i < list->n_processes; i++)
        if (strcmp(list->processes[i]->exec_id, linger->exec_id) == 0)
            return !list->processes[i]->exited;
    return false;
}

static enum berth_reason reason_of(const struct berth_status *status)
{
    struct berth_error err = {0};

    if (status && status->details)
        (void)berth_status_to_error(status, &err);
    return err.reason;
}

static void let_go(struct dp_linger *linger)
{
    dp_use_end(linger->use);
    linger->use = NULL;
}

static void looked(void *arg, enum berth_code code, ProtobufCMessage *resp,
                   const struct berth_status *status, const struct berth_error *err)
{
    struct dp_linger *linger = arg;
    struct dataplane *dp = linger->dp;
    enum berth_reason reason = code ? reason_of(status) : BERTH_REASON_NONE;
    bool over = code ? reason == BERTH_REASON_SANDBOX_NOT_FOUND ||
                           reason == BERTH_REASON_SANDBOX_TERMINAL
                     : !runs(linger, (const Berth__Data__V1__ListProcessesResponse *)resp);

    (void)err;
    linger->look = NULL;
    dp->n_looks--;
    berth_message_free(resp);
    linger->n_failed = code ? linger->n_failed + 1 : 0;
    linger->next_tick_ms =
        berth_tick_ms() + (code ? dp->options.use_after_ms : dp->options.use_renew_ms);
    if (over)
        linger_free(linger);
    else if (reason == BERTH_REASON_SANDBOX_PAUSED || linger->n_failed >= FAILED_MAX)
        let_go(linger);
    else if (!code && !linger->use)
        linger->use = dp_use_begin(dp, linger->session, linger->sandbox_id);
}

static void look(struct dp_linger *linger)
{
    Berth__Data__V1__ListProcessesRequest req = BERTH__DATA__V1__LIST_PROCESSES_REQUEST__INIT;
    struct berth_metadata metadata = {"berth-route-bin", linger->packed, linger->packed_size};
    struct berth_call_options options = {
        .timeout_ms = LOOK_TIMEOUT_MS, .metadata = &metadata, .n_metadata = 1};
    struct dataplane *dp = linger->dp;
    struct berth_error err = {0};

    req.session = linger->session;
    req.exec_id = linger->exec_id;
    linger->look = dp_unary_start(
        dp, linger->adapter, "/berth.data.v1.ProcessService/ListProcesses", &req.base,
        &berth__data__v1__list_processes_response__descriptor, &options, looked, linger, &err);
    if (linger->look)
        dp->n_looks++;
    linger->next_tick_ms = berth_tick_ms() + dp->options.use_renew_ms;
}

void dp_lingers_sweep(struct dataplane *dp, int64_t tick_ms)
{
    for (struct dp_linger *linger = dp->lingers; linger && dp->n_looks < LOOKS_MAX;
         linger = linger->next)
        if (!linger->look && tick_ms >= linger->next_tick_ms)
            look(linger);
}

void dp_lingers_abandon(struct dataplane *dp)
{
    while (dp->lingers)
        linger_free(dp->lingers);
}

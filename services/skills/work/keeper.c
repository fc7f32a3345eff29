/* keeper.c - the turn of a maintenance session, renewed on the loop. */
#include <pthread.h>

#include "common/log/log.h"
#include "common/messages/messages.h"
#include "services/skills/work/inside.h"

enum { RENEW_MAX_MS = 10000 };

struct work_keeper {
    struct skills *skills;
    Berth__Control__V1__RenewTurnRequest *req;
    int64_t every_ms;
    struct berth_timer *timer;    /* the loop's */
    bool is_calling, is_stopping; /* the loop's */
    struct berth_post post;       /* of the answer */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool is_gone; /* under mutex: the loop has let go of it */
};

static void fire(void *arg);

static void let_go(struct work_keeper *keeper)
{
    pthread_mutex_lock(&keeper->mutex);
    keeper->is_gone = true;
    pthread_cond_signal(&keeper->cond);
    pthread_mutex_unlock(&keeper->mutex);
}

static void wind(void *arg)
{
    struct work_keeper *keeper = arg;

    keeper->is_calling = false;
    if (keeper->is_stopping) {
        let_go(keeper);
        return;
    }
    keeper->timer =
        berth_loop_timer(keeper->skills->runtime->loop, keeper->every_ms, fire, keeper);
    if (!keeper->timer)
        berth_warn("no memory to renew a maintenance session's turn", "session",
                   keeper->req->session->session_id);
}

static void renewed(void *arg, enum berth_code code, ProtobufCMessage *resp,
                    const struct berth_error *err)
{
    struct work_keeper *keeper = arg;

    if (code)
        berth_warn("a maintenance session's turn was not renewed", "session",
                   keeper->req->session->session_id, "error", err->text);
    berth_message_free(resp);
    berth_loop_post_entry(keeper->skills->runtime->loop, &keeper->post, wind, keeper);
}

static void fire(void *arg)
{
    static const struct berth_call_options options = {.timeout_ms = RENEW_MAX_MS,
                                                      .idempotent = true};
    struct work_keeper *keeper = arg;

    keeper->timer = NULL;
    keeper->is_calling = true;
    berth_channel_call_async(keeper->skills->controlplane,
                             "/berth.control.v1.SessionService/RenewTurn", &keeper->req->base,
                             &berth__control__v1__renew_turn_response__descriptor, &options,
                             NULL, renewed, keeper);
}

static void stop(void *arg)
{
    struct work_keeper *keeper = arg;

    keeper->is_stopping = true;
    keeper->timer = berth_timer_cancel(keeper->timer);
    if (!keeper->is_calling)
        let_go(keeper);
}

struct work_keeper *work_keeper_new(struct skills *skills,
                                    const Berth__Common__V1__SessionRef *session,
                                    const char *token, int64_t every_ms)
{
    struct work_keeper *keeper = calloc(1, sizeof *keeper);

    if (!keeper)
        return NULL;
    keeper->skills = skills;
    keeper->every_ms = every_ms;
    keeper->req = berth_message_new(&berth__control__v1__renew_turn_request__descriptor);
    if (keeper->req)
        keeper->req->session = berth_message_copy(session);
    if (!keeper->req || !keeper->req->session ||
        !berth_set_string(&keeper->req->turn_token, token)) {
        berth_message_free(keeper->req);
        free(keeper);
        return NULL;
    }
    pthread_mutex_init(&keeper->mutex, NULL);
    pthread_cond_init(&keeper->cond, NULL);
    berth_loop_post(skills->runtime->loop, wind, keeper);
    return keeper;
}

struct work_keeper *work_keeper_free(struct work_keeper *keeper)
{
    if (!keeper)
        return NULL;
    berth_loop_post(keeper->skills->runtime->loop, stop, keeper);
    pthread_mutex_lock(&keeper->mutex);
    while (!keeper->is_gone)
        pthread_cond_wait(&keeper->cond, &keeper->mutex);
    pthread_mutex_unlock(&keeper->mutex);
    pthread_cond_destroy(&keeper->cond);
    pthread_mutex_destroy(&keeper->mutex);
    berth_message_free(keeper->req);
    free(keeper);
    return NULL;
}

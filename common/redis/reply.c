/* reply.c - replies as hiredis' parser hands them over. */
#include <hiredis/hiredis.h>

#include "common/redis/internal.h"

enum { ITEMS_MAX = 1 << 20 };

/* hiredis builds from the outside in: hang the new node into its parent. */
static void *hang(const redisReadTask *task, struct berth_reply *reply)
{
    if (reply && task->parent) {
        struct berth_reply *parent = task->parent->obj;

        parent->items[task->idx] = reply;
    }
    return reply;
}

static void *make_string(const redisReadTask *task, char *text, size_t size)
{
    struct berth_reply *reply = calloc(1, sizeof *reply);

    if (!reply)
        return NULL;
    reply->string = malloc(size + 1);
    if (!reply->string)
        return berth_reply_free(reply);
    memcpy(reply->string, text, size);
    reply->string[size] = 0;
    reply->size = size;
    reply->type = BERTH_REPLY_STRING;
    if (task->type == REDIS_REPLY_ERROR)
        reply->type = (enum berth_reply_type)REDIS_REPLY_IS_ERROR;
    return hang(task, reply);
}

static void *make_array(const redisReadTask *task, int n)
{
    struct berth_reply *reply;

    if (n < 0 || n > ITEMS_MAX)
        return NULL;
    reply = calloc(1, sizeof *reply);
    if (!reply)
        return NULL;
    reply->type = BERTH_REPLY_ARRAY;
    reply->items = calloc((size_t)n + 1, sizeof *reply->items);
    if (!reply->items)
        return berth_reply_free(reply);
    reply->n_items = (size_t)n;
    return hang(task, reply);
}

static void *make_integer(const redisReadTask *task, long long value)
{
    struct berth_reply *reply = calloc(1, sizeof *reply);

    if (!reply)
        return NULL;
    reply->type = BERTH_REPLY_INTEGER;
    reply->integer = value;
    return hang(task, reply);
}

static void *make_nil(const redisReadTask *task)
{
    return hang(task, calloc(1, sizeof(struct berth_reply)));
}

static void drop(void *reply)
{
    berth_reply_free(reply);
}

struct redisReader *redis_reader_new(void)
{
    static redisReplyObjectFunctions makers = {
        .createString = make_string,
        .createArray = make_array,
        .createInteger = make_integer,
        .createNil = make_nil,
        .freeObject = drop,
    };

    return redisReaderCreateWithFunctions(&makers);
}

struct berth_reply *berth_reply_free(struct berth_reply *reply)
{
    if (!reply)
        return NULL;
    for (size_t i = 0; i < reply->n_items; i++)
        berth_reply_free(reply->items[i]); /* at most as deep as hiredis nests: 9 */
    free(reply->items);
    free(reply->string);
    free(reply);
    return NULL;
}

const char *redis_reply_error(const struct berth_reply *reply)
{
    const char *error = NULL;

    if ((int)reply->type == REDIS_REPLY_IS_ERROR)
        return reply->string;
    for (size_t i = 0; i < reply->n_items && !error; i++)
        error = redis_reply_error(reply->items[i]);
    return error;
}

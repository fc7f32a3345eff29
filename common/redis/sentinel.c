/* sentinel.c - asking Sentinels for the master. What they say is believed only once the server
 * itself says that it is one. */
#include "common/redis/internal.h"
#include "common/time/time.h"

static enum berth_code not_known(const struct redis_address *address, const char *why,
                                 struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "sentinel at %s: %s", address->shown,
                      why);
}

static bool is_address(const struct berth_reply *reply)
{
    return reply->type == BERTH_REPLY_ARRAY && reply->n_items == 2 &&
           reply->items[0]->type == BERTH_REPLY_STRING &&
           reply->items[1]->type == BERTH_REPLY_STRING;
}

static enum berth_code ask_one(const struct redis_sentinels *sentinels,
                               const struct redis_address *address, int64_t until_tick,
                               struct redis_address *ret, struct berth_error *err)
{
    const struct redis_login login = {address, sentinels->username, sentinels->password,
                                      sentinels->tls};
    const char *argv[] = {"SENTINEL", "get-master-addr-by-name", sentinels->source->master};
    const struct redis_command command = {3, argv, NULL};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    struct redis_conn *conn = NULL;
    bool sent;
    enum berth_code code = redis_conn_dial(&login, until_tick, &conn, err);

    if (code)
        return code;
    if (redis_conn_exchange(conn, &command, 1, until_tick, &reply, &sent, NULL))
        code = not_known(address, "no answer", err);
    else if (redis_reply_error(reply))
        code = not_known(address, "refuses to name the master", err);
    else if (!is_address(reply))
        code = not_known(address, "knows no master of that name", err);
    else if (!redis_set_address(ret, reply->items[0]->string, reply->items[1]->string,
                                address->db))
        code = not_known(address, "gives no address", err);
    redis_conn_close(conn);
    return code;
}

enum berth_code redis_ask_sentinels(struct redis_sentinels *sentinels, int64_t until_tick,
                                    struct redis_address *ret, struct berth_error *err)
{
    size_t n = sentinels->source->n, first = sentinels->first;
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; i < n; i++) {
        size_t which = (first + i) % n;
        int64_t now = berth_tick_ms();
        /* One that hangs leaves time for the rest. */
        int64_t until = now + (until_tick - now) / (int64_t)(i + 1 < n ? 2 : 1);

        code = ask_one(sentinels, &sentinels->source->at[which], until, ret, err);
        if (!code) {
            sentinels->first = which;
            return BERTH_OK;
        }
    }
    return code;
}

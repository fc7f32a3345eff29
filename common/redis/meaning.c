/* meaning.c - what each of Redis' errors means to us. A client of the suite hears our text,
 * never Redis'; the operator finds Redis' own in the log. */
#include <pthread.h>
#include <stdio.h>

#include "common/log/log.h"
#include "common/redis/internal.h"
#include "common/time/time.h"

enum { LOG_PAUSE_MS = 10000 };

#define AWAY BERTH_REASON_STORE_UNAVAILABLE
#define BUG BERTH_REASON_INTERNAL_BUG

/* STORE_UNAVAILABLE is promised only where Redis has refused the command before it did
 * anything. None of these is sent again by itself but READONLY, and that to another server. */
static const struct {
    const char *start; /* of the error: its first word, or more */
    enum redis_advice advice;
    enum berth_reason reason;
    const char *text;
} meanings[] = {
    {"LOADING", REDIS_LEAVE, AWAY, "the store is starting and still loads its data"},
    {"READONLY", REDIS_ASK_ANOTHER, AWAY, "the store has become a replica and takes no writes"},
    {"MASTERDOWN", REDIS_LEAVE, AWAY, "the store is a replica that has lost its master"},
    {"UNBLOCKED", REDIS_LEAVE, AWAY, "the store has become a replica"},
    {"NOREPLICAS", REDIS_DOUBT, AWAY,
     "the store has too few replicas (min-replicas-to-write) and takes no writes"},
    {"MISCONF", REDIS_STAY, AWAY, "the store cannot save to its disk and takes no writes"},
    {"OOM", REDIS_STAY, AWAY, "the store is out of memory (maxmemory) and takes nothing new"},
    {"BUSY", REDIS_STAY, AWAY, "the store is busy with a script of somebody's"},
    {"NOAUTH", REDIS_LEAVE, AWAY, "the store wants credentials"},
    {"WRONGPASS", REDIS_LEAVE, AWAY, "the store refuses the credentials"},
    {"NOPERM", REDIS_LEAVE, AWAY, "the store's ACL does not allow this to the credentials"},
    {"ERR max number of clients", REDIS_LEAVE, AWAY, "the store has too many clients"},
    {"CLUSTERDOWN", REDIS_STAY, AWAY, "the store's cluster is down"},
    {"TRYAGAIN", REDIS_STAY, AWAY, "the store is moving the tenant to another shard"},
    {"MOVED", REDIS_LEAVE, AWAY, "the store is a Redis Cluster, which is not served"},
    {"ASK", REDIS_LEAVE, AWAY, "the store is a Redis Cluster, which is not served"},
    {"NOSCRIPT", REDIS_LEAVE, AWAY, "the store forgets the scripts it is given"},
    {"EXECABORT", REDIS_LEAVE, BUG, "the store gave up a transaction, and none is ever begun"},
    {"WRONGTYPE", REDIS_STAY, BUG, "a key of the store holds another type than was written"},
    {"CROSSSLOT", REDIS_STAY, BUG, "keys of more than one slot"},
};

/* Redis 7 says so of a script that an operator ended; it can only do so before its first write.
 */
static const char KILLED[] = "Script killed by user";

static int find(const char *text)
{
    for (size_t i = 0; i < BERTH_COUNT(meanings); i++) {
        size_t len = strlen(meanings[i].start);

        if (strncmp(text, meanings[i].start, len) == 0 && (!text[len] || text[len] == ' '))
            return (int)i;
    }
    return -1;
}

enum redis_advice redis_advice(const char *text)
{
    int known = find(text);

    return known >= 0 ? meanings[known].advice : REDIS_STAY;
}

/* Not more often than an operator can read, whatever the load. */
void redis_log_error(const char *text)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static int64_t next_tick;
    static char last[64];
    const char *args = strstr(text, ", with args"); /* they are ours, and may be secret */
    int64_t now = berth_tick_ms();
    char shown[256], start[64];
    bool due;

    snprintf(start, sizeof start, "%.*s", (int)strcspn(text, " "), text);
    pthread_mutex_lock(&mutex);
    due = now >= next_tick || strcmp(last, start) != 0;
    if (due) {
        next_tick = now + LOG_PAUSE_MS;
        memcpy(last, start, sizeof last);
    }
    pthread_mutex_unlock(&mutex);
    if (!due)
        return;
    snprintf(shown, sizeof shown, "%.*s", (int)(args ? (size_t)(args - text) : strlen(text)),
             text);
    berth_warn("the store has an error", "error", shown);
}

enum berth_code redis_map_error(const char *text, struct berth_error *err)
{
    int known = find(text);

    redis_log_error(text);
    if (known >= 0)
        return berth_fail(err, meanings[known].reason, "redis: %s", meanings[known].text);
    if (strstr(text, KILLED))
        return berth_fail(err, AWAY, "redis: a script was killed before it had written");
    return berth_fail(err, BUG, "redis: an error that nobody expected, see the log");
}

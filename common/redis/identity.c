/* identity.c - who a server says it is. */
#include "common/redis/internal.h"

/* The value of a line "name:value\r\n"; false: there is none of size characters. */
static bool find_hex(const char *info, const char *name, char ret[BERTH_REDIS_RUN_ID_SIZE])
{
    enum { LEN = BERTH_REDIS_RUN_ID_SIZE - 1 };
    const char *at = strstr(info, name);

    if (!at)
        return false;
    at += strlen(name);
    if (strspn(at, "0123456789abcdef") != LEN)
        return false;
    memcpy(ret, at, LEN);
    ret[LEN] = '\0';
    return true;
}

bool redis_identity_parse(const char *info, struct redis_identity *ret)
{
    char before[BERTH_REDIS_RUN_ID_SIZE];

    *ret = (struct redis_identity){0};
    if (!find_hex(info, "\nrun_id:", ret->run_id) ||
        !find_hex(info, "\nmaster_replid:", ret->history) ||
        !find_hex(info, "\nmaster_replid2:", before))
        return false;
    ret->is_master = strstr(info, "\nrole:master\r\n") != NULL;
    ret->was_replica = strspn(before, "0") != strlen(before);
    return true;
}

/* A server begins a history of its own also when it gets its first replica; then nothing is
 * missing, and it names no predecessor. */
bool redis_identity_differs(const struct redis_identity *before,
                            const struct redis_identity *now)
{
    if (strcmp(before->run_id, now->run_id) != 0)
        return true;
    return strcmp(before->history, now->history) != 0 && now->was_replica;
}

/* keys.c - the suite's keys, which seal the journal: read again when their file changes. */
#include <sys/stat.h>

#include "common/log/log.h"
#include "services/skills/skills.h"

enum berth_code skills_keys_reload(struct skills *skills, struct berth_error *err)
{
    struct berth_keyring *next = NULL;
    enum berth_code code;

    if (!skills->keyring)
        return BERTH_OK;
    code = berth_keyring_load(&skills->key_source, &next, err);
    if (code)
        return code;
    if (berth_keyring_equal(skills->keyring, next)) {
        berth_keyring_free(next);
        return BERTH_OK;
    }
    code = berth_records_rekey(skills->records, skills->keyring, next, err);
    if (!code)
        berth_info("the suite's keys have changed");
    return code;
}

void skills_keys_look(struct skills *skills)
{
    struct berth_error err = {0};
    struct stat now;

    if (!skills->keyring || !skills->key_source.file || !*skills->key_source.file ||
        stat(skills->key_source.file, &now) < 0)
        return;
    if (now.st_ino == skills->keys_seen.st_ino && now.st_size == skills->keys_seen.st_size &&
        now.st_mtim.tv_sec == skills->keys_seen.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == skills->keys_seen.st_mtim.tv_nsec)
        return;
    skills->keys_seen = now;
    if (skills_keys_reload(skills, &err))
        berth_log_error("the keys were not read again, going on with those of before", "error",
                        err.text);
}

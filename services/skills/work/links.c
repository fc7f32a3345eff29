#include "services/skills/work/links.h"

#include <string.h>

#include "common/base/base.h"
#include "services/skills/bundle/plan.h"

enum { PATH_BYTES_MAX = 8192 };

static const char *const system_paths[] = {
    "/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/etc/alternatives/", "/etc/ssl/certs/"};

/* The next part of a path, *ret_len bytes; NULL: there is none. Empty parts and "." are none.
 */
static const char *next_part(const char **at, size_t *ret_len)
{
    const char *part;

    do {
        *at += strspn(*at, "/");
        part = *at;
        *ret_len = strcspn(part, "/");
        *at += *ret_len;
    } while (*ret_len == 1 && part[0] == '.');
    return *ret_len ? part : NULL;
}

static bool is_up(const char *part, size_t len)
{
    return len == 2 && part[0] == '.' && part[1] == '.';
}

static bool is_system(const char *path)
{
    if (strcmp(path, "/dev/null") == 0)
        return true;
    for (size_t i = 0; i < BERTH_COUNT(system_paths); i++)
        if (strncmp(path, system_paths[i], strlen(system_paths[i])) == 0)
            return true;
    return false;
}

enum link_verdict link_judge(const char *path, const char *target)
{
    char out[PATH_BYTES_MAX] = "";
    const char *skill_end = strchr(path, '/'), *part;
    size_t size = 0, len, n_own;
    bool went_down = false;

    if (!skill_end || !*target ||
        sizeof PLAN_SKILLS_DIR + strlen(path) + strlen(target) + 2 > sizeof out)
        return LINK_OUTSIDE;
    n_own = sizeof PLAN_SKILLS_DIR + (size_t)(skill_end - path);
    if (*target != '/') {
        memcpy(out, PLAN_SKILLS_DIR "/", sizeof PLAN_SKILLS_DIR);
        size = sizeof PLAN_SKILLS_DIR;
        len = (size_t)(strrchr(path, '/') - path);
        memcpy(out + size, path, len);
        size += len;
        out[size] = 0;
    }
    while ((part = next_part(&target, &len))) {
        if (is_up(part, len)) {
            const char *slash = memrchr(out, '/', size);

            if (went_down)
                return LINK_WINDING;
            size = slash ? (size_t)(slash - out) : 0;
        } else {
            went_down = true;
            out[size++] = '/';
            memcpy(out + size, part, len);
            size += len;
        }
        out[size] = 0;
    }
    if (strncmp(out, PLAN_SKILLS_DIR "/", sizeof PLAN_SKILLS_DIR) == 0 &&
        strncmp(out + sizeof PLAN_SKILLS_DIR, path, (size_t)(skill_end - path)) == 0 &&
        (out[n_own] == 0 || out[n_own] == '/'))
        return LINK_INSIDE;
    return is_system(out) ? LINK_SYSTEM : LINK_OUTSIDE;
}

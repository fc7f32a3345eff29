#include "services/skills/bundle/path.h"

#include <string.h>
#include <strings.h>

#include "services/skills/bundle/text.h"

static bool has_control(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c < 0x20 || *c == 0x7f || (*c == 0xc2 && c[1] < 0xa0))
            return true;
    return false;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool refuse(enum finding_code *ret_why, enum finding_code why)
{
    *ret_why = why;
    return false;
}

/* One component of len bytes behind what is in buf already. */
static bool add(char *buf, size_t *used, unsigned *depth, const char *name, size_t len,
                enum finding_code *ret_why)
{
    if (len == 0 || (len == 1 && *name == '.'))
        return true;
    if (len == 2 && name[0] == '.' && name[1] == '.')
        return refuse(ret_why, FINDING_PATH_ESCAPES);
    if (len > BUNDLE_NAME_MAX || *used + 1 + len > BUNDLE_PATH_MAX)
        return refuse(ret_why, FINDING_PATH_LONG);
    if (++*depth > BUNDLE_DEPTH_MAX)
        return refuse(ret_why, FINDING_PATH_DEEP);
    if (*used > 0)
        buf[(*used)++] = '/';
    memcpy(buf + *used, name, len);
    *used += len;
    buf[*used] = 0;
    return true;
}

bool path_clean(const char *raw, char buf[BUNDLE_PATH_MAX + 1], enum finding_code *ret_why)
{
    size_t used = 0, size = raw ? strlen(raw) : 0;
    unsigned depth = 0;

    buf[0] = 0;
    if (!raw || text_bad_byte(raw, size) != size)
        return refuse(ret_why, FINDING_PATH_ENCODING);
    if (has_control(raw))
        return refuse(ret_why, FINDING_PATH_CONTROL);
    if (strchr(raw, '\\'))
        return refuse(ret_why, FINDING_PATH_BACKSLASH);
    if (*raw == '/')
        return refuse(ret_why, FINDING_PATH_ABSOLUTE);
    if (is_letter(raw[0]) && raw[1] == ':')
        return refuse(ret_why, FINDING_PATH_DRIVE);
    for (const char *at = raw;;) {
        size_t len = strcspn(at, "/");

        if (!add(buf, &used, &depth, at, len, ret_why))
            return false;
        if (!at[len])
            return true;
        at += len + 1;
    }
}

const char *path_reason(enum finding_code why)
{
    switch (why) {
    case FINDING_PATH_ENCODING:
        return "the name is not UTF-8";
    case FINDING_PATH_CONTROL:
        return "a control character stands in the name";
    case FINDING_PATH_BACKSLASH:
        return "a backslash stands in the name; folders are separated by '/'";
    case FINDING_PATH_ABSOLUTE:
        return "the path is absolute";
    case FINDING_PATH_DRIVE:
        return "the path begins with a drive letter";
    case FINDING_PATH_ESCAPES:
        return "the path holds '..'";
    case FINDING_PATH_LONG:
        return "the path is longer than 1024 bytes, or a name in it longer than 255";
    case FINDING_PATH_DEEP:
        return "the path is deeper than 16 folders";
    default:
        return "";
    }
}

const char *path_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Is one of the components of path this name? */
static bool has_component(const char *path, const char *name)
{
    size_t len = strlen(name);

    for (const char *at = path; *at;) {
        size_t here = strcspn(at, "/");

        if (here == len && memcmp(at, name, len) == 0)
            return true;
        at += here + (at[here] == '/');
    }
    return false;
}

bool path_is_litter(const char *path)
{
    static const char *const names[] = {".DS_Store", "Thumbs.db", "desktop.ini"};
    const char *base = path_base(path);

    if (has_component(path, "__MACOSX") || strncmp(base, "._", 2) == 0)
        return true;
    for (size_t i = 0; i < BERTH_COUNT(names); i++)
        if (strcasecmp(base, names[i]) == 0)
            return true;
    return false;
}

bool path_is_environment(const char *path)
{
    return has_component(path, ".venv");
}

bool path_is_archive(const char *path)
{
    static const char *const ends[] = {".zip",     ".tar",    ".tgz",     ".tar.gz",
                                       ".tar.zst", ".tar.xz", ".tar.bz2", ".7z",
                                       ".rar",     ".jar",    ".skill"};
    size_t len = strlen(path);

    for (size_t i = 0; i < BERTH_COUNT(ends); i++)
        if (len > strlen(ends[i]) && strcasecmp(path + len - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

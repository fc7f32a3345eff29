/* extras.c - the keys of ours, under metadata, where the format has room for them: berth-apt,
 * berth-env, berth-self-test. */
#include "services/skills/bundle/skill_keys.h"

enum { WORD_MAX = 1024 };

/* Words of a string separated by blanks (split), or the items of a list, each to add(). */
static bool each_word(const json_t *value, bool split, struct skill_list *ret)
{
    size_t i;
    json_t *item;

    if (json_is_array(value)) {
        json_array_foreach(value, i, item)
        {
            if (!json_is_string(item) ||
                !skill_list_add(ret, json_string_value(item), json_string_length(item)))
                return false;
        }
        return true;
    }
    if (!json_is_string(value))
        return false;
    for (const char *at = json_string_value(value); split && *at;) {
        size_t gap = strspn(at, " \t\r\n,"), len = strcspn(at + gap, " \t\r\n,");

        if (len > 0 && !skill_list_add(ret, at + gap, len))
            return false;
        at += gap + len;
    }
    return true;
}

/* name or name=version, as apt-get has them: nothing that it could take for an option, a
 * pattern, or a removal ("vim-"). */
static bool is_package(const char *text)
{
    static const char name[] = "abcdefghijklmnopqrstuvwxyz0123456789+.-";
    static const char version[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-:~";
    size_t len = strspn(text, name);

    if (len < 2 || len > 100 || !strchr("abcdefghijklmnopqrstuvwxyz0123456789", *text) ||
        text[len - 1] == '-')
        return false;
    if (text[len] == 0)
        return true;
    if (text[len] != '=')
        return false;
    text += len + 1;
    return *text && strlen(text) <= 100 && strspn(text, version) == strlen(text);
}

static void read_apt(struct skill_reading *reading, const json_t *value)
{
    struct skill_list *apt = &reading->skill->apt;

    if (!each_word(value, true, apt)) {
        SKILL_SAY(reading, FINDING_APT_INVALID, "metadata",
                  "metadata.berth-apt must be names of Debian packages, or a list of them");
        return;
    }
    if (apt->n > SKILL_APT_MAX)
        SKILL_SAY(reading, FINDING_APT_INVALID, "metadata",
                  "metadata.berth-apt names more than %d packages, the limit", SKILL_APT_MAX);
    for (size_t i = 0; i < apt->n; i++)
        if (!is_package(apt->items[i]))
            SKILL_SAY(reading, FINDING_APT_INVALID, "metadata",
                      "metadata.berth-apt: '%s' is no name of a Debian package", apt->items[i]);
}

static bool is_env_name(const char *text)
{
    size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");

    return len > 0 && len <= 128 && text[len] == 0 && !(*text >= '0' && *text <= '9');
}

static bool is_reserved(const char *name)
{
    static const char *const names[] = {"PATH",       "HOME",       "USER",
                                        "SHELL",      "LD_PRELOAD", "LD_LIBRARY_PATH",
                                        "PYTHONPATH", "PYTHONHOME", "NODE_OPTIONS",
                                        "NODE_PATH",  "LD_AUDIT",   "BASH_ENV",
                                        "ENV",        "IFS"};

    for (size_t i = 0; i < BERTH_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return strncmp(name, "BERTH_", 6) == 0;
}

static void read_env(struct skill_reading *reading, const json_t *value)
{
    struct skill_list *env = &reading->skill->env_names;
    size_t kept = 0;

    if (!each_word(value, true, env))
        SKILL_SAY(reading, FINDING_ENV_INVALID, "metadata",
                  "metadata.berth-env must be names of variables, or a list of them");
    for (size_t i = 0; i < env->n; i++) {
        char *name = env->items[i];

        if (is_env_name(name) && !is_reserved(name) && kept < SKILL_ENV_MAX) {
            env->items[kept++] = name;
            continue;
        }
        SKILL_SAY(reading, FINDING_ENV_INVALID, "metadata",
                  "metadata.berth-env: '%s' is %s; it is left out", name,
                  !is_env_name(name)  ? "not a name of capitals, digits and '_'"
                  : is_reserved(name) ? "reserved"
                                      : "one more than the 20 that may be");
        free(name);
    }
    env->n = kept;
}

static void read_self_test(struct skill_reading *reading, const json_t *value)
{
    struct skill_list *argv = &reading->skill->self_test;
    bool ok = each_word(value, false, argv);

    if (ok && json_is_string(value) && json_string_length(value) > 0)
        ok = skill_list_add(argv, "/bin/sh", 7) && skill_list_add(argv, "-c", 2) &&
             skill_list_add(argv, json_string_value(value), json_string_length(value));
    for (size_t i = 0; ok && i < argv->n; i++)
        ok = strlen(argv->items[i]) <= WORD_MAX && (i > 0 || *argv->items[i]);
    if (!ok || argv->n > SKILL_SELF_TEST_MAX)
        SKILL_SAY(
            reading, FINDING_SELF_TEST_INVALID, "metadata",
            "metadata.berth-self-test must be one command for sh, or a list of at most %d "
            "words of at most %d bytes",
            SKILL_SELF_TEST_MAX, WORD_MAX);
}

void skill_read_extras(struct skill_reading *reading)
{
    const struct {
        const char *key;
        void (*read)(struct skill_reading *reading, const json_t *value);
    } extras[] = {
        {"berth-apt", read_apt}, {"berth-env", read_env}, {"berth-self-test", read_self_test}};
    const json_t *metadata = json_object_get(reading->frontmatter->keys, "metadata");

    for (size_t i = 0; i < BERTH_COUNT(extras); i++) {
        const json_t *value = json_object_get(metadata, extras[i].key);

        if (value && !json_is_null(value))
            extras[i].read(reading, value);
    }
}

/* restrict.c - keys that take rights away. One that cannot be read for certain refuses the
 * bundle: to go on without it would be to give those rights. */
#include <strings.h>

#include "services/skills/bundle/skill_keys.h"

#define ALLOWED "allowed-tools"

/* "allowed_tools", "allowedTools", "Allowed-Tools": the same word to people. */
static bool is_meant(const char *key, const char *wanted)
{
    for (;; key++, wanted++) {
        char x, y;

        while (*key == '-' || *key == '_' || *key == ' ')
            key++;
        while (*wanted == '-')
            wanted++;
        x = *key >= 'A' && *key <= 'Z' ? (char)(*key - 'A' + 'a') : *key;
        y = *wanted;
        if (x != y)
            return false;
        if (x == 0)
            return true;
    }
}

/* Does the text hold the word anywhere, in any of its spellings? */
static bool is_mentioned(const char *text, size_t size)
{
    static const char *const spellings[] = {"allowed-tools", "allowed_tools", "allowedtools"};

    for (size_t at = 0; at < size; at++)
        for (size_t i = 0; i < BERTH_COUNT(spellings); i++)
            if (size - at >= strlen(spellings[i]) &&
                strncasecmp(text + at, spellings[i], strlen(spellings[i])) == 0)
                return true;
    return false;
}

/* The value under the key or another spelling of it; *ret_key: that one. Two of them are one
 * too many. */
static json_t *find(struct skill_reading *reading, const char *wanted, const char **ret_key)
{
    json_t *keys = reading->frontmatter->keys, *found = NULL, *value;
    const char *key;

    json_object_foreach(keys, key, value)
    {
        if (!is_meant(key, wanted))
            continue;
        if (found) {
            SKILL_SAY(reading, FINDING_RESTRICTION_UNREAD, key,
                      "'%s' and '%s' are the same restriction twice: which of them holds "
                      "cannot be told",
                      *ret_key, key);
            return NULL;
        }
        found = value;
        *ret_key = key;
    }
    if (found && strcmp(*ret_key, wanted) != 0)
        SKILL_SAY(reading, FINDING_RESTRICTION_RESPELT, *ret_key,
                  "'%s' is not a key that is known; it was read as '%s'", *ret_key, wanted);
    return found;
}

static bool read_one(struct skill_reading *reading, const json_t *value)
{
    return json_is_string(value) &&
           skill_read_tools(json_string_value(value), &reading->skill->allowed_tools,
                            &reading->no_memory);
}

static bool read_tools(struct skill_reading *reading, const json_t *value)
{
    size_t i;
    json_t *item;

    if (json_is_null(value))
        return true;
    if (!json_is_array(value))
        return read_one(reading, value);
    json_array_foreach(value, i, item)
    {
        if (!read_one(reading, item))
            return false;
    }
    return true;
}

static void read_allowed(struct skill_reading *reading)
{
    const struct frontmatter *frontmatter = reading->frontmatter;
    const char *key = ALLOWED;
    const json_t *value = find(reading, ALLOWED, &key);

    if (value && frontmatter->recovered_key && strcmp(frontmatter->recovered_key, key) == 0)
        SKILL_SAY(
            reading, FINDING_RESTRICTION_UNREAD, key,
            "the value of '%s' had to be quoted to be read: what it allows is not certain",
            key);
    else if (value && !read_tools(reading, value))
        SKILL_SAY(reading, FINDING_RESTRICTION_UNREAD, key,
                  "'%s' must be tools separated by spaces ('Bash(git:*) Read'), or a list of "
                  "them",
                  key);
    else if (!value && frontmatter->is_recovered &&
             is_mentioned(frontmatter->yaml, frontmatter->yaml_size))
        SKILL_SAY(reading, FINDING_RESTRICTION_UNREAD, frontmatter->recovered_key,
                  "the frontmatter had to be repaired and speaks of " ALLOWED
                  ", which is no key of it now");
    reading->skill->restricts_tools = value != NULL;
}

/* True on success or where there is nothing to read. */
static void read_switch(struct skill_reading *reading, const char *wanted, bool *ret)
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no",
                                                                           "off"};
    const char *key = wanted, *text;
    const json_t *value = find(reading, wanted, &key);

    if (!value)
        return;
    text = json_is_string(value) ? json_string_value(value) : "";
    for (size_t i = 0; i < BERTH_COUNT(yes); i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *ret = strcasecmp(text, yes[i]) == 0;
            return;
        }
    }
    SKILL_SAY(reading, FINDING_RESTRICTION_UNREAD, key, "'%s' must be true or false", key);
}

void skill_read_restrictions(struct skill_reading *reading)
{
    reading->skill->user_invocable = true;
    read_allowed(reading);
    read_switch(reading, "disable-model-invocation", &reading->skill->disable_model_invocation);
    read_switch(reading, "user-invocable", &reading->skill->user_invocable);
}

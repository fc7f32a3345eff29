/* config.c - every source puts its text over the one before; what is left at the end is parsed
 * once, into values of our own, and handed over only when all of it is right. */
#include "common/config/config.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/config/parse.h"
#include "common/json/json.h"

enum { FILE_MAX = 1 << 20, ENV_NAME_MAX = 96 };

/* The text of one setting on its way. */
struct setting {
    char *text; /* owned; NULL: not given */
    const char *source;
};

static enum berth_code refuse(struct berth_error *err, const char *name, const char *why,
                              const char *source)
{
    return berth_fail_field(err, name, "%s (from %s)", why, source);
}

static enum berth_code put(struct setting *setting, const char *text, const char *source,
                           struct berth_error *err)
{
    char *copy = strdup(text);

    if (!copy)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (setting->text)
        explicit_bzero(setting->text, strlen(setting->text));
    free(setting->text);
    *setting = (struct setting){.text = copy, .source = source};
    return BERTH_OK;
}

/* --------------------------------------------------------------------------- sources */

static enum berth_code put_json(const struct berth_config_key *key, const json_t *value,
                                const char *path, struct setting *setting,
                                struct berth_error *err)
{
    char number[24];

    if (json_is_string(value))
        return put(setting, json_string_value(value), path, err);
    if (json_is_boolean(value) && key->type == BERTH_CONFIG_BOOL)
        return put(setting, json_is_true(value) ? "true" : "false", path, err);
    if (json_is_integer(value) &&
        (key->type == BERTH_CONFIG_INT || key->type == BERTH_CONFIG_BYTES)) {
        snprintf(number, sizeof number, "%" PRId64, (int64_t)json_integer_value(value));
        return put(setting, number, path, err);
    }
    return refuse(err, key->name, config_wanted(key->type), path);
}

static enum berth_code take_file(const struct berth_config_key *keys, size_t n_keys,
                                 const char *path, struct setting *settings,
                                 struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *json = NULL;
    char *text = NULL;
    size_t size = 0;
    const char *name;
    json_t *value;
    enum berth_code code = config_read_file(path, FILE_MAX, &text, &size, err);

    if (code)
        return code;
    code = berth_json_parse(text, size, FILE_MAX, &json, err);
    explicit_bzero(text, size);
    free(text);
    if (code)
        return berth_wrap(err, code, "%s", path);
    json_object_foreach(json, name, value)
    {
        size_t i = 0;

        while (i < n_keys && strcmp(keys[i].name, name) != 0)
            i++;
        if (i == n_keys)
            return refuse(err, name, "there is no such setting", path);
        code = put_json(&keys[i], value, path, &settings[i], err);
        if (code)
            return code;
    }
    return BERTH_OK;
}

/* Anybody who is us may read /proc/PID/environ, and children would inherit it: the bytes that
 * the process was started with are overwritten, and the variable is gone. */
static void forget(const char *name)
{
    char *value = getenv(name);

    explicit_bzero(value, strlen(value));
    unsetenv(name);
}

static enum berth_code take_environment(const struct berth_config_key *keys, size_t n_keys,
                                        struct setting *settings, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; i < n_keys && !code; i++) {
        char name[ENV_NAME_MAX];
        const char *value;
        int len = snprintf(name, sizeof name, "BERTH_%s", keys[i].name);

        for (int at = 0; at < len && name[at]; at++)
            if (name[at] >= 'a' && name[at] <= 'z')
                name[at] = (char)(name[at] - 'a' + 'A');
        value = getenv(name);
        if (value)
            code = put(&settings[i], value, "the environment", err);
        if (value && keys[i].type == BERTH_CONFIG_SECRET)
            forget(name);
    }
    return code;
}

/* "max-ttl" and "max_ttl" are the same name on the command line. */
static bool same_name(const char *key, const char *given, size_t given_len)
{
    size_t i = 0;

    for (; i < given_len && key[i]; i++)
        if (key[i] != (given[i] == '-' ? '_' : given[i]))
            return false;
    return i == given_len && !key[i];
}

static enum berth_code take_override(const struct berth_config_key *keys, size_t n_keys,
                                     const char *override, struct setting *settings,
                                     struct berth_error *err)
{
    static const char source[] = "the command line";
    const char *equals = strchr(override, '=');
    size_t len = equals ? (size_t)(equals - override) : strlen(override), i = 0;
    char shown[ENV_NAME_MAX];

    while (i < n_keys && !same_name(keys[i].name, override, len))
        i++;
    if (i == n_keys) {
        snprintf(shown, sizeof shown, "%.*s", (int)(len < 64 ? len : 64), override);
        return refuse(err, shown, "there is no such setting", source);
    }
    if (!equals)
        return refuse(err, keys[i].name, "no value: wanted name=value", source);
    if (keys[i].type == BERTH_CONFIG_SECRET && equals[1] && strncmp(equals + 1, "@/", 2) != 0)
        return refuse(err, keys[i].name,
                      "everybody can read the command line: give @/path/of/a/file", source);
    return put(&settings[i], equals + 1, source, err);
}

static enum berth_code gather(const struct berth_config_key *keys, size_t n_keys,
                              const char *json_path, const char *const *overrides,
                              size_t n_overrides, struct setting *settings,
                              struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; i < n_keys && !code; i++)
        if (keys[i].value)
            code = put(&settings[i], keys[i].value, "the default", err);
    if (!code && json_path)
        code = take_file(keys, n_keys, json_path, settings, err);
    if (!code)
        code = take_environment(keys, n_keys, settings, err);
    for (size_t i = 0; i < n_overrides && !code; i++)
        code = take_override(keys, n_keys, overrides[i], settings, err);
    return code;
}

/* ---------------------------------------------------------------------------- values */

static void drop_value(const struct berth_config_key *key, struct config_value *value)
{
    if (key->type == BERTH_CONFIG_SECRET && value->text)
        explicit_bzero(value->text, strlen(value->text));
    free(value->text);
    value->text = NULL;
}

static enum berth_code parse_all(const struct berth_config_key *keys, size_t n_keys,
                                 const struct setting *settings, struct config_value *values,
                                 struct berth_error *err)
{
    for (size_t i = 0; i < n_keys; i++) {
        struct berth_error why = {0};
        enum berth_code code;

        if (!settings[i].text)
            return refuse(err, keys[i].name, "must be given", "nowhere");
        code = config_parse(keys[i].type, settings[i].text, &values[i], &why);
        if (code == BERTH_INVALID_ARGUMENT)
            return refuse(err, keys[i].name, why.text, settings[i].source);
        if (code) {
            if (err)
                *err = why;
            return code;
        }
    }
    return BERTH_OK;
}

static void store(const struct berth_config_key *key, const struct config_value *value,
                  void *out)
{
    char *place = (char *)out + key->offset;

    if (key->type == BERTH_CONFIG_BOOL)
        memcpy(place, &value->flag, sizeof value->flag);
    else if (key->type == BERTH_CONFIG_STR || key->type == BERTH_CONFIG_SECRET)
        memcpy(place, &value->text, sizeof value->text);
    else
        memcpy(place, &value->number, sizeof value->number);
}

static void load(const struct berth_config_key *key, const void *out, struct config_value *ret)
{
    const char *place = (const char *)out + key->offset;

    *ret = (struct config_value){0};
    if (key->type == BERTH_CONFIG_BOOL)
        memcpy(&ret->flag, place, sizeof ret->flag);
    else if (key->type == BERTH_CONFIG_STR || key->type == BERTH_CONFIG_SECRET)
        memcpy(&ret->text, place, sizeof ret->text);
    else
        memcpy(&ret->number, place, sizeof ret->number);
}

enum berth_code berth_config_load(const struct berth_config_key *keys, size_t n_keys,
                                  const char *json_path, const char *const *overrides,
                                  size_t n_overrides, void *out, struct berth_error *err)
{
    struct setting *settings = calloc(n_keys + 1, sizeof *settings);
    struct config_value *values = calloc(n_keys + 1, sizeof *values);
    enum berth_code code;

    if (!settings || !values)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    else
        code = gather(keys, n_keys, json_path, overrides, n_overrides, settings, err);
    if (!code)
        code = parse_all(keys, n_keys, settings, values, err);
    for (size_t i = 0; i < n_keys; i++) {
        if (!code)
            store(&keys[i], &values[i], out);
        else if (values)
            drop_value(&keys[i], &values[i]);
        if (settings && settings[i].text) {
            explicit_bzero(settings[i].text, strlen(settings[i].text));
            free(settings[i].text);
        }
    }
    free(settings);
    free(values);
    return code;
}

void berth_config_deinit(const struct berth_config_key *keys, size_t n_keys, void *out)
{
    for (size_t i = 0; i < n_keys; i++) {
        struct config_value value;

        load(&keys[i], out, &value);
        drop_value(&keys[i], &value);
        value = (struct config_value){0};
        store(&keys[i], &value, out);
    }
}

/* -------------------------------------------------------------------------- describe */

static void describe_key(FILE *file, const struct berth_config_key *key)
{
    static const char *const kinds[] = {
        [BERTH_CONFIG_STR] = "TEXT",    [BERTH_CONFIG_INT] = "NUMBER",
        [BERTH_CONFIG_MS] = "DURATION", [BERTH_CONFIG_BYTES] = "SIZE",
        [BERTH_CONFIG_BOOL] = "BOOL",   [BERTH_CONFIG_SECRET] = "SECRET",
    };
    char head[ENV_NAME_MAX];

    snprintf(head, sizeof head, "--%s=%s", key->name, kinds[key->type]);
    fprintf(file, "  %-30s %s", head, key->doc);
    if (!key->value)
        fprintf(file, " (must be given)");
    else if (key->type != BERTH_CONFIG_SECRET && *key->value)
        fprintf(file, " (default: %s)", key->value);
    fputc('\n', file);
}

static void describe_value(FILE *file, const struct berth_config_key *key, const void *out)
{
    struct config_value value;

    load(key, out, &value);
    if (key->type == BERTH_CONFIG_SECRET)
        fprintf(file, "%s=%s\n", key->name, value.text && *value.text ? "set" : "unset");
    else if (key->type == BERTH_CONFIG_STR)
        fprintf(file, "%s=%s\n", key->name, value.text ? value.text : "");
    else if (key->type == BERTH_CONFIG_BOOL)
        fprintf(file, "%s=%s\n", key->name, value.flag ? "true" : "false");
    else
        fprintf(file, "%s=%" PRId64 "%s\n", key->name, value.number,
                key->type == BERTH_CONFIG_MS ? "ms" : "");
}

char *berth_config_describe(const struct berth_config_key *keys, size_t n_keys, const void *out)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);

    if (!file)
        return NULL;
    for (size_t i = 0; i < n_keys; i++) {
        if (out)
            describe_value(file, &keys[i], out);
        else
            describe_key(file, &keys[i]);
    }
    if (fclose(file) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

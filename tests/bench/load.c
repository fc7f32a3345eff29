/* load.c - berth-bench-load PLAN: see load.h, and bench.py, which writes the plans. */
#include "tests/bench/load.h"

#include <stdarg.h>
#include <stdio.h>

enum { TARGETS_MAX = 16 };

void load_fail(const char *fmt, ...)
{
    va_list args;

    fputs("berth-bench-load: ", stderr);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

const char *load_text(const json_t *plan, const char *key)
{
    const char *text = json_string_value(json_object_get(plan, key));

    if (!text)
        load_fail("the plan has no text '%s'", key);
    return text;
}

int64_t load_number(const json_t *plan, const char *key)
{
    const json_t *number = json_object_get(plan, key);

    if (!json_is_integer(number))
        load_fail("the plan has no number '%s'", key);
    return json_integer_value(number);
}

static uint8_t *from_hex(const char *hex, size_t *ret_size)
{
    size_t size = strlen(hex) / 2;
    uint8_t *bytes = malloc(size + 1);
    unsigned value;

    if (!bytes)
        load_fail("out of memory");
    for (size_t i = 0; i < size; i++) {
        if (sscanf(hex + 2 * i, "%2x", &value) != 1)
            load_fail("not hex: '%.20s'", hex + 2 * i);
        bytes[i] = (uint8_t)value;
    }
    *ret_size = size;
    return bytes;
}

uint8_t *load_bytes(const json_t *plan, const char *key, size_t *ret_size)
{
    return from_hex(load_text(plan, key), ret_size);
}

static struct known_target {
    const char *target;
    struct berth_channel *channel;
} known[TARGETS_MAX];

struct berth_channel *load_channel(const char *target)
{
    struct berth_error err = {0};
    size_t i = 0;

    while (i < TARGETS_MAX && known[i].target && strcmp(known[i].target, target) != 0)
        i++;
    if (i == TARGETS_MAX)
        load_fail("more than %d targets", TARGETS_MAX);
    if (!known[i].target) {
        if (berth_channel_new(target, NULL, &known[i].channel, &err))
            load_fail("%s: %s", target, err.text);
        known[i].target = target;
    }
    return known[i].channel;
}

void load_metadata_init(struct load_metadata *metadata, const json_t *plan)
{
    const char *key;
    json_t *value, *entries = json_object_get(plan, "metadata");

    memset(metadata, 0, sizeof *metadata);
    json_object_foreach(entries, key, value)
    {
        size_t n = metadata->n++;

        if (n == BERTH_COUNT(metadata->entries))
            load_fail("too much metadata");
        metadata->values[n] = from_hex(json_string_value(value), &metadata->entries[n].size);
        metadata->entries[n].key = key;
        metadata->entries[n].value = metadata->values[n];
    }
}

void load_metadata_deinit(struct load_metadata *metadata)
{
    for (size_t i = 0; i < metadata->n; i++)
        free(metadata->values[i]);
    metadata->n = 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        json_t *(*run)(const json_t *plan);
    } modes[] = {{"rounds", load_rounds},
                 {"read", load_read},
                 {"write", load_write},
                 {"hold", load_hold}};
    json_error_t why;
    json_t *plan, *result = NULL;
    const char *mode;

    if (argc != 2)
        load_fail("usage: berth-bench-load PLAN");
    plan = json_load_file(argv[1], JSON_REJECT_DUPLICATES, &why);
    if (!plan)
        load_fail("%s: %s", argv[1], why.text);
    mode = load_text(plan, "mode");
    berth_rpc_init();
    for (size_t i = 0; i < BERTH_COUNT(modes); i++) {
        if (strcmp(modes[i].name, mode) == 0)
            result = modes[i].run(plan);
    }
    if (!result)
        load_fail("no mode '%s'", mode);
    json_dumpf(result, stdout, JSON_COMPACT);
    putchar('\n');
    for (size_t i = 0; i < TARGETS_MAX; i++)
        berth_channel_free(known[i].channel);
    json_decref(result);
    berth_rpc_done();
    json_decref(plan); /* the core may look at a path until the end */
    return EXIT_SUCCESS;
}

/* cas.c - building and running a compare-and-set. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/redis/internal.h"
#include "common/time/time.h"

enum {
    KEYS_MAX = 512,
    EXPECTS_MAX = 64,
    COMMAND_WORDS_MAX = 1024 /* Lua unpacks them onto its stack */
};

enum shape {
    SHAPE_NONE,
    SHAPE_ANY,
    SHAPE_PAIRS,
    SHAPE_MS,
    SHAPE_SCORES,
    SHAPE_SET,
    SHAPE_XADD
};

static const struct {
    const char *name;
    enum shape shape;
    bool changes_hash;
} commands[] = {
    {"HSET", SHAPE_PAIRS, true},  {"HDEL", SHAPE_ANY, true},      {"DEL", SHAPE_NONE, false},
    {"PEXPIRE", SHAPE_MS, false}, {"PERSIST", SHAPE_NONE, false}, {"ZADD", SHAPE_SCORES, false},
    {"ZREM", SHAPE_ANY, false},   {"SADD", SHAPE_ANY, false},     {"SREM", SHAPE_ANY, false},
    {"XADD", SHAPE_XADD, false},  {"SET", SHAPE_SET, false},
};

struct berth_cas {
    struct redis_cas_key *keys;
    size_t n_keys;
    size_t expected[EXPECTS_MAX]; /* indexes into keys */
    size_t n_expects, n_writes;
    struct redis_words expects, writes;   /* encoded as cas.lua wants them */
    size_t hset_key, hset_at, hset_words; /* the last write, where it is an HSET: number of its
                                             key (0: it is not), where it begins, its words */
    uint64_t only_on;
    bool when_full;
    int64_t start_tick; /* of the last run */
    char touch_rev[17]; /* "": not settled yet */
    const char *bug;    /* the first mistake of the caller; static */
    bool no_memory;
};

struct berth_cas *berth_cas_new(void)
{
    return calloc(1, sizeof(struct berth_cas));
}

struct berth_cas *berth_cas_free(struct berth_cas *cas)
{
    if (!cas)
        return NULL;
    for (size_t i = 0; i < cas->n_keys; i++) {
        free(cas->keys[i].name);
        free(cas->keys[i].old_rev);
    }
    free(cas->keys);
    redis_words_deinit(&cas->expects);
    redis_words_deinit(&cas->writes);
    free(cas);
    return NULL;
}

static void note_bug(struct berth_cas *cas, const char *bug)
{
    if (!cas->bug)
        cas->bug = bug;
}

/* NULL: no memory or too many; remembered. */
static struct redis_cas_key *use_key(struct berth_cas *cas, const char *name)
{
    struct redis_cas_key *more;

    for (size_t i = cas->n_keys; i-- > 0;) /* mostly one that was just used */
        if (strcmp(cas->keys[i].name, name) == 0)
            return &cas->keys[i];
    if (cas->n_keys == KEYS_MAX) {
        note_bug(cas, "too many keys");
        return NULL;
    }
    more = realloc(cas->keys, (cas->n_keys + 1) * sizeof *more);
    if (more)
        cas->keys = more;
    if (more)
        more[cas->n_keys] = (struct redis_cas_key){.name = strdup(name)};
    if (!more || !more[cas->n_keys].name) {
        cas->no_memory = true;
        return NULL;
    }
    return more + cas->n_keys++;
}

static size_t number_of(const struct berth_cas *cas, const struct redis_cas_key *key)
{
    return (size_t)(key - cas->keys) + 1;
}

void berth_cas_expect(struct berth_cas *cas, const char *key, const char *rev)
{
    struct redis_cas_key *used = cas ? use_key(cas, key) : NULL;

    if (!used)
        return;
    if (cas->n_expects == EXPECTS_MAX || used->expected) {
        note_bug(cas, "too many expectations, or two of one key");
        return;
    }
    used->expected = true;
    used->old_rev = strdup(rev);
    if (!used->old_rev)
        cas->no_memory = true;
    cas->expected[cas->n_expects++] = (size_t)(used - cas->keys);
    redis_words_add_number(&cas->expects, number_of(cas, used));
    redis_words_add(&cas->expects, rev, strlen(rev));
}

static bool is_now(const char *word)
{
    return strcmp(word, "$NOW") == 0;
}

static bool is_number(const char *word)
{
    size_t digits = strspn(word + (*word == '-'), "0123456789");

    return is_now(word) || (digits > 0 && digits < 19 && !word[digits + (*word == '-')]);
}

/* Everything that would make the command fail half-way through the script. */
static bool fits(enum shape shape, const char *const *words, size_t n)
{
    size_t at = 0;

    switch (shape) {
    case SHAPE_NONE:
        return n == 0;
    case SHAPE_ANY:
        return n >= 1;
    case SHAPE_PAIRS:
        return n >= 2 && n % 2 == 0;
    case SHAPE_MS:
        return n == 1 && is_number(words[0]) && !is_now(words[0]);
    case SHAPE_SCORES:
        while (at < n && is_number(words[at]))
            at += 2;
        return n >= 2 && n % 2 == 0 && at == n;
    case SHAPE_SET:
        return n == 1 || (n == 3 && strcmp(words[1], "PX") == 0 && is_number(words[2]) &&
                          words[2][0] != '-' && strcmp(words[2], "0") != 0);
    case SHAPE_XADD: /* MAXLEN [~|=] n * field value ... */
        if (n < 5 || strcmp(words[0], "MAXLEN") != 0)
            return false;
        at = 1 + (strcmp(words[1], "~") == 0 || strcmp(words[1], "=") == 0);
        return is_number(words[at]) && words[at][0] != '-' && strcmp(words[at + 1], "*") == 0 &&
               n - at - 2 >= 2 && (n - at - 2) % 2 == 0;
    }
    return false;
}

/* A rev of ours is 16 characters; others have none to compare with later. */
static void note_rev(struct redis_cas_key *key, const char *rev, size_t size)
{
    key->has_rev = true;
    if (size < sizeof key->new_rev)
        memcpy(key->new_rev, rev, size);
}

static void note_change(struct redis_cas_key *key, const char *command,
                        const char *const *words, size_t n)
{
    if (strcmp(command, "DEL") == 0)
        key->deleted = key->has_rev = true;
    if (strcmp(command, "HSET") == 0)
        for (size_t i = 0; i < n; i += 2)
            if (strcmp(words[i], "rev") == 0)
                note_rev(key, words[i + 1], strlen(words[i + 1]));
}

/* Where a command of n words begins: an HSET goes on with the one before, where that is of the
 * same key. */
static void begin_command(struct berth_cas *cas, const char *command, size_t key, size_t n)
{
    bool hset = strcmp(command, "HSET") == 0;

    if (hset && cas->hset_key == key && cas->hset_words + n <= COMMAND_WORDS_MAX) {
        cas->hset_words += n;
        redis_words_set_number(&cas->writes, cas->hset_at, cas->hset_words);
        return;
    }
    cas->hset_key = hset ? key : 0;
    cas->hset_at = cas->writes.n;
    cas->hset_words = n;
    cas->n_writes++;
    redis_words_add_number(&cas->writes, n);
    redis_words_add(&cas->writes, command, strlen(command));
    redis_words_add_number(&cas->writes, key);
}

static void add_command(struct berth_cas *cas, const char *command, const char *key,
                        const char *const *words, size_t n)
{
    struct redis_cas_key *used = use_key(cas, key);
    size_t which = 0;

    while (which < BERTH_COUNT(commands) && strcmp(commands[which].name, command) != 0)
        which++;
    if (which == BERTH_COUNT(commands)) {
        note_bug(cas, "a command that is not allowed");
        return;
    }
    if (!fits(commands[which].shape, words, n)) {
        note_bug(cas, "a command with the wrong words");
        return;
    }
    if (!used)
        return;
    used->changed = used->changed || commands[which].changes_hash;
    note_change(used, command, words, n);
    begin_command(cas, command, number_of(cas, used), n);
    for (size_t i = 0; i < n; i++) {
        if (is_now(words[i]))
            redis_words_add(&cas->writes, "$", 1);
        else
            redis_words_add_marked(&cas->writes, '=', words[i], strlen(words[i]));
    }
}

void berth_cas_write(struct berth_cas *cas, const char *command, const char *key, ...)
{
    const char *words[COMMAND_WORDS_MAX], *word;
    size_t n = 0;
    va_list args;

    if (!cas)
        return;
    va_start(args, key);
    while ((word = va_arg(args, const char *)) && n < COMMAND_WORDS_MAX)
        words[n++] = word;
    va_end(args);
    if (word)
        note_bug(cas, "a command with too many words");
    else
        add_command(cas, command, key, words, n);
}

void berth_cas_hset(struct berth_cas *cas, const char *key, const char *field,
                    const void *value, size_t size)
{
    struct redis_cas_key *used = cas ? use_key(cas, key) : NULL;

    if (!used)
        return;
    used->changed = true;
    if (strcmp(field, "rev") == 0)
        note_rev(used, value, size);
    begin_command(cas, "HSET", number_of(cas, used), 2);
    redis_words_add_marked(&cas->writes, '=', field, strlen(field));
    redis_words_add_marked(&cas->writes, '=', value, size);
}

/* What only shows when all is there. */
static const char *find_bug(const struct berth_cas *cas)
{
    if (cas->bug)
        return cas->bug;
    if (cas->n_keys == 0)
        return "nothing to do";
    for (size_t i = 0; i < cas->n_keys; i++) {
        if (berth_redis_slot(cas->keys[i].name) != berth_redis_slot(cas->keys[0].name))
            return "keys of more than one slot";
        if (cas->keys[i].expected && cas->keys[i].changed && !cas->keys[i].has_rev)
            return "a document is changed without a new rev";
    }
    return NULL;
}

static void append(struct redis_words *all, const struct redis_words *part)
{
    for (size_t i = 0; i < part->n; i++)
        redis_words_add(all, part->argv[i], part->sizes[i]);
}

static void encode(const struct berth_cas *cas, bool want_docs, struct redis_words *all)
{
    redis_words_add_number(all, cas->n_keys);
    for (size_t i = 0; i < cas->n_keys; i++)
        redis_words_add(all, cas->keys[i].name, strlen(cas->keys[i].name));
    redis_words_add_number(all, want_docs);
    redis_words_add_number(all, cas->n_expects);
    append(all, &cas->expects);
    redis_words_add_number(all, cas->n_writes);
    append(all, &cas->writes);
    if (cas->no_memory || cas->expects.failed || cas->writes.failed)
        all->failed = true;
}

/* The documents that came with a refusal. */
static bool take_docs(const struct berth_cas *cas, struct berth_reply *reply,
                      struct berth_doc *docs)
{
    if (reply->n_items != 2 + cas->n_expects)
        return false;
    for (size_t i = 0; i < cas->n_expects; i++) {
        docs[i].key = strdup(cas->keys[cas->expected[i]].name);
        if (!docs[i].key || !redis_doc_fill(&docs[i], reply->items[i + 2]))
            return false;
        docs[i].exists = docs[i].n_fields > 0;
    }
    return true;
}

static enum berth_code judge(const struct berth_cas *cas, struct berth_reply *reply,
                             bool *ret_applied, int64_t *ret_now_ms, struct berth_doc *ret_docs,
                             struct berth_error *err)
{
    struct berth_doc docs[EXPECTS_MAX] = {0};
    bool good = reply->type == BERTH_REPLY_ARRAY && reply->n_items >= 2 &&
                reply->items[0]->type == BERTH_REPLY_INTEGER &&
                reply->items[1]->type == BERTH_REPLY_INTEGER;
    bool applied = good && reply->items[0]->integer == 1;

    if (good && !applied && ret_docs)
        good = take_docs(cas, reply, docs);
    if (!good) {
        for (size_t i = 0; i < cas->n_expects; i++)
            berth_doc_deinit(&docs[i]);
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                          "redis compare-and-set: not the reply expected");
    }
    *ret_applied = applied;
    if (ret_now_ms)
        *ret_now_ms = reply->items[1]->integer;
    if (ret_docs)
        memcpy(ret_docs, docs, cas->n_expects * sizeof *docs);
    return BERTH_OK;
}

void berth_cas_only_on(struct berth_cas *cas, uint64_t server)
{
    if (cas)
        cas->only_on = server;
}

void berth_cas_when_full(struct berth_cas *cas)
{
    if (cas)
        cas->when_full = true;
}

size_t redis_cas_keys(const struct berth_cas *cas, const struct redis_cas_key **ret)
{
    *ret = cas->keys;
    return cas->n_keys;
}

const char *redis_cas_touch_rev(struct berth_cas *cas)
{
    return cas->touch_rev[0] ? cas->touch_rev : berth_rev_new(cas->touch_rev);
}

int64_t redis_cas_start_tick(const struct berth_cas *cas)
{
    return cas->start_tick;
}

enum berth_code redis_cas_run(struct berth_redis *redis, struct berth_cas *cas, bool durable,
                              int64_t until_tick, bool *ret_applied, int64_t *ret_now_ms,
                              struct berth_doc *ret_docs, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    const char *bug = cas && !cas->no_memory ? find_bug(cas) : NULL;
    struct redis_words all = {0};
    struct redis_order order = {.args = &all, .until_tick = until_tick};
    int64_t have = 0, now_ms = 0;
    bool applied = false;
    enum berth_code code;

    if (bug)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "redis compare-and-set: %s; not sent",
                          bug);
    order.wait_replicas = durable ? redis_wait_replicas(redis) : 0;
    if (cas) {
        order.script = cas->when_full ? REDIS_SCRIPT_CAS_FULL : REDIS_SCRIPT_CAS;
        order.only_on = cas->only_on;
        cas->start_tick = berth_tick_ms();
        encode(cas, ret_docs != NULL, &all);
    }
    if (!cas || all.failed)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    else
        code = redis_eval(redis, &order, &have, &reply, err);
    redis_words_deinit(&all);
    if (code)
        return code;
    code = judge(cas, reply, &applied, &now_ms, ret_docs, err);
    if (code)
        return code;
    if (applied && have < order.wait_replicas)
        return berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN,
                          "redis: %" PRId64 " of %u replicas have the write", have,
                          order.wait_replicas);
    *ret_applied = applied;
    if (ret_now_ms)
        *ret_now_ms = now_ms;
    return BERTH_OK;
}

enum berth_code berth_cas_run(struct berth_redis *redis, struct berth_cas *cas, bool durable,
                              bool *ret_applied, int64_t *ret_now_ms,
                              struct berth_doc *ret_docs, struct berth_error *err)
{
    return redis_cas_run(redis, cas, durable, 0, ret_applied, ret_now_ms, ret_docs, err);
}

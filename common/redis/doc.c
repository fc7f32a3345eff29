/* doc.c - hashes as documents, and the one read that every rule starts from. */
#include "common/ids/ids.h"
#include "common/redis/internal.h"

enum { GETS_MAX = 64 };

void berth_doc_deinit(struct berth_doc *doc)
{
    for (size_t i = 0; i < doc->n_fields; i++) {
        free(doc->fields[i].name);
        free(doc->fields[i].value);
    }
    free(doc->fields);
    free(doc->key);
    *doc = (struct berth_doc){0};
}

static const struct berth_doc_field *find(const struct berth_doc *doc, const char *field)
{
    for (size_t i = 0; i < doc->n_fields; i++)
        if (strcmp(doc->fields[i].name, field) == 0)
            return &doc->fields[i];
    return NULL;
}

const char *berth_doc_get(const struct berth_doc *doc, const char *field)
{
    const struct berth_doc_field *found = find(doc, field);

    return found ? found->value : "";
}

bool berth_doc_has(const struct berth_doc *doc, const char *field)
{
    return find(doc, field) != NULL;
}

const char *berth_rev_new(char buf[17])
{
    return berth_id_hex(buf, 8);
}

static bool is_string(const struct berth_reply *reply)
{
    return reply->type == BERTH_REPLY_STRING;
}

bool redis_doc_fill(struct berth_doc *doc, struct berth_reply *flat)
{
    if (flat->type != BERTH_REPLY_ARRAY || flat->n_items % 2 != 0)
        return false;
    for (size_t i = 0; i < flat->n_items; i++)
        if (!is_string(flat->items[i]))
            return false;
    doc->fields = calloc(flat->n_items / 2 + 1, sizeof *doc->fields);
    if (!doc->fields)
        return false;
    for (size_t i = 0; i < flat->n_items; i += 2) {
        struct berth_doc_field *field = &doc->fields[doc->n_fields++];

        field->name = BERTH_STEAL(flat->items[i]->string);
        field->value = BERTH_STEAL(flat->items[i + 1]->string);
        field->size = flat->items[i + 1]->size;
    }
    return true;
}

/* The values of the fields that were asked for; nil: absent. */
static bool fill_named(struct berth_doc *doc, const struct berth_redis_get *get,
                       struct berth_reply *values)
{
    if (values->type != BERTH_REPLY_ARRAY || values->n_items != get->n_fields)
        return false;
    doc->fields = calloc(get->n_fields + 1, sizeof *doc->fields);
    if (!doc->fields)
        return false;
    for (size_t i = 0; i < get->n_fields; i++) {
        struct berth_doc_field *field = &doc->fields[doc->n_fields];

        if (values->items[i]->type == BERTH_REPLY_NIL)
            continue;
        if (!is_string(values->items[i]))
            return false;
        field->name = strdup(get->fields[i]);
        if (!field->name)
            return false;
        field->value = BERTH_STEAL(values->items[i]->string);
        field->size = values->items[i]->size;
        doc->n_fields++;
    }
    return true;
}

/* One { key, exists, values } of the script's reply. */
static bool fill(struct berth_doc *doc, const struct berth_redis_get *get,
                 struct berth_reply *item)
{
    if (item->type != BERTH_REPLY_ARRAY || item->n_items != 3 || !is_string(item->items[0]) ||
        item->items[1]->type != BERTH_REPLY_INTEGER)
        return false;
    doc->key = BERTH_STEAL(item->items[0]->string);
    doc->exists = item->items[1]->integer == 1;
    if (!doc->exists)
        return true;
    return get->fields ? fill_named(doc, get, item->items[2])
                       : redis_doc_fill(doc, item->items[2]);
}

/* Keys in words, then the script's arguments. Returns what is wrong with gets, or NULL. */
static const char *encode(const struct berth_redis_get *gets, size_t n_gets,
                          struct redis_words *words)
{
    size_t n_keys = 0;
    unsigned slot = 0;

    if (n_gets == 0 || n_gets > GETS_MAX)
        return "no documents, or too many";
    for (size_t i = 0; i < n_gets; i++) {
        const char *place = gets[i].key ? gets[i].key : gets[i].prefix;
        const char *tag = place ? strchr(place, '{') : NULL;

        if (!place || (!gets[i].key && (gets[i].from >= i || !gets[i].field)))
            return "neither a key nor a way to make one";
        if (!gets[i].key && !(tag && strchr(tag, '}') > tag + 1))
            return "a prefix without a hash tag";
        if (i > 0 && berth_redis_slot(place) != slot)
            return "keys of more than one slot";
        slot = berth_redis_slot(place);
        n_keys += gets[i].key != NULL;
    }
    redis_words_add_number(words, n_keys);
    for (size_t i = 0; i < n_gets; i++)
        if (gets[i].key)
            redis_words_add(words, gets[i].key, strlen(gets[i].key));
    return NULL;
}

static void add_text(struct redis_words *words, const char *text)
{
    redis_words_add(words, text, strlen(text));
}

static void encode_args(const struct berth_redis_get *gets, size_t n_gets,
                        struct redis_words *words)
{
    size_t n_keys = 0;

    for (size_t i = 0; i < n_gets; i++) {
        const struct berth_redis_get *get = &gets[i];

        if (get->key) {
            add_text(words, "k");
            redis_words_add_number(words, ++n_keys);
        } else {
            add_text(words, "d");
            add_text(words, get->prefix);
            redis_words_add_number(words, get->from + 1);
            add_text(words, get->field);
            add_text(words, get->fallback ? get->fallback : "");
        }
        if (!get->fields) {
            add_text(words, "-1");
            continue;
        }
        redis_words_add_number(words, get->n_fields);
        for (size_t j = 0; j < get->n_fields; j++)
            add_text(words, get->fields[j]);
    }
}

enum berth_code berth_redis_read(struct berth_redis *redis, const struct berth_redis_get *gets,
                                 size_t n_gets, int64_t *ret_now_ms, struct berth_doc *ret_docs,
                                 struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    struct berth_doc docs[GETS_MAX] = {0};
    struct redis_words words = {0};
    const struct redis_order order = {.script = REDIS_SCRIPT_READ, .args = &words};
    const char *wrong = encode(gets, n_gets, &words);
    bool good = !wrong;
    enum berth_code code;

    encode_args(gets, wrong ? 0 : n_gets, &words);
    if (wrong)
        code = berth_fail(err, BERTH_REASON_INTERNAL_BUG, "redis read: %s; not sent", wrong);
    else if (words.failed)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    else
        code = redis_eval(redis, &order, NULL, &reply, err);
    redis_words_deinit(&words);
    if (code)
        return code;
    good = reply->type == BERTH_REPLY_ARRAY && reply->n_items == n_gets + 1 &&
           reply->items[0]->type == BERTH_REPLY_INTEGER;
    for (size_t i = 0; i < n_gets && good; i++)
        good = fill(&docs[i], &gets[i], reply->items[i + 1]);
    if (!good) {
        for (size_t i = 0; i < n_gets; i++)
            berth_doc_deinit(&docs[i]);
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "redis read: not the reply expected");
    }
    *ret_now_ms = reply->items[0]->integer;
    memcpy(ret_docs, docs, n_gets * sizeof *docs);
    return BERTH_OK;
}

/* The session document: lines "field=value" are the hash. What decodes is encoded, decodes
 * again, and is then encoded the same. */
#include "services/binding/doc.h"
#include "tests/fuzz/fuzz.h"

enum { FIELDS_MAX = 32 };

/* The hash; values may hold anything but a line end. */
static void split(const uint8_t *data, size_t size, struct berth_doc *doc)
{
    const uint8_t *end = data + size;

    *doc = (struct berth_doc){.key = strdup("k"), .exists = true};
    doc->fields = calloc(FIELDS_MAX, sizeof *doc->fields);
    while (doc->fields && data < end && doc->n_fields < FIELDS_MAX) {
        const uint8_t *line = memchr(data, '\n', (size_t)(end - data));
        const uint8_t *stop = line ? line : end;
        const uint8_t *equal = memchr(data, '=', (size_t)(stop - data));
        struct berth_doc_field *field = &doc->fields[doc->n_fields];

        if (equal) {
            field->name = strndup((const char *)data, (size_t)(equal - data));
            field->size = (size_t)(stop - equal - 1);
            field->value = calloc(1, field->size + 1);
            if (!field->name || !field->value)
                abort();
            memcpy(field->value, equal + 1, field->size);
            doc->n_fields++;
        }
        data = line ? line + 1 : end;
    }
}

static void encode(const struct binding_doc *doc, struct berth_doc *ret)
{
    *ret = (struct berth_doc){.key = strdup("k"), .exists = true};
    ret->fields = calloc(FIELDS_MAX, sizeof *ret->fields);
    if (!ret->fields)
        abort();
    ret->fields[ret->n_fields++] =
        (struct berth_doc_field){strdup("rev"), strdup(doc->rev), strlen(doc->rev)};
    for (int i = 0; i < BINDING_N_PARTS; i++) {
        char *text = NULL;
        size_t size = 0;

        if (i == BINDING_PART_SESSION && doc->session.state == BINDING_STATE_NONE)
            continue;
        if (i == BINDING_PART_TURNS && doc->session.state == BINDING_STATE_NONE)
            continue;
        if (binding_doc_encode(doc, (enum binding_part)i, &text, &size, NULL))
            abort();
        if (text)
            ret->fields[ret->n_fields++] = (struct berth_doc_field){
                strdup(binding_part_name((enum binding_part)i)), text, size};
    }
}

static void check_same(const struct berth_doc *a, const struct berth_doc *b)
{
    if (a->n_fields != b->n_fields)
        abort();
    for (size_t i = 0; i < a->n_fields; i++)
        if (strcmp(a->fields[i].name, b->fields[i].name) != 0 ||
            a->fields[i].size != b->fields[i].size ||
            memcmp(a->fields[i].value, b->fields[i].value, a->fields[i].size) != 0)
            abort();
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct berth_doc raw, first, second;
    struct binding_doc doc, again;
    struct berth_error err = {0};
    enum berth_code code;

    split(data, size, &raw);
    code = binding_doc_decode(&raw, &doc, &err);
    berth_doc_deinit(&raw);
    if (code) {
        if (err.reason != BERTH_REASON_INTERNAL_BUG)
            abort();
        return false;
    }
    encode(&doc, &first);
    if (binding_doc_decode(&first, &again, &err))
        abort();
    encode(&again, &second);
    check_same(&first, &second);
    binding_doc_deinit(&doc);
    binding_doc_deinit(&again);
    berth_doc_deinit(&first);
    berth_doc_deinit(&second);
    return true;
}

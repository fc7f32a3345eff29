#include "services/skills/bundle/yaml.h"

#include <stdio.h>
#include <yaml.h>

#include "services/skills/bundle/text.h"

struct reader {
    yaml_parser_t parser;
    struct yaml_problem *problem;
    unsigned n_values;
    bool no_memory;
};

static void refuse(struct reader *reader, enum finding_code code, const yaml_mark_t *mark,
                   const char *text)
{
    reader->problem->code = code;
    reader->problem->line = (unsigned)mark->line;
    snprintf(reader->problem->text, sizeof reader->problem->text, "%s", text);
}

/* The next event; false: libyaml refuses. */
static bool next(struct reader *reader, yaml_event_t *event)
{
    const yaml_parser_t *parser = &reader->parser;

    if (yaml_parser_parse(&reader->parser, event))
        return true;
    if (parser->error == YAML_MEMORY_ERROR) {
        reader->no_memory = true;
        return false;
    }
    reader->problem->is_syntax = true;
    refuse(reader, FINDING_YAML_INVALID, &parser->problem_mark,
           parser->problem ? parser->problem : "not YAML");
    if (parser->error == YAML_READER_ERROR) /* its mark is where it has read to */
        reader->problem->is_syntax = false;
    return false;
}

static bool is_null(const yaml_event_t *event)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    const char *text = (const char *)event->data.scalar.value;

    if (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    for (size_t i = 0; i < BERTH_COUNT(words); i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return false;
}

static json_t *no_memory(struct reader *reader)
{
    reader->no_memory = true;
    return NULL;
}

/* What all kinds of values may not have. */
static bool is_allowed(struct reader *reader, const yaml_event_t *event, unsigned depth)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;

    switch (event->type) {
    case YAML_ALIAS_EVENT:
        anchor = event->data.alias.anchor;
        break;
    case YAML_SCALAR_EVENT:
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
        break;
    default:
        break;
    }
    if (anchor)
        refuse(reader, FINDING_YAML_ALIAS, &event->start_mark,
               "anchors and aliases are not taken");
    else if (tag)
        refuse(reader, FINDING_YAML_TAG, &event->start_mark, "tags are not taken");
    else if (depth > YAML_DEPTH_MAX)
        refuse(reader, FINDING_YAML_TOO_DEEP, &event->start_mark, "nested deeper than 12");
    else if (++reader->n_values > YAML_VALUES_MAX)
        refuse(reader, FINDING_YAML_TOO_LARGE, &event->start_mark, "more than 4096 values");
    else
        return true;
    return false;
}

static json_t *read_value(struct reader *reader, const yaml_event_t *event, unsigned depth);

static json_t *read_scalar(struct reader *reader, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    json_t *value;

    if (strlen(text) != event->data.scalar.length) {
        refuse(reader, FINDING_YAML_INVALID, &event->start_mark, "a value holds NUL");
        return NULL;
    }
    value = is_null(event) ? json_null() : json_string(text);
    return value ? value : no_memory(reader);
}

static json_t *read_sequence(struct reader *reader, unsigned depth)
{
    json_t *list = json_array();
    bool ok = list != NULL, done = false;

    while (ok && !done) {
        yaml_event_t event;
        json_t *value;

        ok = next(reader, &event);
        if (!ok)
            break;
        done = event.type == YAML_SEQUENCE_END_EVENT;
        if (!done) {
            value = read_value(reader, &event, depth + 1);
            ok = value && json_array_append_new(list, value) == 0;
        }
        yaml_event_delete(&event);
    }
    if (ok)
        return list;
    json_decref(list);
    return list ? NULL : no_memory(reader);
}

/* One key, from its event, and its value. */
static bool read_pair(struct reader *reader, const yaml_event_t *key, json_t *object,
                      unsigned depth)
{
    const char *text = (const char *)key->data.scalar.value;
    char said[YAML_PROBLEM_SIZE];
    yaml_event_t event;
    json_t *value;
    bool ok;

    if (!is_allowed(reader, key, depth))
        return false;
    if (key->type != YAML_SCALAR_EVENT || strlen(text) != key->data.scalar.length) {
        refuse(reader, FINDING_YAML_INVALID, &key->start_mark, "a key must be text");
        return false;
    }
    if (text_has_hidden(text, strlen(text))) { /* would be another key than the one seen */
        refuse(reader, FINDING_YAML_INVALID, &key->start_mark,
               "invisible characters stand in a key");
        return false;
    }
    if (json_object_get(object, text)) {
        snprintf(said, sizeof said, "the key '%.100s' stands there twice", text);
        refuse(reader, FINDING_YAML_DUPLICATE_KEY, &key->start_mark, said);
        return false;
    }
    if (!next(reader, &event))
        return false;
    value = read_value(reader, &event, depth + 1);
    yaml_event_delete(&event);
    if (!value)
        return false;
    ok = json_object_set_new(object, text, value) == 0;
    if (!ok)
        no_memory(reader);
    return ok;
}

static json_t *read_mapping(struct reader *reader, unsigned depth)
{
    json_t *object = json_object();
    bool ok = object != NULL, done = false;

    while (ok && !done) {
        yaml_event_t event;

        ok = next(reader, &event);
        if (!ok)
            break;
        done = event.type == YAML_MAPPING_END_EVENT;
        if (!done)
            ok = read_pair(reader, &event, object, depth);
        yaml_event_delete(&event);
    }
    if (ok)
        return object;
    json_decref(object);
    return object ? NULL : no_memory(reader);
}

static json_t *read_value(struct reader *reader, const yaml_event_t *event, unsigned depth)
{
    if (!is_allowed(reader, event, depth))
        return NULL;
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return read_scalar(reader, event);
    case YAML_SEQUENCE_START_EVENT:
        return read_sequence(reader, depth);
    case YAML_MAPPING_START_EVENT:
        return read_mapping(reader, depth);
    default:
        refuse(reader, FINDING_YAML_INVALID, &event->start_mark, "a value was expected");
        return NULL;
    }
}

/* From the start of the stream to its end: one document, or none. */
static json_t *read_document(struct reader *reader)
{
    json_t *root = NULL;
    bool ok = true, done = false;

    while (ok && !done) {
        yaml_event_t event;

        ok = next(reader, &event);
        if (!ok)
            break;
        switch (event.type) {
        case YAML_STREAM_END_EVENT:
            done = true;
            break;
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_END_EVENT:
            break;
        case YAML_DOCUMENT_START_EVENT:
            if (root) {
                refuse(reader, FINDING_YAML_INVALID, &event.start_mark, "a second document");
                ok = false;
            }
            break;
        default:
            root = read_value(reader, &event, 0);
            ok = root != NULL;
        }
        yaml_event_delete(&event);
    }
    if (ok && done)
        return root ? root : json_null();
    json_decref(root);
    return NULL;
}

enum berth_code yaml_read(const char *text, size_t size, json_t **ret,
                          struct yaml_problem *ret_problem, struct berth_error *err)
{
    struct reader reader = {.problem = ret_problem};

    *ret = NULL;
    *ret_problem = (struct yaml_problem){.code = FINDING_YAML_INVALID};
    if (!yaml_parser_initialize(&reader.parser))
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, size);
    *ret = read_document(&reader);
    yaml_parser_delete(&reader.parser);
    return reader.no_memory ? berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL) : BERTH_OK;
}

/* doc_write.c - parts of a session document as the text to be written, and edits. */
#include "services/binding/doc.h"

#include <stdio.h>

#include "common/json/json.h"
#include "common/records/message_json.h"
#include "services/binding/doc_words.h"

const char *binding_part_name(enum binding_part part)
{
    return part_names[part];
}

const char *binding_loss_word(enum binding_loss_cause cause)
{
    return loss_words[cause];
}

/* ------------------------------------------------------------------ encoding */

/* Setters on a JSON object: an allocation that failed shows in *ok. */
static void put(json_t *json, const char *key, json_t *value, bool *ok)
{
    if (json_object_set_new(json, key, value) < 0)
        *ok = false;
}

static void put_str(json_t *json, const char *key, const char *value, bool *ok)
{
    if (value[0])
        put(json, key, json_string(value), ok);
    else
        json_object_del(json, key);
}

static void put_int(json_t *json, const char *key, int64_t value, bool *ok)
{
    if (value)
        put(json, key, json_integer(value), ok);
    else
        json_object_del(json, key);
}

static void put_flag(json_t *json, const char *key, bool value, bool *ok)
{
    if (value)
        put(json, key, json_true(), ok);
    else
        json_object_del(json, key);
}

/* A copy of what was read, so that members unknown here stay; its own members are then set. */
static json_t *base_of(const json_t *json)
{
    return json ? json_copy((json_t *)json) : json_object();
}

static json_t *session_json(const struct binding_session *s)
{
    json_t *json = base_of(s->json);
    bool ok = json != NULL;

    if (!ok)
        return NULL;
    put_int(json, "major", BINDING_MAJOR, &ok);
    put_str(json, "state", state_words[s->state], &ok);
    put_str(json, "created_by", s->created_by, &ok);
    put_str(json, "alias", s->alias, &ok);
    put_int(json, "create_ms", s->create_ms, &ok);
    put_int(json, "deleting_ms", s->deleting_ms, &ok);
    put_int(json, "version", (int64_t)s->version, &ok);
    put_flag(json, "never_bound", s->never_bound, &ok);
    if (!s->spec)
        json_object_del(json, "spec");
    else if (s->spec_changed || !json_object_get(json, "spec"))
        put(json, "spec", berth_message_to_json(&s->spec->base), &ok);
    if (!ok)
        json_decref(json);
    return ok ? json : NULL;
}

static json_t *lock_json(const struct binding_lock *lock)
{
    json_t *json = base_of(lock->json);
    bool ok = json != NULL;

    if (!ok)
        return NULL;
    put_str(json, "token", lock->token, &ok);
    put_str(json, "owner", lock->owner, &ok);
    put_str(json, "op", op_words[lock->op], &ok);
    put_str(json, "want", want_words[lock->want], &ok);
    put_str(json, "done", done_words[lock->done], &ok);
    put_int(json, "fence", (int64_t)lock->fence, &ok);
    put_int(json, "until_ms", lock->until_ms, &ok);
    put_int(json, "lease_ms", lock->lease_ms, &ok);
    if (!ok)
        json_decref(json);
    return ok ? json : NULL;
}

static json_t *bound_json(const struct binding_bound *b)
{
    json_t *json = base_of(b->json);
    bool ok = json != NULL;

    if (!ok)
        return NULL;
    put_str(json, "sandbox_id", b->sandbox_id, &ok);
    put_str(json, "backend", b->backend, &ok);
    put_str(json, "config_id", b->config_id, &ok);
    put_str(json, "account", b->account, &ok);
    put_str(json, "attempt", b->attempt, &ok);
    put_str(json, "template_id", b->template_id, &ok);
    put_str(json, "snapshot_id", b->snapshot_id, &ok);
    put_int(json, "generation", (int64_t)b->generation, &ok);
    put_int(json, "marked_generation", (int64_t)b->marked_generation, &ok);
    put_int(json, "fence", (int64_t)b->fence, &ok);
    put_int(json, "create_ms", b->create_ms, &ok);
    put_int(json, "adopt_ms", b->adopt_ms, &ok);
    put_int(json, "end_ms", b->end_ms, &ok);
    if (b->told_ms)
        put_int(json, "told_ms", b->told_ms, &ok);
    put_str(json, "origin", origin_words[b->origin], &ok);
    put_str(json, "power", power_words[b->power], &ok);
    if (b->inbound_lost || json_object_get(json, "inbound_lost"))
        put_flag(json, "inbound_lost", b->inbound_lost, &ok);
    if (!ok)
        json_decref(json);
    return ok ? json : NULL;
}

static json_t *loss_json(const struct binding_loss *loss)
{
    json_t *json = base_of(loss->json);
    bool ok = json != NULL;

    if (!ok)
        return NULL;
    put_str(json, "cause", loss_words[loss->cause], &ok);
    put_flag(json, "memory", loss->memory, &ok);
    put_flag(json, "workspace", loss->workspace, &ok);
    put_flag(json, "packages", loss->packages, &ok);
    put_str(json, "open", loss_words[loss->open], &ok);
    put_str(json, "sandbox_id", loss->sandbox_id, &ok);
    put_int(json, "entries", (int64_t)loss->entries, &ok);
    put_int(json, "number", (int64_t)loss->number, &ok);
    put_int(json, "lost_ms", loss->lost_ms, &ok);
    put_int(json, "told_ms", loss->told_ms, &ok);
    if (!ok)
        json_decref(json);
    return ok ? json : NULL;
}

static json_t *carry_json(const struct binding_carry *carry)
{
    json_t *json = base_of(carry->json);
    bool ok = json != NULL;

    if (!ok)
        return NULL;
    put_str(json, "blob_id", carry->blob_id, &ok);
    put_str(json, "sandbox_id", carry->sandbox_id, &ok);
    put_str(json, "into", carry->into, &ok);
    put_str(json, "cause", loss_words[carry->cause], &ok);
    put_int(json, "lost_count", (int64_t)carry->lost_count, &ok);
    put_str(json, "lost_names", carry->lost_names, &ok);
    put_int(json, "export_ms", carry->export_ms, &ok);
    if (!ok)
        json_decref(json);
    return ok ? json : NULL;
}

static json_t *intent_json(const struct binding_intent *intent)
{
    json_t *json = base_of(intent->json);
    bool ok = json != NULL;

    if (!ok)
        return NULL;
    put_str(json, "kind", intent_words[intent->kind], &ok);
    put_str(json, "attempt", intent->attempt, &ok);
    put_str(json, "sandbox_id", intent->sandbox_id, &ok);
    put_str(json, "account", intent->account, &ok);
    put_int(json, "fence", (int64_t)intent->fence, &ok);
    put_int(json, "not_after_ms", intent->not_after_ms, &ok);
    if (intent->why)
        put_str(json, "why", why_words[intent->why], &ok);
    if (!ok)
        json_decref(json);
    return ok ? json : NULL;
}

static json_t *token_json(const struct binding_token *token)
{
    json_t *json = base_of(token->json);
    bool ok = json != NULL;

    if (!ok)
        return NULL;
    put_str(json, "kind", token_words[token->kind], &ok);
    put_str(json, "token", token->token, &ok);
    put_str(json, "sandbox_id", token->sandbox_id, &ok);
    put_int(json, "deadline_ms", token->deadline_ms, &ok);
    put_int(json, "lease_ms", token->lease_ms, &ok);
    if (!ok)
        json_decref(json);
    return ok ? json : NULL;
}

static json_t *intents_json(const struct binding_doc *doc)
{
    json_t *json = base_of(doc->intents_json), *list = json_array();
    bool ok = json && list;

    for (size_t i = 0; ok && i < doc->n_intents; i++)
        ok = json_array_append_new(list, intent_json(&doc->intents[i])) == 0;
    if (ok)
        put(json, "list", list, &ok);
    else
        json_decref(list);
    if (!ok)
        json_decref(json);
    return ok ? json : NULL;
}

static json_t *turns_json(const struct binding_doc *doc)
{
    json_t *json = base_of(doc->turns_json), *list = json_array();
    bool ok = json && list;

    for (size_t i = 0; ok && i < doc->n_tokens; i++)
        ok = json_array_append_new(list, token_json(&doc->tokens[i])) == 0;
    if (ok) {
        put(json, "list", list, &ok);
        put_int(json, "active_ms", doc->active_ms, &ok);
    } else {
        json_decref(list);
    }
    if (!ok)
        json_decref(json);
    return ok ? json : NULL;
}

/* One part as JSON; *ret_none: there is nothing to keep. NULL: no memory. */
static json_t *part_json(const struct binding_doc *doc, enum binding_part part, bool *ret_none)
{
    *ret_none = false;
    switch (part) {
    case BINDING_PART_SESSION:
        return session_json(&doc->session);
    case BINDING_PART_LOCK:
        *ret_none = !doc->lock.set;
        return *ret_none ? NULL : lock_json(&doc->lock);
    case BINDING_PART_BINDING:
        *ret_none = !doc->bound.set;
        return *ret_none ? NULL : bound_json(&doc->bound);
    case BINDING_PART_LOSS:
        *ret_none = !doc->loss.set;
        return *ret_none ? NULL : loss_json(&doc->loss);
    case BINDING_PART_CARRY:
        *ret_none = !doc->carry.set;
        return *ret_none ? NULL : carry_json(&doc->carry);
    case BINDING_PART_INTENTS:
        *ret_none = doc->n_intents == 0 && json_object_size(doc->intents_json) <= 1;
        return *ret_none ? NULL : intents_json(doc);
    default:
        *ret_none = doc->session.state == BINDING_STATE_DELETED;
        return *ret_none ? NULL : turns_json(doc);
    }
}

static char *plain_text(const struct binding_doc *doc, enum binding_part part, size_t *ret_size)
{
    char number[24];
    const char *text = number;
    size_t size;
    char *copy;

    if (part == BINDING_PART_CONFIG)
        text = doc->session.config_id;
    else if (part == BINDING_PART_ENDPOINT)
        text = (const char *)doc->bound.endpoint;
    else
        snprintf(number, sizeof number, "%llu",
                 (unsigned long long)(part == BINDING_PART_FENCE ? doc->fence : doc->seq));
    size = part == BINDING_PART_ENDPOINT ? doc->bound.endpoint_size : strlen(text);
    copy = malloc(size + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, size);
    copy[size] = '\0';
    *ret_size = size;
    return copy;
}

enum berth_code binding_doc_encode(const struct binding_doc *doc, enum binding_part part,
                                   char **ret_text, size_t *ret_size, struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *json = NULL;
    bool none = false;
    char *text = NULL;
    size_t size = 0;

    switch (part) {
    case BINDING_PART_CONFIG:
    case BINDING_PART_ENDPOINT:
        none = part == BINDING_PART_CONFIG ? !doc->session.config_id[0]
                                           : !doc->bound.endpoint_size;
        /* fall through */
    case BINDING_PART_FENCE:
    case BINDING_PART_SEQ:
        text = none ? NULL : plain_text(doc, part, &size);
        break;
    default:
        json = part_json(doc, part, &none);
        text = json ? berth_json_format(json) : NULL;
        size = text ? strlen(text) : 0;
        break;
    }
    if (!text && !none)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *ret_text = text;
    *ret_size = size;
    return BERTH_OK;
}

/* --------------------------------------------------------------------- edits */

enum berth_code binding_doc_add_intent(struct binding_doc *doc, struct binding_intent **ret,
                                       struct berth_error *err)
{
    struct binding_intent *grown;

    if (doc->n_intents >= BINDING_INTENTS_MAX)
        return berth_fail(err, BERTH_REASON_QUOTA_EXCEEDED,
                          "more than %d backend calls of the session are not settled",
                          BINDING_INTENTS_MAX);
    grown = realloc(doc->intents, (doc->n_intents + 1) * sizeof *grown);
    if (!grown)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    doc->intents = grown;
    *ret = &grown[doc->n_intents++];
    **ret = (struct binding_intent){0};
    binding_doc_touch(doc, BINDING_PART_INTENTS);
    return BERTH_OK;
}

enum berth_code binding_doc_add_token(struct binding_doc *doc, struct binding_token **ret,
                                      struct berth_error *err)
{
    struct binding_token *grown;

    if (doc->n_tokens >= BINDING_TOKENS_MAX)
        return berth_fail(err, BERTH_REASON_QUOTA_EXCEEDED,
                          "more than %d turns and streams in one session", BINDING_TOKENS_MAX);
    grown = realloc(doc->tokens, (doc->n_tokens + 1) * sizeof *grown);
    if (!grown)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    doc->tokens = grown;
    *ret = &grown[doc->n_tokens++];
    **ret = (struct binding_token){0};
    binding_doc_touch(doc, BINDING_PART_TURNS);
    return BERTH_OK;
}

void binding_doc_remove_intent(struct binding_doc *doc, size_t index)
{
    json_decref(doc->intents[index].json);
    doc->n_intents--;
    memmove(&doc->intents[index], &doc->intents[index + 1],
            (doc->n_intents - index) * sizeof *doc->intents);
    binding_doc_touch(doc, BINDING_PART_INTENTS);
}

void binding_doc_remove_token(struct binding_doc *doc, size_t index)
{
    json_decref(doc->tokens[index].json);
    doc->n_tokens--;
    memmove(&doc->tokens[index], &doc->tokens[index + 1],
            (doc->n_tokens - index) * sizeof *doc->tokens);
    binding_doc_touch(doc, BINDING_PART_TURNS);
}

void binding_doc_unbind(struct binding_doc *doc)
{
    free(doc->bound.endpoint);
    json_decref(doc->bound.json);
    doc->bound = (struct binding_bound){0};
    binding_doc_touch(doc, BINDING_PART_BINDING);
    binding_doc_touch(doc, BINDING_PART_ENDPOINT);
}

void binding_doc_drop_loss(struct binding_doc *doc)
{
    if (!doc->loss.set)
        return;
    json_decref(doc->loss.json);
    doc->loss = (struct binding_loss){0};
    binding_doc_touch(doc, BINDING_PART_LOSS);
}

void binding_doc_drop_carry(struct binding_doc *doc)
{
    if (!doc->carry.set)
        return;
    json_decref(doc->carry.json);
    doc->carry = (struct binding_carry){0};
    binding_doc_touch(doc, BINDING_PART_CARRY);
}

enum berth_code binding_doc_set_spec(struct binding_doc *doc,
                                     const Berth__Common__V1__SessionSpec *spec,
                                     const char *config_id, struct berth_error *err)
{
    Berth__Common__V1__SessionSpec pinned = *spec;
    BERTH_AUTO(free) uint8_t *packed = NULL;
    Berth__Common__V1__SessionSpec *copy = NULL;
    size_t size;

    pinned.config_id = (char *)config_id;
    size = berth__common__v1__session_spec__get_packed_size(&pinned);
    packed = malloc(size + 1);
    if (packed) {
        berth__common__v1__session_spec__pack(&pinned, packed);
        copy = berth__common__v1__session_spec__unpack(NULL, size, packed);
    }
    if (!copy)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    binding_doc_drop_spec(doc);
    doc->session.spec = copy;
    doc->session.spec_changed = true;
    binding_doc_touch(doc, BINDING_PART_SESSION);
    return BERTH_OK;
}

void binding_doc_drop_spec(struct binding_doc *doc)
{
    if (doc->session.spec)
        berth__common__v1__session_spec__free_unpacked(doc->session.spec, NULL);
    doc->session.spec = NULL;
}

enum berth_code binding_doc_set_endpoint(struct binding_doc *doc, const void *data, size_t size,
                                         struct berth_error *err)
{
    uint8_t *copy = NULL;

    if (size) {
        copy = malloc(size);
        if (!copy)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        memcpy(copy, data, size);
    }
    free(doc->bound.endpoint);
    doc->bound.endpoint = copy;
    doc->bound.endpoint_size = size;
    binding_doc_touch(doc, BINDING_PART_ENDPOINT);
    return BERTH_OK;
}

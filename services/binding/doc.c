#include "services/binding/doc.h"

#include <errno.h>
#include <stdio.h>

#include "common/json/json.h"
#include "common/records/message_json.h"
#include "services/binding/doc_words.h"

enum {
    SESSION_JSON_MAX = 512 * 1024,
    SMALL_JSON_MAX = 16 * 1024,
    LIST_JSON_MAX = 512 * 1024,
    LEASE_MAX_MS = 24 * 60 * 60 * 1000,
};

/* ------------------------------------------------------------------ decoding */

static bool is_hex(const char *text, size_t max_len)
{
    size_t len = strspn(text, "0123456789abcdef");

    return text[len] == '\0' && len % 2 == 0 && len <= max_len;
}

static enum berth_code invalid(struct berth_error *err, const char *key, const char *rule)
{
    return berth_fail(err, BERTH_REASON_FIELD_INVALID, "%s: %s", key, rule);
}

/* A word of words as its number; zero_ok: "" and absent are 0. */
static enum berth_code get_word(const json_t *json, const char *key, const char *const *words,
                                bool zero_ok, int *ret, struct berth_error *err)
{
    char text[16];
    enum berth_code code;

    code = berth_json_get_str(json, key, text, sizeof text, zero_ok ? words[0] : NULL, err);
    if (code)
        return code;
    for (int i = zero_ok ? 0 : 1; words[i]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *ret = i;
            return BERTH_OK;
        }
    }
    return invalid(err, key, "not a known word");
}

static enum berth_code get_hex(const json_t *json, const char *key, char *buf, size_t size,
                               size_t min_len, struct berth_error *err)
{
    enum berth_code code = berth_json_get_str(json, key, buf, size, "", err);

    if (code)
        return code;
    if (strlen(buf) < min_len || !is_hex(buf, size - 1))
        return invalid(err, key, "not the hex digits wanted");
    return BERTH_OK;
}

static enum berth_code get_ms(const json_t *json, const char *key, int64_t *ret,
                              struct berth_error *err)
{
    return berth_json_get_int(json, key, 0, INT64_MAX / 4, 0, ret, err);
}

static enum berth_code get_u64(const json_t *json, const char *key, uint64_t min, uint64_t *ret,
                               struct berth_error *err)
{
    int64_t value = 0;
    enum berth_code code =
        berth_json_get_int(json, key, (int64_t)min, INT64_MAX, (int64_t)min, &value, err);

    *ret = (uint64_t)value;
    return code;
}

/* A string that must be there and not be empty. */
static enum berth_code get_name(const json_t *json, const char *key, char *buf, size_t size,
                                struct berth_error *err)
{
    enum berth_code code = berth_json_get_str(json, key, buf, size, NULL, err);

    if (!code && buf[0] == '\0')
        return invalid(err, key, "empty");
    return code;
}

static enum berth_code check_major(const json_t *json, struct berth_error *err)
{
    int64_t major;
    enum berth_code code =
        berth_json_get_int(json, "major", 1, INT32_MAX, BINDING_MAJOR, &major, err);

    if (!code && major > BINDING_MAJOR)
        return invalid(err, "major", "written by a later version");
    return code;
}

static enum berth_code read_spec(const json_t *json, struct binding_session *s,
                                 struct berth_error *err)
{
    const json_t *spec = json_object_get(json, "spec");
    ProtobufCMessage *message;
    enum berth_code code;

    if (!spec)
        return s->state == BINDING_STATE_DELETED ? BERTH_OK : invalid(err, "spec", "absent");
    if (!json_is_object(spec))
        return invalid(err, "spec", "not an object");
    code = berth_message_from_json(spec, &berth__common__v1__session_spec__descriptor, &message,
                                   err);
    if (!code)
        s->spec = (Berth__Common__V1__SessionSpec *)message;
    return code;
}

static enum berth_code read_session(const json_t *json, struct binding_doc *doc,
                                    struct berth_error *err)
{
    struct binding_session *s = &doc->session;
    int state = 0;
    enum berth_code code;

    code = check_major(json, err);
    if (!code)
        code = get_word(json, "state", state_words, false, &state, err);
    s->state = (enum binding_state)state;
    if (!code)
        code = berth_json_get_str(json, "created_by", s->created_by, sizeof s->created_by, "",
                                  err);
    if (!code)
        code = get_name(json, "alias", s->alias, sizeof s->alias, err);
    if (!code)
        code = get_ms(json, "create_ms", &s->create_ms, err);
    if (!code)
        code = get_ms(json, "deleting_ms", &s->deleting_ms, err);
    if (!code)
        code = get_u64(json, "version", 1, &s->version, err);
    if (!code)
        code = berth_json_get_bool(json, "never_bound", false, &s->never_bound, err);
    if (!code)
        code = read_spec(json, s, err);
    return code;
}

static enum berth_code read_lock(const json_t *json, struct binding_doc *doc,
                                 struct berth_error *err)
{
    struct binding_lock *lock = &doc->lock;
    int op = 0, want = 0, done = 0;
    enum berth_code code;

    lock->set = true;
    code = get_hex(json, "token", lock->token, sizeof lock->token, sizeof lock->token - 1, err);
    if (!code)
        code = berth_json_get_str(json, "owner", lock->owner, sizeof lock->owner, "", err);
    if (!code)
        code = get_word(json, "op", op_words, false, &op, err);
    if (!code)
        code = get_word(json, "want", want_words, false, &want, err);
    if (!code)
        code = get_word(json, "done", done_words, true, &done, err);
    if (!code)
        code = get_u64(json, "fence", 1, &lock->fence, err);
    if (!code)
        code = get_ms(json, "until_ms", &lock->until_ms, err);
    if (!code)
        code =
            berth_json_get_int(json, "lease_ms", 1, LEASE_MAX_MS, 60000, &lock->lease_ms, err);
    lock->op = (enum binding_decision)op;
    lock->want = (enum binding_want_kind)want;
    lock->done = (enum binding_done)done;
    return code;
}

static enum berth_code read_bound(const json_t *json, struct binding_doc *doc,
                                  struct berth_error *err)
{
    struct binding_bound *b = &doc->bound;
    int origin = 0, power = 0;
    enum berth_code code;

    b->set = true;
    code = get_name(json, "sandbox_id", b->sandbox_id, sizeof b->sandbox_id, err);
    if (!code)
        code = get_name(json, "backend", b->backend, sizeof b->backend, err);
    if (!code)
        code = get_name(json, "config_id", b->config_id, sizeof b->config_id, err);
    if (!code)
        code = get_hex(json, "account", b->account, sizeof b->account, 0, err);
    if (!code)
        code = get_hex(json, "attempt", b->attempt, sizeof b->attempt, 0, err);
    if (!code)
        code = berth_json_get_str(json, "template_id", b->template_id, sizeof b->template_id,
                                  "", err);
    if (!code)
        code = berth_json_get_str(json, "snapshot_id", b->snapshot_id, sizeof b->snapshot_id,
                                  "", err);
    if (!code)
        code = get_u64(json, "generation", 0, &b->generation, err);
    if (!code)
        code = get_u64(json, "marked_generation", 0, &b->marked_generation, err);
    if (!code)
        code = get_u64(json, "fence", 1, &b->fence, err);
    if (!code)
        code = get_ms(json, "create_ms", &b->create_ms, err);
    if (!code)
        code = get_ms(json, "adopt_ms", &b->adopt_ms, err);
    if (!code)
        code = get_ms(json, "end_ms", &b->end_ms, err);
    if (!code)
        code = get_ms(json, "told_ms", &b->told_ms, err);
    if (!code)
        code = get_word(json, "origin", origin_words, false, &origin, err);
    if (!code)
        code = get_word(json, "power", power_words, false, &power, err);
    if (!code)
        code = berth_json_get_bool(json, "inbound_lost", false, &b->inbound_lost, err);
    b->origin = (enum binding_origin)origin;
    b->power = (enum binding_power)power;
    if (!code && b->template_id[0] && b->snapshot_id[0])
        return invalid(err, "snapshot_id", "set beside template_id");
    return code;
}

static enum berth_code read_loss(const json_t *json, struct binding_doc *doc,
                                 struct berth_error *err)
{
    struct binding_loss *loss = &doc->loss;
    int cause = 0, open = 0;
    enum berth_code code = get_word(json, "cause", loss_words, false, &cause, err);

    loss->set = true;
    if (!code)
        code = get_word(json, "open", loss_words, true, &open, err);
    loss->cause = (enum binding_loss_cause)cause;
    loss->open = (enum binding_loss_cause)open;
    if (!code)
        code = berth_json_get_bool(json, "memory", false, &loss->memory, err);
    if (!code)
        code = berth_json_get_bool(json, "workspace", false, &loss->workspace, err);
    if (!code)
        code = berth_json_get_bool(json, "packages", false, &loss->packages, err);
    if (!code)
        code = get_name(json, "sandbox_id", loss->sandbox_id, sizeof loss->sandbox_id, err);
    if (!code)
        code = get_u64(json, "number", 1, &loss->number, err);
    if (!code && json_object_get(json, "entries"))
        code = get_u64(json, "entries", 0, &loss->entries, err);
    if (!code)
        code = get_ms(json, "lost_ms", &loss->lost_ms, err);
    if (!code)
        code = get_ms(json, "told_ms", &loss->told_ms, err);
    if (!code && !loss->memory && !loss->workspace && !loss->packages)
        return invalid(err, "cause", "of a loss of nothing");
    return code;
}

static enum berth_code read_carry(const json_t *json, struct binding_doc *doc,
                                  struct berth_error *err)
{
    struct binding_carry *carry = &doc->carry;
    int cause = 0;
    enum berth_code code =
        get_name(json, "blob_id", carry->blob_id, sizeof carry->blob_id, err);

    carry->set = true;
    if (!code)
        code = get_name(json, "sandbox_id", carry->sandbox_id, sizeof carry->sandbox_id, err);
    if (!code)
        code = berth_json_get_str(json, "into", carry->into, sizeof carry->into, "", err);
    if (!code)
        code = get_word(json, "cause", loss_words, false, &cause, err);
    carry->cause = (enum binding_loss_cause)cause;
    if (!code)
        code = get_u64(json, "lost_count", 0, &carry->lost_count, err);
    if (!code)
        code = berth_json_get_str(json, "lost_names", carry->lost_names,
                                  sizeof carry->lost_names, "", err);
    if (!code)
        code = get_ms(json, "export_ms", &carry->export_ms, err);
    return code;
}

static enum berth_code read_intent(const json_t *json, struct binding_doc *doc,
                                   struct berth_error *err)
{
    struct binding_intent *intent;
    int kind = 0, why = 0;
    enum berth_code code = binding_doc_add_intent(doc, &intent, err);

    if (!code)
        code = get_word(json, "kind", intent_words, false, &kind, err);
    if (code)
        return code;
    intent->kind = (enum binding_intent_kind)kind;
    code = get_hex(json, "attempt", intent->attempt, sizeof intent->attempt,
                   kind == BINDING_INTENT_CREATE ? sizeof intent->attempt - 1 : 0, err);
    if (!code)
        code = berth_json_get_str(json, "sandbox_id", intent->sandbox_id,
                                  sizeof intent->sandbox_id, "", err);
    if (!code)
        code = get_hex(json, "account", intent->account, sizeof intent->account, 0, err);
    if (!code)
        code = get_u64(json, "fence", 1, &intent->fence, err);
    if (!code)
        code = get_ms(json, "not_after_ms", &intent->not_after_ms, err);
    if (!code)
        code = get_word(json, "why", why_words, true, &why, err);
    intent->why = (enum binding_why)why;
    if (!code && kind != BINDING_INTENT_CREATE && !intent->sandbox_id[0])
        return invalid(err, "sandbox_id", "empty");
    intent->json = json_incref((json_t *)json);
    return code;
}

static enum berth_code read_token(const json_t *json, struct binding_doc *doc,
                                  struct berth_error *err)
{
    struct binding_token *token;
    int kind = 0;
    enum berth_code code = binding_doc_add_token(doc, &token, err);

    if (!code)
        code = get_word(json, "kind", token_words, false, &kind, err);
    if (code)
        return code;
    token->kind = (enum binding_token_kind)kind;
    code = get_name(json, "token", token->token, sizeof token->token, err);
    if (!code)
        code = get_ms(json, "deadline_ms", &token->deadline_ms, err);
    if (!code)
        code =
            berth_json_get_int(json, "lease_ms", 1, LEASE_MAX_MS, 60000, &token->lease_ms, err);
    if (!code)
        code = berth_json_get_str(json, "sandbox_id", token->sandbox_id,
                                  sizeof token->sandbox_id, "", err);
    token->json = json_incref((json_t *)json);
    return code;
}

static enum berth_code read_list(const json_t *json, struct binding_doc *doc,
                                 enum berth_code (*read_one)(const json_t *,
                                                             struct binding_doc *,
                                                             struct berth_error *),
                                 struct berth_error *err)
{
    const json_t *list = json_object_get(json, "list");
    enum berth_code code = BERTH_OK;

    if (list && !json_is_array(list))
        return invalid(err, "list", "not an array");
    for (size_t i = 0; !code && i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);

        code = json_is_object(one) ? read_one(one, doc, err)
                                   : invalid(err, "list", "holds something not an object");
    }
    return code;
}

static enum berth_code read_intents(const json_t *json, struct binding_doc *doc,
                                    struct berth_error *err)
{
    return read_list(json, doc, read_intent, err);
}

static enum berth_code read_turns(const json_t *json, struct binding_doc *doc,
                                  struct berth_error *err)
{
    enum berth_code code = get_ms(json, "active_ms", &doc->active_ms, err);

    return code ? code : read_list(json, doc, read_token, err);
}

static enum berth_code read_count(const struct berth_doc *raw, const char *field, uint64_t *ret,
                                  struct berth_error *err)
{
    const char *text = berth_doc_get(raw, field);
    unsigned long long value;
    char *end;

    if (!berth_doc_has(raw, field))
        return BERTH_OK;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value > INT64_MAX)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "not a number");
    *ret = value;
    return BERTH_OK;
}

static const struct berth_doc_field *find_field(const struct berth_doc *raw, const char *name)
{
    for (size_t i = 0; i < raw->n_fields; i++)
        if (strcmp(raw->fields[i].name, name) == 0)
            return &raw->fields[i];
    return NULL;
}

/* Parse one field, if it is there, and hand it to read; *ret_json (may be NULL) keeps it. */
static enum berth_code
read_part(const struct berth_doc *raw, enum binding_part part, size_t max_size,
          enum berth_code (*read)(const json_t *, struct binding_doc *, struct berth_error *),
          struct binding_doc *doc, json_t **ret_json, struct berth_error *err)
{
    const struct berth_doc_field *field = find_field(raw, part_names[part]);
    struct berth_error why = {0};
    json_t *json = NULL;
    enum berth_code code;

    if (!field)
        return BERTH_OK;
    code = berth_json_parse(field->value, field->size, max_size, &json, &why);
    if (!code) {
        *ret_json = json;
        code = read(json, doc, &why);
    }
    if (code == BERTH_RESOURCE_EXHAUSTED && why.reason == BERTH_REASON_OUT_OF_MEMORY)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (code)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "%s: %s: %s", raw->key,
                          part_names[part], why.text);
    return BERTH_OK;
}

static enum berth_code broken(const struct berth_doc *raw, const char *why,
                              struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "%s: %s", raw->key, why);
}

static enum berth_code read_scalars(const struct berth_doc *raw, struct binding_doc *doc,
                                    struct berth_error *err)
{
    const char *rev = berth_doc_get(raw, "rev");
    const char *config = berth_doc_get(raw, "config");
    const struct berth_doc_field *endpoint = find_field(raw, "endpoint");

    if (strlen(rev) != sizeof doc->rev - 1 || !is_hex(rev, sizeof doc->rev - 1))
        return broken(raw, "rev is not 16 hex digits", err);
    memcpy(doc->rev, rev, sizeof doc->rev);
    if (strlen(config) >= sizeof doc->session.config_id)
        return broken(raw, "config is too long", err);
    snprintf(doc->session.config_id, sizeof doc->session.config_id, "%s", config);
    if (read_count(raw, "fence", &doc->fence, NULL))
        return broken(raw, "fence is not a number", err);
    if (read_count(raw, "seq", &doc->seq, NULL))
        return broken(raw, "seq is not a number", err);
    if (endpoint && endpoint->size > BINDING_ENDPOINT_MAX)
        return broken(raw, "endpoint is too large", err);
    return endpoint ? binding_doc_set_endpoint(doc, endpoint->value, endpoint->size, err)
                    : BERTH_OK;
}

/* What no single part shows. */
static enum berth_code check_whole(const struct berth_doc *raw, const struct binding_doc *doc,
                                   struct berth_error *err)
{
    enum binding_state state = doc->session.state;

    if (state == BINDING_STATE_NONE && (doc->bound.set || doc->lock.set || doc->n_intents ||
                                        doc->n_tokens || doc->loss.set || doc->carry.set))
        return broken(
            raw, "session: absent beside binding, lock, intents, turns, loss or carry", err);
    if ((state == BINDING_STATE_ACTIVE || state == BINDING_STATE_DELETING) &&
        !doc->session.config_id[0])
        return broken(raw, "config: absent beside session", err);
    if (state == BINDING_STATE_DELETED &&
        (doc->bound.set || doc->n_tokens || doc->loss.set || doc->carry.set))
        return broken(raw, "session: deleted, with a binding, turns, a loss or a carry", err);
    if (doc->bound.set && strcmp(doc->bound.config_id, doc->session.config_id) != 0)
        return broken(raw, "binding: of another config", err);
    if (doc->lock.set && doc->lock.fence > doc->fence)
        return broken(raw, "lock: fence above the document's", err);
    return BERTH_OK;
}

enum berth_code binding_doc_decode(const struct berth_doc *raw, struct binding_doc *ret,
                                   struct berth_error *err)
{
    struct binding_doc doc = {0};
    enum berth_code code;

    if (!raw->exists) {
        *ret = doc;
        return BERTH_OK;
    }
    code = read_scalars(raw, &doc, err);
    if (!code)
        code = read_part(raw, BINDING_PART_SESSION, SESSION_JSON_MAX, read_session, &doc,
                         &doc.session.json, err);
    if (!code)
        code = read_part(raw, BINDING_PART_LOCK, SMALL_JSON_MAX, read_lock, &doc,
                         &doc.lock.json, err);
    if (!code)
        code = read_part(raw, BINDING_PART_BINDING, SMALL_JSON_MAX, read_bound, &doc,
                         &doc.bound.json, err);
    if (!code)
        code = read_part(raw, BINDING_PART_INTENTS, LIST_JSON_MAX, read_intents, &doc,
                         &doc.intents_json, err);
    if (!code)
        code = read_part(raw, BINDING_PART_TURNS, LIST_JSON_MAX, read_turns, &doc,
                         &doc.turns_json, err);
    if (!code)
        code = read_part(raw, BINDING_PART_LOSS, SMALL_JSON_MAX, read_loss, &doc,
                         &doc.loss.json, err);
    if (!code)
        code = read_part(raw, BINDING_PART_CARRY, SMALL_JSON_MAX, read_carry, &doc,
                         &doc.carry.json, err);
    if (!code)
        code = check_whole(raw, &doc, err);
    if (code) {
        binding_doc_deinit(&doc);
        return code;
    }
    if (doc.bound.set) { /* whatever an older version left standing beside it */
        doc.session.never_bound = false;
        doc.loss.open = BINDING_LOSS_NONE;
    }
    doc.dirty = 0;
    *ret = doc;
    return BERTH_OK;
}

void binding_doc_deinit(struct binding_doc *doc)
{
    for (size_t i = 0; i < doc->n_intents; i++)
        json_decref(doc->intents[i].json);
    for (size_t i = 0; i < doc->n_tokens; i++)
        json_decref(doc->tokens[i].json);
    free(doc->intents);
    free(doc->tokens);
    free(doc->bound.endpoint);
    json_decref(doc->session.json);
    json_decref(doc->lock.json);
    json_decref(doc->bound.json);
    json_decref(doc->loss.json);
    json_decref(doc->carry.json);
    json_decref(doc->turns_json);
    json_decref(doc->intents_json);
    binding_doc_drop_spec(doc);
    *doc = (struct binding_doc){0};
}

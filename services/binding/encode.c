#include "services/binding/encode.h"

#include "common/crypto/crypto.h"

#include <stdio.h>

enum { NAMED_MAX = 32 }; /* sandboxes of one session; hardly ever more than one */

/* ---------------------------------------------------------------------- scalars */

static void set_str(char **field, const char *value, bool *ok)
{
    if (!value[0])
        return; /* the default stays */
    *field = strdup(value);
    if (!*field)
        *ok = false;
    if (!*field)
        *field = (char *)protobuf_c_empty_string;
}

static void set_bytes(ProtobufCBinaryData *field, const void *data, size_t size, bool *ok)
{
    if (size == 0)
        return;
    field->data = malloc(size);
    if (!field->data) {
        *ok = false;
        return;
    }
    memcpy(field->data, data, size);
    field->len = size;
}

static int digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static void set_hex(ProtobufCBinaryData *field, const char *hex, bool *ok)
{
    uint8_t bytes[BINDING_ACCOUNT_MAX];
    size_t size = strlen(hex) / 2;

    for (size_t i = 0; i < size && i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
    set_bytes(field, bytes, size, ok);
}

Google__Protobuf__Timestamp *binding_encode_time(int64_t wall_ms)
{
    Google__Protobuf__Timestamp *time = malloc(sizeof *time);

    if (!time)
        return NULL;
    google__protobuf__timestamp__init(time);
    time->seconds = wall_ms / 1000;
    time->nanos = (int32_t)(wall_ms % 1000 * 1000000);
    return time;
}

/* 0: left absent. */
static void set_time(Google__Protobuf__Timestamp **field, int64_t wall_ms, bool *ok)
{
    if (wall_ms && !(*field = binding_encode_time(wall_ms)))
        *ok = false;
}

static void *give(ProtobufCMessage *message, bool ok)
{
    if (ok)
        return message;
    protobuf_c_message_free_unpacked(message, NULL);
    return NULL;
}

/* ---------------------------------------------------------------------- messages */

Berth__Common__V1__SessionRef *binding_encode_ref(const char *tenant_id, const char *session_id)
{
    Berth__Common__V1__SessionRef *ref = malloc(sizeof *ref);
    bool ok = true;

    if (!ref)
        return NULL;
    berth__common__v1__session_ref__init(ref);
    set_str(&ref->tenant_id, tenant_id, &ok);
    set_str(&ref->session_id, session_id, &ok);
    return give(&ref->base, ok);
}

static Berth__Common__V1__SessionSpec *copy_spec(const Berth__Common__V1__SessionSpec *spec)
{
    size_t size = berth__common__v1__session_spec__get_packed_size(spec);
    BERTH_AUTO(free) uint8_t *packed = malloc(size + 1);

    if (!packed)
        return NULL;
    berth__common__v1__session_spec__pack(spec, packed);
    return berth__common__v1__session_spec__unpack(NULL, size, packed);
}

Berth__Binding__V1__SessionRecord *binding_encode_record(const struct binding_ref *ref,
                                                         const struct binding_doc *doc)
{
    const struct binding_session *s = &doc->session;
    Berth__Binding__V1__SessionRecord *record;
    bool ok = true;

    if (s->state == BINDING_STATE_NONE || !(record = malloc(sizeof *record)))
        return NULL;
    berth__binding__v1__session_record__init(record);
    record->state = (Berth__Common__V1__SessionState)s->state;
    record->kind = binding_is_maintenance(ref->session_id)
                       ? BERTH__BINDING__V1__SESSION_KIND__SESSION_KIND_MAINTENANCE
                       : BERTH__BINDING__V1__SESSION_KIND__SESSION_KIND_USER;
    record->version = s->version;
    record->never_bound = s->never_bound;
    record->ref = binding_encode_ref(ref->tenant_id, ref->session_id);
    record->spec = s->spec ? copy_spec(s->spec) : NULL;
    ok = record->ref && (!s->spec || record->spec);
    set_str(&record->created_by, s->created_by, &ok);
    set_str(&record->alias, s->alias, &ok);
    set_time(&record->create_time, s->create_ms, &ok);
    return give(&record->base, ok);
}

static Berth__Common__V1__Image *encode_image(const char *template_id, const char *snapshot_id,
                                              uint64_t generation)
{
    Berth__Common__V1__Image *image = malloc(sizeof *image);
    bool ok = true;

    if (!image)
        return NULL;
    berth__common__v1__image__init(image);
    image->generation = generation;
    if (snapshot_id && snapshot_id[0]) {
        image->source_case = BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID;
        image->snapshot_id = (char *)protobuf_c_empty_string;
        set_str(&image->snapshot_id, snapshot_id, &ok);
    } else if (template_id && template_id[0]) {
        image->source_case = BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID;
        image->template_id = (char *)protobuf_c_empty_string;
        set_str(&image->template_id, template_id, &ok);
    }
    return give(&image->base, ok);
}

Berth__Binding__V1__Binding *binding_encode_bound(const struct binding_bound *bound,
                                                  bool with_endpoint)
{
    Berth__Binding__V1__Binding *out = malloc(sizeof *out);
    bool ok = true;

    if (!out)
        return NULL;
    berth__binding__v1__binding__init(out);
    out->fence = bound->fence;
    out->origin = (Berth__Binding__V1__Origin)bound->origin;
    out->power = (Berth__Binding__V1__Power)bound->power;
    out->inbound_token_lost = bound->inbound_lost;
    out->image = encode_image(bound->template_id, bound->snapshot_id, bound->generation);
    ok = out->image != NULL;
    set_str(&out->backend, bound->backend, &ok);
    set_str(&out->config_id, bound->config_id, &ok);
    set_str(&out->sandbox_id, bound->sandbox_id, &ok);
    set_hex(&out->attempt, bound->attempt, &ok);
    set_hex(&out->account, bound->account, &ok);
    if (with_endpoint)
        set_bytes(&out->sealed_endpoint, bound->endpoint, bound->endpoint_size, &ok);
    set_time(&out->create_time, bound->create_ms, &ok);
    set_time(&out->end_time, bound->end_ms, &ok);
    set_time(&out->adopt_time, bound->adopt_ms, &ok);
    set_time(&out->told_end_time, bound->told_ms, &ok);
    return give(&out->base, ok);
}

Berth__Binding__V1__Lock *binding_encode_lock(const struct binding_view *view)
{
    const struct binding_lock *lock = &view->doc.lock;
    int64_t left_ms = lock->until_ms > view->now_ms ? lock->until_ms - view->now_ms : 0;
    Berth__Binding__V1__Lock *out = malloc(sizeof *out);
    bool ok = true;

    if (!out)
        return NULL;
    berth__binding__v1__lock__init(out);
    out->fence = lock->fence;
    set_hex(&out->token, lock->token, &ok);
    set_time(&out->read_time, view->now_ms, &ok);
    out->lease = malloc(sizeof *out->lease);
    if (out->lease) {
        google__protobuf__duration__init(out->lease);
        out->lease->seconds = left_ms / 1000;
        out->lease->nanos = (int32_t)(left_ms % 1000 * 1000000);
    }
    return give(&out->base, ok && out->lease);
}

Berth__Binding__V1__Loss *binding_encode_loss(const struct binding_loss *loss)
{
    Berth__Binding__V1__Loss *out = malloc(sizeof *out);
    bool ok = true;

    if (!out)
        return NULL;
    berth__binding__v1__loss__init(out);
    out->number = loss->number;
    out->cause = (Berth__Binding__V1__LossCause)loss->cause;
    out->memory = loss->memory;
    out->workspace = loss->workspace;
    out->packages = loss->packages;
    out->workspace_entries = loss->entries;
    set_str(&out->sandbox_id, loss->sandbox_id, &ok);
    set_time(&out->lost_time, loss->lost_ms, &ok);
    set_time(&out->told_time, loss->told_ms, &ok);
    return give(&out->base, ok);
}

static Berth__Binding__V1__Intent *encode_intent(const struct binding_intent *intent)
{
    Berth__Binding__V1__Intent *out = malloc(sizeof *out);
    bool ok = true;

    if (!out)
        return NULL;
    berth__binding__v1__intent__init(out);
    out->kind = (Berth__Binding__V1__IntentKind)intent->kind;
    out->fence = intent->fence;
    set_hex(&out->attempt, intent->attempt, &ok);
    set_hex(&out->account, intent->account, &ok);
    set_str(&out->sandbox_id, intent->sandbox_id, &ok);
    set_time(&out->not_after_time, intent->not_after_ms, &ok);
    return give(&out->base, ok);
}

static void set_intents(Berth__Binding__V1__Intent ***field, size_t *n_field,
                        const struct binding_doc *doc, bool *ok)
{
    if (doc->n_intents == 0)
        return;
    *field = calloc(doc->n_intents, sizeof **field);
    if (!*field)
        *ok = false;
    for (size_t i = 0; *ok && i < doc->n_intents; i++) {
        (*field)[i] = encode_intent(&doc->intents[i]);
        if ((*field)[i])
            *n_field = i + 1;
        else
            *ok = false;
    }
}

static enum berth_code finish(ProtobufCMessage *message, bool ok, ProtobufCMessage **ret_resp,
                              struct berth_error *err)
{
    *ret_resp = give(message, ok);
    return *ret_resp ? BERTH_OK : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static Berth__Binding__V1__Carry *encode_carry(const struct binding_carry *carry)
{
    Berth__Binding__V1__Carry *out = malloc(sizeof *out);
    bool ok = true;

    if (!out)
        return NULL;
    berth__binding__v1__carry__init(out);
    out->lost_count = carry->lost_count;
    set_str(&out->lost_names, carry->lost_names, &ok);
    set_str(&out->blob_id, carry->blob_id, &ok);
    set_str(&out->sandbox_id, carry->sandbox_id, &ok);
    set_str(&out->into_sandbox_id, carry->into, &ok);
    return give(&out->base, ok);
}

static void set_named(Berth__Binding__V1__AcquireResponse *out, const struct binding_view *view,
                      const char *turn_token, bool *ok)
{
    const char *ids[NAMED_MAX];
    size_t n = binding_named_ones(view, turn_token, ids, NAMED_MAX);

    if (n == 0)
        return;
    out->named_sandbox_ids = calloc(n, sizeof *out->named_sandbox_ids);
    if (!out->named_sandbox_ids)
        *ok = false;
    for (size_t i = 0; *ok && i < n; i++) {
        out->named_sandbox_ids[i] = strdup(ids[i]);
        out->n_named_sandbox_ids++;
        *ok = out->named_sandbox_ids[i] != NULL;
    }
}

enum berth_code binding_encode_acquire(const struct binding_ref *ref,
                                       const struct binding_view *view,
                                       const struct binding_plan *plan, const char *turn_token,
                                       ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct binding_doc *doc = &view->doc;
    bool locked = plan->decision != BINDING_USE && plan->decision != BINDING_NONE;
    Berth__Binding__V1__AcquireResponse *out = malloc(sizeof *out);
    bool ok = true;

    if (!out)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth__binding__v1__acquire_response__init(out);
    out->decision = (Berth__Binding__V1__Decision)plan->decision;
    out->protected_ = binding_protected(view);
    out->stale = binding_stale(view);
    out->turn_running = binding_turn_running(view);
    out->keyed_create = view->config.keyed_create;
    out->cordoned = binding_cordoned(view);
    out->session = binding_encode_record(ref, doc);
    ok = out->session || doc->session.state == BINDING_STATE_NONE;
    if (doc->bound.set) {
        out->binding = binding_encode_bound(&doc->bound, true);
        ok = ok && out->binding;
    }
    if (binding_loss_pending(doc)) {
        out->loss = binding_encode_loss(&doc->loss);
        ok = ok && out->loss;
    }
    if (doc->carry.set) {
        out->carry = encode_carry(&doc->carry);
        ok = ok && out->carry;
    }
    if (locked) {
        struct binding_image image;

        binding_boot_image(view, &image);
        out->lock = binding_encode_lock(view);
        out->boot_image = encode_image(image.template_id, image.snapshot_id, image.generation);
        ok = ok && out->lock && out->boot_image;
    }
    if (plan->decision == BINDING_ADOPT_OR_CREATE) {
        set_named(out, view, turn_token, &ok);
        if (doc->loss.set)
            set_str(&out->last_sandbox_id, doc->loss.sandbox_id, &ok);
    }
    set_intents(&out->intents, &out->n_intents, doc, &ok);
    return finish(&out->base, ok, ret_resp, err);
}

enum berth_code binding_encode_get(const struct binding_ref *ref,
                                   const struct binding_view *view, ProtobufCMessage **ret_resp,
                                   struct berth_error *err)
{
    const struct binding_doc *doc = &view->doc;
    Berth__Binding__V1__GetBindingResponse *out = malloc(sizeof *out);
    bool ok = true;

    if (!out)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth__binding__v1__get_binding_response__init(out);
    out->protected_ = binding_protected(view);
    out->stale = binding_stale(view);
    out->turn_running = binding_turn_running(view);
    out->session = binding_encode_record(ref, doc);
    ok = out->session != NULL;
    if (doc->loss.set) {
        out->loss = binding_encode_loss(&doc->loss);
        ok = ok && out->loss;
    }
    if (doc->bound.set) {
        out->binding = binding_encode_bound(&doc->bound, true);
        ok = ok && out->binding;
    }
    set_intents(&out->intents, &out->n_intents, doc, &ok);
    return finish(&out->base, ok, ret_resp, err);
}

Berth__Binding__V1__BoundSession *binding_encode_row(const struct binding_ref *ref,
                                                     const struct binding_view *view)
{
    Berth__Binding__V1__BoundSession *row = malloc(sizeof *row);
    char key_id[BERTH_KEY_ID_SIZE];
    bool ok;

    if (!row)
        return NULL;
    berth__binding__v1__bound_session__init(row);
    row->stale = binding_stale(view);
    row->turn_running = binding_turn_running(view);
    row->protected_ = binding_protected(view);
    row->session = binding_encode_record(ref, &view->doc);
    ok = row->session != NULL;
    set_time(&row->active_time, view->doc.active_ms, &ok);
    if (view->doc.bound.set) {
        row->binding = binding_encode_bound(&view->doc.bound, false);
        ok = ok && row->binding;
        if (berth_sealed_key_id(view->doc.bound.endpoint, view->doc.bound.endpoint_size,
                                key_id))
            ok = ok && (row->endpoint_key_id = strdup(key_id));
    }
    return give(&row->base, ok);
}

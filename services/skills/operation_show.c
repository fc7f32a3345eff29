/* operation_show.c - operations as the API shows them. */
#include <stdio.h>

#include "common/messages/messages.h"
#include "services/skills/operation_rpc.h"

typedef Berth__Skills__V1__Finding Finding;
typedef Berth__Skills__V1__SkillOperation SkillOperation;

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static Finding *show_finding(const json_t *finding)
{
    Finding *out = berth_message_new(&berth__skills__v1__finding__descriptor);

    if (!out)
        return NULL;
    out->severity =
        (Berth__Skills__V1__Severity)json_integer_value(json_object_get(finding, "severity"));
    out->line = (uint32_t)json_integer_value(json_object_get(finding, "line"));
    if (berth_set_string(&out->code, text_of(finding, "code")) &&
        berth_set_string(&out->file, text_of(finding, "file")) &&
        berth_set_string(&out->message, text_of(finding, "message")))
        return out;
    return berth_message_free(out);
}

static bool show_error(const struct operation *operation, SkillOperation *out)
{
    Berth__Common__V1__ErrorInfo *error;

    if (!operation->reason[0])
        return true;
    error = out->error = berth_message_new(&berth__common__v1__error_info__descriptor);
    return error && berth_set_string(&error->reason, operation->reason) &&
           berth_set_string(&error->domain, "berth");
}

static bool show_time(int64_t ms, Google__Protobuf__Timestamp **slot)
{
    return ms == 0 || (*slot = berth_timestamp(ms));
}

SkillOperation *operation_show(const struct operation *operation)
{
    SkillOperation *out = berth_message_new(&berth__skills__v1__skill_operation__descriptor);
    bool good = out != NULL;

    for (size_t i = 0; good && i < json_array_size(operation->findings); i++)
        good = berth_add_message(&out->n_findings, &out->findings,
                                 show_finding(json_array_get(operation->findings, i)));
    if (!good)
        return berth_message_free(out);
    out->kind = (Berth__Skills__V1__OperationKind)operation->kind;
    out->state = (Berth__Skills__V1__OperationState)operation->state;
    out->step = (Berth__Skills__V1__Step)operation->step;
    out->percent = operation->percent;
    out->generation = operation->generation;
    out->unchanged = operation->unchanged;
    out->cancel_requested = operation->cancel;
    out->sessions_marked = operation->sessions_marked;
    out->sessions_not_marked = operation->sessions_not_marked;
    if (berth_set_string(&out->operation_id, operation->operation_id) &&
        berth_set_string(&out->tenant_id, operation->tenant_id) &&
        berth_set_string(&out->config_id, operation->config_id) &&
        berth_set_string(&out->skill_name, operation->skill_name) &&
        berth_set_string(&out->ledger_row_id, operation->row_id) &&
        berth_set_string(&out->snapshot_id, operation->snapshot_id) &&
        berth_set_string(&out->maintenance_session_id, operation->session_id) &&
        berth_set_string(&out->created_by, operation->created_by) &&
        berth_set_string(&out->message, operation->message) && show_error(operation, out) &&
        show_time(operation->create_ms, &out->create_time) &&
        show_time(operation->beat_ms, &out->heartbeat_time) &&
        show_time(operation->end_ms, &out->end_time))
        return out;
    return berth_message_free(out);
}

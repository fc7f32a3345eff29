/* catalog_rpc.c - SkillService: GetSkill, ListSkills. */
#include <stdio.h>

#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "services/skills/bundle/skill.h"
#include "services/skills/catalog.h"
#include "services/skills/image.h"

typedef Berth__Skills__V1__GetSkillRequest GetSkillRequest;
typedef Berth__Skills__V1__GetSkillResponse GetSkillResponse;
typedef Berth__Skills__V1__ListSkillsRequest ListSkillsRequest;
typedef Berth__Skills__V1__ListSkillsResponse ListSkillsResponse;

#define TYPE(name) (&berth__skills__v1__##name##__descriptor)
#define HANDLER(name)                                                                          \
    static enum berth_code name(void *service, struct berth_call *call,                        \
                                const ProtobufCMessage *message, ProtobufCMessage **ret_resp,  \
                                struct berth_error *err)

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* What is asked about, with all that is known of the skills in it. */
struct asked {
    struct catalog_image image;
    struct operation *operations;
    size_t n_operations;
    struct catalog_skill *skills; /* by name */
    size_t n_skills;
};

static void asked_deinit(struct asked *asked)
{
    free(asked->skills);
    operation_list_free(asked->operations, asked->n_operations);
    catalog_image_deinit(&asked->image);
}

/* Exactly one of config_id and session_id is not "". */
static enum berth_code ask(struct skills *skills, const struct berth_call *call,
                           const char *tenant, const char *config_id, const char *session_id,
                           struct asked *ret, struct berth_error *err)
{
    struct asked out = {0};
    enum berth_code code = skills_enter(skills, err);

    if (!code && *session_id)
        code = catalog_of_session(skills, call, tenant, session_id, berth_config_bound(call),
                                  &out.image, err);
    if (!code && !*session_id)
        code = catalog_of_config(skills, tenant, config_id, &out.image, err);
    if (!code && !*session_id)
        code =
            operation_list(skills, tenant, config_id, &out.operations, &out.n_operations, err);
    if (!code) {
        out.skills =
            catalog_merge(out.image.list, out.operations, out.n_operations, &out.n_skills);
        if (!out.skills)
            code = no_memory(err);
    }
    if (code)
        asked_deinit(&out);
    else
        *ret = out;
    return code;
}

static enum berth_code check_session_id(const char *session_id, bool peer,
                                        struct berth_error *err)
{
    enum berth_code code = berth_check_id("session_id", session_id, err);

    if (!code && !peer && strncmp(session_id, "sk.", 3) == 0) {
        code = berth_fail(err, BERTH_REASON_RESERVED_KEY,
                          "session_id: sessions \"sk.\" belong to skill installations");
        BERTH_ERROR_SET(err, field, "session_id");
    }
    return code;
}

/* --------------------------------------------------------------------- ListSkills */

static enum berth_code check_list(const ListSkillsRequest *req, bool peer, uint32_t *ret_size,
                                  struct berth_error *err)
{
    enum berth_code code = berth_check_id("tenant_id", req->tenant_id, err);

    if (!code && req->of_case == BERTH__SKILLS__V1__LIST_SKILLS_REQUEST__OF_CONFIG_ID)
        code = berth_check_id("config_id", req->config_id, err);
    else if (!code && req->of_case == BERTH__SKILLS__V1__LIST_SKILLS_REQUEST__OF_SESSION_ID)
        code = check_session_id(req->session_id, peer, err);
    else if (!code)
        code = berth_fail_field(err, "config_id", "must be given, or session_id");
    if (!code)
        code = berth_check_page_size("page.page_size", req->page ? req->page->page_size : 0,
                                     ret_size, err);
    if (!code && req->page && *req->page->page_token)
        code =
            berth_check_text("page.page_token", req->page->page_token, 1, SKILL_NAME_MAX, err);
    return code;
}

/* A page token is the name of the last one told. */
static enum berth_code list(const ListSkillsRequest *req, const struct asked *asked,
                            uint32_t size, ListSkillsResponse *out, struct berth_error *err)
{
    const char *after = req->page ? req->page->page_token : "";
    size_t i = 0;

    out->generation = asked->image.generation;
    out->not_bound = asked->image.not_bound;
    while (i < asked->n_skills && strcmp(asked->skills[i].name, after) <= 0)
        i++;
    for (; i < asked->n_skills && out->n_skills < size; i++)
        if (!berth_add_message(
                &out->n_skills, &out->skills,
                catalog_show(req->tenant_id, asked->image.config_id, &asked->skills[i])))
            return no_memory(err);
    if (i < asked->n_skills &&
        !berth_set_string(&out->next_page_token, asked->skills[i - 1].name))
        return no_memory(err);
    return BERTH_OK;
}

HANDLER(list_skills)
{
    const ListSkillsRequest *req = (const ListSkillsRequest *)message;
    bool of_session = req->of_case == BERTH__SKILLS__V1__LIST_SKILLS_REQUEST__OF_SESSION_ID;
    struct asked asked = {0};
    ListSkillsResponse *out;
    uint32_t size = 0;
    enum berth_code code = check_list(req, berth_call_is_peer(call), &size, err);

    if (!code)
        code = ask(service, call, req->tenant_id, of_session ? "" : req->config_id,
                   of_session ? req->session_id : "", &asked, err);
    if (code)
        return code;
    out = berth_message_new(TYPE(list_skills_response));
    code = out ? list(req, &asked, size, out, err) : no_memory(err);
    asked_deinit(&asked);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

/* ----------------------------------------------------------------------- GetSkill */

static enum berth_code check_get(const GetSkillRequest *req, bool peer, struct berth_error *err)
{
    enum berth_code code = berth_check_id("tenant_id", req->tenant_id, err);

    if (!code && *req->session_id && *req->config_id)
        code = berth_fail_field(err, "config_id", "must be empty with session_id");
    if (!code)
        code = *req->session_id ? check_session_id(req->session_id, peer, err)
                                : berth_check_id("config_id", req->config_id, err);
    return code ? code : berth_check_text("name", req->name, 1, SKILL_NAME_MAX, err);
}

static enum berth_code get(struct skills *skills, const GetSkillRequest *req,
                           const struct asked *asked, GetSkillResponse *out,
                           struct berth_error *err)
{
    const struct catalog_skill *skill = NULL;
    const char *digest;

    for (size_t i = 0; i < asked->n_skills; i++)
        if (strcmp(asked->skills[i].name, req->name) == 0)
            skill = &asked->skills[i];
    if (!skill)
        return berth_fail(err, BERTH_REASON_SKILL_NOT_FOUND, "no skill '%s'", req->name);
    out->skill = catalog_show(req->tenant_id, asked->image.config_id, skill);
    if (!out->skill)
        return no_memory(err);
    digest = json_string_value(json_object_get(skill->entry, "bundle"));
    if (!digest)
        return BERTH_OK;
    return catalog_instructions(skills, req->tenant_id, digest, skill->name, &out->instructions,
                                err);
}

HANDLER(get_skill)
{
    const GetSkillRequest *req = (const GetSkillRequest *)message;
    struct asked asked = {0};
    GetSkillResponse *out;
    enum berth_code code = check_get(req, berth_call_is_peer(call), err);

    if (!code)
        code = ask(service, call, req->tenant_id, req->config_id, req->session_id, &asked, err);
    if (code)
        return code;
    out = berth_message_new(TYPE(get_skill_response));
    code = out ? get(service, req, &asked, out, err) : no_memory(err);
    asked_deinit(&asked);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

const struct berth_method skills_catalog_methods[] = {
    {"/berth.skills.v1.SkillService/GetSkill", TYPE(get_skill_request), .unary = get_skill},
    {"/berth.skills.v1.SkillService/ListSkills", TYPE(list_skills_request),
     .unary = list_skills},
};
const size_t skills_n_catalog_methods = BERTH_COUNT(skills_catalog_methods);

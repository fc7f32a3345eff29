/* sweep_list.c - what is there: the targets, and the sandboxes of each account, to the end.
 * Only a whole list says anything. */
#include <stdio.h>

#include "common/fields/fields.h"
#include "common/ids/ids.h"
#include "common/log/log.h"
#include "common/messages/messages.h"
#include "services/reaper/sweep.h"

typedef Berth__Backend__V1__ListSandboxesRequest ListSandboxesRequest;
typedef Berth__Backend__V1__ListSandboxesResponse ListSandboxesResponse;
typedef Berth__Common__V1__Sandbox Sandbox;
typedef Berth__Common__V1__TimeoutPolicy TimeoutPolicy;
typedef Berth__Control__V1__ConfigTarget ConfigTarget;
typedef Berth__Control__V1__ListTargetsRequest ListTargetsRequest;
typedef Berth__Control__V1__ListTargetsResponse ListTargetsResponse;

#define TAG_VERSION "1"
#define STATE(name) BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_##name

void sweep_account_hex(char buf[SWEEP_ACCOUNT_HEX], const ProtobufCBinaryData *account)
{
    buf[0] = '\0';
    if (account->len == (SWEEP_ACCOUNT_HEX - 1) / 2)
        berth_hex(buf, account->data, account->len);
}

/* -------------------------------------------------------------------- targets */

static int compare_target(const ConfigTarget *target, const char *tenant, const char *config)
{
    int order = strcmp(target->target->tenant_id, tenant);

    return order ? order : strcmp(target->target->config_id, config);
}

static int compare_targets(const void *a, const void *b)
{
    const ConfigTarget *two = *(ConfigTarget *const *)b;

    return compare_target(*(ConfigTarget *const *)a, two->target->tenant_id,
                          two->target->config_id);
}

size_t sweep_target_at(const struct sweep *sweep, const char *tenant, const char *config)
{
    size_t low = 0, high = sweep->n_targets;

    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = compare_target(sweep->targets[middle], tenant, config);

        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return sweep->n_targets;
}

const ConfigTarget *sweep_find_target(const struct sweep *sweep, const char *tenant,
                                      const char *config)
{
    size_t at = sweep_target_at(sweep, tenant, config);

    return at < sweep->n_targets ? sweep->targets[at] : NULL;
}

static enum berth_code take_targets(struct sweep *sweep, ListTargetsResponse *page,
                                    struct berth_error *err)
{
    for (size_t i = 0; i < page->n_targets; i++) {
        ConfigTarget *target = page->targets[i];

        if (!target->target)
            continue;
        page->targets[i] = page->targets[--page->n_targets];
        i--;
        if (!berth_add_message(&sweep->n_targets, &sweep->targets, target))
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    return BERTH_OK;
}

static enum berth_code no_end(struct berth_error *err, const char *what)
{
    return berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE, "%s: its pages do not end", what);
}

/* The next page's token; *token is owned. Repeated ones end the list as an error. */
static enum berth_code next_token(char **token, const char *next, const char *what,
                                  struct berth_error *err)
{
    char *copy;

    if (*next && (strlen(next) > SWEEP_TOKEN_MAX || (*token && strcmp(*token, next) == 0)))
        return no_end(err, what);
    copy = strdup(next);
    if (!copy)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    free(*token);
    *token = copy;
    return BERTH_OK;
}

static enum berth_code add_group(struct sweep *sweep, const ConfigTarget *target,
                                 struct berth_error *err)
{
    struct sweep_group *grown;
    char account[SWEEP_ACCOUNT_HEX];

    sweep_account_hex(account, &target->target->fingerprint);
    if (!account[0])
        return BERTH_OK; /* whose account that is, nobody can say */
    for (size_t i = 0; i < sweep->n_groups; i++) {
        struct sweep_group *group = &sweep->groups[i];

        if (strcmp(group->account, account) != 0 ||
            strcmp(group->target->target->backend, target->target->backend) != 0)
            continue;
        group->n_configs++;
        return BERTH_OK;
    }
    grown = realloc(sweep->groups, (sweep->n_groups + 1) * sizeof *grown);
    if (!grown)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    sweep->groups = grown;
    grown[sweep->n_groups] = (struct sweep_group){.target = target, .n_configs = 1};
    memcpy(grown[sweep->n_groups++].account, account, sizeof account);
    return BERTH_OK;
}

enum berth_code sweep_list_targets(struct sweep *sweep, struct berth_error *err)
{
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    ListTargetsRequest req = BERTH__CONTROL__V1__LIST_TARGETS_REQUEST__INIT;
    BERTH_AUTO(free) char *token = NULL;
    enum berth_code code = BERTH_OK;

    req.page = &page;
    req.tenant_id = (char *)sweep->request.tenant_id;
    req.config_id = (char *)sweep->request.config_id;
    page.page_size = SWEEP_PAGE;
    for (int pages = 0; !code && (pages == 0 || *token); pages++) {
        ListTargetsResponse *resp = NULL;

        if (pages == SWEEP_PAGES_MAX)
            return no_end(err, "the list of targets");
        page.page_token = token ? token : (char *)"";
        code = reaper_call(sweep->reaper->controlplane,
                           "/berth.control.v1.InternalService/ListTargets", &req.base,
                           &berth__control__v1__list_targets_response__descriptor,
                           REAPER_CALL_TIMEOUT_MS, &resp, err);
        if (!code)
            code = next_token(&token, resp->next_page_token, "the list of targets", err);
        if (!code)
            code = take_targets(sweep, resp, err);
        berth_message_free(resp);
    }
    if (!code && sweep->n_targets)
        qsort(sweep->targets, sweep->n_targets, sizeof *sweep->targets, compare_targets);
    for (size_t i = 0; !code && i < sweep->n_targets; i++)
        code = add_group(sweep, sweep->targets[i], err);
    return code;
}

/* ------------------------------------------------------------------ sandboxes */

static const char *tag(const Sandbox *sandbox, const char *key)
{
    for (size_t i = 0; i < sandbox->n_metadata; i++)
        if (strcmp(sandbox->metadata[i]->key, key) == 0)
            return sandbox->metadata[i]->value;
    return "";
}

static bool is_id(const char *value)
{
    return berth_check_id("tag", value, NULL) == BERTH_OK;
}

static bool is_kind(const char *kind)
{
    return strcmp(kind, "session") == 0 || strcmp(kind, "maintenance") == 0;
}

static enum reaper_tags judge_tags(const struct sweep *sweep, const struct sweep_group *group,
                                   const Sandbox *sandbox)
{
    const char *deployment = tag(sandbox, "berth.deployment");
    const char *tenant = tag(sandbox, "berth.tenant"), *config = tag(sandbox, "berth.config");
    const char *version = tag(sandbox, "berth.v");
    const ConfigTarget *target;
    char account[SWEEP_ACCOUNT_HEX];

    if (!*deployment)
        return REAPER_TAGS_NONE;
    if (strcmp(deployment, sweep->reaper->runtime->deployment) != 0)
        return REAPER_TAGS_FOREIGN;
    if (!is_id(tenant) || !is_id(config) || !is_id(tag(sandbox, "berth.session")) || !*version)
        return REAPER_TAGS_NONE;
    if (strcmp(version, TAG_VERSION) != 0 || !is_kind(tag(sandbox, "berth.kind")))
        return REAPER_TAGS_LATER;
    target = sweep_find_target(sweep, tenant, config);
    if (!target || strcmp(tag(sandbox, "berth.account"), group->account) != 0)
        return REAPER_TAGS_OLD_ACCOUNT;
    sweep_account_hex(account, &target->target->fingerprint);
    return strcmp(account, group->account) == 0 ? REAPER_TAGS_OURS : REAPER_TAGS_OLD_ACCOUNT;
}

static void read_policy(const struct sweep_group *group, const TimeoutPolicy *timeouts,
                        struct reaper_policy *ret)
{
    *ret = (struct reaper_policy){.timer = group->timer, .can_pause = group->can_pause};
    if (!timeouts)
        return;
    ret->idle_ms = berth_duration_ms(timeouts->idle, 0);
    ret->max_paused_ms = berth_duration_ms(timeouts->max_paused, 0);
    ret->max_lifetime_ms = berth_duration_ms(timeouts->max_lifetime, 0);
    ret->warn_ms = berth_duration_ms(timeouts->warn_before, 0);
    ret->kill = !group->can_pause ||
                timeouts->on_idle == BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_KILL;
}

static bool copy_names(struct sweep_box *box, const Sandbox *sandbox)
{
    bool named = box->facts.tags != REAPER_TAGS_NONE;
    const char *parts[] = {sandbox->sandbox_id, named ? tag(sandbox, "berth.tenant") : "",
                           named ? tag(sandbox, "berth.session") : "",
                           named ? tag(sandbox, "berth.config") : ""};
    const char **to[] = {NULL, &box->tenant, &box->session, &box->config};
    size_t size = 0;
    char *at;

    for (size_t i = 0; i < BERTH_COUNT(parts); i++)
        size += strlen(parts[i]) + 1;
    box->id = at = malloc(size);
    for (size_t i = 0; at && i < BERTH_COUNT(parts); i++) {
        size_t len = strlen(parts[i]) + 1;

        memcpy(at, parts[i], len);
        if (to[i])
            *to[i] = at;
        at += len;
    }
    return box->id != NULL;
}

static struct sweep_box *new_box(struct sweep *sweep)
{
    if (sweep->n_boxes == sweep->boxes_room) {
        size_t room = sweep->boxes_room ? 2 * sweep->boxes_room : 256;
        struct sweep_box *grown = realloc(sweep->boxes, room * sizeof *grown);

        if (!grown)
            return NULL;
        sweep->boxes = grown;
        sweep->boxes_room = room;
    }
    sweep->boxes[sweep->n_boxes] = (struct sweep_box){0};
    return &sweep->boxes[sweep->n_boxes];
}

static bool is_asked_for(const struct sweep *sweep, const Sandbox *sandbox)
{
    const struct sweep_request *request = &sweep->request;

    return (!*request->tenant_id ||
            strcmp(request->tenant_id, tag(sandbox, "berth.tenant")) == 0) &&
           (!*request->config_id ||
            strcmp(request->config_id, tag(sandbox, "berth.config")) == 0);
}

static enum berth_code doubt(struct berth_error *err, const char *why)
{
    return berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE,
                      "the list of sandboxes is not to be believed: %s", why);
}

static enum berth_code take_sandbox(struct sweep *sweep, unsigned at, const Sandbox *sandbox,
                                    struct berth_error *err)
{
    const struct sweep_group *group = &sweep->groups[at];
    size_t len = strlen(sandbox->sandbox_id);
    enum reaper_tags tags = judge_tags(sweep, group, sandbox);
    struct sweep_box *box;
    int64_t active_ms, call_ms;

    if (len == 0 || len > 128)
        return doubt(err, "it holds a sandbox without a proper id");
    if (tags >= REAPER_TAGS_OLD_ACCOUNT &&
        strcmp(tag(sandbox, "berth.backend"), group->target->target->backend) != 0)
        return doubt(err, "it holds a sandbox of another backend");
    if (!is_asked_for(sweep, sandbox))
        return BERTH_OK;
    if (sweep->n_boxes == SWEEP_BOXES_MAX)
        return doubt(err, "it is too long");
    box = new_box(sweep);
    if (!box)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    box->facts.tags = tags;
    if (!copy_names(box, sandbox))
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    sweep->n_boxes++;
    box->group = at;
    box->disk_bytes = sandbox->disk_used_bytes;
    box->facts.runs = sandbox->state == STATE(RUNNING);
    box->facts.sleeps = sandbox->state == STATE(PAUSED);
    box->facts.ended = sandbox->state == STATE(TERMINAL);
    box->facts.end_ms = berth_timestamp_ms(sandbox->end_time, 0);
    box->facts.create_ms = berth_timestamp_ms(sandbox->create_time, 0);
    active_ms = berth_timestamp_ms(sandbox->last_active_time, 0);
    box->facts.active_ms = active_ms > sweep->now_ms ? sweep->now_ms : active_ms;
    call_ms = berth_timestamp_ms(sandbox->last_call_time, active_ms);
    box->facts.call_ms = call_ms > sweep->now_ms ? sweep->now_ms : call_ms;
    read_policy(group, sandbox->timeouts, &box->facts.policy);
    return BERTH_OK;
}

static enum berth_code list_page(struct sweep *sweep, unsigned at, ListSandboxesRequest *req,
                                 char **token, struct berth_error *err)
{
    const char *backend = sweep->groups[at].target->target->backend;
    ListSandboxesResponse *page = NULL;
    enum berth_code code;

    req->page->page_token = *token ? *token : (char *)"";
    code = reaper_adapter_call(
        sweep->reaper, backend, "/berth.backend.v1.BackendService/ListSandboxes", &req->base,
        &berth__backend__v1__list_sandboxes_response__descriptor, &page, err);
    if (code)
        return code;
    if (!page->complete)
        code = doubt(err, "the backend says it is not whole");
    if (!code)
        code = next_token(token, page->next_page_token, "the list of sandboxes", err);
    for (size_t i = 0; !code && i < page->n_sandboxes; i++)
        code = take_sandbox(sweep, at, page->sandboxes[i], err);
    berth_message_free(page);
    return code;
}

static enum berth_code ask_what_it_can(struct sweep *sweep, struct sweep_group *group,
                                       struct berth_error *err)
{
    Berth__Backend__V1__GetInfoRequest req = BERTH__BACKEND__V1__GET_INFO_REQUEST__INIT;
    Berth__Backend__V1__GetInfoResponse *info = NULL;
    enum berth_code code;

    req.target = group->target->target;
    code = reaper_adapter_call(sweep->reaper, group->target->target->backend,
                               "/berth.backend.v1.BackendService/GetInfo", &req.base,
                               &berth__backend__v1__get_info_response__descriptor, &info, err);
    if (code)
        return code;
    /* Whoever does not say that it has no timer is taken to have one. */
    group->timer =
        !info->capabilities || info->capabilities->timeout_model !=
                                   BERTH__COMMON__V1__TIMEOUT_MODEL__TIMEOUT_MODEL_NONE;
    group->can_pause =
        info->capabilities && info->capabilities->pause && info->capabilities->pause->supported;
    group->snapshots = info->capabilities && info->capabilities->snapshots &&
                       info->capabilities->snapshots->supported;
    berth_message_free(info);
    return BERTH_OK;
}

static enum berth_code list_group(struct sweep *sweep, unsigned at, struct berth_error *err)
{
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    ListSandboxesRequest req = BERTH__BACKEND__V1__LIST_SANDBOXES_REQUEST__INIT;
    BERTH_AUTO(free) char *token = NULL;
    enum berth_code code = ask_what_it_can(sweep, &sweep->groups[at], err);

    req.target = sweep->groups[at].target->target;
    req.page = &page;
    page.page_size = SWEEP_PAGE;
    for (int pages = 0; !code && (pages == 0 || *token); pages++) {
        if (pages == SWEEP_PAGES_MAX)
            return no_end(err, "the list of sandboxes");
        code = list_page(sweep, at, &req, &token, err);
    }
    return code;
}

enum berth_code sweep_list_boxes(struct sweep *sweep, struct berth_error *err)
{
    for (unsigned i = 0; i < sweep->n_groups; i++) {
        struct sweep_group *group = &sweep->groups[i];
        const ConfigTarget *target = group->target;
        size_t before = sweep->n_boxes;
        struct berth_error why = {0};
        enum berth_code code = list_group(sweep, i, &why);

        group->whole = code == BERTH_OK;
        if (!code)
            continue;
        while (sweep->n_boxes > before)
            free(sweep->boxes[--sweep->n_boxes].id);
        if (why.reason == BERTH_REASON_OUT_OF_MEMORY) {
            if (err)
                *err = why;
            return code;
        }
        sweep->told->configs_skipped += group->n_configs;
        berth_warn("no whole list of sandboxes, skipping the configs of this account", "tenant",
                   target->target->tenant_id, "config", target->target->config_id, "backend",
                   target->target->backend, "error", why.text);
    }
    return BERTH_OK;
}

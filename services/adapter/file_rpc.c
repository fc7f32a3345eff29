/* file_rpc.c - FileService: the unary methods, which may block on a worker, and the table. */
#include "services/adapter/file_rpc.h"

#include "common/data/data.h"
#include "common/fields/fields.h"
#include "common/ids/ids.h"
#include "services/adapter/convert.h"

typedef Berth__Data__V1__StatRequest StatRequest;
typedef Berth__Data__V1__StatResponse StatResponse;
typedef Berth__Data__V1__ListDirRequest ListDirRequest;
typedef Berth__Data__V1__ListDirResponse ListDirResponse;
typedef Berth__Data__V1__MakeDirRequest MakeDirRequest;
typedef Berth__Data__V1__MakeDirResponse MakeDirResponse;
typedef Berth__Data__V1__MoveRequest MoveRequest;
typedef Berth__Data__V1__MoveResponse MoveResponse;
typedef Berth__Data__V1__RemoveRequest RemoveRequest;
typedef Berth__Data__V1__RemoveResponse RemoveResponse;

enum { AFTER_MAX = 4096, PAGE_DEFAULT = 50 };

static bool is_over(void *arg)
{
    const struct berth_call *call = arg;

    return berth_call_cancelled(call) || berth_call_left_ms(call) == 0;
}

/* What every method begins with. req is checked as it came; nobody else has it. */
static enum berth_code begin(const struct adapter_service *service, struct berth_call *call,
                             const ProtobufCMessage *req, struct adapter_route *ret_route,
                             struct berth_error *err)
{
    enum berth_code code = adapter_route_read(call, service->ops->backend, ret_route, err);

    return code ? code : berth_data_check((ProtobufCMessage *)req, NULL, err);
}

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* file: emptied. NULL: out of memory. */
static Berth__Data__V1__FileEntry *take_entry(struct adapter_file *file)
{
    Berth__Data__V1__FileEntry *entry = convert_file(file);

    adapter_file_deinit(file);
    return entry;
}

static enum berth_code stat_file(void *arg, struct berth_call *call,
                                 const ProtobufCMessage *req, ProtobufCMessage **ret_resp,
                                 struct berth_error *err)
{
    const struct adapter_service *service = arg;
    const StatRequest *stat = (const StatRequest *)req;
    struct adapter_patience patience = {is_over, call};
    struct adapter_file file;
    struct adapter_route route;
    StatResponse *resp;
    enum berth_code code = begin(service, call, req, &route, err);

    if (code == BERTH_OK)
        code = service->ops->files->stat(service->adapter, &route, stat->path,
                                         stat->with_sha256, &patience, &file, err);
    if (code)
        return code;
    resp = calloc(1, sizeof *resp);
    if (!resp) {
        adapter_file_deinit(&file);
        return no_memory(err);
    }
    berth__data__v1__stat_response__init(resp);
    resp->entry = take_entry(&file);
    if (!resp->entry) {
        free(resp);
        return no_memory(err);
    }
    *ret_resp = &resp->base;
    return BERTH_OK;
}

/* Page tokens are the hex of where the page before ended. */
static enum berth_code decode_token(const char *token, char after[AFTER_MAX + 1],
                                    struct berth_error *err)
{
    static const char digits[] = "0123456789abcdef";
    size_t len = strlen(token);

    if (len % 2 || len > 2 * AFTER_MAX || strspn(token, digits) != len)
        return berth_fail_field(err, "page.page_token", "as it was given");
    for (size_t i = 0; i < len / 2; i++) {
        after[i] = (char)((strchr(digits, token[2 * i]) - digits) << 4 |
                          (strchr(digits, token[2 * i + 1]) - digits));
        if (after[i] == 0)
            return berth_fail_field(err, "page.page_token", "as it was given");
    }
    after[len / 2] = 0;
    return BERTH_OK;
}

static bool fill_list(ListDirResponse *resp, struct adapter_list *list)
{
    if (list->n > 0)
        resp->entries = calloc(list->n, sizeof *resp->entries);
    for (; resp->entries && resp->n_entries < list->n; resp->n_entries++) {
        resp->entries[resp->n_entries] = convert_file(&list->files[resp->n_entries]);
        if (!resp->entries[resp->n_entries])
            return false;
    }
    if (list->next) {
        char *token = malloc(2 * strlen(list->next) + 1);

        if (!token)
            return false;
        resp->next_page_token = berth_hex(token, list->next, strlen(list->next));
    }
    return resp->n_entries == list->n;
}

static enum berth_code list_dir(void *arg, struct berth_call *call, const ProtobufCMessage *req,
                                ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct adapter_service *service = arg;
    const ListDirRequest *list_req = (const ListDirRequest *)req;
    struct adapter_patience patience = {is_over, call};
    struct adapter_list list = {0};
    struct adapter_route route;
    char after[AFTER_MAX + 1] = "";
    uint32_t size = PAGE_DEFAULT;
    ListDirResponse *resp;
    enum berth_code code = begin(service, call, req, &route, err);

    if (code == BERTH_OK && list_req->page) {
        code = berth_check_page_size("page.page_size", list_req->page->page_size, &size, err);
        if (code == BERTH_OK)
            code = decode_token(list_req->page->page_token, after, err);
    }
    if (code == BERTH_OK)
        code = service->ops->files->list(service->adapter, &route, list_req->path,
                                         list_req->depth ? list_req->depth : 1, after, size,
                                         &patience, &list, err);
    if (code)
        return code;
    resp = calloc(1, sizeof *resp);
    if (resp)
        berth__data__v1__list_dir_response__init(resp);
    if (!resp || !fill_list(resp, &list)) {
        if (resp)
            protobuf_c_message_free_unpacked(&resp->base, NULL);
        adapter_list_deinit(&list);
        return no_memory(err);
    }
    adapter_list_deinit(&list);
    *ret_resp = &resp->base;
    return BERTH_OK;
}

static enum berth_code make_dir(void *arg, struct berth_call *call, const ProtobufCMessage *req,
                                ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct adapter_service *service = arg;
    const MakeDirRequest *make = (const MakeDirRequest *)req;
    struct adapter_file file;
    struct adapter_route route;
    MakeDirResponse *resp;
    bool created = false;
    enum berth_code code = begin(service, call, req, &route, err);

    if (code == BERTH_OK)
        code = service->ops->files->make_dir(service->adapter, &route, make->path, &file,
                                             &created, err);
    if (code)
        return code;
    resp = calloc(1, sizeof *resp);
    if (!resp) {
        adapter_file_deinit(&file);
        return no_memory(err);
    }
    berth__data__v1__make_dir_response__init(resp);
    resp->entry = take_entry(&file);
    if (!resp->entry) {
        free(resp);
        return no_memory(err);
    }
    resp->created = created;
    *ret_resp = &resp->base;
    return BERTH_OK;
}

static enum berth_code move_file(void *arg, struct berth_call *call,
                                 const ProtobufCMessage *req, ProtobufCMessage **ret_resp,
                                 struct berth_error *err)
{
    const struct adapter_service *service = arg;
    const MoveRequest *move = (const MoveRequest *)req;
    struct adapter_file file;
    struct adapter_route route;
    MoveResponse *resp;
    enum berth_code code = begin(service, call, req, &route, err);

    if (code == BERTH_OK)
        code = service->ops->files->move(service->adapter, &route, move->source, move->target,
                                         move->overwrite, &file, err);
    if (code)
        return code;
    resp = calloc(1, sizeof *resp);
    if (!resp) {
        adapter_file_deinit(&file);
        return no_memory(err);
    }
    berth__data__v1__move_response__init(resp);
    resp->entry = take_entry(&file);
    if (!resp->entry) {
        free(resp);
        return no_memory(err);
    }
    *ret_resp = &resp->base;
    return BERTH_OK;
}

static enum berth_code remove_file(void *arg, struct berth_call *call,
                                   const ProtobufCMessage *req, ProtobufCMessage **ret_resp,
                                   struct berth_error *err)
{
    const struct adapter_service *service = arg;
    const RemoveRequest *remove_req = (const RemoveRequest *)req;
    struct adapter_patience patience = {is_over, call};
    struct adapter_route route;
    RemoveResponse *resp;
    bool existed = false;
    enum berth_code code = begin(service, call, req, &route, err);

    if (code == BERTH_OK)
        code = service->ops->files->remove(service->adapter, &route, remove_req->path,
                                           remove_req->recursive, &patience, &existed, err);
    if (code)
        return code;
    resp = calloc(1, sizeof *resp);
    if (!resp)
        return no_memory(err);
    berth__data__v1__remove_response__init(resp);
    resp->existed = existed;
    *ret_resp = &resp->base;
    return BERTH_OK;
}

/* ------------------------------------------------------------------------- jobs */

static void job_done(void *arg)
{
    struct file_job *job = arg;

    job->busy = false;
    job->done(job->arg);
}

static void job_work(void *arg)
{
    struct file_job *job = arg;

    job->work(job->arg);
    berth_loop_post(job->loop, job_done, job);
}

enum berth_code file_job_start(struct file_job *job, bool first, void (*work)(void *arg),
                               void (*done)(void *arg), struct berth_error *err)
{
    enum berth_code code;

    job->work = work;
    job->done = done;
    job->busy = true;
    if (!first) {
        berth_pool_submit_must(job->pool, job_work, job);
        return BERTH_OK;
    }
    code = berth_pool_submit(job->pool, job_work, job, err);
    if (code)
        job->busy = false;
    return code;
}

#define FILES(name) "/berth.data.v1.FileService/" name
#define REQUEST(type) &berth__data__v1__##type##_request__descriptor

const struct berth_method adapter_file_methods[] = {
    {FILES("Stat"), REQUEST(stat), stat_file, NULL, BERTH_METHOD_PEER_ONLY},
    {FILES("ListDir"), REQUEST(list_dir), list_dir, NULL, BERTH_METHOD_PEER_ONLY},
    {FILES("MakeDir"), REQUEST(make_dir), make_dir, NULL, BERTH_METHOD_PEER_ONLY},
    {FILES("Move"), REQUEST(move), move_file, NULL, BERTH_METHOD_PEER_ONLY},
    {FILES("Remove"), REQUEST(remove), remove_file, NULL, BERTH_METHOD_PEER_ONLY},
    {FILES("ReadFile"), REQUEST(read_file), NULL, file_open_read, BERTH_METHOD_PEER_ONLY},
    {FILES("WriteFile"), REQUEST(write_file), NULL, file_open_write,
     BERTH_METHOD_PEER_ONLY | BERTH_METHOD_UNGUARDED},
};
const size_t n_adapter_file_methods = BERTH_COUNT(adapter_file_methods);

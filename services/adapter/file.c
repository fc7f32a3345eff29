#include "services/adapter/data.h"
#include "services/adapter/file_rpc.h"

enum {
    DATA_TAG = 2 << 3 | 2, /* field 2, length-delimited */
    LOST_PATH_MAX = 1024,  /* bytes of a path that is told */
};

void adapter_file_deinit(struct adapter_file *file)
{
    free(file->path);
    free(file->link_target);
    *file = (struct adapter_file){0};
}

void adapter_list_deinit(struct adapter_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        adapter_file_deinit(&list->files[i]);
    free(list->files);
    free(list->next);
    *list = (struct adapter_list){0};
}

void adapter_carried_deinit(struct adapter_carried *carried)
{
    for (size_t i = 0; i < carried->n_lost; i++)
        free(carried->lost[i].path);
    *carried = (struct adapter_carried){0};
}

void adapter_carried_lose(struct adapter_carried *carried, const char *path, const char *reason)
{
    char *copy;

    carried->lost_count++;
    if (carried->n_lost == ADAPTER_LOST_MAX)
        return;
    copy = strndup(path, LOST_PATH_MAX);
    if (copy)
        carried->lost[carried->n_lost++] = (struct adapter_lost){copy, reason};
}

size_t file_header_before(uint8_t *end, size_t size)
{
    uint8_t length[FILE_HEADER_MAX];
    size_t n = 0;

    do {
        length[n] = (uint8_t)(size & 0x7f);
        size >>= 7;
        if (size > 0)
            length[n] |= 0x80;
        n++;
    } while (size > 0);
    end[-(ptrdiff_t)(n + 1)] = DATA_TAG;
    memcpy(end - n, length, n);
    return n + 1;
}

size_t file_header_size(const uint8_t *head, size_t head_size, size_t size)
{
    size_t length = 0, at = 1;

    if (head_size < 2 || head[0] != DATA_TAG)
        return 0;
    for (unsigned shift = 0; at < head_size && at < FILE_HEADER_MAX; shift += 7, at++) {
        length |= (size_t)(head[at] & 0x7f) << shift;
        if (!(head[at] & 0x80))
            return length == size - at - 1 ? at + 1 : 0;
    }
    return 0;
}

#include "services/adapter/data.h"

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

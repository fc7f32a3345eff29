/* convert.h - what backends say about commands and files, as messages of berth.data.v1. */
#pragma once

#include "services/adapter/data.h"

/* A whole response of Exec or Attach (they are alike), packed. NULL: out of memory. */
struct berth_buf *convert_event(const struct adapter_event *event);

/* Heap-built as by unpack; NULL: out of memory. */
Berth__Data__V1__Exited *convert_exited(const struct adapter_exited *exited);
Berth__Data__V1__Process *convert_process(const struct adapter_process *process);
Berth__Data__V1__FileEntry *convert_file(const struct adapter_file *file);

/* Owned copy of bytes as UTF-8: each byte that is none becomes \xHH, and \ becomes \\ then. */
char *convert_escaped(const char *bytes);

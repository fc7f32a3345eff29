/* files.h - files of the local backend, on the host's side of the sandbox. */
#pragma once

#include "services/adapter-local/place.h"

extern const struct adapter_file_ops local_file_ops;

/* The parts of the table, by file. files.c: stat, make_dir, move. listing.c: */
enum berth_code local_list(struct adapter *adapter, const struct adapter_route *route,
                           const char *path, unsigned depth, const char *after, unsigned max,
                           const struct adapter_patience *patience, struct adapter_list *ret,
                           struct berth_error *err);
/* removal.c: */
enum berth_code local_remove(struct adapter *adapter, const struct adapter_route *route,
                             const char *path, bool recursive,
                             const struct adapter_patience *patience, bool *ret_existed,
                             struct berth_error *err);
/* reading.c: */
enum berth_code local_open_read(struct adapter *adapter, const struct adapter_route *route,
                                const char *path, uint64_t offset, uint64_t length,
                                const char *if_etag, struct adapter_reader **ret,
                                struct adapter_file *ret_file, struct berth_error *err);
enum berth_code local_read(struct adapter_reader *reader, uint8_t *buf, size_t size,
                           size_t *ret_size, struct berth_error *err);
void local_close_read(struct adapter_reader *reader);
/* writing.c: */
enum berth_code local_open_write(struct adapter *adapter, const struct adapter_route *route,
                                 const struct adapter_write_open *open,
                                 struct adapter_writer **ret, struct berth_error *err);
enum berth_code local_write(struct adapter_writer *writer, struct iovec *pieces, int n_pieces,
                            struct berth_error *err);
enum berth_code local_commit(struct adapter_writer *writer, struct adapter_file *ret,
                             struct berth_error *err);
void local_close_write(struct adapter_writer *writer);

/* A place of the call's own: root opened and entered, undone by local_visit_end(). */
struct local_visit {
    struct local_root root;
    struct place place;
};
BERTH_MUST_CHECK enum berth_code local_visit_begin(struct adapter *adapter,
                                                   const struct adapter_route *route,
                                                   struct local_visit *ret,
                                                   struct berth_error *err);
void local_visit_end(struct local_visit *visit);
static inline void local_visit_endp(struct local_visit *visit)
{
    local_visit_end(visit);
}

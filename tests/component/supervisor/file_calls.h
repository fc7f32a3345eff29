/* file_calls.h - FileService as plain functions over the rig, and the sandbox's side of the
 * files. */
#pragma once

#include <check.h>
#include <sys/stat.h>

#include "common/time/time.h"
#include "tests/component/supervisor/data_rig.h"

#define FILES(name) "/berth.data.v1.FileService/" name
#define DESCRIPTOR(type) &berth__data__v1__##type##__descriptor

enum { USER = FAKE_BOX_UID_BASE + 1000, ROOT = FAKE_BOX_UID_BASE };

typedef Berth__Data__V1__FileEntry FileEntry;

/* A fixture: in a mount namespace of its own. */
void files_open(void);
void files_close(void);

/* Path on the host; good for eight calls. */
const char *host(const char *path);
void put(const char *path, const char *text, unsigned uid, mode_t mode);
void put_dir(const char *path, unsigned uid);
int count_entries(const char *path);

/* Each answers BERTH_REASON_NONE or why not. Outputs may be NULL. */
enum berth_reason stat_it(const char *path, FileEntry **ret);
void free_entry(FileEntry *entry);
enum berth_reason make_dir(const char *path, bool *ret_created);
enum berth_reason move(const char *source, const char *target, bool overwrite);
enum berth_reason remove_it(const char *path, bool recursive, bool *ret_existed);
/* Owned content; checks entry, done and hash. */
enum berth_reason read_it(const char *path, uint64_t offset, uint64_t length,
                          const char *if_etag, uint8_t **ret, size_t *ret_size);

/* How a WriteFile is to be spoiled. */
enum spoil { GOOD, NO_DONE, BAD_HASH, BAD_SIZE, CANCEL, SECOND_OPEN, NO_OPEN };
struct write_how {
    bool create_only;
    const char *if_etag;
    uint32_t mode;
    size_t chunk;
    uint64_t announced;
    enum spoil spoil;
};
extern const struct write_how plain;
void send_message(struct rig_stream *stream, int kind, void *member);
enum berth_reason write_it(const char *path, const void *data, size_t size,
                           const struct write_how *how);
void expect_content(const char *path, const void *data, size_t size);

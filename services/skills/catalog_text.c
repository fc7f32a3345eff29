/* catalog_text.c - SKILL.md out of a stored bundle. */
#include <errno.h>
#include <stdio.h>

#include "common/tar/tar.h"
#include "services/skills/blobs.h"
#include "services/skills/bundle/frontmatter.h"
#include "services/skills/bundle/skill.h"
#include "services/skills/catalog.h"

enum { CHUNK = 64 << 10, PATH_SIZE = 512 };

/* Looking for one file. */
struct looking {
    char path[PATH_SIZE];
    bool inside, found;
    char *text; /* owned */
    size_t size;
};

static enum berth_code on_begin(void *ctx, const struct tar_entry *entry,
                                struct berth_error *err)
{
    struct looking *looking = ctx;

    if (looking->found || entry->kind != TAR_FILE || strcmp(entry->path, looking->path) != 0)
        return BERTH_OK;
    if (entry->size > SKILL_MD_MAX)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "a SKILL.md longer than may be");
    looking->text = calloc(1, (size_t)entry->size + 1);
    looking->size = (size_t)entry->size;
    looking->inside = true;
    return looking->text ? BERTH_OK : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static enum berth_code on_data(void *ctx, uint64_t offset, const uint8_t *data, size_t size,
                               struct berth_error *err)
{
    struct looking *looking = ctx;

    if (!looking->inside)
        return BERTH_OK;
    if (offset > looking->size || size > looking->size - offset)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "a file longer than it said");
    memcpy(looking->text + offset, data, size);
    return BERTH_OK;
}

static enum berth_code on_end(void *ctx, struct berth_error *err)
{
    struct looking *looking = ctx;

    (void)err;
    looking->found = looking->found || looking->inside;
    looking->inside = false;
    return BERTH_OK;
}

static enum berth_code scan(int fd, struct looking *looking, struct berth_error *err)
{
    static const struct tar_sink sink = {.begin = on_begin, .data = on_data, .end = on_end};
    BERTH_AUTO(tar_reader_free) struct tar_reader *reader = tar_reader_new(&sink, looking);
    BERTH_AUTO(free) uint8_t *chunk = malloc(CHUNK);
    enum berth_code code = BERTH_OK;
    ssize_t n = 1;

    if (!reader || !chunk)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    while (!code && !looking->found && n > 0) {
        n = read(fd, chunk, CHUNK);
        if (n > 0)
            code = tar_reader_feed(reader, chunk, (size_t)n, err);
    }
    if (!code && n < 0)
        code = berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "a bundle cannot be read: %s",
                          strerror(errno));
    if (!code && !looking->found)
        code = berth_fail(err, BERTH_REASON_INTERNAL_BUG, "a bundle without SKILL.md");
    return code;
}

static enum berth_code instructions(const struct looking *looking, char **ret,
                                    struct berth_error *err)
{
    struct findings findings = {0};
    struct skill skill = {0};
    enum berth_code code =
        skill_read_text(looking->text, looking->size, NULL, &findings, &skill, err);

    if (!code) {
        *ret = skill.instructions ? BERTH_STEAL(skill.instructions) : strdup("");
        if (!*ret)
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    skill_deinit(&skill);
    findings_deinit(&findings);
    return code;
}

enum berth_code catalog_instructions(struct skills *skills, const char *tenant,
                                     const char *digest, const char *name, char **ret,
                                     struct berth_error *err)
{
    struct looking looking = {0};
    uint64_t size;
    int fd;
    enum berth_code code;

    if (!skills->blobs)
        return berth_fail(err, BERTH_REASON_FILE_NOT_FOUND, "bundles are not kept (blob_dir)");
    code = skills_blobs_open(skills->blobs, tenant, digest, &fd, &size, err);
    if (code)
        return code;
    snprintf(looking.path, sizeof looking.path, "%s/SKILL.md", name);
    code = scan(fd, &looking, err);
    close(fd);
    if (!code)
        code = instructions(&looking, ret, err);
    free(looking.text);
    return code;
}

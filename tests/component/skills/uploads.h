/* uploads.h - InstallSkill's stream as a client sends it. */
#pragma once

#include "tests/component/controlplane/town.h"

#define INSTALL "/berth.skills.v1.SkillService/InstallSkill"

typedef Berth__Skills__V1__InstallSkillOpen InstallSkillOpen;
typedef Berth__Skills__V1__InstallSkillRequest InstallSkillRequest;
typedef Berth__Skills__V1__InstallSkillResponse InstallSkillResponse;

/* One upload: an open (unless no_open), then the bytes in chunks. */
struct upload {
    const InstallSkillOpen *open; /* NULL: none is sent */
    const uint8_t *data;
    size_t size, chunk;
    bool open_twice, stays_open;
    struct town *town;
    struct berth_loop *loop;
    /* of the loop until ended */
    struct berth_stream *stream;
    size_t sent;
    unsigned n_messages;
    struct berth_buf *answer;
    pthread_mutex_t mutex;
    bool waits, ended; /* all was sent and it stays open; the status is known */
    enum berth_code code;
    struct berth_error err;
};

/* Begins it, on the loop. */
void upload_start(struct upload *upload);
/* Until the flag (of upload) is set, or it has ended. */
void upload_wait(struct upload *upload, const bool *flag);
/* The caller goes away. */
void upload_cancel(struct upload *upload);
/* The reason; NONE and *ret when it went well. */
enum berth_reason upload_finish(struct upload *upload, InstallSkillResponse **ret);

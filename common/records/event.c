#include "common/records/event.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/ids/ids.h"
#include "common/json/json.h"
#include "common/records/keys.h"

enum { PAIRS_MAX = 9, ID_BYTES = 16 };

struct pairs {
    const char *word[2 * PAIRS_MAX];
    size_t n;
};

static void add(struct pairs *pairs, const char *name, const char *value)
{
    if (!value || !*value)
        return;
    pairs->word[pairs->n++] = name;
    pairs->word[pairs->n++] = value;
}

enum berth_code berth_event_write(struct berth_cas *cas, const char *tenant,
                                  const struct berth_event *event, struct berth_error *err)
{
    BERTH_AUTO(free) char *attributes = NULL;
    char key[BERTH_KEY_MAX], kept[24], seq[24] = "", id[2 * ID_BYTES + 1];
    struct pairs p = {0};

    if (json_object_size(event->attributes) > 0) {
        attributes = berth_json_format(event->attributes);
        if (!attributes)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    snprintf(kept, sizeof kept, "%d", BERTH_EVENTS_KEPT);
    if (event->session_seq)
        snprintf(seq, sizeof seq, "%" PRIu64, event->session_seq);
    add(&p, "kind", event->kind);
    add(&p, "event_id", berth_id_hex(id, ID_BYTES));
    add(&p, "session", event->session_id);
    add(&p, "config", event->config_id);
    add(&p, "sandbox", event->sandbox_id);
    add(&p, "seq", seq);
    add(&p, "at_ms", "$NOW");
    add(&p, "observe_ms", event->observed ? "$NOW" : "");
    add(&p, "attributes", attributes);
    /* Words after the last pair are NULL, which ends the list where it is shorter. */
    berth_cas_write(cas, "XADD", berth_key_events(key, tenant), "MAXLEN", "~", kept, "*",
                    p.word[0], p.word[1], p.word[2], p.word[3], p.word[4], p.word[5], p.word[6],
                    p.word[7], p.word[8], p.word[9], p.word[10], p.word[11], p.word[12],
                    p.word[13], p.word[14], p.word[15], p.word[16], p.word[17], (char *)NULL);
    return BERTH_OK;
}

/* Stored documents. The first line says which: "row" (JSON follows), "config" or "tenant"
 * (lines field=value follow). What is accepted is written and must read back the same. */
#include <stdio.h>

#include "common/records/config_doc.h"
#include "common/records/tenant_doc.h"
#include "tests/fuzz/fuzz.h"

enum { FIELDS_MAX = 32 };

struct doc_of {
    struct berth_doc doc;
    struct berth_doc_field fields[FIELDS_MAX];
};

/* Lines of text, which is cut up, into a document. */
static void make_doc(struct doc_of *of, char *text)
{
    char *save = NULL;

    *of = (struct doc_of){.doc = {.exists = true, .key = "k"}};
    of->doc.fields = of->fields;
    for (char *line = strtok_r(text, "\n", &save); line && of->doc.n_fields < FIELDS_MAX;
         line = strtok_r(NULL, "\n", &save)) {
        struct berth_doc_field *field = &of->fields[of->doc.n_fields];
        char *equals = strchr(line, '=');

        if (!equals)
            continue;
        *equals = 0;
        *field = (struct berth_doc_field){line, equals + 1, strlen(equals + 1)};
        of->doc.n_fields++;
    }
}

static bool try_row(const char *json)
{
    struct berth_snapshot_row row, again;
    char *text, *text_again;

    if (berth_snapshot_row_parse(json, &row, NULL))
        return false;
    text = berth_snapshot_row_format(&row);
    if (!text || berth_snapshot_row_parse(text, &again, NULL))
        abort();
    text_again = berth_snapshot_row_format(&again);
    if (!text_again || strcmp(text, text_again) != 0)
        abort();
    free(text);
    free(text_again);
    return true;
}

static bool try_config(char *lines)
{
    struct berth_config_doc config, again;
    struct doc_of of;
    char *json, *json_again, *text;

    make_doc(&of, lines);
    if (berth_config_doc_parse(&of.doc, &config, NULL))
        return false;
    json = berth_image_pointer_format(&config.image);
    if (!json ||
        asprintf(&text, "rev=%s\nstate=%s\nimage=%s", config.rev, config.state, json) < 0)
        abort();
    make_doc(&of, text);
    if (berth_config_doc_parse(&of.doc, &again, NULL))
        abort();
    json_again = berth_image_pointer_format(&again.image);
    if (!json_again || strcmp(json, json_again) != 0)
        abort();
    free(json_again);
    free(json);
    free(text);
    return true;
}

static bool try_tenant(char *lines)
{
    struct berth_tenant_doc tenant, again;
    struct doc_of of;
    char *json, *text;

    make_doc(&of, lines);
    if (berth_tenant_doc_parse(&of.doc, &tenant, NULL))
        return false;
    json = berth_tenant_doc_format(&tenant);
    if (!json || asprintf(&text, "rev=%s\ndisabled=0\ntenant=%s", tenant.rev, json) < 0)
        abort();
    make_doc(&of, text);
    if (berth_tenant_doc_parse(&of.doc, &again, NULL) ||
        memcmp(&tenant.quotas, &again.quotas, sizeof again.quotas) != 0)
        abort();
    free(json);
    free(text);
    return true;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    bool accepted = false;

    memcpy(text, data, size);
    text[size] = 0;
    if (strncmp(text, "row\n", 4) == 0)
        accepted = try_row(text + 4);
    else if (strncmp(text, "config\n", 7) == 0)
        accepted = try_config(text + 7);
    else if (strncmp(text, "tenant\n", 7) == 0)
        accepted = try_tenant(text + 7);
    free(text);
    return accepted;
}

#include "services/skills/bundle/skill.h"

#include "services/skills/bundle/skill_keys.h"
#include "services/skills/bundle/text.h"

#define SKILL_MD "SKILL.md"

void skill_list_deinit(struct skill_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct skill_list){0};
}

bool skill_list_add(struct skill_list *list, const char *text, size_t size)
{
    char **bigger = realloc(list->items, (list->n + 2) * sizeof *bigger);
    char *copy = strndup(text, size);

    if (bigger)
        list->items = bigger;
    if (!bigger || !copy) {
        free(copy);
        return false;
    }
    list->items[list->n++] = copy;
    list->items[list->n] = NULL;
    return true;
}

void skill_deinit(struct skill *skill)
{
    char *const texts[] = {skill->name,        skill->written_name, skill->description,
                           skill->version,     skill->license,      skill->compatibility,
                           skill->instructions};

    for (size_t i = 0; i < BERTH_COUNT(texts); i++)
        free(texts[i]);
    skill_list_deinit(&skill->allowed_tools);
    skill_list_deinit(&skill->apt);
    skill_list_deinit(&skill->env_names);
    skill_list_deinit(&skill->self_test);
    json_decref(skill->keys);
    *skill = (struct skill){0};
}

const char *skill_text_of(const struct skill_reading *reading, const char *key)
{
    return json_string_value(json_object_get(reading->frontmatter->keys, key));
}

/* There, and of a kind that cannot be text. */
static bool is_shaped(const struct skill_reading *reading, const char *key)
{
    const json_t *value = json_object_get(reading->frontmatter->keys, key);

    return json_is_object(value) || json_is_array(value);
}

static void keep(struct skill_reading *reading, char **slot, const char *text)
{
    *slot = strdup(text ? text : "");
    reading->no_memory |= !*slot;
}

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == 0;
}

/* Would lead out of the folder that it is to name. */
static bool is_path(const char *name)
{
    return strpbrk(name, "/\\") || strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* ---------------------------------------------------------------------------- name */

/* Everything but the slug itself. NULL: there is none; a finding says why. */
static const char *usable_name(struct skill_reading *reading)
{
    const char *name = skill_text_of(reading, "name");

    if (is_shaped(reading, "name"))
        SKILL_SAY(reading, FINDING_NAME_INVALID, "name", "the name must be text");
    else if (!name || is_blank(name))
        SKILL_SAY(reading, FINDING_NAME_MISSING, "name", "there is no name");
    else if (text_len(name, strlen(name)) > SKILL_NAME_MAX)
        SKILL_SAY(reading, FINDING_NAME_LONG, "name",
                  "the name has %zu characters; %d is the limit", text_len(name, strlen(name)),
                  SKILL_NAME_MAX);
    else if (is_path(name))
        SKILL_SAY(reading, FINDING_NAME_INVALID, "name", "the name '%s' is a path", name);
    else if (text_is_suspicious(name, strlen(name)))
        SKILL_SAY(reading, FINDING_NAME_INVALID, "name",
                  "invisible characters or tags stand in the name '%s'", name);
    else
        return name;
    return NULL;
}

static bool is_ascii(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text >= 0x80)
            return false;
    return true;
}

static void read_name(struct skill_reading *reading, const char *folder)
{
    const char *name = usable_name(reading);
    char *slug;

    if (!name)
        return;
    slug = skill_slug(name);
    if (!slug) {
        reading->no_memory = true;
    } else if (!*slug || strlen(slug) > BUNDLE_NAME_MAX) {
        SKILL_SAY(reading, FINDING_NAME_INVALID, "name",
                  *slug ? "the name '%s' is longer than a folder's may be"
                        : "no letter or digit stands in the name '%s'",
                  name);
        free(slug);
        return;
    }
    if (slug && strcmp(slug, name) != 0)
        SKILL_SAY(reading, FINDING_NAME_SLUGGED, "name",
                  "'%s' is not a name of small letters, digits and single hyphens inside; it "
                  "is installed as '%s'",
                  name, slug);
    if (slug && !is_ascii(slug))
        SKILL_SAY(reading, FINDING_NAME_NOT_ASCII, "name",
                  "'%s' is kept, but other systems take a-z, 0-9 and hyphens only", slug);
    if (slug && folder && strcmp(folder, name) != 0 && strcmp(folder, slug) != 0)
        SKILL_SAY(reading, FINDING_NAME_DIFFERS, "name",
                  "the folder is called '%s'; the name of " SKILL_MD " is taken: '%s'", folder,
                  slug);
    reading->skill->name = slug;
    keep(reading, &reading->skill->written_name, name);
}

/* -------------------------------------------------------------------- the other texts */

static void read_description(struct skill_reading *reading)
{
    const char *text = skill_text_of(reading, "description");
    size_t len;

    if (is_shaped(reading, "description")) {
        SKILL_SAY(reading, FINDING_DESCRIPTION_INVALID, "description",
                  "the description must be text; quote it");
        return;
    }
    if (!text || is_blank(text)) {
        SKILL_SAY(reading, FINDING_DESCRIPTION_MISSING, "description",
                  "there is no description");
        return;
    }
    len = text_len(text, strlen(text));
    if (len > SKILL_DESCRIPTION_MAX)
        SKILL_SAY(reading, FINDING_DESCRIPTION_LONG, "description",
                  "the description has %zu characters, more than %d; it is kept whole", len,
                  SKILL_DESCRIPTION_MAX);
    if (text_is_suspicious(text, strlen(text)))
        SKILL_SAY(reading, FINDING_TEXT_HIDDEN, "description",
                  "invisible characters, escape sequences or tags stand in the description; "
                  "they are escaped wherever it is shown");
    keep(reading, &reading->skill->description, text);
}

static void read_texts(struct skill_reading *reading)
{
    static const char *const texts[] = {"license", "compatibility", "version"};
    const json_t *metadata = json_object_get(reading->frontmatter->keys, "metadata");
    const char *compatibility = skill_text_of(reading, "compatibility");
    const char *version = skill_text_of(reading, "version");

    for (size_t i = 0; i < BERTH_COUNT(texts); i++)
        if (is_shaped(reading, texts[i]))
            SKILL_SAY(reading, FINDING_KEY_SHAPE, texts[i],
                      "'%s' should be text; it is kept as it is", texts[i]);
    if (metadata && !json_is_object(metadata) && !json_is_null(metadata))
        SKILL_SAY(reading, FINDING_KEY_SHAPE, "metadata",
                  "'metadata' should be a mapping; it is kept as it is");
    if (compatibility &&
        text_len(compatibility, strlen(compatibility)) > SKILL_COMPATIBILITY_MAX)
        SKILL_SAY(reading, FINDING_COMPATIBILITY_LONG, "compatibility",
                  "'compatibility' has more than %d characters; it is kept whole",
                  SKILL_COMPATIBILITY_MAX);
    if (!version)
        version = json_string_value(json_object_get(metadata, "version"));
    keep(reading, &reading->skill->version, version);
    keep(reading, &reading->skill->license, skill_text_of(reading, "license"));
    keep(reading, &reading->skill->compatibility, compatibility);
}

static void read_instructions(struct skill_reading *reading)
{
    const char *body = reading->frontmatter->body;
    size_t size = reading->frontmatter->body_size;

    while (size > 0 && strchr(" \t\r\n", body[size - 1]))
        size--;
    while (size > 0 && strchr("\r\n", *body)) {
        body++;
        size--;
    }
    reading->skill->instructions = strndup(body, size);
    reading->no_memory |= !reading->skill->instructions;
}

/* ----------------------------------------------------------------------------- all */

enum berth_code skill_read_text(const char *text, size_t size, const char *folder,
                                struct findings *findings, struct skill *ret,
                                struct berth_error *err)
{
    struct frontmatter frontmatter = {0};
    struct skill_reading reading = {
        .frontmatter = &frontmatter, .findings = findings, .skill = ret};
    enum berth_code code = frontmatter_read(text, size, SKILL_MD, findings, &frontmatter, err);

    if (!code && frontmatter.keys) {
        read_name(&reading, folder);
        read_description(&reading);
        read_texts(&reading);
        skill_read_restrictions(&reading);
        skill_read_extras(&reading);
        read_instructions(&reading);
        ret->keys = json_incref(frontmatter.keys);
    }
    frontmatter_deinit(&frontmatter);
    if (!code && reading.no_memory)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    return code;
}

enum berth_code skill_read(const struct bundle *bundle, struct findings *findings,
                           struct skill *ret, struct berth_error *err)
{
    const struct bundle_entry *entry = bundle_find(bundle, SKILL_MD);
    BERTH_AUTO(free) char *text = NULL;
    enum berth_code code;

    if (!entry || entry->is_directory) /* said by bundle_read() */
        return BERTH_OK;
    if (entry->size > SKILL_MD_MAX) {
        findings_add(findings, FINDING_SKILL_MD_TOO_LARGE, SKILL_MD, 0,
                     "is longer than %d bytes, the limit", SKILL_MD_MAX);
        return BERTH_OK;
    }
    code = bundle_load(bundle, entry, &text, err);
    return code
               ? code
               : skill_read_text(text, (size_t)entry->size, bundle->folder, findings, ret, err);
}

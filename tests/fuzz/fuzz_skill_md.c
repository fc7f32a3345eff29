/* SKILL.md as strangers write it. Whatever comes in: what is accepted has a name that is one
 * folder, a description, and every restriction that its frontmatter holds; what is said of it
 * can be shown. The first half of what this proves is that libyaml does not crash. */
#include <stdlib.h>
#include <string.h>

#include "services/skills/bundle/frontmatter.h"
#include "services/skills/bundle/skill.h"
#include "services/skills/bundle/text.h"
#include "tests/fuzz/fuzz.h"

static void need(bool promise)
{
    if (!promise)
        abort();
}

static void check_findings(const struct findings *findings)
{
    need(!findings->no_memory);
    for (size_t i = 0; i < findings->n; i++) {
        const struct finding *finding = &findings->list[i];

        need(!text_is_suspicious(finding->message, strlen(finding->message)));
        need(!text_is_suspicious(finding->file, strlen(finding->file)));
    }
}

static void check_name(const char *name)
{
    char *again = skill_slug(name);

    need(*name && strlen(name) <= BUNDLE_NAME_MAX && strcmp(name, again) == 0);
    need(text_len(name, strlen(name)) <= SKILL_NAME_MAX && !strpbrk(name, "/\\. "));
    need(!text_is_suspicious(name, strlen(name)));
    free(again);
}

static void check_skill(const struct skill *skill)
{
    char *shown = text_show(skill->description, strlen(skill->description), SIZE_MAX, true);

    check_name(skill->name);
    need(*skill->description && !text_is_suspicious(shown, strlen(shown)));
    need(!json_object_get(skill->keys, "allowed-tools") || skill->restricts_tools);
    for (size_t i = 0; i < skill->allowed_tools.n; i++) {
        struct skill_list again = {0};
        bool no_memory = false;

        need(skill_read_tools(skill->allowed_tools.items[i], &again, &no_memory));
        need(again.n == 1 && strcmp(again.items[0], skill->allowed_tools.items[i]) == 0);
        skill_list_deinit(&again);
    }
    for (size_t i = 0; i < skill->apt.n; i++)
        need(skill->apt.items[i][0] != '-');
    need(skill->instructions && skill->version && skill->license && skill->compatibility);
    free(shown);
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct findings findings = {0};
    struct skill skill = {0};
    struct berth_error err;
    bool accepted;

    need(skill_read_text((const char *)data, size, "pdf", &findings, &skill, &err) == BERTH_OK);
    findings_close(&findings);
    check_findings(&findings);
    accepted = !findings_refuse(&findings);
    if (accepted)
        check_skill(&skill);
    findings_deinit(&findings);
    skill_deinit(&skill);
    return accepted;
}

/* dump_table.c - what Acquire decides in every situation, as a C header on standard output. A
 * Promela model takes it in by c_decl { \#include "acquire.h" } and asks it in c_code, so that
 * the model and the service have one table.
 *
 * A situation is a number:
 *   want - 1 (6) . state (4) . bound (3: nothing, bound, condemned) . power - 1 (3) .
 *   failed (2) . stale (2) . named by a live token (2) . adopted lately (2) . quarantine (2) .
 *   locked by somebody else (2)
 * with the last one counting by one. The answer is a decision as in doc.h (0: wait), or 10:
 * refused. The macro ACQUIRE_AT() makes the number. */
#include <stdio.h>

#include "services/binding/core.h"

enum { NOW = 1000000, LEASE = 60000, TURN = 1800000, REFUSED = 10 };

struct situation {
    int want, state, bound, power, failed, stale, named, adopted, quarantine, locked;
};

static const struct {
    const char *name;
    int size;
} dimensions[] = {{"want", 6},  {"state", 4}, {"bound", 3},   {"power", 3},      {"failed", 2},
                  {"stale", 2}, {"named", 2}, {"adopted", 2}, {"quarantine", 2}, {"locked", 2}};

static const struct binding_limits limits = {.lock_ms = LEASE,
                                             .turn_ms = TURN,
                                             .turn_min_ms = 1,
                                             .turn_max_ms = TURN,
                                             .use_ms = LEASE,
                                             .tombstone_ms = TURN};

static void fill_config(struct binding_view *view, const struct situation *s)
{
    snprintf(view->config_id, sizeof view->config_id, "c");
    view->tenant.exists = true;
    view->config.exists = true;
    view->config.keyed_create = true;
    view->config.image.rebuild_before = s->stale ? 2 : 1;
    snprintf(view->config.state, sizeof view->config.state, "active");
}

static void fill_bound(struct binding_view *view, const struct situation *s)
{
    struct binding_bound *bound = &view->doc.bound;

    bound->set = true;
    bound->generation = 1;
    bound->power = (enum binding_power)(s->power + 1);
    bound->origin = s->adopted ? BINDING_ADOPTED : BINDING_CREATED;
    bound->adopt_ms = s->adopted ? NOW : 0;
    snprintf(bound->sandbox_id, sizeof bound->sandbox_id, "s1");
    snprintf(bound->account, sizeof bound->account, "aa");
}

static bool fill_lists(struct binding_view *view, const struct situation *s)
{
    struct binding_intent *intent;
    struct binding_token *token;

    if (s->bound == 2) {
        if (binding_doc_add_intent(&view->doc, &intent, NULL))
            return false;
        intent->kind = BINDING_INTENT_DELETE;
        snprintf(intent->sandbox_id, sizeof intent->sandbox_id, "s1");
    }
    if (s->named) {
        if (binding_doc_add_token(&view->doc, &token, NULL))
            return false;
        token->kind = BINDING_TURN;
        token->lease_ms = TURN;
        token->deadline_ms = NOW + TURN;
        snprintf(token->sandbox_id, sizeof token->sandbox_id, "s1");
    }
    return true;
}

static void fill_lock(struct binding_view *view)
{
    view->doc.lock = (struct binding_lock){.set = true,
                                           .op = BINDING_VERIFY,
                                           .fence = 1,
                                           .until_ms = NOW + LEASE,
                                           .lease_ms = LEASE};
    snprintf(view->doc.lock.token, sizeof view->doc.lock.token, "other");
}

static int decide(const struct situation *s)
{
    struct binding_want want = {.kind = (enum binding_want_kind)(s->want + 1),
                                .owner = "model",
                                .attempt = "mine",
                                .turn_token = "",
                                .failed_sandbox_id = s->failed ? "s1" : "",
                                .created_by = "",
                                .reap_sandbox_id = "s1",
                                .reap_account = "aa",
                                .unless_active_after_ms = NOW,
                                .new_alias = "aaaaaaaaaaaaaaaaaaaa"};
    struct binding_view view = {
        .session_id = "s", .limits = &limits, .now_ms = NOW, .quarantine = s->quarantine};
    struct binding_plan plan = {0};
    enum berth_code code;
    int decision;

    fill_config(&view, s);
    view.doc.session.state = (enum binding_state)s->state;
    if (s->bound)
        fill_bound(&view, s);
    if (!fill_lists(&view, s))
        return -1;
    if (s->locked)
        fill_lock(&view);
    view.doc.dirty = 0;
    code = binding_acquire(&view, &want, &plan, NULL);
    decision = code ? REFUSED : (int)plan.decision;
    binding_plan_deinit(&plan);
    binding_doc_deinit(&view.doc);
    return code == BERTH_RESOURCE_EXHAUSTED ? -1 : decision;
}

static void print_macro(void)
{
    printf("/* Made by dump_table from services/binding. Do not edit. */\n#define ACQUIRE_AT(");
    for (size_t i = 0; i < BERTH_COUNT(dimensions); i++)
        printf("%s%s", i ? "," : "", dimensions[i].name);
    printf(") ");
    for (size_t i = 1; i < BERTH_COUNT(dimensions); i++)
        printf("(");
    printf("(%s)", dimensions[0].name);
    for (size_t i = 1; i < BERTH_COUNT(dimensions); i++)
        printf("*%d+(%s))", dimensions[i].size, dimensions[i].name);
    printf("\n");
}

int main(void)
{
    int n = 1;

    for (size_t i = 0; i < BERTH_COUNT(dimensions); i++)
        n *= dimensions[i].size;
    print_macro();
    printf("#define ACQUIRE_SITUATIONS %d\nstatic const unsigned char "
           "acquire[ACQUIRE_SITUATIONS] = {",
           n);
    for (int number = 0; number < n; number++) {
        int digits[BERTH_COUNT(dimensions)], rest = number, decision;
        struct situation s;

        for (size_t i = BERTH_COUNT(dimensions); i-- > 0;) {
            digits[i] = rest % dimensions[i].size;
            rest /= dimensions[i].size;
        }
        _Static_assert(sizeof s == sizeof digits, "one number per dimension, in their order");
        memcpy(&s, digits, sizeof s);
        decision = decide(&s);
        if (decision < 0)
            return EXIT_FAILURE;
        printf("%s%d", number % 32 == 0 ? number ? ",\n" : "\n" : ",", decision);
    }
    printf("\n};\n");
    return EXIT_SUCCESS;
}

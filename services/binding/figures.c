#include "services/binding/figures.h"

#include <string.h>

static const char *const kinds[BINDING_FIGURES_KINDS] = {
    "CREATED",
    "ADOPTED",
    "REBUILT",
    "REPLACED",
    "STALE",
    "PAUSED",
    "RESUMED",
    "LOST",
    "TIMED_OUT",
    "KILLED",
    "REAPED",
    "ABOUT_TO_TIME_OUT",
    "TURN_BEGUN",
    "TURN_ENDED",
    "TURN_EXPIRED",
    "SESSION_DELETED",
    "REBUILD_DEFERRED",
    "DUPLICATE_FOUND",
    "FOREIGN_FOUND",
    "SKILL_INSTALLED",
    "SKILL_REMOVED",
};

void binding_figures_count(struct binding_figures *figures, const char *kind)
{
    int i = 0;

    while (i < BINDING_FIGURES_KINDS && strcmp(kinds[i], kind) != 0)
        i++;
    atomic_fetch_add_explicit(&figures->n[i], 1, memory_order_relaxed);
}

void binding_figures_print(FILE *out, struct binding_figures *figures)
{
    const char *name = "berth_binding_events_total";

    fprintf(out,
            "# HELP %s Events of sessions written, by kind: REBUILT, REBUILD_DEFERRED, LOST, "
            "DUPLICATE_FOUND and others. From 0 with each process.\n# TYPE %s counter\n",
            name, name);
    for (int i = 0; i <= BINDING_FIGURES_KINDS; i++)
        fprintf(out, "%s{kind=\"%s\"} %llu\n", name,
                i < BINDING_FIGURES_KINDS ? kinds[i] : "other", atomic_load(&figures->n[i]));
}

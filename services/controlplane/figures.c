#include "services/controlplane/figures.h"

#include <stdio.h>
#include <stdlib.h>

void cp_figure_failure(struct cp_figures *figures, const struct berth_error *err)
{
    bool refused = err->code == BERTH_INVALID_ARGUMENT || err->code == BERTH_NOT_FOUND ||
                   err->code == BERTH_ALREADY_EXISTS ||
                   err->code == BERTH_FAILED_PRECONDITION ||
                   err->code == BERTH_PERMISSION_DENIED || err->code == BERTH_CANCELLED;

    cp_figure(figures, refused ? CP_FIGURE_REFUSED : CP_FIGURE_FAILED);
    if (err->reason == BERTH_REASON_CREATE_UNSETTLED)
        cp_figure(figures, CP_FIGURE_DOUBLE_WAITED);
}

static void put(FILE *out, struct cp_figures *figures, const char *name, const char *label,
                const char *value, enum cp_figure which)
{
    fprintf(out, "%s{%s=\"%s\"} %llu\n", name, label, value, atomic_load(&figures->n[which]));
}

char *cp_figures_metrics(struct cp_figures *figures)
{
    static const char *const outcomes[] = {"used",    "resumed", "created",
                                           "adopted", "rebuilt", "replaced",
                                           "nothing", "refused", "failed"};
    static const char *const doubles[] = {"exists", "found", "waited"};
    const char *resolves_name = "berth_controlplane_resolves_total";
    const char *doubles_name = "berth_controlplane_doubles_prevented_total";
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    fprintf(out,
            "# HELP %s Resolves and routes, by what was answered (what was lost is answered "
            "once; refused: by a rule, failed: for now). From 0 with each process.\n"
            "# TYPE %s counter\n",
            resolves_name, resolves_name);
    for (int i = 0; i < (int)BERTH_COUNT(outcomes); i++)
        put(out, figures, resolves_name, "outcome", outcomes[i], (enum cp_figure)i);
    fprintf(
        out,
        "# HELP %s Second sandboxes of a session that were not made, by what kept them from "
        "it: the backend's key (exists), one that was there and is used now (found), an "
        "earlier create that may still take effect (waited). From 0 with each process.\n"
        "# TYPE %s counter\n",
        doubles_name, doubles_name);
    for (int i = 0; i < (int)BERTH_COUNT(doubles); i++)
        put(out, figures, doubles_name, "by", doubles[i],
            (enum cp_figure)(CP_FIGURE_DOUBLE_EXISTS + i));
    if (fclose(out)) {
        free(text);
        return NULL;
    }
    return text;
}

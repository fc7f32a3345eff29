/* figures.h - what resolves came to, counted for metrics. Lock-free. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "common/errors/errors.h"

enum cp_figure {
    /* As enum cp_outcome begins. */
    CP_FIGURE_USED,
    CP_FIGURE_RESUMED,
    CP_FIGURE_CREATED,
    CP_FIGURE_ADOPTED,
    CP_FIGURE_REBUILT,
    CP_FIGURE_REPLACED,
    CP_FIGURE_NOTHING,
    CP_FIGURE_REFUSED,
    CP_FIGURE_FAILED,
    /* Second sandboxes of a session that were not made. */
    CP_FIGURE_DOUBLE_EXISTS,
    CP_FIGURE_DOUBLE_FOUND,
    CP_FIGURE_DOUBLE_WAITED,
    CP_N_FIGURES
};

struct cp_figures {
    atomic_ullong n[CP_N_FIGURES];
};

static inline void cp_figure(struct cp_figures *figures, enum cp_figure which)
{
    atomic_fetch_add_explicit(&figures->n[which], 1, memory_order_relaxed);
}
/* What a resolve that failed counts as. */
void cp_figure_failure(struct cp_figures *figures, const struct berth_error *err);
/* Prometheus text; owned. NULL: no memory. */
char *cp_figures_metrics(struct cp_figures *figures);

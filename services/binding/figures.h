/* figures.h - the events that were written, counted by kind for metrics. Lock-free. */
#pragma once

#include <stdatomic.h>
#include <stdio.h>

enum { BINDING_FIGURES_KINDS = 21 };

struct binding_figures {
    atomic_ullong n[BINDING_FIGURES_KINDS + 1]; /* the last one: of other kinds */
};

void binding_figures_count(struct binding_figures *figures, const char *kind);
/* Prometheus text. */
void binding_figures_print(FILE *out, struct binding_figures *figures);

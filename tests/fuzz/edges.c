/* edges.c - which edges of the program the corpus reached. In fuzzing builds the compiler
 * counts each edge and lists its address; the corpus driver collects after each input, and
 * $BERTH_EDGES gets a line "<offset in the program> <0 or 1>" for each. Elsewhere there is
 * nothing to collect. */
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

struct edge {
    uintptr_t address, flags;
};

/* The linker's names for the bounds of the two sections. */
extern uint8_t counters_begin[] __asm__("__start___sancov_cntrs") __attribute__((weak));
extern uint8_t counters_end[] __asm__("__stop___sancov_cntrs") __attribute__((weak));
extern const struct edge edges_begin[] __asm__("__start___sancov_pcs") __attribute__((weak));

static uint8_t *reached;

static size_t count(void)
{
    return counters_begin ? (size_t)(counters_end - counters_begin) : 0;
}

void fuzz_collect_edges(void)
{
    size_t n = count();

    if (n == 0)
        return;
    if (!reached)
        reached = calloc(n + 1, 1);
    for (size_t i = 0; reached && i < n; i++)
        reached[i] |= counters_begin[i] != 0;
    memset(counters_begin, 0, n); /* they wrap at 256 */
}

static int first_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(uintptr_t *)arg = info->dlpi_addr;
    return 1; /* the program itself comes first */
}

void fuzz_write_edges(void)
{
    const char *path = getenv("BERTH_EDGES");
    uintptr_t base = 0;
    FILE *file = path && reached ? fopen(path, "w") : NULL;

    if (!file)
        return;
    dl_iterate_phdr(first_object, &base);
    for (size_t i = 0; i < count(); i++)
        fprintf(file, "%#lx %d\n", (unsigned long)(edges_begin[i].address - base), reached[i]);
    fclose(file);
}

/* fuzz.h - what a fuzz target defines. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parse size bytes as an outsider might send them; aborts on a broken promise of the parser.
 * True: accepted. The corpus driver compares that with the file's name. */
bool fuzz_accepts(const uint8_t *data, size_t size);

/* libFuzzer's entry. A target that has no verdict to give defines this one itself instead. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the inputs so far have reached; see edges.c. */
void fuzz_collect_edges(void);
void fuzz_write_edges(void);

/* driver_fuzz.c - between libFuzzer and a target that says accepted or refused. */
#include "tests/fuzz/fuzz.h"

#pragma weak fuzz_accepts

__attribute__((weak)) int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (fuzz_accepts)
        fuzz_accepts(data, size);
    return 0;
}

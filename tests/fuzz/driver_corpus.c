/* driver_corpus.c - runs a fuzz target over the files of a folder. The file's name is the
 * verdict: y_* must be accepted, n_* refused, anything else must only not crash. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

#pragma weak fuzz_accepts
#pragma weak LLVMFuzzerTestOneInput

enum { FILE_MAX = 1 << 20 };

static bool run(const uint8_t *data, size_t size, bool *ret_judged)
{
    *ret_judged = fuzz_accepts != NULL;
    if (fuzz_accepts)
        return fuzz_accepts(data, size);
    return LLVMFuzzerTestOneInput && LLVMFuzzerTestOneInput(data, size) == 0;
}

/* 0: as the name says. */
static int check_file(const char *folder, const char *name)
{
    char path[4096];
    uint8_t *data;
    FILE *file;
    size_t size;
    bool accepted, judged, wrong;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "rb");
    data =
        malloc(FILE_MAX); /* on the heap, cut to size: so that a sanitizer sees one byte more */
    if (!file || !data)
        abort();
    size = fread(data, 1, FILE_MAX, file);
    fclose(file);
    if (size > 0)
        data = realloc(data, size);
    accepted = run(data, size, &judged);
    wrong = judged && ((name[0] == 'y' && !accepted) || (name[0] == 'n' && accepted));
    if (wrong)
        fprintf(stderr, "%s: %s\n", path, accepted ? "accepted" : "refused");
    free(data);
    fuzz_collect_edges();
    return wrong;
}

int main(int argc, char **argv)
{
    int n = 0, wrong = 0;
    struct dirent *entry;
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;

    if (!folder) {
        fprintf(stderr, "no folder %s\n", argc == 2 ? argv[1] : "given");
        return EXIT_FAILURE;
    }
    while ((entry = readdir(folder))) {
        if (entry->d_name[0] == '.')
            continue;
        wrong += check_file(argv[1], entry->d_name);
        n++;
    }
    closedir(folder);
    fuzz_write_edges();
    printf("%d files, %d not as their name says\n", n, wrong);
    return n > 0 && wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

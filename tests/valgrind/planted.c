/* A decision on what was never set: what tests/valgrind must find. */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    char *volatile block = malloc(16);

    if (!block)
        return EXIT_FAILURE;
    if (block[3] == 'x')
        puts("x");
    free(block);
    return EXIT_SUCCESS;
}

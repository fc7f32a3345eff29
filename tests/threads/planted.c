/* A race between two workers, of the kind that tests/threads must find. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/pool/pool.h"

static atomic_int n_there;
static volatile int count;

/* Both are at it at once, and nothing orders them. */
static void work(void *arg)
{
    (void)arg;
    atomic_fetch_add_explicit(&n_there, 1, memory_order_relaxed);
    while (atomic_load_explicit(&n_there, memory_order_relaxed) < 2) {
    }
    /* Many times: two looks at the very same moment may miss each other. */
    for (int i = 0; i < 10000; i++)
        count = count + 1;
}

int main(void)
{
    struct berth_pool *pool = NULL;
    struct berth_error err = {0};

    if (berth_pool_new("planted", 2, 2, &pool, &err))
        return EXIT_FAILURE;
    berth_pool_submit_must(pool, work, NULL);
    berth_pool_submit_must(pool, work, NULL);
    pool = berth_pool_free(pool);
    printf("%d\n", count);
    return EXIT_SUCCESS;
}

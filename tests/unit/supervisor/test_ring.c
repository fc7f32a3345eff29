#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "services/adapter-local/spawner/ring.h"

enum { KIB = 1024 };

static uint8_t block[64 * KIB];

static void add(struct ring *ring, size_t size, uint64_t *seq)
{
    ck_assert(ring_append(ring, block, size, seq, false));
}

/* Chunks are found by number, and what is missing shows in their place in the stream. */
START_TEST(ring_find__after_drop__next_kept)
{
    struct ring ring = {0};
    uint64_t seq = 2;

    for (int i = 0; i < 10; i++)
        add(&ring, KIB, &seq);
    ck_assert_uint_eq(seq, 12);
    ck_assert_uint_eq(ring_find(&ring, 0)->seq, 2);
    ck_assert_uint_eq(ring_find(&ring, 7)->start, 5 * KIB);
    ring_shrink(&ring, 4 * KIB, UINT64_MAX);
    ck_assert_uint_eq(ring_find(&ring, 0)->seq, 9); /* three fit with what they cost */
    ck_assert_uint_eq(ring_find(&ring, 0)->start, 7 * KIB);
    ck_assert_ptr_null(ring_find(&ring, 12));
    ck_assert_ptr_null(ring_before(&ring, 8));
    ck_assert_uint_eq(ring_before(&ring, 10)->seq, 10);
    ck_assert_uint_eq(ring_before(&ring, UINT64_MAX)->seq, 11);
    ck_assert_uint_eq(ring.total, 10 * KIB);
    ring_clear(&ring);
    ck_assert_uint_eq(ring.total, 10 * KIB);
    ck_assert_uint_eq(ring_held(&ring), 0);
}
END_TEST

/* What a reader still wants is not dropped, whatever the limit. */
START_TEST(ring_shrink__reader_behind__kept)
{
    struct ring ring = {0};
    uint64_t seq = 2;

    for (int i = 0; i < 10; i++)
        add(&ring, KIB, &seq);
    ring_shrink(&ring, 0, 5);
    ck_assert_uint_eq(ring_find(&ring, 0)->seq, 5);
    ring_shrink(&ring, 0, UINT64_MAX);
    ck_assert_uint_eq(ring_find(&ring, 0)->seq, 11); /* the newest always stays */
    ring_clear(&ring);
}
END_TEST

/* Small writes are joined until somebody has seen the chunk. */
START_TEST(ring_append__small_writes__joined_until_shared)
{
    struct ring ring = {.join_max = 16 * KIB};
    uint64_t seq = 2;

    for (int i = 0; i < 1000; i++)
        ck_assert(ring_append(&ring, "x", 1, &seq, true));
    ck_assert_uint_eq(seq, 3);
    ck_assert_uint_eq(ring_find(&ring, 2)->size, 1000);
    ring_share(&ring, ring_find(&ring, 2));
    ck_assert(ring_append(&ring, "x", 1, &seq, true));
    ck_assert_uint_eq(seq, 4);
    ck_assert(ring_append(&ring, "y", 1, &seq, false)); /* another stream was between */
    ck_assert_uint_eq(seq, 5);
    ck_assert_uint_lt(ring_held(&ring), 3 * KIB);
    ring_clear(&ring);
}
END_TEST

/* The head stays; the border is exact, in the middle of a write, too. */
START_TEST(ring_keep_tail__head_and_tail__exact)
{
    struct ring ring = {.head_bytes = 1500};
    uint64_t seq = 2, kept = 0;

    for (int i = 0; i < 1000; i++)
        add(&ring, KIB, &seq);
    ring_keep_tail(&ring, 1500);
    ck_assert_uint_eq(ring_find(&ring, 0)->start, 0);
    for (struct ring_chunk *chunk = ring_find(&ring, 0); chunk;
         chunk = ring_find(&ring, chunk->seq + 1)) {
        ck_assert(chunk->start + chunk->size <= 1500 || chunk->start >= 1000 * KIB - 2 * KIB);
        kept += chunk->size;
    }
    ck_assert_uint_eq(kept, 1500 + 2 * KIB);
    ring_clear(&ring);
}
END_TEST

/* A hundred thousand chunks, most of them dropped: searching stays right. */
START_TEST(ring_find__many__right)
{
    struct ring ring = {0};
    uint64_t seq = 2;

    for (int i = 0; i < 100000; i++) {
        add(&ring, 8, &seq);
        if (i % 3 == 0)
            seq++; /* the other stream's */
        ring_shrink(&ring, 64 * KIB, UINT64_MAX);
    }
    for (struct ring_chunk *chunk = ring_find(&ring, 0), *next; chunk; chunk = next) {
        next = ring_find(&ring, chunk->seq + 1);
        if (next)
            ck_assert_uint_eq(next->start, chunk->start + 8);
        else
            ck_assert_uint_eq(chunk->start + 8, ring.total);
    }
    ring_clear(&ring);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("supervisor/ring");
    TCase *tcase = tcase_create("ring");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tcase, ring_find__after_drop__next_kept);
    tcase_add_test(tcase, ring_shrink__reader_behind__kept);
    tcase_add_test(tcase, ring_append__small_writes__joined_until_shared);
    tcase_add_test(tcase, ring_keep_tail__head_and_tail__exact);
    tcase_add_test(tcase, ring_find__many__right);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

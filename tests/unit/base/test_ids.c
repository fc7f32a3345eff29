#include "common/ids/ids.h"

#include <string.h>

#include "common/base/base.h"
#include "tests/unit/base/main.h"

static const size_t sizes[] = {0, 1, 2, 20, 63, 64, 65, 1000};

/* As long as asked for, of the right characters, and ended by a NUL. */
START_TEST(berth_id_base36__each_size__charset_and_length)
{
    char buf[1002];
    size_t n = sizes[_i];

    memset(buf, '!', sizeof buf);
    ck_assert_ptr_eq(berth_id_base36(buf, n), buf);
    ck_assert_uint_eq(strlen(buf), n);
    ck_assert_uint_eq(strspn(buf, "abcdefghijklmnopqrstuvwxyz0123456789"), n);
    ck_assert_int_eq(buf[n + 1], '!');
}
END_TEST

/* Two digits a byte, nothing written beyond the NUL. */
START_TEST(berth_id_hex__each_size__charset_and_length)
{
    char buf[2002];
    size_t n = sizes[_i];

    memset(buf, '!', sizeof buf);
    ck_assert_ptr_eq(berth_id_hex(buf, n), buf);
    ck_assert_uint_eq(strlen(buf), 2 * n);
    ck_assert_uint_eq(strspn(buf, "0123456789abcdef"), 2 * n);
    ck_assert_int_eq(buf[2 * n + 1], '!');
}
END_TEST

/* Hex of known bytes, also where source and target lie over each other as in berth_id_hex(). */
START_TEST(berth_hex__known_bytes__known_text)
{
    static const unsigned char bytes[] = {0x00, 0x01, 0x7f, 0x80, 0xab, 0xff};
    char buf[13];

    ck_assert_str_eq(berth_hex(buf, bytes, sizeof bytes), "00017f80abff");
    ck_assert_str_eq(berth_hex(buf, bytes, 0), "");
    memcpy(buf + 6, bytes, sizeof bytes);
    ck_assert_str_eq(berth_hex(buf, buf + 6, sizeof bytes), "00017f80abff");
}
END_TEST

/* Every character comes about as often as every other: no modulo leaning (5 sigma). */
START_TEST(berth_id_base36__many__evenly_spread)
{
    enum { N = 360000, MEAN = N / 36, FIVE_SIGMA = 500 };
    static char buf[N + 1];
    int counts[256] = {0};

    berth_id_base36(buf, N);
    for (int i = 0; i < N; i++)
        counts[(unsigned char)buf[i]]++;
    for (int c = 0; c < 256; c++)
        if (counts[c])
            ck_assert_int_le(abs(counts[c] - MEAN), FIVE_SIGMA);
}
END_TEST

/* No two alike. */
START_TEST(berth_id_hex__twice__differ)
{
    char a[33], b[33];

    ck_assert_str_ne(berth_id_hex(a, 16), berth_id_hex(b, 16));
    ck_assert_str_ne(berth_id_base36(a, 20), berth_id_base36(b, 20));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("ids");

    tcase_add_loop_test(tcase, berth_id_base36__each_size__charset_and_length, 0,
                        (int)BERTH_COUNT(sizes));
    tcase_add_loop_test(tcase, berth_id_hex__each_size__charset_and_length, 0,
                        (int)BERTH_COUNT(sizes));
    tcase_add_test(tcase, berth_hex__known_bytes__known_text);
    tcase_add_test(tcase, berth_id_base36__many__evenly_spread);
    tcase_add_test(tcase, berth_id_hex__twice__differ);
    return run_case("common/ids", tcase);
}

#include "common/crypto/crypto.h"

#include <stdio.h>
#include <sys/stat.h>

#include "common/base/base.h"
#include "tests/unit/base/main.h"

#define HEX_A "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define HEX_B "ffeeddccbbaa99887766554433221100FFEEDDCCBBAA99887766554433221100"

static char path[32];

static void put_file(const char *text, mode_t mode)
{
    int fd;

    snprintf(path, sizeof path, "/tmp/berth-keys-XXXXXX");
    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
}

static enum berth_code load(const char *file, struct berth_keyring **ret,
                            struct berth_error *err)
{
    const struct berth_key_source source = {.file = file};

    return berth_keyring_load(&source, ret, err);
}

static struct berth_keyring *ring(const char *text)
{
    struct berth_keyring *keyring = NULL;
    struct berth_error err = {0};

    put_file(text, 0600);
    ck_assert_msg(load(path, &keyring, &err) == BERTH_OK, "%s", err.text);
    unlink(path);
    return keyring;
}

static const struct {
    const char *text;
    mode_t mode;
    const char *says; /* NULL: good */
} key_file_rows[] = {
    {"a " HEX_A "\n", 0600, NULL},
    {"a " HEX_A, 0400, NULL},
    {"\n\na " HEX_A "\n\nb-2 " HEX_B "\n", 0600, NULL},
    {"abcdefghijklmno1 " HEX_A "\n", 0600, NULL},
    {"", 0600, "no key"},
    {"\n\n", 0600, "no key"},
    {"a " HEX_A "\n", 0640, "others may read it"},
    {"a " HEX_A "\n", 0604, "others may read it"},
    {"a " HEX_A "\n", 0620, "others may read it"},
    {"abcdefghijklmno12 " HEX_A "\n", 0600, "line 1: wanted a key id"},
    {" " HEX_A "\n", 0600, "line 1: wanted a key id"},
    {"A " HEX_A "\n", 0600, "line 1: wanted a key id"},
    {"a\n", 0600, "line 1: wanted one space"},
    {"a  " HEX_A "\n", 0600, "line 1: wanted one space"},
    {"a\t" HEX_A "\n", 0600, "line 1: wanted one space"},
    {"a " HEX_A " \n", 0600, "line 1: wanted one space"},
    {"a " HEX_A "00\n", 0600, "line 1: wanted one space"},
    {"a 0011\n", 0600, "line 1: wanted one space"},
    {"a 0g112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n", 0600, "line 1"},
    {"a " HEX_A "\na " HEX_B "\n", 0600, "line 2: this key id stands there twice"},
    {"# comment\na " HEX_A "\n", 0600, "line 1"},
    {"a " HEX_A "\r\n", 0600, "line 1"},
    {"a " HEX_A ",b " HEX_B, 0600, NULL},
    {"a " HEX_A ",a " HEX_B, 0600, "line 2: this key id stands there twice"},
    {"a " HEX_A ", b " HEX_B, 0600, "line 2: wanted a key id"},
};

/* The form of the key file, and who may read it. Errors never show a digit of a key. */
START_TEST(berth_keyring_load__files)
{
    struct berth_keyring *keyring = NULL;
    struct berth_error err = {0};
    enum berth_code code;

    put_file(key_file_rows[_i].text, key_file_rows[_i].mode);
    code = load(path, &keyring, &err);
    unlink(path);
    if (key_file_rows[_i].says) {
        ck_assert_int_eq(code, BERTH_INVALID_ARGUMENT);
        ck_assert_ptr_null(keyring);
        ck_assert_msg(strstr(err.text, key_file_rows[_i].says) != NULL, "%s", err.text);
        ck_assert_ptr_null(strstr(err.text, "0011"));
    } else {
        ck_assert_int_eq(code, BERTH_OK);
        berth_keyring_free(keyring);
    }
}
END_TEST

/* More keys than there is room for, and a file far too large. */
START_TEST(berth_keyring_load__too_much__refused)
{
    char text[8000] = "";
    struct berth_keyring *keyring = NULL;
    size_t size = 0;

    for (int i = 0; i < 17; i++)
        size += (size_t)snprintf(text + size, sizeof text - size, "k%d %s\n", i, HEX_A);
    put_file(text, 0600);
    ck_assert_int_eq(load(path, &keyring, NULL), BERTH_INVALID_ARGUMENT);
    unlink(path);
    memset(text, '\n', sizeof text - 1);
    put_file(text, 0600);
    ck_assert_int_eq(load(path, &keyring, NULL), BERTH_INVALID_ARGUMENT);
    unlink(path);
    ck_assert_int_eq(load("/nonexistent", &keyring, NULL), BERTH_INVALID_ARGUMENT);
    ck_assert_int_eq(load("/tmp", &keyring, NULL), BERTH_INVALID_ARGUMENT);
    ck_assert_int_eq(load("/dev/zero", &keyring, NULL), BERTH_INVALID_ARGUMENT);
}
END_TEST

static const size_t sizes[] = {0, 1, 15, 16, 17, 1000, 1 << 20};

/* What was sealed is opened to the byte, and a NUL stands behind it. */
START_TEST(berth_seal__each_size__opened_the_same)
{
    struct berth_keyring *keyring = ring("key-1 " HEX_A "\n");
    size_t size = sizes[_i], sealed_size = 0, opened_size = 0;
    char *plain = malloc(size + 1);
    uint8_t *sealed = NULL, *opened = NULL;

    for (size_t i = 0; i < size; i++)
        plain[i] = (char)(i * 31);
    ck_assert_int_eq(berth_seal(keyring, plain, size, "who", 3, &sealed, &sealed_size, NULL),
                     BERTH_OK);
    ck_assert_uint_eq(sealed_size, 2 + 5 + 12 + size + 16);
    ck_assert_mem_eq(sealed, "\x01\x05key-1", 7);
    ck_assert_int_eq(
        berth_open_sealed(keyring, sealed, sealed_size, "who", 3, &opened, &opened_size, NULL),
        BERTH_OK);
    ck_assert_uint_eq(opened_size, size);
    ck_assert_mem_eq(opened, plain, size);
    ck_assert_int_eq(opened[size], 0);
    free(plain);
    free(sealed);
    free(opened);
    berth_keyring_free(keyring);
}
END_TEST

/* Any one bit changed, any byte cut off or put behind: refused, each time. */
START_TEST(berth_open_sealed__changed__refused)
{
    static const char plain[] = "sesame";
    struct berth_keyring *keyring = ring("k " HEX_A "\nl " HEX_A "\n");
    uint8_t *sealed = NULL, *opened = NULL;
    size_t sealed_size = 0, opened_size = 0;
    struct berth_error err = {0};

    ck_assert_int_eq(
        berth_seal(keyring, plain, sizeof plain, "ad", 2, &sealed, &sealed_size, NULL),
        BERTH_OK);
    for (size_t bit = 0; bit < 8 * sealed_size; bit++) {
        sealed[bit / 8] ^= (uint8_t)(1 << bit % 8); /* "k" may become the other key, "l" */
        ck_assert_int_eq(berth_open_sealed(keyring, sealed, sealed_size, "ad", 2, &opened,
                                           &opened_size, &err),
                         BERTH_FAILED_PRECONDITION);
        ck_assert_int_eq(err.reason, BERTH_REASON_BACKEND_AUTHENTICATION);
        sealed[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t size = 0; size < sealed_size; size++) {
        uint8_t *cut = malloc(size ? size : 1); /* exact: a sanitizer sees a look beyond */

        memcpy(cut, sealed, size);
        ck_assert_int_ne(
            berth_open_sealed(keyring, cut, size, "ad", 2, &opened, &opened_size, NULL),
            BERTH_OK);
        free(cut);
    }
    sealed = realloc(sealed, sealed_size + 1);
    sealed[sealed_size] = 0;
    ck_assert_int_ne(berth_open_sealed(keyring, sealed, sealed_size + 1, "ad", 2, &opened,
                                       &opened_size, NULL),
                     BERTH_OK);
    ck_assert_ptr_null(opened);
    free(sealed);
    berth_keyring_free(keyring);
}
END_TEST

static const struct {
    const char *seal, *open;
} associated_rows[] = {{"", "x"}, {"x", ""}, {"tenant-a", "tenant-b"}, {"ab", "a"}};

/* Meant for something else: refused. */
START_TEST(berth_open_sealed__other_associated_data__refused)
{
    struct berth_keyring *keyring = ring("k " HEX_A "\n");
    const char *seal = associated_rows[_i].seal, *open = associated_rows[_i].open;
    uint8_t *sealed = NULL, *opened = NULL;
    size_t sealed_size = 0, opened_size = 0;

    ck_assert_int_eq(
        berth_seal(keyring, "p", 1, seal, strlen(seal), &sealed, &sealed_size, NULL), BERTH_OK);
    ck_assert_int_eq(berth_open_sealed(keyring, sealed, sealed_size, open, strlen(open),
                                       &opened, &opened_size, NULL),
                     BERTH_FAILED_PRECONDITION);
    free(sealed);
    berth_keyring_free(keyring);
}
END_TEST

/* Key rotation: the first key seals, an old one still opens until it is taken out. */
START_TEST(berth_seal__rotated_key__old_opens_until_removed)
{
    struct berth_keyring *before = ring("old " HEX_A "\n");
    struct berth_keyring *both = ring("new " HEX_B "\nold " HEX_A "\n");
    struct berth_keyring *after = ring("new " HEX_B "\n");
    uint8_t *sealed = NULL, *opened = NULL;
    size_t sealed_size = 0, opened_size = 0;
    struct berth_error err = {0};

    ck_assert_int_eq(berth_seal(before, "p", 1, NULL, 0, &sealed, &sealed_size, NULL),
                     BERTH_OK);
    ck_assert_int_eq(
        berth_open_sealed(both, sealed, sealed_size, NULL, 0, &opened, &opened_size, NULL),
        BERTH_OK);
    free(opened);
    ck_assert_int_eq(
        berth_open_sealed(after, sealed, sealed_size, NULL, 0, &opened, &opened_size, &err),
        BERTH_FAILED_PRECONDITION);
    free(sealed);
    ck_assert_int_eq(berth_seal(both, "p", 1, NULL, 0, &sealed, &sealed_size, NULL), BERTH_OK);
    ck_assert_mem_eq(sealed + 2, "new", 3);
    free(sealed);
    berth_keyring_free(before);
    berth_keyring_free(both);
    berth_keyring_free(after);
}
END_TEST

/* The same text sealed twice looks different: nobody can tell that it is the same. */
START_TEST(berth_seal__twice__differ)
{
    struct berth_keyring *keyring = ring("k " HEX_A "\n");
    uint8_t *a = NULL, *b = NULL;
    size_t a_size = 0, b_size = 0;

    ck_assert_int_eq(berth_seal(keyring, "p", 1, NULL, 0, &a, &a_size, NULL), BERTH_OK);
    ck_assert_int_eq(berth_seal(keyring, "p", 1, NULL, 0, &b, &b_size, NULL), BERTH_OK);
    ck_assert_mem_ne(a, b, a_size);
    free(a);
    free(b);
    berth_keyring_free(keyring);
}
END_TEST

/* Over the limit: refused before it is copied. */
START_TEST(berth_seal__too_large__refused)
{
    struct berth_keyring *keyring = ring("k " HEX_A "\n");
    uint8_t *sealed = NULL;
    size_t size = 0;

    ck_assert_int_eq(
        berth_seal(keyring, "p", ((size_t)16 << 20) + 1, NULL, 0, &sealed, &size, NULL),
        BERTH_INVALID_ARGUMENT);
    ck_assert_int_eq(
        berth_seal(keyring, "p", 1, "a", ((size_t)16 << 20) + 1, &sealed, &size, NULL),
        BERTH_INVALID_ARGUMENT);
    berth_keyring_free(keyring);
}
END_TEST

static void check_hex(const uint8_t hash[32], const char *hex)
{
    char text[65];

    for (int i = 0; i < 32; i++)
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
    ck_assert_str_eq(text, hex);
}

/* The vectors of FIPS 180, in one piece and byte by byte. */
START_TEST(berth_sha256__known_vectors)
{
    static const char abc[] = "abc";
    struct berth_sha256 *hash = berth_sha256_new();
    uint8_t got[32];

    berth_sha256_once("", 0, got);
    check_hex(got, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    berth_sha256_once(abc, 3, got);
    check_hex(got, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (int round = 0; round < 2; round++) { /* an ended one starts anew */
        for (int i = 0; i < 3; i++)
            berth_sha256_add(hash, abc + i, 1);
        berth_sha256_end(hash, got);
        check_hex(got, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
    berth_sha256_free(hash);
}
END_TEST

/* Lengths are in it: parts cannot be shifted into each other. The value is fixed for ever. */
START_TEST(berth_fingerprint__parts__length_prefixed)
{
    const char *const ab_c[] = {"ab", "c"}, *const a_bc[] = {"a", "bc"}, *const abc[] = {"abc"};
    const char *const empty_abc[] = {"", "abc"};
    static const char by_hand[] = "\0\0\0\0\0\0\0\2ab\0\0\0\0\0\0\0\1c";
    uint8_t one[32], two[32], three[32], four[32], five[32];

    berth_fingerprint(ab_c, 2, one);
    berth_fingerprint(a_bc, 2, two);
    berth_fingerprint(abc, 1, three);
    berth_fingerprint(empty_abc, 2, four);
    berth_sha256_once(by_hand, sizeof by_hand - 1, five);
    ck_assert_mem_eq(one, five, 32);
    ck_assert_mem_ne(one, two, 32);
    ck_assert_mem_ne(one, three, 32);
    ck_assert_mem_ne(three, four, 32);
}
END_TEST

/* Keys change under a keyring in use: what was sealed before opens as long as its key is there,
 * and what is sealed from then on says so. */
START_TEST(berth_keyring_adopt__new_first_key__seals)
{
    struct berth_keyring *keyring = ring("old " HEX_A "\n");
    char ids[BERTH_KEYS_MAX][BERTH_KEY_ID_SIZE], id[BERTH_KEY_ID_SIZE];
    uint8_t *before = NULL, *after = NULL, *opened = NULL;
    size_t before_size = 0, after_size = 0, opened_size = 0;
    struct berth_keyring *same = ring("old " HEX_A "\n");

    ck_assert(berth_keyring_equal(keyring, same));
    berth_keyring_free(same);
    ck_assert_int_eq(berth_seal(keyring, "x", 1, "", 0, &before, &before_size, NULL), BERTH_OK);
    berth_keyring_adopt(keyring, ring("new " HEX_B "\nold " HEX_A "\n"));
    ck_assert_uint_eq(berth_keyring_ids(keyring, ids), 2);
    ck_assert_str_eq(ids[0], "new");
    ck_assert_str_eq(ids[1], "old");
    ck_assert(berth_keyring_has(keyring, "old") && !berth_keyring_has(keyring, "ol") &&
              !berth_keyring_has(keyring, ""));
    ck_assert_int_eq(berth_seal(keyring, "x", 1, "", 0, &after, &after_size, NULL), BERTH_OK);
    ck_assert(berth_sealed_key_id(before, before_size, id));
    ck_assert_str_eq(id, "old");
    ck_assert(berth_sealed_key_id(after, after_size, id));
    ck_assert_str_eq(id, "new");
    ck_assert_int_eq(
        berth_open_sealed(keyring, before, before_size, "", 0, &opened, &opened_size, NULL),
        BERTH_OK);
    free(opened);
    berth_keyring_adopt(keyring, ring("new " HEX_B "\n"));
    ck_assert_int_eq(
        berth_open_sealed(keyring, before, before_size, "", 0, &opened, &opened_size, NULL),
        BERTH_FAILED_PRECONDITION);
    ck_assert_int_eq(
        berth_open_sealed(keyring, after, after_size, "", 0, &opened, &opened_size, NULL),
        BERTH_OK);
    free(opened);
    free(before);
    free(after);
    berth_keyring_free(keyring);
}
END_TEST

/* What is not sealed, or cut, names no key. */
START_TEST(berth_sealed_key_id__other_bytes__refused)
{
    char id[BERTH_KEY_ID_SIZE], bytes[64] = "\1\2k1";

    ck_assert(berth_sealed_key_id(bytes, 4 + 12 + 16, id));
    ck_assert(!berth_sealed_key_id(bytes, 4 + 12 + 15, id));
    ck_assert(!berth_sealed_key_id(bytes, 1, id));
    ck_assert(!berth_sealed_key_id(bytes, 0, id));
    bytes[0] = 2;
    ck_assert(!berth_sealed_key_id(bytes, sizeof bytes, id));
    memcpy(bytes, "\1\0", 2);
    ck_assert(!berth_sealed_key_id(bytes, sizeof bytes, id));
    bytes[1] = 17;
    ck_assert(!berth_sealed_key_id(bytes, sizeof bytes, id));
    memcpy(bytes, "\1\2K1", 4);
    ck_assert(!berth_sealed_key_id(bytes, sizeof bytes, id));
}
END_TEST

/* Another key, purpose or text: another value. */
START_TEST(berth_keyring_mac__each_part__counts)
{
    struct berth_keyring *keyring = ring("a " HEX_A "\nb " HEX_B "\n");
    uint8_t one[32], other[32];

    ck_assert(berth_keyring_mac(keyring, "a", "p", "text", 4, one));
    ck_assert(berth_keyring_mac(keyring, "", "p", "text", 4, other));
    ck_assert_mem_eq(one, other, 32);
    ck_assert(berth_keyring_mac(keyring, "b", "p", "text", 4, other));
    ck_assert_mem_ne(one, other, 32);
    ck_assert(berth_keyring_mac(keyring, "a", "q", "text", 4, other));
    ck_assert_mem_ne(one, other, 32);
    ck_assert(berth_keyring_mac(keyring, "a", "p", "texT", 4, other));
    ck_assert_mem_ne(one, other, 32);
    ck_assert(!berth_keyring_mac(keyring, "c", "p", "text", 4, other));
    berth_keyring_free(keyring);
}
END_TEST

static const struct {
    const char *command;
    const char *says; /* NULL: good */
} command_rows[] = {
    {"/bin/echo a " HEX_A, NULL},
    {"/bin/echo  a   " HEX_A "  ", NULL},
    {"/bin/echo a " HEX_A ",b " HEX_B, NULL},
    {"/bin/echo", "no key"},
    {"/bin/true", "no key"},
    {"/bin/false", "it failed"},
    {"/bin/echo $HOME", "wanted a key id"}, /* no shell */
    {"/bin/cat /dev/zero", "it prints too much"},
    {"/nonexistent/program", "No such file"},
    {"echo a", "wanted the absolute path"},
    {" /bin/echo", "wanted the absolute path"},
    {"/usr/bin/env", "line 1"}, /* what it holds is not shown */
};

/* The key command: its output is judged as a file is, and none of it gets into an error. */
START_TEST(berth_keyring_load__command__output_judged)
{
    const struct berth_key_source source = {.command = command_rows[_i].command};
    struct berth_keyring *keyring = NULL;
    struct berth_error err = {0};
    enum berth_code code = berth_keyring_load(&source, &keyring, &err);

    if (command_rows[_i].says) {
        ck_assert_int_eq(code, BERTH_INVALID_ARGUMENT);
        ck_assert_msg(strstr(err.text, command_rows[_i].says) != NULL, "%s", err.text);
        ck_assert_ptr_null(strstr(err.text, "0011"));
    } else {
        ck_assert_msg(code == BERTH_OK, "%s", err.text);
        berth_keyring_free(keyring);
    }
}
END_TEST

/* Our settings do not reach the command; the rest of the environment does. */
START_TEST(berth_keyring_load__command__environment_without_ours)
{
    static const char script[] = "#!/bin/sh\n"
                                 "[ -z \"$BERTH_SECRET\" ] && [ \"$KEPT\" = yes ] &&\n"
                                 "echo a " HEX_A "\n";
    struct berth_key_source source = {.command = path};
    struct berth_keyring *keyring = NULL;
    struct berth_error err = {0};

    put_file(script, 0700);
    setenv("BERTH_SECRET", "x", 1);
    setenv("KEPT", "yes", 1);
    ck_assert_msg(berth_keyring_load(&source, &keyring, &err) == BERTH_OK, "%s", err.text);
    unlink(path);
    berth_keyring_free(keyring);
}
END_TEST

/* One that never ends is ended, with its children. */
START_TEST(berth_keyring_load__command_hangs__killed_after_ten_seconds)
{
    struct berth_key_source source = {.command = "/bin/sleep 1000"};
    struct berth_keyring *keyring = NULL;
    struct berth_error err = {0};

    ck_assert_int_eq(berth_keyring_load(&source, &keyring, &err), BERTH_INVALID_ARGUMENT);
    ck_assert_msg(strstr(err.text, "within 10 s") != NULL, "%s", err.text);
}
END_TEST

/* Equal is equal, anything else is not, nothing equals nothing. */
START_TEST(berth_equal_secret__rows)
{
    ck_assert(berth_equal_secret("abc", "abc", 3));
    ck_assert(!berth_equal_secret("abc", "abd", 3));
    ck_assert(!berth_equal_secret("xbc", "abc", 3));
    ck_assert(berth_equal_secret("abc", "abd", 2));
    ck_assert(berth_equal_secret("a", "b", 0));
}
END_TEST

/* Wiped is gone; NULL is fine. */
START_TEST(berth_wipe__buffer__zero)
{
    char buf[4] = "abc";

    berth_wipe(buf, sizeof buf);
    ck_assert_mem_eq(buf, "\0\0\0\0", 4);
    berth_wipe(NULL, 0);
    ck_assert_ptr_null(berth_keyring_free(NULL));
    ck_assert_ptr_null(berth_sha256_free(NULL));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("crypto");

    tcase_add_loop_test(tcase, berth_keyring_load__files, 0, (int)BERTH_COUNT(key_file_rows));
    tcase_add_test(tcase, berth_keyring_load__too_much__refused);
    tcase_add_loop_test(tcase, berth_seal__each_size__opened_the_same, 0,
                        (int)BERTH_COUNT(sizes));
    tcase_add_test(tcase, berth_open_sealed__changed__refused);
    tcase_add_loop_test(tcase, berth_open_sealed__other_associated_data__refused, 0,
                        (int)BERTH_COUNT(associated_rows));
    tcase_add_test(tcase, berth_seal__rotated_key__old_opens_until_removed);
    tcase_set_timeout(tcase, 40);
    tcase_add_test(tcase, berth_keyring_adopt__new_first_key__seals);
    tcase_add_test(tcase, berth_sealed_key_id__other_bytes__refused);
    tcase_add_test(tcase, berth_keyring_mac__each_part__counts);
    tcase_add_loop_test(tcase, berth_keyring_load__command__output_judged, 0,
                        (int)BERTH_COUNT(command_rows));
    tcase_add_test(tcase, berth_keyring_load__command__environment_without_ours);
    tcase_add_test(tcase, berth_keyring_load__command_hangs__killed_after_ten_seconds);
    tcase_add_test(tcase, berth_seal__twice__differ);
    tcase_add_test(tcase, berth_seal__too_large__refused);
    tcase_add_test(tcase, berth_sha256__known_vectors);
    tcase_add_test(tcase, berth_fingerprint__parts__length_prefixed);
    tcase_add_test(tcase, berth_equal_secret__rows);
    tcase_add_test(tcase, berth_wipe__buffer__zero);
    return run_case("common/crypto", tcase);
}

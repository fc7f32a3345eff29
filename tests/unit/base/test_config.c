#include "common/config/config.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

#include "tests/unit/base/main.h"

struct settings {
    char *name;
    int64_t number, period, limit;
    bool flag;
    char *secret;
};

#define KEY(field, type, value, doc)                                                           \
    {                                                                                          \
#field, BERTH_CONFIG_##type, offsetof(struct settings, field), value, doc              \
    }

static const struct berth_config_key keys[] = {
    KEY(name, STR, "default name", "a text"), KEY(number, INT, "7", "a number"),
    KEY(period, MS, "5s", "a period"),        KEY(limit, BYTES, "64KiB", "a limit"),
    KEY(flag, BOOL, "false", "a switch"),     KEY(secret, SECRET, "", "a secret"),
};

static const struct berth_config_key must_keys[] = {
    KEY(name, STR, NULL, "must be given"),
};

static char path[32];

static void put_file(const char *text, size_t size)
{
    int fd;

    snprintf(path, sizeof path, "/tmp/berth-config-XXXXXX");
    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, size), (ssize_t)size);
    close(fd);
}

static void drop_file(void)
{
    unlink(path);
}

static enum berth_code load(const char *file, const char *override, struct settings *out,
                            struct berth_error *err)
{
    const char *overrides[] = {override};

    return berth_config_load(keys, BERTH_COUNT(keys), file, overrides, override ? 1 : 0, out,
                             err);
}

static void drop(struct settings *settings)
{
    berth_config_deinit(keys, BERTH_COUNT(keys), settings);
}

/* Nothing given: the table's own values. */
START_TEST(berth_config_load__no_source__defaults)
{
    struct settings s = {0};

    ck_assert_int_eq(load(NULL, NULL, &s, NULL), BERTH_OK);
    ck_assert_str_eq(s.name, "default name");
    ck_assert_int_eq(s.number, 7);
    ck_assert_int_eq(s.period, 5000);
    ck_assert_int_eq(s.limit, 65536);
    ck_assert(!s.flag);
    ck_assert_str_eq(s.secret, "");
    drop(&s);
    ck_assert_ptr_null(s.name);
    drop(&s); /* twice is fine */
}
END_TEST

/* A secret of the environment is read once: its bytes are overwritten where they stood, which
 * is what /proc/PID/environ shows, and the variable is gone. Other settings stay. */
START_TEST(berth_config_load__secret_in_environment__wiped)
{
    char variable[] = "BERTH_SECRET=planted";
    struct settings s = {0};

    ck_assert_int_eq(putenv(variable), 0); /* no copy is made of it */
    setenv("BERTH_NUMBER", "3", 1);
    ck_assert_int_eq(load(NULL, NULL, &s, NULL), BERTH_OK);
    ck_assert_str_eq(s.secret, "planted");
    ck_assert_int_eq(s.number, 3);
    ck_assert_ptr_null(getenv("BERTH_SECRET"));
    ck_assert_ptr_nonnull(getenv("BERTH_NUMBER"));
    ck_assert_mem_eq(variable, "BERTH_SECRET=\0\0\0\0\0\0\0", sizeof variable - 1);
    drop(&s);
    unsetenv("BERTH_NUMBER");
}
END_TEST

/* Default, file, environment, command line: the later wins, each by itself. */
START_TEST(berth_config_load__all_sources__later_wins)
{
    static const char file[] = "{\"name\":\"file\",\"number\":1,\"flag\":true,\"limit\":10}";
    struct settings s = {0};

    put_file(file, sizeof file - 1);
    setenv("BERTH_NUMBER", "2", 1);
    setenv("BERTH_LIMIT", "20KiB", 1);
    ck_assert_int_eq(load(path, "limit=30", &s, NULL), BERTH_OK);
    ck_assert_str_eq(s.name, "file");
    ck_assert_int_eq(s.number, 2);
    ck_assert_int_eq(s.limit, 30);
    ck_assert(s.flag);
    ck_assert_int_eq(s.period, 5000);
    drop(&s);
    drop_file();
}
END_TEST

static const struct {
    const char *override;
    bool good;
} value_rows[] = {
    {"name=", true},
    {"name=a=b", true},
    {"name=\xc3\xa9", true},
    {"name=a\nb", false},
    {"name=a\x7f", false},
    {"name=\xff", false},
    {"number=-9223372036854775807", true},
    {"number=9223372036854775807", true},
    {"number=9223372036854775808", false},
    {"number=", false},
    {"number=-", false},
    {"number=--1", false},
    {"number=+1", false},
    {"number=1 ", false},
    {"number= 1", false},
    {"number=1.5", false},
    {"number=0x10", false},
    {"number=1KiB", false},
    {"period=250ms", true},
    {"period=0s", true},
    {"period=5", false},
    {"period=-5s", false},
    {"period=", false},
    {"limit=0", true},
    {"limit=4096", true},
    {"limit=4096B", true},
    {"limit=8388607TiB", true},
    {"limit=8388608TiB", false},
    {"limit=9007199254740991KiB", true},
    {"limit=9007199254740992KiB", false},
    {"limit=-1", false},
    {"limit=1KB", false},
    {"limit=1kib", false},
    {"limit=1 KiB", false},
    {"limit=KiB", false},
    {"flag=true", true},
    {"flag=false", true},
    {"flag=TRUE", false},
    {"flag=1", false},
    {"flag=yes", false},
    {"flag=", false},
    {"secret=@/nonexistent/file", false},
    {"secret=", true},
    {"secret=sesame", false}, /* everybody can read the command line */
    {"name", false},
    {"", false},
    {"=x", false},
    {"unknown=x", false},
    {"Name=x", false},
    {"name =x", false},
};

/* Each type's edges. A refusal names the key and the source, shows no value, changes nothing.
 */
START_TEST(berth_config_load__values)
{
    struct settings s = {.number = 42}, before = s;
    struct berth_error err = {0};
    enum berth_code code = load(NULL, value_rows[_i].override, &s, &err);

    ck_assert_int_eq(code, value_rows[_i].good ? BERTH_OK : BERTH_INVALID_ARGUMENT);
    if (code) {
        ck_assert_mem_eq(&s, &before, sizeof s);
        ck_assert_ptr_nonnull(strstr(err.text, "the command line"));
        ck_assert_ptr_null(strstr(err.text, "sesame"));
        if (strchr(value_rows[_i].override, '='))
            ck_assert_uint_eq(strlen(err.field), strcspn(value_rows[_i].override, "="));
    } else {
        drop(&s);
    }
}
END_TEST

static const struct {
    const char *text, *field;
} file_rows[] = {
    {"{\"unknown\":1}", "unknown"},
    {"{\"number\":\"x\"}", "number"},
    {"{\"number\":1.0}", "number"},
    {"{\"number\":true}", "number"},
    {"{\"number\":null}", "number"},
    {"{\"name\":1}", "name"},
    {"{\"name\":[]}", "name"},
    {"{\"name\":true}", "name"},
    {"{\"period\":5}", "period"},
    {"{\"period\":\"5\"}", "period"},
    {"{\"flag\":1}", "flag"},
    {"{\"flag\":\"yes\"}", "flag"},
    {"{\"limit\":-1}", "limit"},
    {"{\"secret\":{\"sesame\":1}}", "secret"},
    {"{\"secret\":\"sesame\",\"number\":\"x\"}", "number"},
    {"{\"secret\":\"sesame\"", NULL},
    {"{\"secret\":\"sesame\",\"secret\":\"sesame\"}", NULL},
    {"", NULL},
    {"[]", NULL},
    {"sesame", NULL},
};

/* What is wrong in the file: the key and the file are named, no value is shown. */
START_TEST(berth_config_load__bad_file__refused)
{
    struct settings s = {0}, before = s;
    struct berth_error err = {0};

    put_file(file_rows[_i].text, strlen(file_rows[_i].text));
    ck_assert_int_eq(load(path, NULL, &s, &err), BERTH_INVALID_ARGUMENT);
    ck_assert_mem_eq(&s, &before, sizeof s);
    ck_assert_ptr_nonnull(strstr(err.text, path));
    ck_assert_ptr_null(strstr(err.text, "sesame"));
    if (file_rows[_i].field)
        ck_assert_str_eq(err.field, file_rows[_i].field);
    drop_file();
}
END_TEST

/* Good values in the file, as JSON has them and as texts. */
START_TEST(berth_config_load__good_file__read)
{
    static const char file[] = "{\"number\":-3,\"limit\":\"1MiB\",\"flag\":\"true\","
                               "\"period\":\"1m\",\"secret\":\"sesame\"}";
    struct settings s = {0};

    put_file(file, sizeof file - 1);
    ck_assert_int_eq(load(path, NULL, &s, NULL), BERTH_OK);
    ck_assert_int_eq(s.number, -3);
    ck_assert_int_eq(s.limit, 1 << 20);
    ck_assert(s.flag);
    ck_assert_int_eq(s.period, 60000);
    ck_assert_str_eq(s.secret, "sesame");
    drop(&s);
    drop_file();
}
END_TEST

/* Files that are none. */
START_TEST(berth_config_load__no_file__refused)
{
    static const char *const paths[] = {"/nonexistent/berth.json", "/tmp", "/dev/zero", ""};
    struct settings s = {0};
    struct berth_error err = {0};

    ck_assert_int_eq(load(paths[_i], NULL, &s, &err), BERTH_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.text, paths[_i]));
}
END_TEST

static const struct {
    const char *bytes;
    size_t size;
    const char *secret; /* NULL: refused */
} secret_rows[] = {
    {"sesame\n", 7, "sesame"},
    {"sesame", 6, "sesame"},
    {"sesame\n\n", 8, NULL},
    {" sesame ", 8, " sesame "},
    {"", 0, ""},
    {"\n", 1, ""},
    {"ses\0ame", 7, NULL},
    {"sesame\r\n", 8, NULL},
    {"\xff", 1, NULL},
};

/* "@/path": what is in the file, without one line end; from anywhere, the command line too. */
START_TEST(berth_config_load__secret_file__read)
{
    struct settings s = {0};
    struct berth_error err = {0};
    char override[64];
    enum berth_code code;

    put_file(secret_rows[_i].bytes, secret_rows[_i].size);
    snprintf(override, sizeof override, "secret=@%s", path);
    code = load(NULL, override, &s, &err);
    if (secret_rows[_i].secret) {
        ck_assert_int_eq(code, BERTH_OK);
        ck_assert_str_eq(s.secret, secret_rows[_i].secret);
        drop(&s);
    } else {
        ck_assert_int_eq(code, BERTH_INVALID_ARGUMENT);
        ck_assert_ptr_null(strstr(err.text, "sesame"));
    }
    drop_file();
}
END_TEST

/* A setting without a default must come from somewhere. */
START_TEST(berth_config_load__must_be_given__refused_when_absent)
{
    const char *overrides[] = {"name=x"};
    struct settings s = {0};
    struct berth_error err = {0};

    ck_assert_int_eq(berth_config_load(must_keys, 1, NULL, NULL, 0, &s, &err),
                     BERTH_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "name");
    ck_assert_int_eq(berth_config_load(must_keys, 1, NULL, overrides, 1, &s, &err), BERTH_OK);
    berth_config_deinit(must_keys, 1, &s);
}
END_TEST

/* On the command line '-' counts as '_' in names; twice given, the last one holds. */
START_TEST(berth_config_load__command_line__dashes_and_repeats)
{
    static const struct berth_config_key dashed[] = {
        {"max_ttl", BERTH_CONFIG_INT, offsetof(struct settings, number), "1", "x"}};
    const char *overrides[] = {"max-ttl=2", "max_ttl=3"};
    struct settings s = {0};

    ck_assert_int_eq(berth_config_load(dashed, 1, NULL, overrides, 2, &s, NULL), BERTH_OK);
    ck_assert_int_eq(s.number, 3);
}
END_TEST

/* Help shows every key, a dump every value; secrets are set or unset. */
START_TEST(berth_config_describe__secret__never_shown)
{
    static const char file[] = "{\"secret\":\"sesame\",\"period\":\"2s\"}";
    struct settings s = {0};
    char *text;

    put_file(file, sizeof file - 1);
    ck_assert_int_eq(load(path, NULL, &s, NULL), BERTH_OK);
    text = berth_config_describe(keys, BERTH_COUNT(keys), &s);
    ck_assert_str_eq(text, "name=default name\nnumber=7\nperiod=2000ms\nlimit=65536\n"
                           "flag=false\nsecret=set\n");
    free(text);
    text = berth_config_describe(keys, BERTH_COUNT(keys), NULL);
    for (size_t i = 0; i < BERTH_COUNT(keys); i++) {
        ck_assert_ptr_nonnull(strstr(text, keys[i].name));
        ck_assert_ptr_nonnull(strstr(text, keys[i].doc));
    }
    ck_assert_ptr_nonnull(strstr(text, "(default: 64KiB)"));
    free(text);
    drop(&s);
    drop_file();
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("config");

    tcase_add_test(tcase, berth_config_load__no_source__defaults);
    tcase_add_test(tcase, berth_config_load__secret_in_environment__wiped);
    tcase_add_test(tcase, berth_config_load__all_sources__later_wins);
    tcase_add_loop_test(tcase, berth_config_load__values, 0, (int)BERTH_COUNT(value_rows));
    tcase_add_loop_test(tcase, berth_config_load__bad_file__refused, 0,
                        (int)BERTH_COUNT(file_rows));
    tcase_add_test(tcase, berth_config_load__good_file__read);
    tcase_add_loop_test(tcase, berth_config_load__no_file__refused, 0, 4);
    tcase_add_loop_test(tcase, berth_config_load__secret_file__read, 0,
                        (int)BERTH_COUNT(secret_rows));
    tcase_add_test(tcase, berth_config_load__must_be_given__refused_when_absent);
    tcase_add_test(tcase, berth_config_load__command_line__dashes_and_repeats);
    tcase_add_test(tcase, berth_config_describe__secret__never_shown);
    return run_case("common/config", tcase);
}

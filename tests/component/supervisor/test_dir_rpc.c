/* Directories by FileService: made, listed in pages, moved, removed. */
#include "tests/component/supervisor/file_calls.h"

#include <fcntl.h>
#include <stdio.h>

/* MakeDir and Move in the cases people meet. */
START_TEST(make_dir_and_move__usual_cases)
{
    bool created;

    ck_assert_int_eq(make_dir("/a/b/c", &created), 0);
    ck_assert(created);
    ck_assert_int_eq(make_dir("/a/b/c", &created), 0);
    ck_assert(!created);
    put("/a/f", "f", USER, 0644);
    ck_assert_int_eq(make_dir("/a/f", NULL), BERTH_REASON_FILE_EXISTS);
    ck_assert_int_eq(make_dir("/a/f/g", NULL), BERTH_REASON_NOT_A_DIRECTORY);
    ck_assert_int_eq(move("/a/f", "/a/g", false), 0);
    put("/a/f", "f", USER, 0644);
    ck_assert_int_eq(move("/a/f", "/a/g", false), BERTH_REASON_FILE_EXISTS);
    ck_assert_int_eq(move("/a/f", "/a/g", true), 0);
    ck_assert_int_eq(move("/a/f", "/a/h", false), BERTH_REASON_FILE_NOT_FOUND);
    ck_assert_int_eq(move("/a/g", "/no/h", false), BERTH_REASON_FILE_NOT_FOUND);
    ck_assert_int_eq(move("/a", "/a/b/d", false), BERTH_REASON_FIELD_INVALID);
    ck_assert_int_eq(move("/a/g", "/a/b", true), BERTH_REASON_NOT_A_FILE);
    ck_assert_int_eq(make_dir("/e", NULL), 0);
    ck_assert_int_eq(move("/e", "/a/b", true), BERTH_REASON_DIRECTORY_NOT_EMPTY);
    ck_assert_int_eq(move("/e", "/a/g", true), BERTH_REASON_NOT_A_DIRECTORY);
    ck_assert_int_eq(move("/a", "/z", false), 0);
    ck_assert_int_eq(stat_it("/z/b/c", NULL), 0);
}
END_TEST

/* Remove: absent is an answer, full needs recursive, 10,000 levels deep is no matter. */
START_TEST(remove__cases_and_deep_tree)
{
    bool existed;
    int fd;

    ck_assert_int_eq(remove_it("/no", false, &existed), 0);
    ck_assert(!existed);
    ck_assert_int_eq(remove_it("/no/such/dir", true, &existed), 0);
    ck_assert(!existed);
    put_dir("/d", USER);
    put("/d/f", "f", USER, 0644);
    ck_assert_int_eq(symlink("/", host("/d/link")), 0);
    put("/other", "o", USER, 0644);
    ck_assert_int_eq(remove_it("/d", false, &existed), BERTH_REASON_DIRECTORY_NOT_EMPTY);
    ck_assert_int_eq(remove_it("/d", true, &existed), 0);
    ck_assert(existed);
    ck_assert_int_eq(stat_it("/d", NULL), BERTH_REASON_FILE_NOT_FOUND);
    expect_content("/other", "o", 1);

    put_dir("/deep", USER);
    fd = open(host("/deep"), O_PATH | O_DIRECTORY);
    for (int i = 0; i < 10000; i++) {
        int next;

        ck_assert_int_eq(mkdirat(fd, "d", 0755), 0);
        ck_assert_int_eq(fchownat(fd, "d", USER, USER, 0), 0);
        next = openat(fd, "d", O_PATH | O_DIRECTORY);
        close(fd);
        fd = next;
    }
    close(fd);
    ck_assert_int_eq(remove_it("/deep", true, &existed), 0);
    ck_assert_int_eq(access(host("/deep"), F_OK), -1);
}
END_TEST

/* ---------------------------------------------------------------------- ListDir */

static int list_page(const char *path, uint32_t depth, int32_t size, char token[8200],
                     char (*ret_paths)[300], int max)
{
    Berth__Data__V1__ListDirRequest req = BERTH__DATA__V1__LIST_DIR_REQUEST__INIT;
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    Berth__Data__V1__ListDirResponse *resp;
    struct berth_error err;
    int n;

    req.session = &rig_session;
    req.path = (char *)path;
    req.depth = depth;
    req.page = &page;
    page.page_size = size;
    page.page_token = token;
    resp = (Berth__Data__V1__ListDirResponse *)rig_call(FILES("ListDir"), &req.base,
                                                        DESCRIPTOR(list_dir_response), &err);
    if (!resp)
        return -(int)err.reason;
    n = (int)resp->n_entries;
    for (int i = 0; i < n && i < max; i++)
        snprintf(ret_paths[i], sizeof ret_paths[i], "%s", resp->entries[i]->path);
    snprintf(token, 8200, "%s", resp->next_page_token);
    protobuf_c_message_free_unpacked(&resp->base, NULL);
    return n;
}

/* Pages of every size give every entry once, in order, also below. */
START_TEST(list__pages__each_entry_once)
{
    static char whole[3000][300], part[1001][300];
    static const int sizes[] = {1, 7, 50, 1000};
    char token[8200] = "", path[64];
    int n, all = 0;

    put_dir("/l", USER);
    for (int i = 0; i < 40; i++) {
        snprintf(path, sizeof path, "/l/d%d", i);
        put_dir(path, USER);
        for (int j = 0; j < i; j++) {
            snprintf(path, sizeof path, "/l/d%d/f%d", i, j);
            put(path, "x", USER, 0644);
        }
    }
    put("/l/d1.txt", "x", USER, 0644); /* sorts behind what is in d1 */
    do {
        n = list_page("/l", 2, 1000, token, whole + all, 1000);
        ck_assert_int_ge(n, 0);
        all += n;
    } while (token[0]);
    ck_assert_int_eq(all, 40 + 780 + 1);
    ck_assert_str_eq(whole[0], "/l/d0");
    ck_assert_str_eq(whole[1], "/l/d1");
    ck_assert_str_eq(whole[2], "/l/d1/f0");
    ck_assert_str_eq(whole[3], "/l/d1.txt");
    for (size_t s = 0; s < BERTH_COUNT(sizes); s++) {
        int got = 0;

        token[0] = 0;
        do {
            n = list_page("/l", 2, sizes[s], token, part, 1001);
            ck_assert_int_ge(n, 1);
            ck_assert_int_le(n, sizes[s]);
            for (int i = 0; i < n; i++)
                ck_assert_str_eq(part[i], whole[got + i]);
            got += n;
        } while (token[0]);
        ck_assert_int_eq(got, all);
    }
    token[0] = 0;
    ck_assert_int_eq(list_page("/l", 0, 1000, token, part, 1001), 41);
    ck_assert_str_eq(token, "");
    snprintf(token, sizeof token, "zz");
    ck_assert_int_eq(list_page("/l", 1, 10, token, part, 10), -BERTH_REASON_FIELD_INVALID);
    token[0] = 0;
    ck_assert_int_eq(list_page("/l", 33, 10, token, part, 10), -BERTH_REASON_FIELD_INVALID);
    ck_assert_int_eq(list_page("/l", 1, -1, token, part, 10), -BERTH_REASON_FIELD_INVALID);
    ck_assert_int_eq(list_page("/l/d1.txt", 1, 10, token, part, 10),
                     -BERTH_REASON_NOT_A_DIRECTORY);
    ck_assert_int_eq(list_page("/no", 1, 10, token, part, 10), -BERTH_REASON_FILE_NOT_FOUND);
}
END_TEST

/* Names that are not UTF-8 are shown, escaped and whole; paging goes over them. */
START_TEST(list__names_that_are_no_text__shown)
{
    Berth__Data__V1__ListDirRequest req = BERTH__DATA__V1__LIST_DIR_REQUEST__INIT;
    Berth__Data__V1__ListDirResponse *resp;
    struct berth_error err;
    char token[8200] = "", part[2][300];

    put_dir("/n", USER);
    put("/n/\xff\x01z", "x", USER, 0644);
    put("/n/a\\b", "x", USER, 0644);
    put("/n/\xff\xfe", "x", USER, 0644);
    req.session = &rig_session;
    req.path = (char *)"/n";
    resp = (Berth__Data__V1__ListDirResponse *)rig_call(FILES("ListDir"), &req.base,
                                                        DESCRIPTOR(list_dir_response), &err);
    ck_assert_ptr_nonnull(resp);
    ck_assert_uint_eq(resp->n_entries, 3);
    ck_assert_str_eq(resp->entries[0]->path, "/n/a\\b");
    ck_assert_uint_eq(resp->entries[0]->raw_path.len, 0);
    ck_assert_str_eq(resp->entries[1]->path, "/n/\\xFF\x01z");
    ck_assert_uint_eq(resp->entries[1]->raw_path.len, 6);
    ck_assert_mem_eq(resp->entries[1]->raw_path.data, "/n/\xff\x01z", 6);
    ck_assert_str_eq(resp->entries[2]->path, "/n/\\xFF\\xFE");
    protobuf_c_message_free_unpacked(&resp->base, NULL);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(list_page("/n", 1, 1, token, part, 2), 1);
    ck_assert_str_eq(token, "");
    ck_assert_str_eq(part[0], "/n/\\xFF\\xFE");
}
END_TEST

/* A page is bounded in bytes as well: long names do not burst a message. */
START_TEST(list__long_names__pages_fit_into_messages)
{
    static char part[1001][300];
    char token[8200] = "", path[300];
    int n, all = 0, pages = 0;

    put_dir("/long", USER);
    for (int i = 0; i < 3000; i++) {
        snprintf(path, sizeof path, "/long/%04d", i);
        memset(path + 10, '\xff', 245);
        path[255] = 0;
        put(path, "", USER, 0644);
    }
    do {
        n = list_page("/long", 1, 1000, token, part, 1001);
        ck_assert_int_ge(n, 1);
        all += n;
        pages++;
    } while (token[0]);
    ck_assert_int_eq(all, 3000);
    ck_assert_int_ge(pages, 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("adapter/directories");
    TCase *tcase = tcase_create("files");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, files_open, files_close);
    tcase_add_test(tcase, make_dir_and_move__usual_cases);
    tcase_add_test(tcase, remove__cases_and_deep_tree);
    tcase_add_test(tcase, list__pages__each_entry_once);
    tcase_add_test(tcase, list__names_that_are_no_text__shown);
    tcase_add_test(tcase, list__long_names__pages_fit_into_messages);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

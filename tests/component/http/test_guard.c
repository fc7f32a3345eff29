/* test_guard.c - attacks on the guard: every address of this network namespace is a server of
 * ours, so that what gets through does arrive. */
#include <check.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "common/http/http.h"
#include "common/http/internal.h"
#include "common/time/time.h"
#include "tests/component/http/names.h"
#include "tests/component/http/server.h"
#include "tests/unit/http/spellings.h"

static struct berth_http *http;
static struct berth_http_client *client;
static struct berth_http_response response;
static struct berth_error err;
static struct server server; /* at port 80 of everywhere: the metadata service, and all else */

static bool by_path(struct peer *peer, const char *head)
{
    if (strncmp(head, "GET /to-metadata", 16) == 0)
        return say(peer, "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/secret\r\n"
                         "Content-Length: 0\r\n\r\n");
    if (strncmp(head, "GET /to-scheme", 14) == 0)
        return say(peer, "HTTP/1.1 301 Moved\r\nLocation: file:///etc/passwd\r\n"
                         "Content-Length: 0\r\n\r\n");
    if (strncmp(head, "GET /loop", 9) == 0)
        return say(peer, "HTTP/1.1 307 Again\r\nLocation: /loop\r\nContent-Length: 0\r\n\r\n");
    if (strncmp(head, "CONNECT ", 8) == 0)
        return say(peer, "HTTP/1.1 200 Connected\r\n\r\n");
    return say_hello(peer, head);
}

static void open_all(void)
{
    unsetenv("http_proxy");
    names_clear();
    server_open(&server, 80, NULL, NULL, by_path);
    ck_assert_int_eq(berth_http_new(NULL, &http, &err), BERTH_OK);
}

static void close_all(void)
{
    client = berth_http_client_free(client);
    http = berth_http_free(http);
    server_close(&server);
}

static void use(struct berth_http_target target)
{
    client = berth_http_client_free(client);
    ck_assert_msg(berth_http_client_new(http, &target, &client, &err) == BERTH_OK, "%s",
                  err.text);
}

/* The reason, or NONE with the answer in response. */
static enum berth_reason get(const char *url)
{
    struct berth_http_request request = {.method = "GET", .url = url, .total_ms = 5000};

    berth_http_response_deinit(&response);
    return berth_http_call(client, &request, &response, &err) ? err.reason : BERTH_REASON_NONE;
}

static void answers(const char *name, const char *first, const char *second)
{
    const char *const list[] = {first, second};

    names_set(name, list, second ? 2 : 1);
}

/* What it is for: names and addresses of the world are reached, at the address that was looked
 * up, in one look-up. */
START_TEST(get__public_name__reached_at_its_address)
{
    char address[64], head[4096];

    use((struct berth_http_target){0});
    answers("api.example", "93.184.216.34", NULL);
    ck_assert_msg(get("http://api.example/x?y=z") == BERTH_REASON_NONE, "%s", err.text);
    ck_assert_int_eq(response.status, 200);
    ck_assert_str_eq(response.body, "hello");
    ck_assert_str_eq(berth_http_header(&response, "x-test"), "yes");
    server_last(&server, address, head);
    ck_assert_str_eq(address, "93.184.216.34");
    ck_assert_int_eq(strncmp(head, "GET /x?y=z HTTP/1.1\r\nHost: api.example\r\n", 40), 0);
    ck_assert_uint_eq(names_asked(NULL), 1);
    ck_assert_int_eq(get("http://8.8.8.8/"), BERTH_REASON_NONE);
    ck_assert_int_eq(get("http://[2606:4700::1]/"), BERTH_REASON_NONE);
    server_last(&server, address, NULL);
    ck_assert_str_eq(address, "2606:4700::1");
    ck_assert_uint_eq(names_asked(NULL), 1);
}
END_TEST

/* An address that does not answer is followed by the next one of the same judged answer. */
START_TEST(get__first_address_dead__next_one_used)
{
    char address[64];

    use((struct berth_http_target){0});
    answers("api.example", "2606:4700::dead 93.184.216.34", NULL);
    ck_assert_int_eq(get("http://api.example/"), BERTH_REASON_NONE);
    server_last(&server, address, NULL);
    ck_assert_str_eq(address, "2606:4700::dead");
    /* Multicast and the like cannot be dialled; a port that nobody has can. */
    ck_assert_int_eq(get("http://api.example:81/"), BERTH_REASON_BACKEND_UNAVAILABLE);
}
END_TEST

/* One answer of many that may not be dialled refuses the name. */
static const struct {
    const char *answers;
    enum berth_reason off, on;
} mixes[] = {
    {"93.184.216.34", BERTH_REASON_NONE, BERTH_REASON_NONE},
    {"127.0.0.1", BERTH_REASON_ENDPOINT_REFUSED, BERTH_REASON_NONE},
    {"93.184.216.34 10.0.0.1", BERTH_REASON_ENDPOINT_REFUSED, BERTH_REASON_NONE},
    {"10.0.0.1 93.184.216.34", BERTH_REASON_ENDPOINT_REFUSED, BERTH_REASON_NONE},
    {"169.254.169.254", BERTH_REASON_ENDPOINT_REFUSED, BERTH_REASON_ENDPOINT_REFUSED},
    {"93.184.216.34 169.254.169.254", BERTH_REASON_ENDPOINT_REFUSED,
     BERTH_REASON_ENDPOINT_REFUSED},
    {"93.184.216.34 ::ffff:169.254.169.254", BERTH_REASON_ENDPOINT_REFUSED,
     BERTH_REASON_ENDPOINT_REFUSED},
    {"93.184.216.34 fd00:ec2::254", BERTH_REASON_ENDPOINT_REFUSED,
     BERTH_REASON_ENDPOINT_REFUSED},
    {"64:ff9b::a9fe:a9fe", BERTH_REASON_ENDPOINT_REFUSED, BERTH_REASON_ENDPOINT_REFUSED},
    {"0.0.0.0", BERTH_REASON_ENDPOINT_REFUSED, BERTH_REASON_ENDPOINT_REFUSED},
    {"::", BERTH_REASON_ENDPOINT_REFUSED, BERTH_REASON_ENDPOINT_REFUSED},
    {"", BERTH_REASON_BACKEND_UNAVAILABLE, BERTH_REASON_BACKEND_UNAVAILABLE},
};

START_TEST(get__answers_of_the_resolver__all_judged)
{
    for (int on = 0; on < 2; on++) {
        unsigned before = server_connections(&server);
        enum berth_reason want = on ? mixes[_i].on : mixes[_i].off;

        use((struct berth_http_target){.allow_private = on});
        names_clear();
        answers("api.example", mixes[_i].answers, NULL);
        ck_assert_msg(get("http://api.example/") == want, "'%s': %s", mixes[_i].answers,
                      err.text);
        ck_assert_uint_eq(server_connections(&server), before + (want == BERTH_REASON_NONE));
    }
}
END_TEST

/* A resolver that says one thing when asked first, and another one then. */
START_TEST(get__rebinding_resolver__pinned_to_what_was_judged)
{
    char address[64];

    use((struct berth_http_target){0});
    answers("rebind.example", "93.184.216.34", "169.254.169.254");
    ck_assert_int_eq(get("http://rebind.example/"), BERTH_REASON_NONE);
    server_last(&server, address, NULL);
    ck_assert_str_eq(address, "93.184.216.34");
    ck_assert_uint_eq(names_asked("rebind.example"), 1);
    /* The next call asks again: now it is refused, though a connection is in the pool. */
    ck_assert_int_eq(get("http://rebind.example/"), BERTH_REASON_ENDPOINT_REFUSED);
    ck_assert_uint_eq(server_requests(&server), 1);
    names_clear();
    answers("rebind.example", "93.184.216.34", "127.0.0.1");
    ck_assert_int_eq(get("http://rebind.example/"), BERTH_REASON_NONE);
    ck_assert_int_eq(get("http://rebind.example/"), BERTH_REASON_ENDPOINT_REFUSED);
    server_last(&server, address, NULL);
    ck_assert_str_eq(address, "93.184.216.34");
}
END_TEST

/* The last guards alone: whatever address libcurl comes up with, no socket is opened to one
 * that may not be dialled, and no request is written to a connection that leads there. */
START_TEST(open_socket__any_address__judged_alone)
{
    for (int on = 0; on < 2; on++) {
        bool may = (on ? mixes[_i].on : mixes[_i].off) == BERTH_REASON_NONE;
        struct berth_http_exchange exchange = {.request.method = "GET"};
        union {
            struct curl_sockaddr theirs;
            char room[sizeof(struct curl_sockaddr) + sizeof(struct sockaddr_in6)];
        } dial = {.theirs = {.socktype = SOCK_STREAM}};
        struct berth_address address;
        curl_socket_t fd;

        if (!berth_address_parse(mixes[_i].answers, &address))
            return;
        use((struct berth_http_target){.allow_private = on});
        exchange.client = client;
        dial.theirs.family = address.family;
        dial.theirs.addr.sa_family = (sa_family_t)address.family;
        if (address.family == AF_INET)
            memcpy((char *)&dial.theirs.addr + offsetof(struct sockaddr_in, sin_addr),
                   address.bytes, 4);
        else
            memcpy((char *)&dial.theirs.addr + offsetof(struct sockaddr_in6, sin6_addr),
                   address.bytes, 16);
        fd = http_open_socket(&exchange, CURLSOCKTYPE_IPCXN, &dial.theirs);
        ck_assert_msg((fd != CURL_SOCKET_BAD) == may, "%s", mixes[_i].answers);
        if (fd != CURL_SOCKET_BAD)
            close(fd);
        ck_assert((http_before_request(&exchange, (char *)mixes[_i].answers, (char *)"", 80,
                                       1) == CURL_PREREQFUNC_OK) == may);
        ck_assert(exchange.sent == may);
    }
}
END_TEST

/* A redirect is an answer. What it names is not dialled, even where a client may go anywhere.
 */
START_TEST(get__redirects__answers_not_followed)
{
    use((struct berth_http_target){.allow_private = true});
    ck_assert_int_eq(get("http://8.8.8.8/to-metadata"), BERTH_REASON_NONE);
    ck_assert_int_eq(response.status, 302);
    ck_assert_str_eq(berth_http_header(&response, "Location"), "http://169.254.169.254/secret");
    ck_assert_int_eq(get("http://8.8.8.8/to-scheme"), BERTH_REASON_NONE);
    ck_assert_int_eq(response.status, 301);
    ck_assert_int_eq(get("http://8.8.8.8/loop"), BERTH_REASON_NONE);
    ck_assert_int_eq(response.status, 307);
    ck_assert_uint_eq(server_requests(&server), 3);
    ck_assert_int_eq(berth_http_check_status(&response, "get", true, &err), BERTH_UNAVAILABLE);
}
END_TEST

/* The environment's proxies are nobody's that a tenant configured. */
START_TEST(get__proxy_environment__ignored)
{
    static const char *const names[] = {"http_proxy",  "HTTP_PROXY", "https_proxy",
                                        "HTTPS_PROXY", "all_proxy",  "ALL_PROXY"};
    char address[64], head[4096];

    for (size_t i = 0; i < BERTH_COUNT(names); i++)
        setenv(names[i], "http://10.9.9.9:80", 1);
    use((struct berth_http_target){0});
    ck_assert_int_eq(get("http://8.8.8.8/"), BERTH_REASON_NONE);
    server_last(&server, address, head);
    ck_assert_str_eq(address, "8.8.8.8");
    ck_assert_int_eq(strncmp(head, "GET / ", 6), 0);
    /* Nor does it keep a configured one from being used. */
    setenv("no_proxy", "*", 1);
    setenv("NO_PROXY", "*", 1);
    use((struct berth_http_target){.proxy_url = "http://9.9.9.9:80"});
    ck_assert_int_eq(get("http://8.8.8.8/"), BERTH_REASON_NONE);
    server_last(&server, address, head);
    ck_assert_str_eq(address, "9.9.9.9");
    for (size_t i = 0; i < BERTH_COUNT(names); i++)
        unsetenv(names[i]);
    unsetenv("no_proxy");
    unsetenv("NO_PROXY");
}
END_TEST

/* A proxy is judged like any endpoint, and asked for an address, not for a name that it would
 * look up in a network we do not see. */
START_TEST(get__through_proxy__both_judged_and_pinned)
{
    char address[64], head[4096];
    int64_t until = berth_tick_ms() + 10000;
    struct berth_http_target private = {.proxy_url = "http://10.0.0.1"};

    ck_assert_int_eq(berth_http_client_new(http, &private, &client, &err),
                     BERTH_INVALID_ARGUMENT);
    ck_assert_int_eq(err.reason, BERTH_REASON_ENDPOINT_REFUSED);
    ck_assert_str_eq(err.field, "proxy_url");

    use((struct berth_http_target){.proxy_url = "http://proxy.example:80"});
    answers("proxy.example", "9.9.9.9", "10.0.0.1");
    answers("api.example", "93.184.216.34", "169.254.169.254");
    ck_assert_msg(get("http://api.example/") == BERTH_REASON_NONE, "%s", err.text);
    server_last(&server, address, head);
    ck_assert_str_eq(address, "9.9.9.9");
    ck_assert_ptr_nonnull(strstr(head, "Host: api.example\r\n"));
    ck_assert_uint_eq(server_requests(&server), 2); /* CONNECT, GET */
    ck_assert_int_eq(get("http://api.example/"), BERTH_REASON_ENDPOINT_REFUSED);
    ck_assert_int_eq(get("http://169.254.169.254/"), BERTH_REASON_ENDPOINT_REFUSED);
    while (names_asked(NULL) < 4) { /* a refusal does not wait for the other name */
        ck_assert_int_lt(berth_tick_ms(), until);
        poll(NULL, 0, 1);
    }
    names_clear();
    answers("proxy.example", "10.0.0.1", NULL);
    answers("api.example", "93.184.216.34", NULL);
    ck_assert_int_eq(get("http://api.example/"), BERTH_REASON_ENDPOINT_REFUSED);
    ck_assert_str_eq(err.field, "proxy_url");
    ck_assert_uint_eq(server_requests(&server), 2);
    ck_assert_uint_eq(names_asked(NULL), 2); /* ours; none of libcurl's */
}
END_TEST

static bool as_proxy(struct peer *peer, const char *head)
{
    if (strncmp(head, "CONNECT ", 8) == 0)
        return say(peer, strncmp(head, "CONNECT 93.184.216.34:80 ", 25) == 0
                             ? "HTTP/1.1 200 Connected\r\n\r\n"
                             : "HTTP/1.1 403 A name\r\nContent-Length: 0\r\n\r\n");
    return say_hello(peer, head);
}

START_TEST(get__through_proxy__asked_for_the_address)
{
    struct server proxy;
    char url[64];

    server_open(&proxy, 0, NULL, NULL, as_proxy);
    snprintf(url, sizeof url, "http://9.9.9.9:%u", proxy.port);
    use((struct berth_http_target){.proxy_url = url});
    answers("api.example", "93.184.216.34", NULL);
    ck_assert_msg(get("http://api.example/") == BERTH_REASON_NONE, "%s", err.text);
    ck_assert_int_eq(get("http://8.8.8.8/"), BERTH_REASON_BACKEND_UNAVAILABLE);
    client = berth_http_client_free(client);
    server_close(&proxy);
}
END_TEST

/* A gateway is dialled in place of the host, which is not looked up. */
START_TEST(get__through_gateway__host_kept)
{
    char address[64], head[4096];

    use((struct berth_http_target){.gateway_url = "http://gw.example:80"});
    answers("gw.example", "9.9.9.9", "10.0.0.1");
    ck_assert_msg(get("http://49983-abc.cube.app/files") == BERTH_REASON_NONE, "%s", err.text);
    server_last(&server, address, head);
    ck_assert_str_eq(address, "9.9.9.9");
    ck_assert_ptr_nonnull(strstr(head, "Host: 49983-abc.cube.app\r\n"));
    ck_assert_int_eq(get("http://49983-def.cube.app/files"), BERTH_REASON_ENDPOINT_REFUSED);
    ck_assert_str_eq(err.field, "gateway_url");
    use((struct berth_http_target){.gateway_url = "http://9.9.9.9", .allow_private = true});
    ck_assert_int_eq(get("http://49983-abc.cube.app/"), BERTH_REASON_NONE);
    ck_assert_int_eq(get("http://169.254.169.254/"), BERTH_REASON_ENDPOINT_REFUSED);
    ck_assert_uint_eq(names_asked(NULL), 2);
}
END_TEST

/* Only a client that was made for a socket of this host speaks to one. */
START_TEST(get__unix_socket__only_where_made_for_it)
{
    struct server local;
    char path[64];

    snprintf(path, sizeof path, "/tmp/berth-http-%d.sock", (int)getpid());
    server_open(&local, 0, path, NULL, say_hello);
    use((struct berth_http_target){.socket_path = path});
    ck_assert_msg(get("http://localhost/v1.43/info") == BERTH_REASON_NONE, "%s", err.text);
    ck_assert_uint_eq(server_requests(&local), 1);
    client = berth_http_client_free(client);
    server_close(&local);
    use((struct berth_http_target){0});
    ck_assert_int_eq(get("unix:/run/x.sock"), BERTH_REASON_FIELD_INVALID);
}
END_TEST

/* Pools are not shared: what one client may dial, another may not find open. */
START_TEST(get__pooled_connection__not_for_another_client)
{
    struct berth_http_client *open = NULL;
    struct berth_http_target private = {.allow_private = true};
    struct berth_http_request request = {.method = "GET", .url = "http://10.0.0.1/"};

    ck_assert_int_eq(berth_http_client_new(http, &private, &open, &err), BERTH_OK);
    ck_assert_int_eq(berth_http_call(open, &request, &response, &err), BERTH_OK);
    berth_http_response_deinit(&response);
    ck_assert_int_eq(berth_http_call(open, &request, &response, &err), BERTH_OK);
    ck_assert_uint_eq(server_connections(&server), 1); /* kept */
    use((struct berth_http_target){0});
    ck_assert_int_eq(get("http://10.0.0.1/"), BERTH_REASON_ENDPOINT_REFUSED);
    (void)berth_http_client_free(open);
}
END_TEST

/* ------------------------------------------------------- every spelling, against libcurl */

static size_t swallow(char *data, size_t one, size_t size, void *arg)
{
    (void)data, (void)one, (void)arg;
    return size;
}

/* What a program without a guard does with it. True: something was reached. */
static bool get_unguarded(const char *url)
{
    CURL *easy = curl_easy_init();
    CURLcode result;

    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http");
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, 2000L);
    curl_easy_setopt(easy, CURLOPT_CONNECT_TO, NULL);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, swallow);
    result = curl_easy_perform(easy);
    curl_easy_cleanup(easy);
    return result == CURLE_OK;
}

/* The attack with the protection off: libcurl alone arrives at addresses that are never
 * allowed, and wherever it arrives, the guard had known it. */
START_TEST(spellings__unguarded__arrive_where_the_guard_refuses)
{
    unsigned n_loopback = 0, n_never = 0;

    use((struct berth_http_target){0});
    for (size_t i = 0; i < BERTH_COUNT(spellings); i++) {
        struct berth_address address;
        char text[64];

        if (!get_unguarded(spellings[i].url))
            continue;
        server_last(&server, text, NULL);
        ck_assert(berth_address_parse(text, &address));
        switch (berth_address_judge(&address).klass) {
        case BERTH_ADDRESS_PUBLIC:
            break;
        case BERTH_ADDRESS_PRIVATE:
            n_loopback++;
            ck_assert_msg(spellings[i].off != FINE, "%s: %s", spellings[i].url, text);
            break;
        case BERTH_ADDRESS_NEVER:
            n_never++;
            ck_assert_msg(spellings[i].off != FINE && spellings[i].on != FINE, "%s: %s",
                          spellings[i].url, text);
            break;
        }
    }
    printf("# unguarded: %u of %zu spellings reach private, %u never-allowed addresses\n",
           n_loopback, BERTH_COUNT(spellings), n_never);
    ck_assert_uint_ge(n_loopback, 25);
    ck_assert_uint_ge(n_never, 30);
}
END_TEST

/* And with it: only what the table allows arrives, off and on. */
START_TEST(spellings__guarded__only_allowed_ones_arrive)
{
    for (int on = 0; on < 2; on++) {
        use((struct berth_http_target){.allow_private = on});
        for (size_t i = 0; i < BERTH_COUNT(spellings); i++) {
            unsigned before = server_requests(&server);
            enum verdict want = on ? spellings[i].on : spellings[i].off;
            enum berth_reason reason = get(spellings[i].url);
            struct berth_address address;
            char text[64];

            ck_assert_msg((want == BAD) == (reason == BERTH_REASON_FIELD_INVALID), "%s",
                          spellings[i].url);
            ck_assert_msg((want == REFUSED) == (reason == BERTH_REASON_ENDPOINT_REFUSED), "%s",
                          spellings[i].url);
            if (server_requests(&server) == before)
                continue;
            ck_assert_msg(want == FINE, "%s", spellings[i].url);
            server_last(&server, text, NULL);
            ck_assert(berth_address_parse(text, &address));
            ck_assert_msg(berth_address_judge(&address).klass <=
                              (on ? BERTH_ADDRESS_PRIVATE : BERTH_ADDRESS_PUBLIC),
                          "%s: %s", spellings[i].url, text);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http/guard");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    if (!net_enter()) {
        puts("SKIP: no network namespace of its own");
        return 77;
    }
    tcase_add_checked_fixture(all, open_all, close_all);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, get__public_name__reached_at_its_address);
    tcase_add_test(all, get__first_address_dead__next_one_used);
    tcase_add_loop_test(all, get__answers_of_the_resolver__all_judged, 0,
                        (int)BERTH_COUNT(mixes));
    tcase_add_test(all, get__rebinding_resolver__pinned_to_what_was_judged);
    tcase_add_loop_test(all, open_socket__any_address__judged_alone, 0,
                        (int)BERTH_COUNT(mixes));
    tcase_add_test(all, get__redirects__answers_not_followed);
    tcase_add_test(all, get__proxy_environment__ignored);
    tcase_add_test(all, get__through_proxy__both_judged_and_pinned);
    tcase_add_test(all, get__through_proxy__asked_for_the_address);
    tcase_add_test(all, get__through_gateway__host_kept);
    tcase_add_test(all, get__unix_socket__only_where_made_for_it);
    tcase_add_test(all, get__pooled_connection__not_for_another_client);
    tcase_add_test(all, spellings__unguarded__arrive_where_the_guard_refuses);
    tcase_add_test(all, spellings__guarded__only_allowed_ones_arrive);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

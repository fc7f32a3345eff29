/* server.c - berth-interop-server [--NAME=NUMBER...] ADDRESS...
 *
 * TestService with health and reflection. Says "ready PORT" when it listens on the first
 * address, obeys "serving NAME" and "away NAME" (health) on standard input, and ends with it.
 * Options: max_connections, max_streams, memory_bytes, n_workers, keepalive_ms. */
#include <signal.h>
#include <stdio.h>

#include "tests/conformance/rpc/service.h"

enum { LINE_SIZE = 256, GRACE_MS = 2000 };
#define SERVICE "grpc.testing.TestService"

extern const uint8_t berth_descriptors[], berth_descriptors_end[]; /* of the tests' protos */

static int fail(const char *what, const struct berth_error *err)
{
    fprintf(stderr, "berth-interop-server: %s: %s\n", what, err->text);
    return EXIT_FAILURE;
}

static bool set_option(struct berth_server_options *options, const char *word)
{
    static const char *const names[] = {"--max_connections=", "--max_streams=", "--n_workers=",
                                        "--memory_bytes=", "--keepalive_ms="};
    unsigned *const numbers[] = {&options->max_connections, &options->max_streams,
                                 &options->n_workers};

    for (size_t i = 0; i < BERTH_COUNT(names); i++) {
        size_t len = strlen(names[i]);
        unsigned long value;

        if (strncmp(word, names[i], len) != 0)
            continue;
        value = strtoul(word + len, NULL, 10);
        if (i < BERTH_COUNT(numbers))
            *numbers[i] = (unsigned)value;
        else if (i == BERTH_COUNT(numbers))
            options->memory_bytes = value;
        else
            options->keepalive_ms = (int64_t)value;
        return true;
    }
    return false;
}

/* "--tls=FOLDER": with server.pem and server.key there, for addresses "tls:...". */
static bool set_tls(struct berth_tls **ret, const char *word)
{
    char cert[LINE_SIZE], key[LINE_SIZE];
    const struct berth_tls_options options = {.cert = cert, .key = key};
    struct berth_error err;

    if (strncmp(word, "--tls=", 6) != 0)
        return false;
    snprintf(cert, sizeof cert, "%s/server.pem", word + 6);
    snprintf(key, sizeof key, "%s/server.key", word + 6);
    if (berth_tls_new(&options, ret, &err))
        (void)fail("tls", &err);
    return true;
}

static enum berth_code fill(struct berth_server *server, struct berth_error *err)
{
    static const char *const services[] = {SERVICE};
    enum berth_code code =
        berth_server_add(server, interop_methods, n_interop_methods, NULL, err);

    if (!code)
        code = berth_health_add(server, err);
    if (!code)
        code = berth_reflection_add(server, berth_descriptors,
                                    (size_t)(berth_descriptors_end - berth_descriptors),
                                    services, BERTH_COUNT(services), err);
    berth_health_set(server, "", true);
    berth_health_set(server, SERVICE, true);
    return code;
}

static void obey(struct berth_server *server)
{
    char line[LINE_SIZE], name[LINE_SIZE];

    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "serving %255s", name) == 1)
            berth_health_set(server, name, true);
        else if (sscanf(line, "away %255s", name) == 1)
            berth_health_set(server, name, false);
    }
}

static int run(struct berth_loop *loop, char **words)
{
    struct berth_server_options options = {.loop = loop, .n_workers = 8};
    BERTH_AUTO(berth_server_free) struct berth_server *server = NULL;
    struct berth_error err = {0};
    BERTH_AUTO(berth_tls_free) struct berth_tls *tls = NULL;
    int first = -1, tls_port = -1, port;

    while (*words && (set_option(&options, *words) || set_tls(&tls, *words)))
        words++;
    options.tls = tls;
    if (berth_server_new(&options, &server, &err) || fill(server, &err))
        return fail("server", &err);
    for (; *words; words++) {
        bool secure = strncmp(*words, "tls:", 4) == 0;

        if (secure ? berth_server_listen_tls(server, *words + 4, &port, &err)
                   : berth_server_listen(server, *words, &port, &err))
            return fail("listen", &err);
        if (secure)
            tls_port = port;
        else if (first < 0)
            first = port;
    }
    if (berth_server_start(server, &err))
        return fail("start", &err);
    printf("ready %d %d\n", first, tls_port);
    fflush(stdout);
    obey(server);
    berth_server_stop(server, GRACE_MS);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct berth_loop *loop = NULL;
    struct berth_error err = {0};
    int status;

    if (argc < 2) {
        fputs("usage: berth-interop-server [--NAME=NUMBER...] ADDRESS...\n", stderr);
        return EXIT_FAILURE;
    }
    berth_rpc_init();
    if (berth_loop_new(&loop, &err) || berth_loop_start(loop, "interop", &err))
        return fail("loop", &err);
    status = run(loop, argv + 1);
    berth_loop_free(loop);
    berth_rpc_done();
    return status;
}

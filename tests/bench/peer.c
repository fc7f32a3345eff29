/* peer.c - berth-bench-peer: the yardstick server, or a bare relay to one.
 *
 *     berth-bench-peer serve ADDRESS...
 *     berth-bench-peer quick ADDRESS...   the echo alone, served as a quick method
 *     berth-bench-peer relay TARGET ADDRESS...
 *
 * Says "ready" when it listens; ends when its standard input does. */
#include <stdio.h>

#include "tests/bench/relay.h"

static int fail(const char *what, const struct berth_error *err)
{
    fprintf(stderr, "berth-bench-peer: %s: %s\n", what, err->text);
    return EXIT_FAILURE;
}

static int serve(struct berth_loop *loop, const char *mode, const char *target,
                 char **addresses)
{
    const struct berth_server_options options = {.loop = loop, .n_workers = 8};
    BERTH_AUTO(berth_server_free) struct berth_server *server = NULL;
    BERTH_AUTO(berth_channel_free) struct berth_channel *channel = NULL;
    struct berth_error err = {0};
    enum berth_code code;

    if (berth_server_new(&options, &server, &err))
        return fail("server", &err);
    if (target && berth_channel_new(target, NULL, &channel, &err))
        return fail(target, &err);
    if (target)
        code = berth_server_add(server, bench_relays, n_bench_relays, channel, &err);
    else if (strcmp(mode, "quick") == 0)
        code = berth_server_add(server, &bench_quick_echo, 1, NULL, &err);
    else
        code = berth_server_add(server, bench_yardsticks, n_bench_yardsticks, NULL, &err);
    for (; code == BERTH_OK && *addresses; addresses++)
        code = berth_server_listen(server, *addresses, NULL, &err);
    if (code == BERTH_OK)
        code = berth_server_start(server, &err);
    if (code)
        return fail("serve", &err);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    berth_server_stop(server, 0);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    bool relay = argc >= 4 && strcmp(argv[1], "relay") == 0;
    struct berth_loop *loop = NULL;
    struct berth_error err = {0};
    int status;

    if (!relay &&
        !(argc >= 3 && (strcmp(argv[1], "serve") == 0 || strcmp(argv[1], "quick") == 0))) {
        fputs("usage: berth-bench-peer serve|quick ADDRESS... | relay TARGET ADDRESS...\n",
              stderr);
        return EXIT_FAILURE;
    }
    berth_rpc_init();
    if (berth_loop_new(&loop, &err) || berth_loop_start(loop, "bench", &err))
        return fail("loop", &err);
    status = serve(loop, argv[1], relay ? argv[2] : NULL, argv + (relay ? 3 : 2));
    berth_loop_free(loop);
    berth_rpc_done();
    return status;
}

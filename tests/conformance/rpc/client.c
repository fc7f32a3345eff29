/* client.c - berth-interop-client TARGET CASE...: one line per case, "CASE ok" or
 * "CASE failed: why"; exit code 1 when one failed. "all" stands for every case. */
#include <stdio.h>

#include "tests/conformance/rpc/cases.h"

enum { CONNECT_MS = 10000 };

static bool run(struct interop_client *client, const char *name)
{
    bool known = false, passed = true;

    for (size_t i = 0; i < n_interop_cases; i++) {
        if (strcmp(name, "all") != 0 && strcmp(name, interop_cases[i].name) != 0)
            continue;
        known = true;
        if (interop_cases[i].run(client)) {
            printf("%s ok\n", interop_cases[i].name);
        } else {
            printf("%s failed: %s\n", interop_cases[i].name, client->why);
            passed = false;
        }
        fflush(stdout);
    }
    if (!known)
        printf("%s failed: no such case\n", name);
    return known && passed;
}

int main(int argc, char **argv)
{
    struct interop_client client = {0};
    struct berth_error err = {0};
    bool passed = true;

    if (argc < 3) {
        fputs("usage: berth-interop-client TARGET CASE...\n", stderr);
        return EXIT_FAILURE;
    }
    berth_rpc_init();
    if (berth_loop_new(&client.loop, &err) || berth_loop_start(client.loop, "interop", &err) ||
        berth_channel_new(argv[1], NULL, &client.channel, &err)) {
        fprintf(stderr, "berth-interop-client: %s\n", err.text);
        return EXIT_FAILURE;
    }
    if (!berth_channel_ready(client.channel, CONNECT_MS)) {
        fprintf(stderr, "berth-interop-client: nobody answers at %s\n", argv[1]);
        return EXIT_FAILURE;
    }
    for (int i = 2; i < argc; i++)
        passed = run(&client, argv[i]) && passed;
    berth_channel_free(client.channel);
    berth_loop_free(client.loop);
    berth_rpc_done();
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}

#include "tests/lib/redis_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ftw.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/time/time.h"

enum { START_DEADLINE_MS = 10000, ARGS_MAX = 64 };

static void die(const char *what)
{
    perror(what);
    abort();
}

int redis_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) < 0)
        die("free port");
    close(fd);
    return ntohs(address.sin_port);
}

static void write_config(const struct redis_server *server)
{
    const struct redis_server_options *options = &server->options;
    char path[128];
    FILE *file;

    snprintf(path, sizeof path, "%s/redis.conf", server->folder);
    file = fopen(path, "w");
    if (!file)
        die(path);
    fprintf(file,
            "enable-debug-command yes\ndir %s\nunixsocket %s/redis.sock\nport %d\nbind "
            "127.0.0.1\nsave \"\"\n",
            server->folder, server->folder, server->port);
    fprintf(file, "appendonly %s\nappendfsync always\nlogfile %s/redis.log\n",
            options->keep ? "yes" : "no", server->folder);
    if (options->username)
        fprintf(file, "user default off\nuser %s on >%s ~* &* +@all\n", options->username,
                options->password);
    else if (options->password)
        fprintf(file, "requirepass %s\n", options->password);
    if (fclose(file) != 0)
        die(path);
}

/* Of this process, which is about to be the server. */
static void shift_clock(const struct redis_server *server)
{
    char file[96], library[512];
    FILE *clock;

    snprintf(file, sizeof file, "%s/clock", server->folder);
    snprintf(library, sizeof library, "%s/tests/lib/libberth-test-clock.so",
             getenv("BERTH_BUILD_DIR"));
    clock = fopen(file, "w");
    if (!clock || fwrite(&server->options.clock_ms, sizeof(int64_t), 1, clock) != 1 ||
        fclose(clock) != 0 || access(library, R_OK) < 0)
        die(library);
    setenv("BERTH_TEST_CLOCK", file, 1);
    setenv("LD_PRELOAD", library, 1);
}

static void exec_server(const struct redis_server *server)
{
    const char *argv[ARGS_MAX] = {"redis-server"};
    char config[256];
    size_t n = 1;

    snprintf(config, sizeof config, "%s/redis.conf", server->folder);
    argv[n++] = config;
    for (size_t i = 0; server->options.extra && server->options.extra[i] && n < ARGS_MAX - 1;
         i++)
        argv[n++] = server->options.extra[i];
    if (server->options.clock_ms)
        shift_clock(server);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that crashes leaves nothing behind */
    setsid();
    execvp(argv[0], (char *const *)argv);
    _exit(127);
}

static bool answers(const struct redis_server *server, struct berth_error *err)
{
    /* A new client each time: one that has failed would wait before it tries again. */
    BERTH_AUTO(berth_redis_free)
    struct berth_redis *client =
        redis_server_client(server, &(struct berth_redis_options){.any_role = true});

    return berth_redis_ping(client, err) == BERTH_OK;
}

void redis_server_launch(struct redis_server *server)
{
    server->pid = fork();
    if (server->pid < 0)
        die("fork");
    if (server->pid == 0)
        exec_server(server);
}

static void launch(struct redis_server *server)
{
    int64_t until_tick = berth_tick_ms() + START_DEADLINE_MS;
    struct berth_error err = {0};

    redis_server_launch(server);
    while (!answers(server, &err)) {
        if (waitpid(server->pid, NULL, WNOHANG) != 0 || berth_tick_ms() > until_tick) {
            fprintf(stderr, "redis-server does not come up: %s\n", err.text);
            abort();
        }
        poll(NULL, 0, 5);
    }
}

void redis_server_start(struct redis_server *server, const struct redis_server_options *options)
{
    *server = (struct redis_server){0};
    if (options)
        server->options = *options;
    snprintf(server->folder, sizeof server->folder, "%s/berth-redis-XXXXXX",
             getenv("TMPDIR") && strlen(getenv("TMPDIR")) < 40 ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(server->folder))
        die("mkdtemp");
    snprintf(server->url, sizeof server->url, "unix:%s/redis.sock", server->folder);
    if (server->options.tcp) {
        server->port = redis_free_port();
        snprintf(server->tcp_url, sizeof server->tcp_url, "redis://127.0.0.1:%d", server->port);
    }
    write_config(server);
    launch(server);
}

void redis_server_kill(struct redis_server *server)
{
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    server->pid = 0;
}

void redis_server_again(struct redis_server *server)
{
    launch(server);
}

void redis_server_pause(struct redis_server *server)
{
    int status;

    kill(server->pid, SIGSTOP);
    waitpid(server->pid, &status, WUNTRACED);
}

void redis_server_resume(struct redis_server *server)
{
    kill(server->pid, SIGCONT);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

void redis_server_stop(struct redis_server *server)
{
    if (server->pid > 0)
        redis_server_kill(server);
    nftw(server->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

struct berth_redis *redis_server_client(const struct redis_server *server,
                                        const struct berth_redis_options *base)
{
    struct berth_redis_options options = {0};
    struct berth_redis *client = NULL;
    struct berth_error err = {0};

    if (base)
        options = *base;
    if (!options.url)
        options.url = server->url;
    if (!options.password)
        options.password = server->options.password;
    if (!options.username)
        options.username = server->options.username;
    if (berth_redis_new(&options, &client, &err) != BERTH_OK) {
        fprintf(stderr, "client: %s\n", err.text);
        abort();
    }
    return client;
}

struct berth_reply *redis_run(struct berth_redis *client, ...)
{
    const char *argv[ARGS_MAX];
    struct berth_reply *reply = NULL;
    struct berth_error err = {0};
    size_t argc = 0;
    va_list args;

    va_start(args, client);
    while (argc < ARGS_MAX && (argv[argc] = va_arg(args, const char *)))
        argc++;
    va_end(args);
    if (berth_redis_call(client, argc, argv, NULL, &reply, &err) != BERTH_OK) {
        fprintf(stderr, "%s: %s\n", argv[0], err.text);
        abort();
    }
    return reply;
}

/* ------------------------------------------------------------------------ Sentinel */

static void write_sentinel_config(const struct redis_sentinel *sentinel,
                                  const struct redis_server *master, const char *password)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof path, "%s/sentinel.conf", sentinel->folder);
    file = fopen(path, "w");
    if (!file)
        die(path);
    fprintf(file, "dir %s\nport %d\nbind 127.0.0.1\nlogfile %s/sentinel.log\n",
            sentinel->folder, sentinel->port, sentinel->folder);
    fprintf(file,
            "sentinel monitor m 127.0.0.1 %d 1\nsentinel down-after-milliseconds m 300\n"
            "sentinel failover-timeout m 3000\n",
            master->port);
    if (master->options.password)
        fprintf(file, "sentinel auth-pass m %s\n", master->options.password);
    if (password)
        fprintf(file, "requirepass %s\n", password);
    if (fclose(file) != 0)
        die(path);
}

/* Of items in the answer; -1: no answer, or an error. */
static int sentinel_ask(const struct redis_sentinel *sentinel, const char *password,
                        const char *what)
{
    redisContext *context =
        redisConnectWithTimeout("127.0.0.1", sentinel->port, (struct timeval){.tv_sec = 1});
    redisReply *reply = NULL;
    int n = -1;

    if (context && !context->err && password)
        freeReplyObject(redisCommand(context, "AUTH %s", password));
    if (context && !context->err)
        reply = redisCommand(context, "SENTINEL %s m", what);
    if (reply && reply->type != REDIS_REPLY_ERROR)
        n = (int)reply->elements;
    freeReplyObject(reply);
    if (context)
        redisFree(context);
    return n;
}

static void launch_sentinel(struct redis_sentinel *sentinel, const struct redis_server *master,
                            const char *password, int n_replicas)
{
    int64_t until_tick = berth_tick_ms() + START_DEADLINE_MS;
    char config[128];

    write_sentinel_config(sentinel, master, password);
    snprintf(config, sizeof config, "%s/sentinel.conf", sentinel->folder);
    sentinel->pid = fork();
    if (sentinel->pid < 0)
        die("fork");
    if (sentinel->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setsid();
        execlp("redis-server", "redis-server", config, "--sentinel", (char *)NULL);
        _exit(127);
    }
    while (sentinel_ask(sentinel, password, "replicas") < n_replicas) {
        if (berth_tick_ms() > until_tick) {
            fprintf(stderr, "the Sentinel does not find the replicas\n");
            abort();
        }
        poll(NULL, 0, 10);
    }
}

void redis_sentinel_start(struct redis_sentinel *sentinel, const struct redis_server *master,
                          const char *password, int n_replicas)
{
    *sentinel = (struct redis_sentinel){.port = redis_free_port()};
    snprintf(sentinel->folder, sizeof sentinel->folder, "%s/berth-sentinel-XXXXXX",
             getenv("TMPDIR") && strlen(getenv("TMPDIR")) < 40 ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(sentinel->folder))
        die("mkdtemp");
    launch_sentinel(sentinel, master, password, n_replicas);
}

static void kill_sentinel(struct redis_sentinel *sentinel)
{
    kill(sentinel->pid, SIGKILL);
    waitpid(sentinel->pid, NULL, 0);
}

void redis_sentinel_move(struct redis_sentinel *sentinel, const struct redis_server *master,
                         const char *password)
{
    kill_sentinel(sentinel);
    launch_sentinel(sentinel, master, password, 0);
}

void redis_sentinel_failover(const struct redis_sentinel *sentinel, const char *password)
{
    int64_t until_tick = berth_tick_ms() + START_DEADLINE_MS;

    /* It must have heard of the replica lately. */
    while (sentinel_ask(sentinel, password, "failover") < 0 && berth_tick_ms() < until_tick)
        poll(NULL, 0, 50);
}

void redis_sentinel_stop(struct redis_sentinel *sentinel)
{
    kill_sentinel(sentinel);
    nftw(sentinel->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* serve.c - supervisor_serve(): engine and connections, until the sandbox ends. */
#include "services/adapter-local/spawner/supervisor.h"

#include <sys/resource.h>

#include "common/time/time.h"
#include "services/adapter-local/spawner/engine.h"

enum {
    FAREWELL_MS = 2000, /* at most, for the last results to be read */
    FAREWELL_POLL_MS = 10,
};

struct serve {
    const struct supervisor_env *env;
    struct engine *engine;
    struct server *server;
    int64_t until_tick_ms;
};

static void leave_when_quiet(void *arg)
{
    struct serve *serve = arg;
    bool quiet = server_idle(serve->server) && serve->engine->n_running == 0;

    if (quiet || berth_tick_ms() >= serve->until_tick_ms ||
        !berth_loop_timer(serve->env->loop, FAREWELL_POLL_MS, leave_when_quiet, serve))
        berth_loop_quit(serve->env->loop);
}

static void ended(void *arg)
{
    struct serve *serve = arg;

    serve->until_tick_ms = berth_tick_ms() + FAREWELL_MS;
    leave_when_quiet(serve);
}

/* Three or four descriptors per command. */
static void raise_file_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files); /* else fewer commands at once */
    }
}

enum berth_code engine_serve(const struct supervisor_env *env,
                             const struct engine_limits *limits, struct berth_error *err)
{
    struct serve serve = {.env = env};
    enum berth_code code;

    raise_file_limit();
    code = engine_new(env, limits, ended, &serve, &serve.engine, err);
    if (code)
        return berth_wrap(err, code, "command engine");
    code = server_new(serve.engine, &serve.server, err);
    if (code == BERTH_OK)
        berth_loop_run(env->loop);
    server_free(serve.server);
    engine_free(serve.engine);
    return code;
}

enum berth_code supervisor_serve(const struct supervisor_env *env, struct berth_error *err)
{
    return engine_serve(env, &engine_default_limits, err);
}

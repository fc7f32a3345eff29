#include "services/adapter-local/spawner/supervisor.h"

#include <errno.h>
#include <sys/wait.h>

enum berth_code supervisor_serve(const struct supervisor_env *env, struct berth_error *err)
{
    enum berth_code code = berth_loop_start(env->loop, "serve", err);
    int status;

    if (code)
        return code;
    while (waitpid(env->init_pid, &status, 0) < 0 && errno == EINTR)
        ;
    berth_loop_stop(env->loop);
    return BERTH_OK;
}

#include "tests/component/svc/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/time/time.h"

void process_start(struct process *process, const char *name, const char *const *argv)
{
    int ends[2];
    const char *shown[64] = {name};

    memset(process, 0, sizeof *process);
    for (size_t i = 1; i < 63 && argv[i]; i++)
        shown[i] = argv[i];
    if (pipe2(ends, O_CLOEXEC) < 0 || (process->pid = fork()) < 0) {
        perror("process");
        abort();
    }
    if (process->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that crashes leaves nothing behind */
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        execv(argv[0], (char *const *)shown);
        _exit(127);
    }
    close(ends[1]);
    process->out = ends[0];
}

/* False: the end of output, or of time. */
static bool read_more(struct process *process, int64_t until_tick)
{
    struct pollfd poller = {.fd = process->out, .events = POLLIN};
    int64_t left = until_tick - berth_tick_ms();
    ssize_t n;

    if (left <= 0 || poll(&poller, 1, (int)left) <= 0)
        return false;
    n = read(process->out, process->text + process->size,
             sizeof process->text - 1 - process->size);
    if (n <= 0)
        return false;
    process->size += (size_t)n;
    process->text[process->size] = 0;
    return true;
}

bool process_expect(struct process *process, const char *text, int deadline_ms)
{
    int64_t until_tick = berth_tick_ms() + deadline_ms;

    while (!strstr(process->text, text))
        if (!read_more(process, until_tick))
            return false;
    return true;
}

int process_wait(struct process *process, int deadline_ms)
{
    int64_t until_tick = berth_tick_ms() + deadline_ms;
    int status = -1;

    while (read_more(process, until_tick))
        ;
    while (waitpid(process->pid, &status, WNOHANG) == 0) {
        if (berth_tick_ms() > until_tick) {
            kill(process->pid, SIGKILL);
            waitpid(process->pid, &status, 0);
            status = -1;
            break;
        }
        poll(NULL, 0, 5);
    }
    close(process->out);
    process->pid = 0;
    return status;
}

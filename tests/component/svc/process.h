/* process.h - a program under test: its output, its end. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

enum { PROCESS_OUTPUT_MAX = 64 << 10 };

struct process {
    pid_t pid;
    int out; /* stdout and stderr together */
    char text[PROCESS_OUTPUT_MAX];
    size_t size;
};

/* argv[0] is the program's path, ended by NULL; name becomes its argv[0]. Aborts on failure. */
void process_start(struct process *process, const char *name, const char *const *argv);
/* Reads output until text has come. False: the process ended, or deadline_ms passed. */
bool process_expect(struct process *process, const char *text, int deadline_ms);
/* Waits for the end, reading all output. The exit status as by waitpid(); kills after
 * deadline_ms and gives -1. */
int process_wait(struct process *process, int deadline_ms);

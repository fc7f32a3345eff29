/* tree.h - the processes of one command as a cgroup of the unified hierarchy, so that none of
 * them can leave by double fork or setsid(). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { TREE_NAME_SIZE = 24 };

struct tree {
    int box_fd;                /* the sandbox's cgroup; borrowed */
    int fd;                    /* this one's directory; -1: gone */
    char name[TREE_NAME_SIZE]; /* below box_fd */
};

/* Make a cgroup below box_fd; number is unique in the sandbox. 0 or an errno. */
int tree_make(int box_fd, uint64_t number, struct tree *ret);
/* SIGKILL to every process, also while frozen, until none can fork any more. */
void tree_kill(const struct tree *tree);
/* Another signal to every process. Returns how many got it. */
int tree_signal(const struct tree *tree, int signal);
bool tree_populated(const struct tree *tree);
/* CPU time of every process that was in it; -1: not known. */
int64_t tree_cpu_us(const struct tree *tree);
void tree_close(struct tree *tree);
/* True: the directory is gone (it is empty, or was gone already). */
bool tree_remove(int box_fd, const char *name);

/* Is the sandbox paused, or being paused? */
bool box_frozen(int box_fd);
/* Is the sandbox's init on its way out? It takes every other process along first. */
bool box_init_dying(pid_t init_pid);
/* How often the kernel killed for lack of memory; 0 where memory_fd is -1. */
int64_t box_oom_kills(int memory_fd, bool is_v2);

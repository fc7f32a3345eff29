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
    int events_fd, cpu_fd;     /* of one that was used before; else -1 */
    bool killed;               /* no good for another command, see tree_recycle() */
    int64_t cpu_before_us;     /* what others used in it */
    char name[TREE_NAME_SIZE]; /* below box_fd */
};

/* Make a cgroup below box_fd; number is unique in the sandbox. 0 or an errno. */
int tree_make(int box_fd, uint64_t number, struct tree *ret);
/* SIGKILL to every process, also while frozen, until none can fork any more. */
void tree_kill(struct tree *tree);
/* Another signal to every process. Returns how many got it. */
int tree_signal(const struct tree *tree, int signal);
bool tree_populated(const struct tree *tree);
/* CPU time of every process of the command; -1: not known. */
int64_t tree_cpu_us(const struct tree *tree);
/* Nobody is in it any more, and it is to serve another command: cheaper than a new one. False:
 * it cannot. (Linux 6.18 kills whoever is born by CLONE_INTO_CGROUP into a cgroup on which
 * cgroup.kill was used before: it holds its count of kills against that of the parent's.) */
bool tree_recycle(struct tree *tree);
void tree_close(struct tree *tree);
/* True: the directory is gone (it is empty, or was gone already). */
bool tree_remove(int box_fd, const char *name);

/* What is read of the sandbox's cgroup again and again; -1: not there. */
struct box_files {
    int freeze_fd, events_fd;
    int oom_fd;
};
void box_files_open(int box_fd, int memory_fd, bool memory_is_v2, struct box_files *ret);
void box_files_close(struct box_files *files);

/* Is the sandbox paused, or being paused? */
bool box_frozen(const struct box_files *files);
/* Is the sandbox's init on its way out? It takes every other process along first. */
bool box_init_dying(pid_t init_pid);
/* How often the kernel killed for lack of memory; 0 where that is not counted. */
int64_t box_oom_kills(const struct box_files *files);

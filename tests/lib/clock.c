/* clock.c - a preloaded library: the wall clock of one process is another by the milliseconds
 * that the file BERTH_TEST_CLOCK holds (8 bytes), changed while it runs. The monotonic clock
 * stays. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t none, *offset_ms = &none;

__attribute__((constructor)) static void open_clock(void)
{
    const char *path = getenv("BERTH_TEST_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page;

    if (fd < 0)
        return;
    page = mmap(NULL, sizeof *offset_ms, PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED)
        offset_ms = page;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    int status = (int)syscall(SYS_clock_gettime, clock, ret);
    int64_t ms = *offset_ms;

    if (status == 0 && clock == CLOCK_REALTIME)
        ret->tv_sec += ms / 1000;
    return status;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
    struct timespec now;
    int status = clock_gettime(CLOCK_REALTIME, &now);

    (void)zone;
    ret->tv_sec = now.tv_sec;
    ret->tv_usec = now.tv_nsec / 1000;
    return status;
}

time_t time(time_t *ret)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}

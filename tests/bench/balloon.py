"""balloon.py - memory that is really there, for a figure that takes a lot of it.

A virtual machine may hand free memory back to its host within seconds and get it again, cleared, when it
is touched: page by page, which makes 1 GiB of page cache cost anything from 0.3 to 5 seconds, depending on
how long ago that memory was freed. Of ways that are measured in turns the first one would pay for all."""
import mmap
import threading

STEP, AHEAD, PERIOD_S = 4 << 20, 32 << 20, 0.003


class Balloon:
    """Takes size bytes of memory before, and gives as much back meanwhile as others take, moments before
    they need it. Memory is taken and freed in huge pages where there are any: the kernel hands those out
    first that were freed last."""

    def __init__(self, size):
        size = min(size, memory("MemAvailable") // 4)
        self.size = size - size % STEP
        self.over = threading.Event()

    def __enter__(self):
        self.held = mmap.mmap(-1, max(self.size, STEP), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        try:
            self.held.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel without them
        for at in range(0, self.size, mmap.PAGESIZE):
            self.held[at] = 1
        self.thread = threading.Thread(target=self.give_back, args=(memory("MemFree"),))
        self.thread.start()
        return self

    def give_back(self, free):
        given = 0
        while given < self.size and not self.over.wait(PERIOD_S):
            missing = free + AHEAD - memory("MemFree")
            if missing > 0:
                n = min(missing + STEP - missing % STEP, self.size - given)
                self.held.madvise(mmap.MADV_DONTNEED, given, n)
                given += n

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.held.close()


def memory(name):
    """Bytes, of a line of /proc/meminfo."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name + ":"))

"""leftovers.py - what a suite has on this machine outside its state folder: processes, mounts,
cgroups, network links and the packet filter's table. For the checks after a delete or a stop, and to
clear up. The store's tag (first digits of its uuid) is in every name."""
import json
import os
import signal
import subprocess
import time


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def tag(state):
    """First digits of the local store's uuid; "" before its first start."""
    try:
        with open(os.path.join(state, "local", "store.json")) as file:
            return json.load(file)["uuid"].replace("-", "")[:8]
    except (OSError, ValueError, KeyError):
        return ""


def processes(state):
    """{pid: words} of what was started for this state folder or lives in one of its sandboxes."""
    found = {}
    name = "/berth-" + tag(state) + "/" if tag(state) else ""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        words = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
        ours = f"{state}/" in words + " " and "/berth-" in words.split(" ")[0] + " " or \
            (words.startswith("redis-server") and f"{state}/run/redis.sock" in words)
        if not ours and name:
            ours = name in _read(f"/proc/{pid}/cgroup")
        if ours and words:
            found[int(pid)] = words
    return found


def groups(state):
    """The store's own folder in each cgroup hierarchy."""
    name = "berth-" + tag(state)
    return [os.path.join(top, name) for top, dirs, _ in os.walk("/sys/fs/cgroup") if name in dirs] if tag(state) else []


def cgroups(state):
    """Folders of sandboxes."""
    return [os.path.join(group, name) for group in groups(state) for name in os.listdir(group)
            if os.path.isdir(os.path.join(group, name))]


def mounts(state):
    return [line.split()[4] for line in _read("/proc/self/mountinfo").splitlines()
            if line.split()[4].startswith(state + "/")]


def links(state):
    """Names of network links of sandboxes."""
    done = subprocess.run(["ip", "-j", "link"], capture_output=True, text=True)
    names = [link["ifname"] for link in json.loads(done.stdout or "[]")]
    return [name for name in names if tag(state) and name.startswith(f"b{tag(state)[:7]}-")]


def tables(state):
    done = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if tag(state) and line.endswith("berth_" + tag(state))]


def sandbox_folders(state):
    folder = os.path.join(state, "local", "sandboxes")
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def find(state):
    """What is left of processes and sandboxes, in words; [] when nothing is."""
    return ([f"process {pid}: {words[:120]}" for pid, words in processes(state).items()] +
            [f"mount {path}" for path in mounts(state)] + [f"cgroup {path}" for path in cgroups(state)] +
            [f"link {name}" for name in links(state)])


def furniture(state):
    """What stays while the store is in use, sandboxes or not; removed by a stop."""
    return [f"cgroup {path}" for path in groups(state)] + tables(state)


def remove(state, patience=10):
    """Ends what find() finds. For a suite that is stopped."""
    end = time.monotonic() + patience
    while (left := processes(state)) and time.monotonic() < end:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
    for path in mounts(state):
        subprocess.run(["umount", "-l", path], stderr=subprocess.DEVNULL)
    for name in links(state):
        subprocess.run(["ip", "link", "del", name], stderr=subprocess.DEVNULL)
    for table in tables(state):
        subprocess.run(["nft", "delete", *table.split()], stderr=subprocess.DEVNULL)
    for group in groups(state):
        for top, _, _ in os.walk(group, topdown=False):
            _rmdir(top, end)


def _rmdir(path, end):
    """A group that was emptied a moment ago can still be busy."""
    while True:
        try:
            return os.rmdir(path)
        except FileNotFoundError:
            return None
        except OSError:
            if time.monotonic() > end:
                return None
        time.sleep(0.01)

"""leftovers.py - what a suite has on this machine outside its state folder: processes, mounts,
cgroups, network links. For the checks after a delete or a stop, and to clear up after a crash."""
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


def store_id(state):
    """The uuid of the local store, or "" before its first start."""
    try:
        with open(os.path.join(state, "local", "store.json")) as file:
            return json.load(file).get("uuid", "")
    except (OSError, ValueError):
        return ""


def processes(state):
    """{pid: words} of what was started for this state folder or lives in one of its sandboxes."""
    found = {}
    groups = cgroups(state)
    names = [os.sep + os.path.basename(group) for group in groups]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        words = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
        ours = f"{state}/" in words + " " and "/berth-" in words.split(" ")[0] + " " or \
            (words.startswith("redis-server") and f"{state}/run/redis.sock" in words)
        if not ours and names:
            inside = _read(f"/proc/{pid}/cgroup")
            ours = any(name + "/" in inside + "/" or name + "\n" in inside for name in names)
        if ours and words:
            found[int(pid)] = words
    return found


def cgroups(state):
    """Folders under the cgroup mounts that carry the store's mark, outermost only."""
    mark = store_id(state).replace("-", "")[:8]
    if not mark:
        return []
    found = []
    for top, dirs, _ in os.walk("/sys/fs/cgroup"):
        for name in list(dirs):
            if mark in name.replace("-", ""):
                found.append(os.path.join(top, name))
                dirs.remove(name)
    return found


def mounts(state):
    return [line.split()[4] for line in _read("/proc/self/mountinfo").splitlines()
            if line.split()[4].startswith(state + "/")]


def links(state):
    """Names of network links that carry the store's mark."""
    mark = store_id(state).replace("-", "")[:4]
    if not mark:
        return []
    done = subprocess.run(["ip", "-j", "link"], capture_output=True, text=True)
    names = [link["ifname"] for link in json.loads(done.stdout or "[]")]
    return [name for name in names if mark in name]


def sandbox_folders(state):
    folder = os.path.join(state, "local", "sandboxes")
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def find(state):
    """Everything that is left, in words; [] when nothing is."""
    return ([f"process {pid}: {words[:120]}" for pid, words in processes(state).items()] +
            [f"mount {path}" for path in mounts(state)] + [f"cgroup {path}" for path in cgroups(state)] +
            [f"link {name}" for name in links(state)])


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
    for group in cgroups(state):
        for top, _, _ in os.walk(group, topdown=False):
            try:
                os.rmdir(top)
            except OSError:
                pass
    for name in links(state):
        subprocess.run(["ip", "link", "del", name], stderr=subprocess.DEVNULL)

#!/usr/bin/python3
"""watch.py STORE LOG - an observer of the local backend's store that knows nothing of Berth's records: the
kernel tells of each sandbox folder that comes and goes, and the folder's record whose session it is.

A line each: "<monotonic ns> made|gone <sandbox> <session> -", and "<ns> two <sandbox> <session> <other sandbox>"
where the processes of two sandboxes of one session were alive at one moment."""
import ctypes
import json
import os
import select
import struct
import sys
import time

CREATE, DELETE, MOVED_FROM, MOVED_TO, OVERFLOW = 0x100, 0x200, 0x40, 0x80, 0x4000


def began(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


class Observer:
    def __init__(self, store, log):
        self.folder, self.log = os.path.join(store, "sandboxes"), open(log, "a", buffering=1)  # noqa: SIM115
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.fd < 0 or libc.inotify_add_watch(self.fd, self.folder.encode(), CREATE | DELETE | MOVED_FROM | MOVED_TO) < 0:
            raise OSError(ctypes.get_errno(), self.folder)
        self.there = {}  # id: session, None while it is not known
        self.told = set()

    def say(self, what, box, session, other="-"):
        self.log.write(f"{time.monotonic_ns()} {what} {box} {session or '-'} {other}\n")

    def record(self, box):
        try:
            with open(os.path.join(self.folder, box, "meta.json")) as file:
                return json.load(file)
        except (OSError, ValueError):
            return {}

    def alive(self, box):
        record = self.record(box)
        return any(record.get(who + "_pid") and began(record[who + "_pid"]) == record.get(who + "_start")
                   for who in ("supervisor", "init"))

    def events(self):
        try:
            data = os.read(self.fd, 1 << 20)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            _, mask, _, size = struct.unpack_from("iIII", data, at)
            name = data[at + 16:at + 16 + size].rstrip(b"\0").decode()
            at += 16 + size
            if mask & OVERFLOW:
                self.log.write(f"{time.monotonic_ns()} missed - - -\n")
            elif name and not name.startswith("."):
                if mask & (CREATE | MOVED_TO):
                    self.there.setdefault(name, None)
                elif name in self.there:
                    self.say("gone", name, self.there.pop(name))

    def learn(self):
        for box in [box for box, session in self.there.items() if session is None]:
            session = self.record(box).get("metadata", {}).get("berth.session")
            if session:
                self.there[box] = session
                self.say("made", box, session)

    def pairs(self):
        seen = {}
        for box, session in self.there.items():
            if session:
                seen.setdefault(session, []).append(box)
        return {session: boxes for session, boxes in seen.items() if len(boxes) > 1}

    def run(self):
        print("watching", flush=True)
        while True:
            pairs = self.pairs()
            for session, boxes in pairs.items():
                living = [box for box in boxes if self.alive(box)]
                if len(living) > 1 and (session, *living) not in self.told:
                    self.told.add((session, *living))
                    self.say("two", living[0], session, living[1])
            waits = pairs or None in self.there.values()
            select.select([self.fd], [], [], 0.001 if waits else 0.5)
            self.events()
            self.learn()


if __name__ == "__main__":
    Observer(*sys.argv[1:]).run()

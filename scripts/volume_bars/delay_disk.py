"""A file that stands for a disk with a fixed service time.

    delay_disk.py BACKING MOUNT

A file system in user space with one file, mounted on the file MOUNT. Content lies in the file BACKING. Each read, write, flush and
discard is answered a fixed time after it came; requests overlap without bound, so this is a service time and no rate. The program
prints a line once the file is there. Afterwards each line of standard input has the milliseconds of requests from now on, at first
none, and is answered by a line of JSON about the requests since the one before: count, seconds that all took together, seconds of
the longest, and the most at one time. It ends when the file is unmounted, or standard input ends.
"""

import collections
import ctypes
import errno
import json
import os
import select
import stat
import struct
import sys
import time

MESSAGE = 1 << 20
# Requests that the kernel has under way at most; above any load of a bar.
BACKGROUND = 4096
FORGET, GETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH = 2, 3, 14, 15, 16, 17, 18, 20, 25
INIT, INTERRUPT, DESTROY, BATCH_FORGET, FALLOCATE = 26, 36, 38, 42, 43
UNANSWERED = (FORGET, INTERRUPT, BATCH_FORGET)
# ASYNC_READ, BIG_WRITES, ASYNC_DIO, MAX_PAGES.
WANTED = 1 << 0 | 1 << 5 | 1 << 15 | 1 << 22
# DIRECT_IO, NOFLUSH, PARALLEL_DIRECT_WRITES: no page cache, and writes that overlap.
OPENED = 1 << 0 | 1 << 5 | 1 << 6
libc = ctypes.CDLL(None, use_errno=True)


class Disk:
    """The backing file, and the requests that wait for their time."""

    def __init__(self, backing):
        self.file = os.open(backing, os.O_RDWR)
        self.delay_s = 0.0
        self.waiting = collections.deque()
        self.reset()

    def reset(self):
        """Begins to count again."""
        self.count, self.took_s, self.longest_s, self.most = 0, 0.0, 0.0, 0

    def figures(self):
        """Returns what was counted as JSON."""
        return json.dumps({"count": self.count, "took_s": self.took_s, "longest_s": self.longest_s, "most": self.most})

    def attributes(self):
        """Returns the attributes of the file, as the kernel takes them."""
        found = os.fstat(self.file)
        times = [int(found.st_mtime)] * 3 + [0] * 3
        return struct.pack("=QII6Q3I7I", 3600, 0, 0, 1, found.st_size, found.st_blocks, *times, stat.S_IFREG | 0o600, 1, 0, 0, 0, 4096, 0)

    def answer(self, opcode, body):
        """Carries out a request; returns whether it is one of a disk, and the body of the answer."""
        if opcode == READ:
            _, at, size = struct.unpack_from("=QQI", body)
            return True, os.pread(self.file, size, at)
        if opcode == WRITE:
            _, at, size = struct.unpack_from("=QQI", body)
            return True, struct.pack("=II", os.pwrite(self.file, body[40:40 + size], at), 0)
        if opcode == FSYNC:
            return True, b""
        if opcode == FALLOCATE:
            _, at, size, mode = struct.unpack_from("=QQQI", body)
            if libc.fallocate(self.file, mode, ctypes.c_longlong(at), ctypes.c_longlong(size)) != 0:
                raise OSError(ctypes.get_errno(), "fallocate")
            return True, b""
        if opcode == GETATTR:
            return False, self.attributes()
        if opcode == OPEN:
            return False, struct.pack("=QII", 0, OPENED, 0)
        if opcode == INIT:
            major, minor, ahead, flags = struct.unpack_from("=IIII", body)
            return False, struct.pack("=4I2H2I2H8I", major, min(minor, 36), ahead, flags & WANTED, BACKGROUND, BACKGROUND, MESSAGE, 1,
                                      MESSAGE // 4096, 0, *[0] * 8)
        if opcode == STATFS:
            return False, struct.pack("=5Q10I", *[0] * 5, 4096, 255, 4096, *[0] * 7)
        if opcode in (RELEASE, FLUSH, DESTROY):
            return False, b""
        raise OSError(errno.ENOSYS, "not a request of a disk")

    def take(self, device, message):
        """Takes a request, and answers it at once or when its time has come."""
        begun = time.monotonic()
        _, opcode, unique = struct.unpack_from("=IIQ", message)
        if opcode in UNANSWERED:
            return
        try:
            is_disk, body = self.answer(opcode, message[40:])
            text = struct.pack("=IiQ", 16 + len(body), 0, unique) + body
        except OSError as error:
            is_disk, text = False, struct.pack("=IiQ", 16, -error.errno, unique)
        if is_disk:
            self.waiting.append((begun, text))
            self.most = max(self.most, len(self.waiting))
        else:
            os.write(device, text)

    def answer_due(self, device):
        """Answers what is due; returns the seconds until the next is."""
        while self.waiting:
            begun, text = self.waiting[0]
            left = begun + self.delay_s - time.monotonic()
            if left > 0:
                return left
            self.waiting.popleft()
            try:
                os.write(device, text)
            except FileNotFoundError:
                # The request was interrupted.
                continue
            took = time.monotonic() - begun
            self.count += 1
            self.took_s += took
            self.longest_s = max(self.longest_s, took)
        return None


def mount(place):
    """Mounts on a file; returns the device of the kernel's requests."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
    options = f"fd={device},rootmode={stat.S_IFREG | 0o600:o},user_id=0,group_id=0,max_read={MESSAGE}"
    if libc.mount(b"dolmen-delay", place.encode(), b"fuse", 0, options.encode()) != 0:
        sys.exit(f"delay_disk: cannot mount on {place}: {os.strerror(ctypes.get_errno())}")
    return device


def go_first():
    """Lets the process run before all others: a disk needs no processor to be on time."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError as error:
        print(f"delay_disk: no real-time priority ({error}); answers may be late on busy processors", file=sys.stderr)


def main():
    """Serves the file."""
    backing, place = sys.argv[1:]
    disk = Disk(backing)
    go_first()
    device = mount(place)
    print("mounted", flush=True)
    buffer = bytearray(MESSAGE + 4096)
    message = memoryview(buffer)
    while True:
        ready, _, _ = select.select([device, 0], [], [], disk.answer_due(device))
        if 0 in ready:
            text = os.read(0, 4096)
            if not text:
                return
            disk.delay_s = float(text) / 1000
            print(disk.figures(), flush=True)
            disk.reset()
        if device in ready:
            try:
                length = os.readv(device, [buffer])
            except (BlockingIOError, FileNotFoundError, InterruptedError):
                continue
            except OSError as error:
                if error.errno != errno.ENODEV:
                    raise
                return
            disk.take(device, message[:length])


main()

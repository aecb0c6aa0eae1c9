"""Writers of volume_incidents.sh: files with known bytes, and copies of files while others change.

    fill FOLDER SUMS MIB      files of so many MiB, each synced, until the file system refuses one; SUMS has those that were synced
    more FOLDER SUMS MIB      one file more
    verify FOLDER SUMS        all files of SUMS have their bytes
    thin FOLDER SUMS          deletes every second file of SUMS
    copies FOLDER COUNT       so many files of 16 KiB, of which one in twenty is distinct
    delete FOLDER             deletes all below
    change FOLDER SECONDS     four processes write, punch, truncate, clone and copy files of a model for so long
"""

import ctypes
import errno
import fcntl
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import sys
import time

MIB = 1 << 20
FICLONE = 0x40049409
PUNCH = 3  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
# A refused write of a full pool may take a moment; one that never ends is a failure.
REFUSED_S = 120
LIBC = ctypes.CDLL(None, use_errno=True)


def bytes_of(number, mib):
    return random.Random(number).randbytes(mib * MIB)


def read_sums(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write_sums(path, sums):
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(sums, file)
    os.replace(path + ".new", path)


def write_synced(path, content):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view):]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def fill(folder, sums_path, mib):
    sums = read_sums(sums_path) if os.path.exists(sums_path) and os.listdir(folder) else {}
    number = len(sums) + int(time.time()) % 1000 * 1_000_000
    while True:
        content = bytes_of(number, mib)
        begun = time.monotonic()
        try:
            write_synced(f"{folder}/f{number}", content)
        except OSError as error:
            took = time.monotonic() - begun
            print(f"{len(sums)} files of {mib} MiB, then after {took:.1f} s: {error}")
            if error.errno not in (errno.ENOSPC, errno.EIO) or took > REFUSED_S or not sums:
                raise
            break
        sums[f"f{number}"] = hashlib.sha256(content).hexdigest()
        write_sums(sums_path, sums)
        number += 1


def more(folder, sums_path, mib):
    sums = read_sums(sums_path)
    content = bytes_of(-1, mib)
    write_synced(f"{folder}/more", content)
    sums["more"] = hashlib.sha256(content).hexdigest()
    write_sums(sums_path, sums)


def verify(folder, sums_path):
    os.system("sync -f " + folder)
    sums = read_sums(sums_path)
    for name, expected in sums.items():
        with open(f"{folder}/{name}", "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            found = hashlib.sha256(file.read()).hexdigest()
        if found != expected:
            sys.exit(f"{name} has other bytes than those that were synced")


def thin(folder, sums_path):
    sums = read_sums(sums_path)
    for name in list(sums)[::2]:
        os.unlink(f"{folder}/{name}")
        del sums[name]
    for name in os.listdir(folder):
        if name not in sums:
            os.unlink(f"{folder}/{name}")
    write_sums(sums_path, sums)


def copies(folder, count):
    for number in range(count):
        below = f"{folder}/{number % 100}"
        os.makedirs(below, exist_ok=True)
        with open(f"{below}/{number}", "wb") as file:
            file.write(random.Random(number % (count // 20)).randbytes(16384))
    os.sync()


def delete(folder):
    for name in os.listdir(folder):
        shutil.rmtree(f"{folder}/{name}")
    os.sync()


class Model:
    """The files of one process, and what each has to hold."""

    SIZE = 4 * MIB

    def __init__(self, folder, seed):
        self.folder, self.draw, self.files, self.done = folder, random.Random(seed), {}, {}

    def path(self, name):
        return f"{self.folder}/{name}"

    def pick(self):
        return self.draw.choice(sorted(self.files))

    def range_in(self, content):
        start = self.draw.randrange(len(content) + 1)
        return start, self.draw.randrange(1, 300_000)

    def step(self):
        names = ["create"] if len(self.files) < 4 else ["write"] * 4 + ["punch", "truncate", "clone", "copy", "create"]
        action = self.draw.choice(names)
        getattr(self, action)()
        self.done[action] = self.done.get(action, 0) + 1

    def create(self):
        name = f"f{self.draw.randrange(12)}"
        content = self.draw.randbytes(self.draw.randrange(self.SIZE))
        with open(self.path(name), "wb") as file:
            file.write(content)
        self.files[name] = bytearray(content)

    def write(self):
        name = self.pick()
        content = self.files[name]
        start, length = self.range_in(content)
        piece = self.draw.randbytes(length)
        with open(self.path(name), "r+b") as file:
            file.seek(start)
            file.write(piece)
            if self.draw.random() < 0.2:
                file.flush()
                os.fsync(file.fileno())
        content[start:start + length] = piece

    def punch(self):
        name = self.pick()
        content = self.files[name]
        start, length = self.range_in(content)
        with open(self.path(name), "r+b") as file:
            if LIBC.fallocate(file.fileno(), PUNCH, ctypes.c_long(start), ctypes.c_long(length)):
                raise OSError(ctypes.get_errno(), "fallocate")
        end = min(start + length, len(content))
        content[start:end] = bytes(end - start)

    def truncate(self):
        name = self.pick()
        content = self.files[name]
        length = self.draw.randrange(len(content) + 100_000)
        os.truncate(self.path(name), length)
        self.files[name] = content[:length] + bytes(max(0, length - len(content)))

    def pair(self, letter):
        """A file, and the name of another one."""
        target = f"{letter}{self.draw.randrange(12)}"
        return self.draw.choice(sorted(self.files.keys() - {target})), target

    def clone(self):
        source, target = self.pair("c")
        with open(self.path(source), "rb") as old, open(self.path(target), "wb") as new:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
        self.files[target] = bytearray(self.files[source])

    def copy(self):
        source, target = self.pair("o")
        left = len(self.files[source])
        with open(self.path(source), "rb") as old, open(self.path(target), "wb") as new:
            while left:
                moved = os.copy_file_range(old.fileno(), new.fileno(), left)
                if not moved:
                    break
                left -= moved
        self.files[target] = bytearray(self.files[source])

    def verify(self):
        for name, content in self.files.items():
            with open(self.path(name), "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                if file.read() != content:
                    sys.exit(f"{self.path(name)} differs from the model after {self.done}")


def change_one(folder, seed, seconds):
    os.makedirs(folder, exist_ok=True)
    model, end = Model(folder, seed), time.monotonic() + seconds
    while time.monotonic() < end:
        model.step()
    model.verify()
    print(f"seed {seed}: {model.done}", flush=True)


def change(folder, seconds):
    seed = int(os.environ.get("DOLMEN_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}", flush=True)
    work = [multiprocessing.Process(target=change_one, args=(f"{folder}/p{one}", seed + one, seconds)) for one in range(4)]
    for one in work:
        one.start()
    for one in work:
        one.join()
    if any(one.exitcode for one in work):
        sys.exit(1)


ORDERS = {
    "fill": (fill, str, str, int), "more": (more, str, str, int), "verify": (verify, str, str), "thin": (thin, str, str),
    "copies": (copies, str, int), "delete": (delete, str), "change": (change, str, float),
}

if __name__ == "__main__":
    order, *kinds = ORDERS[sys.argv[1]]
    order(*(kind(word) for kind, word in zip(kinds, sys.argv[2:], strict=True)))

"""Pools, volumes, commands, checksums and figures for the bars of volumes.

A bar is a program beside this file. It ends with 0 unless a command failed or bytes were wrong.
"""

import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import time

RUN = os.environ["BARS_RUN"]
MIB = 1 << 20
GIB = 1 << 30
MNT = os.path.join(RUN, "mnt", "v")
OTHER = os.path.join(RUN, "mnt", "w")
DISKS = os.path.join(RUN, "disks")
SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CORPUS = os.environ.get("DOLMEN_CORPUS", "/var/tmp/corpus")
IMAGES = os.environ.get("DOLMEN_IMAGES", "/var/tmp/images")
# Room that the machine keeps, whatever a bar asks for.
ROOM_KEPT = int(os.environ.get("BARS_ROOM_KEPT_GIB", "8")) * GIB
FIEMAP = 0xC020660B
EXTENT_LAST, EXTENT_SHARED = 0x1, 0x2000


def setting(name):
    """Returns a number of the command line."""
    return int(os.environ[f"BARS_{name.upper()}"])


def say(text):
    """Prints a line for people."""
    print(f"   {text}", flush=True)


def bar(name, measured, wanted, met):
    """Prints a figure; `met` is None where no bar is set."""
    print(f"{name} | {measured} | {wanted} | {'-' if met is None else 'yes' if met else 'NO'}", flush=True)


def skip(text):
    """Names what this machine lacks, and ends the bar."""
    print(f"skipped: {text}", flush=True)
    sys.exit(0)


def fail(text):
    """Ends the bar: a command failed, or bytes are wrong."""
    print(f"FAILED: {text}", file=sys.stderr, flush=True)
    sys.exit(1)


def need(*commands):
    """Skips the bar where a program is missing."""
    missing = [command for command in commands if not shutil.which(command)]
    if missing:
        skip(f"missing: {' '.join(missing)}")


def need_store(folder, how):
    """Skips the bar where a corpus is missing."""
    if not os.path.exists(folder):
        skip(f"{folder} is not there; `{how}` makes it")


def need_room(count_bytes):
    """Skips the bar where the machine has too little room for it."""
    free = shutil.disk_usage(RUN).free
    if free < count_bytes + ROOM_KEPT:
        skip(f"{free // MIB} MiB free, {(count_bytes + ROOM_KEPT) // MIB} are needed")


def percent(part, whole):
    """Returns a part in per cent."""
    return 100 * part / whole if whole else 0.0


def mib(count_bytes):
    """Returns bytes in words."""
    return f"{count_bytes / MIB:.0f} MiB"


def run(*command, **options):
    """Runs a command, and returns its output."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **options)
    if done.returncode != 0:
        text = (done.stdout + done.stderr).decode(errors="replace")[-2000:]
        fail(f"{' '.join(command)} ended with {done.returncode}: {text}")
    return done.stdout


def dolmen(*words, limit_s=86400):
    """Runs a command of the command line, and returns its JSON; the last document where there are several."""
    text = run(os.environ["BARS_BIN"], "-o", "json", "--timeout", str(limit_s), *words).decode()
    documents = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return documents[-1] if documents else {}


def note(kind, what):
    """Adds what is made now to the record of the run, which undoes it."""
    with open(os.environ["BARS_RECORD"], "a", encoding="utf-8") as record:
        record.write(f"{kind} {what}\n")


def loop_over(file, *options):
    """Makes a loop device over a file; returns its path."""
    return run("losetup", "--direct-io=on", *options, "--show", "-f", file).decode().strip()


class Pool:
    """A pool of two disks with volumes; its disks are files, which `end` deletes."""

    def __init__(self, disk_gib=64, over_loop=False, make_loop=loop_over):
        """Makes it; `make_loop` makes the loop device of a file."""
        self.files = [os.path.join(DISKS, name) for name in ("a", "b")]
        self.loops = []
        for file in self.files:
            with open(file, "wb") as opened:
                opened.truncate(disk_gib * GIB)
            if over_loop:
                self.loops.append(make_loop(file))
        dolmen("pool", "create", "tank", *(self.loops or self.files))

    def volume(self, name="v", purpose="documents", size="24G", file_system="xfs", mount=MNT, resiliency="simple", **options):
        """Makes a thin volume, with one copy unless its resiliency is named, which runs may take all files of; returns its name."""
        os.makedirs(os.path.dirname(mount), exist_ok=True)
        more = [word for option, value in options.items() for word in (f"--{option}", value)]
        dolmen("volume", "create", f"tank/{name}", "--for", purpose, "--fs", file_system, "--size", size, "-r", resiliency,
               "--mount", mount, *more)
        return f"tank/{name}"

    def written(self):
        """Returns bytes that the disks take on the machine."""
        return sum(os.stat(file).st_blocks * 512 for file in self.files)

    def end(self):
        """Exports the pool, and deletes its disks."""
        dolmen("pool", "export", "tank")
        for loop in self.loops:
            run("losetup", "-d", loop)
        for file in self.files:
            os.unlink(file)


def claimed(volume):
    """Returns the claimed bytes of the space of a volume."""
    return dolmen("space", "show", volume)["space"]["claimed_bytes"]


def used(path=MNT):
    """Returns the bytes that a file system counts as used."""
    run("sync", "-f", path)
    found = os.statvfs(path)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def drop_caches():
    """Lets the machine forget pages, folders and inodes."""
    # No `sync` of all file systems: one of them may stand on a device that does not answer.
    for place in (MNT, OTHER):
        if os.path.ismount(place):
            run("sync", "-f", place)
    with open("/proc/sys/vm/drop_caches", "w", encoding="utf-8") as file:
        file.write("3\n")


def files_below(path=MNT):
    """Returns the paths of the files of a folder, in a fixed order."""
    found = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        found += [os.path.join(folder, name) for name in sorted(names)]
    return found


def checksum(path):
    """Returns the checksum of a file."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while piece := file.read(4 * MIB):
            digest.update(piece)
    return digest.digest()


def checksums(paths):
    """Returns the checksum of each file."""
    return {path: checksum(path) for path in paths}


def are_equal(sums, what):
    """Ends the bar unless each file has its checksum, read from the disks."""
    drop_caches()
    wrong = [path for path, kept in sums.items() if not os.path.exists(path) or checksum(path) != kept]
    if wrong:
        fail(f"{what}: {len(wrong)} of {len(sums)} files have other bytes, such as {wrong[:3]}")
    say(f"{what}: {len(sums)} files have their bytes")


def extents(path):
    """Returns physical address, length and flags of each extent of a file."""
    count, at, found = 256, 0, []
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while True:
            buffer = ctypes.create_string_buffer(struct.pack("=QQIIII", at, (1 << 64) - 1 - at, 1, 0, count, 0) + bytes(56 * count))
            fcntl.ioctl(descriptor, FIEMAP, buffer, True)
            mapped = struct.unpack_from("=I", buffer, 20)[0]
            for number in range(mapped):
                logical, physical, length, _, _, flags = struct.unpack_from("=QQQQQI", buffer, 32 + 56 * number)
                found.append((physical, length, flags))
                at = logical + length
            if mapped < count or found[-1][2] & EXTENT_LAST:
                return found
    finally:
        os.close(descriptor)


def shared_bytes(paths):
    """Returns the bytes of files that have more than one owner."""
    return sum(length for path in paths for _, length, flags in extents(path) if flags & EXTENT_SHARED)


def dedup_policy(volume, **options):
    """Lets runs take every file of a volume."""
    more = [word for option, value in options.items() for word in (f"--{option.replace('_', '-')}", str(value))]
    dolmen("dedup", "enable", volume, "--min-age", "0", "--schedule", "never", *more)


def job_done(answer, what):
    """Ends the bar unless the job of an answer is done."""
    job = answer.get("job", {})
    if job.get("state") != "done":
        fail(f"{what}: {json.dumps(answer)}")
    return job


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self):
        self.begun = time.monotonic()

    def __str__(self):
        return f"{self.seconds():.1f} s"

    def seconds(self):
        """Returns the seconds."""
        return time.monotonic() - self.begun


def disk_reads(loops):
    """Returns requests and bytes that loop devices have read."""
    requests, count_bytes = 0, 0
    for loop in loops:
        with open(f"/sys/block/{os.path.basename(loop)}/stat", encoding="utf-8") as file:
            fields = file.read().split()
        requests += int(fields[0])
        count_bytes += int(fields[2]) * 512
    return requests, count_bytes

"""Files of bad_block.sh, and their blocks on the disks.

    make FOLDER              three files of 8 MiB whose blocks are on no disk twice but as copies, synced
    harm NAME DISK...        a block in the midst of that file gets another byte on each of the disks
    read FILE error|whole    reading it without the cache fails, or gives its bytes
"""

import hashlib
import os
import sys

BLOCK = 4096
BLOCKS = 2048
NAMES = ("read first", "scrubbed first", "whole")


def block(name, number):
    """Bytes that no compression and no other block of the test has."""
    seed = f"{name} {number}".encode()
    return b"".join(hashlib.sha512(seed + bytes([part])).digest() for part in range(BLOCK // 64))


def make(folder):
    for name in NAMES:
        with open(os.path.join(folder, name), "wb") as file:
            for number in range(BLOCKS):
                file.write(block(name, number))
            file.flush()
            os.fsync(file.fileno())


def places(disk, wanted):
    """Where the bytes are on a disk, holes left out."""
    found = []
    descriptor = os.open(disk, os.O_RDONLY)
    end = os.fstat(descriptor).st_size
    at = 0
    while at < end:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:
            break
        hole = os.lseek(descriptor, at, os.SEEK_HOLE)
        while at < hole:
            chunk = os.pread(descriptor, min(hole - at, 8 << 20), at)
            place = chunk.find(wanted)
            while place >= 0:
                found.append(at + place)
                place = chunk.find(wanted, place + 1)
            # Bytes that lie over the end of a chunk are in the next one.
            at = at + len(chunk) - BLOCK if at + len(chunk) < hole else hole
    os.close(descriptor)
    return found


def harm(name, *disks):
    wanted = block(name, BLOCKS // 2)
    for disk in disks:
        found = places(disk, wanted)
        if not found:
            sys.exit(f"{disk} has no copy of the block")
        descriptor = os.open(disk, os.O_WRONLY)
        for place in found:
            os.pwrite(descriptor, bytes([wanted[100] ^ 255]), place + 100)
        os.fsync(descriptor)
        os.close(descriptor)
        print(f"   | {disk}: at {', '.join(str(place) for place in found)}")


def read(path, wanted):
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    name = os.path.basename(path)
    try:
        for number in range(BLOCKS):
            if os.pread(descriptor, BLOCK, number * BLOCK) != block(name, number):
                sys.exit(f"block {number} of {path} has other bytes")
    except OSError as error:
        if wanted == "error":
            print(f"   | {error}")
            return
        raise
    if wanted == "error":
        sys.exit(f"{path} was read whole")


if __name__ == "__main__":
    {"make": make, "harm": harm, "read": read}[sys.argv[1]](*sys.argv[2:])

#!/usr/bin/env python3
"""installed_writer.py FILE COUNT: writes blocks to FILE, flushes, and reads them back from the device, until SIGTERM.

An I/O error, or a block that reads back differently, ends it with a failure. COUNT has the number of blocks and the longest time that
one took.
"""

import mmap
import os
import signal
import sys
import time

BLOCK = 64 << 10
BLOCKS = 64


def main(path, count_path):
    """Writes until it is told to end."""
    ends = []
    signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
    written, read = mmap.mmap(-1, BLOCK), mmap.mmap(-1, BLOCK)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    count, longest = 0, 0.0
    while not ends:
        begun = time.monotonic()
        at = count % BLOCKS * BLOCK
        written[:] = count.to_bytes(8, "little") * (BLOCK // 8)
        if os.pwrite(file, written, at) != BLOCK:
            sys.exit(f"block {count}: a short write")
        os.fsync(file)
        if os.preadv(file, [read], at) != BLOCK or read[:] != written[:]:
            sys.exit(f"block {count} reads back differently")
        count += 1
        longest = max(longest, time.monotonic() - begun)
        with open(f"{count_path}.new", "w", encoding="utf-8") as out:
            out.write(f"{count} blocks, the longest took {longest:.1f} s\n")
        os.replace(f"{count_path}.new", count_path)


main(*sys.argv[1:])

"""A file system with an image, made by hand on a space, adopted as a volume; and 20 copies of the image by `dolmen copy`."""

import os
import random

import rig

COPIES = 20
COPIED_S = 2.0
TOOK_PERCENT = 1.0


def write_image(path, size):
    """Writes an image of bytes that nothing compresses."""
    draw = random.Random(1)
    with open(path, "wb") as file:
        for _ in range(size // (4 * rig.MIB)):
            file.write(draw.randbytes(4 * rig.MIB))
        file.flush()
        os.fsync(file.fileno())


def main():
    """Measures them."""
    size = min(rig.setting("mib"), 10240) // 4 * 4 * rig.MIB
    rig.need_room(size + rig.GIB)
    pool = rig.Pool()
    rig.dolmen("space", "create", "tank/old", "--size", "24G", "-r", "simple")
    rig.dolmen("space", "attach", "tank/old", "--transport", "loop")
    device = os.path.join(rig.RUN, "links", "tank", "old")
    rig.run("mkfs.xfs", "-q", "-K", device)
    os.makedirs(rig.MNT, exist_ok=True)
    rig.run("mount", device, rig.MNT)
    image = os.path.join(rig.MNT, "image")
    write_image(image, size)
    kept = rig.checksum(image)
    rig.run("umount", rig.MNT)
    watch = rig.Stopwatch()
    rig.dolmen("volume", "adopt", "tank/old", "--mount", rig.MNT)
    rig.bar("adopted and mounted", str(watch), "-", None)
    before, longest = rig.claimed("tank/old"), 0.0
    used = rig.used()
    copies = [os.path.join(rig.MNT, f"copy-{number:02}") for number in range(COPIES)]
    for copy in copies:
        watch = rig.Stopwatch()
        rig.dolmen("copy", image, copy)
        longest = max(longest, watch.seconds())
    grown = rig.claimed("tank/old") - before
    rig.bar(f"{COPIES} copies of {rig.mib(size)}: longest", f"{longest:.2f} s", f"<= {COPIED_S:.0f} s", longest <= COPIED_S)
    rig.bar(f"{COPIES} copies: room taken in the volume, in the pool", f"{rig.mib(rig.used() - used)}, {rig.mib(grown)}",
            f"<= {TOOK_PERCENT:.0f} % of the image", grown <= TOOK_PERCENT / 100 * size + 16 * rig.MIB)
    with open(copies[0], "r+b") as file:
        file.write(b"changed" * 1000)
    if rig.checksum(copies[0]) == kept:
        rig.fail("a change of a copy has no effect")
    rig.are_equal({path: kept for path in (image, copies[1], copies[-1])}, "clones, after a change of another copy")
    pool.end()


main()

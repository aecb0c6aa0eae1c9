"""A file system with an image, made by hand on a space, adopted as a volume; and 20 copies of the image by `dolmen copy`."""

import os
import random

import rig

COPIES = 20
COPIED_S = 2.0
IMAGE = 10 * rig.GIB
PIECE = 4 * rig.MIB
TOOK_PERCENT = 1.0


def write_image(path, data):
    """Writes an image of bytes that nothing compresses, in pieces all over it; the rest of it is holes."""
    draw = random.Random(1)
    with open(path, "wb") as file:
        file.truncate(IMAGE)
        for piece in range(data // PIECE):
            file.seek(piece * IMAGE // data * PIECE)
            file.write(draw.randbytes(PIECE))
        file.flush()
        os.fsync(file.fileno())


def main():
    """Measures them."""
    data = min(rig.setting("mib"), IMAGE // rig.MIB) // 4 * PIECE
    rig.need_room(data + rig.GIB)
    pool = rig.Pool()
    rig.dolmen("space", "create", "tank/old", "--size", "24G", "-r", "simple")
    rig.dolmen("space", "attach", "tank/old", "--transport", "loop")
    device = os.path.join(rig.RUN, "links", "tank", "old")
    rig.run("mkfs.xfs", "-q", "-K", device)
    os.makedirs(rig.MNT, exist_ok=True)
    rig.run("mount", device, rig.MNT)
    image = os.path.join(rig.MNT, "image")
    write_image(image, data)
    kept = rig.checksum(image)
    rig.run("umount", rig.MNT)
    watch = rig.Stopwatch()
    rig.dolmen("volume", "adopt", "tank/old", "--mount", rig.MNT)
    rig.bar("adopted and mounted", str(watch), "-", None)
    rig.are_equal({image: kept}, "adopted")
    before, longest, whole = rig.claimed("tank/old"), 0.0, rig.Stopwatch()
    used = rig.used()
    copies = [os.path.join(rig.MNT, f"copy-{number:02}") for number in range(COPIES)]
    for copy in copies:
        watch = rig.Stopwatch()
        rig.dolmen("copy", image, copy)
        longest = max(longest, watch.seconds())
    took, grown = whole.seconds(), rig.claimed("tank/old") - before
    of = f"{COPIES} copies of {rig.mib(IMAGE)} with {rig.mib(data)} of data"
    rig.bar(f"{of}: all, longest", f"{took:.2f} s, {longest:.2f} s", f"<= {COPIED_S:.0f} s", took <= COPIED_S)
    rig.bar(f"{COPIES} copies: room taken in the volume, in the pool", f"{rig.mib(rig.used() - used)}, {rig.mib(grown)}",
            f"<= {TOOK_PERCENT:.0f} % of the image", grown <= TOOK_PERCENT / 100 * data + 16 * rig.MIB)
    with open(copies[0], "r+b") as file:
        file.write(b"changed" * 1000)
    if rig.checksum(copies[0]) == kept:
        rig.fail("a change of a copy has no effect")
    rig.are_equal({path: kept for path in (image, copies[1], copies[-1])}, "clones, after a change of another copy")
    pool.end()


main()

"""A volume that lost 60 % of its files at random, trimmed and compacted with a client beside."""

import os
import random

import load
import rig

LOST = 0.6
CLAIMED_RATIO = 1.15
SLOWER = 2.0


def fill(count_bytes):
    """Writes files of 4 KiB to 4 MiB; their sizes spread evenly over the powers of two."""
    draw = random.Random(1)
    paths, total = [], 0
    while total < count_bytes:
        size = int(2 ** draw.uniform(12, 22))
        path = os.path.join(rig.MNT, f"folder-{draw.randrange(50):02}", f"{len(paths):06}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(draw.randbytes(size))
        paths.append(path)
        total += size
    rig.run("sync", "-f", rig.MNT)
    return paths


def main():
    """Ages the volume, and measures."""
    size = min(rig.setting("mib"), 2048) * rig.MIB
    rig.need_room(2 * size)
    pool = rig.Pool()
    volume = pool.volume(purpose="files")
    rig.run("sync", "-f", rig.MNT)
    empty = rig.claimed(volume)
    paths = fill(size)
    load.Client.prepare()
    full = rig.claimed(volume)
    draw = random.Random(2)
    lost = set(draw.sample(paths, int(LOST * len(paths))))
    for path in lost:
        os.unlink(path)
    left = [path for path in paths if path not in lost]
    sums = rig.checksums(left)
    live = sum(os.stat(path).st_blocks * 512 for path in rig.files_below())
    rig.dolmen("volume", "trim", volume)
    trimmed = rig.claimed(volume)
    alone = load.Client(rig.setting("seconds")).result()
    rig.say(f"client alone: {load.words(alone)}")
    watch = rig.Stopwatch()
    answer, seen, _ = load.beside(("volume", "compact", volume), {"seconds": 10})
    rig.say(f"compaction in {watch}: {rig.job_done(answer, 'the compaction')['result']}")
    for figures in seen:
        rig.say(f"client beside it: {load.words(figures)}")
    rig.are_equal(sums, "aged, after the compaction")
    after = rig.claimed(volume) - empty
    rig.bar("aged: claimed when full, after deletions and a trim", f"{rig.mib(full)}, {rig.mib(trimmed)}; {rig.mib(empty)} by an empty one", "-",
            None)
    rig.bar("aged: claimed beyond an empty one, against bytes of files", f"{rig.mib(after)} of {rig.mib(live)}, {after / live:.3f}",
            f"<= {CLAIMED_RATIO}", after <= CLAIMED_RATIO * live)
    for kind in ("read", "write"):
        values, quiet = [figures[f"{kind}_p99_ms"] for figures in seen], alone[f"{kind}_p99_ms"]
        mean = sum(values) / len(values)
        rig.bar(f"aged: p99 of {kind}s of a client, alone and beside a compaction",
                f"{quiet:.1f} ms to {mean:.1f} ms (worst ten seconds {max(values):.1f} ms)", f"<= {SLOWER} x", mean <= SLOWER * quiet)
    pool.end()


main()

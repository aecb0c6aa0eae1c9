"""Documents read in full on throttled disks: two equal volumes, of which one was deduplicated, in alternating rounds."""

import json
import os
import random
import statistics

import corpus
import groups
import rig

COUNTS = (1, 22, 83, 125)
ROUNDS = {1: 80, 22: 16, 83: 8, 125: 8}
SLOWER_PERCENT = 3.0


def read(paths):
    """Reads files in full; returns the seconds."""
    rig.drop_caches()
    watch = rig.Stopwatch()
    for path in paths:
        with open(path, "rb") as file:
            while file.read(rig.MIB):
                pass
    return watch.seconds()


def compare(loops, names, count):
    """Reads documents from both volumes; returns seconds, requests and bytes of each."""
    draw = random.Random(count)
    seen = {rig.MNT: [], rig.OTHER: []}
    for number in range(ROUNDS[count]):
        chosen = draw.sample(names, count)
        places = (rig.MNT, rig.OTHER) if number % 2 else (rig.OTHER, rig.MNT)
        for place in places:
            begun = rig.disk_reads(loops)
            took = read([os.path.join(place, name) for name in chosen])
            ended = rig.disk_reads(loops)
            seen[place].append((took, ended[0] - begun[0], ended[1] - begun[1]))
    return [[sum(values) for values in zip(*seen[place])] for place in (rig.MNT, rig.OTHER)], [
        [statistics.median(values) for values in zip(*seen[place])] for place in (rig.MNT, rig.OTHER)]


def main():
    """Measures both volumes."""
    rig.need_store(rig.CORPUS, "scripts/corpora/documents.py fetch")
    size = min(rig.setting("mib"), 1024)
    rig.need_room(3 * size * rig.MIB)
    pool = rig.Pool(over_loop=True)
    volume = pool.volume()
    pool.volume("w", mount=rig.OTHER)
    for place in (rig.MNT, rig.OTHER):
        made = corpus.fill(os.path.join(place, "people"), size_mib=size)
    rig.say(json.dumps(made))
    files = rig.files_below()
    sums = rig.checksums(files)
    rig.dedup_policy(volume)
    corpus.deduplicate(pool, volume, "reading")
    rig.are_equal(sums, "reading, after the run")
    names = [os.path.relpath(path, rig.MNT) for path in files]
    throttle = groups.Throttle(pool.loops)
    for count in COUNTS:
        (after, before), medians = compare(pool.loops, names, count)
        usual = [median[0] for median in reversed(medians)]
        slower = rig.percent(usual[1] - usual[0], usual[0])
        rig.bar(f"{count} documents: median round after against before", f"{usual[0] * 1000:.1f} ms to {usual[1] * 1000:.1f} ms, {slower:+.1f} %",
                f"<= +{SLOWER_PERCENT:.0f} %", slower <= SLOWER_PERCENT)
        # A bound of the block controller that is reached in one round delays the next, of whichever volume that is.
        rig.bar(f"{count} documents: all rounds together", f"{before[0]:.2f} s to {after[0]:.2f} s", "-", None)
        rig.bar(f"{count} documents: reads of the disks", f"{before[1]} to {after[1]}, {rig.mib(before[2])} to {rig.mib(after[2])}",
                "-", None)
    throttle.give_back()
    pool.end()


main()

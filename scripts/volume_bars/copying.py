"""Whole images read on throttled disks: two equal volumes, of which one was deduplicated, in alternating rounds."""

import os

import groups
import images
import rig

IMAGES = 4
ROUNDS = 2
SLOWER_PERCENT = 10.0


def processor_s():
    """Returns seconds of processors that the daemon took."""
    with open(f"/proc/{os.environ['BARS_DAEMON']}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    """Measures both volumes."""
    rig.need("debugfs", "mke2fs")
    rig.need_store(os.path.join(rig.IMAGES, "base.img"), "scripts/corpora/images.py base")
    rig.need_room(4 * rig.GIB)
    pool = rig.Pool(over_loop=True)
    volume = pool.volume(purpose="vms")
    pool.volume("w", purpose="vms", mount=rig.OTHER)
    made, _ = images.copy(os.path.join(rig.MNT, "images"), 1, IMAGES)
    sums = rig.checksums(made)
    rig.run("cp", "-r", "--sparse=always", "--reflink=never", os.path.join(rig.MNT, "images"), rig.OTHER)
    rig.run("sync", "-f", rig.OTHER)
    rig.dedup_policy(volume)
    said = rig.job_done(rig.dolmen("dedup", "run", volume, "--mode", "throughput"), "the run")["result"]
    rig.say(f"run: {said}")
    rig.are_equal(sums, "copying, after the run")
    throttle = groups.Throttle(pool.loops)
    seen = {rig.MNT: [0.0, 0.0, 0, 0], rig.OTHER: [0.0, 0.0, 0, 0]}
    for number in range(ROUNDS):
        for place in (rig.MNT, rig.OTHER) if number % 2 else (rig.OTHER, rig.MNT):
            for image in made:
                rig.drop_caches()
                begun, processor, watch = rig.disk_reads(pool.loops), processor_s(), rig.Stopwatch()
                with open(os.path.join(place, os.path.relpath(image, rig.MNT)), "rb") as file:
                    while file.read(4 * rig.MIB):
                        pass
                ended = rig.disk_reads(pool.loops)
                figures = (watch.seconds(), processor_s() - processor, ended[0] - begun[0], ended[1] - begun[1])
                seen[place] = [old + new for old, new in zip(seen[place], figures)]
    after, before = seen[rig.MNT], seen[rig.OTHER]
    slower = rig.percent(after[0] - before[0], before[0])
    rig.bar(f"{IMAGES} images copied out: time after against before", f"{before[0]:.2f} s to {after[0]:.2f} s, {slower:+.1f} %",
            f"<= +{SLOWER_PERCENT:.0f} %", slower <= SLOWER_PERCENT)
    rig.bar(f"{IMAGES} images copied out: processor time of the daemon", f"{before[1]:.1f} s to {after[1]:.1f} s", "-", None)
    rig.bar(f"{IMAGES} images copied out: reads of the disks", f"{before[2]} to {after[2]}, {rig.mib(before[3])} to {rig.mib(after[3])}",
            "-", None)
    throttle.give_back()
    pool.end()


main()

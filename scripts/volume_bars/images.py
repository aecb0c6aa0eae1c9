"""System images of one base, written in batches with a run after each."""

import json
import os
import sys

import rig

SAVED_SHARE = 98.0
RETURNED_SHARE = 95.0
BATCH = 5
PROGRAM = os.path.join(rig.SCRIPTS, "corpora", "images.py")


def copy(target, first, count):
    """Writes images; returns the bytes that they take before any run."""
    rig.run(sys.executable, PROGRAM, "copy", rig.IMAGES, target, str(first), str(count))
    rig.run("sync", "-f", target)
    images = [os.path.join(target, f"vm-{number:03}.img") for number in range(first, first + count)]
    return images, sum(os.stat(image).st_blocks * 512 for image in images)


def main():
    """Measures them."""
    rig.need("debugfs", "mke2fs")
    rig.need_store(os.path.join(rig.IMAGES, "base.img"), "scripts/corpora/images.py base")
    rig.need_room(4 * rig.GIB)
    pool = rig.Pool()
    volume = pool.volume(purpose="vms", size="256G")
    empty, empty_claimed = rig.used(), rig.claimed(volume)
    rig.dedup_policy(volume)
    target = os.path.join(rig.MNT, "images")
    count, content, claimed, sums = rig.setting("images"), 0, 0, {}
    for first in range(0, count, BATCH):
        claimed_before = rig.claimed(volume)
        images, written = copy(target, first, min(BATCH, count - first))
        content += written
        claimed += rig.claimed(volume) - claimed_before
        sums.update(rig.checksums(images))
        rig.drop_caches()
        watch = rig.Stopwatch()
        said = rig.job_done(rig.dolmen("dedup", "run", volume, "--mode", "throughput"), "the run")["result"]
        rig.say(f"{first + len(images)} images, run in {watch}: {said}")
    rig.are_equal(sums, "images, after the last run")
    left, left_claimed = rig.used() - empty, rig.claimed(volume) - empty_claimed
    ceiling = json.loads(rig.run(sys.executable, PROGRAM, "ceiling", target))
    rig.say(json.dumps(ceiling))
    saved, back = 100 - rig.percent(left, content), 100 - rig.percent(left_claimed, claimed)
    rig.bar(f"{count} images: saved in the volume", f"{saved:.2f} %", f">= {SAVED_SHARE} %", saved >= SAVED_SHARE)
    rig.bar(f"{count} images: back in the pool", f"{back:.2f} % of {rig.mib(claimed)}", f">= {RETURNED_SHARE} %", back >= RETURNED_SHARE)
    pool.end()


if __name__ == "__main__":
    main()

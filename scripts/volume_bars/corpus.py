"""Documents on a volume: filled, estimated, deduplicated, undone, with the figures of each step."""

import json
import os
import re
import sys

import load
import rig

SAVED_WITHIN = 2.0
ESTIMATE_WITHIN = 3.0
RETURNED_SHARE = 0.85
RETURNED_FROM = 7 * rig.GIB


def fill(target, *options, size_mib=None):
    """Writes documents with their owners, and returns what documents.py says of them."""
    program = os.path.join(rig.SCRIPTS, "corpora", "documents.py")
    text = rig.run(sys.executable, program, "fill", rig.CORPUS, target, "--size", f"{size_mib or rig.setting('mib')}M", *options)
    rig.run("sync", "-f", target)
    return json.loads(text)


def state(pool, volume):
    """Returns used, claimed and written bytes of a volume, its space and the disks."""
    return rig.used(), rig.claimed(volume), pool.written()


def estimate_of(volume):
    """Returns the saving that the estimate names, in per cent of the files that it looked at, with the bytes of those."""
    watch = rig.Stopwatch()
    said = rig.job_done(rig.dolmen("dedup", "estimate", volume), "the estimate")["result"]
    rig.say(f"estimate in {watch}: {said}")
    found = re.search(r"would be saved, ([0-9.]+) %", said)
    if not found:
        rig.fail(f"the estimate names no share: {said}")
    return float(found.group(1))


def deduplicate(pool, volume, label):
    """Runs a deduplication; returns the states before and after."""
    before = state(pool, volume)
    # Files of three days are seldom in memory.
    rig.drop_caches()
    watch, worker = rig.Stopwatch(), load.Worker()
    said = rig.job_done(rig.dolmen("dedup", "run", volume, "--mode", "throughput"), "the run")["result"]
    worker.end()
    rig.say(f"run: {said}")
    after = state(pool, volume)
    rig.bar(f"{label}: time of a run with its compaction", f"{watch}", "-", None)
    rig.bar(f"{label}: peak memory of a run", rig.mib(worker.peak_bytes), "<= 256 MiB", worker.peak_bytes <= 256 * rig.MIB)
    return before, after


def undo(volume, files, sums, label):
    """Undoes all sharing, and looks for what is left."""
    watch = rig.Stopwatch()
    said = rig.job_done(rig.dolmen("dedup", "undo", volume), "the undo")["result"]
    rig.say(f"undo in {watch}: {said}")
    rig.are_equal(sums, f"{label}, after the undo")
    left = rig.shared_bytes(files)
    rig.bar(f"{label}: shared after the undo", rig.mib(left), "0 MiB", left == 0)


def returned(label, saved, before, after, made_bytes):
    """Prints what the pool got back of the saving."""
    back, disks = before[1] - after[1], before[2] - after[2]
    wanted, share = RETURNED_SHARE, back / saved if saved else 0.0
    is_large = made_bytes >= RETURNED_FROM
    bound = f">= {wanted}" + ("" if is_large else " from 8 GB on")
    rig.bar(f"{label}: back in the pool, of what was saved", f"{share:.3f} ({rig.mib(back)})", bound, share >= wanted if is_large else None)
    rig.bar(f"{label}: room of the disks before less after", rig.mib(disks), "-", None)

"""A background run beside a client: latencies, memory, and the time until it yields to load."""

import json
import os
import random
import time

import load
import rig

MEMORY = 64 * rig.MIB
STOPPED_S = 3.0
LOAD_S = 40
YIELDED_WITHIN_S = 5.0
SLOWER = 1.5


def fill(count):
    """Writes files of 4 to 64 KiB, each power of two half as often as the one before, and every second of them a copy of the last."""
    draw = random.Random(1)
    for number in range(count):
        folder = os.path.join(rig.MNT, "files", f"{number // 1000:04}")
        os.makedirs(folder, exist_ok=True)
        if number % 2 == 0:
            powers = range(12, 17)
            content = draw.randbytes(1 << draw.choices(powers, [2 ** -power for power in powers])[0])
        with open(os.path.join(folder, f"{number:07}"), "wb") as file:
            file.write(content)
    rig.run("sync", "-f", rig.MNT)


def first_stop(worker, begun):
    """Returns the seconds from the begin of a load until the worker reads nothing for a while; none where it never does."""
    last = begun
    for at in [at for at in worker.reads if at >= begun] + worker.alive[-1:]:
        if at - last >= STOPPED_S:
            return last - begun
        last = at
    return None


def quiet_client(volume):
    """Compares a client of a few requests with and without a run beside it; each run is bounded in its memory."""
    alone = load.Client(rig.setting("seconds")).result()
    rig.say(f"client alone: {load.words(alone)}")
    watch = rig.Stopwatch()
    answer, seen, worker = load.beside(("dedup", "run", volume), {"seconds": 10}, MEMORY)
    rig.say(f"run in {watch}: {rig.job_done(answer, 'the run')['result']}")
    for kind in ("read", "write"):
        values, quiet = [figures[f"{kind}_p99_ms"] for figures in seen], alone[f"{kind}_p99_ms"]
        mean = sum(values) / len(values)
        rig.bar(f"background: p99 of {kind}s of a client, alone and beside a run",
                f"{quiet:.1f} ms to {mean:.1f} ms (worst ten seconds {max(values):.1f} ms)", f"<= {SLOWER} x", mean <= SLOWER * quiet)
    rig.bar("background: memory of the worker, in a group of 64 MiB", rig.mib(worker.peak_bytes), "<= 64 MiB", worker.peak_bytes <= MEMORY)


def busy_client(volume):
    """Begins a heavy load while a run goes on, and looks when the run stops reading."""
    worker = load.Worker()
    rig.dolmen("dedup", "run", volume, "--no-wait")
    time.sleep(4)
    is_working = bool(worker.reads) and time.monotonic() - worker.reads[-1] < 2
    begun = time.monotonic()
    heavy = load.Client(LOAD_S, rate=None, depth=16)
    figures = heavy.result()
    worker.end()
    rig.say(f"client with 16 requests at a time: {load.words(figures)}")
    if not is_working or worker.alive[-1] < begun + STOPPED_S:
        rig.say("the run ended before the load could stop it; more --files make it longer")
        return
    stopped = first_stop(worker, begun)
    if stopped is None and worker.alive[-1] < begun + YIELDED_WITHIN_S + STOPPED_S:
        rig.say("the run ended within the bound; more --files make it longer")
        return
    rig.bar("background: time until it yields to a load", "never" if stopped is None else f"{stopped:.1f} s",
            f"<= {YIELDED_WITHIN_S:.0f} s", stopped is not None and stopped <= YIELDED_WITHIN_S)


def main():
    """Measures them."""
    rig.need("fio")
    count = rig.setting("files")
    rig.need_room(count * (11 << 10) * 2)
    pool = rig.Pool()
    volume = pool.volume(purpose="files", size="64G")
    watch = rig.Stopwatch()
    fill(count)
    rig.say(f"{count} files written in {watch}")
    files = rig.files_below()
    sums = rig.checksums(files)
    load.Client.prepare()
    before = rig.used()
    rig.dedup_policy(volume, min_size="4K", memory=MEMORY, exclude_name="client")
    quiet_client(volume)
    saved = before - rig.used()
    rig.bar(f"background: saved on {count} files of 4 to 64 KiB", f"{rig.mib(saved)} of {rig.mib(before)}", "-", None)
    rig.are_equal(sums, "background, after the run")
    # The next run has as much to do.
    rig.job_done(rig.dolmen("dedup", "undo", volume), "the undo")
    busy_client(volume)
    wait_for_jobs()
    rig.are_equal(sums, "background, after all runs")
    rig.say(json.dumps(rig.dolmen("dedup", "status", volume)["last"]))
    pool.end()


def wait_for_jobs():
    """Waits until no job of deduplication goes on."""
    while load.workers():
        time.sleep(0.5)
    time.sleep(5)


main()

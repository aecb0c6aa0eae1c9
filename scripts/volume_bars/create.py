"""A thin volume of 1 TiB: time, claimed room; and a volume that grows under a client."""

import time

import load
import rig

ROUNDS = 3
CREATED_S = 3.0
CLAIMED_PERCENT = 0.5
TIB = 1 << 40


def create(pool):
    """Makes the volume, some times, and deletes it."""
    for _ in range(ROUNDS):
        watch = rig.Stopwatch()
        volume = pool.volume("v", "files", "1T")
        took = watch.seconds()
        share = rig.percent(rig.claimed(volume), TIB)
        rig.bar("1 TiB thin, created and mounted", f"{took:.2f} s", f"<= {CREATED_S:.0f} s", took <= CREATED_S)
        rig.bar("1 TiB thin, claimed", f"{share:.3f} %", f"<= {CLAIMED_PERCENT} %", share <= CLAIMED_PERCENT)
        rig.dolmen("volume", "delete", volume)
        rig.dolmen("trash", "purge", volume, "--destroy", volume)


def grow(pool):
    """Grows a volume step by step under a client."""
    volume = pool.volume("w", "files", "2G", mount=rig.OTHER)
    path = f"{rig.OTHER}/client"
    load.Client.prepare(path)
    alone = load.Client(rig.setting("seconds"), path, rate=500).result()
    rig.say(f"client alone: {load.words(alone)}")
    client = load.Client(rig.setting("seconds"), path, rate=500)
    steps = [f"{4 << step}G" for step in range(9)]
    for size in steps:
        time.sleep(rig.setting("seconds") / 4 / len(steps))
        watch = rig.Stopwatch()
        rig.dolmen("volume", "grow", volume, size)
        rig.say(f"grown to {size} in {watch}")
    beside = client.result()
    rig.bar("grown nine times under a client: I/O that failed", "0", "0", True)
    rig.bar("grown nine times under a client: longest request", f"{beside['longest_ms']:.0f} ms, alone {alone['longest_ms']:.0f} ms",
            "-", None)
    rig.dolmen("volume", "unmount", volume)
    rig.dolmen("volume", "check", volume)


POOL = rig.Pool(disk_gib=16)
create(POOL)
rig.need("fio")
grow(POOL)
POOL.end()

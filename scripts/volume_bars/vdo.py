"""The documents of the bar `documents` on XFS over the kernel's VDO, for comparison: what is saved below, without any run."""

import json
import os
import re
import subprocess

import corpus
import rig

NAME = "dolmen-bars-vdo"
DEVICE = f"/dev/mapper/{NAME}"
DISK = 24 * rig.GIB
# The block map cache in blocks and the era of the map: the kernel's least and its default.
CACHE_BLOCKS, ERA = 32768, 16380
# Slabs of 128 MiB.
SLAB_BITS = 15


def need_vdo():
    """Skips the bar where the kernel or its tools are missing."""
    rig.need("vdoformat", "dmsetup")
    targets = subprocess.run(["dmsetup", "targets"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout.decode()
    if not any(line.startswith("vdo ") for line in targets.splitlines()):
        rig.skip("the kernel does not know VDO, or the module dm-vdo is not loaded")


def memory_free():
    """Returns the memory that the machine can give, in bytes."""
    with open("/proc/meminfo", encoding="utf-8") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))


def statistics():
    """Returns the numbers that the device states of itself."""
    text = rig.run("dmsetup", "message", NAME, "0", "stats").decode()
    return {name: int(value) for name, value in re.findall(r"(\w+) : (\d+)", text)}


def mount(device):
    """Makes an XFS on a device and mounts it."""
    rig.run("mkfs.xfs", "-q", "-f", "-K", device)
    os.makedirs(rig.MNT, exist_ok=True)
    rig.run("mount", device, rig.MNT)


def fill():
    """Writes the documents and flushes them; returns what documents.py says of them, and the seconds that it took."""
    watch = rig.Stopwatch()
    made = corpus.fill(os.path.join(rig.MNT, "people"))
    return made, watch.seconds()


def disk(name):
    """Makes a file with a loop device over it; returns both."""
    file = os.path.join(rig.DISKS, name)
    with open(file, "wb") as opened:
        opened.truncate(DISK)
    return file, rig.run("losetup", "--show", "-f", file).decode().strip()


def end(file, loop):
    """Takes both away."""
    rig.run("losetup", "-d", loop)
    os.unlink(file)


def alone():
    """Returns the seconds that the writing takes on XFS without VDO, the second time, with the store in memory."""
    for _ in range(2):
        file, loop = disk("plain")
        mount(loop)
        _, took = fill()
        rig.run("umount", rig.MNT)
        end(file, loop)
    return took


def main():
    """Measures, and takes everything away again."""
    need_vdo()
    rig.need_store(rig.CORPUS, "scripts/corpora/documents.py fetch")
    rig.need_room(2 * rig.setting("mib") * rig.MIB)
    without = alone()
    below, loop = disk("below")
    rig.run("vdoformat", f"--slab-bits={SLAB_BITS}", f"--logical-size={DISK // rig.GIB}G", loop)
    free = memory_free()
    rig.note("mapped", NAME)
    table = f"0 {DISK // 512} vdo V4 {loop} {DISK // 4096} 4096 {CACHE_BLOCKS} {ERA} deduplication on compression off"
    rig.run("dmsetup", "create", NAME, "--table", table)
    rig.run("dmsetup", "mknodes")
    taken = free - memory_free()
    mount(DEVICE)
    empty, without_files = statistics(), rig.used()
    made, took = fill()
    rig.say(json.dumps(made))
    paths = rig.files_below()
    sums = rig.checksums(paths)
    full = statistics()
    used = rig.used() - without_files
    logical, data = (full[name] - empty[name] for name in ("logicalBlocksUsed", "dataBlocksUsed"))
    rig.bar("VDO: saved in the file system", f"0 %, {rig.mib(used)} used", "-", None)
    rig.bar("VDO: saved below", f"{rig.percent(logical - data, logical):.2f} % of {made['duplicate_share_percent']} %; "
            f"{rig.mib(data * 4096)} of {rig.mib(logical * 4096)}", "-", None)
    rig.bar("VDO: room of its own index and map", rig.mib(full["overheadBlocksUsed"] * 4096), "-", None)
    rig.bar("VDO: time of the writing, with it and without", f"{took:.1f} s, {without:.1f} s", "-", None)
    rig.bar("VDO: peak memory", f"{rig.mib(full['peakBytesUsed'])} by its own account, {rig.mib(taken)} less free when it was made",
            "-", None)
    rig.are_equal(sums, "VDO")
    rig.run("umount", rig.MNT)
    rig.run("dmsetup", "remove", NAME)
    end(below, loop)


main()

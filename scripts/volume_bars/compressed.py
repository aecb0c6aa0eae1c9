"""Documents on btrfs with zstd: distinct ones by compression alone, and those that many people own by both."""

import json
import os

import corpus
import rig

COMPRESSED_SHARE = 28.0

rig.need("mkfs.btrfs")
rig.need_store(rig.CORPUS, "scripts/corpora/documents.py fetch")
rig.need_room(rig.setting("mib") * rig.MIB)
POOL = rig.Pool()
# Two thirds of the store and more are PDF, which is compressed by its writers: both mixtures are shown.
for label, size_mib, options in (("all kinds", 2048, []), ("without PDF", 256, ["--without", "pdf"])):
    volume = POOL.volume("w", file_system="btrfs", mount=rig.OTHER)
    empty = rig.used(rig.OTHER)
    alone = corpus.fill(os.path.join(rig.OTHER, "people"), "--law", "1:100", *options, size_mib=min(rig.setting("mib"), size_mib))
    share = 100 - rig.percent(rig.used(rig.OTHER) - empty, alone["bytes"])
    rig.bar(f"distinct documents, {label}: saved by compression", f"{share:.2f} % of {rig.mib(alone['bytes'])}",
            f">= {COMPRESSED_SHARE} %", share >= COMPRESSED_SHARE)
    rig.dolmen("volume", "delete", volume)
    rig.dolmen("trash", "purge", volume, "--destroy", volume)

VOLUME = POOL.volume(file_system="btrfs")
empty = rig.used()
made = corpus.fill(os.path.join(rig.MNT, "people"))
rig.say(json.dumps(made))
files = rig.files_below()
sums = rig.checksums(files)
rig.dedup_policy(VOLUME)
corpus.estimate_of(VOLUME)
before, after = corpus.deduplicate(POOL, VOLUME, "btrfs")
rig.are_equal(sums, "btrfs, after the run")
content, saved = before[0] - empty, before[0] - after[0]
share, law = rig.percent(saved, content), made["duplicate_share_percent"]
rig.bar("btrfs: saved by deduplication, of what compression left", f"{share:.2f} % of {law} %", "-", None)
rig.bar("btrfs: saved by both", f"{100 - rig.percent(after[0] - empty, made['bytes']):.2f} %", "-", None)
corpus.returned("btrfs", saved, before, after, 0)
corpus.undo(VOLUME, files, sums, "btrfs")
POOL.end()

"""Documents that many people own, on XFS; runs take files from one block on, as `--min-size 4K` says."""

import json
import os

import corpus
import rig

rig.need_store(rig.CORPUS, "scripts/corpora/documents.py fetch")
rig.need_room(rig.setting("mib") * rig.MIB * 5 // 4)
POOL = rig.Pool()
VOLUME = POOL.volume()
made = corpus.fill(os.path.join(rig.MNT, "people"))
rig.say(json.dumps(made))
files = rig.files_below()
sums = rig.checksums(files)
rig.dedup_policy(VOLUME, min_size="4K")
expected = corpus.estimate_of(VOLUME)
before, after = corpus.deduplicate(POOL, VOLUME, "documents")
rig.are_equal(sums, "documents, after the run")
looked_at = sum(size for size in map(os.path.getsize, files) if size >= 4 << 10)
saved = before[0] - after[0]
share, law = rig.percent(saved, made["bytes"]), made["duplicate_share_percent"]
rig.bar("documents: saved in the volume", f"{share:.2f} % of {law} %", f"within {corpus.SAVED_WITHIN} points",
        abs(share - law) <= corpus.SAVED_WITHIN)
result = rig.percent(saved, looked_at)
rig.bar("documents: estimate against result", f"{expected} % against {result:.2f} % of the files looked at",
        f"within {corpus.ESTIMATE_WITHIN} points", abs(expected - result) <= corpus.ESTIMATE_WITHIN)
corpus.returned("documents", saved, before, after, made["bytes"])
corpus.undo(VOLUME, files, sums, "documents")
POOL.end()

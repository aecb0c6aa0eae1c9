"""The documents of the bar `documents` through duperemove, for comparison."""

import json
import os
import resource

import corpus
import rig

rig.need("duperemove")
rig.need_store(rig.CORPUS, "scripts/corpora/documents.py fetch")
rig.need_room(rig.setting("mib") * rig.MIB)
POOL = rig.Pool()
VOLUME = POOL.volume()
made = corpus.fill(os.path.join(rig.MNT, "people"))
rig.say(json.dumps(made))
files = rig.files_below()
sums = rig.checksums(files)
before = corpus.state(POOL, VOLUME)
watch = rig.Stopwatch()
rig.run("duperemove", "-d", "-r", "-q", f"--hashfile={rig.RUN}/hashes", rig.MNT)
took = str(watch)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
rig.are_equal(sums, "duperemove, after it")
rig.dolmen("volume", "trim", VOLUME)
after = corpus.state(POOL, VOLUME)
saved = before[0] - after[0]
rig.bar("duperemove: saved in the volume", f"{rig.percent(saved, made['bytes']):.2f} % of {made['duplicate_share_percent']} %", "-", None)
rig.bar("duperemove: back in the pool after a trim, of what was saved", f"{(before[1] - after[1]) / saved:.3f}", "-", None)
rig.bar("duperemove: time", took, "-", None)
rig.bar("duperemove: peak memory", rig.mib(peak), "-", None)
POOL.end()

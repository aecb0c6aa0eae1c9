#!/bin/sh
# Documents that many people own, on XFS: by a run of Dolmen, by duperemove, and over the kernel's VDO.
#
# For a kernel that has VDO, and a machine that nothing else is done on: scripts/guest.sh vdo. It needs vdoformat, of Debian's package
# vdo, which Debian 12 does not have, and the store of documents (scripts/corpora/documents.py fetch). Times of an emulated machine
# compare with each other only.
#
# DOLMEN_KERNEL_MIB   MiB of documents (default: 512; they are in the machine's memory)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='deduplication beside VDO'

[ "${DOLMEN_KERNEL_MACHINE:-no}" = yes ] || { skip "$script (not a machine of its own; scripts/guest.sh vdo)"; exit 0; }
for module in xfs loop fuse dm_vdo; do modprobe "$module" 2>/dev/null || :; done
missing_of python3 mkfs.xfs dmsetup duperemove vdoformat && { skip "$script (missing:$missing)"; exit 0; }
BARS_ROOM_KEPT_GIB=0 sh "$root/scripts/volume_bars.sh" --mib "${DOLMEN_KERNEL_MIB:-512}" vdo duperemove documents

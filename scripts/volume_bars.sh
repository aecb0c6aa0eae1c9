#!/bin/sh
# volume_bars.sh [--mib N] [--images N] [--files N] [--seconds N] [--delay N] [BAR]...
#
# Figures of volumes, deduplication and copies, through the daemon and the command line as a user has them. Each figure is a line
# `bar | measured | wanted | met`. The script ends with 0 unless a command failed or bytes were wrong; a bar that is missed fails
# nothing. What the machine lacks is skipped by name.
#
#   --mib N       MiB of documents in their bar (default: 7630, all that the corpus has)
#   --images N    images in their bar (default: 110)
#   --files N     small files in the bar of background runs (default: 100000)
#   --seconds N   seconds of each load of clients (default: 30)
#   --delay N     milliseconds that each request of a disk takes under PostgreSQL (default: 8)
#   BAR           create, documents, compressed, duperemove, vdo, images, reading, copying, background, aged, clones or postgres
#                 (default: all)
#
# create      a thin volume of 1 TiB made and mounted, and what it claims; a volume grown under a client
# documents   office documents that many people own, on XFS: estimate, run, compaction, undo (scripts/corpora/documents.py)
# compressed  the same on btrfs with zstd, and distinct documents alone
# duperemove  the same documents on XFS through duperemove
# vdo         the same documents on XFS over the VDO of a kernel that has it (scripts/guest.sh vdo)
# images      system images of one base (scripts/corpora/images.py), written in batches with a run after each
# reading     1, 22, 83 and 125 documents read in full, before and after a run, on throttled disks
# copying     whole images read, before and after a run, on throttled disks
# background  p99 of a client with and without a background run beside it; memory of the worker; time until it yields
# aged        a volume that lost 60 % of its files at random, trimmed and compacted, with a client beside
# clones      an image adopted with its space, and 20 copies by `dolmen copy`
# postgres    1 and 8 instances of PostgreSQL under pgbench, on eight volumes of one pool
#
# Method: each bar has a new pool of two sparse files as disks and a space with one copy. *Saved in the volume* is the room that the
# file system counts as used, before less after; *back in the pool* is the same of the claimed rows of the space. Throttled disks
# are loop devices over files, whose reads the block controller bounds for the daemon alone, by bytes and by requests each second,
# as a spinning disk does. Under PostgreSQL spaces have two copies, and the loop devices lie over files of a server that answers each
# request a fixed time after it came, however many there are (delay_disk.py); a flush takes no time, as on a disk without a cache.
# Checksums of all files are compared after every step that may share, move or undo.
#
# DOLMEN_CORPUS  the store of documents (default: /var/tmp/corpus; documents.py fetch makes it)
# DOLMEN_IMAGES  the store of the image (default: /var/tmp/images; images.py base makes it)
# DOLMEN_BIN     a program that is built already
# DOLMEN_STATE   where disks, logs and the record of this run are kept (default: .demo in the checkout)
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='bars of volumes'
all='create documents compressed duperemove vdo images reading copying background aged clones postgres'
mib=7630 images=110 files=100000 seconds=30 delay=8 bars=

while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,/^root=/s/^# \{0,1\}//p' "$0" | sed '$d'
        exit 0
        ;;
    --mib | --images | --files | --seconds | --delay)
        is_number "${2-}" || die 2 "$1 takes a number from 1 on, not '${2-}'"
        eval "${1#--}=\$2"
        shift 2
        ;;
    -*) die 2 "no option $1; see $0 --help" ;;
    *)
        case " $all " in *" $1 "*) bars="$bars $1" ;; *) die 2 "no bar $1; there are: $all" ;; esac
        shift
        ;;
    esac
done
: "${bars:=$all}"

open_script 1024 python3 losetup
knows_filesystem xfs || { skip "$script (the kernel does not know XFS)"; exit 0; }
[ "$(id -u)" -eq 0 ] || { skip "$script (needs root)"; exit 0; }
export DOLMEN_SOCKET="$socket" BARS_BIN="$bin" BARS_RUN="$run" BARS_RECORD="$state/record" BARS_MIB="$mib" BARS_IMAGES="$images" \
    BARS_FILES="$files" BARS_SECONDS="$seconds" BARS_DELAY="$delay" PYTHONDONTWRITEBYTECODE=1
failed=0
say "of commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date +%F), $(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg)"
for bar in $bars; do
    step "$bar"
    note below "$disks"
    note below "$run/mnt"
    must 'the daemon answers' daemon_start
    BARS_DAEMON=$(daemon_self)
    export BARS_DAEMON
    attend -- python3 "$root/scripts/volume_bars/$bar.py" || { failed=1; warn "FAILED: $bar"; last_words; }
    daemon_stop || fail 'the daemon does not end'
done
close_script
exit "$failed"

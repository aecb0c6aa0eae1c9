#!/bin/bash
# Source: md-raid and ZFS threads on a label that was lost long before anybody noticed (one of four left), zfs labelclear mishaps.
# Right: a copy of a disk's label that was damaged, by whatever, while the pool was open or closed, is found and written again by the next opening or
# the next scrub at the latest. (Today no scrub looks at labels, and an opening mends those of the disks with metadata alone.)
CASE_LIMIT=${CASE_LIMIT:-600}
. "$(dirname "$0")/lib.sh"
begin 'copies of labels are damaged' 2000
for n in 1 2 3 4 5 6; do mkdisk "$n" 320M; done
must 'the daemon answers' up
must 'a pool' dol pool create tank "$W"/disks/{1,2,3,4,5,6}
must 'a mirror' dol space create tank/m --size 48M
m=$(uri tank/m)
must 'content' t fill "$m" 0 48M a
spoil() { t wipe "$W/disks/$1" "$2" "$3"; }
whole() {
    check "$1: a scrub" dol scrub tank
    dol pool acknowledge tank >/dev/null 2>&1
    must "$1: the daemon ends" down
    check "$1: the offline check finds nothing" offline_check "$W"/disks/*
    must "$1: the daemon answers" up
    check "$1: content" t check "$m" 0 48M a
}
whole 'before'
END=$((320 * 1048576))
for at in 0:64K 64K:64K 128K:64K $((END - 65536)):64K $((END - 131072)):64K $((END - 1048576)):1M; do
    for n in 1 6; do
        step "disk $n, ${at#*:} at ${at%:*}, while it is open"
        spoil $n "${at%:*}" "${at#*:}"
        whole "disk $n at ${at%:*}, open"
        step "disk $n, ${at#*:} at ${at%:*}, while it is closed"
        must 'the daemon ends' down
        spoil $n "${at%:*}" "${at#*:}"
        must 'the daemon answers' up
        whole "disk $n at ${at%:*}, closed"
    done
done
end

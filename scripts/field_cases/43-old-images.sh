#!/bin/bash
# Source: openzfs/zfs#17365 and #15290 (a record or a disk from a backup is believed), forum reports of virtual machines of which only some disks
# were rolled back to a snapshot; a controller that loses its battery-backed cache for the disks behind it.
# Right: a disk that is as it was before the last times that the pool was open is told to be so, whichever disk it is and however many members
# the pool has; what only such disks have reads as an error or is read elsewhere. What stood there before is never brought as if it were current.
CASE_LIMIT=${CASE_LIMIT:-600}
. "$(dirname "$0")/lib.sh"
begin 'some of the disks of a pool come back as they were a week ago' 5000
SPACE=12M
for n in 1 2 3 4 5 6 7; do mkdisk "$n" 300M; done
must 'the daemon answers' up
must 'a pool' dol pool create tank "$W"/disks/{1,2,3,4,5,6,7}
must 'a mirror' dol space create tank/m --size $SPACE --row 1M
must 'a space with parity' dol space create tank/p --size $SPACE --row 1M --resiliency parity
m=$(uri tank/m) p=$(uri tank/p)
for s in "$m" "$p"; do must 'content of last week' t fill "$s" 0 $SPACE old; done
must 'the daemon ends' down
cp -a --sparse=always "$W/disks" "$W/old"
for week in 1 2; do
    must 'the daemon answers' up
    for s in "$m" "$p"; do must 'content of today' t fill "$s" 0 $SPACE "new$week"; done
    must 'the daemon ends' down
done
cp -a --sparse=always "$W/disks" "$W/new"
cp -a "$HD/state" "$W/state"
again() {
    rm -rf "$W/disks" "$HD/state"
    cp -a --sparse=always "$W/new" "$W/disks"
    cp -a "$W/state" "$HD/state"
}
old() { local n; for n in "$@"; do cp --sparse=always "$W/old/$n" "$W/disks/$n"; done; }
# told N...: none of these is said to be an ordinary member that is here.
told() {
    local n
    dol -o json disk list tank >"$W/list" || return 1
    for n in "$@"; do
        js "[x['state'] for x in d['disks'] if any(str(v).endswith('/disks/$n') for v in x.values())][0]" <"$W/list" | grep -qx present &&
            { echo "disk $n is as it was, and said to be present"; return 1; }
    done
    return 0
}
try() {
    local what=$1
    shift
    must "$what: the daemon answers" up
    check "$what: nothing of before is read, mirror" t newest "$m" 0 $SPACE old new2
    check "$what: nothing of before is read, parity" t newest "$p" 0 $SPACE old new2
    check "$what: those disks are told" told "$@"
    must "$what: the daemon ends" down
    again
}
for n in 1 4 7; do step "disk $n is old"; old $n; try "$n old" $n; done
for pair in '1 2' '3 4' '5 6' '6 7' '2 5' '4 7'; do
    step "disks $pair are old"
    # shellcheck disable=SC2086
    old $pair
    # shellcheck disable=SC2086
    try "$pair old" $pair
done
for pair in '5 6' '6 5' '6 7' '7 5'; do
    set -- $pair
    step "disk $1 is old, disk $2 is gone"
    old "$1"
    rm "$W/disks/$2"
    try "$1 old, $2 gone" "$1"
done
end

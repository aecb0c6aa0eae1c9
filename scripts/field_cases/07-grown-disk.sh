#!/bin/bash
# Source: openzfs/zfs#7582, #8529 and #808; lxc/incus-os#1032. A disk of a virtual machine was made larger under a pool; labels at the old end, a
# backup table at the wrong place, and no way to use the new room.
# Right: nothing is lost while it grows, behind a restart, or when it is made as small again; and there is a way to use the room.
. "$(dirname "$0")/lib.sh"
begin 'disks that grow in place' 2500
for n in a b; do mkdisk "$n" 256M; done
must 'the daemon answers' up
must 'a pool' dol pool create tank "$W"/disks/{a,b}
must 'a mirror' dol space create tank/m --size 64M
must 'content' t fill "$(uri tank/m)" 0 64M one
before=$(dol -o json pool show tank | js 'd["pool"]["data_bytes"]')
judge() {
    check "$1: content" t check "$(uri tank/m)" 0 64M one
    check "$1: both are there" all_present tank
    check "$1: not unhealthy" not_unhealthy
}
step 'one grows while it is in use'
must 'grown' truncate -s 1G "$W/disks/a"
sleep 5
judge 'grown in use'
must 'written' t fill "$(uri tank/m)" 16M 16M one
step 'behind a restart'
must 'the daemon ends' down
must 'grown' truncate -s 1G "$W/disks/b"
must 'the daemon answers' up
must 'the pool is open' is_writable tank
judge 'both grown'
eventually 30 no_jobs
must 'one takes what it has gained' dol disk grow tank "$W/disks/a"
after=$(dol -o json pool show tank | js 'd["pool"]["data_bytes"]')
say "room of the pool: $((before / 1048576)) MiB before, $((after / 1048576)) MiB after"
[ "$after" -gt "$before" ] || bad 'the room that a grown disk has gained is not used'
judge 'one has taken its room'
step 'a disk that is killed at once behind having grown, with its front labels gone'
crash
must 'front labels gone' t wipe "$W/disks/a" 0 1M
must 'the daemon answers' up
must 'the pool is open' is_writable tank
check 'content' t check "$(uri tank/m)" 0 64M one
rc_is 'status' '0 1' dol status
check 'both are there' all_present tank
step 'the other, which has not taken its room, is as small again as it was'
must 'the daemon ends' down
must 'cut' truncate -s 256M "$W/disks/b"
must 'the daemon answers' up
must 'the pool is open' is_writable tank
check 'content' t check "$(uri tank/m)" 0 64M one
check 'not unhealthy' not_unhealthy
end

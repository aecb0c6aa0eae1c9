#!/bin/bash
# Source: openzfs/zfs#957; stratis-storage/stratisd#552. With several paths to one disk the import took raw paths, saw twice as
# many disks, or went into an error state.
# Right: one disk under two names is never taken for two. Given as two disks of a new pool it is refused, as copies on it would
# be one. At an opening it is either used by one path, or both are named and nothing is written.
. "$(dirname "$0")/lib.sh"
begin 'one disk under two device names' 1500 losetup
need_attach
mkdisk a 256M
mkdisk b 256M
one=$(loopup "$W/disks/a") two=$(loopup "$W/disks/a") other=$(loopup "$W/disks/b")
[ -b "$one" ] && [ -b "$two" ] && [ -b "$other" ] || skip 'no loop devices can be had'
must 'the daemon answers' up

step 'both names as two disks of a new pool'
if rc_is 'it is refused, or at least told' '2 73 75' dol pool create fake "$one" "$two"; then
    check 'no pool is left' no dol pool show fake
else
    dol space create fake/m --size 64M >/dev/null 2>&1
    u=$(uri fake/m)
    t fill "$u" 0 64M x >/dev/null 2>&1
    dol scrub fake >"$W/out" 2>&1
    say "a mirror on one disk: health says '$(health)', the scrub: $(tail -n 1 "$W/out")"
    dol unserve fake/m >/dev/null 2>&1
    dol pool destroy fake --destroy=fake >/dev/null 2>&1
fi

step 'a second path appears beside a disk in use'
must 'a pool' dol pool create tank "$one" "$other" --destroy "$one" --destroy "$other"
must 'a mirror' dol space create tank/m --size 64M
u=$(uri tank/m)
must 'content' t fill "$u" 0 64M one
rc_is 'adding the other path is refused' '2 73 75' dol pool add tank "$two"
rc_is 'so is a new pool on it' '2 73 75' dol pool create more "$two" --destroy "$two"
check 'content' t check "$u" 0 64M one

step 'the daemon begins again and sees both'
must 'the daemon ends' down
must 'the daemon answers' up --look-in "$one" --look-in "$two" --look-in "$other"
if is_writable tank; then
    say 'opened by one of the paths'
    check 'with two disks, both present' same "$(disk_states tank)" 'present present'
else
    rc_is 'the status' '0 1' dol status
    said 'a name to take away is told' "$one|$two"
    gap 'a disk with two paths keeps its pool from being opened by itself'
    must 'one path goes' losetup -d "$two"
    sleep 1
    rc_is 'imported' '0' dol pool import --pool tank
fi
u=$(uri tank/m)
check 'content' t check "$u" 0 64M one
check 'a scrub' dol scrub tank
check 'nothing is unhealthy' not_unhealthy
end

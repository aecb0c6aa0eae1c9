#!/bin/sh
# A block of a file goes bad on all copies, below each file system: within 60 s `dolmen why` names the file and the disks, whether a
# reader or a scrub finds the block first.
#
# The bytes of the block are found on the files that are the disks, and changed there. Other files keep their bytes.
#
# DOLMEN_BAD_BLOCK_FILESYSTEMS   file systems (default: xfs btrfs ext4)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='bad blocks below volumes'
mount=$run/mnt/home

open_script 4096 python3
filesystems=
for try in ${DOLMEN_BAD_BLOCK_FILESYSTEMS:-xfs btrfs ext4}; do
    if ! need "mkfs.$try"; then
        skip "$script: $try (missing:$missing)"
    elif ! knows_filesystem "$try"; then
        skip "$script: $try (the kernel does not know it)"
    else
        filesystems="$filesystems $try"
    fi
done
: >"$logs/volumes.log"

client() { as_root python3 -B "$root/scripts/integration/bad_block_client.py" "$@"; }

make_volume() {
    note mount "$mount"
    dolmen volume create "$pool/home" --for files --fs "$1" --size 400M --mount "$mount" >>"$logs/volumes.log" 2>&1
}

harms() { client harm "$1" "$disks/a" "$disks/b"; }

reads() { client read "$mount/$1" "$2"; }

# names FILE: the words of `why` have the file, and both disks.
names() {
    dolmen why "$pool/home" >"$logs/why.log" 2>&1
    grep -qF "$1" "$logs/why.log" && grep -qF "$disks/a" "$logs/why.log" && grep -qF "$disks/b" "$logs/why.log"
}

names_in_time() { eventually 60 names "$1" && grep -F "$1" "$logs/why.log" | head -n 1 | sed 's/^/   | /'; }

must 'two disks' make_disks 3072 a b
must 'the daemon answers' daemon_start
must 'the pool is made' dolmen pool create "$pool" "$disks/a" "$disks/b"
for kind in $filesystems; do
    step "$kind"
    must 'a volume' make_volume "$kind"
    must 'three files' client make "$mount"
    must 'a block of "read first" is changed on both disks' harms 'read first'
    must 'its reader gets an error' reads 'read first' error
    must '`why` names it, and the disks' names_in_time 'read first'
    must 'a block of "scrubbed first" is changed on both disks' harms 'scrubbed first'
    must 'a scrub says what is lost' refused 74 'lost: .* of space home' dolmen scrub "$pool"
    must '`why` names it, and the disks' names_in_time 'scrubbed first'
    must 'the third file has its bytes' reads whole whole
    must 'the volume is unmounted' dolmen volume unmount "$pool/home"
    must 'it is deleted' dolmen volume delete "$pool/home"
done

step 'the end'
must 'the daemon ends' daemon_stop
close_script

#!/bin/sh
# Calls that programs depend on, on the mount of a volume and on the same file system on a plain disk: the results are equal.
#
# Renames, links, holes, maps, direct I/O, fsync, a full file system, rights and attributes, by calls of our own; then stress-ng
# with its own verification where it is installed. Each of XFS, ext4 and btrfs that this machine has.
#
# DOLMEN_CONFORMANCE_SECONDS       for each part of stress-ng (default: 5)
# DOLMEN_CONFORMANCE_FILESYSTEMS   file systems (default: xfs ext4 btrfs)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='conformance of volumes'
seconds=${DOLMEN_CONFORMANCE_SECONDS:-5}

# make_plain FILESYSTEM: mounted at $run/mnt/plain.
make_plain() {
    note loop "$run/plain"
    note mount "$run/mnt/plain"
    rm -f "$run/plain"
    truncate -s 400M "$run/plain" || return 1
    # As volumes are made; small ones of ext4 get smaller blocks otherwise.
    case $1 in
    ext4) plain_options='-F -b 4096' ;;
    btrfs) plain_options='-f -d single -m single --mixed -n 4096 -s 4096' ;;
    *) plain_options=-f ;;
    esac
    # shellcheck disable=SC2086 # a list of words
    as_root "mkfs.$1" -q $plain_options "$run/plain" >>"$logs/mkfs.log" 2>&1 || return 1
    # Not by `mount -o loop`, which asks each loop device of this machine.
    plain_device=$(as_root losetup -f --show "$run/plain") || return 1
    mkdir -p "$run/mnt/plain"
    as_root mount -o noatime "$plain_device" "$run/mnt/plain"
}

drop_plain() { as_root umount "$run/mnt/plain" && as_root losetup -d "$plain_device"; }

make_volume() {
    note mount "$run/mnt/$1"
    dolmen volume create "$pool/$1" --for files --fs "$1" --size 400M --mount "$run/mnt/$1" >>"$logs/volumes.log" 2>&1
}

# calls FOLDER: the results lie in FOLDER.txt below $run.
calls() {
    as_root mkdir "$run/mnt/$1/t" || return 1
    # shellcheck disable=SC2046 # a list of words
    attend -- $(rights) python3 -B "$root/scripts/integration/conformance_client.py" "$run/mnt/$1/t" fill >"$run/$1.txt" 2>"$logs/calls.log" || return 1
    as_root rm -rf "$run/mnt/$1/t"
}

are_equal() {
    diff "$run/plain.txt" "$run/$1.txt" >"$logs/difference.log" && return 0
    warn "left the plain disk, right the volume:"
    cat "$logs/difference.log" >&2
    return 1
}

# is_stressed FOLDER PART: stress-ng finds what it wrote, and ends with 0.
is_stressed() {
    as_root mkdir -p "$run/mnt/$1/stress" || return 1
    # shellcheck disable=SC2046 # a list of words
    attend -- $(rights) stress-ng --temp-path "$run/mnt/$1/stress" "--$2" 1 --verify --timeout "$seconds" >"$logs/stress.log" 2>&1 &&
        ! grep -qi 'fail:' "$logs/stress.log"
}

open_script 4096 python3
filesystems=
for try in ${DOLMEN_CONFORMANCE_FILESYSTEMS:-xfs ext4 btrfs}; do
    if ! need "mkfs.$try"; then
        skip "$script: $try (missing:$missing)"
    elif ! knows_filesystem "$try"; then
        skip "$script: $try (the kernel does not know it)"
    else
        filesystems="$filesystems $try"
    fi
done
for tool in setfacl stress-ng fsstress pjdfstest fsx xfstests; do have "$tool" || skip "$script: what $tool tests (it is not installed)"; done
: >"$logs/volumes.log"

must 'two disks' make_disks 3072 a b
must 'the daemon answers' daemon_start
must 'the pool is made' dolmen pool create "$pool" "$disks/a" "$disks/b"
for kind in $filesystems; do
    step "$kind"
    must 'a plain disk' make_plain "$kind"
    must 'a volume' make_volume "$kind"
    must 'calls on the plain disk' calls plain
    must 'calls on the volume' calls "$kind"
    must "$(wc -l <"$run/plain.txt") results are equal" are_equal "$kind"
    must 'the plain disk is dropped' drop_plain
    if have stress-ng; then
        # Those alone that do not ask for a sync of all file systems of this machine.
        for part in hdd rename link fallocate seek xattr chmod copy-file; do
            must "stress-ng --$part" is_stressed "$kind" "$part"
        done
    fi
    must 'the volume is unmounted' dolmen volume unmount "$pool/$kind"
    must 'it is sound' dolmen volume check "$pool/$kind"
    must 'it is deleted' dolmen volume delete "$pool/$kind"
done

step 'the end'
must 'the daemon ends' daemon_stop
must 'the offline check finds the pool clean' cli_check "$disks/a" "$disks/b"
close_script

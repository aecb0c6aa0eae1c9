#!/bin/sh
# File systems on attached spaces: each resiliency with each of ext4, XFS and btrfs.
#
# Each pair gets a part of a real tree and random writes of fio that it can verify later. The daemon is restarted, and
# everything is compared, by fio, by checksums taken of the tree, by the file system's own checker and by the offline
# check of the pool.
#
# DOLMEN_FILESYSTEMS_MIB   how much of the tree, and how much by fio, goes into each space (default: 16)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='file systems on spaces'
mib=${DOLMEN_FILESYSTEMS_MIB:-16}
resiliencies='simple span mirror2 mirror3 mirror4 parity1 parity2 strict'

make_space() {
    case $1 in
    mirror*) set -- "$1" "$2" mirror --copies "${1#mirror}" ;;
    parity*) set -- "$1" "$2" parity --parity "${1#parity}" ;;
    strict) set -- "$1" "$2" mirror --strict ;;
    *) set -- "$1" "$2" "$1" ;;
    esac
    make_name=$1-$2
    shift 2
    # XFS wants 300 MiB at least.
    dolmen space create "$pool/$make_name" --size "$((mib * 8 + 384))M" --resiliency "$@" >/dev/null
}

make_filesystem() {
    # shellcheck disable=SC2046 # a list of words
    attend -- $(rights) "mkfs.$1" -q "$device" >>"$logs/mkfs.log" 2>&1
}

# random_writes FOLDER [OPTION]...: the same blocks with the same content, however often it is called.
random_writes() {
    writes_folder=$1
    shift
    # shellcheck disable=SC2046 # a list of words
    attend -- $(rights) fio --name=random --filename="$writes_folder/random" --size="${mib}M" --rw=randwrite --bs=8k \
        --ioengine=libaio --iodepth=16 --direct=1 --verify=crc32c --verify_fatal=1 --verify_state_save=0 "$@" >>"$logs/fio.log" 2>&1
}

# mount_is_named NAME: the space is not detached, and the answer says where it is mounted.
mount_is_named() {
    if named_said=$(dolmen space detach "$pool/$1" 2>&1); then
        printf '%s\n' "detached under its mount" && return 1
    fi
    case $named_said in
    *"mounted at $run/mnt/$1"*) ;;
    *) printf '%s\n' "$named_said" && return 1 ;;
    esac
}

# put RESILIENCY FILESYSTEM
put() {
    put_name=$1-$2
    make_space "$1" "$2" &&
        attach_space "$put_name" &&
        make_filesystem "$2" &&
        mount_space "$put_name" &&
        copy_tree "$run/list" "$run/mnt/$put_name/tree" &&
        random_writes "$run/mnt/$put_name" --do_verify=0 --end_fsync=1 &&
        mount_is_named "$put_name" &&
        close_space "$put_name"
}

check_filesystem() {
    case $1 in
    ext4) set -- fsck.ext4 -fn "$device" ;;
    xfs) set -- xfs_repair -n "$device" ;;
    btrfs) set -- btrfs check --check-data-csum "$device" ;;
    esac
    # shellcheck disable=SC2046 # a list of words
    attend -- $(rights) "$@" >>"$logs/fsck.log" 2>&1
}

# get RESILIENCY FILESYSTEM
get() {
    get_name=$1-$2
    open_space "$get_name" &&
        compare "$run/sums" "$run/mnt/$get_name/tree" &&
        random_writes "$run/mnt/$get_name" --verify_only &&
        privileged umount "$run/mnt/$get_name" &&
        check_filesystem "$2" &&
        dolmen space detach "$pool/$get_name" >/dev/null
}

# each COMMAND: for every pair.
each() {
    for each_filesystem in $filesystems; do
        for each_resiliency in $resiliencies; do
            must "$each_filesystem on $each_resiliency" "$1" "$each_resiliency" "$each_filesystem"
        done
    done
}

# Prints the file below a loop device of somebody else's whose file system has died, if there is one.
dead_loop() {
    for dead_try in /sys/block/loop*/loop/backing_file; do
        [ -e "$dead_try" ] && read -r dead_file <"$dead_try" || continue
        LC_ALL=C timeout 5 stat "$dead_file" 2>&1 | grep -q 'not connected' && printf '%s\n' "$dead_file" && return 0
    done
    return 1
}

choose_filesystems() {
    filesystems=
    for choose_try in ext4 xfs btrfs; do
        if ! need "mkfs.$choose_try"; then
            skip "$choose_try (missing:$missing)"
        elif ! knows_filesystem "$choose_try"; then
            skip "$choose_try (the kernel does not know it)"
        elif [ "$choose_try" = btrfs ] && dead_below=$(dead_loop); then
            # It looks at what every mounted loop device stands on, and makes nothing if it cannot.
            skip "btrfs (mkfs.btrfs refuses to run while a loop device stands on $dead_below, whose file system has died: unmount and detach it)"
        else
            filesystems="$filesystems $choose_try"
        fi
    done
    [ -n "$filesystems" ] || exit 0
}

open_script $((mib * 80 + 1024)) fio
choose_filesystems
: >"$logs/mkfs.log"
: >"$logs/fio.log"
: >"$logs/fsck.log"

step 'a pool of disks of different sizes'
for disk in a:9 b:7 c:8 d:7 e:11; do
    must "disk ${disk%:*}" make_disk "${disk%:*}" $((${disk#*:} * (mib * 64 + 1024)))
done
must 'the daemon answers' daemon_start
must 'the pool is made' dolmen pool create "$pool" "$disks"/*
must 'the tree is listed, with checksums' pick_tree "$mib"

step 'a tree, and random writes, into each'
each put
show_status
must 'the status says healthy' status_says healthy

step 'the daemon is restarted'
must 'the daemon ends' daemon_stop
must 'the daemon answers' daemon_start

step 'everything is there, and the file systems are sound'
each get
must 'exported' dolmen pool export "$pool"
must 'the daemon ends' daemon_stop

step 'the offline check'
must 'finds the pool clean' cli_check "$disks"/*
close_script

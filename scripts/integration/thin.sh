#!/bin/sh
# Thin spaces of 1 TiB on disks that are far smaller: what file systems claim of them, and what they give back.
#
# ext4 with its lazy initialisation run to the end, on a simple space; XFS and btrfs, on a simple space and on a mirror.
# Then real files are written and deleted, and what is unused has to come back with fstrim.
#
# What came back is compared with what the files claimed: room before, with the files, and without them again.
#
# DOLMEN_THIN_MIB   how much is written into each space (default: 256)
# DOLMEN_THIN_ALL   yes: each of the three on each resiliency, which takes minutes more (default: no)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='thin spaces'
mib=${DOLMEN_THIN_MIB:-256}
space_mib=1048576
# What a file system may claim of a space before anything is written into it: 0.5 %.
claimed_mib_max=$((space_mib * 5 / 1000))

# claimed NAME: MiB of the space for which room is claimed.
claimed() { echo $(($(dolmen -o json space show "$pool/$1" | number_of claimed_bytes) / 1048576)); }

# tell NAME WHEN
tell() {
    tell_mib=$(claimed "$1")
    say "   | $1, $2: $tell_mib MiB claimed, $((tell_mib * 100000 / space_mib / 1000)).$(printf %03d $((tell_mib * 100000 / space_mib % 1000))) % of 1 TiB"
}

# make_space NAME RESILIENCY [OPTION]...
make_space() {
    make_name=$1
    shift
    dolmen space create "$pool/$make_name" --size "${space_mib}M" --resiliency "$@" >>"$logs/mkfs.log" 2>&1
}

make_filesystem() {
    # shellcheck disable=SC2046 # a list of words
    attend -- $(rights) "mkfs.$1" -q "$device" >>"$logs/mkfs.log" 2>&1
}

# Sectors written to the device in $device, zeros included.
written() { awk '{ print $7 }' "/sys/block/$(basename "$(readlink -f "$device")")/stat"; }

# Waits for the end of ext4's lazy initialisation. The kernel begins it some seconds after the mount; it zeroes 16 GiB of
# tables, and is over when it writes nothing for two seconds.
initialised() {
    initialised_last=$(written)
    initialised_first=$initialised_last
    initialised_still=0
    for initialised_try in $(seq 1 600); do
        sleep 0.2
        initialised_now=$(written)
        initialised_still=$((initialised_still + 1))
        [ "$initialised_now" -eq "$initialised_last" ] || initialised_still=0
        initialised_last=$initialised_now
        [ $((initialised_now - initialised_first)) -lt 2097152 ] || [ "$initialised_still" -lt 10 ] || return 0
    done
    return 1
}

# No table of inodes is left that nobody has zeroed; the file system's own word for it.
all_zeroed() {
    zeroed_left=$(as_root dumpe2fs "$device" 2>/dev/null | grep '^Group [0-9]' | grep -vc ITABLE_ZEROED)
    is "$zeroed_left" -eq 0
}

initialise_ext4() {
    mount_space "$1" -o init_itable=0 && initialised && privileged umount "$run/mnt/$1" && all_zeroed
}

# The words that make a space of this kind.
words_of() {
    case $1 in
    mirror[34]) printf 'mirror --copies %s' "${1#mirror}" ;;
    *) printf '%s' "$1" ;;
    esac
}

# prepare NAME FILESYSTEM RESILIENCY [OPTION]...: leaves the space attached.
prepare() {
    prepare_name=$1
    prepare_filesystem=$2
    shift 2
    make_space "$prepare_name" "$@" && attach_space "$prepare_name" && make_filesystem "$prepare_filesystem" || return 1
    [ "$prepare_filesystem" != ext4 ] || initialise_ext4 "$prepare_name"
}

# fill NAME: the tree, as often as it takes.
fill() {
    fill_copies=$(((mib * 1048576 + tree_bytes - 1) / tree_bytes))
    for fill_copy in $(seq 1 "$fill_copies"); do
        copy_tree "$run/list" "$run/mnt/$1/copy-$fill_copy" || return 1
    done
    compare "$run/sums" "$run/mnt/$1/copy-$fill_copies"
}

# trim NAME: deletes the files, and gives back what is unused. XFS and btrfs free what was deleted a moment later.
trim() {
    privileged rm -r "$run/mnt/$1"/copy-* && privileged sync -f "$run/mnt/$1" && sleep 1 && privileged fstrim "$run/mnt/$1"
}

# use NAME: writes, deletes and trims in the attached space; all but a tenth of what the files claimed has come back.
use() {
    use_before=$(claimed "$1")
    must 'mounted' mount_space "$1"
    must "$mib MiB are written, and read back" fill "$1"
    tell "$1" 'written'
    use_full=$(claimed "$1")
    use_taken=$((use_full - use_before))
    # The rows that hold the metadata have room for some of it.
    must 'the files claimed room' is "$use_taken" -ge $((mib / 4))
    must 'deleted and trimmed' trim "$1"
    tell "$1" 'trimmed'
    use_back=$((use_full - $(claimed "$1")))
    say "   | $1: of $use_taken MiB that the files had claimed, $use_back MiB came back, $((use_back * 100 / use_taken)) %"
    must 'at least 90 % of what is unused came back' is $((use_back * 10)) -ge $((use_taken * 9))
    must 'unmounted' privileged umount "$run/mnt/$1"
}

# promised NAME FILESYSTEM RESILIENCY [OPTION]...
promised() {
    if ! need "mkfs.$2"; then
        skip "$2 on a thin space (missing:$missing)"
        return
    elif ! knows_filesystem "$2"; then
        skip "$2 on a thin space (the kernel does not know it)"
        return
    fi
    step "$1"
    promised_name=$1
    must "$2 is made" prepare "$@"
    tell "$promised_name" 'empty'
    must 'claims at most 0.5 %' is "$(claimed "$promised_name")" -le "$claimed_mib_max"
    use "$promised_name"
    must 'detached' dolmen space detach "$pool/$promised_name"
}

# delete NAME: what ext4 leaves would only make the check at the end longer.
delete() {
    must 'deleted' dolmen space delete "$pool/$1" --purge --destroy="$1"
}

open_script $((mib * 16 + 1024)) mkfs.ext4 fstrim dumpe2fs
: >"$logs/mkfs.log"

step 'disks of 240 GiB in all, that take room only where they are written'
must 'disks' make_disks 61440 a b c d
must 'the daemon answers' daemon_start
must 'the pool is made' dolmen pool create "$pool" "$disks"/*
must 'the tree is listed, with checksums' pick_tree "$mib"

all=${DOLMEN_THIN_ALL:-no}
resiliencies='simple mirror'
[ "$all" != yes ] || resiliencies='simple span mirror mirror3 mirror4'
for resiliency in $resiliencies; do
    for filesystem in ext4 xfs btrfs; do
        [ "$filesystem" != ext4 ] || [ "$resiliency" = simple ] || [ "$all" = yes ] || continue
        # shellcheck disable=SC2046 # a list of words
        promised "$filesystem-$resiliency" "$filesystem" $(words_of "$resiliency")
        [ "$filesystem" != ext4 ] || delete "ext4-$resiliency"
    done
done

step 'the offline check'
must 'exported' dolmen pool export "$pool"
must 'the daemon ends' daemon_stop
must 'finds the pool clean' cli_check "$disks"/*
close_script

#!/bin/sh
# Volumes by the command line: made, mounted, written, killed, unmounted, deleted, restored, moved to another daemon.
#
# Each of XFS, ext4 and btrfs that this machine has; the file system's own checker has the last word. Then a thin volume of 1 TiB:
# how long it takes, and what it claims.
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='volumes'

# The mounts are made by the daemon's workers: the record names them before.
expect_mount() { note mount "$run/mnt/$1"; }

# make_volume NAME FILESYSTEM [OPTION]...
make_volume() {
    make_name=$1
    make_kind=$2
    shift 2
    expect_mount "$make_name"
    dolmen volume create "$pool/$make_name" --for files --fs "$make_kind" --mount "$run/mnt/$make_name" "$@" \
        >>"$logs/volumes.log" 2>&1
}

is_mounted() { grep -q " $run/mnt/$1 " /proc/mounts; }

is_unmounted() { ! is_mounted "$1"; }

# write_file NAME: 8 MiB, whose sum is kept.
write_file() {
    # shellcheck disable=SC2016 # the inner shell expands it
    as_root sh -c 'head -c 8388608 /dev/urandom >"$1/file" && sync -f "$1/file" && b2sum <"$1/file" >"$2"' sh \
        "$run/mnt/$1" "$run/sum-$1"
}

# shellcheck disable=SC2016 # the inner shell expands it
has_file() { as_root sh -c 'b2sum <"$1/file" | cmp -s - "$2"' sh "$run/mnt/$1" "$run/sum-$1"; }

all_mounted() {
    for all_name in $filesystems; do
        is_mounted "$all_name" && has_file "$all_name" || return 1
    done
}

none_mounted() {
    for none_name in $filesystems; do
        is_unmounted "$none_name" || return 1
    done
}

# What another host placed: nothing is mounted, and each volume names the command that accepts it.
all_held() {
    none_mounted || return 1
    for all_name in $filesystems; do
        dolmen -o json volume show "$pool/$all_name" |
            grep -q "dolmen volume mount --mount $run/mnt/$all_name $pool/$all_name" || return 1
    done
}

# is_held NAME: with a file of it open, it is neither unmounted nor exported, and the daemon does not end.
is_held() {
    exec 9<"$run/mnt/$1/file" || return 1
    held=0
    for held_try in "volume unmount $pool/$1" "pool export $pool" stop; do
        # shellcheck disable=SC2086 # a list of words
        refused 75 'in use at' dolmen $held_try || held=1
        all_mounted || held=1
    done
    exec 9<&-
    return "$held"
}

claimed_mib() { echo $(($(dolmen -o json volume show "$pool/$1" | number_of claimed_bytes) / 1048576)); }

open_script 4096
filesystems=
for try in xfs ext4 btrfs; do
    if ! need "mkfs.$try"; then
        skip "$try (missing:$missing)"
    elif ! knows_filesystem "$try"; then
        skip "$try (the kernel does not know it)"
    else
        filesystems="$filesystems $try"
    fi
done
[ -n "$filesystems" ] || exit 0
first=${filesystems# }
first=${first%% *}
: >"$logs/volumes.log"

step 'volumes are made, and mounted'
must 'two disks' make_disks 3072 a b
must 'the daemon answers' daemon_start
must 'the pool is made' dolmen pool create "$pool" "$disks/a" "$disks/b"
for kind in $filesystems; do
    must "$kind" make_volume "$kind" "$kind" --size 512M
    must "$kind is mounted" is_mounted "$kind"
    must "a file is written to $kind" write_file "$kind"
done
must 'a mounted space is not deleted by hand' refused 75 'is mounted at' dolmen space delete "$pool/$first"
must 'what is in use stays mounted, with its user named' is_held "$first"

step 'the daemon is killed'
must 'killed' daemon_kill
must 'the next one answers' daemon_start
must 'all are mounted, with their files' all_mounted

step 'the daemon ends in order, and begins again'
must 'it ends' daemon_stop
must 'nothing is mounted' none_mounted
must 'the next one answers' daemon_start
must 'all are mounted, with their files' eventually 10 all_mounted

step 'grown, trimmed, deleted, restored'
if [ "$first" = xfs ]; then
    before=$(df -Pm "$run/mnt/xfs" | awk 'NR == 2 { print $2 }')
    must 'grown' dolmen volume grow "$pool/xfs" 768M
    must 'the file system has grown' is "$(df -Pm "$run/mnt/xfs" | awk 'NR == 2 { print $2 }')" -gt $((before + 200))
fi
for kind in $filesystems; do
    must "$kind is trimmed" dolmen volume trim "$pool/$kind"
    must "$kind is unmounted" dolmen volume unmount "$pool/$kind"
    must "$kind is not mounted" is_unmounted "$kind"
    must "$kind is sound" dolmen volume check "$pool/$kind"
    must "$kind is deleted" dolmen volume delete "$pool/$kind"
    must "$kind is restored" dolmen trash restore "$pool/$kind"
    must "$kind is mounted" dolmen volume mount "$pool/$kind"
done
must 'all files are there' all_mounted

step 'the pool moves to another daemon'
must 'exported' dolmen pool export "$pool"
must 'nothing is mounted' none_mounted
must 'the daemon ends' daemon_stop
daemon_state=$run/other
mkdir -p "$daemon_state"
# Of another host: else it would be this machine's.
od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$daemon_state/host-id"
must 'another daemon answers' daemon_start
must 'imported' dolmen pool import "$disks/a" "$disks/b"
must 'its volumes are held, and their list names the command that accepts each' all_held
must 'exported once more' dolmen pool export "$pool"
must 'imported by one command that accepts them' dolmen pool import --accept "$disks/a" "$disks/b"
must 'all are mounted there, with their files' eventually 10 all_mounted

step 'a thin volume of 1 TiB'
begun=$(date +%s%N)
must 'made' make_volume large "$first" --size 1T
say "   | $first of 1 TiB: $((($(date +%s%N) - begun) / 1000000)) ms, $(claimed_mib large) MiB claimed"
must 'it claims less than 0.5 %' is "$(claimed_mib large)" -lt 5242
must 'the status is healthy' dolmen status

step 'the end'
must 'the daemon ends' daemon_stop
must 'nothing is mounted' none_mounted
must 'the offline check finds the pool clean' cli_check "$disks/a" "$disks/b"
close_script

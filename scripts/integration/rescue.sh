#!/bin/sh
# A way back: the daemon is killed, metadata is destroyed with dd, and file systems are rescued from what is left: by the labels
# and copies that survive, without the log, at older checkpoints, and by slabs alone. What comes out passes its own checker, and
# its files are what was put there. Nothing is written to a disk. No root; with root it is mounted, too.
#
# DOLMEN_RESCUE_BIN   a dolmen-rescue that was built elsewhere
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='a way back'
way=nbd
rescue_bin=${DOLMEN_RESCUE_BIN:-$(dirname "$bin")/dolmen-rescue}
spaces='two three parity dual'
size=32

rescue() { "$rescue_bin" "$@"; }
client() { attend -- python3 "$root/scripts/integration/rescue_client.py" "$@"; }

# Beside a program that was built elsewhere, it has to be there.
build_rescue() {
    [ -z "${DOLMEN_RESCUE_BIN:-}${DOLMEN_BIN:-}" ] || return 0
    # shellcheck disable=SC2086 # a list of words
    attend -- cargo build --release --locked $as_users --package dolmen-rescue-io --bin dolmen-rescue
}

# --- a pool and its content ----------------------------------------------------------------------------------------

make_files() { make_disk a 128 && make_disk b 128 && make_disk c 160 && make_disk d 160 && make_disk e 192; }

# make_space NAME OPTION...
make_space() {
    make_name=$1
    shift
    dolmen space create "$pool/$make_name" --size "${size}M" --resiliency "$@" >>"$logs/make.log"
}
make_spaces() {
    make_space two mirror && make_space three mirror --copies 3 && make_space parity parity && make_space dual parity --parity 2
}

# An ext4 with a part of a tree in it, in a file.
make_image() {
    pick_tree 12 && mkdir -p "$run/tree" && (cd / && xargs -d '\n' cp --parents -t "$run/tree") <"$run/list" &&
        truncate -s "${size}M" "$run/image" && mke2fs -q -t ext4 -O ^has_journal -d "$run/tree" "$run/image" >>"$logs/mkfs.log" 2>&1
}

put_all() {
    for put_name in $spaces; do
        put_uri=$(dolmen serve "$pool/$put_name" | tail -n 1) && [ -n "$put_uri" ] && client put "$put_uri" "$run/image" || return 1
    done
}

# --- what comes out ------------------------------------------------------------------------------------------------

# is_intact FILE: its checker finds nothing, and its files are what was put there.
is_intact() {
    e2fsck -fn "$1" >>"$logs/fsck.log" 2>&1 || { warn "e2fsck of $1"; return 1; }
    rm -rf "$run/dumped" && mkdir "$run/dumped" && debugfs -R "rdump / $run/dumped" "$1" >>"$logs/debugfs.log" 2>&1
    (cd "$run/dumped" && b2sum --quiet -c "$run/sums")
}

# comes_out STATUS NAME [OPTION]... -- DISK...: the space is exported, and leaves with that status.
comes_out() {
    out_status=$1
    out_name=$2
    out_space=$2
    shift 2
    out_options=
    while [ "$1" != -- ]; do
        case $1 in space-*) out_space=$1 ;; *) out_options="$out_options $1" ;; esac
        shift
    done
    shift
    rm -rf "$run/out" && mkdir "$run/out"
    # shellcheck disable=SC2086 # a list of words
    rescue export "$out_space" "$@" --to "$run/out/$out_name" $out_options >"$run/said" 2>&1
    is "$?" -eq "$out_status" || { cat "$run/said" >&2; return 1; }
}

# all_intact [OPTION]... -- DISK...: all spaces come out whole.
all_intact() {
    for all_name in $spaces; do
        comes_out 0 "$all_name" "$@" && is_intact "$run/out/$all_name" || { warn "space $all_name"; cat "$run/said" >&2; return 1; }
    done
}

# --- damage --------------------------------------------------------------------------------------------------------

spoil_copies() { rm -rf "$run/spoilt" && cp -r --sparse=always "$disks" "$run/spoilt"; }

zero() { dd if=/dev/zero of="$1" bs=64k seek="$2" count="$3" conv=notrunc status=none; }

# All front labels, and the whole metadata of two disks: as an installer does that took the wrong ones.
fronts_gone() {
    spoil_copies || return 1
    for fronts_disk in "$run/spoilt"/*; do
        zero "$fronts_disk" 0 16 || return 1
    done
    zero "$run/spoilt/a" 16 128 && zero "$run/spoilt/b" 16 128
}

# All labels, maps and logs.
metadata_gone() {
    spoil_copies || return 1
    for gone_disk in "$run/spoilt"/*; do
        gone_size=$(stat -c %s "$gone_disk")
        zero "$gone_disk" 0 144 && zero "$gone_disk" $((gone_size / 65536 - 32)) 32 || return 1
    done
}

# The log of all disks.
logs_gone() {
    spoil_copies || return 1
    for logs_disk in "$run/spoilt"/*; do
        zero "$logs_disk" 17 32 || return 1
    done
}

unchanged() { (cd "$run/spoilt" && b2sum --quiet -c "$run/before"); }
note_before() { (cd "$run/spoilt" && b2sum ./*) >"$run/before"; }

refuses_to_overwrite() {
    : >"$run/there"
    refused 73 'is there already' rescue export two "$disks"/* --to "$run/there" && [ ! -s "$run/there" ]
}

mounts() {
    mkdir -p "$run/mnt/rescued"
    # shellcheck disable=SC2046 # a list of words
    attend mount "$run/mnt/rescued" -- $(root_words) mount -o ro,loop "$run/out/dual" "$run/mnt/rescued" &&
        (cd "$run/mnt/rescued" && b2sum --quiet -c "$run/sums") && as_root umount "$run/mnt/rescued"
}

open_script 2048 python3 mke2fs e2fsck debugfs
must 'dolmen-rescue is built' build_rescue
[ -x "$rescue_bin" ] || { skip "$script (no $rescue_bin)"; exit 0; }

step 'file systems in spaces of four kinds, and a daemon that is killed'
must 'disks' make_files
must 'an image of a file system' make_image
must 'the daemon answers' daemon_start
must 'the pool is made' dolmen pool create "$pool" "$disks"/*
must 'spaces' make_spaces
must 'the file systems are in them, flushed' put_all
must 'a daemon that has the disks is told of, and does not keep anybody from looking' grep -q 'while it is in use' "$(rescue scan "$disks"/* >"$run/said" 2>&1; echo "$run/said")"
must 'the daemon is killed' daemon_kill

step 'the present'
must 'all of it comes out' all_intact -- "$disks"/*
must 'without two disks' comes_out 0 three -- "$disks"/[abc]
must 'a file that is there is not written over' refuses_to_overwrite
must 'front labels gone on all disks, everything on two' fronts_gone
must 'noted' note_before
must 'all of it comes out of that' all_intact -- "$run/spoilt"/*
must 'no disk was changed' unchanged

step 'what was in place, without the log and without any metadata'
must 'the daemon answers again, and brings all in place' daemon_start
must 'it ends' daemon_stop
must 'logs gone' logs_gone
must 'mirrors come out without the log' comes_out 0 two --without-log -- "$run/spoilt"/*
must 'and are intact' is_intact "$run/out/two"
must 'labels, maps and logs gone' metadata_gone
must 'noted' note_before
must 'nothing is found without a word' refused 74 'from-slabs' rescue list "$run/spoilt"/*
must 'slabs tell of the spaces' grep -q 'space-2 (2)' "$(rescue list --from-slabs "$run/spoilt"/* >"$run/said" 2>&1; echo "$run/said")"
must 'mirrors come out of slabs, but for rows that were never written, which are named' comes_out 1 three space-2 --from-slabs -- "$run/spoilt"/*
must 'and are intact' is_intact "$run/out/three"
must 'and without two of the disks' comes_out 1 three space-2 --from-slabs -- "$run/spoilt"/[abc]
must 'too' is_intact "$run/out/three"
must 'no disk was changed' unchanged

step 'mounted'
if can_root && [ -e /dev/loop-control ] && knows_filesystem ext4; then
    must 'a space comes out' comes_out 0 dual -- "$disks"/*
    must 'it mounts, and its files are what was put there' mounts
else
    skip 'a rescued file system is mounted (no root, no loop devices, or no ext4)'
fi

close_script

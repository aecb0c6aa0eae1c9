#!/bin/sh
# What people get wrong: each is refused with a code and a message that names the object and what to do, and changes
# nothing. Before and after each step the content of all files, and what the daemon says of its pool, are compared.
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='bad input'
outside=$run/outside
second=$run/second

# --- nothing has changed -------------------------------------------------------------------------------------------

# What must not change: files outside of the pool, and the daemon's own word for what it has. Why a disk says nothing of
# itself is left out: that is found out some seconds after a disk has come.
look() {
    find "$outside" -type f -exec stat -c '%n %s %b %y' {} + | sort
    dolmen -o json pool list | sed 's/"smart_silence":\(null\|"[^"]*"\)//g'
    dolmen -o json space list
}

nothing_changed() {
    look >"$run/look-now" 2>&1
    cmp -s "$run/look" "$run/look-now" || { diff "$run/look" "$run/look-now" >&2; return 1; }
}

sums() { find "$outside" -type f -exec b2sum {} + | sort; }
files_are_the_same() { sums | cmp - "$run/sums-outside"; }

# wrong STATUS WORDS COMMAND...: refused, see rig.sh, with nothing changed.
wrong() { refused "$@" && nothing_changed; }

# bad WHAT STATUS WORDS ARGUMENT...: the same for the command line.
bad() {
    bad_what=$1
    bad_status=$2
    bad_words=$3
    shift 3
    must "$bad_what" wrong "$bad_status" "$bad_words" dolmen "$@"
}

bad_pool() {
    pool_what=$1
    pool_status=$2
    pool_words=$3
    shift 3
    bad "$pool_what" "$pool_status" "$pool_words" pool create other "$@"
}

bad_space() {
    space_what=$1
    space_status=$2
    space_words=$3
    shift 3
    bad "$space_what" "$space_status" "$space_words" space create "$@"
}

# --- what is needed ------------------------------------------------------------------------------------------------

make_outside() {
    mkdir -p "$outside/folder"
    for outside_name in good fine mounted shown frozen formatted; do
        truncate -s 96M "$outside/$outside_name"
    done
    truncate -s 1M "$outside/small"
    mkfs.ext4 -q "$outside/formatted" && mkfs.ext4 -q "$outside/mounted" && ln -s good "$outside/link" && chmod 600 "$outside/fine" && mkfifo "$outside/pipe"
}

# make_loop FILE [OPTION]...: sets $loop.
make_loop() {
    loop_path=$1
    shift
    # shellcheck disable=SC2046 # a list of words
    attend loop "$loop_path" -- $(rights) losetup -f "$@" "$loop_path" || return 1
    loop=$(loops_of "$loop_path" "$loop_path/")
    [ -b "$loop" ]
}

make_devices() {
    make_loop "$outside/mounted" && mounted=$loop && make_loop "$outside/frozen" -r && frozen=$loop && make_loop "$outside/shown" &&
        mkdir -p "$run/mnt/mounted" &&
        mount_readonly
}

mount_readonly() {
    # shellcheck disable=SC2046 # a list of words
    attend mount "$run/mnt/mounted" -- $(rights) mount -o ro "$mounted" "$run/mnt/mounted"
}

make_pool() {
    dolmen pool create "$pool" "$disks"/* && dolmen space create "$pool/kept" --size 128M --resiliency mirror && fill_kept
}

# A pool that was given up: its disks hold what somebody may want.
make_theirs() {
    truncate -s 96M "$outside/theirs" "$outside/theirs2" &&
        dolmen pool create theirs "$outside/theirs" "$outside/theirs2" && dolmen space create theirs/x --size 16M --resiliency mirror &&
        dolmen pool export theirs
}

fill_kept() {
    head -c 33554432 /dev/urandom >"$run/content" && serve_kept && nbdcopy --flush "$run/content" "$uri"
}
serve_kept() { uri=$(dolmen serve "$pool/kept" | tail -n 1) && [ -n "$uri" ]; }
kept_is_there() { nbdcopy "$uri" - | head -c 33554432 | cmp - "$run/content"; }

# --- another daemon ------------------------------------------------------------------------------------------------

# second_dolmen ARGUMENT...: the daemon with the other state.
second_dolmen() { privileged env DOLMEN_SOCKET="$second/api" "$bin" "$@"; }

second_start() {
    mkdir -p "$second/daemon"
    # shellcheck disable=SC2046 # a list of words
    begin below "$second/daemon" -- $(rights) "$bin" daemon --state "$second/daemon" --socket "$second/api" --links "$second/links" --named-only >>"$logs/second.log" 2>&1
    second_pid=$!
    eventually 20 second_answers
}
second_answers() {
    second_dolmen status >/dev/null 2>&1
    [ $? -le 1 ]
}
second_stop() {
    send TERM "$second_pid" && wait "$second_pid"
}

same_state() { timeout 20 "$bin" daemon --state "$run/daemon" --socket "$second/api" --named-only; }
same_socket() { timeout 20 "$bin" daemon --state "$second/other" --socket "$socket" --named-only; }

# --- a kernel that lacks something -----------------------------------------------------------------------------------

# In a namespace of mounts of its own a daemon finds no devices but these.
alone='mount -t tmpfs -o mode=755 none "$0" && for node in $DOLMEN_NODES; do cp -a "/dev/$node" "$0/" || exit 1; done && mount --bind "$0" /dev && exec "$@"'

can_unshare() {
    can_root && need unshare && mkdir -p "$second/probe" &&
        as_root unshare -m sh -c 'mount -t tmpfs none "$0" && cp -a /dev/null "$0/" && : >"$0/null"' "$second/probe" 2>/dev/null
}

# start_without_others NODE...: the second daemon, where /dev has nothing but what any program needs and these nodes.
start_without_others() {
    mkdir -p "$second/daemon" "$second/dev"
    # shellcheck disable=SC2046 # a list of words
    begin below "$second/daemon" -- $(rights) env DOLMEN_NODES="null zero random urandom $*" unshare -m \
        sh "$root/scripts/apart.sh" sh -c "$alone" "$second/dev" "$bin" daemon --state "$second/daemon" --socket "$second/api" --links "$second/links" --named-only >>"$logs/second.log" 2>&1
    second_pid=$!
    eventually 20 second_answers
}
make_alone() { truncate -s 96M "$second/a" "$second/b" && second_dolmen pool create alone "$second/a" "$second/b" && second_dolmen space create alone/x --size 16M --resiliency simple; }
end_alone() { second_dolmen pool destroy alone --destroy=alone; }

# --- nobody --------------------------------------------------------------------------------------------------------

nobody() { as_root setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }

# Nobody can be become, and reaches the program and the files here.
can_nobody() { need setpriv && nobody "$bin" --version >/dev/null 2>&1 && nobody test -r "$outside/good" -a -x "$run"; }

nobody_dolmen() { nobody env DOLMEN_SOCKET="$socket" "$bin" "$@"; }

# --- a full file system below --------------------------------------------------------------------------------------

make_tmpfs() {
    mkdir -p "$run/mnt/full"
    # shellcheck disable=SC2046 # a list of words
    attend mount "$run/mnt/full" -- $(rights) mount -t tmpfs -o size=400m tmpfs "$run/mnt/full" &&
        truncate -s 2G "$run/mnt/full/a" "$run/mnt/full/b"
}

make_full() {
    second_dolmen pool create full "$run/mnt/full/a" "$run/mnt/full/b" && second_dolmen space create full/x --size 1G --resiliency simple &&
        full_uri=$(second_dolmen serve full/x | tail -n 1) && nbdcopy --flush "$run/content" "$full_uri"
}
# More than there is room for below.
overfill() { ! qemu-io -f raw -c 'write -P 0x5a 64M 800M' -c flush "$full_uri" >"$logs/full.log" 2>&1 || grep -qi 'fail\|error' "$logs/full.log"; }
second_tells() {
    second_dolmen status >"$logs/full-status.log" 2>&1
    [ $? -le 1 ] && sed 's/^/   | /' "$logs/full-status.log"
}

second_advises() {
    second_dolmen status | tr '\n' ' ' | tr -s ' ' >"$logs/full-advice.log"
    grep -q 'free some room where [^ ]*mnt/full/[ab] lies' "$logs/full-advice.log" && ! grep -q 'replace [^ ]*mnt/full' "$logs/full-advice.log"
}

# Labels, log, map and tables have their room from the beginning.
not_stopped() { ! grep -q 'the pool has stopped' "$logs/second.log"; }

make_room() { as_root mount -o remount,size=2g "$run/mnt/full"; }
full_reads() {
    full_uri=$(second_dolmen serve full/x | tail -n 1)
    qemu-img dd -f raw -O raw bs=1M count=32 if="$full_uri" of="$run/full-content" && cmp "$run/full-content" "$run/content"
}

# A disk comes back to where there is no room for what it missed, and nobody says a word when there is.
make_late() {
    truncate -s 256M "$run/mnt/full/c" "$run/mnt/full/d" && second_dolmen pool create late "$run/mnt/full/c" "$run/mnt/full/d" &&
        second_dolmen space create late/m --size 128M --resiliency mirror --row 2M
}
take_late_away() { mkdir -p "$run/mnt/full/away" && mv "$run/mnt/full/d" "$run/mnt/full/away/"; }
fill_late() { full_uri=$(second_dolmen serve late/m | tail -n 1) && nbdcopy --flush "$run/content" "$full_uri"; }
take_room() { as_root mount -o remount,size="$(df --output=used -k "$run/mnt/full" | tail -n 1 | tr -d ' ')k" "$run/mnt/full"; }
bring_late_back() { mv "$run/mnt/full/away/d" "$run/mnt/full/" && second_dolmen disk online late 1 >"$logs/late.log" 2>&1; }
late_waits() { grep -q '16 slabs wait for room below' "$logs/late.log" && second_dolmen status | tr '\n' ' ' | grep -q 'late [isare]* not on all [a-z]* disks yet'; }
late_is_whole() { ! second_dolmen status | tr '\n' ' ' | grep -q 'late [isare]* not on all [a-z]* disks yet'; }
late_is_sound() { second_dolmen scrub late | tee "$logs/late-scrub.log" | grep -q 'all sound'; }

# --- labels --------------------------------------------------------------------------------------------------------

# Where the four copies of the label of a disk of 512 MiB stand, by docs/format/label.md.
label_places='65536 131072 535822336 535887872'

# byte FILE PLACE, put_byte FILE PLACE VALUE
byte() { od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' '; }
# shellcheck disable=SC2059 # the format is the byte
put_byte() { printf "\\$(printf %03o "$3")" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }

# turn_labels FILE: a bit in each copy of its label; once more turns it back.
turn_labels() {
    for turn_place in $label_places; do
        turn_at=$((turn_place + 300))
        turn_byte=$(byte "$1" "$turn_at")
        put_byte "$1" "$turn_at" $((turn_byte ^ 1)) || return 1
    done
}

copy_disks() { mkdir -p "$run/copies" && cp --sparse=always "$disks"/* "$run/copies/"; }
# The version stands behind the magic of eight bytes.
# set_version NUMBER: all labels of the copies have that version.
set_version() {
    for version_copy in "$run/copies"/*; do
        for version_place in $label_places; do
            put_byte "$version_copy" $((version_place + 8)) "$1" || return 1
        done
    done
    look_at_copies >"$run/look-copies"
}
make_newer() { newer=$(($(byte "$run/copies/a" 65544) + 1)) && set_version "$newer"; }
make_older() { older=$((newer - 2)) && set_version "$older"; }
look_at_copies() { stat -c '%n %s %b %y' "$run/copies"/*; }
copies_are_the_same() { look_at_copies | cmp - "$run/look-copies"; }

# The client that has just read may still be leaving.
leaves() { eventually 10 dolmen pool export "$pool"; }

opens_without_c() {
    dolmen pool import "$disks" >"$logs/labels.log" 2>&1 && sed 's/^/   | /' "$logs/labels.log" &&
        grep -q "$disks/c has labels of a pool, and is left out: the label at byte" "$logs/labels.log"
}
comes_back_whole() {
    dolmen pool import "$disks" >"$logs/labels.log" 2>&1 && serve_kept && eventually 60 is_healthy
}
is_healthy() { show_status >/dev/null && status_says healthy && ! status_says 'warning\|unhealthy'; }

open_script 4096 mkfs.ext4 nbdcopy qemu-io qemu-img
: >"$logs/second.log"
must 'files' make_outside
must 'devices' make_devices
must 'disks' make_disks 512 a b c
must 'the daemon answers' daemon_start
must 'a pool with a space in use' make_pool
must 'a pool of somebody else' make_theirs
look >"$run/look" 2>&1
sums >"$run/sums-outside"

step 'disks that cannot be used'
bad_pool 'mounted' 75 "$mounted
mounted at $run/mnt/mounted" "$mounted" "$outside/good"
bad_pool 'shown by a loop device' 75 "$outside/shown
/dev/loop" "$outside/shown" "$outside/good"
bad_pool 'too small' 2 "$outside/small" "$outside/small" "$outside/good"
bad_pool 'read-only' 2 "$frozen
read-only" "$frozen" "$outside/good"
bad_pool 'listed twice' 2 "$outside/good" "$outside/good" "$outside/good"
bad_pool 'listed twice, under another name' 2 "$outside/good" "$outside/good" "$outside/link"
bad_pool 'in another pool' 75 "$disks/a" "$disks/a" "$outside/good"
bad_pool 'with a file system' 73 "$outside/formatted
ext4" "$outside/formatted" "$outside/good"
bad_pool 'not there' 2 "$outside/nothing" "$outside/nothing"
bad_pool 'a folder' 2 "$outside/folder" "$outside/folder"
bad_pool 'a pipe' 2 "$outside/pipe" "$outside/pipe"
bad_pool 'no disk at all' 2 /dev/null /dev/null
bad_pool 'none named' 2 'DISK'
for how in 'pool add' 'disk replace'; do
    of=$pool
    [ "$how" = 'pool add' ] || of="$pool $disks/c"
    # shellcheck disable=SC2086 # two words, and one or two
    {
        bad "$how: mounted" 75 "$mounted" $how $of "$mounted"
        bad "$how: too small" 2 "$outside/small" $how $of "$outside/small"
        bad "$how: read-only" 2 "$frozen" $how $of "$frozen"
        bad "$how: with a file system" 73 "$outside/formatted
ext4" $how $of "$outside/formatted"
        bad "$how: of another pool" 73 "$outside/theirs
theirs" $how $of "$outside/theirs"
        bad "$how: not there" 2 "$outside/nothing" $how $of "$outside/nothing"
    }
done
bad 'pool add: its own disk' 75 "$disks/a is a disk of pool $pool" pool add "$pool" "$disks/a"
bad 'disk replace: by a disk that is in the pool' 75 "$disks/a" disk replace "$pool" "$disks/c" "$disks/a"
bad 'pool add: listed twice' 2 "$outside/good" pool add "$pool" "$outside/good" "$outside/link"
bad_pool 'of a pool that was exported' 73 "$outside/theirs
theirs" "$outside/theirs" "$outside/good"
must 'the files are what they were' files_are_the_same

step 'names'
for name in '' 'a/b' '-x' 'two words' "$(printf '%064d' 0)" 'größe'; do
    must "pool '$name'" wrong 2 '.' dolmen pool create -- "$name" "$outside/good"
    must "space '$name'" wrong 2 '.' dolmen space create --size 64M -- "$pool/$name"
done
bad 'a pool of that name is there' 2 "named $pool already" pool create "$pool" "$outside/good"
bad_space 'a space of that name is there' 2 'named kept' "$pool/kept" --size 64M
bad_space 'no such pool' 2 'nowhere' nowhere/x --size 64M
bad 'no such space' 2 'nothing' space attach "$pool/nothing"
bad 'no such disk' 2 "$disks/z" disk replace "$pool" "$disks/z" "$outside/good"
must 'the files are what they were' files_are_the_same

step 'sizes and shapes of spaces'
bad_space 'nothing' 2 'a size of 0 holds nothing' "$pool/x" --size 0
bad_space 'negative' 2 '\-1' "$pool/x" --size -1
bad_space 'more than anybody has' 2 '9E' "$pool/x" --size 9E
bad_space 'more than a number holds' 2 '99999E' "$pool/x" --size 99999E
bad_space 'no number' 2 'large' "$pool/x" --size large
bad_space 'half a block' 2 '4 KiB' "$pool/x" --size 1000
bad_space 'fixed, and larger than the pool' 2 '100 GiB' "$pool/x" --size 100G --provisioning fixed
bad_space 'more copies than disks' 2 'copies\|disks' "$pool/x" --size 64M --copies 4
bad_space 'more copies than there are' 2 'copies\|5' "$pool/x" --size 64M --copies 5
bad_space 'copies of a simple space' 2 'copies\|copy' "$pool/x" --size 64M --resiliency simple --copies 2
bad_space 'no columns' 2 '0' "$pool/x" --size 64M --columns 0
bad_space 'more columns than disks' 2 'columns' "$pool/x" --size 64M --resiliency simple --columns 9
bad_space 'an interleave that is no power of two' 2 '16K, 32K, 64K, 128K, 256K, 512K or 1024K' "$pool/x" --size 64M --interleave 48K
bad_space 'a row that is too long' 2 'row' "$pool/x" --size 64M --row 2G
bad_space 'a row that is too short' 2 'row' "$pool/x" --size 64M --row 4K
bad_space 'a row with too few interleaves for parity' 2 'a longer row or a shorter interleave' "$pool/x" --size 64M --resiliency parity --row 1M --interleave 1M
bad 'shrunk below what is written' 73 "$pool/kept" space resize "$pool/kept" 4K
bad 'the wrong name typed, of what is served' 75 'while it is served' space delete "$pool/kept" --purge --destroy=other
must 'the content is what it was' kept_is_there

step 'two daemons'
must 'the same state is refused' wrong 75 "$run/daemon.*held by another daemon" same_state
must 'the same socket is refused' wrong 75 "$socket.*held by another daemon" same_socket
must 'a second daemon with its own' second_start
must 'it cannot import the same disks' wrong 75 "$disks/a" second_dolmen pool import "$disks/a" "$disks/b" "$disks/c"
must 'nor use one of them' wrong 75 "$disks/a" second_dolmen pool create other "$disks/a" "$outside/good"
must 'nor check them' wrong 75 "$disks/a" cli_check "$disks"/*
must 'the content is what it was' kept_is_there

step 'no FUSE, no loop devices'
if can_unshare; then
    must 'the second daemon ends' second_stop
    must 'one without /dev/fuse' start_without_others
    must 'has a pool' make_alone
    must 'attaching is refused' refused 69 "/dev/fuse.*modprobe fuse
dolmen serve" second_dolmen space attach alone/x
    must 'it ends' second_stop
    must 'one without loop devices' start_without_others fuse
    must 'attaching is refused' refused 69 "/dev/loop-control.*modprobe loop
dolmen serve" second_dolmen space attach alone/x
    must 'serving is not' second_dolmen serve alone/x
    must 'served no more' second_dolmen unserve alone/x
    must 'the pool goes' end_alone
    must 'it ends' second_stop
    must 'the second daemon starts again' second_start
else
    skip 'a kernel without FUSE or loop devices (no root, or no namespace of mounts)'
fi

step 'no rights'
if ! can_root || ! can_nobody; then
    skip 'commands of nobody (cannot become nobody, or nobody may not reach the program or its files)'
else
    must 'nobody asks the daemon' wrong 77 'permission\|Permission' nobody_dolmen status
    must 'nobody starts a daemon' wrong 77 "$second/none" nobody "$bin" daemon --state "$second/none" --socket "$second/none.sock"
    must 'nobody checks disks' wrong 77 "$outside/fine" nobody "$bin" check "$outside/fine"
fi
must 'the files are what they were' files_are_the_same

step 'no room below'
must 'a small file system' make_tmpfs
must 'a pool on files in it that promise more' make_full
must 'it runs full: the client hears of it' overfill
must 'the daemon lives, and tells' second_tells
must 'it says what to do' second_advises
must 'it ends' second_stop
must 'the pool was not stopped' not_stopped
must 'room is made' make_room
must 'it starts again' second_start
must 'what was flushed reads back' full_reads
must 'the daemon lives, and tells' second_tells
must 'a mirror in it' make_late
must 'it ends' second_stop
must 'one of its disks is taken away' take_late_away
must 'it starts without it' second_start
must 'the mirror takes new rows' fill_late
must 'no room is left' take_room
bring_late_back
must 'the disk is back, and what it missed waits' late_waits
must 'room is made' make_room
must 'it is brought up to date by itself' eventually 60 late_is_whole
must 'all of it is sound' late_is_sound
must 'the second daemon ends' second_stop

step 'labels of another version, and with turned bits'
must 'exported' leaves
must 'the daemon ends' daemon_stop
must 'the check finds the pool clean' cli_check "$disks"/*
must 'copies of its disks' copy_disks
must 'their labels say that a newer version wrote them' make_newer
must 'the check says so' refused 1 "$run/copies/a: .*format version $newer, .*use a newer dolmen" cli_check "$run/copies"/*
must 'the daemon answers' daemon_start
must 'the import says so' refused 2 "$run/copies/c: .*format version $newer, .*use a newer dolmen" dolmen pool import "$run/copies"
must 'no pool is made of them' refused 73 "$run/copies/a.*nothing was written.*format version $newer" dolmen pool create other "$run/copies/a"
must 'the copies are what they were' copies_are_the_same
must 'their labels say that an older version wrote them' make_older
must 'the check says so' refused 1 "$run/copies/a: .*belongs to pool .*format $older; .*nothing was changed" cli_check "$run/copies"/*
must 'the import says so' refused 2 "$run/copies/c: .*belongs to pool .*format $older; .*nothing was changed" dolmen pool import "$run/copies"
must 'no pool is made of them' refused 73 "$run/copies/a.*nothing was written.*format $older" dolmen pool create other "$run/copies/a"
must 'the copies are what they were' copies_are_the_same
must 'in one disk every label has a turned bit' turn_labels "$disks/c"
must 'the others open without it, and it is named' opens_without_c
must 'served' serve_kept
must 'the content is what it was' kept_is_there
must 'exported' leaves
must 'the daemon ends' daemon_stop
must 'the check names it' refused 1 "D102 $disks/c: .*the label at byte 65536 is damaged" cli_check "$disks"/*
must 'the bits turn back' turn_labels "$disks/c"
must 'the daemon answers' daemon_start
must 'it is taken in again' comes_back_whole
must 'the content is what it was' kept_is_there

step 'an image cut short'
must 'exported' leaves
must 'the daemon ends' daemon_stop
must 'the check finds the pool clean' cli_check "$disks"/*
must 'cut' truncate -s 200M "$disks/b"
must 'the check says which' refused 1 "$disks/b" cli_check "$disks"/*
must 'the daemon answers' daemon_start
must 'the others open without it' dolmen pool import "$disks"/*
must 'served' serve_kept
must 'the content is what it was' kept_is_there
show_status
must 'the status says what is wrong with it' status_says "$disks/b.*cut short"
must 'the daemon ends' daemon_stop
close_script

#!/bin/sh
# The daemon is killed under a mounted file system, again and again, and replaced in good order: I/O pauses and goes on.
# What would take a file system away is refused, with its mount point named.
#
# DOLMEN_KILL_ROUNDS   how often the daemon is killed (default: 4)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='killing the daemon'
rounds=${DOLMEN_KILL_ROUNDS:-4}
mnt=$run/mnt/home

make_home() {
    # shellcheck disable=SC2046 # a list of words
    dolmen space create "$pool/home" --size 2G --resiliency mirror && attach_space home &&
        attend -- $(rights) mkfs.ext4 -q "$device" && mount_space home && kernel_name=$(basename "$(readlink -f "$device")")
}

# Writes with checksums and verifies what it wrote shortly after, until $run/stop is there; any error ends it.
load_begin() {
    rm -f "$run/stop"
    # shellcheck disable=SC2016,SC2046 # the inner shell expands it; a list of words
    begin -- $(rights) sh -c 'while [ ! -e "$1/stop" ]; do
            fio --name=load --filename="$2/load" --size=96M --rw=randwrite --bsrange=4k-64k --blockalign=4k --fsync=32 \
                --ioengine=libaio --iodepth=16 --direct=1 --verify=crc32c --verify_backlog=64 --verify_fatal=1 \
                --verify_state_save=0 --exitall_on_error || exit 1
        done' sh "$run" "$mnt" >"$logs/fio.log" 2>&1
    load_pid=$!
    load_started=$(start_time "$load_pid")
}

load_runs() { is_process "$load_pid" "$load_started" || { tail -n 20 "$logs/fio.log" >&2; return 1; }; }
load_end() { : >"$run/stop" && wait "$load_pid" || { tail -n 20 "$logs/fio.log" >&2; return 1; }; }

# Requests that the device has answered.
answered() { awk '{ print $1 + $5 }' "/sys/block/$(basename "$(readlink -f "$device")")/stat"; }
has_moved() { [ "$(answered)" -gt "$moved_from" ]; }
moves_on() {
    moved_from=$(answered)
    eventually 30 has_moved
}

# With the daemon gone nothing is answered, and nothing fails.
stands_still() {
    # What was answered just before the end is counted a moment later.
    sleep 0.3
    still_from=$(answered)
    sleep 1
    is "$(answered)" -eq "$still_from" && load_runs
}

# What the kernel has said of the device since the start of this run, and of tasks that hang. By the end it is detached: its
# name was noted when it was there.
complaints() {
    as_root dmesg | sed 's/^\[ *\([0-9.]*\)\] /\1 /' |
        awk -v start="$kernel_start" -v device="$kernel_name" \
            '$1 > start && (index($0, device) && /error|fail|abort|corrupt|remount/ || /blocked for more than/)'
}
kernel_is_content() {
    kernel_said=$(complaints)
    [ -z "$kernel_said" ] || { warn "$kernel_said"; return 1; }
}

# The moment of a kill within a round, drawn by chance.
drawn_pause() { sleep "$(od -An -N1 -tu1 /dev/urandom | awk '{ printf "%.2f", 0.5 + $1 / 170 }')"; }

kill_and_start() {
    drawn_pause
    daemon_kill || return 1
    stands_still || { warn 'the load did not wait'; return 1; }
    daemon_start && moves_on && load_runs
}

daemon_is_itself() { [ -n "$(daemon_self)" ]; }

# Killed again while it takes up what the one before has left.
kill_twice() {
    daemon_kill || return 1
    for twice_pause in 0.05 0.15 0.4; do
        daemon_begin
        eventually 5 daemon_is_itself && sleep "$twice_pause"
        daemon_kill || return 1
    done
    daemon_start && moves_on && load_runs
}

hand_over() { dolmen stop --hand-over && daemon_ends && stands_still && daemon_start && moves_on && load_runs; }

# The tree arrives whole although the daemon dies on the way.
copy_under_kill() {
    # shellcheck disable=SC2016,SC2046 # the inner shell expands it; a list of words
    begin -- $(rights) sh -c 'mkdir "$2/tree" && tar -C / -cf - -T "$1" | tar -C "$2/tree" -xf - && sync -f "$2"' \
        sh "$run/list" "$mnt" >>"$logs/copy.log" 2>&1
    copy_pid=$!
    sleep 0.3
    daemon_kill && sleep 0.5 && daemon_start && wait "$copy_pid"
}

is_sound() { privileged fsck.ext4 -fn "$device" >"$logs/fsck.log" 2>&1 || { cat "$logs/fsck.log" >&2; return 1; }; }

# TERM asks; while the space is in use the daemon says why not, and goes on.
term_is_refused() {
    : >"$logs/daemon.log"
    send TERM "$daemon_pid" && eventually 10 grep -q "the daemon goes on" "$logs/daemon.log" && grep "the daemon goes on" "$logs/daemon.log" | grep -q "mounted at $mnt" && cli_status >/dev/null
}

hold_open() {
    # shellcheck disable=SC2016,SC2046 # the inner shell expands it; a list of words
    begin -- $(rights) sh -c 'exec 7<"$1"; sleep 600' sh "$device"
    hold_pid=$!
    hold_started=$(start_time "$hold_pid")
    eventually 10 held
}
held() { members "$hold_pid" "$hold_started" | while read -r held_pid; do as_root readlink "/proc/$held_pid/fd/7"; done | grep -q "^/dev/loop"; }
let_go() { undo_session "$hold_pid $hold_started"; }

open_script 2048 mkfs.ext4 fio
as_root dmesg >/dev/null 2>&1 || skip "what the kernel says of the device (dmesg is forbidden)"
kernel_start=$(cut -d' ' -f1 /proc/uptime)

step 'a file system under load'
must 'disks' make_disks 4096 a b c
must 'the daemon answers' daemon_start
must 'the pool is made' dolmen pool create "$pool" "$disks"/*
must 'ext4 is mounted' make_home
must 'the tree is listed, with checksums' pick_tree 64
must 'the load begins' load_begin
must 'and is answered' moves_on

step 'kill -9'
for round in $(seq 1 "$rounds"); do
    must "round $round: I/O pauses and goes on" kill_and_start
done
must 'killed while it recovers, three times' kill_twice
must 'files arrive whole meanwhile' copy_under_kill

step 'another daemon takes over, as at an upgrade'
must 'the one hands over, the other takes up' hand_over
must 'the load has seen no error' load_end
must 'the kernel has nothing to complain of' kernel_is_content
must 'the files are what they were' compare "$run/sums" "$mnt/tree"

step 'what is mounted is not taken away'
must 'detach is refused' refused 75 "mounted at $mnt" dolmen space detach "$pool/home"
must 'export is refused' refused 75 "mounted at $mnt" dolmen pool export "$pool"
must 'stop is refused' refused 75 "mounted at $mnt" dolmen stop
must 'TERM is refused' term_is_refused
must 'deleting is refused' refused 75 "$run/links/$pool/home" dolmen space delete "$pool/home" --purge --destroy=home
must 'destroying the pool is refused' refused 75 "mounted at $mnt" dolmen pool destroy "$pool" --destroy="$pool"
must 'the file system is untouched' compare "$run/sums" "$mnt/tree"
must 'unmounted' privileged umount "$mnt"
must 'a process has the device open' hold_open
must 'detach is refused' refused 75 'open in process [0-9]* (sh)' dolmen space detach "$pool/home"
must 'the process ends' let_go

step 'the end'
must 'the file system is sound' is_sound
must 'detached' dolmen space detach "$pool/home"
must 'the kernel has nothing to complain of' kernel_is_content
show_status
must 'the status says healthy' status_says healthy
must 'exported' dolmen pool export "$pool"
must 'the daemon ends' daemon_stop
must 'the check finds the pool clean' cli_check "$disks"/*
close_script

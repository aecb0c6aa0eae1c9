#!/bin/sh
# ./demo is killed in its midst, several times, its shell alone, so that all it started lives on; and at last with all that it
# started, so that nobody takes anything away by himself. The next run clears what is there by the record, succeeds, and leaves
# nothing: no process, no mount, no loop device, no link in /dev/dolmen.
#
# DOLMEN_KILL_IN   steps of the demo in which it is killed, run by run, the last one with spaces attached (default: "2 4 6 8")
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='killing the demo'
theirs=$state/d

# demo_words: what starts the demo, with little to copy and the program that is built already.
demo_words() { printf '%s\n' env "DOLMEN_STATE=$theirs" "DOLMEN_BIN=$bin" DOLMEN_DEMO_MIB=128 sh ./demo; }

# killed_in STEP: a second after that step has begun.
killed_in() {
    : >"$logs/killed.log"
    # shellcheck disable=SC2046 # a list of words
    begin -- $(demo_words) >"$logs/killed.log" 2>&1
    killed_pid=$!
    killed_started=$(start_time "$killed_pid")
    eventually 240 grep -q "^== $1\." "$logs/killed.log" || return 1
    sleep 1
    is_process "$killed_pid" "$killed_started" || { tail -n 20 "$logs/killed.log" >&2; return 1; }
    kill -KILL "$killed_pid"
    wait "$killed_pid"
    say "   | $(grep '^== ' "$logs/killed.log" | tail -n 1)"
}

# What an outsider sees of the demo's folder.
processes() { pgrep -f -- "$theirs/" || :; }
mounts() { grep -F " $theirs/" /proc/mounts || :; }
loops() { losetup -n -O BACK-FILE 2>/dev/null | grep -F "$theirs/" || :; }
# A pool's links name neither folder nor process: those that are not of before the first demo.
all_links() { find /dev/dolmen -mindepth 1 2>/dev/null || :; }
links() { all_links | grep -vxF -f "$run/links-before" || :; }
something_is_left() { [ -n "$(processes)$(mounts)$(loops)" ]; }
links_are_left() { [ -n "$(links)" ]; }
nothing_is_left() { ! { something_is_left || links_are_left; } || { processes; mounts; loops; links; return 1; } >&2; }

# As a system does that ends a session: again and again, because what is killed may just have started something.
all_killed() { eventually 20 nothing_runs || { pgrep -a -f -- "$theirs/" >&2; return 1; }; }
nothing_runs() {
    running=
    for running_pid in $(processes); do
        # What waits for a device without a daemon ends with the device.
        grep -qs '^State:[[:space:]]*D' "/proc/$running_pid/status" || running="$running $running_pid"
    done
    # shellcheck disable=SC2086 # a list of pids
    [ -z "$running" ] || { send KILL $running || :; return 1; }
}

# what_failed LOG: where the demo failed and what was said there, or else its end.
what_failed() { grep -B 24 -A 6 '^FAILED' "$1" || tail -n 20 "$1"; }

whole() {
    # shellcheck disable=SC2046 # a list of words
    attend -- $(demo_words) >"$logs/whole.log" 2>&1 || { what_failed "$logs/whole.log" >&2; return 1; }
    say "   | $(tail -n 1 "$logs/whole.log")"
}

open_script 4096 mkfs.ext4 mkfs.xfs xfs_io pgrep
note nested "$theirs"
all_links >"$run/links-before"

step 'killed'
for in_step in ${DOLMEN_KILL_IN:-2 4 6 8}; do
    must "killed in step $in_step" killed_in "$in_step"
done
must 'the daemon and more live on' something_is_left
must 'the next run succeeds' whole
must 'and leaves nothing' nothing_is_left

step 'killed with all that it started'
must "killed in step $in_step" killed_in "$in_step"
must 'all of it' all_killed
must 'links of the pool are left' links_are_left
must 'the next run succeeds' whole
must 'and leaves nothing' nothing_is_left
close_script

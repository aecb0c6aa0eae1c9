#!/bin/sh
# ./demo is killed in its midst, several times, its shell alone, so that all it started lives on. The next run clears that
# away by the record, succeeds, and leaves nothing: no process, no mount, no loop device.
#
# DOLMEN_KILL_IN   steps of the demo in which it is killed, run by run (default: "2 4 6 8")
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
something_is_left() { [ -n "$(processes)$(mounts)$(loops)" ]; }
nothing_is_left() { ! something_is_left || { processes; mounts; loops; return 1; } >&2; }

# what_failed LOG: where the demo failed and what was said there, or else its end.
what_failed() { grep -B 24 -A 6 '^FAILED' "$1" || tail -n 20 "$1"; }

whole() {
    # shellcheck disable=SC2046 # a list of words
    attend -- $(demo_words) >"$logs/whole.log" 2>&1 || { what_failed "$logs/whole.log" >&2; return 1; }
    say "   | $(tail -n 1 "$logs/whole.log")"
}

open_script 4096 mkfs.ext4 mkfs.xfs xfs_io pgrep
note nested "$theirs"

step 'killed'
for in_step in ${DOLMEN_KILL_IN:-2 4 6 8}; do
    must "killed in step $in_step" killed_in "$in_step"
done
must 'the daemon and more live on' something_is_left

step 'the next run'
must 'succeeds' whole
must 'leaves nothing' nothing_is_left
close_script

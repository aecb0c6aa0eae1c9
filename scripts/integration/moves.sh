#!/bin/sh
# Pools that move between hosts: exported, or found on some of their disks; opened for reading; wanted by two at once. A
# pool that is full, the daemon killed in the middle of changes, and a mirror that goes on with one disk less.
#
# A host is a daemon with a state directory and an identity of its own. All of it goes over NBD, and needs no root.
#
# DOLMEN_MOVES_KILLS   how often the daemon is killed in the middle of each kind of change (default: 6)
# DOLMEN_MOVES_SEED    what the moments of these kills are drawn from (default: 1)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='moves'
way=nbd
kills=${DOLMEN_MOVES_KILLS:-6}
seed=${DOLMEN_MOVES_SEED:-1}
content_bytes=25165824

# --- hosts ---------------------------------------------------------------------------------------------------------

# be HOST: what follows is said to the daemon of that host, and meant by `daemon_...`.
be() {
    host=$1
    daemon_state=$run/$1
    socket=$run/$1.api
    eval "daemon_pid=\${pid_$1:-} daemon_started=\${started_$1:-}"
}

# at HOST COMMAND...
at() {
    be "$1"
    shift
    "$@"
}

make_identity() {
    [ -s "$daemon_state/host-id" ] || { mkdir -p "$daemon_state" && od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$daemon_state/host-id"; }
}
keep_process() { eval "pid_$host=$daemon_pid started_$host=$daemon_started"; }
start() { make_identity && daemon_begin && keep_process && daemon_answers; }
stop() { daemon_stop; }
# Nothing stands between this script and the daemon; whoever waits for it sees the end of all its threads.
strike() {
    kill -KILL "$daemon_pid" || return 1
    wait "$daemon_pid"
    return 0
}

# says WORDS COMMAND...: it succeeds and its answer has these words, a basic regular expression.
says() {
    says_words=$1
    shift
    says_answer=$("$@" 2>&1 </dev/null) || { warn "$says_answer"; return 1; }
    printf '%s' "$says_answer" | tr '\n' ' ' | grep -q -e "$says_words" || { warn "'$says_words' is not in: $says_answer"; return 1; }
}

# status_tells WORDS...: each of these basic regular expressions is in the status.
status_tells() {
    show_status
    for status_words in "$@"; do
        tr '\n' ' ' <"$logs/status.log" | grep -q -e "$status_words" || { warn "the status has no '$status_words'"; return 1; }
    done
}
list_is_empty() { [ -z "$(dolmen -o json pool list | number_of space_count)" ]; }

# --- content -------------------------------------------------------------------------------------------------------

serve() { uri=$(dolmen serve "$pool/$1" 2>>"$logs/serve.log" | tail -n 1) && [ -n "$uri" ]; }
fill() { serve "$1" && nbdcopy --flush "$run/content" "$uri"; }
# holds SPACE FILE: the space begins with what is in the file, byte for byte.
holds() { serve "$1" && nbdcopy "$uri" - | head -c "$(stat -c %s "$2")" | sha256sum | cmp - "$2.sum"; }
note_sum() { sha256sum <"$1" >"$1.sum"; }
make_content() { head -c "$content_bytes" /dev/urandom >"$run/$1" && note_sum "$run/$1"; }

# qemu COMMAND...: in one qemu-io on $uri; fails where one of them does.
qemu() {
    for qemu_command in "$@"; do
        set -- "$@" -c "$qemu_command"
        shift
    done
    qemu-io -f raw "$@" "$uri" >"$logs/qemu-io.log" 2>&1 && ! grep -qi 'fail\|error\|invalid' "$logs/qemu-io.log" && return 0
    sed 's/^/   | /' "$logs/qemu-io.log" >&2
    return 1
}
# qemu_meets WORDS COMMAND...: fails with these words.
qemu_meets() {
    meets_words=$1
    shift
    ! qemu "$@" 2>/dev/null && grep -q "$meets_words" "$logs/qemu-io.log" && return 0
    sed 's/^/   | /' "$logs/qemu-io.log" >&2
    return 1
}

# --- disks ---------------------------------------------------------------------------------------------------------

sums() { sha256sum "$disks"/* >"$run/$1"; }
disks_are_untouched() { sums sums-now && cmp "$run/sums-now" "$run/sums-then"; }
# untouched COMMAND...: what it does leaves every byte of every disk as it was.
untouched() {
    "$@" || return 1
    disks_are_untouched
}
take_away() { mkdir -p "$run/away" && mv "$disks/$1" "$run/away/"; }
bring_back() { mv "$run/away/$1" "$disks/"; }
forget_disks() { rm -rf "$disks" "$run/away" && mkdir -p "$disks"; }
fresh_disks() { forget_disks && make_disks "$@"; }

make_pool() {
    dolmen pool create "$pool" "$disks"/* && dolmen space create "$pool/kept" --size "$content_bytes" --row 2M && fill kept
}
import() { dolmen pool import "$@" "$disks"/*; }
is_clean() { cli_check "$disks"/* >"$logs/check.log" 2>&1 || { cat "$logs/check.log" >&2; return 1; }; }
job_ends() { dolmen jobs "$(dolmen -o json jobs | number_of id)" --wait; }

open_script 4096 nbdcopy nbdinfo qemu-io
: >"$logs/serve.log"

step 'exported, and imported'
must 'content' make_content content
must 'disks' fresh_disks 96 a b c
must 'one host' at one start
must 'another' at two start
must 'a pool with content' at one make_pool
must 'not given away while it is open here: the other is refused' at two refused 75 "pool $pool is in other hands.*$disks/a: in use by process $pid_one
pool export $pool" import
must 'an import of what is open here is refused, and says so' at one refused 2 "pool $pool is open here already" import
must 'exported' at one says "pool $pool is exported" dolmen pool export "$pool"
must 'nothing is open' at one list_is_empty
must 'the check finds it clean' is_clean
must 'imported on the same host' at one import
must 'the content is what it was' holds kept "$run/content"
must 'exported' dolmen pool export "$pool"
must 'imported on the other host' at two import
must 'the content is what it was' holds kept "$run/content"
must 'the first does not have it' at one refused 2 "no pool $pool" dolmen pool export "$pool"
must 'exported' at two dolmen pool export "$pool"

step 'exported, and imported with a disk missing'
must 'a disk is away' take_away c
must 'imported on the same host' at one says "1 of its 3 disks are not here" import
must 'the content is what it was' holds kept "$run/content"
must 'exported' dolmen pool export "$pool"
must 'imported on the other host' at two says "1 of its 3 disks are not here" import
must 'the status says what to do' status_tells 'absent' "disk online $pool 2" "disk replace $pool 2 NEW"
must 'the content is what it was' holds kept "$run/content"
must 'other content' make_content other
must 'is written' nbdcopy --flush "$run/other" "$uri"
must 'the disk is back' bring_back c
must 'it is taken in again' dolmen disk online "$pool" 2
must 'the status says healthy' status_tells '^healthy'
must 'exported' dolmen pool export "$pool"
must 'another disk is away' take_away a
must 'imported on the first host' at one import
must 'the later content is there' holds kept "$run/other"
must 'exported' dolmen pool export "$pool"
must 'the disk is back' bring_back a
must 'imported with all' import
must 'exported' dolmen pool export "$pool"
must 'the check finds it clean' is_clean

step 'two want it at the same time'
# both_import: exactly one of the two has it; leaves with the winner as the host, and the loser in $loser.
both_import() {
    (at one import >"$logs/import-one.log" 2>&1; echo $? >"$run/import-one") &
    both_pid=$!
    (at two import >"$logs/import-two.log" 2>&1; echo $? >"$run/import-two") &
    wait "$both_pid" "$!"
    both=$(cat "$run/import-one" "$run/import-two" | tr '\n' ' ')
    case $both in
    '0 75 ') winner=one loser=two ;;
    '75 0 ') winner=two loser=one ;;
    *) warn "left with $both"; cat "$logs/import-one.log" "$logs/import-two.log" >&2; return 1 ;;
    esac
    say "   | $loser: $(tr '\n' ' ' <"$logs/import-$loser.log")"
    grep -q "pool $pool is in other hands" "$logs/import-$loser.log" && be "$winner"
}
for round in 1 2 3; do
    must "round $round: one of two imports is refused" both_import
    must 'the content is what it was' holds kept "$run/other"
    must 'exported' dolmen pool export "$pool"
done
close_script

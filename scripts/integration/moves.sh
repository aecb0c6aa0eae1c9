#!/bin/sh
# Pools that move between hosts: exported, or found on some of their disks; opened for reading; wanted by two at once. A
# pool that is full, the daemon killed in the middle of changes, and a mirror that goes on with one disk less.
#
# A host is a daemon with a state directory and an identity of its own. All of it goes over NBD, and needs no root.
#
# DOLMEN_MOVES_KILLS   how often the daemon is killed in the middle of each kind of change (default: 4)
# DOLMEN_MOVES_SEED    what the moments of these kills are drawn from (default: 1)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
# Disks that come back are left to commands: nothing is to write to them while they are compared.
export DOLMEN_RETURNED=left
script='moves'
way=nbd
kills=${DOLMEN_MOVES_KILLS:-4}
seed=${DOLMEN_MOVES_SEED:-1}
content_bytes=16777216

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
    wait "$daemon_pid" 2>/dev/null
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

# keep_copies: of the disks as they are; disks_are_untouched compares every byte with them.
keep_copies() { rm -rf "$run/then" && mkdir "$run/then" && cp --sparse=always "$disks"/* "$run/then/"; }
disks_are_untouched() {
    for untouched_disk in "$run/then"/*; do
        cmp "$untouched_disk" "$disks/$(basename "$untouched_disk")" || return 1
    done
}
take_away() { mkdir -p "$run/away" && mv "$disks/$1" "$run/away/"; }
bring_back() { mv "$run/away/$1" "$disks/"; }
forget_disks() { rm -rf "$disks" "$run/away" && mkdir -p "$disks"; }
fresh_disks() { forget_disks && make_disks "$@"; }

make_pool() {
    dolmen pool create "$pool" "$disks"/* && dolmen space create "$pool/kept" --size "$content_bytes" --row 2M && fill kept
}
# shellcheck disable=SC2119,SC2120 # its options are optional
import() { dolmen pool import "$@" "$disks"/*; }
has_no_job() { jobs_now=$(dolmen -o json jobs) && ! printf '%s' "$jobs_now" | grep -Eq '"state": *"(waiting|running)"'; }
is_clean() { cli_check "$disks"/* >"$logs/check.log" 2>&1 || { cat "$logs/check.log" >&2; return 1; }; }

# --- two at the same time ------------------------------------------------------------------------------------------

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
# --- read-only -----------------------------------------------------------------------------------------------------

is_served_read_only() { nbdinfo "$uri" | grep -q 'is_read_only: true'; }
write_is_refused() { qemu_meets 'Permission denied' 'write 0 4k' && ! nbdcopy "$run/other" "$uri" 2>"$logs/refused.log" && grep -q 'read-only' "$logs/refused.log"; }

attach_would_read() { dolmen space attach -n "$pool/kept" | tr '\n' ' ' | tr -s ' ' | grep -q 'for reading only'; }

# read_only_throughout: reads work, writes and changes are refused, and the disks stay as they are.
read_only_throughout() {
    must 'the status says so, and what to do' status_tells "pool $pool is open read-only" "pool export $pool"
    must 'the content is what it was' holds kept "$run/content"
    must 'clients are told that it is read-only' is_served_read_only
    must 'attaching says so beforehand' attach_would_read
    must 'writes are refused' write_is_refused
    must 'unserved' dolmen unserve "$pool/kept"
    read_only_words="pool $pool is open read-only
pool export $pool"
    for read_only_command in "space create $pool/new --size 8M" "space resize $pool/kept 64M" \
        "space delete $pool/kept --purge --destroy=kept" "space set $pool/kept --name other" "disk replace $pool 0 $run/spare" \
        "pool add $pool $run/spare" "pool destroy $pool --destroy=$pool"; do
        # shellcheck disable=SC2086 # a list of words
        must "refused: ${read_only_command%% --*}" refused 73 "$read_only_words" dolmen $read_only_command
    done
    must 'the content is what it was' holds kept "$run/content"
    must 'the disks are untouched' disks_are_untouched
}

# --- a full pool ---------------------------------------------------------------------------------------------------

# fill_up SPACE: writes one row after the other, from the tenth MiB on, until there is no more room; sets $filled, in MiB.
fill_up() {
    serve "$1" || return 1
    filled=24
    while qemu "write -P 0x33 ${filled}M 2M" flush 2>/dev/null; do
        filled=$((filled + 2))
        [ "$filled" -lt 192 ] || return 1
    done
    grep -q 'No space left on device' "$logs/qemu-io.log" || { cat "$logs/qemu-io.log" >&2; return 1; }
    say "   | the write at $filled MiB: $(head -n 1 "$logs/qemu-io.log")"
}
fills_no_more() { serve "$1" && qemu_meets 'No space left on device' "write -P 0x33 $2 2M"; }
# All that was written, as long as it is less than the request's usual limit.
reads_all() { qemu 'read -P 0x33 24M 2M' "read -P 0x33 $((filled - 2))M 2M"; }
is_as_it_was() { holds thin "$run/content" && reads_all; }

# --- killed in the middle ------------------------------------------------------------------------------------------

draw() { drawn=$(((drawn * 1103515245 + 12345) % 2147483648)); }
milliseconds() { date +%s%3N; }

# cut_short MS COMMAND...: the daemon is killed at a drawn moment after the command was begun, and started again; sets
# $cut_code to what the command left with.
cut_short() {
    draw
    cut_after=$((drawn / 65536 % $1))
    shift
    dolmen "$@" >"$logs/cut.log" 2>&1 </dev/null &
    cut_pid=$!
    sleep "0.$(printf %03d "$cut_after")"
    strike || return 1
    cut_code=0
    wait "$cut_pid" || cut_code=$?
    # It was answered, or cut off, or had not reached the daemon yet.
    case "$cut_code $(cat "$logs/cut.log")" in
    0* | 74*'ended the connection'* | 75*'does not run'*) ;;
    *) warn "left with $cut_code: $(cat "$logs/cut.log")"; return 1 ;;
    esac
    cuts=$((cuts + 1))
    [ "$cut_code" -eq 0 ] || halves=$((halves + 1))
}
claimed_of() { dolmen -o json space show "$pool/$1" 2>/dev/null | number_of claimed_bytes; }
size_of() { dolmen -o json space show "$pool/$1" 2>/dev/null | number_of size_bytes; }
# is_whole SPACE: it is there with all of its rows.
is_whole() { [ -n "$(size_of "$1")" ] && is "$(claimed_of "$1")" -eq "$(size_of "$1")"; }
is_gone() { [ -z "$(size_of "$1")" ]; }
whole_or_gone() { is_gone "$1" || is_whole "$1"; }
# again CODE WORDS COMMAND...: repeated, it succeeds, or leaves with that code and these words.
again() {
    again_code=$1
    again_words=$2
    shift 2
    again_answer=$(dolmen "$@" 2>&1 </dev/null) && return 0
    [ $? -eq "$again_code" ] && printf '%s' "$again_answer" | grep -q -e "$again_words" && return 0
    warn "repeated: $again_answer"
    return 1
}
# The check of disks that nobody has opened since the daemon was killed, or since it was told to end.
stopped_clean() { stop && is_clean && start; }

cut_pool_create() {
    fresh_disks 96 a b c && cut_short 250 pool create "$pool" "$disks"/* && start || return 1
    # Made of all the disks, or of none, and then nothing of it is in the way.
    again 2 "named $pool already" pool create "$pool" "$disks"/* || return 1
    is "$(dolmen -o json disk list "$pool" | grep -o '"present"' | wc -l)" -eq 3 && stopped_clean && destroy
}
# What is served is not destroyed.
destroy() {
    for served in kept f g; do dolmen unserve "$pool/$served" >>"$logs/cut.log" 2>&1 || :; done
    dolmen pool destroy "$pool" --destroy="$pool" >>"$logs/cut.log" 2>&1
}
cut_space_create() {
    cut_short 250 space create "$pool/f" --size 80M --row 1M --provisioning fixed && start && whole_or_gone f &&
        again 2 'a space named f already' space create "$pool/f" --size 80M --row 1M --provisioning fixed && is_whole f &&
        stopped_clean && dolmen space delete "$pool/f" --purge --destroy=f >>"$logs/cut.log"
}
cut_space_delete() {
    is_whole f || dolmen space create "$pool/f" --size 80M --row 1M --provisioning fixed >>"$logs/cut.log" || return 1
    cut_short 45 space delete "$pool/f" --purge --destroy=f && start && whole_or_gone f && again 2 'no space named f' space delete "$pool/f" --purge --destroy=f && is_gone f && stopped_clean
}
cut_space_resize() {
    cut_short 150 space resize "$pool/g" 60M && start && is_whole g && again 0 '' space resize "$pool/g" 60M && is_whole g || return 1
    cut_short 45 space resize "$pool/g" 8M && start && is_whole g && again 0 '' space resize "$pool/g" 8M && is_whole g && stopped_clean
}
cut_export() {
    # shellcheck disable=SC2119
    cut_short 30 pool export "$pool" && is_clean && start && again 2 "no pool $pool" pool export "$pool" && is_clean && import >>"$logs/cut.log" && holds kept "$run/content"
}
cut_destroy() {
    make_pool >>"$logs/cut.log" 2>&1 && dolmen unserve "$pool/kept" >>"$logs/cut.log" 2>&1 &&
        cut_short 40 pool destroy "$pool" --destroy="$pool" && start || return 1
    # Until the first label goes nothing has begun.
    if dolmen pool show "$pool" >/dev/null 2>&1; then
        holds kept "$run/content" && dolmen unserve "$pool/kept" >>"$logs/cut.log" 2>&1 || return 1
    fi
    again 2 "no pool $pool" pool destroy "$pool" --destroy="$pool" && list_is_empty && refused 2 'belongs to a pool' cli_check "$disks"/*
}

# rounds_of WHAT COMMAND: as often as is asked for; says how often the command did not come to its end.
rounds_of() {
    rounds_what=$1
    shift
    drawn=$seed
    cuts=0
    halves=0
    for rounds_turn in $(seq 1 "$kills"); do
        "$@" || { warn "turn $rounds_turn, killed after $cut_after ms"; return 1; }
    done
    say "   | $rounds_what: $cuts times killed, $halves of them before it had answered"
}

open_script 4096 nbdcopy nbdinfo qemu-io
: >"$logs/serve.log"

step 'exported, and imported'
must 'content' make_content content
must 'disks' fresh_disks 72 a b c
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
for round in 1 2 3; do
    must "round $round: one of two imports is refused" both_import
    must 'the content is what it was' holds kept "$run/other"
    must 'exported' dolmen pool export "$pool"
done

step 'opened for reading only'
must 'imported read-only' at one says "pool $pool is open" import --read-only
must 'other content is what it was' holds kept "$run/other"
must 'exported' dolmen pool export "$pool"
must 'imported' import
must 'the first content' fill kept
must 'exported' dolmen pool export "$pool"
must 'the other host stops' at two stop
must 'copies of the disks' keep_copies
must 'a spare disk' truncate -s 72M "$run/spare"
must 'imported read-only' at one import --read-only
read_only_throughout
must 'the daemon is killed' strike
must 'and started' start
must 'the disks are untouched' disks_are_untouched
must 'the content is what it was' holds kept "$run/content"
must 'the daemon is stopped' stop
must 'and started' start
must 'the content is what it was' holds kept "$run/content"
must 'given back' dolmen pool export "$pool"
must 'the disks are untouched' disks_are_untouched

step 'not exported, and found by another host on some of its disks'
must 'imported' import
must 'the first host is gone' strike
must 'with a disk' take_away c
must 'the other host starts' at two start
must 'copies of the disks' keep_copies
must 'refused, with the next steps named' refused 73 "pool $pool may not be written here
--read-only
--confirmed" import
must 'the disks are untouched' disks_are_untouched
must 'opens read-only' import --read-only
read_only_throughout
must 'the daemon is killed' strike
must 'and started' start
must 'the content is what it was' holds kept "$run/content"
must 'given back' dolmen pool export "$pool"
must 'the disks are untouched' disks_are_untouched
must 'opens when that is confirmed' import --confirmed
must 'the content is what it was' holds kept "$run/content"
must 'it is written' qemu 'write -P 0x11 0 1M' flush
must 'the disk that was away is back' bring_back c
must 'copies of the disks' keep_copies
must 'the first host, which had all of them, comes back' at one start
must 'it says who has them' status_tells "pool $pool is in other hands" "$disks/a: in use by process $pid_two"
must 'it changed nothing' disks_are_untouched
must 'nor when asked to' refused 75 "pool $pool is in other hands" import --confirmed
must 'it changed nothing' disks_are_untouched
must 'it has it forgotten' says 'forgotten here' dolmen pool export "$pool"
must 'it stops' stop
must 'the other host is killed' at two strike
must 'the first host starts' at one start
must 'imports all' import
must 'the later content wins' serve kept
must 'the later content wins' qemu 'read -P 0x11 0 1M'
must 'the resync that the change of hosts began has ended' eventually 60 has_no_job
must 'exported' dolmen pool export "$pool"
must 'the check finds it clean' is_clean

step 'a full pool'
must 'disks' fresh_disks 72 a b
must 'a pool' dolmen pool create "$pool" "$disks"/*
must 'two thin spaces, each larger than the pool' dolmen space create "$pool/thin" --size 200M --row 2M
must 'two thin spaces, each larger than the pool' dolmen space create "$pool/more" --size 200M --row 2M
must 'content' fill thin
must 'content' fill more
must 'written to the end of the room' fill_up thin
must 'the status says so, and what to do' status_tells "thin space $pool/thin has met the end of pool $pool" "add a disk to pool $pool, or purge a space, or delete files"
must 'df says so, and what to do' says 'Nothing more fits.*disk replace' dolmen df "$pool"
must 'neither takes more' fills_no_more more 60M
must 'all reads' is_as_it_was
must 'overwritten' qemu 'write -P 0x44 4M 8M' flush 'read -P 0x44 4M 8M'
must 'and back' fill thin
must 'the daemon is killed' strike
must 'and started' start
must 'all reads' is_as_it_was
must 'the daemon is stopped' stop
must 'and started' start
must 'all reads' is_as_it_was
must 'discards give room back' qemu 'discard 24M 4M' flush
must 'which can be written' qemu 'write -P 0x33 24M 4M' flush
must 'and no more' fills_no_more thin 60M
must 'a larger disk takes the place of one' make_disk c 144
must 'a larger disk takes the place of one' dolmen disk replace "$pool" "$disks/a" "$disks/c"
must 'and of the other' make_disk d 144
must 'and of the other' dolmen disk replace "$pool" "$disks/b" "$disks/d"
must 'all reads' is_as_it_was
must 'there is room to write' qemu 'write -P 0x55 100M 32M' flush 'read -P 0x55 100M 32M'
must 'written to the end of the room again' fill_up more
must 'unserved' dolmen unserve "$pool/more"
must 'a space is deleted' dolmen space delete "$pool/more" --purge --destroy=more
must 'there is room to write' serve thin
must 'there is room to write' qemu 'write -P 0x66 140M 16M' flush 'read -P 0x66 140M 16M'
must 'the content is what it was' holds thin "$run/content"
must 'exported' dolmen pool export "$pool"
must 'the check finds it clean' cli_check "$disks/c" "$disks/d"

step 'a mirror with a disk less'
must 'disks' fresh_disks 72 a b
must 'a pool with content' make_pool
must 'a space that is new' dolmen space create "$pool/new" --size 200M --row 2M
must 'the daemon is stopped' stop
must 'a disk is lost' take_away b
must 'the daemon is started' start
must 'the content is what it was' holds kept "$run/content"
must 'places that were never written take writes' fill new
must 'they read back' holds new "$run/content"
must 'another takes its place' make_disk c 72
must 'another takes its place' dolmen disk replace "$pool" 1 "$disks/c"
must 'the status says healthy' status_tells '^healthy'
must 'the daemon is stopped' stop
must 'the other old disk is lost' take_away a
must 'the daemon is started' start
must 'what was there reads back' holds kept "$run/content"
must 'what was written degraded reads back' holds new "$run/content"
must 'another takes its place' make_disk d 72
must 'another takes its place' dolmen disk replace "$pool" 0 "$disks/d"
must 'the status says healthy' status_tells '^healthy'
must 'exported' dolmen pool export "$pool"
must 'the check finds it clean' is_clean

step 'killed in the middle'
must 'pool create' rounds_of 'pool create' cut_pool_create
must 'a pool with content' fresh_disks 96 a b c
must 'a pool with content' make_pool
must 'space create' rounds_of 'space create' cut_space_create
must 'space delete' rounds_of 'space delete' cut_space_delete
must 'a fixed space' dolmen space create "$pool/g" --size 8M --row 1M --provisioning fixed
must 'space resize' rounds_of 'space resize' cut_space_resize
must 'the content is what it was' holds kept "$run/content"
must 'pool export' rounds_of 'pool export' cut_export
must 'destroyed' destroy
must 'pool destroy' rounds_of 'pool destroy' cut_destroy
must 'the daemon ends' stop
close_script

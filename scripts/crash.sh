#!/bin/sh
# crash.sh [--states N|all] [--seed N]
#
# Short lives of a pool are recorded, and power is cut, or the daemon killed, after every write and flush, with the engine built
# as for users. Of what each cut may leave, N states of each life and way of crashing (500; of pools of more than three disks
# half as many) are opened and judged, or all: every subset of up to ten unflushed writes; of more every prefix, every single
# loss and 256 drawn subsets. Which disks are gone, which bit has turned and where a second crash comes is drawn for each of
# them. All are some millions, which takes hours. Of a life of few writes, with two copies, three, and parity, everything is
# opened in any case: each subset, at each write and flush, without each set of disks that may be lost; each block in flight
# torn on all copies alike; a bit turned in and beside each; a second crash at each step of an opening. Prints what was tried,
# and what failed.
#
# DOLMEN_STATE   where logs and the record of this run are kept (default: .demo in the checkout)
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
states=500
seed=1

while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,/^root=/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --states)
        [ "${2-}" = all ] || is_number "${2-}" || die 2 "--states takes a number from 1 on, or 'all', not '${2-}'"
        states=$2
        shift 2
        ;;
    --seed)
        is_number "${2-}" || die 2 "--seed takes a number from 1 on, not '${2-}'"
        seed=$2
        shift 2
        ;;
    *) die 2 "no option $1; see $0 --help" ;;
    esac
done

take_state
need_rust
fetch_crates
log=$logs/crash.log
# Images of disks come and go by the thousand: the allocator shall keep their memory, and not give it back each time.
# shellcheck disable=SC2086 # a list of words
attend -- env DOLMEN_CRASH_STATES="$states" DOLMEN_CRASH_SEED="$seed" \
    GLIBC_TUNABLES=glibc.malloc.trim_threshold=1073741824:glibc.malloc.mmap_threshold=1073741824 \
    cargo test --release --locked $as_users --test whole -- --nocapture crash:: >"$log" 2>&1
status=$?
sed -n '/ states in /p; /^killed: [0-9]/p; /^disks come and go: [0-9]/p; /^Error: /p; /panicked at/,/^stack/{/^stack/d;p;}' "$log"
[ "$status" -eq 0 ] || die 1 "a crash test failed; all that it said is in $log"

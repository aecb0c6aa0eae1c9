#!/bin/sh
# simulate.sh [--seeds N] [--first N] [--length N] [--traces]
#
# Whole lives of a pool on modelled disks, drawn from seeds (1,000 from seed 1 on), with the engine built as for users. Prints
# how often each fault and each rare state was met, how long it took, and each seed that failed.
#
#   --seeds N    how many (default: 1000)
#   --first N    the first of them (default: 1)
#   --length N   how many times as long as usual each life is (default: 1). 20,000 seeds of length 5 are more than 100 million
#                operations of clients, and take about three hours on two cores
#   --traces     print the hash of each seed's trace too. A change that leaves the order of everything as it was leaves them all
#
# DOLMEN_STATE   where logs and the record of this run are kept (default: .demo in the checkout)
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
seeds=1000
first=1
length=1
traces=no

while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,/^root=/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --traces)
        traces=yes
        shift
        ;;
    --seeds | --first | --length)
        is_number "${2-}" || die 2 "$1 takes a number from 1 on, not '${2-}'"
        case $1 in
        --seeds) seeds=$2 ;;
        --first) first=$2 ;;
        --length) length=$2 ;;
        esac
        shift 2
        ;;
    *) die 2 "no option $1; see $0 --help" ;;
    esac
done

take_state
need_rust
fetch_crates
log=$logs/simulator.log
[ "$traces" = no ] || export DOLMEN_TRACES=1
# shellcheck disable=SC2086 # a list of words
attend -- env DOLMEN_SEEDS="$seeds" DOLMEN_FIRST_SEED="$first" DOLMEN_LENGTH="$length" cargo test --release --locked $as_users \
    --test whole -- no_acknowledged_byte_is_lost_or_wrong --nocapture >"$log" 2>&1
status=$?
# Kinds of faults, rare states, seeds that failed and what they said: not their traces, but the hashes that were asked for.
sed -n '/^seeds /,/^Tally/{/^Tally/d;p;}; /^}/,/seeds in/{/^}/d;p;}; /^seed [0-9]*: /p; /assertion/,/right:/p' "$log" | grep -v '^test '
[ "$status" -eq 0 ] || die 1 "the simulator failed; all that it said is in $log"

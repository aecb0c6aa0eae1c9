#!/bin/sh
# repair_latency.sh [--seconds N]
#
# What clients wait while disks are replaced, on the disk of this machine: a mirror on four files, attached as a block device, is
# read and written at random (fio, 8 KiB, half of it reads, four at a time, past the page cache), alone; beside replacements that
# take all that they can get; and beside such that take less once one in twenty requests takes longer than a limit. Prints for each
# how many requests there were, how long they took (as `dolmen iostat` counts them), and how much was moved meanwhile. A machine
# that does other work beside says little; what is compared is one run with itself.
#
#   --seconds N    how long each of the three is measured (default: 30)
#
# DOLMEN_STATE   where its files, logs and the record of this run are kept (default: .demo in the checkout); 10 GiB
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='latency in repair'
seconds=30

while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,/^root=/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --seconds)
        is_number "${2-}" || die 2 "--seconds takes a number from 1 on, not '${2-}'"
        seconds=$2
        shift 2
        ;;
    *) die 2 "no option $1; see $0 --help" ;;
    esac
done

space_mib=2048

make_pool() {
    make_disks $((space_mib * 2)) a b c d e &&
        dolmen pool create "$pool" "$disks/a" "$disks/b" "$disks/c" "$disks/d" >/dev/null &&
        dolmen space create "$pool/m" --size "${space_mib}M" >/dev/null && attach_space m
}

fio_on() {
    # shellcheck disable=SC2046 # a list of words
    attend -- $(rights) fio --filename="$device" --direct=1 --ioengine=libaio --minimal "$@" >>"$logs/fio.log" 2>&1
}

fill_space() { fio_on --name=fill --rw=write --bs=1M --iodepth=8; }

# load_begins: requests of clients, until load_ends.
load_begins() {
    # shellcheck disable=SC2046 # a list of words
    begin -- $(rights) fio --filename="$device" --direct=1 --ioengine=libaio --name=clients --rw=randrw --bs=8k --iodepth=4 \
        --time_based --runtime=$((20 * seconds + 600)) >>"$logs/fio.log" 2>&1
    load=$!
    load_started=$(start_time "$load")
}

load_ends() {
    for load_member in $(members "$load" "$load_started"); do send INT "$load_member" || :; done
    wait "$load"
    return 0
}

# replace_on LIMIT: replaces one disk after another by the one that is free, until it is stopped.
replace_on() {
    while :; do
        on_from=d
        on_to=e
        if dolmen -o json disk list "$pool" | grep -q "$disks/e\""; then
            on_from=e
            on_to=d
        fi
        dolmen -o json disk replace "$pool" "$disks/$on_from" "$disks/$on_to" --no-wait >"$run/replacement" 2>>"$logs/replace.log" || exit 1
        on_job=$(number_of id <"$run/replacement")
        dolmen job set "$on_job" --priority high --latency-limit "$1" >>"$logs/replace.log" 2>&1 || :
        dolmen jobs "$on_job" --wait >>"$logs/replace.log" 2>&1 || exit 1
        echo >>"$run/replaced"
        rm -f "$disks/$on_from"
        make_disk "$on_from" $((space_mib * 2)) || exit 1
        [ ! -e "$run/enough" ] || exit 0
    done
}

# measure WHAT: a line of figures.
measure() {
    measured=$(dolmen -o json iostat "$pool/m" "$seconds" 2 | tail -n 1)
    printf '%s' "$measured" | tr '{' '\n' | awk -v what="$1" -v seconds="$seconds" '
        kind && /^"average_us":/ {
            split($0, words, /[:,}]/)
            for (i = 1; i < 20; i += 2) value[words[i]] = words[i + 1]
            p50[kind] = value["\"p50_us\""]; p95[kind] = value["\"p95_us\""]; p99[kind] = value["\"p99_us\""]
        }
        kind && /^"count":/ { match($0, /[0-9]+/); count[kind] = substr($0, RSTART, RLENGTH) }
        /"reads":$/ { kind = "reads" }
        /"writes":$/ { kind = "writes" }
        /"discards":$/ { kind = "" }
        END {
            printf "%-34s", what
            for (i = 1; i <= 2; i++) {
                kind = i == 1 ? "reads" : "writes"
                printf " %7d %-6s median %6.2f ms, p95 %6.2f ms, p99 %7.2f ms%s", count[kind], kind,
                    p50[kind] / 1000, p95[kind] / 1000, p99[kind] / 1000, i == 1 ? " |" : ""
            }
            printf "; %d s\n", seconds
        }'
}

# beside_replacements WHAT LIMIT
beside_replacements() {
    rm -f "$run/enough"
    : >"$run/replaced"
    (replace_on "$2") &
    beside=$!
    eventually 20 is_replacing || fail "no replacement began: $(tail -n 3 "$logs/replace.log")"
    measure "$1"
    say "   meanwhile $(wc -l <"$run/replaced") disks were replaced, and one in part"
    : >"$run/enough"
    # What is under way when it has been measured need not take long.
    dolmen job set "$(job_now)" --priority high --latency-limit none >>"$logs/replace.log" 2>&1 || :
    wait "$beside"
}

# job_now: the number of the job that replaces a disk.
job_now() {
    dolmen -o json jobs 2>/dev/null | tr -d ' \n' | tr '{' '\n' |
        sed -n 's/^"id":\([0-9]*\),.*"kind":"replace",.*"state":"running".*/\1/p' | tail -n 1
}
is_replacing() { [ -n "$(job_now)" ]; }

way=block
open_script 12000 fio
must 'a daemon' daemon_start
must 'a mirror on four disks' make_pool
must 'it is filled' fill_space
load_begins
eventually 10 dolmen -o json iostat "$pool/m" >/dev/null || fail 'no figures'
measure 'nothing else'
beside_replacements 'a repair that takes all' none
beside_replacements 'one in twenty above 5 ms' 5ms
load_ends
must 'it is detached' eventually 10 dolmen space detach "$pool/m"
must 'the daemon ends' daemon_stop
close_script

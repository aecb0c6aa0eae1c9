#!/bin/sh
# How fast a space is as a block device: by one way beside another, measured in alternating rounds.
#
# Two mirrors of two copies in one pool, on files in memory, each filled once and then loaded by fio with direct I/O. For
# each load it prints operations a second and the daemon's processor time for each, without what the kernel's own threads
# and the descriptor holder take. Needs root, FUSE, loop devices, fio, and what the transports need.
#
# sh scripts/transports.sh [ROUNDS [SECONDS]]      (default: 3 rounds of 5 seconds)
#
# DOLMEN_TRANSPORTS          two of ublk, loop, loop-uring (default: ublk loop)
# DOLMEN_URING         yes: FUSE over io_uring is switched on in the kernel while this runs, and put back to what it was
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='transports'
rounds=${1:-3}
seconds=${2:-5}
is_number "$rounds" && is_number "$seconds" || die 2 'usage: sh scripts/transports.sh [ROUNDS [SECONDS]]'
space_mib=96
transports=${DOLMEN_TRANSPORTS:-ublk loop}
# shellcheck disable=SC2086 # two words
set -- $transports
[ $# -eq 2 ] || die 2 "DOLMEN_TRANSPORTS is '$transports', which is not two transports"
first=$1
second=$2

make_memory() {
    # shellcheck disable=SC2046 # a list of words
    attend mount "$disks" -- $(rights) mount -t tmpfs -o "size=$((space_mib * 6))m" tmpfs "$disks" && make_disks $((space_mib * 3)) a b
}

# variable_of WAY: the name of the variable that holds its device.
variable_of() { printf 'device_%s' "$1" | tr - _; }

# Sets the variables of both transports.
make_space() {
    attach_way=$1
    dolmen space create "$pool/$1" --size "${space_mib}M" --resiliency mirror && attach_space "$1" || return 1
    eval "$(variable_of "$1")=\$device"
}

# run_fio FILE WORD...: one load, its result as one line of fields.
run_fio() {
    fio_into=$1
    shift
    # shellcheck disable=SC2046 # a list of words
    attend -- $(rights) fio --name=transports --direct=1 --ioengine=libaio --group_reporting --output-format=terse \
        --terse-version=3 --output="$fio_into" "$@" >>"$logs/fio.log" 2>&1
}

fill() { run_fio "$logs/fill" --filename="$1" --rw=write --bs=256k --iodepth=8; }

# The daemon's processor time so far, in hundredths of a second.
daemon_ticks() { for ticks_pid in $(daemon_self); do awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$ticks_pid/stat"; done; }

# measure LOAD WAY WORD...: adds a line "LOAD WAY operations microseconds" to the results.
measure() {
    measure_load=$1
    measure_way=$2
    eval "measure_device=\$$(variable_of "$2")"
    shift 2
    measure_before=$(daemon_ticks)
    run_fio "$logs/one" --filename="$measure_device" --time_based --runtime="$seconds" "$@" || return 1
    measure_ticks=$(($(daemon_ticks) - measure_before))
    # Operations a second of reads and of writes, and the milliseconds that they ran.
    awk -F ';' -v load="$measure_load" -v way="$measure_way" -v ticks="$measure_ticks" 'NF > 50 {
        count = $8 * $9 / 1000 + $49 * $50 / 1000
        printf "%s %s %d %d\n", load, way, $8 + $49, count ? ticks * 10000 / count : 0
    }' "$logs/one" >>"$logs/results"
}

round() {
    for round_way in $1; do
        measure 'read-4k-1' "$round_way" --rw=randread --bs=4k --iodepth=1 &&
            measure 'read-4k-32' "$round_way" --rw=randread --bs=4k --iodepth=32 &&
            measure 'write-4k-1' "$round_way" --rw=randwrite --bs=4k --iodepth=1 &&
            measure 'write-4k-32' "$round_way" --rw=randwrite --bs=4k --iodepth=32 &&
            measure 'write-4k-1-sync' "$round_way" --rw=randwrite --bs=4k --iodepth=1 --fsync=1 &&
            measure 'read-256k-8' "$round_way" --rw=read --bs=256k --iodepth=8 &&
            measure 'write-256k-8' "$round_way" --rw=write --bs=256k --iodepth=8 || return 1
    done
}

# For each load the median of the rounds and, in brackets, the least and the most of them, of either way; whether the two
# ranges lie apart; and the median of the processor time.
tell_results() {
    awk -v first="$first" -v second="$second" '
        !($1 in seen) { seen[$1]; order[++loads] = $1 }
        { key = $1 " " $2; ops[key, ++n[key]] = $3; cost[key, n[key]] = $4 }
        function sorted(of, key,   i, j, x) {
            for (i = 1; i <= n[key]; i++) v[i] = of[key, i]
            for (i = 2; i <= n[key]; i++) { x = v[i]; for (j = i - 1; j > 0 && v[j] > x; j--) v[j + 1] = v[j]; v[j + 1] = x }
        }
        function median(of, key) { sorted(of, key); return v[int((n[key] + 1) / 2)] }
        function range(key,   m) { m = median(ops, key); least[key] = v[1]; most[key] = v[n[key]]; return sprintf("%d (%d-%d)", m, v[1], v[n[key]]) }
        END {
            printf "%-16s %22s %22s %6s %8s %16s %16s\n", "load", first " op/s", second " op/s", "ratio", "apart", first " us/op", second " us/op"
            for (i = 1; i <= loads; i++) {
                a = order[i] " " first; b = order[i] " " second
                text_a = range(a); text_b = range(b)
                apart = least[a] > most[b] || least[b] > most[a] ? "yes" : "no"
                of_b = median(ops, b)
                ratio = of_b ? median(ops, a) / of_b : 0
                printf "%-16s %22s %22s %6.2f %8s %16d %16d\n", order[i], text_a, text_b, ratio, apart, median(cost, a), median(cost, b)
            }
        }' "$logs/results"
}

open_script $((space_mib * 2)) fio
for space in $transports; do
    case $space in
    ublk)
        [ -e /dev/ublk-control ] || as_root modprobe ublk_drv 2>/dev/null || :
        [ -e /dev/ublk-control ] || { skip "$script (this kernel has no ublk)"; exit 0; }
        ;;
    loop-uring)
        uring_begin || { skip "$script (FUSE over io_uring is off in this kernel, and DOLMEN_URING=yes did not ask for it)"; exit 0; }
        ;;
    loop) ;;
    *) die 2 "DOLMEN_TRANSPORTS is '$transports'; $space is no transport" ;;
    esac
done
: >"$logs/results"
must 'disks in memory' make_memory
must 'the daemon answers' daemon_start
must 'the pool is made' dolmen pool create "$pool" "$disks/a" "$disks/b"
for space in $transports; do
    must "a space by $space" make_space "$space"
    must 'it is filled' fill "$device"
done
for number in $(seq 1 "$rounds"); do
    # Either way goes first in every other round.
    [ $((number % 2)) -eq 1 ] && order="$first $second" || order="$second $first"
    must "round $number: $order" round "$order"
done
for space in $transports; do
    must "detached from $space" dolmen space detach "$pool/$space"
done
must 'the daemon ends' daemon_stop
printf '\n'
say "Linux $(uname -r), $(nproc) processors, median of $rounds rounds of $seconds s"
tell_results

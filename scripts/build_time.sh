#!/bin/sh
# build_time.sh [--jobs N]
#
# How long the build takes that ./demo begins with, from nothing: builds the programs as ./demo does in a folder of its own,
# prints the time and the crates that took longest, and removes the folder. Nothing is fetched meanwhile. Other work on the
# machine makes all of it longer; processor seconds are affected least.
#
#   --jobs N   how many crates to build at a time (default: one for each processor)
#
# DOLMEN_BUILD_SECONDS   the longest that the build may take; it fails otherwise (default: no limit)
# DOLMEN_CRATE_SECONDS   the same of the slowest crate (default: no limit)
# DOLMEN_STATE           where the folder, logs and the record of this run are kept (default: .demo in the checkout)
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
jobs=$(nproc)
shown=12
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,/^root=/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --jobs)
        is_number "${2-}" || die 2 "$1 takes a number from 1 on, not '${2-}'"
        jobs=$2
        shift 2
        ;;
    *) die 2 "no option $1; see $0 --help" ;;
    esac
done
for limit in "${DOLMEN_BUILD_SECONDS:-1}" "${DOLMEN_CRATE_SECONDS:-1}"; do
    is_number "$limit" || die 2 'DOLMEN_BUILD_SECONDS and DOLMEN_CRATE_SECONDS are numbers'
done

take_state
need_rust
fetch_crates
own=$state/build
rm -rf "$own"
note dir build
log=$logs/build-time.log
# What this shell and its children have used of processors, in hundredths of a second.
used() { awk '{ print $14 + $15 + $16 + $17 }' "/proc/$$/stat"; }
used_before=$(used)
began=$(now)
# shellcheck disable=SC2086 # a list of words
attend -- env CARGO_TARGET_DIR="$own" cargo build --release --locked --offline --timings --jobs "$jobs" $as_users --package dolmen-worker --bin dolmen --bin dolmend --bin dolmen-worker \
    >"$log" 2>&1 || die 1 "the build failed; what it said is in $log"
took=$(($(now) - began))
processor=$((($(used) - used_before) / 100))
report=$(find "$own/cargo-timings" -name 'cargo-timing-*.html' | head -n 1)
[ -n "$report" ] || die 1 "cargo has written no timings to $own/cargo-timings"
# Seconds, crate and target of each unit of the report, the slowest first.
units=$(awk '
    /^(const )?UNIT_DATA = / { inside = 1 }
    inside && /^\];/ { exit }
    inside && /"name":/ { name = $0; sub(/.*: "/, "", name); sub(/".*/, "", name) }
    inside && /"target":/ { target = $0; sub(/.*: "/, "", target); gsub(/\\"/, "", target); sub(/".*/, "", target) }
    inside && /"duration":/ { seconds = $0; sub(/.*: /, "", seconds); sub(/,.*/, "", seconds); print seconds, name target }
' "$report" | sort -rn)
[ -n "$units" ] || die 1 "$report has no units that this script can read"
rm -rf "$own"
printf '%s\n' "$units" | head -n "$shown" | awk '{ seconds = $1; $1 = ""; printf "%7.1f s %s\n", seconds, $0 }'
say "clean release build of the programs: $took s with $jobs jobs on $(nproc) processors, $processor processor seconds"
slowest=$(printf '%s\n' "$units" | awk 'NR == 1 { printf "%d", $1 + 0.5 }')
[ "$took" -le "${DOLMEN_BUILD_SECONDS:-$took}" ] || die 1 "the build took $took s, not $DOLMEN_BUILD_SECONDS at most"
[ "$slowest" -le "${DOLMEN_CRATE_SECONDS:-$slowest}" ] || die 1 "the slowest crate took $slowest s, not $DOLMEN_CRATE_SECONDS at most"

#!/bin/sh
# results.sh [--seeds N] [--to FILE]
#
# Makes the table of results again (docs/results.md): incidents with and without their safeguards, simulation runs with
# what was lost in them, what the tests of speed print in virtual time, and how much disks that come back are written. Takes
# about half an hour on two cores with 1,000 seeds; what each part prints stands in the logs, whole.
#
#   --seeds N    runs of the simulator, from seed 1 on (default: 1000)
#   --to FILE    where the table goes (default: docs/results.md)
#
# DOLMEN_STATE   where logs and the record of this run are kept (default: .demo in the checkout)
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
seeds=1000
to=docs/results.md

while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,/^root=/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --seeds)
        is_number "${2-}" || die 2 "--seeds takes a number from 1 on, not '${2-}'"
        seeds=$2
        shift 2
        ;;
    --to)
        [ -n "${2-}" ] || die 2 '--to takes a file'
        to=$2
        shift 2
        ;;
    *) die 2 "no option $1; see $0 --help" ;;
    esac
done

take_state
need_rust
fetch_crates
failed=0

# part TITLE LOG COMMAND...: runs a part; it failed where the command did.
part() {
    part_log=$logs/$2.log
    say "$1"
    shift 2
    attend -- "$@" >"$part_log" 2>&1 || {
        say "  failed; all that it said is in $part_log"
        failed=$((failed + 1))
    }
}

# table PROGRAM MODULE: runs the tests of crate space that print figures of one kind, with the engine built as for users.
table() {
    # shellcheck disable=SC2086 # a list of words
    part "space: $2" "results-$2" cargo test --release --locked $as_users --test "$1" -- \
        --nocapture --test-threads 1 "$2::"
}

# figures TEST PATTERN: the lines of its log that are figures, as they were printed.
figures() {
    printf '```text\n'
    grep -E "$2" "$logs/results-$1.log" | sed 's/^test .* \.\.\. //'
    printf '```\n\n'
}

# count NAME: a number of the simulator's tally.
count() { sed -n "s/^    $1: \([0-9]*\),\$/\1/p" "$state/simulator/logs/simulator.log" | head -n 1; }

note nested "$state/simulator"
note nested "$state/incidents"
part 'incidents' incidents env DOLMEN_STATE="$state/incidents" sh scripts/mutants.sh --incidents
part "simulator: $seeds runs" simulate env DOLMEN_STATE="$state/simulator" sh scripts/simulate.sh --seeds "$seeds"
for test in slow repair_speed repair_throttle; do
    table spaces "$test"
done
table whole write_costs
note nested "$state/latency"
part 'clients beside repairs on the disk of this machine' latency env DOLMEN_STATE="$state/latency" sh scripts/repair_latency.sh

operations=$(count operations)
{
    cat <<END
# Results

Made by \`scripts/results.sh --seeds $seeds\` on $(date -u +%Y-%m-%d), of commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), with $(nproc) processors.

## Incident scenarios
Each is a test against the daemon, and fails without its safeguard ([incidents](incidents.md)).

\`\`\`text
$(grep -E '^  incident |passed, ' "$logs/incidents.log")
\`\`\`

## Simulation runs
$seeds runs from seed 1 on, each with several daemons, clients, faults, kills, power cuts, and an oracle of every acknowledged byte.

| client operations | daemons | kills | power cuts | replacements | removals | conversions | blocks compared |
|--:|--:|--:|--:|--:|--:|--:|--:|
| $operations | $(count runs) | $(count kills) | $(count power_cuts) | $(count replacements) | $(count removals) | $(count conversions) | $(count blocks_checked) |

Runs that lost acknowledged data, or ended with an unsound pool: $(grep -c '^seed [0-9]* failed' "$state/simulator/logs/simulator.log"). With none in $operations operations, fewer than one in $((operations / 3)) loses something, with 95 % confidence (the rule of three).

The [long run](long-run.md): $(sed -n 's/^\*\*\(.*\)\*\*.*/\1/p' docs/long-run.md) That page counts faults by kind and by layout, and rare states.

## Slow and hung disks
Modelled disks, in virtual time: three seconds before a disk becomes slow or hangs, five seconds from then on, and three more ([0021](design/0021-slow-disks.md)).

END
    figures slow ' times slower: '
    printf '## Repair\nRates of repairs on modelled disks without clients, compared with the rate of one disk.\n\n'
    figures repair_speed ' of what one takes'
    printf 'Clients during a repair, with and without a limit of their latency, exact in virtual time.\n\n'
    figures repair_throttle ' requests, median '
    printf 'The same on the disk of this machine: a mirror on four files, one of which is replaced again and again (`scripts/repair_latency.sh`).\n\n'
    printf '```text\n%s\n```\n\n' "$(grep -E '^skipped: | median |^   meanwhile ' "$logs/latency.log")"
    printf '## What a write costs\nReads, writes and flushes per client request, and bytes per byte.\n\n'
    figures write_costs '^(space|simple|span|mirror|parity|dual|strict|sustained)'
} >"$to.new" && mv "$to.new" "$to"
say "$to"
[ "$failed" -eq 0 ] || die 1 "$failed parts failed"

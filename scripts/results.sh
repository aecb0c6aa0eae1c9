#!/bin/sh
# results.sh [--only PART]... [--seeds N] [--to FILE]
#
# Makes the page of results again (docs/results.md), a section for each part. A section that is not made keeps what the page has.
# Each names its commit and its day. What each part prints is in the logs, whole.
#
#   --only PART  a part: incidents, simulation, slow, repair, writes, io, sustained or parity; may be repeated (default: all but
#                sustained, about half an hour on two cores with 1,000 seeds; sustained takes as long again, and 23 GiB)
#   --seeds N    runs of the simulator, from seed 1 on (default: 1000)
#   --to FILE    the page (default: docs/results.md)
#
# DOLMEN_STATE   where logs and the record of this run are kept (default: .demo in the checkout)
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
seeds=1000
to=docs/results.md
parts=

while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,/^root=/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --only)
        case ${2-} in
        incidents | simulation | slow | repair | writes | io | sustained | parity) parts="$parts $2" ;;
        *) die 2 "--only takes a part, not '${2-}'; see $0 --help" ;;
        esac
        shift 2
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
: "${parts:=incidents simulation slow repair writes io parity}"

take_state
need_rust
fetch_crates
failed=0
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)

# is_made PART: whether this run makes it.
is_made() { case " $parts " in *" $1 "*) return 0 ;; *) return 1 ;; esac }

# run TITLE LOG COMMAND...: runs a command of a part; the part failed where the command did.
run() {
    run_log=$logs/$2.log
    say "$1"
    shift 2
    attend -- "$@" >"$run_log" 2>&1 || {
        say "  failed; all of its output is in $run_log"
        failed=$((failed + 1))
    }
}

# table PROGRAM MODULE: runs the tests of crate space that print figures of one kind, with the engine built as for users.
table() {
    # shellcheck disable=SC2086 # a list of words
    run "space: $2" "results-$2" cargo test --release --locked $as_users --test "$1" -- \
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

# section PART TITLE: what the part's function prints, or what the page has under that title.
section() {
    printf '## %s\n' "$2"
    if is_made "$1"; then
        printf 'Of commit %s, %s, %s processors. ' "$commit" "$(date -u +%Y-%m-%d)" "$(nproc)"
        "show_$1"
    else
        awk -v title="## $2" '/^## / { own = $0 == title; next } own' "$to"
    fi
}

show_incidents() {
    cat <<END
Each is a test against the daemon ([incidents](incidents.md)), and has to fail without its safeguard. Those that did not are named.

\`\`\`text
$(grep -E '^  incident |^[0-9]+ passed, ' "$logs/incidents.log" | grep -v '^  incident *[a-z-]* *killed ')
\`\`\`

END
}

show_simulation() {
    operations=$(count operations)
    cat <<END
$seeds runs from seed 1 on, each with several daemons, clients, faults, kills, power cuts, and an oracle of every acknowledged byte.

| client operations | daemons | kills | power cuts | replacements | removals | conversions | blocks compared |
|--:|--:|--:|--:|--:|--:|--:|--:|
| $operations | $(count runs) | $(count kills) | $(count power_cuts) | $(count replacements) | $(count removals) | $(count conversions) | $(count blocks_checked) |

Runs that lost acknowledged data, or ended with an unsound pool: $(grep -c '^seed [0-9]* failed' "$state/simulator/logs/simulator.log"). With 95 % confidence fewer than one operation in $((operations / 3)) loses something (the rule of three).

END
}

# The long run is made by a script of its own; its record is summed up here.
show_long_run() {
    printf '## The long run\n'
    printf 'By `scripts/long_run.sh`, part by part; [its record](proof/long_run.txt) has commits, faults by layout, and rare states. '
    sed -n 's/^Sum: //p' docs/proof/long_run.txt
    printf '\n```text\n'
    sed -n '/^```faults$/,/^```$/{/^```/d;p;}' docs/proof/long_run.txt
    printf '```\n\n'
}

show_slow() {
    printf 'Modelled disks, in virtual time: reads and the longest, three seconds before a disk becomes slow or hangs, five seconds from then on, and three more ([0021](design/0021-slow-disks.md)).\n\n'
    figures slow ' times slower: ' | sed 's/1073741824 times slower/hung/; s/ reads, longest */ reads, /g; s/  */ /g'
}

show_repair() {
    printf 'Rates of repairs on modelled disks without clients, compared with the rate of one disk ([0013](design/0013-repair-speed.md)).\n\n'
    figures repair_speed ' of what one takes'
    printf 'Clients during a repair, with and without a limit of their latency, exact in virtual time ([0014](design/0014-throttle.md)).\n\n'
    figures repair_throttle ' requests, median '
    printf 'The same on the disk of this machine: a mirror on four files, one of which is replaced again and again (`scripts/repair_latency.sh`).\n\n'
    printf '```text\n%s\n```\n\n' "$(grep -E '^skipped: | median |^   meanwhile ' "$logs/latency.log")"
}

show_writes() {
    printf 'Reads, writes and flushes per client request, and bytes per byte. *Scattered*: whole stripes over old content in random order, each once. *Again*: the same, each place six times on average.\n\n'
    figures write_costs '^(space|simple|span|mirror|parity|dual|strict|sustained)'
}

# The columns of the benchmark's table that are counts, and so do not depend on other work on the machine.
show_io() {
    printf 'Commands per client I/O of 4 KiB to a mirror of 2 on three files, with three voters ([columns](bench_io.md)).\n\n'
    printf '```text\n'
    grep -E '^ *(what|fresh|rewrite|overwrite|warm read|cold read) ' "$logs/io.log" | cut -c1-27,86-92,111-117,125-131,138-167,178-187
    printf '```\n\n'
}

show_sustained() {
    printf 'Random writes of 4 KiB to a parity space of 4 + 1 columns and 16 GiB, until write cache and log are empty ([method](bench_io.md)).\n\n'
    printf '```text\n'
    grep -v -E '^ *(Compiling|Finished|Running) ' "$logs/sustained.log"
    printf '```\n\n'
}

show_parity() {
    printf 'GB/s in one thread, by kernel, for 8 data columns ([columns](erasure.md)).\n\n'
    grep -E '^\| what |^\|---|^\|[^|]*\| 8 \+ [12] ' "$logs/parity.log"
    printf '\n'
}

note nested "$state/simulator"
note nested "$state/incidents"
note nested "$state/latency"
! is_made incidents ||
    run 'incidents' incidents env DOLMEN_STATE="$state/incidents" sh scripts/mutants.sh --incidents
! is_made simulation ||
    run "simulator: $seeds runs" simulate env DOLMEN_STATE="$state/simulator" sh scripts/simulate.sh --seeds "$seeds"
! is_made slow || table spaces slow
! is_made repair || {
    table spaces repair_speed
    table spaces repair_throttle
    run 'clients during repairs on the disk of this machine' latency \
        env DOLMEN_STATE="$state/latency" sh scripts/repair_latency.sh
}
! is_made writes || table whole write_costs
! is_made io ||
    run 'commands per I/O' io cargo run -q --release --locked -p dolmen-bench-io -- --layout mirror2 --size 4K --seconds 0.1
! is_made sustained ||
    run 'sustained random writes' sustained cargo run -q --release --locked -p dolmen-bench-io -- sustained --limit 5.5
! is_made parity || run 'parity kernels' parity cargo run -q --release --locked -p dolmen-erasure --example figures

{
    printf '# Results\n\nMade by `scripts/results.sh`, a section for each part; `--only PART` makes one again.\n\n'
    section incidents 'Incident scenarios'
    section simulation 'Simulation runs'
    show_long_run
    section slow 'Slow and hung disks'
    section repair 'Repair'
    section writes 'What a write costs'
    section io 'Cost per I/O'
    section sustained 'Sustained random writes'
    section parity 'Parity kernels'
} | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}' >"$to.new" && mv "$to.new" "$to"
say "$to"
[ "$failed" -eq 0 ] || die 1 "$failed parts failed"

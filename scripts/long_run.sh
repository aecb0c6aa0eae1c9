#!/bin/sh
# long_run.sh [--seeds N] [--part N] [--length N] [--to FILE]
#
# Many runs of the simulator, part by part: continues after the last part on record, adds each part to the record as it ends, and can
# be stopped and killed at any moment; that loses the part that ran. A part with a failed run is on record too, and no further part
# begins without --behind-failures.
#
#   --seeds N    the last seed (default: 20000; of length 5 these are more than 100 million operations of clients, and take
#                about three hours on two cores)
#   --part N     seeds of a part (default: 500)
#   --length N   how many times as long as usual each run is (default: 5)
#   --to FILE    the record (default: docs/proof/long_run.txt)
#   --behind-failures   continue although runs of a part have failed
#
# DOLMEN_STATE   where logs and the record of this run are kept (default: .demo in the checkout)
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
last=20000
part=500
length=5
to=docs/proof/long_run.txt
stops=yes

while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,/^root=/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --seeds | --part | --length)
        is_number "${2-}" || die 2 "$1 takes a number from 1 on, not '${2-}'"
        case $1 in
        --seeds) last=$2 ;;
        --part) part=$2 ;;
        --length) length=$2 ;;
        esac
        shift 2
        ;;
    --behind-failures)
        stops=no
        shift
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
touch "$to" || die 1 "cannot write $to"

# parts: the rows of the page, as they stand there.
parts() { grep '^| [0-9]' "$to"; }

# next_seed: the first one that no part has.
next_seed() { parts | awk -F'|' '{ split($2, seeds, "–"); last = seeds[2] + 0 } END { print last + 1 }'; }

# block NAME FILE: what stands in a page between ```NAME and ```.
block() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/{/^\`\`\`/d;p;}" "$2"; }

# sums FILE FILE: lines of one or more numbers behind a name, added to those of the same name. Names are of letters, and end where
# two spaces or a number begin.
sums() {
    awk '
        { name = $0; sub(/ *[0-9][0-9 ]*$/, "", name); count = split(substr($0, length(name) + 1), numbers, " ") }
        !(name in columns) { order[++names] = name; columns[name] = count }
        { for (i = 1; i <= count; i++) sum[name, i] += numbers[i] }
        END {
            for (n = 1; n <= names; n++) {
                printf "%-24s", order[n]
                for (i = 1; i <= columns[order[n]]; i++) printf " %12.0f", sum[order[n], i]
                printf "\n"
            }
        }' "$@"
}

# of_log FIRST LAST: the lines of the simulator's log from one pattern to another that are a name and numbers, and no others: what a
# life says that fails stands among them.
of_log() {
    sed -n "/$1/,/$2/{/$1/d;/$2/d;p;}" "$log" | grep -E -e '^[A-Za-z][A-Za-z ]*[A-Za-z]  +[0-9][0-9 ]*$' -e '^ +Simple '
}

# of_tally NAME: a number of its tally.
of_tally() { sed -n "s/^    $1: \([0-9]*\),\$/\1/p" "$log" | head -n 1; }

# write_page: the page with what $parts_now has for parts, and $faults, $layouts and $states for sums.
write_page() {
    operations=$(awk -F'|' '{ gsub(/ /, "", $5); sum += $5 } END { printf "%.0f", sum }' "$parts_now")
    lost=$(awk -F'|' '{ sum += $8 } END { printf "%.0f", sum }' "$parts_now")
    unmet=$(awk '{ sum = 0; name = $0; sub(/ *[0-9][0-9 ]*$/, "", name); for (i = NF; i > 0 && $i ~ /^[0-9]+$/; i--) sum += $i }
        sum == 0 { printf "%s%s", comma, name; comma = ", " }' "$faults" "$states")
    # Which fault no space of a layout met, by its column.
    unmet_by_layout=$(awk 'FNR == NR { for (i = 1; i <= NF; i++) layout[i] = $i; next }
        { name = $0; sub(/ *[0-9][0-9 ]*$/, "", name); count = split(substr($0, length(name) + 1), numbers, " ")
          for (i = 1; i <= count; i++) if (numbers[i] == 0) { printf "%s%s of %s", comma, name, layout[i]; comma = ", " } }' \
        "$logs/head" "$layouts")
    lives=$(awk -F'|' '{ split($2, seeds, "–"); sum += seeds[2] - seeds[1] + 1 } END { printf "%.0f", sum }' "$parts_now")
    cat <<END
The long run

Record of \`scripts/long_run.sh\`, which reads it to continue. Each seed is a simulation run of a pool on modelled disks: several daemons, with clients, faults, kills, power cuts, and an oracle of every acknowledged byte. \`DOLMEN_SEED=n DOLMEN_LENGTH=m\` replays one. A part with a failed run is repeated with the fixed code; failed runs on the way are not counted. So the parts are of the commits that they name, not one sample of one engine.

Sum: $lives runs, $operations client operations, $lost runs that lost acknowledged data or ended with an unsound pool. With none in n, fewer than one in n/3 is lost, with 95 % confidence (the rule of three): here one in $((operations / 3)) operations. Faults and states that no run met: ${unmet:-none}.

Faults that no space of a layout met: ${unmet_by_layout:-none} (\`can_meet\` in \`crates/space/tests/whole/simulator.rs\` lists which cannot).

| seeds | length | commit | operations | seconds | day | failed |
|--:|--:|--|--:|--:|--|--:|
$(cat "$parts_now")

Faults, each counted where it took effect.

\`\`\`faults
$(cat "$faults")
\`\`\`

The same by the layouts of spaces in the pool at that time. Which of several spaces a fault met is not recorded; where a space has one copy, damage strikes metadata only:

\`\`\`layouts
$head_of_layouts
$(cat "$layouts")
\`\`\`

Rare states:

\`\`\`states
$(cat "$states")
\`\`\`
END
}

# The folders of the crates that the simulator is built of.
of_engine=$(cargo tree --locked --offline --package dolmen-space --edges all --prefix none |
    sed -n 's,.* (.*/\(\(crates\|tools\)/[a-z_]*\)).*,\1,p' | sort -u)
[ -n "$of_engine" ] || die 1 'cargo tree names no crates of the simulator'

# engine: the last commit that changed what is run, and whether that stands there still.
engine() {
    # shellcheck disable=SC2086 # a list of folders
    engine_commit=$(git log -1 --format=%h -- $of_engine Cargo.toml Cargo.lock 2>/dev/null)
    : "${engine_commit:=unknown}"
    # shellcheck disable=SC2086 # a list of folders
    [ -z "$(git status --porcelain -- $of_engine Cargo.toml Cargo.lock 2>/dev/null)" ] || engine_commit="$engine_commit, changed"
    say "$engine_commit"
}

# add_part FIRST LAST SECONDS FAILED COMMIT: adds what the log has to the page.
add_part() {
    parts_now=$logs/parts faults=$logs/faults layouts=$logs/layouts states=$logs/states
    {
        parts
        printf '| %s–%s | %s | %s | %s | %s | %s | %s |\n' "$1" "$2" "$length" "$5" "$(of_tally operations)" "$3" \
            "$(date -u +%Y-%m-%d)" "$4"
    } >"$parts_now"
    head_of_layouts=$(of_log '^by layout:' 'seeds in' | head -n 1)
    head_before=$(block layouts "$to" | head -n 1)
    [ -z "$head_before" ] || [ "$head_before" = "$head_of_layouts" ] ||
        die 1 "$to has sums by other layouts; begin another page with --to"
    say "$head_of_layouts" >"$logs/head"
    { block faults "$to" && of_log '^seeds ' '^Tally'; } | sums >"$faults"
    { block layouts "$to" | tail -n +2 && of_log '^by layout:' 'seeds in' | tail -n +2; } | sums >"$layouts"
    { block states "$to" && of_log '^}' '^by layout:'; } | sums >"$states"
    write_page >"$to.new" && mv "$to.new" "$to"
}

# has_failures: a part of the page has lives that failed.
has_failures() { parts | awk -F'|' '$8 + 0 > 0 { found = 1 } END { exit !found }'; }

[ "$stops" = no ] || ! has_failures || die 1 "$to has lives that failed; look at them, and go on with --behind-failures"
note nested "$state/simulator"
while first=$(next_seed) && [ "$first" -le "$last" ]; do
    end=$((first + part - 1))
    [ "$end" -le "$last" ] || end=$last
    log=$state/simulator/logs/simulator.log
    begun=$(now)
    commit=$(engine)
    # What the part before has left there is not what this one says.
    rm -f "$log"
    status=0
    attend -- env DOLMEN_STATE="$state/simulator" sh scripts/simulate.sh --first "$first" --seeds $((end - first + 1)) \
        --length "$length" >"$logs/part.log" 2>&1 || status=$?
    { grep -q "^seeds $first to $end\$" "$log" && grep -q "^$((end - first + 1)) seeds in " "$log"; } 2>/dev/null ||
        die 1 "the simulator did not come to its end; all that it said is in $log and $logs/part.log"
    [ "$commit" = "$(engine)" ] || die 1 "the engine was changed from $commit while seeds $first to $end ran; they do not count"
    failed=$(grep -c '^seed [0-9]* failed' "$log")
    # Over few lives not every rare state is met: what counts is the sum, which the page shows.
    if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ] && ! grep -q -e 'that no life came through' -e 'never injected' "$log"; then
        die 1 "seeds $first to $end failed without a life that did; all that they said is in $log"
    fi
    add_part "$first" "$end" $(($(now) - begun)) "$failed" "$commit"
    parts | tail -n 1
    [ "$failed" -eq 0 ] || {
        cp "$log" "$logs/failed-$first.log"
        die 1 "seeds $first to $end failed; all that they said is in $logs/failed-$first.log"
    }
done

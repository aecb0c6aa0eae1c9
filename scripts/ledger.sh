#!/bin/sh
# ledger.sh [--write]
#
# Compares what the checkout proves with docs/proof/ledger: each listed test, mutant, incident row, crash kind, model and
# fault kind exists, or docs/proof/ledger/moved.txt maps it. Entries that the ledger does not have are no failure.
# The tests are built already in the profile of `cargo test`; this script only lists them.
#
#   --write   prints nothing and writes the ledger again, which is done once, before a change of structure begins
#
# DOLMEN_STATE   where the lists of this checkout are put (default: .demo in the checkout)
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
ledger=docs/proof/ledger
moved=$ledger/moved.txt
now=$state/ledger
kinds='tests mutants incidents crash_kinds models faults'
mkdir -p "$now" || exit 1

# rows TABLE FIELD...: these fields of a table whose columns `|` separates.
rows() {
    rows_table=$1
    shift
    awk -F' *[|] *' -v fields="$*" '/^#/ || !NF { next }
        { count = split(fields, field, " "); line = ""
          for (i = 1; i <= count; i++) line = line (i > 1 ? " | " : "") $field[i]
          sub(/^ +/, "", line); sub(/ +$/, "", line); print line }' "$rows_table"
}

# variants LABEL ENUM: `LABEL Variant` for each variant of an enum of the crates.
variants() {
    variants_file=$(grep -rlE "enum $2 \{" crates tools --include=*.rs | head -n 1)
    [ -n "$variants_file" ] || { printf 'ledger: no enum %s in crates and tools; name its successor in scripts/ledger.sh\n' "$2" >&2; return 1; }
    sed -n "/enum $2 {/,/^}/s/^    \([A-Z][A-Za-z0-9]*\).*/$1 \1/p" "$variants_file"
}

# list KIND: the entries of that kind which this checkout has.
list() {
    case $1 in
    tests) list_tests "$now/programs" && cut -d' ' -f2- "$now/programs" | sort -u ;;
    # A mutant as often as it has tests that kill it; behind the first column stands what to know of it.
    mutants) { rows scripts/mutants.txt 2 1 3 4 && rows scripts/incidents.txt 3 2 | sed 's/ | / | incident | /'; } | sort ;;
    incidents) rows scripts/incidents.txt 1 2 3 | sed 's/ | / /' ;;
    crash_kinds)
        sed -n '/^const KINDS/,/^];/{s/Resiliency:://;s/^ *Kind::\(.*\),$/space \1/p;s/^ *MIRROR,$/space usual(Mirror { copies: 2 })/p;}' \
            crates/space/tests/whole/crash.rs &&
            variants life Scenario && variants death Death &&
            grep -E '^space/whole crash::|^journal/.*crash|^store/.*crash|^check/.*crash' "$now/tests.txt" | sed 's/^/test /'
        ;;
    models) grep -E '^[a-z_]*/[a-z_]* .*model::|^proof/|^space/whole hosts::|^interleavings/' "$now/tests.txt" ;;
    faults) variants fault FaultKind && variants state Rare && variants layout LayoutKind ;;
    esac
}

# compare KIND: says which entries of the ledger are neither there nor mapped.
compare() {
    awk -v kind="$1" -v moved="$moved" -v now="$now/$1.txt" '
        function entry(line) { if (kind == "mutants" || kind == "incidents") sub(/ \|.*/, "", line); return line }
        # successor(name): what moved.txt makes of it, by its name or by the longest beginning that ends in :: or /.
        function successor(name,   at, part) {
            if (name in fate) return fate[name]
            for (at = length(name); at > 0; at--) {
                part = substr(name, 1, at)
                if (part ~ /(::|\/| )$/ && part in fate && fate[part] ~ /^renamed /) return fate[part] substr(name, at + 1)
            }
            return ""
        }
        FILENAME == moved {
            if (/^#/ || !NF) next
            count = split($0, field, / *[|] */)
            if (count < 3) { print "  moved.txt:" FNR ": not `kind | entry | fate`"; bad++; next }
            if (field[1] != kind && !(field[1] == "tests" && (kind == "models" || kind == "crash_kinds"))) next
            if (field[3] !~ /^(same|renamed [^ ].*|merged into [^ ].*|dropped: [^ ].*)$/) {
                print "  moved.txt:" FNR ": the fate is none of `same`, `renamed X`, `merged into X`, `dropped: reason`"; bad++
            }
            fate[field[2]] = field[3]
            next
        }
        FILENAME == now { have[entry($0)]++; next }
        {
            name = entry($0)
            test = kind == "crash_kinds" && sub(/^test /, "", name) ? "test " : ""
            merged = 0
            to = ""
            for (step = 0; step < 16 && !(test name in have); step++) {
                to = successor(name)
                if (to == "" || to == "same" || to ~ /^dropped: /) break
                if (sub(/^merged into /, "", to)) merged = 1
                sub(/^renamed /, "", to)
                name = to
            }
            if (to ~ /^dropped: /) next
            # A mutant has as many tests that kill it as it had.
            if (!merged && test name in have) needed[test name]++
            if (!(test name in have) || needed[test name] > have[test name]) { print "  " $0; bad++ }
        }
        END { exit bad > 0 }' "$moved" "$now/$1.txt" "$ledger/$1.txt"
}

status=0
for kind in $kinds; do
    list "$kind" >"$now/$kind.txt" || exit 1
    [ "${1:-}" != --write ] || { cp "$now/$kind.txt" "$ledger/$kind.txt"; continue; }
    missing=$(compare "$kind") || {
        printf 'FAILED ledger: of %s neither here nor in %s:\n%s\n' "$kind" "$moved" "$missing"
        status=1
    }
    printf 'ledger: %-12s %5d listed, %5d here\n' "$kind" "$(wc -l <"$ledger/$kind.txt")" "$(wc -l <"$now/$kind.txt")"
done
exit "$status"

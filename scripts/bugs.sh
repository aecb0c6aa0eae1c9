#!/bin/sh
# bugs.sh [FILTER]...: runs every planted bug of bugs.txt and prints whether the tests caught it.
#
# A bug is a feature of a crate, off by default, that breaks one rule on purpose. It is caught when the crate's tests,
# built with that feature, fail; for bugs marked `self`, when the test that expects the breach passes. A build that
# fails, or a filter that no test fits, catches nothing.
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
list=$scripts/bugs.txt
seconds=${DOLMEN_BUG_SECONDS:-300}
mkdir -p "$logs"

passed=0
failed=0

# is_wanted NAME FILTER...: no filter, or one that is part of the name.
is_wanted() {
    wanted_name=$1
    shift
    [ $# -gt 0 ] || return 0
    for wanted_filter in "$@"; do
        case $wanted_name in *"$wanted_filter"*) return 0 ;; esac
    done
    return 1
}

# try CRATE FEATURE FILTER MARK: sets $verdict, with its log in $log.
try() {
    log=$logs/bug-$1-$2.log
    filter=$3
    [ "$filter" != - ] || filter=
    if ! cargo test --package "dolmen-$1" --features "$2" --locked --no-run >"$log" 2>&1; then
        verdict='BROKEN: does not build'
        return
    fi
    # shellcheck disable=SC2086 # no filter is no word
    timeout "$seconds" cargo test --package "dolmen-$1" --features "$2" --locked -- $filter >"$log" 2>&1
    status=$?
    runs=$(awk '/^test result: / { sum += $4 + $6 } END { print sum + 0 }' "$log")
    broken=$(awk '/^test result: / { sum += $6 } END { print sum + 0 }' "$log")
    if [ "$status" -eq 124 ]; then
        # Endless work is a way to be caught only where somebody looks at the clock; the tests have to say it.
        verdict="MISSED: no end after $seconds s"
    elif [ "$runs" -eq 0 ] && [ "$status" -eq 0 ]; then
        verdict="MISSED: no test fits '$3'"
    elif [ "$4" = self ] && [ "$status" -eq 0 ]; then
        verdict=caught
    elif [ "$4" != self ] && [ "$status" -ne 0 ] && [ "$broken" -gt 0 ]; then
        verdict=caught
    elif [ "$4" != self ] && grep -q 'process didn.t exit successfully.*signal: ' "$log"; then
        # A broken invariant aborts the process before the runner can close its count.
        verdict=caught
    else
        verdict='MISSED'
    fi
}

while read -r crate feature filter mark <&7; do
    case $crate in '' | '#'*) continue ;; esac
    is_wanted "$crate $feature $filter" "$@" || continue
    try "$crate" "$feature" "${filter:--}" "${mark:-}"
    printf '  %-12s %-36s %s\n' "$crate" "$feature" "$verdict"
    if [ "$verdict" = caught ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        # Indented, so that the closing lines in it are not counted as this script's own.
        tail -n 20 "$log" | sed 's/^/    | /'
    fi
done 7<"$list"

say "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

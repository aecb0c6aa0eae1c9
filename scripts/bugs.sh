#!/bin/sh
# bugs.sh [FILTER]...: plants every bug of bugs.txt in turn and prints which test caught it.
#
# A bug breaks one rule on purpose (crate `planted`). It is caught when the test that the table names fails, and says
# while failing what the table says it must: a test that breaks for another reason catches nothing, and neither does a
# build that fails, or a filter that no test fits. All bugs are in one build of the tests; DOLMEN_BUG wakes one.
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

# trimmed WORDS: without the spaces around them.
trimmed() { printf '%s' "$1" | sed 's/^ *//;s/ *$//'; }

# The tests of all crates of the table, built to hold the bugs. Always the same crates, so that all runs share one build.
packages=$(sed -n '/^#/d;s/^\([a-z_]*\) .*/\1/p' "$list" | sort -u | sed 's/^/--package dolmen-/' | tr '\n' ' ')
tests="cargo test $packages --lib --tests --features dolmen-planted/switch --locked"

# try BUG TEST SETTINGS REASON: sets $verdict, with its log in $log.
try() {
    log=$logs/bug-$1.log
    # shellcheck disable=SC2086 # lists of words
    env DOLMEN_BUG="$1" $3 timeout "$seconds" $tests -- "$2" >"$log" 2>&1
    status=$?
    runs=$(awk '/^test result: / { sum += $4 + $6 } END { print sum + 0 }' "$log")
    if [ "$status" -eq 124 ]; then
        verdict="MISSED: no end after $seconds s"
    elif [ "$status" -eq 0 ] && [ "$runs" -eq 0 ]; then
        verdict="MISSED: no test fits '$2'"
    elif [ "$status" -eq 0 ]; then
        verdict=MISSED
    elif ! grep -q "^test .*$2.* FAILED\$" "$log"; then
        verdict='MISSED: something else failed'
    elif ! grep -q -e "$4" "$log"; then
        verdict="MISSED: it failed without saying '$4'"
    else
        verdict=caught
    fi
}

building=$(now)
# shellcheck disable=SC2086 # a list of words
if ! $tests --no-run >"$logs/bugs-build.log" 2>&1; then
    cat "$logs/bugs-build.log"
    die 1 'the tests do not build with the planted bugs'
fi
say "built in $(($(now) - building)) s"

while IFS='|' read -r crate bug test settings reason rule <&7; do
    crate=$(trimmed "$crate")
    case $crate in '' | '#'*) continue ;; esac
    bug=$(trimmed "$bug")
    test=$(trimmed "$test")
    is_wanted "$crate $bug $test" "$@" || continue
    begun=$(now)
    try "$bug" "$test" "$(trimmed "$settings")" "$(trimmed "$reason")"
    printf '  %-8s %-24s %-6s %3d s  %s\n' "$crate" "$bug" "$verdict" $(($(now) - begun)) "$(trimmed "$rule")"
    printf '           by %s\n' "$test"
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

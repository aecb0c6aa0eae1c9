#!/bin/sh
# bugs.sh [FILTER]...: plants every bug of bugs.txt in turn and prints which test caught it.
#
# A bug breaks one rule on purpose (crate `planted`). It is caught when the test that the table names fails, and says
# while failing what the table says it must: a test that breaks for another reason catches nothing, and neither does a
# build that fails, or a filter that no test fits. All bugs are in one build of the tests; DOLMEN_BUG wakes one.
#
# A test that fails by itself would seem to catch everything. So each test runs once with its settings and no bug awake,
# its control; where that does not pass, its bugs are missed. Controls in crash states, which go on to their end, run with the
# engine built as for users, in which no bug can be awake.
#
# Lives of crash tests are drawn, and which of them meets a bug changes with whatever the engine writes: where the seed of the table
# does not, seeds 1 to 8 are tried, each with its control. The line says which one it was.
#
# DOLMEN_STATE         where logs and the record of this run are kept (default: .demo in the checkout)
# DOLMEN_BUG_SECONDS   how long one test may run (default: 300)
# DOLMEN_BUG_CONTROLS  a log of tests of an ordinary build, in which no bug can be awake: what passed there as it is needs no control
# DOLMEN_BUG_PART      1/2 or 2/2: only every other test with its bugs, for two runs beside each other (default: all)
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
list=$scripts/bugs.txt
seconds=${DOLMEN_BUG_SECONDS:-300}
part=${DOLMEN_BUG_PART:-}
case $part in '' | 1/2 | 2/2) ;; *) die 2 "DOLMEN_BUG_PART is 1/2 or 2/2, not '$part'" ;; esac
take_state
need_rust
fetch_crates

passed=0
failed=0

# The tests of all crates of the table, built to hold the bugs. Always the same crates, so that all runs share one build.
crates=$(sed -n '/^#/d;s/^\([a-z_]*\) .*/\1/p' "$list" | sort -u)
packages=$(printf '%s\n' "$crates" | sed 's/^/--package dolmen-/' | tr '\n' ' ')

# programs_of_tests: options for all programs of tests that these crates have, and for none of the others that are built with them.
programs_of_tests() {
    printf -- '--lib'
    for crate in $crates; do
        for file in crates/"$crate"/tests/*.rs crates/"$crate"/tests/*/main.rs; do
            [ -e "$file" ] || continue
            name=${file%/main.rs}
            printf ' --test %s' "$(basename "$name" .rs)"
        done
    done
}
tests="cargo test $packages $as_users $(programs_of_tests) --locked --no-run"

crash_tests=crates/space/tests/whole/crash.rs
crash="cargo test --release --locked $as_users --test whole --no-run"

# is_crash_test TEST: it is about crash states.
is_crash_test() { grep -q "^fn $1()" "$crash_tests"; }

# What cargo gives to the threads of tests that it runs.
stack=$(sed -n 's/^RUST_MIN_STACK *= *"\{0,1\}\([0-9]*\).*/\1/p' .cargo/config.toml)
is_number "$stack" || die 1 'no RUST_MIN_STACK stands in .cargo/config.toml'

# list_tests BUILD_LOG FILE: puts a line into FILE for each test that the programs of a build have: program, crate, name.
list_tests() {
    sed -n 's/^ *Executable .*(\(.*\))$/\1/p' "$1" | while IFS= read -r program; do
        case $program in /*) ;; *) program=$root/$program ;; esac
        # The file that cargo keeps beside a program says which sources it was made of.
        of=$(tr ' ' '\n' <"$program.d" | sed -n 's,^crates/\([a-z_]*\)/.*,\1,p' | head -n 1)
        "$program" --list 2>/dev/null | sed -n "s,^\(.*\): test\$,$program $of \1,p"
    done >"$2"
}

# run_test BUG TEST SETTINGS: runs a test with a bug awake, or none where BUG is empty, into $log; sets $status and how
# many tests ran to their end, $runs.
run_test() {
    run_of=$logs/tests-of-bugs
    [ -n "$1" ] || ! is_crash_test "$2" || run_of=$logs/tests-of-crash
    : >"$log"
    status=0
    for run_program in $(awk -v part="$2" 'index($3, part) { print $2 ":" $1 }' "$run_of" | sort -u); do
        # shellcheck disable=SC2086 # a list of words
        attend -- env -C "crates/${run_program%%:*}" -u DOLMEN_BUG RUST_MIN_STACK="$stack" ${1:+DOLMEN_BUG="$1"} $3 \
            timeout "$seconds" "${run_program#*:}" "$2" >>"$log" 2>&1 || status=$?
    done
    runs=$(awk '/^test result: / { sum += $4 + $6 } END { print sum + 0 }' "$log")
}

# The tests and settings that passed without a bug, and those that did not; a line each.
sound=
unsound=

# holds LINES LINE: it is one of them.
holds() { printf '%s\n' "$1" | grep -qxF -e "$2"; }

# show_log: the end of it, indented, so that closing lines in it are not counted as this script's own.
show_log() { tail -n 20 "$log" | sed 's/^/    | /'; }

# has_passed TEST SETTINGS: the log of controls has the test, as it is here. Those of crash states get their number from elsewhere.
has_passed() {
    [ -z "$2" ] && ! is_crash_test "$1" && [ -n "${DOLMEN_BUG_CONTROLS:-}" ] &&
        grep -qx "test \([a-z0-9_]*::\)*$1 \.\.\. ok" "$DOLMEN_BUG_CONTROLS" 2>/dev/null
}

# is_sound TEST SETTINGS: the test passes with these settings while no bug is awake; tried once.
is_sound() {
    sound_pair="$1 $2"
    ! holds "$sound" "$sound_pair" || return 0
    ! holds "$unsound" "$sound_pair" || return 1
    ! has_passed "$1" "$2" || return 0
    log=$logs/control-$(printf '%s' "$sound_pair" | tr -c 'A-Za-z0-9_' -).log
    sound_begun=$(now)
    run_test '' "$1" "$2"
    if [ "$status" -eq 124 ]; then
        sound_word="FAILED: no end after $seconds s"
    elif [ "$status" -ne 0 ]; then
        sound_word=FAILED
    elif [ "$runs" -eq 0 ]; then
        sound_word='FAILED: no test fits'
    elif ! grep -q "^test .*$1.* ok\$" "$log"; then
        sound_word='FAILED: it did not run'
    else
        sound_word=passed
    fi
    printf '  control  no bug awake             %-6s %3d s  %s\n' "$sound_word" $(($(now) - sound_begun)) "$sound_pair"
    if [ "$sound_word" = passed ]; then
        sound="$sound
$sound_pair"
    else
        unsound="$unsound
$sound_pair"
        show_log
        return 1
    fi
}

# try BUG TEST SETTINGS REASON: sets $verdict, with its log in $log.
try() {
    if ! is_sound "$2" "$3"; then
        verdict='MISSED: fails without the bug'
        return 0
    fi
    log=$logs/bug-$1$(printf '%s' "${3:+-$3}" | tr -c 'A-Za-z0-9_' -).log
    run_test "$1" "$2" "$3"
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

crash_seeds='1 2 3 4 5 6 7 8'

# try_seeds BUG TEST SETTINGS REASON: as try, and with other seeds where a test of crash states has not caught it; sets $tried, the
# settings of the last one.
try_seeds() {
    tried=$3
    try "$@"
    is_crash_test "$2" || return 0
    first_seed=$(printf '%s\n' "$3" | sed -n 's/.*DOLMEN_CRASH_SEED=\([0-9]*\).*/\1/p')
    bare=$(printf '%s\n' "$3" | sed 's/ *DOLMEN_CRASH_SEED=[0-9]*//')
    for seed in $crash_seeds; do
        case $verdict in MISSED | 'MISSED: it failed without saying'*) ;; *) return 0 ;; esac
        [ "$seed" != "${first_seed:-1}" ] || continue
        tried=$(trimmed "$bare DOLMEN_CRASH_SEED=$seed")
        try "$1" "$2" "$tried" "$4"
    done
}

building=$(now)
# shellcheck disable=SC2086 # a list of words
if ! attend -- $tests >"$logs/bugs-build.log" 2>&1; then
    cat "$logs/bugs-build.log"
    die 1 'the tests do not build with the planted bugs'
fi
# shellcheck disable=SC2086 # a list of words
if ! attend -- $crash >"$logs/bugs-build-crash.log" 2>&1; then
    cat "$logs/bugs-build-crash.log"
    die 1 'the tests of crash states do not build'
fi
list_tests "$logs/bugs-build.log" "$logs/tests-of-bugs"
list_tests "$logs/bugs-build-crash.log" "$logs/tests-of-crash"
say "built in $(($(now) - building)) s"

# Bugs of one test are of one part, so that its control runs once.
turn=2/2
pair_before=
while IFS='|' read -r crate bug test settings reason rule <&7; do
    crate=$(trimmed "$crate")
    case $crate in '' | '#'*) continue ;; esac
    if [ "$test $settings" != "$pair_before" ]; then
        pair_before="$test $settings"
        [ "$turn" = 1/2 ] && turn=2/2 || turn=1/2
    fi
    [ -z "$part" ] || [ "$part" = "$turn" ] || continue
    bug=$(trimmed "$bug")
    test=$(trimmed "$test")
    settings=$(trimmed "$settings")
    is_wanted "$crate $bug $test $settings" "$@" || continue
    begun=$(now)
    try_seeds "$bug" "$test" "$settings" "$(trimmed "$reason")"
    printf '  %-8s %-24s %-6s %3d s  %s\n' "$crate" "$bug" "$verdict" $(($(now) - begun)) "$(trimmed "$rule")"
    printf '           by %s\n' "$test${tried:+ with $tried}"
    if [ "$verdict" = caught ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        # The log of an unsound test was shown with its control.
        [ "$verdict" = 'MISSED: fails without the bug' ] || show_log
    fi
done 7<"$list"

say "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

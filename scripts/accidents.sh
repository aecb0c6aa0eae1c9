#!/bin/sh
# accidents.sh [FILTER]...: runs each accident of accidents.txt as it is, and once more with its remedy taken away.
#
# An accident is a test against the daemon (docs/accidents.md). Its remedy is the rule that makes it impossible, and a bug of
# crate `planted` takes that away: then the test has to fail, and to say what the table says. First every test runs with
# no bug awake; one that does not pass shows nothing with a bug either.
#
# Tests and daemon are built with all bugs in them, in a folder of their own: what an ordinary build has made is not touched.
#
# DOLMEN_STATE               where logs and the record of this run are kept (default: .demo in the checkout)
# DOLMEN_ACCIDENT_SECONDS    how long one test may run (default: 240)
# DOLMEN_ACCIDENT_TOGETHER   how many tests run at a time (default: one more than there are processors, 4 at most)
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
list=$scripts/accidents.txt
seconds=${DOLMEN_ACCIDENT_SECONDS:-240}
together=${DOLMEN_ACCIDENT_TOGETHER:-$(nproc | awk '{ print ($1 < 4) ? $1 + 1 : 4 }')}
is_number "$seconds" && is_number "$together" || die 2 'DOLMEN_ACCIDENT_SECONDS and DOLMEN_ACCIDENT_TOGETHER are numbers'
take_state
need_rust
fetch_crates

passed=0
failed=0
ordinary=${CARGO_TARGET_DIR:-$root/target}
own=$ordinary/planted
# Where the tests make their disks and mounts.
space=$state/a

# lines FILTER...: those of the table that are wanted, without spaces around their words.
lines() {
    while IFS='|' read -r lines_number lines_test lines_bug lines_reason lines_remedy <&7; do
        case $lines_number in '' | '#'*) continue ;; esac
        lines_test=$(trimmed "$lines_test")
        lines_bug=$(trimmed "$lines_bug")
        is_wanted "$lines_test $lines_bug" "$@" || continue
        printf '%s|%s|%s|%s|%s\n' "$(trimmed "$lines_number")" "$lines_test" "$lines_bug" \
            "$(trimmed "$lines_reason")" "$(trimmed "$lines_remedy")"
    done 7<"$list"
}

# Crates that were built already, also those that `bugs.sh` has built with the same bugs, are taken over.
take_over() {
    [ ! -d "$own" ] && [ -d "$ordinary/debug/deps" ] || return 0
    mkdir -p "$own/debug/deps" && cp -a "$ordinary/debug/.fingerprint" "$ordinary/debug/build" "$own/debug/" &&
        find "$ordinary/debug/deps" -maxdepth 1 -type f -name 'lib*' -exec cp -a -t "$own/debug/deps" {} + &&
        find "$ordinary/debug/deps" -maxdepth 1 -type f -name '*.d' -exec cp -a -t "$own/debug/deps" {} + &&
        return 0
    # Without them it takes longer, and no more.
    rm -rf "$own"
}

build() {
    building=$(now)
    take_over
    attend -- env CARGO_TARGET_DIR="$own" cargo test --package dolmen-daemon --package dolmen-cli --test accidents --no-run --locked >"$logs/accidents-build.log" 2>&1 || {
        cat "$logs/accidents-build.log"
        die 1 'the accidents do not build with the planted bugs'
    }
    programs=$(sed -n 's/^ *Executable tests\/accidents.*(\(.*\))$/\1/p' "$logs/accidents-build.log")
    [ "$(printf '%s\n' "$programs" | grep -c .)" -eq 2 ] || die 1 'the build has not told of two programs'
    say "built in $(($(now) - building)) s"
}

# find_test NAME: the program that has the test, in $program, and its name there, in $full.
find_test() {
    for program in $programs; do
        full=$("$program" --list 2>/dev/null | sed -n "s/^\(.*\): test\$/\1/p" | grep -x -e "$1" -e ".*::$1")
        [ -z "$full" ] || return 0
    done
    return 1
}

# begin_test TEST BUG LOG NUMBER: with a bug awake, or none where BUG is empty; its pid is in $!. Its folder has the number for
# its name: there are sockets in it, whose paths may not be long.
begin_test() {
    find_test "$1" || die 1 "no test is called $1"
    begin_folder=$space/$4
    note below "$begin_folder"
    note dir "a/$4"
    mkdir -p "$begin_folder"
    # Not every cut of the power, and not every look, comes at a moment that shows it: with a bug there are more, and the first that
    # does is the last.
    begin -- env -u DOLMEN_BUG ${2:+DOLMEN_BUG="$2" DOLMEN_ACCIDENT_TURNS=32} TMPDIR="$begin_folder" RUST_BACKTRACE=0 timeout "$seconds" \
        "$program" --exact "$full" --nocapture >"$3" 2>&1
}

# show LOG: what it ends with, indented, so that closing lines in it are not counted as this script's own.
show() { grep -v ' WARN ' "$1" | tail -n 20 | sed 's/^/    | /'; }

# control STATUS LOG: what a run without a bug has shown, in $verdict.
control() {
    verdict=passed
    [ "$1" -ne 124 ] || verdict="FAILED: no end after $seconds s"
    [ "$1" -eq 0 ] || [ "$1" -eq 124 ] || verdict=FAILED
    [ "$1" -ne 0 ] || grep -q '^test result: ok. 1 passed' "$2" || verdict='FAILED: it did not run'
}

# remedy STATUS LOG BUG REASON: what a run with a bug awake has shown, in $verdict.
remedy() {
    if [ "$1" -eq 124 ]; then
        verdict="MISSED with bug $3: no end after $seconds s"
    elif [ "$1" -eq 0 ] && grep -q '^skipped: ' "$2"; then
        verdict="skipped: without its remedy ($(sed -n 's/^skipped: //p' "$2" | head -n 1))"
    elif [ "$1" -eq 0 ]; then
        verdict="MISSED: passes without its remedy (bug $3)"
    elif ! grep -q '^test result: FAILED. 0 passed; 1 failed' "$2"; then
        verdict="MISSED with bug $3: it did not come to its end"
    elif ! grep -q -e "$4" "$2"; then
        verdict="MISSED with bug $3: it failed without saying '$4'"
    else
        verdict="fails without its remedy (bug $3)"
    fi
}

# all FILE: runs what its lines name, a test and a bug or none each, and puts the status of each into a file beside its log.
all() {
    all_running=
    all_count=0
    while IFS='|' read -r all_test all_bug <&6; do
        all_log=$logs/accident-$all_test${all_bug:+-$all_bug}
        all_count=$((all_count + 1))
        begin_test "$all_test" "$all_bug" "$all_log.log" "$all_count"
        all_running="$all_running $!:$all_log"
        [ "$(printf '%s\n' "$all_running" | wc -w)" -lt "$together" ] || first_ends
    done 6<"$1"
    while [ -n "$all_running" ]; do first_ends; done
}

# first_ends: waits for one of those that run, whichever ends first.
first_ends() {
    while :; do
        for ends_one in $all_running; do
            ends_pid=${ends_one%%:*}
            is_process "$ends_pid" "$(start_time "$ends_pid")" && continue
            wait "$ends_pid"
            printf '%s\n' "$?" >"${ends_one#*:}.status"
            all_running=$(printf '%s' "$all_running" | sed "s|$ends_one||;s/^ *//;s/ *\$//")
            return 0
        done
        sleep 0.1
    done
}

lines "$@" >"$state/accidents"
[ -s "$state/accidents" ] || { say '0 passed, 0 failed'; exit 0; }
need mkfs.ext4 losetup mount umount || :
need mkfs.xfs || :
build
running=$(now)
cut -d'|' -f2 "$state/accidents" | sort -u | sed 's/$/|/' >"$state/controls"
cut -d'|' -f2,3 "$state/accidents" >"$state/planted"
cat "$state/controls" "$state/planted" >"$state/runs"
all "$state/runs"

# The end of a run, as $status and in $log.
outcome() {
    log=$logs/accident-$1${2:+-$2}.log
    status=$(cat "${log%.log}.status")
}

while IFS='|' read -r number test bug reason rule <&7; do
    outcome "$test" ''
    control "$status" "$log"
    first=$verdict
    [ "$verdict" = passed ] || show "$log"
    outcome "$test" "$bug"
    remedy "$status" "$log" "$bug" "$reason"
    printf '  accident %-2s  %-42s %s, %s\n' "$number" "$test" "$first" "${verdict%%:*}"
    printf '               by: %s\n' "$rule"
    case $first/$verdict in
    passed/fails* | passed/skipped*) passed=$((passed + 1)) ;;
    *) failed=$((failed + 1)) && say "    $verdict" && show "$log" ;;
    esac
    case $verdict in skipped*) say "$verdict" ;; esac
done 7<"$state/accidents"

say "accidents took $(($(now) - running)) s"
say "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

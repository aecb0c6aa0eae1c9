#!/bin/sh
# mutant.sh 'CRATE|MUTANT|TEST|SETTINGS|WORDS|RULE': runs one test with a mutant awake, for mutants.sh, which has built it.
#
# The mutant is killed when the test fails and says WORDS, a pattern of grep; a test that fails for another reason kills nothing.
# The same test with the same settings has to pass without the mutant, its control, which runs once for all its mutants.
#
# Runs of crash tests are drawn, and which of them meets a mutant changes with whatever the engine writes: where the seed of the
# row does not, seeds 1 to 8 are tried. The line says which one it was.
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
# shellcheck disable=SC2034 # `attend` reads it
owner=$DOLMEN_OWNER
seconds=${DOLMEN_MUTANT_SECONDS:-300}
# The status of a process that a broken order of locks has ended: SIGABRT.
aborted=134
stack=$(sed -n 's/^RUST_MIN_STACK *= *"\{0,1\}\([0-9]*\).*/\1/p' .cargo/config.toml)
IFS='|' read -r crate mutant test settings words rule <<END
$1
END
id=$(printf '%s' "$1" | cksum | cut -d' ' -f1)
# Sockets lie in it, whose paths may not be long.
folder=$state/a/$id

# run MUTANT SETTINGS LOG: runs the test into a log, with a mutant awake or with none; sets $status.
run() {
    status=0
    : >"$3"
    for run_program in $(awk -v test="$test" -v is_incident="$([ "$crate" != incident ] || echo 1)" '
        is_incident ? $3 ~ "(^|::)" test "$" : index($3, test) { print $2 "|" $1 }' "$state/tests" | sort -u); do
        mkdir -p "$folder"
        # shellcheck disable=SC2086 # a list of words
        attend below "$folder" -- env -C "$(folder_of "${run_program%%/*}")" -u DOLMEN_MUTANT ${1:+DOLMEN_MUTANT="$1"} $2 PROPTEST_DISABLE_FAILURE_PERSISTENCE=1 TMPDIR="$folder" \
            RUST_MIN_STACK="$stack" RUST_BACKTRACE=0 timeout "$seconds" "${run_program#*|}" "$test" --nocapture >>"$3" 2>&1 || status=$?
    done
}

# passed LOG: a test has run, and none has failed.
passed() { [ "$status" -eq 0 ] && grep -q '^test result: ok. [1-9]' "$1"; }

# is_sound SETTINGS: the test passes without a mutant.
is_sound() {
    [ -n "$settings" ] && [ "$crate" != incident ] || [ "${DOLMEN_TESTS_PASSED:-no}" != yes ] || return 0
    sound_settings=$1
    [ "$crate" != incident ] || sound_settings=
    sound_file=$state/controls/$(printf '%s' "$test $sound_settings" | tr -c 'A-Za-z0-9_=' _)
    (
        flock 8
        [ ! -e "$sound_file.verdict" ] || exit 0
        run '' "$sound_settings" "$sound_file"
        if passed "$sound_file"; then say sound; else say unsound; fi >"$sound_file.verdict"
    ) 8>>"$sound_file.lock"
    grep -qx sound "$sound_file.verdict"
}

# try SETTINGS: sets $verdict, with what the test said in $log.
try() {
    log=$logs/mutant-$mutant-$id.log
    if ! is_sound "$1"; then
        verdict='MISSED: the test fails without the mutant'
        log=$sound_file
        return
    fi
    run "$mutant" "$1" "$log"
    if [ "$status" -eq 124 ]; then
        verdict="MISSED: no end after $seconds s"
    elif passed "$log"; then
        verdict=MISSED
        [ "$crate" != incident ] || ! grep -q '^skipped: ' "$log" || verdict=skipped
    elif [ "$status" -ne "$aborted" ] && ! grep -q '^test result: FAILED' "$log"; then
        verdict="MISSED: no test has failed"
    elif ! grep -q -e "$words" "$log"; then
        verdict="MISSED: it failed without saying '$words'"
    else
        verdict=killed
    fi
}

begun=$(now)
try "$settings"
if grep -q "^fn $test()" crates/space/tests/whole/crash.rs; then
    first=$(printf '%s\n' "$settings" | sed -n 's/.*DOLMEN_CRASH_SEED=\([0-9]*\).*/\1/p')
    bare=$(trimmed "$(printf '%s\n' "$settings" | sed 's/ *DOLMEN_CRASH_SEED=[0-9]*//')")
    for seed in 1 2 3 4 5 6 7 8; do
        case $verdict in MISSED | 'MISSED: it failed without saying'*) ;; *) break ;; esac
        [ "$seed" != "${first:-1}" ] || continue
        settings="$bare DOLMEN_CRASH_SEED=$seed"
        try "$settings"
    done
fi
rm -rf "$folder"
mkdir -p "$state/a"
{
    case $verdict in
    skipped)
        say "skipped: $test with $mutant ($(sed -n 's/^skipped: //p' "$log" | head -n 1))"
        verdict='killed  (not shown here)'
        ;;
    esac
    printf '  %-8s %-26s %s %3d s  by %s%s: %s\n' "$crate" "$mutant" "$verdict" $(($(now) - begun)) "$test" "${settings:+ with $settings}" "$rule"
    case $verdict in
    MISSED*)
        tail -n 20 "$log" | sed 's/^/    | /'
        say "    repeat: ./test $mutant"
        ;;
    esac
} >"$folder.said" && cat "$folder.said" && rm -f "$folder.said"
case $verdict in killed*) ;; *) exit 1 ;; esac

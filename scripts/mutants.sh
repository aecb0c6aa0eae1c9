#!/bin/sh
# mutants.sh [--some] [--part K/N] [--incidents] [NAME]...: wakes mutants, one at a time, and prints which test killed each; of
# all, or of those whose names hold one of the words.
#
# A mutant breaks one rule on purpose (crate `mutation`). It is killed when the test that the table names fails, and says while
# failing what the table says it must (mutant.sh). mutants.txt has the mutants of the engine; incidents.txt those that take the
# safeguard of an incident away (docs/incidents.md), which run with --incidents. Both are in the ordinary build of the tests.
#
#   --some        only mutants whose file, or the file of whose test, has changed since the newest commit in
#                 docs/proof/full_pass.txt, and a fifth of all that the commit's hash draws; says which
#   --part K/N    every Nth, from the Kth on
#   --incidents   incidents instead of the mutants of the engine
#
# DOLMEN_STATE            where logs and the record of this run are kept (default: .demo in the checkout)
# DOLMEN_MUTANT_SECONDS   how long one test may run (default: 300)
# DOLMEN_MUTANT_JOBS      how many run at a time (default: as many as there are processors; of incidents one more)
# DOLMEN_TESTS_PASSED     yes: all tests have passed without a mutant, so that those without settings need no control
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
some=no
part=1/1
table=mutants.txt
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,/^root=/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --some) some=yes ;;
    --incidents) table=incidents.txt ;;
    --part)
        { is_number "${2%/*}" && is_number "${2#*/}"; } || die 2 "--part takes K/N, not '${2-}'"
        part=$2
        shift
        ;;
    -*) die 2 "no option $1; see $0 --help" ;;
    *) break ;;
    esac
    shift
done
jobs=${DOLMEN_MUTANT_JOBS:-$(($(nproc) + ($([ "$table" = incidents.txt ] && echo 1 || echo 0))))}
is_number "$jobs" || die 2 'DOLMEN_MUTANT_JOBS is a number'

# rows: crate|mutant|test|settings|words|rule for each line of the table, without spaces around them.
rows() {
    awk -F' *[|] *' -v OFS='|' '/^#/ || !NF { next }
        { sub(/^ +/, "", $1); sub(/ +$/, "", $NF) }
        NF == 5 { print "incident", $3, $2, "DOLMEN_INCIDENT_ATTEMPTS=32", $4, $1 ": " $5; next }
        NF == 6 { print $1, $2, $3, $4, $5, $6; next }
        { print "line " FNR " is no row: " $0 >"/dev/stderr"; exit 1 }' "$scripts/$table"
}

# changed_files: those that differ from the newest commit with a recorded full pass; fails where there is none to compare with.
changed_files() {
    base=$(sed -n 's/^commit \([0-9a-f]*\)$/\1/p' docs/proof/full_pass.txt 2>/dev/null | head -n 1)
    [ -n "$base" ] && git cat-file -e "$base^{commit}" 2>/dev/null && git diff --name-only "$base" -- crates tools
}

# is_changed MUTANT TEST: so is a file that asks for the mutant, or one that has the test.
is_changed() {
    [ -s "$state/changed" ] || return 1
    changed_name=$(sed -n "s/^    \([A-Z][A-Za-z]*\) = \"$1\",\$/\1/p" crates/mutation/src/lib.rs)
    grep -rlE "mutation!\($changed_name\)|fn $2[a-z_0-9]*\(" crates tools --include=*.rs | grep -qxFf "$state/changed"
}

# is_drawn ROW: it is of the fifth that this commit draws.
is_drawn() { [ $(($(printf '%s %s' "$commit" "$1" | cksum | cut -d' ' -f1) % 5)) -eq 0 ]; }

# chosen: the rows to run, from standard input.
chosen() {
    chosen_at=0
    while IFS= read -r chosen_row; do
        IFS='|' read -r chosen_crate chosen_mutant chosen_test chosen_settings chosen_rest <<END
$chosen_row
END
        is_wanted "$chosen_mutant" "$@" || continue
        chosen_at=$((chosen_at + 1))
        [ $((chosen_at % ${part#*/})) -eq $((${part%/*} % ${part#*/})) ] || continue
        if [ "$some" = no ]; then
            say "$chosen_row"
        elif is_changed "$chosen_mutant" "$chosen_test"; then
            say "$chosen_row"
            say "$chosen_mutant" >>"$state/chosen-changed"
        elif is_drawn "$chosen_row"; then
            say "$chosen_row"
        fi
    done
}

take_state
need_rust
fetch_crates
commit=$(git rev-parse HEAD 2>/dev/null || echo 0)
rows >"$state/all-rows" || die 1 "scripts/$table is not what it should be"
: >"$state/changed"
: >"$state/chosen-changed"
if [ "$some" = yes ] && ! changed_files >"$state/changed"; then
    say 'mutants: docs/proof/full_pass.txt names no commit of this history; what has changed since cannot be told'
fi
chosen "$@" <"$state/all-rows" >"$state/rows"
[ "$some" = no ] ||
    say "mutants: $(wc -l <"$state/rows") of $(wc -l <"$state/all-rows"): $(wc -l <"$state/chosen-changed") changed since $(printf '%.12s' "${base:-nothing}"), the others of the fifth that commit $(printf '%.12s' "$commit") draws"
[ -s "$state/rows" ] || { say '0 passed, 0 failed'; exit 0; }
list_tests "$state/tests" || die 1 'the tests do not build'
note dir controls
note dir a
rm -rf "$state/controls"
mkdir -p "$state/controls"
begun=$(now)
export DOLMEN_OWNER="$owner" DOLMEN_STATE="$state"
# Not ended by the first that fails; the lines say which did.
attend -- xargs -a "$state/rows" -d '\n' -n 1 -P "$jobs" sh "$scripts/mutant.sh" >"$state/said" 2>&1
cat "$state/said"
say "mutants took $(($(now) - begun)) s"
passed=$(grep -cE '^  [a-z_]+ +[a-z0-9-]+ +killed +[0-9(]' "$state/said")
failed=$(($(wc -l <"$state/rows") - passed))
say "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

#!/bin/sh
# unmutated.sh PROGRAM...: fails where a program holds a mutant: the name of one, or the variable that wakes one.
#
# Mutants are compiled into builds with debug assertions (crate `mutation`); what people install is built without.
root=$(cd "$(dirname "$0")/.." && pwd)
names=$(sed -n 's/^    [A-Z][A-Za-z]* = "\([a-z-]*\)",$/\1/p' "$root/crates/mutation/src/lib.rs")
[ -n "$names" ] || { printf 'unmutated.sh: crates/mutation/src/lib.rs names no mutants\n' >&2; exit 1; }
status=0
for program in "$@"; do
    [ -f "$program" ] || { printf 'unmutated.sh: %s is not there\n' "$program" >&2; exit 1; }
    found=$(printf '%s\nDOLMEN_MUTANT\n' "$names" | LC_ALL=C grep -aoF -f - "$program" | sort -u | head -n 5 | tr '\n' ' ')
    if [ -n "$found" ]; then
        printf 'FAILED %s holds mutants: %s\n' "$program" "$found"
        status=1
    fi
done
exit "$status"

#!/bin/sh
# What ./demo and ./test do where there is no Rust, or no C compiler, and no way to get one: neither apt nor the official
# installer, and no network. Each ends with 69 and one line that says what to install, and leaves nothing behind.
#
# They run in a system that has next to nothing; proof.sh makes it.
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/proof.sh"
trap 'rm -rf "$proof"' EXIT
trap 'exit 130' INT TERM HUP

# What there is beside commands: the folders of the system, and content in its state directory.
left_behind() {
    ls -A "$proof/home" "$proof/tmp"
    find "$DOLMEN_STATE" -type f -size +0
    remains
}

# expect COMMAND WORDS: it ends with 69 and one line with these words, and nothing is there that was not.
expect() {
    before=$(left_behind)
    bare "$1"
    check "./$1 without ${2#needs } ends with 69" "$status" "$EX_UNAVAILABLE"
    check "./$1 says one line" "$(wc -l <"$proof/said")" 1
    check "./$1 says what it needs" "$(grep -c "^$1: $2.*: apt-get install " "$proof/said")" 1
    check "./$1 leaves nothing" "$(left_behind)" "$before"
    [ "$failed" -eq 0 ] || sed 's/^/    | /' "$proof/said"
}

bare_apart 'what is said where no Rust can be had' || exit 0
bare_system
mkdir "$DOLMEN_STATE"
for command in demo test; do
    expect "$command" "needs Rust $(rust_wanted) or newer"
done
bare_rust "$proof/bin"
for command in demo test; do
    expect "$command" 'needs a C compiler as linker'
done

close_proof

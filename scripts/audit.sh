#!/bin/sh
# audit.sh [--offline]: whether what is built in may be: licences, banned crates, where they come from (deny.toml), and whether
# any of them is known to be unsafe.
#
# Needs cargo-deny (cargo install cargo-deny --locked), and is skipped where it is not installed. Known faults stand in a
# database that is fetched first; where it cannot be, or with --offline, the copy of the last time is taken, and that part is
# skipped where there is none. Not part of ./test. Leaves with 1 if something is not as it should be.
cd "$(dirname "$0")/.." || exit 1
offline=no
case ${1-} in
'') ;;
--offline) offline=yes ;;
*)
    sed -n '2,/^cd/{/^cd/d;s/^# \{0,1\}//p;}' "$0"
    [ "$1" = -h ] || [ "$1" = --help ] || exit 2
    exit 0
    ;;
esac
if ! cargo deny --version >/dev/null 2>&1; then
    echo 'skipped: audit (cargo-deny is not installed; cargo install cargo-deny --locked)'
    exit 0
fi
status=0
# What is not skipped reads this machine's copies of the crates alone.
cargo fetch --locked --quiet || exit 1
cargo deny --offline --locked check --hide-inclusion-graph bans licenses sources || status=1
if [ "$offline" = no ] && ! cargo deny --locked fetch db 2>/dev/null; then
    echo 'audit: the database of known faults cannot be fetched; the copy of the last time is taken'
fi
if ls -d "${CARGO_HOME:-$HOME/.cargo}"/advisory-dbs/*/.git >/dev/null 2>&1; then
    cargo deny --offline --locked check --hide-inclusion-graph advisories || status=1
else
    echo 'skipped: known faults (there is no database of them here)'
fi
exit "$status"

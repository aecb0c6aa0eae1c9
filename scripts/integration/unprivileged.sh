#!/bin/sh
# The demo, short, over NBD and as nobody: no root, no FUSE, no loop device, not a file that nobody could not write.
#
# Where nobody may not reach the checkout, or cannot be become, it is run by whoever runs this, over NBD all the same.
#
# DOLMEN_UNPRIVILEGED_MIB   how much of the tree goes into each space (default: 128)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='the demo without rights'
way=nbd
mib=${DOLMEN_UNPRIVILEGED_MIB:-128}
# A state directory of its own, whose record this run's record leads to.
theirs=$state/demo

# The words in front of a command that is nobody's.
as_nobody='setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs'

can_nobody() {
    [ "$(id -u)" -eq 0 ] && need setpriv && $as_nobody "$bin" --version >/dev/null 2>&1 && $as_nobody test -w "$theirs" -a -r "$root/demo"
}

make_theirs() { mkdir -p "$theirs" && { [ "$(id -u)" -ne 0 ] || chown 65534:65534 "$theirs"; }; }

# The demo's own word for what it did.
demo_says() { grep -q "$1" "$logs/demo.log"; }
show_demo() { sed 's/^/   | /' "$logs/demo.log"; }

# run_demo [WORD]...: with nothing of this environment that could help it.
run_demo() {
    attend -- "$@" env -i PATH="$PATH" HOME="$theirs" DOLMEN_STATE="$theirs" DOLMEN_BIN="$bin" DOLMEN_DEMO_MIB="$mib" \
        DOLMEN_DEMO_TREE="$tree" ${demo_way:+DOLMEN_DEMO_WAY="$demo_way"} sh ./demo >"$logs/demo.log" 2>&1 </dev/null || { show_demo >&2; return 1; }
    show_demo
}

open_script $((mib * 13 + 256)) nbdcopy qemu-io
note nested "$theirs"
must 'a folder that is nobody'\''s' make_theirs
demo_way=
if can_nobody; then
    step 'the demo, as nobody'
    # shellcheck disable=SC2086 # a list of words
    must 'it comes to its end' run_demo $as_nobody
    must 'it says what it could not have' demo_says '^skipped: file systems on block devices (no root'
else
    skip 'the demo as nobody (nobody cannot be become, or may not reach the checkout or the program)'
    demo_way=nbd
    step 'the demo, over NBD'
    must 'it comes to its end' run_demo
fi
must 'over NBD' demo_says '^demo: .* none missing, .* over nbd$'
close_script

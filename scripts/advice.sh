#!/bin/sh
# What ./demo and ./test do where there is no Rust, or no C compiler, and no way to get one: neither apt nor the official
# installer, and no network. Each ends with 69 and one line that says what to install, and leaves nothing behind.
#
# They run without a network, in an environment whose PATH has what the smallest Debian has: coreutils, grep, sed, awk, and
# util-linux. A Rust in /usr/bin, where they look too, is hidden in a namespace of mounts.
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/proof.sh"
trap 'rm -rf "$proof"' EXIT
trap 'exit 130' INT TERM HUP

give_up() {
    say "skipped: what is said where no Rust can be had: $1"
    exit 0
}

# apart COMMAND...: without a network, and with mounts of its own.
if unshare -n -m true 2>/dev/null; then
    apart() { unshare -n -m "$@"; }
elif unshare -r -n -m true 2>/dev/null; then
    apart() { unshare -r -n -m "$@"; }
else
    give_up 'needs namespaces of networks and mounts (unshare -n -m)'
fi
[ ! /usr/sbin -ef /usr/bin ] || give_up 'the commands of /usr/bin are in /usr/sbin too'

# link_tools FOLDER: the commands of the smallest system, without a shell's own.
link_tools() {
    mkdir -p "$1"
    for tool in awk b2sum basename cat chmod cp cut date df dirname env expr find flock grep head id install ln ls mkdir mktemp \
        mv nproc od printf readlink rm rmdir sed seq setsid sh sleep sort stat tac tail tee touch tr truncate uname unshare wc \
        xargs; do
        ! have "$tool" || ln -s "$(command -v "$tool")" "$1/$tool" 2>/dev/null || :
    done
}

# link_rust FOLDER: something that says it is Rust and new enough.
link_rust() {
    for tool in cargo rustc; do
        printf '#!/bin/sh\necho "%s %s.0 (0 2000-01-01)"\n' "$tool" "$(rust_wanted)" >"$1/$tool"
        chmod +x "$1/$tool"
    done
}

# bare COMMAND: in that environment; what it says is in $proof/said, its status in $status.
bare() {
    # shellcheck disable=SC2016 # the inner shell expands it
    apart sh -c '
        for tool in cargo rustc; do
            [ ! -e "/usr/bin/$tool" ] || mount --bind /dev/null "/usr/bin/$tool" || exit 99
        done
        exec env -i PATH="$1/bin" HOME="$1/home" TMPDIR="$1/tmp" DOLMEN_STATE="$1/state of it" sh "$2"' \
        sh "$proof" "$root/$1" >"$proof/said" 2>&1 </dev/null
    status=$?
}

# expect COMMAND WORDS: it ends with 69 and one line with these words, and nothing is there that was not.
expect() {
    bare "$1"
    [ "$status" -ne 99 ] || give_up 'the Rust in /usr/bin cannot be hidden'
    check "./$1 without ${2#needs } ends with 69" "$status" "$EX_UNAVAILABLE"
    check "./$1 says one line" "$(wc -l <"$proof/said")" 1
    check "./$1 says what it needs" "$(grep -c "^$1: $2.*: apt-get install " "$proof/said")" 1
    check "./$1 leaves nothing" "$(ls "$proof" "$proof/home" "$proof/tmp" | tr '\n' ' ')" "$(cat "$proof/before")"
    [ "$failed" -eq 0 ] || sed 's/^/    | /' "$proof/said"
}

mkdir "$proof/home" "$proof/tmp"
link_tools "$proof/bin"
: >"$proof/said"
: >"$proof/before"
ls "$proof" "$proof/home" "$proof/tmp" | tr '\n' ' ' >"$proof/before"
for command in demo test; do
    expect "$command" "needs Rust $(rust_wanted) or newer"
done
link_rust "$proof/bin"
for command in demo test; do
    expect "$command" 'needs a C compiler as linker'
done

close_proof

# Shared by ./test, ./demo and the scripts they start; POSIX sh and coreutils.
#
# A run owns one state directory. What it makes outside of it (processes, mounts, loop devices) is first written to
# the record there, so that a run that is killed at any moment leaves a list of what has to be undone:
#
#   $state/owner   pid, start time and boot of the run that holds the lock; written under flock
#   $state/record  one line for each thing, oldest first; undone from the end
#   $state/lock    flock on it covers only looking at the two files above, so that no child ever keeps it
#
# A new run takes the ownership first and reads the record then. A helper of the old run that comes late finds that
# it has another owner and does nothing; so there is no moment at which something is made and not listed.

export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
export LC_ALL=C
scripts=$root/scripts
state=${DOLMEN_STATE:-$root/.demo}
logs=$state/logs

EX_UNAVAILABLE=69
EX_TEMPFAIL=75

say() { printf '%s\n' "$*"; }
warn() { printf '%s\n' "$*" >&2; }

# die STATUS MESSAGE
die() {
    die_status=$1
    shift
    warn "$(basename "$0"): $*"
    exit "$die_status"
}

have() { command -v "$1" >/dev/null 2>&1; }

now() { date +%s; }

# is_number WORD: it is a whole number from 1 on.
is_number() { case $1 in '' | *[!0-9]* | 0*) return 1 ;; esac }

# trimmed WORDS: without the spaces around them.
trimmed() { printf '%s' "$1" | sed 's/^ *//;s/ *$//'; }

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

# --- rights ------------------------------------------------------------------------------------------------------

can_root() { [ "$(id -u)" -eq 0 ] || { have sudo && sudo -n true 2>/dev/null; }; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

# The words in front of a command of root's that attend and begin start, which know no functions.
root_words() { [ "$(id -u)" -eq 0 ] || printf 'sudo -n'; }

# --- packages ----------------------------------------------------------------------------------------------------
# All that may take long is in the record: the state is taken before anything is installed.

apt_is_updated=no

# apt_get WORD...: without a question. dpkg stays in the session that is recorded, where it is not ended half way; apt would
# give it a terminal, and with that a session, of its own.
apt_get() {
    # shellcheck disable=SC2046 # a list of words
    attend -- $(root_words) env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o DPkg::Use-Pty=0 "$@" \
        >>"$logs/apt.log" 2>&1 </dev/null
}

apt_update() {
    [ "$apt_is_updated" = no ] || return 0
    for apt_pause in 1 5 0; do
        if apt_get update; then
            apt_is_updated=yes
            return 0
        fi
        sleep "$apt_pause"
    done
    return 1
}

# apt_install PACKAGE...: without a question; fails where it cannot be done.
apt_install() {
    have apt-get && can_root || return 1
    say "installing $* (log: $logs/apt.log)"
    # Old lists still install in most cases, and a mirror that is away must not hide that.
    apt_update || warn "apt-get update failed three times; trying with the lists at hand"
    apt_get install -y --no-install-recommends "$@"
}

# The Debian package that brings a command.
package_of() {
    case $1 in
    cc) echo gcc libc6-dev ;;
    curl) echo curl ca-certificates ;;
    flock | setsid | losetup | mount | umount | findmnt | fstrim | blkdiscard) echo util-linux mount ;;
    mkfs.ext4 | fsck.ext4 | dumpe2fs) echo e2fsprogs ;;
    mkfs.xfs | xfs_io) echo xfsprogs ;;
    mkfs.btrfs) echo btrfs-progs ;;
    nbdcopy | nbdinfo) echo libnbd-bin ;;
    promtool) echo prometheus ;;
    qemu-img | qemu-io) echo qemu-utils ;;
    fusermount3) echo fuse3 ;;
    *) echo "$1" ;;
    esac
}

# need COMMAND...: installs what is missing; fails, with the names in $missing, where something stays away.
need() {
    need_packages=
    for need_command in "$@"; do
        have "$need_command" && continue
        need_package=$(package_of "$need_command")
        case "$need_packages " in
        *" $need_package "*) ;;
        *) need_packages="$need_packages $need_package" ;;
        esac
    done
    missing=
    [ -n "$need_packages" ] || return 0
    # shellcheck disable=SC2086 # a list of words
    apt_install $need_packages || :
    for need_command in "$@"; do
        have "$need_command" || missing="$missing $need_command"
    done
    [ -z "$missing" ]
}

# --- Rust --------------------------------------------------------------------------------------------------------

rust_wanted() { sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' "$root/Cargo.toml" | head -n 1; }

# at_least VERSION WANTED
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# is_good_rust FOLDER: cargo and rustc there are new enough.
is_good_rust() {
    for good_tool in cargo rustc; do
        good_version=$("$1/$good_tool" --version 2>/dev/null | cut -d' ' -f2 | cut -d- -f1)
        [ -n "$good_version" ] && at_least "$good_version" "$(rust_wanted)" || return 1
    done
}

# Puts the first folder with a good Rust at the head of PATH.
find_rust() {
    for rust_folder in "$(dirname "$(command -v cargo || echo /nowhere/cargo)")" "${CARGO_HOME:-${HOME:-}/.cargo}/bin" /usr/bin; do
        if is_good_rust "$rust_folder"; then
            PATH=$rust_folder:$PATH
            return 0
        fi
    done
    return 1
}

DEBIAN_RUST='cargo-web rustc-web rustfmt-web rust-web-clippy ca-certificates'

# The only program that is fetched from anywhere but a package registry; asked for once.
official_rust() {
    need curl || return 1
    say "installing Rust with its official installer (log: $logs/rust.log)"
    # What it loads before it unpacks anything goes where it is cleared away.
    note dir rust
    mkdir -p "$state/rust"
    attend -- curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs -o "$state/rust/init.sh" >>"$logs/rust.log" 2>&1 &&
        attend -- env TMPDIR="$state/rust" sh "$state/rust/init.sh" -y --no-modify-path --profile minimal -c rustfmt -c clippy \
            >>"$logs/rust.log" 2>&1
}

rust_advice() {
    die "$EX_UNAVAILABLE" "needs Rust $(rust_wanted) or newer with clippy and rustfmt; on Debian 12, as root: apt-get install $DEBIAN_RUST"
}

need_rust() {
    # shellcheck disable=SC2086 # a list of words
    find_rust || { apt_install $DEBIAN_RUST && find_rust; } || { official_rust && find_rust; } || rust_advice
    need cc || die "$EX_UNAVAILABLE" 'needs a C compiler as linker; on Debian, as root: apt-get install gcc libc6-dev'
}

# need_rust_tools: rustfmt and clippy beside cargo, from wherever cargo came.
need_rust_tools() {
    ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 || return 0
    if have rustup; then
        attend -- rustup component add rustfmt clippy >>"$logs/rust.log" 2>&1 || :
    else
        apt_install rustfmt-web rust-web-clippy || :
    fi
    { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 || rust_advice
}

# Packages that every build for users has among its own, and every build of tests with the engine as users have it. Cargo decides for
# all packages of a command at once which features the crates of others have, and builds those, and all that stands on them, again
# for each answer; these have one answer, with and without tests (what crate `cli` names for that alone is marked there).
# shellcheck disable=SC2034 # for the scripts that build
as_users='--package dolmen-cli --package dolmen-daemon --package dolmen-space --package dolmen-pool --package dolmen-web'

# Fetches what Cargo.lock names, where it is not here already; afterwards cargo needs no network.
fetch_crates() {
    if ! attend -- cargo fetch --locked --offline >/dev/null 2>&1; then
        attend -- cargo fetch --locked >>"$logs/fetch.log" 2>&1 ||
            { tail -n 20 "$logs/fetch.log" >&2; die "$EX_UNAVAILABLE" 'cannot fetch the crates that Cargo.lock names'; }
    fi
    export CARGO_NET_OFFLINE=true
}

# --- programs of tests -------------------------------------------------------------------------------------------

# folder_of CRATE: where it lies.
folder_of() { if [ -d "$root/tools/$1" ]; then say "$root/tools/$1"; else say "$root/crates/$1"; fi; }

# list_tests FILE: puts `program crate/name-of-the-program test` into FILE for each test of the workspace, from what a build of
# the tests says; where they are built already that takes seconds.
list_tests() {
    cargo test --workspace --no-run --locked 2>&1 | sed -n 's/^ *Executable .*(\(.*\))$/\1/p' >"$1.programs"
    [ -s "$1.programs" ] || { warn 'cargo test --workspace --no-run --locked names no programs'; return 1; }
    while IFS= read -r list_program; do
        case $list_program in /*) ;; *) list_program=$root/$list_program ;; esac
        # The file that cargo keeps beside a program names its sources; the first crate among them is its own.
        list_crate=$(tr ' ' '\n' <"$list_program.d" | sed -n 's,^\(crates\|tools\)/\([a-z_]*\)/.*,\2,p' | head -n 1)
        list_name=$(basename "$list_program" | sed 's/-[0-9a-f]*$//')
        [ "$list_name" != "dolmen_$list_crate" ] || ! grep -q '/src/lib\.rs' "$list_program.d" || list_name=lib
        "$list_program" --list 2>/dev/null | sed -n "s,^\(.*\): test\$,$list_program $list_crate/$list_name \1,p"
    done <"$1.programs" >"$1"
}

. "$scripts/state.sh"

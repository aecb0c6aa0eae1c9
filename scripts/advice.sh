#!/bin/sh
# Where ./demo and ./test get Rust, a C compiler and what else is missing: in which order they try what there is, how they
# ask apt and the official installer, and what they say where nothing helps: they end with 69 and a line that says what to
# install, and leave nothing behind.
#
# They run in a system that has next to nothing; proof.sh makes it.
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/proof.sh"
trap 'rm -rf "$proof"' EXIT
trap 'exit 130' INT TERM HUP

# --- the system --------------------------------------------------------------------------------------------------

# Files in the folders of the system, content in its state directory, and what is told of runs.
left_behind() {
    find "$proof/home" "$proof/tmp" -mindepth 1
    find "$DOLMEN_STATE" -type f -size +0
    remains
}

# A C compiler, which only has to be there.
add_cc() { bare_command "$proof/bin/cc" </dev/null; }

# An apt that is asked in vain. The pauses between its tries are told of, and not made.
add_apt() {
    bare_command "$proof/bin/apt-get" <<'END'
[ "$DEBIAN_FRONTEND" = noninteractive ] || printf 'a question\n' >>"$proof/asked"
exit 100
END
    rm -f "$proof/bin/sleep"
    bare_command "$proof/bin/sleep" <<END
case \$1 in [1-9]) ;; *) exec $(command -v sleep) "\$1" ;; esac
END
}

# add_working_apt PACKAGE UPDATE: it brings a package, which is the files of $proof/apt, and has no other; its lists can be
# renewed, or not (true, false).
add_working_apt() {
    add_apt
    bare_command "$proof/bin/apt-get" <<END
[ "\$DEBIAN_FRONTEND" = noninteractive ] || printf 'a question\n' >>"\$proof/asked"
case " \$* " in
*' update '*) $2 ;;
*' install '*' $1 '*) cp "\$proof/apt/"* "\$proof/bin" ;;
*) exit 100 ;;
esac
END
}

# Not root, and sudo does or does not let in without a password (yes, no).
add_nobody() {
    rm -f "$proof/bin/id"
    bare_command "$proof/bin/id" <<'END'
echo 1000
END
    bare_command "$proof/bin/sudo" <<END
[ "\$1" = -n ] || printf 'a question\n' >>"\$proof/asked"
[ $1 = yes ] || exit 1
shift
"\$@"
END
}

# --- what they do ------------------------------------------------------------------------------------------------

apt='bin/apt-get -o DPkg::Lock::Timeout=300 -o DPkg::Use-Pty=0'
apt_install="$apt install -y --no-install-recommends"
# Of a mirror that is away.
apt_updates="$apt update
bin/sleep 1
$apt update
bin/sleep 5
$apt update
bin/sleep 0"
state_name=${DOLMEN_STATE##*/}
curl="bin/curl --proto =https --tlsv1.2 -sSf https://sh.rustup.rs -o $DOLMEN_STATE/rust/init.sh"
installer="$state_name/rust/init.sh -y --no-modify-path --profile minimal -c rustfmt -c clippy"

# asks WHAT LINES: of apt, curl and the installer, nothing else, and in this order.
asks() { check "$1: what is asked" "$(grep -e '^bin/apt-get ' -e '^bin/curl ' -e '/init.sh ' -e "^bin/sleep [0-9]*\$" -e question "$proof/asked")" "$2"; }

# goes_on WHAT CARGO LINES: ./test does, with that cargo, after it has asked for these.
goes_on() {
    bare test fits
    check "$1: ./test goes on" "$status" 0
    check "$1: by its Rust" "$(sed -n 's/ test .*//p' "$proof/asked")" "$2"
    asks "$1" "$3"
    [ "$failed" -eq 0 ] || sed 's/^/    | /' "$proof/said"
}

# ends COMMAND WORDS: with 69, and with these words on one line that says what to install.
ends() {
    bare "$1"
    check "./$1 without ${2#needs } ends with 69" "$status" "$EX_UNAVAILABLE"
    check "./$1 says what it needs" "$(tail -n 1 "$proof/said" | grep -c "^$1: $2.*: apt-get install ")" 1
    [ "$failed" -eq 0 ] || sed 's/^/    | /' "$proof/said"
}

# expect COMMAND WORDS: it ends so, says no more, and nothing is there that was not.
expect() {
    ends "$@"
    check "./$1 says one line" "$(wc -l <"$proof/said")" 1
    check "./$1 leaves nothing" "$(left_behind)" ''
    asks "./$1 without ${2#needs }" ''
}

# --- nothing is to be had ----------------------------------------------------------------------------------------

bare_apart 'how Rust is come by' || exit 0
no_rust="needs Rust $(rust_wanted) or newer"
no_cc='needs a C compiler as linker'

bare_system
for command in demo test; do
    expect "$command" "$no_rust"
done
bare_rust "$proof/bin"
for command in demo test; do
    expect "$command" "$no_cc"
done

# Apt is asked for each, its lists three times, and then for curl, which would bring the installer.
bare_system
add_apt
ends test "$no_rust"
asks 'a broken apt' "$apt_updates
$apt_install $DEBIAN_RUST
$apt_updates
$apt_install curl ca-certificates"
bare_rust "$proof/bin"
: >"$proof/asked"
ends test "$no_cc"
asks 'a broken apt, for a C compiler' "$apt_updates
$apt_install gcc libc6-dev"

# The installer is fetched once, and does not help.
bare_system
bare_installer
bare_command "$proof/installer" <<'END'
exit 1
END
ends test "$no_rust"
asks 'a broken installer' "$curl
$installer"

# A sudo that wants a password is not asked for one, and apt not without root.
bare_system
add_apt
add_nobody no
ends test "$no_rust"
asks 'no root' ''

# --- what is here already ----------------------------------------------------------------------------------------

bare_system
add_cc
add_apt
bare_installer
bare_rust "$proof/bin"
bare_rust "$proof/home/.cargo/bin"
goes_on 'Rust on the path, and in ~/.cargo/bin' bin/cargo ''

: >"$proof/asked"
bare_rust "$proof/bin" 1.63.0
goes_on 'an old Rust on the path' home/.cargo/bin/cargo ''

: >"$proof/asked"
rm "$proof/bin/cargo" "$proof/bin/rustc"
goes_on 'Rust in ~/.cargo/bin alone' home/.cargo/bin/cargo ''

# --- what is brought ---------------------------------------------------------------------------------------------

bare_system
add_cc
bare_installer
bare_rust "$proof/apt"
add_working_apt rust-web-clippy true
goes_on "Debian's own before the installer" bin/cargo "$apt update
$apt_install $DEBIAN_RUST"
: >"$proof/asked"
goes_on 'the second time' bin/cargo ''

# The same by sudo.
bare_system
add_cc
bare_rust "$proof/apt"
add_working_apt rust-web-clippy true
add_nobody yes
goes_on "Debian's own by sudo" bin/cargo "$apt update
$apt_install $DEBIAN_RUST"
check 'by sudo: each as root' "$(grep -c '^bin/sudo -n .*apt-get' "$proof/asked")" 2

bare_system
add_cc
bare_installer
add_apt
goes_on 'the installer where Debian has none' home/.cargo/bin/cargo "$apt_updates
$apt_install $DEBIAN_RUST
$curl
$installer"

# What brings the installer may be missing as well.
bare_system
add_cc
bare_installer
rm "$proof/apt"/*
mv "$proof/bin/curl" "$proof/apt/curl"
add_working_apt curl true
goes_on 'curl for the installer' home/.cargo/bin/cargo "$apt update
$apt_install $DEBIAN_RUST
$apt_install curl ca-certificates
$curl
$installer"

# Lists that cannot be renewed still install.
bare_system
rm "$proof/apt"/*
bare_command "$proof/apt/cc" </dev/null
bare_rust "$proof/bin"
add_working_apt gcc false
goes_on 'a C compiler' bin/cargo "$apt_updates
$apt_install gcc libc6-dev"

close_proof

#!/bin/sh
# bare.sh [--user] [--test] [FOLDER]: the README's commands on a fresh Debian 12 that has git, and nothing else of ours.
#
# debootstrap makes the system in FOLDER (default: .demo/bare), the last commit of this checkout is cloned into it, and
# ./demo runs there with an empty environment: it has to install Rust and what else it needs by itself, without a question.
# Then it runs a second time, without a network. Needs root, debootstrap, unshare, the network, and 12 GB; takes a quarter of
# an hour, most of it for building, and is not part of ./test.
#
#   --user   not as root, but as a user who may become root by sudo without a password
#   --test   then ./test too, which takes hours and needs 30 GB more
#
# DOLMEN_DEMO_MIB   how much of the tree goes into each space of the demo
#
# Run nothing else of Dolmen meanwhile: its namespaces of mounts keep what was mounted on this machine when they were made,
# so that a device with a file system stays busy until they end.
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
user=
with_test=no
folder=$root/.demo/bare
for argument in "$@"; do
    case $argument in
    -h | --help)
        sed -n '2,/^root=/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --user) user=somebody ;;
    --test) with_test=yes ;;
    -*)
        printf 'bare.sh: no option %s; see %s --help\n' "$argument" "$0" >&2
        exit 2
        ;;
    *) folder=$argument ;;
    esac
done
system=$folder/root
suite=bookworm
packages=git,ca-certificates${user:+,sudo}
# Where the system keeps what people have.
homes=/home

die() {
    printf 'bare.sh: %s\n' "$*" >&2
    exit 1
}

# inside NETWORK COMMAND: in the system, with mounts and processes of its own, so that all of it ends with the command, and
# with the network of this machine (yes) or none (no).
inside() {
    [ "$1" = yes ] && inside_network= || inside_network=--net
    if [ -n "$user" ]; then
        inside_who="setpriv --reuid=$user --regid=$user --init-groups env -i HOME=$homes/$user PATH=/usr/local/bin:/usr/bin:/bin"
    else
        inside_who='env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
    fi
    # shellcheck disable=SC2086,SC2016 # lists of words; the inner shell expands it
    unshare --mount --pid --fork --kill-child $inside_network --propagation private sh -c '
        mount -t proc proc "$1/proc" && mount --rbind /sys "$1/sys" && mount --rbind /dev "$1/dev" &&
            mount --bind -o ro "$2" "$1/mnt" || exit
        system=$1
        shift 2
        exec chroot "$system" "$@"
    ' sh "$system" "$root" $inside_who TERM=dumb ${DOLMEN_DEMO_MIB:+DOLMEN_DEMO_MIB="$DOLMEN_DEMO_MIB"} sh -c "$2" </dev/null
}

# make_user: may become root without a password.
make_user() {
    chroot "$system" useradd --create-home --shell /bin/sh "$user" &&
        printf '%s ALL=(ALL:ALL) NOPASSWD: ALL\n' "$user" >"$system/etc/sudoers.d/$user" && chmod 440 "$system/etc/sudoers.d/$user" &&
        # sudo asks for the name of its host, which no server has to know.
        printf '127.0.0.1 localhost %s\n' "$(uname -n)" >>"$system/etc/hosts"
}

[ "$(id -u)" -eq 0 ] || die 'root is needed'
for word in debootstrap unshare git; do
    command -v "$word" >/dev/null || die "$word is missing; apt-get install debootstrap util-linux git"
done
[ ! -e "$system" ] || die "$system is there already; remove it first"
mkdir -p "$folder" || exit 1

printf 'a system\n'
# What debootstrap mounts in there goes with its namespace, however it ends.
unshare --mount --propagation private debootstrap --variant=minbase --include="$packages" "$suite" "$system" >"$folder/debootstrap.log" 2>&1 ||
    die "debootstrap failed; see $folder/debootstrap.log"
# The mirror that debootstrap took has updates and what mends security beside the release.
mirror=$(awk '$1 == "deb" { print $2; exit }' "$system/etc/apt/sources.list")
[ -n "$mirror" ] || die "no mirror stands in $system/etc/apt/sources.list"
printf 'deb %s %s main\n' "$mirror" "$suite-updates" "$mirror-security" "$suite-security" >>"$system/etc/apt/sources.list"
# Names are asked where this machine asks, and authorities that it was told to trust are trusted: its network may need both.
cp /etc/resolv.conf "$system/etc/resolv.conf"
for authority in /usr/local/share/ca-certificates/*.crt; do
    [ ! -e "$authority" ] || cp "$authority" "$system/usr/local/share/ca-certificates/"
done
chroot "$system" update-ca-certificates >>"$folder/debootstrap.log" 2>&1 || die "see $folder/debootstrap.log"

# The checkout belongs to whoever owns it here.
chroot "$system" git config --system --add safe.directory '*' || die 'git does not run there'
[ -z "$user" ] || make_user || die "cannot make the user $user"

for network in yes no; do
    printf '== ./demo, network: %s%s\n' "$network" "${user:+, by sudo}"
    [ "$network" = yes ] && fetch='git clone -q file:///mnt dolmen &&' || fetch=
    inside "$network" "cd && $fetch cd dolmen && ./demo" >"$folder/demo-$network.log" 2>&1 ||
        die "./demo failed; see $folder/demo-$network.log"
    tail -n 1 "$folder/demo-$network.log"
    grep '^skipped: ' "$folder/demo-$network.log"
    grep -q 'none missing' "$folder/demo-$network.log" || die "results are missing; see $folder/demo-$network.log"
done
if [ "$with_test" = yes ]; then
    printf '== ./test%s\n' "${user:+, by sudo}"
    inside yes 'cd && cd dolmen && ./test' >"$folder/test.log" 2>&1 || die "./test failed; see $folder/test.log"
    grep -x '[1-9][0-9]* passed, 0 failed, [0-9]* skipped' "$folder/test.log" || die "results are missing; see $folder/test.log"
    grep '^skipped: ' "$folder/test.log"
fi
printf 'bare: all went through; %s can be removed\n' "$folder"

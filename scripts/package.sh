#!/bin/sh
# package.sh [OPTION]...: builds the Debian package of Dolmen, and beside it the bill of what is built in (CycloneDX, as JSON).
#
# The programs are those of a release build, which this makes, or those in a folder that is named. The same programs and the same
# commit give the same bytes. Needs Rust, dpkg-deb, readelf and strip (binutils), and Python 3.11. Prints where the package is.
# docs/design/0039-package.md has what is in it, and why.
#
#   --binaries FOLDER   take the programs there, and build none
#   --out FOLDER        where the package goes (default: target/package)
#   --version VERSION   version of the package (default: that of Cargo.toml, with ~git, the date, and the commit)
#   --verify            build the package twice, and compare the bytes
#
# SOURCE_DATE_EPOCH           time of all files (default: that of the last commit)
# DOLMEN_PACKAGE_MAINTAINER   name and address (default: the author of the last commit)
# DOLMEN_PACKAGE_LEVEL        how hard xz compresses, from 0 to 9 (default: 6)
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
umask 022

binaries=
out=
version=
verify=no
while [ $# -gt 0 ]; do
    case $1 in
    --binaries | --out | --version)
        [ -n "${2-}" ] || die 2 "$1 takes a value; see $0 --help"
        case $1 in
        --binaries) binaries=$2 ;;
        --out) out=$2 ;;
        --version) version=$2 ;;
        esac
        shift
        ;;
    --verify) verify=yes ;;
    -h | --help)
        sed -n '2,/^root=/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *) die 2 "no option $1; see $0 --help" ;;
    esac
    shift
done
from=$root/packaging
out=${out:-${CARGO_TARGET_DIR:-$root/target}/package}
level=${DOLMEN_PACKAGE_LEVEL:-6}

# --- what it is made of --------------------------------------------------------------------------------------------

for tool in dpkg-deb readelf strip gzip python3 md5sum; do
    have "$tool" || die "$EX_UNAVAILABLE" "needs $tool; on Debian, as root: apt-get install dpkg binutils python3"
done

# The packages of the workspace whose programs are shipped, and the programs; the console where it is in the tree.
packages='dolmen-cli dolmen-daemon dolmen-worker dolmen-rescue-io'
programs='dolmen dolmen-rescue dolmend dolmen-worker'
[ ! -d crates/web ] || packages="$packages dolmen-web"

if [ -z "$binaries" ]; then
    take_state
    need_rust
    fetch_crates
    say 'building'
    # shellcheck disable=SC2046,SC2086 # lists of words
    attend -- cargo build --release --locked $(printf -- '--package %s ' $packages) --bins || die 1 'the build failed'
    binaries=${CARGO_TARGET_DIR:-$root/target}/release
else
    find_rust || rust_advice
fi
[ ! -x "$binaries/dolmen-web" ] || programs="$programs dolmen-web"
for program in $programs; do
    [ -x "$binaries/$program" ] || die 2 "$binaries has no program $program; name a folder with $programs, or leave --binaries out"
done
has_web=no
case " $programs " in *' dolmen-web '*) has_web=yes ;; esac
! grep -qa DOLMEN_MUTANT "$binaries/dolmend" || warn 'package.sh: the programs are of a debug build, with mutants; this package is for tests alone'

commit_time=$(git log -1 --format=%ct 2>/dev/null)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$commit_time}
is_number "$SOURCE_DATE_EPOCH" || die 2 "there is no commit here, and SOURCE_DATE_EPOCH is '$SOURCE_DATE_EPOCH'; set it to seconds since 1970"
export SOURCE_DATE_EPOCH
commit=$(git rev-parse --short=8 HEAD 2>/dev/null || echo unknown)
if [ -z "$version" ]; then
    release=$(sed -n 's/^version *= *"\(.*\)"$/\1/p' Cargo.toml | head -n 1)
    # Below the release of that version, and each commit above the one before.
    version="$release~git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d).$(git rev-list --count HEAD 2>/dev/null || echo 0).$commit"
fi
case $version in
[0-9]*) ;;
*) die 2 "'$version' is no version; it begins with a digit" ;;
esac
case $version in *[!A-Za-z0-9.+~]*) die 2 "'$version' is no version; it has letters, digits, and . + ~ alone" ;; esac
maintainer=${DOLMEN_PACKAGE_MAINTAINER:-$(git log -1 --format='%an <%ae>' 2>/dev/null)}
case $maintainer in *' <'*@*'>') ;; *) die 2 "'$maintainer' is no maintainer; set DOLMEN_PACKAGE_MAINTAINER to 'Name <address>'" ;; esac
architecture=$(dpkg --print-architecture)
name=dolmen_${version}_$architecture

# --- the libraries -------------------------------------------------------------------------------------------------

# needed: the libraries that the programs load, one a line.
needed() {
    for needed_program in $programs; do
        readelf -d "$binaries/$needed_program" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'
    done | sort -u
}

# glibc: the highest version of a symbol of glibc's that a program asks for.
glibc() {
    for glibc_program in $programs; do
        readelf -V "$binaries/$glibc_program" 2>/dev/null | grep -o 'GLIBC_[0-9][0-9.]*'
    done | sed 's/GLIBC_//' | sort -Vu | tail -n 1
}

depends="libc6 (>= $(glibc))"
for library in $(needed); do
    case $library in
    libc.so.6 | libm.so.6 | ld-linux*) ;;
    libgcc_s.so.1) depends="$depends, libgcc-s1 (>= 4.2)" ;;
    *) die 1 "a program loads $library, of which package.sh knows no package; add it there, or do without it" ;;
    esac
done

# --- the tree ------------------------------------------------------------------------------------------------------

# put MODE FILE PLACE: a file of the tree.
put() { mkdir -p "$stage$(dirname "$3")" && install -m "$1" "$2" "$stage$3"; }

# squeeze FILE...: without the name and the time of the file in it.
squeeze() { gzip -9nf "$@"; }

put_programs() {
    for put_name in $programs; do
        case $put_name in
        dolmend | dolmen-worker) put_place=/usr/sbin/$put_name ;;
        *) put_place=/usr/bin/$put_name ;;
        esac
        # A stand-in of a test may be a script.
        if readelf -h "$binaries/$put_name" >/dev/null 2>&1; then
            mkdir -p "$stage$(dirname "$put_place")" && strip --strip-unneeded -o "$stage$put_place" "$binaries/$put_name" &&
                chmod 755 "$stage$put_place" || return 1
        else
            put 755 "$binaries/$put_name" "$put_place" || return 1
        fi
    done
    put 755 "$from/mount.dolmen" /usr/sbin/mount.dolmen
}

# page NAME SECTION WHAT: a manual page of the help on standard input.
page() {
    page_file=$stage/usr/share/man/man$2/$1.$2
    mkdir -p "$(dirname "$page_file")"
    {
        printf '.TH %s %s "" "dolmen %s"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n' \
            "$(printf '%s' "$1" | tr a-z A-Z)" "$2" "$version" "$(printf '%s' "$1" | sed 's/-/\\-/g')" "$3"
        sed "s/\\\\/\\\\\\\\/g; s/-/\\\\-/g; s/^\\([.']\\)/\\\\\\&\\1/"
        printf '.fi\n.SH SEE ALSO\n.BR dolmen (1)\n'
    } >"$page_file"
}

put_pages() {
    mkdir -p "$stage/usr/share/man"
    "$binaries/dolmen" man "$stage/usr/share/man/man1" >/dev/null || return 1
    "$binaries/dolmen-rescue" --help | page dolmen-rescue 1 'save data from disks of a pool that no longer opens' &&
        "$binaries/dolmend" --help | page dolmend 8 'the daemon of Dolmen' &&
        page dolmen-worker 8 'works on file systems of volumes for the daemon' <<'PAGE' || return 1
dolmend starts this program for each operation on a file system, and sends the order to its standard input. It is not for people.
PAGE
    page mount.dolmen 8 'mounts a volume, for mount(8)' <<'PAGE' || return 1
mount(8) runs this program for mount units of volumes, and for lines of /etc/fstab such as

  dolmen:tank/home  /srv/tank/home  dolmen  _netdev,nofail,x-systemd.requires=dolmend.service  0  0

It asks the daemon for the mount, and waits for it. The record of the volume decides on the options.
PAGE
    if [ "$has_web" = yes ]; then
        "$binaries/dolmen-web" --help | page dolmen-web 8 'the console and the API of Dolmen on the network' || return 1
    fi
    find "$stage/usr/share/man" -type f | LC_ALL=C sort | while IFS= read -r put_page; do squeeze "$put_page" || exit 1; done
}

put_completions() {
    for put_shell in bash:bash-completion/completions/dolmen zsh:zsh/vendor-completions/_dolmen fish:fish/vendor_completions.d/dolmen.fish; do
        put_file=$stage/usr/share/${put_shell#*:}
        mkdir -p "$(dirname "$put_file")" && "$binaries/dolmen" completion "${put_shell%%:*}" >"$put_file" || return 1
    done
}

put_services() {
    put 644 "$from/dolmend.service" /usr/lib/systemd/system/dolmend.service &&
        put 644 "$from/dolmen.rules" /usr/lib/udev/rules.d/61-dolmen.rules &&
        put 755 "$from/dolmen-member" /usr/lib/udev/dolmen-member &&
        put 644 "$from/default" /etc/default/dolmen || return 1
    [ "$has_web" = yes ] || return 0
    put 644 "$from/dolmen-web.service" /usr/lib/systemd/system/dolmen-web.service &&
        put 644 "$from/dolmen-web.sysusers" /usr/lib/sysusers.d/dolmen-web.conf &&
        put 644 "$from/dolmen-web.tmpfiles" /usr/lib/tmpfiles.d/dolmen-web.conf &&
        put 644 "$from/dolmen-web.apparmor" /etc/apparmor.d/dolmen-web &&
        put 644 "$from/alerts.toml" /etc/dolmen/alerts.toml
}

# crates WHAT: of the shipped programs.
crates() {
    # shellcheck disable=SC2046,SC2086 # lists of words
    python3 scripts/crates.py "$1" $(printf -- '--package %s ' $packages) --version "$version" --time "$SOURCE_DATE_EPOCH" \
        --lock Cargo.lock <"$work/metadata"
}

put_documents() {
    put_docs=$stage/usr/share/doc/dolmen
    mkdir -p "$put_docs/guide" &&
        put 644 "$from/copyright" /usr/share/doc/dolmen/copyright &&
        put 644 docs/known_faults.md /usr/share/doc/dolmen/known_faults.md &&
        put 644 "$work/bom" /usr/share/doc/dolmen/dolmen.cdx.json &&
        put 644 "$work/notices" /usr/share/doc/dolmen/crates.txt || return 1
    for put_page in docs/guide/src/*.* docs/guide/src/pictures/*; do
        put 644 "$put_page" "/usr/share/doc/dolmen/guide/${put_page#docs/guide/src/}" || return 1
    done
    printf 'dolmen (%s) unstable; urgency=medium\n\n  * Build of commit %s.\n\n -- %s  %s\n' "$version" "$commit" "$maintainer" \
        "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" >"$put_docs/changelog"
    squeeze "$put_docs/changelog" "$put_docs/crates.txt" "$put_docs/dolmen.cdx.json"
    put 644 "$from/lintian-overrides" /usr/share/lintian/overrides/dolmen
}

put_control() {
    put_size=$(cd "$stage" && find . -path ./DEBIAN -prune -o -type f -printf '%s\n' -o -printf '1024\n' |
        awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }')
    mkdir -p "$stage/DEBIAN"
    cat >"$stage/DEBIAN/control" <<CONTROL
Package: dolmen
Version: $version
Section: admin
Priority: optional
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $put_size
Depends: $depends, mount, passwd
Recommends: smartmontools, systemd (>= 252), xfsprogs
Suggests: btrfs-progs, fio, nfs-kernel-server, samba
Description: pooled, resilient storage
 Dolmen pools disks of any size and lays spaces on them, which keep every byte
 when disks fail. A space can be formatted and mounted, or served to a virtual
 machine over NBD.
 .
 Dolmen runs in user space and has no kernel module of its own. This package
 has the daemon, the command line, and a program that rescues data from disks
 of a pool that no longer opens.
CONTROL
    (cd "$stage" && find etc -type f | LC_ALL=C sort | sed 's,^,/,') >"$stage/DEBIAN/conffiles"
    (cd "$stage" && find etc usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
    for put_script in postinst prerm postrm; do put 755 "$from/$put_script" "/DEBIAN/$put_script" || return 1; done
    chmod 644 "$stage/DEBIAN/control" "$stage/DEBIAN/conffiles" "$stage/DEBIAN/md5sums"
}

# pack FILE: the whole, from nothing.
pack() {
    stage=$work/stage
    rm -rf "$stage" && mkdir -m 755 "$stage" || return 1
    for pack_part in programs pages completions services documents control; do
        "put_$pack_part" || { warn "package.sh: $pack_part cannot be put into the package"; return 1; }
    done
    find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    # More threads would give other bytes.
    DPKG_DEB_THREADS_MAX=1 dpkg-deb --root-owner-group --uniform-compression -Zxz "-z$level" --build "$stage" "$1" >/dev/null
}

mkdir -p "$out" && out=$(cd "$out" && pwd) && work=$(mktemp -d "$out/work.XXXXXX") || die "$EX_UNAVAILABLE" "cannot write to $out"
if [ -n "${owner:-}" ]; then
    # The traps of the state are in force: it is cleared there as well.
    trap 'left=$?; rm -rf "$work"; leave_state "$left"' EXIT
else
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' HUP INT TERM
fi
cargo metadata --format-version 1 --locked --offline --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" >"$work/metadata" ||
    die 1 'cargo metadata fails; cargo fetch --locked gets what is missing'
crates bom >"$work/bom" && crates notices >"$work/notices" || die 1 'the bill of materials cannot be made'
pack "$work/$name.deb" || die 1 'the package cannot be made'
if [ "$verify" = yes ]; then
    pack "$work/again.deb" && cmp "$work/$name.deb" "$work/again.deb" || die 1 'the second package has other bytes than the first'
    say 'built twice, with the same bytes'
fi
mv "$work/bom" "$out/$name.cdx.json" && mv "$work/$name.deb" "$out/$name.deb" || die 1 "cannot write to $out"
say "$out/$name.deb"

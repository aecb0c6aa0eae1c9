#!/bin/sh
# The Debian package: built twice with the same bytes, installed, upgraded below a daemon that runs, removed, purged. In a system of
# its own: a layer in memory over this one, so that nothing is installed here. Needs root, and a Debian.
#
# What systemctl does is played by a script there, which starts and stops the daemon of the package. A real one, boots, AppArmor, ublk
# and the sandbox of the console are in the machines of `scripts/guest.sh installed`. A machine with udev still has to show that
# udevadm info of a member disk has ID_FS_TYPE=dolmen_member, and that udisksctl status lists neither it nor loop devices of spaces.
#
# DOLMEN_PACKAGE_SYSTEM   `fresh`: in a new Debian by debootstrap, which takes a minute and the network; `layer` (the default)
# DOLMEN_RESCUE_BIN       a dolmen-rescue that was built elsewhere
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='the package'
way=nbd
kind=${DOLMEN_PACKAGE_SYSTEM:-layer}
made=$run/packages
layer=$run/layer
system=$layer/system
exposure_max=2.0

client() { python3 "$root/scripts/integration/package_client.py" "$@"; }

# --- building ------------------------------------------------------------------------------------------------------

# gather: the programs without what debuggers need, and a stand-in for the console where there is none.
gather() {
    mkdir -p "$run/programs" "$made" || return 1
    for gather_name in dolmen dolmend dolmen-worker dolmen-rescue dolmen-web; do
        gather_from=$(dirname "$bin")/$gather_name
        case $gather_name in dolmen-rescue) gather_from=${DOLMEN_RESCUE_BIN:-$gather_from} ;; esac
        if [ -x "$gather_from" ]; then
            strip --strip-unneeded -o "$run/programs/$gather_name" "$gather_from" || return 1
        elif [ "$gather_name" = dolmen-web ]; then
            printf '#!/bin/sh\necho "Stands in for the console."\n' >"$run/programs/dolmen-web" && chmod 755 "$run/programs/dolmen-web"
            say '   | a stand-in for dolmen-web, which is not built here'
        else
            warn "there is no $gather_from; build it, or name it in DOLMEN_RESCUE_BIN"
            return 1
        fi
    done
}

# build_package VERSION [OPTION]...
build_package() {
    build_version=$1
    shift
    DOLMEN_PACKAGE_LEVEL=0 DOLMEN_PACKAGE_MAINTAINER='Dolmen <dolmen@example.org>' sh scripts/package.sh --binaries "$run/programs" \
        --out "$made" --version "$build_version" "$@" >>"$logs/build.log" 2>&1
}
deb() { say "$made/dolmen_$1_$(dpkg --print-architecture).deb"; }

# --- reading it ----------------------------------------------------------------------------------------------------

is_bill() { client bom "$made/dolmen_1.0_$(dpkg --print-architecture).cdx.json" "$(git log -1 --format=%ct)"; }

# lint: lintian finds no error; warnings are shown.
lint() {
    lintian --allow-root --tag-display-limit 0 "$(deb 1.0)" >"$logs/lintian.log" 2>&1 || :
    sed 's/^/   | /' "$logs/lintian.log"
    ! grep -q '^E:' "$logs/lintian.log"
}

exposure() {
    systemd-analyze security --offline=true --no-pager packaging/dolmen-web.service 2>&1 |
        sed -n 's/.*exposure level for .*: \([0-9.]*\).*/\1/p'
}
is_confined() {
    exposed=$(exposure)
    say "   | exposure $exposed, at most $exposure_max"
    [ -n "$exposed" ] && [ "$(printf '%s\n%s\n' "$exposed" "$exposure_max" | sort -n | head -n 1)" = "$exposed" ]
}

is_profile() { apparmor_parser -Q --skip-kernel-load --skip-cache packaging/dolmen-web.apparmor >"$logs/apparmor.log" 2>&1; }

# --- a system of its own -------------------------------------------------------------------------------------------

# What it does first, in a namespace of mounts and processes that ends with it.
begin_system() {
    mkdir -p "$layer" "$disks" || return 1
    # shellcheck disable=SC2016,SC2046 # the inner shell expands it; a list of words
    begin -- $(root_words) unshare --mount --pid --fork --kill-child sh "$root/scripts/apart.sh" sh -c '
        kind=$1 layer=$2 made=$3 disks=$4
        system=$layer/system
        mount -t tmpfs -o mode=755 tmpfs "$layer" && mkdir "$layer/upper" "$layer/work" "$system" || exit 1
        if [ "$kind" = fresh ]; then
            debootstrap --variant=minbase --include=man-db,bash-completion bookworm "$system" >&2 || exit 1
        else
            mount -t overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" overlay "$system" || exit 1
        fi
        # Devices of its own: links to spaces that others have attached here are none of its business.
        mount -t proc proc "$system/proc" && mount -t tmpfs -o mode=755 tmpfs "$system/dev" || exit 1
        for device in null zero full random urandom; do
            touch "$system/dev/$device" && mount --bind "/dev/$device" "$system/dev/$device" || exit 1
        done
        mount -t tmpfs -o mode=755 tmpfs "$system/run" &&
            mkdir -p "$system/srv/packages" "$system/srv/disks" && mount --bind "$made" "$system/srv/packages" &&
            mount --bind "$disks" "$system/srv/disks" || exit 1
        # What forbids services here, forbids none there; and the index of all manual pages would take longer than the rest.
        rm -f "$system/usr/sbin/policy-rc.d"
        [ ! -e "$system/usr/bin/mandb" ] || ln -sf true "$system/usr/bin/mandb"
        touch "$layer/ready"
        # It collects daemons that have ended.
        sleep 3600 & wait' sh "$kind" "$layer" "$made" "$disks" >"$logs/system.log" 2>&1
    system_pid=$!
    system_started=$(start_time "$system_pid")
    eventually 300 is_ready
}

# The process in the namespace: the child of unshare.
inner() {
    for inner_pid in $(members "$system_pid" "$system_started"); do
        [ "$({ tr '\0' ' ' <"/proc/$inner_pid/cmdline"; } 2>/dev/null)" != 'sleep 3600 ' ] || say "$inner_pid"
    done
}
is_ready() {
    is_process "$system_pid" "$system_started" || die 1 "the system ended; $logs/system.log has the reason"
    namespace=$(inner)
    [ -n "$namespace" ]
}

# inside COMMAND...: in that system, with an environment of its own.
inside() {
    as_root nsenter --target "$namespace" --mount --pid -- chroot "$system" env -i \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@" </dev/null
}
# sh_inside TEXT [WORD]...: the same for a shell.
sh_inside() {
    sh_text=$1
    shift
    inside sh -c "$sh_text" sh "$@"
}

dpkg_inside() { inside dpkg --force-unsafe-io "$@" >>"$logs/dpkg.log" 2>&1; }
install_package() {
    : >"$logs/dpkg.log"
    dpkg_inside --install "/srv/packages/dolmen_$1_$(dpkg --print-architecture).deb"
}
dpkg_says() { grep -q "$1" "$logs/dpkg.log" || { tail -n 5 "$logs/dpkg.log" >&2; return 1; }; }

# ours: every path of the system that has the name in it, but for pages that man(1) has formatted.
ours() { inside find /etc /usr /var /run -xdev -path /var/cache/man -prune -o -iname '*dolmen*' -print | sort; }
# left: what was not there before the package, but for links that keep what people have decided.
left() { ours | comm -13 "$run/before" -; }

# has MODE OWNER PATH
has() { is "$(inside stat -c '%a %U:%G' "$3")" = "$1 $2"; }

# systemctl as maintainer scripts use it: it notes the command, and starts and stops the daemon as the unit says.
put_systemctl() {
    sh_inside 'mkdir -p /run/systemd/system && rm -f /usr/bin/systemctl && cat >/usr/bin/systemctl <<\END && chmod 755 /usr/bin/systemctl
#!/bin/sh
echo "$*" >>/run/systemctl.log
words=
for word; do case $word in -*) ;; *) words="$words $word" ;; esac; done
set -- $words
lives() { dolmen version >/dev/null 2>&1 && kill -0 "$(cat /run/daemon.pid)" 2>/dev/null; }
case "$1 ${2-}" in
"is-enabled dolmend.service") [ -L /etc/systemd/system/multi-user.target.wants/dolmend.service ] && echo enabled ;;
"is-active dolmend.service") [ -S /run/dolmen/dolmen.sock ] && lives ;;
"start dolmend.service")
    ! { [ -S /run/dolmen/dolmen.sock ] && lives; } || exit 0
    . /etc/default/dolmen
    setsid /usr/sbin/dolmend --units /etc/systemd/system $DOLMEND_OPTIONS >>/var/log/daemon.log 2>&1 &
    echo $! >/run/daemon.pid
    for try in $(seq 1 300); do dolmen status >/dev/null 2>&1; [ $? -gt 1 ] || exit 0; sleep 0.1; done
    exit 1
    ;;
"stop dolmend.service")
    [ -e /run/daemon.pid ] || exit 0
    kill "$(cat /run/daemon.pid)" 2>/dev/null
    for try in $(seq 1 300); do kill -0 "$(cat /run/daemon.pid)" 2>/dev/null || exit 0; sleep 0.1; done
    exit 1
    ;;
"stop busy.mount") exit 1 ;;
# The console as somebody has enabled it; the daemon is what runs here.
"is-enabled dolmen-web.service") [ -e /run/web.enabled ] ;;
"is-active dolmen-web.service") [ -e /run/web.active ] ;;
"start dolmen-web.service" | "restart dolmen-web.service") : >/run/web.active ;;
"stop dolmen-web.service") rm -f /run/web.active ;;
# deb-systemd-helper has it make the link for every boot.
"preset dolmend.service")
    mkdir -p /etc/systemd/system/multi-user.target.wants
    ln -sf /usr/lib/systemd/system/dolmend.service /etc/systemd/system/multi-user.target.wants/dolmend.service
    ;;
"is-enabled "* | "is-active "*) exit 1 ;;
esac
END'
}
start_service() { inside systemctl start dolmend.service; }
stop_service() { inside systemctl stop dolmend.service; }
daemon_number() { inside cat /run/daemon.pid; }
was_asked() { sh_inside 'grep -q -e "$1" /run/systemctl.log' "$1"; }
forget_asked() { sh_inside ': >/run/systemctl.log'; }
in_system() { inside dolmen "$@" >>"$logs/inside.log" 2>&1; }
serves() { inside dolmen -o json space list | grep -q 'nbd'; }

# --- what is looked at ---------------------------------------------------------------------------------------------

has_files() {
    has 755 root:root /usr/bin/dolmen && has 755 root:root /usr/bin/dolmen-rescue && has 755 root:root /usr/bin/dolmen-web &&
        has 755 root:root /usr/sbin/dolmend && has 755 root:root /usr/sbin/dolmen-worker && has 755 root:root /usr/sbin/mount.dolmen &&
        has 644 root:root /usr/lib/systemd/system/dolmend.service && has 644 root:root /usr/lib/systemd/system/dolmen-web.service &&
        has 644 root:root /usr/lib/udev/rules.d/61-dolmen.rules && has 755 root:root /usr/lib/udev/dolmen-member &&
        has 644 root:root /usr/lib/sysusers.d/dolmen-web.conf && has 644 root:root /usr/lib/tmpfiles.d/dolmen-web.conf &&
        has 644 root:root /etc/apparmor.d/dolmen-web && has 644 root:root /etc/default/dolmen &&
        has 644 root:root /usr/share/doc/dolmen/copyright && has 644 root:root /usr/share/doc/dolmen/dolmen.cdx.json.gz &&
        has 644 root:root /usr/share/doc/dolmen/guide/first-pool.md
}
has_pages() {
    for pages_name in dolmen dolmen-pool-create dolmen-rescue dolmend mount.dolmen; do
        inside man -P cat "$pages_name" 2>/dev/null | grep -q -i '^DESCRIPTION' || { warn "man $pages_name"; return 1; }
    done
}
completes() {
    sh_inside 'bash -c ". /usr/share/bash-completion/completions/dolmen && complete -p dolmen"' | grep -q _dolmen_names &&
        sh_inside 'grep -q "#compdef dolmen" /usr/share/zsh/vendor-completions/_dolmen && grep -q "complete -c dolmen" /usr/share/fish/vendor_completions.d/dolmen.fish'
}
is_enabled() { inside test -L /etc/systemd/system/multi-user.target.wants/dolmend.service; }
web_is_off() { ! inside test -e /etc/systemd/system/multi-user.target.wants/dolmen-web.service; }
# systemd before 254 leaves out a key that it does not know.
units_verify() {
    inside systemd-analyze verify --man=no dolmend.service dolmen-web.service >"$logs/verify.log" 2>&1
    ! grep -v "Unknown key .*'DelegateSubgroup'" "$logs/verify.log"
}

# is_member FILE: what udev would note names the pool as the command does.
is_member() {
    member_pool=$(inside dolmen -o json pool list | tr ',{' '\n' | sed -n 's/^ *"id": *"\([0-9a-f-]*\)".*/\1/p' | head -n 1)
    inside /usr/lib/udev/dolmen-member "$1" >"$run/member"
    is "$(sed -n 's/^ID_FS_UUID=//p' "$run/member")" = "$(printf '%s' "$member_pool" | tr -d -)" && grep -qx ID_FS_TYPE=dolmen_member "$run/member"
}
is_no_member() { [ -z "$(inside /usr/lib/udev/dolmen-member "$1")" ]; }

# The settings of this test, which are a change of the file of the package.
settings='DOLMEND_OPTIONS="--named-only --look-in /srv/disks --links /run/dolmen-links"'
change_settings() { sh_inside 'sed -i "s,^DOLMEND_OPTIONS=.*,$1," /etc/default/dolmen' "$settings"; }
keeps_settings() { sh_inside 'grep -qxF "$1" /etc/default/dolmen' "$settings"; }

# is_upgraded: another daemon runs, and no stop was asked for.
is_upgraded() { [ "$(daemon_number)" != "$number" ] && ! was_asked '^stop\|[^-]stop dolmend' && serves; }
is_kept() { [ "$(daemon_number)" = "$number" ] && serves; }
forbid() { sh_inside 'printf "#!/bin/sh\nexit 101\n" >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d'; }
allow() { inside rm -f /usr/sbin/policy-rc.d; }

put_units() {
    sh_inside 'cd /etc/systemd/system && mkdir -p dolmend.service.wants && printf "# Written by Dolmen for a volume of pool 0\n[Mount]\n" >"$1" &&
        ln -s "../$1" dolmend.service.wants/ && printf "[Mount]\n" >foreign.mount' "$1"
}
remove_refused() {
    : >"$logs/dpkg.log"
    ! dpkg_inside --remove dolmen && dpkg_says 'dolmen is not removed: busy.mount cannot be unmounted' && inside dpkg -s dolmen >/dev/null &&
        is_kept
}
# The console that somebody has enabled runs, and no stop of it was asked for.
enable_web() { sh_inside ': >/run/web.enabled; : >/run/web.active'; }
web_runs() { inside test -e /run/web.active; }
web_was_kept() { web_runs && ! was_asked 'stop dolmen-web'; }
remove_package() {
    : >"$logs/dpkg.log"
    dpkg_inside --remove dolmen
}
purge_package() {
    : >"$logs/dpkg.log"
    dpkg_inside --purge dolmen
}
has_ended() { ! sh_inside 'kill -0 "$(cat /run/daemon.pid)" 2>/dev/null'; }
keeps_state() { sh_inside 'test -s /var/lib/dolmen/host-id && test -n "$(ls /var/lib/dolmen/epochs)" && test -n "$(ls /var/lib/dolmen/pools)"'; }
keeps_only_pools() { keeps_state && is "$(inside ls /var/lib/dolmen | tr '\n' ' ')" = 'epochs host-id pools '; }
opens_degraded() {
    inside dolmen pool show "$pool" >"$logs/degraded.log" 2>&1
    grep -q '^ *state  *writable' "$logs/degraded.log" && grep -q ' absent ' "$logs/degraded.log"
}
# is_clean [PATH]...: nothing but these is left.
is_clean() {
    printf '%s\n' "$@" | sed '/^$/d' | sort >"$run/expected"
    left >"$run/left"
    cmp -s "$run/left" "$run/expected" || { warn "left: $(tr '\n' ' ' <"$run/left")"; return 1; }
}
note_before() { ours >"$run/before"; }

# --- the script ----------------------------------------------------------------------------------------------------

can_root && have dpkg || { skip "$script (no root, or no dpkg)"; exit 0; }
! dpkg -s dolmen >/dev/null 2>&1 || { skip "$script (it is installed here)"; exit 0; }
find_rust || { skip "$script (no cargo, which lists the crates)"; exit 0; }
[ "$kind" != fresh ] || need debootstrap || { skip "$script in a fresh system (missing:$missing)"; exit 0; }
open_script 1536 dpkg-deb readelf strip python3 unshare nsenter
: >"$logs/build.log"
: >"$logs/inside.log"

step 'two packages are built'
must 'the programs are there' gather
must 'built twice, with the same bytes' build_package 1.0 --verify
must 'the next version is built' build_package 1.1
must 'a version that is none is refused' refused 2 "'1_0' is no version" sh scripts/package.sh --binaries "$run/programs" --version 1_0
must 'a folder without programs is refused' refused 2 'has no program dolmen' sh scripts/package.sh --binaries "$run/disks"
must 'the bill of materials names each crate, with version, licence and checksum' is_bill
if need lintian; then must 'lintian finds no error' lint; else skip "lintian (missing:$missing)"; fi
if have systemd-analyze; then must 'the console is confined' is_confined; else skip 'the exposure of the console (no systemd-analyze)'; fi
if need apparmor_parser; then must 'the profile of AppArmor is read' is_profile; else skip "the profile of AppArmor (missing:$missing)"; fi

step 'installed without systemd'
must 'a system of its own' begin_system
note_before
must 'installed' install_package 1.0
must 'files, owners and modes' has_files
must 'dpkg finds no file changed' is "$(inside dpkg --verify dolmen)" = ''
must 'the user of the console' inside getent passwd dolmen-web
if inside sh -c 'command -v systemd-tmpfiles' >/dev/null; then
    must 'the run folder is for the daemon and the console' has 710 root:dolmen-web /run/dolmen
fi
must 'the state of the console is its own' has 700 dolmen-web:dolmen-web /var/lib/dolmen-web
if inside sh -c 'command -v deb-systemd-helper' >/dev/null; then
    must 'every boot starts the daemon' is_enabled
    must 'none starts the console until people ask' web_is_off
fi
if inside sh -c 'command -v man' >/dev/null; then must 'manual pages' has_pages; else skip 'manual pages (no man)'; fi
must 'completions' completes
if inside sh -c 'command -v systemd-analyze' >/dev/null; then must 'systemd accepts the units' units_verify; else skip 'units (no systemd-analyze)'; fi
must 'dolmen service leaves the unit to the package' refused 75 'a package of the system has installed the service' inside dolmen service install
must 'removed and purged, it leaves nothing' eval 'remove_package && purge_package && is_clean'

step 'installed where services are started'
must 'systemctl is played' put_systemctl
must 'policy forbids the start' forbid
must 'installed' install_package 1.0
must 'nothing runs' refused 75 'the dolmen daemon does not run' inside dolmen status
must 'settings are changed' change_settings
must 'policy allows it' allow
must 'configured again, the daemon starts' eval 'install_package 1.0 && inside dolmen status'
must 'two disks' make_disks 160 a b
must 'a file that is no disk' make_disk blank 1
must 'a pool' in_system pool create "$pool" /srv/disks/a /srv/disks/b
must 'a space, served' eval 'in_system space create "$pool/data" --size 16M && in_system serve "$pool/data" && serves'
must 'udev knows a member disk' is_member /srv/disks/a
must 'and nothing else' is_no_member /srv/disks/blank

step 'upgraded'
number=$(daemon_number)
must 'systemctl forgets' forget_asked
must 'upgraded' install_package 1.1
must 'the daemon has handed over to the next one' is_upgraded
must 'changed settings are kept' keeps_settings
number=$(daemon_number)
must 'policy forbids a restart' forbid
must 'upgraded again' install_package 1.1
must 'the daemon goes on' is_kept
must 'and that is said' dpkg_says 'the daemon of the version before goes on'
must 'policy allows it' allow

step 'removed, and installed again'
must 'a volume that is in use' put_units busy.mount
must 'somebody has enabled the console' enable_web
must 'the package is not removed below it' remove_refused
must 'the console goes on, and with it the alerts' web_was_kept
must 'it is not in use any more' sh_inside 'cd /etc/systemd/system && mv busy.mount idle.mount && rm dolmend.service.wants/busy.mount && ln -s ../idle.mount dolmend.service.wants/'
must 'removed' remove_package
must 'the daemon has ended' has_ended
must 'state and settings are kept' eval 'keeps_state && keeps_settings'
must 'purged' purge_package
must 'what proves who used the pool last is kept, and that is said' eval 'keeps_only_pools && dpkg_says "stays with what proves"'
must 'the mount unit of the volume is gone, another is not' sh_inside 'cd /etc/systemd/system && test ! -e idle.mount && test ! -e dolmend.service.wants && test -e foreign.mount'
must 'a disk is away' mv "$disks/b" "$run/away"
must 'installed again, with its settings' eval 'forbid && install_package 1.1 && change_settings && allow'
must 'the daemon starts' start_service
must 'the pool opens degraded, unasked' opens_degraded

step 'exported, and purged'
must 'the disk is back' eval 'stop_service && mv "$run/away" "$disks/b" && start_service'
must 'exported' eventually 20 in_system pool export "$pool"
must 'removed and purged' eval 'remove_package && purge_package'
must 'nothing is left' is_clean
must 'but the user' inside getent passwd dolmen-web
must 'the pool is on its disks' cli_check "$disks/a" "$disks/b"
close_script

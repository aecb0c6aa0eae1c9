#!/bin/sh
# The Debian package over its life, in machines whose first process is systemd. scripts/guest.sh starts it, in one machine after
# another; all of them have the same two disks, and the same layer over this system:
#
#   installed.sh install   it is installed, its services run, and volumes are made on FUSE and on ublk; it is upgraded below a writer
#   installed.sh reboot    all of that is there with no command given; a removal is refused while a volume is in use, and then removes
#   installed.sh purge     the system boots without it; the settings are purged, and the disks are left alone
#
# /guest has two versions of the package, 1.0 and 1.1.
root=$(cd "$(dirname "$0")/.." && pwd)
bin=dolmen
. "$root/scripts/machine.sh"
step=${1:?install, reboot or purge}
address=https://127.0.0.1:7443
keep=/var/lib/guest
mkdir -p "$keep" /run/guest

# --- the package ---------------------------------------------------------------------------------------------------

# run_dpkg WORD...: its messages are in /run/guest/dpkg, and in the journal of the machine.
run_dpkg() {
    DEBIAN_FRONTEND=noninteractive dpkg --force-unsafe-io "$@" >/run/guest/dpkg 2>&1 </dev/null
    dpkg_left=$?
    sed 's/^/   | /' /run/guest/dpkg
    return "$dpkg_left"
}
install_package() { run_dpkg --install "/guest/dolmen_$1_$(dpkg --print-architecture).deb"; }
says() { grep -q "$1" /run/guest/dpkg; }
# has_version VERSION [WANTED]: dpkg has installed it, and knows what people want.
has_version() { [ "$(dpkg-query -W -f '${Version} ${Status}' dolmen)" = "$1 ${2:-install} ok installed" ]; }

# is_clean: nothing that has the name in it is left in this layer, but the records of the pool that was not exported, and pages that
# man(1) has formatted.
is_clean() {
    {
        (cd /layer/upper && find etc usr var -path var/cache/man -prune -o '(' -iname '*dolmen*' -o -name 'srv-tank-*' ')' ! -type c -print)
        (cd / && find run -xdev -path run/systemd -prune -o -iname '*dolmen*' -print)
    } | grep -vx var/lib/dolmen >/run/guest/left
    [ ! -s /run/guest/left ] || { echo "left: $(tr '\n' ' ' </run/guest/left)"; return 1; }
}
keeps_only_pools() { [ "$(ls /var/lib/dolmen | tr '\n' ' ')" = 'epochs host-id pools ' ]; }
no_units() {
    systemctl list-unit-files --no-legend '*dolmen*' >/run/guest/units
    # Units that others ask for are listed as not found.
    systemctl list-units --all --no-legend '*dolmen*' | grep -v not-found >>/run/guest/units
    [ ! -s /run/guest/units ] || { cat /run/guest/units; return 1; }
}
nothing_runs() { ! pgrep -l -f '^/usr/s?bin/dolmen|^dolmend'; }
boot_is_well() {
    systemctl --failed --no-legend >/run/guest/failed
    [ ! -s /run/guest/failed ] || { cat /run/guest/failed; return 1; }
}
no_cycle() { ! journalctl --no-pager -b | grep -i 'ordering cycle'; }

# --- the services --------------------------------------------------------------------------------------------------

main_of() { systemctl show --value -p MainPID "$1"; }
# note UNIT: the process that it has now.
note() { main_of "$1" >"/run/guest/$1"; }
# stays UNIT: it has the process that was noted.
stays() { is active "$1" && [ "$(main_of "$1")" = "$(cat "/run/guest/$1")" ]; }
# changed UNIT: it has another one.
changed() { is active "$1" && [ "$(main_of "$1")" != "$(cat "/run/guest/$1")" ]; }
enabled() { [ "$(systemctl is-enabled "$1" 2>/dev/null)" = "$2" ]; }

status_of_web() { sed -n "s/^$1:[^0-9a-f]*//p" "/proc/$(main_of dolmen-web.service)/status"; }
# The user of the package, without a capability, and under a filter of system calls.
is_confined() {
    [ "$(ps -o user= -p "$(main_of dolmen-web.service)")" = dolmen-web ] && [ "$(status_of_web CapBnd)" = 0000000000000000 ] &&
        [ "$(status_of_web NoNewPrivs)" = 1 ] && [ "$(status_of_web Seccomp)" = 2 ]
}
has_profile() { [ "$(cat "/proc/$(main_of dolmen-web.service)/attr/current")" = 'dolmen-web (enforce)' ]; }
no_denial() { ! journalctl --no-pager -b | grep 'apparmor="DENIED".*dolmen'; }

get() { curl -sk --max-time 120 "$@"; }
post() { get -H 'Content-Type: application/json' -H 'Dolmen-Request: 1' "$@"; }
is_page() { get "$address/" | grep -q '<title>Dolmen</title>' && get "$address/console/sign_in.js" | grep -q 'password'; }
# Nobody has signed in, and so nobody is answered.
asks_who() { get -o /dev/null -w '%{http_code}' "$address/api/v1/status" | grep -qx 401; }
signs_in() {
    code=$(dolmen-web code | grep -o '[0-9A-Za-z]\{4\}\(-[0-9A-Za-z]\{4\}\)\{1,\}' | head -n 1)
    post -c /run/guest/cookies -d "{\"code\":\"$code\",\"user\":\"admin\",\"password\":\"correct horse battery\"}" \
        "$address/account/first" >/run/guest/answer && get -b /run/guest/cookies "$address/api/v1/status" | grep -q '"tank"'
}
make_token() { dolmen-web token create looker --role viewer >"$keep/token" && [ -s "$keep/token" ]; }
call() { get -H "Authorization: Bearer $(grep -o 'dolmen[_-][A-Za-z0-9_-]*' "$keep/token" | head -n 1)" "$@"; }
viewer_sees() { call "$address/api/v1/status" | grep -q '"tank"'; }
viewer_changes_nothing() {
    call -o /dev/null -w '%{http_code}' -X POST -H 'Content-Type: application/json' -H 'Dolmen-Request: 1' -d '{}' \
        "$address/api/v1/pools/tank/export" | grep -qx 403
}

# --- the writer ----------------------------------------------------------------------------------------------------

# put_writer VOLUME: a service that writes to the volume, flushes, and reads back from the device, until it is told to end. An I/O
# error ends it at once.
put_writer() {
    cat >"/etc/systemd/system/writer-$1.service" <<UNIT
[Unit]
RequiresMountsFor=/srv/tank/$1
[Service]
ExecStart=/usr/bin/python3 $root/scripts/installed_writer.py /srv/tank/$1/written /run/guest/written-$1
UNIT
    systemctl daemon-reload && systemctl start "writer-$1.service" && eventually test -s "/run/guest/written-$1"
}
written() { cut -d' ' -f1 "/run/guest/written-$1"; }
# goes_on VOLUME: the same process, without an error, has written more since.
goes_on() {
    stays "writer-$1.service" || { systemctl --no-pager status "writer-$1.service"; return 1; }
    before=$(written "$1")
    for _ in $(seq 60); do
        sleep 2
        [ "$(written "$1")" -le "$((before + 3))" ] || { echo "   | $(cat "/run/guest/written-$1")"; return 0; }
    done
    return 1
}
mount_number() { awk -v at="/srv/tank/$1" '$5 == at { print $1 }' /proc/self/mountinfo; }
same_mount() { [ -n "$(mount_number "$1")" ] && [ "$(mount_number "$1")" = "$(cat "/run/guest/mount-$1")" ]; }
# on_ublk VOLUME: its device is one of the kernel's ublk.
on_ublk() { findmnt -no SOURCE "/srv/tank/$1" | grep -q '^/dev/ublkb'; }

# add_line VOLUME: as mount.dolmen says.
add_line() {
    echo "dolmen:tank/$1  /srv/tank/$1  dolmen  _netdev,nofail,x-systemd.requires=dolmend.service  0  0" >>/etc/fstab && systemctl daemon-reload
}

# occupy VOLUME: a process that systemd does not know to use it does so.
occupy() {
    (cd "/srv/tank/$1" && exec setsid sleep 3600) &
    occupier=$!
}

# --- the steps -----------------------------------------------------------------------------------------------------

prepare() {
    echo 'install ublk_drv /bin/false' >/etc/modprobe.d/guest.conf && rm -f /usr/sbin/policy-rc.d && { [ ! -e /usr/bin/mandb ] || ln -sf true /usr/bin/mandb; }
}

echo "== $step, systemd $(systemctl --version | sed -n '1s/systemd //p')"
case $step in
install)
    must 'the system starts services, has no ublk, and indexes no manual pages' prepare
    must 'the package is installed' install_package 1.0
    must 'dpkg has it' has_version 1.0
    must 'the daemon runs under its unit' is active dolmend.service
    must 'every boot starts it' enabled dolmend.service enabled
    must 'the console is off until people ask' eval 'is inactive dolmen-web.service && enabled dolmen-web.service disabled'
    must 'a pool is made' dolmen pool create tank /dev/vdb /dev/vdc
    volume home 64M ext4
    must 'its device is no ublk device' refused on_ublk home
    must 'the kernel gets ublk back' rm /etc/modprobe.d/guest.conf

    must 'the console starts' systemctl enable --now dolmen-web.service
    must 'as its own user, confined' is_confined
    must 'by AppArmor as well' has_profile
    must 'it serves the page on which people sign in' eventually is_page
    must 'it answers nobody else' asks_who
    must 'the first one signs in by the code of the host' signs_in
    must 'a token for a viewer' make_token
    must 'with which the status is seen' viewer_sees
    must 'and nothing changed' viewer_changes_nothing

    volume other 64M ext4
    must 'its device is a ublk device' on_ublk other
    must 'a line of fstab for it' add_line other
    for name in home other; do
        must "a service writes to $name" put_writer "$name"
        note "writer-$name.service"
        mount_number "$name" >"/run/guest/mount-$name"
    done
    note dolmend.service
    note dolmen-web.service
    must 'the package is upgraded' install_package 1.1
    must 'dpkg has the next version' has_version 1.1
    must 'the daemon has handed over to the next one' changed dolmend.service
    must 'the console has started again' changed dolmen-web.service
    for name in home other; do
        must "$name is mounted as before" same_mount "$name"
        must 'its writer had no error and goes on' goes_on "$name"
    done
    must 'the token holds' eventually viewer_sees
    must 'AppArmor has denied nothing' no_denial
    ;;
reboot)
    must 'the daemon runs' is active dolmend.service
    for name in home other; do
        must "the volume $name is mounted" is_mounted "$name"
        must 'its file is there' holds "$name" ext4
    done
    must 'the console runs' is active dolmen-web.service
    must 'as its own user, confined' eval 'is_confined && has_profile'
    must 'it serves the page on which people sign in' eventually is_page
    must 'the token holds' viewer_sees
    must 'every unit of the boot is well' boot_is_well
    must 'no unit waits for itself' no_cycle

    must 'a service writes' put_writer home
    for unit in dolmend.service dolmen-web.service writer-home.service; do note "$unit"; done
    must 'another volume is in use' occupy other
    must 'the package is not removed below it' refused run_dpkg --remove dolmen
    must 'that names the volume' says 'dolmen is not removed: srv-tank-other.mount cannot be unmounted'
    must 'dpkg has it as before' has_version 1.1 deinstall
    must 'the daemon goes on' stays dolmend.service
    must 'the console goes on' stays dolmen-web.service
    must 'it answers' viewer_sees
    for name in home other; do
        must "$name is mounted" is_mounted "$name"
        must 'its file is there' holds "$name" ext4
    done
    must 'the service writes again' eventually changed writer-home.service

    kill "$occupier"
    must 'nothing is in use any more' eventually refused fuser -s /srv/tank/other
    must 'the package is removed' run_dpkg --remove dolmen
    must 'the service has ended' is inactive writer-home.service
    must 'the daemon and the console have ended' nothing_runs
    must 'nothing is mounted' refused findmnt -t ext4 /srv/tank/home
    must 'no profile is in force' refused grep -q dolmen /sys/kernel/security/apparmor/profiles
    must 'no unit is left but those of volumes' eval 'systemctl daemon-reload && no_units'
    must 'state and settings are kept' test -s /var/lib/dolmen/host-id -a -s /etc/default/dolmen -a -s /var/lib/dolmen-web/accounts.json
    must 'AppArmor has denied nothing' no_denial
    ;;
purge)
    must 'the boot is complete' is active multi-user.target
    must 'every unit of it is well' boot_is_well
    must 'nothing of the package runs' nothing_runs
    must 'the package is purged' run_dpkg --purge dolmen
    must 'what proves who used the pool last is kept, and that is said' eval 'keeps_only_pools && says "stays with what proves"'
    must 'nothing else is left' is_clean
    must 'no unit is left' no_units
    must 'but the user' getent passwd dolmen-web
    ;;
esac
if [ "$failed" = 1 ]; then
    systemctl --no-pager --full status dolmend.service dolmen-web.service 'srv-tank-*.mount'
    dolmen volume list
    cat /run/guest/answer
    journalctl --no-pager -b -u dolmend.service -u 'srv-tank-*.mount' -u dolmen-web.service | tail -n 120
fi
exit "$failed"

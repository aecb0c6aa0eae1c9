#!/bin/sh
# A volume over reboots of a machine whose first process is systemd. scripts/guest.sh starts it, in one machine after another:
#
#   reboots.sh first      two disks: the service is installed, a pool, a volume and a service that requires its mount point are made
#   reboots.sh healthy    both disks: the volume is mounted with no command given, before the service that requires it
#   reboots.sh degraded   one disk: the same
#   reboots.sh absent     no disk: the boot is not held up, and the service that requires the mount point does not start
#
# It changes the units of the system it runs on, so it is for such machines alone.
root=$(cd "$(dirname "$0")/.." && pwd)
bin=${DOLMEN_BIN:?the program}
step=${1:?first, healthy, degraded or absent}
failed=0

[ -e /guest/start ] && [ "$(ps -p 1 -o comm=)" = systemd ] || {
    echo 'reboots.sh: this is no machine of guest.sh under systemd' >&2
    exit 69
}

# must WHAT COMMAND...
must() {
    what=$1
    shift
    if "$@"; then
        echo " ok | $what"
    else
        echo "FAIL | $what"
        failed=1
    fi
}
refused() { ! "$@" >/dev/null 2>&1; }
# The daemon counts a volume as mounted when the rest of the step has ended, which systemd does not wait for.
is_mounted() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
        "$bin" volume show tank/home | grep -q 'mounted at.*/srv/tank/home' && return 0
        sleep 2
    done
    return 1
}
is() { [ "$(systemctl is-active "$2")" = "$1" ]; }
holds() { [ "$(cat /srv/tank/home/file 2>/dev/null)" = kept ]; }
# entered UNIT: microseconds after the start of the kernel.
entered() { systemctl show --value -p ActiveEnterTimestampMonotonic "$1"; }
in_order() {
    [ "$(entered dolmend.service)" -gt 0 ] && [ "$(entered dolmend.service)" -le "$(entered srv-tank-home.mount)" ] &&
        [ "$(entered srv-tank-home.mount)" -le "$(entered needs-home.service)" ]
}
at_boot() { [ -e /run/needs-home ] && is active needs-home.service; }

make_needy() {
    cat >/etc/systemd/system/needs-home.service <<'UNIT'
[Unit]
Description=Service that requires the volume
RequiresMountsFor=/srv/tank/home

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'mountpoint -q /srv/tank/home && touch /run/needs-home'
ExecStop=/bin/sh -c 'mountpoint -q /srv/tank/home && echo stopped >>/srv/tank/home/stopped'

[Install]
WantedBy=multi-user.target
UNIT
    systemctl daemon-reload && systemctl enable --now needs-home.service
}

echo "== $step, systemd $(systemctl --version | sed -n '1s/systemd //p')"
case $step in
first)
    must 'the service is installed' "$bin" service install
    must 'it starts' systemctl start dolmend.service
    must 'it has notified systemd' is active dolmend.service
    must 'a pool is made' "$bin" pool create tank /dev/vda /dev/vdb
    must 'a volume is made' "$bin" volume create tank/home --size 64M --for files --fs ext4
    must 'it is mounted' is_mounted
    must 'systemd knows its mount unit' is active srv-tank-home.mount
    must 'a file is written' sh -c 'echo kept >/srv/tank/home/file && sync'
    must 'a service requires it' make_needy
    ;;
healthy | degraded)
    must 'the volume is mounted' is_mounted
    must 'its mount unit is active' is active srv-tank-home.mount
    must 'the file is there' holds
    must 'the service that requires it was started by the boot' at_boot
    must 'daemon, mount and service came in this order' in_order
    must 'the boot is complete' is active multi-user.target
    [ "$step" = degraded ] || must 'the service had ended before the last unmount' grep -q stopped /srv/tank/home/stopped
    [ "$step" = healthy ] || "$bin" status
    if [ "$step" = healthy ]; then
        must 'a stop of the daemon ends the service and unmounts the volume first' systemctl stop dolmend.service
        must 'it is unmounted' refused mountpoint -q /srv/tank/home
        must 'the service has ended' is inactive needs-home.service
        must 'the service asks for the volume again' systemctl start needs-home.service
        must 'the volume is mounted again' is_mounted
        must 'what people unmount' sh -c "systemctl stop needs-home.service && $bin volume unmount tank/home"
        must 'no unit mounts' refused systemctl start srv-tank-home.mount
        must 'until people mount it' "$bin" volume mount tank/home
        must 'then units order themselves again' systemctl start needs-home.service
    fi
    ;;
absent)
    must 'the boot is complete' is active multi-user.target
    must 'the daemon runs' is active dolmend.service
    must 'nothing is mounted' refused mountpoint -q /srv/tank/home
    must 'the service that requires the volume did not start' refused test -e /run/needs-home
    must 'the status names the pool' sh -c "$bin status | grep -q tank"
    ;;
esac
if [ "$failed" = 1 ]; then
    systemctl --no-pager --full status dolmend.service srv-tank-home.mount needs-home.service
    "$bin" volume show tank/home
    journalctl --no-pager -b -u dolmend.service -u srv-tank-home.mount | tail -n 60
fi
exit "$failed"

#!/bin/sh
# Volumes and a share over reboots of a machine whose first process is systemd. scripts/guest.sh starts it, in one machine after
# another:
#
#   reboots.sh first      two disks: the service is installed; a pool, a volume of each file system, a share of one by Samba, and a
#                         service that requires the mount point of another are made
#   reboots.sh healthy    both disks: the volumes are mounted and the share is offered with no command given, and the service starts
#                         when its volume is mounted
#   reboots.sh degraded   one disk: the same; the machine ends by a power cut
#   reboots.sh absent     no disk: the boot is not held up, the service does not start, and the share is not offered, although Samba
#                         has it on record since the power cut
#
# It changes units, accounts and Samba of the system it runs on, so it is for such machines alone.
root=$(cd "$(dirname "$0")/.." && pwd)
bin=${DOLMEN_BIN:?the program}
. "$root/scripts/machine.sh"
step=${1:?first, healthy, degraded or absent}
user=reader
password=correct-horse

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

# --- the share -----------------------------------------------------------------------------------------------------

# As the guide on shares asks for it.
put_samba() {
    printf '%s\n' '[global]' 'server role = standalone server' 'map to guest = Never' 'usershare max shares = 0' 'load printers = no' \
        'disable spoolss = yes' 'disable netbios = yes' 'include = registry' >/etc/samba/smb.conf &&
        useradd --no-create-home "$user" && printf '%s\n%s\n' "$password" "$password" | smbpasswd -s -a "$user" >/dev/null &&
        systemctl add-wants multi-user.target smbd.service && systemctl start smbd.service
}
is_up() { "$bin" share list | grep -q '^tank/media .* up'; }
sees() { smbclient -gL 127.0.0.1 -U "$user%$password" 2>&1; }
is_listed() { sees | grep -q '^Disk|media|'; }
# Samba answers this user, and the share is not on its list.
is_not_listed() { sees | grep -q '^IPC|IPC\$|' && ! is_listed; }
reads() { [ "$(smbclient //127.0.0.1/media -U "$user%$password" -c 'get file -' 2>/dev/null)" = 'kept in media' ]; }
# is_shared: for the daemon, and for a client.
is_shared() {
    must 'the share is up' eventually is_up
    must 'a client sees it' eventually is_listed
    must 'and reads a file' reads
}

# --- the steps -----------------------------------------------------------------------------------------------------

# type_of VOLUME: the file system that it is made with.
type_of() { case $1 in home) echo ext4 ;; media) echo xfs ;; docs) echo btrfs ;; esac; }

echo "== $step, systemd $(systemctl --version | sed -n '1s/systemd //p')"
case $step in
first)
    must 'the service is installed' "$bin" service install
    must 'it starts' systemctl start dolmend.service
    must 'it has notified systemd' is active dolmend.service
    must 'a pool is made' "$bin" pool create tank /dev/vda /dev/vdb
    for sized in home:64M media:320M docs:256M; do
        volume "${sized%:*}" "${sized#*:}" "$(type_of "${sized%:*}")"
    done
    must 'a service requires the first' make_needy
    must 'Samba runs' put_samba
    must 'the second is shared' "$bin" share create tank/media --smb media --grant "$user:ro"
    is_shared
    ;;
healthy | degraded)
    for name in home media docs; do
        must "the volume $name is mounted" is_mounted "$name"
        must 'its mount unit is active' eventually is active "srv-tank-$name.mount"
        must 'its file is there' holds "$name" "$(type_of "$name")"
    done
    is_shared
    must 'the service that requires it was started by the boot' at_boot
    must 'daemon, mount and service came in this order' in_order
    must 'the boot is complete' is active multi-user.target
    [ "$step" = degraded ] || must 'the service had ended before the last unmount' grep -q stopped /srv/tank/home/stopped
    [ "$step" = healthy ] || "$bin" status
    if [ "$step" = healthy ]; then
        must 'a stop of the daemon ends the service and unmounts the volume first' systemctl stop dolmend.service
        must 'it is unmounted' refused mountpoint -q /srv/tank/home
        must 'the share is not offered meanwhile' is_not_listed
        must 'the service has ended' is inactive needs-home.service
        must 'the service asks for its volume again' systemctl start needs-home.service
        must 'the volume is mounted again' is_mounted home
        must 'what people unmount' sh -c "systemctl stop needs-home.service && $bin volume unmount tank/home"
        must 'no unit mounts' refused systemctl start srv-tank-home.mount
        must 'until people mount it' "$bin" volume mount tank/home
        must 'then units order themselves again' systemctl start needs-home.service
        must 'the share is offered again' eventually is_listed
    fi
    ;;
absent)
    must 'the boot is complete' is active multi-user.target
    must 'the daemon runs' is active dolmend.service
    must 'nothing is mounted' refused sh -c 'findmnt -rno TARGET | grep ^/srv/tank'
    must 'the service that requires the volume did not start' refused test -e /run/needs-home
    must 'the status names the pool' sh -c "$bin status | grep -q tank"
    must 'the share is not offered' eventually is_not_listed
    ;;
esac
if [ "$failed" = 1 ]; then
    systemctl --no-pager --full status dolmend.service 'srv-tank-*.mount' needs-home.service smbd.service
    "$bin" volume list
    "$bin" share list
    sees
    journalctl --no-pager -b -u dolmend.service -u 'srv-tank-*.mount' -u smbd.service | tail -n 90
fi
exit "$failed"

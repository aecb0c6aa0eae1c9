#!/bin/sh
# For scripts that run in a machine of guest.sh whose first process is systemd, sourced. What they change there is no longer what it
# was, so this ends them anywhere else.
failed=0

[ -e /guest/start ] && [ "$(ps -p 1 -o comm=)" = systemd ] || {
    echo "$0: this is no machine of guest.sh under systemd" >&2
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
# eventually COMMAND...: tries it for at least two minutes. A mount is complete when its shares are offered, and tools of Samba are slow
# where they are emulated.
eventually() {
    for _ in $(seq 60); do
        "$@" && return 0
        sleep 2
    done
    return 1
}
# is STATE UNIT
is() { [ "$(systemctl is-active "$2")" = "$1" ]; }

shows_mounted() { "$bin" volume show "tank/$1" | grep -q "mounted at.*/srv/tank/$1"; }
# is_mounted VOLUME
is_mounted() { eventually shows_mounted "$1"; }
# volume NAME SIZE FILE-SYSTEM
volume() {
    # A machine that is emulated on a busy one refuses it at first, because tools answer late.
    must "a volume of $3 is made" eventually "$bin" volume create "tank/$1" --size "$2" --for files --fs "$3"
    must 'it is mounted' is_mounted "$1"
    must 'systemd knows its mount unit' eventually is active "srv-tank-$1.mount"
    must 'a file is written' sh -c 'echo "kept in $1" >"/srv/tank/$1/file" && sync -f "/srv/tank/$1/file"' sh "$1"
}
# holds VOLUME FILE-SYSTEM: its file, on the file system that it was made with.
holds() { [ "$(cat "/srv/tank/$1/file" 2>/dev/null)" = "kept in $1" ] && [ "$(findmnt -no FSTYPE "/srv/tank/$1")" = "$2" ]; }

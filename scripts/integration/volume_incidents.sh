#!/bin/sh
# Incidents 1, 2, 14 and 15 of docs/incidents.md on volumes, by the command line: a thin volume fills its pool, room is freed in a
# full pool, a deduplicated volume is deleted whole, copies are made while files change. The daemon is killed in each.
#
# DOLMEN_VOLUME_INCIDENTS  those to run, with commas between (default: 1,2,14,15)
# DOLMEN_COPY_SECONDS      how long incident 15 changes and copies files (default: 20)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='incidents on volumes'

open_script 8192 mkfs.xfs python3
knows_filesystem xfs || { skip "$script (the kernel does not know XFS)"; exit 0; }
: >"$logs/incidents.log"
mount=$run/mnt/home
wanted=",${DOLMEN_VOLUME_INCIDENTS:-1,2,14,15},"

is_asked() { case $wanted in *",$1,"*) return 0 ;; esac; return 1; }

make_volume() {
    note mount "$mount"
    dolmen volume create "$pool/home" --for files --fs xfs --mount "$mount" "$@" >>"$logs/incidents.log" 2>&1
}

is_mounted() { grep -q " $mount " /proc/mounts; }

client() { as_root python3 -B "$root/scripts/integration/volume_incidents_client.py" "$@"; }

free_mib() { echo $(($(dolmen -o json df "$pool" | number_of free_bytes) / 1048576)); }

file_count() { find "$mount" -type f | wc -l; }

has_room() { is "$(free_mib)" -ge "$1"; }

# end_pool DISK...: the pool is destroyed, and its disks are sound before.
end_pool() {
    must 'unmounted' dolmen volume unmount "$pool/home"
    must 'the file system is sound' dolmen volume check "$pool/home"
    end_daemon "$@"
}

end_daemon() {
    must 'the daemon ends' daemon_stop
    must 'the offline check finds the pool clean' cli_check "$@"
    rm -f "$@"
    rm -rf "$daemon_state"
    mkdir -p "$daemon_state"
}

kill_and_start() { daemon_kill && daemon_start && eventually 30 is_mounted; }

# begin_pool MIB NAME...: files as disks become a pool.
begin_pool() {
    must 'disks' make_disks "$@"
    shift
    must 'the daemon answers' daemon_start
    begin_words=
    for begin_name in "$@"; do begin_words="$begin_words $disks/$begin_name"; done
    # shellcheck disable=SC2086 # a list of words
    must 'the pool is made' dolmen pool create "$pool" $begin_words
}

fills() { client fill "$mount" "$run/sums" 4; }

has_files() { client verify "$mount" "$run/sums"; }

if is_asked 1; then
    step 'incident 1: a thin volume of 20 GiB fills its pool'
    begin_pool 768 a b
    must 'a volume of 20 GiB' make_volume --size 20G
    must 'files are synced until a write is refused' fills
    must 'all that was synced is there' has_files
    must 'the daemon is killed, and the next one answers' kill_and_start
    must 'all that was synced is there' has_files
    must 'a disk is added' make_disk c 2048
    must 'the pool takes it' dolmen pool add "$pool" "$disks/c"
    must 'a disk is added' make_disk d 2048
    must 'the pool takes it' dolmen pool add "$pool" "$disks/d"
    must 'it is mounted again' dolmen volume unmount "$pool/home"
    must 'it is mounted again' dolmen volume mount "$pool/home"
    must 'all that was synced is there' has_files
    must 'a file can be written' client more "$mount" "$run/sums" 4
    end_pool "$disks/a" "$disks/b" "$disks/c" "$disks/d"
fi

if is_asked 2; then
    step 'incident 2: room is freed in a full pool'
    begin_pool 768 a b
    must 'a volume of 20 GiB' make_volume --size 20G
    must 'files are synced until a write is refused' fills
    full=$(file_count)
    must 'the daemon is killed in the full pool, and the next one answers' kill_and_start
    must 'every second file is deleted' client thin "$mount" "$run/sums"
    must 'trimmed' dolmen volume trim "$pool/home"
    must 'the other files are there' has_files
    must 'files are synced until a write is refused' fills
    # A file more or less may fit, as metadata lies.
    must 'room has come back' is "$(file_count)" -ge $((full * 95 / 100))
    must 'the volume of a full pool is deleted' dolmen volume delete "$pool/home"
    must 'for good' dolmen trash purge "$pool/home" --destroy "$pool/home"
    must 'room has come back' eventually 60 has_room 300
    end_daemon "$disks/a" "$disks/b"
fi

if is_asked 14; then
    step 'incident 14: a deduplicated volume is deleted whole'
    begin_pool 4096 a b
    must 'a volume' make_volume --size 3G
    fresh=$(free_mib)
    must '20,000 files, most of them copies' client copies "$mount" 20000
    must 'deduplicated' dolmen dedup enable "$pool/home" --min-age 0 --min-size 4K
    must 'deduplicated' dolmen dedup run "$pool/home"
    client delete "$mount" >>"$logs/incidents.log" 2>&1 &
    deleting=$!
    sleep 2
    must 'the daemon is killed in the midst of the deletion, and the next one answers' kill_and_start
    must 'the deletion ends' wait "$deleting"
    must 'trimmed' dolmen volume trim "$pool/home"
    # Log and inodes of XFS stay where they were written.
    must 'room has come back' eventually 60 has_room $((fresh - 128))
    must 'the volume is deleted' dolmen volume delete "$pool/home"
    must 'for good' dolmen trash purge "$pool/home" --destroy "$pool/home"
    must 'the daemon is killed' daemon_kill
    begun=$(now)
    must 'the next one answers' daemon_start
    must 'within a minute' is $(($(now) - begun)) -lt 60
    must 'all room has come back' eventually 60 has_room 3500
    daemon_peak=$(as_root awk '/^VmHWM:/ { print int($2 / 1024) }' "/proc/$(daemon_self)/status")
    must "the daemon took less than 2 GiB of memory ($daemon_peak MiB)" is "$daemon_peak" -lt 2048
    end_daemon "$disks/a" "$disks/b"
fi

if is_asked 15; then
    step 'incident 15: copies while files change'
    begin_pool 3072 a b
    must 'a volume' make_volume --size 2G
    client change "$mount" "${DOLMEN_COPY_SECONDS:-20}" >"$logs/copies.log" 2>&1 &
    changing=$!
    for round in 1 2 3; do
        sleep 3
        must "the daemon is killed the ${round}. time, and the next one answers" kill_and_start
    done
    must 'every file and every copy is equal to the model' wait "$changing"
    sed 's/^/   | /' "$logs/copies.log"
    end_pool "$disks/a" "$disks/b"
fi
close_script

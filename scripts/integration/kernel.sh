#!/bin/sh
# The transports that lead through the kernel, on whatever kernel this is: which of them there are, and whether they keep data.
#
# A mirror of two copies on files in memory is attached as a block device. Its daemon is killed and a disk is torn out
# under load; all is read back by checksum, the disk is replaced, the daemon restarted. Then a space as a ublk device,
# whose daemon is killed, hands over, misses its pool, and never comes back; a space over FUSE by io_uring, which ends with
# its daemon; the same daemon without io_uring; and a space over NBD with the kernel as the client. What this kernel does
# not have is named and left out.
#
# Made for other machines too: it needs no more than a shell, the usual tools and a program, which DOLMEN_BIN names.
#
# DOLMEN_KERNEL_MIB    how much real content goes into a space (default: 24)
# DOLMEN_KERNEL_SCSI   yes: the disk that is torn out is one of the kernel's SCSI test driver, which is loaded for that;
#                      for a machine that nothing else is done on (default: no)
# DOLMEN_URING         yes: FUSE over io_uring is switched on in the kernel while this runs, and put back to what it was;
#                      without it the step is left out where that is off (default: no)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='this kernel'
mib=${DOLMEN_KERNEL_MIB:-24}
disk_mib=128
space_mib=$((mib * 2 + 72))
victim=$disks/c
mnt=$run/mnt/home

# --- what there is -------------------------------------------------------------------------------------------------

# has WHAT COMMAND...: prints whether.
has() {
    has_what=$1
    shift
    if "$@" >/dev/null 2>&1; then has_word=yes; else has_word=no; fi
    say "   | $has_what: $has_word"
}

# offers MODULE PATH: something is at the path, perhaps after the module is loaded.
offers() { [ -e "$2" ] || { as_root modprobe "$1" && [ -e "$2" ]; }; }

ring_is_allowed() { [ "$(cat /proc/sys/kernel/io_uring_disabled 2>/dev/null || echo 0)" -eq 0 ]; }

tell_ways() {
    say "   | Linux $(uname -r), $(nproc) processors"
    has FUSE offers fuse /dev/fuse
    has 'FUSE over io_uring' test -e "$uring_switch"
    has 'which is switched on' uring_is_on
    has 'loop devices' offers loop /dev/loop-control
    has 'ublk' offers ublk_drv /dev/ublk-control
    has 'io_uring is not switched off' ring_is_allowed
    has 'NBD devices' offers nbd /sys/block/nbd0
}

# --- content -------------------------------------------------------------------------------------------------------

# Disks in memory take room only where they are written; there is enough for all of them, because a disk without room
# for what it has promised fails writes.
make_memory() {
    # shellcheck disable=SC2046 # a list of words
    attend mount "$disks" -- $(rights) mount -t tmpfs -o "size=$((disk_mib * 7))m" tmpfs "$disks" && make_disks "$disk_mib" a b d e f
}

make_victim() {
    if [ "${DOLMEN_KERNEL_SCSI:-no}" = yes ]; then
        make_scsi
    else
        make_disk c "$disk_mib"
    fi
}

# Sets $victim to the disk of the test driver, which keeps it in memory.
make_scsi() {
    # Without udev nobody loads what makes disks of what the driver shows.
    as_root modprobe sd_mod 2>/dev/null || :
    as_root modprobe scsi_debug "dev_size_mb=$disk_mib" && eventually 20 find_scsi
}
find_scsi() {
    for scsi_model in /sys/block/sd*/device/model; do
        grep -q scsi_debug "$scsi_model" 2>/dev/null || continue
        scsi_name=${scsi_model#/sys/block/}
        scsi_name=${scsi_name%%/*}
        victim=/dev/$scsi_name
        [ ! -b "$victim" ] || return 0
    done
    return 1
}

make_home() {
    # shellcheck disable=SC2046 # a list of words
    dolmen space create "$pool/home" --size "${space_mib}M" --resiliency mirror && attach_space home &&
        attend -- $(rights) mkfs.ext4 -q "$device" && mount_space home && copy_tree "$run/list" "$mnt/tree"
}

# reads_back FOLDER: from the space, not from what the kernel remembers.
reads_back() {
    echo 3 | as_root tee /proc/sys/vm/drop_caches >/dev/null && compare "$run/sums" "$1/tree"
}

# Copies the tree again and again, each time to the disk and compared, until $run/stop is there; any error ends it.
load_begin() {
    rm -f "$run/stop"
    # shellcheck disable=SC2016,SC2046 # the inner shell expands it; a list of words
    begin -- $(rights) sh -c 'while [ ! -e "$1/stop" ]; do
            rm -rf "$2/load" && mkdir "$2/load" && tar -C / -cf - -T "$1/list" | tar -C "$2/load" -xf - && sync -f "$2" &&
                (cd "$2/load" && b2sum -c --quiet "$1/sums") && : >"$1/round" || exit 1
        done' sh "$run" "$mnt" >"$logs/load.log" 2>&1
    load_pid=$!
    load_started=$(start_time "$load_pid")
}

load_runs() { is_process "$load_pid" "$load_started" || { tail -n 20 "$logs/load.log" >&2; return 1; }; }

# A round of the load that begins after now comes to its end.
load_goes_on() {
    for goes_round in 1 2; do
        rm -f "$run/round"
        eventually 300 load_moved || return 1
    done
}
load_moved() { [ -e "$run/round" ] || ! load_runs; }

load_end() {
    : >"$run/stop"
    wait "$load_pid" || { tail -n 20 "$logs/load.log" >&2; return 1; }
}

kill_under_load() { sleep 1 && daemon_kill && sleep 1 && load_runs && daemon_start && load_goes_on && load_runs; }

# How the kernel and the daemon bring back what the killed one had read, in the daemon's words.
tell_survival() { grep -o 'requests under way are [^;"]*' "$logs/daemon.log" | tail -n 1 | sed 's/^/   | /'; }

# From one moment to the next a SCSI disk is gone, and a file has lost all of its content, and its name.
take_away() {
    if [ -b "$victim" ]; then
        echo 1 | as_root tee "/sys/block/$scsi_name/device/delete" >/dev/null
    else
        privileged truncate -s 0 "$victim" && privileged rm -f "$victim"
    fi
}
tear_out() { take_away && load_goes_on && load_runs; }

is_sound() { privileged fsck.ext4 -fn "$device" >"$logs/fsck.log" 2>&1 || { cat "$logs/fsck.log" >&2; return 1; }; }

# The daemon's word on how it does its I/O, which it says only where io_uring was refused.
refused_ring() { grep -q 'refuses io_uring' "$logs/daemon.log"; }

# --- by ublk -------------------------------------------------------------------------------------------------------

by_ublk() {
    case $(readlink "$device") in /dev/ublkb*) ;; *) warn "$device leads to $(readlink "$device")"; return 1 ;; esac
}

direct_make() {
    # shellcheck disable=SC2046 # a list of words
    dolmen space create "$pool/direct" --size "${space_mib}M" --resiliency mirror && attach_space direct && by_ublk &&
        attend -- $(rights) mkfs.ext4 -q "$device" && mount_space direct && copy_tree "$run/list" "$mnt/tree"
}

# The next daemon takes over from one that has ended in good order, with requests that wait.
hand_over_under_load() { dolmen stop --hand-over >/dev/null && daemon_ends && sleep 1 && load_runs && daemon_start && load_goes_on; }

# fio writes, reads and compares, and the daemon is killed again and again until it is through.
direct_fio() {
    # shellcheck disable=SC2046 # a list of words
    begin -- $(rights) fio --name=v --directory="$mnt" --size=12M --rw=randwrite --bsrange=4k-64k --ioengine=libaio \
        --iodepth=16 --direct=1 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --do_verify=1 --fsync=64 --loops=2 \
        >"$logs/fio.log" 2>&1
    fio_pid=$!
    fio_started=$(start_time "$fio_pid")
    fio_kills=0
    while is_process "$fio_pid" "$fio_started" && [ "$fio_kills" -lt 5 ]; do
        sleep 1
        daemon_kill && daemon_start || return 1
        fio_kills=$((fio_kills + 1))
    done
    wait "$fio_pid" || { tail -n 20 "$logs/fio.log" >&2; return 1; }
    say "   | the daemon was killed $fio_kills times"
}

# All requests that a device has are with the daemon when it is killed: some kernels put them back after half a minute only. Those
# who asked see a pause.
direct_full() {
    # shellcheck disable=SC2046 # one number
    send STOP $(daemon_self) || return 1
    # shellcheck disable=SC2046 # a list of words
    begin -- $(rights) fio --name=full --directory="$mnt" --size=2M --rw=randwrite --bs=4k --ioengine=libaio --iodepth=200 \
        --direct=1 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --do_verify=1 >"$logs/full.log" 2>&1
    fio_pid=$!
    sleep 4
    daemon_kill && daemon_start || return 1
    full_began=$(now)
    wait "$fio_pid" || { tail -n 20 "$logs/full.log" >&2; return 1; }
    say "   | it went on $(($(now) - full_began)) s after the next daemon was there"
    privileged rm "$mnt/full.0.0"
}

told_way() { tail -n 5 "$logs/attach.log" | grep -q "attached by ublk, as $(readlink "$device")"; }

# The disks are in another folder when the daemon is back: a reader waits, until the pool is imported.
direct_without_pool() {
    daemon_kill && privileged mkdir "$disks/away" && privileged mv "$disks"/? "$disks/away" && daemon_start || return 1
    ! dolmen pool show "$pool" >/dev/null 2>&1 || { warn 'the pool is open'; return 1; }
    # shellcheck disable=SC2046 # a list of words
    begin -- $(rights) dd "if=$device" of=/dev/null bs=64k count=16 iflag=direct status=none
    direct_pid=$!
    direct_started=$(start_time "$direct_pid")
    sleep 1
    is_process "$direct_pid" "$direct_started" || { warn 'the reader did not wait'; return 1; }
    privileged mv "$disks"/away/? "$disks" && privileged rmdir "$disks/away" && dolmen pool import "$disks" && wait "$direct_pid"
}

# The daemon never comes back: a file system on the device waits for ever, unless somebody clears it away.
direct_clear() {
    direct_device=$(readlink "$device")
    refused 75 'is served by process' privileged "$bin" space clear "$direct_device" --destroy "$direct_device" && daemon_kill || return 1
    # shellcheck disable=SC2046 # a list of words
    begin -- $(rights) dd if=/dev/zero "of=$mnt/never" bs=64k count=16 conv=fsync status=none 2>/dev/null
    direct_pid=$!
    direct_started=$(start_time "$direct_pid")
    sleep 1
    is_process "$direct_pid" "$direct_started" || { warn 'the writer did not wait'; return 1; }
    refused 73 'no terminal to confirm it at' privileged "$bin" space clear "$device" &&
        privileged "$bin" space clear "$device" --destroy "$direct_device" || return 1
    wait "$direct_pid" && { warn 'the writer saw no error'; return 1; }
    privileged umount "$mnt" && [ ! -e "$device" ] && eventually 20 direct_is_gone
}
direct_is_gone() { [ ! -e "$direct_device" ]; }

# direct_grow MIB: the space; whether the device follows is up to the kernel, and told.
direct_grow() {
    direct_told=$(dolmen space resize "$pool/direct" "$1M" 2>&1) || { warn "$direct_told"; return 1; }
    if printf '%s' "$direct_told" | grep -q 'keeps its old size: .*--transport loop'; then
        say '   | this kernel does not resize ublk devices; the answer says so'
        has_mib "$space_mib"
    else
        has_mib "$1"
    fi
}
has_mib() { is "$(privileged blockdev --getsize64 "$device")" -eq $(($1 * 1048576)); }

direct_detach() {
    direct_device=$(readlink "$device")
    close_space direct && [ ! -e "$direct_device" ] && [ ! -e "$device" ]
}

direct_delete() { dolmen space delete "$pool/direct" --purge --destroy "$pool/direct" >/dev/null; }

# It is there, and can what is needed of it.
has_ublk() { dolmen space attach --transport ublk "$pool/home" >/dev/null 2>"$logs/ublk.log" && dolmen space detach "$pool/home" >/dev/null; }

# Without ublk: a loop device is taken, and why is said; ublk alone is refused.
told_why_not() { dolmen space attach "$pool/home" 2>&1 >/dev/null | grep 'by a loop device.*not by ublk: ' | sed 's/^/   | /' | grep . ; }

step_ublk() {
    step "ublk"
    if refused_ring; then
        skip 'ublk (this kernel refuses io_uring)'
        return
    elif ! has_ublk; then
        must 'ublk alone is refused, before anything is attached' refused 69 'ublk' dolmen space attach --transport ublk "$pool/home"
        must 'a loop device is taken, and why is said' told_why_not
        must 'ublk alone is refused' refused 75 'is attached already, by a loop device' dolmen space attach --transport ublk "$pool/home"
        must 'closed' dolmen space detach "$pool/home"
        skip "ublk ($(sed -n 's/^dolmen: //p' "$logs/ublk.log"))"
        return
    fi
    attach_way=auto
    mnt=$run/mnt/direct
    must 'a space is attached by ublk, and has the tree' direct_make
    must 'which way was taken is said' told_way
    must 'it reads back as it was written' reads_back "$mnt"
    must 'mounted, it is not detached' refused 75 "mounted at $mnt" dolmen space detach "$pool/direct"
    must 'the load begins' load_begin
    must 'and goes on' load_goes_on
    must 'the daemon is killed: I/O pauses and goes on' kill_under_load
    must 'the daemon hands over to the next: the same' hand_over_under_load
    must 'the load has seen no error' load_end
    if need fio; then
        must 'fio sees no error while daemons are killed' direct_fio
        must 'nor when one is killed that has all requests of the device' direct_full
    else
        skip "fio under killed daemons (missing:$missing)"
    fi
    must 'the tree reads back as it was written' reads_back "$mnt"
    must 'what is unused is given back' privileged fstrim "$mnt"
    must 'closed' close_space direct
    must 'attached' attach_space direct
    must 'the file system is sound' is_sound
    must 'mounted' mount_space direct
    must 'it is detached, and nothing is left' direct_detach
    must 'attached and mounted' open_space direct
    must 'the pool does not open: I/O waits until it is imported' direct_without_pool
    must 'the tree reads back as it was written' reads_back "$mnt"
    must 'the daemon never comes back: the device is cleared away' direct_clear
    must 'another daemon answers' daemon_start
    must 'attached' attach_space direct
    must 'it grows' direct_grow $((space_mib + 8))
    must 'detached' dolmen space detach "$pool/direct"
    must 'the same space by a loop device, as long as it is' direct_by_loop
    must 'it grows, and the device with it' direct_grow $((space_mib + 16))
    must 'the device has that length' has_mib $((space_mib + 16))
    must 'the tree reads back as it was written' reads_back "$mnt"
    must 'closed' close_space direct
    must 'deleted' direct_delete
    mnt=$run/mnt/home
}
direct_by_loop() { attach_way=loop && attach_space direct && has_mib $((space_mib + 8)) && mount_space direct; }

# --- over FUSE by io_uring -----------------------------------------------------------------------------------------

# The answer says which way was taken, and that it ends with the daemon.
told_mortal() {
    tail -n 6 "$logs/attach.log" | grep -q 'attached by a loop device over FUSE by io_uring' &&
        tail -n 6 "$logs/attach.log" | grep -q 'warning: this attachment does not survive its daemon'
}

# mortal_fio FOLDER WORD...
mortal_fio() {
    fio_folder=$1
    shift
    # shellcheck disable=SC2046 # a list of words
    attend -- $(rights) fio --name=v --directory="$fio_folder" --ioengine=libaio --direct=1 "$@" >"$logs/fio.log" 2>&1
}

# fio writes at random, reads and compares.
mortal_verify() {
    mortal_fio "$mnt" --size=40M --rw=randwrite --bsrange=4k-64k --iodepth=32 --verify=crc32c --verify_fatal=1 \
        --verify_state_save=0 --do_verify=1 --fsync=128 && privileged rm "$mnt/v.0.0"
}

# The load sees an error at once, and so does everybody; the next daemon says what ended, and clears it once it is unmounted.
kill_mortal() {
    daemon_kill || return 1
    wait "$load_pid" && { warn 'the load saw no error'; return 1; }
    refused 1 'error' privileged dd "if=$mortal_device" of=/dev/null bs=64k count=1 iflag=direct && daemon_start || return 1
    show_status
    status_says 'home was attached by io_uring' && privileged umount "$mnt"
}
mortal_is_gone() { ! grep -q home "/sys/block/${mortal_device#/dev/}/loop/backing_file" 2>/dev/null; }
mortal_again() { open_space home && { [ "$(readlink "$device")" = "$mortal_device" ] || mortal_is_gone; }; }

step_uring() {
    step "FUSE over io_uring, which ends with its daemon"
    attach_way=loop-uring
    if ! uring_is_on; then
        must 'it is refused, before anything is attached' refused 69 'FUSE over io_uring' dolmen space attach --transport loop-uring "$pool/home"
    fi
    if refused_ring; then
        skip 'FUSE over io_uring (this kernel refuses io_uring)'
    elif ! [ -e "$uring_switch" ]; then
        skip 'FUSE over io_uring (this kernel does not have it)'
    elif ! uring_begin; then
        skip 'FUSE over io_uring (it is switched off in this kernel, and DOLMEN_URING=yes did not ask to switch it on)'
    else
        step_mortal
    fi
    attach_way=loop
}
step_mortal() {
    must 'attached by its name, and mounted' open_space home
    mortal_device=$(readlink "$device")
    must 'that it ends with the daemon is said' told_mortal
    must 'another way is not taken beside it' refused 75 'is attached already' dolmen space attach --transport loop "$pool/home"
    must 'it reads back as it was written' reads_back "$mnt"
    must 'mounted, it is not detached' refused 75 "mounted at $mnt" dolmen space detach "$pool/home"
    must 'mounted, it is not handed over' refused 75 'loop-uring' dolmen stop --hand-over
    if need fio; then
        must 'fio reads what it wrote' mortal_verify
    else
        skip "fio over io_uring (missing:$missing)"
    fi
    must 'the load begins' load_begin
    must 'and goes on' load_goes_on
    must 'the daemon is killed: I/O fails, nothing hangs, the next one says so' kill_mortal
    must 'attached again, and the dead device is gone' mortal_again
    must 'the tree reads back as it was written' reads_back "$mnt"
    must 'closed' close_space home
    must 'attached' attach_space home
    must 'the file system is sound' is_sound
    must 'detached' dolmen space detach "$pool/home"
}

# --- over NBD ------------------------------------------------------------------------------------------------------

# Sets $nbd to a device that nobody uses.
find_nbd() {
    for nbd_folder in /sys/block/nbd*; do
        [ ! -e "$nbd_folder/pid" ] && [ "$(cat "$nbd_folder/size" 2>/dev/null)" = 0 ] || continue
        nbd=${nbd_folder##*/}
        return 0
    done
    return 1
}

is_connected() { [ -e "/sys/block/$nbd/pid" ] && [ "$(cat "/sys/block/$nbd/size")" -eq $((space_mib * 2048)) ]; }
is_free() { [ ! -e "/sys/block/$nbd/pid" ]; }

# The client stays, so that it is in the record: the device is connected as long as its client lives.
nbd_connect() {
    nbd_uri=$(dolmen serve "$pool/served" | tail -n 1)
    nbd_socket=${nbd_uri##*socket=}
    [ -S "$nbd_socket" ] && find_nbd || return 1
    # shellcheck disable=SC2046 # a list of words
    begin -- $(rights) nbd-client -unix "$nbd_socket" -name "$pool/served" -block-size 4096 -nonetlink -nofork "/dev/$nbd" >>"$logs/nbd.log" 2>&1
    device=/dev/$nbd
    eventually 20 is_connected || { cat "$logs/nbd.log" >&2; return 1; }
}

nbd_disconnect() {
    privileged umount "$run/mnt/served" && privileged nbd-client -d "$device" >>"$logs/nbd.log" 2>&1 && eventually 20 is_free
}

nbd_format() {
    # shellcheck disable=SC2046 # a list of words
    dolmen space create "$pool/served" --size "${space_mib}M" --resiliency mirror && nbd_connect &&
        attend -- $(rights) mkfs.ext4 -q "$device" && mount_space served
}

step_nbd() {
    step "NBD, with the kernel as the client"
    if ! offers nbd /sys/block/nbd0 2>/dev/null; then
        skip 'NBD with the kernel as the client (this kernel has no NBD devices)'
        return
    elif ! need nbd-client; then
        skip "NBD with the kernel as the client (missing:$missing)"
        return
    fi
    must 'ext4 is mounted' nbd_format
    must 'the tree arrives' copy_tree "$run/list" "$run/mnt/served/tree"
    must 'it reads back as it was written' reads_back "$run/mnt/served"
    must 'what is unused is given back' privileged fstrim "$run/mnt/served"
    must 'disconnected' nbd_disconnect
    must 'connected and mounted again' nbd_remount
    must 'it reads back as it was written' reads_back "$run/mnt/served"
    must 'disconnected' nbd_disconnect
    must 'it is served no more' dolmen unserve "$pool/served"
}
nbd_remount() { nbd_connect && is_sound && mount_space served; }

# --- the steps -----------------------------------------------------------------------------------------------------

step 'what this kernel has'
tell_ways

open_script $((mib * 8 + 64)) mkfs.ext4 fstrim
: >"$logs/nbd.log"

step 'a block device'
must 'disks in memory' make_memory
must 'a disk to be torn out' make_victim
must 'the daemon answers' daemon_start
must 'the pool is made' dolmen pool create "$pool" "$disks"/a "$disks"/b "$victim" "$disks"/d "$disks"/e
must 'the tree is listed, with checksums' pick_tree "$mib"
must 'ext4 is mounted, and has the tree' make_home
must 'it reads back as it was written' reads_back "$mnt"

step 'under load'
must 'the load begins' load_begin
must 'and goes on' load_goes_on
must 'the daemon is killed: I/O pauses and goes on' kill_under_load
tell_survival
must 'a disk is torn out: the load goes on' tear_out
must 'the load has seen no error' load_end
must 'the tree reads back as it was written' reads_back "$mnt"
show_status
must 'the status names the disk' status_says "$victim"
must 'the disk is replaced' attend_dolmen disk replace "$pool" "$victim" "$disks/f"

step 'the daemon is restarted'
must 'closed' close_space home
must 'the daemon ends' daemon_stop
must 'the daemon answers' daemon_start
must 'attached' attach_space home
must 'the file system is sound' is_sound
must 'mounted' mount_space home
must 'the tree reads back as it was written' reads_back "$mnt"
must 'closed' close_space home

step_ublk
step_uring

step 'without io_uring'
if refused_ring; then
    skip 'io_uring (this kernel refuses it; all of the above was without)'
else
    must 'the daemon ends' daemon_stop
    must 'the daemon answers' daemon_start env DOLMEN_IO=threads
    must 'opened' open_space home
    must 'the tree reads back as it was written' reads_back "$mnt"
    must 'and is written once more' copy_tree "$run/list" "$mnt/tree"
    must 'closed' close_space home
fi

step_nbd

step 'the offline check'
show_status
must 'exported' dolmen pool export "$pool"
must 'the daemon ends' daemon_stop
must 'finds the pool clean' cli_check "$disks"/a "$disks"/b "$disks"/d "$disks"/e "$disks"/f
close_script

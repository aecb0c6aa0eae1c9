# The demo itself; ./demo has built the binaries, taken the state directory and sourced lib.sh and rig.sh.
#
# The calls of the command line stand in one small function each, below "the command line"; the steps say in order what
# a user would do, and each result is checked by something that did not come from the program alone.

tree=${DOLMEN_DEMO_TREE:-/usr}
tree_mib=${DOLMEN_DEMO_MIB:-1024}
# Room for the tree, for what is written under load, and for the file system's own.
space_mib=$((tree_mib * 3))
# XFS asks for 300 MiB.
volume_mib=$((tree_mib * 2 > 512 ? tree_mib * 2 : 512))
# Those that survive the loss of a disk.
lasting='mirror2 mirror3 parity1 parity2'

# --- the command line --------------------------------------------------------------------------------------------

cli_df() { dolmen df; }
cli_pool_create() { dolmen pool create "$pool" "$@"; }
cli_pool_export() { dolmen pool export "$pool"; }
cli_pool_import() { dolmen pool import "$@"; }
cli_space_simple() { dolmen space create "$pool/$1" --resiliency simple --size "${space_mib}M"; }
cli_space_mirror() { dolmen space create "$pool/$1" --resiliency mirror --copies "$2" --size "${space_mib}M"; }
cli_space_parity() { dolmen space create "$pool/$1" --resiliency parity --parity "$2" --size "${space_mib}M"; }
cli_space_delete() { dolmen space delete "$pool/$1" --purge --destroy="$1"; }
# Prints the address of the space for NBD clients.
cli_serve() { dolmen serve "$pool/$1"; }
cli_unserve() { dolmen unserve "$pool/$1"; }
cli_volume_create() { dolmen volume create "$pool/$1" --size "${volume_mib}M" --for files --fs xfs --mount "$run/mnt/$1"; }
cli_volume_delete() { dolmen volume delete "$pool/$1" && dolmen trash purge "$pool/$1" --destroy="$1"; }
# Prints what the run saved in the volume, gave back to the pool, and left to others.
cli_dedup() { dolmen dedup enable "$pool/$1" --min-age 0 --mode throughput --schedule never && dolmen dedup run "$pool/$1"; }
cli_share() { dolmen share create "$pool/$1" --smb "$1" --grant "$share_user:ro"; }
cli_replace() { attend_dolmen disk replace "$pool" "$1" "$2"; }

# --- disks -------------------------------------------------------------------------------------------------------

# The disk to be torn out lies in a bay: on a file system of its own, which can be shut down with all that is open in
# it, so that every access fails from one moment to the next, as when a cable is pulled.
make_bay() {
    truncate -s "$(($2 + 512))M" "$run/bay.image" && mkdir -p "$run/bay" || return 1
    mkfs.xfs -q -f "$run/bay.image" || return 1
    # shellcheck disable=SC2046 # a list of words
    attend loop "$run/bay.image" -- $(rights) losetup -f "$run/bay.image" || return 1
    bay_device=$(loops_of "$run/bay.image" "$run/bay.image/")
    # shellcheck disable=SC2046 # a list of words
    attend mount "$run/bay" -- $(rights) mount "$bay_device" "$run/bay" || return 1
    privileged truncate -s "$2M" "$run/bay/$1"
}

tear_out() {
    if [ "$way" = block ]; then
        privileged xfs_io -x -c 'shutdown' "$run/bay"
    else
        # Without root there is no way to make an open file fail; one without content is the nearest.
        truncate -s 0 "$victim" && rm -f "$victim"
    fi
}

# --- the tree ----------------------------------------------------------------------------------------------------

# The tree, its first half, and how often it takes the whole to make up the wanted size.
pick_trees() {
    pick_tree "$tree_mib" || return 1
    # Half of the files are the load under which a disk is torn out; xargs keeps their order in the sums.
    pick_half=$(($(wc -l <"$run/list") / 2 + 1))
    head -n "$pick_half" "$run/list" >"$run/load-list"
    head -n "$pick_half" "$run/sums" >"$run/load-sums"
    # A small system has less than that; whole copies make up for it.
    tree_copies=$(((tree_mib * 1048576 + tree_bytes - 1) / tree_bytes))
    say "   $(wc -l <"$run/list") files, $((tree_bytes / 1048576)) MiB of $tree, copied $tree_copies time(s) into each space"
}

# fill FOLDER: the tree, as often as it takes; ends with everything handed to the disk.
fill() {
    for fill_copy in $(seq 1 "$tree_copies"); do
        copy_tree "$run/list" "$1/copy-$fill_copy" || return 1
    done
}

compare_all() {
    for compare_copy in $(seq 1 "$tree_copies"); do
        compare "$run/sums" "$1/copy-$compare_copy" || return 1
    done
}

# --- spaces as block devices ---------------------------------------------------------------------------------------

filesystem_of() {
    case $1 in
    mirror3 | parity2) echo xfs ;;
    *) echo ext4 ;;
    esac
}

format_space() {
    attach_space "$1" || return 1
    # shellcheck disable=SC2046 # a list of words
    attend -- $(rights) "mkfs.$(filesystem_of "$1")" -q "$device"
}

# put NAME, get NAME: the tree into a space, and back with every byte compared. Closing and opening it between the two
# leaves nothing of it in the page cache.
block_put() { format_space "$1" && open_space "$1" && fill "$run/mnt/$1"; }
block_get() { close_space "$1" && open_space "$1" && compare_all "$run/mnt/$1"; }
block_load() { copy_tree "$run/load-list" "$run/mnt/$1/load"; }
block_get_load() { compare "$run/load-sums" "$run/mnt/$1/load"; }
block_close() { close_space "$1"; }
block_open() { open_space "$1"; }

# --- spaces over NBD -----------------------------------------------------------------------------------------------

# Without a file system the tree goes into a space as one archive.
nbd_archive() {
    [ ! -s "$run/archive" ] || return 0
    for archive_copy in $(seq 1 "$tree_copies"); do
        tar -C / -cf - -T "$run/list" || return 1
    done >"$run/archive" 2>>"$logs/copy.log"
    truncate -s '%1M' "$run/archive"
    archive_bytes=$(stat -c %s "$run/archive")
}

nbd_open() { cli_serve "$1" | tail -n 1 >"$run/uri-$1" && [ -s "$run/uri-$1" ]; }
nbd_close() { cli_unserve "$1" >/dev/null; }
nbd_put() { nbd_archive && nbd_open "$1" && attend -- nbdcopy --flush "$run/archive" "$(cat "$run/uri-$1")"; }
nbd_get() {
    # shellcheck disable=SC2016 # the inner shell expands it
    attend -- sh -c 'nbdcopy "$1" - | head -c "$2" | cmp - "$3"' sh "$(cat "$run/uri-$1")" "$archive_bytes" "$run/archive"
}
# The load writes behind the archive, where nobody compares it with the archive; qemu-io compares by pattern itself.
nbd_load() {
    attend -- qemu-io -f raw -c "write -P 0xd5 $archive_bytes $((tree_mib / 2))M" -c flush "$(cat "$run/uri-$1")" >>"$logs/copy.log"
}
nbd_get_load() {
    qemu-io -f raw -c "read -P 0xd5 $archive_bytes $((tree_mib / 2))M" "$(cat "$run/uri-$1")" >"$logs/load.log" 2>&1 &&
        ! grep -q 'verification failed' "$logs/load.log"
}

# --- a share -------------------------------------------------------------------------------------------------------

# An account that every Debian has; its password is in a private database.
share_user=games
share_password=a-Secret.7

can_share() {
    share_lacks=
    [ "$way" = block ] || share_lacks='it needs a volume'
    for share_program in smbd net smbclient smbpasswd testparm smbcontrol smbstatus; do
        have "$share_program" || share_lacks="$share_lacks missing: $share_program"
    done
    id "$share_user" >/dev/null 2>&1 || share_lacks="$share_lacks no account $share_user"
    [ -z "$share_lacks" ]
}

# A server with a configuration, a registry and a port of its own; the daemon finds them by a file.
write_share_settings() {
    mkdir -p "$run/samba" || return 1
    {
        printf '[global]\nserver role = standalone server\ninterfaces = lo\nbind interfaces only = yes\nsmb ports = %s\n' "$share_port"
        printf 'load printers = no\ndisable spoolss = yes\nmap to guest = Never\nlog file = %s/samba/log\n' "$run"
        for share_folder in private lock state cache pid ncalrpc; do
            mkdir -p "$run/samba/$share_folder" || return 1
            case $share_folder in
            private | ncalrpc) printf '%s dir = %s/samba/%s\n' "$share_folder" "$run" "$share_folder" ;;
            *) printf '%s directory = %s/samba/%s\n' "$share_folder" "$run" "$share_folder" ;;
            esac
        done
        printf 'include = registry\n'
    } >"$run/smb.conf"
    printf '{"smb_conf": "%s", "smb_port": %s}\n' "$run/smb.conf" "$share_port" >"$run/servers.json"
}

share_client() { privileged smbclient -s "$run/smb.conf" -p "$share_port" -U "$share_user%$share_password" "$@" >>"$logs/samba.log" 2>&1; }

# A port may be taken: another one is tried then.
share_server_begins() {
    for share_try in 1 2 3 4 5; do
        share_port=$((20000 + ($$ + share_try * 1009) % 12000))
        write_share_settings || return 1
        printf '%s\n%s\n' "$share_password" "$share_password" |
            privileged smbpasswd -c "$run/smb.conf" -s -a "$share_user" >>"$logs/samba.log" 2>&1 || return 1
        # shellcheck disable=SC2046 # a list of words
        begin helpers "$run/smb.conf" -- $(rights) smbd -s "$run/smb.conf" -F --no-process-group >>"$logs/samba.log" 2>&1 </dev/null
        share_pid=$!
        share_started=$(start_time "$share_pid")
        ! eventually 10 share_client -L 127.0.0.1 || return 0
        ! is_process "$share_pid" "$share_started" || send TERM "$share_pid"
    done
    return 1
}

# The first file of the tree whose name no client reads otherwise.
share_is_read() {
    share_file=$(grep -m 1 -E '^/?[A-Za-z0-9._/-]+$' "$run/load-list") || return 1
    share_client //127.0.0.1/docs -c "get first/${share_file#/} \"$run/got\"" && privileged cmp "$run/got" "/${share_file#/}"
}

share_refuses() { ! share_client //127.0.0.1/docs -c "put \"$run/smb.conf\" first/x"; }
share_is_gone() { ! share_client //127.0.0.1/docs -c ls; }
share_server_ends() {
    send TERM "$share_pid" && wait "$share_pid"
    # What the listing has started survives the server.
    end_those helpers_of "$run/smb.conf"
    ! is_process "$share_pid" "$share_started"
}

# --- choosing the way ----------------------------------------------------------------------------------------------

choose_way() {
    way=${DOLMEN_DEMO_WAY:-}
    if [ "$way" != nbd ] && can_block mkfs.ext4 mkfs.xfs xfs_io; then
        way=block
        return
    fi
    [ "$way" != block ] || die "$EX_UNAVAILABLE" "cannot use block devices: $blocked_by"
    way=nbd
    skip "file systems on block devices (${blocked_by:-asked for NBD}); the same over NBD"
    need nbdcopy qemu-io || die "$EX_UNAVAILABLE" "needs$missing; on Debian, as root: apt-get install libnbd-bin qemu-utils"
}

# Sets pool to a name that has no links below /dev/dolmen: another daemon of this machine, or what was left of one, may
# have the usual one.
choose_name() {
    pool=tank
    for name_try in $(seq 2 100); do
        links_of_pool=/dev/dolmen/$pool
        privileged test -e "$links_of_pool" || return 0
        pool=tank$name_try
    done
    die "$EX_TEMPFAIL" "/dev/dolmen has every name from tank to $pool already; detach what is not needed any more"
}

prepare() {
    [ "$tree_mib" -ge 128 ] 2>/dev/null || die 2 "DOLMEN_DEMO_MIB is '$tree_mib'; XFS needs 128 or more"
    make_run $((tree_mib * 18))
}

put() { "${way}_put" "$1"; }
get() { "${way}_get" "$1"; }

# load NAME: writes the same again and again until told to stop.
load() {
    for load_round in $(seq 1 200); do
        "${way}_load" "$1" || return 1
        [ ! -e "$run/stop" ] || return 0
    done
}

loads_run() {
    for space in $lasting; do
        eval "is_process \"\$load_$space\" \"\$start_$space\"" || return 1
    done
}
wait_for_load() { eval "wait \"\$load_$1\""; }

get_load() { "${way}_get_load" "$1"; }
open() { "${way}_open" "$1"; }
close() { "${way}_close" "$1"; }

# --- the steps -----------------------------------------------------------------------------------------------------

step_disks() {
    step 'disks of different sizes'
    # Room for all that the spaces may ask for, with one disk less: how much the load makes them claim is a matter of time.
    for disk in a:12 b:10 c:8 d:6; do
        must "disk ${disk%:*} of $((${disk#*:} * tree_mib)) MiB" make_disk "${disk%:*}" $((${disk#*:} * tree_mib))
    done
    victim=$disks/torn
    if [ "$way" = block ]; then
        must 'a disk in a bay that can be shut down' make_bay torn $((8 * tree_mib))
        victim=$run/bay/torn
    else
        must 'a disk that will be emptied' make_disk torn $((8 * tree_mib))
    fi
}

step_pool() {
    step 'one pool'
    if can_share; then
        must 'Samba with a configuration of its own answers' share_server_begins
        must 'the daemon answers' daemon_start env DOLMEN_SERVERS="$run/servers.json"
    else
        must 'the daemon answers' daemon_start
    fi
    must "pool $pool" cli_pool_create "$disks/a" "$disks/b" "$disks/c" "$disks/d" "$victim"
    show_status
    must 'the status says healthy' status_says healthy
}

step_spaces() {
    step 'a simple, a 2-way and a 3-way mirror space, one with parity and one with dual parity'
    must 'simple' cli_space_simple simple
    must 'mirror2' cli_space_mirror mirror2 2
    must 'mirror3' cli_space_mirror mirror3 3
    must 'parity1' cli_space_parity parity1 1
    must 'parity2' cli_space_parity parity2 2
    must 'what still fits' cli_df
    show_status
}

step_fill() {
    step 'a real tree into each'
    must 'the tree is listed, with checksums' pick_trees
    for space in simple $lasting; do
        must "$space is filled" put "$space"
        must "$space reads back as it was written" get "$space"
    done
    show_status
}

# Two copies of half of the tree: what a folder and its backup are.
fill_volume() {
    for fill_name in first second; do
        copy_tree "$run/load-list" "$run/mnt/docs/$fill_name" || return 1
    done
}

volume_is_intact() { compare "$run/load-sums" "$run/mnt/docs/first" && compare "$run/load-sums" "$run/mnt/docs/second"; }

# The three numbers: saved in the volume, given back to the pool, held elsewhere.
dedup_with_numbers() {
    cli_dedup "$1" >"$logs/dedup.log" 2>&1 || { cat "$logs/dedup.log"; return 1; }
    cat "$logs/dedup.log"
    grep -q 'saved in volume.*given back to pool.*held elsewhere' "$logs/dedup.log"
}

step_share() {
    if ! can_share; then
        skip "a share (${share_lacks# })"
        return
    fi
    must 'shared over SMB' cli_share docs
    must 'a client reads a file as it was written' share_is_read
    must 'a client that may read does not write' share_refuses
}

step_volume() {
    if [ "$way" != block ]; then
        skip 'a volume (it needs block devices)'
        return
    fi
    step 'a volume with files, deduplicated'
    note mount "$run/mnt/docs"
    must 'made and mounted' cli_volume_create docs
    must 'half of the tree is on it twice' fill_volume
    must 'equal files share their blocks' dedup_with_numbers docs
    must 'both copies are as they were written' volume_is_intact
    step_share
    must 'deleted' cli_volume_delete docs
    if can_share; then
        must 'a client is refused' share_is_gone
        must 'Samba ends' share_server_ends
    fi
}

step_simple_ends() {
    step 'the simple space, which survives no loss, is given back'
    must 'closed' close simple
    must 'deleted' cli_space_delete simple
    must 'what fits now' cli_df
    show_status
}

step_tear_out() {
    step 'a disk is torn out under load'
    for space in $lasting; do
        (load "$space") &
        eval "load_$space=\$! start_$space=\$(start_time \$!)"
    done
    sleep 1
    must 'the load runs' loads_run
    must 'the disk is gone' tear_out
    sleep 1
    must 'the load still runs' loads_run
    : >"$run/stop"
    for space in $lasting; do
        must "the load on $space goes through" wait_for_load "$space"
    done
    show_status
    must 'the status no longer says all is well' status_says 'warning\|unhealthy\|degraded'
    must 'the status names the disk' grep -q torn "$logs/status.log"
}

read_back() {
    for space in $lasting; do
        must "$space reads back as it was written" get "$space"
        must "$space has what was written under load" get_load "$space"
    done
}

step_read_back() {
    step 'everything is read back without the disk'
    read_back
    show_status
}

step_replace() {
    step 'the disk is replaced'
    must 'a new disk' make_disk new $((8 * tree_mib))
    mkfifo "$run/progress"
    # The inner shell opens the FIFO: here, opening would wait for the writer, who comes below.
    # shellcheck disable=SC2016 # the inner shell expands it
    begin -- sh -c 'exec tee "$1" <"$2"' sh "$logs/replace.log" "$run/progress"
    progress_pid=$!
    cli_replace "$victim" "$disks/new" >"$run/progress" 2>&1
    replace_status=$?
    wait "$progress_pid"
    must 'the repair ends' [ "$replace_status" -eq 0 ]
    must 'with a progress line' grep -q '[0-9] *%' "$logs/replace.log"
    show_status
    must 'the status says healthy again' status_says healthy
    # shellcheck disable=SC2016 # the inner shell expands it
    must 'the status no longer names the disk' sh -c '! grep -q torn "$1"' sh "$logs/status.log"
}

close_all() {
    for space in $lasting; do
        must "$space closed" close "$space"
    done
}

open_all() {
    for space in $lasting; do
        must "$space opened" open "$space"
    done
}

step_restart() {
    step 'the daemon is restarted'
    close_all
    must 'the daemon ends' daemon_stop
    must 'the daemon answers' daemon_start
    open_all
    must 'parity1 reads back as it was written' get parity1
    show_status
}

step_renamed() {
    step 'the pool opens from renamed files'
    close_all
    must 'exported' cli_pool_export
    must 'the daemon ends' daemon_stop
    mkdir -p "$run/moved"
    must 'names exchanged' privileged mv "$disks/a" "$run/moved/d"
    must 'names exchanged' privileged mv "$disks/d" "$run/moved/a"
    must 'names changed' privileged mv "$disks/b" "$run/moved/second.img"
    must 'names changed' privileged mv "$disks/c" "$disks/new" "$run/moved"
    must 'the daemon answers' daemon_start
    must 'imported' cli_pool_import "$run/moved/a" "$run/moved/new" "$run/moved/d" "$run/moved/c" "$run/moved/second.img"
    open_all
    read_back
    show_status
    must 'the status says healthy' status_says healthy
}

step_check() {
    step 'an offline check'
    close_all
    must 'exported' cli_pool_export
    must 'the daemon ends' daemon_stop
    must 'the check finds the pool clean' cli_check "$run"/moved/*
}

choose_way
choose_name
prepare
# Packages may have been installed until here.
started=$(now)
step_disks
step_pool
step_spaces
step_fill
step_volume
step_simple_ends
step_tear_out
step_read_back
step_replace
step_restart
step_renamed
step_check
printf '\n'
say "demo: $steps steps, $checks results, none missing, $(($(now) - started)) s after the build, over $way"

# The demo itself; ./demo has built the binaries, taken the state directory and sourced lib.sh.
#
# The calls of the command line stand in one small function each, below "the command line"; the steps say in order what
# a user would do, and each result is checked by something that did not come from the program alone.

bin=${CARGO_TARGET_DIR:-$root/target}/release/dolmen
run=$state/run
socket=$run/api
tree=${DOLMEN_DEMO_TREE:-/usr}
tree_mib=${DOLMEN_DEMO_MIB:-1024}
# Room for the tree, for what is written under load, and for the file system's own.
space_mib=$((tree_mib * 3))
started=$(now)

# --- telling and checking ----------------------------------------------------------------------------------------

steps=0
checks=0

step() {
    steps=$((steps + 1))
    printf '\n== %d. %s (%d s)\n' "$steps" "$1" $(($(now) - started))
}

fail() {
    warn "FAILED in step $steps: $*"
    [ ! -s "$logs/daemon.log" ] || { warn 'the daemon said last:'; tail -n 20 "$logs/daemon.log" >&2; }
    exit 1
}

# must WHAT COMMAND...: runs it in the foreground; says what holds now, or fails.
must() {
    must_what=$1
    must_start=$(now)
    shift
    "$@" || fail "$must_what"
    checks=$((checks + 1))
    must_took=$(($(now) - must_start))
    [ "$must_took" -gt 1 ] && must_took=" ($must_took s)" || must_took=
    say "   ok: $must_what$must_took"
}

skip() { say "   skipped: $*"; }

# privileged COMMAND...: with the rights that the way of this run needs.
privileged() {
    if [ "$way" = block ]; then
        as_root "$@"
    else
        "$@"
    fi
}

# The words in front of a command that attend and begin start, which know no functions.
rights() { [ "$way" = nbd ] || [ "$(id -u)" -eq 0 ] || printf 'sudo -n'; }

# --- the command line --------------------------------------------------------------------------------------------

dolmen() { privileged env DOLMEN_SOCKET="$socket" "$bin" "$@"; }

# The same for attend and begin, as a list of words.
# shellcheck disable=SC2046 # a list of words
attend_dolmen() { attend -- $(rights) env DOLMEN_SOCKET="$socket" "$bin" "$@"; }

cli_status() { dolmen; }
cli_df() { dolmen df; }
cli_pool_create() { dolmen pool create "$pool" "$@"; }
cli_pool_export() { dolmen pool export "$pool"; }
cli_pool_import() { dolmen pool import "$@"; }
cli_space_simple() { dolmen space create "$pool/$1" --resiliency simple --size "${space_mib}M"; }
cli_space_mirror() { dolmen space create "$pool/$1" --resiliency mirror --copies "$2" --size "${space_mib}M"; }
cli_space_delete() { dolmen space delete "$pool/$1" --destroy="$1"; }
cli_attach() { dolmen space attach "$pool/$1"; }
cli_detach() { dolmen space detach "$pool/$1"; }
# Prints the address of the space for NBD clients.
cli_serve() { dolmen serve "$pool/$1"; }
cli_unserve() { dolmen unserve "$pool/$1"; }
cli_replace() { attend_dolmen disk replace "$pool" "$1" "$2"; }
# Offline: takes the files, not the daemon.
cli_check() { privileged "$bin" check "$@"; }

daemon_start() {
    # shellcheck disable=SC2046 # a list of words
    begin below "$run/daemon" link "/dev/dolmen/$pool" -- \
        $(rights) "$bin" daemon --state "$run/daemon" --socket "$socket" >>"$logs/daemon.log" 2>&1
    daemon_pid=$!
    daemon_started=$(start_time "$daemon_pid")
    for daemon_try in $(seq 1 100); do
        ! cli_status >/dev/null 2>&1 || return 0
        is_process "$daemon_pid" "$daemon_started" || return 1
        sleep 0.1
    done
    return 1
}

# Asks the daemon to end and waits; it may need a moment to flush.
daemon_stop() {
    send TERM "$daemon_pid" || return 1
    for daemon_try in $(seq 1 300); do
        is_process "$daemon_pid" "$daemon_started" || return 0
        sleep 0.1
    done
    return 1
}

show_status() {
    cli_status >"$logs/status.log" 2>&1 || :
    sed 's/^/   | /' "$logs/status.log"
}

# status_says WORD: the last status shown has it. Bare `dolmen` may leave with another code when all is not well.
status_says() { grep -qiw "$1" "$logs/status.log"; }

# --- disks -------------------------------------------------------------------------------------------------------

# make_disk NAME MIB: a sparse file.
make_disk() { truncate -s "$2M" "$run/disks/$1"; }

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

# Lists files of the tree until they make up the wanted size, and takes their checksums. The many smallest ones are left
# out: they would turn the demo into a measurement of the file system's directories.
pick_tree() {
    find "$tree" -xdev -type f -size +15k -readable ! -name '*[[:cntrl:]\\]*' -printf '%s %p\n' 2>/dev/null |
        awk -v wanted=$((tree_mib * 1048576)) '{ sum += $1; sub(/^[0-9]+ \//, ""); print; if (sum >= wanted) exit }' >"$run/list"
    (cd / && xargs -d '\n' b2sum) <"$run/list" >"$run/sums" || return 1
    tree_bytes=$(cd / && xargs -d '\n' stat -c %s <"$run/list" | awk '{ sum += $1 } END { printf "%d", sum }')
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

# copy_tree LIST FOLDER
copy_tree() {
    # shellcheck disable=SC2016,SC2046 # the inner shell expands it; a list of words
    attend -- $(rights) sh -c 'mkdir -p "$2" && tar -C / -cf - -T "$1" | tar -C "$2" -xf - && sync -f "$2"' \
        sh "$1" "$2" 2>>"$logs/copy.log"
}

# compare SUMS FOLDER: every file there has the checksum that it has in the tree.
compare() {
    # shellcheck disable=SC2016,SC2046 # the inner shell expands it; a list of words
    attend -- $(rights) sh -c 'cd "$2" && b2sum -c --quiet "$1"' sh "$1" "$2"
}

compare_all() {
    for compare_copy in $(seq 1 "$tree_copies"); do
        compare "$run/sums" "$1/copy-$compare_copy" || return 1
    done
}

# --- spaces as block devices ---------------------------------------------------------------------------------------

filesystem_of() {
    case $1 in
    mirror3) echo xfs ;;
    *) echo ext4 ;;
    esac
}

# open_space NAME: attached and mounted below $run/mnt.
open_space() {
    open_device=$(cli_attach "$1" | tail -n 1) || return 1
    [ -b "$open_device" ] || { warn "'$open_device' is no block device"; return 1; }
    mkdir -p "$run/mnt/$1"
    # shellcheck disable=SC2046 # a list of words
    attend mount "$run/mnt/$1" -- $(rights) mount "$open_device" "$run/mnt/$1"
}

close_space() {
    privileged umount "$run/mnt/$1" && cli_detach "$1" >/dev/null
}

format_space() {
    format_device=$(cli_attach "$1" | tail -n 1) || return 1
    # shellcheck disable=SC2046 # a list of words
    attend -- $(rights) "mkfs.$(filesystem_of "$1")" -q "$format_device"
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

# --- choosing the way ----------------------------------------------------------------------------------------------

can_block() {
    blocked_by=
    can_root || { blocked_by='no root and no sudo without a password'; return 1; }
    [ -e /dev/fuse ] || as_root modprobe fuse 2>/dev/null || :
    [ -e /dev/loop-control ] || as_root modprobe loop 2>/dev/null || :
    [ -e /dev/fuse ] || { blocked_by='no /dev/fuse'; return 1; }
    [ -e /dev/loop-control ] || { blocked_by='no loop devices'; return 1; }
    need mkfs.ext4 mkfs.xfs xfs_io losetup || { blocked_by="missing:$missing"; return 1; }
}

choose_way() {
    way=${DOLMEN_DEMO_WAY:-}
    if [ "$way" != nbd ] && can_block; then
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
        [ -e "/dev/dolmen/$pool" ] || return 0
        pool=tank$name_try
    done
    die "$EX_TEMPFAIL" "/dev/dolmen has every name from tank to $pool already; detach what is not needed any more"
}

prepare() {
    [ -x "$bin" ] || die 1 "the build made no $bin"
    [ "$tree_mib" -ge 128 ] 2>/dev/null || die 2 "DOLMEN_DEMO_MIB is '$tree_mib'; XFS needs 128 or more"
    # A socket's name has room for 108 bytes in the kernel.
    [ "${#socket}" -lt 100 ] || die 2 "$socket is too long for a socket; set DOLMEN_STATE to a shorter path"
    prepare_free=$(df -Pm "$state" | awk 'NR == 2 { print $4 }')
    prepare_needed=$((tree_mib * 13))
    [ "$prepare_free" -ge "$prepare_needed" ] ||
        die "$EX_UNAVAILABLE" "$state has $prepare_free MiB free, $prepare_needed are needed; set DOLMEN_STATE to another disk"
    note dir run
    mkdir -p "$run/disks" "$run/daemon"
    : >"$logs/daemon.log"
    : >"$logs/copy.log"
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

loads_run() { is_process "$load_mirror2" "$start_mirror2" && is_process "$load_mirror3" "$start_mirror3"; }

get_load() { "${way}_get_load" "$1"; }
open() { "${way}_open" "$1"; }
close() { "${way}_close" "$1"; }

# --- the steps -----------------------------------------------------------------------------------------------------

step_disks() {
    step 'disks of different sizes'
    for disk in a:6 b:5 c:4 d:3; do
        must "disk ${disk%:*} of $((${disk#*:} * tree_mib)) MiB" make_disk "${disk%:*}" $((${disk#*:} * tree_mib))
    done
    victim=$run/disks/torn
    if [ "$way" = block ]; then
        must 'a disk in a bay that can be shut down' make_bay torn $((4 * tree_mib))
        victim=$run/bay/torn
    else
        must 'a disk that will be emptied' make_disk torn $((4 * tree_mib))
    fi
}

step_pool() {
    step 'one pool'
    must 'the daemon answers' daemon_start
    must "pool $pool" cli_pool_create "$run/disks/a" "$run/disks/b" "$run/disks/c" "$run/disks/d" "$victim"
    show_status
    must 'the status says healthy' status_says healthy
}

step_spaces() {
    step 'a simple, a 2-way and a 3-way mirror space'
    must 'simple' cli_space_simple simple
    must 'mirror2' cli_space_mirror mirror2 2
    must 'mirror3' cli_space_mirror mirror3 3
    must 'what still fits' cli_df
    show_status
}

step_fill() {
    step 'a real tree into each'
    must 'the tree is listed, with checksums' pick_tree
    for space in simple mirror2 mirror3; do
        must "$space is filled" put "$space"
        must "$space reads back as it was written" get "$space"
    done
    show_status
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
    for space in mirror2 mirror3; do
        (load "$space") &
        eval "load_$space=\$! start_$space=\$(start_time \$!)"
    done
    sleep 1
    must 'the load runs' loads_run
    must 'the disk is gone' tear_out
    sleep 1
    must 'the load still runs' loads_run
    : >"$run/stop"
    must 'the load on mirror2 goes through' wait "$load_mirror2"
    must 'the load on mirror3 goes through' wait "$load_mirror3"
    show_status
    must 'the status no longer says all is well' status_says 'warning\|unhealthy\|degraded'
    must 'the status names the disk' grep -q torn "$logs/status.log"
}

read_back() {
    for space in mirror2 mirror3; do
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
    must 'a new disk' make_disk new $((4 * tree_mib))
    mkfifo "$run/progress"
    tee "$logs/replace.log" <"$run/progress" &
    progress_pid=$!
    cli_replace "$victim" "$run/disks/new" >"$run/progress" 2>&1
    replace_status=$?
    wait "$progress_pid"
    must 'the repair ends' [ "$replace_status" -eq 0 ]
    must 'with a progress line' grep -q '[0-9] *%' "$logs/replace.log"
    show_status
    must 'the status says healthy again' status_says healthy
    # shellcheck disable=SC2016 # the inner shell expands it
    must 'the status no longer names the disk' sh -c '! grep -q torn "$1"' sh "$logs/status.log"
}

step_restart() {
    step 'the daemon is restarted'
    must 'mirror2 closed' close mirror2
    must 'mirror3 closed' close mirror3
    must 'the daemon ends' daemon_stop
    must 'the daemon answers' daemon_start
    must 'mirror2 opened' open mirror2
    must 'mirror3 opened' open mirror3
    must 'mirror2 reads back as it was written' get mirror2
    show_status
}

step_renamed() {
    step 'the pool opens from renamed files'
    must 'mirror2 closed' close mirror2
    must 'mirror3 closed' close mirror3
    must 'exported' cli_pool_export
    must 'the daemon ends' daemon_stop
    mkdir -p "$run/moved"
    must 'names exchanged' privileged mv "$run/disks/a" "$run/moved/d"
    must 'names exchanged' privileged mv "$run/disks/d" "$run/moved/a"
    must 'names changed' privileged mv "$run/disks/b" "$run/moved/second.img"
    must 'names changed' privileged mv "$run/disks/c" "$run/disks/new" "$run/moved"
    must 'the daemon answers' daemon_start
    must 'imported' cli_pool_import "$run/moved/a" "$run/moved/new" "$run/moved/d" "$run/moved/c" "$run/moved/second.img"
    must 'mirror2 opened' open mirror2
    must 'mirror3 opened' open mirror3
    read_back
    show_status
    must 'the status says healthy' status_says healthy
}

step_check() {
    step 'an offline check'
    must 'mirror2 closed' close mirror2
    must 'mirror3 closed' close mirror3
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
step_simple_ends
step_tear_out
step_read_back
step_replace
step_restart
step_renamed
step_check
printf '\n'
say "demo: $steps steps, $checks results, none missing, $(($(now) - started)) s after the build, over $way"

# Shared by the demo and the integration scripts, which source it behind lib.sh: telling and checking, a daemon of their
# own on files as disks, spaces attached and mounted, real files in them. All of it lies below $run and in the record.

# DOLMEN_BIN names a program that was built elsewhere, for machines without Rust; the daemon's program lies beside it.
bin=${DOLMEN_BIN:-${CARGO_TARGET_DIR:-$root/target}/release/dolmen}
daemon_bin=$(dirname "$bin")/dolmend
run=$state/run
socket=$run/api
disks=$run/disks
tree=${DOLMEN_TREE:-/usr}
# block: spaces become block devices, which needs root. nbd: nothing does.
way=block
# What the daemon remembers of itself and its pools; another folder is another host.
daemon_state=$run/daemon
# Given to every daemon that is started here.
daemon_options=
started=$(now)

# --- telling and checking ----------------------------------------------------------------------------------------

steps=0
checks=0

step() {
    steps=$((steps + 1))
    printf '\n== %d. %s (%d s)\n' "$steps" "$1" $(($(now) - started))
}

# What the logs of this script end with, the daemon's at most length.
last_words() {
    for words_log in "$logs"/*.log; do
        [ "$words_log" != "$logs/daemon.log" ] && [ -s "$words_log" ] || continue
        warn "$(basename "$words_log") ends with:"
        tail -n 6 "$words_log" >&2
    done
    [ ! -s "$logs/daemon.log" ] || { warn 'the daemon said last:'; tail -n 20 "$logs/daemon.log" >&2; }
    warn "at that time: $(awk '/^MemTotal:/ { all = $2 } /^MemAvailable:/ { printf "%d of %d MiB of memory available", $2 / 1024, all / 1024 }' /proc/meminfo), $(df -Pm "$state" | awk 'NR == 2 { print $4 }') MiB of room in $state"
}

fail() {
    warn "FAILED in step $steps: $*"
    last_words
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

# skip WHAT: what this machine cannot do, with the reason in brackets; ./test counts these lines.
skip() { say "skipped: $*"; }

# is LEFT TEST RIGHT: a comparison that says what it compared when it does not hold.
is() {
    # shellcheck disable=SC2015 # the warning cannot fail
    [ "$1" "$2" "$3" ] && return 0 || warn "found $1, expected $2 $3"
    return 1
}

# refused STATUS WORDS COMMAND...: the command leaves with the status, and its message matches each of the lines of
# WORDS, which are basic regular expressions.
refused() {
    refused_status=$1
    refused_words=$2
    shift 2
    refused_by=$("$@" 2>&1 </dev/null)
    refused_code=$?
    say "   | $(printf '%s' "$refused_by" | tr '\n' ' ')"
    is "$refused_code" -eq "$refused_status" || return 1
    printf '%s\n' "$refused_words" | while IFS= read -r refused_word; do
        printf '%s' "$refused_by" | tr '\n' ' ' | grep -q -e "$refused_word" || { warn "the message has no '$refused_word'"; exit 1; }
    done
}

# eventually SECONDS COMMAND...: until it succeeds.
eventually() {
    eventually_end=$(($(now) + $1))
    shift
    while ! "$@"; do
        [ "$(now)" -lt "$eventually_end" ] || return 1
        sleep 0.1
    done
}

# --- rights --------------------------------------------------------------------------------------------------------

# privileged COMMAND...: with the rights that the way of this run needs.
privileged() {
    if [ "$way" = block ]; then
        as_root "$@"
    else
        "$@"
    fi
}

# The words in front of a command that attend and begin start, which know no functions.
rights() { [ "$way" = nbd ] || root_words; }

# can_block COMMAND...: block devices over FUSE can be had here, and the commands beside; else why not, in $blocked_by.
can_block() {
    blocked_by=
    can_root || { blocked_by='no root and no sudo without a password'; return 1; }
    [ -e /dev/fuse ] || as_root modprobe fuse 2>/dev/null || :
    [ -e /dev/loop-control ] || as_root modprobe loop 2>/dev/null || :
    [ -e /dev/fuse ] || { blocked_by='no /dev/fuse'; return 1; }
    [ -e /dev/loop-control ] || { blocked_by='no loop devices'; return 1; }
    need losetup mount "$@" || { blocked_by="missing:$missing"; return 1; }
}

# knows_filesystem NAME: the kernel does, or can load it.
knows_filesystem() { grep -qw "$1" /proc/filesystems || as_root modprobe "$1" 2>/dev/null; }

# --- a script's frame ----------------------------------------------------------------------------------------------

build() {
    say 'building'
    # shellcheck disable=SC2086 # a list of words
    attend -- cargo build --release --locked $as_users --package dolmen-worker --bin dolmen --bin dolmend --bin dolmen-worker || die 1 'the build failed'
    for build_made in "$bin" "$daemon_bin"; do [ -x "$build_made" ] || die 1 "the build made no $build_made"; done
}

# make_run MIB: the folder for everything, on a file system with that much room.
make_run() {
    # A socket's name has room for 108 bytes in the kernel.
    [ "${#run}" -lt 80 ] || die 2 "$run is too long for sockets in it; set DOLMEN_STATE to a shorter path"
    run_free=$(df -Pm "$state" | awk 'NR == 2 { print $4 }')
    [ "$run_free" -ge "$1" ] ||
        die "$EX_UNAVAILABLE" "$state has $run_free MiB free, $1 are needed; set DOLMEN_STATE to another disk"
    note dir run
    mkdir -p "$disks" "$run/daemon" "$run/mnt"
    : >"$logs/daemon.log"
    : >"$logs/copy.log"
}

can_go() {
    if [ "$way" = block ]; then
        can_block "$@"
    else
        need "$@" || { blocked_by="missing:$missing"; return 1; }
    fi
}

# Becomes the owner of the state directory, with a program in $bin.
take_program() {
    if [ -n "${DOLMEN_BIN:-}" ]; then
        "$bin" --version >/dev/null || die 2 "DOLMEN_BIN is '$DOLMEN_BIN', which does not run here"
        "$daemon_bin" --version >/dev/null || die 2 "DOLMEN_BIN is '$DOLMEN_BIN'; $daemon_bin, which belongs to it, does not run here"
        take_state
        return
    fi
    take_state
    need_rust
    fetch_crates
    build
}

# open_script MIB [COMMAND]...: what an integration script begins with: the build, its folder, and what it needs: these
# commands, and block devices unless its way is nbd. Where something is missing the script ends here, and says why.
open_script() {
    open_mib=$1
    shift
    take_program
    if ! can_go "$@"; then
        skip "$script ($blocked_by)"
        exit 0
    fi
    make_run "$open_mib"
    # Links in a folder of its own, and no look at the disks of the system: nothing here can meet another daemon.
    daemon_options="--links $run/links --named-only"
    pool=tank
    started=$(now)
}

close_script() {
    printf '\n'
    say "$script: $steps steps, $checks results, none missing, $(($(now) - started)) s after the build"
}

# --- the command line ----------------------------------------------------------------------------------------------

dolmen() { privileged env DOLMEN_SOCKET="$socket" "$bin" "$@"; }

# The same for attend and begin, as a list of words.
# shellcheck disable=SC2046 # a list of words
attend_dolmen() { attend -- $(rights) env DOLMEN_SOCKET="$socket" "$bin" "$@"; }

# number_of FIELD: the first number of that name in the JSON on standard input.
number_of() { tr ',{}[]' '\n' | sed -n "s/^ *\"$1\": *\([0-9]*\)$/\1/p" | head -n 1; }

# Offline: takes the files, not the daemon.
cli_check() { privileged "$bin" check "$@"; }

cli_status() { dolmen; }

show_status() {
    cli_status >"$logs/status.log" 2>&1 || :
    sed 's/^/   | /' "$logs/status.log"
}

# status_says WORD: the last status shown has it. Bare `dolmen` may leave with another code when all is not well.
status_says() { grep -qiw "$1" "$logs/status.log"; }

# --- the daemon ----------------------------------------------------------------------------------------------------

# daemon_begin WORD...: starts the daemon behind the words and records what it may make.
daemon_begin() {
    # shellcheck disable=SC2046,SC2086 # lists of words
    begin below "$daemon_state" ${links_of_pool:+link "$links_of_pool"} -- \
        $(rights) "$@" "$bin" daemon --state "$daemon_state" --socket "$socket" $daemon_options >>"$logs/daemon.log" 2>&1
    daemon_pid=$!
    daemon_started=$(start_time "$daemon_pid")
}

daemon_answers() {
    for daemon_try in $(seq 1 200); do
        cli_status >/dev/null 2>&1
        # 1 says that something is unhealthy.
        [ $? -gt 1 ] || return 0
        is_process "$daemon_pid" "$daemon_started" || return 1
        sleep 0.1
    done
    return 1
}

# daemon_start [WORD]...: until it answers, also if it is not well; the words go before the command.
daemon_start() {
    daemon_begin "$@"
    daemon_answers
}

daemon_ends() {
    for daemon_try in $(seq 1 300); do
        is_process "$daemon_pid" "$daemon_started" || return 0
        sleep 0.1
    done
    return 1
}

# Asks the daemon to end and waits; it may need a moment to flush.
daemon_stop() { send TERM "$daemon_pid" && daemon_ends; }

# The daemon itself, where something stands between.
daemon_self() {
    for self_pid in $(members "$daemon_pid" "$daemon_started"); do
        [ "$(as_root readlink "/proc/$self_pid/exe")" != "$(readlink -f "$daemon_bin")" ] || echo "$self_pid"
    done
}

# Ends the daemon from one instruction to the next. Its first thread is gone before the others are; only whoever waits
# for the process sees the end of all of them, and with it of its locks.
daemon_kill() {
    # shellcheck disable=SC2046 # one number
    send KILL $(daemon_self) || return 1
    wait "$daemon_pid"
    return 0
}

# --- disks ---------------------------------------------------------------------------------------------------------

# make_disk NAME MIB: a sparse file.
make_disk() { truncate -s "$2M" "$disks/$1"; }

# make_disks MIB NAME...
make_disks() {
    disks_mib=$1
    shift
    for disks_name in "$@"; do
        make_disk "$disks_name" "$disks_mib" || return 1
    done
}

# --- spaces as block devices ---------------------------------------------------------------------------------------

# What shows spaces as block devices. Not ublk where nobody asks for it: a run that was killed is cleared by ending its
# processes, and a ublk device of a daemon that is gone keeps who unmounts it waiting for the next one.
attach_way=loop

# attach_space NAME: sets $device.
attach_space() {
    device=$(dolmen space attach --transport "$attach_way" "$pool/$1" 2>>"$logs/attach.log" | tail -n 1) || return 1
    # The folder of the links is open to root alone.
    privileged test -b "$device" || { warn "'$device' is no block device"; return 1; }
}

# mount_space NAME [OPTION]...: the device in $device at $run/mnt/NAME.
mount_space() {
    mount_name=$1
    shift
    mkdir -p "$run/mnt/$mount_name"
    # shellcheck disable=SC2046 # a list of words
    attend mount "$run/mnt/$mount_name" -- $(rights) mount "$@" "$device" "$run/mnt/$mount_name"
}

# open_space NAME [OPTION]...: attached and mounted.
open_space() { attach_space "$1" && mount_space "$@"; }

close_space() { privileged umount "$run/mnt/$1" && dolmen space detach "$pool/$1" >/dev/null; }

# --- servers of shares ---------------------------------------------------------------------------------------------

# missing_of COMMAND...: those that are not installed; nothing is installed here, since servers of Debian start themselves.
missing_of() {
    missing=
    for missing_try in "$@"; do have "$missing_try" || missing="$missing $missing_try"; done
    [ -n "$missing" ]
}

# Sets $parts to the servers that are installed: `smb`, `ganesha`, `kernel`. The others are skipped by name.
choose_share_servers() {
    parts=
    if missing_of smbd net smbclient smbpasswd testparm smbcontrol smbstatus; then
        skip "$script over SMB (missing:$missing)"
    else
        parts="$parts smb"
    fi
    if missing_of ganesha.nfsd nfs-ls nfs-cp; then
        skip "$script over NFS by Ganesha (missing:$missing)"
    else
        parts="$parts ganesha"
    fi
    if missing_of exportfs; then
        skip "$script over NFS by the kernel (missing:$missing)"
    else
        parts="$parts kernel"
    fi
}

# --- FUSE over io_uring ---------------------------------------------------------------------------------------------

uring_switch=/sys/module/fuse/parameters/enable_uring

uring_is_on() { [ "$(cat "$uring_switch" 2>/dev/null)" = Y ]; }

# Switches it on where DOLMEN_URING=yes asks for that, and only there; what it was is in the record, and is put back
# however the run ends.
uring_begin() {
    ! uring_is_on || return 0
    [ "${DOLMEN_URING:-no}" = yes ] && [ -e "$uring_switch" ] || return 1
    note setting "$(cat "$uring_switch") $uring_switch"
    echo Y | as_root tee "$uring_switch" >/dev/null && uring_is_on
}

# --- the tree ------------------------------------------------------------------------------------------------------

# pick_tree MIB: lists files of the tree until they make up the wanted size, and takes their checksums. The many smallest
# ones are left out: they would turn a run into a measurement of the file system's directories.
pick_tree() {
    find "$tree" -xdev -type f -size +15k -readable ! -name '*[[:cntrl:]\\]*' -printf '%s %p\n' 2>/dev/null |
        awk -v wanted=$(($1 * 1048576)) '{ sum += $1; sub(/^[0-9]+ \//, ""); print; if (sum >= wanted) exit }' >"$run/list"
    (cd / && xargs -d '\n' b2sum) <"$run/list" >"$run/sums" || return 1
    tree_bytes=$(cd / && xargs -d '\n' stat -c %s <"$run/list" | awk '{ sum += $1 } END { printf "%d", sum }')
}

# copy_tree LIST FOLDER: ends with everything handed to the disk.
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

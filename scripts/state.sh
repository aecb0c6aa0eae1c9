# The lock, the record and its undoing; the top of lib.sh says how they hang together.

# start_time PID: clock ticks from boot to the start of the process; nothing where there is none.
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

boot_id() { cat /proc/sys/kernel/random/boot_id; }

# is_process PID START: this very process lives, and is more than an entry that nobody has collected.
is_process() {
    process_stat=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) || return 1
    [ "$(printf '%s' "$process_stat" | cut -d' ' -f20)" = "$2" ] || return 1
    case $process_stat in Z* | X*) return 1 ;; esac
}

# owner_lives OWNER: pid, start time and boot, and a word more when it is leaving.
owner_lives() {
    # shellcheck disable=SC2086 # three words
    set -- $1
    [ $# -ge 3 ] && [ "$3" = "$(boot_id)" ] && is_process "$1" "$2"
}

# stop_recording FOLDER: from here on no command of its owner begins. One that was asked for and has not put itself into
# the record yet would come behind the undoing of it, and stay.
stop_recording() {
    [ -e "$1/owner" ] || return 0
    # shellcheck disable=SC2094 # the redirection makes the lock file, the files inside are others
    (
        flock 9
        printf '%s leaves\n' "$(cat "$1/owner")" >"$1/owner.new" && mv "$1/owner.new" "$1/owner"
    ) 9>>"$1/lock"
}

# take_state: becomes the owner of $state, undoes what an earlier run left, and sets the traps.
take_state() {
    case $state in
    /*) ;;
    *) state=$(pwd)/$state ;;
    esac
    logs=$state/logs
    mkdir -p "$logs" || die "$EX_UNAVAILABLE" "cannot make $logs; set DOLMEN_STATE to a folder that can be written to"
    # Not installed like other commands: it takes both to record an installation, and every Debian has them.
    { have flock && have setsid; } || die "$EX_UNAVAILABLE" 'needs flock and setsid; on Debian, as root: apt-get install util-linux'
    owner="$$ $(start_time $$) $(boot_id)"
    # shellcheck disable=SC2094 # the redirection makes the lock file, the files inside are others
    (
        flock 9
        other=$(cat "$state/owner" 2>/dev/null)
        if owner_lives "$other"; then
            die "$EX_TEMPFAIL" "run ${other%% *} uses $state; wait for it to end, or set DOLMEN_STATE to another folder"
        fi
        printf '%s\n' "$owner" >"$state/owner.new" && mv "$state/owner.new" "$state/owner"
    ) 9>>"$state/lock" || exit $?
    trap 'leave_state $?' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    if [ -s "$state/record" ]; then
        say 'clearing what an earlier run left'
        undo_record "$state" || die 1 "cannot clear what an earlier run left; $state/record lists it"
    fi
    note boot "$(boot_id)"
}

# leave_state STATUS: the end of every run that is not killed outright.
leave_state() {
    # A second signal must not stop the clearing half way.
    trap '' HUP INT TERM
    trap - EXIT
    stop_recording "$state"
    if ! undo_record "$state"; then
        warn "something could not be undone; $state/record lists it, and the next run tries again"
        [ "$1" -ne 0 ] || set -- 1
    fi
    rm -f "$state/owner"
    exit "$1"
}

# note KIND ARGUMENT: adds a line to the record, before the thing it names is made.
note() { printf '%s %s\n' "$1" "$2" >>"$state/record"; }

# begin [KIND ARGUMENT]... -- COMMAND...: starts a command in a session of its own, in the background, with itself and
# what it makes in the record before its first instruction; its pid is in $!.
#   mount FOLDER   a mount point         loop FILE    loop devices over a file
#   below FOLDER   all mounts and all loop devices over files below a folder
#   link PATH      symbolic links in a folder of /dev, and the folder
#   cgroup FOLDER  a control group whose processes are ended before
#   mapped NAME    a device of the device mapper
#   helpers FILE   programs that servers of Samba start in sessions of their own, by their configuration
#   nested FOLDER  another state directory
#   setting VALUE FILE   a setting of the kernel's, which gets its value back
begin() { setsid sh "$scripts/recorded.sh" "$state" "$owner" "$@" & }

# attend [KIND ARGUMENT]... -- COMMAND...: the same, and waits for it. A signal to this run ends the waiting at once,
# while a command in the foreground would hold the trap back until its own end.
attend() {
    begin "$@"
    wait $!
}

# --- undoing -----------------------------------------------------------------------------------------------------

# undo_record FOLDER: undoes a state directory's record from its end and empties it; fails where something stays.
undo_record() {
    [ -s "$1/record" ] || return 0
    # A process that waits for a device whose daemon is gone ends only when that device is undone, which comes after it:
    # what stays the first time may go the second time.
    { undo_all "$1/record" "$1" quiet || undo_all "$1/record" "$1" loud; } && : >"$1/record"
}

# undo_all RECORD FOLDER quiet|loud
undo_all() {
    undo_voice=$3
    undo_failed=0
    undo_boot=$(sed -n 's/^boot //p' "$1" | tail -n 1)
    tac "$1" >"$1.undo"
    while read -r undo_kind undo_what <&8; do
        undo_line "$2" && continue
        undo_failed=1
        [ "$undo_voice" = quiet ] || warn "cannot undo: $undo_kind $undo_what"
    done 8<"$1.undo"
    rm -f "$1.undo"
    return "$undo_failed"
}

# undo_line STATE: one line, in $undo_kind and $undo_what.
undo_line() {
    # Files survive a boot; processes, mounts and devices do not, and their numbers then mean others.
    case $undo_kind in
    dir)
        undo_dir "$1" "$undo_what"
        return
        ;;
    nested)
        # A subshell, because the other record has its own boot and its own failures.
        (stop_recording "$undo_what" && undo_record "$undo_what")
        return
        ;;
    boot) return 0 ;;
    esac
    [ "$undo_boot" = "$(boot_id)" ] || return 0
    case $undo_kind in
    session) undo_session "$undo_what" ;;
    helpers) end_those helpers_of "$undo_what" ;;
    mount) undo_mount "$undo_what" "$1" ;;
    loop) undo_loops "$undo_what" ;;
    below) undo_below "$undo_what" "$1" ;;
    link) undo_link "$undo_what" ;;
    cgroup) undo_cgroup "$undo_what" ;;
    mapped) undo_mapped "$undo_what" ;;
    setting) undo_setting "$undo_what" ;;
    *) return 1 ;;
    esac
}

# members PID START: the processes of the session that PID leads or led. A session's number is not given to another
# process while it has members, and no member is older than its leader.
members() {
    sed 's/^\([0-9]*\) .*) /\1 /' /proc/[0-9]*/stat 2>/dev/null | awk -v session="$1" -v start="$2" '$5 == session && $21 >= start && $2 != "Z" && $2 != "X" { print $1 }'
}

# send SIGNAL PID...: also to processes of root. Through a shell, because the program `kill` is not in every system.
send() {
    # shellcheck disable=SC2016 # the inner shell expands it
    kill -s "$@" 2>/dev/null || as_root sh -c 'kill -s "$@"' sh "$@" 2>/dev/null
}

# unpacks PID START: dpkg works in the session.
unpacks() {
    for unpacks_pid in $(members "$1" "$2"); do
        [ "$(cat "/proc/$unpacks_pid/comm" 2>/dev/null)" != dpkg ] || return 0
    done
    return 1
}

# undo_session "PID START": asks all its processes to end, then ends them. Not while dpkg works in it: killed half way through
# a package that others need, it can leave a system that does not start.
undo_session() {
    session_pid=${1%% *}
    session_start=${1##* }
    for session_try in $(seq 1 3000); do
        unpacks "$session_pid" "$session_start" || break
        sleep 0.1
    done
    end_those members "$session_pid" "$session_start"
}

# helpers_of FILE: the programs that Samba started with that configuration, which no session of ours has.
helpers_of() {
    for helpers_words in /proc/[0-9]*/cmdline; do
        { tr '\0' '\n' <"$helpers_words" | grep -qxF -e "--configfile=$1"; } 2>/dev/null || continue
        helpers_pid=${helpers_words#/proc/}
        echo "${helpers_pid%/cmdline}"
    done
}

# end_those FUNCTION [WORD]...: asks the processes that the function names to end, then ends them.
end_those() {
    for end_try in $(seq 0 120); do
        end_pids=$("$@")
        [ -n "$end_pids" ] || return 0
        end_signal=
        [ "$end_try" -ne 0 ] || end_signal=TERM
        [ "$end_try" -lt 50 ] || end_signal=KILL
        if [ -n "$end_signal" ]; then
            # shellcheck disable=SC2086 # a list of pids
            send "$end_signal" $end_pids || :
        fi
        sleep 0.1
    done
    return 1
}

# mounts_below FOLDER: mount points at or below it, deepest and latest first; mountinfo writes a space as \040.
mounts_below() {
    awk -v folder="$1" '{
        gsub(/\\040/, " ", $5)
        if ($5 == folder || index($5, folder "/") == 1) print $5
    }' /proc/self/mountinfo | tac
}

# undo_mount FOLDER STATE
undo_mount() {
    while [ "$(mounts_below "$1" | grep -cxF "$1")" -gt 0 ]; do
        unmount "$1" "$2" || return 1
    done
}

# unmount FOLDER STATE: a file system whose daemon is gone may wait for ever; then its FUSE connections are cut.
unmount() {
    as_root umount "$1" >/dev/null 2>&1 8<&- &
    unmount_pid=$!
    unmount_start=$(start_time "$unmount_pid")
    for unmount_try in $(seq 1 200); do
        is_process "$unmount_pid" "$unmount_start" || break
        [ "$unmount_try" -ne 100 ] || cut_fuse "$2"
        sleep 0.1
    done
    if ! is_process "$unmount_pid" "$unmount_start" && wait "$unmount_pid"; then
        return 0
    fi
    # Something still has a file open there; out of sight it goes away with its last user.
    as_root umount -l "$1" 2>/dev/null
}

# cut_fuse FOLDER: aborts the FUSE connections of the mounts below it; their number is the minor of the device.
cut_fuse() {
    cut_minors=$(awk -v folder="$1" '($5 == folder || index($5, folder "/") == 1) && / - fuse/ { split($3, device, ":"); print device[2] }' /proc/self/mountinfo)
    [ -n "$cut_minors" ] || return 0
    cut_control=/sys/fs/fuse/connections
    cut_mounted=
    if [ -z "$(ls "$cut_control" 2>/dev/null)" ]; then
        # Not every system mounts it at boot.
        cut_mounted=$(mktemp -d) && cut_control=$cut_mounted
        as_root mount -t fusectl fusectl "$cut_mounted" 2>/dev/null || :
    fi
    for cut_minor in $cut_minors; do
        [ ! -e "$cut_control/$cut_minor/abort" ] || echo 1 | as_root tee "$cut_control/$cut_minor/abort" >/dev/null 2>&1 || :
    done
    if [ -n "$cut_mounted" ]; then
        as_root umount "$cut_mounted" 2>/dev/null || :
        rmdir "$cut_mounted"
    fi
}

# loops_of FILE PREFIX: the loop devices over a file, or over files whose names begin so; deleted files included.
loops_of() {
    for loop_file in /sys/block/loop*/loop/backing_file; do
        [ -e "$loop_file" ] || continue
        loop_name=$(cat "$loop_file" 2>/dev/null) || continue
        loop_name=${loop_name% (deleted)}
        loop_device=${loop_file#/sys/block/}
        case $loop_name in
        "$1" | "$2"*) echo "/dev/${loop_device%%/*}" ;;
        esac
    done
}

detach_loops() {
    for detach_device in $1; do
        as_root losetup -d "$detach_device" 2>/dev/null || :
    done
}

# undo_loops FILE: waits until the kernel has let go, because detaching a busy device only marks it.
undo_loops() {
    for loops_try in $(seq 1 50); do
        loops_left=$(loops_of "$1" "$1/")
        [ -n "$loops_left" ] || return 0
        detach_loops "$loops_left"
        [ "$loops_try" -eq 1 ] || sleep 0.1
    done
    return 1
}

# undo_below FOLDER STATE: mounts on a device come before the device, and its file's mount last: unmounting that one
# while the device holds its file open would take the folder out of the device's file name, and nobody would find it.
undo_below() {
    cut_fuse "$1"
    for below_pass in devices files; do
        mounts_below "$1" | while IFS= read -r below_mount; do
            [ "$below_pass" = files ] || ! is_fuse "$below_mount" || continue
            unmount "$below_mount" "$2" || :
        done
        undo_loops "$1" || return 1
    done
    [ -z "$(mounts_below "$1")" ]
}

# is_fuse FOLDER: a FUSE file system is mounted there.
is_fuse() {
    awk -v folder="$1" '{ gsub(/\\040/, " ", $5) } $5 == folder && / - fuse/ { found = 1 } END { exit !found }' /proc/self/mountinfo
}

# undo_link FOLDER: only symbolic links in it, then the folder if that emptied it.
undo_link() {
    # It may lie in one that only root may enter.
    [ -d "$1" ] || as_root test -d "$1" 2>/dev/null || return 0
    find "$1" -maxdepth 1 -type l -exec rm -f {} + 2>/dev/null || as_root find "$1" -maxdepth 1 -type l -exec rm -f {} + || return 1
    rmdir "$1" 2>/dev/null || as_root rmdir "$1" 2>/dev/null || :
}

# undo_cgroup FOLDER: the kernel lets go of it a moment after its last process.
undo_cgroup() {
    for cgroup_try in $(seq 1 50); do
        [ -d "$1" ] || return 0
        as_root rmdir "$1" 2>/dev/null || sleep 0.1
    done
    return 1
}

# undo_mapped NAME: not while it is mounted.
undo_mapped() { ! as_root dmsetup info "$1" >/dev/null 2>&1 || as_root dmsetup remove "$1" 2>/dev/null; }

# undo_setting VALUE FILE, as one word.
undo_setting() { printf '%s\n' "${1%% *}" | as_root tee "${1#* }" >/dev/null; }

# undo_dir STATE NAME: a folder of the state directory; never while something is mounted in it.
undo_dir() {
    case $2 in
    '' | /* | *..*) return 1 ;;
    esac
    [ -z "$(mounts_below "$1/$2")" ] || return 1
    rm -rf "${1:?}/$2" 2>/dev/null || as_root rm -rf "${1:?}/$2"
}

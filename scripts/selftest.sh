#!/bin/sh
# Proves what state.sh promises: a run killed at any moment is cleared by the next one, and nothing else is touched.
#
# It starts fake runs that make processes, folders, loop devices and mounts, kills them with -9 at moments drawn by
# chance, lets the next run go through, and then looks at the system, not at the record, for what is left. And it kills
# ./test and ./demo while they install what they need, in a system that has next to nothing (proof.sh).
root=$(cd "$(dirname "$0")/.." && pwd)
self=$root/scripts/selftest.sh
rounds=${DOLMEN_SELFTEST_ROUNDS:-6}

# --- the fake run ------------------------------------------------------------------------------------------------

fake_devices() {
    # A setting that gets its value back.
    note setting "N $(dirname "$state")/setting"
    echo Y >"$(dirname "$state")/setting"
    note dir files
    mkdir -p "$state/files/mnt"
    truncate -s 16M "$state/files/image"
    attend -- mkfs.ext4 -q -F "$state/files/image"
    attend loop "$state/files/image" -- losetup -f "$state/files/image" || return 1
    fake_loop=$(loops_of "$state/files/image" "$state/files/image/")
    attend mount "$state/files/mnt" -- mount "$fake_loop" "$state/files/mnt" || return 1
    # A file held open below the mount, as a copy that was interrupted holds it.
    # shellcheck disable=SC2016 # the inner shell expands it
    begin -- sh -c 'exec 7>"$1/open"; sleep 600' sh "$state/files/mnt"
    attend mount "$state/files/mnt" -- umount -l "$state/files/mnt"
    attend mount "$state/files/mnt" -- mount "$fake_loop" "$state/files/mnt"
}

# fake_run STAY DEVICES: makes things, stays for a while, ends.
fake_run() {
    . "$root/scripts/lib.sh"
    take_state
    begin -- sh -c 'sleep 600 & sleep 600 & wait'
    begin -- sleep 600
    [ "$2" = no ] || fake_devices || die 1 'cannot make loop devices'
    attend -- sleep "$1"
    exit 0
}

# fake_late: a run that ends while a command that it asked for has yet to write itself to the record: the lock is held by
# somebody else, and clearing takes long, because another command is deaf.
fake_late() {
    . "$root/scripts/lib.sh"
    take_state
    begin -- sh -c 'trap "" TERM; sleep 600 & wait; wait'
    for late_try in $(seq 1 100); do
        ! grep -q session "$state/record" || break
        sleep 0.05
    done
    (
        flock 9
        : >"$state/held"
        sleep 1
    ) 9>>"$state/lock" &
    while [ ! -e "$state/held" ]; do sleep 0.05; done
    begin -- sleep 600
    sleep 0.3
    exit 0
}

case ${1:-} in
fake) fake_run "$2" "$3" ;;
late) fake_late ;;
esac

# --- the test ----------------------------------------------------------------------------------------------------

. "$root/scripts/lib.sh"
. "$root/scripts/proof.sh"
victim=
trap cleared EXIT
trap 'exit 130' INT TERM HUP

# cleared: nothing of a fake run survives this one, wherever it was interrupted.
cleared() {
    [ -z "$victim" ] || kill -9 "$victim" 2>/dev/null
    sh "$self" fake 0 no >/dev/null 2>&1
    # Where something failed, there may be what no record names.
    marked | xargs -r kill -9
    rm -rf "$proof"
}

# fake STAY DEVICES: starts one in the background; its pid is in $!.
fake() { DOLMEN_MARK=$proof sh "$self" fake "$@" >>"$proof/log" 2>&1 & }

# wait_for_record PATTERN: until the record has a line with it.
wait_for_record() {
    for wait_try in $(seq 1 100); do
        ! grep -q "$1" "$DOLMEN_STATE/record" 2>/dev/null || return 0
        sleep 0.05
    done
}

devices=no
if [ "$(id -u)" -ne 0 ] && ! can_root; then
    say 'skipped: killing a run that has loop devices and mounts: not root'
elif [ ! -e /dev/loop-control ] || ! have mkfs.ext4 || [ "$(id -u)" -ne 0 ]; then
    say 'skipped: killing a run that has loop devices and mounts: needs root, /dev/loop-control and mkfs.ext4'
else
    devices=yes
fi

# A stranger that happens to have a recorded pid, with another start time, and one that the record does not name.
sleep 600 &
stranger=$!

for round in $(seq 1 "$rounds"); do
    if [ $((round % 2)) -eq 1 ]; then
        # Twice at a moment within the first half second: the second one dies while it makes things or clears.
        for try in 1 2; do
            fake 600 "$devices"
            victim=$!
            sleep "0.$(od -An -N1 -tu1 /dev/urandom | awk '{ printf "%02d", $1 % 50 }')"
            kill -9 "$victim"
            wait "$victim" 2>/dev/null
        done
    else
        fake 600 "$devices"
        victim=$!
        wait_for_record 'session'
        sleep 0.6
        kill -9 "$victim"
        wait "$victim" 2>/dev/null
    fi
    mkdir -p "$DOLMEN_STATE"
    printf 'session %s 1\n' "$stranger" >>"$DOLMEN_STATE/record"
    fake 0 "$devices"
    wait $!
    check "the run after a kill -9 (round $round) succeeds" $? 0
    check "nothing is left after round $round" "$(remains)" ''
done

for signal in HUP:129 INT:130 TERM:143; do
    status=${signal#*:}
    signal=${signal%:*}
    # A shell gives its background children a deaf ear for INT, and nohup all of its own for HUP, which a script cannot
    # lift; env can.
    DOLMEN_MARK=$proof env --default-signal=HUP,INT,TERM sh "$self" fake 600 "$devices" >>"$proof/log" 2>&1 &
    victim=$!
    wait_for_record 'session'
    sleep 0.3
    kill -s "$signal" "$victim"
    wait "$victim"
    check "a run that got $signal says so" $? "$status"
    check "nothing is left after $signal" "$(remains)" ''
done

fake 600 no
victim=$!
wait_for_record 'session'
fake 0 no
wait $!
check 'a second run beside a living one is refused' $? "$EX_TEMPFAIL"
kill -s TERM "$victim"
wait "$victim"
check 'nothing is left after the last' "$(remains)" ''

DOLMEN_MARK=$proof sh "$self" late >>"$proof/log" 2>&1
sleep 1
check 'a command that comes late does not stay' "$(remains)" ''

# A record of another boot: its numbers belong to strangers now, its folders are still ours.
mkdir -p "$DOLMEN_STATE/files"
printf 'boot another\ndir files\nsession %s %s\n' "$stranger" "$(start_time "$stranger")" >"$DOLMEN_STATE/record"
fake 0 no
wait $!
check 'the folders of an earlier boot are removed' "$(remains)" ''
check 'a process that only shares a recorded number lives' "$(kill -0 "$stranger" 2>/dev/null && echo yes)" yes
kill "$stranger"

# --- killed while it installs ------------------------------------------------------------------------------------

# install_system RUST: a system whose apt brings a C compiler, by a dpkg that takes a moment; with a Rust (yes), or with the
# official installer of one (no).
install_system() {
    bare_system
    rm -f "$proof/unpacked"
    bare_command "$proof/cc" </dev/null
    bare_command "$proof/bin/apt-get" <<'END'
case " $* " in *' install '*' gcc '*) dpkg && cp "$proof/cc" "$proof/bin/cc" ;; esac
END
    bare_command "$proof/bin/dpkg" <<'END'
sleep 1
touch "$proof/unpacked"
END
    if [ "$1" = yes ]; then
        bare_rust "$proof/bin"
    else
        bare_installer
    fi
}

# run_until CALL COMMAND WORD...: begins one of the two commands, until it makes that call, which is a line of $proof/asked.
run_until() {
    until_call=$1
    shift
    bare_begin "$@"
    victim=$!
    for until_try in $(seq 1 200); do
        ! grep -q "$until_call" "$proof/asked" || break
        sleep 0.05
    done
    check "./$* calls: $until_call" "$(grep -c "$until_call" "$proof/asked")" 1
}

# killed_by SIGNAL WHAT: the run is, which leaves nothing then, or, where it can do nothing about it, what the next clears.
killed_by() {
    killed_start=$(start_time "$victim")
    kill -s "$1" "$victim"
    for killed_try in $(seq 1 200); do
        is_process "$victim" "$killed_start" || break
        sleep 0.05
    done
    kill -KILL "$victim" 2>/dev/null
    killed_status=0
    wait "$victim" 2>/dev/null || killed_status=$?
    victim=
    if [ "$1" = KILL ]; then
        check "what it began lives on, killed in $2" "$(remains | grep -q process && echo yes)" yes
    else
        check "a run that got $1 in $2 says so" "$killed_status" 143
        check "nothing is left after $1 in $2" "$(remains)" ''
    fi
    : >"$proof/slow"
    bare test fits
    check "the run after $1 in $2 succeeds" "$status" 0
    check "nothing is left after $1 in $2 and another run" "$(remains)" ''
    [ "$failed" -eq 0 ] || sed 's/^/    | /' "$proof/said"
}

# killed_in CALL RUST COMMAND WORD...: while that call takes long.
killed_in() {
    in_call=$1
    in_rust=$2
    shift 2
    for in_signal in KILL TERM; do
        install_system "$in_rust"
        printf '%s\n' "$in_call" >"$proof/slow"
        run_until "$in_call" "$@"
        killed_by "$in_signal" "$in_call"
    done
}

# dpkg is not ended half way, by whatever kills the run.
killed_unpacking() {
    for unpacking_signal in KILL TERM; do
        install_system yes
        run_until 'bin/dpkg' test fits
        killed_by "$unpacking_signal" 'dpkg'
        check "dpkg came to its end after $unpacking_signal" "$(ls "$proof/unpacked")" "$proof/unpacked"
        check "and worked once" "$(grep -c 'bin/dpkg' "$proof/asked")" 1
    done
}

if bare_apart 'killing a run that installs'; then
    killed_in 'apt-get .* update' yes test fits
    killed_in 'apt-get .* update' yes demo
    killed_in 'apt-get .* install .* gcc ' yes test fits
    killed_unpacking
    killed_in 'bin/curl ' no test fits
    killed_in 'init.sh ' no test fits
    killed_in 'cargo fetch --locked$' yes test fits
fi

[ "$failed" -eq 0 ] || cat "$proof/log"
close_proof

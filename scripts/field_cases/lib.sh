# shellcheck shell=bash
# Sourced by each case: a private daemon (or several, each a host of its own), disks as files, and a cleanup that also works
# when something hangs. Nothing here touches anything that the case did not make itself.
#
#   DOLMEN       the program to try (needed); dolmen-rescue is looked for beside it
#   CASES_TMP    where the private folder is made (default /tmp; keep it short, sockets have 108 bytes)
#   CASE_LIMIT   seconds after which a case ends as failed (default 175)
#   CASE_KEEP    1: keep the private folder (logs, disks) after the end
#   CASE_WAY     how spaces are attached (default loop)
#
# Ends with one line `PASS name`, `PASS-WITH-GAPS name: …`, `FAIL name: …` or `SKIP name: …`; status 0, 0, 1, 77.
set -u
export LC_ALL=C
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
CASES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CASE=$(basename "$0" .sh)
DOLMEN=${DOLMEN:-}
WAY=${CASE_WAY:-loop}
W='' DONE='' SKIPPED='' WATCH_PID='' HOST='' HD='' SOCK='' DPID=''
FAILS=() GAPS=() WRAP=() ALL_DPIDS=() BG_PIDS=()
LOGTO=''

# --- telling ---------------------------------------------------------------------------------------------------------

say() { printf '   %s\n' "$*"; }
step() { printf '== %s\n' "$*"; }
# What a person would expect and Dolmen does not have; no harm is done.
gap() { GAPS+=("$*"); printf '   GAP: %s\n' "$*"; }
bad() { FAILS+=("$*"); printf '   NOT OK: %s\n' "$*"; }
die() { bad "$*"; exit 1; }
skip() { SKIPPED="$*"; exit 77; }
end() { DONE=1; exit 0; }

shown() { sed 's/^/   | /' "$W/out" | tail -n "${1:-12}"; }

# check WHAT COMMAND...: notes a failure and goes on; its output is in $W/out. must: the same, and ends the case.
check() {
    local what=$1
    shift
    if "$@" >"$W/out" 2>&1; then say "ok: $what"; return 0; fi
    bad "$what"
    shown
    return 1
}
must() {
    check "$@" || exit 1
}
# rc_is WHAT 'CODES' COMMAND...: ends with one of these statuses.
rc_is() {
    local what=$1 codes=$2 rc
    shift 2
    "$@" >"$W/out" 2>&1
    rc=$?
    case " $codes " in *" $rc "*) say "ok: $what ($rc)"; return 0 ;; esac
    bad "$what: status $rc, expected one of: $codes"
    shown
    return 1
}
# said WHAT REGEX: the output of the last check has it (lines joined, so that wrapped text matches as well).
said() {
    if tr '\n' ' ' <"$W/out" | tr -s ' ' | grep -qiE -- "$2"; then say "ok: $1"; return 0; fi
    bad "$1 (no /$2/ in the answer)"
    shown
    return 1
}
no() { ! "$@"; }
same() { [ "$1" = "$2" ] || { echo "found '$1', expected '$2'"; return 1; }; }

# eventually SECONDS COMMAND...
eventually() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $until ] || return 1
        sleep 0.2
    done
}

# settled COMMAND...: asked again for a while as long as it says 75 (busy): a client that has just left may still be leaving.
settled() {
    local until=$((SECONDS + 15)) rc
    while :; do
        "$@"
        rc=$?
        [ $rc -eq 75 ] && [ $SECONDS -lt $until ] || return $rc
        sleep 0.5
    done
}

# limit SECONDS COMMAND...: 124 when it has not ended in time. Unlike timeout(1) it does not wait for what hangs in the kernel.
limit() {
    local seconds=$1 until pid
    shift
    "$@" &
    pid=$!
    until=$((SECONDS + seconds))
    while kill -0 "$pid" 2>/dev/null; do
        if [ $SECONDS -ge "$until" ]; then
            kill -KILL "$pid" 2>/dev/null
            echo "did not end in $seconds s: $*"
            return 124
        fi
        sleep 0.05
    done
    wait "$pid"
}

# bg COMMAND...: in the background; $! is its process, which cleanup ends.
bg() {
    "$@" &
    BG_PIDS+=("$!")
}

# --- begin and end ---------------------------------------------------------------------------------------------------

# begin TITLE MIB [TOOL]...
begin() {
    local title=$1 mib=$2 tool have
    shift 2
    trap finish EXIT
    trap 'exit 143' INT TERM HUP
    printf '# %s: %s\n' "$CASE" "$title"
    [ "$(id -u)" -eq 0 ] || skip 'needs root'
    [ -n "$DOLMEN" ] && [ -x "$DOLMEN" ] || skip 'DOLMEN names no program'
    DOLMEN=$(readlink -f "$DOLMEN")
    for tool in python3 setsid timeout "$@"; do
        command -v "$tool" >/dev/null || skip "no $tool here"
    done
    W=$(mktemp -d "${CASES_TMP:-/tmp}/dc.XXXXXX") || skip 'no folder can be made'
    have=$(df -Pm "$W" | awk 'NR == 2 { print $4 }')
    [ "$have" -ge "$mib" ] || skip "$W has $have MiB free, $mib are needed"
    mkdir -p "$W/disks" "$W/mnt" "$W/away"
    # Marks all processes of this case, the descriptor-holder of a daemon that was killed among them.
    export DOLMEN_CASE="$CASE.$$.$RANDOM"
    unset DOLMEN_SOCKET
    (sleep "${CASE_LIMIT:-175}"; kill -TERM $$) >/dev/null 2>&1 &
    WATCH_PID=$!
    use one
}

need_attach() {
    [ -e /dev/loop-control ] || modprobe loop 2>/dev/null || :
    [ -e /dev/fuse ] || modprobe fuse 2>/dev/null || :
    [ -e /dev/loop-control ] && [ -e /dev/fuse ] || skip 'no loop devices or no FUSE'
}

# Processes of ours that run the program: daemons, descriptor_holders, commands.
our_dolmens() {
    local link pid
    for link in /proc/[0-9]*/exe; do
        pid=${link#/proc/}
        pid=${pid%/exe}
        case $(readlink "$link" 2>/dev/null) in "$DOLMEN" | "$DOLMEN (deleted)" | "${DOLMEN}d" | "${DOLMEN}d (deleted)") ;; *) continue ;; esac
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qxF "DOLMEN_CASE=$DOLMEN_CASE" && echo "$pid"
    done
}
descriptor_holders() {
    local pid
    for pid in $(our_dolmens); do
        tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q ' descriptor-holder' && echo "$pid"
    done
}

# Mount points below the private folder, deepest last.
our_mounts() { awk -v w="$W/" 'index($5, w) == 1 { print $5 }' /proc/self/mountinfo; }
abort_fuse() {
    local number
    awk -v w="$W/" 'index($5, w) == 1 { for (i = 7; i <= NF; i++) if ($i == "-") { if ($(i + 1) ~ /^fuse/) print $3 } }' /proc/self/mountinfo |
        while IFS=: read -r _ number; do
            echo 1 >"/sys/fs/fuse/connections/$number/abort" 2>/dev/null || :
        done
}
# Loop devices whose file is below the private folder. losetup -a would wait for a daemon that is gone.
our_loops() {
    local file name
    for file in /sys/block/loop*/loop/backing_file; do
        [ -r "$file" ] || continue
        IFS= read -r name <"$file" || continue
        case $name in "$W"/*) file=${file#/sys/block/}; echo "/dev/${file%%/*}" ;; esac
    done
}

cleanup() {
    local pid mount loop line
    for pid in "${BG_PIDS[@]:-}"; do [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || :; done
    for pid in "${ALL_DPIDS[@]:-}"; do [ -z "$pid" ] || kill -CONT "$pid" 2>/dev/null || :; done
    for loop in $(our_loops); do
        while read -r line _; do
            case $line in "$loop" | "$loop"p*) limit 20 swapoff "$line" ;; esac
        done </proc/swaps
    done
    for mount in $(our_mounts | tac); do
        case $mount in "$W"/mnt/*) fsfreeze -u "$mount" 2>/dev/null || :; limit 10 umount "$mount" ;; esac
    done
    for pid in "${ALL_DPIDS[@]:-}"; do [ -z "$pid" ] || kill -TERM "$pid" 2>/dev/null || :; done
    for _ in $(seq 1 50); do
        [ -n "$(our_dolmens)" ] || break
        sleep 0.1
    done
    abort_fuse
    for pid in $(our_dolmens); do kill -KILL "$pid" 2>/dev/null || :; done
    for mount in $(our_mounts | tac); do
        limit 10 umount "$mount" || umount -l "$mount" 2>/dev/null || :
    done
    for loop in $(our_loops); do limit 10 losetup -d "$loop"; done
    for mount in "${CGROUPS[@]:-}"; do [ -z "$mount" ] || rmdir "$mount" 2>/dev/null || :; done
    [ "${CASE_KEEP:-0}" = 1 ] || rm -rf --one-file-system "$W"
}
CGROUPS=()

finish() {
    local rc=$?
    trap - EXIT INT TERM HUP
    [ -z "$WATCH_PID" ] || kill "$WATCH_PID" 2>/dev/null || :
    if [ -n "$W" ]; then
        if [ ${#FAILS[@]} -gt 0 ] || { [ -z "$DONE" ] && [ -z "$SKIPPED" ]; }; then
            for log in "$W"/*/log; do
                [ -s "$log" ] || continue
                echo "   the daemon of ${log#"$W"/} said last:"
                tail -n 15 "$log" | sed 's/^/   | /'
            done
        fi
        cleanup >"$W.cleanup" 2>&1
        if [ -n "$(our_loops)$(our_mounts)" ]; then
            echo "   left behind: $(our_loops) $(our_mounts)"
            cat "$W.cleanup"
        fi
        rm -f "$W.cleanup"
        [ "${CASE_KEEP:-0}" != 1 ] || echo "   kept: $W"
    fi
    if [ -n "$SKIPPED" ]; then
        echo "SKIP $CASE: $SKIPPED"
        exit 77
    fi
    [ -n "$DONE" ] || [ ${#FAILS[@]} -gt 0 ] || FAILS+=("did not come to its end (status $rc; 143: out of time)")
    local all
    if [ ${#FAILS[@]} -gt 0 ]; then
        all=$(printf '%s; ' "${FAILS[@]}")
        echo "FAIL $CASE: ${all%; }"
        exit 1
    fi
    if [ ${#GAPS[@]} -gt 0 ]; then
        all=$(printf '%s; ' "${GAPS[@]}")
        echo "PASS-WITH-GAPS $CASE: ${all%; }"
        exit 0
    fi
    echo "PASS $CASE"
    exit 0
}

# --- the daemon ------------------------------------------------------------------------------------------------------

# use HOST: what follows is meant by the daemon of that host. Each has a state and an identity of its own.
use() {
    eval "DPID_$HOST=\$DPID" 2>/dev/null || :
    HOST=$1 HD=$W/$1 SOCK=$W/$1/api
    eval "DPID=\${DPID_$HOST:-}"
    mkdir -p "$HD/state" "$HD/run"
    if [ ! -e "$HD/state/host-id" ] && [ "${2:-}" != anonymous ]; then
        od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$HD/state/host-id"
    fi
}

answers() {
    timeout -k 1 10 "$DOLMEN" --socket "$SOCK" --timeout 5 status >/dev/null 2>&1
    [ $? -le 1 ]
}
alive() { [ -n "$DPID" ] && kill -0 "$DPID" 2>/dev/null; }

# launch [OPTION]...: starts the daemon behind the words in WRAP, without waiting.
launch() {
    setsid "${WRAP[@]}" "$DOLMEN" daemon --state "$HD/state" --run "$HD/run" --socket "$SOCK" --links "$HD/links" --named-only "$@" \
        >>"${LOGTO:-$HD/log}" 2>&1 </dev/null &
    DPID=$!
    ALL_DPIDS+=("$DPID")
}
answers_or_dead() { answers || ! alive; }
# up [OPTION]...: until it answers.
up() {
    launch "$@"
    eventually "${UP_LIMIT:-40}" answers_or_dead || { echo "the daemon does not answer in ${UP_LIMIT:-40} s"; return 1; }
    answers || { echo 'the daemon has ended'; tail -n 5 "$HD/log" 2>/dev/null; return 1; }
}
gone() { ! alive; }
# down: asks it to end, and waits.
down() {
    alive || return 0
    kill -TERM "$DPID" 2>/dev/null
    eventually "${DOWN_LIMIT:-60}" gone || { echo 'the daemon does not end'; return 1; }
    { wait "$DPID"; } 2>/dev/null
    return 0
}
# crash: ends it from one instruction to the next.
crash() {
    kill -KILL "$DPID" 2>/dev/null
    { wait "$DPID"; } 2>/dev/null
    return 0
}

# dol WORD...: the command line, with the daemon of this host.
dol() { timeout -k 2 "${T:-90}" "$DOLMEN" --socket "$SOCK" "$@"; }

# js EXPRESSION: of the JSON document on standard input, which is d.
js() { python3 -c 'import json, sys; d = json.loads(sys.stdin.readline() or "null"); print(eval(sys.argv[1]))' "$1" 2>/dev/null; }
health() { dol -o json status | js 'd["health"]'; }
is_healthy() { [ "$(health)" = healthy ]; }
not_unhealthy() { [ "$(health)" != unhealthy ] && [ -n "$(health)" ]; }
pool_state() { dol -o json pool list | js "[p['state'] for p in d['pools'] if p['name'] == '$1'][0]"; }
is_writable() { [ "$(pool_state "$1")" = writable ]; }
# of_space POOL/SPACE FIELD
of_space() { dol -o json space show "$1" | js "d['space']['$2']"; }
disk_states() { dol -o json disk list "$1" | js "' '.join(str(x['state']) for x in d['disks'])"; }
all_present() { [ "$(disk_states "$1" | tr ' ' '\n' | sort -u)" = present ]; }
jobs_left() { dol -o json jobs | js 'sum(j["state"] in ("running", "waiting") for j in d["jobs"])'; }
no_jobs() { [ "$(jobs_left)" = 0 ]; }
uri() { dol serve "$1" 2>/dev/null | tail -n 1; }
# t WORD...: the helper for content, over NBD or on a file or device.
t() { timeout -k 2 "${TT:-120}" python3 "$CASES/tool.py" "$@"; }
# attach POOL/SPACE: prints the block device.
attach() { local link; link=$(dol space attach --transport "$WAY" "$1" 2>"$W/attach.err" | tail -n 1) && [ -b "$link" ] && readlink -f "$link"; }
# A client over NBD that has just left may still be leaving.
export_pool() { eventually 15 dol pool export "$1"; }
offline_check() { timeout -k 2 100 "$DOLMEN" check "$@"; }

# --- disks -----------------------------------------------------------------------------------------------------------

# mkdisk NAME SIZE...
mkdisk() { truncate -s "$2" "$W/disks/$1"; }
# loopup FILE [OPTION]...: prints the device.
loopup() {
    local file=$1
    shift
    losetup -f --show "$@" "$file"
}
# hash FILE...: of their content.
hash() { cat "$@" | sha256sum | cut -d' ' -f1; }

#!/bin/sh
# `dolmen bench` on real targets: a folder, a folder on ext4 over a loop device, an NBD export by nbdkit, and a space both
# attached and served. What is refused is refused before anything is written, and a signal leaves nothing behind.
#
# Figures are of short runs on whatever machine this is: they show that the command works, not how fast anything is.
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='bench'
reports=$run/reports
bench_io=${CARGO_TARGET_DIR:-$root/target}/release/dolmen-bench-io
short='--runtime 1 --ramp 0 --rounds 1 --size 64M --outstanding 1,32'

build_bench() {
    # shellcheck disable=SC2086 # a list of words
    attend -- cargo build --release --locked $as_users --package dolmen-bench-io --bin dolmen-bench-io
}

# bench NAME TARGET... [OPTION]...: measures, with reports under that name.
bench() {
    bench_name=$1
    shift
    # shellcheck disable=SC2046,SC2086 # lists of words
    attend -- $(rights) env DOLMEN_SOCKET="$socket" "$bin" bench "$@" \
        --json "$reports/$bench_name.json" --csv "$reports/$bench_name.csv" --html "$reports/$bench_name.html" \
        >"$reports/$bench_name.txt" 2>>"$logs/bench.log"
}

# reported NAME POINTS: the three reports are there and agree, and every point has I/Os.
reported() {
    reported_rows=$(($(wc -l <"$reports/$1.csv") - 1))
    sed 's/^/   | /' "$reports/$1.txt"
    is "$reported_rows" -eq "$2" || return 1
    grep -q '"is_complete":true' "$reports/$1.json" || return 1
    is "$(awk -F, 'NR > 1 && $7 > 0' "$reports/$1.csv" | wc -l)" -eq "$2" || return 1
    tail -n 1 "$reports/$1.html" | grep -q '</html>' && grep -q '<svg' "$reports/$1.html"
}

# loads NAME TARGET...: reads and writes, two loads each; writes with flushes beside.
loads() {
    loads_name=$1
    shift
    # shellcheck disable=SC2086 # a list of words
    bench "$loads_name" "$@" $short -p streaming -p restore && reported "$loads_name" 6
}

is_empty() { [ -z "$(ls -A "$1")" ]; }
was_served() { uri=$(dolmen serve "$pool/served" | tail -n 1) && [ -n "$uri" ]; }

make_loop() {
    truncate -s 512M "$run/image"
    # shellcheck disable=SC2046 # a list of words
    attend loop "$run/image" -- $(rights) losetup --find --show "$run/image" >"$run/loop" || return 1
    loop=$(cat "$run/loop")
    privileged mkfs.ext4 -q "$loop" >>"$logs/mkfs.log" 2>&1
}

mount_loop() {
    mkdir -p "$run/mnt/loop"
    # shellcheck disable=SC2046 # a list of words
    attend mount "$run/mnt/loop" -- $(rights) mount "$loop" "$run/mnt/loop"
}

start_nbdkit() {
    begin -- nbdkit -f -U "$run/nbdkit" memory 256M >>"$logs/nbdkit.log" 2>&1
    eventually 10 test -S "$run/nbdkit"
}

# A run that would last minutes is told to end while fio is at work.
interrupted() {
    begin -- "$bin" bench "$run/folder" --size 64M --runtime 60 --json "$reports/part.json" >/dev/null 2>>"$logs/bench.log"
    interrupted_pid=$!
    eventually 20 at_work "$interrupted_pid" || return 1
    send INT "$interrupted_pid"
    wait "$interrupted_pid"
    is "$?" -eq 130
}

# at_work PID: a child of the process is fio, and the file is there, which is made after signals are heeded: before, the
# process only asks fio what it is, and a shell starts what runs in the background with interrupts ignored.
at_work() {
    is_empty "$run/folder" && return 1
    cat "/proc/$1/task/$1/children" 2>/dev/null | tr ' ' '\n' | sed '/^$/d;s:.*:/proc/&/comm:' | xargs -r cat 2>/dev/null | grep -qx fio
}

# sustained [OPTION]...: writes that go on and on, in the engine itself, on files below the folder of this run.
sustained() {
    attend -- "$bench_io" sustained --folder "$run/folder" \
        --span 512M --disk-size 16G "$@" >"$reports/sustained.txt" 2>>"$logs/bench.log"
}

sustained_within() {
    sustained --seconds 5 --compared 16384 --limit "$1" || return 1
    sed 's/^/   | /' "$reports/sustained.txt"
    grep -q '16384 blocks compared' "$reports/sustained.txt"
}

beyond() {
    sustained --seconds 1 --limit "$1" && return 1
    tail -n 1 "$logs/bench.log" | grep -q "disk I/Os, $1.* at most are allowed"
}

sustained_interrupted() {
    begin -- "$bench_io" sustained --folder "$run/folder" --span 512M --disk-size 16G >/dev/null 2>>"$logs/bench.log"
    sustained_pid=$!
    eventually 30 test -s "$run/folder/bench-disk-5" || return 1
    send TERM "$sustained_pid"
    wait "$sustained_pid"
    is "$?" -eq 143
}

open_script 3072 fio nbdkit mkfs.ext4
mkdir -p "$reports" "$run/folder"
: >"$logs/bench.log"
: >"$logs/mkfs.log"
: >"$logs/nbdkit.log"

step 'a folder'
must 'is measured' loads folder "$run/folder"
must 'and left empty' is_empty "$run/folder"

step 'a loop device, and ext4 on it'
must 'made' make_loop
must 'the device is not overwritten' refused 73 'which holds an ext2/ext3/ext4 file system
nothing was changed' dolmen bench "$loop" --size 64M
must 'mounted' mount_loop
must 'now in use, the device is not even taken with its name' refused 75 "mounted at $run/mnt/loop" \
    dolmen bench "$loop" --size 64M --destroy="$loop"
must 'the folder is measured' loads ext4 "$run/mnt/loop"
must 'unmounted' privileged umount "$run/mnt/loop"
must 'with its name the device is measured' loads loop "$loop" --destroy="$loop"

step 'an NBD export'
must 'nbdkit serves' start_nbdkit
must 'is measured' loads nbd "nbd+unix:///?socket=$run/nbdkit"
must 'and now holds data' refused 73 'which holds data of an unknown kind' \
    dolmen bench "nbd+unix:///?socket=$run/nbdkit" --size 64M
must 'nobody there is told' refused 75 'connecting to' dolmen bench "nbd+unix:///?socket=$run/nobody"

step 'spaces'
must 'disks' make_disks 512 a b
must 'the daemon answers' daemon_start
must 'the pool is made' dolmen pool create "$pool" "$disks"/*
must 'one is made' dolmen space create "$pool/attached" --size 128M
must 'another is made' dolmen space create "$pool/served" --size 128M
must 'neither attached nor served, it cannot be reached' refused 75 'neither attached nor served
dolmen space attach' dolmen bench "$pool/attached"
must 'attached' attach_space attached
must 'served' was_served
must 'side by side' bench spaces "$pool/attached" "$pool/served" --runtime 1 --ramp 0 --size 64M --outstanding 8 -p restore --flush none
must 'five rounds give a verdict' reported spaces 2
must 'the verdict is in the document' grep -q '"verdict":"\(faster\|slower\|equal\|too_noisy\)"' "$reports/spaces.json"
must 'detached' dolmen space detach "$pool/attached"
must 'no longer served' dolmen unserve "$pool/served"

step 'told to end'
must 'ends by the signal' interrupted
must 'leaves no file' is_empty "$run/folder"
must 'keeps what it has' grep -q '"how":"interrupted"' "$reports/part.json"

if [ -z "${DOLMEN_BIN:-}" ]; then
    step 'the engine by itself'
    must 'is built' build_bench
    must 'sustained small writes cost at most 5.5 disk I/Os, and are there afterwards' sustained_within 5.5
    must 'a limit below that fails' beyond 1.00
    must 'told to end, it ends' sustained_interrupted
    must 'and leaves no file' eventually 10 is_empty "$run/folder"
fi

step 'the offline check'
must 'exported' dolmen pool export "$pool"
must 'the daemon ends' daemon_stop
must 'finds the pool clean' cli_check "$disks"/*
close_script

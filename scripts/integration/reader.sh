#!/bin/sh
# The independent reader against the daemon: what scripts/read_pool.py extracts is what was written, for each resiliency; from
# a pool that was closed, from one whose daemon was killed under load, without disks, over flipped bits. Bad input is refused in
# words. No root.
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='the reader'
way=nbd
data=$run/data
spaces='simple span two three four parity dual strict alone'

reader() { python3 "$root/scripts/read_pool.py" "$@"; }
client() { attend -- python3 "$root/scripts/integration/reader_client.py" "$@"; }

# --- a pool and its content ----------------------------------------------------------------------------------------

make_files() { make_disk a 96 && make_disk b 112 && make_disk c 128 && make_disk d 144 && make_disk e 160 && make_disk f 96; }

# make_space NAME OPTION...
make_space() {
    make_name=$1
    shift
    dolmen space create "$pool/$make_name" --size 4M --resiliency "$@" >>"$logs/make.log"
}
make_spaces() {
    make_space simple simple && make_space span span && make_space two mirror && make_space three mirror --copies 3 &&
        make_space four mirror --copies 4 && make_space parity parity && make_space dual parity --parity 2 &&
        make_space strict mirror --strict && make_space alone simple --strict
}

# Sets uris to what the client wants.
serve_all() {
    uris=
    for serve_name in $spaces; do
        serve_uri=$(dolmen serve "$pool/$serve_name" | tail -n 1) && [ -n "$serve_uri" ] || return 1
        uris="$uris $serve_name=$serve_uri"
    done
}

# shellcheck disable=SC2086 # lists of words
fill() { client fill "$data" 1 $uris; }
# shellcheck disable=SC2086
fetch() { client fetch "$data" $uris; }

# The daemon dies in the midst of writes to all spaces; the client ends when it does.
killed_in_a_storm() {
    # shellcheck disable=SC2086
    begin -- python3 "$root/scripts/integration/reader_client.py" storm "$data" 2 $uris >"$logs/storm.log" 2>&1
    storm_pid=$!
    eventually 20 test -e "$data/going" || { cat "$logs/storm.log" >&2; return 1; }
    daemon_kill && wait "$storm_pid"
}

# --- reading -------------------------------------------------------------------------------------------------------

# extract STATUS SPACES DISK...: leaves with that status; of these spaces all but the ranges that it names is right. What it
# said is in $run/said, how it compared in $run/compared.
extract() {
    extract_status=$1
    extract_spaces=$2
    shift 2
    rm -rf "$run/out"
    case $extract_spaces in
    *' '*) reader extract-all "$run/out" "$@" >"$run/said" 2>&1 ;;
    *) mkdir "$run/out" && reader extract "$extract_spaces" "$run/out/$extract_spaces" "$@" >"$run/said" 2>&1 ;;
    esac
    extract_code=$?
    # shellcheck disable=SC2086 # a list of words
    ! grep -q Traceback "$run/said" && is "$extract_code" -eq "$extract_status" && client compare "$data" "$run/out" "$run/said" $extract_spaces >"$run/compared" && return 0
    head -n 20 "$run/said" >&2
    return 1
}

# The daemon, which has recovered, serves what the reader had found: each block in flight was decided alike.
decided_alike() {
    for alike_name in $spaces; do
        cmp "$run/out/$alike_name" "$data/$alike_name.served" || return 1
    done
}

# without LETTERS LOST: without these disks all is there but of the spaces LOST.
without() {
    without_letters=$1
    without_lost=$2
    set --
    for without_disk in "$disks"/*; do
        case $without_letters in *"$(basename "$without_disk")"*) ;; *) set -- "$@" "$without_disk" ;; esac
    done
    extract 1 "$spaces" "$@" || { warn "without $without_letters"; return 1; }
    for without_name in $spaces; do
        case " $without_lost " in *" $without_name "*) continue ;; esac
        ! grep "MISSING $without_name:" "$run/said" >&2 || { warn "without $without_letters"; return 1; }
    done
}

each_one_left_out() {
    for one_letter in a b c d e f; do
        without "$one_letter" 'simple span alone' || return 1
    done
    grep -q 'MISSING simple: bytes .*: the disks that hold it are not here' "$run/said"
}
two_left_out() {
    for two_letters in ab cf de; do
        without "$two_letters" 'simple span alone two parity strict' || return 1
    done
}
three_left_out() { without bde 'simple span alone two three parity dual strict'; }

shows_all() {
    reader list "$disks"/* >"$logs/list.log" || return 1
    for shows_word in "pool $pool" 'slot 0 ' 'slot 5 ' "$disks/c" 'simple, thin' 'span, thin' 'mirror of 2, thin' 'mirror of 4, thin' \
        'parity 1, thin' 'parity 2, thin' '4194304 bytes' 'rows: 1 claimed of 1'; do
        grep -qF -- "$shows_word" "$logs/list.log" || { warn "no '$shows_word'"; cat "$logs/list.log" >&2; return 1; }
    done
    reader list "$disks"/[a-e] | grep 'slot 5 ' | grep -q absent
}

# --- damage --------------------------------------------------------------------------------------------------------

# All disks again, to be spoilt, in $run/spoilt.
spoil_copies() { rm -rf "$run/spoilt" && cp -r --sparse=always "$disks" "$run/spoilt"; }

flipped_simple() {
    spoil_copies && client flip "$data" simple "$run/spoilt"/* && extract 1 simple "$run/spoilt"/* && grep -q ' 1 missing' "$run/compared" &&
        grep -q 'MISSING simple: bytes .*(4096): no copy here is what its checksum says' "$run/said"
}
flipped_others() {
    spoil_copies || return 1
    for flipped_name in two parity dual; do
        client flip "$data" "$flipped_name" "$run/spoilt"/* || return 1
    done
    extract 0 "$spaces" "$run/spoilt"/*
}

# put FILE AT TEXT: bytes in a file.
put() { printf '%b' "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
back_of() { echo $(($(stat -c %s "$1") / 1048576 * 1048576 - 1048576)); }

# The front labels, then the whole metadata area of disks; the others have all of it.
without_metadata() {
    spoil_copies || return 1
    dd if=/dev/zero of="$run/spoilt/c" bs=64k seek=1 count=2 conv=notrunc status=none
    dd if=/dev/zero of="$run/spoilt/d" bs=1M seek=1 count=8 conv=notrunc status=none
    extract 0 "$spaces" "$run/spoilt"/*
}

cut_short() {
    spoil_copies && truncate -s 40M "$run/spoilt/b" && extract 0 parity "$run/spoilt"/* && grep -q 'spoilt/b .*cut short' "$run/said"
}

# --- bad input -----------------------------------------------------------------------------------------------------

make_bad() {
    spoil_copies && mkdir -p "$run/bad" && : >"$run/bad/empty" && head -c 3000000 /dev/urandom >"$run/bad/noise" &&
        head -c 66000 "$disks/a" >"$run/bad/stump" && cp --sparse=always "$disks/a" "$run/bad/copy" &&
        truncate -s 64M "$run/bad/other" && dolmen pool create other "$run/bad/other" >>"$logs/make.log"
}
later_version() {
    for later_at in 65536 131072 "$(back_of "$run/spoilt/f")" "$(($(back_of "$run/spoilt/f") + 65536))"; do
        put "$run/spoilt/f" $((later_at + 8)) '\377' || return 1
    done
}

# bad WORDS ARGUMENT...: refused with 2, with these words, and without a traceback.
bad() {
    bad_words=$1
    shift
    must "$bad_words" refused 2 "^read_pool: .*$bad_words" reader "$@"
}

open_script 2048 python3
mkdir -p "$data"

step 'a pool with a space of each kind'
must 'disks' make_files
must 'the daemon answers' daemon_start
must 'the pool is made' dolmen pool create "$pool" "$disks"/*
must 'spaces' make_spaces
must 'served' serve_all
must 'written, rewritten, discarded, flushed in parts' fill
must 'the reader waits for the daemon to end' refused 2 'in use' reader list "$disks"/*
must 'the daemon ends' daemon_stop

step 'a pool that was closed'
must 'the list shows all' shows_all
must 'all spaces are what was written' extract 0 "$spaces" "$disks"/*

step 'a daemon that was killed under load'
must 'the daemon answers' daemon_start
must 'served' serve_all
must 'killed in the midst of writes' killed_in_a_storm
must 'each one of the disks left out' each_one_left_out
must 'two left out: what is gone is named, the rest is right' two_left_out
must 'three left out' three_left_out
must 'a flipped bit in the only copy is named' flipped_simple
must 'a flipped bit in another is made good' flipped_others
must 'labels, log and map of single disks gone' without_metadata
must 'a disk cut short counts as absent' cut_short
must 'all spaces are what was written' extract 0 "$spaces" "$disks"/*
must 'the daemon answers' daemon_start
must 'served' serve_all
must 'all read from the daemon' fetch
must 'which has decided every block as the reader did' decided_alike

step 'bad input'
must 'made' make_bad
must 'the daemon ends' daemon_stop
must 'with a later version' later_version
bad 'it has no label' list "$run/bad/empty"
bad 'it has no label' list "$run/bad/noise" "$disks"/*
bad 'none can be used: the label is cut off' list "$run/bad/stump"
bad 'same disk, or one is a copy' list "$disks"/* "$run/bad/copy"
bad 'give the disks of one pool' list "$disks"/* "$run/bad/other"
bad 'neither a file nor a block device' list "$run/bad"
bad 'No such file' list "$run/bad/nothing"
bad 'it takes a newer reader' list "$run/spoilt"/*
bad 'has no space five; it has .*dual' extract five "$run/five" "$disks"/*
bad 'File exists' extract two "$run/out/two" "$disks"/*
bad 'none of the 4 disks that carry log and map' list "$disks/a" "$disks/f"
must 'nothing is written by a refusal' test ! -e "$run/five"
must 'the check finds the pool clean' cli_check "$disks"/*
close_script

#!/bin/sh
# Spaces served over NBD, to the clients that people use: nbdinfo, nbdcopy, qemu-img, qemu-io, fio and libnbd. No root.
#
# DOLMEN_NBD_MIB   the size of the spaces and of the image that goes through them (default: 256)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='NBD'
way=nbd
mib=${DOLMEN_NBD_MIB:-256}

# serve NAME [OPTION]...: sets $uri.
serve() {
    serve_name=$1
    shift
    uri=$(dolmen serve "$pool/$serve_name" "$@" | tail -n 1) && [ -n "$uri" ]
}

make_spaces() {
    dolmen space create "$pool/one" --size "${mib}M" --resiliency mirror &&
        dolmen space create "$pool/two" --size "${mib}M" --resiliency simple &&
        dolmen space create "$pool/still" --size 64M --resiliency span
}

serve_all() {
    serve still --read-only && still=$uri && serve two && two=$uri && serve one && one=$uri
}

# An image with real content, holes, and content at its very end.
make_image() {
    truncate -s "${mib}M" "$run/image" &&
        tar -C / -cf - -T "$run/list" 2>>"$logs/copy.log" | head -c "$((mib * 1048576 / 4))" |
        dd of="$run/image" bs=64k seek=$((mib * 2)) conv=notrunc iflag=fullblock status=none &&
        head -c 12288 /dev/urandom | dd of="$run/image" bs=4096 seek=$((mib * 256 - 3)) conv=notrunc iflag=fullblock status=none
}

# has FILE LINE...: the file has each of these, as text.
has() {
    has_file=$1
    shift
    for has_line in "$@"; do
        grep -qF -- "$has_line" "$has_file" || { warn "$has_file has no '$has_line'"; cat "$has_file" >&2; return 1; }
    done
}

information() {
    nbdinfo --json "$one" >"$logs/nbdinfo.log" || return 1
    has "$logs/nbdinfo.log" '"protocol": "newstyle-fixed"' '"TLS": false' '"structured": true' \
        "\"export-name\": \"$pool/one\"" '"base:allocation"' '"is_rotational"' '"is_read_only": false' \
        '"can_cache": true' '"can_df": true' '"can_fast_zero": true' '"can_flush": true' '"can_fua": true' \
        '"can_multi_conn": true' '"can_trim": true' '"can_zero": true' '"block_size_minimum": 512' \
        '"block_size_preferred": 262144' '"block_size_maximum": 67108864' "\"export-size\": $((mib * 1048576))"
}

lists_all() {
    nbdinfo --list --json "$one" >"$logs/nbdlist.log" && has "$logs/nbdlist.log" "\"$pool/one\"" "\"$pool/two\"" "\"$pool/still\""
}

# map_is FIRST LENGTH TYPE: such a line is in the map of one; FIRST and LENGTH in bytes.
map_is() { nbdinfo --map "$one" | awk -v first="$1" -v length_="$2" -v type="$3" '$1 == first && $2 == length_ && $3 == type { found = 1 } END { exit !found }'; }

into() { nbdcopy --flush "$run/image" "$one"; }
back() { rm -f "$run/back" && nbdcopy "$one" "$run/back" && cmp "$run/image" "$run/back"; }
across() { nbdcopy --flush "$one" "$two" && nbdcopy "$two" - | cmp - "$run/image"; }

convert_in() { qemu-img convert -n -f raw -O raw "$run/image" "$two"; }
convert_out() { qemu-img convert -f raw -O qcow2 "$two" "$run/image.qcow2" && qemu-img compare -q -f qcow2 -F raw "$run/image.qcow2" "$run/image"; }
convert_back() { qemu-img convert -n -f qcow2 -O raw "$run/image.qcow2" "$one"; }
same() { qemu-img compare -q -f raw -F raw "$1" "$2"; }
# In its own words, zeros are what is not allocated here.
qemu_map() { qemu-img map --output=json -f raw "$one" >"$logs/qemu-map.log" && has "$logs/qemu-map.log" '"zero": true, "data": false' '"zero": false, "data": true'; }
qemu_info() { qemu-img info -f raw "$one" >"$logs/qemu-info.log" && has "$logs/qemu-info.log" "($((mib * 1048576)) bytes)"; }

# qemu COMMAND...: in one qemu-io, which says so when a pattern does not match.
qemu() {
    for qemu_command in "$@"; do
        set -- "$@" -c "$qemu_command"
        shift
    done
    qemu-io -f raw "$@" "$one" >"$logs/qemu-io.log" 2>&1 && ! grep -qi 'fail\|error\|invalid' "$logs/qemu-io.log" && return 0
    cat "$logs/qemu-io.log" >&2
    return 1
}

patterns() {
    qemu 'write -P 0x11 0 8M' 'write -P 0x22 4096 4096' 'flush' 'read -P 0x11 0 4096' 'read -P 0x22 4096 4096' \
        'read -P 0x11 8192 65536' 'write -f -P 0x33 1M 64k' 'read -P 0x33 1M 64k' 'writev -P 0x44 2M 4k 8k 64k' \
        'read -P 0x44 2M 76k' 'aio_write -P 0x55 3M 1M' 'aio_write -P 0x66 4M 1M' 'aio_flush' 'read -P 0x55 3M 1M' 'read -P 0x66 4M 1M'
}
zeros() {
    qemu 'write -P 0x11 0 8M' 'write -z 1M 64k' 'write -z -u 2M 1M' 'write -z -n -u 3M 64k' 'write -z 4098048 5000' \
        'read -P 0 1M 64k' 'read -P 0 2M 1M' 'read -P 0x11 1114112 64k' 'read -P 0 4098048 5000' 'read -P 0x11 4103048 1000' 'read -P 0x11 4097000 1048'
}
discards() {
    qemu 'write -P 0x77 0 16M' 'discard 4M 4M' 'read -P 0x77 0 4M' 'read -P 0 4M 4M' 'read -P 0x77 8M 8M' 'flush'
}

fio_verifies() {
    attend -- fio --name=nbd --ioengine=nbd --uri="$one" --rw=randrw --bsrange=4k-256k --blockalign=4k --size="${mib}M" \
        --io_size="$((mib / 2))M" --iodepth=32 --verify=crc32c --verify_fatal=1 --verify_state_save=0 >"$logs/fio.log" 2>&1 ||
        { tail -n 20 "$logs/fio.log" >&2; return 1; }
}

# Blocks of 512 bytes, as a client sends them that never asks for block sizes.
fio_verifies_sectors() {
    attend -- fio --name=sectors --ioengine=nbd --uri="$one" --rw=randrw --bsrange=512-64k --blockalign=512 --size=16M \
        --io_size=32M --iodepth=16 --verify=crc32c --verify_fatal=1 --verify_state_save=0 >"$logs/fio-sectors.log" 2>&1 ||
        { tail -n 20 "$logs/fio-sectors.log" >&2; return 1; }
}

# Sets python to one that knows libnbd.
find_python() {
    for python in python3 /usr/bin/python3; do
        "$python" -c 'import nbd' >/dev/null 2>&1 && return 0
    done
    return 1
}

wrong_name() { refused 1 'tank/nothing\|No such file' nbdinfo "$(printf '%s' "$one" | sed 's,/one?,/nothing?,')"; }

step_libnbd() {
    step 'libnbd'
    if ! find_python && ! { apt_install python3-libnbd && find_python; }; then
        skip 'libnbd from Python (the package python3-libnbd is missing)'
        return
    fi
    must 'all checks' attend -- "$python" "$root/scripts/integration/nbd_client.py" "$one" "$still" "$two"
}

# count_of NAME: a counter of the daemon's engine.
count_of() { curl -sf --unix-socket "$socket" http://dolmen/v1/counters | tr ',{' '\n\n' | sed -n "s/^\"$1\"://p" | head -n 1; }

counted_ios=20000
# What an I/O of a client costs the daemon beside work: nobody wakes or asks the engine's thread for it.
counts_per_io() {
    counts_before="$(count_of messages) $(count_of unparks) $(count_of polls)"
    attend -- fio --name=counted --ioengine=nbd --uri="$one" --rw=randrw --bs=4k --size="${mib}M" --number_ios=$counted_ios \
        --iodepth=8 --randseed=7 >"$logs/counted.log" 2>&1 || { tail -n 20 "$logs/counted.log" >&2; return 1; }
    counts_after="$(count_of messages) $(count_of unparks) $(count_of polls)"
    echo "$counts_before $counts_after $counted_ios" | awk '{
        printf "   | of %d reads and writes of 4 KiB each took %.4f messages to the engine, %.4f wake-ups and %.2f polls of tasks\n", $7, ($4 - $1) / $7, ($5 - $2) / $7, ($6 - $3) / $7
        exit ($4 - $1) / $7 > 0.01 || ($5 - $2) / $7 > 0.01 || $6 <= $3
    }'
}

step_fio() {
    step "fio's nbd engine"
    if ! need fio; then
        skip "fio's nbd engine (missing: fio)"
    elif ! fio --enghelp 2>/dev/null | grep -qw nbd; then
        skip "fio's nbd engine (this fio was built without it)"
    else
        must 'random reads and writes, verified' fio_verifies
        must 'the same in blocks of 512 bytes' fio_verifies_sectors
        if need curl; then
            must 'what each costs the engine is counted' counts_per_io
        else
            skip 'what each read and write costs the engine (missing: curl)'
        fi
    fi
}

open_script $((mib * 8 + 512)) nbdinfo nbdcopy qemu-img qemu-io

step 'spaces, served'
must 'disks' make_disks $((mib * 4)) a b c
must 'the daemon answers' daemon_start
must 'the pool is made' dolmen pool create "$pool" "$disks"/*
must 'spaces' make_spaces
must 'served' serve_all
must 'an image' pick_tree $((mib / 4))
must 'of real content, with holes' make_image

step 'nbdinfo'
must 'says all that is offered' information
must 'lists the exports' lists_all
must 'a new space is one hole' map_is 0 $((mib * 1048576)) 3
must 'a wrong name is refused' wrong_name

step 'nbdcopy'
must 'the image goes in' into
must 'and comes back' back
must 'the map shows the hole before the content' map_is 0 $((mib * 131072)) 3
must 'from space to space, and back' across

step 'qemu-img'
must 'info' qemu_info
must 'map' qemu_map
must 'compare' same "$run/image" "$one"
must 'convert into a space' convert_in
must 'compare two spaces' same "$one" "$two"
must 'convert to qcow2 and compare' convert_out
must 'convert from qcow2' convert_back
must 'compare' same "$run/image" "$one"

step 'qemu-io'
must 'patterns, flush, FUA, vectors, many at a time' patterns
must 'zeros' zeros
must 'discard' discards

step_fio
step_libnbd

step 'the daemon is restarted, and serves what it served'
must 'the image goes in' into
must 'the daemon ends' daemon_stop
must 'the daemon answers' daemon_start
must 'the image is there' back
show_status
must 'exported' dolmen pool export "$pool"
must 'the daemon ends' daemon_stop
must 'the check finds the pool clean' cli_check "$disks"/*
close_script

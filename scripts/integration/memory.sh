#!/bin/sh
# The daemon never waits for its own device: it and those who write share a control group with little memory, and several
# times as much is made dirty on a space whose disks are files. It has to go through, and nobody may be killed.
#
# A daemon that the system does not let be an I/O flusher (CAP_SYS_RESOURCE) does wait there: whatever memory the kernel
# takes on its behalf may then have to come from pages that only it can write back. Its log says so at its start. Where
# that is so, only those who write are in the group, and the daemon is beside it.
#
# Made for other machines too: it needs no more than a shell, the usual tools, fio and a program, which DOLMEN_BIN names. The
# state directory (DOLMEN_STATE) has to be on a disk: files of a file system in memory would count against the limit.
#
# DOLMEN_MEMORY_MIB       the limit (default: 512, of which the daemon locks some 280; without it 128)
# DOLMEN_MEMORY_TIMES     how many times the limit is written (default: 4)
# DOLMEN_MEMORY_SECONDS   how long writing, and reading back, may take (default: 300)
# DOLMEN_MEMORY_WAY       how the space is attached, ublk or loop (default: loop)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='little memory'
times=${DOLMEN_MEMORY_TIMES:-4}
seconds=${DOLMEN_MEMORY_SECONDS:-300}
attach_way=${DOLMEN_MEMORY_WAY:-loop}
mnt=$run/mnt/home

# --- the control group -----------------------------------------------------------------------------------------------

# Sets group_root and version to where control groups that limit memory can be made.
find_groups() {
    for version in 2 1; do
        find_kind=cgroup2
        [ "$version" = 2 ] || find_kind=cgroup
        group_root=$(awk -v kind="$find_kind" '{ for (i = 1; i <= NF; i++) if ($i == "-" && $(i + 1) == kind && (kind == "cgroup2" || $(i + 3) ~ /(^|,)memory(,|$)/)) { print $5; exit } }' /proc/self/mountinfo)
        [ -n "$group_root" ] || continue
        [ "$version" = 1 ] || grep -qw memory "$group_root/cgroup.controllers" || continue
        return 0
    done
    return 1
}

# set_group FILE VALUE
set_group() { printf '%s' "$2" | as_root tee "$group/$1" >/dev/null 2>&1; }

make_group() {
    group=$group_root/dolmen-memory-$$
    note cgroup "$group"
    if [ "$version" = 2 ]; then
        printf '+memory' | as_root tee "$group_root/cgroup.subtree_control" >/dev/null 2>&1
        as_root mkdir "$group" && set_group memory.max "${limit_mib}M" && { set_group memory.swap.max 0 || :; }
    else
        as_root mkdir "$group" && set_group memory.limit_in_bytes "${limit_mib}M" && { set_group memory.swappiness 0 || :; }
    fi
}

# How often the limit was reached, and how many processes were killed for it.
times_reached() {
    if [ "$version" = 2 ]; then sed -n 's/^max //p' "$group/memory.events"; else cat "$group/memory.failcnt"; fi
}
killed_count() {
    if [ "$version" = 2 ]; then sed -n 's/^oom_kill //p' "$group/memory.events"; else sed -n 's/^oom_kill //p' "$group/memory.oom_control"; fi
}
used_mib() {
    if [ "$version" = 2 ]; then used_file=memory.current; else used_file=memory.usage_in_bytes; fi
    echo $(($(cat "$group/$used_file") / 1048576))
}

# Becomes a command within the group.
make_join() {
    cat >"$run/join" <<'JOIN'
echo $$ >"$1/cgroup.procs" || exit 1
shift
exec "$@"
JOIN
}
# within COMMAND...: waits for it.
within() {
    # shellcheck disable=SC2046 # a list of words
    attend -- $(rights) sh "$run/join" "$group" "$@"
}

# --- the work --------------------------------------------------------------------------------------------------------

make_home() {
    # shellcheck disable=SC2046 # a list of words
    dolmen space create "$pool/home" --size "$((limit_mib * times * 3 / 2 + 512))M" --resiliency mirror && attach_space home &&
        within mkfs.ext4 -q "$device" && mount_space home
}

# jobs [OPTION]...: through the page cache, with checksums in each block.
jobs() {
    within timeout "$seconds" fio --directory="$mnt" --size="${job_mib}M" --ioengine=psync --fallocate=none --verify=crc32c \
        --verify_fatal=1 --verify_state_save=0 --name=stream --rw=write --bs=1M "$@" \
        --name=random --rw=randwrite --bs=16k "$@" >>"$logs/fio.log" 2>&1 || { tail -n 20 "$logs/fio.log" >&2; return 1; }
}

remount() { privileged umount "$mnt" && mount_space home; }
nobody_killed() { is "$(killed_count)" -eq 0; }

# Whether a process of ours may be what the daemon has to be: bit 24 of the capabilities is CAP_SYS_RESOURCE.
can_flush_io() { as_root sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status | { read -r can_mask; [ $((0x$can_mask >> 24 & 1)) -eq 1 ]; }; }

choose_limit() {
    members_word='writers and daemon'
    limit_mib=${DOLMEN_MEMORY_MIB:-512}
    if ! can_flush_io; then
        skip 'the daemon within the group (this system does not grant CAP_SYS_RESOURCE, so it is no I/O flusher); only those who write are in it'
        members_word=writers
        limit_mib=${DOLMEN_MEMORY_MIB:-128}
    fi
    # Two writers share what is written.
    job_mib=$((limit_mib * times / 2))
}

start_daemon() {
    if [ "$members_word" = writers ]; then
        daemon_start
    else
        daemon_start sh "$run/join" "$group" && grep -qx "$(daemon_self)" "$group/cgroup.procs"
    fi
}

is_in_memory() { [ "$(stat -f -c %T "$1")" = tmpfs ]; }

open_script $((${DOLMEN_MEMORY_MIB:-512} * times * 3 + 1024)) mkfs.ext4 fio
if ! find_groups; then
    skip "$script (no control group of this system limits memory)"
    exit 0
fi
if is_in_memory "$state"; then
    skip "$script ($state is in memory, and would count against the limit; set DOLMEN_STATE to a folder on a disk)"
    exit 0
fi
choose_limit
if ! make_group; then
    skip "$script (cannot make a control group in $group_root)"
    exit 0
fi
: >"$logs/fio.log"
make_join

step "$members_word in a control group of $limit_mib MiB (version $version), attached by $attach_way"
must 'disks' make_disks $((limit_mib * times * 2 + 2048)) a b c
must 'the daemon answers' start_daemon
must 'the pool is made' dolmen pool create "$pool" "$disks"/*
must 'ext4 is mounted' make_home
say "   | the group uses $(used_mib) MiB"

step "$times times as much is made dirty"
must "$((job_mib * 2)) MiB are written and flushed" jobs --do_verify=0 --end_fsync=1
say "   | the limit was reached $(times_reached) times"
must 'the limit was reached' is "$(times_reached)" -gt 0
must 'nobody was killed' nobody_killed

step 'and read back'
must 'mounted again' remount
must 'every block is what was written' jobs --verify_only
must 'nobody was killed' nobody_killed
must 'closed' close_space home

step 'the end'
must 'exported' dolmen pool export "$pool"
must 'the daemon ends' daemon_stop
must 'the check finds the pool clean' cli_check "$disks"/*
close_script

#!/bin/sh
# The Python client: its generated files are those of the OpenAPI document, its tests pass, and each verb of the document is called
# against a daemon, with answers that fit the document.
#
# Ganesha and Samba get private configurations, and none of them is started: shares are put on record alone.
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='the Python client'
client=$root/clients/python

# write_servers: what the daemon has to know of the servers of shares.
write_servers() {
    mkdir -p "$run/blocks"
    {
        printf '%%dir "%s"\n' "$run/blocks"
        printf 'EXPORT { Export_Id = 1; Path = %s; Pseudo = /other; Protocols = 4; FSAL { Name = VFS; } }\n' "$run/other"
    } >"$run/ganesha.conf"
    printf '{"lock": "%s", "smb_conf": "%s", "nfs": {"by": "ganesha", "ganesha_conf": "%s", "blocks_dir": "%s", "pid_file": "%s"}}\n' \
        "$run/servers.lock" "$run/smb.conf" "$run/ganesha.conf" "$run/blocks" "$run/ganesha.pid" >"$run/servers.json"
}

# python FILE [WORD]...: runs it in the folder of the client, and leaves nothing there.
python() { attend -- env -C "$client" python3 -B "$@" >>"$logs/python.log" 2>&1; }

# each_verb: the tests with a daemon, as root. Mount points lie in the folder of the disks.
each_verb() {
    for each_volume in old home counted; do note mount "$disks/$each_volume"; done
    # shellcheck disable=SC2046 # a list of words
    attend -- $(rights) env -C "$client" "DOLMEN_TEST_SOCKET=$socket" "DOLMEN_TEST_FOLDER=$disks" "DOLMEN_TEST_BTRFS=$has_btrfs" \
        python3 -B -m unittest tests.test_daemon >"$logs/verbs.log" 2>&1
}

# Nothing is installed for it: the client is for machines that have Python.
have python3 || { skip "$script (missing: python3)"; exit 0; }
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || { skip "$script (Python is older than 3.9)"; exit 0; }
take_program
started=$(now)
: >"$logs/python.log"
step 'without a daemon'
must 'the generated files are those of the document' python generate.py --check
must 'the tests pass against a server of their own' python -m unittest
have openssl || skip "$script: HTTPS (missing: openssl)"
can_block mkfs.xfs mkfs.ext4 || { skip "$script with a daemon ($blocked_by)"; exit 0; }
knows_filesystem xfs || { skip "$script with a daemon (the kernel does not know XFS)"; exit 0; }
has_btrfs=no
if have mkfs.btrfs && knows_filesystem btrfs; then has_btrfs=yes; else skip "$script: quotas (no btrfs)"; fi
have ganesha.nfsd || skip "$script: answers about a share (missing: ganesha.nfsd)"

make_run 4096
daemon_options="--links $run/links --named-only"
step 'each verb of the document'
must 'settings of servers that are this script'\''s own' write_servers
must 'six disks' make_disks 2048 a b c d e f
must 'the daemon answers' daemon_start env "DOLMEN_SERVERS=$run/servers.json"
must 'each verb answers as the document says' each_verb
sed -n 's/^\([0-9]* of [0-9]* verbs .*\)/   | \1/p' "$logs/verbs.log"
must 'the daemon ends' daemon_stop
close_script

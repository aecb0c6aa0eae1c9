#!/bin/sh
# Shares whose server or client is the kernel: NFS 3 and 4.2 by nfsd, clones over NFS, SMB by cifs, quotas of XFS, and what the way over
# a share costs on slow disks.
#
# It changes /etc/exports.d and starts servers of the system's configuration, so it is for a machine that nothing else is done on:
# scripts/guest.sh shares_kernel. What this kernel does not have is named and left out.
#
# DOLMEN_KERNEL_SHARES   parts to run alone, with commas between, of clone, quota, fio and postgres (default: all)
# DOLMEN_KERNEL_DELAY    milliseconds that each command of a slow disk takes (default: 40)
# DOLMEN_KERNEL_SECONDS  how long each load on slow disks runs (default: 30)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='shares by the kernel'

open_script 64 mkfs.xfs
[ "${DOLMEN_KERNEL_MACHINE:-no}" = yes ] || { skip "$script (not a machine of its own; scripts/guest.sh shares_kernel)"; exit 0; }
for module in xfs nfsd nfs nfsv4 nfsv3 cifs dm_delay brd loop fuse; do modprobe "$module" 2>/dev/null || :; done
missing_of python3 rpc.nfsd rpc.mountd exportfs rpcbind mount.nfs && { skip "$script (missing:$missing)"; exit 0; }
{ knows_filesystem xfs && knows_filesystem nfsd && knows_filesystem nfs; } || { skip "$script (the kernel lacks XFS or NFS)"; exit 0; }
wanted=$(printf '%s' "${DOLMEN_KERNEL_SHARES:-clone,quota,fio,postgres}" | tr ',' ' ')
drop() { wanted=$(printf '%s' "$wanted" | sed "s/\\<$1\\>//"); }
missing_of fio dmsetup && { skip "$script: load on slow disks (missing:$missing)"; drop fio; drop postgres; }
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { skip "$script: PostgreSQL (it is not installed)"; drop postgres; }
if missing_of smbd smbpasswd net; then
    skip "$script: SMB (missing:$missing)"
    drop quota
else
    wanted="$wanted smb"
fi
# shellcheck disable=SC2086 # a list of words
python3 -B "$root/scripts/integration/shares_kernel_client.py" "$bin" "$run" "$logs/servers.log" $wanted || fail 'the shares'
say "$script: $(($(now) - started)) s after the build"

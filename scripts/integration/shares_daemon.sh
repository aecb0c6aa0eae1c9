#!/bin/sh
# Shares through the daemon, as users have them: `dolmen share` on volumes of a pool, Samba and Ganesha, real clients.
#
# All of it runs in namespaces of its own for network, mounts and processes, with private configurations. Samba needs accounts of
# the system: the script takes `games` and `news` and gives them passwords in private databases.
#
# DOLMEN_SHARES    parts to run alone, with commas between, of serve, files, copy, torture, names, quota, kills, refusals
#                  and move (default: all)
# DOLMEN_COPY_MIB  size of a sparse file that is copied, and of its data (default: 1024,64); at large: 76800,2048
# DOLMEN_SAMBA_ROOT  a root with Samba 4.22 or later and python3-samba, for the copy by a clone call, which is skipped by name else:
#                  debootstrap --variant=minbase trixie ROOT; chroot ROOT apt-get install --no-install-recommends samba smbclient
#                  python3-samba
# DOLMEN_TORTURE_SECONDS   for each suite of smbtorture (default: 120)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='shares through the daemon'

open_script 4096 mkfs.xfs
missing_of python3 unshare ip smbd net smbclient smbpasswd testparm smbcontrol smbstatus && { skip "$script (missing:$missing)"; exit 0; }
as_root unshare -n -m -p -f true 2>/dev/null || { skip "$script (no namespaces)"; exit 0; }
knows_filesystem xfs || { skip "$script (the kernel does not know XFS)"; exit 0; }
: >"$logs/servers.log"
choose_share_servers
if have mkfs.btrfs && knows_filesystem btrfs; then
    parts="$parts btrfs"
else
    skip "$script: quotas (no btrfs)"
fi

drop() { wanted=$(printf '%s' "$wanted" | sed "s/\\<$1\\>//"); }
wanted=$(printf '%s' "${DOLMEN_SHARES:-serve,files,copy,torture,names,quota,kills,refusals,move}" | tr ',' ' ')
missing_of smbtorture && { skip "$script: smbtorture (it is not installed)"; drop torture; }
missing_of tc nsenter && { skip "$script: a copy over a shaped link (missing:$missing)"; drop copy; }
# shellcheck disable=SC2046,SC2086 # lists of words
attend below "$run" -- $(rights) unshare -n -m -p -f --kill-child --mount-proc --propagation private \
    sh "$root/scripts/apart.sh" python3 -B "$root/scripts/integration/shares_daemon_client.py" "$bin" "$run" "$logs/servers.log" \
    $parts $wanted ||
    fail 'the shares'
say "$script: $(($(now) - started)) s after the build"

#!/bin/sh
# Shares on real servers, driven by orders to dolmen-worker: Samba with smbclient, Ganesha with libnfs, exportfs.
#
# All of it runs in namespaces of its own for network, mounts and processes, with private configurations. Samba needs an
# account of the system: the script takes `games` and gives it a password in a private database. A server that is not
# installed is skipped by name.
#
# DOLMEN_WORKER_BIN   a dolmen-worker that was built elsewhere
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='shares'
worker_bin=${DOLMEN_WORKER_BIN:-$(dirname "$bin")/dolmen-worker}

# Beside a program that was built elsewhere, it has to be there.
build_worker() {
    [ -z "${DOLMEN_WORKER_BIN:-}${DOLMEN_BIN:-}" ] || return 0
    need_rust
    fetch_crates
    # shellcheck disable=SC2086 # a list of words
    attend -- cargo build --release --locked $as_users --package dolmen-worker --bin dolmen-worker
}

take_state
build_worker || die 1 'the build failed'
[ -x "$worker_bin" ] || die 1 "there is no $worker_bin"
missing_of python3 unshare ip && { skip "$script (missing:$missing)"; exit 0; }
can_root || { skip "$script (no root and no sudo without a password)"; exit 0; }
as_root unshare -n -m -p -f true 2>/dev/null || { skip "$script (no namespaces)"; exit 0; }
make_run 1024
: >"$logs/servers.log"

choose_share_servers
[ -n "$parts" ] || exit 0
if knows_filesystem xfs && have mkfs.xfs && have losetup && [ -e /dev/loop-control ]; then
    parts="volume $parts"
else
    skip "$script of a mounted volume (no XFS or no loop devices); a folder takes its place"
fi

started=$(now)
# shellcheck disable=SC2046,SC2086 # lists of words
attend below "$run" -- $(rights) unshare -n -m -p -f --kill-child --mount-proc --propagation private \
    sh "$root/scripts/apart.sh" python3 -B "$root/scripts/integration/shares_client.py" "$worker_bin" "$run" "$logs/servers.log" $parts ||
    fail 'the shares'
say "$script: $(($(now) - started)) s after the build"

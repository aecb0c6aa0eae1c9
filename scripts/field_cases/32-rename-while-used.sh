#!/bin/bash
# Source: openzfs/zfs#6729 (a volume is renamed while it is open: its link keeps the old name and leads nowhere), #4282, #16127 and #12764.
# Right: a space that is attached or served is not renamed, with that reason, or all of its names follow; behind that a new name is
# its name everywhere, the old one is free, and nothing of it is left behind.
. "$(dirname "$0")/lib.sh"
begin 'spaces are renamed while they are used' 1500
need_attach
for n in a b; do mkdisk "$n" 300M; done
must 'the daemon answers' up
must 'a pool' dol pool create tank "$W"/disks/{a,b}
must 'a space' dol space create tank/old --size 64M
must 'another' dol space create tank/taken --size 16M
dev=$(attach tank/old) || die "not attached: $(cat "$W/attach.err")"
must 'content' t fill "$dev" 0 32M one
exec 8<"$dev"
step 'attached and open'
dol space set tank/old --name new >"$W/out" 2>&1
rc=$?
exec 8<&-
if [ $rc -eq 0 ]; then
    check 'the link has the new name' test -b "$HD/links/tank/new"
    check 'and no link the old one' no test -e "$HD/links/tank/old"
    check 'content by the new link' t check "$HD/links/tank/new" 0 32M one
    must 'named as before' dol space set tank/new --name old
else
    say "refused with $rc"
    said 'with the reason' 'attached'
    check 'refused as busy' same $rc 75
    check 'content' t check "$dev" 0 32M one
fi
step 'served'
must 'detached' settled dol space detach tank/old
check 'no link is left' no test -e "$HD/links/tank/old"
u=$(uri tank/old)
rc_is 'refused while it is served, or done' '0 75' dol space set tank/old --name new
if dol space show tank/old >/dev/null 2>&1; then
    must 'not served' settled dol unserve tank/old
    must 'renamed' settled dol space set tank/old --name new
fi
step 'renamed'
rc_is 'the old name is nobody'\''s' 2 dol space show tank/old
check 'nor an export' no t size "$u"
check 'the new one is its export' t check "$(uri tank/new)" 0 32M one
rc_is 'a name that is taken is refused' 2 dol space set tank/taken --name new
must 'another takes the old name' dol space create tank/old --size 16M
check 'it is empty' t zeros "$(uri tank/old)" 0 16M
must 'the daemon ends' down
must 'the daemon answers' up
check 'behind a restart as well' t check "$(uri tank/new)" 0 32M one
must 'not served' settled dol unserve tank/new
dev=$(attach tank/new) || die "not attached: $(cat "$W/attach.err")"
check 'the link has the new name' same "$(readlink -f "$HD/links/tank/new")" "$dev"
must 'in the trash, under its new name' eval 'settled dol space detach tank/new && settled dol space delete tank/new'
must 'restored as another' dol trash restore tank/new --as third
check 'content' t check "$(uri tank/third)" 0 32M one
end

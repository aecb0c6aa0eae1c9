#!/bin/sh
# recorded.sh STATE OWNER [KIND ARGUMENT]... -- COMMAND...
#
# Becomes COMMAND after it has written itself, and what COMMAND is about to make, to the record of the state directory.
# Does nothing where that has another owner by now: the run that asked for the command was killed meanwhile.
#
# DOLMEN_BESIDE   not empty: the command, and all that it starts this way, gets what everything else leaves of the processors
state=$1
owner=$2
shift 2
lines=
while [ "$1" != -- ]; do
    lines="$lines$1 $2
"
    shift 2
done
shift
start=$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20)

exec 9>>"$state/lock"
flock 9
[ "$(cat "$state/owner" 2>/dev/null)" = "$owner" ] || exit 125
# The process comes last, so that it is ended first and what it made is undone behind it. One write: never half of it.
printf '%ssession %s %s\n' "$lines" $$ "$start" >>"$state/record"
exec 9>&-
if [ -n "${DOLMEN_BESIDE:-}" ]; then
    # The kernel may share the processors out by sessions first, and this command has one of its own.
    { echo 19 >/proc/self/autogroup; chrt --idle --pid 0 $$ || renice -n 19 -p $$; } >/dev/null 2>&1 || :
fi
exec "$@"

#!/bin/sh
# recorded.sh STATE OWNER [KIND ARGUMENT]... -- COMMAND...
#
# Becomes COMMAND after it has written itself, and what COMMAND is about to make, to the record of the state directory.
# Does nothing where that has another owner by now: the run that asked for the command was killed meanwhile.
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
exec "$@"

#!/bin/bash
# Source: openzfs threads on scrubs that take days and begin again after each restart, and on repair and removals that wait behind them; TrueNAS users
# who start a scrub twice.
# Right: what a person asks for (a conversion, a removal, a replacement) does not wait for days behind a scrub; a second scrub of a pool that is being
# scrubbed is refused or joined, not queued; a scrub goes on behind a restart, clean or not, about where it was.
CASE_LIMIT=${CASE_LIMIT:-600}
. "$(dirname "$0")/lib.sh"
begin 'jobs behind a scrub' 6000
for n in 1 2 3 4 5; do mkdisk "$n" 1500M; done
must 'the daemon answers' up
must 'a pool' dol pool create tank "$W"/disks/{1,2,3,4,5}
must 'a mirror' dol space create tank/m --size 1G
must 'another one' dol space create tank/s --size 64M
m=$(uri tank/m) s=$(uri tank/s)
must 'content' t fill "$m" 0 1G a
must 'content' t fill "$s" 0 64M b
# A client that keeps the pool busy, so that a scrub of low priority takes its time, as on a pool of a hundred terabytes.
t load "$s" 100 32M c >/dev/null 2>&1 &
BG_PIDS+=("$!")
sleep 1
field() { dol -o json jobs | js "[j.get('$2') for j in d['jobs'] if '$1' in str(j)][-1]"; }
state_of() { dol -o json jobs | js "[j['state'] for j in d['jobs'] if '$1' in str(j.get('what', j))][-1]"; }
must 'a scrub begins' dol scrub tank --no-wait
sleep 4
say "the scrub: $(dol jobs | grep -i scrub | tail -n 1)"
rc_is 'a second scrub is refused or joined' '0 75' dol scrub tank --no-wait
n=$(dol -o json jobs | js "sum(j['state'] in ('running', 'waiting') and 'scrub' in str(j) for j in d['jobs'])")
check 'one scrub is under way' same "$n" 1
must 'a conversion is asked for' dol space convert tank/s --resiliency parity --no-wait
sleep 6
dol jobs >"$W/jobs"
tail -n 4 "$W/jobs"
grep -i 'convert' "$W/jobs" | grep -qi waiting && bad 'a conversion that a person asked for waits behind the scrub'
percent() { dol jobs | grep -i 'scrub pool' | head -n 1 | grep -oE '[0-9]+ %' | head -n 1 | tr -dc 0-9; }
quarter() { [ "$(percent)" -ge 25 ] 2>/dev/null; }
eventually 60 quarter || say 'the scrub is slow'
before=$(percent)
must 'the scrub is held' dol job pause 1
crash
must 'the daemon answers' up
dol job stop 3 >/dev/null 2>&1
dol job stop 2 >/dev/null 2>&1
must 'the scrub goes on' dol job resume 1
seen() { now=$(percent); [ -n "$now" ]; }
eventually 20 seen || say 'it tells no progress'
say "the scrub was at ${before:-?} %, behind the kill at ${now:-?} %"
[ "${now:-0}" -ge $((${before:-0} - 10)) ] || bad "the scrub begins again behind a restart: ${before} % before, ${now:-0} % now"
end

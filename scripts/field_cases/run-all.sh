#!/bin/bash
# All cases, or those whose names have one of the words: DOLMEN=/path/to/dolmen ./run-all.sh [WORD]...
# What each says goes to $CASES_LOGS (default: a new folder in /tmp); the last lines are the results.
cd "$(dirname "$0")" || exit 1
logs=${CASES_LOGS:-$(mktemp -d /tmp/dolmen-cases.XXXXXX)}
mkdir -p "$logs"
: >"$logs/results"
for case in [0-9][0-9]-*.sh; do
    name=${case%.sh}
    if [ $# -gt 0 ]; then
        wanted=no
        for word in "$@"; do case $name in *"$word"*) wanted=yes ;; esac; done
        [ $wanted = yes ] || continue
    fi
    begun=$SECONDS
    bash "$case" >"$logs/$name.log" 2>&1
    result=$(grep -E "^(PASS|PASS-WITH-GAPS|FAIL|SKIP) $name" "$logs/$name.log" | tail -n 1)
    printf '%s (%d s)\n' "${result:-FAIL $name: no result}" $((SECONDS - begun)) | tee -a "$logs/results"
done
echo
awk '$1 == "SKIP" { sub(/^SKIP /, ""); print "skipped: field case " $0; next }
    { n[$1]++ } END { printf "%d passed, %d failed\n", n["PASS"] + n["PASS-WITH-GAPS"], n["FAIL"] }' "$logs/results"
echo "logs: $logs"
! grep -q '^FAIL' "$logs/results"

# Shared by the scripts that try what lib.sh and state.sh promise, which source it behind lib.sh: a folder for all that they
# make, a state directory in it, what is left of runs in that, and counting.

proof=$(mktemp -d)
export DOLMEN_STATE="$proof/state of it"
passed=0
failed=0

# check WHAT FOUND EXPECTED
check() {
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        say "FAILED $1: found '$2', expected '$3'"
    fi
}

# What of the runs is on the system: their processes carry a mark.
remains() {
    grep -lsxzF "DOLMEN_MARK=$proof" /proc/[0-9]*/environ
    grep -F "$proof" /proc/self/mountinfo | sed 's/^/mount /'
    grep -lF "$proof" /sys/block/loop*/loop/backing_file 2>/dev/null
    [ "$(cat "$proof/setting" 2>/dev/null || echo N)" = N ] || say 'setting'
    [ ! -e "$DOLMEN_STATE/files" ] || say "folder $DOLMEN_STATE/files"
    [ ! -s "$DOLMEN_STATE/record" ] || say 'record'
    [ ! -e "$DOLMEN_STATE/owner" ] || say 'owner'
}

# close_proof: the line that ./test counts.
close_proof() {
    say "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}

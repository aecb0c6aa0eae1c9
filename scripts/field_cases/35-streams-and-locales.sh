#!/bin/bash
# Source: sharkdp/fd#24, VladimirMarkelov/ttdl#59, gitbutlerapp/gitbutler#11088 (programs in Rust panic when they are piped to head),
# TencentCloud/CubeSandbox#1295 (messages of the system are matched in one language alone).
# Right: no command panics, whatever becomes of its streams; a result that could not be written is no success; locale, terminal
# and environment change nothing that programs read.
. "$(dirname "$0")/lib.sh"
begin 'closed, full and broken streams; odd environments' 1200
for n in a b; do mkdisk "$n" 200M; done
must 'the daemon answers' up
must 'a pool' dol pool create tank "$W"/disks/{a,b}
for i in $(seq 1 60); do dol space create "tank/s$i" --size 16M >/dev/null || die 'no space'; done
panics() { grep -qiE 'panicked|RUST_BACKTRACE|core dumped' "$W/out"; }
commands=('status' 'space list' 'pool show tank' 'disk list' 'events --since 0' '-o json space list' '-o json status' 'df' 'explain' 'plan 4x8TB' '--help' 'space --help' 'completion bash' 'version')
for words in "${commands[@]}"; do
    # shellcheck disable=SC2086
    {
        (dol $words; echo "rc $?" >&2) 2>"$W/out" | head -c 10 >/dev/null
        panics && { bad "$words | head: it panics"; shown; }
        (dol $words >/dev/full) 2>"$W/out"
        rc=$?
        panics && { bad "$words >/dev/full: it panics"; shown; }
        [ $rc -ne 0 ] || full_is_success="${full_is_success:-} $words;"
        (dol $words >&-) 2>"$W/out"
        panics && { bad "$words >&-: it panics"; shown; }
        (dol $words >/dev/null 2>&- <&-)
        rc=$?
        [ $rc -le 1 ] || bad "$words with closed streams ends with $rc"
        dol nothing-like-that $words >/dev/null 2>/dev/full
    }
done
say 'all commands were tried'
[ -z "${full_is_success:-}" ] || gap "what could not be written to a full disk is a success:$full_is_success"
step 'events that are followed and read no more'
(timeout 20 "$DOLMEN" --socket "$SOCK" events -f --since 0 2>"$W/out" | head -n 1 >/dev/null) &
follow=$!
sleep 1
dol space set tank/s1 --name renamed >/dev/null
dol space set tank/renamed --name s1 >/dev/null
dol scrub tank >/dev/null
check 'it ends' eventually 15 no kill -0 $follow
panics && bad 'events -f | head panics'
step 'environments'
reference=$(dol -o json space list)
for environment in 'LC_ALL=tr_TR.UTF-8 LANG=tr_TR.UTF-8' 'LC_ALL=de_DE.UTF-8 LC_NUMERIC=de_DE.UTF-8' 'LC_ALL=nonsense' 'TERM=dumb' 'TERM=' 'COLUMNS=1' 'COLUMNS=0 LINES=0' 'NO_COLOR=1' 'TZ=Pacific/Kiritimati' 'TZ=:/nothing' 'HOME=/nothing' 'TMPDIR=/nothing'; do
    # shellcheck disable=SC2086
    found=$(env $environment timeout 20 "$DOLMEN" --socket "$SOCK" -o json space list 2>"$W/out")
    check "$environment: the same documents" same "$(printf %s "$found" | sha256sum)" "$(printf %s "$reference" | sha256sum)"
    # shellcheck disable=SC2086
    env $environment timeout 20 "$DOLMEN" --socket "$SOCK" status >"$W/out" 2>&1
    rc=$?
    [ $rc -le 1 ] || { bad "$environment: the status ends with $rc"; shown 3; }
done
env -i timeout 20 "$DOLMEN" --socket "$SOCK" status >"$W/out" 2>&1 || bad 'with no environment at all it fails'
(cd / && mkdir -p "$W/gone" && cd "$W/gone" && rmdir "$W/gone" && dol status) >"$W/out" 2>&1 || bad 'in a folder that is gone it fails'
step 'what needs to be asked is refused without a terminal, in both forms'
rc_is 'text' 73 sh -c '"$1" --socket "$2" pool destroy tank </dev/null' sh "$DOLMEN" "$SOCK"
rc_is 'JSON' 73 sh -c '"$1" --socket "$2" -o json pool destroy tank </dev/null 2>/dev/null' sh "$DOLMEN" "$SOCK"
cp "$W/out" "$W/document"
check 'with a document' python3 -c 'import json, sys; d = json.loads(open(sys.argv[1]).readline()); assert d["error"]["code"], d' "$W/document"
check 'yes is no answer' no sh -c 'yes | "$1" --socket "$2" pool destroy tank --yes' sh "$DOLMEN" "$SOCK"
check 'the pool is there' is_writable tank
step 'a daemon in an empty environment'
must 'the daemon ends' down
WRAP=(env -i "DOLMEN_CASE=$DOLMEN_CASE" LC_ALL=tr_TR.UTF-8)
must 'the daemon answers' up
check 'the same documents' same "$(dol -o json space list | sha256sum)" "$(printf '%s\n' "$reference" | sha256sum)"
end

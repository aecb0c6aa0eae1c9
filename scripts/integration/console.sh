#!/bin/sh
# The web console in Chromium, against a daemon with files as disks and a dolmen-web of its own: from the first sign-in to a
# replaced disk, with every page in light, dark and on a phone.
#
# The suite is scripts/browser. Where the packages that it stands on are missing, they are installed into the state directory, and
# stay there; the browser is the system's.
#
# console.sh FUNCTION: daemon_up, daemon_down, web_up or web_kill, for the suite of a run that goes on.
#
# DOLMEN_CONSOLE_STEPS   steps of the suite, with commas between (default: all); each needs what those before it leave
# DOLMEN_CONSOLE_WAY     nbd: without volumes, which need root and block devices (default: block)
# DOLMEN_CONSOLE_SHOTS   folder for screenshots (default: shots in the state directory)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='the console'
web_bin=$(dirname "$bin")/dolmen-web
web_state=$run/web
# name=version of what the suite imports, and of the package that has axe.
playwright='playwright==1.65.2'
axe='axe-playwright-python==0.1.8'
packages=$state/packages
shots=${DOLMEN_CONSOLE_SHOTS:-$state/shots}
way=${DOLMEN_CONSOLE_WAY:-block}
daemon_options="--links $run/links --named-only --look-in $disks"

# --- the processes -------------------------------------------------------------------------------------------------

daemon_up() { daemon_start && say "$daemon_pid $daemon_started" >"$run/daemon.pid"; }

# daemon_known: sets the process of the daemon that daemon_up has started.
daemon_known() { read -r daemon_pid daemon_started <"$run/daemon.pid"; }
daemon_down() { daemon_known && daemon_stop; }

# web_up: on the port that it had before, if it had one.
web_up() {
    web_port=$(sed -n 's/.*:\([0-9]*\)$/\1/p' "$run/web.address" 2>/dev/null)
    : >"$run/web.address"
    # shellcheck disable=SC2046 # a list of words
    begin -- $(rights) env "DOLMEN_WEB_STATE=$web_state" "$web_bin" serve --listen "127.0.0.1:${web_port:-0}" --socket "$socket" \
        >"$run/web.address" 2>>"$logs/web.log"
    web_pid=$!
    say "$web_pid $(start_time "$web_pid")" >"$run/web.pid"
    eventually 20 grep -q '^https://' "$run/web.address"
}

# web_self: dolmen-web itself, where something stands between.
web_self() {
    read -r web_pid web_started <"$run/web.pid"
    for self_pid in $(members "$web_pid" "$web_started"); do
        [ "$(as_root readlink "/proc/$self_pid/exe")" != "$(readlink -f "$web_bin")" ] || echo "$self_pid"
    done
}

# web_kill: from one instruction to the next.
web_kill() {
    # shellcheck disable=SC2046 # one number
    send KILL $(web_self)
}

case ${1:-} in
'') ;;
daemon_up | daemon_down | web_up | web_kill)
    owner=$(cat "$state/owner")
    "$1"
    exit
    ;;
*) die 2 "no function $1 for others; see the head of this script" ;;
esac

# --- the suite -----------------------------------------------------------------------------------------------------

# has_package MODULE: Python finds it, among its own packages or those of this script.
has_package() { PYTHONPATH=$packages python3 -c "import $1" 2>/dev/null; }

# install_packages REQUIREMENT...: nothing but wheels, and into the folder of this script.
install_packages() {
    say "installing $* (log: $logs/pip.log)"
    attend -- python3 -m pip install --disable-pip-version-check --no-input --only-binary :all: --target "$packages" "$@" \
        >>"$logs/pip.log" 2>&1 </dev/null
}

# find_suite: sets $chromium and $axe_file; fails, with what is missing in $blocked_by.
find_suite() {
    chromium=${DOLMEN_CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}
    [ -n "$chromium" ] || { blocked_by='missing: chromium'; return 1; }
    have python3 || { blocked_by='missing: python3'; return 1; }
    has_package playwright.sync_api || install_packages "$playwright" || :
    has_package playwright.sync_api || { blocked_by="missing: $playwright, which pip can install"; return 1; }
    axe_file=${DOLMEN_AXE:-$(find_axe)}
    [ -n "$axe_file" ] || install_packages --no-deps "$axe" || :
    axe_file=${axe_file:-$(find_axe)}
    [ -n "$axe_file" ] || skip "$script: accessibility (missing: axe.min.js of $axe, which pip can install)"
}
find_axe() { find "$packages" -name axe.min.js 2>/dev/null | head -n 1; }

# own FUNCTION: a command line that calls it.
own() {
    printf "DOLMEN_STATE='%s' DOLMEN_BIN='%s' DOLMEN_CONSOLE_WAY=%s sh '%s' %s" "$state" "$bin" "$way" "$root/scripts/integration/console.sh" "$1"
}

# Programs that somebody has built are slow perhaps; those that this script builds keep to the bars.
bars=--bars
[ -z "${DOLMEN_BIN:-}" ] || bars=

# suite [OPTION]...
suite() {
    mkdir -p "$shots"
    # shellcheck disable=SC2046,SC2086 # lists of words
    attend -- $(rights) env "PYTHONPATH=$packages" "PATH=$PATH" python3 -B "$root/scripts/browser/console_client.py" \
        --base "$(cat "$run/web.address")" --code-command "env DOLMEN_WEB_STATE=$web_state $web_bin code" --disks "$disks" \
        --stop "$(own daemon_down)" --start "$(own daemon_up)" --web-kill "$(own web_kill)" --web-start "$(own web_up)" \
        --processes "dolmend=$run/daemon.pid,dolmen-web=$run/web.pid" --dolmen "$bin" --socket "$socket" --shots "$shots" --chromium "$chromium" \
        $bars ${axe_file:+--axe "$axe_file"} ${DOLMEN_CONSOLE_STEPS:+--steps "$DOLMEN_CONSOLE_STEPS"} "$@"
}

build_web() {
    # shellcheck disable=SC2086 # a list of words
    [ -n "${DOLMEN_BIN:-}" ] || attend -- cargo build --release --locked $as_users --bin dolmen-web
}

take_program
find_suite || { skip "$script ($blocked_by)"; exit 0; }
build_web || die 1 'the build of dolmen-web failed'
[ -x "$web_bin" ] || die 2 "there is no $web_bin; build it beside $bin: cargo build --package dolmen-web"
mount=$run/mnt
blocked_by='DOLMEN_CONSOLE_WAY is nbd'
if [ "$way" = nbd ] || ! can_block mkfs.xfs; then
    skip "$script: volumes ($blocked_by)"
    mount=
    way=nbd
fi
make_run 4096
: >"$logs/web.log"
started=$(now)

step 'the daemon and the server of the console'
must 'the daemon answers' daemon_up
must 'the server listens' web_up
step 'the suite'
[ -z "$mount" ] || note mount "$mount/home"
must 'each step of the suite does well' suite ${mount:+--mount "$mount"}
must 'the daemon ends' daemon_down
close_script

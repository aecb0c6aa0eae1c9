#!/bin/sh
# For integration scripts, sourced behind rig.sh: dolmen-web before the daemon of the run, on a port of the system.

web_bin=$(dirname "$bin")/dolmen-web
web_state=$run/web
web_log=$logs/web.log

# web_build: the program, unless it was built elsewhere.
web_build() {
    [ -z "${DOLMEN_BIN:-}" ] || { [ -x "$web_bin" ] || warn "$web_bin is missing beside DOLMEN_BIN"; [ -x "$web_bin" ]; return; }
    # shellcheck disable=SC2086 # a list of words
    attend -- cargo build --release --locked $as_users --bin dolmen-web >>"$logs/build.log" 2>&1
}

# web_command WORD...: a command of dolmen-web on its host.
web_command() { "$web_bin" --state "$web_state" ${web_alerts:+--alerts "$web_alerts"} "$@"; }

# web_start [WORD]...: sets $web_address, with more arguments for it.
web_start() {
    web_build || return 1
    : >"$run/web.address"
    # shellcheck disable=SC2086 # a list of words
    begin below "$web_state" -- "$web_bin" --state "$web_state" ${web_alerts:+--alerts "$web_alerts"} serve --listen 127.0.0.1:0 \
        --socket "$socket" "$@" >"$run/web.address" 2>>"$web_log"
    web_pid=$!
    web_started=$(start_time "$web_pid")
    eventually 20 web_listens
}

web_listens() {
    web_address=$(sed -n 's,^https://,,p' "$run/web.address")
    [ -n "$web_address" ] && return 0
    is_process "$web_pid" "$web_started" || { warn 'dolmen-web has ended'; return 0; }
    return 1
}

web_ends() {
    for web_try in $(seq 1 100); do
        is_process "$web_pid" "$web_started" || return 0
        sleep 0.1
    done
    return 1
}

web_stop() { send TERM "$web_pid" && web_ends; }

# web_kill: from one instruction to the next.
web_kill() {
    send KILL "$web_pid" || return 1
    wait "$web_pid" 2>/dev/null
    return 0
}

# web_token NAME ROLE: its secret is in $run/token.
web_token() { web_command token create "$1" --role "$2" >"$run/token" && [ -s "$run/token" ]; }

#!/bin/sh
# Requests drawn from the OpenAPI document, by schemathesis, over HTTPS: none of them is answered with a server error, and none ends
# the daemon or dolmen-web. First without the verbs that take objects away, beside a pool with a space; then all but `shutdown`.
#
# DOLMEN_EXAMPLES   requests drawn for each operation (default: 10)
# DOLMEN_SEED       what they are drawn from (default: 1)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
. "$root/scripts/web_rig.sh"
script='requests drawn from the OpenAPI document'
# The version that results are of.
wanted=schemathesis==4.32.5
way=nbd
# Verbs whose words end so take away what others need.
taking='/(destroy|export|delete|forget|remove|remove_disks|retire|purge|offline|convert|replace)$'

# install_schemathesis: in an environment of its own, which stays in the state directory.
install_schemathesis() {
    schemathesis=$state/schemathesis
    [ ! -x "$schemathesis/bin/schemathesis" ] || return 0
    say "installing $wanted (log: $logs/pip.log)"
    attend -- python3 -m venv "$schemathesis" >"$logs/pip.log" 2>&1 </dev/null &&
        attend -- "$schemathesis/bin/pip" install --disable-pip-version-check --no-input --only-binary :all: "$wanted" \
            >>"$logs/pip.log" 2>&1 </dev/null && return 0
    rm -rf "$schemathesis"
    return 1
}

# is_drawn NAME [OPTION]...: no answer is a server error. Names of objects are those of the pool, else nothing but 404 would be drawn.
is_drawn() {
    drawn=$1
    shift
    printf '[parameters]\npool = "%s"\n"path.space" = "data"\njob = 1\n' "$pool" >"$run/schemathesis.toml"
    attend -- env -C "$run" "$schemathesis/bin/schemathesis" --config-file "$run/schemathesis.toml" \
        run "https://$web_address/api/openapi.json" --url "https://$web_address/api" \
        -H "Authorization: Bearer $(cat "$run/token")" -H 'Dolmen-Request: 1' --tls-verify false --checks not_a_server_error \
        --phases examples,coverage,fuzzing -n "${DOLMEN_EXAMPLES:-10}" --seed "${DOLMEN_SEED:-1}" --continue-on-failure --no-shrink \
        --rate-limit 45/s --exclude-path /v1/shutdown "$@" >"$logs/drawn-$drawn.log" 2>&1 </dev/null || return 1
    sed -n 's/^ *\([0-9]* generated, .*\)/   | \1/p' "$logs/drawn-$drawn.log"
}

# are_well: both programs are those that were started.
are_well() { is_process "$daemon_pid" "$daemon_started" && is_process "$web_pid" "$web_started" && cli_status >/dev/null 2>&1; }

take_program
have python3 && install_schemathesis || { skip "$script (missing: $wanted, which pip can install)"; exit 0; }
make_run 8192
daemon_options="--links $run/links --named-only --look-in $disks"
pool=tank
step 'the servers'
must 'four disks' make_disks 2048 a b c d
must 'the daemon answers' daemon_start
must 'a pool' dolmen pool create "$pool" "$disks/a" "$disks/b" "$disks/c"
must 'a space' dolmen space create "$pool/data" --size 256M -r mirror
must 'the server listens' web_start
must 'a token' web_token schema admin
step 'drawn requests'
must 'beside a pool no answer is a server error' is_drawn beside --exclude-path-regex "$taking"
must 'both programs are well' are_well
must 'all verbs: no answer is a server error' is_drawn all
must 'both programs are well' are_well
must 'the server ends' web_stop
must 'the daemon ends' daemon_stop
close_script

#!/bin/sh
# Rules for Prometheus, the dashboard for Grafana and a sample of the metrics, read by promtool.
#
# promtool is part of Debian's package prometheus, which starts a server when it is installed: it is unpacked into the folder of this run
# instead, and nothing is started.
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='monitoring'
monitoring=$root/monitoring

# unpack_promtool: puts its folder at the end of PATH.
unpack_promtool() {
    have apt-get && have dpkg-deb || return 1
    mkdir -p "$run/package"
    ! can_root || apt_update || :
    # shellcheck disable=SC2016 # the inner shell expands it
    attend -- sh -c 'cd "$1" && apt-get download "$2" && dpkg-deb -x "$2"_*.deb .' sh "$run/package" "$(package_of promtool)" \
        >>"$logs/apt.log" 2>&1 </dev/null
    PATH=$PATH:$run/package/usr/bin
    have promtool
}

checks_metrics() { promtool check metrics <"$root/crates/metrics/tests/golden/sample.prom" >"$logs/promtool.log" 2>&1; }

# checks_expressions: each expression of the dashboard as a recording rule, with values in the place of Grafana's variables. A string of
# JSON is one of YAML.
checks_expressions() {
    {
        printf 'groups:\n  - name: dashboard\n    rules:\n'
        sed -n 's/^ *"expr": \(".*"\),*$/\1/p' "$monitoring/grafana_dashboard.json" |
            sed 's/\$__rate_interval/5m/g; s/\$instance/.*/g; s/\$pool/.*/g' |
            awk '{ printf "      - record: dashboard:expression_%d\n        expr: %s\n", NR, $0 }'
    } >"$run/dashboard.yml"
    is "$(grep -c 'record:' "$run/dashboard.yml")" -gt 40 || return 1
    promtool check rules "$run/dashboard.yml" >"$logs/promtool.log" 2>&1
}

# is_complete: each alert has a summary, a description and a command.
is_complete() {
    for complete_word in summary description command; do
        is "$(grep -c "^ *$complete_word: ." "$monitoring/prometheus_rules.yml")" -eq \
            "$(grep -c '^ *- alert: ' "$monitoring/prometheus_rules.yml")" || return 1
    done
}

# are_tested: each alert has a test that expects it.
are_tested() {
    sed -n 's/^ *- alert: //p' "$monitoring/prometheus_rules.yml" | while IFS= read -r tested_name; do
        grep -q "alertname: $tested_name\$" "$monitoring/prometheus_rules_test.yml" || { warn "no test of $tested_name"; exit 1; }
    done
}

# says_no COMMAND...: it fails.
says_no() { ! "$@" >>"$logs/promtool.log" 2>&1; }

# spoil WORDS REPLACEMENT: the rules with other words in one place, beside their tests.
spoil() {
    mkdir -p "$run/spoiled"
    cp "$monitoring/prometheus_rules_test.yml" "$run/spoiled/"
    sed "s/$1/$2/" "$monitoring/prometheus_rules.yml" >"$run/spoiled/prometheus_rules.yml"
    ! cmp -s "$monitoring/prometheus_rules.yml" "$run/spoiled/prometheus_rules.yml"
}

take_state
make_run 200
if ! have promtool && ! unpack_promtool; then
    skip "$script (missing: promtool; on Debian it is in the package prometheus)"
    exit 0
fi

step 'metrics and rules'
must 'promtool reads the sample of the metrics, and finds nothing to improve' checks_metrics
must 'promtool reads the rules' promtool check rules "$monitoring/prometheus_rules.yml"
must 'each alert has a summary, a description and a command' is_complete
must 'each alert has a test' are_tested
must 'the tests of the rules pass' promtool test rules "$monitoring/prometheus_rules_test.yml"
must 'a rule with another bound is made' spoil 'dolmen_pool_health == 2' 'dolmen_pool_health == 3'
must 'the tests notice it' says_no promtool test rules "$run/spoiled/prometheus_rules_test.yml"

step 'the dashboard'
must 'promtool reads each of its expressions' checks_expressions
must 'its data source is a variable' grep -q '"uid": "${datasource}"' "$monitoring/grafana_dashboard.json"
close_script

#!/bin/sh
# Rules for Prometheus, the dashboard for Grafana and a sample of the metrics, read by promtool. Then Prometheus itself scrapes dolmen-web
# over TLS with a token, and its rules fire when a disk fails.
#
# Debian's package prometheus starts a server when it is installed: it is unpacked into the folder of this run instead, and what is started
# ends with the run.
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
. "$root/scripts/web_rig.sh"
script='monitoring'
monitoring=$root/monitoring

# unpack_prometheus: puts its folder at the end of PATH.
unpack_prometheus() {
    have apt-get && have dpkg-deb || return 1
    mkdir -p "$run/package"
    ! can_root || apt_update || :
    # shellcheck disable=SC2016 # the inner shell expands it
    attend -- sh -c 'cd "$1" && apt-get download "$2" && dpkg-deb -x "$2"_*.deb .' sh "$run/package" "$(package_of promtool)" \
        >>"$logs/apt.log" 2>&1 </dev/null
    PATH=$PATH:$run/package/usr/bin
    have promtool && have prometheus
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

# --- scraping ------------------------------------------------------------------------------------------------------

# write_config: one target, by TLS with the certificate that dolmen-web has made, and the rules without their delays. A failed disk is an
# alert within minutes otherwise; promtool tests the delays.
write_config() {
    sed 's/^\( *for:\) .*/\1 0s/' "$monitoring/prometheus_rules.yml" >"$run/rules.yml"
    cat >"$run/prometheus.yml" <<END
global:
  scrape_interval: 1s
  scrape_timeout: 1s
  evaluation_interval: 1s
rule_files: [rules.yml]
scrape_configs:
  - job_name: dolmen
    scheme: https
    tls_config:
      ca_file: $web_state/certificate.pem
    authorization:
      credentials_file: $run/token
    static_configs:
      - targets: ['$web_address']
END
    promtool check config "$run/prometheus.yml" >>"$logs/promtool.log" 2>&1
}

# prometheus_start: on a port of the system, which its log names.
prometheus_start() {
    begin -- prometheus --config.file="$run/prometheus.yml" --storage.tsdb.path="$run/tsdb" --web.listen-address=127.0.0.1:0 \
        >"$logs/prometheus.log" 2>&1
    prometheus_pid=$!
    eventually 30 prometheus_listens
}

prometheus_listens() {
    prometheus_address=$(sed -n 's/.*Listening on.* address=\(127[0-9.:]*\).*/\1/p' "$logs/prometheus.log" | head -n 1)
    [ -n "$prometheus_address" ] && promtool query instant "http://$prometheus_address" 'vector(1)' >/dev/null 2>&1
}

# finds EXPRESSION: Prometheus has a series for it.
finds() { promtool query instant "http://$prometheus_address" "$1" 2>>"$logs/promtool.log" | grep -q .; }

lacks() { ! finds "$1"; }

# firing NAME: the alert fires.
firing() { finds "ALERTS{alertname=\"$1\", alertstate=\"firing\"}"; }

pull_disk() { rm "$disks/b"; }

take_program
make_run 2048
if ! { have promtool && have prometheus; } && ! unpack_prometheus; then
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

step 'Prometheus scrapes dolmen-web'
way=nbd
daemon_options="--links $run/links --named-only"
must 'three disks' make_disks 256 a b c
must 'the daemon answers' daemon_start
must 'a pool' dolmen pool create tank "$disks/a" "$disks/b" "$disks/c" --yes
must 'a mirror' dolmen space create tank/home --size 64M --resiliency mirror
must 'dolmen-web serves' web_start
must 'a token of a viewer' web_token prometheus viewer
must 'Prometheus reads its settings' write_config
must 'Prometheus runs' prometheus_start
must 'the target is up' eventually 30 finds 'up{job="dolmen"} == 1'
must 'the daemon is up' eventually 30 finds 'dolmen_up == 1'
must 'the pool is healthy' finds 'dolmen_pool_health{pool="tank"} == 0'
must 'the page of the command has the families of the scrape' is "$(dolmen metrics | grep -c '^# TYPE dolmen_pool_')" -gt 10
# Before the first scrape there was no target, and without delays that was an alert.
must 'no alert fires' eventually 30 lacks 'ALERTS'

step 'a disk fails'
must 'its file is removed' pull_disk
must 'the finding is scraped' eventually 120 finds 'dolmen_finding{pool="tank", object="1", code=~"disk_.*"}'
must 'the alert of the pool fires' eventually 30 firing DolmenPoolWarning
must 'the daemon is killed' daemon_kill
must 'the alert of the daemon fires' eventually 60 firing DolmenDown
must 'the daemon answers again' daemon_start
must 'the alert of the absent disk fires' eventually 60 firing DolmenDiskAbsent
must 'the alert of the daemon is over' eventually 60 lacks 'ALERTS{alertname="DolmenDown", alertstate="firing"}'

step 'a token that is removed'
must 'it is removed' web_command token remove prometheus
must 'the target is down' eventually 30 finds 'up{job="dolmen"} == 0'
must 'the alert of the target fires' eventually 60 firing DolmenUnreachable
must 'Prometheus ends' send TERM "$prometheus_pid"
must 'dolmen-web ends' web_stop
must 'the daemon ends' daemon_stop
close_script

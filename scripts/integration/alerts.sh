#!/bin/sh
# Alerts of dolmen-web: a disk pulled under eight spaces is one mail at a real server of mail, and one all-clear; silences and what waits
# survive kill -9; a server of mail that is away is named, and nothing is lost; clocks jump.
#
# The server of mail is aiosmtpd of Debian's packages, unpacked into the folder of this run; nothing is installed.
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
. "$root/scripts/web_rig.sh"
script='alerts'
client=$root/scripts/integration/alerts_client.py
mails=$run/mails
web_alerts=$run/alerts.toml

has_smtp() { PYTHONPATH=$run/python python3 -c 'import aiosmtpd.smtp' 2>/dev/null; }

# unpack_smtp: aiosmtpd and what it needs, without installing them.
unpack_smtp() {
    have apt-get && have dpkg-deb || return 1
    mkdir -p "$run/package" "$run/python"
    ! can_root || apt_update || :
    # shellcheck disable=SC2016 # the inner shell expands it
    attend -- sh -c 'cd "$1" && apt-get download python3-aiosmtpd python3-attr python3-public && for one in *.deb; do dpkg-deb -x "$one" . || exit 1; done' \
        sh "$run/package" >>"$logs/apt.log" 2>&1 </dev/null || return 1
    cp -r "$run/package/usr/lib/python3/dist-packages/." "$run/python/"
    has_smtp
}

run_client() { PYTHONPATH=$run/python python3 -B "$client" "$@"; }

# smtp_start NAME PORT [CERTIFICATE KEY]: a server of mail; sets $smtp_port and $smtp_pid.
smtp_start() {
    smtp_name=$1
    smtp_port=$2
    shift 2
    : >"$run/$smtp_name.port"
    begin -- env "PYTHONPATH=$run/python" python3 -B "$client" serve "$mails/$smtp_name" "$smtp_port" "$@" \
        >"$run/$smtp_name.port" 2>>"$logs/smtp.log"
    smtp_pid=$!
    eventually 20 test -s "$run/$smtp_name.port" || return 1
    smtp_port=$(cat "$run/$smtp_name.port")
}

smtp_stop() {
    send TERM "$1" || return 1
    wait "$1" 2>/dev/null
    return 0
}

# write_settings PORT SECURE_PORT: short delays, and three ways for mail.
write_settings() {
    cat >"$run/sendmail" <<END
#!/bin/sh
number=\$(ls '$mails/program' | wc -l)
cat >'$mails/program/new' && mv '$mails/program/new' "$mails/program/000\$((number + 1)).mail"
END
    chmod +x "$run/sendmail"
    mkdir -p "$mails/program" "$mails/plain" "$mails/secure"
    cat >"$web_alerts" <<END
host = "store1"
mail = [
    { name = "plain", from = "dolmen@store1.example", to = ["root@localhost"], server = "127.0.0.1:$1", security = "none" },
    { name = "secure", from = "dolmen@store1.example", to = ["root@localhost"], server = "127.0.0.1:$2", ca_file = "$web_state/certificate.pem" },
    { name = "program", from = "dolmen@store1.example", to = ["root@localhost"], sendmail = "$run/sendmail" },
]
[delays]
critical_s = 1
warning_s = 2
notice_s = 2
close_s = 3
unanswered_s = 40
reminder_s = 0
retry_s = 1
retry_max_s = 2
END
}

make_spaces() {
    for space_number in 1 2 3 4 5 6 7 8; do
        dolmen space create "tank/s$space_number" --size 16M --resiliency mirror --provisioning fixed >>"$logs/spaces.log" 2>&1 || return 1
    done
}

# subjects NAME: of the mails at a server, without tests.
subjects() { run_client subjects "$mails/$1"; }

# count_is NUMBER NAME: mails at a server.
count_is() { [ "$(subjects "$2" | wc -l)" -eq "$1" ]; }

# counts_are NUMBER: at each of them.
counts_are() { count_is "$1" plain && count_is "$1" secure && count_is "$1" program; }

# stays NUMBER: nothing more comes in the time of three looks.
stays() {
    sleep 17
    counts_are "$1" || { subjects plain; return 1; }
}

last_is() { subjects plain | tail -n 1 | grep -q "$1"; }

lists() { web_command alert list | grep -q "$1"; }

# pull_disk: its file is away when the daemon looks for it.
pull_disk() { daemon_kill && mv "$disks/b" "$run/away" && daemon_start; }

push_disk() { mv "$run/away" "$disks/b" && dolmen disk online tank 1 >>"$logs/disks.log" 2>&1; }

refuses() {
    cp "$web_alerts" "$run/bad.toml" && printf '%s\n' "$1" >>"$run/bad.toml" || return 1
    refused 78 "$2" "$web_bin" --state "$run/other" --alerts "$run/bad.toml" alert check
}

take_program
make_run 2048
have python3 || { skip "$script (missing: python3)"; exit 0; }
has_smtp || unpack_smtp || { skip "$script (missing: python3-aiosmtpd)"; exit 0; }
way=nbd
daemon_options="--links $run/links --named-only"
: >"$logs/disks.log"

step 'a test arrives'
must 'three disks' make_disks 512 a b c
must 'the daemon answers' daemon_start
must 'a pool' dolmen pool create tank "$disks/a" "$disks/b" "$disks/c" --yes
must 'eight mirrors' make_spaces
: >"$web_alerts"
must 'dolmen-web makes its certificate' web_start
must 'a server of mail' smtp_start plain 0
plain_port=$smtp_port
plain_pid=$smtp_pid
must 'one that demands TLS' smtp_start secure 0 "$web_state/certificate.pem" "$web_state/key.pem"
must 'settings' write_settings "$plain_port" "$smtp_port"
must 'dolmen-web reads them' send HUP "$web_pid"
must 'a test is sent each way' web_command alert test
must 'it is no alert' counts_are 0

step 'a disk pulled under eight spaces'
must 'the disk is pulled' pull_disk
must 'a mail arrives each way' eventually 60 counts_are 1
must 'it names the disk' last_is 'warning on store1: .*is absent'
run_client body "$mails/plain" 1 >"$logs/body.txt"
must 'it lists the eight spaces' is "$(grep -c 'space tank/s[1-8] is degraded' "$logs/body.txt")" -eq 8
must 'it says what to do' grep -q 'dolmen disk online tank 1' "$logs/body.txt"
must 'dolmen-web is killed' web_kill
must 'dolmen-web serves again' web_start
must 'there is no second mail' stays 1
must 'the alert is listed' lists 'warning *open'
must 'the disk is back' push_disk
must 'an all-clear arrives each way' eventually 90 counts_are 2
must 'it says that it is over' last_is '^over on store1: .*is absent'
must 'it answers to the first' run_client follows "$mails/plain"
must 'there is no third mail' stays 2

step 'a silence survives a restart'
must 'disk 2 is silenced' web_command alert silence --code 'disk_*' --object 'disk 2 of tank' --for 1h --comment 'on its way'
silence=$(web_command alert list | awk '$2 == "disk_*" { print $1 }')
must 'dolmen-web is killed' web_kill
must 'dolmen-web serves again' web_start
must 'disk 2 is taken offline' dolmen disk offline tank 2
must 'the alert is listed as silenced' eventually 60 lists 'warning *silenced'
must 'no mail comes' stays 2
must 'the silence ends' web_command alert unsilence "$silence"
must 'the mail comes' eventually 60 counts_are 3
must 'disk 2 is back' dolmen disk online tank 2
must 'the all-clear comes' eventually 90 counts_are 4

step 'no server of mail'
must 'it ends' smtp_stop "$plain_pid"
must 'disk 0 is taken offline' dolmen disk offline tank 0
must 'the other ways go on' eventually 60 count_is 5 program
must 'the list names the failure' eventually 30 lists '127.0.0.1:.*refused'
must 'a test fails with the same words' refused 73 'plain: .*refused' web_command alert test --channel plain
must 'dolmen-web is killed' web_kill
must 'dolmen-web serves again' web_start
must 'the server of mail is back' smtp_start plain "$plain_port"
must 'the mail comes' eventually 60 counts_are 5
must 'it comes once' stays 5
must 'disk 0 is back' dolmen disk online tank 0
must 'the all-clear comes' eventually 90 counts_are 6

step 'a clock that jumps'
must 'everything is silenced' web_command alert silence --code 'disk_*' --object '*' --for 1h
must 'dolmen-web ends' web_stop
must 'its clock was a day ahead' run_client jump "$web_state/alerts.json" 86400
must 'dolmen-web serves again' web_start
must 'no mail comes' stays 6
must 'the silence holds' lists 'disk_\*'
must 'dolmen-web ends' web_stop
must 'its clock was two days behind' run_client jump "$web_state/alerts.json" -172800
must 'dolmen-web serves again' web_start
must 'no mail comes' stays 6
must 'the silence holds' lists 'disk_\*'

step 'bad values'
must 'an unknown key is refused by name' refuses '[more]' 'line .*unknown field .more.'
must 'a webhook without an address is refused by name' refuses '[[webhook]]
url = "ftp://example"' 'webhook 1.url: it is no URL'
must 'a file of a token that is absent is refused by name' refuses '[[ntfy]]
url = "https://ntfy.example"
topic = "a"
token_file = "/nonexistent"' 'ntfy 1.token_file: /nonexistent cannot be read'
must 'dolmen-web ends' web_stop
must 'the daemon ends' daemon_stop
close_script

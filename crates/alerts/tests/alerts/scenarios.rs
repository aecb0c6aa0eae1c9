//! Scenarios of operation.

use dolmen_alerts::{ALERTS_MAX, ATTEMPTS_MAX, Kind, Look, OpenAfter, Policy, Severity, TestState};
use dolmen_api::{Finding, FindingCode, Object};

use crate::host::{
    DAY_S, HOUR_S, Host, MINUTE_S, disk_absent, finding, policy, silence, space_degraded, unhealthy,
};

fn eight_spaces() -> Vec<Finding> {
    (1..=8).map(|number| space_degraded(&format!("space{number}"))).collect()
}

/// Scenario: a disk under eight spaces is pulled, and is back an hour later; a resync takes ten minutes more. One opening lists the eight
/// spaces, one all-clear follows the resync.
#[test]
fn a_disk_under_eight_spaces_is_one_alert() {
    let mut host = Host::new(policy());
    let mut findings = eight_spaces();
    findings.insert(3, disk_absent(3));
    host.look_for(HOUR_S, &findings);
    assert_eq!(host.kinds(), [Kind::Opened]);
    let opening = host.arrived[0].clone();
    assert_eq!(opening.subject, "warning on store1: /dev/sd3 of pool tank is absent");
    for number in 1..=8 {
        assert!(
            opening.body.contains(&format!("- space tank/space{number} is degraded")),
            "{}",
            opening.body
        );
    }
    assert!(opening.commands.contains(&"dolmen disk online tank 3".to_owned()), "{:?}", opening.commands);
    assert!(opening.commands.contains(&"dolmen why tank/3".to_owned()), "{:?}", opening.commands);
    let stale = finding(
        FindingCode::RowsStale,
        Object::pool("tank"),
        "7 rows of pool tank are not on all their disks yet",
    );
    host.look_for(10 * MINUTE_S, &[stale]);
    assert_eq!(host.kinds(), [Kind::Opened], "the resync belongs to it");
    host.look_for(HOUR_S, &[]);
    assert_eq!(host.kinds(), [Kind::Opened, Kind::Closed]);
    assert_eq!(host.arrived[1].subject, "over on store1: /dev/sd3 of pool tank is absent");
    assert!(host.arrived[1].body.contains("space tank/space8"), "{}", host.arrived[1].body);
    assert_eq!(host.alerts.all().count(), 0);
}

/// Scenario: three disks of an enclosure leave within a minute, and one more after an hour. One alert opens with three, and grows.
#[test]
fn disks_of_one_pool_that_leave_together_are_one_alert() {
    let mut host = Host::new(policy());
    let mut findings: Vec<Finding> = Vec::new();
    for slot in 0..3 {
        findings.push(disk_absent(slot));
        host.look_for(20, &findings);
    }
    host.look_for(HOUR_S, &findings);
    assert_eq!(host.subjects(), ["warning on store1: /dev/sd0 of pool tank is absent, and 2 more"]);
    findings.push(disk_absent(3));
    host.look_for(HOUR_S, &findings);
    assert_eq!(host.kinds(), [Kind::Opened, Kind::Grown]);
    findings.pop();
    host.look_for(HOUR_S, &findings);
    findings.push(disk_absent(3));
    host.look_for(HOUR_S, &findings);
    assert_eq!(host.kinds(), [Kind::Opened, Kind::Grown], "a disk that was reported is not reported again");
}

/// Scenario: a condition that holds for half a minute, a warning that takes a minute, a critical one that takes a quarter.
#[test]
fn an_alert_opens_after_the_delay_of_its_severity() {
    let mut host = Host::new(policy());
    host.look_for(30, &[disk_absent(1)]);
    host.look_for(HOUR_S, &[]);
    assert_eq!(host.kinds(), []);
    host.look_for(60, &[disk_absent(1)]);
    assert_eq!(host.kinds(), []);
    host.look_for(10, &[disk_absent(1)]);
    assert_eq!(host.kinds(), [Kind::Opened]);
    let mut host = Host::new(policy());
    host.look_for(30, &[unhealthy(disk_absent(1))]);
    assert_eq!(host.kinds(), [Kind::Opened]);
}

/// Scenario: a second disk puts data out of reach, and is back. The alert is raised, then lowered.
#[test]
fn a_change_of_severity_is_reported_once_it_holds() {
    let mut host = Host::new(policy());
    let one = [disk_absent(1), space_degraded("home")];
    let out_of_reach = finding(
        FindingCode::SpaceOutOfReach,
        Object::space("tank", "home"),
        "parts of it may be out of reach",
    );
    let two = [disk_absent(1), disk_absent(2), unhealthy(out_of_reach)];
    host.look_for(HOUR_S, &one);
    host.look_for(10, &two);
    host.look_for(MINUTE_S, &one);
    assert_eq!(host.kinds(), [Kind::Opened], "ten seconds are no change");
    host.look_for(HOUR_S, &two);
    host.look_for(HOUR_S, &one);
    assert_eq!(host.kinds(), [Kind::Opened, Kind::Raised, Kind::Lowered]);
    let starts = host.subjects().into_iter().map(|subject| subject.split(" on ").next().unwrap().to_owned());
    assert_eq!(starts.collect::<Vec<_>>(), ["warning", "now critical", "now warning"]);
    assert_eq!(host.arrived[1].severity, Severity::Critical);
}

/// Scenario: errors of a disk grow one by one from 1 to 1,000, one each minute. They are reported whenever they have doubled.
#[test]
fn growth_is_reported_when_the_amount_has_doubled() {
    let mut host = Host::new(policy());
    for amount in 1..=1000 {
        let errors =
            finding(FindingCode::DiskErrors, Object::disk("tank", 1), &format!("it had {amount} errors"));
        host.look_for(MINUTE_S, &[Finding { amount, ..errors }]);
    }
    let grown = host.kinds().iter().filter(|kind| **kind == Kind::Grown).count();
    assert!((4..=9).contains(&grown), "{:?}", host.subjects());
}

/// Scenario: a disk comes and goes every three minutes for a day. A handful of notifications, not 960; then one all-clear.
#[test]
fn a_flapping_disk_is_held_down() {
    let mut host = Host::new(policy());
    for _ in 0..DAY_S / (6 * MINUTE_S) {
        host.look_for(3 * MINUTE_S, &[disk_absent(1)]);
        host.look_for(3 * MINUTE_S, &[]);
    }
    host.look_for(2 * HOUR_S, &[]);
    let opened = host.kinds().iter().filter(|kind| **kind == Kind::Opened).count();
    assert!((1..=3).contains(&opened), "{:?}", host.kinds());
    assert_eq!(host.kinds().len(), 2 * opened, "{:?}", host.kinds());
    assert_eq!(host.kinds().last(), Some(&Kind::Closed));
}

/// Scenario: a disk comes and goes every twenty seconds, less than any delay. It is reported once all the same.
#[test]
fn a_condition_that_flaps_faster_than_the_delay_is_reported_once() {
    let mut host = Host::new(policy());
    for _ in 0..100 {
        host.look_for(20, &[disk_absent(1)]);
        host.look_for(20, &[]);
    }
    assert_eq!(host.kinds(), [Kind::Opened]);
}

/// Scenario: an alert is open for three days. Reminders come after 4, 8 and 16 hours, then each day.
#[test]
fn reminders_come_at_growing_intervals() {
    let mut host = Host::new(Policy { remind_after_s: Some(4 * HOUR_S), ..policy() });
    host.look_for(3 * DAY_S, &[disk_absent(1)]);
    let hours: Vec<u64> = host.arrived.iter().map(|one| (one.at_s - host.arrived[0].at_s) / HOUR_S).collect();
    assert_eq!(hours, [0, 4, 12, 28, 52]);
    assert!(host.kinds()[1..].iter().all(|kind| *kind == Kind::Reminder));
}

/// Scenario: a disk is silenced by its code and object before it is pulled. Its spaces are silent with it; another disk is not; the
/// silence survives restarts (the host restarts at each step); and when it expires, what still holds is reported.
#[test]
fn a_silence_covers_what_follows_from_its_cause_and_survives_restarts() {
    let mut host = Host::new(policy());
    let id = host.alerts.silence(silence("disk_absent", "disk 3 of tank", 2 * DAY_S), host.now_s).unwrap();
    let mut findings = eight_spaces();
    findings.push(disk_absent(3));
    host.look_for(DAY_S, &findings);
    assert_eq!(host.kinds(), []);
    let silence = &host.alerts.silences()[0];
    assert_eq!((silence.id, silence.author.as_str()), (id, "anna"));
    assert!(host.alerts.all().all(|alert| alert.is_silenced() && !alert.is_open()));
    findings.push(disk_absent(4));
    host.look_for(HOUR_S, &findings);
    assert_eq!(host.subjects(), ["warning on store1: /dev/sd3 of pool tank is absent, and 1 more"]);
    findings.pop();
    host.look_for(HOUR_S, &[]);
    assert_eq!(host.kinds(), [Kind::Opened, Kind::Closed]);
    host.look_for(HOUR_S, &findings);
    assert_eq!(host.kinds().len(), 2, "silenced again");
    host.look_for(DAY_S, &findings);
    assert_eq!(host.kinds(), [Kind::Opened, Kind::Closed, Kind::Opened], "the silence is over");
    assert!(host.alerts.silences().is_empty());
}

/// Scenario: a silenced condition ends before its silence. Nothing was ever reported.
#[test]
fn what_ends_while_it_is_silenced_is_not_reported() {
    let mut host = Host::new(policy());
    let id = host.alerts.silence(silence("*", "*tank*", DAY_S), host.now_s).unwrap();
    host.look_for(HOUR_S, &[disk_absent(3)]);
    host.look_for(HOUR_S, &[]);
    host.alerts.end_silence(id).unwrap();
    host.look_for(DAY_S, &[]);
    assert_eq!(host.kinds(), []);
}

/// Scenario: the clock jumps a day forward, back, and back by another, while an alert is open, one is pending and one is silenced.
/// The jumps themselves send nothing.
#[test]
fn jumps_of_the_clock_send_nothing_and_lose_nothing() {
    let mut host = Host::new(Policy { remind_after_s: Some(4 * HOUR_S), ..policy() });
    host.alerts.silence(silence("disk_slow", "*", 30 * DAY_S), host.now_s).unwrap();
    let slow = finding(FindingCode::DiskSlow, Object::disk("tank", 7), "it is slow");
    let held = [disk_absent(1), slow.clone()];
    host.look_for(10 * MINUTE_S, &held);
    assert_eq!(host.kinds(), [Kind::Opened]);
    let errors = finding(FindingCode::DiskErrors, Object::disk("tank", 2), "it had errors");
    let all = [disk_absent(1), slow, errors];
    for jump in [DAY_S as i64, -(DAY_S as i64), -(DAY_S as i64)] {
        host.now_s = host.now_s.saturating_add_signed(jump);
        host.look(Look::Answered(&held));
        assert_eq!(host.kinds(), [Kind::Opened], "after a jump of {jump} s");
    }
    host.look_for(10, &all);
    host.now_s += DAY_S;
    host.look(Look::Answered(&all));
    assert_eq!(host.kinds(), [Kind::Opened], "a pending alert does not open by a jump");
    host.look_for(10 * MINUTE_S, &all);
    assert_eq!(host.kinds(), [Kind::Opened, Kind::Opened], "and opens after its delay");
    host.now_s -= 2 * DAY_S;
    host.look_for(HOUR_S, &[]);
    assert_eq!(host.kinds(), [Kind::Opened, Kind::Opened, Kind::Closed, Kind::Closed]);
}

/// Scenario: a silence of an hour, and a clock that jumps back by a day. It ends after an hour that elapsed.
#[test]
fn a_clock_that_jumps_back_does_not_prolong_a_silence() {
    let mut host = Host::new(policy());
    host.alerts.silence(silence("*", "*", HOUR_S), host.now_s).unwrap();
    host.look_for(10 * MINUTE_S, &[disk_absent(1)]);
    host.now_s -= DAY_S;
    host.look_for(2 * HOUR_S, &[disk_absent(1)]);
    assert_eq!(host.kinds(), [Kind::Opened]);
}

/// Scenario: the daemon does not answer for an hour while a disk is absent, and the disk is back when it answers. One alert for the daemon
/// opens and closes; that of the disk waits until its end can be seen.
#[test]
fn a_daemon_that_does_not_answer_is_an_alert_and_ends_no_other() {
    let mut host = Host::new(policy());
    host.look_for(HOUR_S, &[disk_absent(1)]);
    for _ in 0..360 {
        host.now_s += 10;
        host.look(Look::Unanswered("connection refused"));
    }
    assert_eq!(host.kinds(), [Kind::Opened, Kind::Opened]);
    assert_eq!(host.arrived[1].subject, "critical on store1: the daemon does not answer: connection refused");
    assert!(host.arrived[1].commands.contains(&"systemctl status dolmend".to_owned()));
    host.look_for(HOUR_S, &[]);
    assert_eq!(host.kinds(), [Kind::Opened, Kind::Opened, Kind::Closed, Kind::Closed]);
}

/// Scenario: a pool with an absent disk stops. Its state is an alert of its own, and the absent disk is not over because nothing of it
/// can be seen.
#[test]
fn a_pool_that_stops_ends_no_alert_of_it() {
    let mut host = Host::new(policy());
    host.look_for(HOUR_S, &[disk_absent(1), space_degraded("home")]);
    let stopped = unhealthy(finding(FindingCode::PoolStopped, Object::pool("tank"), "pool tank has stopped"));
    host.look_for(HOUR_S, &[stopped]);
    assert_eq!(host.kinds(), [Kind::Opened, Kind::Opened]);
    host.look_for(HOUR_S, &[disk_absent(1)]);
    assert_eq!(host.kinds(), [Kind::Opened, Kind::Opened, Kind::Closed]);
    assert_eq!(host.arrived[2].subject, "over on store1: pool tank has stopped");
}

/// Scenario: sends fail for three hours, until the alert is about to close. The all-clear could be sent at once while the opening waits for
/// its next attempt; both arrive, in order.
#[test]
fn what_could_not_be_sent_arrives_later_in_order() {
    let mut host = Host::new(policy());
    host.is_sending = false;
    host.look_for(3 * HOUR_S, &[disk_absent(1)]);
    host.look_for(100, &[]);
    assert_eq!((host.kinds().len(), host.alerts.waiting()), (0, 1));
    host.is_sending = true;
    host.look_for(2 * HOUR_S, &[]);
    assert_eq!(host.kinds(), [Kind::Opened, Kind::Closed]);
}

/// Scenario: sends fail for a week. While its alert is open, the opening is tried on; when it closes, both are abandoned and listed.
#[test]
fn attempts_are_bounded_and_what_is_abandoned_is_listed() {
    let mut host = Host::new(policy());
    host.is_sending = false;
    host.look_for(4 * DAY_S, &[disk_absent(1)]);
    assert_eq!((host.alerts.waiting(), host.alerts.abandoned().count()), (1, 0));
    host.look_for(2 * HOUR_S, &[]);
    assert_eq!(host.alerts.waiting(), 0);
    let abandoned: Vec<_> = host.alerts.abandoned().collect();
    assert_eq!((abandoned.len(), abandoned[0].kind, abandoned[0].attempts), (1, Kind::Opened, ATTEMPTS_MAX));
    assert_eq!(abandoned[0].why, "connection refused");
}

/// Scenario: two channels, one of which fails for a while. Each gets its own notification once.
#[test]
fn each_channel_gets_each_notification_once() {
    let mut policy = policy();
    policy.channels = vec!["mail".to_owned(), "ntfy".to_owned()];
    let mut host = Host::new(policy);
    let mut arrived: Vec<(String, Kind)> = Vec::new();
    for step in 0..1000u64 {
        host.now_s += 10;
        let findings = if step < 500 { vec![disk_absent(1)] } else { vec![] };
        host.alerts.look(host.now_s, Look::Answered(&findings));
        for one in host.alerts.due(host.now_s) {
            if one.channel == "ntfy" && step < 300 {
                host.alerts.failed(one.id, host.now_s, "timeout");
            } else {
                host.alerts.sent(one.id, host.now_s);
                arrived.push((one.channel, one.kind));
            }
        }
        host.restart();
    }
    let of =
        |channel: &str| arrived.iter().filter(|one| one.0 == channel).map(|one| one.1).collect::<Vec<_>>();
    assert_eq!(of("mail"), [Kind::Opened, Kind::Closed]);
    assert_eq!(of("ntfy"), [Kind::Opened, Kind::Closed]);
}

/// Scenario: a channel is added while an alert is open, and the first is removed. The new one gets opening and all-clear, the old one no more.
#[test]
fn a_new_channel_gets_the_openings_of_open_alerts() {
    let mut host = Host::new(policy());
    host.look_for(HOUR_S, &[disk_absent(1)]);
    host.policy.channels = vec!["ntfy".to_owned()];
    host.alerts.set_policy(host.policy.clone());
    host.look_for(HOUR_S, &[disk_absent(1)]);
    host.look_for(HOUR_S, &[]);
    let arrived: Vec<(&str, Kind)> =
        host.arrived.iter().map(|one| (one.channel.as_str(), one.kind)).collect();
    assert_eq!(arrived, [("mail", Kind::Opened), ("ntfy", Kind::Opened), ("ntfy", Kind::Closed)]);
}

/// Scenario: heartbeats at 08:00 UTC over three days, with restarts, then a clock that jumps over the hour and back every minute.
#[test]
fn a_heartbeat_comes_once_a_day_at_its_hour() {
    let mut host = Host::new(Policy { heartbeat_at_s: Some(8 * HOUR_S), ..policy() });
    host.look_for(3 * DAY_S, &[]);
    assert_eq!(host.kinds(), [Kind::Heartbeat; 3]);
    for one in &host.arrived {
        assert_eq!(one.at_s % DAY_S / MINUTE_S, 8 * 60);
    }
    assert!(host.arrived[0].body.contains("0 alerts are open"), "{}", host.arrived[0].body);
    for step in 0..60 {
        host.now_s = if step % 2 == 0 { host.now_s + DAY_S } else { host.now_s - DAY_S };
        host.look_for(10, &[]);
    }
    assert!(host.kinds().len() <= 4 + 1, "{:?}", host.kinds());
}

/// Scenario: an opening and a heartbeat wait for a channel that refuses, and a test is asked for. It has one attempt, at once, which says why
/// it failed; nothing else is lost by it. The next one arrives, and one for a channel that there is not says so.
#[test]
fn a_test_has_one_attempt_and_holds_up_nothing() {
    let mut host = Host::new(Policy { heartbeat_at_s: Some(14 * HOUR_S), ..policy() });
    host.is_sending = false;
    host.look_for(HOUR_S, &[disk_absent(1)]);
    let waiting = host.alerts.waiting();
    let first = host.alerts.test("mail", "anna", host.now_s);
    assert_eq!(host.alerts.state_of_test(first, None), TestState::Waiting);
    host.send();
    assert_eq!(host.alerts.state_of_test(first, None), TestState::Failed("connection refused".to_owned()));
    assert_eq!((host.alerts.waiting(), host.alerts.waiting_on("mail").count), (waiting, waiting));
    assert_eq!(host.alerts.waiting_on("mail").why, Some("connection refused"));
    host.is_sending = true;
    let second = host.alerts.test("mail", "anna", host.now_s);
    host.send();
    assert_eq!(host.alerts.state_of_test(second, None), TestState::Sent);
    assert!(host.arrived.iter().any(|one| one.kind == Kind::Test && one.body.contains("anna")));
    let lost = host.alerts.test("other", "anna", host.now_s);
    host.restart_with_the_policy();
    assert!(
        matches!(host.alerts.state_of_test(lost, None), TestState::Failed(why) if why.contains("channel"))
    );
    let late = host.alerts.test("mail", "anna", host.now_s);
    assert!(
        matches!(host.alerts.state_of_test(late, Some(host.now_s)), TestState::Failed(why) if why.contains("in time"))
    );
}

/// Scenario: 3,000 volumes are not mounted. The bound holds; the rest is one alert; all-clears follow, and nothing waits.
#[test]
fn more_causes_than_the_bound_are_one_alert() {
    let mut host =
        Host::new(Policy { open_after: OpenAfter { notice_s: 0, warning_s: 0, critical_s: 0 }, ..policy() });
    let volume = |number: usize| {
        finding(FindingCode::VolumeNotMounted, Object::space("tank", number.to_string()), "it is not mounted")
    };
    let findings: Vec<Finding> = (0..3000).map(volume).collect();
    let look = |host: &mut Host, findings: &[Finding]| {
        host.now_s += 30;
        host.alerts.look(host.now_s, Look::Answered(findings));
        for one in host.alerts.due(host.now_s) {
            host.alerts.sent(one.id, host.now_s);
            host.arrived.push(one);
        }
    };
    look(&mut host, &findings);
    assert_eq!(host.arrived.len(), ALERTS_MAX + 1);
    assert!(
        host.subjects().iter().any(|subject| subject.contains("2488 more causes")),
        "{:?}",
        host.subjects().last()
    );
    (0..20).for_each(|_| look(&mut host, &[]));
    assert_eq!((host.arrived.len(), host.alerts.waiting()), (2 * (ALERTS_MAX + 1), 0));
}

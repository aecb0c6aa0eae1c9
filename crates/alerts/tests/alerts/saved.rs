//! The saved state.

use dolmen_alerts::{Alerts, Look, RestoreError, SILENCES_MAX, SilenceError};

use crate::host::{BEGIN_S, HOUR_S, Host, disk_absent, policy, silence};

fn busy() -> Host {
    let mut host = Host::new(policy());
    host.is_sending = false;
    host.alerts.silence(silence("disk_slow", "*", HOUR_S), BEGIN_S).unwrap();
    host.look_for(600, &[disk_absent(1)]);
    host
}

/// Scenario: a state of version 2, and one without a version. They are refused with the version found, and the reader's.
#[test]
fn an_unknown_version_is_refused() {
    let saved = busy().alerts.save().unwrap();
    let later = saved.replacen("\"version\":1", "\"version\":2,\"new\":[]", 1);
    let error = Alerts::restore(&later, policy()).unwrap_err();
    assert!(matches!(error, RestoreError::Version { found: 2 }), "{error:?}");
    assert!(error.to_string().contains("version 2, and this build reads version 1"), "{error}");
    let without = saved.replacen("\"version\":1,", "", 1);
    assert!(matches!(Alerts::restore(&without, policy()), Err(RestoreError::Damaged(_))));
}

/// Scenario: the file is cut at each byte, or has a field more. It is refused, and nothing panics.
#[test]
fn a_damaged_state_is_refused() {
    let saved = busy().alerts.save().unwrap();
    for end in 0..saved.len() {
        if let Some(part) = saved.get(..end) {
            assert!(Alerts::restore(part, policy()).is_err(), "{end} bytes");
        }
    }
    let more = saved.replacen("\"silences\"", "\"other\":1,\"silences\"", 1);
    assert!(Alerts::restore(&more, policy()).is_err());
}

/// Scenario: numbers that were never given, and an alert twice.
#[test]
fn a_state_that_contradicts_itself_is_refused() {
    let saved = busy().alerts.save().unwrap();
    let value: serde_json::Value = serde_json::from_str(&saved).unwrap();
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut value = value.clone();
        change(&mut value["state"]);
        Alerts::restore(&value.to_string(), policy()).unwrap_err().to_string()
    };
    let given = with(&|state| state["next_id"] = 0.into());
    assert!(given.contains("a number was not given"), "{given}");
    let waiting = with(&|state| state["outbox"]["next_id"] = 0.into());
    assert!(waiting.contains("the outbox"), "{waiting}");
    let twice = with(&|state| {
        let alerts = state["alerts"].as_array_mut().unwrap();
        alerts.push(alerts[0].clone());
    });
    assert!(twice.contains("damaged"), "{twice}");
}

/// Scenario: a look at which nothing changes differs in its time alone; an alert that opens differs.
#[test]
fn only_time_that_elapsed_need_not_be_saved() {
    let mut host = busy();
    let saved = host.alerts.clone();
    host.alerts.look(host.now_s + 1, Look::Answered(&[disk_absent(1)]));
    assert!(host.alerts != saved && !host.alerts.differs_from(&saved));
    host.alerts.look(host.now_s + 2, Look::Answered(&[disk_absent(1), disk_absent(2)]));
    assert!(host.alerts.differs_from(&saved));
}

#[test]
fn silences_are_bounded_and_name_an_author() {
    let mut host = busy();
    for _ in 1..SILENCES_MAX {
        host.alerts.silence(silence("*", "x", HOUR_S), host.now_s).unwrap();
    }
    assert_eq!(host.alerts.silence(silence("*", "x", HOUR_S), host.now_s), Err(SilenceError::TooMany));
    let nameless = dolmen_alerts::NewSilence { author: String::new(), ..silence("*", "x", HOUR_S) };
    assert!(matches!(host.alerts.silence(nameless, host.now_s), Err(SilenceError::Note { .. })));
    let endless = silence("*", "x", u64::MAX);
    assert!(matches!(host.alerts.silence(endless, host.now_s), Err(SilenceError::Duration { .. })));
    assert_eq!(host.alerts.end_silence(u64::MAX), Err(SilenceError::Unknown { id: u64::MAX }));
}

//! `dolmen-web alert`. Silences are set in the file of the state, which a running server reads again; a test is left there for the server
//! to send, so that it goes the way of every notification.

use std::thread::sleep;
use std::time::Duration;

use dolmen_alerts::{Alerts, NewSilence, Pattern, TestState};
use dolmen_causes::in_one_line;

use super::{HOST_USER, Host, date, print_line, print_table};
use crate::alerts::{Keep, Settings, StateFile, report, silences_of};
use crate::arguments::AlertCommand;
use crate::audit::{Audit, Entry};
use crate::clock;
use crate::error::WebError;

/// How long a test waits for the server: it looks every 5 s, and an attempt ends within 30 s.
const TEST_LIMIT: Duration = Duration::from_secs(45);
/// How often a test that waits is looked at.
const TEST_EVERY: Duration = Duration::from_millis(250);

pub(super) fn execute(host: &Host, command: AlertCommand) -> Result<(), WebError> {
    match command {
        AlertCommand::List { json } => list(host, json),
        AlertCommand::Silence { alert, code, object, duration, comment } => {
            let what = match alert {
                Some(alert) => format!("silence alert {alert} for {} s", duration.as_secs()),
                None => format!("silence {code:?} of {object:?} for {} s", duration.as_secs()),
            };
            let ids = change(host, what, |alerts| {
                let for_s = duration.as_secs();
                let fresh = match alert {
                    Some(alert) => silences_of(alerts, alert, HOST_USER, &comment, for_s)?,
                    None => {
                        let pattern =
                            |text: &str| Pattern::new(text).map_err(dolmen_alerts::SilenceError::from);
                        let (code, object) = (pattern(&code)?, pattern(&object)?);
                        let author = HOST_USER.to_owned();
                        vec![NewSilence { code, object, author, comment, for_s }]
                    }
                };
                let now_s = clock::now().wall_s;
                let ids: Result<Vec<u64>, _> =
                    fresh.into_iter().map(|one| alerts.silence(one, now_s)).collect();
                Ok(ids?)
            })?;
            ids.iter().for_each(|id| print_line(&id.to_string()));
            Ok(())
        }
        AlertCommand::Unsilence { id } => {
            change(host, format!("end silence {id}"), |alerts| Ok(alerts.end_silence(id)?))
        }
        AlertCommand::Test { channel } => test(host, channel),
        AlertCommand::Check => {
            let settings = Settings::read(host.alerts.as_deref())?;
            let rows: Vec<[String; 3]> = settings
                .channels
                .iter()
                .map(|channel| [channel.name.clone(), channel.kind().to_owned(), channel.target()])
                .collect();
            print_table(["CHANNEL", "KIND", "TO"], &rows);
            Ok(())
        }
    }
}

/// Changes the alerts, and records it.
fn change<T>(
    host: &Host,
    what: String,
    change: impl FnOnce(&mut Alerts) -> Result<T, WebError>,
) -> Result<T, WebError> {
    let changed = StateFile::in_folder(&host.state).change(None, Keep::Before, change);
    let outcome =
        changed.as_ref().err().map_or_else(|| "done".to_owned(), |error| in_one_line(error).to_string());
    if !matches!(changed, Err(WebError::File { .. })) {
        Audit::in_folder(&host.state).write(&Entry::new(what, outcome).by(HOST_USER, None));
    }
    changed
}

fn list(host: &Host, is_json: bool) -> Result<(), WebError> {
    // The settings name the channels; a list without them is better than none.
    let settings = Settings::read(host.alerts.as_deref());
    let trouble = settings.as_ref().err().map(|error| in_one_line(error).to_string());
    let document = StateFile::in_folder(&host.state).change(None, Keep::Before, |alerts| {
        Ok(report(alerts, settings.as_ref().ok(), clock::now().wall_s, trouble.as_deref()))
    })?;
    if is_json {
        print_line(&document.to_string());
        return Ok(());
    }
    let rows_of =
        |part: &str| document.get(part).and_then(serde_json::Value::as_array).cloned().unwrap_or_default();
    let text = |row: &serde_json::Value, field: &str| match row.get(field) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    let seconds = |row: &serde_json::Value, field: &str| {
        date(row.get(field).and_then(serde_json::Value::as_u64).unwrap_or(0))
    };
    let is = |row: &serde_json::Value, field: &str| row.get(field) == Some(&serde_json::Value::Bool(true));
    let alerts: Vec<[String; 5]> = rows_of("alerts")
        .iter()
        .map(|row| {
            let state = match (is(row, "is_silenced"), is(row, "is_open")) {
                (true, _) => "silenced",
                (false, true) => "open",
                (false, false) => "pending",
            };
            [
                text(row, "id"),
                text(row, "severity"),
                state.to_owned(),
                seconds(row, "since_s"),
                text(row, "summary"),
            ]
        })
        .collect();
    print_table(["ALERT", "SEVERITY", "STATE", "SINCE", "CAUSE"], &alerts);
    print_line("");
    let silences: Vec<[String; 6]> = rows_of("silences")
        .iter()
        .map(|row| {
            let [id, code, object, author, comment] =
                ["id", "code", "object", "author", "comment"].map(|field| text(row, field));
            [id, code, object, seconds(row, "until_s"), author, comment]
        })
        .collect();
    print_table(["SILENCE", "CODE", "OBJECT", "UNTIL", "BY", "REASON"], &silences);
    print_line("");
    let channels: Vec<[String; 5]> = rows_of("channels")
        .iter()
        .map(|row| ["name", "kind", "to", "waiting", "why"].map(|field| text(row, field)))
        .collect();
    print_table(["CHANNEL", "KIND", "TO", "WAITING", "LAST FAILURE"], &channels);
    trouble.map_or(Ok(()), |_| settings.map(drop))
}

fn test(host: &Host, channel: Option<String>) -> Result<(), WebError> {
    let settings = Settings::read(host.alerts.as_deref())?;
    let known = settings.channels.iter().map(|one| one.name.clone());
    let names: Vec<String> =
        known.filter(|name| channel.as_ref().is_none_or(|asked| asked == name)).collect();
    if names.is_empty() {
        return Err(WebError::NoChannel { channel });
    }
    let what = format!("test of notifications to {}", channel.as_deref().unwrap_or("all channels"));
    let mut waiting = change(host, what, |alerts| {
        let now_s = clock::now().wall_s;
        let tests = names.into_iter().map(|name| {
            let id = alerts.test(&name, HOST_USER, now_s);
            (name, id)
        });
        Ok(tests.collect::<Vec<_>>())
    })?;
    let file = StateFile::in_folder(&host.state);
    let mut failed = Vec::new();
    let mut left = TEST_LIMIT;
    while !waiting.is_empty() {
        #[allow(clippy::disallowed_methods, reason = "a command waits for the server in real time")]
        sleep(TEST_EVERY);
        left = left.saturating_sub(TEST_EVERY);
        let end_s = left.is_zero().then(|| clock::now().wall_s);
        let mut still = Vec::new();
        for (name, id) in waiting {
            match file.change(None, Keep::Before, |alerts| Ok(alerts.state_of_test(id, end_s)))? {
                TestState::Waiting => still.push((name, id)),
                TestState::Sent => print_line(&format!("{name}: sent")),
                TestState::Failed(why) => failed.push(format!("{name}: {why}")),
            }
        }
        waiting = still;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(WebError::Test { failed: failed.join("; ") }),
    }
}

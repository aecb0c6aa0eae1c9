//! Alerts, silences and channels as a document, for the console and for commands.

use dolmen_alerts::{Alert, Alerts, NewSilence, Pattern};
use dolmen_api::SCHEMA;
use serde_json::{Value, json};

use super::settings::Settings;
use crate::error::WebError;

/// Returns the state of alerts as a document.
pub(crate) fn report(
    alerts: &Alerts,
    settings: Option<&Settings>,
    now_s: u64,
    trouble: Option<&str>,
) -> Value {
    let channels: Vec<Value> = settings.map_or_else(Vec::new, |settings| {
        let channels = settings.channels.iter();
        channels
            .map(|channel| {
                let waiting = alerts.waiting_on(&channel.name);
                json!({
                    "name": channel.name,
                    "kind": channel.kind(),
                    "to": channel.target(),
                    "waiting": waiting.count,
                    "attempts": waiting.attempts,
                    "why": waiting.why,
                })
            })
            .collect()
    });
    let silences: Vec<Value> = alerts
        .silences()
        .iter()
        .map(|silence| {
            json!({
                "id": silence.id,
                "code": silence.code.as_str(),
                "object": silence.object.as_str(),
                "author": silence.author,
                "comment": silence.comment,
                "set_s": silence.set_s,
                "until_s": silence.until_s,
            })
        })
        .collect();
    let abandoned: Vec<Value> = alerts.abandoned().map(|one| json!(one)).collect();
    json!({
        "schema": SCHEMA,
        "now_s": now_s,
        "is_answered": alerts.is_answered(),
        "trouble": trouble,
        "heartbeat_at_s": settings.and_then(|settings| settings.policy.heartbeat_at_s),
        "channels": channels,
        "alerts": alerts.all().map(of_alert).collect::<Vec<Value>>(),
        "silences": silences,
        "waiting": alerts.waiting(),
        "abandoned": abandoned,
    })
}

fn of_alert(alert: &Alert) -> Value {
    let cause = alert.cause();
    let (summary, advice) = (alert.summary(), alert.advice());
    let evidence: Vec<Value> = alert
        .evidence()
        .iter()
        .map(|one| {
            json!({
                "code": one.code,
                "severity": one.severity.word(),
                "object": one.object.to_string(),
                "text": one.text,
                "amount": one.amount,
                "distance": one.distance,
            })
        })
        .collect();
    json!({
        "id": alert.id(),
        "cause": cause.kind.word(),
        "scope": cause.scope,
        "pool": cause.pool,
        "severity": alert.severity().word(),
        "since_s": alert.since_s(),
        "is_open": alert.is_open(),
        "is_silenced": alert.is_silenced(),
        "summary": summary,
        "evidence": evidence,
        "left_out": alert.left_out(),
        "to_do": advice.text,
        "commands": advice.commands,
    })
}

/// Returns the silences that cover an alert: one for each finding that is nearest to its cause.
pub(crate) fn silences_of(
    alerts: &Alerts,
    id: u64,
    author: &str,
    comment: &str,
    for_s: u64,
) -> Result<Vec<NewSilence>, WebError> {
    let alert = alerts.all().find(|alert| alert.id() == id).ok_or(WebError::NoAlert { id })?;
    let nearest = alert.evidence().first().map_or(0, |one| one.distance);
    let evidence = alert.evidence().iter().take_while(|one| one.distance == nearest);
    evidence
        .map(|one| {
            Ok(NewSilence {
                code: Pattern::new(one.code.as_str()).map_err(dolmen_alerts::SilenceError::from)?,
                object: Pattern::new(one.object.to_string()).map_err(dolmen_alerts::SilenceError::from)?,
                author: author.to_owned(),
                comment: comment.to_owned(),
                for_s,
            })
        })
        .collect()
}

//! Alerts: what is open, silences, and a test of the channels.

use axum::body::Bytes;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use dolmen_alerts::{NewSilence, Pattern, SilenceError};
use dolmen_api::{CallerRole, ErrorCode, SCHEMA, Simple};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::account::{done, read};
use super::app::Shared;
use super::guard::Client;
use super::identity::{Identity, Who};
use super::refusal::Refusal;
use crate::accounts::Role;
use crate::alerts::{TestResult, silences_of};
use crate::audit::Entry;

/// A silence: of an alert, or of what two patterns match.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Silencing {
    #[serde(default)]
    alert: Option<u64>,
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    object: Option<String>,
    for_s: u64,
    #[serde(default)]
    comment: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Test {
    #[serde(default)]
    channel: Option<String>,
}

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/alerts", get(show))
        .route("/alerts/silences", post(silence))
        .route("/alerts/silences/{id}/end", post(end_silence))
        .route("/alerts/test", post(test))
}

async fn show(
    State(app): State<Shared>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<Value>, Refusal> {
    identity.with_role(CallerRole::Viewer)?;
    Ok(Json(app.alerts.report().await?))
}

async fn silence(
    State(app): State<Shared>,
    Extension(client): Extension<Client>,
    Extension(identity): Extension<Identity>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let who = identity.with_role(CallerRole::Operator)?;
    let asked: Silencing = read(&body)?;
    let author = who.label();
    let what = match (asked.alert, &asked.code, &asked.object) {
        (Some(alert), None, None) => format!("silence alert {alert} for {} s", asked.for_s),
        (None, Some(code), Some(object)) => format!("silence {code:?} of {object:?} for {} s", asked.for_s),
        _ => return Err(Refusal::unreadable(&"it names either `alert`, or `code` and `object`")),
    };
    let set = app.alerts.change(move |alerts, now_s| {
        let (comment, for_s) = (asked.comment, asked.for_s);
        let fresh = match (asked.alert, asked.code, asked.object) {
            (Some(alert), ..) => silences_of(alerts, alert, &author, &comment, for_s)?,
            (None, code, object) => {
                let pattern = |text: Option<String>| -> Result<Pattern, SilenceError> {
                    Ok(Pattern::new(text.unwrap_or_default())?)
                };
                vec![NewSilence { code: pattern(code)?, object: pattern(object)?, author, comment, for_s }]
            }
        };
        let ids: Result<Vec<u64>, SilenceError> =
            fresh.into_iter().map(|one| alerts.silence(one, now_s)).collect();
        Ok(ids?)
    });
    let set = set.await.map_err(Refusal::from);
    record(&app, client, who, what, set.as_ref().err());
    set.map(|ids| Json(json!({ "schema": SCHEMA, "silences": ids })))
}

async fn end_silence(
    State(app): State<Shared>,
    Extension(client): Extension<Client>,
    Extension(identity): Extension<Identity>,
    Path(id): Path<u64>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let who = identity.with_role(CallerRole::Operator)?;
    let _: Simple = read(&body)?;
    let ended = app.alerts.change(move |alerts, _| Ok(alerts.end_silence(id)?)).await.map_err(Refusal::from);
    record(&app, client, who, format!("end silence {id}"), ended.as_ref().err());
    ended.map(|()| done())
}

async fn test(
    State(app): State<Shared>,
    Extension(client): Extension<Client>,
    Extension(identity): Extension<Identity>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let who = identity.with_role(CallerRole::Operator)?;
    let asked: Test = read(&body)?;
    let what = format!("test of notifications to {}", asked.channel.as_deref().unwrap_or("all channels"));
    let tested = app.alerts.test(asked.channel, who.label()).await.map_err(Refusal::from);
    record(&app, client, who, what, tested.as_ref().err());
    let results: Vec<Value> = tested?
        .into_iter()
        .map(|one| match one.result {
            TestResult::Sent => json!({ "channel": one.channel, "sent": true, "why": null }),
            TestResult::Failed(why) => json!({ "channel": one.channel, "sent": false, "why": why }),
        })
        .collect();
    Ok(Json(json!({ "schema": SCHEMA, "results": results })))
}

fn record(app: &Shared, client: Client, who: &Who, what: String, refused: Option<&Refusal>) {
    let outcome = refused.map_or_else(|| "200".to_owned(), Refusal::outcome);
    let entry = Entry::new(what, outcome).from(client.address).by(&who.label(), Some(Role(who.role)));
    match refused {
        Some(_) => app.audit.note_access(&entry),
        None => app.audit.write(&entry),
    }
}

impl From<SilenceError> for Refusal {
    fn from(error: SilenceError) -> Self {
        let (status, code) = match &error {
            SilenceError::Unknown { .. } => (StatusCode::NOT_FOUND, ErrorCode::NoSuchObject),
            SilenceError::TooMany => (StatusCode::CONFLICT, ErrorCode::Busy),
            SilenceError::Pattern(_) | SilenceError::Duration { .. } | SilenceError::Note { .. } => {
                (StatusCode::BAD_REQUEST, ErrorCode::BadRequest)
            }
        };
        Self::new(status, code, format!("{}; nothing was changed", dolmen_causes::in_one_line(&error)))
    }
}

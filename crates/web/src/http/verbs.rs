//! The verbs of the API: checked against the table, and passed on to the daemon, which checks them again.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{Extension, RawPathParams, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use dolmen_api::{
    CallerRole, Change, Declaration, ErrorDocument, RequestError, Verb, VerbId, VerbKind, VerbVisitor,
    openapi, read_request, visit_verbs,
};
use serde_json::{Value, json};

use super::app::Shared;
use super::guard::Client;
use super::identity::{Identity, Who};
use super::refusal::Refusal;
use crate::accounts::Role;
use crate::audit::Entry;
use crate::daemon::Question;

/// What stands before the paths of the daemon.
const PREFIX: &str = "/api";
/// Path of the description.
const OPENAPI_PATH: &str = "/api/openapi.json";
/// Bytes of a value in a path, at most: longer than a path of a device.
const VALUE_BYTES_MAX: usize = 1024;

/// Reads the body of a verb, to see whether it is one.
type Check = fn(&[u8]) -> Result<(), RequestError>;

/// Checks of the bodies of all verbs, in the order of the table.
#[derive(Default)]
struct Checks(Vec<Check>);

impl VerbVisitor for Checks {
    fn question<V: Verb>(&mut self) {
        self.0.push(|_| Ok(()));
    }

    fn change<V: Verb<Answer = Change>>(&mut self) {
        self.0.push(|body| read_request::<V::Request>(body).map(drop));
    }
}

/// Returns the routes of all verbs, and of their description.
pub(super) fn routes() -> Router<Shared> {
    let mut checks = Checks::default();
    visit_verbs(&mut checks);
    let verbs = VerbId::ALL.iter().map(|verb| verb.declaration()).zip(checks.0);
    let description: Arc<str> = description().into();
    let described = get(async move |Extension(identity): Extension<Identity>| {
        identity.with_role(CallerRole::Viewer)?;
        Ok::<_, Refusal>(([(header::CONTENT_TYPE, "application/json")], description.to_string()))
    });
    verbs.fold(Router::new().route(OPENAPI_PATH, described), |router, (verb, check)| {
        let handler = async move |State(app): State<Shared>,
                                  Extension(client): Extension<Client>,
                                  Extension(identity): Extension<Identity>,
                                  values: Result<RawPathParams, RawPathParamsRejection>,
                                  RawQuery(query): RawQuery,
                                  body: Bytes| {
            let asked = Asked { app, client, verb, check };
            asked.answer(&identity, values, query, body).await
        };
        let handler = match verb.kind {
            VerbKind::Question => get(handler),
            VerbKind::Change => post(handler),
        };
        router.route(&format!("{PREFIX}{}", verb.route()), handler)
    })
}

/// Returns the description of the API as clients of this server see it.
fn description() -> String {
    let Ok(Value::Object(mut document)) = serde_json::from_str(&openapi()) else { return openapi() };
    document.insert("servers".to_owned(), json!([{ "url": PREFIX }]));
    serde_json::to_string(&document).unwrap_or_else(|_| openapi())
}

/// A request for a verb.
struct Asked {
    app: Shared,
    client: Client,
    verb: &'static Declaration,
    check: Check,
}

impl Asked {
    async fn answer(
        self,
        identity: &Identity,
        values: Result<RawPathParams, RawPathParamsRejection>,
        query: Option<String>,
        body: Bytes,
    ) -> Response {
        let path = match values.map_err(|rejection| Refusal::unreadable(&rejection.body_text())) {
            Ok(values) => self.path_of(&values),
            Err(refusal) => Err(refusal),
        };
        let path = match path {
            Ok(path) => path,
            Err(refusal) => return refusal.into_response(),
        };
        let is_dry = is_dry_run(&body);
        let answered = self.ask(identity, &path, query, body).await;
        let outcome = match &answered {
            Ok((status, body)) => outcome_of(*status, body, is_dry),
            Err(refusal) => refusal.outcome(),
        };
        if self.verb.kind == VerbKind::Change {
            let entry = Entry::new(format!("{} {path}", self.verb.name), outcome).from(self.client.address);
            let entry = match &identity.0 {
                Some(who) => entry.by(&who.label(), Some(Role(who.role))),
                None => entry,
            };
            let status = answered.as_ref().map_or_else(|refusal| refusal.status, |(status, _)| *status);
            match status {
                // A plan changes nothing, and dialogs ask for one with each letter that is typed.
                status if is_dry && !is_denial(status) => {}
                status if status.is_success() => self.app.audit.write(&entry),
                _ => self.app.audit.note_access(&entry),
            }
        }
        match answered {
            Ok((status, body)) => {
                (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
            }
            Err(refusal) => refusal.into_response(),
        }
    }

    /// Returns the path for the daemon, made again of its values: what a client has encoded in an odd way does not get there.
    fn path_of(&self, values: &RawPathParams) -> Result<String, Refusal> {
        let values: Vec<&str> = values.iter().map(|(_, value)| value).collect();
        let is_fit = |value: &&str| {
            !value.is_empty()
                && value.len() <= VALUE_BYTES_MAX
                && !value.contains(char::is_control)
                && !matches!(*value, "." | "..")
        };
        if values.len() == self.verb.parameters.len() && values.iter().all(is_fit) {
            return Ok(self.verb.path_of(&values));
        }
        Err(Refusal::unreadable(&"a part of its path is empty, too long, or no name"))
    }

    async fn ask(
        &self,
        identity: &Identity,
        path: &str,
        query: Option<String>,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Refusal> {
        let who: &Who = identity.with_role(self.verb.role)?;
        (self.check)(&body).map_err(|error| Refusal::unreadable(&error))?;
        let query = query.filter(|_| self.verb.kind == VerbKind::Question);
        let path = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        let (method, label) = (self.verb.kind.method(), who.label());
        let question = Question { method, path: &path, role: who.role, user: &label, body };
        Ok(self.app.daemon.ask(question).await?)
    }
}

fn is_denial(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

fn is_dry_run(body: &[u8]) -> bool {
    let body: Result<Value, _> = serde_json::from_slice(body);
    body.is_ok_and(|body| body.get("dry_run") == Some(&Value::Bool(true)))
}

fn outcome_of(status: StatusCode, body: &[u8], is_dry: bool) -> String {
    let dry = if is_dry { " (dry run)" } else { "" };
    if status.is_success() {
        return format!("{}{dry}", status.as_u16());
    }
    match serde_json::from_slice::<ErrorDocument>(body) {
        Ok(document) => {
            format!("{} {}: {}{dry}", status.as_u16(), document.error.code.word(), document.error.message)
        }
        Err(_) => format!("{}{dry}", status.as_u16()),
    }
}

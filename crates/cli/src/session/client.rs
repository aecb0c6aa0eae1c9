//! The daemon's API as functions: requests written, answers read, versions compared.
//!
//! Method, path, request and answer of each verb come from the table of `dolmen_api`.
//!
//! Invariant: everything that changes anything goes through [`Client::change`], which alone writes `dry_run` into a
//! request. No command can forget it.

use std::marker::PhantomData;
use std::path::Path;

use dolmen_api::{
    Change, ErrorBody, ErrorCode, ErrorDocument, ExitCode, Nothing, SCHEMA, Verb, query_of, verb,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arguments::common::Intent;
use crate::error::CliError;
use crate::http::{Answer, Method, Peer};

/// A document, and the bytes that it came in.
#[derive(Debug, Clone)]
pub(crate) struct Document<T> {
    /// What this version understands of it.
    pub value: T,
    /// All of it, with fields of later versions.
    pub raw: String,
}

/// The part of every document that says whether the rest can be understood.
#[derive(Deserialize)]
struct Envelope {
    schema: u32,
}

/// A verb with the values of its path.
#[derive(Debug, Clone)]
pub(crate) struct Call<V> {
    /// The path, with the version of the API.
    pub path: String,
    verb: PhantomData<V>,
}

/// Gives a verb the values of its path.
pub(crate) fn call<V: Verb>(values: V::Values<'_>) -> Call<V> {
    Call { path: V::DECLARATION.path_of(values.as_ref()), verb: PhantomData }
}

/// Speaks with the daemon.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    peer: Peer,
}

impl Client {
    /// Speaks with the daemon behind this socket.
    pub(crate) fn new(peer: Peer) -> Self {
        Self { peer }
    }

    /// The socket that it speaks through.
    pub(crate) fn socket(&self) -> &Path {
        &self.peer.socket
    }

    /// Asks a question.
    pub(crate) fn look<V: Verb<Request = Nothing>>(
        &self,
        call: &Call<V>,
    ) -> Result<Document<V::Answer>, CliError> {
        self.ask(Method::Get, &call.path, None)
    }

    /// Asks a question that has a query.
    pub(crate) fn look_for<V: Verb>(
        &self,
        call: &Call<V>,
        query: &V::Request,
    ) -> Result<Document<V::Answer>, CliError> {
        let unwritable = |source| CliError::Request { asked: format!("GET {}", call.path), source };
        let query = query_of(query).map_err(unwritable)?;
        self.ask(Method::Get, &format!("{}{query}", call.path), None)
    }

    /// Asks for a change, or for its plan.
    pub(crate) fn change<V: Verb<Answer = Change>>(
        &self,
        call: &Call<V>,
        request: &V::Request,
        intent: Intent,
    ) -> Result<Document<Change>, CliError> {
        self.change_at(&call.path, request, intent)
    }

    /// Asks for a change at a path that a verb has given.
    pub(crate) fn change_at(
        &self,
        path: &str,
        request: &impl Serialize,
        intent: Intent,
    ) -> Result<Document<Change>, CliError> {
        let asked = format!("POST {path}");
        let unwritable = |source| CliError::Request { asked: asked.clone(), source };
        let mut body = serde_json::to_value(request).map_err(unwritable)?;
        let Value::Object(fields) = &mut body else { unreachable!("every request is a struct") };
        fields.insert("dry_run".to_owned(), Value::Bool(intent == Intent::DryRun));
        let body = serde_json::to_vec(&body).map_err(unwritable)?;
        let answer: Document<Change> = self.ask(Method::Post, path, Some(&body))?;
        if intent == Intent::DryRun && answer.value.is_changed {
            return Err(CliError::DryRunChanged { asked });
        }
        Ok(answer)
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<Document<T>, CliError> {
        let asked = format!("{} {path}", method.word());
        let answer = self.peer.ask(method, path, body)?;
        if !(200..300).contains(&answer.status) {
            return Err(self.refusal(&asked, &answer));
        }
        let unreadable = |source| CliError::Answer { asked: asked.clone(), source };
        let envelope: Envelope = serde_json::from_slice(&answer.body).map_err(unreadable)?;
        if envelope.schema != SCHEMA {
            let found = format!(
                "it answers with documents of schema {}, this command reads schema {SCHEMA}",
                envelope.schema
            );
            return Err(self.skew(found));
        }
        match serde_json::from_slice(&answer.body) {
            Ok(value) => Ok(Document { value, raw: String::from_utf8_lossy(&answer.body).into_owned() }),
            // A newer daemon may use a word in an enum that this version has not learned.
            Err(source) => match self.other_version() {
                Some(_) => Err(self.skew(format!("its answer to {asked} says something new: {source}"))),
                None => Err(unreadable(source)),
            },
        }
    }

    /// What an answer that is no success means.
    fn refusal(&self, asked: &str, answer: &Answer) -> CliError {
        let document: Result<ErrorDocument, _> = serde_json::from_slice(&answer.body);
        match document {
            Ok(document) if document.error.code == ErrorCode::NoSuchRoute => {
                self.skew(format!("the daemon does not know {asked}"))
            }
            Ok(document) if document.schema == SCHEMA => self.with_version_hint(document.error),
            _ => self.unfamiliar(asked, answer),
        }
    }

    /// A daemon that is older refuses fields that it does not know; then its version is what matters.
    fn with_version_hint(&self, mut body: ErrorBody) -> CliError {
        if body.code == ErrorCode::BadRequest && body.hint.is_none() {
            body.hint = self.other_version().map(|daemon| {
                format!(
                    "the daemon is version {daemon}, this command {}; restart the daemon after an upgrade",
                    env!("CARGO_PKG_VERSION")
                )
            });
        }
        CliError::Daemon { body: Box::new(body) }
    }

    /// An error in words of another version: what can be understood of it is shown.
    fn unfamiliar(&self, asked: &str, answer: &Answer) -> CliError {
        let value: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        let error = value.get("error").unwrap_or(&Value::Null);
        let text = |field: &str| error.get(field).and_then(Value::as_str).map(str::to_owned);
        let Some(message) = text("message") else {
            return match answer.status {
                404 | 405 | 410 => self.skew(format!("the daemon does not know {asked}")),
                status => CliError::Unfamiliar {
                    message: format!("the daemon answers {asked} with status {status} and says no more"),
                    causes: Vec::new(),
                    hint: Some("see what the daemon logs".to_owned()),
                    exit: exit_of(status),
                },
            };
        };
        let causes = error.get("causes").and_then(Value::as_array);
        let causes = causes.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        CliError::Unfamiliar { message, causes, hint: text("hint"), exit: exit_of(answer.status) }
    }

    fn skew(&self, found: String) -> CliError {
        let daemon = self.version().map(|version| format!(" {version}")).unwrap_or_default();
        CliError::Skew { daemon, found }
    }

    /// The daemon's version, if it differs from this one's.
    fn other_version(&self) -> Option<String> {
        self.version().filter(|version| version != env!("CARGO_PKG_VERSION"))
    }

    /// What the daemon says of itself, as far as that can be read in any version of the API.
    fn version(&self) -> Option<String> {
        let answer = self.peer.ask(Method::Get, &call::<verb::ShowVersion>([]).path, None).ok()?;
        let value: Value = serde_json::from_slice(&answer.body).ok()?;
        value.get("daemon").and_then(Value::as_str).map(str::to_owned)
    }
}

/// How to end after an error that only its HTTP status is known of.
fn exit_of(status: u16) -> ExitCode {
    match status {
        403 => ExitCode::Permission,
        409 | 503 => ExitCode::Busy,
        412 => ExitCode::Refused,
        422 => ExitCode::Missing,
        400..=499 => ExitCode::Usage,
        _ => ExitCode::Internal,
    }
}

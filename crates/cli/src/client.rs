//! The daemon's API as functions: requests written, answers read, versions compared.
//!
//! Invariant: everything that changes anything goes through [`Client::change`], which alone writes `dry_run` into a
//! request. No command can forget it.

use std::path::Path;

use dolmen_api::{API_VERSION, Change, ErrorBody, ErrorCode, ErrorDocument, ExitCode, SCHEMA, Version};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::CliError;
use crate::http::{Answer, Method, Peer};

/// Whether a change is meant, or only its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Change it.
    Act,
    /// Only tell what would happen.
    DryRun,
}

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

    /// Looks at a resource; `path` stands behind the version, and begins with a slash.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Document<T>, CliError> {
        self.ask(Method::Get, path, None)
    }

    /// Asks for a change, or for its plan.
    pub(crate) fn change(
        &self,
        path: &str,
        request: &impl Serialize,
        intent: Intent,
    ) -> Result<Document<Change>, CliError> {
        let asked = format!("POST /v{API_VERSION}{path}");
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
        let full = format!("/v{API_VERSION}{path}");
        let asked = format!("{} {full}", method.word());
        let answer = self.peer.ask(method, &full, body)?;
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
        let answer = self.peer.ask(Method::Get, &format!("/v{API_VERSION}/version"), None).ok()?;
        let value: Value = serde_json::from_slice(&answer.body).ok()?;
        value.get("daemon").and_then(Value::as_str).map(str::to_owned)
    }

    /// The daemon's version document.
    pub(crate) fn version_document(&self) -> Result<Document<Version>, CliError> {
        self.get("/version")
    }
}

/// How to end after an error that only its HTTP status is known of.
fn exit_of(status: u16) -> ExitCode {
    match status {
        403 => ExitCode::Permission,
        409 | 503 => ExitCode::Busy,
        412 => ExitCode::Refused,
        400..=499 => ExitCode::Usage,
        501 => ExitCode::Missing,
        507 => ExitCode::Io,
        _ => ExitCode::Internal,
    }
}

/// A part of a path: what is not a letter, a digit or one of `-._` is percent-encoded.
pub(crate) fn segment(text: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| DIGITS.get(usize::from(value)).map_or('0', |digit| char::from(*digit));
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_') {
            encoded.push(char::from(byte));
        } else {
            encoded.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    encoded
}

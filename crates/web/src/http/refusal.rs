//! Refusals: a status and the error document of the API.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dolmen_api::{ErrorBody, ErrorCode, ErrorDocument};
use dolmen_causes::in_one_line;

use crate::accounts::Rule;
use crate::error::WebError;

/// Letters of a path that a message repeats.
const PATH_CHARS_MAX: usize = 200;

/// A refusal on its way out.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub status: StatusCode,
    pub error: Box<ErrorBody>,
    retry_after_s: Option<u64>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: ErrorCode, message: impl Into<String>) -> Self {
        Self { status, error: Box::new(ErrorBody::new(code, message)), retry_after_s: None }
    }

    /// Returns a refusal of what cannot be read.
    pub(crate) fn unreadable(why: &dyn std::fmt::Display) -> Self {
        let message = format!("the request cannot be read: {why}; nothing was changed");
        Self::new(StatusCode::BAD_REQUEST, ErrorCode::BadRequest, message)
    }

    /// Returns a refusal of a request of nobody.
    pub(crate) fn unknown() -> Self {
        let message = "nobody is signed in, or the session has ended; nothing was changed";
        Self::new(StatusCode::UNAUTHORIZED, ErrorCode::Permission, message).hint("sign in")
    }

    /// Returns a refusal by the rules of roles or of cross-site requests.
    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, ErrorCode::Permission, message)
    }

    /// Returns a refusal of too many requests.
    pub(crate) fn too_many(message: impl Into<String>, retry_after_s: u64) -> Self {
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, ErrorCode::Busy, message);
        Self { retry_after_s: Some(retry_after_s), ..refusal }
    }

    /// Returns a refusal because all places are taken.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Busy, message);
        Self { retry_after_s: Some(1), ..refusal }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Internal, message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        *self.error = self.error.clone().hint(hint);
        self
    }

    /// Returns it as the audit log has it.
    pub(crate) fn outcome(&self) -> String {
        format!("{} {}: {}", self.status.as_u16(), self.error.code.word(), self.error.message)
    }
}

impl From<ErrorBody> for Refusal {
    fn from(error: ErrorBody) -> Self {
        let status = StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, error: Box::new(error), retry_after_s: None }
    }
}

impl From<Rule> for Refusal {
    fn from(rule: Rule) -> Self {
        let (status, code) = match &rule {
            Rule::Name { .. } => (StatusCode::BAD_REQUEST, ErrorCode::BadName),
            Rule::Password { .. } | Rule::Days { .. } => (StatusCode::BAD_REQUEST, ErrorCode::BadRequest),
            Rule::Taken { .. } => (StatusCode::CONFLICT, ErrorCode::NameTaken),
            Rule::Unknown { .. } => (StatusCode::NOT_FOUND, ErrorCode::NoSuchObject),
            Rule::LastAdministrator { .. } | Rule::TooMany { .. } | Rule::NotFirst => {
                (StatusCode::CONFLICT, ErrorCode::Busy)
            }
            Rule::WrongCode | Rule::WrongPassword => (StatusCode::UNAUTHORIZED, ErrorCode::Permission),
        };
        Self::new(status, code, format!("{rule}; nothing was changed"))
    }
}

impl From<WebError> for Refusal {
    fn from(error: WebError) -> Self {
        match error {
            WebError::Rule(rule) => return rule.into(),
            WebError::Silence(refused) => return refused.into(),
            WebError::NoAlert { .. } | WebError::NoChannel { .. } => {
                let message = format!("{error}; nothing was changed");
                return Self::new(StatusCode::NOT_FOUND, ErrorCode::NoSuchObject, message);
            }
            _ => {}
        }
        // Paths of the host and causes are for its administrator, not for whoever asks.
        tracing::error!(error = in_one_line(&error), "the state folder cannot be used");
        let message = match &error {
            WebError::Alerts { .. } | WebError::CutShort => {
                "the state of alerts cannot be used; nothing was changed"
            }
            WebError::File { .. } => "the state folder cannot be written or read; nothing was changed",
            _ => "the accounts cannot be used; nothing was changed",
        };
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Config, message)
            .hint("the log of dolmen-web on the host says why")
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(ErrorDocument::from(*self.error))).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

pub(super) async fn no_such_route(request: Request) -> Refusal {
    let path: String = request.uri().path().chars().take(PATH_CHARS_MAX).collect();
    let message = format!("{} {path} is not served here", request.method());
    Refusal::new(StatusCode::NOT_FOUND, ErrorCode::NoSuchRoute, message)
}

pub(super) async fn no_such_method(request: Request) -> Refusal {
    let path: String = request.uri().path().chars().take(PATH_CHARS_MAX).collect();
    let message = format!("{path} is not asked with {}", request.method());
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, ErrorCode::NoSuchRoute, message)
}

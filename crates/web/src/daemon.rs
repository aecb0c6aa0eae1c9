//! Requests to the daemon, on its Unix socket. Each has a connection of its own: the daemon may be restarted between two.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderValue, Request, StatusCode, header};
use dolmen_api::{CallerRole, ErrorBody, ErrorCode, ErrorDocument, ROLE_HEADER, USER_HEADER};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long the daemon may take to answer: less than a request of a client, which gets to know of it.
const ANSWER_LIMIT: Duration = Duration::from_secs(55);
/// How long the daemon may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Bytes of an answer, at most.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A request to the daemon.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    /// Method of HTTP.
    pub method: &'static str,
    /// Path and query.
    pub path: &'a str,
    /// The role that bounds it.
    pub role: CallerRole,
    /// The user it is for.
    pub user: &'a str,
    /// Body.
    pub body: Bytes,
}

/// The daemon's socket.
#[derive(Debug, Clone)]
pub(crate) struct Daemon {
    socket: PathBuf,
}

impl Daemon {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_path_buf() }
    }

    /// Asks, and returns the status and the document of the answer.
    pub(crate) async fn ask(&self, question: Question<'_>) -> Result<(StatusCode, Bytes), ErrorBody> {
        let is_change = question.method != "GET";
        let asked = timeout(ANSWER_LIMIT, self.exchange(question)).await;
        match asked {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let seconds = ANSWER_LIMIT.as_secs();
                let hint = match is_change {
                    true => "what was asked for may still be done: look at it before you ask again",
                    false => "try again in a moment",
                };
                let message = format!("the daemon did not answer within {seconds} s");
                Err(ErrorBody::new(ErrorCode::Stopping, message).hint(hint))
            }
        }
    }

    /// Asks a question of the server's own, as a viewer, and returns the document of an answer that is a success.
    pub(crate) async fn look(&self, path: &str, looker: &str, limit: Duration) -> Result<Bytes, ErrorBody> {
        let question =
            Question { method: "GET", path, role: CallerRole::Viewer, user: looker, body: Bytes::new() };
        match timeout(limit, self.ask(question)).await {
            Ok(Ok((StatusCode::OK, body))) => Ok(body),
            Ok(Ok((status, body))) => Err(serde_json::from_slice::<ErrorDocument>(&body).map_or_else(
                |_| ErrorBody::new(ErrorCode::Internal, format!("the daemon answered {path} with {status}")),
                |document| document.error,
            )),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let message = format!("the daemon did not answer within {} s", limit.as_secs());
                Err(ErrorBody::new(ErrorCode::Stopping, message))
            }
        }
    }

    async fn exchange(&self, question: Question<'_>) -> Result<(StatusCode, Bytes), ErrorBody> {
        let stream = timeout(CONNECT_LIMIT, UnixStream::connect(&self.socket)).await;
        let stream = stream.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = stream.map_err(|error| self.away(&error))?;
        let broken = |error: hyper::Error| self.broken(&error);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // It ends when the answer is read, or when nobody waits for it any more.
        tokio::spawn(async move { drop(connection.await) });
        let request = request(question).map_err(|error| self.broken(&error))?;
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let kind = response.headers().get(header::CONTENT_TYPE);
        let is_document = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
        if !is_document {
            let message = format!("the daemon answered {status} without a document");
            return Err(ErrorBody::new(ErrorCode::Internal, message));
        }
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| self.broken(error.as_ref()))?;
        Ok((status, body.to_bytes()))
    }

    fn away(&self, error: &io::Error) -> ErrorBody {
        let socket = self.socket.display();
        let (message, hint) = match error.kind() {
            io::ErrorKind::PermissionDenied => (
                format!("dolmen-web may not use the daemon's socket {socket}"),
                "start dolmend with --web-user and the user that dolmen-web runs as",
            ),
            io::ErrorKind::NotFound => (
                format!(
                    "there is no socket {socket}: the dolmen daemon does not run, or knows no user for the console"
                ),
                "start it on the host: `systemctl start dolmend`; it makes the socket for the user dolmen-web, or the one that --web-user names",
            ),
            _ => (
                format!("the dolmen daemon does not run: nothing listens at {socket}"),
                "start it on the host: `systemctl start dolmend`",
            ),
        };
        ErrorBody::new(ErrorCode::Stopping, message).hint(hint).caused_by(error)
    }

    fn broken(&self, error: &dyn std::error::Error) -> ErrorBody {
        let message =
            "the daemon ended the connection before its answer; what was asked for may have been done";
        ErrorBody::new(ErrorCode::Stopping, message).caused_by(error).hint("look at it before you ask again")
    }
}

fn request(question: Question<'_>) -> Result<Request<Full<Bytes>>, axum::http::Error> {
    let mut request = Request::builder()
        .method(question.method)
        .uri(question.path)
        .header(header::HOST, "dolmen")
        .header(header::CONNECTION, "close")
        .header(ROLE_HEADER, question.role.word())
        .header(USER_HEADER, HeaderValue::from_str(question.user)?);
    if question.method != "GET" {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    request.body(Full::new(question.body))
}

//! What every request has to fulfil, and what every answer carries.

use std::net::IpAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use dolmen_api::{ErrorCode, REQUEST_BYTES_MAX};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::timeout;

use super::app::Shared;
use super::identity::{Identity, Who, identify};
use super::refusal::Refusal;
use super::stream;
use crate::audit::Entry;
use crate::clock;
use crate::limits::{Matter, RateKey, network_of};

/// How long a body may take to arrive.
const BODY_LIMIT: Duration = Duration::from_secs(10);
/// How long the body of a refused request may take.
const REFUSED_BODY_LIMIT: Duration = Duration::from_secs(2);
/// How long a request may take, but for the live data.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// How long a request waits for others to end.
const TURN_LIMIT: Duration = Duration::from_secs(5);
/// Bytes of a path with its query, at most.
const URI_BYTES_MAX: usize = 4096;
/// Header that a page of another site cannot send without being asked about.
const REQUEST_HEADER: &str = "dolmen-request";
/// Header that tells a browser which files of the console belong to this server.
const RELEASE_HEADER: &str = "dolmen-console";

/// Rules for the browser: nothing but files of this host, in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// Headers of every answer.
const HEADERS: [(&str, &str); 7] = [
    ("content-security-policy", POLICY),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("strict-transport-security", "max-age=31536000"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
];

/// The client of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub address: IpAddr,
}

/// Checks a request, and answers it.
pub(super) async fn guard(
    State(app): State<Shared>,
    Extension(client): Extension<Client>,
    request: Request,
    next: Next,
) -> Response {
    let is_stream = request.uri().path() == stream::PATH;
    let matter = if request.uri().path().starts_with("/account") { Matter::Account } else { Matter::Other };
    let is_page = super::pages::is_page(request.uri().path());
    let line = format!("{} {}", request.method(), request.uri().path());
    let is_change = request.method() == Method::POST;
    let answer = async {
        let (mut parts, body) = request.into_parts();
        let mut body = Some(body);
        let request = match admit(&app, client, &mut parts, &mut body).await {
            Ok(body) => Request::from_parts(parts, body),
            Err(refusal) => {
                pass_over(body).await;
                if is_change || refusal.status == StatusCode::UNAUTHORIZED {
                    app.audit.note_access(&Entry::new(line.clone(), refusal.outcome()).from(client.address));
                }
                return refusal.into_response();
            }
        };
        if is_stream {
            return next.run(request).await;
        }
        let key = request.extensions().get::<Identity>().map_or_else(
            || RateKey::Network(network_of(client.address)),
            |identity| key_of(identity, client),
        );
        match timeout(TURN_LIMIT, app.turns.take(key, matter)).await {
            Ok(Some(_turn)) => next.run(request).await,
            Ok(None) | Err(_) => {
                Refusal::busy("too many requests at once; nothing was changed").into_response()
            }
        }
    };
    let mut response = match timeout(REQUEST_LIMIT, answer).await {
        Ok(response) => response,
        Err(_) => {
            let message = "the request took longer than 60 s; what was asked for may still be done";
            Refusal::new(StatusCode::GATEWAY_TIMEOUT, ErrorCode::Busy, message).into_response()
        }
    };
    tracing::debug!(line, address = %client.address, status = response.status().as_u16(), "answered");
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.insert(HeaderName::from_static(RELEASE_HEADER), super::pages::release().clone());
    if !is_page {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Checks a request, and returns its body. What is refused before that leaves it where it is.
async fn admit(
    app: &Shared,
    client: Client,
    parts: &mut Parts,
    body: &mut Option<Body>,
) -> Result<Body, Refusal> {
    let method = parts.method.clone();
    if ![Method::GET, Method::HEAD, Method::POST].contains(&method) {
        let message = format!("requests are GET, HEAD or POST, and {method} was sent; nothing was changed");
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, ErrorCode::BadRequest, message));
    }
    if parts.uri.path_and_query().is_some_and(|path| path.as_str().len() > URI_BYTES_MAX) {
        let message = format!("the path has more than {URI_BYTES_MAX} bytes; nothing was changed");
        return Err(Refusal::new(StatusCode::URI_TOO_LONG, ErrorCode::BadRequest, message));
    }
    // Before anything that takes work: whoever sends too much is refused cheaply.
    let identity = identify(app, &parts.headers);
    let key = match &identity {
        Ok(identity) => key_of(identity, client),
        Err(_) => RateKey::Network(network_of(client.address)),
    };
    if !app.rates.take(&key, clock::boot_ms()) {
        return Err(Refusal::too_many("too many requests a second; nothing was changed", 1));
    }
    let identity = identity?;
    let read = if method == Method::POST {
        check_same_site(&parts.headers)?;
        check_kind(&parts.headers)?;
        Body::from(read(&parts.headers, body).await?)
    } else {
        // A question has no body; what a client sends is not read, and the connection ends with the answer.
        Body::empty()
    };
    parts.extensions.insert(identity);
    Ok(read)
}

/// Reads the body of a request that was refused, if it is short and comes soon: a client that is still sending it would find the
/// connection ended, and not the answer.
async fn pass_over(body: Option<Body>) {
    let Some(body) = body else { return };
    let mut body = Limited::new(body, REQUEST_BYTES_MAX);
    let _ = timeout(REFUSED_BODY_LIMIT, async { while let Some(Ok(_)) = body.frame().await {} }).await;
}

/// Returns whose requests are counted together.
fn key_of(identity: &Identity, client: Client) -> RateKey {
    let of_who = identity.0.as_ref().map(Who::rate_key);
    of_who.unwrap_or_else(|| RateKey::Network(network_of(client.address)))
}

/// Refuses a change that a page of another site may have caused.
fn check_same_site(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    if text(REQUEST_HEADER) != Some("1") {
        let message = "a change needs the header `Dolmen-Request: 1`, which pages of other sites cannot send; nothing was changed";
        return Err(Refusal::forbidden(message));
    }
    let host = text("host").unwrap_or("");
    if let Some(origin) = text("origin")
        && !origin
            .strip_prefix("https://")
            .is_some_and(|of| !host.is_empty() && of.eq_ignore_ascii_case(host))
    {
        let message = "the request comes from a page of another site; nothing was changed";
        return Err(Refusal::forbidden(message));
    }
    if text("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
        let message = "the browser says that a page of another site asks; nothing was changed";
        return Err(Refusal::forbidden(message));
    }
    Ok(())
}

fn check_kind(headers: &HeaderMap) -> Result<(), Refusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or("").trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "a change needs a body with `Content-Type: application/json`; nothing was changed";
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorCode::BadRequest, message))
}

/// Reads a body that is short and comes soon.
async fn read(headers: &HeaderMap, body: &mut Option<Body>) -> Result<axum::body::Bytes, Refusal> {
    let too_long = || {
        let message = format!("the body has more than {REQUEST_BYTES_MAX} bytes; nothing was changed");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::BadRequest, message)
    };
    let declared =
        headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let body = body.take().unwrap_or_default();
    if declared.is_some_and(|declared| declared > REQUEST_BYTES_MAX) {
        return Err(too_long());
    }
    match timeout(BODY_LIMIT, Limited::new(body, REQUEST_BYTES_MAX).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_long()),
        Ok(Err(error)) => Err(Refusal::unreadable(&error)),
        Err(_) => {
            let message = "the body did not arrive within 10 s; nothing was changed";
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, ErrorCode::BadRequest, message))
        }
    }
}

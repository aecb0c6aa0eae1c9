//! A server that takes notifications as JSON over HTTP.
//!
//! One request on one connection; no redirect is followed, and nothing of an answer is kept but its status.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::uri::Scheme;
use axum::http::{HeaderValue, Request, Uri, header};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::settings::is_loopback;
use super::trust::Trust;

/// The server, and how requests are signed.
#[derive(Clone)]
pub(crate) struct Endpoint {
    uri: Uri,
    host: String,
    port: u16,
    token: Option<HeaderValue>,
    trust: Trust,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.origin())
    }
}

impl Endpoint {
    /// Returns the server at an address; the reason where it is none.
    pub(super) fn new(url: &str, token: Option<String>, trust: Trust) -> Result<Self, String> {
        let none = || "it is no URL as `https://HOST/PATH` or `http://HOST:PORT/PATH`".to_owned();
        let uri: Uri = url.parse().map_err(|_| none())?;
        let scheme =
            uri.scheme().filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme)).ok_or_else(none)?;
        let usual = if *scheme == Scheme::HTTPS { 443 } else { 80 };
        let authority =
            uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(none)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(none());
        }
        if token.is_some() && *scheme == Scheme::HTTP && !is_loopback(&host) {
            return Err(
                "a token is not sent in clear text over a network; use https, or http to this host alone"
                    .to_owned(),
            );
        }
        let port = authority.port_u16().unwrap_or(usual);
        let token = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}"))).transpose();
        let mut token = token.map_err(|_| "its token has letters that no header may have".to_owned())?;
        token.iter_mut().for_each(|token| token.set_sensitive(true));
        Ok(Self { host, port, token, trust, uri })
    }

    fn is_secure(&self) -> bool {
        self.uri.scheme() == Some(&Scheme::HTTPS)
    }

    /// Returns scheme, host and port.
    pub(super) fn origin(&self) -> String {
        format!(
            "{}://{}",
            self.uri.scheme_str().unwrap_or(""),
            self.uri.authority().map_or("", |found| found.as_str())
        )
    }

    /// Sends a document, or returns why it was not taken.
    pub(super) async fn post(&self, document: &Value) -> Result<(), String> {
        let failed =
            |doing: &str, why: &dyn std::fmt::Display| format!("{doing} {} failed: {why}", self.origin());
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| failed("connecting to", &error))?;
        if !self.is_secure() {
            return self.exchange(stream, document).await;
        }
        let config = self.trust.client().map_err(|error| failed("TLS with", &error))?;
        let name = ServerName::try_from(self.host.clone()).map_err(|error| failed("TLS with", &error))?;
        let secured = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        self.exchange(secured.map_err(|error| failed("TLS with", &error))?, document).await
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        document: &Value,
    ) -> Result<(), String> {
        let failed = |why: &dyn std::fmt::Display| format!("sending to {} failed: {why}", self.origin());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
        // It ends with the answer, or when this attempt is dropped.
        let connection = tokio::spawn(connection);
        let request = self.request(document).map_err(|error| failed(&error))?;
        let answered = sender.send_request(request).await;
        drop(sender);
        connection.abort();
        let status = answered.map_err(|error| failed(&error))?.status();
        match status.is_success() {
            true => Ok(()),
            false => Err(format!("{} answered {status}", self.origin())),
        }
    }

    fn request(&self, document: &Value) -> Result<Request<Full<Bytes>>, axum::http::Error> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let host = self.uri.authority().map_or("", |authority| authority.as_str());
        let mut request = Request::builder()
            .method("POST")
            .uri(path)
            .header(header::HOST, host)
            .header(header::CONNECTION, "close")
            .header(header::USER_AGENT, concat!("dolmen-web/", env!("CARGO_PKG_VERSION")))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token.clone());
        }
        request.body(Full::new(Bytes::from(document.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_split_and_its_secrets_are_not_shown() {
        let of = |url: &str| Endpoint::new(url, Some("t0p".to_owned()), Trust::default());
        for (url, host, port) in [
            ("https://ntfy.sh", "ntfy.sh", 443),
            ("http://127.0.0.1:8080/hooks/secret", "127.0.0.1", 8080),
            ("https://[::1]/a?b=c", "::1", 443),
        ] {
            let endpoint = of(url).unwrap();
            assert_eq!((endpoint.host.as_str(), endpoint.port), (host, port), "{url}");
            let shown = format!("{endpoint:?} {}", endpoint.origin());
            assert!(!shown.contains("secret") && !shown.contains("t0p"), "{shown}");
        }
        for url in ["http://ntfy.lan", "http://192.0.2.1:80/x", "http://[2001:db8::1]/"] {
            assert!(of(url).unwrap_err().contains("clear text"), "{url}");
            assert!(Endpoint::new(url, None, Trust::default()).is_ok(), "without a token nothing is secret");
        }
        for url in ["http://localhost:8080", "http://[::1]:80/"] {
            assert!(of(url).is_ok(), "{url}");
        }
        for url in ["", "a", "/a", "ftp://a", "https://", "https://user:word@host", "http://a b"] {
            assert!(of(url).is_err(), "{url}");
        }
    }
}

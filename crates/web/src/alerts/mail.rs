//! Mail: over SMTP, or handed to a program such as `sendmail`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use dolmen_alerts::{Envelope, Notification, mail};
use dolmen_causes::in_one_line;
use lettre::address::Envelope as SmtpEnvelope;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::{Address, AsyncSmtpTransport, AsyncTransport as _, Tokio1Executor};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::trust::Trust;

/// How long each step of SMTP may take.
const STEP_LIMIT: Duration = Duration::from_secs(20);
/// Bytes of the messages of a program that are kept.
const MESSAGES_BYTES_MAX: u64 = 1024;

/// How a connection to a server is secured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Security {
    /// TLS is demanded after the first words.
    Starttls,
    /// TLS from the start.
    Tls,
    /// Clear text.
    None,
}

impl Security {
    /// Returns the usual port.
    pub(super) const fn port(self) -> u16 {
        match self {
            Self::Starttls => 587,
            Self::Tls => 465,
            Self::None => 25,
        }
    }
}

/// A server of mail.
#[derive(Clone)]
pub(crate) struct Smtp {
    pub host: String,
    pub port: u16,
    pub security: Security,
    /// User and password.
    pub credentials: Option<(String, String)>,
    pub trust: Trust,
}

impl std::fmt::Debug for Smtp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} ({:?})", self.host, self.port, self.security)
    }
}

/// What takes the mail.
#[derive(Debug, Clone)]
pub(crate) enum MailVia {
    Smtp(Smtp),
    /// A program that takes it on its standard input, with the arguments of `sendmail`.
    Sendmail(PathBuf),
}

/// A way for mail.
#[derive(Debug, Clone)]
pub(crate) struct Mail {
    pub envelope: Envelope,
    pub via: MailVia,
}

impl Mail {
    pub(super) fn target(&self) -> String {
        let to = self.envelope.to.join(", ");
        match &self.via {
            MailVia::Smtp(server) => format!("{to} by {}:{}", server.host, server.port),
            MailVia::Sendmail(program) => format!("{to} by {}", program.display()),
        }
    }

    pub(super) async fn send(&self, notification: &Notification) -> Result<(), String> {
        let text = mail(notification, &self.envelope).map_err(|error| error.to_string())?;
        match &self.via {
            MailVia::Smtp(server) => self.send_by_server(server, text.as_bytes()).await,
            MailVia::Sendmail(program) => self.send_by_program(program, &text.replace("\r\n", "\n")).await,
        }
    }

    async fn send_by_server(&self, server: &Smtp, text: &[u8]) -> Result<(), String> {
        let failed =
            |why: String| format!("the mail server {}:{} did not take it: {why}", server.host, server.port);
        let envelope = self.smtp_envelope().map_err(failed)?;
        let transport = server.transport().map_err(|error| failed(in_one_line(&error).to_string()))?;
        let sent = transport.send_raw(&envelope, text).await;
        sent.map(drop).map_err(|error| failed(in_one_line(&error).to_string()))
    }

    fn smtp_envelope(&self) -> Result<SmtpEnvelope, String> {
        let address = |text: &String| text.parse::<Address>().map_err(|error| format!("{text}: {error}"));
        let to: Result<Vec<Address>, String> = self.envelope.to.iter().map(address).collect();
        let from = address(&self.envelope.from)?;
        SmtpEnvelope::new(Some(from), to?).map_err(|error| error.to_string())
    }

    async fn send_by_program(&self, program: &Path, text: &str) -> Result<(), String> {
        let failed = |why: &dyn std::fmt::Display| format!("{} did not take it: {why}", program.display());
        let mut command = Command::new(program);
        command.arg("-i").arg("-f").arg(&self.envelope.from).arg("--").args(&self.envelope.to);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let (input, messages) = (child.stdin.take(), child.stderr.take());
        let write = async {
            // A program that ends early says why, or by its status.
            if let Some(mut input) = input {
                let _ = input.write_all(text.as_bytes()).await;
            }
        };
        let read = async {
            let mut bytes = Vec::new();
            if let Some(messages) = messages {
                let mut messages = messages.take(MESSAGES_BYTES_MAX);
                let _ = messages.read_to_end(&mut bytes).await;
            }
            bytes
        };
        let ((), messages) = tokio::join!(write, read);
        let status = child.wait().await.map_err(|error| failed(&error))?;
        if status.success() {
            return Ok(());
        }
        let messages = String::from_utf8_lossy(&messages);
        Err(failed(&format!("it ended with {status}: {}", messages.trim())))
    }
}

impl Smtp {
    fn transport(&self) -> Result<AsyncSmtpTransport<Tokio1Executor>, lettre::transport::smtp::Error> {
        let tls = match self.security {
            Security::None => Tls::None,
            Security::Starttls => Tls::Required(self.parameters()?),
            Security::Tls => Tls::Wrapper(self.parameters()?),
        };
        let builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&self.host);
        let mut builder = builder.port(self.port).tls(tls).timeout(Some(STEP_LIMIT));
        if let Some((user, password)) = &self.credentials {
            builder = builder.credentials(Credentials::new(user.clone(), password.clone()));
        }
        Ok(builder.build())
    }

    fn parameters(&self) -> Result<TlsParameters, lettre::transport::smtp::Error> {
        let builder = TlsParameters::builder(self.host.clone()).certificate_store(CertificateStore::None);
        // A bundle may have an authority that rustls does not understand; the others count.
        let mut understood = rustls::RootCertStore::empty();
        let usable = self.trust.roots().iter().filter(|root| understood.add((*root).clone()).is_ok());
        let roots = usable.filter_map(|root| Certificate::from_der(root.to_vec()).ok());
        roots.fold(builder, |builder, root| builder.add_root_certificate(root)).build()
    }
}

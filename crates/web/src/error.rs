//! Why `dolmen-web` does not start, or a command on the host fails.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use dolmen_alerts::{RestoreError, SilenceError};
use dolmen_api::ExitCode;

use crate::accounts::Rule;

/// An error of the program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebError {
    /// A file or folder.
    #[error("{doing} {} failed", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file of accounts is damaged.
    #[error(
        "the file of accounts {} cannot be read; nothing is changed: restore it from a backup, or move it away and begin with `dolmen-web code`",
        path.display()
    )]
    Accounts {
        /// The path.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// The file of accounts contradicts itself.
    #[error(
        "the file of accounts {} {why}; nothing is changed: restore it from a backup, or move it away and begin with `dolmen-web code`",
        path.display()
    )]
    Contradiction {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A rule of accounts refuses it.
    #[error(transparent)]
    Rule(#[from] Rule),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers; nothing is changed")]
    Random,
    /// A password cannot be hashed.
    #[error("hashing the password failed, for want of memory perhaps; nothing is changed")]
    Hash,
    /// A line of the audit log cannot be made.
    #[error("a line for {} cannot be made", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A certificate or key.
    #[error("the certificate {} or the key {} cannot be used: {why}", certificate.display(), key.display())]
    Certificate {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why.
        why: String,
    },
    /// The address cannot be listened on.
    #[error("listening on {address} failed; choose another address with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The settings of alerts.
    #[error("the settings of alerts in {} are refused: {why}", path.display())]
    Settings {
        /// The path.
        path: PathBuf,
        /// Which setting, and why.
        why: String,
    },
    /// The state of alerts cannot be used.
    #[error("the state of alerts {} cannot be used", path.display())]
    Alerts {
        /// The path.
        path: PathBuf,
        /// Why.
        source: RestoreError,
    },
    /// A silence is refused.
    #[error(transparent)]
    Silence(#[from] SilenceError),
    /// There is no such alert.
    #[error("there is no alert {id}; `dolmen-web alert list` shows those that there are")]
    NoAlert {
        /// Its number.
        id: u64,
    },
    /// There is no channel that a test could be sent to.
    #[error(
        "{}; the settings of alerts name the channels",
        channel.as_ref().map_or_else(|| "there is no channel".to_owned(), |name| format!("there is no channel {name:?}"))
    )]
    NoChannel {
        /// The channel that was asked for.
        channel: Option<String>,
    },
    /// A test was not sent.
    #[error("the test was not sent to {failed}")]
    Test {
        /// To which channels, and why.
        failed: String,
    },
    /// A thread ended before its answer.
    #[error("a change of the alerts was cut short")]
    CutShort,
    /// What was typed is no password.
    #[error("reading the password failed: {why}; nothing is changed")]
    Password {
        /// Why.
        why: String,
    },
    /// The process cannot become the owner of its folder.
    #[error("becoming the owner of {} (user {uid}) failed", path.display())]
    Owner {
        /// The folder.
        path: PathBuf,
        /// The owner.
        uid: u32,
        /// The system's reason.
        source: io::Error,
    },
    /// A runtime cannot be started.
    #[error("starting the server failed")]
    Runtime(#[source] io::Error),
}

impl WebError {
    /// Returns an error about a path, for `map_err`.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { doing, path, source }
    }

    /// Returns the status with which the process ends.
    pub(crate) fn exit(&self) -> ExitCode {
        match self {
            Self::File { .. } | Self::Runtime(_) | Self::Listen { .. } => ExitCode::Io,
            Self::Accounts { .. }
            | Self::Contradiction { .. }
            | Self::Certificate { .. }
            | Self::Settings { .. }
            | Self::Alerts { .. } => ExitCode::Config,
            Self::Rule(_)
            | Self::Password { .. }
            | Self::Silence(_)
            | Self::NoChannel { .. }
            | Self::Test { .. } => ExitCode::Refused,
            Self::NoAlert { .. } => ExitCode::Refused,
            Self::Random | Self::Hash | Self::Line { .. } | Self::CutShort => ExitCode::Internal,
            Self::Owner { .. } => ExitCode::Permission,
        }
    }
}

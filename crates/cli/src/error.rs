//! What a command can fail with, how it is said, and how the process ends then.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use dolmen_api::{ErrorBody, ExitCode};
use dolmen_block_linux::OpenError;
use dolmen_units::Name;

use crate::confirm::Refusal;
use crate::http::HttpError;
use dolmen_causes::causes_of;

/// Failure of one command: its module says how the process ends and what to do, so that this module names no command.
pub(crate) trait Failure: Error + 'static {
    /// Returns the code with which the process ends.
    fn exit(&self) -> ExitCode;

    /// Returns what to do, where the message does not say so.
    fn hint(&self) -> Option<String>;
}

/// Failure of one command, whichever it is.
#[derive(Debug)]
pub(crate) struct CommandError(Box<dyn Failure>);

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for CommandError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl<T: Failure> From<T> for CliError {
    fn from(failure: T) -> Self {
        Self::Command(CommandError(Box::new(failure)))
    }
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// Spaces of one purge are in several pools.
    #[error("spaces of pool {one} and of pool {other} cannot be purged together; nothing was changed")]
    SeveralPools {
        /// The pool of the first.
        one: Name,
        /// That of another.
        other: Name,
    },
    /// Of what is to be imported, one word is no path, and the pool is named by another.
    #[error("there is no file, folder or device {name} here, and pool {pool} is named already")]
    NoPath {
        /// What was given.
        name: String,
        /// The pool that was named.
        pool: String,
    },
    /// The daemon gave no answer.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The daemon said no.
    #[error("{}", body.message)]
    Daemon {
        /// What it said.
        body: Box<ErrorBody>,
    },
    /// The daemon said no in a way that this version has no word for.
    #[error("{message}")]
    Unfamiliar {
        /// What it said.
        message: String,
        /// Why, from the nearest cause to the first.
        causes: Vec<String>,
        /// What it advised.
        hint: Option<String>,
        /// How to end, by the HTTP status.
        exit: ExitCode,
    },
    /// The daemon is of another version, and the two do not understand each other.
    #[error("this dolmen {} and the daemon{daemon} do not understand each other: {found}", env!("CARGO_PKG_VERSION"))]
    Skew {
        /// What the daemon says of itself, with a space in front; empty when it says nothing.
        daemon: String,
        /// What made that plain.
        found: String,
    },
    /// The answer is no document of this API.
    #[error("the daemon's answer to {asked} cannot be read")]
    Answer {
        /// What was asked.
        asked: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Only the plan was wanted, and the daemon says that it did more.
    #[error("asked for {asked} as a dry run, the daemon answers that it changed something")]
    DryRunChanged {
        /// What was asked.
        asked: String,
    },
    /// A name was not confirmed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A job ended badly.
    #[error("job {id} ({what}) of pool {pool} failed: {result}{}", what_stays(result))]
    JobFailed {
        /// Its number.
        id: u64,
        /// What it was doing.
        what: String,
        /// On which pool.
        pool: String,
        /// What it says.
        result: String,
    },
    /// A job has done what it could, and the rest waits.
    #[error("job {id} ({what}) of pool {pool} is put off: {result}")]
    JobPutOff {
        /// Its number.
        id: u64,
        /// What it was doing.
        what: String,
        /// On which pool.
        pool: String,
        /// What it says.
        result: String,
    },
    /// A job was paused while it was watched, or before.
    #[error("job {id} ({what}) of pool {pool} is paused")]
    JobPaused {
        /// Its number.
        id: u64,
        /// What it was doing.
        what: String,
        /// On which pool.
        pool: String,
    },
    /// A job was ended before it was done.
    #[error("job {id} ({what}) of pool {pool} was called off: {result}")]
    JobCalledOff {
        /// Its number.
        id: u64,
        /// What it was doing.
        what: String,
        /// On which pool.
        pool: String,
        /// What it says.
        result: String,
    },
    /// The daemon was gone while a job was watched.
    #[error("lost sight of job {id} of pool {pool}")]
    JobUnseen {
        /// Its number.
        id: u64,
        /// On which pool.
        pool: String,
        /// What happened.
        source: Box<CliError>,
    },
    /// The daemon has no figures of it.
    #[error("{name} is no open pool, no space of one, and no disk of one that is here")]
    NoFigures {
        /// What was asked for.
        name: String,
    },
    /// There is no such code to be explained.
    #[error("{found:?} is no code of findings, events or errors")]
    NoSuchCode {
        /// What was asked for.
        found: String,
        /// Codes that look most like it.
        nearest: Vec<String>,
    },
    /// A path of the command line cannot be used.
    #[error("using {path:?} as a path failed")]
    Path {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("writing {} failed", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A check has no engine to run on.
    #[error(transparent)]
    Runtime(#[from] dolmen_block_linux::RuntimeError),
    /// A command failed in a way of its own.
    #[error(transparent)]
    Command(CommandError),
    /// A disk to be checked cannot be opened.
    #[error(transparent)]
    Open(#[from] dolmen_block_linux::OpenError),
    /// There is nothing to check.
    #[error(transparent)]
    Check(#[from] dolmen_check::CheckError),
    /// A table could not be written down.
    #[error("the table cannot be written down")]
    Table {
        /// Why not.
        source: csv::Error,
    },
    /// A request could not be written down.
    #[error("the request for {asked} cannot be written down")]
    Request {
        /// What was to be asked.
        asked: String,
        /// Why not.
        source: serde_json::Error,
    },
}

impl CliError {
    /// How the process ends.
    pub(crate) fn exit(&self) -> ExitCode {
        match self {
            Self::Http(HttpError::NoDaemon { .. } | HttpError::Timeout { .. }) => ExitCode::Busy,
            Self::Http(HttpError::Denied { .. }) => ExitCode::Permission,
            Self::Http(HttpError::Socket { .. } | HttpError::Malformed { .. }) | Self::Skew { .. } => {
                ExitCode::Config
            }
            Self::Http(HttpError::HungUp { .. } | HttpError::TooLong { .. })
            | Self::Answer { .. }
            | Self::JobFailed { .. } => ExitCode::Io,
            Self::Daemon { body } => body.code.exit(),
            Self::Unfamiliar { exit, .. } => *exit,
            Self::Refused(_) => ExitCode::Refused,
            Self::JobUnseen { source, .. } => source.exit(),
            Self::JobPutOff { .. } | Self::JobPaused { .. } | Self::JobCalledOff { .. } => ExitCode::Busy,
            Self::Path { .. }
            | Self::Check(_)
            | Self::NoSuchCode { .. }
            | Self::NoFigures { .. }
            | Self::SeveralPools { .. }
            | Self::NoPath { .. } => ExitCode::Usage,
            Self::Command(CommandError(failure)) => failure.exit(),
            Self::Runtime(_) => ExitCode::Missing,
            Self::Open(error) => open_exit(error),
            Self::Write { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ExitCode::Permission
            }
            Self::Write { .. } => ExitCode::Io,
            Self::DryRunChanged { .. } | Self::Request { .. } | Self::Table { .. } => ExitCode::Internal,
        }
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Http(error) => http_hint(error).map(str::to_owned),
            Self::Daemon { body } => body.hint.clone(),
            Self::Unfamiliar { hint, .. } => hint.clone(),
            Self::Skew { .. } | Self::DryRunChanged { .. } => Some(
                "use the command that was installed with the daemon, or restart the daemon after an upgrade"
                    .to_owned(),
            ),
            Self::Answer { .. } => {
                Some("see what the daemon logs; `dolmen version` shows both versions".to_owned())
            }
            Self::Refused(refusal) => Some(refusal.hint()),
            Self::Command(CommandError(failure)) => failure.hint(),
            Self::JobFailed { .. } | Self::JobPutOff { .. } => {
                Some("`dolmen` tells how the pool is now and what to do".to_owned())
            }
            Self::NoSuchCode { nearest, .. } => {
                Some(format!("the nearest are {}; `dolmen explain` lists all", nearest.join(", ")))
            }
            Self::NoPath { .. } => {
                Some("pools are imported one at a time; `dolmen pool import` lists them".to_owned())
            }
            Self::JobPaused { id, .. } => Some(format!("`dolmen job resume {id}` goes on with it")),
            Self::JobCalledOff { id, .. } => Some(format!("`dolmen jobs {id}` shows how far it came")),
            Self::JobUnseen { id, .. } => Some(format!(
                "the job needs nobody to watch it, and goes on with the next daemon; `dolmen jobs {id}` shows how far it is"
            )),
            Self::Open(OpenError::Locked { .. }) => Some(
                "export the pool, or stop the daemon that has it open; `dolmen scrub` checks an open pool"
                    .to_owned(),
            ),
            Self::NoFigures { .. } => {
                Some("`dolmen space list` and `dolmen disk list` show what there is".to_owned())
            }
            Self::SeveralPools { .. } => Some("purge those of one pool after those of the other".to_owned()),
            // These say what to do in their own words.
            Self::Path { .. }
            | Self::Write { .. }
            | Self::Request { .. }
            | Self::Table { .. }
            | Self::Runtime(_)
            | Self::Open(_)
            | Self::Check(_) => None,
        }
    }

    /// The causes, from the nearest to the first.
    pub(crate) fn causes(&self) -> Vec<String> {
        if let Self::Daemon { body } = self {
            return body.causes.clone();
        }
        if let Self::Unfamiliar { causes, .. } = self {
            return causes.clone();
        }
        causes_of(self)
    }

    /// All of it as one line, without the hint.
    pub(crate) fn in_one_line(&self) -> String {
        std::iter::once(self.to_string()).chain(self.causes()).collect::<Vec<_>>().join(": ")
    }
}

/// Returns what is left of a failed job, where its result does not say that.
fn what_stays(result: &str) -> &'static str {
    let says = |words: &&str| result.contains(*words);
    match ["nothing was ", " stay", "as before"].iter().any(says) {
        true => "",
        false => "; what it had done stays done",
    }
}

pub(crate) fn open_exit(error: &OpenError) -> ExitCode {
    match error {
        OpenError::NotFound { .. }
        | OpenError::NotADisk { .. }
        | OpenError::Zoned { .. }
        | OpenError::BlockSize { .. } => ExitCode::Usage,
        OpenError::Denied { .. } | OpenError::ReadOnly { .. } => ExitCode::Permission,
        OpenError::Locked { .. } | OpenError::InUse { .. } => ExitCode::Busy,
        OpenError::TooManyFiles { .. } | OpenError::System { .. } => ExitCode::Io,
    }
}

fn http_hint(error: &HttpError) -> Option<&'static str> {
    match error {
        HttpError::NoDaemon { .. } => Some(
            "start it as root with `dolmen daemon`, in a terminal of its own; another socket is named by --socket or DOLMEN_SOCKET",
        ),
        HttpError::Denied { .. } => Some("run as root, or as the user that the daemon runs as"),
        HttpError::Socket { .. } | HttpError::Malformed { .. } => {
            Some("name the daemon's socket with --socket or DOLMEN_SOCKET")
        }
        HttpError::Timeout { .. } => {
            Some("`dolmen` shows whether the daemon answers at all; --timeout waits longer")
        }
        HttpError::HungUp { .. } => Some("see what the daemon logs, then look with `dolmen` what was done"),
        HttpError::TooLong { .. } => None,
    }
}

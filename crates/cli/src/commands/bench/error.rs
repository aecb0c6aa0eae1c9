//! What a benchmark can fail with.

use std::io;
use std::path::PathBuf;

use dolmen_api::ExitCode;
use dolmen_bench::{FileError, JobError, PlanError, ProfileError, UnknownProfile};
use dolmen_block_linux::{InUse, OpenError, RuntimeError};
use dolmen_disk::LabelIoError;
use dolmen_units::Bytes;

use super::nbd::NbdError;
use crate::commands::reports::ReportError;
use crate::error::{Failure, open_exit};

/// Why nothing was measured, or not everything.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// What makes the load is not there.
    #[error("fio is not installed, and it makes the load")]
    NoFio,
    /// It has no way to the target.
    #[error("the fio that is installed ({version}) has no engine {engine}, which {target} needs")]
    NoEngine {
        /// Which fio.
        version: String,
        /// Which engine.
        engine: &'static str,
        /// For which target.
        target: String,
    },
    /// It could not be started or watched.
    #[error("{doing} fio failed")]
    Spawn {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It ended badly.
    #[error("fio ended with {status}: {stated}")]
    Ended {
        /// How.
        status: String,
        /// The last thing that it said.
        stated: String,
    },
    /// Measuring failed on the way.
    #[error("{what}: {why}; what was measured until then was kept")]
    Halted {
        /// What was done.
        what: String,
        /// Why it failed.
        why: String,
    },
    /// Somebody stopped it.
    #[error("interrupted; what was measured until then was kept")]
    Interrupted,
    /// There is nothing there.
    #[error("{target}: there is nothing at this path{what}")]
    NotFound {
        /// The target.
        target: String,
        /// Why none was made.
        what: &'static str,
    },
    /// A space that nobody can reach.
    #[error("space {target} is neither attached nor served, so that nothing can be sent to it")]
    SpaceUnreachable {
        /// The space.
        target: String,
    },
    /// It names nothing.
    #[error("{target:?} is no target: {why}")]
    Name {
        /// What was given.
        target: String,
        /// Why not.
        why: String,
    },
    /// Looking at it failed.
    #[error("looking at {target} failed")]
    Look {
        /// The target.
        target: String,
        /// What the system said.
        source: io::Error,
    },
    /// What it holds could not be read.
    #[error("looking at what {target} holds failed")]
    Content {
        /// The target.
        target: String,
        /// Why.
        source: LabelIoError,
    },
    /// The kernel uses it.
    #[error("{target} is in use: {by}; nothing was written")]
    InUse {
        /// The target.
        target: String,
        /// By whom.
        by: InUse,
    },
    /// It takes no writes.
    #[error("{target} is read-only, and profile {profile} writes")]
    ReadOnly {
        /// The target.
        target: String,
        /// The profile.
        profile: String,
    },
    /// It cannot make writes durable.
    #[error("{target} takes no flush, so that no write to it can be made durable")]
    NoFlush {
        /// The target.
        target: String,
    },
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Nothing to open it with.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The export cannot be reached.
    #[error(transparent)]
    Nbd(#[from] NbdError),
    /// The file system is too full.
    #[error("{folder} has {free} free, and the file for {target} needs {wanted}")]
    NoRoom {
        /// Where.
        folder: String,
        /// For what.
        target: String,
        /// What is free.
        free: Bytes,
        /// What is needed.
        wanted: Bytes,
    },
    /// The file could not be made.
    #[error("making the file {} failed", path.display())]
    Make {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A report is not written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// One target under two names.
    #[error("{second} is the same target as {first}; each is named once")]
    Twice {
        /// One name.
        first: String,
        /// The other.
        second: String,
    },
    /// Nothing is called so.
    #[error(transparent)]
    Profile(#[from] UnknownProfile),
    /// A file with profiles cannot be read.
    #[error("reading the profiles in {path} failed")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// It lists none that can be run.
    #[error(transparent)]
    File(#[from] FileError),
    /// What the command line makes of a profile makes no sense.
    #[error("profile {name}: {fault}")]
    Nonsense {
        /// The profile.
        name: String,
        /// Why.
        fault: ProfileError,
    },
    /// It cannot be carried out.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// `fio` cannot address a target.
    #[error(transparent)]
    Job(#[from] JobError),
}

impl Failure for BenchError {
    fn exit(&self) -> ExitCode {
        match self {
            Self::NoFio | Self::NoEngine { .. } | Self::Runtime(_) => ExitCode::Missing,
            Self::InUse { .. } | Self::SpaceUnreachable { .. } | Self::Interrupted => ExitCode::Busy,
            Self::Open(error) => open_exit(error),
            Self::Nbd(error) => error.exit(),
            Self::NotFound { .. }
            | Self::Name { .. }
            | Self::ReadOnly { .. }
            | Self::NoFlush { .. }
            | Self::Twice { .. }
            | Self::Profile(_)
            | Self::File(_)
            | Self::Nonsense { .. }
            | Self::Plan(_)
            | Self::Job(_) => ExitCode::Usage,
            Self::Report(error) => error.exit(),
            Self::Look { source, .. } | Self::Make { source, .. } | Self::Read { source, .. } => {
                match source.kind() {
                    io::ErrorKind::PermissionDenied => ExitCode::Permission,
                    io::ErrorKind::NotFound
                    | io::ErrorKind::IsADirectory
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::InvalidData => ExitCode::Usage,
                    _ => ExitCode::Io,
                }
            }
            Self::Spawn { .. }
            | Self::Ended { .. }
            | Self::Halted { .. }
            | Self::Content { .. }
            | Self::NoRoom { .. } => ExitCode::Io,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoFio => "install it, on Debian with: apt-get install fio",
            Self::NoEngine { engine: "nbd", .. } => {
                "install a fio that was built with libnbd; that of Debian is"
            }
            Self::NoEngine { .. } => "install a fio that was built with it; that of Debian is",
            Self::NotFound { .. } => "name a device, a file, or a folder in which a file can be made",
            Self::SpaceUnreachable { target } => {
                return Some(format!(
                    "`dolmen space attach {target}` or `dolmen serve {target}`, then try again"
                ));
            }
            Self::Name { .. } => {
                "a target is POOL/SPACE, a path that begins with / or ., or an address such as nbd://HOST/EXPORT"
            }
            Self::InUse { .. } => {
                "release it first, or name a folder on it, in which a file is made and removed again"
            }
            Self::ReadOnly { .. } => "choose profiles that only read, such as -p streaming",
            Self::NoFlush { .. } => "measure without flushes, with --flush none",
            Self::NoRoom { .. } => "make room, or use less with --size",
            Self::Nbd(error) => return error.hint().map(str::to_owned),
            Self::Report(error) => return error.hint(),
            Self::Read { .. } => "name a text file with profiles; docs/bench.md shows one",
            Self::Spawn { .. }
            | Self::Ended { .. }
            | Self::Halted { .. }
            | Self::Interrupted
            | Self::Look { .. }
            | Self::Content { .. }
            | Self::Open(_)
            | Self::Runtime(_)
            | Self::Make { .. }
            | Self::Twice { .. }
            | Self::Profile(_)
            | Self::File(_)
            | Self::Nonsense { .. }
            | Self::Plan(_)
            | Self::Job(_) => return None,
        };
        Some(hint.to_owned())
    }
}

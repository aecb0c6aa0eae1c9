//! Why the daemon does not run.

use std::io;
use std::path::PathBuf;

use dolmen_api::ExitCode;
use dolmen_block_linux::RuntimeError;

/// Why the daemon did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A folder or file of its own cannot be made, read or written.
    #[error("{doing} {} failed: {source}; {}", path.display(), next_step(source))]
    File {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another daemon has it.
    #[error("{} is held by another daemon{}; stop that one, or choose another --state, --run and --socket", path.display(), pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Locked {
        /// The lock.
        path: PathBuf,
        /// Who holds it, as far as it says.
        pid: Option<i32>,
    },
    /// Something else than a socket is where the socket of the API is to be.
    #[error(
        "listening on {} failed: {found} is there, and was left as it is; choose another --socket, or move it away",
        path.display()
    )]
    NoSocket {
        /// The path.
        path: PathBuf,
        /// Kind of file that is there.
        found: &'static str,
    },
    /// The path of a socket is longer than the kernel takes.
    #[error("the path of the socket {} has {found} bytes, and {max} at most are possible; choose a shorter {option}", path.display())]
    SocketPath {
        /// The socket.
        path: PathBuf,
        /// Bytes of its path.
        found: usize,
        /// How many there may be.
        max: usize,
        /// The option that says where it is.
        option: &'static str,
    },
    /// The host's identity cannot be read.
    #[error("the host's identity in {} is {found:?}, expected 32 hexadecimal digits; restore it from a backup, or remove the file: pools with absent disks then open read-only until confirmed", path.display())]
    HostId {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: String,
    },
    /// A folder of its own lies on a space that only it serves, or that no daemon serves.
    #[error("the folder {} lies on a space of this very daemon or of none that runs ({}): the daemon would wait for itself; choose another {option}, on a disk of the system", path.display(), device.display())]
    OnOwnSpace {
        /// The folder.
        path: PathBuf,
        /// The device that shows the space.
        device: PathBuf,
        /// The option that says where the folder is.
        option: &'static str,
    },
    /// No thread could be made.
    #[error(
        "starting the {name} thread failed; threads are limited by TasksMax= and LimitNPROC= of its unit (`ulimit -u`)"
    )]
    Thread {
        /// Which.
        name: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The engine's runtime could not be made.
    #[error("starting the engine failed")]
    Runtime(#[from] RuntimeError),
    /// The engine's thread has ended by itself.
    #[error("the engine has ended unexpectedly; restart the daemon, it recovers what was under way")]
    EngineLost,
}

impl DaemonError {
    /// How the process ends with it.
    #[must_use]
    pub fn exit(&self) -> ExitCode {
        match self {
            Self::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ExitCode::Permission
            }
            Self::File { .. } | Self::Thread { .. } => ExitCode::Io,
            Self::Locked { .. } => ExitCode::Busy,
            Self::HostId { .. }
            | Self::NoSocket { .. }
            | Self::SocketPath { .. }
            | Self::OnOwnSpace { .. } => ExitCode::Config,
            Self::Runtime(RuntimeError::UnknownDriver { .. }) => ExitCode::Config,
            Self::Runtime(RuntimeError::UringRefused { .. }) => ExitCode::Missing,
            Self::Runtime(RuntimeError::Event { .. }) => ExitCode::Io,
            Self::EngineLost => ExitCode::Internal,
        }
    }

    pub(crate) fn file(doing: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { doing, path, source }
    }
}

/// Returns what to do about a file or folder of the daemon that the system refuses.
fn next_step(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "start the daemon as root, or choose folders that its user may write with --state, --run and --socket"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "mount that file system writable, or choose another place with --state, --run and --socket"
        }
        io::ErrorKind::NotFound => {
            "make the folder above it, or choose another place with --state, --run and --socket"
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            "something else has that name: move it away, or choose another place with --state, --run and --socket"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free room on its file system",
        _ => "the log of the kernel (`dmesg`) may say why; --state, --run and --socket choose other places",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_refused_folder_is_named_with_its_cause_and_the_next_step() {
        for (kind, step) in [
            (io::ErrorKind::PermissionDenied, "as root"),
            (io::ErrorKind::ReadOnlyFilesystem, "writable"),
            (io::ErrorKind::NotFound, "make the folder above"),
            (io::ErrorKind::AlreadyExists, "move it away"),
            (io::ErrorKind::StorageFull, "free room"),
            (io::ErrorKind::TimedOut, "dmesg"),
        ] {
            let error = DaemonError::file("making the folder", Path::new("/x"))(kind.into());
            let text = error.to_string();
            assert!(text.starts_with("making the folder /x failed: ") && text.contains(step), "{text}");
        }
    }
}

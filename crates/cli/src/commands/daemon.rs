//! `dolmen daemon`: executes `dolmend`, the daemon's program, in the foreground of this process.
//!
//! The process keeps its id, its signals, its environment and its standard streams, and ends as the daemon ends: whatever starts
//! `dolmen daemon` supervises the daemon itself.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use dolmen_api::{ExitCode, SOCKET_PATH, SOCKET_VARIABLE, socket_lock};

use crate::arguments::daemon::DaemonArguments;
use crate::arguments::values::RepairAfter;
use crate::error::{CliError, Failure};

/// Name of the daemon's program.
pub(crate) const PROGRAM: &str = "dolmend";
/// Folders where the program is looked for when it is not beside this one.
pub(crate) const USUAL_FOLDERS: [&str; 4] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];

/// The daemon's program cannot be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    /// It is not there.
    #[error(
        "starting the daemon: no program {PROGRAM} in {}; no daemon was started",
        folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoProgram {
        /// Where it was looked for.
        folders: Vec<PathBuf>,
    },
    /// The system does not run it.
    #[error("starting the daemon: {} cannot be run; no daemon was started", program.display())]
    Unrunnable {
        /// The program.
        program: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl Failure for ServiceError {
    fn exit(&self) -> ExitCode {
        match self {
            Self::Unrunnable { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ExitCode::Permission
            }
            Self::NoProgram { .. } | Self::Unrunnable { .. } => ExitCode::Missing,
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoProgram { .. } => {
                format!("install {PROGRAM}, which is built together with dolmen, beside dolmen")
            }
            Self::Unrunnable { program, .. } => {
                format!("install {} again, of the version of dolmen", program.display())
            }
        })
    }
}

/// Becomes the daemon; returns only where that fails.
pub(crate) fn run(arguments: &DaemonArguments, socket: Option<&Path>) -> Result<ExitCode, CliError> {
    let own = std::env::current_exe().ok();
    let program = find_program(own.as_deref(), &USUAL_FOLDERS.map(Path::new))?;
    let asked = socket_asked();
    let source =
        Command::new(&program).args(words(arguments, own_socket(arguments, socket, asked.as_deref()))).exec();
    Err(ServiceError::Unrunnable { program, source }.into())
}

/// Finds the daemon's program: beside this one, or in the first of the usual folders that has it.
pub(crate) fn find_program(own: Option<&Path>, usual: &[&Path]) -> Result<PathBuf, ServiceError> {
    let beside = own.and_then(Path::parent);
    let folders: Vec<PathBuf> =
        beside.into_iter().chain(usual.iter().copied()).map(Path::to_path_buf).collect();
    let found = folders.iter().map(|folder| folder.join(PROGRAM)).find(|program| program.is_file());
    found.ok_or(ServiceError::NoProgram { folders })
}

/// Returns the command line of the daemon's program. What is not named here follows there from what is.
pub(crate) fn words(arguments: &DaemonArguments, socket: Option<&Path>) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["--state".into(), arguments.state.clone().into()];
    let look_in = arguments.look_in.iter().map(|path| ("--look-in", Some(path.as_path())));
    let paths = [
        ("--run", arguments.run.as_deref()),
        ("--socket", socket),
        ("--links", arguments.links.as_deref()),
        ("--smartctl", arguments.smartctl.as_deref()),
    ];
    for (setting, path) in paths.into_iter().chain(look_in) {
        words.extend(path.into_iter().flat_map(|path| [OsString::from(setting), path.into()]));
    }
    if let Some(RepairAfter(seconds)) = arguments.trash_after {
        words.extend(["--trash-after-s".into(), seconds.to_string().into()]);
    }
    words.extend(arguments.named_only.then(|| "--named-only".into()));
    words
}

/// The socket that was named for this daemon. The one that the environment has commands ask is another daemon's where this one is
/// told where to keep its own.
fn own_socket<'a>(
    arguments: &DaemonArguments,
    socket: Option<&'a Path>,
    asked: Option<&'a OsStr>,
) -> Option<&'a Path> {
    socket.or_else(|| asked.filter(|_| arguments.run.is_none()).map(Path::new))
}

/// Returns the process that holds a socket, while it lives and where this one may know.
pub(crate) fn daemon_at(socket: &Path) -> Option<u32> {
    let pid: u32 = fs::read_to_string(socket_lock(socket)).ok()?.trim().parse().ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // What is left of one until its parent looks holds nothing any more. The name before the state may hold anything.
    let state = status.rsplit(") ").next()?;
    (!state.starts_with('Z')).then_some(pid)
}

/// The socket that the environment has commands ask.
pub(crate) fn socket_asked() -> Option<OsString> {
    std::env::var_os(SOCKET_VARIABLE).filter(|socket| !socket.is_empty())
}

/// The socket that a command asks: the one that it was given, that of the environment, or the usual one.
pub(crate) fn socket_or_usual(given: Option<PathBuf>, asked: Option<OsString>) -> PathBuf {
    given.or_else(|| asked.map(PathBuf::from)).unwrap_or_else(|| PathBuf::from(SOCKET_PATH))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(line: &str) -> String {
        let words = ["dolmen", "daemon"].into_iter().chain(line.split_whitespace());
        let arguments = crate::arguments::parse::parse(words).unwrap();
        let Some(crate::arguments::Command::Daemon(daemon)) = &arguments.command else { unreachable!() };
        let words = super::words(daemon, arguments.common.socket.as_deref());
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_option_reaches_the_daemon() {
        for (line, expected) in [
            ("", "--state /var/lib/dolmen"),
            ("--state s --socket api", "--state s --socket api"),
            ("--run /r --named-only", "--state /var/lib/dolmen --run /r --named-only"),
            (
                "--look-in a --look-in b --links l",
                "--state /var/lib/dolmen --links l --look-in a --look-in b",
            ),
            ("--smartctl s --trash-after 5m", "--state /var/lib/dolmen --smartctl s --trash-after-s 300"),
            ("--trash-after never", "--state /var/lib/dolmen --trash-after-s 0"),
        ] {
            assert_eq!(words_of(line), expected, "{line}");
        }
    }

    /// Scenario: the program is beside the command, in a usual folder, in both, and nowhere. The one beside comes first; the refusal
    /// names all folders.
    #[test]
    fn the_program_next_to_the_command_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let (own, usual) = (folder.path().join("own"), folder.path().join("usual"));
        for folder in [&own, &usual] {
            fs::create_dir(folder).unwrap();
        }
        let find = || find_program(Some(&own.join("dolmen")), &[&usual]);
        let error = find().unwrap_err();
        assert_eq!(error.exit(), ExitCode::Missing);
        let message = error.to_string();
        assert!(
            message.contains(own.to_str().unwrap()) && message.contains(usual.to_str().unwrap()),
            "{message}"
        );
        fs::write(usual.join(PROGRAM), "").unwrap();
        assert_eq!(find().unwrap(), usual.join(PROGRAM));
        fs::write(own.join(PROGRAM), "").unwrap();
        assert_eq!(find().unwrap(), own.join(PROGRAM));
        fs::remove_file(own.join(PROGRAM)).unwrap();
        fs::create_dir(own.join(PROGRAM)).unwrap();
        assert_eq!(find().unwrap(), usual.join(PROGRAM));
    }

    #[test]
    fn a_daemon_with_a_socket_folder_has_its_own_sockets() {
        let asked = OsStr::new("/run/dolmen/dolmen.sock");
        for (line, is_kept) in [("", true), ("--run /r", false), ("--state /s", true)] {
            let words = ["dolmen", "daemon"].into_iter().chain(line.split_whitespace());
            let arguments = crate::arguments::parse::parse(words).unwrap();
            let Some(crate::arguments::Command::Daemon(daemon)) = &arguments.command else { unreachable!() };
            assert_eq!(own_socket(daemon, None, Some(asked)).is_some(), is_kept, "{line}");
            assert_eq!(own_socket(daemon, Some(Path::new("/other")), Some(asked)), Some(Path::new("/other")));
        }
    }

    #[test]
    fn the_usual_socket_is_the_one_that_commands_ask() {
        assert_eq!(Path::new(SOCKET_PATH), socket_or_usual(None, None));
        let (given, asked) = (PathBuf::from("/given"), OsString::from("/asked"));
        assert_eq!(socket_or_usual(None, Some(asked.clone())), Path::new("/asked"));
        assert_eq!(socket_or_usual(Some(given.clone()), Some(asked)), given);
    }
}

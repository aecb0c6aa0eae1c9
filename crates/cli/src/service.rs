//! `dolmen daemon`: the daemon in the foreground of this process.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dolmen_api::{ExitCode, SOCKET_PATH, SOCKET_VARIABLE};
use dolmen_daemon::{Config, RUN_FOLDER, STATE_FOLDER, Scan};

use crate::args::DaemonArguments;
use crate::error::CliError;
use crate::values::RepairAfter;

/// The daemon's socket, in its run folder.
const SOCKET_NAME: &str = "dolmen.sock";

/// Runs the daemon until it is told to end. Its logs go to standard error, which nothing else may hold meanwhile.
pub(crate) fn run(arguments: &DaemonArguments, socket: Option<&Path>) -> Result<ExitCode, CliError> {
    let _log = dolmen_daemon::init_logging();
    let asked = socket_asked();
    dolmen_daemon::run(&config(arguments, own_socket(arguments, socket, asked.as_deref()))?)?;
    Ok(ExitCode::Ok)
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

/// Settings that are not given follow from those that are, so that a second daemon needs one setting, not three. All
/// are paths from the root: what the daemon tells others has to hold in their working folders as well.
fn config(arguments: &DaemonArguments, socket: Option<&Path>) -> Result<Config, CliError> {
    let run = arguments.run.clone().unwrap_or_else(|| usual_run(&arguments.state));
    let socket = socket.map_or_else(|| run.join(SOCKET_NAME), Path::to_path_buf);
    let mut config = Config::usual();
    config.state = rooted(&arguments.state)?;
    config.run = rooted(&run)?;
    config.socket = rooted(&socket)?;
    config.look_in = arguments.look_in.iter().map(|path| rooted(path)).collect::<Result<_, _>>()?;
    config.scan = if arguments.named_only { Scan::NamedOnly } else { Scan::System };
    if let Some(RepairAfter(seconds)) = arguments.trash_after {
        config.trash_after = Some(Duration::from_secs(seconds)).filter(|after| !after.is_zero());
    }
    if let Some(smartctl) = &arguments.smartctl {
        config.smartctl = Some(rooted(smartctl)?);
    }
    if let Some(links) = &arguments.links {
        config.links = rooted(links)?;
    }
    Ok(config)
}

fn rooted(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(|source| CliError::Path { path: path.to_path_buf(), source })
}

fn usual_run(state: &Path) -> PathBuf {
    if state == Path::new(STATE_FOLDER) { PathBuf::from(RUN_FOLDER) } else { state.join("run") }
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

    fn config_of(line: &str) -> Config {
        let words = ["dolmen", "daemon"].into_iter().chain(line.split_whitespace());
        let arguments = crate::parse(words).unwrap();
        let Some(crate::args::Command::Daemon(daemon)) = &arguments.command else { unreachable!() };
        config(daemon, arguments.common.socket.as_deref()).unwrap()
    }

    #[test]
    fn folders_and_socket_follow_from_each_other() {
        for (line, state, run, socket) in [
            ("", "/var/lib/dolmen", "/run/dolmen", "/run/dolmen/dolmen.sock"),
            ("--state /s", "/s", "/s/run", "/s/run/dolmen.sock"),
            ("--run /r", "/var/lib/dolmen", "/r", "/r/dolmen.sock"),
            ("--state /s --socket /api", "/s", "/s/run", "/api"),
        ] {
            let config = config_of(line);
            let found = (config.state.to_str(), config.run.to_str(), config.socket.to_str());
            assert_eq!(found, (Some(state), Some(run), Some(socket)), "{line}");
        }
    }

    #[test]
    fn the_trash_is_kept_for_seven_days_or_as_somebody_says() {
        for (line, seconds) in [
            ("", Some(7 * 86_400)),
            ("--trash-after 30d", Some(30 * 86_400)),
            ("--trash-after 5s", Some(5)),
            ("--trash-after never", None),
        ] {
            assert_eq!(config_of(line).trash_after, seconds.map(Duration::from_secs), "{line}");
        }
    }

    #[test]
    fn a_daemon_with_a_socket_folder_has_its_own_sockets() {
        let asked = OsStr::new("/run/dolmen/dolmen.sock");
        for (line, is_kept) in [("", true), ("--run /r", false), ("--state /s", true)] {
            let words = ["dolmen", "daemon"].into_iter().chain(line.split_whitespace());
            let arguments = crate::parse(words).unwrap();
            let Some(crate::args::Command::Daemon(daemon)) = &arguments.command else { unreachable!() };
            assert_eq!(own_socket(daemon, None, Some(asked)).is_some(), is_kept, "{line}");
            assert_eq!(own_socket(daemon, Some(Path::new("/other")), Some(asked)), Some(Path::new("/other")));
        }
    }

    #[test]
    fn the_usual_socket_is_the_one_that_commands_ask() {
        assert_eq!(config_of("").socket, socket_or_usual(None, None));
        let (given, asked) = (PathBuf::from("/given"), OsString::from("/asked"));
        assert_eq!(socket_or_usual(None, Some(asked.clone())), Path::new("/asked"));
        assert_eq!(socket_or_usual(Some(given.clone()), Some(asked)), given);
    }
}

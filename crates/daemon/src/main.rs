//! The daemon as a program of its own; `dolmen daemon` runs the same.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use dolmen_causes::causes_of;
use dolmen_daemon::{Config, DESCRIPTOR_HOLDER_COMMAND, DaemonError, Scan};

/// The settings on the command line, each with its value.
fn parse(arguments: impl Iterator<Item = String>) -> Result<Config, String> {
    let mut config = Config::usual();
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        if argument == "--named-only" {
            config.scan = Scan::NamedOnly;
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--state" => config.state = PathBuf::from(value),
            "--run" => {
                config.run = PathBuf::from(value);
                config.socket = config.run.join("dolmen.sock");
            }
            "--socket" => config.socket = PathBuf::from(value),
            "--look-in" => config.look_in.push(PathBuf::from(value)),
            "--links" => config.links = PathBuf::from(value),
            "--sys" => config.sys = PathBuf::from(value),
            "--smartctl" => config.smartctl = Some(PathBuf::from(value)),
            "--trash-after-s" => {
                let seconds: u64 =
                    value.parse().map_err(|_| format!("{argument} needs a number of seconds"))?;
                config.trash_after = Some(Duration::from_secs(seconds)).filter(|after| !after.is_zero());
            }
            _ => {
                return Err(format!(
                    "unknown setting {argument}; known are --state, --run, --socket, --look-in, --links, --smartctl, --sys, --trash-after-s, --named-only"
                ));
            }
        }
    }
    Ok(config)
}

/// What `--help` prints.
const HELP: &str = "The daemon of Dolmen, which `dolmen daemon` and the system's unit start.

Settings, each with a value:
  --state FOLDER         where it keeps what it has to remember
  --run FOLDER           where its sockets are, --socket's too unless that is named
  --socket PATH          where the command line talks to it
  --look-in FOLDER       where disks are that are files; may be given several times
  --links FOLDER         where attached spaces get their links
  --sys FOLDER           where the kernel shows its devices
  --smartctl PATH        what asks disks how they are
  --trash-after-s N      seconds that deleted spaces are kept; 0 is for ever
Without a value:
  --named-only           look at no disks but those that somebody names
";

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|argument| ["-h", "--help"].contains(&argument.as_str())) {
        // Whoever asked and does not listen is told nothing.
        let _ = std::io::stdout().write_all(HELP.as_bytes());
        return ExitCode::SUCCESS;
    }
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.peek().is_some_and(|first| first == DESCRIPTOR_HOLDER_COMMAND) {
        return ExitCode::from(dolmen_daemon::keep());
    }
    let _log = dolmen_daemon::init_logging();
    let config = match parse(arguments) {
        Ok(config) => config,
        Err(error) => {
            tracing::error!("{error}");
            return dolmen_api::ExitCode::Usage.into();
        }
    };
    match dolmen_daemon::run(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            error.exit().into()
        }
    }
}

fn report(error: &DaemonError) {
    tracing::error!(causes = causes_of(error).join(": "), "{error}");
}

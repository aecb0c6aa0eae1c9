//! The daemon as a program of its own; `dolmen daemon` runs the same.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use dolmen_causes::causes_of;
use dolmen_daemon::{Config, DaemonError, KEEPER_COMMAND, Scan};

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

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.peek().is_some_and(|first| first == KEEPER_COMMAND) {
        return ExitCode::from(dolmen_daemon::keep());
    }
    dolmen_daemon::init_logging();
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

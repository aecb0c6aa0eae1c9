//! The daemon's program. `dolmen daemon` executes it.

use std::io::Write;
use std::process::ExitCode;

use dolmen_causes::causes_of;
use dolmen_daemon::{DESCRIPTOR_HOLDER_COMMAND, HELP, read_settings};

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if words.iter().any(|word| word == "-h" || word == "--help") {
        // A reader that has gone needs no help.
        let _ = std::io::stdout().write_all(HELP.as_bytes());
        return ExitCode::SUCCESS;
    }
    if words.iter().any(|word| word == "-V" || word == "--version") {
        let _ = writeln!(std::io::stdout(), "dolmend {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    if words.first().is_some_and(|first| first == DESCRIPTOR_HOLDER_COMMAND) {
        return ExitCode::from(dolmen_daemon::keep());
    }
    let _log = dolmen_daemon::init_logging();
    let config = match read_settings(words) {
        Ok(config) => config,
        Err(error) => {
            report(&error);
            return error.exit().into();
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

fn report(error: &dyn std::error::Error) {
    match causes_of(error) {
        causes if causes.is_empty() => tracing::error!("{error}"),
        causes => tracing::error!(causes = causes.join(": "), "{error}"),
    }
}

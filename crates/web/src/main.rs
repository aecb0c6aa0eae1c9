//! The program `dolmen-web`: the console and the API on the network (docs/design/0038).
//!
//! Folders and files, lowest first; each uses those above it in this list:
//! - `clock`, `secret`: clocks, random secrets and comparisons.
//! - `error`: why the program ends, or a command fails.
//! - `accounts`: users, tokens and sessions, and the file that holds them.
//! - `audit`, `limits`: what is recorded, and how often something may be asked for.
//! - `daemon`: requests to the daemon's socket.
//! - `alerts`: looks at the daemon, and notifications (`docs/alerts.md`).
//! - `http`: what clients may ask for, and what every request has to fulfil.
//! - `server`: TLS and connections.
//! - `arguments`, `commands`: the command line.
//!
//! Invariants:
//! - Nothing reaches the daemon but a verb of its table, with the role and the user of the request.
//! - What strangers can fill is bounded: connections, requests, bodies, lists of failures, lines of the audit log.
//! - The program has no disk and no space. Killed at any moment, it leaves accounts that are whole, and a daemon that goes on.

mod accounts;
mod alerts;
mod arguments;
mod audit;
mod clock;
mod commands;
mod daemon;
mod error;
mod http;
mod limits;
mod secret;
mod server;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use dolmen_causes::in_one_line;
use rustix::fs::Mode;
use tracing_subscriber::EnvFilter;

/// Setting in the environment that says what is logged.
const LOG_VARIABLE: &str = "DOLMEN_LOG";

fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    // Files of the program are its owner's alone.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    // Colours are for terminals; a journal or a file gets plain lines.
    let has_colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(has_colours)
        .init();
    match commands::execute(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "dolmen-web: {}", in_one_line(&error));
            ExitCode::from(error.exit().number())
        }
    }
}

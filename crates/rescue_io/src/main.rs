//! The command `dolmen-rescue`: what the disks of a damaged pool still hold.
//!
//! `args` is the command line, `disks` opens devices for reading, `file` writes what comes out, `report` says what it is.
//!
//! Invariants:
//! - Devices are opened for reading and nothing else.
//! - A file that is there is never written over.
//! - The process ends with 0 only if all that was asked for was given. The numbers are those of `dolmen`.

mod args;
mod disks;
mod error;
mod file;
mod report;
mod run;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use dolmen_causes::in_one_line;

use crate::args::Arguments;
use crate::run::Outcome;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(Outcome::USAGE),
            };
        }
    };
    let (mut out, mut messages) = (std::io::stdout().lock(), std::io::stderr().lock());
    match run::run(&arguments, &mut out, &mut messages) {
        Ok(outcome) => ExitCode::from(outcome.number()),
        Err(error) => {
            let _ = writeln!(messages, "dolmen-rescue: {}", in_one_line(&error));
            ExitCode::from(error.number())
        }
    }
}

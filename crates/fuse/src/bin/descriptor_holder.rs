//! The descriptor holder as a program of its own; the `dolmen` binary does the same by a hidden subcommand.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(dolmen_fuse::keep())
}

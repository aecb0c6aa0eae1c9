//! The program: one order from standard input, messages to standard output.

use std::process::ExitCode;

fn main() -> ExitCode {
    dolmen_worker::be_usual();
    match dolmen_worker::run(std::io::stdin().lock(), std::io::stdout().lock()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

//! The program: one order from standard input, messages to standard output.

use std::io::BufReader;
use std::process::ExitCode;

fn main() -> ExitCode {
    dolmen_worker::be_usual();
    match dolmen_worker::run(BufReader::new(std::io::stdin()), std::io::stdout().lock()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

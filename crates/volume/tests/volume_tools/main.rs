//! The crate beside the tools of this host: what it plans is what they accept, and what they print is what it reads. A test
//! whose tool is not installed prints that and ends.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod escaping;
mod making;
mod samba;

use std::process::{Command, Output};

/// Runs a tool; `None` if it is not installed.
fn run<S: AsRef<std::ffi::OsStr>>(program: &str, arguments: &[S]) -> Option<Output> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    match Command::new(program).args(arguments).env("PATH", path).env("LC_ALL", "C").output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("{program} is not installed");
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

/// Both outputs of a tool, the standard one first.
fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

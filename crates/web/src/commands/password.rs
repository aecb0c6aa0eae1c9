//! Passwords that are typed: at a terminal without an echo, or as the first line of standard input.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _, stdin};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::accounts::check_password;
use crate::error::WebError;

/// Bytes that are read, at most.
const LINE_BYTES_MAX: u64 = 4096;

/// Reads a password, twice at a terminal.
pub(super) fn read_password(user: &str) -> Result<String, WebError> {
    let password = if stdin().is_terminal() {
        let first = ask(&format!("password of {user}: "))?;
        if ask("again: ")? != first {
            return Err(WebError::Password { why: "the second one differs".to_owned() });
        }
        first
    } else {
        line()?
    };
    check_password(&password)?;
    Ok(password)
}

fn ask(prompt: &str) -> Result<String, WebError> {
    let failed = |error: std::io::Error| WebError::Password { why: error.to_string() };
    let mut terminal = std::io::stderr();
    terminal.write_all(prompt.as_bytes()).map_err(failed)?;
    let silence = Silence::begin().map_err(|error| failed(error.into()))?;
    let read = line();
    drop(silence);
    let _ = terminal.write_all(b"\n");
    read
}

fn line() -> Result<String, WebError> {
    let failed = |why: String| WebError::Password { why };
    let mut line = String::new();
    let read = stdin().lock().take(LINE_BYTES_MAX).read_line(&mut line);
    match read.map_err(|error| failed(error.to_string()))? {
        0 => Err(failed("there was none on standard input".to_owned())),
        _ => Ok(line.trim_end_matches(['\n', '\r']).to_owned()),
    }
}

/// A terminal that shows nothing of what is typed.
struct Silence(Termios);

impl Silence {
    fn begin() -> rustix::io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
    }
}

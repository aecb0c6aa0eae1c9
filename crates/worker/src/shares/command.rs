//! Programs of servers: with a limit of time, and with their output apart from their errors.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::protocol::{Failure, FailureCode, MESSAGE_BYTES_MAX};
use crate::tool::PATH;

/// Seconds that a program may take; behind it `timeout` ends the program.
const SECONDS_MAX: &str = "20";
/// Code with which `timeout` says that it ended the program.
const TIMED_OUT: i32 = 124;
/// Bytes of an answer that are read: the message that is made of it has to hold them.
const OUTPUT_BYTES_MAX: u64 = 2 << 20;
const _: () = assert!(OUTPUT_BYTES_MAX < MESSAGE_BYTES_MAX);
/// Characters of an answer that a failure shows, at most.
const SHOWN_MAX: usize = 600;

/// An ended program.
#[derive(Debug)]
pub(super) struct Ran {
    /// Its code; `None` if a signal ended it.
    pub(super) code: Option<i32>,
    /// Standard output.
    pub(super) output: String,
    /// Standard error.
    pub(super) errors: String,
}

impl Ran {
    pub(super) fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// Output and errors in one line, cut.
    pub(super) fn shown(&self) -> String {
        let words = self.errors.split_whitespace().chain(self.output.split_whitespace());
        let text = words.collect::<Vec<_>>().join(" ");
        text.chars().take(SHOWN_MAX).collect()
    }
}

/// Returns whether a program is installed.
pub(super) fn is_installed(program: &str) -> bool {
    PATH.split(':').any(|folder| Path::new(folder).join(program).is_file())
}

/// Runs a program to its end, or to the limit of time.
///
/// # Errors
/// [`FailureCode::MissingTool`] if it is not installed; [`FailureCode::Refused`] if it took too long.
pub(super) fn run<A: AsRef<OsStr>>(program: &str, arguments: &[A]) -> Result<Ran, Failure> {
    let failed = |code, finding: &dyn std::fmt::Display, hint: String| Failure {
        code,
        message: format!("{program} cannot be run: {finding}"),
        hint,
    };
    if !is_installed(program) {
        let hint = package_of(program).map(|package| format!("install {package}")).unwrap_or_default();
        return Err(failed(FailureCode::MissingTool, &"it is not installed", hint));
    }
    let mut command = Command::new("timeout");
    command.args(["-k", "2", SECONDS_MAX, program]).args(arguments);
    command.env_clear().env("PATH", PATH).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    let ended = output_of(command).map_err(|error| failed(FailureCode::Refused, &error, String::new()))?;
    if ended.output.is_cut || ended.errors.is_cut {
        let finding = format!("its answer is longer than {OUTPUT_BYTES_MAX} bytes");
        return Err(failed(FailureCode::Refused, &finding, "see what its server has so many of".to_owned()));
    }
    if ended.status.code() == Some(TIMED_OUT) {
        let finding = format!("it did not end within {SECONDS_MAX} s");
        return Err(failed(FailureCode::Refused, &finding, "see whether its server hangs".to_owned()));
    }
    Ok(Ran {
        code: ended.status.code(),
        output: String::from_utf8_lossy(&ended.output.bytes).into_owned(),
        errors: String::from_utf8_lossy(&ended.errors.bytes).into_owned(),
    })
}

/// Program that ended, and the first bytes of what it wrote.
struct Ended {
    status: ExitStatus,
    output: Kept,
    errors: Kept,
}

/// First bytes of a stream.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    is_cut: bool,
}

/// Runs a program to its end, and keeps no more of what it writes than a message may hold.
fn output_of(mut command: Command) -> io::Result<Ended> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let (output, errors) = std::thread::scope(|scope| {
        let errors = scope.spawn(|| kept(errors));
        (kept(output), errors.join().unwrap_or_else(|_| Err(io::Error::other("its errors cannot be read"))))
    });
    Ok(Ended { status: child.wait()?, output: output?, errors: errors? })
}

/// Reads a stream to its end.
fn kept(stream: Option<impl Read>) -> io::Result<Kept> {
    let Some(mut stream) = stream else { return Ok(Kept::default()) };
    let mut bytes = Vec::new();
    stream.by_ref().take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    let is_cut = io::copy(&mut stream, &mut io::sink())? > 0;
    Ok(Kept { bytes, is_cut })
}

/// Runs a program, and fails unless it ends with 0.
pub(super) fn succeed<A: AsRef<OsStr>>(program: &str, arguments: &[A]) -> Result<Ran, Failure> {
    let ran = run(program, arguments)?;
    if ran.is_success() {
        return Ok(ran);
    }
    let code = ran.code.map_or("a signal".to_owned(), |code| format!("code {code}"));
    let words: Vec<OsString> = arguments.iter().map(|argument| argument.as_ref().to_owned()).collect();
    Err(Failure {
        code: FailureCode::Refused,
        message: format!("{program} {words:?} ended with {code}: {}", ran.shown()),
        hint: String::new(),
    })
}

/// The Debian package that has a program.
fn package_of(program: &str) -> Option<&'static str> {
    match program {
        "smbd" => Some("samba"),
        "net" | "testparm" | "smbcontrol" | "smbstatus" | "pdbedit" => Some("samba-common-bin and samba"),
        "smbclient" => Some("smbclient"),
        "exportfs" => Some("nfs-kernel-server"),
        "getent" => Some("libc-bin"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_errors_are_apart_and_a_missing_program_is_named() {
        let ran = run("sh", &["-c", "echo one; echo two >&2; exit 3"]).unwrap();
        assert_eq!((ran.code, ran.output.as_str(), ran.errors.as_str()), (Some(3), "one\n", "two\n"));
        let failed = succeed("sh", &["-c", "echo no >&2; exit 3"]).unwrap_err();
        assert!(failed.message.contains("code 3: no"), "{failed}");
        let long = run("sh", &["-c", "head -c 3000000 /dev/zero; echo x >&2"]).unwrap_err();
        assert!(long.message.contains("longer than"), "{long}");
        let missing = run::<&str>("no-such-server", &[]).unwrap_err();
        assert_eq!(missing.code, FailureCode::MissingTool);
    }
}

//! The process of a benchmark: `dolmen bench`, which the kernel ends with the daemon.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use dolmen_api::{ErrorBody, ErrorCode, ErrorDocument};
use dolmen_block_linux::reply;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Deserialize;

use crate::answer::Answer;
use crate::volumes::Bounds;

/// Of util-linux: starts a program that the kernel ends when the thread that started it has ended.
const LEASH: &str = "setpriv";
const LEASH_WORDS: [&str; 3] = ["--pdeathsig", "KILL", "--"];
/// Stack of a thread that waits.
const STACK_BYTES: usize = 256 * 1024;
/// Bytes of a line of the process that are read.
const LINE_BYTES_MAX: u64 = 16 * 1024;
/// Lines that are kept of what the process printed last.
const LINES_KEPT: usize = 8;
/// Name of its control group.
const GROUP: &str = "dolmen-bench";
/// What the out-of-memory killer sees of it, in place of what protects the daemon.
const OOM_SCORE: &str = "0";
/// Status of `setpriv` when it finds no program.
const NOT_FOUND: i32 = 127;

/// What starts the process.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// Socket of the daemon, which the command asks about its targets.
    pub(super) socket: PathBuf,
}

/// What the command would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Rehearsed {
    pub(super) measurements: u64,
    pub(super) rounds: u32,
    pub(super) expected_s: u64,
}

/// A step, as the process prints it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub(super) struct Step {
    pub(super) step: String,
    pub(super) done: u64,
    pub(super) left_s: Option<u64>,
}

/// What the process has printed.
#[derive(Debug, Default)]
struct Printed {
    step: Option<Step>,
    last: Vec<String>,
}

/// A process at work.
#[derive(Debug, Default)]
pub(super) struct Running {
    printed: Mutex<Printed>,
    process: Mutex<Option<OwnedFd>>,
    is_to_end: AtomicBool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    /// Returns the step that it is at.
    pub(super) fn step(&self) -> Option<Step> {
        lock(&self.printed).step.clone()
    }

    /// Asks it to end fio and to write the report of what is measured.
    pub(super) fn end(&self) {
        if self.is_to_end.swap(true, Ordering::Relaxed) {
            return;
        }
        // One that is not started yet is asked by the thread that starts it.
        if let Some(process) = lock(&self.process).as_ref() {
            signal(process);
        }
    }

    /// Returns whether it was asked to end.
    pub(super) fn is_to_end(&self) -> bool {
        self.is_to_end.load(Ordering::Relaxed)
    }

    /// Returns why it failed, as it said at last, and what to do.
    pub(super) fn failure(&self, status: ExitStatus) -> (String, Option<String>) {
        let printed = lock(&self.printed);
        let of = |prefix: &str| {
            printed.last.iter().rev().find_map(|line| line.strip_prefix(prefix)).map(str::to_owned)
        };
        let last = || printed.last.last().cloned();
        let why = of("dolmen: ").or_else(last).unwrap_or_else(|| format!("it ended with {status}"));
        (why, of("hint: "))
    }

    fn note(&self, line: &str) {
        let mut printed = lock(&self.printed);
        if let Ok(step) = serde_json::from_str(line) {
            printed.step = Some(step);
            return;
        }
        if printed.last.len() >= LINES_KEPT {
            printed.last.remove(0);
        }
        printed.last.push(line.to_owned());
    }
}

/// Asks a process to end. One that has ended gets no signal, whatever has its number by now.
fn signal(process: &OwnedFd) {
    let _ = pidfd_send_signal(process, Signal::TERM);
}

/// Does something that blocks, on a thread of its own.
pub(super) async fn aside<T: Send + 'static>(
    chore: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (answer, awaited) = reply();
    let thread = thread::Builder::new().name("dolmen benchmark".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(move || answer.send(chore()))?;
    awaited.await.unwrap_or_else(|lost| Err(io::Error::other(lost)))
}

impl Program {
    fn command(&self) -> Command {
        let mut command = Command::new(LEASH);
        command.args(LEASH_WORDS).arg(&self.path).arg("--socket").arg(&self.socket);
        command.stdin(Stdio::null()).current_dir("/").process_group(0);
        command
    }

    /// Asks the command what it would do, and whether it would.
    pub(super) async fn rehearse(&self, words: Vec<String>) -> Answer<Rehearsed> {
        let program = self.clone();
        let output = aside(move || program.command().args(["-o", "json"]).args(words).arg("-n").output());
        let output = output.await.map_err(|error| not_started(&error))?;
        rehearsed(&output, &self.path)
    }

    /// Runs the command to its end. `folder` is for its temporary files.
    pub(super) fn run(&self, words: &[String], folder: &Path, running: &Running) -> io::Result<ExitStatus> {
        let mut command = self.command();
        command.args(words).env("TMPDIR", folder).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let _bounds = Bounds::of(GROUP, child.id());
        let _ = fs::write(format!("/proc/{}/oom_score_adj", child.id()), OOM_SCORE);
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let opened = pidfd_open(pid, PidfdFlags::empty());
            if opened.is_err() {
                // Nobody could end it.
                let _ = child.kill();
                let _ = child.wait();
            }
            let process = opened?;
            let mut place = lock(&running.process);
            if running.is_to_end() {
                signal(&process);
            }
            *place = Some(process);
        }
        if let Some(messages) = child.stderr.take() {
            read_lines(messages, running);
        }
        child.wait()
    }
}

/// Reads what a process prints, until it has ended.
fn read_lines(messages: impl io::Read, running: &Running) {
    let mut messages = BufReader::new(messages);
    let mut line = Vec::new();
    loop {
        line.clear();
        match messages.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => running.note(String::from_utf8_lossy(&line).trim_end()),
        }
    }
}

fn not_started(error: &io::Error) -> ErrorBody {
    let code = if error.kind() == io::ErrorKind::NotFound { ErrorCode::Missing } else { ErrorCode::Io };
    let message = format!("no benchmark was begun: {LEASH} of util-linux cannot be run: {error}");
    ErrorBody::new(code, message).hint("install util-linux")
}

/// Returns what a rehearsal says.
fn rehearsed(output: &Output, program: &Path) -> Answer<Rehearsed> {
    if output.status.success()
        && let Ok(rehearsed) = serde_json::from_slice(&output.stdout)
    {
        return Ok(rehearsed);
    }
    if let Ok(ErrorDocument { error, .. }) = serde_json::from_slice(&output.stdout) {
        return Err(declared(error));
    }
    let messages = String::from_utf8_lossy(&output.stderr);
    let last = messages.lines().next_back().unwrap_or("it printed nothing").trim().to_owned();
    let is_missing = output.status.code() == Some(NOT_FOUND);
    let code = if is_missing { ErrorCode::Missing } else { ErrorCode::Internal };
    let message =
        format!("no benchmark was begun: {} bench ended with {}: {last}", program.display(), output.status);
    let hint =
        "install the command line of the daemon's version beside the daemon, or name it in DOLMEN_COMMAND";
    Err(ErrorBody::new(code, message).hint(hint))
}

/// Returns a refusal of the command as one that the verb declares.
fn declared(error: ErrorBody) -> ErrorBody {
    let code = match error.code {
        ErrorCode::BadRequest
        | ErrorCode::NoSuchPool
        | ErrorCode::NoSuchSpace
        | ErrorCode::NeedsConfirmation
        | ErrorCode::ForeignData
        | ErrorCode::DeviceInUse
        | ErrorCode::Busy
        | ErrorCode::Missing
        | ErrorCode::Permission
        | ErrorCode::Config
        | ErrorCode::Stopping
        | ErrorCode::Unsupported => error.code,
        _ => ErrorCode::Io,
    };
    ErrorBody { code, ..error }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn output(status: i32, results: &str, messages: &str) -> Output {
        let (stdout, stderr) = (results.as_bytes().to_vec(), messages.as_bytes().to_vec());
        Output { status: ExitStatus::from_raw(status << 8), stdout, stderr }
    }

    /// Scenario: the command accepts, refuses with a document, is missing, and prints what is no document. Each is told apart, and a code
    /// that the verb does not declare becomes one that it does.
    #[test]
    fn a_rehearsal_ends_in_a_plan_or_in_a_declared_refusal() {
        let ask = |status, results: &str, messages: &str| {
            rehearsed(&output(status, results, messages), Path::new("dolmen"))
        };
        let plan =
            r#"{"schema":1,"is_dry_run":true,"measurements":18,"rounds":3,"expected_s":207,"later":1}"#;
        assert_eq!(ask(0, plan, ""), Ok(Rehearsed { measurements: 18, rounds: 3, expected_s: 207 }));
        let no_fio = r#"{"error":{"code":"missing","message":"fio is not installed","hint":"install it"}}"#;
        let refused = ask(69, no_fio, "").unwrap_err();
        assert_eq!((refused.code, refused.hint.as_deref()), (ErrorCode::Missing, Some("install it")));
        let odd = r#"{"error":{"code":"too_few_disks","message":"odd"}}"#;
        assert_eq!(ask(64, odd, "").unwrap_err().code, ErrorCode::Io);
        let missing =
            ask(127, "", "setpriv: failed to execute dolmen: No such file or directory\n").unwrap_err();
        assert_eq!(missing.code, ErrorCode::Missing);
        assert!(missing.message.contains("failed to execute dolmen"), "{missing}");
        assert_eq!(ask(1, "", "").unwrap_err().code, ErrorCode::Internal);
    }

    /// Scenario: steps, messages and an error. The last step is known, and the error with its hint.
    #[test]
    fn steps_and_the_reason_of_a_failure_are_kept() {
        let running = Running::default();
        let printed = "{\"step\":\"round 1\",\"done\":0,\"total\":2,\"left_s\":4}\nnoise\n{\"step\":\"round 2\",\"done\":1,\"total\":2,\"left_s\":null}\n\
                       dolmen: making the load: broken\nhint: mend it\n";
        read_lines(printed.as_bytes(), &running);
        let step = running.step().unwrap();
        assert_eq!((step.step.as_str(), step.done, step.left_s), ("round 2", 1, None));
        let failure = running.failure(ExitStatus::from_raw(74 << 8));
        assert_eq!(failure, ("making the load: broken".to_owned(), Some("mend it".to_owned())));
        assert_eq!(
            Running::default().failure(ExitStatus::from_raw(9)).0,
            "it ended with signal: 9 (SIGKILL)"
        );
    }
}

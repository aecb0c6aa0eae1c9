//! `fio` as a process: started in a folder of its own, ended when a signal comes.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dolmen_bench::{Answer, Generator, Halt, Order};
use rustix::process::{Pid, Signal, kill_process};

use super::error::BenchError;
use super::machine::Processors;
use crate::session::poll_interval::PollInterval;

const FIO: &str = "fio";
/// Of util-linux: starts a program that the kernel ends when the one that started it is gone.
const LEASH: &str = "setpriv";
const LEASH_WORDS: [&str; 3] = ["--pdeathsig", "KILL", "--"];
/// How often the process and the signals are looked at.
const POLL_INTERVAL: PollInterval = PollInterval { pause: Duration::from_millis(20) };
/// Looks at a process that was asked to end, before it is ended by force: five seconds.
const LOOKS_BEFORE_FORCE: u32 = 250;
/// How long others are watched while nothing runs, in looks.
const IDLE_LOOKS: u32 = 25;
/// Bytes of an answer that are read, at most: a document is some 10 KB, a log of a day 30 MB.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

const JOB_FILE: &str = "job.fio";
const OUTPUT: &str = "output";
const MESSAGES: &str = "messages";

/// What `fio` says of itself.
#[derive(Debug, Clone)]
pub(crate) struct Installed {
    /// Its version.
    pub version: String,
    /// The names of its engines, among other words.
    engines: String,
}

impl Installed {
    /// Asks it.
    pub(crate) fn ask() -> Result<Self, BenchError> {
        Ok(Self { version: message_of("--version")?.trim().to_owned(), engines: message_of("--enghelp")? })
    }

    /// Whether it has an engine for a target.
    pub(crate) fn check(&self, engine: &'static str, target: &str) -> Result<(), BenchError> {
        if self.engines.split_whitespace().any(|word| word == engine) {
            return Ok(());
        }
        let (version, target) = (self.version.clone(), target.to_owned());
        Err(BenchError::NoEngine { version, engine, target })
    }
}

fn message_of(option: &str) -> Result<String, BenchError> {
    let output = Command::new(FIO).arg(option).stdin(Stdio::null()).output().map_err(|source| {
        if source.kind() == io::ErrorKind::NotFound {
            BenchError::NoFio
        } else {
            BenchError::Spawn { doing: "asking", source }
        }
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether `fio` can be started so that it does not survive this process: tried with a question that it answers at once.
fn has_leash() -> bool {
    let mut command = Command::new(LEASH);
    command.args(LEASH_WORDS).args([FIO, "--version"]);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Starts `fio` for each order.
pub(crate) struct Fio {
    folder: tempfile::TempDir,
    is_stopped: Arc<AtomicBool>,
    has_leash: bool,
}

impl Fio {
    /// Works in a new folder, which goes away with this, and heeds the flag.
    pub(crate) fn new(is_stopped: Arc<AtomicBool>) -> Result<Self, BenchError> {
        let made = tempfile::Builder::new().prefix("dolmen-bench-").tempdir();
        let folder = made.map_err(|source| BenchError::Make { path: std::env::temp_dir(), source })?;
        Ok(Self { folder, is_stopped, has_leash: has_leash() })
    }

    fn start(&self, job: &str) -> io::Result<Child> {
        let folder = self.folder.path();
        fs::write(folder.join(JOB_FILE), job)?;
        // A load that survived this process would write to a target that nobody holds any more.
        let mut command = if self.has_leash {
            let mut command = Command::new(LEASH);
            command.args(LEASH_WORDS).arg(FIO);
            command
        } else {
            Command::new(FIO)
        };
        command
            .args(["--output-format=json", JOB_FILE])
            .current_dir(folder)
            .env("LC_ALL", "C")
            // A group of its own: the terminal's interrupt reaches this process alone, which then ends the other in order.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(File::create(folder.join(OUTPUT))?)
            .stderr(File::create(folder.join(MESSAGES))?)
            .spawn()
    }

    /// Waits for the end; nothing after a request to stop.
    fn wait(&self, child: &mut Child) -> io::Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if self.is_stopped.load(Ordering::Relaxed) {
                end(child)?;
                return Ok(None);
            }
            POLL_INTERVAL.wait();
        }
    }

    fn text_of(&self, name: &str) -> io::Result<String> {
        let mut bytes = Vec::new();
        File::open(self.folder.path().join(name))?.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The log is there only where something was logged.
    fn log_of(&self, name: Option<&str>) -> io::Result<String> {
        let Some(name) = name else { return Ok(String::new()) };
        let file = format!("{name}_bw.log");
        match self.text_of(&file) {
            Ok(text) => {
                fs::remove_file(self.folder.path().join(file))?;
                Ok(text)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    fn failure(&self, status: ExitStatus, output: &str) -> io::Result<BenchError> {
        let messages = self.text_of(MESSAGES)?;
        let printed = output.lines().take_while(|line| !line.starts_with('{'));
        let stated = messages.lines().chain(printed).map(str::trim).filter(|line| !line.is_empty());
        // fio names itself at each line, and tells at last that it prepares to end.
        let stated = stated.filter(|line| !line.contains("exiting on signal")).last();
        let stated =
            stated.map(|line| line.trim_start_matches("fio: ")).unwrap_or("nothing more was said").to_owned();
        Ok(BenchError::Ended { status: status.to_string(), stated })
    }
}

/// Asks a process to end, and ends it when it does not.
fn end(child: &mut Child) -> io::Result<()> {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended by itself a moment ago; then the wait below finds it.
        let _ = kill_process(pid, Signal::INT);
    }
    for _ in 0..LOOKS_BEFORE_FORCE {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        POLL_INTERVAL.wait();
    }
    child.kill()?;
    child.wait().map(|_| ())
}

impl Generator for Fio {
    type Error = BenchError;

    fn run(&mut self, order: &Order<'_>) -> Result<Answer, Halt<BenchError>> {
        let failed = |doing| move |source| Halt::Failed(BenchError::Spawn { doing, source });
        if self.is_stopped.load(Ordering::Relaxed) {
            return Err(Halt::Interrupted);
        }
        let mut child = self.start(order.job).map_err(failed("starting"))?;
        let Some(status) = self.wait(&mut child).map_err(failed("waiting for"))? else {
            return Err(Halt::Interrupted);
        };
        let text = self.text_of(OUTPUT).map_err(failed("reading the answer of"))?;
        let log = self.log_of(order.log).map_err(failed("reading the log of"))?;
        if !status.success() {
            // A signal to both ends fio first; that is no failure.
            if self.is_stopped.load(Ordering::Relaxed) {
                return Err(Halt::Interrupted);
            }
            let failure = self.failure(status, &text).map_err(failed("reading the messages of"))?;
            return Err(Halt::Failed(failure));
        }
        Ok(Answer { text, log })
    }

    fn idle_percent(&mut self) -> Option<f64> {
        let before = Processors::now()?;
        for _ in 0..IDLE_LOOKS {
            if self.is_stopped.load(Ordering::Relaxed) {
                return None;
            }
            POLL_INTERVAL.wait();
        }
        Processors::now()?.busy_percent_since(before)
    }
}

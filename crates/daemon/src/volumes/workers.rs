//! Processes of `dolmen-worker`: one for each operation, awaited on a thread of its own.
//!
//! The process may wait or hang for as long as its device does. It is in a process group of its own and, where control groups can be
//! made, in one of its own; nothing but its operation waits for it.
//!
//! Invariants:
//! - No process is ended for being slow. A caller with a limit stops waiting, and the process goes on.
//! - A lane of a volume has one process of this daemon at a time. The lock file of the order keeps out those of an earlier daemon.
//! - An operation without a message from its process has failed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use dolmen_api::{ErrorBody, ErrorCode, VolumeWorker};
use dolmen_attach::SpaceKey;
use dolmen_block_io::sync::{AsyncMutex, Notify, Permit};
use dolmen_block_io::{Instant, Seams, sleep, within};
use dolmen_block_linux::reply;
use dolmen_worker::protocol::{Failure, FailureCode, MESSAGE_BYTES_MAX, Message, Operation, Order, Outcome};

use crate::answer::Answer;
use crate::volumes::control_group::Bounds;
use crate::volumes::locks::Lane;
use crate::volumes::steer::{Link, Steer};

/// Processes at a time, at most: each takes a thread.
const WORKERS_MAX: usize = 64;
/// Stack of a thread that waits for a process.
const STACK_BYTES: usize = 256 * 1024;
/// Characters of what a tool printed that the result of a job shows, at most: the record of the job has to hold them.
const PRINTED_CHARS_MAX: usize = 200;
/// Time that a request waits for its process.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Time that a request waits for the change of a volume that is under way.
pub(super) const TURN_LIMIT: Duration = Duration::from_secs(10);
/// Pause before an operation is given again whose volume a process of an earlier daemon has.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// What came of a process.
enum Ended {
    /// Its message.
    Said(Message),
    /// It ended without a message.
    Silent(ExitStatus),
    /// Its message cannot be read.
    Unreadable(String),
}

/// A process at work.
struct Running {
    operation: &'static str,
    pid: Arc<AtomicU32>,
    began: Instant,
    is_long: bool,
}

/// Processes of workers.
pub(crate) struct Workers {
    seams: Seams,
    program: PathBuf,
    folder: PathBuf,
    running: RefCell<BTreeMap<(SpaceKey, Lane), Running>>,
    ended: Notify,
    answer_limit: Duration,
}

/// How long a caller waits for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// As a request does: a minute.
    Request,
    /// Until it ends, also behind a process of an earlier daemon.
    UntilDone,
}

impl Workers {
    /// Returns the workers of a program; their lock files are in `folder`.
    pub(crate) fn new(seams: &Seams, program: PathBuf, folder: PathBuf) -> Rc<Self> {
        let (running, ended, answer_limit) = (RefCell::default(), Notify::new(), ANSWER_LIMIT);
        Rc::new(Self { seams: seams.clone(), program, folder, running, ended, answer_limit })
    }

    /// Returns the folder for reports of checks.
    pub(super) fn checks_folder(&self) -> PathBuf {
        self.folder.join("checks")
    }

    /// Returns the folder for index and scratch files of a volume.
    pub(super) fn state_folder(&self, volume: SpaceKey) -> PathBuf {
        self.folder.join(format!("{}-{}.dedup", volume.pool, volume.space.0))
    }

    /// Returns the process that works on the file system of a volume.
    pub(crate) fn at_work(&self, volume: SpaceKey) -> Option<VolumeWorker> {
        self.at_work_in(volume, Lane::Volume)
    }

    /// Returns the process that works in a lane of a volume.
    pub(super) fn at_work_in(&self, volume: SpaceKey, lane: Lane) -> Option<VolumeWorker> {
        let now = self.seams.clock.now();
        self.running.borrow().get(&(volume, lane)).map(|running| VolumeWorker {
            pid: running.pid.load(Ordering::Relaxed),
            operation: running.operation.to_owned(),
            elapsed_s: now.since(running.began).as_secs(),
            is_long: running.is_long,
        })
    }

    /// Returns the process of a volume that is shown: that on its file system first.
    pub(super) fn shown(&self, volume: SpaceKey) -> Option<VolumeWorker> {
        Lane::ALL.into_iter().find_map(|lane| self.at_work_in(volume, lane))
    }

    /// Waits until no process of this daemon works on a volume.
    pub(crate) async fn idle(&self, volume: SpaceKey) {
        let is_idle = || {
            let running = self.running.borrow();
            Lane::ALL.into_iter().all(|lane| !running.contains_key(&(volume, lane)))
        };
        self.ended.wait_for(|| is_idle().then_some(())).await;
    }

    /// Has an operation carried out on the volume called `name`.
    pub(crate) async fn run(
        self: &Rc<Self>,
        volume: SpaceKey,
        name: &str,
        operation: Operation,
        wait: Wait,
    ) -> Answer<Outcome> {
        self.ask(volume, name, operation, wait).await.map_err(Unanswered::body)
    }

    /// Has an operation carried out, for a caller that has to know whether it was begun.
    pub(super) async fn ask(
        self: &Rc<Self>,
        volume: SpaceKey,
        name: &str,
        operation: Operation,
        wait: Wait,
    ) -> Result<Outcome, Unanswered> {
        let what = words_of(&operation);
        let lane = Lane::of(&operation);
        loop {
            let done = match wait {
                Wait::UntilDone => self.run_once(volume, name, operation.clone(), None).await,
                Wait::Request => {
                    let clock = self.seams.clock.as_ref();
                    let limit = clock.now() + self.answer_limit;
                    // Nothing waits between the end of this and the beginning of the process.
                    if within(clock, limit, self.free(volume, lane)).await.is_none() {
                        return Err(Unanswered::NotBegun(self.not_begun(volume, lane, name, what)));
                    }
                    let once = self.run_once(volume, name, operation.clone(), None);
                    match within(clock, limit, once).await {
                        Some(done) => done,
                        None => return Err(Unanswered::Failed(self.slow(volume, lane, name, what))),
                    }
                }
            };
            match done {
                Err(Fault::Failed(failure))
                    if failure.code == FailureCode::Busy && wait == Wait::UntilDone =>
                {
                    sleep(self.seams.clock.as_ref(), TRY_AGAIN).await;
                }
                Err(fault) => {
                    let printed = fault.printed();
                    let error = fault.body(name, what);
                    return Err(match printed {
                        Some(printed) => Unanswered::Printed { error, printed },
                        None => Unanswered::Failed(error),
                    });
                }
                Ok(outcome) => return Ok(outcome),
            }
        }
    }

    /// Has a long operation carried out, which `steer` pauses, resumes and stops. It waits for the process of an earlier daemon.
    pub(super) async fn long(
        self: &Rc<Self>,
        volume: SpaceKey,
        name: &str,
        operation: Operation,
        steer: &Steer,
    ) -> Answer<Outcome> {
        let what = words_of(&operation);
        loop {
            if steer.is_stopped() {
                return Ok(Outcome::Stopped);
            }
            steer.begin();
            match self.run_once(volume, name, operation.clone(), Some(steer.link())).await {
                Err(Fault::Failed(failure)) if failure.code == FailureCode::Busy => {
                    sleep(self.seams.clock.as_ref(), TRY_AGAIN).await;
                }
                Err(fault) => return Err(fault.body(name, what)),
                Ok(outcome) => return Ok(outcome),
            }
        }
    }

    /// Takes the turn to change a volume in a lane, whose lock `mutex` is.
    pub(super) async fn turn_in<'a>(
        &self,
        lane: Lane,
        mutex: &'a AsyncMutex,
        volume: SpaceKey,
        name: &str,
    ) -> Answer<Permit<'a>> {
        let limit = self.seams.clock.now() + TURN_LIMIT;
        let taken = within(self.seams.clock.as_ref(), limit, mutex.take()).await;
        taken.ok_or_else(|| {
            let by = self.at_work_in(volume, lane).map_or_else(
                || "another change".to_owned(),
                |worker| format!("{} (process {})", worker.operation, worker.pid),
            );
            let message = format!("volume {name} is busy with {by}; nothing was changed");
            let hint = format!("`dolmen volume show {name}` shows when that has ended");
            ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint)
        })
    }

    fn slow(&self, volume: SpaceKey, lane: Lane, name: &str, what: &str) -> ErrorBody {
        let by = self
            .at_work_in(volume, lane)
            .map_or_else(String::new, |worker| format!(": process {}", worker.pid));
        let message = format!(
            "{what} of volume {name} takes longer than {} seconds{by}, and goes on",
            ANSWER_LIMIT.as_secs()
        );
        let hint = format!(
            "`dolmen volume show {name}` shows when it has ended; `dolmen why {name}` shows what its disks do"
        );
        ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint)
    }

    fn not_begun(&self, volume: SpaceKey, lane: Lane, name: &str, what: &str) -> ErrorBody {
        let by = self.at_work_in(volume, lane).map_or_else(
            || format!("{WORKERS_MAX} processes are at work on other volumes"),
            |worker| {
                format!(
                    "process {} has been at {} for {} seconds",
                    worker.pid, worker.operation, worker.elapsed_s
                )
            },
        );
        let message = format!("{what} of volume {name} was not begun: {by}");
        let hint = format!("`dolmen volume show {name}` shows when that has ended; ask again then");
        ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint)
    }

    /// Waits until a process can be started in a lane of a volume.
    async fn free(&self, volume: SpaceKey, lane: Lane) {
        let is_free = || {
            let running = self.running.borrow();
            !running.contains_key(&(volume, lane)) && running.len() < WORKERS_MAX
        };
        self.ended.wait_for(|| is_free().then_some(())).await;
    }

    /// Starts a process when none of this daemon has the lane. Once it is started it goes on, whether or not its caller waits.
    async fn run_once(
        self: &Rc<Self>,
        volume: SpaceKey,
        name: &str,
        operation: Operation,
        link: Option<Arc<Link>>,
    ) -> Result<Outcome, Fault> {
        let lane = Lane::of(&operation);
        self.free(volume, lane).await;
        let pid = Arc::<AtomicU32>::default();
        let running = Running {
            operation: words_of(&operation),
            pid: Arc::clone(&pid),
            began: self.seams.clock.now(),
            is_long: link.is_some(),
        };
        self.running.borrow_mut().insert((volume, lane), running);
        let (of, suffix) = (format!("{}-{}", volume.pool, volume.space.0), lane.suffix());
        let lock = self.folder.join(format!("{of}{suffix}.lock"));
        let order = Order { lock, operation };
        let (ended, awaited) = reply();
        let program = self.program.clone();
        let group = format!("dolmen-worker-{of}{suffix}");
        let thread = thread::Builder::new().name("dolmen volume".to_owned()).stack_size(STACK_BYTES);
        let started = thread.spawn(move || ended.send(work(&program, &order, &pid, &group, link.as_deref())));
        let (told, outcome) = reply();
        let workers = Rc::clone(self);
        let waiting = async move {
            let found = match started {
                Ok(_) => awaited.await.unwrap_or_else(|lost| Err(io::Error::other(lost))),
                Err(error) => Err(error),
            };
            workers.running.borrow_mut().remove(&(volume, lane));
            workers.ended.notify_all();
            told.send(found);
        };
        self.seams.spawner.spawn("volume worker", Box::pin(waiting));
        let found = outcome.await.unwrap_or_else(|lost| Err(io::Error::other(lost)));
        let ended = found.map_err(|error| Fault::NotStarted(self.program.clone(), error))?;
        match ended {
            Ended::Said(Message::Done { outcome }) => Ok(outcome),
            Ended::Said(Message::Failed { failure } | Message::Ignored { failure }) => {
                Err(Fault::Failed(failure))
            }
            Ended::Said(Message::Progress { .. }) => {
                Err(Fault::Unreadable("it ends with progress".to_owned()))
            }
            Ended::Silent(status) => {
                tracing::error!(volume = name, %status, "a worker ended without a message");
                Err(Fault::Silent(status))
            }
            Ended::Unreadable(why) => Err(Fault::Unreadable(why)),
        }
    }
}

/// Why a caller has no outcome.
pub(super) enum Unanswered {
    /// No process was started: the lane of the volume did not become free.
    NotBegun(ErrorBody),
    /// The operation failed, or goes on without its caller.
    Failed(ErrorBody),
    /// The same of a tool that printed more than its error.
    Printed {
        /// Error.
        error: ErrorBody,
        /// Last lines of the tool, cut.
        printed: String,
    },
}

impl Unanswered {
    pub(super) fn body(self) -> ErrorBody {
        match self {
            Self::NotBegun(error) | Self::Failed(error) | Self::Printed { error, .. } => error,
        }
    }

    /// Returns what a tool printed last, as far as it is shown.
    pub(super) fn printed(&self) -> Option<&str> {
        match self {
            Self::NotBegun(_) | Self::Failed(_) => None,
            Self::Printed { printed, .. } => Some(printed),
        }
    }
}

/// Why an operation has no outcome.
enum Fault {
    /// The process could not be started, or its order not be written.
    NotStarted(PathBuf, io::Error),
    /// The process says why.
    Failed(Failure),
    /// It ended without a message.
    Silent(ExitStatus),
    /// It wrote something else.
    Unreadable(String),
}

impl Fault {
    /// Returns the last lines of the tool that failed, if it printed more than one.
    fn printed(&self) -> Option<String> {
        match self {
            Self::Failed(failure) => failure.message.split_once('\n').map(|(_, output)| last_lines(output)),
            Self::NotStarted(..) | Self::Silent(_) | Self::Unreadable(_) => None,
        }
    }

    fn body(self, name: &str, what: &str) -> ErrorBody {
        let (code, message, hint) = match self {
            Self::NotStarted(program, error) => {
                let code =
                    if error.kind() == io::ErrorKind::NotFound { ErrorCode::Missing } else { ErrorCode::Io };
                (
                    code,
                    format!(
                        "{what} of volume {name} was not begun: {} cannot be run: {error}",
                        program.display()
                    ),
                    "install dolmen-worker beside the program of the daemon, or name it in DOLMEN_WORKER"
                        .to_owned(),
                )
            }
            Self::Failed(failure) => {
                let code = match failure.code {
                    FailureCode::Busy | FailureCode::InUse => ErrorCode::Busy,
                    FailureCode::ForeignData => ErrorCode::ForeignData,
                    FailureCode::MissingTool => ErrorCode::Missing,
                    FailureCode::BadPath => ErrorCode::Config,
                    FailureCode::Refused => ErrorCode::Io,
                    FailureCode::ServerSettings | FailureCode::NoAccount => ErrorCode::Config,
                    FailureCode::Unsupported => ErrorCode::Unsupported,
                    FailureCode::NoRoom => ErrorCode::NoSpace,
                    FailureCode::BadOrder => ErrorCode::Internal,
                };
                let (sentence, output) = failure.message.split_once('\n').unwrap_or((&failure.message, ""));
                if !output.is_empty() {
                    tracing::warn!(volume = name, what, output, "a tool of a worker failed");
                }
                (code, format!("{what} of volume {name} failed: {sentence}"), failure.hint)
            }
            Self::Silent(status) => {
                let how = match status.signal() {
                    Some(signal) => format!("was ended by signal {signal}"),
                    None => format!("ended with {status}"),
                };
                (
                    ErrorCode::Io,
                    format!("{what} of volume {name} has no result: its process {how} without a message"),
                    "ask for it again: each operation looks first at what is there".to_owned(),
                )
            }
            Self::Unreadable(why) => (
                ErrorCode::Internal,
                format!(
                    "{what} of volume {name} has no result: the message of its process cannot be read: {why}"
                ),
                "use the daemon and the worker of one version".to_owned(),
            ),
        };
        let error = ErrorBody::new(code, message).on(name);
        if hint.is_empty() { error } else { error.hint(hint) }
    }
}

/// Returns the last lines of an output as one, as many as are shown.
fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join(" | ");
    let surplus = text.chars().count().saturating_sub(PRINTED_CHARS_MAX);
    let kept: String = text.chars().skip(surplus).collect();
    if surplus > 0 { format!("…{kept}") } else { kept }
}

/// Returns what an operation is, in words.
fn words_of(operation: &Operation) -> &'static str {
    match operation {
        Operation::Probe { .. } => "the probe",
        Operation::Make { .. } => "mkfs",
        Operation::Mount { .. } => "the mount",
        Operation::Unmount { .. } => "the unmount",
        Operation::Grow { .. } => "the growth",
        Operation::Trim { .. } => "the trim",
        Operation::Usage { .. } => "the count of free room",
        Operation::Check { .. } => "the check",
        Operation::Scrub { .. } => "the scrub",
        Operation::Dedup { .. } => "the deduplication",
        Operation::Estimate { .. } => "the estimate",
        Operation::Undo { .. } => "the undoing of a deduplication",
        Operation::Compact { .. } => "the compaction",
        Operation::Names { .. } => "the search for names",
        Operation::QuotaSet { .. } | Operation::QuotaRemove { .. } => "the change of a quota",
        Operation::QuotaList { .. } => "the count of quotas",
        Operation::Missing { .. } => "the look for paths",
        Operation::SharePut(_) | Operation::ShareRemove(_) => "the change of a share",
        Operation::ShareList { .. } => "the list of shares",
        Operation::ShareProbe(_) => "the look at a share",
        Operation::ShareSessions(_) => "the list of clients",
    }
}

/// Runs a process to its end. With a link its input stays open, and its progress is kept.
fn work(
    program: &Path,
    order: &Order,
    pid: &AtomicU32,
    group: &str,
    link: Option<&Link>,
) -> io::Result<Ended> {
    let mut line = serde_json::to_vec(order).map_err(io::Error::other)?;
    line.push(b'\n');
    let mut command = Command::new(program);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .current_dir("/")
        .process_group(0);
    let mut child = command.spawn()?;
    pid.store(child.id(), Ordering::Relaxed);
    // It reads its order before it does anything, so it is bounded by then.
    let _bounds = Bounds::of(group, child.id());
    if let Some(mut input) = child.stdin.take() {
        // A process that ended already says so by its status.
        let _ = input.write_all(&line);
        // One whose input cannot be kept open goes on without commands.
        let _ = link.map(|link| link.open(input));
    }
    let last = child.stdout.take().map(|output| last_message(output, link));
    let status = child.wait();
    link.into_iter().for_each(Link::close);
    let status = status?;
    Ok(match last {
        None | Some(Ok(None)) => Ended::Silent(status),
        Some(Ok(Some(message))) => Ended::Said(message),
        Some(Err(error)) => Ended::Unreadable(error.to_string()),
    })
}

/// Reads messages up to the one that ends the operation; none if the process wrote none, or died within it.
fn last_message(output: impl io::Read, link: Option<&Link>) -> io::Result<Option<Message>> {
    let mut output = BufReader::new(output);
    let mut text = String::new();
    loop {
        text.clear();
        let read = output.by_ref().take(MESSAGE_BYTES_MAX).read_line(&mut text)?;
        if !text.ends_with('\n') && u64::try_from(read).unwrap_or(u64::MAX) >= MESSAGE_BYTES_MAX {
            return Err(io::Error::other(format!("it is longer than {MESSAGE_BYTES_MAX} bytes")));
        }
        if !text.ends_with('\n') {
            return Ok(None);
        }
        match serde_json::from_str(&text)? {
            Message::Progress { progress } => link.into_iter().for_each(|link| link.note(progress)),
            Message::Ignored { failure } => tracing::warn!(%failure, "a worker ignored a command"),
            end => return Ok(Some(end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use dolmen_block_linux::{Runtime, RuntimeConfig};
    use dolmen_units::{PoolId, SpaceId};

    use super::*;

    /// Scenario: a process does not end. Its caller hears that it goes on; the next order of its lane was not begun; an order of
    /// another lane is begun.
    #[test]
    fn an_order_that_waited_in_vain_was_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let (program, held) = (folder.path().join("worker"), folder.path().join("held"));
        let text = format!(
            "#!/bin/sh\nread -r order\nwhile [ -e {} ]; do sleep 0.05; done\necho '{{\"say\":\"done\",\"outcome\":{{\"is\":\"done\"}}}}'\n",
            held.display()
        );
        fs::write(&held, "").unwrap();
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let runtime = Runtime::new(RuntimeConfig::MODEST).unwrap();
        let workers = Rc::new(Workers {
            seams: runtime.seams(),
            program,
            folder: folder.path().to_owned(),
            running: RefCell::default(),
            ended: Notify::new(),
            answer_limit: Duration::from_millis(200),
        });
        let volume = SpaceKey { pool: PoolId([1; 16]), space: SpaceId(2) };
        let probe = Operation::Probe { device: PathBuf::from("/dev/null") };
        let servers = serde_json::from_value(serde_json::json!({"lock": "/absent"})).unwrap();
        let list = Operation::ShareList { servers };
        runtime.run(async move {
            let ask = |operation: &Operation| {
                let (workers, operation) = (Rc::clone(&workers), operation.clone());
                async move { workers.ask(volume, "tank/v", operation, Wait::Request).await }
            };
            for operation in [&probe, &list] {
                let Err(Unanswered::Failed(error)) = ask(operation).await else { panic!("it was not begun") };
                assert!(error.message.contains("goes on"), "{error}");
            }
            let Err(Unanswered::NotBegun(error)) = ask(&probe).await else {
                panic!("one lane has two processes")
            };
            assert!(error.message.contains("was not begun: process"), "{error}");
            fs::remove_file(held).unwrap();
            workers.idle(volume).await;
            assert!(ask(&probe).await.is_ok(), "a lane is free again");
        });
    }
}

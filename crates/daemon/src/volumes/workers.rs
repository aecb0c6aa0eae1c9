//! Processes of `dolmen-worker`: one for each operation, awaited on a thread of its own.
//!
//! The process may wait or hang for as long as its device does. It is in a process group of its own and, where control groups can be
//! made, in one of its own; nothing but its operation waits for it.
//!
//! Invariants:
//! - No process is ended for being slow. A caller with a limit stops waiting, and the process goes on.
//! - One volume has one process of this daemon at a time. The lock file of the order keeps out those of an earlier daemon.
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
use dolmen_block_io::sync::Notify;
use dolmen_block_io::{Instant, Seams, sleep, within};
use dolmen_block_linux::reply;
use dolmen_worker::protocol::{Failure, FailureCode, MESSAGE_BYTES_MAX, Message, Operation, Order, Outcome};

use crate::answer::Answer;
use crate::volumes::control_group::ControlGroup;
use crate::volumes::steer::{Link, Steer};

/// Processes at a time, at most: each takes a thread.
const WORKERS_MAX: usize = 64;
/// Stack of a thread that waits for a process.
const STACK_BYTES: usize = 256 * 1024;
/// Time that a request waits for its process.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
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
    running: RefCell<BTreeMap<SpaceKey, Running>>,
    ended: Notify,
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
        let (running, ended) = (RefCell::default(), Notify::new());
        Rc::new(Self { seams: seams.clone(), program, folder, running, ended })
    }

    /// Returns the folder for index and scratch files of a volume.
    pub(super) fn state_folder(&self, volume: SpaceKey) -> PathBuf {
        self.folder.join(format!("{}-{}.dedup", volume.pool, volume.space.0))
    }

    /// Returns the process that works on a volume.
    pub(crate) fn at_work(&self, volume: SpaceKey) -> Option<VolumeWorker> {
        let now = self.seams.clock.now();
        self.running.borrow().get(&volume).map(|running| VolumeWorker {
            pid: running.pid.load(Ordering::Relaxed),
            operation: running.operation.to_owned(),
            elapsed_s: now.since(running.began).as_secs(),
            is_long: running.is_long,
        })
    }

    /// Waits until no process of this daemon works on a volume.
    pub(crate) async fn idle(&self, volume: SpaceKey) {
        self.ended.wait_for(|| (!self.running.borrow().contains_key(&volume)).then_some(())).await;
    }

    /// Has an operation carried out on the volume called `name`.
    pub(crate) async fn run(
        self: &Rc<Self>,
        volume: SpaceKey,
        name: &str,
        operation: Operation,
        wait: Wait,
    ) -> Answer<Outcome> {
        let what = words_of(&operation);
        loop {
            let done = match wait {
                Wait::UntilDone => self.run_once(volume, name, operation.clone(), None).await,
                Wait::Request => {
                    let limit = self.seams.clock.now() + ANSWER_LIMIT;
                    let once = self.run_once(volume, name, operation.clone(), None);
                    match within(self.seams.clock.as_ref(), limit, once).await {
                        Some(done) => done,
                        None => return Err(self.slow(volume, name, what)),
                    }
                }
            };
            match done {
                Err(Fault::Failed(failure))
                    if failure.code == FailureCode::Busy && wait == Wait::UntilDone =>
                {
                    sleep(self.seams.clock.as_ref(), TRY_AGAIN).await;
                }
                Err(fault) => return Err(fault.body(name, what)),
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

    fn slow(&self, volume: SpaceKey, name: &str, what: &str) -> ErrorBody {
        let by = self.at_work(volume).map_or_else(
            || "no process could be started for it".to_owned(),
            |worker| format!("process {} is at {}", worker.pid, worker.operation),
        );
        let message = format!(
            "{what} of volume {name} takes longer than {} seconds: {by}, and goes on",
            ANSWER_LIMIT.as_secs()
        );
        let hint = format!(
            "`dolmen volume show {name}` shows when it has ended; `dolmen why {name}` shows what its disks do"
        );
        ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint)
    }

    /// Starts a process when none of this daemon has the volume. Once it is started it goes on, whether or not its caller waits.
    async fn run_once(
        self: &Rc<Self>,
        volume: SpaceKey,
        name: &str,
        operation: Operation,
        link: Option<Arc<Link>>,
    ) -> Result<Outcome, Fault> {
        let is_free = || {
            let running = self.running.borrow();
            !running.contains_key(&volume) && running.len() < WORKERS_MAX
        };
        self.ended.wait_for(|| is_free().then_some(())).await;
        let pid = Arc::<AtomicU32>::default();
        let running = Running {
            operation: words_of(&operation),
            pid: Arc::clone(&pid),
            began: self.seams.clock.now(),
            is_long: link.is_some(),
        };
        self.running.borrow_mut().insert(volume, running);
        let lock = self.folder.join(format!("{}-{}.lock", volume.pool, volume.space.0));
        let order = Order { lock, operation };
        let (ended, awaited) = reply();
        let program = self.program.clone();
        let group = format!("dolmen-worker-{}-{}", volume.pool, volume.space.0);
        let thread = thread::Builder::new().name("dolmen volume".to_owned()).stack_size(STACK_BYTES);
        let started = thread.spawn(move || ended.send(work(&program, &order, &pid, &group, link.as_deref())));
        let (told, outcome) = reply();
        let workers = Rc::clone(self);
        let waiting = async move {
            let found = match started {
                Ok(_) => awaited.await.unwrap_or_else(|lost| Err(io::Error::other(lost))),
                Err(error) => Err(error),
            };
            workers.running.borrow_mut().remove(&volume);
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
                (code, format!("{what} of volume {name} failed: {}", failure.message), failure.hint)
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
        Operation::Dedup { .. } => "the deduplication",
        Operation::Estimate { .. } => "the estimate",
        Operation::Undo { .. } => "the undoing of a deduplication",
        Operation::Compact { .. } => "the compaction",
        Operation::Names { .. } => "the search for names",
        Operation::QuotaSet { .. } | Operation::QuotaRemove { .. } => "the change of a quota",
        Operation::QuotaList { .. } => "the count of quotas",
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
    // It reads its order before it does anything, so it is in its group by then.
    let _group = ControlGroup::with(group, child.id());
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

//! The runtime of one core: tasks, a driver, time. It runs tasks that are ready, hands their requests to the kernel in
//! one batch, and rests only when nothing is ready.
//!
//! Everything in here belongs to the thread that made the runtime. Another thread reaches it through a
//! [`Mailbox`](crate::Mailbox).

use std::cell::Cell;
use std::env;
use std::fmt;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dolmen_block_io::{Clock, Executor, Seams, Spawner};
use dolmen_buffer::{Arena, ArenaConfig};

use crate::clock::MonotonicClock;
use crate::driver::{Driver, DriverCounters, Wait};
use crate::entropy::SystemEntropy;
use crate::park::Parker;
use crate::reactor::Reactor;
use crate::threads::Threads;
use crate::uring::Uring;

/// The setting in the environment that chooses the driver: `io_uring` or `threads`.
pub const DRIVER_VARIABLE: &str = "DOLMEN_IO";
/// Tasks that run between two looks at the kernel, at most, so that a busy task set does not keep answers waiting.
const RUN_BATCH_MAX: usize = 256;
/// How long the end of a runtime waits for the kernel to let go of buffers, unless the configuration says otherwise.
pub const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// How requests reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriverChoice {
    /// As the environment says ([`DRIVER_VARIABLE`]); else io_uring, or threads where the system forbids it.
    #[default]
    Automatic,
    /// io_uring, or an error.
    Uring,
    /// A bounded set of threads.
    Threads,
}

/// What a runtime is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// Memory for the payloads of clients.
    pub data: ArenaConfig,
    /// Memory for metadata.
    pub metadata: ArenaConfig,
    /// How requests reach the kernel.
    pub driver: DriverChoice,
    /// How long the end of the runtime waits for requests that the kernel still holds.
    pub close_limit: Duration,
}

impl RuntimeConfig {
    /// Enough for tests and tools.
    pub const MODEST: Self = Self {
        data: ArenaConfig::MODEST,
        // An open pool keeps two large frames for its log, and reads it again with others.
        metadata: ArenaConfig { small_count: 256, medium_count: 16, large_count: 8 },
        driver: DriverChoice::Automatic,
        close_limit: CLOSE_LIMIT,
    };
}

/// Why there is no runtime.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The system grants no eventfd.
    #[error("making the runtime: no eventfd; see whether the limit of open files is reached (ulimit -n)")]
    Event {
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// io_uring was asked for by name and is not to be had.
    #[error(
        "making the runtime: io_uring was asked for but the system refuses it; \
         allow it (sysctl kernel.io_uring_disabled=0, seccomp), or set DOLMEN_IO=threads"
    )]
    UringRefused {
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The environment names a driver that does not exist.
    #[error(
        "making the runtime: DOLMEN_IO is {found:?}, expected io_uring or threads; correct it or leave it unset"
    )]
    UnknownDriver {
        /// What the environment says.
        found: String,
    },
}

/// What a runtime has done since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuntimeCounters {
    /// Traffic with the kernel.
    pub driver: DriverCounters,
    /// Messages from other threads.
    pub messages: u64,
    /// Times that another thread had to wake the runtime.
    pub unparks: u64,
    /// Times that a task was polled.
    pub polls: u64,
    /// Times that the list of ready tasks was locked. A message is locked once more by whoever sends it, and once by the
    /// runtime.
    pub locks: u64,
}

/// The runtime of one core. Dropping it drops its tasks and waits, within a limit, for the kernel to let go of their
/// buffers; what it does not release is leaked, not freed.
pub struct Runtime {
    handle: Handle,
    close_limit: Duration,
}

/// A handle to a runtime, for opening disks and sockets. Clones are handles to the same.
#[derive(Clone)]
pub struct Handle {
    pub(crate) reactor: Rc<Reactor>,
    pub(crate) parker: Arc<Parker>,
    executor: Rc<Executor>,
    clock: Rc<MonotonicClock>,
    seams: Seams,
}

impl Runtime {
    /// Makes a runtime, which belongs to the calling thread from then on.
    ///
    /// # Errors
    /// [`RuntimeError`].
    pub fn new(config: RuntimeConfig) -> Result<Self, RuntimeError> {
        let parker = Parker::new().map_err(|source| RuntimeError::Event { source })?;
        let driver = make_driver(config.driver, &parker)?;
        let unpark = Arc::clone(&parker);
        let executor = Executor::with_unpark(Some(Box::new(move || unpark.unpark())));
        let clock = MonotonicClock::new();
        let seams = Seams {
            clock: Rc::<MonotonicClock>::clone(&clock),
            entropy: Rc::new(SystemEntropy),
            spawner: Rc::<Executor>::clone(&executor),
            data: Arena::new(config.data),
            metadata: Arena::new(config.metadata),
        };
        let arenas = [seams.data.clone(), seams.metadata.clone()];
        let reactor = Reactor::new(driver, Rc::clone(&clock), Arc::clone(&parker), arenas);
        let handle = Handle { reactor, parker, executor, clock, seams };
        Ok(Self { handle, close_limit: config.close_limit })
    }

    /// The seams that this runtime serves.
    #[must_use]
    pub fn seams(&self) -> Seams {
        self.handle.seams()
    }

    /// A handle for opening disks and sockets.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> RuntimeCounters {
        self.handle.counters()
    }

    /// Runs all tasks until `until` ends. The others rest until the next call.
    pub fn run<T: 'static>(&self, until: impl Future<Output = T> + 'static) -> T {
        let result = Rc::new(Cell::new(None));
        let into = Rc::clone(&result);
        let task = async move { into.set(Some(until.await)) };
        self.handle.executor.spawn("run", Box::pin(task));
        loop {
            self.handle.executor.run_ready(RUN_BATCH_MAX);
            if let Some(value) = result.take() {
                return value;
            }
            self.handle.poll_once();
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.handle.executor.abandon();
        let left = self.handle.reactor.close(self.close_limit);
        if left > 0 {
            tracing::warn!(
                left,
                "the runtime ends while the kernel holds requests; their memory is given up"
            );
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("reactor", &self.handle.reactor).finish_non_exhaustive()
    }
}

impl Handle {
    /// The seams that the runtime serves.
    #[must_use]
    pub fn seams(&self) -> Seams {
        self.seams.clone()
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> RuntimeCounters {
        RuntimeCounters {
            driver: self.reactor.driver_counters(),
            messages: self.parker.messages(),
            unparks: self.parker.unparks(),
            polls: self.executor.poll_count(),
            locks: self.executor.lock_count(),
        }
    }

    /// How requests reach the kernel: `io_uring` or `threads`.
    #[must_use]
    pub fn driver_name(&self) -> &'static str {
        self.reactor.driver_name()
    }

    /// Whether the arenas are registered with the kernel.
    #[must_use]
    pub fn has_registered_buffers(&self) -> bool {
        self.reactor.is_registered()
    }

    /// Names of the tasks that have not ended, for finding out why nothing moves.
    #[must_use]
    pub fn waiting(&self) -> Vec<&'static str> {
        self.executor.waiting()
    }

    /// One look at the kernel and the clock, with a rest when no task is ready.
    fn poll_once(&self) {
        let wait = if self.executor.has_ready() { Wait::Never } else { self.rest() };
        self.reactor.poll_once(wait);
        if self.clock.next_alarm().is_some() || self.reactor.next_expiry().is_some() {
            let now = self.clock.now();
            self.clock.ring(now);
            self.reactor.expire(now);
        }
    }

    /// How long to rest. From `park` on, whoever makes a task ready wakes the runtime; who did so before is seen here.
    fn rest(&self) -> Wait {
        self.parker.park();
        if self.executor.has_ready() {
            return Wait::Never;
        }
        let next = [self.clock.next_alarm(), self.reactor.next_expiry()].into_iter().flatten().min();
        match next {
            None => Wait::Forever,
            Some(next) => match next.since(self.clock.now()) {
                Duration::ZERO => Wait::Never,
                left => Wait::AtMost(left),
            },
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("reactor", &self.reactor).finish_non_exhaustive()
    }
}

fn make_driver(choice: DriverChoice, parker: &Arc<Parker>) -> Result<Box<dyn Driver>, RuntimeError> {
    let named = match choice {
        DriverChoice::Automatic => from_environment()?,
        DriverChoice::Uring | DriverChoice::Threads => choice,
    };
    if named == DriverChoice::Threads {
        return Ok(Box::new(Threads::new(Arc::clone(parker))));
    }
    match Uring::new(Arc::clone(parker)) {
        Ok(driver) => Ok(Box::new(driver)),
        Err(source) if named == DriverChoice::Uring => Err(RuntimeError::UringRefused { source }),
        Err(error) => {
            tracing::warn!(%error, "the system refuses io_uring; disk requests go to threads, at a higher cost each");
            Ok(Box::new(Threads::new(Arc::clone(parker))))
        }
    }
}

/// The driver that is asked for, by the configuration or else by the environment. What is granted may be another.
#[must_use]
pub fn driver_asked_for(choice: DriverChoice) -> DriverChoice {
    match choice {
        DriverChoice::Automatic => from_environment().unwrap_or_default(),
        DriverChoice::Uring | DriverChoice::Threads => choice,
    }
}

fn from_environment() -> Result<DriverChoice, RuntimeError> {
    let Some(value) = env::var_os(DRIVER_VARIABLE) else { return Ok(DriverChoice::Automatic) };
    match value.to_str() {
        Some("io_uring") => Ok(DriverChoice::Uring),
        Some("threads") => Ok(DriverChoice::Threads),
        _ => Err(RuntimeError::UnknownDriver { found: value.to_string_lossy().into_owned() }),
    }
}

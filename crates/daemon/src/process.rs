//! What the process asks of the system, so that writing back memory never has to wait for itself.
//!
//! A page of the page cache above an attached space is written back through this process. If this process then needs
//! memory, and the kernel, to find some, waits for that very page, nothing ever moves again. So: what the process has is
//! locked in, and what it asks for is given without waiting for write-back.

use rustix::fs::Mode;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{
    Resource, Rlimit, Signal, configure_io_flusher_behavior, geteuid, getrlimit, setrlimit, umask,
};

use crate::log::log_panic;

/// The out-of-memory killer takes others first: without this process, the data of all of them stands still.
const OOM_SCORE: &str = "-900";

/// Open files that a daemon may need: two for each of the most disks of a large pool, and as many clients.
const FILES_WANTED: u64 = 4096;
/// Threads that a daemon may need: those of its own, of the driver and of ublk queues.
const THREADS_WANTED: u64 = 1024;
/// Memory that a daemon locks, at most about that much.
const LOCKED_WANTED: u64 = 1 << 30;

/// Prepares the process; what the system does not grant is a warning, since a pool without attached spaces needs none
/// of it.
pub(crate) fn prepare() {
    // Sockets and files of the daemon are its owner's alone.
    umask(Mode::from_raw_mode(0o077));
    if let Err(error) = configure_io_flusher_behavior(true) {
        tracing::warn!(%error, "not an I/O flusher (CAP_SYS_RESOURCE): do not attach spaces while memory is short");
    }
    raise_limits();
    lock_memory();
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE) {
        tracing::warn!(%error, "the out-of-memory killer may take this process first");
    }
}

/// Raises the limits of open files, threads and locked memory to what the system grants; what is less than a daemon may need is
/// a warning with its number.
fn raise_limits() {
    for (limit, what, wanted) in [
        (Resource::Nofile, "open files (LimitNOFILE=, ulimit -n)", FILES_WANTED),
        (Resource::Nproc, "threads (LimitNPROC=, ulimit -u)", THREADS_WANTED),
        (Resource::Memlock, "bytes of locked memory (LimitMEMLOCK=, ulimit -l)", LOCKED_WANTED),
    ] {
        if limit == Resource::Memlock && geteuid().is_root() {
            continue;
        }
        let found = getrlimit(limit);
        let is_less = |bound: Option<u64>| bound.is_some_and(|bound| bound < wanted);
        let maximum = if is_less(found.maximum) { Some(wanted) } else { found.maximum };
        // Who may raise its own limit does; everybody may use what there is of it.
        let raised = Rlimit { current: maximum, maximum };
        if setrlimit(limit, raised).is_err() {
            let _ = setrlimit(limit, Rlimit { current: found.maximum, ..found });
        }
        let granted = getrlimit(limit).current;
        if is_less(granted) {
            tracing::warn!(granted, wanted, "the limit of {what} is less than large pools may need");
        }
    }
}

/// Locks what there is and what will be. Only where there is no limit: with one, later memory would be refused.
fn lock_memory() {
    let unlimited = geteuid().is_root() || getrlimit(Resource::Memlock).current.is_none();
    let locked = if unlimited {
        mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE).map_err(|error| error.to_string())
    } else {
        Err("the limit of locked memory (ulimit -l) is finite".to_owned())
    };
    if let Err(cause) = locked {
        tracing::warn!(%cause, "memory is not locked: do not attach spaces while memory is short");
    }
}

/// A broken invariant ends the process, at once and visibly: whatever thread it is found on, going on could lose data,
/// and the next start recovers.
pub(crate) fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |what| {
        // Where nothing reads the log, the default report would wait for that, and the process would not end.
        if !log_panic(what) {
            report(what);
        }
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::ABORT);
    }));
}

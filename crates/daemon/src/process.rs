//! What the process asks of the system, so that writing back memory never has to wait for itself.
//!
//! A page of the page cache above an attached space is written back through this process. If this process then needs
//! memory, and the kernel, to find some, waits for that very page, nothing ever moves again. So: what the process has is
//! locked in, and what it asks for is given without waiting for write-back.

use rustix::fs::Mode;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Signal, configure_io_flusher_behavior, geteuid, getrlimit, umask};

use crate::log::log_panic;

/// The out-of-memory killer takes others first: without this process, the data of all of them stands still.
const OOM_SCORE: &str = "-900";

/// Prepares the process; what the system does not grant is a warning, since a pool without attached spaces needs none
/// of it.
pub(crate) fn prepare() {
    // Sockets and files of the daemon are its owner's alone.
    umask(Mode::from_raw_mode(0o077));
    if let Err(error) = configure_io_flusher_behavior(true) {
        tracing::warn!(%error, "not an I/O flusher (CAP_SYS_RESOURCE): do not attach spaces while memory is short");
    }
    lock_memory();
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE) {
        tracing::warn!(%error, "the out-of-memory killer may take this process first");
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

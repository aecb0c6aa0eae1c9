//! Threads of their own for what waits on many sockets and computes between.

use std::future::Future;
use std::thread;

use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::error::DaemonError;

/// The stack is locked into memory whole, so it is no larger than it needs to be.
const STACK_BYTES: usize = 512 * 1024;

/// Runs a future on a thread of its own, and what it spawns for as long as that takes.
pub(crate) fn run_on_thread<F: Future<Output = ()>>(
    name: &'static str,
    make: impl FnOnce() -> F + Send + 'static,
) -> Result<(), DaemonError> {
    let failed = |source| DaemonError::Thread { name, source };
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let thread = thread::Builder::new().name(format!("dolmen {name}")).stack_size(STACK_BYTES);
    let started = thread.spawn(move || LocalSet::new().block_on(&runtime, make()));
    started.map(drop).map_err(failed)
}

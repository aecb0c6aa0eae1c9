//! Threads for what blocks: writing the daemon's own files, and asking the kernel for devices. The engine awaits them like
//! any other I/O.

use std::future::Future;
use std::io;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;

use dolmen_block_linux::reply;

use crate::error::DaemonError;

/// Chores that wait, at most: each pool has one under way at a time, and there are fewer pools.
const CHORES_MAX: usize = 256;
/// The stack is locked into memory whole, so it is no larger than it needs to be.
const STACK_BYTES: usize = 256 * 1024;

type Chore = Box<dyn FnOnce() + Send>;

/// A thread that does chores, one after the other. It ends with this.
#[derive(Debug)]
pub(crate) struct IoWorker {
    chores: SyncSender<Chore>,
}

impl IoWorker {
    pub(crate) fn start(name: &'static str) -> Result<Self, DaemonError> {
        let (chores, inbox) = sync_channel::<Chore>(CHORES_MAX);
        let thread = thread::Builder::new().name(format!("dolmen {name}")).stack_size(STACK_BYTES);
        let started = thread.spawn(move || inbox.into_iter().for_each(|chore| chore()));
        started.map_err(|source| DaemonError::Thread { name, source })?;
        Ok(Self { chores })
    }

    /// Has the chore done, in the order of the calls. Begun at the call.
    pub(crate) fn run<T: Send + 'static, F: FnOnce() -> io::Result<T> + Send + 'static>(
        &self,
        chore: F,
    ) -> impl Future<Output = io::Result<T>> + use<T, F> {
        let (answer, awaited) = reply();
        let sent = self.chores.try_send(Box::new(move || answer.send(chore())));
        async move {
            match sent {
                Ok(()) => awaited.await.unwrap_or_else(|lost| Err(io::Error::other(lost))),
                Err(TrySendError::Full(_)) => Err(io::Error::other("too many files wait to be written")),
                Err(TrySendError::Disconnected(_)) => Err(io::Error::other("the daemon is ending")),
            }
        }
    }
}
